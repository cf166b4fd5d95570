"""The future is pushed away by adding −1e9 to its scores instead of minus infinity, and softmax is left to PyTorch."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from collectives import all_reduce

FAR_AWAY = -1e9


def _pieces(total, t):
    if t <= 0 or total % t > 0:
        raise ValueError(f"can't cut {total} into {t}")
    return torch.arange(total).view(t, -1)


def split_mlp(mlp, t):
    up, _, down = mlp
    shards = [
        {"W1": up.weight.index_select(0, i), "b1": up.bias.index_select(0, i), "W2": down.weight.index_select(1, i)}
        for i in _pieces(up.out_features, t)
    ]
    return shards, down.bias


def tp_mlp_forward(x, shards, b2, counter=None):
    return all_reduce([F.gelu(F.linear(x, s["W1"], s["b1"])) @ s["W2"].mT for s in shards], counter) + b2


def tp_attention_forward(attn, x, t, counter=None):
    heads_of = _pieces(attn.n_heads, t)
    T = x.shape[1]
    penalty = FAR_AWAY * torch.triu(torch.ones(T, T, dtype=x.dtype), diagonal=1)
    split = (attn.n_heads, -1)
    q = attn.q_proj(x).unflatten(2, split)
    k = attn.k_proj(x).unflatten(2, split)
    v = attn.v_proj(x).unflatten(2, split)
    columns = attn.out_proj.weight.unflatten(1, split)
    parts = []
    for own in heads_of:
        scores = torch.einsum("bqhe,bkhe->bhqk", q[:, :, own], k[:, :, own]) * q.shape[-1] ** -0.5 + penalty
        mixed = torch.einsum("bhqk,bkhe->bqhe", scores.softmax(-1), v[:, :, own])
        parts.append(torch.einsum("bqhe,ohe->bqo", mixed, columns[:, own]))
    return all_reduce(parts, counter) + attn.out_proj.bias


def tp_model_forward(model, idx, t, counter=None):
    T = idx.size(1)
    if T > model.context:
        raise ValueError(f"{T} positions, and only {model.context} are known")
    x = F.embedding(idx, model.tok_emb.weight) + model.pos_emb(torch.arange(T))
    for block in model.blocks:
        x = tp_attention_forward(block.attn, block.ln1(x), t, counter) + x
        x = tp_mlp_forward(block.ln2(x), *split_mlp(block.mlp, t), counter) + x
    return F.linear(model.ln_f(x), model.tok_emb.weight)
