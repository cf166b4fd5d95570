"""A function in a forked child of its own: what it returns comes back, or how the child ended."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from typing import Any

_LOOK_SECONDS = 0.5  # how often to see whether the child still lives


class ChildEnded(Exception):
    """The child came to its end without a result; `exit_code` is None where its time was over."""

    def __init__(self, exit_code: int | None) -> None:
        self.exit_code = exit_code
        super().__init__("took too long" if exit_code is None else f"ended with exit code {exit_code}")


def in_child(function: Callable, *arguments: Any, seconds: float = float("inf")) -> Any:
    """`function(*arguments)` in a forked child, which is gone afterwards. Raises `ChildEnded`.

    The child itself is waited for, never the end of its pipe alone: other children may hold that open.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=lambda: sender.send(function(*arguments)))
    child.start()
    sender.close()
    deadline = time.monotonic() + seconds
    try:
        while not receiver.poll(_LOOK_SECONDS):
            if not child.is_alive() and not receiver.poll(0):
                raise ChildEnded(child.exitcode)
            if time.monotonic() > deadline:
                raise ChildEnded(None)
        return receiver.recv()
    except EOFError:
        child.join()
        raise ChildEnded(child.exitcode) from None
    finally:
        child.kill()
        child.join()
        receiver.close()
