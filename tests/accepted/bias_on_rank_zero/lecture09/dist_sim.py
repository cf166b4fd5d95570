"""Rank 0 alone adds the output bias, before the reduce, by handing it to its linear layer."""

from __future__ import annotations

from torch.nn import functional as F

from collectives import all_reduce


def _share(t, total):
    if t < 1 or total % t:
        raise ValueError(f"t = {t} does not divide {total}")
    return total // t


def split_mlp(mlp, t):
    n = _share(t, mlp[0].out_features)
    cut = [slice(r * n, r * n + n) for r in range(t)]
    shards = [{"W1": mlp[0].weight[c, :], "b1": mlp[0].bias[c], "W2": mlp[2].weight[:, c]} for c in cut]
    return shards, mlp[2].bias


def tp_mlp_forward(x, shards, b2, counter=None):
    partials = []
    for rank, shard in enumerate(shards):
        hidden = F.gelu(F.linear(x, shard["W1"], shard["b1"]))
        partials.append(F.linear(hidden, shard["W2"], b2 if rank == 0 else None))
    return all_reduce(partials, counter)


def tp_attention_forward(attn, x, t, counter=None):
    heads = _share(t, attn.n_heads)
    n = attn.q_proj.out_features // t
    partials = []
    for rank in range(t):
        own = slice(rank * n, rank * n + n)
        q, k, v = (
            F.linear(x, p.weight[own], p.bias[own]).reshape(*x.shape[:2], heads, n // heads).permute(0, 2, 1, 3)
            for p in (attn.q_proj, attn.k_proj, attn.v_proj)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).permute(0, 2, 1, 3).reshape(*x.shape[:2], n)
        partials.append(F.linear(mixed, attn.out_proj.weight[:, own], attn.out_proj.bias if rank == 0 else None))
    return all_reduce(partials, counter)


def tp_model_forward(model, idx, t, counter=None):
    if idx.shape[-1] > model.context:
        raise ValueError("the sequence is longer than the context")
    x = model.tok_emb(idx) + model.pos_emb.weight[None, : idx.shape[-1]]
    for block in model.blocks:
        x = x + tp_attention_forward(block.attn, block.ln1(x), t, counter)
        x = x + tp_mlp_forward(block.ln2(x), *split_mlp(block.mlp, t), counter)
    return F.linear(model.ln_f(x), model.tok_emb.weight)
