"""Points and messages of one submission, gathered test by test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch

from exercises.checks import CheckFailed
from exercises.manifest import Exercise
from grader.misconceptions import Misconception, load_misconceptions
from grader.student import NESTED, StudentGone, StudentRaised

ENGINE: pytest.StashKey = pytest.StashKey()
"""Where a run of the hidden tests finds the grading engine's `Bench`, if it is the engine that runs them."""

WORDS = {
    "en": {
        "mistake": "this is what you get when: ",
        "stub": "not written yet",
        "raised": "your code raised {kind}{line}",
        "line": " at {line}",
        "syntax": "a file that this exercise uses can't be read: {kind}",
        "timeout": "it took longer than {limit} s",
        "unusable": "what your code returned could not be used",
        "crashed": "your code ended its process",
        "memory": "your code took more memory than it may",
        "output_limit": "your code wrote more than it may",
        "forbidden": "your code tried something that is not allowed here",
        "ungradable": "{file} can't be graded: {reason}",
        "nested": NESTED,
    },
    "zh": {
        "mistake": "这正是下面这种错误的结果：",
        "stub": "还没有完成",
        "raised": "你的代码{line}抛出了 {kind}",
        "line": "在 {line} ",
        "syntax": "本练习用到的文件无法读取：{kind}",
        "timeout": "运行超过 {limit} 秒",
        "unusable": "你的代码返回的内容无法使用",
        "crashed": "你的代码结束了自己的进程",
        "memory": "你的代码占用的内存超过了限制",
        "output_limit": "你的代码输出的内容超过了限制",
        "forbidden": "你的代码做了这里不允许的事",
        "ungradable": "{file} 无法评分：{reason}",
        "nested": "嵌套太深",
    },
}


@dataclass
class _Mark:
    exercise: Exercise
    weight: float
    passed: bool = False
    message: str = ""
    stub: bool = False


@dataclass
class Marking:
    """The marks of a list of tests that is fixed before they run: one that is missing or skipped has failed."""

    language: str
    marks: dict[str, _Mark] = field(default_factory=dict)
    fitting: dict[str, list[Misconception]] = field(default_factory=dict)  # by exercise

    def expect(self, exercise: Exercise, test: str, weight: float) -> None:
        self.marks[test] = _Mark(exercise, weight)

    def passed(self, test: str) -> None:
        self.marks[test].passed = True

    def failed(self, test: str, error: BaseException | None) -> str:
        """Note and return the message for the student: a declared finding, never an exception's own text."""
        mark = self.marks[test]
        mark.passed = False
        mark.message = self._explain(mark.exercise, error)
        mark.stub = isinstance(error, StudentRaised) and error.kind == "NotImplementedError"
        return mark.message

    def all_passed(self, exercise: Exercise) -> bool:
        return all(mark.passed for mark in self.marks.values() if mark.exercise is exercise)

    def not_started(self, exercise: Exercise) -> bool:
        """No test passed, and most met the stub: on a busy machine ranks can time out before they come to it."""
        marks = [mark for mark in self.marks.values() if mark.exercise is exercise]
        return not any(mark.passed for mark in marks) and 2 * sum(mark.stub for mark in marks) > len(marks)

    def unreadable(self, exercise: Exercise, reason: str) -> str:
        """The message for an exercise whose file can't be graded."""
        words = WORDS[self.language]
        return words["ungradable"].format(file=exercise.file, reason=words["nested"] if reason == NESTED else reason)

    def report(self) -> dict:
        """Points and messages by exercise, as in the contract."""
        exercises: dict[str, dict] = {}
        for exercise in {mark.exercise.id: mark.exercise for mark in self.marks.values()}.values():
            marks = [mark for mark in self.marks.values() if mark.exercise.id == exercise.id]
            share = sum(mark.weight for mark in marks if mark.passed) / sum(mark.weight for mark in marks)
            messages = list(dict.fromkeys(mark.message for mark in marks if mark.message))
            mistakes = [getattr(m, self.language) for m in self.fitting.get(exercise.id, [])]
            messages += [WORDS[self.language]["mistake"] + mistake for mistake in mistakes]
            points = round(exercise.points * share, 2)
            exercises[exercise.id] = {"points": points, "max": exercise.points, "messages": messages}
        total = round(sum(entry["points"] for entry in exercises.values()), 2)
        return {"exercises": exercises, "points": total, "max": sum(e["max"] for e in exercises.values())}

    def diagnose(self, test: str, error: BaseException, again: Callable[[Misconception], None]) -> None:
        """Name the misconceptions that give the same wrong numbers; `again` runs the failed test with one.

        An exercise's first wrong numbers decide. Later ones are asked only as long as several fit: running every
        misconception takes its time.
        """
        exercise = self.marks[test].exercise.id
        fitting = self.fitting.get(exercise)
        if not isinstance(error, CheckFailed) or error.numbers is None or (fitting is not None and len(fitting) < 2):
            return
        known = [m for m in load_misconceptions() if m.exercise == exercise] if fitting is None else fitting
        found = [misconception for misconception in known if self._gives(misconception, error, again)]
        if found or fitting is None:
            self.fitting[exercise] = found

    @staticmethod
    def _gives(misconception: Misconception, error: CheckFailed, again: Callable[[Misconception], None]) -> bool:
        try:
            again(misconception)
        except CheckFailed as other:
            return other.what == error.what and _same_numbers(other.numbers, error.numbers)
        except Exception:
            return False  # it fails in another way, so it is not what the student did
        return False

    def _explain(self, exercise: Exercise, error: BaseException | None) -> str:
        words = WORDS[self.language]
        if isinstance(error, CheckFailed):
            return f"{error.call}: {error.finding[self.language]}"
        if isinstance(error, StudentRaised):
            if error.kind == "NotImplementedError":
                return words["stub"]
            if error.kind in ("SyntaxError", "IndentationError", "TabError"):
                return words["syntax"].format(kind=error.kind)
            line = words["line"].format(line=error.line) if error.line else ""
            return error.sentence or words["raised"].format(kind=error.kind, line=line)
        if isinstance(error, StudentGone) and error.status != "ungradable":
            return words[error.status].format(limit=exercise.time_limit)
        if error is not None and "Timeout" in str(error):
            return words["timeout"].format(limit=exercise.time_limit)
        return words["unusable"]


def _same_numbers(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if one is None or other is None or one.shape != other.shape:
        return False
    return torch.allclose(one, other, rtol=1e-9, atol=1e-9 * float(other.abs().max()), equal_nan=True)
