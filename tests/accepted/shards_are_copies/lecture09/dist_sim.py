"""Shards are objects of a dict subclass that is a dataclass; their tensors are clones, and they carry extra keys."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

from collectives import all_reduce


@dataclass(eq=False)
class Shard(dict):
    rank: int
    W1: Tensor
    b1: Tensor
    W2: Tensor
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        # `rank` and `t` style extras are keys as well, so that a shard prints completely.
        self.update(W1=self.W1, b1=self.b1, W2=self.W2, rank=self.rank, size=len(self.b1), notes=self.notes)


def split_mlp(mlp, t) -> tuple[list[Shard], Tensor]:
    hidden = mlp[0].out_features
    if t < 1 or hidden % t:
        raise ValueError(f"{t} shards of {hidden} hidden units")
    n = hidden // t
    shards = []
    for rank in range(t):
        own = torch.arange(rank * n, (rank + 1) * n)
        W1, b1 = mlp[0].weight[own].clone(), mlp[0].bias[own].clone()
        W2 = mlp[2].weight[:, own].clone(memory_format=torch.contiguous_format)
        shards.append(Shard(rank, W1, b1, W2))
    return shards, mlp[2].bias.clone()


def tp_mlp_forward(x, shards, b2, counter=None):
    def partial(W1, b1, W2):
        return F.linear(F.gelu(F.linear(x, W1, b1)), W2)

    out = all_reduce([partial(shard["W1"], shard["b1"], shard["W2"]) for shard in shards], counter)
    return torch.add(out, b2)


@dataclass(frozen=True)
class _Heads:
    """A rank's own copy of its part of an attention layer."""

    count: int
    q: tuple[Tensor, Tensor]
    k: tuple[Tensor, Tensor]
    v: tuple[Tensor, Tensor]
    out: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        q, k, v = (
            F.linear(x, *pair).unflatten(-1, (self.count, -1)).transpose(1, 2) for pair in (self.q, self.k, self.v)
        )
        return F.linear(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2), self.out)


def tp_attention_forward(attn, x, t, counter=None):
    if t < 1 or attn.n_heads % t:
        raise ValueError(f"{t} ranks for {attn.n_heads} heads")
    n = attn.q_proj.out_features // t
    ranks = []
    for rank in range(t):
        own = slice(rank * n, (rank + 1) * n)
        copies = [(p.weight[own].clone(), p.bias[own].clone()) for p in (attn.q_proj, attn.k_proj, attn.v_proj)]
        ranks.append(_Heads(attn.n_heads // t, *copies, attn.out_proj.weight[:, own].clone()))
    return all_reduce([rank(x) for rank in ranks], counter) + attn.out_proj.bias


def tp_model_forward(model, idx, t, counter=None):
    T = idx.shape[1]
    if T > model.context:
        raise ValueError(f"{T} > {model.context}")
    x = model.tok_emb(idx) + model.pos_emb.weight[:T]
    for block in model.blocks:
        x = x + tp_attention_forward(block.attn, block.ln1(x), t, counter)
        x = x + tp_mlp_forward(block.ln2(x), *split_mlp(block.mlp, t), counter)
    return F.linear(model.ln_f(x), model.tok_emb.weight)
