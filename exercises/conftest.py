"""Which implementation `pytest exercises/` tests, and the progress board at its end."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "lecture01")]

from exercises.board import Board
from exercises.language import LANGUAGES, default_language
from exercises.manifest import load_manifest
from exercises.paths import use_implementation


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("exercises")
    group.addoption("--impl", metavar="solutions|FOLDER", help="test this implementation instead of your own files")
    group.addoption("--hint", type=int, default=1, metavar="N", help="show the first N hints of the next exercise")
    group.addoption("--train", action="store_true", help="also train two small models (about 10 s)")
    group.addoption("--lang", choices=LANGUAGES, default=default_language(), help="language of the board")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "train: trains a model; runs with --train only")
    try:
        use_implementation(config.getoption("--impl"))
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None
    config.pluginmanager.register(Board(config), "exercises-board")


@pytest.fixture(autouse=True)
def _float64():
    """Every check runs under a float64 default dtype, with a fixed random state, on one thread."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def _module_fixture(name: str):
    @pytest.fixture(name=name)
    def load():
        return importlib.import_module(name)

    return load


# A fixture for each student file: one that can't be imported costs its own exercises only.
for _name in sorted({exercise.module for exercise in load_manifest()}):
    globals()[_name] = _module_fixture(_name)
