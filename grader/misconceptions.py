"""Named wrong answers: small patches on the solutions, kept in tests/misconceptions/, one TOML file an exercise.

Each is a mutant that the hidden tests must catch, and a diagnosis: a result that equals the mutant's gets its name.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from exercises.manifest import load_manifest, student_files
from exercises.paths import ROOT
from grader.authoring import SOLUTIONS, AuthoringError

FOLDER = ROOT / "tests" / "misconceptions"


@dataclass(frozen=True)
class Edit:
    """Replace `old`, which stands in the solution just once, by `new`."""

    old: str
    new: str


@dataclass(frozen=True)
class Misconception:
    """One wrong answer to `exercise`; `en` and `zh` say in half a sentence what its author did."""

    exercise: str
    id: str
    en: str
    zh: str
    file: str
    edits: tuple[Edit, ...]

    @property
    def name(self) -> str:
        return f"{self.exercise}/{self.id}"

    def patched(self) -> str:
        """The solution file with this mistake in it."""
        source = (SOLUTIONS / self.file).read_text(encoding="utf-8")
        for edit in self.edits:
            if source.count(edit.old) != 1:
                raise AuthoringError(
                    f"misconception {self.name}: its old text stands {source.count(edit.old)} times in {self.file}, "
                    f"not once:\n{edit.old}"
                )
            source = source.replace(edit.old, edit.new)
        return source


@cache
def load_misconceptions() -> tuple[Misconception, ...]:
    """All of them, in the manifest's order of exercises."""
    found = []
    for exercise in load_manifest():
        path = FOLDER / f"{exercise.id}.toml"
        if not path.exists():
            continue
        with path.open("rb") as file:
            entries = tomllib.load(file)["misconception"]
        for entry in entries:
            edits = tuple(Edit(**edit) for edit in entry["edits"])
            found.append(Misconception(exercise.id, entry["id"], entry["en"], entry["zh"], exercise.file, edits))
    return tuple(found)


def write_submission(folder: Path, changed: dict[str, str]) -> Path:
    """Lay out `folder` like a submission: the solutions, with the files in `changed` (path to text) in their place."""
    for file in student_files():
        target = folder / file
        target.parent.mkdir(parents=True, exist_ok=True)
        text = changed.get(file) or (SOLUTIONS / file).read_text(encoding="utf-8")
        target.write_text(text, encoding="utf-8")
    return folder
