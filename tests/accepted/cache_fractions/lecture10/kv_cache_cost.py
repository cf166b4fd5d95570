"""Everything is a Fraction, the number of heads a rank keeps included, and the count is one closed polynomial."""

from __future__ import annotations

from fractions import Fraction as Q


def kv_cache_bytes_per_token(layers, kv_heads, head_dim, bytes_per_element=2):
    return Q(2) * Q(layers) * Q(kv_heads) * Q(head_dim) * Q(bytes_per_element)


def kv_cache_bytes(context, batch, *cache, **named):
    return Q(context) * Q(batch) * kv_cache_bytes_per_token(*cache, **named)


def kv_cache_bytes_per_token_per_rank(layers, n_heads, kv_heads, head_dim, t, bytes_per_element=2):
    copies = max(Q(t, kv_heads), Q(1))  # how many ranks keep the same head
    return kv_cache_bytes_per_token(layers, kv_heads, head_dim, bytes_per_element) * copies / t


def break_even_tokens(param_bytes, *cache, **named):
    return Q(param_bytes) / kv_cache_bytes_per_token(*cache, **named)


def flex_param_count(config):
    V, C, L, d, H, F = (
        Q(getattr(config, name)) for name in ("vocab_size", "context", "n_layers", "d_model", "n_heads", "d_ff")
    )
    b, p, m, r, s = config.bias, config.parallel, config.mqa, config.pos == "rope", config.mlp == "swiglu"
    kv = d / H if m else d
    hidden = Q(round(8 * d / 3)) if s else F
    matrices = 2 * d * d + 2 * d * kv + (3 if s else 2) * d * hidden
    biases = b * (2 * d + 2 * kv + (2 if s else 1) * hidden + d)
    return V * d + (1 - r) * C * d + L * (matrices + biases + (2 - p) * (1 + b) * d) + (1 + b) * d
