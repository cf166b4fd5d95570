"""Hidden tests of `tp_mlp_forward`. The shards are cut here, so a wrong `split_mlp` doesn't matter."""

import pytest
import torch

from comparing import untouched
from exercises import samples
from exercises.checks import Check, gradients_of

CALL = "tp_mlp_forward(x, shards, b2, counter)"


def cut(mlp, t):
    """The shards and the output bias."""
    whole = {"W1": (mlp[0].weight, 0), "b1": (mlp[0].bias, 0), "W2": (mlp[2].weight, 1)}
    split = {name: w.detach().tensor_split(t, dim=axis) for name, (w, axis) in whole.items()}
    shards = [{name: pieces[r].contiguous() for name, pieces in split.items()} for r in range(t)]
    return shards, mlp[2].bias.detach()


@pytest.mark.weight(2)
@pytest.mark.parametrize(
    ("d", "hidden", "t", "shape"),
    [(6, 16, 1, (2, 5)), (6, 16, 2, (2, 5)), (6, 16, 4, (5, 7)), (5, 24, 8, (2, 1)), (12, 9, 3, (1, 300))],
)
def test_output(student, draw, d, hidden, t, shape):
    mlp, x = draw.mlp(d, hidden), draw.uniform(*shape, d)
    check = Check(CALL, safe=True, x=x, t=t)
    check.value(student.ask("tp_mlp_forward", x, *cut(mlp, t))["out"], mlp(x), "the output", "输出")


def test_many_ranks(student, draw):
    for t in (5, 6, draw.number(9, 20)):
        mlp, x = draw.mlp(4, 2 * t), draw.uniform(2, 3, 4)
        check = Check(CALL, safe=True, x=x, t=t)
        check.value(student.ask("tp_mlp_forward", x, *cut(mlp, t))["out"], mlp(x), "the output", "输出")


@pytest.mark.parametrize("layout", ["transposed", "expanded"])
def test_any_memory_layout(student, draw, layout):
    mlp, x = draw.mlp(6, 16), draw.uniform(3, 5, 6)
    truth = x[:1].expand_as(x) if layout == "expanded" else x
    check = Check(CALL, safe=True, x=x, t=2, layout=layout)
    reply = student.ask("tp_mlp_forward", x, *cut(mlp, 2), None, None, layout)
    check.value(reply["out"], mlp(truth), "the output", "输出")


def test_again_with_other_data(student, draw):
    """Other weights with the same x, then another x with the same weights."""
    check = Check(f"{CALL}, called again", safe=True, x=draw.uniform(2, 5, 6), t=2)
    mlps, inputs = [draw.mlp(6, 16) for _ in range(2)], [draw.uniform(2, 5, 6) for _ in range(2)]
    for mlp, x in ((mlps[0], inputs[0]), (mlps[1], inputs[0]), (mlps[1], inputs[1])):
        check.value(student.ask("tp_mlp_forward", x, *cut(mlp, 2))["out"], mlp(x), "the output", "输出")


def test_shards_are_read_by_key(student, draw):
    """Another order of the keys, and one key more."""
    mlp, x = draw.mlp(6, 16), draw.uniform(2, 5, 6)
    shards, b2 = cut(mlp, 2)
    shards = [{"rank": torch.tensor([1.0])} | dict(reversed(shard.items())) for shard in shards]
    check = Check(f"{CALL} with more keys in other order", safe=True, x=x, t=2)
    check.value(student.ask("tp_mlp_forward", x, shards, b2)["out"], mlp(x), "the output", "输出")


def test_whole_numbers_give_the_same_bits(student, draw):
    """With a first layer of whole numbers far on GELU's flat sides all sums are exact."""
    mlp, x = draw.mlp(4, 8), draw.integers(2, 3, 4)
    with torch.no_grad():
        for parameter in mlp.parameters():
            parameter.copy_(draw.integers(*parameter.shape))
        mlp[0].weight.mul_(128)
        mlp[0].bias.copy_(128 * draw.integers(8) + 64)
    check = Check(CALL, safe=True, x=x, t=4, numbers="whole")
    check.value(student.ask("tp_mlp_forward", x, *cut(mlp, 4))["out"], mlp(x).detach(), "the output", "输出", 0.0)


@pytest.mark.weight(16)
@pytest.mark.parametrize("t", [2, 4])
def test_partial_outputs_are_reduced(student, draw, t):
    mlp, x = draw.mlp(6, 16), draw.uniform(2, 5, 6)
    shards, b2 = cut(mlp, t)
    check = Check(CALL, safe=True, x=x, t=t)
    reply = student.ask("tp_mlp_forward", x, shards, b2)
    check.that(len(reply["all_reduces"]) > 0, "nothing is all-reduced", "没有任何 all-reduce")
    check.partials(reply["all_reduces"][0], samples.partial_outputs(mlp, "2", t, x), b2)
    check.value(reply["out"], mlp(x), "the output", "输出")


@pytest.mark.weight(3)
@pytest.mark.parametrize(("t", "start"), [(1, {}), (2, {"all_reduce": 5}), (4, {"all_reduce": 0, "other": 1})])
def test_one_all_reduce(student, draw, t, start):
    mlp, x = draw.mlp(6, 16), draw.uniform(2, 5, 6)
    shards, b2 = cut(mlp, t)
    check = Check(CALL, safe=True, x=x, t=t)
    reply = student.ask("tp_mlp_forward", x, shards, b2, start)
    check.number(len(reply["all_reduces"]), 1, "the number of all-reduces", "all-reduce 的次数")
    expected = start | {"all_reduce": start.get("all_reduce", 0) + 1}
    check.that(
        reply["counter"] == expected,
        "the counter doesn't go up by one, or something else in it changes",
        "counter 没有正好加一，或者其中别的内容被改动",
    )
    check.value(reply["out"], mlp(x), "the output", "输出")


@pytest.mark.weight(3)
@pytest.mark.parametrize("t", [1, 2, 4])
def test_gradients(student, draw, t):
    mlp, x = draw.mlp(6, 16), draw.uniform(2, 5, 6).requires_grad_()
    shards, b2 = cut(mlp, t)
    upstream = draw.uniform(2, 5, 6)
    truth = gradients_of(mlp(x), upstream, {"x": x, **dict(mlp.named_parameters())})
    expected = {"x": truth["x"], "b2": truth["2.bias"]}
    for name, source, axis in (("W1", "0.weight", 0), ("b1", "0.bias", 0), ("W2", "2.weight", 1)):
        for rank, piece in enumerate(truth[source].tensor_split(t, dim=axis)):
            expected[f"{name} of rank {rank}"] = piece
    reply = student.ask("tp_mlp_forward", x.detach(), shards, b2, None, upstream)
    check = Check(CALL, safe=True, x=x, t=t)
    check.value(reply["out"], mlp(x), "the output", "输出")
    check.gradients(reply["grads"].items(), expected)


def test_nothing_else_changes(student, draw):
    mlp, x = draw.mlp(6, 16), draw.uniform(2, 5, 6)
    check = Check(CALL, safe=True, x=x, t=2)
    reply = student.ask("tp_mlp_forward", x, *cut(mlp, 2))
    untouched(check, student, reply)
    check.that(not reply["aliased"], "the output shares memory with an input", "输出与输入共用内存")
    check.value(reply["out"], mlp(x), "the output", "输出")


def test_float32(student, draw):
    mlp, x = draw.mlp(6, 16).float(), draw.uniform(2, 5, 6, dtype=torch.float32).requires_grad_()
    upstream = draw.uniform(2, 5, 6, dtype=torch.float32)
    reply = student.ask("tp_mlp_forward", x.detach(), *cut(mlp, 2), None, upstream)
    check = Check(CALL, safe=True, x=x, t=2)
    check.value(reply["out"], mlp(x), "the output", "输出")
    check.gradients([("x", reply["grads"]["x"])], gradients_of(mlp(x), upstream, {"x": x}))
