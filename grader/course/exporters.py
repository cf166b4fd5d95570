"""Exports of the gradebook: `nbgrader export --exporter=grader.course.exporters.…`."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import IO

from nbgrader.api import Assignment, Gradebook, MissingEntry, Student, SubmittedAssignment
from nbgrader.plugins import ExportPlugin

COLUMNS = (
    "assignment",
    "duedate",
    "timestamp",
    "student_id",
    "last_name",
    "first_name",
    "email",
    "raw_score",
    "late_submission_penalty",
    "score",
    "max_score",
)


class _Export(ExportPlugin):
    """What the exports share: which assignments and students are asked for."""

    def assignments(self, gradebook: Gradebook) -> list[Assignment]:
        wanted = {str(name) for name in self.assignment}
        return [a for a in gradebook.assignments if not wanted or a.name in wanted]

    def students(self, gradebook: Gradebook) -> list[Student]:
        wanted = {str(name) for name in self.student}
        return [s for s in gradebook.students if not wanted or s.id in wanted]


class CsvExport(_Export):
    """nbgrader's own columns, one row for each student and assignment, in UTF-8, quoted where a value needs it."""

    def export(self, gradebook: Gradebook) -> None:
        with _table(self.to or "grades.csv") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            for assignment in self.assignments(gradebook):
                for student in self.students(gradebook):
                    submission = _submission(gradebook, assignment, student)
                    writer.writerow(
                        {
                            "assignment": assignment.name,
                            "duedate": assignment.duedate,
                            "timestamp": submission.timestamp if submission else None,
                            "student_id": student.id,
                            "last_name": _no_formula(student.last_name),
                            "first_name": _no_formula(student.first_name),
                            "email": _no_formula(student.email),
                            "raw_score": round(submission.score, 2) if submission else 0.0,
                            "late_submission_penalty": _penalty(submission),
                            "score": _score(submission),
                            "max_score": assignment.max_score,
                        }
                    )


class CanvasExport(_Export):
    """A gradebook for Canvas to import: a row for each student, a column for each assignment.

    Canvas knows a student by ID (nbgrader's LMS user id) or by SIS Login ID (nbgrader's student id). A student who
    handed nothing in has an empty cell, which leaves Canvas as it is.
    """

    def export(self, gradebook: Gradebook) -> None:
        assignments = self.assignments(gradebook)
        with _table(self.to or "canvas.csv") as file:
            writer = csv.writer(file)
            writer.writerow(["Student", "ID", "SIS User ID", "SIS Login ID", "Section", *(a.name for a in assignments)])
            writer.writerow(["    Points Possible", "", "", "", "", *(a.max_score for a in assignments)])
            for student in self.students(gradebook):
                name = ", ".join(part for part in (student.last_name, student.first_name) if part) or student.id
                submissions = [_submission(gradebook, assignment, student) for assignment in assignments]
                scores = ["" if submission is None else _score(submission) for submission in submissions]
                writer.writerow([_no_formula(name), student.lms_user_id or "", "", student.id, "", *scores])


class GradescopeExport(_Export):
    """A Gradescope `results.json` for each submission: `--to FOLDER` gets ASSIGNMENT/STUDENT/results.json."""

    def export(self, gradebook: Gradebook) -> None:
        for assignment in self.assignments(gradebook):
            for student in self.students(gradebook):
                submission = _submission(gradebook, assignment, student)
                if submission is None:
                    continue
                file = Path(self.to or "gradescope", assignment.name, student.id, "results.json")
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(json.dumps(_gradescope(submission), indent=1, ensure_ascii=False), encoding="utf-8")


def _table(path: str) -> IO[str]:
    return open(path, "w", encoding="utf-8", newline="")


def _no_formula(text: str | None) -> str | None:
    """A name as a spreadsheet shows it: what begins like a formula gets an apostrophe in front."""
    return f"'{text}" if text and text[0] in "=+-@\t\r" else text


def _submission(gradebook: Gradebook, assignment: Assignment, student: Student) -> SubmittedAssignment | None:
    try:
        return gradebook.find_submission(assignment.name, student.id)
    except MissingEntry:
        return None


def _penalty(submission: SubmittedAssignment | None) -> float:
    return round(submission.late_submission_penalty or 0.0, 2) if submission else 0.0


def _score(submission: SubmittedAssignment | None) -> float:
    """Points have two digits; the database's sum of them can have more."""
    return round(max(0.0, submission.score - _penalty(submission)), 2) if submission else 0.0


def _gradescope(submission: SubmittedAssignment) -> dict:
    tests = [
        {"name": grade.name, "score": grade.score, "max_score": grade.max_score, "visibility": "visible"}
        for notebook in submission.notebooks
        for grade in sorted(notebook.grades, key=lambda grade: grade.name)
    ]
    penalty = _penalty(submission)
    lines = [f"late penalty: {penalty:g}"] if penalty else []
    return {"score": _score(submission), "output": "\n".join(lines), "visibility": "visible", "tests": tests}
