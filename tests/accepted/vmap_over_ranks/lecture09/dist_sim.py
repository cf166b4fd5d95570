"""One rank's program is written once and mapped over a leading rank axis with torch.vmap."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from collectives import all_reduce


def _stacked(tensor, t, axis=0):
    return torch.stack(tensor.chunk(t, axis))


def _refuse_unless_even(n, t):
    if t < 1 or n % t != 0:
        raise ValueError(f"cannot map {n} over {t}")


def split_mlp(mlp, t):
    _refuse_unless_even(mlp[0].out_features, t)
    tensors = _stacked(mlp[0].weight, t), _stacked(mlp[0].bias, t), _stacked(mlp[2].weight, t, 1)
    return [{"W1": W1, "b1": b1, "W2": W2} for W1, b1, W2 in zip(*tensors)], mlp[2].bias


def tp_mlp_forward(x, shards, b2, counter=None):
    def rank(W1, b1, W2):
        return F.linear(F.gelu(F.linear(x, W1, b1)), W2)

    partials = torch.vmap(rank)(*(torch.stack([shard[key] for shard in shards]) for key in ("W1", "b1", "W2")))
    return all_reduce(partials, counter) + b2


def tp_attention_forward(attn, x, t, counter=None):
    _refuse_unless_even(attn.n_heads, t)
    T = x.shape[1]
    allowed = torch.ones(T, T, dtype=torch.bool).tril()

    def head(weights, biases, out):
        q, k, v = (F.linear(x, W, b) for W, b in zip(weights, biases))
        scores = (q @ k.mT / q.shape[-1] ** 0.5).where(allowed, -torch.inf)
        return F.linear(scores.softmax(dim=-1), torch.eye(T, dtype=x.dtype)) @ v @ out.T

    def rank(weights, biases, out):
        return torch.vmap(head)(weights, biases, out).sum(dim=0)

    shape = (t, attn.n_heads // t, -1)
    projections = (attn.q_proj, attn.k_proj, attn.v_proj)
    weights = torch.stack([p.weight.unflatten(0, shape) for p in projections], dim=2)  # (t, H/t, 3, hd, d)
    biases = torch.stack([p.bias.unflatten(0, shape) for p in projections], dim=2)
    out = attn.out_proj.weight.unflatten(1, shape).movedim(0, 2)  # (t, H/t, d, hd)
    return all_reduce(torch.vmap(rank)(weights, biases, out), counter) + attn.out_proj.bias


def tp_model_forward(model, idx, t, counter=None):
    T = idx.shape[1]
    if T > model.context:
        raise ValueError(f"{T} is above {model.context}")
    x = model.tok_emb(idx) + model.pos_emb.weight[:T]
    for block in model.blocks:
        x = x + tp_attention_forward(block.attn, block.ln1(x), t, counter)
        x = x + tp_mlp_forward(block.ln2(x), *split_mlp(block.mlp, t), counter)
    return F.linear(model.ln_f(x), model.tok_emb.weight)
