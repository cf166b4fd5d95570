"""The functions are lambdas and partial applications of one general product."""

# ruff: noqa: E731
from functools import partial
from math import prod, trunc


def _named(**values):
    """The values, if they make sense under their names."""
    for name, value in values.items():
        rate = name in ("peak_flops", "bandwidth", "utilization")
        if value <= 0 or (name == "utilization" and value > 1) or (not rate and trunc(value) != value):
            raise ValueError(f"{value} is no {name}")
    return list(values.values())


def _product(factor, default, /, *args, **named):
    """factor · tokens · d_model · bytes of an element, the last being `default` where it isn't given."""
    values = dict(zip(("tokens", "d_model", "bytes_per_element"), args)) | named
    return factor * prod(_named(**{"bytes_per_element": default} | values))


activation_bytes = partial(_product, 1, 2)
_flops = partial(_product, 24, 1)


def _ring(count, message_bytes, t):
    message_bytes, t = _named(message_bytes=message_bytes, t=t)
    return count * 2 * message_bytes * (t - 1) / t


ring_all_reduce_bytes_per_rank = partial(_ring, 1)
tp_layer_bytes_per_rank = lambda tokens, d_model, t, *size, **named: _ring(
    4, activation_bytes(tokens, d_model, *size, **named), t
)
layer_matmul_flops = lambda tokens, d_model, backward=True: d_model * _flops(tokens, d_model) * (3 if backward else 1)


def layer_compute_seconds(tokens, d_model, *args, **named):
    speed = dict(zip(("t", "peak_flops", "utilization"), args)) | named
    return layer_matmul_flops(tokens, d_model) / prod(_named(**{"utilization": 0.5} | speed))


layer_comm_seconds = lambda tokens, d_model, t, bandwidth, *size, **named: (
    tp_layer_bytes_per_rank(tokens, d_model, t, *size, **named) / _named(bandwidth=bandwidth)[0]
)


def comm_to_compute(tokens, d_model, t, peak_flops, bandwidth, utilization=0.5, bytes_per_element=2):
    seconds = layer_comm_seconds(tokens, d_model, t, bandwidth, bytes_per_element)
    return seconds / layer_compute_seconds(tokens, d_model, t, peak_flops, utilization)
