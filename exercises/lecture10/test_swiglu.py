"""Public tests of `swiglu_hidden` and `SwiGLU`."""

import pytest
import torch

from exercises import samples
from exercises.checks import Check, gradients_of


def reference(parts, x):
    """SwiGLU (Shazeer 2020, equation 6) written out, with the parameters of `parts`."""
    gate, up = (x @ parts[name + ".weight"].T + parts.get(name + ".bias", 0) for name in ("gate", "up"))
    return (gate / (1 + torch.exp(-gate)) * up) @ parts["down.weight"].T + parts.get("down.bias", 0)


@pytest.mark.parametrize(("d", "hidden"), [(64, 171), (48, 128), (12, 32), (100, 267), (4096, 10923)])
def test_hidden_width(palm_modules, d, hidden):
    check = Check(f"swiglu_hidden({d})")
    actual = palm_modules.swiglu_hidden(d)
    check.number(actual, hidden, "the hidden width", "隐藏宽度", tolerance=0)
    check.that(isinstance(actual, int), f"the width {actual!r} is not an int", f"宽度 {actual!r} 不是 int")


@pytest.mark.parametrize("bias", [True, False])
def test_parameters(palm_modules, bias):
    module = palm_modules.SwiGLU(6, 10, bias=bias)
    shapes = {name: tuple(p.shape) for name, p in module.named_parameters()}
    expected = {"gate.weight": (10, 6), "up.weight": (10, 6), "down.weight": (6, 10)}
    if bias:
        expected |= {"gate.bias": (10,), "up.bias": (10,), "down.bias": (6,)}
    Check(f"SwiGLU(6, 10, bias={bias})").that(
        shapes == expected, f"the parameters are {shapes}, not {expected}", f"参数是 {shapes}，应为 {expected}"
    )


@pytest.mark.parametrize("bias", [True, False])
def test_output(palm_modules, bias):
    module = samples.randomized(palm_modules.SwiGLU(6, 10, bias=bias), seed=41)
    x = samples.uniform(2, 5, 6, seed=42)
    check = Check(f"SwiGLU(6, 10, bias={bias})(x)", x=x)
    with check.leaves_alone(x=x, module=module):
        out = module(x)
    check.value(out, reference(dict(module.named_parameters()), x), "the output", "输出")


def test_gradients(palm_modules):
    module = samples.randomized(palm_modules.SwiGLU(6, 10), seed=43)
    x, upstream = samples.uniform(3, 6, seed=44).requires_grad_(), samples.uniform(3, 6, seed=45)
    leaves = {"x": x, **dict(module.named_parameters())}
    expected = gradients_of(reference(dict(module.named_parameters()), x), upstream, leaves)
    Check("SwiGLU(6, 10)(x)", x=x).gradients(gradients_of(module(x), upstream, leaves).items(), expected)
