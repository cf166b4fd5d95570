"""`pytest tests/hidden --submission DIR`: hidden tests against a folder that is trusted, in this process.

Hidden tests reach student code through the `student` fixture only, draw fresh inputs from `draw`, and compare with the
single-device model or with `reference`. Their weights share out an exercise's points.
"""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from exercises.language import LANGUAGES
from exercises.manifest import load_manifest
from exercises.paths import use_implementation

use_implementation()
sys.path.insert(0, str(Path(__file__).parent))

import torch

from draws import Draw
from grader.marking import ENGINE, Marking
from grader.student import InProcessStudent, Student

if TYPE_CHECKING:
    from grader.judge import Bench


def pytest_addoption(parser: pytest.Parser, pluginmanager) -> None:
    # Until this runs pytest doesn't know --submission and takes its DIR for a folder of tests: no conftest.py of a
    # submission may be loaded. pytest has no public switch for that.
    pluginmanager._noconftest = True
    group = parser.getgroup("hidden tests")
    group.addoption("--submission", metavar="DIR", help="the folder to grade; its code runs in this process")
    group.addoption("--exercise", metavar="ID", action="append", help="grade this exercise only; may be repeated")
    group.addoption("--report", metavar="FILE", help="write points and messages as JSON")
    group.addoption("--seed", type=int, help="replay the inputs of an earlier run (default: fresh ones)")
    group.addoption("--lang", choices=LANGUAGES, default="en", help="language of the messages")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "weight(n): how much this test counts within its exercise (default 1)")
    config.addinivalue_line("markers", "train: trains a model")
    folder = config.getoption("--submission")
    if engine_of(config) is None and (folder is None or not Path(folder).is_dir()):
        raise pytest.UsageError("say which folder to grade: pytest tests/hidden --submission DIR")
    known = [exercise.id for exercise in load_manifest()]
    for exercise in config.getoption("--exercise") or ():
        if exercise not in known:
            raise pytest.UsageError(f"there is no exercise {exercise}; choose one of {', '.join(known)}")
    if config.getoption("--seed") is None:
        config.option.seed = secrets.randbelow(2**32)
    judge = _Judge(config)
    config.pluginmanager.register(judge, "judge")
    if engine := engine_of(config):
        engine.marking = judge.marking


def engine_of(config: pytest.Config) -> Bench | None:
    return config.stash.get(ENGINE, None)


class _Judge:
    """Selects tests, gathers a `Marking`, names misconceptions, writes the report."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.marking = Marking(config.getoption("--lang"))
        self.students: dict[str, InProcessStudent] = {}

    def pytest_report_header(self) -> str:
        return f"submission {self.config.getoption('--submission')}, seed {self.config.getoption('--seed')}"

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        only = self.config.getoption("--exercise")
        left_out = [e.hidden for e in load_manifest() if only is not None and e.id not in only]
        return True if collection_path.name in left_out else None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        order = {exercise.hidden: i for i, exercise in enumerate(load_manifest())}
        items.sort(key=lambda item: order[item.path.name])
        for item in items:
            exercise = self.exercise_of(item)
            if engine_of(config) is None:  # the engine has its own clock, which the judge's own work doesn't count on
                item.add_marker(pytest.mark.timeout(exercise.time_limit))
            marker = item.get_closest_marker("weight")
            self.marking.expect(exercise, item.nodeid, marker.args[0] if marker else 1)

    def exercise_of(self, item: pytest.Item):
        return next(exercise for exercise in load_manifest() if exercise.hidden == item.path.name)

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function):
        try:
            return (yield)
        except Exception as error:
            self.marking.diagnose(pyfuncitem.nodeid, error, lambda misconception: self.again(pyfuncitem, misconception))
            raise

    def again(self, item: pytest.Function, misconception) -> None:
        """The same test on the same inputs, with a misconception in the student's place."""
        student = self.students.get(misconception.name)
        if student is None:
            student = InProcessStudent(solutions() | {misconception.file: misconception.patched()})
            self.students[misconception.name] = student
        names = item._fixtureinfo.argnames
        arguments = {name: item.funcargs[name] for name in names}
        arguments |= {"student": student} if "student" in names else {}
        arguments |= {"draw": new_draw(self.config, item.nodeid)} if "draw" in names else {}
        item.obj(**arguments)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo):
        report = yield
        if report.when == "call" and report.passed:
            self.marking.passed(item.nodeid)
        elif not report.passed:
            error = call.excinfo.value if call.excinfo else None
            message = self.marking.failed(item.nodeid, error)
            if self.config.option.tbstyle == "auto":
                report.longrepr = message
        return report

    def pytest_terminal_summary(self, terminalreporter) -> None:
        report = self.marking.report()
        terminalreporter.ensure_newline()
        terminalreporter.section("points")
        for exercise_id, entry in report["exercises"].items():
            terminalreporter.write_line(f"{exercise_id:<24}{entry['points']:>7g} of {entry['max']}")
            for message in entry["messages"][-3:]:
                terminalreporter.write_line(f"    {message}")
        terminalreporter.write_line(f"{'':<24}{report['points']:>7g} of {report['max']}", bold=True)

    def pytest_sessionfinish(self) -> None:
        file = self.config.getoption("--report")
        if file:
            report = self.marking.report() | {"seed": self.config.getoption("--seed")}
            Path(file).write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def solutions() -> dict[str, Path]:
    return {e.file: ROOT / "solutions" / e.file for e in load_manifest()}


def new_draw(config: pytest.Config, nodeid: str) -> Draw:
    return Draw(config.getoption("--seed"), nodeid.rpartition("/")[2])


@pytest.fixture(scope="module")
def student(request: pytest.FixtureRequest) -> Iterator[Student]:
    """One for each exercise."""
    engine = engine_of(request.config)
    if engine is None:
        yield InProcessStudent.from_folder(Path(request.config.getoption("--submission")).resolve())
        return
    exercise = next(exercise for exercise in load_manifest() if exercise.hidden == request.path.name)
    student = engine.student(exercise)
    yield student
    student.close()


@pytest.fixture
def draw(request: pytest.FixtureRequest) -> Draw:
    return new_draw(request.config, request.node.nodeid)


@pytest.fixture(autouse=True)
def _float64():
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
