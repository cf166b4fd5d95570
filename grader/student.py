"""The one way from a hidden test to a student's code: `student.ask(request, …)`.

`InProcessStudent` runs the requests of `grader.solver.requests` in this process, on code that is trusted: the
solutions, a misconception, a submission graded with `pytest tests/hidden`. The engine's solver answers the same
requests from a process of its own.
"""

from __future__ import annotations

import copy
import importlib.abc
import importlib.util
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from exercises.checks import global_state, where_in
from exercises.manifest import student_files
from exercises.paths import EXERCISES
from grader.solver import requests
from ranks import CollectiveMismatch, RankTimeout

GIVEN_ON_TOP = ("train_lab", "ablation")  # given modules that import student files: each student needs their own


class StudentRaised(Exception):
    """The student's code raised. `kind`, `line` and `sentence` can be shown; `text`, its message, can carry an input.

    `sentence` is what `run_on_ranks` says of ranks that never met or took too long, else empty.
    """

    def __init__(self, kind: str, line: str, text: str, sentence: str = "") -> None:
        self.kind, self.line, self.text, self.sentence = kind, line, text, sentence
        super().__init__(sentence or (f"{kind} at {line}" if line else kind))


class Student(ABC):
    """Somebody's answers to all exercises."""

    @abstractmethod
    def ask(self, request: str, *arguments: Any, **options: Any) -> Any:
        """The reply to a function of `grader.solver.requests`, or `StudentRaised`."""

    @abstractmethod
    def state_changes(self) -> list[str]:
        """What of torch's global state (default dtype, RNG, grad mode, threads) the last request left changed."""


class InProcessStudent(Student):
    """Student files from `texts` (path to source text); files that it lacks come from `exercises/`, unwritten."""

    def __init__(self, texts: dict[str, str | Path]) -> None:
        self._sources = {file: texts.get(file, EXERCISES / file) for file in student_files()}
        self._modules: dict[str, ModuleType] = {}
        self._broken: dict[str, BaseException] = {}
        self._changes: list[str] = []

    @classmethod
    def from_folder(cls, folder: Path) -> InProcessStudent:
        """The student of a folder laid out like a submission."""
        return cls({file: folder / file for file in student_files() if (folder / file).is_file()})

    def ask(self, request: str, *arguments: Any, **options: Any) -> Any:
        arguments, options = copy.deepcopy((arguments, options))
        dtype, rng = torch.get_default_dtype(), torch.get_rng_state()
        with self._installed(), torch.enable_grad():
            before = global_state()
            try:
                return getattr(requests, request)(*arguments, **options)
            except (Exception, SystemExit) as error:
                raise self._raised(error) from None
            finally:
                after = global_state()
                self._changes = [en for (en, _), value in before.items() if after[en, _] != value]
                torch.set_default_dtype(dtype)
                torch.set_rng_state(rng)

    def state_changes(self) -> list[str]:
        return self._changes

    def _raised(self, error: BaseException) -> StudentRaised:
        own = {str(source) for source in self._sources.values()} | {f"<{file}>" for file in self._sources}
        place = where_in(error, own.__contains__)
        line = f"{Path(place[0].strip('<>')).name}:{place[1]}" if place else ""
        sentence = str(error) if isinstance(error, (CollectiveMismatch, RankTimeout)) else ""
        kind = "ValueError" if isinstance(error, ValueError) else type(error).__name__  # a subclass is one too
        return StudentRaised(kind, line, str(error), sentence)

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
        return importlib.util.spec_from_loader(name, _Loader(self._sources[file], f"<{file}>"))


class _Loader(importlib.abc.Loader):
    """Loads a module from its source text, never from bytecode."""

    def __init__(self, source: str | Path, label: str) -> None:
        self._source = source
        self._label = label

    def exec_module(self, module: ModuleType) -> None:
        if isinstance(self._source, Path):
            module.__file__ = label = str(self._source)
            source: str | bytes = self._source.read_bytes()  # compile() minds byte-order marks and declared encodings
        else:
            label, source = self._label, self._source
        with torch.random.fork_rng(devices=[]):  # what a module draws while it loads is no call's doing
            exec(compile(source, label, "exec"), module.__dict__)
