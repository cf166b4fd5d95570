"""nanoGPT's way: a torch.tril mask, masked_fill with minus infinity, and a softmax written out with exp and sum."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from collectives import all_reduce


def split_mlp(mlp, t):
    hidden = mlp[0].weight.size(0)
    if not (t >= 1 and hidden % t == 0):
        raise ValueError(f"{t=} {hidden=}")
    step = hidden // t
    W1, b1, W2 = mlp[0].weight, mlp[0].bias, mlp[2].weight
    return [
        {"W1": W1.narrow(0, r * step, step), "b1": b1.narrow(0, r * step, step), "W2": W2.narrow(1, r * step, step)}
        for r in range(t)
    ], mlp[2].bias


def tp_mlp_forward(x, shards, b2, counter=None):
    y_parts = []
    for s in shards:
        h = x @ s["W1"].t() + s["b1"]
        y_parts.append(F.gelu(h) @ s["W2"].t())
    y = all_reduce(y_parts, counter=counter)
    y += b2
    return y


def tp_attention_forward(attn, x, t, counter=None):
    n_head = attn.n_heads
    if not (t >= 1 and n_head % t == 0):
        raise ValueError(f"{t=} {n_head=}")
    B, T, C = x.size()
    hs = attn.q_proj.weight.size(0) // n_head
    mask = torch.tril(torch.ones(T, T)).view(1, 1, T, T)
    q, k, v = attn.q_proj(x), attn.k_proj(x), attn.v_proj(x)
    y_parts = []
    for r in range(t):
        lo, hi = r * C // t, (r + 1) * C // t
        q_r = q[..., lo:hi].reshape(B, T, n_head // t, hs).transpose(1, 2)
        k_r = k[..., lo:hi].reshape(B, T, n_head // t, hs).transpose(1, 2)
        v_r = v[..., lo:hi].reshape(B, T, n_head // t, hs).transpose(1, 2)
        att = (q_r @ k_r.transpose(-2, -1)) * (1.0 / hs**0.5)
        att = att.masked_fill(mask == 0, float("-inf"))
        att = torch.exp(att - att.max(dim=-1, keepdim=True).values)
        att = att / att.sum(dim=-1, keepdim=True)
        y = (att @ v_r).transpose(1, 2).contiguous().view(B, T, hi - lo)
        y_parts.append(y @ attn.out_proj.weight[:, lo:hi].t())
    return all_reduce(y_parts, counter=counter).add_(attn.out_proj.bias)


def tp_model_forward(model, idx, t, counter=None):
    _, T = idx.size()
    if T > model.context:
        raise ValueError(f"Cannot forward sequence of length {T}, block size is only {model.context}")
    pos = torch.arange(0, T, dtype=torch.long, device=idx.device)
    x = model.tok_emb(idx) + model.pos_emb(pos)
    for block in model.blocks:
        x = x + tp_attention_forward(block.attn, block.ln1(x), t, counter=counter)
        shards, b2 = split_mlp(block.mlp, t)
        x = x + tp_mlp_forward(block.ln2(x), shards, b2, counter=counter)
    x = model.ln_f(x)
    return x @ model.tok_emb.weight.t()
