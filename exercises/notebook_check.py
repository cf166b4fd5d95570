"""`check(...)` in a notebook: the public tests of one exercise, run on what the notebook has defined.

The notebook stands in for the student files: a test that imports `dist_sim` gets whatever the notebook defines at that
moment.
"""

from __future__ import annotations

import ast
import contextlib
import html
import io
import os
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from exercises.board import COLOURS, FAILED, MARKS, NOT_RUN, PASSED, TODO, Board, Progress
from exercises.board_text import WORDS
from exercises.manifest import Exercise, load_manifest, student_files
from exercises.paths import EXERCISES, ROOT
from exercises.report import Row, html_report

# Whatever plug-ins or settings are installed beside the kit, these runs are the same.
PYTEST_OPTIONS = (
    *("--rootdir", str(ROOT), "-c", os.devnull, "--import-mode=importlib", "-q", "--disable-plugin-autoload"),
    *("-p", "pytest_timeout", "-p", "no:cacheprovider", "-p", "no:logging", "-p", "no:faulthandler"),
    *("-p", "no:unraisableexception"),
)


class NotPassed(Exception):
    """What `nbgrader validate` reports of a check that did not pass: the board's sentences, without a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


@dataclass(frozen=True)
class Report:
    """What `check` shows: HTML in a notebook, plain text elsewhere."""

    language: str
    headline: str
    points: float
    rows: tuple[Row, ...]
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        rows = [f" {row.mark} {': '.join(text for text in row.texts if text)}" for row in self.rows]
        return "\n".join([self.headline, *rows, *self.notes])

    def _repr_html_(self) -> str:
        words = WORDS[self.language]
        return html_report(self.headline, (words["check"], words["result"]), self.rows, self.notes)


class Checker:
    """The notebook's `check`: call it with the id of an exercise, and with `hint=2` for more hints."""

    def __init__(self, language: str) -> None:
        self.language = language
        self.namespace = vars(sys.modules["__main__"])
        self.folder = tempfile.TemporaryDirectory(prefix="notebook-", ignore_cleanup_errors=True)
        for file in student_files():
            name = Path(file).stem
            path = Path(self.folder.name, file)
            path.parent.mkdir(exist_ok=True)
            path.touch()
            sys.modules[name] = _NotebookModule(name, path, self.namespace)

    def __call__(self, exercise_id: str, hint: int = 1) -> Report | float:
        """Run the public tests of an exercise and show what they found; an unknown id is a `ValueError`.

        Under nbgrader the result is the number of points, and a check that fails under `nbgrader validate` raises
        `NotPassed`.
        """
        exercises = {exercise.id: exercise for exercise in load_manifest()}
        if exercise_id not in exercises:
            raise ValueError(f"there is no exercise {exercise_id!r}; the exercises are {', '.join(exercises)}")
        report = self._report(exercises[exercise_id], hint)
        run_by = os.environ.get("NBGRADER_EXECUTION")
        if run_by is None:
            return report
        if run_by == "validate" and report.points < exercises[exercise_id].points:
            raise NotPassed(str(report))
        _show(report, self.language if run_by == "autograde" else None)
        return report.points

    def _report(self, exercise: Exercise, hint: int) -> Report:
        words = WORDS[self.language]
        needed = exercise.names or [
            name for other in load_manifest() if other.id in exercise.builds_on for name in other.names
        ]
        undefined = [name for name in needed if name not in self.namespace]
        if undefined:
            rows: tuple[Row, ...] = ()
            points, state, counts = 0.0, TODO, words["undefined"].format(names=", ".join(undefined))
        else:
            progress = self._run(exercise)
            points, state = progress.earned, progress.state
            counts = words["counts"].format(passed=progress.count(PASSED), total=len(progress.states))
            rows = tuple(
                Row(MARKS[worst], COLOURS[worst], (name, found)) for name, worst, found in _by_function(progress, words)
            )
        title, of = exercise.title[self.language], words["points"].format(earned=points, total=exercise.points)
        notes = []
        if state == PASSED:
            notes.append(words["all_passed"])
        elif state in (FAILED, TODO):
            hints = exercise.hints[self.language]
            shown = max(0, min(hint, len(hints)))
            notes += [words["hint"].format(n=n, total=len(hints), text=text) for n, text in enumerate(hints[:shown], 1)]
            if shown < len(hints):
                notes.append(words["notebook_more"].format(id=exercise.id, n=shown + 1))
        headline = f"{MARKS[state]} {exercise.id} ({title}) · {of} · {counts}"
        return Report(self.language, headline, points, rows, tuple(notes))

    def _run(self, exercise: Exercise) -> Progress:
        """The board's `Progress` of one exercise."""
        self._write_definitions(exercise)
        watcher = _Watcher()
        implementation = ["--impl", self.folder.name]
        arguments = [str(EXERCISES / exercise.public), *implementation, "--lang", self.language, *PYTEST_OPTIONS]
        with _undisturbed(), contextlib.redirect_stdout(io.StringIO()) as out:
            code = pytest.main(arguments, plugins=[watcher])
        if code in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED):
            raise RuntimeError(f"the tests of {exercise.id} could not be run:\n{out.getvalue()}")
        return watcher.board.progress[exercise.id]

    def _write_definitions(self, exercise: Exercise) -> None:
        """Ranks that are new processes (macOS, Windows) import the student module by name: write it for them."""
        text = definitions_of(self.namespace.get("In", []), exercise.names)
        Path(self.folder.name, exercise.file).write_text(text, encoding="utf-8")


def definitions_of(cells: Iterable[str], names: Iterable[str]) -> str:
    """A module with the imports, functions, classes and assignments of the cells that were run, in their order.

    Of the assignments it has those that define one of `names`, or that a function or class refers to. Everything else
    (calls, prints, plots) stays out. A cell that failed half-way fails half-way here too, so each statement stands in
    a `try`.
    """
    nodes: list[ast.stmt] = []
    for cell in cells:
        with contextlib.suppress(SyntaxError):
            nodes += ast.parse(cell).body
    blocks = [node for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))]
    wanted = set(names) | {n.id for block in blocks for n in ast.walk(block) if isinstance(n, ast.Name)}
    kept = []
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module in ("__future__", "exercises.notebook"):
            continue
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            bound = {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}
            if not bound & wanted:
                continue
        elif node not in blocks and not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        handler = ast.ExceptHandler(ast.Name("Exception"), None, [ast.Pass()])
        kept.append(ast.unparse(ast.fix_missing_locations(ast.Try([node], [handler], [], []))))
    return "\n".join(kept) + "\n"


class _NotebookModule(ModuleType):
    """A student module whose names are those of the notebook, as they are when they are asked for."""

    def __init__(self, name: str, path: Path, namespace: dict[str, Any]) -> None:
        super().__init__(name, f"{name}, as this notebook defines it")
        self.__file__ = str(path)
        self.__spec__ = ModuleSpec(name, None, origin=str(path))
        self._notebook = namespace

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self._notebook:
            raise AttributeError(f"{name} is not defined in this notebook")
        return self._notebook[name]


class _Watcher:
    """The pytest plug-in that keeps the run's board, and adapts it to a notebook."""

    board: Board

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        manager = session.config.pluginmanager
        board = manager.get_plugin("exercises-board")
        assert isinstance(board, Board)
        self.board = board
        self.board.place_of = _place_in_cells
        if not hasattr(signal, "SIGALRM"):
            # There a time limit could only end the whole kernel; the notebook's own stop button does better.
            manager.register(_NoTimeLimit())


class _NoTimeLimit:
    @pytest.hookimpl(tryfirst=True)
    def pytest_timeout_set_timer(self) -> bool:
        return True


def _place_in_cells(error: BaseException) -> str | None:
    """The innermost frame of `error` that lies in a cell, for example "Cell In[4], line 3"."""
    shell = _shell()
    place = None
    trace = error.__traceback__
    while trace is not None and shell is not None:
        name = shell.compile.format_code_name(trace.tb_frame.f_code.co_filename)
        if name:
            place = f"{' '.join(name)}, line {trace.tb_lineno}"
        trace = trace.tb_next
    return place


def _by_function(progress: Progress, words: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    """For each test function: its name in words, the worst state of its cases, and what the first bad case found."""
    functions: dict[str, list[str]] = {}
    for nodeid in progress.states:
        functions.setdefault(nodeid.partition("::")[2].partition("[")[0], []).append(nodeid)
    for function, nodeids in functions.items():
        states = [progress.states[nodeid] for nodeid in nodeids]
        worst = next(state for state in (FAILED, TODO, NOT_RUN, PASSED) if state in states)
        name = function.removeprefix("test_").replace("_", " ")
        if len(nodeids) > 1:
            name += f" ({states.count(PASSED)}/{len(nodeids)})"
        first = nodeids[states.index(worst)]
        found = words["not_run"].format(count=states.count(NOT_RUN)) if worst == NOT_RUN else ""
        yield name, worst, progress.sentences.get(first, found)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """The tests use one thread and their own random numbers; the notebook gets back what it had."""
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def _shell() -> Any:
    """The notebook's IPython shell, or None in a plain interpreter."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython else None


def _show(report: Report, public_only_in: str | None) -> None:
    """Display the report; where the public tests decide the marks, say so in that language."""
    from IPython.display import display

    if public_only_in:
        notice = WORDS[public_only_in]["public_only"]
        display({"text/plain": notice, "text/html": f"<div><b>{html.escape(notice)}</b></div>"}, raw=True)
    display(report)
