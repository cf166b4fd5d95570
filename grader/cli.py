"""`python -m grader …`: the commands of those who teach with the kit."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from exercises.language import LANGUAGES
from exercises.manifest import load_manifest
from grader.authoring import AuthoringError, write_stubs
from grader.course import commands as course_commands
from grader.engine import Engine, NoTier
from grader.fingerprints import write_fingerprints
from grader.matrix import write_matrix
from grader.misconceptions import load_misconceptions
from grader.reference import ReproductionError, write_reference
from grader.results import SCHEMA, schema, with_changes_noted, write_json
from grader.sample_class import write_sample_class
from grader.show import print_results


class Misuse(Exception):
    """The command line asks for what can't be done."""


def author(options: argparse.Namespace) -> None:
    """Make anew all that is made from other files: stubs, the schema of results, fingerprints of misconceptions."""
    write_stubs()
    SCHEMA.write_text(schema(), encoding="utf-8")
    with Progress(transient=True) as progress:
        task = progress.add_task("fingerprints", total=len(load_misconceptions()))
        write_fingerprints(lambda: progress.advance(task))


def reference(options: argparse.Namespace) -> None:
    """Write the lecture programs' output with the solutions to solutions/reference/ (about ten minutes)."""
    write_reference()


def matrix(options: argparse.Namespace) -> None:
    """Run every misconception through the hidden tests; write tests/misconceptions/MATRIX.md and print its totals."""
    with Progress(transient=True) as progress:
        task = progress.add_task("misconceptions", total=len(load_misconceptions()))
        text = write_matrix(options.train, lambda: progress.advance(task))
    print(text.partition("\n## Not caught")[0])


def grade(options: argparse.Namespace) -> int:
    """Grade submissions with the hidden tests: folders, .zip, .tar.gz, .py files or notebooks, each one submission."""
    known = [exercise.id for exercise in load_manifest()]
    for exercise in options.exercise or ():
        if exercise not in known:
            raise Misuse(f"there is no exercise {exercise}; choose one of {', '.join(known)}")
    for path in options.path:
        if not os.path.lexists(path):
            raise Misuse(f"there is nothing at {path}")
    if options.json and not options.json.absolute().parent.is_dir():
        raise Misuse(f"there is no folder {options.json.absolute().parent} to write {options.json.name} to")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    engine = Engine(trust=options.trust, seed=options.seed, language=options.lang)
    with engine, Progress(*columns, transient=True) as progress:
        task = progress.add_task("grading", total=len(options.path))
        results = list(engine.grade_all(options.path, options.exercise, lambda: progress.advance(task)))
    if options.json:
        results = with_changes_noted(results, options.json)
        write_json(results, options.json)
    print_results(results)
    graded = all(result.status == "graded" for result in results)
    return 0 if graded and all(e.status != "ungradable" for result in results for e in result.exercises) else 1


def sample(options: argparse.Namespace) -> None:
    """Write a small class into a folder, to try `grade` on: right, half done, wrong, hostile and broken submissions."""
    if options.folder.exists() and any(options.folder.iterdir()):
        raise Misuse(f"{options.folder} is not empty; name a new folder")
    for path in write_sample_class(options.folder):
        print(path)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m grader", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    made = {}
    for function in (grade, sample, author, reference, matrix):
        command = commands.add_parser(function.__name__, help=function.__doc__, description=function.__doc__)
        command.set_defaults(function=function)
        made[function] = command
    made[grade].add_argument("path", nargs="+", metavar="PATH", help="one submission")
    made[grade].add_argument("--json", type=Path, metavar="FILE", help="write the results, one object a submission")
    made[grade].add_argument("--exercise", action="append", metavar="ID", help="grade this one only; may be repeated")
    made[grade].add_argument("--seed", type=int, help="replay the inputs of an earlier run (default: fresh ones)")
    made[grade].add_argument("--lang", choices=LANGUAGES, default="en", help="language of the messages")
    made[grade].add_argument("--trust", action="store_true", help="grade even where code can't be confined")
    made[sample].add_argument("folder", type=Path, metavar="FOLDER")
    made[matrix].add_argument("--train", action="store_true", help="also train the ablation's models with each")
    course_commands.register(commands)
    options = parser.parse_args()
    try:
        sys.exit(options.function(options))
    except (AuthoringError, ReproductionError) as error:
        sys.exit(str(error))
    except (Misuse, NoTier, course_commands.CourseError) as error:
        print(f"python -m grader: {error}", file=sys.stderr)
        sys.exit(2)
