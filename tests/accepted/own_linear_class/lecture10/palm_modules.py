"""Linear layers are a subclass of nn.Linear that makes its own parameters, in another order and by another initialisation."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class Linear(nn.Linear):
    def __init__(self, n_in: int, n_out: int, bias: bool) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = n_in, n_out
        self.register_parameter("bias", nn.Parameter(torch.zeros(n_out)) if bias else None)
        self.weight = nn.Parameter(nn.init.xavier_normal_(torch.empty(n_out, n_in)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.tensordot(x, self.weight, dims=([-1], [1]))
        return out if self.bias is None else out + self.bias


def swiglu_hidden(d_model: int) -> int:
    return -(-(8 * d_model - 1) // 3)  # rounding up what is a third too small


class SwiGLU(nn.Module):
    def __init__(self, d_model: int, hidden: int, bias: bool = True) -> None:
        super().__init__()
        self.down = Linear(hidden, d_model, bias)
        self.up = Linear(d_model, hidden, bias)
        self.gate = Linear(d_model, hidden, bias)

    def forward(self, x):
        return self.down(self.up(x) * F.silu(self.gate(x)))


def rope_angles(head_dim: int, positions: torch.Tensor, theta: float = 10000.0):
    if head_dim % 2:
        raise ValueError("head_dim can't be odd")
    steps = torch.linspace(0, head_dim - 2, head_dim // 2, dtype=torch.float64) / head_dim
    angles = torch.kron(positions.double()[:, None], (theta**-steps)[None])
    both = torch.stack((angles.cos(), angles.sin())).to(torch.get_default_dtype())
    return both.unbind()


def apply_rope(x, cos, sin):
    pairs = x.unflatten(-1, (2, -1))  # (…, T, 2, hd/2): the two halves
    swapped = torch.stack((-pairs[..., 1, :], pairs[..., 0, :]), dim=-2)
    return (pairs * cos[:, None] + swapped * sin[:, None]).flatten(-2)


class MultiQueryAttention(nn.Module):
    def __init__(self, d_model: int, n_heads: int, bias: bool = True, rope: bool = False) -> None:
        super().__init__()
        if n_heads < 1 or d_model % n_heads:
            raise ValueError(f"{d_model} doesn't split into {n_heads}")
        self.out_proj = Linear(d_model, d_model, bias)
        self.rope, self.n_heads = rope, n_heads
        for letter in "vkq":
            self.add_module(f"{letter}_proj", Linear(d_model, d_model if letter == "q" else d_model // n_heads, bias))

    def forward(self, x):
        q = self.q_proj(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
        k, v = self.k_proj(x), self.v_proj(x)
        if self.rope:
            cos, sin = rope_angles(k.shape[-1], torch.arange(x.shape[1]))
            q, k = apply_rope(q, cos, sin), apply_rope(k, cos, sin)
        stacked = [F.scaled_dot_product_attention(q_h, k, v, is_causal=True) for q_h in q.unbind(1)]
        return self.out_proj(torch.cat(stacked, dim=-1))


class ParallelBlock(nn.Module):
    def __init__(self, d_model: int, attn: nn.Module, mlp: nn.Module, bias: bool = True) -> None:
        super().__init__()
        self.mlp, self.attn, self.ln = mlp, attn, nn.LayerNorm(d_model, bias=bias)

    def forward(self, x):
        normed = F.layer_norm(x, self.ln.normalized_shape, self.ln.weight, self.ln.bias, self.ln.eps)
        return x + self.attn(normed) + self.mlp(normed)
