"""Hidden tests of `swiglu_hidden` and `SwiGLU`."""

import pytest
import torch

import reference
from comparing import drawn_anew, untouched
from exercises.checks import Check, gradients_of


def shapes(d, hidden, bias):
    weights = {"gate.weight": (hidden, d), "up.weight": (hidden, d), "down.weight": (d, hidden)}
    return weights | ({"gate.bias": (hidden,), "up.bias": (hidden,), "down.bias": (d,)} if bias else {})


@pytest.mark.weight(2)
def test_hidden_width(student, draw):
    check = Check("swiglu_hidden(d_model)", safe=True)
    for d in (64, 1, 2, 3, 4096, *(draw.number(5, 20000) for _ in range(6))):
        actual = student.ask("call", "palm_modules", "swiglu_hidden", d)
        check.number(actual, (16 * d + 3) // 6, "the hidden width", "隐藏宽度", tolerance=0)
        check.that(isinstance(actual, int), "the hidden width is not an int", "隐藏宽度不是 int")


@pytest.mark.weight(2)
@pytest.mark.parametrize(("d", "hidden"), [(6, 10), (5, 3)])
@pytest.mark.parametrize("arguments", [(), (True,), (False,)])
def test_parameters(student, d, hidden, arguments):
    actual = student.ask("module_shapes", "SwiGLU", d, hidden, *arguments)
    expected = shapes(d, hidden, arguments != (False,))
    check = Check(f"SwiGLU({', '.join(map(str, (d, hidden, *arguments)))})", safe=True)
    check.that(
        actual == expected,
        "names or shapes of the parameters are not those of gate, up and down, with or without bias as asked",
        "参数的名字或形状不符合 gate、up、down 以及 bias 的要求",
    )


def called(student, draw, bias, *inputs, **options):
    state = draw.state(shapes(6, 10, bias))
    return state, student.ask("module_calls", "SwiGLU", (6, 10, bias), state, list(inputs), **options)


@pytest.mark.weight(3)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_outputs(student, draw, bias, training):
    """Three calls of one module: other data of the same shape, then another shape."""
    inputs = [draw.uniform(2, 5, 6), 3 * draw.uniform(2, 5, 6), draw.uniform(4, 6)]
    check = Check(f"SwiGLU(6, 10, bias={bias})(x)", safe=True, training=training)
    state, reply = called(student, draw, bias, *inputs, training=training)
    for number, (x, out) in enumerate(zip(inputs, reply["outs"], strict=True), 1):
        check.value(out, reference.swiglu(state, x), f"the output of call {number}", f"第 {number} 次调用的输出")
    untouched(check, student, reply)


@pytest.mark.parametrize("layout", ["transposed", "expanded"])
def test_any_memory_layout(student, draw, layout):
    x = draw.uniform(3, 5, 6)
    state, reply = called(student, draw, True, x, layout=layout)
    truth = x[:1].expand_as(x) if layout == "expanded" else x
    check = Check("SwiGLU(6, 10)(x)", safe=True, x=x, layout=layout)
    check.value(reply["outs"][0], reference.swiglu(state, truth), "the output", "输出")


@pytest.mark.weight(3)
@pytest.mark.parametrize(("bias", "training"), [(True, True), (False, False)])
def test_gradients(student, draw, bias, training):
    x, upstream = draw.uniform(2, 5, 6), draw.uniform(2, 5, 6)
    state, reply = called(student, draw, bias, x, upstream=upstream, training=training)
    leaves = {name: value.clone().requires_grad_() for name, value in ({"x": x} | state).items()}
    out = reference.swiglu(leaves, leaves["x"])
    check = Check(f"SwiGLU(6, 10, bias={bias})(x)", safe=True, x=x)
    check.value(reply["outs"][0], out, "the output", "输出")
    check.gradients(reply["grads"].items(), gradients_of(out, upstream, leaves))


def test_initial_weights(student):
    drawn_anew(Check("SwiGLU(6, 10)", safe=True), student, "SwiGLU", 6, 10)


def test_float32(student, draw):
    torch.set_default_dtype(torch.float32)
    state = {name: value.float() for name, value in draw.state(shapes(6, 10, True)).items()}
    x = draw.uniform(2, 5, 6, dtype=torch.float32)
    reply = student.ask("module_calls", "SwiGLU", (6, 10), state, [x])
    Check("SwiGLU(6, 10)(x)", safe=True, x=x).value(reply["outs"][0], reference.swiglu(state, x), "the output", "输出")
