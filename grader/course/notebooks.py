"""The notebooks of a course, one a lecture, made from solutions, handouts and the manifest.

Cells by their nbgrader id: `setup`, `given-…` (locked code and texts), `<exercise>` (what the student writes),
`<exercise>-check` (marked), `question-…` (the written answer, marked by hand). The text between them is the handout's.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from exercises.manifest import Exercise, load_manifest
from exercises.paths import EXERCISES
from grader.authoring import BEGIN, END, SOLUTIONS, AuthoringError

CHECK = "-check"
QUESTION = "question-"
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}

SETUP = """\
# Run this cell first. The folders exercises/ and lecture01/ belong beside this notebook.
import sys

sys.path.insert(0, ".")
from exercises.notebook import start

check = start("{language}")"""

INTRODUCTION = {
    "en": """\
# {title}

Run the cells from top to bottom. Where a cell says `raise NotImplementedError`, write your own code; the text above it
says what is asked. The cell below each exercise, `check(...)`, runs its public tests and says what is right and what is
not; `check("...", hint=2)` in a cell of your own shows more hints. Hidden tests decide the marks: they ask the same on
other inputs. The last question is answered in words and marked by a person.

Hand in this notebook under its own name. Leave the check cells and their ids as they are; cells of your own are
welcome. The checks need what `requirements.txt` lists.""",
    "zh": """\
# {title}

从上到下依次运行各单元格。凡是写着 `raise NotImplementedError` 的地方，请换成你自己的代码；它上面的文字说明了要做什么。
每道练习下面的 `check(...)` 会运行公开测试，告诉你哪里对、哪里不对；在你自己的单元格里写 `check("...", hint=2)`
可以看到更多提示。分数由隐藏测试决定：它们用别的输入问同样的问题。最后一题用文字作答，由老师批改。

请以原来的文件名提交这个 notebook。不要改动检查单元格及其编号；可以随意添加自己的单元格。检查所需的软件包列在
`requirements.txt` 中。""",
}
HEADINGS_ZH = {"What this lecture shows": "本讲内容", "Notation": "记号", "How to run": "补充说明", "Sources": "出处"}
HEADINGS_EN = {"How to run": "Good to know"}


@dataclass(frozen=True)
class Question:
    """The written question of a lecture. Texts are by language; `answer` and `scheme` are for those who mark."""

    id: str
    points: int
    prompt: dict[str, str]
    answer: dict[str, str]
    scheme: dict[str, str]


@dataclass(frozen=True)
class Lecture:
    """One assignment: a lecture's folder name, its title by language, and its question."""

    name: str
    title: dict[str, str]
    question: Question

    @property
    def exercises(self) -> list[Exercise]:
        return [exercise for exercise in load_manifest() if exercise.lecture == self.name]


def load_lectures() -> list[Lecture]:
    """The lectures of the manifest, in order, with what solutions/notebooks.toml says of them."""
    with (SOLUTIONS / "notebooks.toml").open("rb") as file:
        entries = tomllib.load(file)
    names = dict.fromkeys(exercise.lecture for exercise in load_manifest())
    if names.keys() != entries.keys():
        raise AuthoringError(f"solutions/notebooks.toml must have one entry for each of {', '.join(names)}")
    return [Lecture(name, entries[name]["title"], Question(**entries[name]["question"])) for name in names]


def make_notebook(lecture: Lecture, language: str) -> NotebookNode:
    """The instructor's notebook of a lecture, solutions and model answer included."""
    cells = [_text(INTRODUCTION[language].format(title=lecture.title[language])), _setup(language)]
    sections = _sections((EXERCISES / lecture.name / "handout.md").read_text(encoding="utf-8"))
    heads = {f"Exercise: {exercise.id}": exercise for exercise in lecture.exercises}
    parts = {file: _Parts(file) for file in dict.fromkeys(exercise.file for exercise in lecture.exercises)}
    for heading, body in sections:
        found = heads.get(heading.partition(" — ")[0])
        if found is None:
            cells.append(_text(_common_section(heading, body, language)))
            continue
        cells.append(_text(_exercise_section(found, heading, body, language)))
        cells += parts[found.file].cells_of(found)
        cells.append(_check(found))
        cells += parts[found.file].given_after(found)
    cells += _question(lecture.question, language)
    notebook = new_notebook(cells=cells, metadata={"kernelspec": KERNEL, "kit": {"language": language}})
    for number, cell in enumerate(notebook.cells):
        cell.id = cell.metadata.get("nbgrader", {}).get("grade_id", f"text-{number}")[:64]
    return notebook


def check_source(exercise_id: str) -> str:
    """The text of an exercise's check cell: it names the exercise and holds no test."""
    return f'check("{exercise_id}")'


class _Parts:
    """A solution file, cut into what each exercise's cell holds and what is given."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.exercises = [exercise for exercise in load_manifest() if exercise.file == file and exercise.names]
        source = (SOLUTIONS / file).read_text(encoding="utf-8")
        owner = {name: exercise.id for exercise in self.exercises for name in exercise.names}
        self.texts: dict[str, list[str]] = {exercise.id: [] for exercise in self.exercises}
        self.given: dict[str, list[tuple[str, str]]] = {exercise.id: [] for exercise in self.exercises}
        helpers = []
        previous = self.exercises[0].id
        self.header, items = _top_level(source)
        for name, text in items:
            if name is None:
                helpers.append(text)
            elif name in owner:
                previous = owner[name]
                self.texts[previous].append(text)
            else:
                self.given[previous].append((name, text))
        for helper in helpers:
            self._place(helper)

    def _place(self, helper: str) -> None:
        """Put a helper behind the first exercise that uses it, inside the region that students don't get."""
        body = helper.strip().removeprefix(BEGIN).removesuffix(END).strip("\n")
        names = [node.name for node in ast.parse(body).body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
        used = re.compile(rf"\b({'|'.join(names)})\b")
        for texts in self.texts.values():
            if any(used.search(text) for text in texts):
                last = texts[-1].rstrip()
                if not last.endswith(END):
                    raise AuthoringError(f"{self.file}: the code before {names[0]} in its cell must end with {END}")
                texts[-1] = f"{last.removesuffix(END).rstrip()}\n\n\n{body}\n{END}"
                return
        raise AuthoringError(f"{self.file}: no exercise uses {', '.join(names)}")

    def cells_of(self, exercise: Exercise) -> list[NotebookNode]:
        """The imports, before the file's first exercise, and the exercise's own cell; nothing where none is written."""
        cells = []
        if self.exercises and exercise.id == self.exercises[0].id and self.header:
            cells.append(_code(f"given-{exercise.module}", self.header, locked=True))
        if exercise.names:
            cells.append(_code(exercise.id, "\n\n\n".join(self.texts[exercise.id]), solution=True))
        return cells

    def given_after(self, exercise: Exercise) -> list[NotebookNode]:
        """Given functions that stand behind the exercise in its file."""
        return [_code(f"given-{name}", text, locked=True) for name, text in self.given.get(exercise.id, [])]


def _top_level(source: str) -> tuple[str, list[tuple[str | None, str]]]:
    """The imports of a file, and its functions, classes and marked regions (name None) in order."""
    lines = source.splitlines()
    tree = ast.parse(source)
    names: dict[int, str | None] = {}
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names[min([node.lineno, *(d.lineno for d in node.decorator_list)])] = node.name
    begun = False
    for number, line in enumerate(lines, 1):
        if line == BEGIN:
            names[number], begun = None, True
        elif line == END:
            begun = False
        elif begun:
            names.pop(number, None)  # a helper is part of its region
    starts = sorted(names)
    ends = [*starts[1:], len(lines) + 1]
    items = [(names[a], "\n".join(lines[a - 1 : b - 1]).rstrip()) for a, b in zip(starts, ends)]
    imports = [
        ast.get_source_segment(source, node) or ""
        for node in tree.body
        if isinstance(node, (ast.Import, ast.ImportFrom)) and getattr(node, "module", None) != "__future__"
    ]
    return "\n".join(imports), items


def _sections(handout: str) -> Iterator[tuple[str, str]]:
    """Heading and body of each "## " section."""
    for part in re.split(r"^## ", handout, flags=re.MULTILINE)[1:]:
        heading, _, body = part.partition("\n")
        yield heading.strip(), body.strip("\n")


def _blocks(text: str) -> list[str]:
    """Paragraphs, tables, formulas and fenced drawings."""
    pieces = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    blocks = []
    for piece in pieces:
        blocks += [piece] if piece.startswith("```") else [b.strip("\n") for b in re.split(r"\n{2,}", piece)]
    return [block for block in blocks if block]


def _is_figure(block: str) -> bool:
    return block.startswith(("```", "|", "$$"))


def _is_chinese(block: str) -> bool:
    return re.search(r"[\u4e00-\u9fff]", block) is not None


def _common_section(heading: str, body: str, language: str) -> str:
    """A section that stands in both languages, paragraph by paragraph, in one of them."""
    blocks = _blocks(body)
    if heading == "How to run":  # its commands are for files; what else it says holds here too
        blocks = [block for block in blocks if not _is_figure(block) and not block.endswith(("：", ":"))]
    if heading != "Sources":
        blocks = [block for block in blocks if _is_figure(block) or _is_chinese(block) == (language == "zh")]
    shown = (HEADINGS_ZH if language == "zh" else HEADINGS_EN).get(heading, heading)
    return "\n\n".join([f"## {shown}", *blocks])


def _exercise_section(exercise: Exercise, heading: str, body: str, language: str) -> str:
    """The handout of one exercise. The Chinese text speaks of the formulas and drawings above it."""
    english, _, chinese = body.partition("\n### Chinese\n")
    if language == "en":
        return f"## {heading}\n\n{english.strip()}"
    figures = [block for block in _blocks(english) if _is_figure(block)]
    return "\n\n".join([f"## 练习：{exercise.id} — {exercise.title['zh']}", *figures, chinese.strip()])


def _text(source: str) -> NotebookNode:
    return new_markdown_cell(source)


def _setup(language: str) -> NotebookNode:
    return _code("setup", SETUP.format(language=language), locked=True)


def _check(exercise: Exercise) -> NotebookNode:
    return _code(exercise.id + CHECK, check_source(exercise.id), locked=True, points=exercise.points)


def _code(
    grade_id: str, source: str, *, solution: bool = False, locked: bool = False, points: int | None = None
) -> NotebookNode:
    return new_code_cell(source, metadata={"nbgrader": _metadata(grade_id, solution, locked, points)})


def _question(question: Question, language: str) -> list[NotebookNode]:
    """The prompt, and the cell for the answer: for students it is empty, for those who mark it has answer and scheme."""
    model = {"en": "**A full answer.**", "zh": "**参考答案。**"}[language]
    scheme = {"en": "**Marking scheme.**", "zh": "**评分标准。**"}[language]
    secret = f"{model}\n\n{question.answer[language].strip()}\n\n{scheme}\n\n{question.scheme[language].strip()}"
    name = QUESTION + question.id
    return [
        new_markdown_cell(
            question.prompt[language].strip(), metadata={"nbgrader": _metadata(f"given-{name}", False, True, None)}
        ),
        new_markdown_cell(
            f"{BEGIN}\n{secret}\n{END}", metadata={"nbgrader": _metadata(name, True, False, question.points)}
        ),
    ]


def _metadata(grade_id: str, solution: bool, locked: bool, points: int | None) -> dict:
    """A cell's nbgrader metadata, schema version 3; a cell with points is a marked one."""
    metadata = {
        "schema_version": 3,
        "grade_id": grade_id,
        "grade": points is not None,
        "solution": solution,
        "locked": locked,
    }
    return metadata if points is None else metadata | {"points": points}
