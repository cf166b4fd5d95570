"""The proof of the hidden tests: which test catches which misconception, and whether the message names it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from exercises.manifest import Exercise, load_manifest
from exercises.paths import ROOT
from grader.authoring import SOLUTIONS
from grader.marking import WORDS
from grader.misconceptions import FOLDER, Misconception, load_misconceptions, write_submission
from grader.trial import Outcome, run_many, run_pytest

HIDDEN = ROOT / "tests" / "hidden"


@dataclass(frozen=True)
class Row:
    """What the hidden tests say of one misconception. A test's name begins with its exercise's id: "rope/test_tables[…]"."""

    misconception: Misconception
    caught_by: tuple[str, ...]
    names: frozenset[str]  # the sentences (English) of the misconceptions that the messages name
    changes_a_value: bool  # some check compared numbers and found them wrong

    @property
    def caught_elsewhere(self) -> tuple[str, ...]:
        """The other exercises whose tests fail too."""
        own = self.misconception.exercise
        return tuple(dict.fromkeys(t.partition("/")[0] for t in self.caught_by if t.partition("/")[0] != own))

    @property
    def caught_by_its_own(self) -> bool:
        return any(test.startswith(self.misconception.exercise + "/") for test in self.caught_by)


def affected_by(file: str) -> list[Exercise]:
    """The exercises that a change to a student file can touch: those written in it, and those that build on them."""
    found: list[Exercise] = []
    for exercise in load_manifest():
        if exercise.file == file or set(exercise.builds_on) & {e.id for e in found}:
            found.append(exercise)
    return found


def run_matrix(
    misconceptions: Iterable[Misconception] | None = None,
    train: bool = False,
    workers: int = 2,
    done: Callable[[], None] = lambda: None,
) -> list[Row]:
    """A row for each misconception (default: all). Without `train` only the ablation's own are trained.

    With `train` those are left out that no training can show, because their file has no part in the ablation.
    """
    chosen = list(load_misconceptions() if misconceptions is None else misconceptions)
    if train:
        chosen = [m for m in chosen if any(exercise.id == "ablation" for exercise in affected_by(m.file))]
    with tempfile.TemporaryDirectory() as scratch:
        jobs = []
        for number, misconception in enumerate(chosen):
            folder = write_submission(Path(scratch) / str(number), {misconception.file: misconception.patched()})
            tests = [str(HIDDEN / exercise.hidden) for exercise in affected_by(misconception.file)]
            trains = train or misconception.exercise == "ablation"
            options = ["--submission", str(folder), "--report", f"{folder}.json", "--seed", "1"]
            jobs.append([*tests, *options, *([] if trains else ["-m", "not train"])])
        rows = []
        for number, (misconception, outcomes) in enumerate(zip(chosen, run_many(jobs, workers, done))):
            report = json.loads(Path(scratch, f"{number}.json").read_text(encoding="utf-8"))
            rows.append(_row(misconception, outcomes, report))
        return rows


def write_matrix(train: bool, done: Callable[[], None]) -> str:
    """Run the matrix and write it to MATRIX.md, or MATRIX_TRAINED.md, in tests/misconceptions/; the text."""
    rows = run_matrix(train=train, done=done)
    files = {str(HIDDEN / exercise.hidden) for row in rows for exercise in affected_by(row.misconception.file)}
    with_solutions = [*sorted(files), "--submission", str(SOLUTIONS), *([] if train else ["-m", "not train"])]
    tests = [test_name(outcome.nodeid) for outcome in run_pytest(with_solutions)]
    text = summary(rows, tests)
    (FOLDER / ("MATRIX_TRAINED.md" if train else "MATRIX.md")).write_text(text, encoding="utf-8")
    return text


def _row(misconception: Misconception, outcomes: list[Outcome], report: dict) -> Row:
    failed = [outcome for outcome in outcomes if outcome.state != "passed"]
    mark = WORDS["en"]["mistake"]
    messages = report["exercises"][misconception.exercise]["messages"]
    own = [o for o in failed if test_name(o.nodeid).startswith(misconception.exercise + "/")]
    return Row(
        misconception,
        tuple(test_name(outcome.nodeid) for outcome in failed),
        frozenset(message.removeprefix(mark) for message in messages if message.startswith(mark)),
        any(outcome.projections for outcome in own),
    )


def test_name(nodeid: str) -> str:
    """ "rope/test_tables[8-theta0]" for the node id of a hidden test."""
    file, _, test = nodeid.partition("::")
    exercise = next(e for e in load_manifest() if e.hidden == Path(file).name)
    return f"{exercise.id}/{test}"


def summary(rows: list[Row], tests: list[str]) -> str:
    """The matrix as Markdown: totals, what stands out, and a line for each misconception. `tests` is all there are."""
    caught = {test for row in rows for test in row.caught_by}
    valued = [row for row in rows if row.changes_a_value]
    named = [row for row in valued if row.misconception.en in row.names]
    misnamed = [row for row in rows if row.names - {row.misconception.en}]
    alone = [row for row in rows if row.caught_by_its_own and not row.caught_elsewhere]
    single = [row for row in rows if len(row.caught_by) == 1]
    lines = [
        "# Which hidden test catches which misconception",
        "",
        f"- misconceptions: {len(rows)}; caught: {sum(bool(row.caught_by) for row in rows)}",
        f"- caught by their own exercise's tests and no other's: {len(alone)}",
        f"- that change a value: {len(valued)}; named in the message: {len(named)}",
        f"- with another misconception's name in a message: {len(misnamed)}",
        f"- tests: {len(tests)}; that catch nothing here: {len(set(tests) - caught)}",
        "",
        "## Not caught",
        *[f"- {row.misconception.name}" for row in rows if not row.caught_by],
        "",
        "## Caught by another exercise too, or only there",
        *[f"- {r.misconception.name}: {', '.join(r.caught_elsewhere)}" for r in rows if r.caught_elsewhere],
        "",
        "## Caught by one test only",
        *[f"- {row.misconception.name}: {row.caught_by[0]}" for row in single],
        "",
        "## Another name in the message",
        *[f"- {r.misconception.name}: {'; '.join(sorted(r.names - {r.misconception.en}))}" for r in misnamed],
        "",
        "## Value changed, not named",
        *[f"- {row.misconception.name}" for row in valued if row.misconception.en not in row.names],
        "",
        "## Tests that catch nothing",
        *[f"- {test}" for test in tests if test not in caught],
        "",
        "## All",
        *[f"- {row.misconception.name}: {', '.join(row.caught_by)}" for row in rows],
    ]
    return "\n".join(lines) + "\n"
