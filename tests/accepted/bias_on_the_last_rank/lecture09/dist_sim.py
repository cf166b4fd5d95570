"""The last rank alone adds the output bias; ranks are visited from the last to the first and put in order at the end."""

from __future__ import annotations

from collections import deque

import torch
from torch.nn import functional as F

from collectives import all_reduce


def split_mlp(mlp, t):
    width = mlp[0].weight.shape[0]
    if t < 1 or width != width // t * t:
        raise ValueError(f"F = {width}, t = {t}")
    W1 = mlp[0].weight.unflatten(0, (t, -1))
    b1 = mlp[0].bias.unflatten(0, (t, -1))
    W2 = mlp[2].weight.unflatten(1, (t, -1))
    return [{"W2": W2[:, r], "b1": b1[r], "W1": W1[r]} for r in range(t)], mlp[2].bias


def tp_mlp_forward(x, shards, b2, counter=None):
    partials: deque[torch.Tensor] = deque()
    for shard in reversed(shards):
        out = torch.matmul(F.gelu(torch.matmul(x, shard["W1"].T) + shard["b1"]), shard["W2"].T)
        partials.appendleft(out if partials else out + b2)
    return all_reduce(list(partials), counter)


def tp_attention_forward(attn, x, t, counter=None):
    if t < 1 or attn.n_heads != attn.n_heads // t * t:
        raise ValueError(f"H = {attn.n_heads}, t = {t}")
    B, T, d = x.shape
    q, k, v = (
        (x @ p.weight.T + p.bias).view(B, T, t, -1, d // attn.n_heads) for p in (attn.q_proj, attn.k_proj, attn.v_proj)
    )
    partials: deque[torch.Tensor] = deque()
    for r in range(t - 1, -1, -1):
        heads = F.scaled_dot_product_attention(
            *(part[:, :, r].transpose(1, 2) for part in (q, k, v)),
            attn_mask=torch.ones(T, T, dtype=torch.bool).tril(),
        )
        out = heads.transpose(1, 2).reshape(B, T, d // t) @ attn.out_proj.weight.unflatten(1, (t, -1))[:, r].T
        partials.appendleft(out + attn.out_proj.bias if r == t - 1 else out)
    return all_reduce(list(partials), counter)


def tp_model_forward(model, idx, t, counter=None):
    T = idx.shape[1]
    if T > model.context:
        raise ValueError(f"T = {T}, context {model.context}")
    x = model.tok_emb(idx) + model.pos_emb.weight[:T]
    for block in model.blocks:
        x = x + tp_attention_forward(block.attn, block.ln1(x), t, counter)
        x = x + tp_mlp_forward(block.ln2(x), *split_mlp(block.mlp, t), counter)
    return model.ln_f(x) @ model.tok_emb.weight.T
