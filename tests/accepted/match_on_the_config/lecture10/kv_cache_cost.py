"""The configuration is taken apart with match and class patterns of the lab's own FlexConfig."""

from __future__ import annotations

from train_lab import FlexConfig


def kv_cache_bytes_per_token(layers, kv_heads, head_dim, bytes_per_element=2):
    match bytes_per_element:
        case 0:
            return 0
        case size:
            return size * head_dim * kv_heads * layers << 1


def kv_cache_bytes(context, batch, layers, kv_heads, head_dim, bytes_per_element=2):
    return sum(context * kv_cache_bytes_per_token(layers, kv_heads, head_dim, bytes_per_element) for _ in range(batch))


def kv_cache_bytes_per_token_per_rank(layers, n_heads, kv_heads, head_dim, t, bytes_per_element=2):
    match divmod(kv_heads, t):
        case 0, _:
            kept = 1
        case kept, 0:
            pass
        case kept, _:
            raise ValueError(f"t = {t} ranks and {kv_heads} heads don't go together")
    return kv_cache_bytes_per_token(layers, kept, head_dim, bytes_per_element)


def break_even_tokens(param_bytes, layers, kv_heads, head_dim, bytes_per_element=2):
    return param_bytes * kv_cache_bytes_per_token(layers, kv_heads, head_dim, bytes_per_element) ** -1


def flex_param_count(config: FlexConfig) -> int:
    def affine(n_in, n_out):
        return (n_in + (1 if config.bias else 0)) * n_out

    match config:
        case FlexConfig(mqa=True, d_model=d, n_heads=heads):
            attention = 2 * affine(d, d) + 2 * affine(d, d // heads)
        case FlexConfig(d_model=d):
            attention = 4 * affine(d, d)
    match config:
        case FlexConfig(mlp="swiglu"):
            hidden = round(8 * d / 3)
            mlp = 2 * affine(d, hidden) + affine(hidden, d)
        case FlexConfig(mlp="gelu", d_ff=hidden):
            mlp = affine(d, hidden) + affine(hidden, d)
    norms = affine(1, d) * (1 if config.parallel else 2)
    match config.pos:
        case "learned":
            rows = config.vocab_size + config.context
        case "rope":
            rows = config.vocab_size
    return rows * d + config.n_layers * (attention + mlp + norms) + affine(1, d)
