"""Hidden tests of `MultiQueryAttention`; with rope=True also right if it uses the student's own rotation."""

import pytest
import torch

import reference
from comparing import drawn_anew, either, refuses, untouched
from exercises.checks import Check, gradients_of

CALL = "MultiQueryAttention({d}, {heads}, bias={bias}, rope={rope})(x)"


def shapes(d, heads, bias):
    widths = {"q_proj": d, "k_proj": d // heads, "v_proj": d // heads, "out_proj": d}
    weights = {f"{name}.weight": (width, d) for name, width in widths.items()}
    return weights | ({f"{name}.bias": (width,) for name, width in widths.items()} if bias else {})


def students_rope(student, head_dim):
    """The student's rotation at positions 0 … T − 1, through calls."""

    def rotate(x):
        tables = student.ask("rope_angles", head_dim, torch.arange(x.shape[-2]))
        return _Rotated.apply(student, x, tables["cos"], tables["sin"])

    return rotate


class _Rotated(torch.autograd.Function):
    @staticmethod
    def forward(ctx, student, x, cos, sin):
        ctx.values = student, x.detach(), cos, sin
        return student.ask("apply_rope", x.detach(), cos, sin)["out"]

    @staticmethod
    def backward(ctx, upstream):
        student, x, cos, sin = ctx.values
        return None, student.ask("apply_rope", x, cos, sin, upstream)["grads"]["x"], None, None


def judged(student, d, heads, rope, compare):
    """`compare(rotation)` with the true rotation or, where there is one, the student's own."""
    truth = reference.rope_of(d // heads) if rope else None
    if rope:
        either(lambda: compare(truth), lambda: compare(students_rope(student, d // heads)))
    else:
        compare(truth)


@pytest.mark.weight(2)
@pytest.mark.parametrize(("d", "heads"), [(12, 3), (8, 1), (10, 5)])
@pytest.mark.parametrize("arguments", [(), (False,), (True, True), (False, True)])
def test_parameters(student, d, heads, arguments):
    actual = student.ask("module_shapes", "MultiQueryAttention", d, heads, *arguments)
    check = Check(f"MultiQueryAttention({', '.join(map(str, (d, heads, *arguments)))})", safe=True)
    check.that(
        actual == shapes(d, heads, arguments[:1] != (False,)),
        "names or shapes of the parameters are not those of one key and one value head, with or without bias as asked",
        "参数的名字或形状不符合“一个键头、一个值头”以及 bias 的要求",
    )


@pytest.mark.weight(3)
@pytest.mark.parametrize(
    ("d", "heads", "bias", "rope"),
    [
        (12, 3, True, False),
        (12, 6, False, False),
        (10, 1, True, False),
        (6, 6, True, False),
        (12, 3, True, True),
        (16, 2, False, True),
    ],
)
def test_outputs(student, draw, d, heads, bias, rope):
    """Four calls of one module: other data of the same shape, then a longer and a shorter sequence."""
    state = draw.state(shapes(d, heads, bias))
    inputs = [draw.uniform(2, 5, d), draw.uniform(2, 5, d), draw.uniform(1, 11, d), draw.uniform(3, 1, d)]
    check = Check(CALL.format(d=d, heads=heads, bias=bias, rope=rope), safe=True)
    reply = student.ask("module_calls", "MultiQueryAttention", (d, heads, bias, rope), state, inputs)

    def compare(rotation):
        for number, (x, out) in enumerate(zip(inputs, reply["outs"], strict=True), 1):
            expected = reference.multi_query_attention(state, x, heads, rotation)
            check.value(out, expected, f"the output of call {number}", f"第 {number} 次调用的输出")

    untouched(check, student, reply)
    judged(student, d, heads, rope, compare)


@pytest.mark.parametrize("rope", [False, True])
def test_no_position_sees_a_later_one(student, draw, rope):
    state, x = draw.state(shapes(12, 3, True)), draw.uniform(2, 6, 12)
    changed = torch.cat((x[:, :4], draw.uniform(2, 2, 12)), dim=1)
    check = Check(CALL.format(d=12, heads=3, bias=True, rope=rope), safe=True)
    inputs = [x, changed]
    before, after = student.ask("module_calls", "MultiQueryAttention", (12, 3, True, rope), state, inputs)["outs"]
    check.value(after[:, :4], before[:, :4], "positions 0 to 3 after a change at 4", "改变位置 4 之后的位置 0 到 3")

    def compare(rotation):
        expected = reference.multi_query_attention(state, changed, 3, rotation)
        check.value(after, expected, "the output after the change", "改变之后的输出")

    judged(student, 12, 3, rope, compare)


@pytest.mark.parametrize("layout", ["transposed", "expanded"])
def test_any_memory_layout(student, draw, layout):
    state, x = draw.state(shapes(12, 3, True)), draw.uniform(3, 5, 12)
    truth = x[:1].expand_as(x) if layout == "expanded" else x
    check = Check(CALL.format(d=12, heads=3, bias=True, rope=False), safe=True, layout=layout)
    reply = student.ask("module_calls", "MultiQueryAttention", (12, 3, True, False), state, [x], None, layout)
    check.value(reply["outs"][0], reference.multi_query_attention(state, truth, 3), "the output", "输出")


@pytest.mark.parametrize("rope", [False, True])
def test_a_long_sequence(student, draw, rope):
    state, x = draw.state(shapes(4, 2, False)), draw.uniform(1, 300, 4)
    check = Check(CALL.format(d=4, heads=2, bias=False, rope=rope), safe=True, x=x)
    reply = student.ask("module_calls", "MultiQueryAttention", (4, 2, False, rope), state, [x])

    def compare(rotation):
        check.value(reply["outs"][0], reference.multi_query_attention(state, x, 2, rotation), "the output", "输出")

    judged(student, 4, 2, rope, compare)


@pytest.mark.parametrize("rope", [False, True])
def test_float32(student, draw, rope):
    torch.set_default_dtype(torch.float32)
    state = {name: value.float() for name, value in draw.state(shapes(12, 3, True)).items()}
    x = draw.uniform(2, 5, 12, dtype=torch.float32)
    check = Check(CALL.format(d=12, heads=3, bias=True, rope=rope), safe=True, x=x)
    reply = student.ask("module_calls", "MultiQueryAttention", (12, 3, True, rope), state, [x])

    def compare(rotation):
        check.value(reply["outs"][0], reference.multi_query_attention(state, x, 3, rotation), "the output", "输出")

    judged(student, 12, 3, rope, compare)


@pytest.mark.weight(3)
@pytest.mark.parametrize(("bias", "rope", "training"), [(True, False, True), (False, True, True), (True, False, False)])
def test_gradients(student, draw, bias, rope, training):
    state, x, upstream = draw.state(shapes(12, 3, bias)), draw.uniform(2, 5, 12), draw.uniform(2, 5, 12)
    leaves = {name: value.clone().requires_grad_() for name, value in ({"x": x} | state).items()}
    check = Check(CALL.format(d=12, heads=3, bias=bias, rope=rope), safe=True, training=training)
    arguments = "MultiQueryAttention", (12, 3, bias, rope), state, [x], upstream
    reply = student.ask("module_calls", *arguments, training=training)

    def compare(rotation):
        out = reference.multi_query_attention(leaves, leaves["x"], 3, rotation)
        check.value(reply["outs"][0], out, "the output", "输出")
        check.gradients(reply["grads"].items(), gradients_of(out, upstream, leaves))

    judged(student, 12, 3, rope, compare)


@pytest.mark.parametrize(("d", "heads"), [(12, 5), (12, 24)])
def test_heads_that_do_not_divide_the_width_are_refused(student, draw, d, heads):
    state, x = draw.state(shapes(12, 3, True)), draw.uniform(2, 5, 12)
    check = Check(f"MultiQueryAttention({d}, {heads})", safe=True)
    reply = student.ask("module_calls", "MultiQueryAttention", (12, 3, True, False), state, [x])
    check.value(
        reply["outs"][0], reference.multi_query_attention(state, x, 3), "the output for 3 heads", "3 个头时的输出"
    )
    refuses(check, lambda: student.ask("module_shapes", "MultiQueryAttention", d, heads))


def test_initial_weights(student):
    drawn_anew(Check("MultiQueryAttention(12, 3)", safe=True), student, "MultiQueryAttention", 12, 3)
