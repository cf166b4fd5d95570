"""Each rank adds another slice of the output bias, padded with zeros: a bias that is sharded and still counts once."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from collectives import all_reduce


def _own_slice(bias: Tensor, rank: int, t: int) -> Tensor:
    """Entries rank·d/t to (rank+1)·d/t of the bias, rounded down; zeros elsewhere. d need not be divisible by t."""
    d = len(bias)
    start, stop = rank * d // t, (rank + 1) * d // t
    return F.pad(bias[start:stop], (start, d - stop))


def split_mlp(mlp, t):
    first, last = mlp[0], mlp[-1]
    if t < 1 or first.out_features % t:
        raise ValueError(f"t = {t}, F = {first.out_features}")
    shards: list[dict] = [{} for _ in range(t)]
    for name, tensor, dim in (("W1", first.weight, 0), ("b1", first.bias, 0), ("W2", last.weight, 1)):
        for shard, piece in zip(shards, tensor.chunk(t, dim)):
            shard[name] = piece
    return shards, last.bias


def tp_mlp_forward(x, shards, b2, counter=None):
    t = len(shards)
    return all_reduce(
        [
            F.gelu(x @ shard["W1"].T + shard["b1"]) @ shard["W2"].T + _own_slice(b2, rank, t)
            for rank, shard in enumerate(shards)
        ],
        counter,
    )


def tp_attention_forward(attn, x, t, counter=None):
    if t < 1 or attn.n_heads % t:
        raise ValueError(f"t = {t}, H = {attn.n_heads}")
    local = attn.n_heads // t
    parts = []
    for rank, W_out in enumerate(attn.out_proj.weight.chunk(t, 1)):
        q, k, v = (
            F.linear(x, p.weight.chunk(t)[rank], p.bias.chunk(t)[rank]).unflatten(-1, (local, -1)).transpose(1, 2)
            for p in (attn.q_proj, attn.k_proj, attn.v_proj)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        parts.append(mixed.transpose(1, 2).flatten(2) @ W_out.T + _own_slice(attn.out_proj.bias, rank, t))
    return all_reduce(parts, counter)


def tp_model_forward(model, idx, t, counter=None):
    T = idx.shape[1]
    if T > model.context:
        raise ValueError(f"T = {T} is above the context {model.context}")
    x = model.tok_emb(idx) + model.pos_emb.weight[:T]
    for block in model.blocks:
        x = x + tp_attention_forward(block.attn, block.ln1(x), t, counter)
        x = x + tp_mlp_forward(block.ln2(x), *split_mlp(block.mlp, t), counter)
    return F.linear(model.ln_f(x), model.tok_emb.weight)
