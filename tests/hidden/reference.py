"""The palm modules written out from the papers' formulas, as functions of their parameters. Never given to a student.

Sources: Shazeer 2020 (SwiGLU, equation 6), Su et al. 2021 (RoPE, section 3.2.2, here as complex numbers), Shazeer
2019 (multi-query attention, section 3), Chowdhery et al. 2022 (parallel layers, section 2), Ba et al. 2016
(LayerNorm).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

State = dict[str, Tensor]


def linear(state: State, name: str, x: Tensor) -> Tensor:
    return x @ state[f"{name}.weight"].transpose(0, 1) + state.get(f"{name}.bias", 0)


def layer_norm(state: State, name: str, x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    variance = (centred * centred).mean(-1, keepdim=True)
    return centred / (variance + 1e-5).sqrt() * state[f"{name}.weight"] + state.get(f"{name}.bias", 0)


def swiglu(state: State, x: Tensor) -> Tensor:
    gate = linear(state, "gate", x)
    return linear(state, "down", gate / (1 + torch.exp(-gate)) * linear(state, "up", x))


def angles(head_dim: int, positions: Tensor, theta: float = 10000.0) -> Tensor:
    """(T, head_dim / 2) in float64, each angle from Python's own arithmetic."""
    rows = [[p * theta ** (-2 * i / head_dim) for i in range(head_dim // 2)] for p in positions.tolist()]
    return torch.tensor(rows, dtype=torch.float64).reshape(len(positions), head_dim // 2)


def rotated(x: Tensor, turn: Tensor) -> Tensor:
    """x (…, T, hd) as complex numbers, turned by the angles (T, hd / 2); x's dtype is kept."""
    half = x.shape[-1] // 2
    turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(turn), turn)
    return torch.cat((turned.real, turned.imag), dim=-1).to(x.dtype)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention, (…, T, hd)."""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    weights = torch.exp(scores.masked_fill(future, -math.inf) - scores.detach().amax(-1, keepdim=True))
    return weights / weights.sum(-1, keepdim=True) @ v


def multi_query_attention(
    state: State, x: Tensor, heads: int, rope: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """`rope` rotates a tensor (…, T, hd) at positions 0 … T − 1; None for no positions."""
    rope = rope or (lambda value: value)
    q = linear(state, "q_proj", x)
    q = q.reshape(*q.shape[:-1], heads, -1).transpose(-2, -3)
    k, v = (linear(state, name, x).unsqueeze(-3) for name in ("k_proj", "v_proj"))
    out = attention(rope(q), rope(k), v)
    return linear(state, "out_proj", out.transpose(-2, -3).reshape(x.shape))


def rope_of(head_dim: int) -> Callable[[Tensor], Tensor]:
    """The rotation at positions 0 … T − 1, θ 10000."""
    return lambda x: rotated(x, angles(head_dim, torch.arange(x.shape[-2])))
