"""The generated notebooks: their cells, what students get of them, and what they must not get."""

from __future__ import annotations

import re

import nbformat
import pytest
from nbgrader.nbgraderformat import MetadataValidator

from exercises.manifest import load_manifest
from grader.authoring import SOLUTIONS, AuthoringError, stubs
from grader.course import notebooks
from grader.course.folder import TEXT_STUB
from grader.course.nbgrader_parts import as_released
from grader.course.notebooks import CHECK, load_lectures, make_notebook

LECTURES = load_lectures()
BOTH = pytest.mark.parametrize("language", ["en", "zh"])
EACH = pytest.mark.parametrize("lecture", LECTURES, ids=lambda lecture: lecture.name)


def marks(notebook):
    return {cell.metadata.nbgrader.grade_id: cell for cell in notebook.cells if "nbgrader" in cell.metadata}


@BOTH
@EACH
def test_cells_follow_the_convention(lecture, language):
    notebook = make_notebook(lecture, language)
    nbformat.validate(notebook)
    MetadataValidator().validate_nb(notebook)
    assert make_notebook(lecture, language) == notebook, "two makings differ"
    cells = marks(notebook)
    assert cells["setup"].metadata.nbgrader.locked and not cells["setup"].metadata.nbgrader.grade
    for exercise in lecture.exercises:
        check = cells[exercise.id + CHECK]
        assert check.source == f'check("{exercise.id}")'
        assert check.metadata.nbgrader.points == exercise.points
        assert check.metadata.nbgrader.locked and check.metadata.nbgrader.grade
        assert (exercise.id in cells) == bool(exercise.names)
    question = cells[f"question-{lecture.question.id}"]
    assert question.cell_type == "markdown" and lecture.question.scheme[language].strip() in question.source
    others = cells.keys() - {"setup", f"question-{lecture.question.id}"}
    others -= {grade_id for e in lecture.exercises for grade_id in (e.id, e.id + CHECK)}
    assert all(name.startswith("given-") and cells[name].metadata.nbgrader.locked for name in others)


@BOTH
def test_text_is_in_one_language(language):
    for lecture in LECTURES:
        for cell in make_notebook(lecture, language).cells:
            prose = re.sub(r"```.*?```|^\|.*?$|`[^`]*`", "", cell.source, flags=re.DOTALL | re.MULTILINE)
            chinese = len(re.findall(r"[\u4e00-\u9fff]", prose))
            if language == "en":
                assert not chinese, cell.source
            elif cell.cell_type == "markdown" and not cell.source.startswith("## 出处"):
                assert chinese > 20, cell.source


@EACH
def test_released_cells_are_the_kits_stubs(lecture):
    texts = stubs()
    cells = marks(as_released(make_notebook(lecture, "en"), TEXT_STUB["en"]))
    for exercise in lecture.exercises:
        if exercise.names:
            for part in re.split(r"\n\n\n(?=def |class )", cells[exercise.id].source):
                assert part in texts[exercise.file]
    question = cells[f"question-{lecture.question.id}"]
    assert question.source == TEXT_STUB["en"]


@BOTH
@EACH
def test_nothing_secret_is_released(lecture, language, secret_lines):
    assert len(secret_lines) > 500
    text = "\n".join(cell.source for cell in as_released(make_notebook(lecture, language), TEXT_STUB[language]).cells)
    assert not [line for line in secret_lines if line in text]


def test_solved_cells_run_in_one_namespace():
    """A notebook is run from top to bottom: what an exercise's cell uses stands in it or above."""
    for lecture in LECTURES:
        namespace: dict = {}
        for cell in make_notebook(lecture, "en").cells:
            grade_id = cell.metadata.get("nbgrader", {}).get("grade_id", "")
            if cell.cell_type == "code" and grade_id != "setup" and not grade_id.endswith(CHECK):
                exec(cell.source, namespace)
            used = {"split_mlp": "_check_divides", "comm_cost": "_check_counts", "tp_autograd": "_summed_over"}
            assert grade_id not in used or used[grade_id] in namespace
        assert {name for exercise in lecture.exercises for name in exercise.names} <= namespace.keys()


def test_a_helper_that_nothing_uses_is_refused(monkeypatch, tmp_path):
    file = load_manifest()[-2].file
    text = (SOLUTIONS / file).read_text(encoding="utf-8")
    (tmp_path / file).parent.mkdir()
    (tmp_path / file).write_text(text + "\n\n### BEGIN SOLUTION\ndef lost():\n    pass\n\n\n### END SOLUTION\n")
    monkeypatch.setattr(notebooks, "SOLUTIONS", tmp_path)
    with pytest.raises(AuthoringError, match="no exercise uses lost"):
        notebooks._Parts(file)


def test_every_lecture_needs_its_question(monkeypatch, tmp_path):
    (tmp_path / "notebooks.toml").write_text("")
    monkeypatch.setattr(notebooks, "SOLUTIONS", tmp_path)
    with pytest.raises(AuthoringError, match="one entry for each of lecture09, lecture10"):
        load_lectures()
