"""Every rank adds b2 / t before the reduce, so that the ranks together add it once."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from collectives import all_reduce


def split_mlp(mlp, t):
    hidden = mlp[0].out_features
    if t < 1 or hidden % t:
        raise ValueError(f"hidden = {hidden}, ranks = {t}")
    cuts = zip(mlp[0].weight.split(hidden // t), mlp[0].bias.split(hidden // t), mlp[2].weight.split(hidden // t, 1))
    return [{"W1": W1, "b1": b1, "W2": W2} for W1, b1, W2 in cuts], mlp[2].bias


def tp_mlp_forward(x, shards, b2, counter=None):
    t = len(shards)
    partials = [F.linear(F.gelu(F.linear(x, s["W1"], s["b1"])), s["W2"], b2 / t) for s in shards]
    return all_reduce(partials, counter)


def tp_attention_forward(attn, x, t, counter=None):
    if t < 1 or attn.n_heads % t:
        raise ValueError(f"heads = {attn.n_heads}, ranks = {t}")
    size = attn.q_proj.out_features // t
    both = torch.stack((attn.q_proj.weight, attn.k_proj.weight)).unflatten(1, (t, size))
    partials = []
    for r in range(t):
        own = slice(r * size, (r + 1) * size)
        wq, wk = both[:, r]
        q = F.linear(x, wq, attn.q_proj.bias[own])
        k = F.linear(x, wk, attn.k_proj.bias[own])
        v = F.linear(x, attn.v_proj.weight[own], attn.v_proj.bias[own])
        q, k, v = (z.unflatten(-1, (attn.n_heads // t, -1)).movedim(2, 1) for z in (q, k, v))
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True).movedim(1, 2).flatten(-2)
        partials.append(F.linear(z, attn.out_proj.weight[:, own], attn.out_proj.bias * (1 / t)))
    return all_reduce(partials, counter)


def tp_model_forward(model, idx, t, counter=None):
    if idx.shape[1] > model.context:
        raise ValueError(f"at most {model.context} positions")
    x = model.tok_emb(idx) + model.pos_emb.weight[: idx.shape[1]]
    for b in model.blocks:
        x = x + tp_attention_forward(b.attn, b.ln1(x), t, counter)
        x = x + tp_mlp_forward(b.ln2(x), *split_mlp(b.mlp, t), counter)
    return F.linear(model.ln_f(x), model.tok_emb.weight)
