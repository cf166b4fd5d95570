"""The result of one submission: typed, versioned, and safe to show.

`python -m grader grade --json` writes a list of `SubmissionResult`; `results.schema.json` is its JSON schema.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter

SCHEMA = Path(__file__).with_name("results.schema.json")

ExerciseStatus = Literal[
    "ok",  # every hidden test passed
    "failed",  # it ran, and some tests failed
    "not_started",  # the stub is still there
    "crashed",  # the process died
    "timeout",  # it took longer than its limit
    "memory",  # it took more memory than its limit
    "output_limit",  # it wrote more than its limit
    "forbidden",  # it tried what the confinement denies, or broke the protocol
    "ungradable",  # the file can't be loaded as text, or is no Python
]
SubmissionStatus = Literal[
    "graded",
    "ungradable",  # nothing in it could be read; `reason` says why
    "error",  # the grader's own machinery failed: points are null, run it again
]


_LONGEST = 500


def _sentence(text: str) -> str:
    """One line of text of bounded length, with nothing in it that steers a terminal: file names can be anything."""
    line = "".join(char if char.isprintable() else "�" for char in " ".join(text.split()))
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def _encodable(text: str) -> str:
    """A path as text that every encoding of Unicode can write: Linux allows any bytes in a name."""
    return text.encode(errors="backslashreplace").decode()


Sentence = Annotated[str, BeforeValidator(_sentence)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    def but(self, **changes: Any):
        """The same with some fields changed, and checked."""
        return type(self)(**dict(self) | changes)


class ExerciseResult(_Strict):
    """One exercise. Every text in `messages` is ours: nothing that student code wrote is in it."""

    id: str
    status: ExerciseStatus
    points: float
    max: float
    messages: list[Sentence] = []
    seconds: float = Field(default=0.0, description="wall time of the student's process")
    cpu_seconds: float = Field(default=0.0, description="CPU time of the student's process")
    memory_mb: float = Field(default=0.0, description="the most memory that it had of its own")


class SubmissionResult(_Strict):
    """One submission. `points` is null where `status` is "error"."""

    version: Literal[1] = 1
    submission: Annotated[str, BeforeValidator(_encodable)] = Field(description="the path as it was given")
    status: SubmissionStatus
    reason: Sentence = Field(default="", description="why it is ungradable, or what failed in the grader")
    points: float | None
    max: float
    tier: str | None = Field(
        default=None, description="bubblewrap, landlock, uid or limits: how student code was confined"
    )
    seed: int | None = Field(default=None, description="of the hidden tests' inputs; --seed replays it")
    files: dict[str, str] = Field(default={}, description="SHA-256 of each student file that was graded")
    notes: list[Sentence] = Field(default=[], description="what intake found odd, and did about it")
    exercises: list[ExerciseResult] = []


def schema() -> str:
    """The JSON schema of the list that `write_json` writes."""
    return json.dumps(TypeAdapter(list[SubmissionResult]).json_schema(mode="serialization"), indent=1) + "\n"


def with_changes_noted(results: list[SubmissionResult], file: Path) -> list[SubmissionResult]:
    """`results`, with a note on each one whose files got other points in the run that `file` is from.

    Nothing is graded again until it passes: a result that is not steady is for a person to look at.
    """
    try:
        earlier = TypeAdapter(list[SubmissionResult]).validate_json(file.read_bytes())
    except (OSError, ValueError):
        return results
    before = {(e.submission, tuple(sorted(e.files.items()))): e for e in earlier if e.points is not None and e.files}
    noted = []
    for result in results:
        other = before.get((result.submission, tuple(sorted(result.files.items()))))
        same_exercises = other is not None and [e.id for e in other.exercises] == [e.id for e in result.exercises]
        if other and same_exercises and result.points is not None and other.points != result.points:
            note = f"not steady: the same files got {other.points:g} points in an earlier run (seed {other.seed})"
            result = result.but(notes=[*result.notes, note])
        noted.append(result)
    return noted


def write_json(results: Iterable[SubmissionResult], file: Path) -> None:
    """Write the contract's list of results. The file is there whole or not at all."""
    text = json.dumps([result.model_dump() for result in results], indent=1) + "\n"
    descriptor, part = tempfile.mkstemp(dir=file.absolute().parent)
    with open(descriptor, "w", encoding="ascii") as stream:
        stream.write(text)
    os.chmod(part, 0o644)
    os.replace(part, file)
