"""Grades the solutions again and again: `python tests/bench/steadiness.py [TIMES] [TIMES_WITH_ABLATION]`, by hand.

By default 200 times without the ablation and 10 times with it. Every result must be full marks; each one that is not
is printed with its seed, and the exit code is 1.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from exercises.paths import use_implementation

use_implementation()

from rich.progress import Progress

from exercises.manifest import load_manifest
from grader.authoring import SOLUTIONS
from grader.engine import Engine


def main(times: int = 200, trained: int = 10) -> int:
    differences = 0
    everything = [exercise.id for exercise in load_manifest()]
    functional = [exercise for exercise in everything if exercise != "ablation"]
    with Engine() as engine, Progress(transient=True) as progress:
        for count, exercises in ((times, functional), (trained, everything)):
            task = progress.add_task(f"{len(exercises)} exercises", total=count)
            for result in engine.grade_all([SOLUTIONS] * count, exercises, partial(progress.advance, task)):
                if result.points != result.max:
                    differences += 1
                    lost = [exercise for exercise in result.exercises if exercise.status != "ok"]
                    print(f"seed {result.seed}: {result.points} of {result.max}, {result.reason}", *lost, sep="\n  ")
    print(f"graded {times} times without and {trained} times with the ablation: {differences} differences")
    return min(differences, 1)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
