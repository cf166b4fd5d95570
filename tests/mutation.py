"""Mutation testing of the solutions with cosmic-ray's operators: `python tests/mutation.py`, by hand (about ten minutes).

Every mutant of a solution's marked regions goes through the functional hidden tests of the exercises that its file can
touch. Survivors are written to `tests/MUTATION.md` with the reason why they are equivalent, from
`tests/equivalent_mutants.toml`; one without a reason needs a test.
"""

from __future__ import annotations

import ast
import difflib
import sys
import tempfile
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from exercises.paths import use_implementation

use_implementation()

from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names
from rich.progress import Progress

from exercises.manifest import student_files
from grader.authoring import SOLUTIONS, AuthoringError, stub_of
from grader.matrix import HIDDEN, affected_by
from grader.misconceptions import write_submission
from grader.trial import run_many

NEED_ARGUMENTS = ("core/VariableReplacer", "core/VariableInserter")  # of cosmic-ray; they replace a variable one names


def mutants_of(source: str) -> dict[str, str]:
    """Mutated sources by their changed lines; those whose syntax tree or graded part stays the same are left out."""
    given = _given_part(source)
    found: dict[str, str] = {}
    for name in operator_names():
        if name in NEED_ARGUMENTS:
            continue
        operator, occurrence = get_operator(name)(), 0
        while (mutated := mutate_code(source, operator, occurrence)) is not None:
            occurrence += 1
            if _is_new(source, mutated, given):
                lines = difflib.unified_diff(source.splitlines(), mutated.splitlines(), lineterm="", n=0)
                changed = "\n".join(line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---"))
                found.setdefault(changed, mutated)
    return found


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


def main() -> None:
    reasons = {}
    known = HERE / "equivalent_mutants.toml"
    if known.exists():
        entries = tomllib.loads(known.read_text(encoding="utf-8"))["mutant"]
        reasons = {entry["change"].strip(): entry["reason"] for entry in entries}
    lines = [
        "# Mutation testing of the solutions",
        "",
        "Made by `python tests/mutation.py`, with cosmic-ray's operators.",
        "",
    ]
    survivors: list[tuple[str, str]] = []
    total = 0
    with tempfile.TemporaryDirectory() as scratch, Progress(transient=True) as progress:
        for file in student_files():
            mutants = mutants_of((SOLUTIONS / file).read_text(encoding="utf-8"))
            tests = [str(HIDDEN / exercise.hidden) for exercise in affected_by(file)]
            jobs = []
            for number, mutated in enumerate(mutants.values()):
                folder = write_submission(Path(scratch) / f"{Path(file).stem}{number}", {file: mutated})
                jobs.append([*tests, "--submission", str(folder), "-m", "not train", "-x"])
            task = progress.add_task(file, total=len(jobs))
            alive = 0
            for change, outcomes in zip(mutants, run_many(jobs, done=lambda: progress.advance(task))):  # noqa: B023
                if all(outcome.state == "passed" for outcome in outcomes):
                    survivors.append((file, change))
                    alive += 1
            total += len(mutants)
            lines.append(f"- `{file}`: {len(mutants)} mutants, {len(mutants) - alive} killed, {alive} survive")
    equivalent = sum(change.strip() in reasons for _, change in survivors)
    killed = total - len(survivors)
    lines += [
        f"- all: {total} mutants, {killed} killed, {equivalent} equivalent, {len(survivors) - equivalent} unexplained; "
        f"score {killed}/{total - equivalent}",
        "",
        "## Survivors",
    ]
    for file, change in survivors:
        reason = reasons.get(change.strip(), "UNEXPLAINED: needs a test or a reason")
        lines += ["", f"`{file}`: {reason}", "", "```diff", change, "```"]
    (HERE / "MUTATION.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines[3:]))


if __name__ == "__main__":
    main()
