"""`check(...)` in a real kernel, and what `nbgrader validate` and stock `nbgrader autograde` make of it."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell
from nbgrader.validator import Validator

from exercises import notebook_check
from exercises.notebook import start
from exercises.notebook_check import definitions_of
from exercises.paths import ROOT
from exercises.report import Row, html_report
from grader.course.folder import TEXT_STUB
from grader.course.nbgrader_parts import as_released
from grader.course.notebooks import load_lectures, make_notebook

LECTURE = load_lectures()[0]
KEPT = ("setup", "given-dist_sim", "split_mlp", "tp_mlp_forward", "comm_cost")


def notebook(*solved: str):
    """A few exercises of lecture 9 as they are handed out, those in `solved` with their solution."""
    full = {
        c.metadata.nbgrader.grade_id: c.source for c in make_notebook(LECTURE, "en").cells if "nbgrader" in c.metadata
    }
    made = as_released(make_notebook(LECTURE, "en"), TEXT_STUB["en"])
    kept = [*KEPT, *(f"{name}-check" for name in KEPT)]
    made.cells = [c for c in made.cells if c.metadata.get("nbgrader", {}).get("grade_id") in kept]
    for cell in made.cells:
        if cell.metadata.nbgrader.grade_id in solved:
            cell.source = re.sub(r" *### (BEGIN|END) SOLUTION\n?", "", full[cell.metadata.nbgrader.grade_id])
    return made


@pytest.fixture
def kit(tmp_path):
    """A folder like a released assignment's."""
    for name in ("exercises", "lecture01"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def executed(made, folder: Path):
    NotebookClient(made, timeout=120, allow_errors=True, resources={"metadata": {"path": str(folder)}}).execute()
    return {cell.source: cell.outputs for cell in made.cells}


def test_in_a_kernel(kit):
    made = notebook("split_mlp", "comm_cost")
    raising = 'def split_mlp(mlp, t):\n    print("noise")\n    return nothing_like_it'
    loud = "import sys\n\ndef split_mlp(mlp, t):\n    print('loud', file=sys.stderr)\n    raise NotImplementedError"
    wrong = "def layer_matmul_flops(tokens, d_model, backward=True):\n    return 12 * tokens * d_model**2 * (3 if backward else 1)"
    made.cells += [
        new_code_cell(source)
        for source in (
            'check("rope")',
            'check("nothing")',
            raising,
            'check("split_mlp", hint=2)',
            loud,
            'check("split_mlp", 3)',
            wrong,
            'check("comm_cost", 1)',
            "split_mlp = lambda mlp, t: 7\ncheck('split_mlp')",
            "import torch\n(torch.get_default_dtype(), torch.initial_seed() == torch.initial_seed())",
        )
    ]
    outputs = executed(made, kit)
    for source, shown in outputs.items():
        assert not [o for o in shown if o.output_type == "stream"], source

    def text(source: str) -> str:
        return outputs[source][0].data["text/plain"]

    passed = outputs['check("split_mlp")'][0].data
    assert "8 of 8 points · 10 of 10 checks" in passed["text/plain"]
    assert "<table>" in passed["text/html"] and "Hidden tests decide the marks" in passed["text/html"]
    assert "to do" in text('check("tp_mlp_forward")') and "hint 1 of 3" in text('check("tp_mlp_forward")')
    assert "not defined here yet: rope_angles, apply_rope" in text('check("rope")')
    assert outputs['check("nothing")'][0].evalue.startswith(
        "there is no exercise 'nothing'; the exercises are split_mlp"
    )
    place = r"NameError at Cell In\[\d+\], line 3: name 'nothing_like_it' is not defined"
    assert re.search(place, text('check("split_mlp", hint=2)')) and "hint 2 of 3" in text('check("split_mlp", hint=2)')
    assert "to do" in text('check("split_mlp", 3)')
    assert "a multiplication and an addition are counted as one FLOP" in text('check("comm_cost", 1)')
    assert "TypeError" in text("split_mlp = lambda mlp, t: 7\ncheck('split_mlp')")


@pytest.fixture
def validate(kit, monkeypatch):
    """What `nbgrader validate` prints about a notebook."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")

    def run(made) -> str:
        nbformat.write(made, kit / "lecture09.ipynb")
        validator = Validator()
        validator.stream = io.StringIO()
        validator.validate_and_print(str(kit / "lecture09.ipynb"))
        return validator.stream.getvalue()

    return run


def test_validate_tells_the_truth(validate):
    assert "Success! Your notebook passes all the tests." in validate(
        notebook("split_mlp", "tp_mlp_forward", "comm_cost")
    )
    made = notebook("split_mlp", "comm_cost")
    cell = next(c for c in made.cells if "def layer_matmul_flops" in c.source)
    cell.source = cell.source.replace("return 24 *", "return 12 *")
    said = validate(made)
    assert "VALIDATION FAILED ON 2 CELL(S)" in said.replace("\n", " ")
    assert "tp_mlp_forward (The MLP on t ranks) · 0 of 10 points" in said
    assert "of 8 points · 16 of 19 checks" in said and "Traceback" not in said


def test_stock_nbgrader_marks_with_the_public_tests_and_says_so(kit, tmp_path):
    """No configuration of ours: the cells run in a kernel."""
    course = tmp_path / "course"
    source = course / "source" / "lecture09"
    source.mkdir(parents=True)
    for name in ("exercises", "lecture01"):
        (kit / name).rename(source / name)
    nbformat.write(notebook("split_mlp", "tp_mlp_forward", "comm_cost"), source / "lecture09.ipynb")
    made = notebook("split_mlp", "comm_cost")
    cell = next(c for c in made.cells if "def layer_matmul_flops" in c.source)
    cell.source = cell.source.replace("return 24 *", "return 12 *")
    handed_in = course / "submitted" / "anna" / "lecture09"
    handed_in.mkdir(parents=True)
    nbformat.write(made, handed_in / "lecture09.ipynb")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command in ("generate_assignment", "autograde"):
        subprocess.run(
            [sys.executable, "-m", "nbgrader", command, "lecture09"],
            cwd=course,
            env=os.environ | {"PATH": path},
            check=True,
            capture_output=True,
        )
    graded = nbformat.read(course / "autograded" / "anna" / "lecture09" / "lecture09.ipynb", as_version=4)
    shown = {c.metadata.nbgrader.grade_id: c.outputs for c in graded.cells if c.metadata.nbgrader.grade}
    points = {name: float(outputs[-1].data["text/plain"]) for name, outputs in shown.items()}
    assert points == {"split_mlp-check": 8, "tp_mlp_forward-check": 0, "comm_cost-check": 6.7}
    for outputs in shown.values():
        assert [o.output_type for o in outputs] == ["display_data", "display_data", "execute_result"]
        assert "Marked with the public tests only" in outputs[0].data["text/html"]


def test_definitions_for_ranks_that_are_new_processes(tmp_path):
    """What stands in the file from which spawned ranks import the student's module."""
    cells = [
        "from __future__ import annotations\nimport math\nfrom exercises.notebook import start",
        "print('run me not')\nraise SystemExit",
        "%broken magic",
        "def helper(x):\n    return x + OFFSET",
        "OFFSET = 1\nunused = print('nor me')",
        "def f(x):\n    return helper(x)",
        "class A(Missing):\n    pass",
        "f = (lambda inner: lambda x: 2 * inner(x))(f)",
    ]
    text = definitions_of(cells, ["f"])
    namespace: dict = {}
    exec(text, namespace)
    assert namespace["f"](1) == 4 and namespace["math"].pi > 3
    assert "run me" not in text and "nor me" not in text and "exercises" not in text


@pytest.fixture
def main_namespace(monkeypatch):
    main = type(sys)("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    for name in ("dist_sim", "tp_autograd", "comm_cost", "palm_modules", "kv_cache_cost"):
        monkeypatch.setitem(sys.modules, name, sys.modules.get(name))
    monkeypatch.setattr(sys, "path", list(sys.path))
    return vars(main)


def test_spawned_ranks_run_the_notebooks_functions(main_namespace, monkeypatch):
    """As on macOS and Windows."""
    import ranks

    monkeypatch.setattr(ranks, "_START_METHOD", "spawn")
    check = start("en")
    cells = [
        c.source
        for c in make_notebook(LECTURE, "en").cells
        if "tp_autograd" in c.metadata.get("nbgrader", {}).get("grade_id", "")
    ]
    main_namespace["In"] = [source for source in cells if not source.startswith("check(")]
    for source in main_namespace["In"]:
        exec(source, main_namespace)
    try:
        report = check("tp_autograd")
    finally:
        ranks._end_pool()
    assert report.points == 12, report


def test_without_alarms_no_time_limit_ends_the_kernel(main_namespace, monkeypatch):
    """Windows: the student stops a run with the notebook's own button."""
    monkeypatch.delattr(notebook_check.signal, "SIGALRM")
    check = start("zh")
    main_namespace["split_mlp"] = lambda mlp, t: None
    report = check("split_mlp")
    assert report.points == 0 and "项检查" in repr(report)


def test_reports_escape_what_they_show():
    page = html_report("<b>", ("<i>",), [Row("✗", "red", ("<script>\nx",))], ["<u>"])
    assert "<script>" not in page and "&lt;script&gt;<br>x" in page and "<u>" not in page and "<i>" not in page


def test_an_unknown_language_is_refused():
    with pytest.raises(ValueError, match="language = 'de' is unknown; choose one of en, zh"):
        start("de")
