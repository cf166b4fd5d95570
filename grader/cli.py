"""`python -m grader …`: the commands of those who teach with the kit."""

from __future__ import annotations

import argparse

from rich.progress import Progress

from grader.authoring import write_stubs
from grader.fingerprints import write_fingerprints
from grader.misconceptions import load_misconceptions


def author(options: argparse.Namespace) -> None:
    """Make anew all that is made from the solutions: stubs, and the fingerprints of known misconceptions."""
    write_stubs()
    with Progress(transient=True) as progress:
        task = progress.add_task("fingerprints", total=len(load_misconceptions()))
        write_fingerprints(lambda: progress.advance(task))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m grader", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for function in (author,):
        command = commands.add_parser(function.__name__, help=function.__doc__, description=function.__doc__)
        command.set_defaults(function=function)
    options = parser.parse_args()
    options.function(options)
