"""RoPE in complex numbers: tables are the two parts of torch.polar, and a rotation is one complex product."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


def swiglu_hidden(d_model):
    return (8 * d_model + 1) // 3  # 8 d / 3 is never half-way between two integers


class SwiGLU(nn.Module):
    def __init__(self, d_model, hidden, bias=True):
        super().__init__()
        self.gate, self.up, self.down = (
            nn.Linear(i, o, bias) for i, o in ((d_model, hidden), (d_model, hidden), (hidden, d_model))
        )

    def forward(self, x):
        gate = self.gate(x)
        return self.down(gate * gate.sigmoid() * self.up(x))


def rope_angles(head_dim, positions, theta=10000.0):
    if head_dim & 1:
        raise ValueError(f"{head_dim} numbers don't make up complex ones")
    exponents = torch.arange(head_dim // 2, dtype=torch.float64) * (-2 / head_dim)
    angles = torch.outer(positions.to(torch.float64), torch.pow(torch.tensor(theta, dtype=torch.float64), exponents))
    turns = torch.polar(torch.ones_like(angles), angles)
    return turns.real.type(torch.get_default_dtype()), turns.imag.type(torch.get_default_dtype())


def apply_rope(x, cos, sin):
    half = x.shape[-1] // 2
    numbers = torch.complex(x[..., :half], x[..., half:])
    turned = numbers * torch.complex(cos.to(x.dtype), sin.to(x.dtype))
    return torch.cat((turned.real, turned.imag), dim=-1)


class MultiQueryAttention(nn.Module):
    def __init__(self, d_model, n_heads, bias=True, rope=False):
        super().__init__()
        if n_heads < 1 or d_model % n_heads:
            raise ValueError(f"{d_model} / {n_heads}")
        self.heads, self.size, self.rope = n_heads, d_model // n_heads, rope
        self.q_proj = nn.Linear(d_model, d_model, bias)
        self.k_proj = nn.Linear(d_model, self.size, bias)
        self.v_proj = nn.Linear(d_model, self.size, bias)
        self.out_proj = nn.Linear(d_model, d_model, bias)

    def forward(self, x):
        B, T, d = x.shape
        q = self.q_proj(x).reshape(B, T, self.heads, self.size).transpose(1, 2)
        k, v = self.k_proj(x)[:, None], self.v_proj(x)[:, None]
        if self.rope:
            tables = rope_angles(self.size, torch.arange(T, device=x.device))
            q, k = apply_rope(q, *tables), apply_rope(k, *tables)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # the one head broadcasts
        return self.out_proj(out.transpose(1, 2).reshape(B, T, d))


class ParallelBlock(nn.Module):
    def __init__(self, d_model, attn, mlp, bias=True):
        super().__init__()
        self.ln = nn.LayerNorm(d_model, bias=bias)
        self.attn, self.mlp = attn, mlp

    def forward(self, x):
        h = self.ln(x)
        return sum((self.attn(h), self.mlp(h)), start=x)
