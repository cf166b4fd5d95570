"""The reference output: both lecture programs, run with the solutions, in both languages, and their figures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from exercises.language import LANGUAGES
from exercises.manifest import lecture_programs
from exercises.paths import EXERCISES, ROOT
from grader.authoring import SOLUTIONS

FOLDER = SOLUTIONS / "reference"
CLOCK = "⏱"  # begins each line that holds times


class ReproductionError(RuntimeError):
    """A program failed, or its figures differ between two runs."""


def untimed(text: str) -> str:
    """The output without the lines that hold times, which differ in every run."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.lstrip().startswith(CLOCK))


def run_program(program: str, language: str, figures: Path, *options: str) -> str:
    """What a lecture program prints with the solutions; its figures go to the file `figures`."""
    command = [sys.executable, str(EXERCISES / program), "--impl", "solutions", "--lang", language]
    command += ["--json", str(figures), *options]
    result = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, encoding="utf-8")
    if result.returncode:
        raise ReproductionError(f"{program} ended with exit code {result.returncode}:\n{result.stdout}")
    return result.stdout


def write_reference() -> None:
    """Write `solutions/reference/`: NAME.en.txt, NAME.zh.txt and NAME.json for each program.

    Each language is a run of its own; their figures must be the same to the last digit.
    """
    FOLDER.mkdir(exist_ok=True)
    for program in lecture_programs():
        name = Path(program).stem
        seen = set()
        for language in LANGUAGES:
            figures = FOLDER / f"{name}.json"
            text = run_program(program, language, figures)
            (FOLDER / f"{name}.{language}.txt").write_text(text, encoding="utf-8")
            seen.add(figures.read_text(encoding="utf-8"))
        if len(seen) > 1:
            raise ReproductionError(f"{program} gave other figures in its second run")
