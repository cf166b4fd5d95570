"""Public tests of `ParallelBlock`."""

import pytest
import torch
from torch import nn

from exercises import samples
from exercises.checks import Check, gradients_of


def block(palm_modules, seed, bias=True):
    """A block around two plain linear maps, all parameters randomized."""
    parts = nn.Linear(6, 6, bias=bias), nn.Linear(6, 6, bias=bias)
    return samples.randomized(palm_modules.ParallelBlock(6, *parts, bias=bias), seed)


def reference(parts, x):
    """x + attn(ln(x)) + mlp(ln(x)) with linear attn and mlp, written out."""
    centred = x - x.mean(-1, keepdim=True)
    normed = centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + 1e-5)
    normed = normed * parts["ln.weight"] + parts.get("ln.bias", 0)
    branches = [normed @ parts[f"{name}.weight"].T + parts.get(f"{name}.bias", 0) for name in ("attn", "mlp")]
    return x + branches[0] + branches[1]


@pytest.mark.parametrize("bias", [True, False])
def test_parameters(palm_modules, bias):
    names = {name for name, _ in block(palm_modules, 71, bias).named_parameters()}
    expected = {
        f"{part}.{kind}" for part in ("ln", "attn", "mlp") for kind in (("weight", "bias") if bias else ("weight",))
    }
    Check(f"ParallelBlock(6, attn, mlp, bias={bias})").that(
        names == expected,
        f"the parameters are {sorted(names)}, not {sorted(expected)}",
        f"参数是 {sorted(names)}，应为 {sorted(expected)}",
    )


@pytest.mark.parametrize("bias", [True, False])
def test_output(palm_modules, bias):
    module, x = block(palm_modules, 72, bias), samples.uniform(2, 5, 6, seed=73)
    check = Check(f"ParallelBlock(6, attn, mlp, bias={bias})(x)", x=x)
    with check.leaves_alone(x=x, module=module):
        out = module(x)
    check.value(out, reference(dict(module.named_parameters()), x), "the output", "输出")


def test_gradients(palm_modules):
    module = block(palm_modules, 74)
    x, upstream = samples.uniform(2, 5, 6, seed=75).requires_grad_(), samples.uniform(2, 5, 6, seed=76)
    leaves = {"x": x, **dict(module.named_parameters())}
    expected = gradients_of(reference(dict(module.named_parameters()), x), upstream, leaves)
    Check("ParallelBlock(6, attn, mlp)(x)", x=x).gradients(gradients_of(module(x), upstream, leaves).items(), expected)
