"""The engine beside nbgrader's kernels and plain pytest: `python tests/bench/engine_speed.py [SUBMISSIONS]`, by hand.

In one run, the same functional hidden tests on the same number of copies of the solutions:

- this engine, as many at a time as there are cores;
- `nbgrader autograde`, on notebooks that hold the same code and one cell that runs the same tests in the kernel;
- `pytest tests/hidden`, a fresh process for each submission, as many at a time as there are cores.

Then a trivial check, so that little but each tool's own cost is left: for the engine the hidden tests of `swiglu`, for
nbgrader the student's cell and `assert SwiGLU`. The kernel has to import torch, because the student's code does; beside
it stands a notebook with nothing but `assert True`. What is compared is the time of one more submission: the start of
each tool is taken off by timing one submission first. Needs nbgrader.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from exercises.paths import use_implementation

use_implementation()

import nbformat

from exercises.manifest import load_manifest, student_files
from grader.authoring import SOLUTIONS
from grader.engine import Engine

FUNCTIONAL = [exercise.id for exercise in load_manifest() if exercise.id != "ablation"]
CORES = len(os.sched_getaffinity(0))


def seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def marginal(run: Callable[[int], object], count: int) -> float:
    """Seconds that one more submission takes."""
    first = seconds(lambda: run(1))
    return (seconds(lambda: run(count)) - first) / (count - 1)


def with_engine(exercises: list[str]) -> Callable[[int], object]:
    def run(count: int) -> None:
        with Engine() as engine:
            for result in engine.grade_all([SOLUTIONS] * count, exercises):
                assert result.points == result.max, result

    return run


def with_pytest(count: int) -> None:
    chosen = [part for exercise in FUNCTIONAL for part in ("--exercise", exercise)]
    command = [sys.executable, "-m", "pytest", "tests/hidden", "-q", "--submission", "solutions", *chosen]
    with ThreadPoolExecutor(CORES) as pool:
        list(pool.map(lambda _: subprocess.run(command, cwd=ROOT, check=True, capture_output=True), range(count)))


def marginal_of_nbgrader(answer: str, check: str, count: int) -> float:
    """The same for `nbgrader autograde`, with these sources of the student's and of the graded cell."""
    taken = []
    for n in (1, count):
        with tempfile.TemporaryDirectory() as course:
            lay_out(Path(course), answer, check, n)
            nbgrader(course, "generate_assignment", "hw", "--create", "--force")
            taken.append(seconds(lambda: nbgrader(course, "autograde", "hw", "--force")))
    return (taken[1] - taken[0]) / (count - 1)


def nbgrader(course: str, *arguments: str) -> None:
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-m", "nbgrader", *arguments]
    subprocess.run(command, cwd=course, check=True, capture_output=True, env=environment)


def lay_out(course: Path, code: str, check: str, count: int) -> None:
    """A course with one notebook, handed in `count` times."""
    graded = {"schema_version": 3, "grade": True, "solution": False, "locked": True, "task": False}
    answer = nbformat.v4.new_code_cell(code)
    answer.metadata["nbgrader"] = graded | {"grade": False, "solution": True, "locked": False, "grade_id": "answer"}
    test = nbformat.v4.new_code_cell(check)
    test.metadata["nbgrader"] = graded | {"grade_id": "test", "points": 94}
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = nbformat.v4.new_notebook(cells=[answer, test], metadata={"kernelspec": kernel})
    config = "c = get_config()\nc.CourseDirectory.course_id = 'speed'\nc.ExecutePreprocessor.timeout = 600\n"
    config += "c.ClearSolutions.enforce_metadata = False\n"
    (course / "nbgrader_config.py").write_text(config)
    for folder in ["source/hw", *(f"submitted/student{i}/hw" for i in range(count))]:
        (course / folder).mkdir(parents=True)
        nbformat.write(notebook, course / folder / "hw.ipynb")


def solution(file: str) -> str:
    return (SOLUTIONS / file).read_text(encoding="utf-8").replace(" SOLUTION", "")  # nbgrader would clear it


def written_solutions() -> str:
    """Source that writes all student files."""
    files = {file: solution(file) for file in student_files()}
    return f"""
from pathlib import Path
for file, text in {files!r}.items():
    path = Path("made", file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
"""


def same_checks() -> str:
    chosen = [part for exercise in FUNCTIONAL for part in ("--exercise", exercise)]
    arguments = [str(ROOT / "tests" / "hidden"), "-q", "--submission", "made", *chosen]
    return f"import pytest\nassert pytest.main({arguments!r}) == 0"


def main(count: int = 8) -> None:
    engine = marginal(with_engine(FUNCTIONAL), count)
    plain = marginal(with_pytest, count)
    kernel = marginal_of_nbgrader(written_solutions(), same_checks(), count)
    print(f"one more submission, the same functional checks: engine {engine:.2f} s, pytest in a fresh process")
    print(f"{plain:.2f} s ({plain / engine:.1f} times), nbgrader's kernel {kernel:.2f} s ({kernel / engine:.1f} times)")
    engine = marginal(with_engine(["swiglu"]), 4 * count)
    kernel = marginal_of_nbgrader(solution("lecture10/palm_modules.py"), "assert SwiGLU", count)
    empty = marginal_of_nbgrader("", "assert True", count)
    print(f"trivial checks: engine {engine:.3f} s, nbgrader's kernel {kernel:.2f} s ({kernel / engine:.1f} times),")
    print(f"without the student's code, and so without torch, {empty:.2f} s ({empty / engine:.1f} times)")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
