"""Lecture 10, exercise 5: what a KV cache costs, and what the small model's parameters come to. Plain Python numbers.

Sources: Shazeer 2019, "Fast Transformer Decoding", sections 2 and 3; Pope et al. 2022, "Efficiently Scaling
Transformer Inference", section 3.3 (the cache on several ranks).
"""

from __future__ import annotations


def kv_cache_bytes_per_token(layers: int, kv_heads: int, head_dim: int, bytes_per_element: int = 2) -> float:
    """Bytes that one cached token takes: a key and a value for each layer and key/value head."""
    raise NotImplementedError("to do: kv_cache_cost")


def kv_cache_bytes(
    context: int, batch: int, layers: int, kv_heads: int, head_dim: int, bytes_per_element: int = 2
) -> float:
    """Bytes of the cache of `batch` sequences of `context` tokens each."""
    raise NotImplementedError("to do: kv_cache_cost")


def kv_cache_bytes_per_token_per_rank(
    layers: int, n_heads: int, kv_heads: int, head_dim: int, t: int, bytes_per_element: int = 2
) -> float:
    """Bytes that one cached token takes on each of t ranks, with the heads split over the ranks.

    Where t divides `kv_heads`, a rank keeps kv_heads / t of them. Where `kv_heads` divides t, a rank keeps one head,
    and t / kv_heads ranks keep the same one. `n_heads`, the number of query heads, changes nothing in the cache.
    """
    raise NotImplementedError("to do: kv_cache_cost")


def break_even_tokens(
    param_bytes: float, layers: int, kv_heads: int, head_dim: int, bytes_per_element: int = 2
) -> float:
    """The number of cached tokens at which reading the cache costs as much as reading the parameters; not rounded."""
    raise NotImplementedError("to do: kv_cache_cost")


def flex_param_count(config) -> int:
    """The number of parameters of `train_lab.make_flex(config, seed)`, in closed form: no module is built.

    `config` is a `train_lab.FlexConfig`. Input and output embedding are one matrix and count once. With
    `bias=False` the norms have no bias either; RoPE has no parameters.
    """
    raise NotImplementedError("to do: kv_cache_cost")
