"""The grading engine: intake, a judge process for each submission, and a solver server that they share.

Use it as a context manager: `with Engine() as engine: result = engine.grade(path)`.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import secrets
import select
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest
import torch

from exercises.manifest import Exercise, load_manifest, student_files
from grader import judge
from grader.authoring import SOLUTIONS
from grader.forked import ChildEnded, in_child
from grader.intake import Refused, Submission, take
from grader.results import ExerciseResult, SubmissionResult
from grader.solver import rank_requests
from grader.solver.confinement import TIERS, bubblewrap, command_of_server, environment_of_server
from grader.solver.syscalls import landlock_version
from grader.trial import BARE

_SERVER_SECONDS = 180  # to import torch, on a machine however busy
_JUDGE_SECONDS = 1800  # for one submission: beyond all that its exercises may take


class NoTier(Exception):
    """This machine offers no confinement in which hidden tests may meet code that is not trusted."""


class Engine:
    """Grades submissions, several at a time. Ending it ends every process that it has started.

    `tier` asks for one tier of confinement instead of the best one. On the tier `limits` alone it refuses to start
    unless `trust` says that the code is trusted. `seed` replays the inputs of an earlier run.
    """

    def __init__(
        self,
        *,
        trust: bool = False,
        tier: str | None = None,
        seed: int | None = None,
        language: str = "en",
        workers: int | None = None,
    ) -> None:
        self.tier = ""
        self.workers = workers or len(os.sched_getaffinity(0))
        self._trust = trust
        self._wanted = tier
        self._seed = seed
        self._language = language
        self._server: subprocess.Popen | None = None
        self._control: socket.socket | None = None
        self._lock = threading.Lock()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115, what the server prints, as long as the engine lives

    def __enter__(self) -> Engine:
        torch.set_num_threads(1)
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """End the solver server, and with it all of its children."""
        self._stop()
        self._log.close()

    def grade(self, path: str | Path, exercises: Sequence[str] | None = None) -> SubmissionResult:
        """The result of one submission; `exercises` are ids.

        Where it is None, a notebook is graded on its lecture's exercises and everything else on all of the manifest's.
        """
        chosen = _asked(Path(path), exercises)
        seed = secrets.randbelow(2**32) if self._seed is None else self._seed
        base = SubmissionResult(submission=str(path), status="graded", points=0.0, max=_maximum(chosen))
        try:
            submission = take(Path(path))
        except Refused as refusal:
            reason = refusal.text[self._language]
            lost = [
                ExerciseResult(id=e.id, status="ungradable", points=0.0, max=e.points, messages=[reason])
                for e in chosen
            ]
            return base.but(status="ungradable", reason=reason, exercises=lost)
        except OSError as error:
            reason = f"the submission could not be read: {error.strerror}"
            return base.but(status="error", reason=reason, points=None)
        chosen = _asked(Path(path), exercises, submission)
        notes = [note[self._language] for note in submission.notes]
        base = base.but(max=_maximum(chosen), tier=self.tier, seed=seed, files=submission.digests(), notes=notes)
        try:
            results = self._judge(submission, chosen, seed)
        except (judge.EngineTrouble, OSError) as trouble:
            return base.but(status="error", reason=str(trouble), points=None)
        points = round(sum(result.points for result in results), 2)
        return base.but(points=points, exercises=results)

    def grade_all(
        self,
        paths: Iterable[str | Path],
        exercises: Sequence[str] | None = None,
        done: Callable[[], None] = lambda: None,
    ) -> Iterator[SubmissionResult]:
        """`grade` for each of `paths`, several at a time, in order; `done` is called as each one ends."""

        def one(path: str | Path) -> SubmissionResult:
            try:
                return self.grade(path, exercises)
            finally:
                done()

        with ThreadPoolExecutor(self.workers) as pool:
            yield from pool.map(one, paths)

    def _judge(self, submission: Submission, chosen: list[Exercise], seed: int) -> list[ExerciseResult]:
        """In a process of its own, so that nothing of one submission's tests is left for the next."""
        with self._lock:
            if self._server is None or self._server.poll() is not None:  # something has ended it: begin anew
                self._stop()
                self._start()
        assert self._control is not None
        arguments = (self._control, submission, chosen, seed, self._language)
        try:
            outcome = in_child(_judge_here, *arguments, seconds=_JUDGE_SECONDS)
        except ChildEnded as ended:
            raise judge.EngineTrouble(f"the judge process {ended}") from ended
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _start(self) -> None:
        """A solver server, in the best tier that works here."""
        failures = []
        for tier in self._candidates():
            try:
                self._start_server(tier)
                self._prove(tier)
            except (judge.EngineTrouble, OSError) as error:
                failures.append(f"{tier}: {error}")
                self._stop()
            else:
                self.tier = tier
                return
        why = "".join(f"\n  {failure}" for failure in failures)
        raise NoTier(
            "this machine can't confine student code well enough for the hidden tests; install bubblewrap, or add "
            f"--trust if you trust the code that you grade{why}"
        )

    def _candidates(self) -> list[str]:
        if self._wanted:
            return [self._wanted] if self._wanted != "limits" or self._trust else []
        offered = {
            "bubblewrap": bubblewrap() is not None,
            "landlock": landlock_version() >= 2,
            "uid": os.geteuid() == 0,
            "limits": self._trust,
        }
        return [tier for tier in TIERS if offered[tier]]

    def _start_server(self, tier: str) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._control = ours
            self._server = subprocess.Popen(
                command_of_server(tier, [str(theirs.fileno())]),
                pass_fds=[theirs.fileno()],
                env=environment_of_server(),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                cwd="/",
                start_new_session=True,
            )
        _load_hidden_tests()  # meanwhile: the server takes seconds to load torch
        ready, _, _ = select.select([ours], [], [], _SERVER_SECONDS)
        if not ready or ours.recv(16) != b"ready":
            self._log.seek(0)
            text = self._log.read()[-500:].decode(errors="replace").strip()
            raise judge.EngineTrouble(f"the solver server did not start ({text or 'it said nothing'})")

    def _prove(self, tier: str) -> None:
        """A first child shows that the confinement can be set up, and that it hides what it should."""
        assert self._control is not None
        hidden = [judge.HIDDEN / "reference.py", *(SOLUTIONS / file for file in student_files())]
        judge.prove(self._control, [] if tier == "limits" else list(map(str, hidden)), [os.__file__, torch.__file__])

    def _stop(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._server is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._server.wait(2)
            self._server.kill()
            self._server.wait()
            self._server = None


def _asked(path: Path, exercises: Sequence[str] | None, submission: Submission | None = None) -> list[Exercise]:
    """The exercises to grade. A notebook's lecture is that of the files in it or, while nothing is read, of its name."""
    everything = load_manifest()
    if exercises is not None:
        return [exercise for exercise in everything if exercise.id in exercises]
    if path.suffix.lower() != ".ipynb":
        return list(everything)
    files = submission.sources if submission else {}
    found = [e for e in everything if (e.file in files if submission else e.lecture in path.name)]
    return found or list(everything)


def _maximum(exercises: Sequence[Exercise]) -> float:
    return float(sum(exercise.points for exercise in exercises))


def _judge_here(*arguments) -> list[ExerciseResult] | judge.EngineTrouble:
    try:
        return judge.judge(*arguments)
    except judge.EngineTrouble as trouble:
        return trouble
    except Exception as error:
        return judge.EngineTrouble(f"the judge failed: {type(error).__name__}: {error}")


@cache
def _load_hidden_tests() -> None:
    """Once here, so that each judge, which is forked from here, finds them loaded."""
    importlib.import_module(rank_requests.COUNTING)
    path = list(sys.path)
    with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing), contextlib.redirect_stderr(nothing):
        arguments = [str(judge.HIDDEN), "--submission", str(judge.HIDDEN), "--collect-only", *BARE]
        code = pytest.main(arguments)
    sys.path[:] = path  # the hidden tests' conftest has put the stubs in front, which is no business of this process
    if code != pytest.ExitCode.OK:
        raise judge.EngineTrouble(f"the hidden tests can't be collected ({code!r}); run pytest {judge.HIDDEN}")
