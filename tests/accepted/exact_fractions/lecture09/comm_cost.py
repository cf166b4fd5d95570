"""Every result is a Fraction: floats are taken as the exact binary numbers that they are."""

from __future__ import annotations

from fractions import Fraction


def _whole(**values) -> list[Fraction]:
    exact = [Fraction(value) for value in values.values()]
    for name, value in zip(values, exact):
        if value.denominator != 1 or value < 1:
            raise ValueError(f"{name} is {value}; whole numbers from 1 on make sense")
    return exact


def _positive(name, value) -> Fraction:
    exact = Fraction(value)
    if exact <= 0:
        raise ValueError(f"{name} is {exact}; it has to be positive")
    return exact


def activation_bytes(tokens, d_model, bytes_per_element=2):
    tokens, d_model, size = _whole(tokens=tokens, d_model=d_model, bytes_per_element=bytes_per_element)
    return tokens * d_model * size


def ring_all_reduce_bytes_per_rank(message_bytes, t):
    message, t = _whole(message_bytes=message_bytes, t=t)
    return message * Fraction(2 * (t - 1), t)


def tp_layer_bytes_per_rank(tokens, d_model, t, bytes_per_element=2):
    return 4 * ring_all_reduce_bytes_per_rank(activation_bytes(tokens, d_model, bytes_per_element), t)


def layer_matmul_flops(tokens, d_model, backward=True):
    tokens, d = _whole(tokens=tokens, d_model=d_model)
    return Fraction(72 if backward else 24) * tokens * d * d


def layer_compute_seconds(tokens, d_model, t, peak_flops, utilization=Fraction(1, 2)):
    speed = _positive("peak_flops", peak_flops)
    share = _positive("utilization", utilization)
    if share > 1:
        raise ValueError(f"utilization is {share}, more than 1")
    (t,) = _whole(t=t)
    return layer_matmul_flops(tokens, d_model) / t / speed / share


def layer_comm_seconds(tokens, d_model, t, bandwidth, bytes_per_element=2):
    return tp_layer_bytes_per_rank(tokens, d_model, t, bytes_per_element) / _positive("bandwidth", bandwidth)


def comm_to_compute(tokens, d_model, t, peak_flops, bandwidth, utilization=Fraction(1, 2), bytes_per_element=2):
    communication = layer_comm_seconds(tokens, d_model, t, bandwidth, bytes_per_element)
    return communication / layer_compute_seconds(tokens, d_model, t, peak_flops, utilization)
