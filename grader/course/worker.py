"""The grading engine in a process of its own, for nbgrader: orders and results are lines of JSON.

nbgrader's process can open the gradebook and may be a notebook server with threads of its own; neither torch nor the
engine's processes belong there.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from exercises.paths import ROOT
from grader.results import SubmissionResult

FRESH_SECONDS = 5  # how long a look at the kit's files holds
IDLE_SECONDS = 120  # after which a worker without orders ends


class WorkerGone(RuntimeError):
    """The engine could not be started, or ended without a result; the message has what it said."""


class Settings(NamedTuple):
    """How an engine is to be started; see `Engine`."""

    language: str
    seed: int | None
    trust: bool


class Worker:
    """Starts the engine when it is first needed, and anew when the kit has changed since.

    Notebooks that will be asked for next can be named ahead: the engine works on several at a time, while nbgrader
    asks for one after the other.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen | None = None
        self._begun_with: tuple = ()
        self._ordered: dict[str, tuple] = {}  # each file as it was then
        self._results: dict[str, SubmissionResult] = {}
        atexit.register(self.close)

    def grade(
        self, path: Path, exercises: Sequence[str], settings: Settings, ahead: Sequence[Path] = ()
    ) -> SubmissionResult:
        """`Engine.grade`. Raises `WorkerGone`."""
        wanted = (settings, tuple(exercises), _kit_state(int(time.monotonic() / FRESH_SECONDS)))
        if self._process is None or self._process.poll() is not None or wanted != self._begun_with:
            self.close()
            self._start(settings)
            self._begun_with = wanted
        try:
            for each in (path, *ahead):
                self._order(each, exercises)
            key = str(path.absolute())
            self._read_until(key)
        except OSError as error:
            raise self._gone() from error
        self._ordered.pop(key)
        return self._results.pop(key).but(submission=str(path))

    def close(self) -> None:
        """End the engine and all that it has started."""
        if self._process is not None:
            assert self._process.stdin and self._process.stdout
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            self._process.stdout.close()
            self._process.wait()
        self._process = None
        self._ordered, self._results = {}, {}

    def _start(self, settings: Settings) -> None:
        options = ["--language", settings.language]
        options += [] if settings.seed is None else ["--seed", str(settings.seed)]
        options += ["--trust"] if settings.trust else []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "grader.course.worker", *options],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )

    def _order(self, path: Path, exercises: Sequence[str]) -> None:
        key, now = str(path.absolute()), _state(path)
        if self._ordered.get(key) == now:
            return
        if key in self._ordered and key not in self._results:
            self._read_until(key)  # the answer to the file as it was is of no use
        self._results.pop(key, None)
        self._ordered[key] = now
        assert self._process and self._process.stdin
        self._process.stdin.write(json.dumps({"path": key, "exercises": list(exercises)}) + "\n")
        self._process.stdin.flush()

    def _read_until(self, key: str) -> None:
        while key not in self._results:
            self._read()

    def _read(self) -> None:
        assert self._process and self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise self._gone()
        result = SubmissionResult.model_validate_json(line)
        self._results[result.submission] = result

    def _gone(self) -> WorkerGone:
        assert self._process
        code = self._process.wait()
        self.close()
        return WorkerGone(f"the grading engine ended with exit code {code}; what it said stands above")


def _state(path: Path) -> tuple:
    try:
        found = path.lstat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino


@lru_cache(maxsize=1)
def _kit_state(seconds: int) -> tuple:
    """Changes whenever a test, an exercise or the machinery does. Looked up anew when `seconds` have changed."""
    folders = ("exercises", "grader", "lecture01", "solutions", "tests/hidden", "tests/misconceptions")
    files = [file for folder in folders for file in sorted((ROOT / folder).rglob("*.*")) if file.suffix != ".pyc"]
    return tuple((str(file), *_state(file)) for file in files if file.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m grader.course.worker", description=__doc__)
    parser.add_argument("--language", default="en")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--trust", action="store_true")
    options = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else prints must not get between the answers
    from exercises.paths import use_implementation

    use_implementation()
    from grader.engine import Engine, NoTier

    lock = threading.Lock()

    def answer(order: dict) -> None:
        result = engine.grade(order["path"], order["exercises"])
        with lock, contextlib.suppress(BrokenPipeError):
            answers.write(result.model_dump_json() + "\n")
            answers.flush()

    try:
        with (
            Engine(trust=options.trust, seed=options.seed, language=options.language) as engine,
            ThreadPoolExecutor(engine.workers) as pool,
        ):
            at_work: list[Future] = []
            rest = b""
            while True:
                at_work = [future for future in at_work if not future.done()]
                if not select.select([0], [], [], IDLE_SECONDS)[0]:
                    if at_work:
                        continue
                    break
                data = os.read(0, 1 << 16)
                if not data:
                    break
                *lines, rest = (rest + data).split(b"\n")
                at_work += [pool.submit(answer, json.loads(line)) for line in lines]
            pool.shutdown(cancel_futures=True)
    except NoTier as error:
        sys.exit(f"{error}\nIn nbgrader_config.py that is c.GradeByEngine.trust = True.")


if __name__ == "__main__":
    main()
