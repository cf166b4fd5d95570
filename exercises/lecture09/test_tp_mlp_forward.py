"""Public tests of `tp_mlp_forward`. The shards are made here, so they don't depend on your `split_mlp`."""

import pytest

from collectives import recorded_all_reduces
from exercises import samples
from exercises.checks import Check, gradients_of

CALL = "tp_mlp_forward(x, shards, b2, counter)"


def cut(mlp, t):
    """The shards and the output bias, as leaves of their own."""
    size = mlp[0].out_features // t
    shards = []
    for start in range(0, size * t, size):
        own = slice(start, start + size)
        shard = {"W1": mlp[0].weight[own], "b1": mlp[0].bias[own], "W2": mlp[2].weight[:, own]}
        shards.append({name: piece.detach().clone().requires_grad_() for name, piece in shard.items()})
    return shards, mlp[2].bias.detach().clone().requires_grad_()


@pytest.mark.parametrize("t", [1, 2, 4])
def test_output_equals_one_device(dist_sim, t):
    mlp, x = samples.mlp(6, 16, seed=3), samples.uniform(2, 5, 6, seed=4)
    shards, b2 = cut(mlp, t)
    check = Check(CALL, x=x, t=t)
    with check.leaves_alone(x=x, shards=shards, b2=b2):
        out = dist_sim.tp_mlp_forward(x, shards, b2)
    check.value(out, mlp(x), "the output", "输出")


@pytest.mark.parametrize("t", [1, 4])
def test_one_all_reduce_of_the_partial_outputs(dist_sim, t):
    mlp, x = samples.mlp(6, 16, seed=5), samples.uniform(2, 5, 6, seed=6)
    shards, b2 = cut(mlp, t)
    counter = {"all_reduce": 3}
    check = Check(CALL, x=x, t=t, counter=3)
    with recorded_all_reduces() as recording:
        dist_sim.tp_mlp_forward(x, shards, b2, counter)
    check.number(counter["all_reduce"], 4, "the counter, which stood at 3,", "counter（原为 3）")
    check.number(len(recording), 1, "the number of all-reduces", "all-reduce 的次数")
    check.partials(recording[0], samples.partial_outputs(mlp, "2", t, x), b2)


def test_gradients_reach_x_and_every_shard(dist_sim):
    mlp, x = samples.mlp(6, 16, seed=7), samples.uniform(2, 5, 6, seed=8).requires_grad_()
    upstream = samples.uniform(2, 5, 6, seed=9)
    shards, b2 = cut(mlp, 2)
    leaves = {"x": x, "b2": b2} | {f"{k} of rank {r}": v for r, shard in enumerate(shards) for k, v in shard.items()}
    truth = gradients_of(mlp(x), upstream, {"x": x, **dict(mlp.named_parameters())})
    expected = {"x": truth["x"], "b2": truth["2.bias"]}
    for rank in range(2):
        own = slice(8 * rank, 8 * rank + 8)
        expected[f"W1 of rank {rank}"] = truth["0.weight"][own]
        expected[f"b1 of rank {rank}"] = truth["0.bias"][own]
        expected[f"W2 of rank {rank}"] = truth["2.weight"][:, own]
    out = dist_sim.tp_mlp_forward(x, shards, b2)
    Check(CALL, x=x, t=2).gradients(gradients_of(out, upstream, leaves).items(), expected)
