"""Left-over debugging everywhere: prints, warnings, logging, text on stderr, and a self-test at import that draws numbers."""

from __future__ import annotations

import logging
import sys
import warnings

import torch
from torch import nn
from torch.nn import functional as F

from collectives import all_reduce

logging.basicConfig(level=logging.DEBUG)
log = logging.getLogger("mine")


def split_mlp(mlp, t):
    print("split_mlp", mlp, t)
    hidden = mlp[0].out_features
    if t < 1 or hidden % t:
        log.error("bad t: %s", t)
        raise ValueError(f"t={t} hidden={hidden}")
    n = hidden // t
    shards = []
    for r in range(t):
        shards.append({"W1": mlp[0].weight[r * n :][:n], "b1": mlp[0].bias[r * n :][:n]})
        shards[-1]["W2"] = mlp[2].weight[:, r * n : (r + 1) * n]
        print({key: tuple(piece.shape) for key, piece in shards[-1].items()}, file=sys.stderr)
    return shards, mlp[2].bias


def tp_mlp_forward(x, shards, b2, counter=None):
    warnings.warn("tp_mlp_forward is running", stacklevel=2)
    log.debug("x %s", x.shape)
    parts = [F.gelu(x @ s["W1"].T + s["b1"]) @ s["W2"].T for s in shards]
    print("mean of the parts:", [part.mean().item() for part in parts], flush=True)
    return all_reduce(parts, counter) + b2


def tp_attention_forward(attn, x, t, counter=None):
    sys.stderr.write(f"attention with t={t}\n")
    if t < 1 or attn.n_heads % t:
        raise ValueError(f"t={t} heads={attn.n_heads}")
    n = attn.q_proj.out_features // t
    parts = []
    for r in range(t):
        own = range(r * n, (r + 1) * n)
        q, k, v = (
            F.linear(x, p.weight[own], p.bias[own]).unflatten(-1, (attn.n_heads // t, -1)).transpose(1, 2)
            for p in (attn.q_proj, attn.k_proj, attn.v_proj)
        )
        print("q", q)
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        parts.append(heads @ attn.out_proj.weight[:, own].T)
    return all_reduce(parts, counter) + attn.out_proj.bias


def tp_model_forward(model, idx, t, counter=None):
    T = idx.shape[1]
    if T > model.context:
        raise ValueError(f"T={T}")
    x = model.tok_emb(idx) + model.pos_emb.weight[:T]
    for i, block in enumerate(model.blocks):
        log.info("block %d", i)
        x = x + tp_attention_forward(block.attn, block.ln1(x), t, counter)
        x = x + tp_mlp_forward(block.ln2(x), *split_mlp(block.mlp, t), counter)
    return F.linear(model.ln_f(x), model.tok_emb.weight)


_mlp = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))
_x = torch.randn(1, 2, 4)
print("off by", (tp_mlp_forward(_x, *split_mlp(_mlp, 2)) - _mlp(_x)).abs().max().item(), file=sys.stderr)

if __name__ == "__main__":
    print("done")
