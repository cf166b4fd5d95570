"""Public tests of `kv_cache_cost`: PaLM's figures, other sizes, and the parameters of every small model."""

import pytest

from exercises.checks import Check


def ask(module, name, expected, **arguments):
    """Call the function and compare the number that it returns."""
    shown = ", ".join(f"{key}={value}" for key, value in arguments.items())
    actual = getattr(module, name)(*arguments.values())  # in the contract's order; names are up to you
    Check(f"{name}({shown})").number(actual, expected, name, name)


def test_bytes_per_token(kv_cache_cost):
    ask(kv_cache_cost, "kv_cache_bytes_per_token", 5_799_936, layers=118, kv_heads=48, head_dim=256)
    ask(kv_cache_cost, "kv_cache_bytes_per_token", 120_832, layers=118, kv_heads=1, head_dim=256)
    ask(kv_cache_cost, "kv_cache_bytes_per_token", 1680, layers=3, kv_heads=5, head_dim=14, bytes_per_element=4)


def test_bytes(kv_cache_cost):
    ask(kv_cache_cost, "kv_cache_bytes", 760_209_211_392, context=2048, batch=64, layers=118, kv_heads=48, head_dim=256)
    ask(kv_cache_cost, "kv_cache_bytes", 5_880, context=7, batch=2, layers=3, kv_heads=5, head_dim=7)


@pytest.mark.parametrize(
    ("kv_heads", "t", "expected"), [(48, 1, 8064), (48, 8, 1008), (48, 48, 168), (1, 8, 168), (4, 8, 168)]
)
def test_bytes_per_rank(kv_cache_cost, kv_heads, t, expected):
    arguments = {"layers": 3, "n_heads": 48, "kv_heads": kv_heads, "head_dim": 14, "t": t}
    ask(kv_cache_cost, "kv_cache_bytes_per_token_per_rank", expected, **arguments)


def test_break_even(kv_cache_cost):
    params = 1_080_700_000_000
    palm = {"param_bytes": params, "layers": 118, "kv_heads": 48, "head_dim": 256}
    ask(kv_cache_cost, "break_even_tokens", params / 5_799_936, **palm)
    ask(kv_cache_cost, "break_even_tokens", 2.5, param_bytes=1050, layers=3, kv_heads=5, head_dim=7)


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        ({}, 113_408),
        ({"mlp": "swiglu"}, 113_708),
        ({"parallel": True}, 113_152),
        ({"mqa": True}, 100_928),
        ({"pos": "rope"}, 105_216),
        ({"bias": False}, 111_936),
        ({"mlp": "swiglu", "parallel": True, "mqa": True, "pos": "rope", "bias": False}, 91_456),
        ({"context": 9, "n_layers": 3, "d_model": 20, "n_heads": 5, "d_ff": 33}, 11_219),
    ],
)
def test_flex_param_count(kv_cache_cost, choices, expected):
    from train_lab import FlexConfig

    actual = kv_cache_cost.flex_param_count(FlexConfig(**{"vocab_size": 80} | choices))
    Check(f"flex_param_count(FlexConfig({choices}))").number(actual, expected, "the count", "参数量", tolerance=0)
