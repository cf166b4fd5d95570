"""Trying an implementation: one pytest run in a forked child of a process that has torch loaded already.

For the kit's own work (fingerprints, the matrix of misconceptions), on trusted code; grading has its own engine.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from exercises.checks import CheckFailed, projections
from exercises.diagnosis import fingerprint_key
from exercises.manifest import student_files
from grader.forked import ChildEnded, in_child
from grader.student import GIVEN_ON_TOP

# Whatever plug-ins are installed beside it, a trial loads pytest-timeout only: some take longer to load than all tests.
# So does writing tracebacks, which nobody reads here.
_PLUGINS = ["--disable-plugin-autoload", "-p", "pytest_timeout", "-p", "no:cacheprovider", "-p", "no:logging"]
BARE = ["-q", "--tb=no", *_PLUGINS]


@dataclass
class Outcome:
    """One test: `state` is passed, failed or skipped; of a failed check also what it compared, and the result there."""

    nodeid: str
    state: str
    key: str = ""
    projections: list[float] = field(default_factory=list)
    message: str = ""


def run_pytest(arguments: list[str]) -> list[Outcome]:
    """Run pytest with `arguments` in a forked child; the outcomes of its tests.

    A child that dies before it has reported is a `RuntimeError`.
    """
    try:
        return in_child(_run_here, arguments)
    except ChildEnded as ended:
        raise RuntimeError(f"pytest {' '.join(arguments)} {ended}, without a report") from ended


def run_many(
    jobs: Iterable[list[str]], workers: int = 2, done: Callable[[], None] = lambda: None
) -> Iterator[list[Outcome]]:
    """`run_pytest` for each of `jobs`, `workers` at a time, in order; `done` is called as each one ends."""

    def one(arguments: list[str]) -> list[Outcome]:
        try:
            return run_pytest(arguments)
        finally:
            done()

    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(one, jobs)


class _Collector:
    def __init__(self) -> None:
        self.outcomes: dict[str, Outcome] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        if report.failed:
            outcome = self.outcomes[item.nodeid] = Outcome(item.nodeid, "failed", message=str(report.longrepr))
            failure = call.excinfo.value
            if isinstance(failure, CheckFailed):
                outcome.key = fingerprint_key(item.nodeid, failure)
                outcome.projections = [] if failure.numbers is None else projections(failure.numbers)
        elif report.when == "call" or report.skipped:
            self.outcomes.setdefault(item.nodeid, Outcome(item.nodeid, report.outcome))
        return report


def forget_student_modules() -> None:
    """Unload student files and what is built on them, so that the path decides anew."""
    for name in (*(Path(file).stem for file in student_files()), *GIVEN_ON_TOP):
        sys.modules.pop(name, None)


def _run_here(arguments: list[str]) -> list[Outcome]:
    torch.set_num_threads(1)
    forget_student_modules()
    collector = _Collector()
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
        code = pytest.main([*arguments, *BARE], plugins=[collector])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        print(out.getvalue(), file=sys.stderr)
        sys.exit(int(code))
    return list(collector.outcomes.values())
