"""What the two lecture programs share: options, language, parts that can be missing, figures as JSON."""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from exercises.language import LANGUAGES, default_language
from exercises.manifest import load_manifest
from exercises.paths import use_implementation


class Program:
    """One run of a lecture program: speaks one language, runs parts, gathers their figures.

    A part is a function `part(program)`; it prints its tables and returns its figures, a JSON-able dict. A part that
    meets an unwritten exercise is reported by `finish`, which returns the exit code: 0, or 1 where a part is missing.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.figures: dict[str, Any] = {}
        self.missing: list[str] = []

    def say(self, en: str, zh: str) -> str:
        """The text in the language of this run."""
        return zh if self.options.lang == "zh" else en

    def observe(self, holds: bool, en: str, zh: str, otherwise_en: str, otherwise_zh: str) -> None:
        """Print one observation: the first text where the figures bear it out, else the second."""
        text = self.say(en, zh) if holds else self.say(otherwise_en, otherwise_zh)
        print(f"{'•' if holds else '!'} {text}")

    def run(self, name: str, part: Callable[[Program], dict]) -> None:
        """Run one part. Unwritten exercises (`NotImplementedError`) end the part, not the program."""
        try:
            self.figures[name] = part(self)
        except NotImplementedError as error:
            self.report_missing(error)

    def report_missing(self, error: NotImplementedError) -> None:
        """Say which exercise `error` comes from; the exit code will be 1."""
        exercise = next((e for e in load_manifest() if str(error) == f"to do: {e.id}"), None)
        if exercise:
            en, zh = f"exercise {exercise.id} is not written yet", f"练习 {exercise.id} 还没有完成"
            missing = self.say(f"{en} (exercises/{exercise.file})", f"{zh}（exercises/{exercise.file}）")
        else:
            missing = str(error) or self.say("an exercise is not written yet", "有一个练习还没有完成")
        print(self.say(f"✗ This part has to wait: {missing}", f"✗ 这一部分要等一等：{missing}"))
        if missing not in self.missing:
            self.missing.append(missing)

    def finish(self) -> int:
        """Write the figures where `--json` says, name what is missing, and return the exit code."""
        if self.options.json:
            text = json.dumps(self.figures, indent=2, ensure_ascii=False) + "\n"
            Path(self.options.json).write_text(text, encoding="utf-8")
        if self.missing:
            print()
            print(self.say("Still to do before every part can run:", "要运行全部内容，还需完成："))
            for missing in self.missing:
                print(f"  {missing}")
        return 1 if self.missing else 0


def parse_options(description: str, add_options: Callable[[argparse.ArgumentParser], None] | None = None) -> Program:
    """Read the command line, put the chosen implementation on the path, and return the program."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")  # a Windows console may default to another code page
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--impl", metavar="solutions|FOLDER", help="run this implementation instead of the files in exercises/"
    )
    parser.add_argument(
        "--lang", choices=LANGUAGES, default=default_language(), help="language (default: the locale's)"
    )
    parser.add_argument("--json", metavar="FILE", help="also write the figures to FILE")
    if add_options:
        add_options(parser)
    options = parser.parse_args()
    try:
        use_implementation(options.impl)
    except ValueError as error:
        parser.error(str(error))
    return Program(options)
