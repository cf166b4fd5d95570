"""Public tests of f and g, on real `torch.distributed` ranks. What each rank runs stands in `rank_programs.py`."""

import pytest
import torch

from collectives import run_on_ranks
from exercises import samples
from exercises.checks import Check, gradients_of
from rank_programs import mlp_block, pass_awkward, pass_through


def per_rank(t, *shape, seed):
    return [samples.uniform(*shape, seed=seed + rank) for rank in range(t)]


@pytest.mark.parametrize("name", ["f", "CopyToTensorParallelRegion.apply"])
def test_f(tp_autograd, name):
    inputs, upstream = per_rank(2, 3, 5, seed=31), per_rank(2, 3, 5, seed=41)
    check = Check(f"{name}(x, group)", x=inputs[0], t=2)
    for rank, result in enumerate(run_on_ranks(2, pass_through, name, inputs, upstream)):
        check.value(result["out"], inputs[rank], f"f's output on rank {rank}", f"f 在 rank {rank} 上的输出")
        check.value(result["grad"], sum(upstream), f"the gradient of x on rank {rank}", f"rank {rank} 上 x 的梯度")
        _counts(check, result, forward=0, backward=1)


@pytest.mark.parametrize("name", ["g", "ReduceFromTensorParallelRegion.apply"])
def test_g(tp_autograd, name):
    inputs, upstream = per_rank(2, 3, 5, seed=51), per_rank(2, 3, 5, seed=61)
    check = Check(f"{name}(x, group)", x=inputs[0], t=2)
    for rank, result in enumerate(run_on_ranks(2, pass_through, name, inputs, upstream)):
        check.value(result["out"], sum(inputs), f"g's output on rank {rank}", f"g 在 rank {rank} 上的输出")
        check.value(result["grad"], upstream[rank], f"the gradient of x on rank {rank}", f"rank {rank} 上 x 的梯度")
        _counts(check, result, forward=1, backward=0)


def _counts(check, result, **expected):
    for phase, count in expected.items():
        zh = {"forward": "前向", "backward": "反向"}[phase]
        check.number(result[phase], count, f"the number of all-reduces in {phase}", f"{zh}中 all-reduce 的次数")
    check.that(not result["input_changed"], "x was changed in place", "x 被就地修改了")
    check.that(not result["gradient_changed"], "the incoming gradient was changed in place", "传入的梯度被就地修改了")


@pytest.mark.parametrize("name", ["f", "g"])
def test_strides_and_dtype(tp_autograd, name):
    x = samples.uniform(3, 5, seed=71, dtype=torch.float32)
    check = Check(f"{name}(x.t(), group).sum().backward()", x=x, t=2)
    for rank, result in enumerate(run_on_ranks(2, pass_awkward, name, x)):
        factor = {"f": 1, "g": 2}[name]
        check.value(result["out"], factor * x.t(), f"the output on rank {rank}", f"rank {rank} 上的输出")
        expected = torch.full_like(x, 2 / factor)
        check.value(result["grad"], expected, f"the gradient of x on rank {rank}", f"rank {rank} 上 x 的梯度")


@pytest.mark.parametrize("t", [2, 4])
def test_a_block_trains_as_on_one_device(tp_autograd, t):
    mlp, x = samples.mlp(6, 8, seed=81), samples.uniform(2, 3, 6, seed=82).requires_grad_()
    with torch.no_grad():
        mlp[2].bias.zero_()
    norm, upstream = samples.uniform(6, seed=83).requires_grad_(), samples.uniform(2, 3, 6, seed=84)
    expected_out = x + mlp(x * norm)
    truth = gradients_of(expected_out, upstream, {"x": x, "norm": norm, **dict(mlp.named_parameters())})
    cuts = {"W1": ("0.weight", 0), "b1": ("0.bias", 0), "W2": ("2.weight", 1)}
    parts = {key: mlp.get_parameter(name).detach().tensor_split(t, dim=axis) for key, (name, axis) in cuts.items()}
    shards = [{key: pieces[rank].contiguous() for key, pieces in parts.items()} for rank in range(t)]
    results = run_on_ranks(t, mlp_block, x.detach(), norm.detach(), shards, upstream)
    check = Check("x + g(MLP(f(x * norm, group)), group)", x=x, t=t)
    for rank, result in enumerate(results):
        expected = {"x": truth["x"], "norm": truth["norm"]}
        expected |= {key: truth[name].tensor_split(t, dim=axis)[rank] for key, (name, axis) in cuts.items()}
        check.value(result["out"], expected_out, f"the output on rank {rank}", f"rank {rank} 上的输出")
        named = [(name, result["grads"][name]) for name in expected]
        check.gradients(
            [(f"{name} on rank {rank}", grad) for name, grad in named],
            {f"{name} on rank {rank}": grad for name, grad in expected.items()},
        )
        check.number(result["backward"], 1, "the number of all-reduces in backward", "反向中 all-reduce 的次数")
