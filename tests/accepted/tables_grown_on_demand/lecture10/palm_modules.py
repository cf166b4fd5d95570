"""Tables start empty in non-persistent buffers and grow to the longest sequence seen; heads are read with enable_gqa."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def swiglu_hidden(d_model: int) -> int:
    return int(f"{8 * d_model / 3:.0f}")


class SwiGLU(nn.Module):
    def __init__(self, d_model: int, hidden: int, bias: bool = True) -> None:
        super().__init__()
        self.add_module("up", nn.Linear(d_model, hidden, bias=bias))
        self.add_module("gate", nn.Linear(d_model, hidden, bias=bias))
        self.add_module("down", nn.Linear(hidden, d_model, bias=bias))

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.mul(F.silu(self.gate(x)), self.up(x)))


def rope_angles(head_dim: int, positions: Tensor, theta: float = 10000.0) -> tuple[Tensor, Tensor]:
    if head_dim % 2 == 1:
        raise ValueError(f"head_dim = {head_dim}")
    log_frequencies = -torch.log(torch.tensor(theta, dtype=torch.float64)) * torch.arange(0, head_dim, 2) / head_dim
    angles = positions.double().reshape(-1, 1) @ log_frequencies.exp().reshape(1, -1)
    return angles.cos().to(torch.get_default_dtype()), angles.sin().to(torch.get_default_dtype())


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    out = torch.empty_like(x)
    half = x.shape[-1] // 2
    out[..., :half] = x[..., :half] * cos - x[..., half:] * sin
    out[..., half:] = x[..., half:] * cos + x[..., :half] * sin
    return out


class MultiQueryAttention(nn.Module):
    def __init__(self, d_model: int, n_heads: int, bias: bool = True, rope: bool = False) -> None:
        super().__init__()
        if n_heads < 1 or d_model % n_heads:
            raise ValueError(f"{n_heads} heads can't share {d_model}")
        self.head_dim = d_model // n_heads
        self.use_rope = rope
        self.k_proj = nn.Linear(d_model, self.head_dim, bias=bias)
        self.v_proj = nn.Linear(d_model, self.head_dim, bias=bias)
        self.q_proj = nn.Linear(d_model, d_model, bias=bias)
        self.out_proj = nn.Linear(d_model, d_model, bias=bias)
        if rope:
            self.register_buffer("tables", torch.empty(2, 0, self.head_dim // 2), persistent=False)

    def _tables_for(self, x: Tensor) -> Tensor:
        T = x.shape[1]
        if self.tables.shape[1] < T or self.tables.dtype != x.dtype:
            self.tables = torch.stack(rope_angles(self.head_dim, torch.arange(T))).to(x)
        return self.tables[:, :T]

    def forward(self, x: Tensor) -> Tensor:
        q = self.q_proj(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        k = self.k_proj(x).unsqueeze(1)
        v = self.v_proj(x).unsqueeze(1)
        if self.use_rope:
            q, k = apply_rope(q, *self._tables_for(x)), apply_rope(k, *self._tables_for(x))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.out_proj(out.transpose(1, 2).flatten(2))


class ParallelBlock(nn.Module):
    def __init__(self, d_model: int, attn: nn.Module, mlp: nn.Module, bias: bool = True) -> None:
        super().__init__()
        self.attn = attn
        self.mlp = mlp
        self.ln = nn.LayerNorm((d_model,), bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        branches = [branch(self.ln(x)) for branch in (self.attn, self.mlp)]
        return torch.stack([x, *branches]).sum(dim=0)
