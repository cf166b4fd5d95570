"""The sequence is processed in chunks: the MLP piece by piece, attention with a running maximum and sum over key chunks."""

from __future__ import annotations

import math

import torch
from torch.nn import functional as F

from collectives import all_reduce

CHUNK = 3


def _divided(n, t):
    if t < 1 or n % t:
        raise ValueError(f"no way to give {t} ranks equal parts of {n}")
    return n // t


def split_mlp(mlp, t):
    n = _divided(mlp[0].out_features, t)
    W1 = mlp[0].weight.as_strided((t, n, mlp[0].in_features), (n * mlp[0].in_features, mlp[0].in_features, 1))
    return [
        {"W1": W1[r], "b1": mlp[0].bias[r * n : (r + 1) * n], "W2": mlp[2].weight.T[r * n : (r + 1) * n].T}
        for r in range(t)
    ], mlp[2].bias


def tp_mlp_forward(x, shards, b2, counter=None):
    def partial(shard):
        return torch.cat(
            [F.linear(F.gelu(F.linear(c, shard["W1"], shard["b1"])), shard["W2"]) for c in x.split(CHUNK, dim=1)], dim=1
        )

    return all_reduce([partial(shard) for shard in shards], counter) + b2


def _streamed_attention(q, k, v):
    """Causal attention over (B, h, T, hd), one chunk of keys at a time (online softmax)."""
    T, size = q.shape[-2:]
    out = []
    for start in range(0, T, CHUNK):
        rows = torch.arange(start, min(start + CHUNK, T))
        q_c = q[..., rows, :] / math.sqrt(size)
        top = torch.full_like(q_c[..., :1], -math.inf)
        total, mixed = torch.zeros_like(top), torch.zeros_like(q_c)
        for begin in range(0, start + 1, CHUNK):
            columns = torch.arange(begin, min(begin + CHUNK, T))
            scores = (q_c @ k[..., columns, :].mT).masked_fill(columns > rows[:, None], -math.inf)
            new_top = torch.maximum(top, scores.amax(-1, keepdim=True))
            weights, decay = (scores - new_top).exp(), (top - new_top).exp()
            total = total * decay + weights.sum(-1, keepdim=True)
            mixed = mixed * decay + weights @ v[..., columns, :]
            top = new_top
        out.append(mixed / total)
    return torch.cat(out, dim=-2)


def tp_attention_forward(attn, x, t, counter=None):
    local = _divided(attn.n_heads, t)
    n = attn.q_proj.out_features // t
    partials = []
    for r in range(t):
        own = slice(r * n, (r + 1) * n)
        q, k, v = (
            F.linear(x, p.weight[own], p.bias[own]).unflatten(-1, (local, -1)).transpose(1, 2)
            for p in (attn.q_proj, attn.k_proj, attn.v_proj)
        )
        partials.append(_streamed_attention(q, k, v).transpose(1, 2).flatten(2) @ attn.out_proj.weight[:, own].T)
    return all_reduce(partials, counter) + attn.out_proj.bias


def tp_model_forward(model, idx, t, counter=None):
    T = idx.shape[1]
    if T > model.context:
        raise ValueError(f"T = {T}, and the context is {model.context}")
    x = model.tok_emb(idx) + model.pos_emb.weight[:T]
    for block in model.blocks:
        x = x + tp_attention_forward(block.attn, block.ln1(x), t, counter)
        x = x + tp_mlp_forward(block.ln2(x), *split_mlp(block.mlp, t), counter)
    return torch.cat([F.linear(model.ln_f(c), model.tok_emb.weight) for c in x.split(CHUNK, dim=1)], dim=1)
