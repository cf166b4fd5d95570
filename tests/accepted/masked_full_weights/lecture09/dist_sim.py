"""No weight is ever cut for a partial: each rank runs the whole module through functional_call, the others' part masked."""

from __future__ import annotations

import torch
from torch.func import functional_call
from torch.nn import functional as F

from collectives import all_reduce


def _belongs_to(rank: int, t: int, size: int) -> torch.Tensor:
    """1 for the rank's own of `size` entries, else 0."""
    return (torch.arange(size) * t // size == rank).to(torch.get_default_dtype())


def split_mlp(mlp, t):
    hidden = mlp[0].out_features
    if t < 1 or hidden % t:
        raise ValueError(f"{hidden} % {t}")
    shards = []
    for rank in range(t):
        own = _belongs_to(rank, t, hidden).nonzero().flatten()
        shards.append({"W1": mlp[0].weight[own], "b1": mlp[0].bias[own], "W2": mlp[2].weight[:, own]})
    return shards, mlp[2].bias


def tp_mlp_forward(x, shards, b2, counter=None):
    t = len(shards)
    W1 = torch.cat([shard["W1"] for shard in shards])
    b1 = torch.cat([shard["b1"] for shard in shards])
    W2 = torch.cat([shard["W2"] for shard in shards], dim=1)
    hidden = F.gelu(F.linear(x, W1, b1))
    masks = [_belongs_to(rank, t, len(b1)).to(x.dtype) for rank in range(t)]
    return all_reduce([F.linear(hidden * mask, W2) for mask in masks], counter) + b2


def tp_attention_forward(attn, x, t, counter=None):
    if t < 1 or attn.n_heads % t:
        raise ValueError(f"{attn.n_heads} % {t}")
    own = dict(attn.named_parameters())
    partials = []
    for rank in range(t):
        mask = _belongs_to(rank, t, attn.out_proj.in_features).to(x.dtype)
        changed = {
            "out_proj.weight": own["out_proj.weight"] * mask,
            "out_proj.bias": own["out_proj.bias"] * (rank == 0),
        }
        partials.append(functional_call(attn, own | changed, (x,)))
    return all_reduce(partials, counter)


def tp_model_forward(model, idx, t, counter=None):
    T = idx.shape[1]
    if T > model.context:
        raise ValueError(f"{T} > {model.context}")
    x = model.tok_emb(idx) + model.pos_emb.weight[:T]
    for block in model.blocks:
        x = x + tp_attention_forward(block.attn, block.ln1(x), t, counter)
        x = x + tp_mlp_forward(block.ln2(x), *split_mlp(block.mlp, t), counter)
    return F.linear(model.ln_f(x), model.tok_emb.weight)
