"""The one way from a hidden test to a student's code: `student.ask(request, …)`.

`InProcessStudent` runs the requests of `grader.solver.requests` in this process, on code that is trusted: the
solutions, a misconception, a submission graded with `pytest tests/hidden`. In the engine the same class runs in the
solver, and the judge's `SolverStudent` asks it over the wire.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.abc
import importlib.util
import sys
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import torch

from exercises.checks import global_state, where_in
from exercises.manifest import student_files
from exercises.paths import EXERCISES
from grader.solver import requests
from ranks import CollectiveMismatch, RankTimeout

GIVEN_ON_TOP = ("train_lab", "ablation")  # given modules that import student files: each student needs their own

NESTED = "it is nested too deeply"  # why the parser gave a file up


class StudentRaised(Exception):
    """The student's code raised. `kind`, `line` and `sentence` can be shown; `text`, its message, can carry an input.

    `sentence` is what `run_on_ranks` says of ranks that never met or took too long, else empty.
    """

    def __init__(self, kind: str, line: str, text: str, sentence: str = "") -> None:
        self.kind, self.line, self.text, self.sentence = kind, line, text, sentence
        super().__init__(sentence or (f"{kind} at {line}" if line else kind))


class StudentGone(Exception):
    """The student's process has ended, or its time is over. `status` is the exercise's, as in `grader.results`."""

    def __init__(self, status: str) -> None:
        self.status = status
        super().__init__(status)


class ReplyUnusable(Exception):
    """What the student's code returned can't leave its process, or is none of the values that can."""


@dataclass(frozen=True)
class Cell:
    """A piece of source: a whole file, or one cell of a notebook. `label` is its path, or its name in <>."""

    label: str
    source: bytes

    @property
    def name(self) -> str:
        return Path(self.label.strip("<>")).name

    def compiled(self) -> CodeType:
        """Byte-order marks and declared encodings are minded. What is no Python is a `SyntaxError`."""
        return compile(self.source, self.label, "exec", dont_inherit=True)


class Student(ABC):
    """Somebody's answers to all exercises."""

    @abstractmethod
    def ask(self, request: str, *arguments: Any, **options: Any) -> Any:
        """The reply to a function of `grader.solver.requests`, or `StudentRaised`."""

    @abstractmethod
    def state_changes(self) -> list[str]:
        """What of torch's global state (default dtype, RNG, grad mode, threads) the last request left changed."""


class InProcessStudent(Student):
    """Student files from `texts`: path to source text, to a file, or to the cells of a notebook.

    Files that it lacks come from `exercises/`, unwritten.
    """

    def __init__(self, texts: Mapping[str, str | Path | list[Cell]]) -> None:
        self._sources = {file: _cells_of(file, texts.get(file, EXERCISES / file)) for file in student_files()}
        self._modules: dict[str, ModuleType] = {}
        self._changes: list[str] = []

    @classmethod
    def from_folder(cls, folder: Path) -> InProcessStudent:
        """The student of a folder laid out like a submission."""
        return cls({file: folder / file for file in student_files() if (folder / file).is_file()})

    def ask(self, request: str, *arguments: Any, **options: Any) -> Any:
        arguments, options = _copied((arguments, options), {})
        return self.run(request, *arguments, **options)

    def run(self, request: str, *arguments: Any, **options: Any) -> Any:
        """`ask`, with arguments that are the request's own to use up."""
        dtype, rng = torch.get_default_dtype(), torch.get_rng_state()
        with self._installed(), torch.enable_grad():
            before = global_state()
            try:
                return getattr(requests, request)(*arguments, **options)
            except (Exception, SystemExit) as error:
                raise self._raised(error) from error
            finally:
                after = global_state()
                self._changes = [en for (en, _), value in before.items() if after[en, _] != value]
                torch.set_default_dtype(dtype)
                torch.set_rng_state(rng)

    def state_changes(self) -> list[str]:
        return self._changes

    def _raised(self, error: BaseException) -> StudentRaised:
        names = {cell.label: cell.name for cells in self._sources.values() for cell in cells}
        place = where_in(error, names.__contains__)
        line = f"{names[place[0]]}:{place[1]}" if place else ""
        try:
            text = str(error)
        except Exception:  # an exception of the student's own can be broken as well
            text = ""
        sentence = text if isinstance(error, (CollectiveMismatch, RankTimeout)) else ""
        kind = "ValueError" if isinstance(error, ValueError) else type(error).__name__  # a subclass is one too
        return StudentRaised(kind, line, text, sentence)

    @contextmanager
    def _installed(self) -> Iterator[None]:
        """Within the block, bare names mean this student's modules."""
        names = [*(Path(file).stem for file in self._sources), *GIVEN_ON_TOP]
        held = {name: sys.modules.pop(name) for name in names if name in sys.modules}
        sys.modules.update(self._modules)
        sys.meta_path.insert(0, self)  # type: ignore[arg-type]
        try:
            yield
        finally:
            sys.meta_path.remove(self)  # type: ignore[arg-type]
            self._modules |= {name: sys.modules.pop(name) for name in names if name in sys.modules}
            sys.modules.update(held)

    def find_spec(self, name: str, path=None, target=None):
        """The import system's question where the module `name` is; answered for student files only."""
        file = next((file for file in self._sources if Path(file).stem == name), None)
        if file is None:
            return None
        return importlib.util.spec_from_loader(name, _Loader(file, self._sources[file]))


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    """`copy.deepcopy` of arguments, which takes its time over the dozens of empty containers in each module."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) in (dict, OrderedDict):
        return type(value)((key, _copied(item, memo)) for key, item in value.items()) if value else type(value)()
    if type(value) in (list, tuple):
        return type(value)(_copied(item, memo) for item in value)
    if not isinstance(value, torch.nn.Module):
        return copy.deepcopy(value, memo)
    if id(value) not in memo:
        memo[id(value)] = twin = object.__new__(type(value))
        vars(twin).update({name: _copied(item, memo) for name, item in vars(value).items()})
    return memo[id(value)]


def _cells_of(file: str, source: str | Path | list[Cell]) -> list[Cell]:
    if isinstance(source, str):
        return [Cell(f"<{file}>", source.encode())]
    return [Cell(str(source), source.read_bytes())] if isinstance(source, Path) else source


class _Loader(importlib.abc.Loader):
    """Loads a module from its source, never from bytecode."""

    def __init__(self, file: str, cells: list[Cell]) -> None:
        self._file = file
        self._cells = cells

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = self._file
        with torch.random.fork_rng(devices=[]):  # what a module draws while it loads is no call's doing
            if len(self._cells) == 1:
                exec(self._cells[0].compiled(), module.__dict__)
                return
            for cell in self._cells:  # as in a notebook: a cell that fails doesn't keep the next one from running
                with contextlib.suppress(Exception, SystemExit):
                    exec(cell.compiled(), module.__dict__)
