"""Inputs that break symmetry: every entry differs, biases are not 0, norms are not 1, sizes are not alike.

All numbers are uniform and come from a seeded generator, so a seed gives the same numbers on every platform.
"""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn

from tiny_gpt import CausalSelfAttention, TinyGPT

M = TypeVar("M", bound=nn.Module)


def uniform(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """A tensor with entries in (−1, 1), drawn in float64."""
    generator = torch.Generator().manual_seed(seed)
    return (2 * torch.rand(*shape, generator=generator, dtype=torch.float64) - 1).to(dtype)


def ids(*shape: int, vocab_size: int, seed: int) -> Tensor:
    """Token ids, int64."""
    return torch.randint(vocab_size, shape, generator=torch.Generator().manual_seed(seed))


def randomized(module: M, seed: int) -> M:
    """`module` in float64 with every parameter drawn anew: weights of unit gain, biases and norms well away from 0 and 1."""
    module.double()
    with torch.no_grad():
        for i, parameter in enumerate(module.parameters()):
            gain = (3 / parameter.shape[-1]) ** 0.5 if parameter.ndim > 1 else 1.0
            parameter.copy_(gain * uniform(*parameter.shape, seed=1000 * seed + i))
    return module


def mlp(d: int, hidden: int, seed: int) -> nn.Sequential:
    """Linear(d, hidden), GELU, Linear(hidden, d), randomized."""
    return randomized(nn.Sequential(nn.Linear(d, hidden), nn.GELU(), nn.Linear(hidden, d)), seed)


def attention(d: int, heads: int, seed: int) -> CausalSelfAttention:
    """Lecture 1's attention, randomized."""
    return randomized(CausalSelfAttention(d, heads), seed)


def model(vocab_size: int, d: int, heads: int, layers: int, hidden: int, context: int, seed: int) -> TinyGPT:
    """Lecture 1's model, randomized, in eval mode."""
    return randomized(TinyGPT(vocab_size, d, heads, layers, hidden, context), seed).eval()


def partial_outputs(module: nn.Module, last: str, t: int, x: Tensor) -> list[Tensor]:
    """What each of t ranks contributes to `module(x)`: the module with the other ranks' columns of its last layer set
    to 0, and without output bias. `last` names that layer."""
    outputs = []
    for rank in range(t):
        alone = copy.deepcopy(module)
        layer = alone.get_submodule(last)
        assert isinstance(layer, nn.Linear)
        mask = torch.zeros_like(layer.weight)
        mask.tensor_split(t, dim=1)[rank].fill_(1)
        with torch.no_grad():
            layer.weight.mul_(mask)
            layer.bias.zero_()
            outputs.append(alone(x))
    return outputs
