"""Tests of the kit itself: the repository and lecture01 on the path, and runs of pytest to look at."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from exercises.paths import use_implementation

use_implementation("solutions")

from grader.engine import Engine
from grader.misconceptions import write_submission


@pytest.fixture
def submission(tmp_path):
    """Lay out a submission: the solutions, with the given texts by path in their place."""

    def lay_out(changed: dict[str, str] | None = None) -> Path:
        return write_submission(tmp_path / "submission", changed or {})

    return lay_out


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    with Engine() as started:
        yield started
