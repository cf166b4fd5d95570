"""Results are NamedTuples, cuts are tensor_split, and partials reach all_reduce as one stacked tensor."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

import torch
from torch.nn import functional as F

from collectives import all_reduce


class Split(NamedTuple):
    shards: list
    b2: torch.Tensor


def split_mlp(mlp, t):
    inner, outer = mlp[0], mlp[2]
    if not t >= 1 or inner.out_features % t != 0:
        raise ValueError("t = %d does not share out F = %d" % (t, inner.out_features))  # noqa: UP031
    ranks = zip(
        torch.tensor_split(inner.weight, t, dim=0),
        torch.tensor_split(inner.bias, t),
        torch.tensor_split(outer.weight, t, dim=1),
    )
    return Split([OrderedDict([("W1", W1), ("b1", b1), ("W2", W2)]) for W1, b1, W2 in ranks], outer.bias)


def tp_mlp_forward(x, shards, b2, counter=None):
    rows = x.reshape(-1, x.shape[-1])
    parts = [torch.mm(F.gelu(torch.addmm(s["b1"], rows, s["W1"].T)), s["W2"].T) for s in shards]
    return all_reduce(torch.stack(parts).view(len(shards), *x.shape[:-1], -1), counter) + b2


def tp_attention_forward(attn, x, t, counter=None):
    if not t >= 1 or attn.n_heads % t != 0:
        raise ValueError("t = %d does not share out H = %d" % (t, attn.n_heads))  # noqa: UP031
    B, T, d = x.shape
    rows = x.reshape(B * T, d)
    parts = []
    for rank in range(t):
        q, k, v = (
            torch.addmm(p.bias.tensor_split(t)[rank], rows, p.weight.tensor_split(t)[rank].T)
            .view(B, T, attn.n_heads // t, d // attn.n_heads)
            .transpose(1, 2)
            for p in (attn.q_proj, attn.k_proj, attn.v_proj)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, None, 0.0, True).transpose(1, 2).reshape(B * T, d // t)
        parts.append(torch.mm(mixed, attn.out_proj.weight.tensor_split(t, 1)[rank].T))
    return all_reduce(torch.stack(parts).view(t, B, T, d), counter) + attn.out_proj.bias


def tp_model_forward(model, idx, t, counter=None):
    if idx.shape[1] > model.context:
        raise ValueError("too long: %d positions" % idx.shape[1])  # noqa: UP031
    stream = model.tok_emb(idx) + model.pos_emb.weight[: idx.shape[1]]
    for block in model.blocks:
        split = split_mlp(block.mlp, t)
        stream = stream + tp_attention_forward(block.attn, block.ln1(stream), t, counter)
        stream = stream + tp_mlp_forward(block.ln2(stream), split.shards, split.b2, counter)
    return F.linear(model.ln_f(stream), model.tok_emb.weight)
