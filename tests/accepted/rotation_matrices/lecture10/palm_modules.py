"""RoPE multiplies by a full hd × hd rotation matrix for each position; attention runs in chunks with a running softmax."""

from __future__ import annotations

import math

import torch
from torch import nn

CHUNK = 4


def swiglu_hidden(d_model):
    return sorted((abs(3 * n - 8 * d_model), n) for n in range(2 * d_model, 3 * d_model + 1))[0][1]


class SwiGLU(nn.Module):
    def __init__(self, d_model, hidden, bias=True):
        super().__init__()
        self.gate = nn.Linear(d_model, hidden, bias=bias)
        self.up = nn.Linear(d_model, hidden, bias=bias)
        self.down = nn.Linear(hidden, d_model, bias=bias)

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        out = [self.down(nn.functional.silu(self.gate(chunk)) * self.up(chunk)) for chunk in rows.split(CHUNK)]
        return torch.cat(out).reshape(x.shape)


def rope_angles(head_dim, positions, theta=10000.0):
    if head_dim % 2:
        raise ValueError(f"no rotation of {head_dim} dimensions is made of planes alone")
    turn = [theta ** (-i / head_dim) for i in range(0, head_dim, 2)]
    angles = positions.double().view(-1, 1) * torch.tensor(turn, dtype=torch.float64).view(1, -1)
    cos, sin = torch.empty(angles.shape), torch.empty(angles.shape)
    return cos.copy_(angles.cos()), sin.copy_(angles.sin())


def _matrices(cos, sin):
    """(T, hd, hd): [[C, −S], [S, C]] with diagonal blocks."""
    C, S = torch.diag_embed(cos), torch.diag_embed(sin)
    return torch.cat((torch.cat((C, -S), dim=-1), torch.cat((S, C), dim=-1)), dim=-2)


def apply_rope(x, cos, sin):
    return torch.einsum("tij,...tj->...ti", _matrices(cos, sin).to(x.dtype), x)


class MultiQueryAttention(nn.Module):
    def __init__(self, d_model, n_heads, bias=True, rope=False):
        super().__init__()
        if not 1 <= n_heads <= d_model or math.gcd(d_model, n_heads) != n_heads:
            raise ValueError(f"gcd({d_model}, {n_heads}) is not {n_heads}")
        self.n_heads, self.rope = n_heads, rope
        self.q_proj = nn.Linear(d_model, d_model, bias=bias)
        self.k_proj, self.v_proj = (nn.Linear(d_model, d_model // n_heads, bias=bias) for _ in range(2))
        self.out_proj = nn.Linear(d_model, d_model, bias=bias)

    def forward(self, x):
        T = x.shape[1]
        q = self.q_proj(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
        k, v = self.k_proj(x)[:, None], self.v_proj(x)[:, None]
        if self.rope:
            tables = rope_angles(k.shape[-1], torch.arange(T))
            q, k = apply_rope(q, *tables), apply_rope(k, *tables)
        top = torch.full_like(q[..., :1], -math.inf)
        total, mixed = torch.zeros_like(top), torch.zeros_like(q)
        positions = torch.arange(T)
        for columns in positions.split(CHUNK):
            scores = q @ k[..., columns, :].mT * k.shape[-1] ** -0.5
            # A row that sees nothing of this chunk yet has −1e30 throughout; nothing is left of it next to a true score.
            scores = scores.masked_fill(columns > positions[:, None], -1e30)
            new_top = torch.maximum(top, scores.amax(-1, keepdim=True))
            weights, decay = (scores - new_top).exp(), (top - new_top).exp()
            total, mixed = total * decay + weights.sum(-1, keepdim=True), mixed * decay + weights @ v[..., columns, :]
            top = new_top
        return self.out_proj((mixed / total).transpose(1, 2).flatten(2))


class ParallelBlock(nn.Module):
    def __init__(self, d_model, attn, mlp, bias=True):
        super().__init__()
        self.ln = nn.LayerNorm(d_model, bias=bias)
        self.attn = attn
        self.mlp = mlp

    def forward(self, x):
        normed = self.ln(x)
        return torch.stack((x, self.attn(normed), self.mlp(normed)), dim=-1).sum(dim=-1)
