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


def _product(names, factor, *args):
    return factor * prod(_named(**dict(zip(names, args))))


_bytes = partial(_product, ("tokens", "d_model", "bytes_per_element"), 1)
activation_bytes = lambda *args: _bytes(*[*args, 2][:3])


def _ring(count, message_bytes, t):
    message_bytes, t = _named(message_bytes=message_bytes, t=t)
    return count * 2 * message_bytes * (t - 1) / t


ring_all_reduce_bytes_per_rank = partial(_ring, 1)
tp_layer_bytes_per_rank = lambda tokens, d_model, t, *size: _ring(4, activation_bytes(tokens, d_model, *size), t)
layer_matmul_flops = lambda tokens, d_model, backward=True: (3 if backward else 1) * prod(
    [24, *_named(tokens=tokens, d_model=d_model), d_model]
)


def layer_compute_seconds(tokens, d_model, *rest):
    t, peak_flops, utilization = [*rest, 0.5][:3]
    return layer_matmul_flops(tokens, d_model) / prod(_named(t=t, peak_flops=peak_flops, utilization=utilization))


layer_comm_seconds = lambda tokens, d_model, t, bandwidth, *size: (
    tp_layer_bytes_per_rank(tokens, d_model, t, *size) / _named(bandwidth=bandwidth)[0]
)


def comm_to_compute(tokens, d_model, t, peak_flops, bandwidth, utilization=0.5, bytes_per_element=2):
    seconds = layer_comm_seconds(tokens, d_model, t, bandwidth, bytes_per_element)
    return seconds / layer_compute_seconds(tokens, d_model, t, peak_flops, utilization)
