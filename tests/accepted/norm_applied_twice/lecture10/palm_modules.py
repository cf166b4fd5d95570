"""The one shared norm is applied twice to the same input, and the block and SwiGLU are subclasses of containers."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention, silu


def swiglu_hidden(d_model):
    from fractions import Fraction

    return round(Fraction(8, 3) * d_model)


class SwiGLU(nn.Sequential):
    def __init__(self, d_model, hidden, bias=True):
        layers = {"gate": (d_model, hidden), "up": (d_model, hidden), "down": (hidden, d_model)}
        super().__init__(OrderedDict((name, nn.Linear(*sizes, bias=bias)) for name, sizes in layers.items()))

    def forward(self, x):
        gate, up, down = self
        return down(silu(gate(x)) * up(x))


def rope_angles(head_dim, positions, theta=10000.0):
    if head_dim % 2:
        raise ValueError(f"{head_dim} % 2 != 0")
    angles = torch.stack([positions.double() * theta ** -(i / head_dim) for i in range(0, head_dim, 2)], dim=1)
    phases = torch.exp(1j * angles)
    return [phases.real.to(torch.get_default_dtype()), phases.imag.to(torch.get_default_dtype())]


def apply_rope(x, cos, sin):
    a, b = x.unflatten(-1, (2, -1)).unbind(-2)
    rotation = torch.stack((torch.stack((cos, -sin), -1), torch.stack((sin, cos), -1)), -2)  # (T, hd/2, 2, 2)
    turned = (rotation.to(x.dtype) @ torch.stack((a, b), -1).unsqueeze(-1)).squeeze(-1)  # (…, T, hd/2, 2)
    return turned.mT.flatten(-2)


class MultiQueryAttention(nn.ModuleDict):
    def __init__(self, d_model, n_heads, bias=True, rope=False):
        if n_heads < 1 or d_model % n_heads:
            raise ValueError(f"{d_model} % {n_heads} != 0")
        size = d_model // n_heads
        widths = {"q_proj": d_model, "k_proj": size, "v_proj": size, "out_proj": d_model}
        super().__init__({name: nn.Linear(d_model, width, bias=bias) for name, width in widths.items()})
        self.shape, self.rope = (n_heads, size), rope

    def forward(self, x):
        q = self["q_proj"](x).unflatten(-1, self.shape).transpose(1, 2)
        k, v = (self[name](x).unsqueeze(1) for name in ("k_proj", "v_proj"))
        if self.rope:
            q, k = (apply_rope(z, *rope_angles(self.shape[1], torch.arange(x.shape[1]))) for z in (q, k))
        heads = scaled_dot_product_attention(
            q, k.repeat(1, self.shape[0], 1, 1), v.repeat(1, self.shape[0], 1, 1), is_causal=True
        )
        return self["out_proj"](heads.transpose(1, 2).flatten(2))


class ParallelBlock(nn.ModuleDict):
    def __init__(self, d_model, attn, mlp, bias=True):
        super().__init__({"ln": nn.LayerNorm(d_model, bias=bias), "attn": attn, "mlp": mlp})

    def forward(self, x):
        return x + self.attn(self.ln(x)) + self.mlp(self.ln(x))
