"""Lecture 10, exercises 1 to 4: the modules that PaLM changed in the transformer block.

Shapes: B sequences, T positions, d width, H heads, hd = d / H.
With `bias=False` no parameter named bias exists anywhere in a module.

Source: Chowdhery et al. 2022, "PaLM: Scaling Language Modeling with Pathways", section 2.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def swiglu_hidden(d_model: int) -> int:
    """Exercise `swiglu`: the hidden width that gives three matrices the size of a 4 d MLP's two: 8 d / 3.

    Rounded to the nearest integer: 171 for d = 64. Source: Shazeer 2020, "GLU Variants Improve Transformer",
    section 2.
    """
    ### BEGIN SOLUTION
    return round(8 * d_model / 3)
    ### END SOLUTION


class SwiGLU(nn.Module):
    """Exercise `swiglu`: (…, d) to (…, d), down(silu(gate(x)) · up(x)).

    Submodules, all `nn.Linear`: `gate` and `up` (d to hidden), `down` (hidden to d).
    Source: Shazeer 2020, equation 6 (SwiGLU with β = 1).
    """

    def __init__(self, d_model: int, hidden: int, bias: bool = True) -> None:
        super().__init__()
        ### BEGIN SOLUTION
        self.gate = nn.Linear(d_model, hidden, bias=bias)
        self.up = nn.Linear(d_model, hidden, bias=bias)
        self.down = nn.Linear(hidden, d_model, bias=bias)
        ### END SOLUTION

    def forward(self, x: Tensor) -> Tensor:
        ### BEGIN SOLUTION
        return self.down(F.silu(self.gate(x)) * self.up(x))
        ### END SOLUTION


def rope_angles(head_dim: int, positions: Tensor, theta: float = 10000.0) -> tuple[Tensor, Tensor]:
    """Exercise `rope`: cos and sin of the rotation angles, each (T, head_dim / 2).

    `positions` is an int64 tensor (T,). Dimension i of the first half turns by position · theta^(−2 i / head_dim).
    Computed in float64, because float32 angles are off from a few hundred positions on, and returned in the default
    dtype. An odd `head_dim` is a `ValueError`.
    Source: Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding", section 3.2.2.
    """
    ### BEGIN SOLUTION
    if head_dim % 2:
        raise ValueError(f"head_dim = {head_dim} is odd; RoPE rotates pairs, so it must be even")
    frequencies = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angles = positions.double()[:, None] * frequencies
    dtype = torch.get_default_dtype()
    return angles.cos().to(dtype), angles.sin().to(dtype)
    ### END SOLUTION


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Exercise `rope`: rotate queries or keys (…, T, head_dim) by the tables (T, head_dim / 2); x's dtype is kept.

    Half-split convention: dimension i is paired with i + head_dim / 2, and the pair (a, b) becomes
    (a cos − b sin, b cos + a sin).
    """
    ### BEGIN SOLUTION
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
    ### END SOLUTION


class MultiQueryAttention(nn.Module):
    """Exercise `multi_query_attention`: causal attention whose H query heads share one key and one value head.

    (B, T, d) to (B, T, d). Submodules, all `nn.Linear`: `q_proj` (d to d), `k_proj` and `v_proj` (d to hd),
    `out_proj` (d to d). With `rope=True` queries and keys are rotated at positions 0 … T − 1, θ 10000.
    `n_heads` not dividing `d_model` is a `ValueError`.
    Source: Shazeer 2019, "Fast Transformer Decoding: One Write-Head is All You Need", section 3.
    """

    def __init__(self, d_model: int, n_heads: int, bias: bool = True, rope: bool = False) -> None:
        super().__init__()
        ### BEGIN SOLUTION
        if n_heads < 1 or d_model % n_heads:
            raise ValueError(f"n_heads = {n_heads} does not divide d_model = {d_model}")
        self.n_heads = n_heads
        self.head_dim = d_model // n_heads
        self.rope = rope
        self.q_proj = nn.Linear(d_model, d_model, bias=bias)
        self.k_proj = nn.Linear(d_model, self.head_dim, bias=bias)
        self.v_proj = nn.Linear(d_model, self.head_dim, bias=bias)
        self.out_proj = nn.Linear(d_model, d_model, bias=bias)
        ### END SOLUTION

    def forward(self, x: Tensor) -> Tensor:
        ### BEGIN SOLUTION
        q = self.q_proj(x).unflatten(-1, (self.n_heads, self.head_dim)).transpose(1, 2)  # (B, H, T, hd)
        k = self.k_proj(x).unsqueeze(1)  # (B, 1, T, hd)
        v = self.v_proj(x).unsqueeze(1)
        if self.rope:
            cos, sin = rope_angles(self.head_dim, torch.arange(x.shape[1]))
            q, k = apply_rope(q, cos, sin), apply_rope(k, cos, sin)
        heads = F.scaled_dot_product_attention(q, k.expand_as(q), v.expand_as(q), is_causal=True)
        return self.out_proj(heads.transpose(1, 2).flatten(2))
        ### END SOLUTION


class ParallelBlock(nn.Module):
    """Exercise `parallel_block`: x + attn(ln(x)) + mlp(ln(x)), with one norm that both share. (B, T, d) to (B, T, d).

    `attn` and `mlp` are modules (B, T, d) to (B, T, d), kept under those names; `ln` is an `nn.LayerNorm(d)` with
    PyTorch's default eps, without a bias when `bias=False`.
    Source: PaLM, section 2, "Parallel Layers".
    """

    def __init__(self, d_model: int, attn: nn.Module, mlp: nn.Module, bias: bool = True) -> None:
        super().__init__()
        ### BEGIN SOLUTION
        self.ln = nn.LayerNorm(d_model, bias=bias)
        self.attn = attn
        self.mlp = mlp
        ### END SOLUTION

    def forward(self, x: Tensor) -> Tensor:
        ### BEGIN SOLUTION
        normed = self.ln(x)
        return x + self.attn(normed) + self.mlp(normed)
        ### END SOLUTION
