"""The list of exercises, read from manifest.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

MANIFEST = Path(__file__).with_name("manifest.toml")


@dataclass(frozen=True)
class Exercise:
    """One entry of the manifest. Texts are dicts by language ("en", "zh"); paths are relative, with forward slashes."""

    id: str
    title: dict[str, str]
    file: str
    names: tuple[str, ...]
    points: int
    time_limit: int
    builds_on: tuple[str, ...]
    public: str
    hidden: str
    hints: dict[str, list[str]]
    ranks: bool = False

    @property
    def lecture(self) -> str:
        """The lecture's folder, for example "lecture09"."""
        return self.file.partition("/")[0]

    @property
    def module(self) -> str:
        """The name by which the student file is imported, for example "dist_sim"."""
        return Path(self.file).stem


@cache
def _read() -> dict:
    with MANIFEST.open("rb") as file:
        return tomllib.load(file)


def lecture_programs() -> tuple[str, ...]:
    """The lecture programs, as paths inside exercises/."""
    return tuple(_read()["programs"])


@cache
def load_manifest() -> tuple[Exercise, ...]:
    """All exercises in order."""
    entries = _read()["exercise"]
    return tuple(
        Exercise(**entry | {"names": tuple(entry["names"]), "builds_on": tuple(entry["builds_on"])})
        for entry in entries
    )


def student_files() -> tuple[str, ...]:
    """The files that students fill in and a submission consists of, each once, in order."""
    return tuple(dict.fromkeys(exercise.file for exercise in load_manifest()))
