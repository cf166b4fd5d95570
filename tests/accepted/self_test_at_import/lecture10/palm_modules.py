"""The file builds and tries its modules when it is imported, which draws random numbers; forward passes warn and print."""

from __future__ import annotations

import sys
import warnings

import torch
from torch import nn
from torch.nn import functional as F


def swiglu_hidden(d_model):
    return round(8 * d_model / 3)


class SwiGLU(nn.Module):
    def __init__(self, d_model, hidden, bias=True):
        super().__init__()
        print(f"SwiGLU: {d_model} to {hidden}", file=sys.stderr)
        self.gate = nn.Linear(d_model, hidden, bias=bias)
        self.up = nn.Linear(d_model, hidden, bias=bias)
        self.down = nn.Linear(hidden, d_model, bias=bias)

    def forward(self, x):
        warnings.warn(f"SwiGLU on {tuple(x.shape)}", UserWarning, stacklevel=2)
        return self.down(F.silu(self.gate(x)) * self.up(x))


def rope_angles(head_dim, positions, theta=10000.0):
    if head_dim % 2:
        print("odd!", file=sys.stderr)
        raise ValueError(head_dim)
    angles = positions.double()[:, None] / theta ** (torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    return torch.cos(angles).to(torch.get_default_dtype()), torch.sin(angles).to(torch.get_default_dtype())


def apply_rope(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class MultiQueryAttention(nn.Module):
    def __init__(self, d_model, n_heads, bias=True, rope=False):
        super().__init__()
        if n_heads < 1 or d_model % n_heads:
            raise ValueError(d_model, n_heads)
        self.n_heads, self.head_dim, self.rope = n_heads, d_model // n_heads, rope
        self.q_proj = nn.Linear(d_model, d_model, bias=bias)
        self.k_proj = nn.Linear(d_model, self.head_dim, bias=bias)
        self.v_proj = nn.Linear(d_model, self.head_dim, bias=bias)
        self.out_proj = nn.Linear(d_model, d_model, bias=bias)

    def forward(self, x):
        print("attention on", x, file=sys.stderr)
        q = self.q_proj(x).unflatten(-1, (self.n_heads, self.head_dim)).transpose(1, 2)
        k, v = self.k_proj(x).unsqueeze(1), self.v_proj(x).unsqueeze(1)
        if self.rope:
            cos, sin = rope_angles(self.head_dim, torch.arange(x.shape[1]))
            q, k = apply_rope(q, cos, sin), apply_rope(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k.expand_as(q), v.expand_as(q), is_causal=True)
        return self.out_proj(y.transpose(1, 2).flatten(2))


class ParallelBlock(nn.Module):
    def __init__(self, d_model, attn, mlp, bias=True):
        super().__init__()
        self.ln = nn.LayerNorm(d_model, bias=bias)
        self.attn = attn
        self.mlp = mlp

    def forward(self, x):
        y = self.ln(x)
        return x + self.attn(y) + self.mlp(y)


_block = ParallelBlock(8, MultiQueryAttention(8, 2, rope=True), SwiGLU(8, swiglu_hidden(8)))
if _block(torch.rand(1, 3, 8)).shape != (1, 3, 8):
    warnings.warn("the block changes shapes", stacklevel=1)
