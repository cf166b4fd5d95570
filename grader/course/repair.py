"""Reading whatever was handed in as a notebook, and putting its cells right where the intent is clear.

A notebook is rebuilt from its cells' types, sources and nbgrader ids; outputs, foreign metadata and ids are left behind.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_raw_cell

from exercises.manifest import load_manifest
from grader.course.notebooks import CHECK, QUESTION, check_source

Text = dict[str, str]

LARGEST = 200_000_000  # bytes of a notebook that is still read, as in intake (importing that would load torch here)
REFUSED = "refused"  # key of the file that stands in for a submission without a usable notebook

REASONS: dict[str, Text] = {
    "no_file": {
        "en": "it is not an ordinary file; hand in the notebook itself, no link or folder",
        "zh": "它不是普通文件；请提交 notebook 本身，不要提交链接或文件夹",
    },
    "too_large": {
        "en": "it is larger than 200 MB; clear all outputs, save and hand it in again",
        "zh": "它超过 200 MB；请清除全部输出，保存后重新提交",
    },
    "empty": {"en": "the file is empty; hand it in again", "zh": "文件是空的；请重新提交"},
    "no_json": {
        "en": "it is not a complete notebook (broken off, or another kind of file); hand it in again",
        "zh": "它不是完整的 notebook（内容被截断，或是其他类型的文件）；请重新提交",
    },
    "no_cells": {
        "en": "it has no cells, so it is not a notebook; hand in the notebook",
        "zh": "它没有单元格，不是 notebook；请提交 notebook",
    },
    "several": {
        "en": "there are several notebooks and none has the right name; hand in one under its own name",
        "zh": "有多个 notebook，但没有一个使用原来的文件名；请只提交一个，并使用原来的文件名",
    },
}
NOTES: dict[str, Text] = {
    "encoding": {
        "en": "the file is not UTF-8; unreadable characters were replaced",
        "zh": "文件不是 UTF-8；已替换无法读取的字符",
    },
    "odd_cells": {"en": "{count} cells that are no cells were left out", "zh": "忽略了 {count} 个无效的单元格"},
    "twice": {
        "en": "cell {id} stood there {count} times; one was kept",
        "zh": "单元格 {id} 出现了 {count} 次；只保留一个",
    },
    "recognised": {
        "en": "cell {id} had lost its id; it was recognised by its content",
        "zh": "单元格 {id} 丢失了编号；已根据内容识别",
    },
    "flags": {
        "en": "the markings of cell {id} were changed; they were put back",
        "zh": "单元格 {id} 的标记被改动；已恢复",
    },
    "type": {
        "en": "cell {id} had become a cell of another type; it was changed back",
        "zh": "单元格 {id} 的类型被改动；已恢复",
    },
    "locked": {
        "en": "cell {id} is not yours to change; it was put back as it was handed out",
        "zh": "单元格 {id} 不应修改；已恢复为发布时的内容",
    },
    "missing": {"en": "cell {id} was missing; it was put back", "zh": "缺少单元格 {id}；已补上"},
}


class Unreadable(ValueError):
    """There is no notebook to be had from the file. `reason` is a key of `REASONS`."""

    def __init__(self, reason: str) -> None:
        super().__init__(REASONS[reason]["en"])
        self.reason = reason


@dataclass(frozen=True)
class Expected:
    """A cell as it was handed out."""

    grade_id: str
    cell_type: str
    source: str
    checksum: str
    solution: bool
    locked: bool
    points: float | None  # None where the cell is not marked

    @property
    def metadata(self) -> dict[str, Any]:
        metadata = {
            "schema_version": 3,
            "grade_id": self.grade_id,
            "grade": self.points is not None,
            "solution": self.solution,
            "locked": self.locked,
            "checksum": self.checksum,
            "cell_type": self.cell_type,
        }
        return metadata if self.points is None else metadata | {"points": self.points}


def read_any(path: Path, language: str) -> tuple[NotebookNode, list[str]]:
    """The notebook in `path`, of any format version, and what was odd about it. None to be had: `Unreadable`."""
    raw, notes = _parse(_bytes_of(path), language)
    if isinstance(raw, dict) and raw.get(REFUSED) in REASONS:
        raise Unreadable(raw[REFUSED])
    cells, odd = _cells_of(raw)
    if odd:
        notes.append(NOTES["odd_cells"][language].format(count=odd))
    return new_notebook(cells=cells), notes


def _bytes_of(path: Path) -> bytes:
    try:
        if path.parent.is_symlink() or not stat.S_ISREG(os.lstat(path).st_mode):
            raise Unreadable("no_file")
        if path.stat().st_size > LARGEST:
            raise Unreadable("too_large")
        data = path.read_bytes()
    except OSError:
        raise Unreadable("no_file") from None
    if not data.strip():
        raise Unreadable("empty")
    return data


def _parse(data: bytes, language: str) -> tuple[Any, list[str]]:
    notes = []
    try:
        text = data.decode(json.detect_encoding(data))
    except UnicodeDecodeError:
        text = data.decode("utf-8", errors="replace")
        notes.append(NOTES["encoding"][language])
    try:
        return json.loads(text.removeprefix("\ufeff")), notes
    except (ValueError, RecursionError):
        raise Unreadable("no_json") from None


def _cells_of(raw: Any) -> tuple[list[NotebookNode], int]:
    """Cells of a notebook of format 2 to 5, and how many entries were none."""
    if not isinstance(raw, dict):
        raise Unreadable("no_cells")
    entries = raw.get("cells")
    if entries is None and isinstance(raw.get("worksheets"), list):  # formats 2 and 3
        sheets = [sheet.get("cells") for sheet in raw["worksheets"] if isinstance(sheet, dict)]
        entries = [cell for cells in sheets if isinstance(cells, list) for cell in cells]
    if not isinstance(entries, list) or not entries:
        raise Unreadable("no_cells")
    cells = [_cell_of(entry) for entry in entries]
    kept = [cell for cell in cells if cell is not None]
    return kept, len(cells) - len(kept)


def _cell_of(raw: Any) -> NotebookNode | None:
    if not isinstance(raw, dict):
        return None
    source = raw.get("source", raw.get("input", ""))
    if isinstance(source, list):
        source = "".join(part for part in source if isinstance(part, str))
    if not isinstance(source, str):
        return None
    source = source.encode("utf-8", errors="replace").decode("utf-8")  # half a surrogate pair can't be written
    own = raw.get("metadata")
    mark = own.get("nbgrader") if isinstance(own, dict) else None
    metadata = {"nbgrader": mark} if isinstance(mark, dict) else {}
    kind = raw.get("cell_type")
    if kind == "code":
        return new_code_cell(source, metadata=metadata)
    if kind == "heading" and isinstance(raw.get("level"), int):
        source = f"{'#' * raw['level']} {source}"
    if kind in ("markdown", "heading", "html"):
        return new_markdown_cell(defused(source), metadata=metadata, attachments=_pictures(raw.get("attachments")))
    return new_raw_cell(defused(source), metadata=metadata)


def defused(text: str) -> str:
    """`text` without HTML that a browser would obey: whoever marks opens it beside the gradebook.

    An invisible space after "<" makes it show up as what was typed, also inside code.
    """
    text = re.sub(r"<(?=[A-Za-z/!?])", "<\u200b", text)
    return re.sub(r"(javascript|vbscript|data)(?=\s*:)", "\\1\u200b", text, flags=re.IGNORECASE)


def _pictures(attachments: Any) -> dict[str, dict[str, str]]:
    """The attachments that are plain pictures."""
    if not isinstance(attachments, dict):
        return {}
    found = {}
    for name, data in attachments.items():
        kinds = data.items() if isinstance(data, dict) else ()
        good = {
            kind: text
            for kind, text in kinds
            if kind in ("image/png", "image/jpeg", "image/gif")
            and isinstance(text, str)
            and re.fullmatch(r"[A-Za-z0-9+/=\s]*", text)
        }
        if good:
            found[name] = good
    return found


def mend(notebook: NotebookNode, expected: Mapping[str, Expected], language: str) -> list[str]:
    """Put the cells of `notebook` right, in place, and say what was done.

    Each cell that was handed out stands there once at most, with its own markings, type and (where locked) text; marked
    cells that are missing come back. Other cells lose their markings.
    """

    def note(kind: str, grade_id: str, **values: Any) -> None:
        notes.append(NOTES[kind][language].format(id=grade_id, **values))

    notes: list[str] = []
    flagged = {id(cell): dict(cell.metadata.get("nbgrader", {})) for cell in notebook.cells}
    holders: dict[str, list[NotebookNode]] = {}
    for cell in notebook.cells:
        claimed = flagged[id(cell)].get("grade_id")
        if isinstance(claimed, str) and claimed in expected:
            holders.setdefault(claimed, []).append(cell)
    for grade_id in expected:
        if grade_id not in holders:
            taken = {id(cell) for cells in holders.values() for cell in cells}
            free = [cell for cell in notebook.cells if id(cell) not in taken]
            found = _recognised(grade_id, expected, notebook.cells, free, flagged)
            if found is not None:
                holders[grade_id] = [found]
                note("recognised", grade_id)
    for cell in notebook.cells:
        cell.metadata.pop("nbgrader", None)
    for grade_id, cells in holders.items():
        wanted = expected[grade_id]
        kept = _best(cells, wanted)
        if len(cells) > 1:
            note("twice", grade_id, count=len(cells))
        marks = flagged[id(kept)]
        changed = ("grade", "solution", "locked", "points")
        if marks.get("grade_id") == grade_id and any(
            marks.get(key) != wanted.metadata.get(key) for key in changed if key in wanted.metadata
        ):
            note("flags", grade_id)
        if kept.cell_type != wanted.cell_type:
            note("type", grade_id)
            replacement = _new_cell(wanted.cell_type, kept.source)
            notebook.cells[notebook.cells.index(kept)] = kept = replacement
        if wanted.locked and kept.source.strip() != wanted.source.strip():
            note("locked", grade_id)
        if wanted.locked:
            kept.source = wanted.source
        kept.metadata["nbgrader"] = NotebookNode(wanted.metadata)
    for grade_id in _in_order(expected):
        if expected[grade_id].points is not None and grade_id not in holders:
            note("missing", grade_id)
            _put_back(notebook, expected, grade_id)
    return notes


def _recognised(
    grade_id: str,
    expected: Mapping[str, Expected],
    cells: list[NotebookNode],
    free: list[NotebookNode],
    flagged: Mapping[int, dict],
) -> NotebookNode | None:
    """The cell among `free` that is the one called `grade_id`, by what stands in it."""
    exercise = next((e for e in load_manifest() if e.id == grade_id), None)
    if grade_id.endswith(CHECK):
        source = check_source(grade_id.removesuffix(CHECK))
        return next((c for c in free if c.cell_type == "code" and c.source.strip() == source), None)
    if exercise:
        defines = re.compile(rf"^(?:class|def) (?:{'|'.join(exercise.names)})\b", re.MULTILINE)
        return next((c for c in reversed(free) if c.cell_type == "code" and defines.search(c.source)), None)
    if grade_id.startswith(QUESTION):
        answers = [c for c in free if c.cell_type == "markdown" and flagged[id(c)].get("grade") is True]
        prompt = expected.get(f"given-{grade_id}")
        at = next((i for i, c in enumerate(cells) if prompt and c.source.strip() == prompt.source.strip()), None)
        if not answers and at is not None and at + 1 < len(cells) and cells[at + 1].cell_type == "markdown":
            answers = [c for c in free if c is cells[at + 1]]
        return answers[0] if len(answers) == 1 else None
    return None


def _best(cells: list[NotebookNode], wanted: Expected) -> NotebookNode:
    """Of several cells with one id, the one that counts: of the right type, and the last that was worked on."""
    right = [cell for cell in cells if cell.cell_type == wanted.cell_type] or cells
    if wanted.locked:
        return right[0]
    return next((cell for cell in reversed(right) if cell.source.strip() != wanted.source.strip()), right[-1])


def _in_order(expected: Mapping[str, Expected]) -> list[str]:
    """The ids as they follow one another in the notebook: exercise, check, exercise, …, question."""
    ids = [grade_id for exercise in load_manifest() for grade_id in (exercise.id, exercise.id + CHECK)]
    return [grade_id for grade_id in ids if grade_id in expected] + [i for i in expected if i not in ids]


def _put_back(notebook: NotebookNode, expected: Mapping[str, Expected], grade_id: str) -> None:
    """Insert a missing cell after the nearest one that precedes it, or at the end."""
    order = _in_order(expected)
    before = set(order[: order.index(grade_id)])
    places = [i for i, cell in enumerate(notebook.cells) if cell.metadata.get("nbgrader", {}).get("grade_id") in before]
    wanted = expected[grade_id]
    cell = _new_cell(wanted.cell_type, wanted.source)
    cell.metadata["nbgrader"] = NotebookNode(wanted.metadata)
    notebook.cells.insert(places[-1] + 1 if places else len(notebook.cells), cell)


def _new_cell(cell_type: str, source: str) -> NotebookNode:
    return {"code": new_code_cell, "markdown": new_markdown_cell}.get(cell_type, new_raw_cell)(source)
