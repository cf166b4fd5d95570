"""Takes swiglu_hidden from another student file, palm_modules.py, and its functions are lambdas with *args."""
# ruff: noqa: E731

import dataclasses

from palm_modules import swiglu_hidden


def _per_token(layers, kv_heads, head_dim, bytes_per_element=2):
    return 2 * layers * kv_heads * head_dim * bytes_per_element


kv_cache_bytes_per_token = lambda *args, **named: _per_token(*args, **named)
kv_cache_bytes = lambda context, batch, *args, **named: context * batch * _per_token(*args, **named)
kv_cache_bytes_per_token_per_rank = lambda layers, n_heads, kv_heads, head_dim, t, *size, **named: _per_token(
    layers, -(-kv_heads // t), head_dim, *size, **named
)
break_even_tokens = lambda param_bytes, *args, **named: param_bytes / _per_token(*args, **named)


class Count:
    """A callable that keeps a tally."""

    def __call__(self, config):
        c = dataclasses.asdict(config)
        d, one = c["d_model"], int(c["bias"])
        width = d // c["n_heads"] if c["mqa"] else d
        inner, into = (swiglu_hidden(d), 2) if c["mlp"] == "swiglu" else (c["d_ff"], 1)
        tally = [(c["vocab_size"], d), (c["context"] * (c["pos"] == "learned"), d), (1 + one, d)]
        for _ in range(c["n_layers"]):
            tally += 2 * [(d + one, d)] + 2 * [(d + one, width)]
            tally += into * [(d + one, inner)] + [(inner + one, d)]
            tally += (1 if c["parallel"] else 2) * [(1 + one, d)]
        return sum(rows * columns for rows, columns in tally)


flex_param_count = Count()
