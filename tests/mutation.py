"""Mutation testing of the solutions: `python tests/mutation.py [FILE …] [--survivors]`, by hand (about half an hour).

Mutants come from cosmic-ray's operators, which hardly find anything in code without arithmetic, and from the operators
below. Every mutant of a solution's marked regions goes through the functional hidden tests of the exercises that its
file can touch. `tests/MUTATION.md` lists the survivors, each with the reason why it is equivalent, from
`tests/equivalent_mutants.toml`; one without a reason needs a test. With FILE only that student file's part is made
anew, with --survivors only those that survived the last time are tried again.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import re
import resource
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from exercises.paths import use_implementation

use_implementation()

from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names
from rich.console import Console
from rich.progress import Progress

from exercises.manifest import student_files
from grader.authoring import SOLUTIONS, AuthoringError, stub_of
from grader.marking import Marking
from grader.matrix import HIDDEN, affected_by
from grader.misconceptions import write_submission
from grader.trial import run_many

RESULTS = HERE / "MUTATION.md"
REASONS = HERE / "equivalent_mutants.toml"
NEED_ARGUMENTS = ("core/VariableReplacer", "core/VariableInserter")  # of cosmic-ray; they replace a variable one names
MEMORY = 12 * 2**30  # bytes; a power in place of a product can ask for any amount
UNEXPLAINED = "UNEXPLAINED: needs a test or a reason"


@dataclass(frozen=True)
class Change:
    """Lines of a solution, as in a diff, and the function or class that they stand in."""

    where: str
    lines: str


@dataclass
class Part:
    """What became of one file's mutants."""

    mutants: int
    survivors: list[Change] = field(default_factory=list)


def mutants_of(source: str) -> dict[tuple[int, Change], str]:
    """Mutated sources by their first changed line and the change; those with the same code or given part are left out."""
    given = _given_part(source)
    found: dict[tuple[int, Change], str] = {}
    for mutated in (*_by_cosmic_ray(source), *_by_own_operators(source)):
        if _is_new(source, mutated, given):
            line, lines = _difference(source, mutated)
            found.setdefault((line, Change(_place(source, line), lines)), mutated)
    return found


def _by_cosmic_ray(source: str) -> Iterator[str]:
    for name in operator_names():
        if name in NEED_ARGUMENTS:
            continue
        operator, occurrence = get_operator(name)(), 0
        while (mutated := mutate_code(source, operator, occurrence)) is not None:
            yield mutated
            occurrence += 1


def _by_own_operators(source: str) -> Iterator[str]:
    """A statement left out; a call replaced by its first argument; a keyword argument left out; a variable in another's
    place; one method or attribute for another of the same object."""
    tree = ast.parse(source)
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        nodes = list(ast.walk(function))
        names = sorted(
            {node.arg for node in nodes if isinstance(node, ast.arg)}
            | {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        )
        attributes: dict[str, set[str]] = {}
        for node in nodes:
            if isinstance(node, ast.Attribute):
                attributes.setdefault(ast.unparse(node.value), set()).add(node.attr)
        for node in nodes:
            if isinstance(node, (ast.Assign, ast.AugAssign, ast.Expr, ast.Raise, ast.Return)) and not (
                isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)  # a docstring
            ):
                yield _with(source, node, "pass")
            elif isinstance(node, ast.Call):
                if node.args:
                    yield _with(source, node, ast.unparse(node.args[0]))
                for keyword in node.keywords:
                    rest = [other for other in node.keywords if other is not keyword]
                    yield _with(source, node, ast.unparse(ast.Call(node.func, node.args, rest)))
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names:
                for name in names:
                    yield _with(source, node, name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                for name in sorted(attributes[ast.unparse(node.value)]):
                    yield _with(source, node, f"{ast.unparse(node.value)}.{name}")


def _with(source: str, node: ast.expr | ast.stmt, text: str) -> str:
    """`source` with `text` in the node's place. Columns count bytes."""
    lines = source.encode().splitlines(keepends=True)
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    before, after = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
    return b"".join([*lines[:first], before, text.encode(), after, *lines[last + 1 :]]).decode()


def _difference(source: str, mutated: str) -> tuple[int, str]:
    lines = list(difflib.unified_diff(source.splitlines(), mutated.splitlines(), lineterm="", n=0))[2:]
    first = re.match(r"@@ -(\d+)", lines[0])
    assert first
    return int(first[1]), "\n".join(line for line in lines if line[:1] in "+-")


def _place(source: str, line: int) -> str:
    """The innermost function or class around a line, with its class."""
    names = [
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.lineno <= line <= (node.end_lineno or line)
    ]
    return ".".join(names)


def _is_new(source: str, mutated: str, given: str) -> bool:
    try:
        if ast.dump(ast.parse(mutated)) == ast.dump(ast.parse(source)):
            return False
        return _given_part(mutated) == given
    except (SyntaxError, AuthoringError):  # the second where an operator has lost a marker: not a change of the code
        return False


def _given_part(source: str) -> str:
    """What a student receives of it."""
    tree = ast.parse(source)
    names = {node.name: "any" for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    return stub_of(source, names)


def tried(file: str, mutants: dict[tuple[int, Change], str], progress: Progress) -> list[Change]:
    """Those of a file's mutants that no hidden test catches; each is printed as it is found."""
    tests = [str(HIDDEN / exercise.hidden) for exercise in affected_by(file)]
    task = progress.add_task(file, total=len(mutants))
    alive = []
    with tempfile.TemporaryDirectory() as scratch:
        jobs = []
        for number, mutated in enumerate(mutants.values()):
            folder = write_submission(Path(scratch) / str(number), {file: mutated})
            jobs.append([*tests, "--submission", str(folder), "-m", "not train", "-x"])
        for (_, change), outcomes in zip(mutants, run_many(jobs, 1, lambda: progress.advance(task))):
            if all(outcome.state == "passed" for outcome in outcomes):
                alive.append(change)
                progress.print(f"{change.where}\n{change.lines}", markup=False, highlight=False)
    return alive


def last_results() -> dict[str, Part]:
    """What `RESULTS` holds, by file."""
    if not RESULTS.exists():
        return {}
    parts: dict[str, Part] = {}
    for section in RESULTS.read_text(encoding="utf-8").split("\n## ")[1:]:
        heading = re.match(r"`(.+)`: (\d+) mutants", section)
        assert heading
        survivors = re.findall(r"^`(.+)`: .*\n\n```diff\n([\s\S]+?)\n```", section[heading.end() :], re.MULTILINE)
        parts[heading[1]] = Part(int(heading[2]), [Change(*survivor) for survivor in survivors])
    return parts


def reasons() -> dict[Change, str]:
    """Why a mutant is equivalent."""
    entries = tomllib.loads(REASONS.read_text(encoding="utf-8"))["equivalent"]
    return {Change(e["where"], change.strip("\n")): e["reason"] for e in entries for change in e["changes"]}


def written(parts: dict[str, Part]) -> str:
    """The results as Markdown."""
    known = reasons()
    total = sum(part.mutants for part in parts.values())
    alive = [change for part in parts.values() for change in part.survivors]
    equivalent = sum(change in known for change in alive)
    killed = total - len(alive)
    lines = [
        "# Mutation testing of the solutions",
        "",
        "Made by `python tests/mutation.py`, with cosmic-ray's operators and some of its own.",
        "",
        f"{total} mutants: {killed} killed, {equivalent} equivalent, {len(alive) - equivalent} unexplained. "
        f"Score: {killed} of the {total - equivalent} that are not equivalent.",
    ]
    for file, part in parts.items():
        lines += ["", f"## `{file}`: {part.mutants} mutants, {len(part.survivors)} survive"]
        for change in part.survivors:
            lines += ["", f"`{change.where}`: {known.get(change, UNEXPLAINED)}", "", "```diff", change.lines, "```"]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", metavar="FILE", help=f"any of {', '.join(student_files())} (default: all)")
    parser.add_argument("--survivors", action="store_true", help="try only those again that survived the last time")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    last = last_results()
    progress = Progress(transient=True, console=Console(soft_wrap=True))
    with progress, patch.object(Marking, "diagnose"):  # which takes longer than the tests
        for file in options.files or student_files():
            mutants = mutants_of((SOLUTIONS / file).read_text(encoding="utf-8"))
            chosen = mutants
            if options.survivors:
                chosen = {key: mutated for key, mutated in mutants.items() if key[1] in last[file].survivors}
            last[file] = Part(len(mutants), tried(file, chosen, progress))
            RESULTS.write_text(written({f: last[f] for f in student_files() if f in last}), encoding="utf-8")
    print(RESULTS.read_text(encoding="utf-8").splitlines()[4])


if __name__ == "__main__":
    main()
