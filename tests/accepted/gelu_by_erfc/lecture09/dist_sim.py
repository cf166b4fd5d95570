"""GELU is written out as x/2 · erfc(−x/√2), which keeps its relative accuracy far on the left."""

from __future__ import annotations

import math

import torch
from torch.nn import functional as F

from collectives import all_reduce


def gelu(x):
    return 0.5 * x * torch.special.erfc(-x / math.sqrt(2))


def _size(n, t):
    if t < 1 or n % t:
        raise ValueError(f"{n}, {t}")
    return n // t


def split_mlp(mlp, t):
    n = _size(mlp[0].out_features, t)
    blocks = [torch.arange(r * n, r * n + n) for r in range(t)]
    return [
        {
            "W1": mlp[0].weight.take_along_dim(b[:, None], 0),
            "b1": mlp[0].bias.take_along_dim(b),
            "W2": mlp[2].weight[:, b],
        }
        for b in blocks
    ], mlp[2].bias


def tp_mlp_forward(x, shards, b2, counter=None):
    return all_reduce([F.linear(gelu(F.linear(x, s["W1"], s["b1"])), s["W2"]) for s in shards], counter) + b2


def tp_attention_forward(attn, x, t, counter=None):
    heads, n = _size(attn.n_heads, t), attn.q_proj.out_features // t
    parts = []
    for r in range(t):
        own = slice(r * n, r * n + n)
        q, k, v = (
            F.linear(x, p.weight[own], p.bias[own]).unflatten(-1, (heads, -1)).transpose(1, 2)
            for p in (attn.q_proj, attn.k_proj, attn.v_proj)
        )
        scores = torch.baddbmm(x.new_zeros(()), q.flatten(0, 1), k.flatten(0, 1).mT, alpha=q.shape[-1] ** -0.5)
        scores = scores - torch.ones_like(scores).triu(1) * torch.finfo(x.dtype).max
        heads_out = torch.bmm(scores.log_softmax(-1).exp(), v.flatten(0, 1)).unflatten(0, (-1, heads))
        parts.append(heads_out.transpose(1, 2).flatten(2) @ attn.out_proj.weight[:, own].T)
    return all_reduce(parts, counter) + attn.out_proj.bias


def tp_model_forward(model, idx, t, counter=None):
    T = idx.shape[1]
    if T > model.context:
        raise ValueError(f"{T}, {model.context}")
    x = model.tok_emb(idx) + model.pos_emb.weight[:T]
    for block in model.blocks:
        x = x + tp_attention_forward(block.attn, block.ln1(x), t, counter)
        x = x + tp_mlp_forward(block.ln2(x), *split_mlp(block.mlp, t), counter)
    return F.linear(model.ln_f(x), model.tok_emb.weight)
