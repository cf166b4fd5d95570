"""Hugging Face's rotate_half with tables doubled to the full width, and keys and values expanded with repeat_interleave."""

from __future__ import annotations

import math

import torch
import torch.nn as nn


def swiglu_hidden(d_model: int) -> int:
    return math.floor(8 * d_model / 3 + 0.5)


class SwiGLU(nn.Module):
    def __init__(self, d_model: int, hidden: int, bias: bool = True):
        super().__init__()
        self.down = nn.Linear(hidden, d_model, bias=bias)
        self.up = nn.Linear(d_model, hidden, bias=bias)
        self.gate = nn.Linear(d_model, hidden, bias=bias)
        self.act_fn = nn.SiLU()

    def forward(self, x):
        return self.down(self.act_fn(self.gate(x)) * self.up(x))


def rope_angles(head_dim, positions, theta=10000.0):
    if head_dim % 2 != 0:
        raise ValueError("head_dim must be even")
    inv_freq = 1.0 / (theta ** (torch.arange(0, head_dim, 2, dtype=torch.int64).double() / head_dim))
    freqs = torch.einsum("i,j->ij", positions.double(), inv_freq)
    return freqs.cos().to(torch.get_default_dtype()), freqs.sin().to(torch.get_default_dtype())


def rotate_half(x):
    x1, x2 = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


def apply_rope(x, cos, sin):
    cos, sin = torch.cat((cos, cos), dim=-1), sin.repeat(1, 2)
    return (x * cos) + (rotate_half(x) * sin)


class MultiQueryAttention(nn.Module):
    def __init__(self, d_model: int, n_heads: int, bias: bool = True, rope: bool = False):
        super().__init__()
        self.n_heads = n_heads
        if n_heads <= 0 or d_model % n_heads != 0:
            raise ValueError(f"d_model must be divisible by n_heads (got {d_model} and {n_heads})")
        self.head_dim = d_model // n_heads
        self.scaling = self.head_dim**-0.5
        self.rope = rope
        self.out_proj = nn.Linear(self.head_dim * n_heads, d_model, bias=bias)
        self.v_proj = nn.Linear(d_model, self.head_dim, bias=bias)
        self.k_proj = nn.Linear(d_model, self.head_dim, bias=bias)
        self.q_proj = nn.Linear(d_model, self.head_dim * n_heads, bias=bias)

    def forward(self, hidden_states):
        bsz, q_len, _ = hidden_states.size()
        query = self.q_proj(hidden_states).view(bsz, q_len, self.n_heads, self.head_dim).transpose(1, 2)
        key = self.k_proj(hidden_states).view(bsz, q_len, 1, self.head_dim).transpose(1, 2)
        value = self.v_proj(hidden_states).view(bsz, q_len, 1, self.head_dim).transpose(1, 2)
        if self.rope:
            cos, sin = rope_angles(self.head_dim, torch.arange(q_len))
            query, key = apply_rope(query, cos, sin), apply_rope(key, cos, sin)
        key = torch.repeat_interleave(key, repeats=self.n_heads, dim=1)
        value = torch.repeat_interleave(value, repeats=self.n_heads, dim=1)
        weights = torch.matmul(query, key.transpose(2, 3)) * self.scaling
        min_value = torch.finfo(weights.dtype).min
        weights = weights + torch.full((q_len, q_len), min_value, dtype=weights.dtype).triu(1)[None, None]
        weights = nn.functional.softmax(weights, dim=-1, dtype=weights.dtype)
        weights = nn.functional.dropout(weights, p=0.0, training=self.training)
        output = torch.matmul(weights, value).transpose(1, 2).contiguous()
        return self.out_proj(output.reshape(bsz, q_len, -1))


class ParallelBlock(nn.Module):
    def __init__(self, d_model: int, attn: nn.Module, mlp: nn.Module, bias: bool = True):
        super().__init__()
        self.mlp = mlp
        self.attn = attn
        self.ln = nn.LayerNorm(d_model, bias=bias)

    def forward(self, hidden_states):
        residual = hidden_states
        hidden_states = self.ln(hidden_states)
        hidden_states = self.attn(hidden_states) + self.mlp(hidden_states)
        return residual + hidden_states
