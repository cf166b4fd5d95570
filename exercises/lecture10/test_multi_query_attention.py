"""Public tests of `MultiQueryAttention`."""

import math

import pytest
import torch

from exercises import samples
from exercises.checks import Check, gradients_of
from tiny_gpt import CausalSelfAttention


def as_multi_head(module, heads):
    """Lecture 1's multi-head attention that must give the same: every head holds a copy of the one key and value head."""
    twin = CausalSelfAttention(12, heads).double()
    with torch.no_grad():
        for name, parameter in twin.named_parameters():
            own = dict(module.named_parameters()).get(name)
            parameter.zero_() if own is None else parameter.copy_(torch.cat([own] * (len(parameter) // len(own))))
    return twin


def shared(grad, heads, name):
    """A gradient of the multi-head twin, added over the copies of the key and value head."""
    return grad.unflatten(0, (heads, -1)).sum(0) if name[0] in "kv" else grad


@pytest.mark.parametrize("bias", [True, False])
def test_parameters(palm_modules, bias):
    module = palm_modules.MultiQueryAttention(12, 3, bias=bias)
    shapes = {name: tuple(p.shape) for name, p in module.named_parameters()}
    widths = {"q_proj": 12, "k_proj": 4, "v_proj": 4, "out_proj": 12}
    expected = {f"{name}.weight": (width, 12) for name, width in widths.items()}
    if bias:
        expected |= {f"{name}.bias": (width,) for name, width in widths.items()}
    Check(f"MultiQueryAttention(12, 3, bias={bias})").that(
        shapes == expected, f"the parameters are {shapes}, not {expected}", f"参数是 {shapes}，应为 {expected}"
    )


@pytest.mark.parametrize(("heads", "bias"), [(3, True), (6, False), (1, True)])
def test_output_without_rope(palm_modules, heads, bias):
    module = samples.randomized(palm_modules.MultiQueryAttention(12, heads, bias=bias), seed=61)
    x = samples.uniform(2, 5, 12, seed=62)
    check = Check(f"MultiQueryAttention(12, {heads}, bias={bias})(x)", x=x)
    with check.leaves_alone(x=x, module=module):
        out = module(x)
    check.value(out, as_multi_head(module, heads)(x), "the output", "输出")


@pytest.mark.parametrize("position", [0, 2, 4])
def test_output_with_rope(palm_modules, position):
    """One head and head size 2: the angle between query and key at positions m and n grows by n − m."""
    module = samples.randomized(palm_modules.MultiQueryAttention(2, 1, rope=True), seed=63)
    x = samples.uniform(2, 5, 2, seed=64)
    q, k, v = (getattr(module, f"{name}_proj")(x) for name in "qkv")
    scores = []
    for n in range(position + 1):
        turn = torch.tensor(float(position - n))
        rotation = torch.stack([turn.cos(), -turn.sin(), turn.sin(), turn.cos()]).reshape(2, 2)
        scores.append((q[:, position] @ rotation.T * k[:, n]).sum(-1) / math.sqrt(2))
    weights = torch.stack(scores, dim=-1).softmax(-1)
    expected = module.out_proj((weights[..., None] * v[:, : position + 1]).sum(1))
    check = Check("MultiQueryAttention(2, 1, rope=True)(x)", x=x)
    check.value(module(x)[:, position], expected, f"position {position} of the output", f"输出的位置 {position}")


def test_no_position_sees_a_later_one(palm_modules):
    module = samples.randomized(palm_modules.MultiQueryAttention(12, 3), seed=65)
    x = samples.uniform(2, 6, 12, seed=66)
    changed = x.clone()
    changed[:, 4:] += 1
    check = Check("MultiQueryAttention(12, 3)(x)", x=x)
    check.value(
        module(changed)[:, :4],
        module(x)[:, :4],
        "positions 0 to 3, after a change at 4,",
        "改变位置 4 之后的位置 0 到 3",
    )


def test_gradients(palm_modules):
    module = samples.randomized(palm_modules.MultiQueryAttention(12, 3), seed=67)
    x, upstream = samples.uniform(2, 5, 12, seed=68).requires_grad_(), samples.uniform(2, 5, 12, seed=69)
    leaves = {"x": x, **dict(module.named_parameters())}
    actual = gradients_of(module(x), upstream, leaves)
    twin = as_multi_head(module, 3)
    truth = gradients_of(twin(x), upstream, {"x": x, **dict(twin.named_parameters())})
    expected = {name: shared(grad, 3, name) for name, grad in truth.items()}
    Check("MultiQueryAttention(12, 3)(x)", x=x).gradients(actual.items(), expected)


def test_heads_that_do_not_divide_the_width_are_refused(palm_modules):
    palm_modules.MultiQueryAttention(12, 3)
    with Check("MultiQueryAttention(12, 5)").refuses():
        palm_modules.MultiQueryAttention(12, 5)
