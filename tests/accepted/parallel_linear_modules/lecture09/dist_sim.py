"""Column- and row-parallel layers as nn.Module classes that hold their slices as plain attributes, as in Megatron."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from collectives import all_reduce


class _Slice(nn.Module):
    """One rank's piece of a linear layer; attributes, not parameters, so that gradients pass to where they come from."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.own_weight = (weight,)  # in a tuple, or nn.Module would register it
        self.own_bias = (bias,)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, *self.own_weight, *self.own_bias)


class ColumnParallelLinear(nn.Module):
    def __init__(self, weight: Tensor, bias: Tensor, t: int) -> None:
        super().__init__()
        self.ranks = nn.ModuleList(map(_Slice, weight.chunk(t, dim=0), bias.chunk(t)))

    def forward(self, x: Tensor) -> list[Tensor]:
        return [rank(x) for rank in self.ranks]


class RowParallelLinear(nn.Module):
    def __init__(self, weight: Tensor, bias: Tensor, t: int, counter: dict | None) -> None:
        super().__init__()
        self.ranks = nn.ModuleList(_Slice(piece, None) for piece in weight.chunk(t, dim=1))
        self.bias = (bias,)
        self.counter = counter

    def forward(self, inputs: list[Tensor]) -> Tensor:
        return all_reduce([rank(x) for rank, x in zip(self.ranks, inputs)], self.counter) + self.bias[0]


def _ensure(t: int, n: int) -> None:
    if t < 1 or n % t:
        raise ValueError(f"world size {t} does not divide {n}")


def split_mlp(mlp, t):
    _ensure(t, mlp[0].out_features)
    columns = ColumnParallelLinear(mlp[0].weight, mlp[0].bias, t)
    rows = RowParallelLinear(mlp[2].weight, mlp[2].bias, t, None)
    return [
        {"W1": c.own_weight[0], "b1": c.own_bias[0], "W2": r.own_weight[0]} for c, r in zip(columns.ranks, rows.ranks)
    ], rows.bias[0]


def tp_mlp_forward(x, shards, b2, counter=None):
    hidden = [F.gelu(_Slice(shard["W1"], shard["b1"])(x)) for shard in shards]
    weight = torch.cat([shard["W2"] for shard in shards], dim=1)
    return RowParallelLinear(weight, b2, len(shards), counter)(hidden)


def tp_attention_forward(attn, x, t, counter=None):
    _ensure(t, attn.n_heads)
    projections = (attn.q_proj, attn.k_proj, attn.v_proj)
    by_rank = zip(*(ColumnParallelLinear(p.weight, p.bias, t)(x) for p in projections))
    mixed = []
    for rank in by_rank:
        q, k, v = (part.unflatten(-1, (attn.n_heads // t, -1)).transpose(1, 2) for part in rank)
        mixed.append(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
    return RowParallelLinear(attn.out_proj.weight, attn.out_proj.bias, t, counter)(mixed)


def tp_model_forward(model, idx, t, counter=None):
    T = idx.shape[1]
    if T > model.context:
        raise ValueError(f"sequence length {T}, maximum {model.context}")
    x = model.tok_emb(idx) + model.pos_emb.weight[:T]
    for block in model.blocks:
        x = x + tp_attention_forward(block.attn, block.ln1(x), t, counter)
        x = x + tp_mlp_forward(block.ln2(x), *split_mlp(block.mlp, t), counter)
    return F.linear(model.ln_f(x), model.tok_emb.weight)
