"""A Cache class with cached properties does the arithmetic, and results are memoised; sizes may be any integer type."""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass


@dataclass(frozen=True)
class Cache:
    layers: int
    kv_heads: int
    head_dim: int
    bytes_per_element: int = 2

    @functools.cached_property
    def per_token(self) -> int:
        factors = (2, self.layers, self.kv_heads, self.head_dim, self.bytes_per_element)
        return functools.reduce(operator.mul, map(operator.index, factors))

    def on_each_of(self, t: int) -> Cache:
        return Cache(self.layers, self.kv_heads // t or 1, self.head_dim, self.bytes_per_element)

    def __rtruediv__(self, param_bytes: float) -> float:
        return param_bytes / self.per_token

    def __mul__(self, tokens: int) -> int:
        return tokens * self.per_token


@functools.cache
def kv_cache_bytes_per_token(*args, **kwargs):
    return Cache(*args, **kwargs).per_token


def kv_cache_bytes(context, batch, *args, **kwargs):
    return Cache(*args, **kwargs) * (context * batch)


def kv_cache_bytes_per_token_per_rank(layers, n_heads, kv_heads, head_dim, t, bytes_per_element=2):
    return Cache(layers, kv_heads, head_dim, bytes_per_element).on_each_of(t).per_token


def break_even_tokens(param_bytes, *args, **kwargs):
    return param_bytes / Cache(*args, **kwargs)


@functools.lru_cache(maxsize=128)
def flex_param_count(config) -> int:
    d, kv = config.d_model, config.d_model // (config.n_heads if config.mqa else 1)
    hidden = {"swiglu": round(8 * d / 3), "gelu": config.d_ff}[config.mlp]
    wide = {"swiglu": 2, "gelu": 1}[config.mlp]
    weights = 2 * d * (d + kv) + (wide + 1) * d * hidden
    biases = 2 * (d + kv) + wide * hidden + d
    norms = (2 - bool(config.parallel)) * d
    total = config.n_layers * (weights + norms) + d * (config.vocab_size + 1)
    if config.bias:
        total += config.n_layers * (biases + norms) + d
    if config.pos == "learned":
        total += config.context * d
    return total
