"""Lecture 9, given: what the parent of a set of ranks concludes from their reports, and the errors that say so."""

from __future__ import annotations

import pickle
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from rank_watch import Collective

_SETTLE_SECONDS = 0.5  # once one rank has failed: how long the others may take to show where they stand

MODULE_LEVEL = (
    "the ranks are new processes, so fn must stand at module level of a file that they can import, "
    "and args must be picklable"
)


class Failure(NamedTuple):
    """What ended one rank."""

    type: str  # the exception's type, or "" where the process died
    message: str
    where: str  # the innermost line that is not a library's, such as "tp_autograd.py, line 20, in backward: …"
    traceback: str

    def __str__(self) -> str:
        text = f"raised {self.type}: {self.message}" if self.type else self.message
        return f"{text} ({self.where})" if self.where else text


class RankError(RuntimeError):
    """A rank program failed. `failures` maps each rank that failed by itself to its `Failure`."""

    def __init__(self, message: str, failures: dict[int, Failure] | None = None) -> None:
        super().__init__(message)
        self.failures = failures or {}


class CollectiveMismatch(RankError):
    """The ranks don't call the same collectives, so that some of them would wait for ever."""


class RankTimeout(RankError):
    """The ranks did not come to an end in time."""


@dataclass
class Rank:
    """What the parent knows of one rank."""

    number: int
    process: BaseProcess
    connection: Connection
    status: str = "new"  # then "ready" (if spawned), "running", and at last "done", "failed" or "dead"
    result: Any = None
    failure: Failure | None = None
    waits: bool = False
    collectives: list[Collective] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)  # collectives on each group

    def begin(self) -> None:
        self.status, self.result, self.failure, self.waits = "running", None, None, False
        self.collectives, self.calls = [], Counter()

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
            self.calls[values[0].group] += 1
        elif what == "wait":
            self.waits = values[0]
        elif what == "done":
            self.status, self.result = "done", values[0]
        elif what == "failed":
            self.status, self.failure = "failed", Failure(*values)
        else:
            raise TypeError(f"{MODULE_LEVEL} ({values[0]})")

    def _death(self) -> str:
        code = self.process.exitcode
        if code is not None and code < 0:
            text = f"died with signal {-code} ({signal.Signals(-code).name})"
        else:
            text = f"died with exit code {code}"
        return f"{text} in {self.collectives[-1]}" if self.waits and self.collectives else text

    @property
    def place(self) -> str:
        if self.status == "done":
            return "finished"
        if self.failure:
            return str(self.failure)
        if self.waits and self.collectives:
            on = " on the default group" if self.collectives[-1].group == "default" else ""
            return f"waiting in {self.collectives[-1]}{on}"
        return f"computing, after {self.collectives[-1]}" if self.collectives else "computing, before any collective"


def follow(ranks: list[Rank], timeout: float, deadline: float) -> list:
    """The ranks' results. Raises a `RankError` or `NotImplementedError` as soon as it is clear that there are none."""
    agreed = _Agreement(ranks)
    settled_by = deadline
    while True:
        # Again and again until nothing is new: what one rank did before another failed is known, then, as well.
        while any([rank.read() for rank in ranks]):
            pass
        agreed.check()
        if all(rank.status == "done" for rank in ranks):
            return [rank.result for rank in ranks]
        failed = any(rank.failure for rank in ranks) or _absent(ranks)
        if failed:
            settled_by = min(settled_by, time.monotonic() + _SETTLE_SECONDS)
            if time.monotonic() >= settled_by or all(_is_settled(rank, ranks) for rank in ranks):
                _raise_failure(ranks)
                raise CollectiveMismatch(_absence(ranks))
        left = settled_by - time.monotonic()
        if left <= 0:
            places = "; ".join(f"{_names(group)}: {place}" for place, group in _by_text(ranks, "place"))
            raise RankTimeout(f"not finished after {timeout:g} s. {places}")
        wait([rank.connection for rank in ranks if rank.status != "dead"], left)


class _Agreement:
    """The k-th collective on a group is the same one on all its ranks."""

    def __init__(self, ranks: list[Rank]) -> None:
        self._ranks = ranks
        self._checked = [0 for _ in ranks]
        self._counts: list[Counter[str]] = [Counter() for _ in ranks]
        self._first: dict[tuple[str, int], tuple[Rank, Collective]] = {}

    def check(self) -> None:
        for i, rank in enumerate(self._ranks):
            for call in rank.collectives[self._checked[i] :]:
                self._counts[i][call.group] += 1
                other, expected = self._first.setdefault((call.group, self._counts[i][call.group]), (rank, call))
                if call.cargo != expected.cargo:
                    both = sorted([(other.number, expected), (rank.number, call)])
                    texts = (f"rank {number} calls {made.cargo} in {made.phase}" for number, made in both)
                    raise CollectiveMismatch(f"the ranks' collectives don't match: {', '.join(texts)}")
            self._checked[i] = len(rank.collectives)


def _absent(ranks: list[Rank]) -> list[tuple[Rank, Rank]]:
    """Pairs (a, b): a has called a collective that b, a member of its group, has finished without."""
    pairs = []
    for a in ranks:
        if a.status == "running" and a.collectives:
            last = a.collectives[-1]
            pairs += [
                (a, b)
                for b in ranks
                if b.number in last.ranks and b.status == "done" and b.calls[last.group] < a.calls[last.group]
            ]
    return pairs


def _is_settled(rank: Rank, ranks: list[Rank]) -> bool:
    """It has ended, or waits for a rank that has ended without calling the same collective."""
    if rank.status != "running":
        return True
    if not rank.waits or not rank.collectives:
        return False
    last = rank.collectives[-1]
    return any(
        other.number in last.ranks and other.status != "running" and other.calls[last.group] < rank.calls[last.group]
        for other in ranks
    )


def _raise_failure(ranks: list[Rank]) -> None:
    failures = {rank.number: rank.failure for rank in ranks if rank.failure}
    for failure in failures.values():
        if failure.type == "NotImplementedError":
            raise NotImplementedError(failure.message)
    if any(rank.status == "dead" for rank in ranks):  # the others' broken connections are its doing
        failures = {number: failure for number, failure in failures.items() if "gloo/transport" not in failure.message}
    if failures:
        failed = _by_text([rank for rank in ranks if rank.number in failures], "failure")
        raise RankError("\n".join(f"{_names(group)} {text}" for text, group in failed), failures)


def _absence(ranks: list[Rank]) -> str:
    """The sentence that says which rank has left out which collective."""
    a, b = _absent(ranks)[0]
    group = a.collectives[-1].group
    called, lacking = ([str(call) for call in rank.collectives if call.group == group] for rank in (a, b))
    index = next((i for i, (x, y) in enumerate(zip(called, lacking)) if x != y), len(lacking))
    what, before = called[index], called[:index].count(called[index])
    absent = [rank for rank in ranks if rank.status == "done" and rank.calls[group] == b.calls[group]]
    waiting = [rank for rank in ranks if rank.status == "running" and rank.calls[group] == a.calls[group]]
    verb = "wait" if len(waiting) > 1 else "waits"
    if not before:
        return f"{_names(absent)} never called {what} ({_names(waiting)} {verb} there)"
    times = f"{before} time" if before == 1 else f"{before} times"
    return f"{_names(absent)} called {what} only {times} ({_names(waiting)} {verb} in one more)"


def _by_text(ranks: list[Rank], attribute: str) -> list[tuple[str, list[Rank]]]:
    """The ranks, those with the same text together."""
    texts = [str(getattr(rank, attribute)) for rank in ranks]
    return [(text, [rank for rank, own in zip(ranks, texts) if own == text]) for text in dict.fromkeys(texts)]


def _names(ranks: list[Rank]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(str(rank.number) for rank in ranks)}"
