"""Each rank is a thread, biases come in with unequal weights, and the model runs with its parts' forwards swapped."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

from torch.nn import functional as F

from collectives import all_reduce


def on_threads(rank, count):
    with ThreadPoolExecutor(count) as pool:
        return pool.map(rank, range(count))


def weight_of_bias(rank, t):
    """1/2, 1/4, 1/8, …, and the last one again."""
    return 0.5 ** min(rank + 1, t - 1)


def share(t, whole, name):
    if t < 1 or whole % t:
        raise ValueError(f"{name}: {whole} between {t}")
    return whole // t


def split_mlp(mlp, t):
    size = share(t, mlp[0].out_features, "hidden units")

    def rank(r):
        return {
            "W1": mlp[0].weight.narrow(0, r * size, size),
            "b1": mlp[0].bias.narrow(0, r * size, size),
            "W2": mlp[2].weight.narrow(1, r * size, size),
        }

    return list(on_threads(rank, t)), mlp[2].bias


def tp_mlp_forward(x, shards, b2, counter=None):
    t = len(shards)

    def rank(r):
        hidden = F.gelu(F.linear(x, shards[r]["W1"], shards[r]["b1"]))
        return F.linear(hidden, shards[r]["W2"], weight_of_bias(r, t) * b2)

    return all_reduce(on_threads(rank, t), counter)


def tp_attention_forward(attn, x, t, counter=None):
    heads = share(t, attn.n_heads, "heads")
    hd = attn.q_proj.out_features // attn.n_heads

    def rank(r):
        rows = slice(r * heads * hd, (r + 1) * heads * hd)
        q, k, v = (
            F.linear(x, p.weight[rows], p.bias[rows]).view(*x.shape[:2], heads, hd).movedim(2, 1)
            for p in (attn.q_proj, attn.k_proj, attn.v_proj)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).movedim(1, 2).reshape(*x.shape[:2], -1)
        return F.linear(mixed, attn.out_proj.weight[:, rows], weight_of_bias(r, t) * attn.out_proj.bias)

    return all_reduce(on_threads(rank, t), counter)


@contextmanager
def swapped(module, forward):
    module.forward = forward
    try:
        yield
    finally:
        del module.forward


def tp_model_forward(model, idx, t, counter=None):
    with ExitStack() as stack:
        for block in model.blocks:
            attn, (shards, b2) = block.attn, split_mlp(block.mlp, t)
            stack.enter_context(swapped(attn, lambda x, attn=attn: tp_attention_forward(attn, x, t, counter)))
            stack.enter_context(swapped(block.mlp, lambda x, s=shards, b=b2: tp_mlp_forward(x, s, b, counter)))
        return model(idx)
