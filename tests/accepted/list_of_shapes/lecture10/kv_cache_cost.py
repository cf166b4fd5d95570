"""Parameters are counted from a written-out list of every tensor's shape, cache bytes from the shape of the cache."""

from __future__ import annotations

from math import prod


def kv_cache_bytes_per_token(layers, kv_heads, head_dim, bytes_per_element=2):
    cache = (layers, ("key", "value"), kv_heads, head_dim)
    return prod(len(axis) if isinstance(axis, tuple) else axis for axis in cache) * bytes_per_element


def kv_cache_bytes(context, batch, layers, kv_heads, head_dim, bytes_per_element=2):
    return prod((batch, context, layers, 2, kv_heads, head_dim)) * bytes_per_element


def kv_cache_bytes_per_token_per_rank(layers, n_heads, kv_heads, head_dim, t, bytes_per_element=2):
    held = [head for head in range(kv_heads) if head * t // kv_heads == 0] if kv_heads >= t else [0]
    return kv_cache_bytes_per_token(layers, len(held), head_dim, bytes_per_element)


def break_even_tokens(param_bytes, layers, kv_heads, head_dim, bytes_per_element=2):
    return param_bytes / 2 / layers / kv_heads / head_dim / bytes_per_element


def flex_param_count(config):
    d, F = config.d_model, config.d_ff
    hd = d // config.n_heads
    shapes = {"tok_emb": (config.vocab_size, d), "ln_f.weight": (d,)}
    if config.bias:
        shapes["ln_f.bias"] = (d,)
    if config.pos == "learned":
        shapes["pos_emb"] = (config.context, d)
    for i in range(config.n_layers):
        linear = {"q": (d, d), "k": (hd if config.mqa else d, d), "v": (hd if config.mqa else d, d), "out": (d, d)}
        if config.mlp == "swiglu":
            hidden = (8 * d + 1) // 3
            linear |= {"gate": (hidden, d), "up": (hidden, d), "down": (d, hidden)}
        else:
            linear |= {"0": (F, d), "2": (d, F)}
        norms = ["ln"] if config.parallel else ["ln1", "ln2"]
        shapes |= {f"{i}.{name}.weight": shape for name, shape in linear.items()}
        shapes |= {f"{i}.{name}.weight": (d,) for name in norms}
        if config.bias:
            shapes |= {f"{i}.{name}.bias": shape[:1] for name, shape in linear.items()}
            shapes |= {f"{i}.{name}.bias": (d,) for name in norms}
    return sum(map(prod, shapes.values()))
