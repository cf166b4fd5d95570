"""Star imports, module-level constants, string annotations with shapes, and in-place operators on tensors of its own."""
# ruff: noqa: F403, F405, F722, UP037

from __future__ import annotations

from torch import *
from torch.nn import *
from torch.nn.functional import *

EIGHT = 8
BASE: "float" = 1e4
NEGATIVE = -1e30


def swiglu_hidden(d_model: "int") -> "int":
    return (EIGHT * d_model + 1) // 3  # torch has its own int and round, and the stars brought them


class SwiGLU(Module):
    def __init__(self, d_model: "int", hidden: "int", bias: "bool" = True):
        super().__init__()
        self.gate = Linear(d_model, hidden, bias=bias)
        self.up = Linear(d_model, hidden, bias=bias)
        self.down = Linear(hidden, d_model, bias=bias)

    def forward(self, x: "Float[Tensor, '... d']") -> "Float[Tensor, '... d']":
        hidden = silu(self.gate(x))
        hidden = hidden * self.up(x)
        return self.down(hidden)


def rope_angles(head_dim: "int", positions: "Int[Tensor, 'T']", theta: "float" = BASE):
    if head_dim % 2:
        raise ValueError("head_dim")
    exponents = arange(0, -head_dim, -2).double()
    exponents /= head_dim
    angles = positions.double()[:, None] * (theta**exponents)[None, :]
    return angles.cos().to(get_default_dtype()), angles.sin().to(get_default_dtype())


def apply_rope(x: "Float[Tensor, '... T hd']", cos: "Float[Tensor, 'T hd/2']", sin: "Float[Tensor, 'T hd/2']"):
    out = cat((x, x), dim=-1)
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return cat((a * cos - b * sin, b * cos + a * sin), dim=-1).type_as(out)


class MultiQueryAttention(Module):
    def __init__(self, d_model: "int", n_heads: "int", bias: "bool" = True, rope: "bool" = False):
        super().__init__()
        if n_heads < 1 or d_model % n_heads:
            raise ValueError(f"{d_model}/{n_heads}")
        self.n_heads, self.rope = n_heads, rope
        self.q_proj = Linear(d_model, d_model, bias=bias)
        self.k_proj = Linear(d_model, d_model // n_heads, bias=bias)
        self.v_proj = Linear(d_model, d_model // n_heads, bias=bias)
        self.out_proj = Linear(d_model, d_model, bias=bias)

    def forward(self, x: "Float[Tensor, 'B T d']") -> "Float[Tensor, 'B T d']":
        T = x.shape[1]
        q = self.q_proj(x).unflatten(-1, (self.n_heads, -1)).permute(0, 2, 1, 3)
        k, v = self.k_proj(x).unsqueeze(1), self.v_proj(x).unsqueeze(1)
        if self.rope:
            cos, sin = rope_angles(k.shape[-1], arange(T))
            q, k = apply_rope(q, cos, sin), apply_rope(k, cos, sin)
        scores = matmul(q, k.transpose(-1, -2))
        scores *= k.shape[-1] ** -0.5
        scores = where(tril(ones(T, T)) > 0, scores, NEGATIVE)
        return self.out_proj(matmul(softmax(scores, dim=-1), v).permute(0, 2, 1, 3).flatten(2))


class ParallelBlock(Module):
    def __init__(self, d_model: "int", attn: "Module", mlp: "Module", bias: "bool" = True):
        super().__init__()
        self.ln = LayerNorm(d_model, bias=bias)
        self.attn = attn
        self.mlp = mlp

    def forward(self, x: "Float[Tensor, 'B T d']") -> "Float[Tensor, 'B T d']":
        n = self.ln(x)
        out = x.clone()
        out += self.attn(n)
        out += self.mlp(n)
        return out
