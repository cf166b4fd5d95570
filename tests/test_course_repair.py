"""Reading broken notebooks, and putting their cells right."""

from __future__ import annotations

import copy
import json
import os

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell
from nbgrader.nbgraderformat import MetadataValidator

from grader.course.folder import TEXT_STUB
from grader.course.nbgrader_parts import as_released
from grader.course.notebooks import load_lectures, make_notebook
from grader.course.repair import REFUSED, Expected, Unreadable, defused, mend, read_any

LECTURE = load_lectures()[0]
QUESTION = f"question-{LECTURE.question.id}"
RELEASED = as_released(make_notebook(LECTURE, "en"), TEXT_STUB["en"])
EXPECTED = {
    m.grade_id: Expected(
        m.grade_id, cell.cell_type, cell.source, m.checksum, m.solution, m.locked, m.points if m.grade else None
    )
    for cell in RELEASED.cells
    if (m := cell.metadata.get("nbgrader"))
}


@pytest.fixture
def read(tmp_path):
    def read(content: bytes | str | dict | list):
        path = tmp_path / "lecture09.ipynb"
        text = content if isinstance(content, (bytes, str)) else json.dumps(content)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_any(path, "en")

    return read


@pytest.fixture
def mended(read):
    """Write a notebook, read it back, mend it; it must be one that nbgrader and nbformat accept."""

    def run(notebook: dict) -> tuple[dict, list[str]]:
        result, notes = read(notebook)
        notes += mend(result, EXPECTED, "en")
        nbformat.validate(result)
        MetadataValidator().validate_nb(result)
        cells = {c.metadata.nbgrader.grade_id: c for c in result.cells if "nbgrader" in c.metadata}
        marked = [c.metadata.nbgrader.grade_id for c in result.cells if c.metadata.get("nbgrader", {}).get("grade")]
        assert sorted(marked) == sorted(i for i, e in EXPECTED.items() if e.points is not None)
        return cells | {"all": result.cells}, notes

    return run


@pytest.fixture
def notebook():
    return copy.deepcopy(RELEASED)


def cell_of(notebook, grade_id):
    return next(c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("grade_id") == grade_id)


def test_a_sound_notebook_stays_as_it_is(mended, notebook):
    cell_of(notebook, "split_mlp").source = "def split_mlp(mlp, t):\n    return [], None"
    cells, notes = mended(notebook)
    assert notes == []
    assert [c.source for c in cells["all"]] == [c.source for c in notebook.cells]
    assert cells["split_mlp-check"].metadata == {"nbgrader": cell_of(notebook, "split_mlp-check").metadata.nbgrader}


# What is no notebook


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (json.dumps(RELEASED)[:5000], "no_json"),
        (b"PK\x03\x04" + bytes(range(256)), "no_json"),
        (b"\xff\xfe\x00", "no_json"),
        ("[" * 200_000, "no_json"),
        ("<html>not found</html>", "no_json"),
        ("null", "no_cells"),
        ([1, 2], "no_cells"),
        ({"nbformat": 4}, "no_cells"),
        ({"nbformat": 4, "cells": {}}, "no_cells"),
        ({"cells": []}, "no_cells"),
        ({REFUSED: "several"}, "several"),
    ],
    ids=range(13),
)
def test_no_notebook(read, content, reason):
    with pytest.raises(Unreadable) as refusal:
        read(content)
    assert refusal.value.reason == reason


def test_links_pipes_and_folders_are_not_opened(tmp_path):
    (tmp_path / "real.ipynb").write_text(json.dumps(RELEASED))
    (tmp_path / "link.ipynb").symlink_to("real.ipynb")
    (tmp_path / "folder.ipynb").mkdir()
    os.mkfifo(tmp_path / "pipe.ipynb")
    (tmp_path / "linked").symlink_to(tmp_path)
    for name in ("link.ipynb", "folder.ipynb", "pipe.ipynb", "missing.ipynb", "linked/real.ipynb"):
        with pytest.raises(Unreadable, match="not an ordinary file"):
            read_any(tmp_path / name, "en")


def test_a_file_beyond_all_measure_is_not_read(tmp_path):
    with (tmp_path / "large.ipynb").open("wb") as file:
        file.truncate(300_000_000)
    with pytest.raises(Unreadable, match="200 MB"):
        read_any(tmp_path / "large.ipynb", "en")


# What can be read


def test_format_3(mended):
    sheet = [
        {"cell_type": "heading", "level": 2, "source": ["A ", "title"], "metadata": {}},
        {"cell_type": "code", "input": "def split_mlp(mlp, t):\n    pass", "language": "python", "outputs": []},
        {"cell_type": "code", "input": ['check("split_mlp")'], "outputs": [{"output_type": "pyout"}], "metadata": {}},
    ]
    cells, notes = mended({"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": [{"cells": sheet}]})
    assert cells["all"][0].source == "## A title"
    assert cells["split_mlp"].source == "def split_mlp(mlp, t):\n    pass"
    assert "cell split_mlp had lost its id; it was recognised by its content" in notes


def test_a_newer_format(mended, notebook):
    data = json.loads(json.dumps(notebook))
    data |= {"nbformat": 7, "nbformat_minor": 9, "novelty": {"x": 1}}
    for cell in data["cells"]:
        cell["future"] = [1]
        cell.get("metadata", {}).get("nbgrader", {})["schema_version"] = 99
    cells, notes = mended(data)
    assert notes == [] and len(cells["all"]) == len(notebook.cells)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32", "gb18030", "latin-1"])
def test_encodings(read, notebook, encoding):
    notebook.cells.append(new_code_cell("# ü"))
    text = json.dumps(notebook, ensure_ascii=False)
    result, notes = read(text.encode(encoding, errors="replace"))
    assert len(result.cells) == len(notebook.cells)
    assert bool(notes) == (encoding in ("gb18030", "latin-1"))


def test_huge_outputs_are_left_behind(mended, notebook):
    data = json.loads(json.dumps(notebook))
    check = next(c for c in data["cells"] if c["source"] == 'check("split_mlp")')
    check["outputs"] = [{"output_type": "stream", "name": "stdout", "text": ["x" * 1000] * 20_000}]
    cells, notes = mended(data)
    assert notes == [] and cells["split_mlp-check"].outputs == []


def test_odd_cells(mended, notebook):
    data = json.loads(json.dumps(notebook))
    data["cells"] += [
        None,
        7,
        {"cell_type": "code", "source": 5},
        {"cell_type": "code", "metadata": "none", "source": None},
        {"cell_type": "code", "source": ["a = 1\n", 3, "b = 2"], "metadata": {"nbgrader": "x"}},
        {"cell_type": "wonder", "source": "what", "metadata": {"nbgrader": {"grade_id": ["a"], "points": "many"}}},
        {"source": "no type", "metadata": {"nbgrader": {"grade": True, "grade_id": 7, "points": -5}}},
        {"cell_type": "code", "source": "half = '\ud800'", "id": "x" * 500},
    ]
    cells, notes = mended(data)
    assert notes == ["4 cells that are no cells were left out"]
    assert [c.source for c in cells["all"][-4:]] == ["a = 1\nb = 2", "what", "no type", "half = '?'"]
    assert [c.cell_type for c in cells["all"][-4:]] == ["code", "raw", "raw", "code"]


def test_magics_stay(mended, notebook):
    notebook.cells.append(new_code_cell("%matplotlib inline\n!pip install torch\n?print"))
    cells, _ = mended(notebook)
    assert cells["all"][-1].source.startswith("%matplotlib")


# Cells that nbgrader could not take


def test_copied_cells(mended, notebook):
    for grade_id in ("split_mlp", "split_mlp-check", QUESTION, "setup"):
        notebook.cells.append(copy.deepcopy(cell_of(notebook, grade_id)))
    notebook.cells[-4].source = "def split_mlp(mlp, t):\n    return 'the second'"
    cell_of(notebook, QUESTION).source = "my answer, in the first of two cells"
    cells, notes = mended(notebook)
    assert cells["split_mlp"].source.endswith("'the second'")
    assert cells[QUESTION].source == "my answer, in the first of two cells"
    assert len([note for note in notes if "stood there 2 times" in note]) == 4


def test_deleted_cells_come_back_in_their_place(mended, notebook):
    gone = ("split_mlp-check", "tp_mlp_forward-check", "comm_cost", "comm_cost-check", "setup", QUESTION)
    notebook.cells = [c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("grade_id") not in gone]
    cells, notes = mended(notebook)
    order = [c.metadata.get("nbgrader", {}).get("grade_id") for c in cells["all"]]
    for exercise in ("split_mlp", "tp_mlp_forward"):
        assert order.index(f"{exercise}-check") == order.index(exercise) + 1
    assert cells[QUESTION].source == "YOUR ANSWER HERE"
    assert "comm_cost" not in cells and "setup" not in cells
    assert sorted(notes) == sorted(
        f"cell {i} was missing; it was put back" for i in gone if i not in ("comm_cost", "setup")
    )


def test_nothing_left_of_it(mended):
    cells, notes = mended({"nbformat": 4, "cells": [{"cell_type": "code", "source": "1"}]})
    assert len(notes) == len(LECTURE.exercises) + 1
    assert [c.source for c in cells["all"][1:-1]] == [f'check("{e.id}")' for e in LECTURE.exercises]


def test_renamed_cells_are_recognised(mended, notebook):
    cell_of(notebook, "split_mlp").metadata.nbgrader.grade_id = "my_split"
    cell_of(notebook, "split_mlp-check").metadata.nbgrader.grade_id = "my-check"
    answer = cell_of(notebook, QUESTION)
    answer.source = "my answer"
    answer.metadata.nbgrader.grade_id = "answer-2"
    cells, notes = mended(notebook)
    assert cells["split_mlp"].source.startswith("def split_mlp")
    assert cells[QUESTION].source == "my answer"
    assert len(notes) == 3 and all("recognised" in note for note in notes)


def test_all_metadata_gone(mended, notebook):
    for cell in notebook.cells:
        cell.metadata = {}
    cell = next(c for c in notebook.cells if c.source == "YOUR ANSWER HERE")
    cell.source = "my answer"
    cells, _ = mended(notebook)
    written = {e.id for e in LECTURE.exercises} | {f"{e.id}-check" for e in LECTURE.exercises}
    assert written <= cells.keys() and cells[QUESTION].source == "my answer"
    assert len(cells["all"]) == len(notebook.cells)


def test_changed_markings(mended, notebook):
    cell_of(notebook, "split_mlp").metadata.nbgrader |= {"grade": True, "points": 50}
    cell_of(notebook, "tp_mlp_forward-check").metadata.nbgrader |= {"grade": False, "locked": False}
    cell_of(notebook, "comm_cost-check").metadata.nbgrader |= {"solution": True, "points": 800}
    cells, notes = mended(notebook)
    assert cells["comm_cost-check"].metadata.nbgrader.points == 8
    assert len(notes) == 3 and all("markings" in note for note in notes)


def test_changed_locked_cells(mended, notebook):
    cell_of(notebook, "split_mlp-check").source = "8.0"
    cell_of(notebook, "setup").source = "check = lambda name: 8.0"
    cells, notes = mended(notebook)
    assert cells["split_mlp-check"].source == 'check("split_mlp")'
    assert len(notes) == 2 and all("is not yours to change" in note for note in notes)


def test_changed_types(mended, notebook):
    for grade_id, make in (
        ("split_mlp", new_markdown_cell),
        ("comm_cost-check", new_markdown_cell),
        (QUESTION, new_code_cell),
    ):
        old = cell_of(notebook, grade_id)
        notebook.cells[notebook.cells.index(old)] = make(old.source, metadata=old.metadata)
    cells, notes = mended(notebook)
    assert cells["split_mlp"].cell_type == cells["comm_cost-check"].cell_type == "code"
    assert cells[QUESTION].cell_type == "markdown"
    assert len(notes) == 3 and all("another type" in note for note in notes)


def test_swapped_ids(mended, notebook):
    first, second = cell_of(notebook, "split_mlp"), cell_of(notebook, "split_mlp-check")
    first.metadata, second.metadata = second.metadata, first.metadata
    cells, _ = mended(notebook)
    assert cells["split_mlp-check"].source == 'check("split_mlp")'


def test_what_a_browser_would_obey_is_defused(read):
    attacks = "<script>alert(1)</script> [x](javascript:alert(1)) <img src=x onerror=y> </div> <!-- -- and a < b, 1 <2"
    text = defused(attacks)
    assert "<script" not in text and "javascript:" not in text and "<img" not in text and "</" not in text
    assert "a < b, 1 <2" in text
    pictures = {
        "a.png": {"image/png": "iVBORw0K"},
        "b": {"image/png": '"><script>'},
        "c.svg": {"image/svg+xml": "PHN2"},
    }
    cells = [
        {"cell_type": "markdown", "source": attacks, "attachments": pictures, "metadata": {"tags": ["<script>"]}},
        {"cell_type": "raw", "source": attacks, "metadata": {"raw_mimetype": "text/html"}},
    ]
    result, _ = read({"nbformat": 4, "cells": cells, "metadata": {"title": "</title><script>"}})
    assert "<script" not in json.dumps(result) and result.cells[0].attachments.keys() == {"a.png"}


def test_notes_in_chinese(notebook):
    notebook.cells.append(copy.deepcopy(cell_of(notebook, "split_mlp-check")))
    assert mend(notebook, EXPECTED, "zh") == ["单元格 split_mlp-check 出现了 2 次；只保留一个"]
