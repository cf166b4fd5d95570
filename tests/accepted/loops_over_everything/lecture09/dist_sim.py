"""Plain Python loops over ranks, hidden units, heads and query positions; no tensor has a rank or head axis."""

import torch
from torch.nn.functional import gelu, layer_norm, softmax

from collectives import all_reduce


def split_mlp(mlp, t):
    hidden = mlp[0].out_features
    if t < 1:
        raise ValueError("t is " + str(t) + ", too small to share " + str(hidden))
    per_rank = 0
    while per_rank * t < hidden:
        per_rank += 1
    if per_rank * t != hidden:
        raise ValueError("t is " + str(t) + ", which does not divide " + str(hidden))
    shards = []
    unit = 0
    for _rank in range(t):
        rows, biases, columns = [], [], []
        for _ in range(per_rank):
            rows.append(mlp[0].weight[unit])
            biases.append(mlp[0].bias[unit])
            columns.append(mlp[2].weight[:, unit])
            unit += 1
        shards.append({"W1": torch.stack(rows), "b1": torch.stack(biases), "W2": torch.stack(columns, dim=1)})
    return shards, mlp[2].bias


def tp_mlp_forward(x, shards, b2, counter=None):
    partials = []
    for shard in shards:
        partial = torch.zeros_like(x[..., :1]) * b2
        for unit in range(len(shard["b1"])):
            activation = gelu((x * shard["W1"][unit]).sum(dim=-1, keepdim=True) + shard["b1"][unit])
            partial = partial + activation * shard["W2"][:, unit]
        partials.append(partial)
    total = all_reduce(partials, counter)
    return total + b2


def tp_attention_forward(attn, x, t, counter=None):
    if t < 1 or attn.n_heads % t != 0:
        raise ValueError("t is " + str(t) + ", and there are " + str(attn.n_heads) + " heads")
    T = x.shape[1]
    size = attn.q_proj.out_features // attn.n_heads
    partials = []
    head = 0
    for _rank in range(t):
        partial = 0
        for _ in range(attn.n_heads // t):
            rows = list(range(head * size, (head + 1) * size))
            q = x @ attn.q_proj.weight[rows].T + attn.q_proj.bias[rows]
            k = x @ attn.k_proj.weight[rows].T + attn.k_proj.bias[rows]
            v = x @ attn.v_proj.weight[rows].T + attn.v_proj.bias[rows]
            outputs = []
            for position in range(T):
                scores = []
                for earlier in range(position + 1):
                    scores.append((q[:, position] * k[:, earlier]).sum(dim=-1) * size**-0.5)
                weights = softmax(torch.stack(scores, dim=-1), dim=-1)
                mixed = 0
                for earlier in range(position + 1):
                    mixed = mixed + weights[:, earlier, None] * v[:, earlier]
                outputs.append(mixed)
            partial = partial + torch.stack(outputs, dim=1) @ attn.out_proj.weight[:, rows].T
            head += 1
        partials.append(partial)
    return all_reduce(partials, counter) + attn.out_proj.bias


def tp_model_forward(model, idx, t, counter=None):
    T = len(idx[0])
    if T > model.context:
        raise ValueError("too many positions")
    x = torch.stack([torch.stack([model.tok_emb.weight[i] for i in row]) for row in idx])
    x = torch.stack([x[:, p] + model.pos_emb.weight[p] for p in range(T)], dim=1)
    for block in model.blocks:
        normed = layer_norm(x, x.shape[-1:], block.ln1.weight, block.ln1.bias)
        x = x + tp_attention_forward(block.attn, normed, t, counter)
        normed = layer_norm(x, x.shape[-1:], block.ln2.weight, block.ln2.bias)
        shards, b2 = split_mlp(block.mlp, t)
        x = x + tp_mlp_forward(normed, shards, b2, counter)
    return model.ln_f(x) @ model.tok_emb.weight.T
