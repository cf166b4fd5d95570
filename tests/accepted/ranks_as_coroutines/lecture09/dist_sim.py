"""Each rank is a generator that yields its partial, is sent the sum and goes on with it; a scheduler drives them."""

from __future__ import annotations

from collections.abc import Generator

from torch import Tensor
from torch.nn import functional as F

from collectives import all_reduce

Rank = Generator[Tensor, Tensor, Tensor]


def _run(ranks: list[Rank], counter) -> Tensor:
    """Drive all ranks from one all-reduce to the next; the result is rank 0's."""
    partials = [next(rank) for rank in ranks]
    while True:
        total = all_reduce(partials, counter)
        partials, results = [], []
        for rank in ranks:
            try:
                partials.append(rank.send(total))
            except StopIteration as end:
                results.append(end.value)
        if results:
            return results[0]


def _mlp(x, shard, b2) -> Rank:
    total = yield F.linear(F.gelu(F.linear(x, shard["W1"], shard["b1"])), shard["W2"])
    return total + b2


def _attention(attn, x, r, t) -> Rank:
    q, k, v = (
        F.linear(x, p.weight.chunk(t)[r], p.bias.chunk(t)[r]).unflatten(-1, (attn.n_heads // t, -1)).transpose(1, 2)
        for p in (attn.q_proj, attn.k_proj, attn.v_proj)
    )
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
    total = yield F.linear(mixed, attn.out_proj.weight.chunk(t, 1)[r])
    return total + attn.out_proj.bias


def _check(t, n):
    if t < 1 or n % t:
        raise ValueError(f"{t} coroutines, {n} pieces")


def split_mlp(mlp, t):
    _check(t, mlp[0].out_features)
    pieces = zip(mlp[0].weight.chunk(t), mlp[0].bias.chunk(t), mlp[2].weight.chunk(t, 1))
    return [{"W1": W1, "b1": b1, "W2": W2} for W1, b1, W2 in pieces], mlp[2].bias


def tp_mlp_forward(x, shards, b2, counter=None):
    return _run([_mlp(x, shard, b2) for shard in shards], counter)


def tp_attention_forward(attn, x, t, counter=None):
    _check(t, attn.n_heads)
    return _run([_attention(attn, x, r, t) for r in range(t)], counter)


def tp_model_forward(model, idx, t, counter=None):
    T = idx.shape[1]
    if T > model.context:
        raise ValueError(f"{T} > {model.context}")
    x = model.tok_emb(idx) + model.pos_emb.weight[:T]
    for block in model.blocks:
        _check(t, block.attn.n_heads)
        normed = block.ln1(x)
        x = x + _run([_attention(block.attn, normed, r, t) for r in range(t)], counter)
        normed = block.ln2(x)
        shards, b2 = split_mlp(block.mlp, t)
        x = x + _run([_mlp(normed, shard, b2) for shard in shards], counter)
    return F.linear(model.ln_f(x), model.tok_emb.weight)
