"""What one more notebook costs in an nbgrader batch: our preprocessor beside kernel execution.

`python tests/bench/course_speed.py [NOTEBOOKS]`, by hand; 20 notebooks by default, about ten minutes.

In one run on one machine, `nbgrader autograde` on the same solved notebooks of lecture 9: with the course's own
configuration (hidden tests, in the engine), and with stock nbgrader (the public tests, in a kernel for each notebook).
Then the same on a notebook with a single quick exercise. The time of a batch of one is taken off, so that starting up
doesn't count.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from exercises.paths import use_implementation

use_implementation()

import nbformat

from grader.course.folder import init_course

LECTURE = "lecture09"
QUICK = {"setup", "given-dist_sim", "split_mlp", "split_mlp-check"}


def nbgrader(folder: Path, *arguments: str) -> float:
    """Run one nbgrader command in `folder`; how long it took, in seconds."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    began = time.perf_counter()
    command = [sys.executable, "-m", "nbgrader", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"nbgrader {' '.join(arguments)} failed:\n{done.stderr[-3000:]}")
    return time.perf_counter() - began


def course(folder: Path, quick: bool, stock: bool) -> dict:
    """A course whose lecture is released; the notebook to hand in, solved."""
    init_course(folder, "en", None)
    if stock:
        (folder / "nbgrader_config.py").unlink()
    path = folder / "source" / LECTURE / f"{LECTURE}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    if quick:
        notebook.cells = [c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("grade_id") in QUICK]
        nbformat.write(notebook, path)
    nbgrader(folder, "generate_assignment", LECTURE)
    for cell in notebook.cells:
        cell.source = re.sub(r" *### (BEGIN|END) SOLUTION\n?", "", cell.source)
    return notebook


def seconds_a_notebook(folder: Path, quick: bool, stock: bool, count: int) -> float:
    notebook = course(folder, quick, stock)
    for number in range(1 + count):
        place = folder / "submitted" / f"student{number:03d}" / LECTURE
        place.mkdir(parents=True)
        (place / f"{LECTURE}.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    nbgrader(folder, "autograde", LECTURE, "--student", "student000")  # what is compiled and cached once
    one = nbgrader(folder, "autograde", LECTURE, "--student", "student000", "--force")
    return (nbgrader(folder, "autograde", LECTURE, "--force") - one) / count


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    print(f"{count} notebooks, {len(os.sched_getaffinity(0))} cores; seconds for one more notebook")
    for name, quick in (("lecture 9", False), ("one quick exercise", True)):
        with tempfile.TemporaryDirectory() as folder:
            ours = seconds_a_notebook(Path(folder, "ours"), quick, False, count)
            kernel = seconds_a_notebook(Path(folder, "stock"), quick, True, count)
        print(f"{name:20} course {ours:6.2f}   stock nbgrader {kernel:6.2f}   {kernel / ours:5.1f} times", flush=True)


if __name__ == "__main__":
    main()
