"""Hidden tests of `comm_cost`: the lecture's figures, sizes nobody can have memorised, laws, errors."""

from fractions import Fraction

import pytest

from comparing import refuses
from exercises.checks import Check

A100 = 312 * 10**12


def ask(student, name, *arguments):
    return student.ask("call", "comm_cost", name, *arguments)


def agrees(student, name, expected, *arguments, tolerance=1e-12):
    check = Check(f"{name}(…)", safe=True)
    check.number(ask(student, name, *arguments), expected, name, name, tolerance)


def message(tokens, d, size=2):
    return tokens * d * size


def ring(n, t):
    return Fraction(2 * (t - 1) * n, t)


def compute_seconds(tokens, d, t, peak, utilization=Fraction(1, 2)):
    return Fraction(72 * tokens * d * d) / (t * Fraction(peak) * Fraction(utilization))


def sizes(draw):
    """tokens, d_model, t, bytes an element; t divides nothing in particular."""
    return draw.number(2, 5000), draw.number(2, 9000), draw.number(2, 64), draw.number(1, 8)


def test_activation_bytes(student, draw):
    agrees(student, "activation_bytes", 50_331_648, 2048, 12288)
    for _ in range(3):
        tokens, d, _, size = sizes(draw)
        agrees(student, "activation_bytes", message(tokens, d, size), tokens, d, size)
        agrees(student, "activation_bytes", message(tokens, d), tokens, d)


@pytest.mark.weight(2)
def test_ring(student, draw):
    agrees(student, "ring_all_reduce_bytes_per_rank", 88_080_384, 50_331_648, 8)
    for _ in range(4):
        n, t = draw.number(1, 10**9), draw.number(1, 70)
        agrees(student, "ring_all_reduce_bytes_per_rank", ring(n, t), n, t)


def test_ring_laws(student, draw):
    """Nothing for one rank; more for more ranks, below 2 n; twice the message, twice the bytes; huge messages."""
    check = Check("ring_all_reduce_bytes_per_rank(…)", safe=True)
    n = draw.number(1000, 10**6)
    costs = [ask(student, "ring_all_reduce_bytes_per_rank", n, t) for t in (1, 2, 3, 5, 8, 64)]
    check.number(costs[0], 0, "the cost for one rank", "一个 rank 的代价")
    check.that(
        all(a < b for a, b in zip(costs, costs[1:])) and costs[-1] < 2 * n,
        "the cost doesn't grow with t towards twice the message",
        "代价没有随 t 增长并趋近消息的两倍",
    )
    check.number(
        ask(student, "ring_all_reduce_bytes_per_rank", 2 * n, 5), 2 * costs[3], "twice the message", "两倍的消息"
    )
    agrees(student, "ring_all_reduce_bytes_per_rank", ring(10**18 + 9, 7), 10**18 + 9, 7)


@pytest.mark.weight(2)
def test_layer_bytes(student, draw):
    agrees(student, "tp_layer_bytes_per_rank", 352_321_536, 2048, 12288, 8)
    for _ in range(3):
        tokens, d, t, size = sizes(draw)
        agrees(student, "tp_layer_bytes_per_rank", 4 * ring(message(tokens, d, size), t), tokens, d, t, size)
        agrees(student, "tp_layer_bytes_per_rank", 4 * ring(message(tokens, d), t), tokens, d, t)
    agrees(student, "tp_layer_bytes_per_rank", 0, tokens, d, 1)


@pytest.mark.weight(2)
def test_flops(student, draw):
    agrees(student, "layer_matmul_flops", 22_265_110_462_464, 2048, 12288)
    for _ in range(3):
        tokens, d, *_ = sizes(draw)
        agrees(student, "layer_matmul_flops", 72 * tokens * d * d, tokens, d)
        agrees(student, "layer_matmul_flops", 72 * tokens * d * d, tokens, d, True)
        agrees(student, "layer_matmul_flops", 24 * tokens * d * d, tokens, d, False)


@pytest.mark.weight(2)
def test_compute_seconds(student, draw):
    agrees(student, "layer_compute_seconds", 0.01784, 2048, 12288, 8, A100, tolerance=1e-3)
    for utilization in (0.25, 1, 0.875):
        tokens, d, t, _ = sizes(draw)
        peak = draw.number(10**9, 10**17)
        seconds = compute_seconds(tokens, d, t, peak, utilization)
        agrees(student, "layer_compute_seconds", seconds, tokens, d, t, peak, utilization)
        agrees(student, "layer_compute_seconds", compute_seconds(tokens, d, t, peak), tokens, d, t, peak)


@pytest.mark.weight(2)
def test_comm_seconds(student, draw):
    agrees(student, "layer_comm_seconds", 0.0011744051, 2048, 12288, 8, 300e9, tolerance=1e-6)
    agrees(student, "layer_comm_seconds", 0.0563714458, 2048, 12288, 8, 6.25e9, tolerance=1e-6)
    for _ in range(3):
        tokens, d, t, size = sizes(draw)
        bandwidth = draw.number(10**8, 10**14)
        agrees(student, "layer_comm_seconds", 4 * ring(message(tokens, d), t) / bandwidth, tokens, d, t, bandwidth)
        seconds = 4 * ring(message(tokens, d, size), t) / bandwidth
        agrees(student, "layer_comm_seconds", seconds, tokens, d, t, bandwidth, size)
        agrees(student, "layer_comm_seconds", seconds / 2, tokens, d, t, 2 * bandwidth, size)


@pytest.mark.weight(2)
def test_ratio(student, draw):
    agrees(student, "comm_to_compute", 0.065830, 2048, 12288, 8, A100, 300e9, tolerance=1e-4)
    agrees(student, "comm_to_compute", 3.15981, 2048, 12288, 8, A100, 6.25e9, tolerance=1e-4)
    for utilization in (0.25, 1, 0.5):
        tokens, d, t, size = sizes(draw)
        peak, bandwidth = draw.number(10**9, 10**17), draw.number(10**8, 10**14)
        seconds = 4 * ring(message(tokens, d, size), t) / bandwidth
        ratio = seconds / compute_seconds(tokens, d, t, peak, utilization)
        agrees(student, "comm_to_compute", ratio, tokens, d, t, peak, bandwidth, utilization, size)
        plain = 4 * ring(message(tokens, d), t) / bandwidth / compute_seconds(tokens, d, t, peak)
        agrees(student, "comm_to_compute", plain, tokens, d, t, peak, bandwidth)
    agrees(student, "comm_to_compute", 0, tokens, d, 1, peak, bandwidth)


GOOD = {
    "activation_bytes": {"tokens": 4, "d_model": 8, "bytes_per_element": 2},
    "ring_all_reduce_bytes_per_rank": {"message_bytes": 64, "t": 2},
    "tp_layer_bytes_per_rank": {"tokens": 4, "d_model": 8, "t": 2, "bytes_per_element": 2},
    "layer_matmul_flops": {"tokens": 4, "d_model": 8, "backward": True},
    "layer_compute_seconds": {"tokens": 4, "d_model": 8, "t": 2, "peak_flops": 1e9, "utilization": 0.5},
    "layer_comm_seconds": {"tokens": 4, "d_model": 8, "t": 2, "bandwidth": 1e9, "bytes_per_element": 2},
    "comm_to_compute": {
        "tokens": 4,
        "d_model": 8,
        "t": 2,
        "peak_flops": 1e9,
        "bandwidth": 1e9,
        "utilization": 0.5,
        "bytes_per_element": 2,
    },
}
VALUES = {
    "activation_bytes": 64,
    "ring_all_reduce_bytes_per_rank": 64,
    "tp_layer_bytes_per_rank": 256,
    "layer_matmul_flops": 18_432,
    "layer_compute_seconds": 1.8432e-05,
    "layer_comm_seconds": 2.56e-07,
    "comm_to_compute": 2.56e-07 / 1.8432e-05,
}
BAD = {
    "peak_flops": (0, -1e9, 0.0),
    "bandwidth": (0, -1e9, 0.0),
    "utilization": (0, -0.5, 1.25),
}


@pytest.mark.parametrize("name", list(GOOD))
def test_senseless_arguments_are_refused(student, name):
    good = GOOD[name]
    agrees(student, name, VALUES[name], *good.values())
    for others in [good] + [good | {"t": 1}] * ("t" in good) + [good | {"backward": False}] * ("backward" in good):
        for argument in (name for name in good if name != "backward"):
            for value in BAD.get(argument, (0, -3, 2.5, 4097.5)):
                shown = "a senseless" if argument in BAD else "a zero, negative or fractional"
                check = Check(f"{name} with {shown} {argument}", safe=True)
                refuses(check, lambda: ask(student, name, *(others | {argument: value}).values()), argument)  # noqa: B023
