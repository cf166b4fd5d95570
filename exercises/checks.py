"""Comparing what a student's code returned with what it should, and saying plainly what is wrong.

A `Check` describes one call; its methods compare. Shape and dtype come first, then values relative to the size of the
reference. What they find is raised as `CheckFailed`, which carries the finding in English and Chinese, and the
returned numbers for the diagnosis.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from fractions import Fraction
from numbers import Real

import torch
from torch import Tensor, nn

TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""Largest difference allowed, as a share of the reference's largest magnitude. Rounding alone stays far below."""

Text = dict[str, str]
Number = int | float | Fraction


class Foreign:
    """Stands for a result that is neither tensor nor number; `type` is the name of its type, if it may be told."""

    def __init__(self, type: str) -> None:
        self.type = type


class CheckFailed(AssertionError):
    """One finding: `call` (what was called, on what), `finding` by language, and `what` was compared.

    `numbers` is what the student's code returned there, flat and in float64, or None where it was no number.
    """

    def __init__(self, call: str, what: Text, finding: Text, numbers: Tensor | None = None) -> None:
        self.call = call
        self.what = what
        self.finding = finding
        self.numbers = numbers
        super().__init__(f"{call}\n{finding['en']}")


class Check:
    """One call and its circumstances: `Check("tp_mlp_forward(x, shards, b2)", x=x, t=4)`.

    `safe=True` leaves every value out of the findings: what a hidden test shows must not carry its inputs.
    """

    def __init__(self, call: str, *, safe: bool = False, **circumstances) -> None:
        self.call = ", ".join([call, *(f"{name} {_describe(value)}" for name, value in circumstances.items())])
        self.safe = safe

    def fail(self, what_en: str, what_zh: str, en: str, zh: str, numbers: Tensor | None = None):
        """Raise the finding `en`/`zh` about `what`."""
        raise CheckFailed(self.call, {"en": what_en, "zh": what_zh}, {"en": en, "zh": zh}, numbers)

    def that(self, holds: bool, en: str, zh: str) -> None:
        """Fail with the finding unless `holds`."""
        if not holds:
            self.fail(en, zh, en, zh)

    def value(
        self,
        actual,
        expected: Tensor,
        en: str = "the result",
        zh: str = "结果",
        tolerance: float | None = None,
        least_scale: float = 0.0,
    ) -> None:
        """A tensor: shape, dtype, then values within `tolerance` (default by dtype) of the largest magnitude.

        `least_scale` bounds that magnitude from below, for a reference that is 0 but for rounding.
        """
        if not isinstance(actual, Tensor):
            self.fail(en, zh, f"{en} is {_kind(actual)}, not a tensor", f"{zh}是 {_kind(actual)}，不是张量")
        if actual.shape != expected.shape:
            right = tuple(expected.shape)
            if self.safe and not _is_tellable(actual.shape):
                self.fail(en, zh, f"{en} doesn't have the shape {right}", f"{zh}的形状不是 {right}")
            shape = tuple(actual.shape)
            self.fail(en, zh, f"{en} has shape {shape} instead of {right}", f"{zh}的形状是 {shape}，应为 {right}")
        if actual.dtype != expected.dtype:
            dtypes = _name(actual.dtype), _name(expected.dtype)
            self.fail(
                en,
                zh,
                "{} has dtype {} instead of {}".format(en, *dtypes),
                "{}的 dtype 是 {}，应为 {}".format(zh, *dtypes),
            )
        numbers, truth = _flat(actual), _flat(expected)
        if not numbers.isfinite().all() and truth.isfinite().all():
            bad = int((~numbers.isfinite()).sum())
            self.fail(en, zh, f"{en} has {bad} NaN or infinite entries", f"{zh}有 {bad} 个 NaN 或无穷大", numbers)
        scale = max(least_scale, float(truth.abs().max()) if truth.numel() else 0.0)
        error = (numbers - truth).abs()
        limit = TOLERANCE[expected.dtype] if tolerance is None else tolerance
        if error.numel() == 0 or float(error.max()) <= limit * (scale or 1.0):
            return
        worst = int(error.argmax())
        place = [int(i) for i in torch.unravel_index(torch.tensor(worst), expected.shape)]
        share = float(error[worst]) / (scale or 1.0)
        share = min(share, 1000.0) if self.safe else share
        wrong = int((error > limit * (scale or 1.0)).sum())
        of_en = "the reference's largest value" if scale else "1 (the reference is 0)"
        of_zh = "参考值最大绝对值" if scale else "1（参考值为 0）"
        values_en = values_zh = ""
        if not self.safe:
            have, want = f"{float(numbers[worst]):.6g}", f"{float(truth[worst]):.6g}"
            values_en, values_zh = f": {have} instead of {want}", f"：{have}，应为 {want}"
        self.fail(
            en,
            zh,
            f"{en} is off by up to {share:.2g} of {of_en}, most at {place}{values_en}; "
            f"{wrong} of {error.numel()} entries are wrong",
            f"{zh}的最大偏差是{of_zh}的 {share:.2g} 倍，最大处在 {place}{values_zh}；"
            f"{error.numel()} 个元素中有 {wrong} 个不对",
            numbers,
        )

    def number(self, actual, expected: Number, en: str, zh: str, tolerance: float = 1e-12) -> None:
        """A plain number (int, float, Fraction), within `tolerance` of the expected one."""
        if not isinstance(actual, Real):
            self.fail(en, zh, f"{en} is {_kind(actual)}, not a number", f"{zh}是 {_kind(actual)}，不是数")
        numbers = torch.tensor([_as_float(actual)], dtype=torch.float64)
        if not _close(actual, expected, tolerance):
            finding_en, finding_zh = f"{en} is wrong", f"{zh}不对"
            if not self.safe:
                have, want = _plain(actual), _plain(expected)
                finding_en, finding_zh = f"{en} is {have}, and should be {want}", f"{zh}是 {have}，应为 {want}"
            self.fail(en, zh, finding_en, finding_zh, numbers)

    def gradients(self, actual: Iterable[tuple[str, Tensor | None]], expected: Mapping[str, Tensor | None]) -> None:
        """Gradients by name, each compared as a value; a missing one is a finding of its own, unless it is expected."""
        # A true gradient can be 0 (a key bias shifts all scores of a query alike): only rounding is left of it.
        least_scale = 1e-4 * max(float(grad.abs().max()) for grad in expected.values() if grad is not None)
        given = list(actual)
        for name, grad in [*given, *((name, None) for name in expected if name not in dict(given))]:
            en, zh = f"the gradient of {name}", f"{name} 的梯度"
            truth = expected[name]
            if grad is not None:
                truth = torch.zeros_like(grad) if truth is None else truth
                self.value(grad, truth, en, zh, least_scale=least_scale)
            elif truth is not None and truth.any():
                self.fail(en, zh, f"{en} is missing: the result doesn't depend on it", f"没有{zh}：结果不依赖于它")

    def partials(self, parts: list[Tensor], own: list[Tensor], bias: Tensor) -> None:
        """What the ranks gave to one all-reduce: rank by rank its own partial output, (B, T, d).

        The output bias (d,) may come in after the reduce, on one rank, or shared out: what a partial has beyond the
        rank's own must be one vector at every position, and these vectors add up to nothing or to the bias.
        """
        self.number(len(parts), len(own), "the number of partials in the all-reduce", "all-reduce 中部分输出的个数")
        extra = torch.zeros_like(bias, dtype=torch.float64)
        for rank, (part, truth) in enumerate(zip(parts, own)):
            self.that(
                isinstance(part, Tensor) and part.numel() == truth.numel(),
                f"what rank {rank} gave to the all-reduce is not a tensor {tuple(truth.shape)}",
                f"rank {rank} 交给 all-reduce 的不是形状为 {tuple(truth.shape)} 的张量",
            )
            beyond = (part.reshape(truth.shape) - truth).detach().flatten(0, -2)
            limit = TOLERANCE[truth.dtype] * (1 + float(truth.detach().abs().max()))
            self.that(
                bool((beyond - beyond[0]).abs().max() <= limit),
                f"what rank {rank} gave to the all-reduce is not the partial output of its own shard",
                f"rank {rank} 交给 all-reduce 的不是它自己分片的部分输出",
            )
            extra += beyond[0]
        close = [bool((extra - whole).abs().max() <= 1e-6 * (1 + bias.abs().max())) for whole in (0 * bias, bias)]
        self.that(
            any(close),
            "what the ranks gave to the all-reduce doesn't add up to the output, with or without its bias",
            "各 rank 交给 all-reduce 的内容加起来不是输出（无论是否含偏置）",
        )

    @contextmanager
    def refuses(self, *mentions):
        """The block must raise `ValueError` whose message contains each of `mentions`."""
        en, zh = "the error", "报错"
        try:
            yield
        except ValueError as error:
            missing = [str(item) for item in mentions if str(item) not in str(error)]
            if missing:
                names = ", ".join(missing)
                self.fail(
                    en, zh, f"the ValueError's message doesn't name {names}", f"ValueError 的信息没有写出 {names}"
                )
        except NotImplementedError:
            raise
        except Exception as error:
            kind = type(error).__name__
            self.fail(en, zh, f"{kind} was raised instead of ValueError", f"抛出的是 {kind}，应为 ValueError")
        else:
            self.fail(en, zh, "no error was raised; it must be a ValueError", "没有报错；应抛出 ValueError")

    @contextmanager
    def leaves_alone(self, **watched):
        """The block must change neither the tensors and modules named here nor torch's global state."""
        before = {name: snapshot(value) for name, value in watched.items()}
        state = global_state()
        yield
        for name, value in watched.items():
            if not same(before[name], snapshot(value)):
                self.fail(name, name, f"{name} was changed; work on a copy", f"{name} 被改动了；请在副本上操作")
        for (en, zh), was in state.items():
            if global_state()[en, zh] != was:
                self.fail(en, zh, f"{en} was changed and not restored", f"{zh}被改动且没有恢复")


def gradients_of(result: Tensor, upstream: Tensor, leaves: dict[str, Tensor]) -> dict[str, Tensor | None]:
    """The gradient of (result · upstream).sum() for each named leaf; None where the result doesn't depend on it."""
    if not result.requires_grad:
        return dict.fromkeys(leaves)
    # A gradient handed to autograd.grad would make torch import sympy, which takes longer than all public tests.
    grads = torch.autograd.grad((result * upstream).sum(), list(leaves.values()), allow_unused=True)
    return dict(zip(leaves, grads))


def bytes_of(dense: Tensor) -> bytes:
    """The memory of a dense tensor. NumPy would read it too, but a student's install may have none."""
    return ctypes.string_at(dense.data_ptr(), dense.nbytes)


def projections(numbers: Tensor, count: int = 3) -> list[float]:
    """`count` fixed projections of a flat float64 vector: enough to recognise it, too few to rebuild it."""
    index = torch.arange(1, numbers.numel() + 1, dtype=torch.float64)
    return [float((numbers * torch.cos(index * math.sqrt(2 + k) + k)).sum()) for k in range(count)]


def same_projections(one: list[float], other: list[float]) -> bool:
    """Whether two lists of projections come from the same vector, up to rounding."""
    scale = max(map(abs, [*one, *other]), default=0.0) or 1.0
    return len(one) == len(other) and all(abs(a - b) <= 1e-8 * scale for a, b in zip(one, other))


def where_in(error: BaseException, is_own: Callable[[str], bool]) -> tuple[str, int] | None:
    """File and line of the innermost frame of `error` in a file that `is_own`, or None."""
    place = None
    trace = error.__traceback__
    while trace is not None:
        if is_own(trace.tb_frame.f_code.co_filename):
            place = (trace.tb_frame.f_code.co_filename, trace.tb_lineno)
        trace = trace.tb_next
    return place


def _is_tellable(shape: torch.Size) -> bool:
    """Whether it is the shape of a mistake. Any other could be made to carry a hidden input to whoever reads of it."""
    return len(shape) <= 5 and all(1 <= size <= 256 for size in shape)


def _describe(value) -> str:
    if isinstance(value, Tensor):
        return f"{tuple(value.shape)} {_name(value.dtype)}"
    return f"= {value}"


def _kind(value) -> str:
    if isinstance(value, Foreign):
        return f"a {value.type}" if value.type else "an object of another type"
    return "None" if value is None else f"a {type(value).__name__}"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _flat(tensor: Tensor) -> Tensor:
    return tensor.detach().to(torch.float64).reshape(-1)


def _plain(value: Number) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{float(value):.10g}"


def _as_float(value) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _close(actual: Real, expected: Number, tolerance: float) -> bool:
    if isinstance(actual, int) and isinstance(expected, int) and not tolerance:
        return actual == expected
    return math.isclose(_as_float(actual), _as_float(expected), rel_tol=tolerance, abs_tol=0.0)


def snapshot(value):
    """A copy of a tensor, module, or list or dict of them, with the tensors' versions."""
    if isinstance(value, nn.Module):
        tensors = {name: snapshot(tensor) for name, tensor in value.state_dict(keep_vars=True).items()}
        plain = {f"{path}.{name}": item for path, m in value.named_modules() for name, item in vars(m).items()}
        return tensors | {name: item for name, item in plain.items() if isinstance(item, (int, float, str))}
    if isinstance(value, Tensor):
        return value.detach().clone(), value.requires_grad, None if value.grad is None else value.grad.clone()
    if isinstance(value, dict):
        return {key: snapshot(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [snapshot(item) for item in value]
    return value


def same(one, other) -> bool:
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        return isinstance(one, Tensor) and isinstance(other, Tensor) and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other))
    return one == other


def global_state() -> dict[tuple[str, str], object]:
    return {
        ("torch's default dtype", "torch 的默认 dtype"): torch.get_default_dtype(),
        ("torch's random state", "torch 的随机数状态"): bytes_of(torch.get_rng_state()),
        ("grad mode", "梯度模式"): torch.is_grad_enabled(),
        ("the number of threads", "线程数"): torch.get_num_threads(),
    }
