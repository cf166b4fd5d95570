"""The trusted side: the hidden tests, run against a student whose code lives in a confined process.

Nothing that comes from there is believed or shown. Replies are values for the tests to compare; of an exception the
type counts if Python or torch know it, and the line if the student's file has it.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import json
import re
import select
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

import pytest
import torch

from exercises.checks import global_state
from exercises.manifest import Exercise, load_manifest
from exercises.paths import ROOT
from grader.intake import Submission
from grader.marking import ENGINE, Marking
from grader.results import ExerciseResult, ExerciseStatus
from grader.solver import wire
from grader.solver.confinement import Limits
from grader.student import NESTED, Cell, ReplyUnusable, Student, StudentGone, StudentRaised
from grader.trial import BARE

HIDDEN = ROOT / "tests" / "hidden"
MEMORY_BYTES = 1 << 30
_RANKS = 16  # processes, where an exercise needs any
_ENOUGH = 3  # a child that has died, or met a limit, this many times is not replaced any more
_START_SECONDS = 60  # for a child to be confined and to parse its files, on a machine however busy
_ENDING_SECONDS = 1  # for a process that has closed its wire to end by itself
_REPORT_SECONDS = 60  # for the server to tell how a child ended, on a machine however busy


class EngineTrouble(Exception):
    """Something of ours failed, not the student's code: no points are given or taken for it."""


@dataclass
class Usage:
    """What a student's processes took, all of one exercise together."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    memory_mb: float = 0.0


class SolverStudent(Student):
    """One exercise's student, in a confined child of the solver server.

    A child that has died is replaced for the next test, a few times and as long as the exercise's time lasts.
    `events` are the statuses of what went wrong, in order.
    """

    def __init__(
        self, control: socket.socket, exercise: Exercise, sources: dict[str, list[Cell]], unreadable: Mapping[str, str]
    ) -> None:
        self.events: list[str] = []
        self.usage = Usage()
        self.unreadable = dict(unreadable)  # why, by file or cell
        self._control = control
        self._exercise = exercise
        self._sources = dict(sources)
        processes = _RANKS if exercise.ranks else 1
        self._limits = Limits(4 * exercise.time_limit, MEMORY_BYTES, processes)
        self._left = 6.0 * exercise.time_limit  # a loop without end is over sooner: it meets its limit _ENOUGH times
        self._wire: socket.socket | None = None
        self._report: socket.socket | None = None
        self._number = 0
        self._changes: list[str] = []

    def ask(self, request: str, *arguments: Any, **options: Any) -> Any:
        if self._wire is None:
            self._open()
        if self.unreadable_here:
            raise StudentGone("ungradable")
        if self._left <= 0:
            raise StudentGone("timeout")
        if len(self.events) >= _ENOUGH:
            raise StudentGone(self.events[-1])
        self._number += 1
        order = {
            "number": self._number,
            "request": request,
            "arguments": list(arguments),
            "options": options,
            "dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        }
        return self._outcome(self._exchange(order))

    def state_changes(self) -> list[str]:
        return self._changes

    @property
    def unreadable_here(self) -> str | None:
        """Why this exercise's file, or its cell of a notebook, can't be graded."""
        return self.unreadable.get(self._exercise.file) or self.unreadable.get(self._exercise.id)

    def close(self) -> None:
        """End the child and everything it has started; what it took is in `usage` afterwards."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None
            self._ending()

    def _exchange(self, order: dict) -> Any:
        began = time.monotonic()
        deadline = began + min(self._left, self._exercise.time_limit)
        assert self._wire is not None
        try:
            wire.send(self._wire, order, deadline)
            reply = wire.receive(self._wire, deadline)
            if not isinstance(reply, dict) or reply.get("number") != self._number:
                raise wire.WireError("that is no reply to the question")
            return reply
        except wire.WireTimeout:
            self._gone("timeout")
        except wire.WireClosed:
            self._gone(None)
        except wire.WireError:
            self._gone("forbidden")
        finally:
            spent = time.monotonic() - began
            self._left -= spent
            self.usage.seconds += spent

    def _outcome(self, reply: dict) -> Any:
        known = [en for en, _ in global_state()]
        changes = reply.get("changes")
        self._changes = [name for name in known if isinstance(changes, list) and name in changes]
        raised = reply.get("raised")
        if isinstance(raised, dict):
            hit = raised.get("hit")
            if hit in ("memory", "output", "forbidden"):
                self.events.append("output_limit" if hit == "output" else hit)
            text = raised.get("text")
            raise StudentRaised(
                _kind(raised.get("kind")),
                self._line(raised.get("line")),
                text if isinstance(text, str) else "",
                _sentence(raised.get("sentence")),
            )
        if "value" not in reply:
            raise ReplyUnusable()
        return reply["value"]

    def _open(self) -> None:
        """A new child, with all of the student's files that Python can read."""
        while True:
            (ours, theirs), (report, servers) = socket.socketpair(), socket.socketpair()
            with theirs, servers:
                try:
                    limits = json.dumps(asdict(self._limits)).encode()
                    socket.send_fds(self._control, [limits], [theirs.fileno(), servers.fileno()])
                except OSError as error:
                    raise EngineTrouble("the solver server is gone") from error
            self._wire, self._report = ours, report
            if self._begun(time.monotonic() + _START_SECONDS):
                return

    def _begun(self, deadline: float) -> bool:
        """Whether the child is ready. A file that ended it while it was parsed is left out of the next one."""
        assert self._wire is not None
        reading = ""
        try:
            files = {
                file: [(cell.label, _as_tensor(cell.source)) for cell in cells] for file, cells in self._sources.items()
            }
            wire.send(self._wire, files, deadline)
            while True:
                what, content = wire.receive(self._wire, deadline)
                if what == "setup":
                    raise EngineTrouble(f"a process could not be confined: {content}")
                if what == "ready":
                    self.unreadable |= content
                    return True
                reading = content
        except wire.WireError as error:
            self._wire.close()
            self._wire = None
            report = self._ending()
            if not reading or isinstance(error, wire.WireTimeout) or "setup" in report:
                detail = report.get("setup") or error
                raise EngineTrouble(f"a solver process did not start: {detail}") from error
            self.unreadable[reading] = NESTED
            del self._sources[reading]
            return False

    def _gone(self, status: str | None) -> None:
        """The child is of no more use: end it, find out what happened, and say so."""
        assert self._wire is not None
        self._wire.close()
        self._wire = None
        if status is None:
            assert self._report is not None
            select.select([self._report], [], [], _ENDING_SECONDS)  # it has closed its wire: it may be ending by itself
        report = self._ending()
        if "setup" in report:
            raise EngineTrouble(report["setup"])
        if status is None:
            out_of_time = report["cpu_seconds"] >= self._limits.cpu_seconds
            killed = {"memory": "memory", "processes": "forbidden"}.get(report["killed"])
            status = killed or ("timeout" if out_of_time else "crashed")
        self.events.append(status)
        raise StudentGone(status)

    def _ending(self) -> dict:
        """The server's report of the child's end, which closing our side brings about."""
        assert self._report is not None
        with self._report as report:
            self._report = None
            with contextlib.suppress(OSError):
                report.shutdown(socket.SHUT_WR)
            report.settimeout(_REPORT_SECONDS)
            try:
                ending = json.loads(report.recv(1 << 16))
            except (OSError, ValueError) as error:
                raise EngineTrouble("the solver server does not answer") from error
        self.usage.cpu_seconds += ending.get("cpu_seconds", 0.0)
        self.usage.memory_mb = max(self.usage.memory_mb, ending.get("memory_mb", 0.0))
        return ending

    def _line(self, place: Any) -> str:
        """A place in the student's files, as it was told, if there is such a line."""
        match = re.fullmatch(r"(.{1,40}):(\d{1,6})", place) if isinstance(place, str) else None
        if match is None:
            return ""
        for cells in self._sources.values():
            for cell in cells:
                if cell.name == match[1] and int(match[2]) <= 1 + len(cell.source.splitlines()):
                    return f"{cell.name}:{int(match[2])}"
        return ""


def _as_tensor(source: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(source), dtype=torch.uint8) if source else torch.zeros(0, dtype=torch.uint8)


def _kind(name: Any) -> str:
    """The name of an exception's type if it is Python's or ours: another could carry anything."""
    known = getattr(builtins, name, None) if isinstance(name, str) else None
    if isinstance(known, type) and issubclass(known, BaseException):
        return known.__name__
    return name if name in ("RankError", "CollectiveMismatch", "RankTimeout") else "Exception"


def _sentences() -> re.Pattern[str]:
    """What `run_on_ranks` can say of ranks that never met (`rank_verdict`), word for word."""
    ranks = r"ranks? \d{1,2}(, \d{1,2}){0,7}"
    kind = "(all-reduce|all-gather|reduce-scatter|all-to-all|broadcast|gather|scatter|reduce|barrier)"
    phase = "in (forward|backward)"
    op = "(sum|avg|product|min|max|band|bor|bxor|premul_sum)"
    cargo = rf"{kind}( \({op} of \d{{1,5}} (float|bfloat|int)\d\d elements\))?"
    waiting = rf"waiting in {kind} {phase}( on the default group)?"
    place = rf"(finished|{waiting}|computing, after {kind} {phase}|computing, before any collective)"
    return re.compile(
        rf"{ranks} never called {kind} {phase} \({ranks} waits? there\)"
        rf"|{ranks} called {kind} {phase} only \d{{1,2}} times? \({ranks} waits? in one more\)"
        rf"|the ranks' collectives don't match: rank \d calls {cargo} {phase}, rank \d calls {cargo} {phase}"
        rf"|not finished after \d{{1,3}} s\. {ranks}: {place}(; {ranks}: {place}){{0,7}}"
    )


_SENTENCES = _sentences()


def _sentence(text: Any) -> str:
    """The text if it is one of those sentences: any other could carry what the student's code wants it to."""
    return text if isinstance(text, str) and _SENTENCES.fullmatch(text) else ""


class Bench:
    """The pytest plug-in that gives the hidden tests their students, and keeps the marks."""

    def __init__(self, control: socket.socket, submission: Submission, language: str) -> None:
        self.control = control
        self.submission = submission
        self.language = language
        self.marking: Marking | None = None
        self.students: dict[str, SolverStudent] = {}
        self.trouble: EngineTrouble | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        config.stash[ENGINE] = self

    def student(self, exercise: Exercise) -> SolverStudent:
        refused = {file: text[self.language] for file, text in self.submission.refused.items()}
        student = SolverStudent(self.control, exercise, self.submission.sources, refused)
        self.students[exercise.id] = student
        return student

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo):
        report = yield
        if call.excinfo and isinstance(call.excinfo.value, EngineTrouble):
            self.trouble = call.excinfo.value
            item.session.shouldstop = "the engine has trouble"
        return report


def prove(control: socket.socket, hidden: list[str], needed: list[str]) -> None:
    """A child starts, answers, and sees the files in `needed` and none of those in `hidden`; else `EngineTrouble`."""
    student = SolverStudent(control, load_manifest()[0], {}, {})
    try:
        visible = student.ask("visible", [*hidden, *needed])
    except (StudentGone, StudentRaised, ReplyUnusable) as error:
        raise EngineTrouble(f"a solver process does not answer ({error})") from error
    finally:
        student.close()
    if seen := [path for path in hidden if path in visible]:
        raise EngineTrouble(f"student code could read {', '.join(seen)}")
    if missing := [path for path in needed if path not in visible]:
        raise EngineTrouble(f"it could not read {', '.join(missing)}, which it needs")


def judge(
    control: socket.socket, submission: Submission, exercises: list[Exercise], seed: int, language: str
) -> list[ExerciseResult]:
    """The results of `exercises`, with the solver server at the other end of `control`. Raises `EngineTrouble`."""
    bench = Bench(control, submission, language)
    arguments = [str(HIDDEN), "--seed", str(seed), "--lang", language]
    for exercise in exercises:
        arguments += ["--exercise", exercise.id]
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
        code = pytest.main([*arguments, *BARE], plugins=[bench])
    if bench.trouble:
        raise bench.trouble
    if bench.marking is None or code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise EngineTrouble(f"pytest ended with {code!r}: {out.getvalue()[-2000:]}")
    report = bench.marking.report()["exercises"]
    return [_result(e, report[e.id], bench, bench.marking) for e in exercises]


def _result(exercise: Exercise, entry: dict, bench: Bench, marking: Marking) -> ExerciseResult:
    student = bench.students[exercise.id]
    messages = entry["messages"]
    if student.unreadable_here:
        status: ExerciseStatus = "ungradable"
        messages = [marking.unreadable(exercise, student.unreadable_here)]
    elif marking.all_passed(exercise):
        status = "ok"
    elif student.events:
        status = cast(ExerciseStatus, student.events[0])
    else:
        status = "not_started" if marking.not_started(exercise) else "failed"
    return ExerciseResult(
        id=exercise.id,
        status=status,
        points=entry["points"],
        max=entry["max"],
        messages=messages,
        seconds=round(student.usage.seconds, 3),
        cpu_seconds=round(student.usage.cpu_seconds, 3),
        memory_mb=student.usage.memory_mb,
    )
