"""Hidden tests of `tp_attention_forward`."""

import pytest
import torch

from comparing import refuses, untouched
from exercises import samples
from exercises.checks import Check, gradients_of

CALL = "tp_attention_forward(attn, x, t, counter)"


@pytest.mark.weight(2)
@pytest.mark.parametrize(
    ("d", "heads", "t", "shape"),
    [
        (12, 4, 1, (2, 5)),
        (12, 4, 2, (2, 5)),
        (16, 4, 2, (2, 3)),
        (12, 4, 4, (5, 7)),
        (18, 6, 3, (2, 6)),
        (16, 8, 8, (2, 3)),
        (10, 2, 2, (2, 1)),
        (6, 6, 2, (1, 9)),
        (2, 1, 1, (1, 140)),
    ],
)
def test_output(student, draw, d, heads, t, shape):
    attn, x = draw.attention(d, heads), draw.uniform(*shape, d)
    check = Check(CALL, safe=True, x=x, heads=heads, t=t)
    check.value(student.ask("tp_attention_forward", attn, x, t)["out"], attn(x), "the output", "输出")


def test_many_ranks(student, draw):
    for t in (5, 6, draw.number(9, 20)):
        attn, x = draw.attention(2 * t, t), draw.uniform(2, 3, 2 * t)
        check = Check(CALL, safe=True, x=x, heads=t, t=t)
        check.value(student.ask("tp_attention_forward", attn, x, t)["out"], attn(x), "the output", "输出")


@pytest.mark.parametrize("layout", ["transposed", "expanded"])
def test_any_memory_layout(student, draw, layout):
    attn, x = draw.attention(12, 4), draw.uniform(3, 5, 12)
    truth = x[:1].expand_as(x) if layout == "expanded" else x
    check = Check(CALL, safe=True, x=x, t=2, layout=layout)
    reply = student.ask("tp_attention_forward", attn, x, 2, None, None, layout)
    check.value(reply["out"], attn(truth), "the output", "输出")


def test_no_position_sees_a_later_one(student, draw):
    attn, x = draw.attention(12, 4), draw.uniform(2, 6, 12)
    changed = torch.cat((x[:, :4], draw.uniform(2, 2, 12)), dim=1)
    check = Check(CALL, safe=True, x=x, t=2)
    before, after = (student.ask("tp_attention_forward", attn, value, 2)["out"] for value in (x, changed))
    check.value(before, attn(x), "the output", "输出")
    check.value(after, attn(changed), "the output after a change at position 4", "改变位置 4 之后的输出")
    check.value(after[:, :4], before[:, :4], "positions 0 to 3 after a change at 4", "改变位置 4 之后的位置 0 到 3")


def test_again_with_other_data(student, draw):
    """Other weights with the same x, then another x with the same weights."""
    check = Check(f"{CALL}, called again", safe=True, x=draw.uniform(2, 5, 12), t=2)
    attns, inputs = [draw.attention(12, 4) for _ in range(2)], [draw.uniform(2, 5, 12) for _ in range(2)]
    for attn, x in ((attns[0], inputs[0]), (attns[1], inputs[0]), (attns[1], inputs[1])):
        check.value(student.ask("tp_attention_forward", attn, x, 2)["out"], attn(x), "the output", "输出")


@pytest.mark.weight(24)
@pytest.mark.parametrize("t", [2, 4])
def test_partial_outputs_are_reduced(student, draw, t):
    attn, x = draw.attention(12, 4), draw.uniform(2, 5, 12)
    check = Check(CALL, safe=True, x=x, heads=4, t=t)
    reply = student.ask("tp_attention_forward", attn, x, t)
    check.that(len(reply["all_reduces"]) > 0, "nothing is all-reduced", "没有任何 all-reduce")
    own = samples.partial_outputs(attn, "out_proj", t, x)
    check.partials(reply["all_reduces"][0], own, attn.out_proj.bias.detach())
    check.value(reply["out"], attn(x), "the output", "输出")


@pytest.mark.weight(3)
@pytest.mark.parametrize(("t", "start"), [(1, {}), (2, {"all_reduce": 3}), (4, {"other": 2})])
def test_one_all_reduce(student, draw, t, start):
    attn, x = draw.attention(12, 4), draw.uniform(2, 5, 12)
    check = Check(CALL, safe=True, x=x, heads=4, t=t)
    reply = student.ask("tp_attention_forward", attn, x, t, start)
    check.number(len(reply["all_reduces"]), 1, "the number of all-reduces", "all-reduce 的次数")
    expected = start | {"all_reduce": start.get("all_reduce", 0) + 1}
    check.that(
        reply["counter"] == expected,
        "the counter doesn't go up by one, or something else in it changes",
        "counter 没有正好加一，或者其中别的内容被改动",
    )
    check.value(reply["out"], attn(x), "the output", "输出")


@pytest.mark.weight(3)
@pytest.mark.parametrize("t", [1, 2, 4])
def test_gradients(student, draw, t):
    attn, x = draw.attention(12, 4), draw.uniform(2, 5, 12).requires_grad_()
    upstream = draw.uniform(2, 5, 12)
    expected = gradients_of(attn(x), upstream, {"x": x, **dict(attn.named_parameters())})
    reply = student.ask("tp_attention_forward", attn, x.detach(), t, None, upstream)
    check = Check(CALL, safe=True, x=x, heads=4, t=t)
    check.value(reply["out"], attn(x), "the output", "输出")
    check.gradients(reply["grads"].items(), expected)


def test_nothing_else_changes(student, draw):
    attn, x = draw.attention(12, 4), draw.uniform(2, 5, 12)
    check = Check(CALL, safe=True, x=x, t=2)
    reply = student.ask("tp_attention_forward", attn, x, 2)
    untouched(check, student, reply)
    check.that(not reply["aliased"], "the output shares memory with an input", "输出与输入共用内存")
    check.value(reply["out"], attn(x), "the output", "输出")


def test_float32(student, draw):
    attn, x = draw.attention(12, 4).float(), draw.uniform(2, 5, 12, dtype=torch.float32).requires_grad_()
    upstream = draw.uniform(2, 5, 12, dtype=torch.float32)
    reply = student.ask("tp_attention_forward", attn, x.detach(), 2, None, upstream)
    check = Check(CALL, safe=True, x=x, t=2)
    check.value(reply["out"], attn(x), "the output", "输出")
    check.gradients([("x", reply["grads"]["x"])], gradients_of(attn(x), upstream, {"x": x}))


@pytest.mark.parametrize(("t", "heads"), [(0, 4), (-2, 4), (3, 4), (8, 4), (4, 6)])
def test_a_t_that_does_not_fit_is_refused(student, draw, t, heads):
    attn, x = draw.attention(24, heads), draw.uniform(2, 5, 24)
    check = Check(CALL, safe=True, heads=heads, t=t)
    check.value(student.ask("tp_attention_forward", attn, x, 2)["out"], attn(x), "the output for t = 2", "t = 2 的输出")
    refuses(check, lambda: student.ask("tp_attention_forward", attn, x, t), t, heads)
