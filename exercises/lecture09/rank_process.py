"""Lecture 9, given: one rank's process. It runs the calls that the parent sends and reports what becomes of them."""

from __future__ import annotations

import gc
import os
import pickle
import queue
import signal
import socket
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from rank_watch import Collective, CollectiveWatch


class Call(NamedTuple):
    """What a rank needs for one call of `run_on_ranks`."""

    rank: int
    t: int
    store: str  # path of the file over which the ranks find each other
    seconds: float  # how long a collective may wait where no parent is left to end it
    default_dtype: torch.dtype
    rng_state: torch.Tensor
    fn: Callable
    args: tuple


def serve(connection: Connection, inherited: list[Connection], path: list[str], call: Call | None) -> None:
    """Run `call`, if a fork brought one along, then the calls that arrive, until the parent ends this process.

    Reports are pickled tuples: ("ready",), ("start", collective), ("wait", bool), ("done", result), ("failed", text…)
    and ("unreadable", text). After "done" and "failed" the process stays, so that no other rank sees its connections
    close and reports that instead of the cause.
    """
    sys.path[:] = path  # the parent's: a spawned process runs the main script's top, which may have changed it
    torch.set_num_threads(1)  # before anything else: a forked child has none of its parent's OpenMP threads
    gc.freeze()  # looking through what a fork brought along would copy all of it
    for other in inherited:  # or this process would keep the parent's ends open
        other.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which ends this process
    _stay_on_loopback()
    _report_waits(connection)
    calls: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, calls), daemon=True).start()
    if call is None:
        _report(connection, "ready")
    else:
        _run(connection, call)
    while True:
        data = calls.get()
        try:
            call = pickle.loads(data)
        except Exception as error:
            _report(connection, "unreadable", f"{type(error).__name__}: {error}")
        else:
            _run(connection, call)


def _receive(connection: Connection, calls: queue.SimpleQueue) -> None:
    try:
        while True:
            calls.put(connection.recv_bytes())
    except (EOFError, OSError):
        os._exit(0)  # the parent is gone


def _run(connection: Connection, call: Call) -> None:
    try:
        if dist.is_initialized():  # the last call's group: every rank is through with it by now
            dist.destroy_process_group()
        torch.set_grad_enabled(True)
        torch.set_default_dtype(call.default_dtype)
        torch.set_rng_state(call.rng_state)
        store = dist.FileStore(call.store, call.t)
        timeout = timedelta(seconds=call.seconds)
        dist.init_process_group("gloo", store=store, rank=call.rank, world_size=call.t, timeout=timeout)
        group = dist.new_group(range(call.t), timeout=timeout)
        with CollectiveWatch(lambda collective: _starts(connection, collective), lambda: _waiting(connection)):
            result = call.fn(call.rank, group, *call.args)
        try:
            report = pickle.dumps(("done", result))
        except Exception as error:
            raise TypeError(f"the result can't be pickled, so it can't leave the rank: {error}") from error
    except BaseException as error:  # SystemExit as well: whatever ends the program is the parent's to tell
        where = _own_line(error)
        report = pickle.dumps(("failed", type(error).__name__, str(error), where, traceback.format_exc()))
    sys.stdout.flush()
    sys.stderr.flush()
    connection.send_bytes(report)


def _report(connection: Connection, *report: Any) -> None:
    connection.send_bytes(pickle.dumps(report))


def _starts(connection: Connection, collective: Collective) -> None:
    if not collective.dense:  # gloo would take the memory behind it for the other elements, and destroy it
        raise RuntimeError(
            "this all-reduce works in place on a tensor whose elements do not fill their memory one by one, such as "
            "an expanded gradient; reduce a clone of it"
        )
    _report(connection, "start", collective)


@contextmanager
def _waiting(connection: Connection) -> Iterator[None]:
    _report(connection, "wait", True)
    try:
        yield
    finally:
        _report(connection, "wait", False)


def _report_waits(connection: Connection) -> None:
    """From now on this process reports when it waits for a collective (`Work.wait`, asynchronous or not)."""
    wait = dist.Work.wait

    def reported_wait(work, *args, **kwargs):
        with _waiting(connection):
            return wait(work, *args, **kwargs)

    dist.Work.wait = reported_wait  # type: ignore[method-assign, assignment]


def _stay_on_loopback() -> None:
    """Tell gloo which interface to use: it would look up the host's name, which can take seconds or fail."""
    loopback = {"lo", "lo0"} & {name for _, name in socket.if_nameindex()}  # Linux, macOS
    if loopback:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback.pop())


def _own_line(error: BaseException) -> str:
    """Where the error arose: the innermost line that is neither PyTorch's, nor Python's, nor ours. "" if none is."""
    libraries = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders = tuple(os.path.join(folder, "") for folder in (*libraries, os.path.dirname(torch.__file__)))
    given = {str(Path(__file__).with_name(name)) for name in ("rank_process.py", "rank_watch.py")}
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith((*folders, "<frozen")) and frame.filename not in given:
            place = f"{os.path.basename(frame.filename)}, line {frame.lineno}, in {frame.name}"
            return f"{place}: {frame.line}" if frame.line else place
    return ""
