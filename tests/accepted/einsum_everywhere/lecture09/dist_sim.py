"""Every product and every cut is an einsum over named axes, for all ranks at once."""

from __future__ import annotations

import math

import torch

from collectives import all_reduce


def split_mlp(mlp, t):
    first, second = mlp[0], mlp[2]
    width, hidden = first.in_features, first.out_features
    if t < 1 or hidden % t:
        raise ValueError(f"{hidden} hidden units over {t} ranks")
    pick = torch.eye(t, dtype=first.weight.dtype)
    W1 = torch.einsum("rs,sfd->rfd", pick, first.weight.reshape(t, -1, width))
    b1 = torch.einsum("rs,sf->rf", pick, first.bias.reshape(t, -1))
    W2 = torch.einsum("rs,osf->rof", pick, second.weight.reshape(second.out_features, t, -1))
    return [dict(zip(("W1", "b1", "W2"), pieces)) for pieces in zip(W1, b1, W2)], second.bias


def tp_mlp_forward(x, shards, b2, counter=None):
    W1, b1, W2 = (torch.stack([shard[name] for shard in shards]) for name in ("W1", "b1", "W2"))
    inner = torch.einsum("btd,rfd->rbtf", x, W1) + torch.einsum("rf,bt->rbtf", b1, torch.ones_like(x[..., 0]))
    partials = torch.einsum("rbtf,rof->rbto", torch.nn.functional.gelu(inner), W2)
    return all_reduce(partials.unbind(), counter) + b2


def tp_attention_forward(attn, x, t, counter=None):
    heads = attn.n_heads
    if t < 1 or heads % t:
        raise ValueError(f"{heads} heads over {t} ranks")
    d, local = attn.q_proj.in_features, heads // t
    size = attn.q_proj.out_features // heads

    def projected(proj):
        weight, bias = proj.weight.reshape(t, local, size, d), proj.bias.reshape(t, 1, local, 1, size)
        return torch.einsum("bqd,rhed->rbhqe", x, weight) + bias

    q, k, v = map(projected, (attn.q_proj, attn.k_proj, attn.v_proj))
    scores = torch.einsum("rbhqe,rbhke->rbhqk", q, k) / math.sqrt(size)
    T = x.shape[1]
    future = torch.arange(T)[:, None] < torch.arange(T)
    weights = torch.softmax(scores.masked_fill(future, -math.inf), dim=-1)
    out = torch.einsum("rbhqk,rbhke->rbqhe", weights, v)
    partials = torch.einsum("rbqhe,orhe->rbqo", out, attn.out_proj.weight.reshape(d, t, local, size))
    return all_reduce(list(partials), counter) + attn.out_proj.bias


def tp_model_forward(model, idx, t, counter=None):
    if idx.shape[1] > model.context:
        raise ValueError(f"T = {idx.shape[1]} > {model.context}")
    x = model.tok_emb(idx) + model.pos_emb.weight[: idx.shape[1]]
    for block in model.blocks:
        x = x + tp_attention_forward(block.attn, block.ln1(x), t, counter)
        shards, b2 = split_mlp(block.mlp, t)
        x = x + tp_mlp_forward(block.ln2(x), shards, b2, counter)
    return torch.einsum("btd,vd->btv", model.ln_f(x), model.tok_emb.weight)
