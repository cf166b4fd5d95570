"""`python -m grader course …` and `python -m grader gradescope`."""

from __future__ import annotations

import argparse
from pathlib import Path

from exercises.language import LANGUAGES
from grader.course.errors import CourseError

__all__ = ["CourseError", "register"]

NEXT = """\
{folder} is a course. In that folder:
  nbgrader generate_assignment lecture   for each lecture: {lectures}
  nbgrader autograde lecture             once submissions lie in submitted/STUDENT/LECTURE/
  nbgrader generate_feedback lecture     after the written questions are marked in formgrader"""


def init(options: argparse.Namespace) -> None:
    """Make an nbgrader course in a new folder."""
    from grader.course.folder import init_course
    from grader.course.notebooks import load_lectures

    init_course(options.folder, options.lang, options.db)
    print(NEXT.format(folder=options.folder, lectures=", ".join(lecture.name for lecture in load_lectures())))


def update(options: argparse.Namespace) -> None:
    """Bring a course up to date with the kit: notebooks, and new exercises for submissions that are in already."""
    from grader.course.folder import update_course

    added = update_course(options.folder)
    print("\n".join(["added to the gradebook:", *added]) if added else "the gradebook needed no new cells")
    print("Next: nbgrader generate_assignment LECTURE --force, then nbgrader autograde LECTURE --force")


def gradescope(options: argparse.Namespace) -> None:
    """Make the zip of a Gradescope autograder."""
    from grader.course.gradescope import write_zip

    write_zip(options.out, options.lang)


def register(commands: argparse._SubParsersAction) -> None:
    """Add the commands to `python -m grader`. nbgrader is needed once one of them runs."""
    course = commands.add_parser("course", help="an nbgrader course: init, update")
    parts = course.add_subparsers(required=True, metavar="COMMAND")
    for function in (init, update):
        command = parts.add_parser(function.__name__, help=function.__doc__, description=function.__doc__)
        command.add_argument("folder", type=Path, metavar="DIR")
        command.set_defaults(function=function)
        if function is init:
            command.add_argument("--lang", choices=LANGUAGES, default="en", help="language of notebooks and messages")
            command.add_argument("--db", metavar="URL", help="the gradebook (default: a SQLite file in DIR)")
    command = commands.add_parser("gradescope", help=gradescope.__doc__, description=gradescope.__doc__)
    command.add_argument("out", type=Path, metavar="OUT.zip")
    command.add_argument("--lang", choices=LANGUAGES, default="en", help="language of the messages")
    command.set_defaults(function=gradescope)
