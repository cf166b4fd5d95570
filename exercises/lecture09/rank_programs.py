"""Lecture 9, given: what each rank runs in the public tests of f and g (for `run_on_ranks`, so at module level)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ranks import counted_all_reduces


def pass_through(rank: int, group, name: str, inputs: list[Tensor], upstream: list[Tensor]) -> dict:
    """Send the rank's own input through f or g (`name`) and its own gradient back.

    Returns output and gradient (None where there is none), the all-reduces of both passes, and whether input or
    incoming gradient were changed.
    """
    import tp_autograd

    x = inputs[rank].clone().requires_grad_()
    with counted_all_reduces() as forward:
        y = _named(tp_autograd, name)(x, group)
    incoming: list[Tensor] = []
    grad = None
    with counted_all_reduces() as backward:
        if isinstance(y, Tensor) and y.requires_grad:
            y.register_hook(incoming.append)
            grad = torch.autograd.grad((y * upstream[rank]).sum(), x, allow_unused=True)[0]
    return {
        "out": y.detach() if isinstance(y, Tensor) else y,
        "grad": _finished(grad),
        "forward": forward.total,
        "backward": backward.total,
        "input_changed": not torch.equal(x, inputs[rank]),
        "gradient_changed": not all(torch.equal(seen, upstream[rank]) for seen in incoming),
    }


def pass_awkward(rank: int, group, name: str, x: Tensor) -> dict:
    """The same on every rank, with a transposed input in and the stride-0 gradient of a sum back."""
    import tp_autograd

    x = x.clone().requires_grad_()
    y = _named(tp_autograd, name)(x.t(), group)
    out = y.detach().clone()
    y.sum().backward()
    return {"out": out, "grad": _finished(x.grad)}


def mlp_block(rank: int, group, x: Tensor, norm: Tensor, shards: list[dict[str, Tensor]], upstream: Tensor) -> dict:
    """x + g(MLP(f(x · norm))) on this rank's shard, and back: output and gradients by name."""
    from tp_autograd import f, g

    leaves = {"x": x, "norm": norm, **shards[rank]}
    leaves = {name: leaf.clone().requires_grad_() for name, leaf in leaves.items()}
    inner = f(leaves["x"] * leaves["norm"], group)
    partial = F.linear(F.gelu(F.linear(inner, leaves["W1"], leaves["b1"])), leaves["W2"])
    out = leaves["x"] + g(partial, group)
    with counted_all_reduces() as backward:
        grads = torch.autograd.grad((out * upstream).sum(), list(leaves.values()), allow_unused=True)
    return {"out": out.detach(), "grads": dict(zip(leaves, map(_finished, grads))), "backward": backward.total}


def _finished(grad: Tensor | None) -> Tensor | None:
    """A copy: a functional all-reduce gives a tensor that is waited for when it is first used."""
    return None if grad is None else grad.clone()


def _named(module, dotted: str):
    """`module.a.b` for "a.b"."""
    for part in dotted.split("."):
        module = getattr(module, part)
    return module
