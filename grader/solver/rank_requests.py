"""What each rank runs for the hidden tests of f and g. Results are plain values; the judge compares them.

Source of the block: Shoeybi et al. 2019, "Megatron-LM", section 3, figures 3 and 4.
"""

from __future__ import annotations

import importlib
import time
from functools import reduce
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F

if TYPE_CHECKING:
    from torch.distributed.tensor.debug import CommDebugMode

COUNTING = "torch.distributed.tensor.debug"  # takes seconds to import, so `on_ranks` does it before it forks

FUNCTIONS = {
    "f": "f",
    "g": "g",
    "f.apply": "CopyToTensorParallelRegion.apply",
    "g.apply": "ReduceFromTensorParallelRegion.apply",
}


def student_function(name: str) -> Any:
    """f, g, or one of the two `.apply`s, from the student's tp_autograd."""
    return reduce(getattr, FUNCTIONS[name].split("."), importlib.import_module("tp_autograd"))


def several(rank: int, group, programs: list[tuple[str, tuple]]) -> list:
    """The results of several of the programs below, one after the other: starting ranks is what takes time."""
    return [globals()[name](rank, group, *arguments) for name, arguments in programs]


def pass_through(rank: int, group, names: list[str], inputs: list[Tensor], upstream: list[Tensor], layout: str) -> list:
    """For each function of `names`: the rank's own input forward, its own gradient back; see `_pass`."""
    return [_pass(student_function(name), group, inputs[rank], upstream[rank], layout) for name in names]


def pass_in_pairs(rank: int, group, name: str, inputs: list[Tensor], upstream: list[Tensor]) -> dict:
    """The same with groups that are not the default one: even ranks among themselves, odd ranks among themselves."""
    t = dist.get_world_size()
    groups = [dist.new_group(list(range(parity, t, 2))) for parity in (0, 1)]
    return _pass(student_function(name), groups[rank % 2], inputs[rank], upstream[rank], "plain")


def pass_twice(rank: int, group, name: str, inputs: list[Tensor], upstream: list[Tensor]) -> dict:
    """Two calls of one shape before anything is read: first over all ranks, then over a group of this rank alone."""
    function = student_function(name)
    alone = [dist.new_group([r]) for r in range(dist.get_world_size())][rank]
    leaves = [inputs[rank].clone().requires_grad_(), 2 * inputs[rank]]
    leaves[1].requires_grad_()
    outs = [function(leaf, over) for leaf, over in zip(leaves, (group, alone))]
    grads = torch.autograd.grad([(out * upstream[rank]).sum() for out in outs], leaves)
    return {"outs": [out.detach().clone() for out in outs], "grads": [_finished(grad) for grad in grads]}


def _pass(function, group, values: Tensor, upstream: Tensor, layout: str) -> dict:
    """Output, gradient, collectives by phase, and what was changed in place.

    `layout` "awkward" hands in a transposed tensor and sends the stride-0 gradient of a sum back.
    """
    if dist.get_rank() == dist.get_world_size() - 1:
        time.sleep(0.02)  # whoever doesn't wait for the last rank reads too early
    leaf = values.clone().requires_grad_()
    x = leaf.t() if layout == "awkward" else leaf.view_as(leaf)
    with _counted() as forward:
        y = function(x, group)
    if not isinstance(y, Tensor) or not y.requires_grad:
        out = y.detach().clone() if isinstance(y, Tensor) else None
        return {"out": out, "grad": None, "forward": _all_reduces(forward), "backward": 0, "others": 0, "changed": []}
    out = y.detach().clone()
    seen: list[tuple[Tensor, Tensor]] = []
    y.register_hook(lambda grad: seen.append((grad, grad.clone())))
    total = y.sum() if layout == "awkward" else (y * upstream).sum()
    with _counted() as backward:
        (grad,) = torch.autograd.grad(total, [leaf], allow_unused=True)
    return {
        "out": out,
        "grad": _finished(grad),
        "forward": _all_reduces(forward),
        "backward": _all_reduces(backward),
        "others": _others(forward) + _others(backward),
        "changed": ["x"] * (not torch.equal(leaf, values)) + ["grad"] * (not all(torch.equal(*pair) for pair in seen)),
    }


def block(rank: int, group, x: Tensor, whole: dict[str, Tensor], shards: list[dict[str, Tensor]], upstream: Tensor):
    """A pre-norm MLP block, twice, on this rank's shards: x + g(MLP(f(norm(x)))) with a trained norm before it.

    `whole` holds what every rank has a copy of (the norms' weights); `shards[rank]` the rank's own pieces.
    """
    f, g = student_function("f"), student_function("g")
    leaves = {name: value.clone().requires_grad_() for name, value in ({"x": x} | whole | shards[rank]).items()}
    out = leaves["x"]
    with _counted() as forward:
        for i in (0, 1):
            inner = f(F.layer_norm(out, out.shape[-1:], leaves[f"norm{i}"]), group)
            hidden = F.gelu(F.linear(inner, leaves[f"W1.{i}"], leaves[f"b1.{i}"]))
            out = out + g(F.linear(hidden, leaves[f"W2.{i}"]), group) + leaves[f"b2.{i}"]
    with _counted() as backward:
        grads = torch.autograd.grad((out * upstream).sum(), list(leaves.values()), allow_unused=True)
    return {
        "out": out.detach(),
        "grads": dict(zip(leaves, map(_finished, grads))),
        "forward": _all_reduces(forward),
        "backward": _all_reduces(backward),
        "others": _others(forward) + _others(backward),
    }


def _finished(grad: Tensor | None) -> Tensor | None:
    """A copy: a functional all-reduce gives a tensor that is waited for when it is first used."""
    return None if grad is None else grad.clone()


def _counted() -> CommDebugMode:
    return importlib.import_module(COUNTING).CommDebugMode()


def _all_reduces(mode: CommDebugMode) -> int:
    return sum(
        count for op, count in mode.get_comm_counts().items() if "all_reduce" in str(op) or "allreduce" in str(op)
    )


def _others(mode: CommDebugMode) -> int:
    return mode.get_total_counts() - _all_reduces(mode)
