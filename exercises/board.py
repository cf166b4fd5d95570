"""The progress board: what `pytest exercises/` says about each exercise, and what to do next."""

from __future__ import annotations

import importlib.util
import os
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_timeout

from console import pad
from exercises.board_text import WORDS
from exercises.checks import CheckFailed, where_in
from exercises.diagnosis import diagnose
from exercises.manifest import Exercise, load_manifest, student_files
from exercises.paths import EXERCISES

PASSED, FAILED, TODO, NOT_RUN = "passed", "failed", "todo", "not_run"
MARKS = {PASSED: "✓", FAILED: "✗", TODO: "·", NOT_RUN: "○"}
COLOURS = {PASSED: "green", FAILED: "red", TODO: "yellow", NOT_RUN: "blue"}


@dataclass
class Progress:
    """One exercise's tests by node id: state, and for one that failed the sentence about it."""

    exercise: Exercise
    states: dict[str, str] = field(default_factory=dict)
    sentences: dict[str, str] = field(default_factory=dict)

    def count(self, state: str) -> int:
        return sum(1 for other in self.states.values() if other == state)

    @property
    def state(self) -> str:
        for state in (FAILED, TODO, NOT_RUN):
            if self.count(state):
                # Something works already: what is left to do reads as a failing check.
                return FAILED if state == TODO and self.count(PASSED) else state
        return PASSED

    @property
    def earned(self) -> float:
        return round(self.exercise.points * self.count(PASSED) / len(self.states), 1)


class Board:
    """The pytest plug-in: names exercises in reports, keeps their time limits, and prints the board."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.words = WORDS[config.getoption("--lang")]
        self.language = config.getoption("--lang")
        self.progress = {exercise.id: Progress(exercise) for exercise in load_manifest()}
        self.stopped: set[str] = set()  # exercises in which a test took too long
        self.files = {file: _file_of(Path(file).stem) for file in student_files()}
        # Where in the student's own code an error arose; a notebook puts its own in the place of this one.
        self.place_of: Callable[[BaseException], str | None] = self._place_in_files

    # What runs

    def pytest_report_header(self) -> list[str]:
        return [self.words["testing"].format(file=_short(file)) for file in self.files.values()]

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        order = {exercise_id: i for i, exercise_id in enumerate(self.progress)}
        waiting = [] if config.getoption("--train") else [item for item in items if item.get_closest_marker("train")]
        if waiting:
            config.hook.pytest_deselected(items=waiting)
        kept = []
        for item in items:
            exercise = self._exercise_of(item.nodeid)
            if exercise and not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(exercise.time_limit))
            if item not in waiting:
                kept.append(item)
        items[:] = sorted(
            kept, key=lambda item: order.get(getattr(self._exercise_of(item.nodeid), "id", ""), len(order))
        )

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self._expect([item.nodeid for item in items if not item.get_closest_marker("train")])

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._expect([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._expect(ids)

    def _expect(self, nodeids: list[str]) -> None:
        for nodeid in nodeids:
            exercise = self._exercise_of(nodeid)
            if exercise:
                self.progress[exercise.id].states.setdefault(nodeid, NOT_RUN)

    def _exercise_of(self, nodeid: str) -> Exercise | None:
        file = nodeid.partition("::")[0]
        return next(
            (p.exercise for p in self.progress.values() if ("/" + file).endswith("/" + p.exercise.public)), None
        )

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        exercise = self._exercise_of(item.nodeid)
        if exercise and exercise.id in self.stopped:
            pytest.skip(self.words["skipped"].format(id=exercise.id))

    # What a test found

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo):
        report = yield
        exercise = self._exercise_of(item.nodeid)
        if exercise and call.excinfo is not None and report.failed:
            report.exercise_state = FAILED
            report.exercise_sentence, details = self._explain(exercise, item.nodeid, call.excinfo.value)
            if isinstance(call.excinfo.value, NotImplementedError):
                report.exercise_state = TODO
            if details and self.config.option.tbstyle == "auto":
                where = f"{_short(item.path)}:{(item.location[1] or 0) + 1}"
                report.longrepr = "\n".join([*details, "", where])
        return report

    def _explain(self, exercise: Exercise, nodeid: str, error: BaseException) -> tuple[str, list[str]]:
        """One or two sentences for the board, and the lines of pytest's own failure section (none: the traceback)."""
        words = self.words
        if isinstance(error, NotImplementedError):
            return words["stub"], [str(error) or words["stub"]]
        if isinstance(error, CheckFailed):
            finding = error.finding[self.language]
            mistakes = [words["mistake"] + m[self.language] for m in diagnose(exercise.id, nodeid, error)]
            lines = [words["called"] + error.call, words["found"] + finding, *mistakes]
            return "\n".join([finding, *mistakes]), lines
        if isinstance(error, pytest.fail.Exception) and "Timeout" in str(error):
            self.stopped.add(exercise.id)
            sentence = words["timeout"].format(id=exercise.id, limit=exercise.time_limit)
            return sentence, [sentence]
        if isinstance(error, (ImportError, SyntaxError)):
            line = f"{error.filename}:{error.lineno}: " if isinstance(error, SyntaxError) else ""
            text = f"{type(error).__name__}: {line}{getattr(error, 'msg', error)}"
            return words["missing_name"].format(file=_short(self.files[exercise.file]), text=text), []
        text = str(error).strip().partition("\n")[0]
        place = self.place_of(error) or exercise.public
        return words["raised"].format(kind=type(error).__name__, place=place, text=text), []

    def _place_in_files(self, error: BaseException) -> str | None:
        own = {str(file) for file in self.files.values()}
        place = where_in(error, own.__contains__)
        return f"{_short(Path(place[0]))}:{place[1]}" if place else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport):
        if getattr(report, "exercise_state", None) == TODO:
            return TODO, MARKS[TODO], ("TODO", {"yellow": True})
        return None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        exercise = self._exercise_of(report.nodeid)
        if exercise is None:
            return
        progress = self.progress[exercise.id]
        if report.failed:
            progress.states[report.nodeid] = getattr(report, "exercise_state", FAILED)
            progress.sentences[report.nodeid] = getattr(report, "exercise_sentence", str(report.longrepr))
        elif report.passed and report.when == "call":
            progress.states[report.nodeid] = PASSED

    # Time limits, where a signal can't interrupt the test (Windows): the process ends, the board comes first

    @pytest.hookimpl(tryfirst=True)
    def pytest_timeout_set_timer(self, item: pytest.Item, settings) -> bool | None:
        if settings.method != "thread":
            return None
        timer = threading.Timer(settings.timeout, self._end_in, args=(item, settings))
        timer.daemon = True
        item.cancel_timeout = timer.cancel  # type: ignore[attr-defined]
        timer.start()
        return True

    def _end_in(self, item: pytest.Item, settings) -> None:
        if not settings.disable_debugger_detection and pytest_timeout.is_debugging():
            return
        manager = self.config.pluginmanager
        manager.getplugin("capturemanager").suspend_global_capture(in_=True)
        reporter = manager.getplugin("terminalreporter")
        exercise = self._exercise_of(item.nodeid)
        if reporter and exercise:
            progress = self.progress[exercise.id]
            progress.states[item.nodeid] = FAILED
            progress.sentences[item.nodeid] = self.words["timeout"].format(id=exercise.id, limit=exercise.time_limit)
            self.pytest_terminal_summary(reporter)
            others = [p.exercise.id for p in self.progress.values() if p.states and p.count(NOT_RUN)]
            shown = ", ".join(others) or self.words["nothing"]
            reporter.write_line(self.words["ended"].format(id=exercise.id, others=shown), red=True)
            reporter._tw.flush()
        os._exit(1)

    # The board

    def pytest_terminal_summary(self, terminalreporter) -> None:
        rows = [progress for progress in self.progress.values() if progress.states]
        if not rows:
            return
        out = terminalreporter
        out.ensure_newline()
        out.section("exercises" if self.language == "en" else "练习进度")
        for number, progress in enumerate(self.progress.values(), 1):
            if progress.states:
                self._row(out, number, progress)
        passed = sum(p.count(PASSED) for p in rows)
        total = sum(len(p.states) for p in rows)
        earned, of = sum(p.earned for p in rows), sum(p.exercise.points for p in rows)
        summary = self.words["all_passed" if passed == total else "some_passed"].format(passed=passed, total=total)
        out.write_line("")
        out.write_line(f"{self.words['points'].format(earned=earned, total=of)}. {summary}", bold=True)
        if self.progress["ablation"].states and not self.config.getoption("--train"):
            out.write_line(self.words["train"])
        following = next((p for p in rows if p.state in (FAILED, TODO)), None)
        if following:
            self._next(out, following)

    def _row(self, out, number: int, progress: Progress) -> None:
        words, state = self.words, progress.state
        exercise = progress.exercise
        points = f"{progress.earned:g}/{exercise.points}"
        counts = words["counts"].format(passed=progress.count(PASSED), total=len(progress.states))
        if state == TODO:
            counts = words["stub"]
        if progress.count(NOT_RUN):
            counts += ", " + words["not_run"].format(count=progress.count(NOT_RUN))
        title = pad(exercise.title[self.language], 28)
        line = f" {MARKS[state]} {number:>2} {exercise.id:<22} {title} {points:>7}   {counts}"
        out.write_line(line, **{COLOURS[state]: True})
        if state == FAILED:
            first = next(n for n, s in progress.states.items() if s in (FAILED, TODO))
            for text in progress.sentences[first].split("\n"):
                out.write_line(f"      {text}")

    def _next(self, out, progress: Progress) -> None:
        words, exercise = self.words, progress.exercise
        out.write_line("")
        out.write_line(words["next"].format(id=exercise.id, title=exercise.title[self.language]), bold=True)
        file = self.files[exercise.file]
        action = words["write" if progress.state == TODO else "mend"]
        names = ", ".join(exercise.names) or exercise.id
        out.write_line("  " + action.format(names=names, place=f"{_short(file)}:{_line_of(file, exercise.names)}"))
        handout = _short(EXERCISES / exercise.lecture / "handout.md")
        heading = f"Exercise: {exercise.id}"
        out.write_line("  " + words["read"].format(heading=heading, handout=handout))
        out.write_line("  " + words["alone"].format(file=_short(EXERCISES / exercise.public)))
        hints = exercise.hints[self.language]
        wanted = max(0, min(self.config.getoption("--hint"), len(hints)))
        for n, text in enumerate(hints[:wanted], 1):
            out.write_line("  " + words["hint"].format(n=n, total=len(hints), text=text))
        if wanted < len(hints):
            out.write_line("  " + words["more"].format(n=wanted + 1))


def _file_of(module: str) -> Path:
    """The file that `import module` would take now."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise pytest.UsageError(f"{module}.py is missing; take it anew from the course's files")
    return Path(spec.origin)


def _short(path: Path) -> str:
    """`path` relative to where the user stands, if it lies below."""
    path, here = Path(path), Path.cwd()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else str(path)


def _line_of(file: Path, names: tuple[str, ...]) -> int:
    """The line where the first of `names` is defined, or 1."""
    pattern = re.compile(rf"(?:def|class) (?:{'|'.join(names)})\b") if names else None
    text = file.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((n for n, line in enumerate(text, 1) if pattern and pattern.match(line)), 1)
