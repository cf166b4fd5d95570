"""Lecture 9, given: run a function on real ranks of `torch.distributed`.

Linux forks the ranks for each call, so they run the code as it is at that moment. Elsewhere, and where a GPU is in
use, they have to be spawned, which takes seconds; they are kept for the next call then.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import pickle
import sys
import sysconfig
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

from rank_process import Call, serve
from rank_verdict import MODULE_LEVEL, CollectiveMismatch, Failure, Rank, RankError, RankTimeout, follow
from rank_watch import AllReduceCount, Collective, counted_all_reduces

__all__ = [
    "AllReduceCount",
    "Collective",
    "CollectiveMismatch",
    "Failure",
    "RankError",
    "RankTimeout",
    "counted_all_reduces",
    "run_on_ranks",
]

_START_METHOD: str | None = None  # "fork" or "spawn"; None for what suits the machine
_START_SECONDS = 120  # for spawned ranks to import torch; the caller's timeout starts after that
_ORPHAN_SECONDS = 60  # beyond the timeout: when a rank whose parent was killed gives up waiting


def run_on_ranks(t: int, fn: Callable, *args: Any, timeout: float = 10.0) -> list:
    """Run `fn(rank, group, *args)` on t ranks, each a process of its own, and return the t results in rank order.

    `group` is a gloo process group of all ranks, and not the default group. `fn` stands at module level; `args` and
    results can be pickled. Each rank begins with the caller's default dtype and random state, on one thread.

    Raises `ValueError` where t < 1; `TypeError` where `fn` or `args` can't be sent to a new process;
    `NotImplementedError` with a rank's own message; `CollectiveMismatch` where the ranks' collectives don't match;
    `RankTimeout` after `timeout` seconds; `RankError` for everything else that a rank fails with. No rank outlives an
    error.
    """
    if t < 1:
        raise ValueError(f"t = {t} ranks can't run anything: t must be at least 1")
    settings = (timeout + _ORPHAN_SECONDS, torch.get_default_dtype(), torch.get_rng_state(), fn, args)
    if (_START_METHOD or _suitable_start_method()) == "fork":
        return _run_on_forked(t, settings, timeout)
    return _run_on_spawned(t, settings, timeout)


def _suitable_start_method() -> str:
    if sys.platform != "linux":  # Windows can't fork, and macOS's own libraries don't survive it
        return "spawn"
    has_gpu = torch.cuda.is_available() or torch.xpu.is_available()
    return "spawn" if has_gpu else "fork"  # autograd's threads for a GPU don't survive it either


def _run_on_forked(t: int, settings: tuple, timeout: float) -> list:
    deadline = time.monotonic() + timeout
    with tempfile.TemporaryDirectory(prefix="ranks-", ignore_cleanup_errors=True) as folder:
        store = os.path.join(folder, "store")
        ranks = _start("fork", [Call(r, t, store, *settings) for r in range(t)])
        try:
            for rank in ranks:
                rank.begin()
            return follow(ranks, timeout, deadline)
        finally:
            _end(ranks)


class _Pool:
    """Spawned ranks between calls."""

    def __init__(self) -> None:
        # torch opens a file by its narrow name, which Windows reads in the system's code page
        ascii_only = sys.platform != "win32" or tempfile.gettempdir().isascii()
        folder = None if ascii_only else os.environ.get("PUBLIC")
        self.folder = tempfile.TemporaryDirectory(prefix="ranks-", dir=folder, ignore_cleanup_errors=True)
        self.ranks: list[Rank] = []
        self.calls = 0
        self.code = _code_in_use()

    def run(self, t: int, settings: tuple, timeout: float) -> list:
        self.calls += 1
        store = os.path.join(self.folder.name, f"store{self.calls}")  # a file of its own for each call
        try:
            calls = [pickle.dumps(Call(r, t, store, *settings)) for r in range(t)]
        except Exception as error:
            raise TypeError(f"{MODULE_LEVEL} ({error})") from error
        self._grow(t)
        deadline = time.monotonic() + timeout
        for rank, call in zip(self.ranks, calls):
            rank.begin()
            rank.connection.send_bytes(call)
        return follow(self.ranks[:t], timeout, deadline)

    def _grow(self, t: int) -> None:
        new = _start("spawn", [None] * (t - len(self.ranks)))
        for rank in new:
            rank.number += len(self.ranks)
        self.ranks += new
        deadline = time.monotonic() + _START_SECONDS
        while not all(rank.status == "ready" for rank in new):
            for rank in new:
                rank.read()
            if any(rank.status == "dead" for rank in new) or time.monotonic() > deadline:
                raise RankError(
                    "the ranks' processes did not start; a script that runs ranks needs `if __name__ == '__main__':`"
                )
            time.sleep(0.01)

    def end(self) -> None:
        _end(self.ranks)
        self.folder.cleanup()


_pool: _Pool | None = None


def _run_on_spawned(t: int, settings: tuple, timeout: float) -> list:
    global _pool
    if _pool and _pool.code != _code_in_use():
        _end_pool()
    if _pool is None:
        _pool = _Pool()
    try:
        return _pool.run(t, settings, timeout)
    except BaseException:
        _end_pool()
        raise


@atexit.register
def _end_pool() -> None:
    global _pool
    if _pool:
        _pool.end()
    _pool = None


def _code_in_use() -> tuple:
    """Changes where a kept rank would run old code: with the import path, or a source file of a module in use."""
    libraries = tuple(os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "purelib", "platlib"))
    files = {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}
    own = sorted(file for file in files if not file.startswith(libraries) and os.path.isfile(file))
    return tuple(sys.path), tuple((file, os.stat(file).st_mtime_ns) for file in own)


def _start(method: str, calls: list[Call | None]) -> list[Rank]:
    """Start a process for each call; None for one that waits for its calls."""
    context: Any = multiprocessing.get_context(method)
    pipes = [context.Pipe() for _ in calls]
    ranks: list[Rank] = []
    try:
        with warnings.catch_warnings():
            # From Python 3.12 on, a fork beside other threads warns. The child needs none of them.
            warnings.simplefilter("ignore", DeprecationWarning)
            for number, ((ours, theirs), call) in enumerate(zip(pipes, calls)):
                inherited = [end for pair in pipes for end in pair if end is not theirs] if method == "fork" else []
                process = context.Process(target=serve, args=(theirs, inherited, list(sys.path), call), daemon=True)
                process.start()
                ranks.append(Rank(number, process, ours))
    except BaseException:
        _end(ranks)
        raise
    finally:
        for _, theirs in pipes:
            theirs.close()
    return ranks


def _end(ranks: list[Rank]) -> None:
    for rank in ranks:
        rank.process.kill()
    for rank in ranks:
        rank.process.join()
        rank.process.close()
        rank.connection.close()
