"""A course with nbgrader itself: release, autograde, marking by hand, feedback, exports; SQLite and PostgreSQL.

Two tests grade with the engine. The others, which are about nbgrader, put a stand-in in its place that reads
notebooks as the engine does and gives full points for whatever is not a stub any more.
"""

from __future__ import annotations

import copy
import csv
import json
import multiprocessing
import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from urllib.parse import quote

import nbformat
import pytest
import traitlets.log
from jupyter_core.application import NoStart
from nbformat.v4 import new_code_cell, new_markdown_cell
from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderApp
from traitlets.config import PyFileConfigLoader

from exercises.manifest import load_manifest
from exercises.paths import ROOT
from grader.course import nbgrader_parts
from grader.course.errors import CourseError
from grader.course.folder import init_course, update_course
from grader.course.gradescope import write_zip
from grader.course.notebooks import CHECK, QUESTION
from grader.intake import Refused, take
from grader.results import ExerciseResult, SubmissionResult

POSTGRES = Path("/usr/lib/postgresql/15/bin")
L9, L10 = "lecture09", "lecture10"


os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # nbgrader calls alembic


@pytest.fixture(scope="session")
def postgres():
    """A PostgreSQL server of our own, on a socket in a temporary folder.

    `postgres(name)` makes a database and gives its URL; `postgres(name, copy_of)` copies one.
    """
    if not (POSTGRES / "initdb").is_file():
        pytest.skip(f"no PostgreSQL: {POSTGRES}/initdb is missing (apt-get install postgresql-15)")
    home = Path(tempfile.mkdtemp(prefix="pg-"))
    user: dict = {}
    if os.geteuid() == 0:  # initdb refuses root
        nobody = pwd.getpwnam("nobody")
        user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        os.chown(home, nobody.pw_uid, nobody.pw_gid)
    quiet = {"stdout": subprocess.DEVNULL, "cwd": home}

    def run(*command: str) -> None:
        subprocess.run([str(POSTGRES / command[0]), *command[1:]], check=True, **quiet, **user)

    run("initdb", "-D", f"{home}/data", "-U", "course", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
    server = subprocess.Popen(
        [POSTGRES / "postgres", "-D", f"{home}/data", "-k", str(home), "-c", "listen_addresses=", "-F"],
        stderr=subprocess.DEVNULL,
        **quiet,
        **user,
    )

    def database(name: str, *copy_of: str) -> str:
        run("createdb", "-h", str(home), "-U", "course", name, *(f"--template={original}" for original in copy_of))
        return f"postgresql+psycopg://course@/{name}?host={quote(str(home))}"

    try:
        deadline = time.monotonic() + 30
        while not (home / ".s.PGSQL.5432").exists() or not _answers(home / ".s.PGSQL.5432"):
            assert server.poll() is None and time.monotonic() < deadline, "PostgreSQL did not start"
            time.sleep(0.1)
        time.sleep(0.5)
        yield database
    finally:
        server.terminate()
        server.wait(30)
        shutil.rmtree(home)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


class StandIn:
    """Grades as the engine's intake reads, without running anything: no stub left in the cell, full points."""

    def __init__(self) -> None:
        self.bonus = 0.0

    def grade(self, path, exercises, settings, ahead):
        chosen = [e for e in load_manifest() if e.id in exercises]
        base = {"submission": str(path), "max": float(sum(e.points for e in chosen)), "tier": "none"}
        try:
            submission = take(Path(path))
        except Refused as refusal:
            results = [ExerciseResult(id=e.id, status="ungradable", points=0, max=e.points) for e in chosen]
            return SubmissionResult(**base, status="ungradable", reason=str(refusal), points=0, exercises=results)
        results = []
        for exercise in chosen:
            source = b"\n".join(cell.source for cell in submission.sources.get(exercise.file, [])).decode()
            written = all(re.search(rf"(def|class) {name}\b", source) for name in exercise.names)
            done = written and f'"to do: {exercise.id}"' not in source
            points = round(exercise.points * (0.5 + self.bonus), 2) if "half" in source else float(exercise.points)
            results.append(
                ExerciseResult(
                    id=exercise.id,
                    status="ok" if done else "not_started",
                    points=points if done else 0.0,
                    max=exercise.points,
                    messages=[] if done else ["not written yet"],
                )
            )
        points = sum(result.points for result in results)
        return SubmissionResult(
            **base, status="graded", points=points, notes=[note["en"] for note in submission.notes], exercises=results
        )


@pytest.fixture(scope="module", autouse=True)
def no_engine_left_behind():
    worker = nbgrader_parts._worker
    yield
    worker.close()


@pytest.fixture
def stand_in(monkeypatch):
    worker = StandIn()
    monkeypatch.setattr(nbgrader_parts, "_worker", worker)
    return worker


class Course:
    """A course folder, and nbgrader's commands in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = PyFileConfigLoader("nbgrader_config.py", str(folder)).load_config()
        self.url = self.config.CourseDirectory.db_url

    @classmethod
    def made(cls, folder: Path, db: str | None = None) -> Course:
        """A new course in English, with the first lecture released."""
        init_course(folder, "en", db)
        course = cls(folder)
        assert course.run("generate_assignment", L9) == 0
        return course

    def copied(self, folder: Path, db: str | None = None) -> Course:
        """The same course in another folder, `db` being a copy of its database where that is no file."""
        shutil.copytree(self.folder, folder)
        if db:
            config = folder / "nbgrader_config.py"
            config.write_text(config.read_text().replace(self.url, db))
        return Course(folder)

    def run(self, *arguments: str) -> int:
        """One nbgrader command, in this process; its exit code."""
        here, path = Path.cwd(), list(sys.path)
        os.chdir(self.folder)
        app = NbGraderApp.instance()
        try:
            app.initialize([*arguments, "--log-level=ERROR"])
            app.start()
        except NoStart:  # a subcommand has run
            return 0
        except SystemExit as end:
            return int(end.code or 0)
        else:
            return 0
        finally:
            app.reset()
            NbGraderApp.clear_instance()
            traitlets.log._logger = None
            os.environ.pop("NBGRADER_EXECUTION", None)  # nbgrader leaves it behind after an error
            os.chdir(here)
            sys.path[:] = path

    def released(self, lecture: str = L9):
        return nbformat.read(self.folder / "release" / lecture / f"{lecture}.ipynb", as_version=4)

    def solved(self, *exercises: str, lecture: str = L9):
        """The released notebook with the solutions of these exercises in it; none named: of all."""
        source = nbformat.read(self.folder / "source" / lecture / f"{lecture}.ipynb", as_version=4)
        notebook = self.released(lecture)
        full = {c.metadata.nbgrader.grade_id: c.source for c in source.cells if "nbgrader" in c.metadata}
        for cell in notebook.cells:
            grade_id = cell.metadata.get("nbgrader", {}).get("grade_id")
            is_code = cell.cell_type == "code" and cell.metadata.get("nbgrader", {}).get("solution")
            if is_code and (not exercises or grade_id in exercises):
                cell.source = re.sub(r" *### (BEGIN|END) SOLUTION\n?", "", full[grade_id])
        return notebook

    def hand_in(self, student: str, content, name: str = f"{L9}.ipynb", lecture: str = L9, when: str = "") -> Path:
        """Put a file into submitted/; `content` is a notebook, text or bytes."""
        place = self.folder / "submitted" / student / lecture
        place.mkdir(parents=True, exist_ok=True)
        text = json.dumps(content) if isinstance(content, dict) else content
        (place / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        if when:
            (place / "timestamp.txt").write_text(when)
        return place

    def graded(self, student: str, lecture: str = L9):
        return nbformat.read(self.folder / "autograded" / student / lecture / f"{lecture}.ipynb", as_version=4)

    def points(self, student: str, lecture: str = L9) -> dict[str, float | None]:
        with Gradebook(self.url) as gradebook:
            submission = gradebook.find_submission(lecture, student)
            return {g.name.removesuffix(CHECK): g.auto_score for n in submission.notebooks for g in n.grades}

    def notes(self, student: str) -> str:
        first = self.graded(student).cells[0]
        return first.source.replace("\\", "") if "how this notebook was read" in first.source.lower() else ""


@pytest.fixture(scope="session")
def on_sqlite(tmp_path_factory):
    return Course.made(tmp_path_factory.mktemp("original") / "course")


@pytest.fixture(scope="session")
def on_postgres(tmp_path_factory, postgres):
    return Course.made(tmp_path_factory.mktemp("original") / "course", postgres("original"))


@pytest.fixture(params=["sqlite", "postgres"])
def course(request, tmp_path, stand_in):
    """A course with the first lecture released, on either database."""
    if request.param == "sqlite":
        return request.getfixturevalue("on_sqlite").copied(tmp_path / "course")
    original = request.getfixturevalue("on_postgres")
    name = re.sub(r"\W", "_", request.node.name).lower()[:60]
    return original.copied(tmp_path / "course", request.getfixturevalue("postgres")(name, "original"))


@pytest.fixture
def small(on_sqlite, tmp_path, stand_in):
    """The same, on SQLite only."""
    return on_sqlite.copied(tmp_path / "course")


# The whole cycle, with the engine


def test_five_students_from_release_to_export(on_sqlite, tmp_path, secret_lines):
    course = on_sqlite.copied(tmp_path / "course")
    hostile = course.solved("comm_cost")
    attack = f"""
import os, sqlite3
for cell in range(3):
    print("8.0")
sqlite3.connect({str(course.folder / "gradebook.db")!r}).execute("update grade set auto_score = 100")
"""
    hostile.cells.insert(2, new_code_cell(attack))
    hostile.cells.append(new_markdown_cell("<script>fetch('/formgrader')</script>"))
    next(c for c in hostile.cells if c.source == 'check("split_mlp")').source = "8.0"
    handed_in = {
        "full": course.solved(),
        "half": course.solved("split_mlp", "tp_mlp_forward", "comm_cost"),
        "empty": course.released(),
        "hostile": hostile,
        "broken": json.dumps(course.solved())[:9000],
    }
    wrong = next(c for c in handed_in["half"].cells if c.source.startswith("def tp_mlp_forward"))
    wrong.source = wrong.source.replace("+ b2", "+ len(shards) * b2")
    for student, content in handed_in.items():
        place = course.hand_in(student, content)
        (place / "secrets.txt").symlink_to(ROOT / "tests" / "hidden" / "reference.py")
        (place / "all").symlink_to(ROOT / "solutions")
        (place / "own.py").write_text("mine = 1")
    assert course.run("autograde", L9) == 0

    again = ("half", "hostile", "broken")
    paths = [str(course.folder / "submitted" / student / L9 / f"{L9}.ipynb") for student in again]
    out = tmp_path / "results.json"
    seed = str(course.config.GradeByEngine.seed)
    command = [sys.executable, "-m", "grader", "grade", *paths, "--seed", seed, "--json", str(out)]
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
    points = {student: course.points(student) for student in handed_in}
    for student in handed_in:
        question = next(name for name in points[student] if name.startswith(QUESTION))
        assert points[student].pop(question) == 0, "nobody wrote an answer"
    totals = {student: round(sum(of.values()), 2) for student, of in points.items()}
    for student, result in zip(again, json.loads(out.read_text())):
        assert points[student] == {e["id"]: e["points"] for e in result["exercises"]}, student
        assert (totals[student], 60) == (result["points"], result["max"])
    assert totals["full"] == 60 and totals["empty"] == 0 and totals["broken"] == 0
    assert 16 < totals["half"] < 26 and totals["hostile"] == 8

    check = next(c for c in course.graded("half").cells if c.source == 'check("tp_mlp_forward")')
    assert [o.output_type for o in check.outputs] == ["display_data", "execute_result"]
    assert check.outputs[1].data["text/plain"] == str(course.points("half")["tp_mlp_forward"])
    assert "every rank adds the output bias" in check.outputs[0].data["text/html"]
    assert "not a complete notebook" in course.notes("broken")

    assert course.run("generate_feedback", L9) == 0
    handed_back = [path for path in (course.folder / "feedback").rglob("*") if path.is_file()]
    assert {path.name for path in handed_back} == {f"{L9}.html"}
    page = (course.folder / "feedback" / "hostile" / L9 / f"{L9}.html").read_text()
    assert "<script>fetch" not in page and "fetch(" in page
    released = [path for path in (course.folder / "release").rglob("*") if path.is_file()]
    pages = [path for path in handed_back if path.parts[-3] in ("half", "empty", "hostile", "broken")]
    assert len(released) > 40
    for path in [*released, *pages]:
        text = path.read_bytes().decode("utf-8", "replace")
        allowed = _own_lines(handed_in.get(path.parts[-3]))
        assert not [line for line in secret_lines if line in text and line not in allowed], path

    assert course.run("export", "--to", str(tmp_path / "grades.csv")) == 0
    with (tmp_path / "grades.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["student_id"]: row for row in csv.DictReader(file)}
    assert {student: float(row["score"]) for student, row in rows.items()} == totals


def _own_lines(content) -> str:
    return "\n".join(c["source"] for c in content["cells"]) if isinstance(content, dict) else ""


@pytest.fixture
def outside():
    """A folder that is not below /tmp, which confined code finds empty."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


def test_gradescope(tmp_path, outside, small):
    """The zip, unpacked as Gradescope lays it out, grades a submission and writes results.json."""
    write_zip(tmp_path / "autograder.zip", "zh")
    place = outside / "autograder"
    with zipfile.ZipFile(tmp_path / "autograder.zip") as archive:
        archive.extractall(place / "source")
        assert archive.getinfo("run_autograder").external_attr >> 16 == 0o755
    shutil.copy(place / "source" / "run_autograder", place)
    (place / "run_autograder").chmod(0o755)
    (place / "submission").mkdir()
    notebook = small.solved("split_mlp", "comm_cost")
    (place / "submission" / f"{L9}.ipynb").write_text(json.dumps(notebook))
    done = subprocess.run([place / "run_autograder"], capture_output=True, text=True, cwd="/", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((place / "results" / "results.json").read_text(encoding="utf-8"))
    scores = {test["name"].partition(":")[0]: test["score"] for test in results["tests"]}
    assert scores == {
        e.id: float(e.points) if e.id in ("split_mlp", "comm_cost") else 0.0 for e in load_manifest() if e.lecture == L9
    }
    assert results["score"] == 16 and results["tests"][0]["name"] == "split_mlp: 切分 MLP"
    assert results["tests"][0]["max_score"] == 8 and results["tests"][0]["status"] == "passed"
    with pytest.raises(CourseError, match=r"\.zip"):
        write_zip(tmp_path / "out.tar", "en")


# The gradebook


def test_the_manual_path(course):
    """Partial credit, a written answer, an override, extra credit and a late penalty, and all of it graded again."""
    late = course.solved("split_mlp", "comm_cost")
    next(c for c in late.cells if c.source.startswith("def split_mlp")).source += "\n# half"
    answer = next(c for c in late.cells if c.metadata.get("nbgrader", {}).get("grade_id", "").startswith(QUESTION))
    question = answer.metadata.nbgrader.grade_id
    answer.source = "Inside one machine; 15/7; one half."
    course.hand_in("anna", late, when="2026-01-12 10:00:00 UTC")
    with Gradebook(course.url) as gradebook:
        gradebook.update_or_create_assignment(L9, duedate="2026-01-10 10:00:00 UTC")
    assert course.run("autograde", L9) == 0
    points = course.points("anna")
    assert points["split_mlp"] == 4 and points["comm_cost"] == 4 and points[question] is None
    with Gradebook(course.url) as gradebook:
        submission = gradebook.find_submission(L9, "anna")
        assert submission.needs_manual_grade and submission.max_score == 65 and submission.max_code_score == 60
        grade = gradebook.find_grade(question, L9, L9, "anna")
        grade.manual_score, grade.needs_manual_grade, grade.extra_credit = 3.5, False, 1
        gradebook.find_grade("comm_cost-check", L9, L9, "anna").manual_score = 8
        gradebook.find_comment(question, L9, L9, "anna").manual_comment = "well argued"
        gradebook.db.commit()
    assert course.run("generate_feedback", L9) == 0
    page = (course.folder / "feedback" / "anna" / L9 / f"{L9}.html").read_text()
    assert "well argued" in page and "Score: 16.5 / 65.0" in page

    course_worker = nbgrader_parts._worker
    course_worker.bonus = 0.25  # a test has changed since
    assert course.run("autograde", L9, "--force", "--LateSubmissionPlugin.penalty_method=zero") == 0
    assert course.points("anna")["split_mlp"] == 6
    with Gradebook(course.url) as gradebook:
        submission = gradebook.find_submission(L9, "anna")
        assert submission.score == 6 + 8 + 3.5 + 1  # the override stands, and is marked for another look
        assert gradebook.find_grade("comm_cost-check", L9, L9, "anna").needs_manual_grade
        assert submission.late_submission_penalty == 18.5
    assert course.run("export", "--to", str(course.folder / "out.csv")) == 0
    with (course.folder / "out.csv").open(encoding="utf-8", newline="") as file:
        row = next(csv.DictReader(file))
    assert (row["raw_score"], row["late_submission_penalty"], row["score"]) == ("18.5", "18.5", "0.0")


def test_an_exercise_that_comes_after_submissions(course, monkeypatch):
    """nbgrader refuses new cells then; `course update` adds them, and who handed in before has no points there."""
    whole = course.folder / "source" / L9 / f"{L9}.ipynb"
    notebook = nbformat.read(whole, as_version=4)
    notebook.cells = [
        c for c in notebook.cells if "comm_cost" not in c.metadata.get("nbgrader", {}).get("grade_id", "")
    ]
    nbformat.write(notebook, whole)
    assert course.run("generate_assignment", L9, "--force") == 0
    course.hand_in("early", course.solved())
    assert course.run("autograde", L9) == 0
    assert "comm_cost" not in course.points("early")
    assert update_course(course.folder) == [f"{L9}: comm_cost", f"{L9}: comm_cost-check"]
    assert update_course(course.folder) == []
    assert course.run("generate_assignment", L9, "--force") == 0
    course.hand_in("later", course.solved())
    assert course.run("autograde", L9, "--force") == 0
    assert course.points("later")["comm_cost"] == 8
    assert course.points("early")["comm_cost"] == 0 and course.points("early")["split_mlp"] == 8
    assert "cell comm_cost-check was missing; it was put back" in course.notes("early")
    with Gradebook(course.url) as gradebook:
        assert gradebook.find_submission(L9, "early").max_score == 65


def test_points_that_changed_are_not_guessed(small, capsys):
    path = small.folder / "source" / L9 / f"{L9}.ipynb"
    now = path.read_text(encoding="utf-8")
    assert now.count('"points": 8,') == 2
    path.write_text(now.replace('"points": 8,', '"points": 5,'), encoding="utf-8")  # as it was when it was released
    assert small.run("generate_assignment", L9, "--force") == 0
    small.hand_in("anna", small.solved())
    assert small.run("autograde", L9) == 1
    said = capsys.readouterr().err
    assert "split_mlp is worth 8 points in the kit and 5 in the gradebook" in said
    assert update_course(small.folder) == []
    assert small.run("generate_assignment", L9, "--force") == 0
    assert small.run("autograde", L9) == 0
    assert small.points("anna")["split_mlp"] == 8


def _autograde(course: Course, student: str, barrier) -> None:
    barrier.wait()
    os._exit(course.run("autograde", L9, f"--student={student}"))


def test_several_autograders_lose_nothing(course):
    context = multiprocessing.get_context("fork")
    students = {f"s{n}": course.solved("split_mlp") if n % 2 else course.solved() for n in range(6)}
    for student, notebook in students.items():
        course.hand_in(student, notebook)
    barrier = context.Barrier(len(students))
    processes = [context.Process(target=_autograde, args=(course, student, barrier)) for student in students]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * len(students)
    totals = {student: sum(points or 0 for points in course.points(student).values()) for student in students}
    assert totals == {student: 8 if int(student[1:]) % 2 else 60 for student in students}


def test_exports(course, tmp_path):
    course.hand_in("li", course.solved("split_mlp"))
    course.hand_in("zoe", course.released())
    assert course.run("autograde", L9) == 0
    with Gradebook(course.url) as gradebook:
        gradebook.update_or_create_student(
            "li", first_name="明, 小", last_name='"李"', email="li@example.org", lms_user_id="77"
        )
        gradebook.update_or_create_student("zoe", first_name="Zoë\nAnn", last_name="O'Neil", lms_user_id="78")
        gradebook.add_student("none", first_name="=No()", last_name="Show")
    out = {name: tmp_path / f"{name}.out" for name in ("CsvExport", "CanvasExport", "GradescopeExport")}
    for name, file in out.items():
        assert course.run("export", f"--exporter=exporters.{name}", "--to", str(file)) == 0
    with out["CsvExport"].open(encoding="utf-8", newline="") as file:
        rows = {row["student_id"]: row for row in csv.DictReader(file)}
    assert rows["li"]["last_name"] == '"李"' and rows["li"]["first_name"] == "明, 小" and rows["li"]["score"] == "8.0"
    assert rows["zoe"]["first_name"] == "Zoë\nAnn" and rows["none"]["score"] == "0.0" and len(rows) == 3
    assert rows["none"]["first_name"] == "'=No()"
    with out["CanvasExport"].open(encoding="utf-8", newline="") as file:
        table = list(csv.reader(file))
    assert table[0] == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", L9]
    assert table[1] == ["    Points Possible", "", "", "", "", "65.0"]
    assert ['"李", 明, 小', "77", "", "li", "", "8.0"] in table and ["Show, =No()", "", "", "none", "", ""] in table
    results = json.loads((out["GradescopeExport"] / L9 / "li" / "results.json").read_text(encoding="utf-8"))
    assert results["score"] == 8 and sum(test["score"] for test in results["tests"]) == 8
    assert sum(test["max_score"] for test in results["tests"]) == 65
    assert sorted(path.name for path in (out["GradescopeExport"] / L9).iterdir()) == ["li", "zoe"]


# Broken submissions


def _broken(course: Course) -> dict[str, tuple]:
    """What students hand in: content, file name, the points of the exercises, and what the feedback says of it."""
    whole = course.solved()

    def changed(change) -> dict:
        notebook = copy.deepcopy(whole)
        change(notebook, {c.metadata.nbgrader.grade_id: c for c in notebook.cells if "nbgrader" in c.metadata})
        return notebook

    def drop(notebook, cell):
        notebook.cells.remove(cell)

    name = f"{L9}.ipynb"
    old = {
        "nbformat": 3,
        "nbformat_minor": 0,
        "metadata": {"name": ""},
        "worksheets": [
            {
                "cells": [
                    {"cell_type": "code", "input": c.source, "outputs": [], "language": "python"}
                    if c.cell_type == "code"
                    else {"cell_type": "markdown", "source": c.source}
                    for c in whole.cells
                ]
            }
        ],
    }
    return {
        "copied-solution": (
            changed(lambda n, c: n.cells.append(copy.deepcopy(c["split_mlp"]))),
            name,
            60,
            "stood there 2 times",
        ),
        "copied-check": (
            changed(lambda n, c: n.cells.append(copy.deepcopy(c["split_mlp-check"]))),
            name,
            60,
            "stood there 2 times",
        ),
        "same-cell-ids": (changed(lambda n, c: [cell.update(id="same") for cell in n.cells]), name, 60, ""),
        "deleted-check": (changed(lambda n, c: drop(n, c["tp_mlp_forward-check"])), name, 60, "was missing"),
        "deleted-setup": (changed(lambda n, c: drop(n, c["setup"])), name, 60, ""),
        "deleted-solution": (changed(lambda n, c: drop(n, c["comm_cost"])), name, 52, ""),
        "renamed-check": (
            changed(lambda n, c: c["comm_cost-check"].metadata.nbgrader.update(grade_id="x")),
            name,
            60,
            "recognised",
        ),
        "reflagged-check": (
            changed(lambda n, c: c["comm_cost-check"].metadata.nbgrader.update(grade=False, solution=True)),
            name,
            60,
            "markings",
        ),
        "changed-check": (
            changed(lambda n, c: c["comm_cost-check"].update(source="8.0")),
            name,
            60,
            "not yours to change",
        ),
        "old-schema": (
            changed(lambda n, c: c["comm_cost-check"].metadata.nbgrader.update(schema_version=1)),
            name,
            60,
            "",
        ),
        "new-schema": (
            changed(lambda n, c: c["comm_cost-check"].metadata.nbgrader.update(schema_version=9)),
            name,
            60,
            "",
        ),
        "no-metadata": (changed(lambda n, c: [cell.update(metadata={}) for cell in n.cells]), name, 60, "recognised"),
        "truncated": (json.dumps(whole)[:10_000], name, 0, "not a complete notebook"),
        "empty-file": ("", name, 0, "the file is empty"),
        "binary": (bytes(range(256)), name, 0, "not a complete notebook"),
        "a-list": ("[]", name, 0, "has no cells"),
        "format-3": (old, name, 60, "recognised"),
        "format-9": (changed(lambda n, c: n.update(nbformat=9)), name, 60, ""),
        "huge-outputs": (
            changed(
                lambda n, c: c["split_mlp-check"].outputs.append(
                    {"output_type": "stream", "name": "stdout", "text": "x" * 9_000_000}
                )
            ),
            name,
            60,
            "",
        ),
        "magics": (
            changed(lambda n, c: c["split_mlp"].update(source="%timeit 1\n!ls\n" + c["split_mlp"].source)),
            name,
            60,
            "left out",
        ),
        "wrong-name": (whole, "Lecture 9 (final).ipynb", 60, "not Lecture 9 (final).ipynb"),
        "surrogate": (changed(lambda n, c: n.cells.append(new_code_cell("'\\ud800'"))), name, 60, ""),
        "sound": (whole, name, 60, ""),
    }


def test_broken_notebooks_stop_nobody(small):
    cases = _broken(small)
    for student, (content, name, _, _) in cases.items():
        small.hand_in(student, content, name)
    small.hand_in("two", small.solved())
    small.hand_in("two", small.released(), "lecture09-Copy1.ipynb")
    small.hand_in("two-misnamed", small.solved(), "a.ipynb")
    small.hand_in("two-misnamed", small.released(), "b.ipynb")
    small.hand_in("one-of-ours", small.solved(), "mine.ipynb")
    small.hand_in("one-of-ours", {"nbformat": 4, "cells": [], "metadata": {}}, "scratch.ipynb")
    linked = small.folder / "submitted" / "linked" / L9
    linked.mkdir(parents=True)
    (linked / f"{L9}.ipynb").symlink_to(small.folder / "source" / L9 / f"{L9}.ipynb")
    piped = small.folder / "submitted" / "piped" / L9
    piped.mkdir(parents=True)
    os.mkfifo(piped / f"{L9}.ipynb")
    (small.folder / "submitted" / "folder" / L9 / f"{L9}.ipynb").mkdir(parents=True)
    theirs = small.folder / "submitted" / "theirs"
    theirs.mkdir()
    (theirs / L9).symlink_to(small.folder / "submitted" / "sound" / L9)
    cases |= {
        "two": (None, None, 60, "not lecture09-Copy1.ipynb"),
        "two-misnamed": (None, None, 0, "several notebooks"),
        "one-of-ours": (None, None, 60, "not mine.ipynb, scratch.ipynb"),
        "linked": (None, None, 0, "not an ordinary file"),
        "piped": (None, None, 0, "not an ordinary file"),
        "folder": (None, None, 0, "not an ordinary file"),
        "theirs": (None, None, 0, "not an ordinary file"),
    }
    assert small.run("autograde", L9) == 0
    found = {}
    for student, (_, _, _, said) in cases.items():
        points = small.points(student)
        assert None not in [value for name, value in points.items() if not name.startswith(QUESTION)], student
        found[student] = sum(points.get(e.id, 0) for e in load_manifest() if e.lecture == L9)
        assert said in small.notes(student), (student, small.notes(student))
        for cell in small.graded(student).cells:
            assert not [o for o in cell.get("outputs", []) if o.output_type in ("stream", "error")]
    assert found == {student: case[2] for student, case in cases.items()}
    assert small.run("generate_feedback", L9) == 0
    assert len(list((small.folder / "feedback").glob(f"*/{L9}/{L9}.html"))) == len(cases)
    assert not list((small.folder / "feedback").rglob("*.ipynb"))


def test_nothing_but_the_notebook_reaches_the_feedback(small):
    place = small.hand_in("anna", small.solved())
    (place / "exercises" / L9).mkdir(parents=True)
    (place / "exercises" / L9 / "dist_sim.py").write_text("mine = 1")
    (place / "notes.txt").write_text("mine")
    (place / "gradebook").symlink_to(small.folder / "gradebook.db")
    assert small.run("autograde", L9) == 0
    autograded = small.folder / "autograded" / "anna" / L9
    assert (autograded / "exercises" / L9 / "dist_sim.py").read_text() == "mine = 1"  # not overwritten
    assert not (autograded / "gradebook").exists()
    (autograded / "later").symlink_to(small.folder / "gradebook.db")
    assert small.run("generate_feedback", L9) == 0
    assert [p.name for p in (small.folder / "feedback").rglob("*") if p.is_file()] == [f"{L9}.html"]


def test_through_the_exchange_and_back(small, tmp_path):
    """Released, fetched, handed in, collected, graded, and the feedback fetched: nbgrader's own commands throughout."""
    (tmp_path / "exchange").mkdir()
    (tmp_path / "exchange").chmod(0o777)
    (tmp_path / "student").mkdir()
    exchange = f"c.Exchange.root = {str(tmp_path / 'exchange')!r}\nc.Exchange.cache = {str(tmp_path / 'cache')!r}\n"
    with (small.folder / "nbgrader_config.py").open("a", encoding="utf-8") as config:
        config.write(exchange)
    (tmp_path / "student" / "nbgrader_config.py").write_text(
        f"c = get_config()\nc.CourseDirectory.course_id = {small.config.CourseDirectory.course_id!r}\n{exchange}"
    )
    student = Course(tmp_path / "student")
    assert small.run("release_assignment", L9) == 0
    assert student.run("fetch_assignment", L9) == 0
    fetched = student.folder / L9
    assert (fetched / "exercises" / "notebook.py").exists() and (fetched / "lecture01" / "tiny_gpt.py").exists()
    nbformat.write(nbformat.from_dict(small.solved()), fetched / f"{L9}.ipynb")
    assert student.run("submit", L9) == 0
    assert small.run("collect", L9) == 0
    assert small.run("autograde", L9) == 0
    (name,) = [place.name for place in (small.folder / "submitted").iterdir()]
    assert small.points(name)["comm_cost"] == 8
    assert small.run("generate_feedback", L9) == 0
    assert small.run("release_feedback", L9) == 0
    assert student.run("fetch_feedback", L9) == 0
    (page,) = [path for path in student.folder.rglob("*.html")]
    assert "8 of 8 points" in page.read_text(encoding="utf-8")


def test_an_engine_that_fails_gives_no_points(small, monkeypatch):
    small.hand_in("anna", small.solved())
    monkeypatch.setattr(
        nbgrader_parts._worker,
        "grade",
        lambda path, *_: SubmissionResult(
            submission=str(path), status="error", reason="no memory", points=None, max=60
        ),
    )
    assert small.run("autograde", L9) == 1
    assert set(small.points("anna").values()) == {None}
    assert not (small.folder / "autograded" / "anna" / L9).exists()


# The folder


def test_init_and_update_refuse_what_they_should(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "file").touch()
    for path in ("full", "file"):
        with pytest.raises(CourseError, match="not an empty folder"):
            init_course(tmp_path / path, "en", None)
    with pytest.raises(CourseError, match="holds no nbgrader_config"):
        update_course(tmp_path / "full")


def test_a_course_in_chinese(tmp_path):
    init_course(tmp_path / "course", "zh", "sqlite:///elsewhere.db")
    course = Course(tmp_path / "course")
    assert course.url == "sqlite:///elsewhere.db"
    text = (course.folder / "source" / L10 / f"{L10}.ipynb").read_text(encoding="utf-8")
    assert "PaLM 的架构选择" in text and 'start(\\"zh\\")' in text
    assert course.config.GradeByEngine.language == "zh" and course.config.ClearSolutions.text_stub == "在此作答"
    needed = (course.folder / "source" / L9 / "requirements.txt").read_text()
    assert "torch>=" in needed and "nbgrader" not in needed
    assert not list((course.folder / "source").rglob("__pycache__"))
