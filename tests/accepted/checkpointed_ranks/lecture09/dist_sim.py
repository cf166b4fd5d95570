"""Every rank's partial is computed under activation checkpointing, so the backward pass runs it a second time."""

from __future__ import annotations

from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from collectives import all_reduce


def split_mlp(mlp, t):
    hidden = mlp[0].out_features
    if t < 1 or hidden % t:
        raise ValueError(f"{hidden} / {t} is not a whole number")
    n = hidden // t
    return [
        {
            "W1": mlp[0].weight.unfold(0, n, n)[r].mT,  # unfold puts the window last: (d, n), turned back to (n, d)
            "b1": mlp[0].bias.unfold(0, n, n)[r],
            "W2": mlp[2].weight.unfold(1, n, n)[:, r],
        }
        for r in range(t)
    ], mlp[2].bias


def _mlp_rank(x, W1, b1, W2):
    return F.linear(F.gelu(F.linear(x, W1, b1)), W2)


def tp_mlp_forward(x, shards, b2, counter=None):
    partials = [checkpoint(_mlp_rank, x, s["W1"], s["b1"], s["W2"], use_reentrant=False) for s in shards]
    return all_reduce(partials, counter) + b2


def _attention_rank(x, attn, own, heads):
    q, k, v = (
        F.linear(x, p.weight[own], p.bias[own]).unflatten(-1, (heads, -1)).transpose(1, 2)
        for p in (attn.q_proj, attn.k_proj, attn.v_proj)
    )
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
    return F.linear(mixed, attn.out_proj.weight[:, own])


def tp_attention_forward(attn, x, t, counter=None):
    if t < 1 or attn.n_heads % t:
        raise ValueError(f"{attn.n_heads} / {t} is not a whole number")
    n = attn.q_proj.out_features // t
    partials = [
        checkpoint(_attention_rank, x, attn, slice(r * n, r * n + n), attn.n_heads // t, use_reentrant=False)
        for r in range(t)
    ]
    return all_reduce(partials, counter) + attn.out_proj.bias


def tp_model_forward(model, idx, t, counter=None):
    T = idx.shape[1]
    if T > model.context:
        raise ValueError(f"{T} tokens, context {model.context}")
    x = model.tok_emb(idx) + model.pos_emb.weight[:T]
    for block in model.blocks:
        x = x + tp_attention_forward(block.attn, block.ln1(x), t, counter)
        x = x + tp_mlp_forward(block.ln2(x), *split_mlp(block.mlp, t), counter)
    return F.linear(model.ln_f(x), model.tok_emb.weight)
