"""Hidden tests of `split_mlp`."""

import pytest
import torch

from comparing import refuses, untouched
from exercises.checks import Check

CALL = "split_mlp(mlp, t)"


def pieces(mlp, t):
    """For each rank its W1, b1, W2."""
    whole = {"W1": (mlp[0].weight, 0), "b1": (mlp[0].bias, 0), "W2": (mlp[2].weight, 1)}
    return [{n: w.detach().tensor_split(t, dim=axis)[r] for n, (w, axis) in whole.items()} for r in range(t)]


def compare(check, reply, mlp, t):
    check.number(len(reply["shards"]), t, "the number of shards", "分片的数量")
    for rank, (shard, truth) in enumerate(zip(reply["shards"], pieces(mlp, t))):
        for name, piece in truth.items():
            check.value(shard[name], piece, f"{name} of rank {rank}", f"rank {rank} 的 {name}")
    check.value(reply["b2"], mlp[2].bias, "b2", "b2")


@pytest.mark.weight(2)
@pytest.mark.parametrize(("d", "hidden", "t"), [(10, 24, 1), (10, 6, 2), (6, 24, 4), (5, 40, 8), (12, 9, 3)])
def test_pieces(student, draw, d, hidden, t):
    mlp = draw.mlp(d, hidden)
    check = Check(CALL, safe=True, d=d, F=hidden, t=t)
    compare(check, student.ask("split_mlp", mlp, t), mlp, t)


def test_many_ranks(student, draw):
    for t in (5, 6, draw.number(9, 20)):
        mlp = draw.mlp(4, 2 * t)
        compare(Check(CALL, safe=True, d=4, F=2 * t, t=t), student.ask("split_mlp", mlp, t), mlp, t)


def test_other_parameters_of_the_same_shape(student, draw):
    check = Check("split_mlp(mlp, t), called again on another MLP", safe=True, d=6, F=8, t=2)
    for mlp in (draw.mlp(6, 8), draw.mlp(6, 8)):
        compare(check, student.ask("split_mlp", mlp, 2), mlp, 2)


def test_float32_stays_float32(student, draw):
    mlp = draw.mlp(6, 8).float()
    compare(Check(CALL, safe=True, d=6, F=8, t=2, dtype="float32"), student.ask("split_mlp", mlp, 2), mlp, 2)


@pytest.mark.weight(3)
@pytest.mark.parametrize("t", [1, 2, 4])
def test_gradients_reach_the_mlp(student, draw, t):
    mlp = draw.mlp(6, 8)
    upstream = [{name: draw.uniform(*piece.shape) for name, piece in rank.items()} for rank in pieces(mlp, t)]
    bias = draw.uniform(6)
    check = Check(CALL, safe=True, d=6, F=8, t=t)
    reply = student.ask("split_mlp", mlp, t, [*upstream, {"b2": bias}])
    expected = {
        "0.weight": torch.cat([up["W1"] for up in upstream], dim=0),
        "0.bias": torch.cat([up["b1"] for up in upstream], dim=0),
        "2.weight": torch.cat([up["W2"] for up in upstream], dim=1),
        "2.bias": bias,
    }
    check.gradients(reply["grads"].items(), expected)


def test_nothing_else_changes(student, draw):
    mlp = draw.mlp(6, 8)
    check = Check(CALL, safe=True, d=6, F=8, t=2)
    reply = student.ask("split_mlp", mlp, 2)
    untouched(check, student, reply)
    compare(check, reply, mlp, 2)


@pytest.mark.parametrize(("t", "hidden"), [(0, 24), (-2, 24), (5, 24), (48, 24), (7, 40)])
def test_a_t_that_does_not_fit_is_refused(student, draw, t, hidden):
    mlp = draw.mlp(5, hidden)
    check = Check(CALL, safe=True, F=hidden, t=t)
    compare(check, student.ask("split_mlp", mlp, 2), mlp, 2)
    refuses(check, lambda: student.ask("split_mlp", mlp, t), t, hidden)
