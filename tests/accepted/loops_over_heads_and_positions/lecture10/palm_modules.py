"""Attention, rotation and tables in Python loops over heads, positions and pairs, with math.cos and math.sin."""

from __future__ import annotations

import math

import torch
from torch import nn


def swiglu_hidden(d_model):
    exact, best = 8 * d_model / 3, 0
    for candidate in range(3 * d_model + 1):
        if abs(candidate - exact) < abs(best - exact):
            best = candidate
    return best


class SwiGLU(nn.Module):
    def __init__(self, d_model, hidden, bias=True):
        super().__init__()
        for name, sizes in {"gate": (d_model, hidden), "up": (d_model, hidden), "down": (hidden, d_model)}.items():
            setattr(self, name, nn.Linear(*sizes, bias=bias))

    def forward(self, x):
        gate = self.gate(x)
        return self.down(gate / (1 + torch.exp(-gate)) * self.up(x))


def rope_angles(head_dim, positions, theta=10000.0):
    if head_dim // 2 * 2 != head_dim:
        raise ValueError("head_dim " + str(head_dim) + " is odd")
    cos, sin = [], []
    for position in positions.tolist():
        angles = [position / theta ** (2 * i / head_dim) for i in range(head_dim // 2)]
        cos.append([math.cos(angle) for angle in angles])
        sin.append([math.sin(angle) for angle in angles])
    return torch.tensor(cos), torch.tensor(sin)


def apply_rope(x, cos, sin):
    half = x.shape[-1] // 2
    columns = [None] * (2 * half)
    for i in range(half):
        a, b = x[..., i], x[..., i + half]
        columns[i] = a * cos[:, i] - b * sin[:, i]
        columns[i + half] = b * cos[:, i] + a * sin[:, i]
    return torch.stack(columns, dim=-1)


class MultiQueryAttention(nn.Module):
    def __init__(self, d_model, n_heads, bias=True, rope=False):
        super().__init__()
        if n_heads < 1 or d_model // n_heads * n_heads != d_model:
            raise ValueError(f"{n_heads} heads and a width of {d_model}")
        self.n_heads, self.size, self.rope = n_heads, d_model // n_heads, rope
        self.q_proj = nn.Linear(d_model, d_model, bias=bias)
        self.k_proj = nn.Linear(d_model, self.size, bias=bias)
        self.v_proj = nn.Linear(d_model, self.size, bias=bias)
        self.out_proj = nn.Linear(d_model, d_model, bias=bias)

    def forward(self, x):
        T = x.shape[1]
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        heads = []
        for head in range(self.n_heads):
            q_h, k_h = q[..., head * self.size : (head + 1) * self.size], k
            if self.rope:
                tables = rope_angles(self.size, torch.arange(T))
                q_h, k_h = apply_rope(q_h, *tables), apply_rope(k_h, *tables)
            rows = []
            for position in range(T):
                scores = (q_h[:, position, None] * k_h[:, : position + 1]).sum(-1) / math.sqrt(self.size)
                weights = torch.softmax(scores, dim=-1)
                rows.append((weights[..., None] * v[:, : position + 1]).sum(1))
            heads.append(torch.stack(rows, dim=1))
        return self.out_proj(torch.cat(heads, dim=-1))


class ParallelBlock(nn.Module):
    def __init__(self, d_model, attn, mlp, bias=True):
        super().__init__()
        self.ln = nn.LayerNorm(d_model, bias=bias)
        self.attn = attn
        self.mlp = mlp

    def forward(self, x):
        normed = self.ln(x)
        for branch in self.attn, self.mlp:
            x = x + branch(normed)
        return x
