"""Partials are computed and added in float64, whatever the model's dtype; only the sum is cast back."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from collectives import all_reduce


def split_mlp(mlp, t):
    F_ = mlp[0].out_features
    if t < 1 or F_ % t:
        raise ValueError(f"{F_} hidden units can't be shared by {t} ranks")
    n = F_ // t
    shards = []
    for r in range(t):
        shards.append(
            {
                "W1": mlp[0].weight[r * n :][:n],
                "b1": mlp[0].bias[r * n :][:n],
                "W2": mlp[2].weight[:, r * n :][:, :n],
            }
        )
    return shards, mlp[2].bias


def tp_mlp_forward(x, shards, b2, counter=None):
    wide = x.double()
    partials = []
    for shard in shards:
        hidden = F.gelu(F.linear(wide, shard["W1"].double(), shard["b1"].double()))
        partials.append(F.linear(hidden, shard["W2"].double()))
    return (all_reduce(partials, counter) + b2.to(torch.float64)).to(x.dtype)


def tp_attention_forward(attn, x, t, counter=None):
    H = attn.n_heads
    if t < 1 or H % t:
        raise ValueError(f"{H} heads can't be shared by {t} ranks")
    q, k, v = (
        F.linear(x.double(), p.weight.double(), p.bias.double()).unflatten(-1, (t, H // t, -1)).permute(2, 0, 3, 1, 4)
        for p in (attn.q_proj, attn.k_proj, attn.v_proj)
    )  # (t, B, H/t, T, hd)
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).permute(0, 1, 3, 2, 4).flatten(3)
    weights = attn.out_proj.weight.double().tensor_split(t, dim=1)
    out = all_reduce([F.linear(m, W) for m, W in zip(mixed, weights)], counter) + attn.out_proj.bias.double()
    return out.type_as(x)


def tp_model_forward(model, idx, t, counter=None):
    T = idx.shape[1]
    if T > model.context:
        raise ValueError(f"{T} positions are more than {model.context}")
    x = model.tok_emb(idx) + model.pos_emb.weight[:T]
    for block in model.blocks:
        x = x + tp_attention_forward(block.attn, block.ln1(x), t, counter)
        x = x + tp_mlp_forward(block.ln2(x), *split_mlp(block.mlp, t), counter)
    return F.linear(model.ln_f(x), model.tok_emb.weight)
