"""Points and messages of one submission, gathered test by test."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch

from exercises.checks import CheckFailed
from exercises.manifest import Exercise
from grader.misconceptions import Misconception
from grader.student import StudentRaised

WORDS = {
    "en": {
        "mistake": "this is what you get when: ",
        "stub": "not written yet",
        "raised": "your code raised {kind}{line}",
        "line": " at {line}",
        "timeout": "it took longer than {limit} s",
        "unusable": "what your code returned could not be used",
    },
    "zh": {
        "mistake": "这正是下面这种错误的结果：",
        "stub": "还没有完成",
        "raised": "你的代码{line}抛出了 {kind}",
        "line": "在 {line} ",
        "timeout": "运行超过 {limit} 秒",
        "unusable": "你的代码返回的内容无法使用",
    },
}


@dataclass
class _Mark:
    exercise: Exercise
    weight: float
    passed: bool = False
    message: str = ""


@dataclass
class Marking:
    """The marks of a list of tests that is fixed before they run: one that is missing or skipped has failed."""

    language: str
    marks: dict[str, _Mark] = field(default_factory=dict)
    diagnosed: set[str] = field(default_factory=set)

    def expect(self, exercise: Exercise, test: str, weight: float) -> None:
        self.marks[test] = _Mark(exercise, weight)

    def passed(self, test: str) -> None:
        self.marks[test].passed = True

    def failed(self, test: str, error: BaseException | None) -> str:
        """Note and return the message for the student: a declared finding, never an exception's own text."""
        mark = self.marks[test]
        mark.passed = False
        mark.message = self._explain(mark.exercise, error)
        return mark.message

    def report(self) -> dict:
        """Points and messages by exercise, as in the contract."""
        exercises: dict[str, dict] = {}
        for exercise in {mark.exercise.id: mark.exercise for mark in self.marks.values()}.values():
            marks = [mark for mark in self.marks.values() if mark.exercise.id == exercise.id]
            share = sum(mark.weight for mark in marks if mark.passed) / sum(mark.weight for mark in marks)
            messages = list(dict.fromkeys(mark.message for mark in marks if mark.message))
            points = round(exercise.points * share, 2)
            exercises[exercise.id] = {"points": points, "max": exercise.points, "messages": messages}
        total = round(sum(entry["points"] for entry in exercises.values()), 2)
        return {"exercises": exercises, "points": total, "max": sum(e["max"] for e in exercises.values())}

    def diagnose(
        self, error: BaseException, again: Callable[[Misconception], None], known: Iterable[Misconception]
    ) -> list[Misconception]:
        """The misconceptions that give the same numbers at the same place; `again` runs the failed test with one.

        An exercise is diagnosed by its first wrong numbers only: running every misconception takes its time.
        """
        known = list(known)
        if not isinstance(error, CheckFailed) or error.numbers is None or not known:
            return []
        if known[0].exercise in self.diagnosed:
            return []
        self.diagnosed.add(known[0].exercise)
        found = []
        for misconception in known:
            try:
                again(misconception)
            except CheckFailed as other:
                if other.what == error.what and _same_numbers(other.numbers, error.numbers):
                    found.append(misconception)
            except Exception:
                continue  # it fails in another way, so it is not what the student did
        return found

    def _explain(self, exercise: Exercise, error: BaseException | None) -> str:
        words = WORDS[self.language]
        if isinstance(error, CheckFailed):
            mistakes = [words["mistake"] + getattr(m, self.language) for m in getattr(error, "mistakes", [])]
            return "\n".join([f"{error.call}: {error.finding[self.language]}", *mistakes])
        if isinstance(error, StudentRaised):
            if error.kind == "NotImplementedError":
                return words["stub"]
            line = words["line"].format(line=error.line) if error.line else ""
            return error.sentence or words["raised"].format(kind=error.kind, line=line)
        if error is not None and "Timeout" in str(error):
            return words["timeout"].format(limit=exercise.time_limit)
        return words["unusable"]


def _same_numbers(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if one is None or other is None or one.shape != other.shape:
        return False
    return torch.allclose(one, other, rtol=1e-9, atol=1e-9 * float(other.abs().max()), equal_nan=True)
