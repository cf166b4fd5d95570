"""All query heads meet the one key head in a single matrix product, as T · H rows; tables hold 4096 positions."""

import math
from fractions import Fraction

import torch
from torch import nn
from torch.nn import functional as F


def swiglu_hidden(d_model):
    return round(Fraction(8 * d_model, 3))


class SwiGLU(nn.Module):
    def __init__(self, d_model, hidden, bias=True):
        super().__init__()
        for name, sizes in {"up": (d_model, hidden), "gate": (d_model, hidden), "down": (hidden, d_model)}.items():
            self.add_module(name, nn.Linear(*sizes, bias))

    def forward(self, x):
        z = self.gate(x)
        return self.down(z.sigmoid().mul(z).mul_(self.up(x)))


def rope_angles(head_dim, positions, theta=10000.0):
    half, odd = divmod(head_dim, 2)
    if odd:
        raise ValueError("pairs need an even number of dimensions")
    exponents = torch.arange(half, dtype=torch.float64) * (-2 * math.log(theta) / head_dim)
    turns = torch.polar(*torch.broadcast_tensors(torch.tensor(1.0).double(), torch.outer(positions, exponents.exp())))
    return [part.to(torch.get_default_dtype()) for part in (turns.real, turns.imag)]


def apply_rope(x, cos, sin):
    half = x.shape[-1] // 2
    out = torch.empty_like(x)
    out[..., :half] = x[..., :half] * cos - x[..., half:] * sin
    out[..., half:] = x[..., half:] * cos + x[..., :half] * sin
    return out


class MultiQueryAttention(nn.Module):
    def __init__(self, d_model, n_heads, bias=True, rope=False):
        super().__init__()
        hd, rest = divmod(d_model, n_heads)
        if rest:
            raise ValueError("the heads must share the width evenly")
        self.hd = hd
        self.tables = rope_angles(hd, torch.arange(4096)) if rope else None
        self.q_proj, self.out_proj = (nn.Linear(d_model, d_model, bias) for _ in "qo")
        self.k_proj, self.v_proj = (nn.Linear(d_model, hd, bias) for _ in "kv")

    def forward(self, x):
        B, T, d = x.shape
        q, k, v = self.q_proj(x).view(B, T, -1, self.hd), self.k_proj(x), self.v_proj(x)
        if self.tables:
            cos, sin = (table[:T].to(x.dtype) for table in self.tables)
            q, k = apply_rope(q, cos[:, None], sin[:, None]), apply_rope(k, cos, sin)
        rows = q.reshape(B, -1, self.hd) @ k.mT / math.sqrt(self.hd)
        when = torch.arange(T).repeat_interleave(d // self.hd)
        weights = rows.masked_fill(when[:, None] < torch.arange(T), -1e30).softmax(-1)
        return self.out_proj((weights @ v).view(B, T, d))


class ParallelBlock(nn.Module):
    def __init__(self, d_model, attn, mlp, bias=True):
        super().__init__()
        self.ln, self.mlp, self.attn = nn.LayerNorm(d_model, bias=bias), mlp, attn

    def forward(self, x):
        n = F.layer_norm(x, self.ln.normalized_shape, self.ln.weight, self.ln.bias, self.ln.eps)
        return sum((branch(n) for branch in (self.mlp, self.attn)), start=x)
