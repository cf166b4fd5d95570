"""Results in a terminal: one submission in detail, or a class as a board."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from exercises.manifest import load_manifest
from grader.results import ExerciseResult, SubmissionResult

_STYLES = {"ok": "green", "failed": "red", "not_started": "yellow"}
_SHOWN_MESSAGES = 3


def plain(text: str) -> Text:
    """`text` as it is, but for what would steer a terminal: names and paths come from outside."""
    return Text("".join(char if char.isprintable() else "�" for char in text))


def print_results(results: Sequence[SubmissionResult], console: Console | None = None) -> None:
    """One submission in detail; of several a board, and below it a line for each thing that went wrong."""
    console = console or Console()
    if len(results) == 1 and results[0].status == "graded":
        console.print(_details(results[0]))
        return
    if len(results) > 1:
        console.print(_board(results))
    for result, name in zip(results, _short([result.submission for result in results])):
        if result.status != "graded":
            console.print(plain(f"{name}: {result.status}: {result.reason}"))
            continue
        for note in result.notes:
            console.print(plain(f"{name}: note: {note}"))
        for exercise in result.exercises:
            if exercise.status not in ("ok", "not_started"):
                said = exercise.messages[-1] if exercise.messages else exercise.status
                console.print(plain(f"{name}: {exercise.id}: {said}"))


def _details(result: SubmissionResult) -> Table:
    title = Text.assemble(plain(result.submission), f"  (confined by {result.tier}, seed {result.seed})")
    table = Table(title=title, title_justify="left", show_footer=True, box=None, padding=(0, 1))
    table.add_column("exercise", footer="all")
    table.add_column("points", justify="right", footer=f"{result.points:g} of {result.max:g}")
    table.add_column("status")
    table.add_column("seconds", justify="right")
    table.add_column("what went wrong")
    for exercise in result.exercises:
        shown = [plain(message) for message in exercise.messages[-_SHOWN_MESSAGES:]]
        more = len(exercise.messages) - len(shown)
        said = Text("\n").join([*shown, *([Text(f"and {more} more")] if more else [])])
        points = f"{exercise.points:g} of {exercise.max:g}"
        table.add_row(exercise.id, points, _status(exercise), f"{exercise.seconds:.2f}", said)
    for note in result.notes:
        table.add_row("", "", "", "", plain(f"note: {note}"))
    return table


def _status(exercise: ExerciseResult) -> Text:
    return Text(exercise.status.replace("_", " "), _STYLES.get(exercise.status, "magenta"))


def _board(results: Sequence[SubmissionResult]) -> Table:
    columns = [e for e in load_manifest() if any(e.id == x.id for r in results for x in r.exercises)]
    table = Table(box=None, padding=(0, 1), caption=_legend(columns), caption_justify="left")
    table.add_column("submission")
    table.add_column("points", justify="right")
    for number, _ in enumerate(columns, 1):
        table.add_column(str(number), justify="right")
    shown = _short([result.submission for result in results])
    for result, name in zip(results, shown):
        cells = {exercise.id: _cell(exercise) for exercise in result.exercises}
        points = "–" if result.points is None else f"{result.points:g}"
        table.add_row(plain(name), points, *(cells.get(column.id, Text("–")) for column in columns))
    return table


def _short(paths: list[str]) -> list[str]:
    """The paths without the folders that all of them share."""
    parents = [os.path.dirname(path) for path in paths]
    shared = os.path.commonpath(parents) if all(parents) and len({os.path.isabs(p) for p in parents}) == 1 else ""
    return [os.path.relpath(path, shared) if shared else path for path in paths]


def _cell(exercise: ExerciseResult) -> Text:
    marks = {"ok": "", "failed": "", "not_started": "·"}
    mark = marks.get(exercise.status, exercise.status[0].upper())
    return Text(
        mark if mark and not exercise.points else f"{exercise.points:g}{mark}", _STYLES.get(exercise.status, "magenta")
    )


def _legend(columns: Sequence) -> Text:
    names = ", ".join(f"{number} {column.id} ({column.points})" for number, column in enumerate(columns, 1))
    marks = "· not started, C crashed, T timeout, M memory, O output limit, F forbidden, U ungradable"
    return Text(f"{names}\n{marks}")
