"""The first cell of a notebook calls `start`, and has a `check` for its exercises from then on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from exercises.language import LANGUAGES
from exercises.paths import use_implementation

if TYPE_CHECKING:
    from exercises.notebook_check import Checker


def start(language: str = "en") -> Checker:
    """Put the kit on the path, let this notebook stand in for the student files, and return its `check`.

    `language` is "en" or "zh"; another is a `ValueError`.
    """
    if language not in LANGUAGES:
        raise ValueError(f"language = {language!r} is unknown; choose one of {', '.join(LANGUAGES)}")
    use_implementation()
    from exercises.notebook_check import Checker  # its own imports need the path

    return Checker(language)
