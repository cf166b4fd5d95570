"""The course folder: made by `init`, brought up to date with the kit by `update`."""

from __future__ import annotations

import re
import secrets
import shutil
import tomllib
from pathlib import Path

import nbformat
from nbgrader.api import Comment, Grade, Gradebook, MissingEntry, Notebook
from traitlets.config import PyFileConfigLoader

from exercises.language import LANGUAGES
from exercises.paths import ROOT
from grader.course.errors import CourseError
from grader.course.nbgrader_parts import as_released
from grader.course.notebooks import Lecture, load_lectures, make_notebook

CONFIG = '''\
"""nbgrader's configuration of this course, written by `python -m grader course init`."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import kit_path  # where the exercise kit lies

from grader.course.nbgrader_parts import patient_sqlite

patient_sqlite()  # several autograders at a time wait for one another
c = get_config()
c.CourseDirectory.root = str(HERE)
c.CourseDirectory.course_id = {course_id!r}
c.CourseDirectory.db_url = {db_url}

# Release: stubs as in the kit, the text that stands for a written answer.
c.ClearSolutions.text_stub = {text_stub!r}
c.GenerateAssignment.preprocessors = [
    "nbgrader.preprocessors.LockCells",
    "grader.course.nbgrader_parts.ClearToStubs",
    "nbgrader.preprocessors.ClearOutput",
    "nbgrader.preprocessors.CheckCellMetadata",
    "nbgrader.preprocessors.ComputeChecksums",
    "nbgrader.preprocessors.SaveCells",
    "nbgrader.preprocessors.ComputeChecksums",
    "nbgrader.preprocessors.CheckCellMetadata",
]

# Autograde: any file is read, cells are put right (in the place of nbgrader's ClearOutput, DeduplicateIds and
# OverwriteCells, which a broken notebook would stop; missing cells are added), and the engine takes the kernel's place.
c.Autograde.pre_convert_hook = "grader.course.nbgrader_parts.prepare_submission"
c.Autograde.exporter_class = "grader.course.nbgrader_parts.AnyNotebook"
c.Autograde.sanitize_preprocessors = ["grader.course.nbgrader_parts.MendCells"]
c.Autograde.autograde_preprocessors = [
    "grader.course.nbgrader_parts.GradeByEngine",
    "nbgrader.preprocessors.SaveAutoGrades",
    "nbgrader.preprocessors.AssignLatePenalties",
]
c.GradeByEngine.language = {language!r}
c.GradeByEngine.seed = {seed}  # of the hidden tests' inputs: the same for everybody, and when graded again
# c.GradeByEngine.trust = True  # grade even where this machine can't confine student code; only for code you trust

# What lies beside a submitted notebook stays as it was handed in; the engine uses the kit's own files.
c.Autograde.exclude_overwriting = {{
    source.name: [str(file.relative_to(source)) for file in source.rglob("*")]
    for source in (HERE / "source").glob("*")
}}

# Feedback: the notebook and nothing else.
c.GenerateFeedback.pre_convert_hook = "grader.course.nbgrader_parts.only_notebooks"

# Late submissions: "none" or "zero", or a class of your own (see the kit's README).
c.LateSubmissionPlugin.penalty_method = "none"

c.ExportApp.plugin_class = "grader.course.exporters.CsvExport"
'''

KIT_PATH = '''\
"""Where the exercise kit lies; change it here if the kit moves."""

import sys

sys.path.append({kit!r})
'''
EXPORTERS = '''\
"""The kit's exports: `nbgrader export --exporter=exporters.CanvasExport`, and so on."""

import kit_path
from grader.course.exporters import CanvasExport, CsvExport, GradescopeExport
'''
TEXT_STUB = {"en": "YOUR ANSWER HERE", "zh": "在此作答"}


def init_course(folder: Path, language: str, db_url: str | None) -> None:
    """Make a course in `folder`, new or empty. `db_url` is the gradebook's, by default a SQLite file in the folder."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CourseError(f"{folder} is there already and not an empty folder; give a new one, or `course update` it")
    folder.mkdir(parents=True, exist_ok=True)
    text = CONFIG.format(
        course_id=re.sub(r"[^A-Za-z0-9_-]+", "-", folder.resolve().name).strip("-") or "course",
        db_url=repr(db_url) if db_url else 'f"sqlite:///{HERE}/gradebook.db"',
        text_stub=TEXT_STUB[language],
        language=language,
        seed=secrets.randbelow(2**31),
    )
    (folder / "nbgrader_config.py").write_text(text, encoding="utf-8")
    (folder / "kit_path.py").write_text(KIT_PATH.format(kit=str(ROOT)), encoding="utf-8")
    (folder / "exporters.py").write_text(EXPORTERS, encoding="utf-8")
    for lecture in load_lectures():
        _write_source(folder, lecture, language)


def update_course(folder: Path) -> list[str]:
    """Bring source/ and the gradebook up to date with the kit; the cells added to assignments with submissions.

    nbgrader itself refuses new cells once somebody has handed in. Here they are added to the gradebook and to every
    submission in it, unmarked. Run `nbgrader generate_assignment --force` and `nbgrader autograde --force` afterwards.
    """
    if not (folder / "nbgrader_config.py").is_file():
        raise CourseError(f"{folder} holds no nbgrader_config.py; make the course with `python -m grader course init`")
    added = []
    url = PyFileConfigLoader("nbgrader_config.py", str(folder)).load_config().CourseDirectory.db_url
    for lecture in load_lectures():
        path = folder / "source" / lecture.name / f"{lecture.name}.ipynb"
        old = nbformat.read(path, as_version=4) if path.is_file() else None
        language = old.metadata.kit.language if old else LANGUAGES[0]
        _write_source(folder, lecture, language)
        with Gradebook(url) as gradebook:
            added += _add_cells(gradebook, lecture, language)
    return added


def _write_source(folder: Path, lecture: Lecture, language: str) -> None:
    """One assignment in source/: its notebook, and what a student needs beside it."""
    source = folder / "source" / lecture.name
    source.mkdir(parents=True, exist_ok=True)
    for name in ("exercises", "lecture01"):
        shutil.rmtree(source / name, ignore_errors=True)
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    with (ROOT / "pyproject.toml").open("rb") as file:
        needed = tomllib.load(file)["project"]["dependencies"]
    (source / "requirements.txt").write_text("\n".join([*needed, "jupyterlab", ""]), encoding="utf-8")
    nbformat.write(make_notebook(lecture, language), source / f"{lecture.name}.ipynb")


def _add_cells(gradebook: Gradebook, lecture: Lecture, language: str) -> list[str]:
    """Add the cells that a lecture's notebook has and the gradebook lacks, where there are submissions already."""
    try:
        notebook: Notebook = gradebook.find_notebook(lecture.name, lecture.name)
    except MissingEntry:
        return []
    if not notebook.submissions:
        return []
    known = {cell.name for cell in notebook.source_cells}
    added = []
    for cell in as_released(make_notebook(lecture, language), TEXT_STUB[language]).cells:
        meta = cell.metadata.get("nbgrader")
        if not meta or meta.grade_id in known:
            continue
        where = (meta.grade_id, lecture.name, lecture.name)
        gradebook.add_source_cell(
            *where, cell_type=cell.cell_type, locked=meta.locked, source=cell.source, checksum=meta.checksum
        )
        if meta.grade:
            marked = gradebook.add_grade_cell(*where, max_score=meta.points, cell_type=cell.cell_type)
            gradebook.db.add_all(Grade(cell_id=marked.id, notebook=handed_in) for handed_in in notebook.submissions)
        if meta.solution:
            written = gradebook.add_solution_cell(*where)
            gradebook.db.add_all(Comment(cell_id=written.id, notebook=handed_in) for handed_in in notebook.submissions)
        gradebook.db.commit()
        added.append(f"{lecture.name}: {meta.grade_id}")
    return added
