"""What is made from the solutions: the stubs that students fill in."""

from __future__ import annotations

import ast
import re

from exercises.manifest import load_manifest, student_files
from exercises.paths import EXERCISES, ROOT

SOLUTIONS = ROOT / "solutions"
BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"


class AuthoringError(ValueError):
    """A solution file whose markers don't make sense."""


def stub_of(source: str, exercise_of: dict[str, str]) -> str:
    """The stub for a solution's source. `exercise_of` maps top-level names to exercise ids.

    A marked region inside a function becomes `raise NotImplementedError`; one at module level disappears.
    """
    lines = source.splitlines()
    owners = _owners(source)
    out: list[str] = []
    begun: int | None = None
    for number, line in enumerate(lines, 1):
        if line.strip() == BEGIN:
            if begun is not None:
                raise AuthoringError(f"line {number}: a second {BEGIN} before {END}")
            begun = number
            owner = owners.get(number)
            if owner is not None:
                if owner not in exercise_of:
                    raise AuthoringError(f"line {number}: {owner} belongs to no exercise of the manifest")
                indent = line[: len(line) - len(line.lstrip())]
                out.append(f'{indent}raise NotImplementedError("to do: {exercise_of[owner]}")')
        elif line.strip() == END:
            if begun is None:
                raise AuthoringError(f"line {number}: {END} without {BEGIN}")
            begun = None
        elif begun is None:
            out.append(line)
    if begun is not None:
        raise AuthoringError(f"line {begun}: {BEGIN} without {END}")
    return re.sub(r"\n{4,}", "\n\n\n", "\n".join(out)).rstrip("\n") + "\n"


def stubs() -> dict[str, str]:
    """The text of every student file as a student receives it, by its path inside exercises/."""
    texts = {}
    for file in student_files():
        source = (SOLUTIONS / file).read_text(encoding="utf-8")
        names = {name: exercise.id for exercise in load_manifest() if exercise.file == file for name in exercise.names}
        texts[file] = stub_of(source, names)
    return texts


def write_stubs() -> None:
    """Write the stubs into exercises/."""
    for file, text in stubs().items():
        (EXERCISES / file).write_text(text, encoding="utf-8")


def _owners(source: str) -> dict[int, str]:
    """For each line inside a function, the top-level function or class that it belongs to."""
    owners = {}
    for top in ast.parse(source).body:
        if isinstance(top, (ast.FunctionDef, ast.ClassDef)):
            functions = [node for node in ast.walk(top) if isinstance(node, ast.FunctionDef)]
            for function in functions:
                # A region's closing marker is a comment, which the tree doesn't know: only its first line must count.
                for number in range(function.lineno, (function.end_lineno or function.lineno) + 1):
                    owners[number] = top.name
    return owners
