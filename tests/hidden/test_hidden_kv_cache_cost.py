"""Hidden tests of `kv_cache_cost`: PaLM's figures, sizes nobody can have memorised, and every small model."""

from fractions import Fraction
from itertools import product

import pytest

from comparing import either
from exercises.checks import Check

PALM = (118, 48, 256)


def agrees(student, name, expected, *arguments, tolerance=1e-12):
    actual = student.ask("call", "kv_cache_cost", name, *arguments)
    Check(f"{name}(…)", safe=True).number(actual, expected, name, name, tolerance)


def sizes(draw):
    """layers, kv_heads, head_dim, bytes an element."""
    return draw.number(2, 200), draw.number(2, 64), draw.number(3, 300), draw.number(1, 8)


@pytest.mark.weight(2)
def test_bytes_per_token(student, draw):
    agrees(student, "kv_cache_bytes_per_token", 5_799_936, *PALM)
    agrees(student, "kv_cache_bytes_per_token", 120_832, 118, 1, 256)
    for _ in range(3):
        layers, heads, hd, size = sizes(draw)
        agrees(student, "kv_cache_bytes_per_token", 2 * layers * heads * hd * size, layers, heads, hd, size)
        agrees(student, "kv_cache_bytes_per_token", 4 * layers * heads * hd, layers, heads, hd)


@pytest.mark.weight(2)
def test_bytes(student, draw):
    agrees(student, "kv_cache_bytes", 760_209_211_392, 2048, 64, *PALM)
    for _ in range(3):
        (layers, heads, hd, size), context, batch = sizes(draw), draw.number(2, 10**6), draw.number(2, 999)
        expected = 2 * context * batch * layers * heads * hd
        agrees(student, "kv_cache_bytes", expected * size, context, batch, layers, heads, hd, size)
        agrees(student, "kv_cache_bytes", expected * 2, context, batch, layers, heads, hd)
        agrees(student, "kv_cache_bytes", expected * 4, context, 2 * batch, layers, heads, hd)


@pytest.mark.weight(2)
@pytest.mark.parametrize(
    ("kv", "t", "kept"), [(48, 1, 48), (48, 8, 6), (12, 12, 1), (1, 8, 1), (1, 1, 1), (4, 8, 1), (6, 3, 2)]
)
def test_bytes_per_rank(student, draw, kv, t, kept):
    layers, _, hd, size = sizes(draw)
    arguments = layers, 48, kv, hd, t
    agrees(student, "kv_cache_bytes_per_token_per_rank", 2 * layers * kept * hd * size, *arguments, size)
    agrees(student, "kv_cache_bytes_per_token_per_rank", 4 * layers * kept * hd, *arguments)


def test_bytes_on_any_number_of_ranks(student, draw):
    for _ in range(3):
        (layers, few, hd, size), many = sizes(draw), draw.number(17, 50)
        for kv, t, kept in ((few * many, many, few), (few, few * many, 1)):
            arguments = layers, kv * draw.number(1, 3), kv, hd, t, size
            agrees(student, "kv_cache_bytes_per_token_per_rank", 2 * layers * kept * hd * size, *arguments)


@pytest.mark.weight(2)
def test_break_even(student, draw):
    for _ in range(4):
        (layers, heads, hd, size), parameters = sizes(draw), draw.number(10**4, 10**13)
        quotient = Fraction(parameters, 2 * layers * heads * hd * size)
        agrees(student, "break_even_tokens", quotient, parameters, layers, heads, hd, size)
        agrees(student, "break_even_tokens", quotient * size / 2, parameters, layers, heads, hd)
    agrees(student, "break_even_tokens", Fraction(1_080_700_000_000, 5_799_936), 1_080_700_000_000, *PALM)


def true_count(vocab_size, context, n_layers, d_model, n_heads, d_ff, mlp, parallel, mqa, pos, bias):
    """The shapes of every tensor of train_lab.FlexGPT, listed and added up."""
    d, kv, hidden = d_model, d_model // n_heads if mqa else d_model, (16 * d_model + 3) // 6
    linears = [(d, d), (d, kv), (d, kv), (d, d)]
    linears += [(d, hidden), (d, hidden), (hidden, d)] if mlp == "swiglu" else [(d, d_ff), (d_ff, d)]
    block = sum(i * o + bias * o for i, o in linears) + (1 if parallel else 2) * (d + bias * d)
    return (vocab_size + (context if pos == "learned" else 0)) * d + n_layers * block + d + bias * d


def made_anew(value):
    """A word as it comes from a command line: equal to the one in the code, and not the same object."""
    return "".join(list(value)) if isinstance(value, str) else value


@pytest.mark.weight(4)
def test_flex_param_count(student, draw):
    """Every combination of choices; equal to the true count, or to that of the model of the student's own modules."""
    check = Check("flex_param_count(config)", safe=True)
    for choices in product(("gelu", "swiglu"), (False, True), (False, True), ("learned", "rope"), (True, False)):
        config = {name: made_anew(value) for name, value in zip(("mlp", "parallel", "mqa", "pos", "bias"), choices)}
        heads = draw.number(1, 5)
        sizes = {"vocab_size": draw.number(3, 90), "context": draw.number(3, 90), "n_layers": draw.number(1, 4)}
        config |= sizes | {"d_model": 2 * heads * draw.number(1, 6), "n_heads": heads, "d_ff": draw.number(3, 90)}
        actual = student.ask("flex_param_count", config)
        either(
            lambda: check.number(actual, true_count(**config), "the count", "参数量", 0),  # noqa: B023
            lambda: check.number(actual, student.ask("flex_count", config), "the count", "参数量", 0),  # noqa: B023
        )


FIXED = {"vocab_size": 7, "context": 9, "n_layers": 2, "n_heads": 1, "d_ff": 11}


def test_flex_param_count_where_rounding_shows(student):
    """8 d / 3 rounds up for some of these widths, down for others, and is whole for others; odd ones are allowed too."""
    check = Check("flex_param_count(config)", safe=True)
    for d, bias in product((7, 8, 10, 12, 15, 20, 22), (True, False)):
        choices = {"mlp": "swiglu", "parallel": True, "mqa": True, "pos": "learned", "bias": bias}
        config = FIXED | choices | {"d_model": d}
        actual = student.ask("flex_param_count", config)
        either(
            lambda: check.number(actual, true_count(**config), "the count", "参数量", 0),  # noqa: B023
            lambda: check.number(actual, student.ask("flex_count", config), "the count", "参数量", 0),  # noqa: B023
        )


def test_flex_param_count_builds_nothing(student):
    """A vocabulary for which no matrix fits into memory."""
    choices = {"mlp": "gelu", "parallel": False, "mqa": False, "pos": "learned", "bias": True}
    config = FIXED | choices | {"d_model": 8, "vocab_size": 10**13}
    actual = student.ask("flex_param_count", config)
    Check("flex_param_count(config), a huge vocabulary", safe=True).number(
        actual, true_count(**config), "the count", "参数量", 0
    )
