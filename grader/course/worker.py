"""The grading engine in a process of its own, for nbgrader: orders and results are lines of JSON.

nbgrader's process can open the gradebook and may be a notebook server with threads of its own; neither torch nor the
engine's processes belong there.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from exercises.paths import ROOT
from grader.results import SubmissionResult

IDLE_SECONDS = 120  # after which a worker without orders ends


class WorkerGone(RuntimeError):
    """The engine could not be started, or ended without a result; the message has what it said."""


class Worker:
    """Starts the engine when it is first needed, and anew when the kit has changed since."""

    def __init__(self) -> None:
        self._process: subprocess.Popen | None = None
        self._begun_with: tuple = ()
        atexit.register(self.close)

    def grade(
        self, path: Path, exercises: Sequence[str], language: str, seed: int | None, trust: bool
    ) -> SubmissionResult:
        """`Engine.grade`. Raises `WorkerGone`."""
        wanted = (language, seed, trust, _kit_state())
        if self._process is None or self._process.poll() is not None or wanted != self._begun_with:
            self.close()
            self._start(language, seed, trust)
            self._begun_with = wanted
        assert self._process and self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write(json.dumps({"path": str(path.absolute()), "exercises": list(exercises)}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        if not line:
            code = self._process.wait()
            self._process = None
            raise WorkerGone(f"the grading engine ended with exit code {code}; what it said stands above")
        return SubmissionResult.model_validate_json(line)

    def close(self) -> None:
        """End the engine and all that it has started."""
        if self._process is not None:
            assert self._process.stdin and self._process.stdout
            self._process.stdin.close()
            self._process.wait()
            self._process.stdout.close()
            self._process = None

    def _start(self, language: str, seed: int | None, trust: bool) -> None:
        options = ["--language", language]
        options += [] if seed is None else ["--seed", str(seed)]
        options += ["--trust"] if trust else []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "grader.course.worker", *options],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )


def _kit_state() -> tuple:
    """Changes whenever a test, an exercise or the machinery does."""
    folders = ("exercises", "grader", "lecture01", "solutions", "tests/hidden", "tests/misconceptions")
    files = [file for folder in folders for file in sorted((ROOT / folder).rglob("*.*")) if file.suffix != ".pyc"]
    return tuple((str(file), file.stat().st_mtime_ns) for file in files if file.is_file())


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

    try:
        with Engine(trust=options.trust, seed=options.seed, language=options.language) as engine:
            while select.select([0], [], [], IDLE_SECONDS)[0]:
                line = sys.stdin.readline()
                if not line:
                    break
                order = json.loads(line)
                result = engine.grade(order["path"], order["exercises"])
                answers.write(result.model_dump_json() + "\n")
                answers.flush()
    except NoTier as error:
        sys.exit(f"{error}\nIn nbgrader_config.py that is c.GradeByEngine.trust = True.")


if __name__ == "__main__":
    main()
