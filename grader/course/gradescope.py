"""A Gradescope autograder: the zip to upload, and what runs in Gradescope's container."""

from __future__ import annotations

import argparse
import json
import os
import zipfile
from pathlib import Path

from exercises.language import LANGUAGES
from exercises.manifest import load_manifest
from exercises.paths import ROOT, use_implementation
from grader.course.errors import CourseError
from grader.results import SubmissionResult

FOLDERS = ("exercises", "lecture01", "solutions", "grader", "tests/hidden", "tests/misconceptions")
FILES = ("pyproject.toml", "constraints.txt", "README.md")

SETUP = """\
#!/usr/bin/env bash
# Gradescope runs this once, when it builds the container. Choose a base image with Python 3.11 or newer.
set -euo pipefail
cd "$(dirname "$0")"
apt-get update
apt-get install -y --no-install-recommends python3-venv bubblewrap
python3 -c 'import sys; sys.exit("this autograder needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
python3 -m venv .venv
.venv/bin/pip install --constraint constraints.txt --editable . pydantic
"""
RUN = """\
#!/usr/bin/env bash
# Gradescope runs this for each submission: source/ is the autograder, submission/ was handed in, results/ is read.
set -euo pipefail
cd "$(dirname "$0")"
python="$PWD/source/.venv/bin/python"
[ -x "$python" ] || python=python3
submission="$PWD/submission" results="$PWD/results"
mkdir -p "$results"
cd source
exec "$python" -m grader.course.gradescope "$submission" "$results/results.json" --lang {language}
"""


def write_zip(out: Path, language: str) -> None:
    """Write the autograder to `out`, a path that ends in .zip. Messages to students are in `language`."""
    if out.suffix != ".zip":
        raise CourseError(f"{out} doesn't end in .zip, which Gradescope asks for")
    if not out.absolute().parent.is_dir():
        raise CourseError(f"there is no folder {out.absolute().parent} to write {out.name} to")
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in (("setup.sh", SETUP), ("run_autograder", RUN.format(language=language))):
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.external_attr = 0o755 << 16
            archive.writestr(info, text)
        for name in FILES:
            archive.write(ROOT / name, name)
        for folder in FOLDERS:
            for file in sorted((ROOT / folder).rglob("*")):
                path = file.relative_to(ROOT)
                if file.is_file() and not any(part[0] == "." or part == "__pycache__" for part in path.parts):
                    archive.write(file, path.as_posix())


def results_of(result: SubmissionResult, language: str) -> dict:
    """Gradescope's results.json of a submission, with the exercises of the lectures that were handed in."""
    manifest = {exercise.id: exercise for exercise in load_manifest()}
    lectures = {file.partition("/")[0] for file in result.files}
    shown = [e for e in result.exercises if not lectures or manifest[e.id].lecture in lectures]
    tests = [
        {
            "name": f"{exercise.id}: {manifest[exercise.id].title[language]}",
            "score": exercise.points,
            "max_score": exercise.max,
            "status": "passed" if exercise.status == "ok" else "failed",
            "output": "\n".join(exercise.messages),
            "visibility": "visible",
        }
        for exercise in shown
    ]
    return {
        "score": result.points,
        "output": "\n".join([*([result.reason] if result.reason else []), *result.notes]),
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": tests,
    }


def main() -> None:
    """Grade what was handed in, and write results.json."""
    parser = argparse.ArgumentParser(prog="python -m grader.course.gradescope", description=main.__doc__)
    parser.add_argument("submission", type=Path, help="the folder that was handed in")
    parser.add_argument("results", type=Path, help="where results.json is to be written")
    parser.add_argument("--lang", choices=LANGUAGES, default="en")
    options = parser.parse_args()
    use_implementation()
    from grader.engine import Engine  # it needs the path

    with Engine(language=options.lang) as engine:
        result = engine.grade(options.submission)
    if result.status == "error":
        raise SystemExit(f"the grading engine failed, so there are no points: {result.reason}")
    part = options.results.with_suffix(".part")
    part.write_text(json.dumps(results_of(result, options.lang), ensure_ascii=False, indent=1), encoding="utf-8")
    os.replace(part, options.results)


if __name__ == "__main__":
    main()
