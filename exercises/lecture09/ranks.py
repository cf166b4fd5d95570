"""Lecture 9, given: run a function on real ranks, and say what went wrong where they do not come to an end.

Linux forks the ranks for each call, so they run the code as it is at that moment. Elsewhere, and where a GPU is in
use, they have to be started afresh, which takes seconds; they are kept for the next call then.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import pickle
import signal
import sys
import sysconfig
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import torch
from rank_process import Call, serve
from rank_watch import AllReduceCount, Collective, counted_all_reduces

__all__ = [
    "AllReduceCount",
    "CollectiveMismatch",
    "Failure",
    "RankError",
    "RankTimeout",
    "counted_all_reduces",
    "run_on_ranks",
]

_START_METHOD: str | None = None  # "fork" or "spawn"; None for what suits the machine
_START_SECONDS = 120  # for spawned ranks to import torch; the caller's timeout starts after that
_SETTLE_SECONDS = 0.5  # once one rank has failed: how long the others may take to show where they stand


class Failure(NamedTuple):
    """What ended one rank."""

    type: str  # the exception's type, or "" where the process died
    message: str
    where: str  # the innermost line that is not a library's, such as "tp_autograd.py, line 20, in backward: …"
    traceback: str

    def __str__(self) -> str:
        text = f"{self.type}: {self.message}" if self.type else self.message
        return f"{text} ({self.where})" if self.where else text


class RankError(RuntimeError):
    """A rank program failed. `failures` maps each rank that failed by itself to its `Failure`."""

    def __init__(self, message: str, failures: dict[int, Failure] | None = None) -> None:
        super().__init__(message)
        self.failures = failures or {}


class CollectiveMismatch(RankError):
    """The ranks do not call the same collectives, so that some of them would wait for ever."""


class RankTimeout(RankError):
    """The ranks did not come to an end in time."""


def run_on_ranks(t: int, fn: Callable, *args: Any, timeout: float = 10.0) -> list:
    """Run `fn(rank, group, *args)` on t ranks, each a process of its own, and return the t results in rank order.

    `group` is a gloo process group of all ranks, and not the default group. `fn` stands at module level; `args` and
    results can be pickled. Each rank begins with the caller's default dtype and random state, and on one thread.

    Raises `ValueError` where t < 1; `TypeError` where `fn` or `args` can't be sent to a new process;
    `NotImplementedError` with a rank's own message; `CollectiveMismatch` where the ranks' collectives don't match;
    `RankTimeout` after `timeout` seconds; `RankError` for everything else that a rank fails with. No rank outlives an
    error.
    """
    if t < 1:
        raise ValueError(f"t = {t} ranks can't run anything: t must be at least 1")
    settings = (timeout + 60, torch.get_default_dtype(), torch.get_rng_state(), fn, args)
    if (_START_METHOD or _suitable_start_method()) == "fork":
        return _run_on_forked(t, settings, timeout)
    return _run_on_spawned(t, settings, timeout)


def _suitable_start_method() -> str:
    if sys.platform != "linux":  # Windows can't fork, and macOS's own libraries don't survive it
        return "spawn"
    return "spawn" if torch.accelerator.is_available() else "fork"  # nor do autograd's threads for a GPU


@dataclass
class _Rank:
    """What the parent knows of one rank."""

    number: int
    process: multiprocessing.process.BaseProcess
    connection: Connection
    status: str = "new"  # then "running", and at last "done", "failed" or "dead"
    result: Any = None
    failure: Failure | None = None
    waits: bool = False
    collectives: list[Collective] = field(default_factory=list)

    def begin(self) -> None:
        self.status, self.result, self.failure, self.waits, self.collectives = "running", None, None, False, []

    def read(self) -> bool:
        """Take in what the rank has reported so far. False where there was nothing new."""
        if self.status == "dead":
            return False
        any_new = False
        try:
            while self.connection.poll():
                self._take(*pickle.loads(self.connection.recv_bytes()))
                any_new = True
        except (EOFError, OSError):
            self.process.join(5)
            self.status, self.failure, any_new = "dead", Failure("", self._death(), "", ""), True
        return any_new

    def _take(self, what: str, *values: Any) -> None:
        if what == "ready":
            self.status = "ready"
        elif what == "start":
            self.collectives.append(values[0])
        elif what == "wait":
            self.waits = values[0]
        elif what == "done":
            self.status, self.result = "done", values[0]
        elif what == "failed":
            self.status, self.failure = "failed", Failure(*values)
        else:
            raise TypeError(f"{_MODULE_LEVEL} (a rank reports {values[0]})")

    def _death(self) -> str:
        code = self.process.exitcode
        if code is None or code >= 0:
            text = f"died with exit code {code}"
        else:
            text = f"died with signal {-code} ({signal.Signals(-code).name})"
        if not self.waits:
            return text
        hint = "" if self.collectives[-1].dense else "; its tensor is not contiguous, so reduce a contiguous copy"
        return f"{text} in {self.collectives[-1]}{hint}"

    def place(self) -> str:
        """Where the rank is, as the end of a sentence."""
        if self.status == "done":
            return f"has finished after {_count(len(self.collectives), 'collective')}"
        if self.waits and self.collectives:
            return f"waits in {self.collectives[-1]}"
        after = f", after {self.collectives[-1]}" if self.collectives else " and has called no collective yet"
        return f"is computing{after}"

    def on(self, group: str) -> list[Collective]:
        return [collective for collective in self.collectives if collective.group == group]


_MODULE_LEVEL = (
    "the ranks are new processes, so fn must stand at module level of a file that they can import, "
    "and args must be picklable"
)


# --- starting and ending processes


def _start(method: str, calls: Iterable[Call | None]) -> list[_Rank]:
    context = multiprocessing.get_context(method)
    calls = list(calls)
    pipes = [context.Pipe() for _ in calls]
    ranks = []
    with warnings.catch_warnings():
        # From Python 3.12 on, a fork with threads around warns. The child runs no code that needs the others.
        warnings.simplefilter("ignore", DeprecationWarning)
        for number, ((ours, theirs), call) in enumerate(zip(pipes, calls)):
            others = [end for pair in pipes for end in pair if end is not theirs] if method == "fork" else []
            process = context.Process(target=serve, args=(theirs, others, call), daemon=True)
            process.start()
            ranks.append(_Rank(number, process, ours))
    for _, theirs in pipes:
        theirs.close()
    return ranks


def _end(ranks: list[_Rank]) -> None:
    for rank in ranks:
        rank.process.kill()
    for rank in ranks:
        rank.process.join()
        rank.process.close()
        rank.connection.close()


def _run_on_forked(t: int, settings: tuple, timeout: float) -> list:
    with tempfile.TemporaryDirectory(prefix="ranks-", ignore_cleanup_errors=True) as folder:
        ranks: list[_Rank] = []
        deadline = time.monotonic() + timeout
        try:
            store = os.path.join(folder, "store")
            ranks = _start("fork", (Call(r, t, store, *settings) for r in range(t)))
            return _results(ranks, timeout, deadline)
        finally:
            _end(ranks)


class _Pool:
    """Spawned ranks between calls."""

    def __init__(self) -> None:
        folder = tempfile.gettempdir()
        # torch opens the file by a narrow path, which on Windows fails for letters outside the system's code page
        folder = os.environ.get("PUBLIC") if sys.platform == "win32" and not folder.isascii() else None
        self.folder = tempfile.TemporaryDirectory(prefix="ranks-", dir=folder, ignore_cleanup_errors=True)
        self.ranks: list[_Rank] = []
        self.calls = 0
        self.code = _code_in_use()

    def run(self, t: int, settings: tuple, timeout: float) -> list:
        self.calls += 1
        store = os.path.join(self.folder.name, f"store{self.calls}")
        try:
            calls = [pickle.dumps(Call(r, t, store, *settings)) for r in range(t)]
        except Exception as error:
            raise TypeError(f"{_MODULE_LEVEL} ({error})") from error
        self._grow(t)
        ranks = self.ranks[:t]
        deadline = time.monotonic() + timeout
        for rank, call in zip(ranks, calls):
            rank.begin()
            rank.connection.send_bytes(call)
        return _results(ranks, timeout, deadline)

    def _grow(self, t: int) -> None:
        new = _start("spawn", [None] * (t - len(self.ranks)))
        for rank in new:
            rank.number += len(self.ranks)
        self.ranks += new
        deadline = time.monotonic() + _START_SECONDS
        while any(rank.status == "new" for rank in new):
            wait([rank.connection for rank in new], max(0, deadline - time.monotonic()))
            for rank in new:
                rank.read()
            if any(rank.status == "dead" for rank in new) or time.monotonic() > deadline:
                raise RankError("the ranks' processes did not start: is `if __name__ == '__main__':` missing?")

    def end(self) -> None:
        _end(self.ranks)
        self.ranks = []
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
    """Changes where a kept rank would run old code: with the import path, or a file of a module in use."""
    libraries = tuple(os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "purelib", "platlib"))
    files = {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}
    own = sorted(file for file in files if os.path.isfile(file) and not file.startswith(libraries))
    return tuple(sys.path), tuple((file, os.stat(file).st_mtime_ns) for file in own)


# --- following the ranks


def _results(ranks: list[_Rank], timeout: float, deadline: float) -> list:
    for rank in ranks:
        rank.status = "running"
    settled_by = None
    while True:
        # Again and again until nothing is new: what one rank did before another failed is known, then, as well.
        while any([rank.read() for rank in ranks]):
            pass
        _check_agreement(ranks)
        if all(rank.status == "done" for rank in ranks):
            return [rank.result for rank in ranks]
        now = time.monotonic()
        if any(rank.status in ("failed", "dead") or _absent(rank, ranks) for rank in ranks):
            settled_by = settled_by or now + _SETTLE_SECONDS
            if now >= settled_by or all(rank.status != "running" or _is_stuck(rank, ranks) for rank in ranks):
                _raise_failure(ranks)
                _raise_absence(ranks)
        if now >= deadline:
            places = "; ".join(f"{_names(numbers)} {place}" for place, numbers in _by(_Rank.place, ranks).items())
            failures = {rank.number: rank.failure for rank in ranks if rank.failure}
            raise RankTimeout(f"not finished after {timeout:g} s: {places}", failures)
        until = min(deadline, settled_by or deadline)
        wait([rank.connection for rank in ranks if rank.status != "dead"], max(0, until - now))
