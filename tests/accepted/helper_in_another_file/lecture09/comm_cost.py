"""Besides its own formulas this file holds the checks that dist_sim.py imports."""

from __future__ import annotations


def shared_evenly(size: int, t: int) -> int:
    """size / t, or a ValueError that names both."""
    if t < 1 or size % t:
        raise ValueError(f"{size} can't be shared evenly by {t}")
    return size // t


def _count(value, name):
    if value < 1 or value % 1:
        raise ValueError(f"{name} must be a whole number above 0, not {value}")
    return value


def _rate(value, name, most=float("inf")):
    if value <= 0 or value > most:
        raise ValueError(f"{name} must lie between 0 and {most}, not {value}")
    return value


def activation_bytes(tokens, d_model, bytes_per_element=2):
    return _count(tokens, "tokens") * _count(d_model, "d_model") * _count(bytes_per_element, "bytes_per_element")


def ring_all_reduce_bytes_per_rank(message_bytes, t):
    steps = 2 * (_count(t, "t") - 1)
    return steps * _count(message_bytes, "message_bytes") / t


def tp_layer_bytes_per_rank(tokens, d_model, t, bytes_per_element=2):
    message = activation_bytes(tokens, d_model, bytes_per_element)
    return sum(
        ring_all_reduce_bytes_per_rank(message, t) for _ in ("attention", "mlp") for _ in ("forward", "backward")
    )


def layer_matmul_flops(tokens, d_model, backward=True):
    weights = 12 * _count(d_model, "d_model") ** 2
    forward = 2 * weights * _count(tokens, "tokens")
    return forward + 2 * forward if backward else forward


def layer_compute_seconds(tokens, d_model, t, peak_flops, utilization=0.5):
    speed = _rate(peak_flops, "peak_flops") * _rate(utilization, "utilization", 1)
    return layer_matmul_flops(tokens, d_model) / _count(t, "t") / speed


def layer_comm_seconds(tokens, d_model, t, bandwidth, bytes_per_element=2):
    return tp_layer_bytes_per_rank(tokens, d_model, t, bytes_per_element) / _rate(bandwidth, "bandwidth")


def comm_to_compute(tokens, d_model, t, peak_flops, bandwidth, utilization=0.5, bytes_per_element=2):
    there = layer_compute_seconds(tokens, d_model, t, peak_flops, utilization)
    return layer_comm_seconds(tokens, d_model, t, bandwidth, bytes_per_element) / there
