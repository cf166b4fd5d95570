"""Gate and up are one matrix product on joined weights, with a backward pass written by hand; q, k, v are one as well."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


def swiglu_hidden(d_model: int) -> int:
    return round(8 * d_model / 3)


class _Gated(torch.autograd.Function):
    """silu(a) · b for the two halves a, b of the last axis."""

    @staticmethod
    def forward(ctx, both: Tensor) -> Tensor:
        ctx.save_for_backward(both)
        a, b = both.chunk(2, dim=-1)
        return a * a.sigmoid() * b

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> Tensor:
        (both,) = ctx.saved_tensors
        a, b = both.chunk(2, dim=-1)
        s = a.sigmoid()
        return torch.cat((grad * b * (s + a * s * (1 - s)), grad * a * s), dim=-1)


def _joined(x: Tensor, *layers: nn.Linear) -> Tensor:
    """The outputs of several linear layers side by side, by one product."""
    weight = torch.cat([layer.weight for layer in layers])
    bias = None if layers[0].bias is None else torch.cat([layer.bias for layer in layers])
    return F.linear(x, weight, bias)


class SwiGLU(nn.Module):
    def __init__(self, d_model: int, hidden: int, bias: bool = True) -> None:
        super().__init__()
        self.gate = nn.Linear(d_model, hidden, bias=bias)
        self.up = nn.Linear(d_model, hidden, bias=bias)
        self.down = nn.Linear(hidden, d_model, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(_Gated.apply(_joined(x, self.gate, self.up)))


def rope_angles(head_dim: int, positions: Tensor, theta: float = 10000.0) -> tuple[Tensor, Tensor]:
    if head_dim % 2:
        raise ValueError(f"head_dim {head_dim} leaves one dimension without a partner")
    base = torch.full((head_dim // 2,), theta, dtype=torch.float64) ** (-2 / head_dim)
    powers = base.pow(torch.arange(head_dim // 2))
    angles = positions[:, None] * powers
    return angles.cos().to(torch.get_default_dtype()), angles.sin().to(torch.get_default_dtype())


class _Turn(torch.autograd.Function):
    """The rotation is orthogonal, so its backward pass is the rotation by the opposite angle."""

    @staticmethod
    def forward(ctx, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _Turn.turned(x, cos, sin)

    @staticmethod
    def backward(ctx, grad: Tensor):
        cos, sin = ctx.saved_tensors
        return _Turn.turned(grad, cos, -sin), None, None

    @staticmethod
    def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        a, b = x.chunk(2, dim=-1)
        return torch.cat((torch.addcmul(a * cos, b, sin, value=-1), torch.addcmul(b * cos, a, sin)), dim=-1)


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return _Turn.apply(x, cos.to(x.dtype), sin.to(x.dtype))


class MultiQueryAttention(nn.Module):
    def __init__(self, d_model: int, n_heads: int, bias: bool = True, rope: bool = False) -> None:
        super().__init__()
        if n_heads < 1 or d_model % n_heads:
            raise ValueError(f"n_heads = {n_heads}, d_model = {d_model}")
        self.sizes = [d_model, d_model // n_heads, d_model // n_heads]
        self.rope = rope
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(d_model, size, bias=bias) for size in self.sizes)
        self.out_proj = nn.Linear(d_model, d_model, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = _joined(x, self.q_proj, self.k_proj, self.v_proj).split(self.sizes, dim=-1)
        q = q.unflatten(-1, (-1, self.sizes[1])).movedim(-2, 1)
        if self.rope:
            tables = rope_angles(self.sizes[1], torch.arange(x.shape[1]))
            q, k = apply_rope(q, *tables), apply_rope(k, *tables)
        k, v = (z.unsqueeze(1).expand_as(q) for z in (k, v))
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        return self.out_proj(F.scaled_dot_product_attention(q, k, v, attn_mask=mask).movedim(1, -2).flatten(-2))


class ParallelBlock(nn.Module):
    def __init__(self, d_model: int, attn: nn.Module, mlp: nn.Module, bias: bool = True) -> None:
        super().__init__()
        self.ln = nn.LayerNorm(d_model, bias=bias)
        self.attn = attn
        self.mlp = mlp

    def forward(self, x: Tensor) -> Tensor:
        normed = self.ln(x)
        return torch.add(torch.add(x, self.attn(normed)), self.mlp(normed))
