"""Lecture 10, exercise 5: what a KV cache costs, and what the small model's parameters come to. Plain Python numbers.

Sources: Shazeer 2019, "Fast Transformer Decoding", sections 2 and 3; Pope et al. 2022, "Efficiently Scaling
Transformer Inference", section 3.3 (the cache on several ranks).
"""

from __future__ import annotations


def kv_cache_bytes_per_token(layers: int, kv_heads: int, head_dim: int, bytes_per_element: int = 2) -> float:
    """Bytes that one cached token takes: a key and a value for each layer and key/value head."""
    ### BEGIN SOLUTION
    return 2 * layers * kv_heads * head_dim * bytes_per_element
    ### END SOLUTION


def kv_cache_bytes(
    context: int, batch: int, layers: int, kv_heads: int, head_dim: int, bytes_per_element: int = 2
) -> float:
    """Bytes of the cache of `batch` sequences of `context` tokens each."""
    ### BEGIN SOLUTION
    return context * batch * kv_cache_bytes_per_token(layers, kv_heads, head_dim, bytes_per_element)
    ### END SOLUTION


def kv_cache_bytes_per_token_per_rank(
    layers: int, n_heads: int, kv_heads: int, head_dim: int, t: int, bytes_per_element: int = 2
) -> float:
    """Bytes that one cached token takes on each of t ranks, with the heads split over the ranks.

    Where t divides `kv_heads`, a rank keeps kv_heads / t of them. Where `kv_heads` divides t, a rank keeps one head,
    and t / kv_heads ranks keep the same one. `n_heads`, the number of query heads, changes nothing in the cache.
    """
    ### BEGIN SOLUTION
    return kv_cache_bytes_per_token(layers, max(kv_heads // t, 1), head_dim, bytes_per_element)
    ### END SOLUTION


def break_even_tokens(
    param_bytes: float, layers: int, kv_heads: int, head_dim: int, bytes_per_element: int = 2
) -> float:
    """The number of cached tokens at which reading the cache costs as much as reading the parameters; not rounded."""
    ### BEGIN SOLUTION
    return param_bytes / kv_cache_bytes_per_token(layers, kv_heads, head_dim, bytes_per_element)
    ### END SOLUTION


def flex_param_count(config) -> int:
    """The number of parameters of `train_lab.make_flex(config, seed)`, in closed form: no module is built.

    `config` is a `train_lab.FlexConfig`. Input and output embedding are one matrix and count once. With
    `bias=False` the norms have no bias either; RoPE has no parameters.
    """
    ### BEGIN SOLUTION
    d = config.d_model
    bias = int(config.bias)

    def linear(inputs: int, outputs: int) -> int:
        return inputs * outputs + bias * outputs

    kv_width = d // config.n_heads if config.mqa else d
    attention = 2 * linear(d, d) + 2 * linear(d, kv_width)
    if config.mlp == "swiglu":
        hidden = round(8 * d / 3)
        mlp = 2 * linear(d, hidden) + linear(hidden, d)
    else:
        mlp = linear(d, config.d_ff) + linear(config.d_ff, d)
    norm = d + bias * d
    block = attention + mlp + (1 if config.parallel else 2) * norm
    positions = config.context * d if config.pos == "learned" else 0
    return config.vocab_size * d + positions + config.n_layers * block + norm
    ### END SOLUTION
