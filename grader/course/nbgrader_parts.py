"""What nbgrader calls by name from a course's nbgrader_config.py: hooks, the reader of notebooks, preprocessors.

Student code runs in the grading engine's own processes only, never in one that can open the gradebook.
"""

from __future__ import annotations

import html
import json
import shutil
import stat
from pathlib import Path
from typing import Any

from nbconvert.exporters import NotebookExporter
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell, new_notebook, new_output
from nbgrader.api import Gradebook
from nbgrader.preprocessors import ClearSolutions, ComputeChecksums, NbGraderPreprocessor
from nbgrader.utils import is_grade, is_solution
from sqlalchemy import Engine as DatabaseEngine
from sqlalchemy import event
from traitlets import Bool, Enum, Integer

from exercises.language import LANGUAGES
from exercises.manifest import load_manifest
from exercises.report import Row, html_report
from grader.authoring import stub_of
from grader.course.notebooks import CHECK
from grader.course.repair import REASONS, REFUSED, Expected, Unreadable, mend, read_any
from grader.course.worker import Settings, Worker
from grader.results import ExerciseResult, SubmissionResult

AHEAD = 4  # notebooks that the engine may begin before nbgrader asks for them
EXCHANGED = ("timestamp.txt", "submission_secret.txt")  # without them nbgrader can't release feedback
SQLITE_PATIENCE = 60  # seconds that one autograder waits for another's write

WORDS = {
    "en": {
        "headline": "{id} ({title}) · {points:g} of {max:g} points · {status}",
        "message": "what the hidden tests found",
        "no_marks": "This notebook could not be marked: {reason}.",
        "notes": "**How this notebook was read**",
        "other": "only {name} was marked, not {others}",
        "ok": "every hidden test passed",
        "failed": "some hidden tests failed",
        "not_started": "not written yet",
        "crashed": "the process died",
        "timeout": "it took too long and was stopped",
        "memory": "it took too much memory and was stopped",
        "output_limit": "it wrote too much and was stopped",
        "forbidden": "it tried something that is not allowed",
        "ungradable": "it could not be read",
    },
    "zh": {
        "headline": "{id}（{title}） · {points:g} / {max:g} 分 · {status}",
        "message": "隐藏测试发现",
        "no_marks": "这个 notebook 无法评分：{reason}。",
        "notes": "**这个 notebook 的读取说明**",
        "other": "只评阅了 {name}，没有评阅 {others}",
        "ok": "隐藏测试全部通过",
        "failed": "部分隐藏测试未通过",
        "not_started": "还没有完成",
        "crashed": "进程崩溃",
        "timeout": "运行超时，已被中止",
        "memory": "占用内存过多，已被中止",
        "output_limit": "输出过多，已被中止",
        "forbidden": "尝试了不允许的操作",
        "ungradable": "无法读取",
    },
}


# Before nbgrader starts


def patient_sqlite() -> None:
    """Let connections to a SQLite gradebook wait for a lock instead of giving up after five seconds."""

    @event.listens_for(DatabaseEngine, "connect")
    def wait(connection: Any, record: Any) -> None:
        if type(connection).__module__.startswith("sqlite3"):
            connection.execute(f"PRAGMA busy_timeout = {1000 * SQLITE_PATIENCE}")


# Release


class ClearToStubs(ClearSolutions):
    """nbgrader's ClearSolutions, with the stubs that the kit's student files have."""

    def preprocess_cell(self, cell: NotebookNode, resources: dict, cell_index: int) -> tuple[NotebookNode, dict]:
        if cell.cell_type != "code" or not is_solution(cell):
            return super().preprocess_cell(cell, resources, cell_index)
        exercise = next(e for e in load_manifest() if e.id == cell.metadata.nbgrader.grade_id)
        cell.source = stub_of(cell.source, dict.fromkeys(exercise.names, exercise.id)).rstrip("\n")
        return cell, resources


def as_released(notebook: NotebookNode, text_stub: str) -> NotebookNode:
    """An instructor's notebook as students get it, with nbgrader's checksums."""
    resources: dict = {}
    for preprocessor in (ClearToStubs(text_stub=text_stub), ComputeChecksums()):
        notebook, resources = preprocessor.preprocess(notebook, resources)
    return notebook


# Autograde: the submission's folder


def prepare_submission(assignment: str, student: str, notebooks: list[str]) -> None:
    """Before nbgrader reads a submission: remove links, and find the notebook if it goes by another name.

    `notebooks` are the paths that nbgrader found; a copy under the right name is added to them. Of several notebooks
    that could be meant none is chosen: a file that says so takes the place.
    """
    folder = Path(notebooks[0]).parent
    for path in sorted(folder.rglob("*")):
        if not stat.S_ISREG(path.lstat().st_mode) and (path.is_symlink() or not path.is_dir()):
            path.unlink()
    wanted = folder / f"{assignment}.ipynb"
    if wanted.exists():
        return
    found = [path for path in map(Path, notebooks) if path.is_file()]
    with_checks = [path for path in found if f"{CHECK}".encode() in path.read_bytes()]
    chosen = with_checks if len(with_checks) == 1 else found
    if len(chosen) == 1:
        shutil.copyfile(chosen[0], wanted)
    else:
        wanted.write_text(json.dumps({REFUSED: "several" if chosen else "no_file"}), encoding="utf-8")
    notebooks.append(str(wanted))


class AnyNotebook(NotebookExporter):
    """Reads a submitted notebook whatever its state; nbgrader's own files are read as usual."""

    def from_filename(self, filename: str, resources: Any = None, **kwargs: Any) -> tuple[Any, Any]:
        path = Path(filename)
        autograde: Any = self.parent
        if path.parent != _submitted(autograde.coursedir, resources):
            return super().from_filename(filename, resources, **kwargs)
        language = GradeByEngine(config=self.config).language
        others = sorted(other.name for other in path.parent.glob("*.ipynb") if other != path)
        try:
            notebook, notes = read_any(path, language)
            reason = ""
        except Unreadable as error:
            notebook, notes, reason = new_notebook(), [], error.reason
        if others:
            notes.append(WORDS[language]["other"].format(name=path.name, others=", ".join(others)))
        notebook.metadata["kit"] = {"notes": notes, "unreadable": reason}
        return self.from_notebook_node(notebook, resources, **kwargs)


def _submitted(coursedir: Any, resources: Any) -> Path:
    """The folder of the submission that is being read."""
    info = resources["nbgrader"]
    return Path(coursedir.format_path(coursedir.submitted_directory, info["student"], info["assignment"]))


# Autograde: the notebook


class MendCells(NbGraderPreprocessor):
    """Puts cells right before nbgrader looks at them, so that nothing in a notebook can stop a batch."""

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        info = resources["nbgrader"]
        with Gradebook(info["db_url"]) as gradebook:
            source = gradebook.find_notebook(info["notebook"], info["assignment"])
            points = {cell.name: cell.max_score for cell in source.grade_cells}
            written = {cell.name for cell in source.solution_cells}
            expected = {
                cell.name: Expected(
                    cell.name,
                    cell.cell_type,
                    cell.source,
                    cell.checksum,
                    cell.name in written,
                    cell.locked,
                    points.get(cell.name),
                )
                for cell in source.source_cells
            }
        notes = mend(nb, expected, GradeByEngine(config=self.config).language)
        if not nb.metadata.kit.unreadable:
            nb.metadata.kit.notes += notes
        return nb, resources


class GradeByEngine(NbGraderPreprocessor):
    """Takes Execute's place: the engine grades the submitted notebook, and each check cell gets points and messages."""

    language = Enum(LANGUAGES, "en", help="language of the messages to students").tag(config=True)
    seed = Integer(None, allow_none=True, help="of the hidden tests' inputs; None draws them afresh").tag(config=True)
    trust = Bool(False, help="grade even where this machine can't confine student code").tag(config=True)
    enabled = Bool(True)

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        cells = {
            cell.metadata.nbgrader.grade_id.removesuffix(CHECK): cell
            for cell in nb.cells
            if cell.cell_type == "code" and is_grade(cell)
        }
        self._compare_with_manifest(cells)
        kit = nb.metadata.pop("kit")
        path = _submitted(self._coursedir, resources) / f"{resources['nbgrader']['notebook']}.ipynb"
        if kit.unreadable == "no_file":  # behind a link may lie anything, another's work for example
            result = self._refused(path, list(cells))
        else:
            settings = Settings(self.language, self.seed, self.trust)
            result = _worker.grade(path, list(cells), settings, self._following(path))
        if result.status == "error":
            raise RuntimeError(f"the grading engine failed, so no points are given; run it again: {result.reason}")
        for exercise in result.exercises:
            cells[exercise.id].outputs = self._outputs(exercise)
        notes = [*kit.notes, *result.notes]
        if result.status == "ungradable":
            reason = REASONS[kit.unreadable][self.language] if kit.unreadable else result.reason
            notes.insert(0, WORDS[self.language]["no_marks"].format(reason=reason))
        if notes:
            heading = WORDS[self.language]["notes"]
            nb.cells.insert(0, new_markdown_cell("\n".join([heading, "", *(f"- {_plain(note)}" for note in notes)])))
        self._tell(resources["nbgrader"], result)
        return nb, resources

    @property
    def _coursedir(self) -> Any:
        return self.parent.parent.coursedir

    def _following(self, path: Path) -> list[Path]:
        """The notebooks that nbgrader will ask for after this one, as far as that can be told: a few."""
        autograde = self.parent.parent
        folders = sorted(autograde.assignments)
        here = folders.index(str(path.parent)) if str(path.parent) in folders else len(folders)
        waiting = []
        for folder in map(Path, folders[here + 1 :]):
            done = Path(
                self._coursedir.format_path(self._coursedir.autograded_directory, folder.parent.name, folder.name)
            )
            own = folder / path.name
            if (
                (autograde.force or not done.exists())
                and own.is_file()
                and not (own.is_symlink() or folder.is_symlink())
            ):
                waiting.append(own)
            if len(waiting) == AHEAD:
                break
        return waiting

    def _compare_with_manifest(self, cells: dict[str, NotebookNode]) -> None:
        """Points that differ would be refused by nbgrader one student after the other, and a cell that nobody grades
        would count in full."""
        manifest = {exercise.id: exercise for exercise in load_manifest()}
        for exercise_id, cell in cells.items():
            if exercise_id not in manifest:
                raise ValueError(f"the gradebook has an exercise {exercise_id} that the kit's manifest doesn't")
            points = manifest[exercise_id].points
            if points != cell.metadata.nbgrader.points:
                raise ValueError(
                    f"{exercise_id} is worth {points} points in the kit and {cell.metadata.nbgrader.points:g} in the "
                    "gradebook; run `python -m grader course update` and `nbgrader generate_assignment --force`"
                )
        lectures = {manifest[exercise_id].lecture for exercise_id in cells}
        lacking = [e.id for e in manifest.values() if e.lecture in lectures and e.id not in cells]
        if lacking:
            self.log.warning("not in the gradebook yet, so not graded: %s (see `course update`)", ", ".join(lacking))

    def _refused(self, path: Path, exercises: list[str]) -> SubmissionResult:
        points = {exercise.id: float(exercise.points) for exercise in load_manifest()}
        lost = [ExerciseResult(id=name, status="ungradable", points=0, max=points[name]) for name in exercises]
        maximum = sum(result.max for result in lost)
        return SubmissionResult(submission=str(path), status="ungradable", points=0, max=maximum, exercises=lost)

    def _outputs(self, exercise: ExerciseResult) -> list[NotebookNode]:
        """The messages, and the points in the form in which nbgrader reads partial credit."""
        words = WORDS[self.language]
        title = next(e.title[self.language] for e in load_manifest() if e.id == exercise.id)
        headline = words["headline"].format(
            id=exercise.id, title=title, points=exercise.points, max=exercise.max, status=words[exercise.status]
        )
        mark, colour = ("✓", "green") if exercise.status == "ok" else ("✗", "red")
        rows = [Row(mark, colour, (message,)) for message in exercise.messages]
        shown = html_report(f"{mark} {headline}", (words["message"],), rows, ())
        text = "\n".join([headline, *exercise.messages])
        return [
            new_output("display_data", {"text/html": shown, "text/plain": text}),
            new_output("execute_result", {"text/plain": str(exercise.points)}, execution_count=None),
        ]

    def _tell(self, info: dict, result: SubmissionResult) -> None:
        """One line a notebook: how far the batch is, and what this one got."""
        folders = sorted(self.parent.parent.assignments)
        own = self._coursedir.format_path(self._coursedir.submitted_directory, info["student"], info["assignment"])
        number = folders.index(own) + 1 if own in folders else 1
        points = f"{result.points:g} of {result.max:g} points"
        shown = (
            f"{points} ({result.status}, confined by {result.tier})" if result.tier else f"{points} ({result.status})"
        )
        self.log.info("[%d/%d] %s: %s", number, max(1, len(folders)), info["student"], shown)


_worker = Worker()


def _plain(text: str) -> str:
    """Text inside Markdown, as it is."""
    return "".join(f"\\{char}" if char in "\\`*_[]#|$~" else char for char in html.escape(text, quote=False))


# Feedback


def only_notebooks(assignment: str, student: str, notebooks: list[str]) -> None:
    """Before nbgrader makes feedback: leave notebooks and the exchange's own files in the autograded folder, nothing else.

    nbgrader would copy every file from there to the student, and follow links. What was handed in stays in submitted/.
    """
    folder = Path(notebooks[0]).parent
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.is_symlink() or (path.suffix != ".ipynb" and path.name not in EXCHANGED):
            path.unlink()
