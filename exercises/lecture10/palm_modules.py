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
    raise NotImplementedError("to do: swiglu")


class SwiGLU(nn.Module):
    """Exercise `swiglu`: (…, d) to (…, d), down(silu(gate(x)) · up(x)).

    Submodules, all `nn.Linear`: `gate` and `up` (d to hidden), `down` (hidden to d).
    Source: Shazeer 2020, equation 6 (SwiGLU with β = 1).
    """

    def __init__(self, d_model: int, hidden: int, bias: bool = True) -> None:
        super().__init__()
        raise NotImplementedError("to do: swiglu")

    def forward(self, x: Tensor) -> Tensor:
        raise NotImplementedError("to do: swiglu")


def rope_angles(head_dim: int, positions: Tensor, theta: float = 10000.0) -> tuple[Tensor, Tensor]:
    """Exercise `rope`: cos and sin of the rotation angles, each (T, head_dim / 2).

    `positions` is an int64 tensor (T,). Dimension i of the first half turns by position · theta^(−2 i / head_dim).
    Computed in float64, because float32 angles are off from a few hundred positions on, and returned in the default
    dtype. An odd `head_dim` is a `ValueError`.
    Source: Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding", section 3.2.2.
    """
    raise NotImplementedError("to do: rope")


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Exercise `rope`: rotate queries or keys (…, T, head_dim) by the tables (T, head_dim / 2); x's dtype is kept.

    Half-split convention: dimension i is paired with i + head_dim / 2, and the pair (a, b) becomes
    (a cos − b sin, b cos + a sin).
    """
    raise NotImplementedError("to do: rope")


class MultiQueryAttention(nn.Module):
    """Exercise `multi_query_attention`: causal attention whose H query heads share one key and one value head.

    (B, T, d) to (B, T, d). Submodules, all `nn.Linear`: `q_proj` (d to d), `k_proj` and `v_proj` (d to hd),
    `out_proj` (d to d). With `rope=True` queries and keys are rotated at positions 0 … T − 1, θ 10000.
    `n_heads` not dividing `d_model` is a `ValueError`.
    Source: Shazeer 2019, "Fast Transformer Decoding: One Write-Head is All You Need", section 3.
    """

    def __init__(self, d_model: int, n_heads: int, bias: bool = True, rope: bool = False) -> None:
        super().__init__()
        raise NotImplementedError("to do: multi_query_attention")

    def forward(self, x: Tensor) -> Tensor:
        raise NotImplementedError("to do: multi_query_attention")


class ParallelBlock(nn.Module):
    """Exercise `parallel_block`: x + attn(ln(x)) + mlp(ln(x)), with one norm that both share. (B, T, d) to (B, T, d).

    `attn` and `mlp` are modules (B, T, d) to (B, T, d), kept under those names; `ln` is an `nn.LayerNorm(d)` with
    PyTorch's default eps, without a bias when `bias=False`.
    Source: PaLM, section 2, "Parallel Layers".
    """

    def __init__(self, d_model: int, attn: nn.Module, mlp: nn.Module, bias: bool = True) -> None:
        super().__init__()
        raise NotImplementedError("to do: parallel_block")

    def forward(self, x: Tensor) -> Tensor:
        raise NotImplementedError("to do: parallel_block")
