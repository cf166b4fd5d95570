"""Which implementation of the student files is imported: the first folder on the path wins, and that is all."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXERCISES = ROOT / "exercises"


def use_implementation(impl: str | None = None) -> None:
    """Put lecture01 and the lectures' folders on `sys.path`, with the folders of `impl` in front of the exercises'.

    `impl` is None for the student's own files in `exercises/`, "solutions" for the folder of that name in the
    repository, or the path of any folder laid out like a submission. Files that it lacks come from `exercises/`.
    A folder that is missing or holds no lecture: `ValueError`.
    """
    lectures = sorted(folder.name for folder in EXERCISES.glob("lecture*") if folder.is_dir())
    folders = [ROOT, ROOT / "lecture01", *(EXERCISES / lecture for lecture in lectures)]
    if impl is not None:
        chosen = ROOT / impl if impl == "solutions" else Path(impl).resolve()
        own = [chosen / lecture for lecture in lectures if (chosen / lecture).is_dir()]
        if not own:
            raise ValueError(
                f"{chosen} holds none of the folders {', '.join(lectures)}; "
                "--impl takes a folder laid out like a submission, for example lecture09/dist_sim.py inside it"
            )
        folders[:0] = own
    texts = [str(folder) for folder in folders]
    sys.path[:] = texts + [entry for entry in sys.path if entry not in texts]
