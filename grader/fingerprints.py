"""What known misconceptions return on the public tests' inputs, for the student's kit: projections, no code."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from exercises.diagnosis import FINGERPRINTS
from exercises.manifest import load_manifest
from exercises.paths import EXERCISES
from grader.misconceptions import load_misconceptions, write_submission
from grader.trial import run_many


def fingerprints(done: Callable[[], None] = lambda: None) -> dict[str, list[dict]]:
    """For each exercise its misconceptions that a public test sees by a number: sentences, and results by test."""
    public = {exercise.id: str(EXERCISES / exercise.public) for exercise in load_manifest()}
    found: dict[str, list[dict]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        jobs = []
        for number, misconception in enumerate(load_misconceptions()):
            folder = write_submission(Path(scratch) / str(number), {misconception.file: misconception.patched()})
            jobs.append([public[misconception.exercise], "--impl", str(folder)])
        for misconception, outcomes in zip(load_misconceptions(), run_many(jobs, done=done)):
            # Ten digits: what follows may differ between machines.
            results = {o.key: [float(f"{p:.10g}") for p in o.projections] for o in outcomes if o.projections}
            if results:
                entry = {"id": misconception.id, "en": misconception.en, "zh": misconception.zh, "results": results}
                found.setdefault(misconception.exercise, []).append(entry)
    return found


def write_fingerprints(done: Callable[[], None] = lambda: None) -> None:
    """Write `exercises/fingerprints.json`."""
    text = json.dumps(fingerprints(done), ensure_ascii=False, indent=1) + "\n"
    FINGERPRINTS.write_text(text, encoding="utf-8")
