"""Cosines, sines and the causal mask are persistent buffers, made at construction for 64 positions and doubled when short."""

from __future__ import annotations

import torch
from torch import nn


def swiglu_hidden(d_model):
    low, rest = divmod(8 * d_model, 3)
    return low + (rest == 2)


class SwiGLU(nn.Module):
    def __init__(self, d_model, hidden, bias=True):
        super().__init__()
        self.gate = nn.Linear(d_model, hidden, bias=bias)
        self.up = nn.Linear(d_model, hidden, bias=bias)
        self.down = nn.Linear(hidden, d_model, bias=bias)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        return self.down(nn.functional.silu(self.gate(x)).mul(self.up(x)))


def rope_angles(head_dim, positions, theta=10000.0):
    if head_dim % 2:
        raise ValueError(f"odd head_dim {head_dim}")
    i = torch.arange(head_dim // 2, dtype=torch.float64)
    angles = positions.unsqueeze(1) * theta ** (-2 * i / head_dim)
    return tuple(table.to(torch.get_default_dtype()) for table in (torch.cos(angles), torch.sin(angles)))


def apply_rope(x, cos, sin):
    first, second = x.tensor_split(2, dim=-1)
    return torch.stack((first * cos - second * sin, second * cos + first * sin), dim=-2).flatten(-2)


class MultiQueryAttention(nn.Module):
    def __init__(self, d_model, n_heads, bias=True, rope=False):
        super().__init__()
        if n_heads not in range(1, d_model + 1) or d_model % n_heads:
            raise ValueError(f"n_heads {n_heads}, d_model {d_model}")
        self.n_heads, self.rope = n_heads, rope
        size = d_model // n_heads
        self.q_proj = nn.Linear(d_model, d_model, bias=bias)
        self.k_proj = nn.Linear(d_model, size, bias=bias)
        self.v_proj = nn.Linear(d_model, size, bias=bias)
        self.out_proj = nn.Linear(d_model, d_model, bias=bias)
        self._make_tables(64)

    def _make_tables(self, length):
        self.register_buffer("future", torch.ones(length, length, dtype=torch.bool).triu(1))
        if self.rope:
            cos, sin = rope_angles(self.k_proj.out_features, torch.arange(length))
            self.register_buffer("cos", cos)
            self.register_buffer("sin", sin)

    def forward(self, x):
        B, T, d = x.shape
        if len(self.future) < T:
            self._make_tables(2 * T)
        q = self.q_proj(x).unflatten(2, (self.n_heads, -1)).transpose(1, 2)
        k, v = self.k_proj(x), self.v_proj(x)
        if self.rope:
            q, k = (apply_rope(z, self.cos[:T], self.sin[:T]) for z in (q, k))
        scores = q @ k.mT[:, None] / k.shape[-1] ** 0.5
        weights = scores.masked_fill(self.future[:T, :T], -torch.inf).softmax(-1)
        return self.out_proj((weights @ v[:, None]).transpose(1, 2).reshape(B, T, d))


class ParallelBlock(nn.Module):
    def __init__(self, d_model, attn, mlp, bias=True):
        super().__init__()
        self.ln = nn.LayerNorm(d_model, bias=bias)
        self.attn = attn
        self.mlp = mlp
        self.register_buffer("one", torch.ones(()))

    def forward(self, x):
        normed = self.ln(x)
        return self.one * x + self.attn(normed) + self.mlp(normed)
