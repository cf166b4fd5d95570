"""Public tests of `split_mlp`."""

import pytest

from exercises import samples
from exercises.checks import Check


def pieces(mlp, t):
    """What rank after rank must hold: (name, rank, tensor)."""
    for name, whole, axis in (("W1", mlp[0].weight, 0), ("b1", mlp[0].bias, 0), ("W2", mlp[2].weight, 1)):
        for rank, piece in enumerate(whole.tensor_split(t, dim=axis)):
            yield name, rank, piece


@pytest.mark.parametrize("t", [1, 2, 4, 8])
def test_each_rank_holds_its_piece(dist_sim, t):
    mlp = samples.mlp(10, 24, seed=1)
    check = Check("split_mlp(mlp, t)", d=10, F=24, t=t)
    with check.leaves_alone(mlp=mlp):
        shards, b2 = dist_sim.split_mlp(mlp, t)
    check.number(len(shards), t, "the number of shards", "分片的数量")
    for name, rank, piece in pieces(mlp, t):
        check.that(name in shards[rank], f"shard {rank} has no key {name}", f"分片 {rank} 没有键 {name}")
        check.value(shards[rank][name], piece, f"{name} of rank {rank}", f"rank {rank} 的 {name}")
    check.value(b2, mlp[2].bias, "b2", "b2")


def test_gradients_reach_the_mlp(dist_sim):
    mlp = samples.mlp(6, 8, seed=2)
    check = Check("split_mlp(mlp, t)", d=6, F=8, t=2)
    shards, b2 = dist_sim.split_mlp(mlp, 2)
    total = b2.sum() + sum(shard[name].sum() for shard in shards for name in ("W1", "b1", "W2"))
    check.that(
        total.requires_grad,
        "the shards are cut off from the MLP's parameters, so nothing could be trained",
        "分片与 MLP 的参数断开了，无法训练",
    )
    total.backward()
    for name, parameter in mlp.named_parameters():
        check.that(
            parameter.grad is not None and bool((parameter.grad == 1).all()),
            f"the gradient doesn't reach every entry of {name} just once",
            f"梯度没有恰好一次到达 {name} 的每个元素",
        )


@pytest.mark.parametrize("t", [0, -1, 5, 16, 48])
def test_a_t_that_does_not_fit_is_refused(dist_sim, t):
    mlp = samples.mlp(10, 24, seed=1)
    dist_sim.split_mlp(mlp, 2)
    with Check("split_mlp(mlp, t)", F=24, t=t).refuses(t, 24):
        dist_sim.split_mlp(mlp, t)
