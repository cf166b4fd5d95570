"""Recognising a wrong result: fingerprints of what known misconceptions return on the public tests' inputs.

`fingerprints.json` is generated from the misconceptions that the kit's own tests know. It holds a few projections of
each wrong result, no code and no right answer.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from exercises.checks import CheckFailed, Text, projections, same_projections

FINGERPRINTS = Path(__file__).with_name("fingerprints.json")


@cache
def _fingerprints() -> dict:
    return json.loads(FINGERPRINTS.read_text(encoding="utf-8")) if FINGERPRINTS.exists() else {}


def fingerprint_key(test: str, failure: CheckFailed) -> str:
    """The name under which a result is looked up: the test (without its folder) and what it compared there."""
    return f"{test.rpartition('/')[2]} · {failure.what['en']}"


def diagnose(exercise: str, test: str, failure: CheckFailed) -> list[Text]:
    """The misconceptions of `exercise` that give just this result in the test with node id `test`; often none.

    A number that fits more than two of them tells nothing, so none is named.
    """
    if failure.numbers is None:
        return []
    found = projections(failure.numbers)
    key = fingerprint_key(test, failure)
    fitting = [
        {"en": entry["en"], "zh": entry["zh"]}
        for entry in _fingerprints().get(exercise, [])
        if key in entry["results"] and same_projections(entry["results"][key], found)
    ]
    return fitting if len(fitting) <= 2 else []
