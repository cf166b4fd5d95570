"""The result of one submission: typed, versioned, and safe to show.

`python -m grader grade --json` writes a list of `SubmissionResult`; `tests/result.schema.json` is its JSON schema.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

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


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ExerciseResult(_Strict):
    """One exercise. Every text in `messages` is ours: nothing that student code wrote is in it."""

    id: str
    status: ExerciseStatus
    points: float
    max: float
    messages: list[str] = []
    seconds: float = Field(default=0.0, description="wall time of the student's process")
    cpu_seconds: float = Field(default=0.0, description="CPU time of the student's process")
    memory_mb: float = Field(default=0.0, description="the most memory that it had of its own")


class SubmissionResult(_Strict):
    """One submission. `points` is null where `status` is "error"."""

    version: Literal[1] = 1
    submission: str = Field(description="the path as it was given")
    status: SubmissionStatus
    reason: str = Field(default="", description="why it is ungradable, or what failed in the grader")
    points: float | None
    max: float
    tier: str | None = Field(
        default=None, description="bubblewrap, landlock, uid or limits: how student code was confined"
    )
    seed: int | None = Field(default=None, description="of the hidden tests' inputs; --seed replays it")
    files: dict[str, str] = Field(default={}, description="SHA-256 of each student file that was graded")
    notes: list[str] = Field(default=[], description="what intake found odd, and did about it")
    exercises: list[ExerciseResult] = []
