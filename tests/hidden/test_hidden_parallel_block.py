"""Hidden tests of `ParallelBlock`, around modules that the judge brings."""

import pytest
import torch
from torch import nn

import reference
from comparing import untouched
from exercises import samples
from exercises.checks import Check, gradients_of

D = 6


def branches(bias, deep):
    """attn and mlp: linear maps, or lecture 1's modules."""
    if deep:
        return samples.attention(D, 3, seed=1), samples.mlp(D, 9, seed=2)
    return nn.Linear(D, D, bias=bias), nn.Linear(D, D, bias=bias)


def expected_names(bias, deep):
    attn, mlp = branches(bias, deep)
    shapes = {"ln.weight": (D,)} | ({"ln.bias": (D,)} if bias else {})
    for prefix, module in (("attn", attn), ("mlp", mlp)):
        shapes |= {f"{prefix}.{name}": tuple(p.shape) for name, p in module.named_parameters()}
    return shapes


def output(state, x, bias, deep):
    """x + attn(ln(x)) + mlp(ln(x)), with the branches' parameters from `state`."""
    from torch.func import functional_call

    normed = reference.layer_norm(state, "ln", x)
    total = x
    for prefix, module in zip(("attn", "mlp"), branches(bias, deep)):
        own = {n.removeprefix(f"{prefix}."): v for n, v in state.items() if n.startswith(f"{prefix}.")}
        total = total + functional_call(module, own, (normed,))
    return total


@pytest.mark.weight(2)
@pytest.mark.parametrize(("bias", "deep"), [(True, False), (False, False), (True, True)])
def test_parameters(student, bias, deep):
    actual = student.ask("module_shapes", "ParallelBlock", D, *branches(bias, deep), bias)
    Check(f"ParallelBlock({D}, attn, mlp, bias={bias})", safe=True).that(
        actual == expected_names(bias, deep),
        "the parameters are not those of ln, attn and mlp, the norm with or without bias as asked",
        "参数不是 ln、attn、mlp 的参数，或者归一化的偏置不符合要求",
    )


@pytest.mark.weight(3)
@pytest.mark.parametrize(
    ("bias", "deep", "training"), [(True, False, True), (False, False, True), (True, True, True), (True, True, False)]
)
def test_outputs(student, draw, bias, deep, training):
    """Three calls of one block: other data of the same shape, another shape. One input is small enough for eps to show."""
    state = draw.state(expected_names(bias, deep))
    inputs = [draw.uniform(2, 5, D), 1e-3 * draw.uniform(2, 5, D), draw.uniform(5, 9, D)]
    check = Check(f"ParallelBlock({D}, attn, mlp, bias={bias})(x)", safe=True, training=training)
    arguments = (D, *branches(bias, deep), bias)
    reply = student.ask("module_calls", "ParallelBlock", arguments, state, inputs, None, "plain", training)
    for number, (x, out) in enumerate(zip(inputs, reply["outs"], strict=True), 1):
        check.value(out, output(state, x, bias, deep), f"the output of call {number}", f"第 {number} 次调用的输出")
    untouched(check, student, reply)


@pytest.mark.parametrize("layout", ["transposed", "expanded"])
def test_any_memory_layout(student, draw, layout):
    state, x = draw.state(expected_names(True, False)), draw.uniform(3, 5, D)
    truth = x[:1].expand_as(x) if layout == "expanded" else x
    check = Check(f"ParallelBlock({D}, attn, mlp)(x)", safe=True, x=x, layout=layout)
    reply = student.ask("module_calls", "ParallelBlock", (D, *branches(True, False)), state, [x], None, layout)
    check.value(reply["outs"][0], output(state, truth, True, False), "the output", "输出")


@pytest.mark.weight(3)
@pytest.mark.parametrize(("bias", "deep", "training"), [(True, True, False), (False, False, True)])
def test_gradients(student, draw, bias, deep, training):
    state, x, upstream = draw.state(expected_names(bias, deep)), draw.uniform(2, 5, D), draw.uniform(2, 5, D)
    leaves = {name: value.clone().requires_grad_() for name, value in ({"x": x} | state).items()}
    out = output(leaves, leaves["x"], bias, deep)
    check = Check(f"ParallelBlock({D}, attn, mlp, bias={bias})(x)", safe=True, x=x)
    arguments = (D, *branches(bias, deep), bias)
    reply = student.ask("module_calls", "ParallelBlock", arguments, state, [x], upstream, training=training)
    check.value(reply["outs"][0], out, "the output", "输出")
    check.gradients(reply["grads"].items(), gradients_of(out, upstream, leaves))


def test_the_branches_stay_as_they_are(student):
    attn, mlp = branches(True, True)
    (begun,) = student.ask("module_initial", "ParallelBlock", (D, attn, mlp), [0])
    check = Check(f"ParallelBlock({D}, attn, mlp)", safe=True)
    for prefix, module in (("attn", attn), ("mlp", mlp)):
        for name, value in module.named_parameters():
            check.value(
                begun.get(f"{prefix}.{name}"), value, f"{prefix}.{name} of the new block", f"新块的 {prefix}.{name}"
            )


def test_float32(student, draw):
    torch.set_default_dtype(torch.float32)
    state = {name: value.float() for name, value in draw.state(expected_names(True, False)).items()}
    x = draw.uniform(2, 5, D, dtype=torch.float32)
    check = Check(f"ParallelBlock({D}, attn, mlp)(x)", safe=True, x=x)
    reply = student.ask("module_calls", "ParallelBlock", (D, *branches(True, False)), state, [x])
    check.value(reply["outs"][0], output(state, x, True, False), "the output", "输出")
