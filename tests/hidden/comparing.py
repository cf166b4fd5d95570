"""What several hidden tests ask: nothing changed, no wrong answer twice, and the student's own parts composed."""

from __future__ import annotations

from collections.abc import Callable

from exercises.checks import Check, CheckFailed
from grader.student import ReplyUnusable, Student, StudentRaised

WATCHED = {"mlp", "attn", "model", "shards", "x", "b2", "idx", "the module's parameters", "grad"}


def changes_of(reply: dict) -> list[str]:
    """What a reply says was changed: only what a request can have watched, for the names are shown."""
    if not WATCHED.issuperset(reply["changed"]):
        raise ReplyUnusable()
    return list(reply["changed"])


def untouched(check: Check, student: Student, reply: dict) -> None:
    """The call changed neither its arguments nor torch's global state."""
    for name in changes_of(reply):
        check.fail(name, name, f"{name} was changed; work on a copy", f"{name} 被改动了；请在副本上操作")
    state_kept(check, student)


def state_kept(check: Check, student: Student) -> None:
    """The last call left torch's global state as it was."""
    for name in student.state_changes():
        check.fail(name, name, f"{name} was changed and not restored", f"{name} 被改动且没有恢复")


def drawn_anew(check: Check, student: Student, name: str, *arguments) -> None:
    """The module's weights come from torch's random state: another seed, other weights; the same seed, the same."""
    one, other, again = student.ask("module_initial", name, arguments, [1, 2, 1])
    weights = [parameter for parameter in one if parameter.endswith("weight")]
    check.that(bool(weights), "there is no weight", "没有任何权重")
    for weight in weights:
        check.that(
            not one[weight].equal(other[weight]) and one[weight].equal(again[weight]),
            "an initial weight doesn't follow torch's random state",
            "权重的初始值没有随 torch 的随机数状态变化",
        )


def refuses(check: Check, ask: Callable, *mentions) -> None:
    """Asking must raise `ValueError` whose message contains each of `mentions`."""
    en, zh = "the error", "报错"
    try:
        ask()
    except StudentRaised as raised:
        if raised.kind == "NotImplementedError":
            raise
        if raised.kind != "ValueError":
            check.fail(
                en, zh, f"{raised.kind} was raised instead of ValueError", f"抛出的是 {raised.kind}，应为 ValueError"
            )
        missing = [str(item) for item in mentions if str(item) not in raised.text]
        if missing:
            names = ", ".join(missing)
            check.fail(en, zh, f"the ValueError's message doesn't name {names}", f"ValueError 的信息没有写出 {names}")
    else:
        check.fail(en, zh, "no error was raised; it must be a ValueError", "没有报错；应抛出 ValueError")


def either(compare: Callable[[], None], composed: Callable[[], None]) -> None:
    """`compare` must hold, or `composed`: the comparison with what the student's own other parts give.

    A mistake in a part costs there, not here as well. What is reported is the difference from the true result.
    """
    try:
        compare()
    except (CheckFailed, StudentRaised) as failure:
        try:
            composed()
        except (CheckFailed, StudentRaised):
            raise failure from None
