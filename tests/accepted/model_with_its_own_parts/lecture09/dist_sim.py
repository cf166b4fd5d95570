"""tp_model_forward calls none of the other functions: attention and MLP stand in it once more, written in another way."""

from __future__ import annotations

from torch.nn import functional as F

from collectives import all_reduce


def split_mlp(mlp, t):
    units = mlp[0].out_features
    if t < 1 or units % t:
        raise ValueError(f"t = {t} must divide {units}")
    n = units // t
    return [
        {
            "W1": mlp[0].weight[r * n : (r + 1) * n],
            "b1": mlp[0].bias[r * n : (r + 1) * n],
            "W2": mlp[2].weight[:, r * n : (r + 1) * n],
        }
        for r in range(t)
    ], mlp[2].bias


def tp_mlp_forward(x, shards, b2, counter=None):
    partials = [F.linear(F.gelu(F.linear(x, s["W1"], s["b1"])), s["W2"]) for s in shards]
    return all_reduce(partials, counter) + b2


def tp_attention_forward(attn, x, t, counter=None):
    if t < 1 or attn.n_heads % t:
        raise ValueError(f"t = {t} must divide {attn.n_heads}")
    q, k, v = (p(x).unflatten(-1, (attn.n_heads, -1)).transpose(1, 2) for p in (attn.q_proj, attn.k_proj, attn.v_proj))
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # (B, H, T, hd): heads never meet before out_proj
    partials = [
        F.linear(own.transpose(1, 2).flatten(2), W)
        for own, W in zip(mixed.chunk(t, dim=1), attn.out_proj.weight.chunk(t, dim=1))
    ]
    return all_reduce(partials, counter) + attn.out_proj.bias


def tp_model_forward(model, idx, t, counter=None):
    if idx.size(1) > model.context:
        raise ValueError(f"{idx.size(1)} tokens don't fit into {model.context}")
    for block in model.blocks:
        for what, size in (("heads", block.attn.n_heads), ("hidden units", block.mlp[0].out_features)):
            if t < 1 or size % t:
                raise ValueError(f"{t} ranks can't share {size} {what}")
    x = model.tok_emb(idx) + model.pos_emb.weight[: idx.size(1)]
    for block in model.blocks:
        h = block.ln1(x)
        B, T, d = h.shape
        at = block.attn
        sums = []
        for r in range(t):
            w = d // t
            a = slice(r * w, r * w + w)
            shape = (B, T, at.n_heads // t, d // at.n_heads)
            q = F.linear(h, at.q_proj.weight[a], at.q_proj.bias[a]).view(shape).transpose(1, 2)
            k = F.linear(h, at.k_proj.weight[a], at.k_proj.bias[a]).view(shape).transpose(1, 2)
            v = F.linear(h, at.v_proj.weight[a], at.v_proj.bias[a]).view(shape).transpose(1, 2)
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, w)
            sums.append(o @ at.out_proj.weight[:, a].T)
        x = x + (all_reduce(sums, counter) + at.out_proj.bias)

        h = block.ln2(x)
        up, act, down = block.mlp
        inner = act(up(h))
        sums = [i @ W.T for i, W in zip(inner.chunk(t, -1), down.weight.chunk(t, -1))]
        x = x + (all_reduce(sums, counter) + down.bias)
    return model.ln_f(x) @ model.tok_emb.weight.T
