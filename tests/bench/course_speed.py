"""What one more notebook costs in an nbgrader batch: our preprocessor beside kernel execution.

`python tests/bench/course_speed.py [NOTEBOOKS]`, by hand; 20 notebooks by default, about fifteen minutes.

In one run on one machine, `nbgrader autograde` on the same solved notebooks: with the course's own configuration
(hidden tests, in the engine), and with stock nbgrader in a kernel for each notebook, where the check cells are

- those of lecture 9, each running the same hidden tests on the notebook's own code;
- the one of `split_mlp` alone, running its public tests, as it does for a student;
- the same, saying nothing but `assert split_mlp`.

The time of a batch of one is taken off, so that starting up doesn't count.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from exercises.paths import use_implementation

use_implementation()

import nbformat
from nbgrader.api import Gradebook

from exercises.manifest import load_manifest
from grader.course.folder import init_course
from grader.course.notebooks import CHECK

LECTURE = "lecture09"
QUICK = {"setup", "given-dist_sim", "split_mlp", "split_mlp-check"}

KIT = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from exercises.paths import use_implementation
use_implementation()
"""  # in place of the setup cell: the student's copy of exercises/ must not be loaded where hidden tests are


def nbgrader(folder: Path, *arguments: str) -> float:
    """Run one nbgrader command in `folder`; how long it took, in seconds."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    began = time.perf_counter()
    command = [sys.executable, "-m", "nbgrader", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"nbgrader {' '.join(arguments)} failed:\n{done.stderr[-3000:]}")
    return time.perf_counter() - began


def hidden_tests(exercise: str) -> str:
    """A check cell's source: the hidden tests on what the cells before it have defined."""
    files = [each.file for each in load_manifest() if each.lecture == LECTURE]
    return f"""
import pytest
from pathlib import Path
for file in {files!r}:
    path = Path("made", file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\\n".join(cell for cell in In if "pytest.main" not in cell and "sys.path" not in cell))
assert pytest.main([{str(ROOT / "tests" / "hidden")!r}, "-q", "--submission", "made", "--exercise", {exercise!r}]) == 0
"""


def course(folder: Path, quick: bool, check: Callable[[str], str] | None) -> dict:
    """A course whose lecture is released; the notebook to hand in, solved. With `check` it is one of stock nbgrader."""
    init_course(folder, "en", None)
    path = folder / "source" / LECTURE / f"{LECTURE}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    if quick:
        notebook.cells = [c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("grade_id") in QUICK]
    ids = [c.metadata.get("nbgrader", {}).get("grade_id") for c in notebook.cells]
    if check is not None:
        (folder / "nbgrader_config.py").unlink()
        if check is hidden_tests:
            notebook.cells[ids.index("setup")].source = KIT
        for cell in notebook.cells:
            if cell.cell_type == "code" and cell.metadata.get("nbgrader", {}).get("grade"):
                cell.source = check(cell.metadata.nbgrader.grade_id.removesuffix(CHECK))
    nbformat.write(notebook, path)
    nbgrader(folder, "generate_assignment", LECTURE)
    for cell in notebook.cells:
        cell.source = re.sub(r" *### (BEGIN|END) SOLUTION\n?", "", cell.source)
    return notebook


def seconds_a_notebook(folder: Path, quick: bool, check: Callable[[str], str] | None, count: int) -> float:
    notebook = course(folder, quick, check)
    for number in range(1 + count):
        place = folder / "submitted" / f"student{number:03d}" / LECTURE
        place.mkdir(parents=True)
        (place / f"{LECTURE}.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    nbgrader(folder, "autograde", LECTURE, "--student", "student000")  # what is compiled and cached once
    one = nbgrader(folder, "autograde", LECTURE, "--student", "student000", "--force")
    taken = (nbgrader(folder, "autograde", LECTURE, "--force") - one) / count
    with Gradebook(f"sqlite:///{folder}/gradebook.db") as gradebook:
        for submission in gradebook.assignment_submissions(LECTURE):
            assert submission.code_score == submission.max_code_score > 0, "a solved notebook without full marks"
    return taken


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    print(f"{count} notebooks, {len(os.sched_getaffinity(0))} cores; seconds for one more notebook")
    with tempfile.TemporaryDirectory() as folder:
        ours = {quick: seconds_a_notebook(Path(folder, f"ours-{quick}"), quick, None, count) for quick in (False, True)}
        for name, quick, check in (
            ("lecture 9, the same hidden tests", False, hidden_tests),
            ("split_mlp, its public tests", True, "check({!r})".format),
            ("split_mlp, `assert split_mlp`", True, "assert {}".format),
        ):
            kernel = seconds_a_notebook(Path(folder, name), quick, check, count)
            times = kernel / ours[quick]
            print(f"{name:34} course {ours[quick]:6.2f}   kernel {kernel:6.2f}   {times:5.1f} times", flush=True)


if __name__ == "__main__":
    main()
