"""Tests of the kit itself: the repository and lecture01 on the path, and runs of pytest to look at."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from exercises.paths import use_implementation

use_implementation("solutions")

from grader.authoring import SOLUTIONS
from grader.engine import Engine
from grader.misconceptions import write_submission


@pytest.fixture
def submission(tmp_path):
    """Lay out a submission: the solutions, with the given texts by path in their place."""

    def lay_out(changed: dict[str, str] | None = None) -> Path:
        return write_submission(tmp_path / "submission", changed or {})

    return lay_out


@pytest.fixture(scope="session")
def secret_lines() -> set[str]:
    """Long lines of solutions, hidden tests and model answers that stand in nothing that students receive."""

    def text_of(*folders: Path, kinds: tuple[str, ...]) -> str:
        files = [file for folder in folders for file in folder.rglob("*") if file.suffix in kinds]
        return "\n".join(file.read_text(encoding="utf-8") for file in files)

    given = text_of(ROOT / "exercises", ROOT / "lecture01", kinds=(".py", ".md", ".toml"))
    answers = (SOLUTIONS / "notebooks.toml").read_text(encoding="utf-8")
    given += "".join(re.findall(r"prompt\][^\[]*", answers))
    secret = text_of(SOLUTIONS, ROOT / "tests" / "hidden", kinds=(".py",)) + answers
    lines = {line.strip() for line in secret.splitlines()}
    return {line for line in lines if len(line) > 24 and line not in given and not line.startswith(("###", "title ="))}


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    with Engine() as started:
        yield started
