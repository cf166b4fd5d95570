"""Tables and masks live in caches of the module, keyed by length, dtype and device, and shared by all instances."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Final

import torch
from torch import nn
from torch.nn import functional as F

THETA: Final = 10000.0
_tables: dict[tuple, tuple[torch.Tensor, torch.Tensor]] = {}


@cache
def swiglu_hidden(d_model: int) -> int:
    return round(d_model * 8 / 3)


class SwiGLU(nn.Module):
    def __init__(self, d_model: int, hidden: int, bias: bool = True) -> None:
        super().__init__()
        kind = dict(bias=bias)
        self.gate = nn.Linear(d_model, hidden, **kind)
        self.up = nn.Linear(d_model, hidden, **kind)
        self.down = nn.Linear(hidden, d_model, **kind)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


@lru_cache(maxsize=8)
def _frequencies(head_dim: int, theta: float) -> torch.Tensor:
    return torch.tensor([theta ** (-2 * i / head_dim) for i in range(head_dim // 2)], dtype=torch.float64)


def rope_angles(head_dim, positions, theta=THETA):
    if head_dim % 2:
        raise ValueError(f"RoPE turns pairs, and {head_dim} is odd")
    key = (head_dim, tuple(positions.tolist()), float(theta), torch.get_default_dtype(), positions.device)
    if key not in _tables:
        angles = positions.double()[:, None] * _frequencies(head_dim, float(theta))
        _tables[key] = angles.cos().to(key[3]), angles.sin().to(key[3])
    return _tables[key]


def apply_rope(x, cos, sin):
    left, right = x.split(x.shape[-1] // 2, dim=-1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)


@lru_cache(maxsize=16)
def _future(T: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.full((T, T), float("-inf"), dtype=dtype, device=device).triu(1)


class MultiQueryAttention(nn.Module):
    def __init__(self, d_model, n_heads, bias=True, rope=False):
        super().__init__()
        if d_model % max(n_heads, 1) or n_heads < 1:
            raise ValueError(f"{n_heads=} {d_model=}")
        self.n_heads, self.rope = n_heads, rope
        self.q_proj = nn.Linear(d_model, d_model, bias=bias)
        self.k_proj = nn.Linear(d_model, d_model // n_heads, bias=bias)
        self.v_proj = nn.Linear(d_model, d_model // n_heads, bias=bias)
        self.out_proj = nn.Linear(d_model, d_model, bias=bias)

    def forward(self, x):
        T = x.shape[-2]
        q, k, v = self.q_proj(x).unflatten(-1, (self.n_heads, -1)), self.k_proj(x), self.v_proj(x)
        if self.rope:
            cos, sin = rope_angles(k.shape[-1], torch.arange(T))
            q, k = apply_rope(q, cos[:, None], sin[:, None]), apply_rope(k, cos, sin)
        scores = torch.einsum("bqhe,bke->bhqk", q, k) * k.shape[-1] ** -0.5 + _future(T, x.dtype, x.device)
        return self.out_proj(torch.einsum("bhqk,bke->bqhe", scores.softmax(-1), v).flatten(-2))


class ParallelBlock(nn.Module):
    def __init__(self, d_model, attn, mlp, bias=True):
        super().__init__()
        self.ln = nn.LayerNorm(d_model, bias=bias)
        self.attn = attn
        self.mlp = mlp

    def forward(self, x):
        normed = self.ln(x)
        return self.mlp(normed) + self.attn(normed) + x
