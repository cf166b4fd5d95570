"""`python -m grader …`: the commands of those who teach with the kit."""

from __future__ import annotations

import argparse
import sys

from rich.progress import Progress

from grader.authoring import AuthoringError, write_stubs
from grader.fingerprints import write_fingerprints
from grader.matrix import write_matrix
from grader.misconceptions import load_misconceptions
from grader.reference import ReproductionError, write_reference


def author(options: argparse.Namespace) -> None:
    """Make anew all that is made from the solutions: stubs, and the fingerprints of known misconceptions."""
    write_stubs()
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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m grader", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for function in (author, reference, matrix):
        command = commands.add_parser(function.__name__, help=function.__doc__, description=function.__doc__)
        command.set_defaults(function=function)
        if function is matrix:
            command.add_argument("--train", action="store_true", help="also train the ablation's models with each")
    options = parser.parse_args()
    try:
        options.function(options)
    except (AuthoringError, ReproductionError) as error:
        sys.exit(str(error))
