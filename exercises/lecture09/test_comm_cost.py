"""Public tests of `comm_cost`: the lecture's figures, other sizes, laws, errors."""

import pytest

from exercises.checks import Check

GPT3 = {"tokens": 2048, "d_model": 12288, "t": 8}
A100 = 312e12


def ask(module, name, expected, tolerance=1e-12, **arguments):
    """Call the function and compare the number that it returns."""
    shown = ", ".join(f"{key}={value}" for key, value in arguments.items())
    actual = getattr(module, name)(*arguments.values())  # in the contract's order; names are up to you
    Check(f"{name}({shown})").number(actual, expected, f"{name}", f"{name}", tolerance)


def test_one_message(comm_cost):
    ask(comm_cost, "activation_bytes", 50_331_648, tokens=2048, d_model=12288)
    ask(comm_cost, "activation_bytes", 1260, tokens=5, d_model=63, bytes_per_element=4)


def test_ring_all_reduce(comm_cost):
    ask(comm_cost, "ring_all_reduce_bytes_per_rank", 88_080_384, message_bytes=50_331_648, t=8)
    ask(comm_cost, "ring_all_reduce_bytes_per_rank", 900, message_bytes=600, t=4)
    ask(comm_cost, "ring_all_reduce_bytes_per_rank", 0, message_bytes=600, t=1)


def test_a_layer(comm_cost):
    ask(comm_cost, "tp_layer_bytes_per_rank", 352_321_536, **GPT3)
    ask(comm_cost, "tp_layer_bytes_per_rank", 5_040, tokens=5, d_model=63, t=2, bytes_per_element=4)


def test_flops(comm_cost):
    ask(comm_cost, "layer_matmul_flops", 2_949_120, tokens=10, d_model=64)
    ask(comm_cost, "layer_matmul_flops", 983_040, tokens=10, d_model=64, backward=False)
    ask(comm_cost, "layer_matmul_flops", 22.265e12, tolerance=1e-4, tokens=2048, d_model=12288)


def test_compute_time(comm_cost):
    ask(comm_cost, "layer_compute_seconds", 0.01784, tolerance=1e-3, **GPT3, peak_flops=A100)
    ask(comm_cost, "layer_compute_seconds", 0.00589824, tokens=10, d_model=64, t=2, peak_flops=1e9, utilization=0.25)


def test_communication_time(comm_cost):
    ask(comm_cost, "layer_comm_seconds", 0.00117440512, **GPT3, bandwidth=300e9)
    ask(comm_cost, "layer_comm_seconds", 0.05637144576, **GPT3, bandwidth=6.25e9)


def test_ratio(comm_cost):
    ask(comm_cost, "comm_to_compute", 0.0658, tolerance=1e-3, **GPT3, peak_flops=A100, bandwidth=300e9)
    ask(comm_cost, "comm_to_compute", 3.160, tolerance=1e-3, **GPT3, peak_flops=A100, bandwidth=6.25e9)
    ask(comm_cost, "comm_to_compute", 0, tokens=8, d_model=64, t=1, peak_flops=1e12, bandwidth=1e9)


@pytest.mark.parametrize(
    ("name", "argument", "value"),
    [
        ("activation_bytes", "tokens", 0),
        ("activation_bytes", "d_model", -4),
        ("activation_bytes", "bytes_per_element", 0),
        ("ring_all_reduce_bytes_per_rank", "message_bytes", -1),
        ("ring_all_reduce_bytes_per_rank", "t", 0),
        ("tp_layer_bytes_per_rank", "tokens", 2.5),
        ("layer_matmul_flops", "d_model", 0),
        ("layer_compute_seconds", "t", 0),
        ("layer_compute_seconds", "peak_flops", 0),
        ("layer_compute_seconds", "utilization", 1.5),
        ("layer_comm_seconds", "bandwidth", -1e9),
        ("comm_to_compute", "utilization", 0),
    ],
)
def test_a_senseless_argument_is_refused(comm_cost, name, argument, value):
    good = {
        "activation_bytes": {"tokens": 4, "d_model": 8, "bytes_per_element": 2},
        "ring_all_reduce_bytes_per_rank": {"message_bytes": 64, "t": 2},
        "tp_layer_bytes_per_rank": {"tokens": 4, "d_model": 8, "t": 2},
        "layer_matmul_flops": {"tokens": 4, "d_model": 8},
        "layer_compute_seconds": {"tokens": 4, "d_model": 8, "t": 2, "peak_flops": 1e9, "utilization": 0.5},
        "layer_comm_seconds": {"tokens": 4, "d_model": 8, "t": 2, "bandwidth": 1e9},
        "comm_to_compute": {"tokens": 4, "d_model": 8, "t": 2, "peak_flops": 1e9, "bandwidth": 1e9, "utilization": 0.5},
    }[name]
    function = getattr(comm_cost, name)
    function(*good.values())
    with Check(f"{name}({argument}={value})").refuses(argument):
        function(*(good | {argument: value}).values())
