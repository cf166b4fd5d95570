"""A decorator reads each signature and checks every argument by its name; the functions take *args and **kwargs."""

from __future__ import annotations

import functools
import inspect
import operator


class Senseless(ValueError):
    """An argument that no machine and no model has."""

    def __init__(self, name: str, value: object, rule: str) -> None:
        self.args = (f"参数 {name} = {value} 不合理：{rule}",)


RATES = {"peak_flops", "bandwidth"}


def _inspect(name: str, value) -> None:
    match name:
        case "backward":
            return
        case "utilization":
            if not 0 < value <= 1:
                raise Senseless(name, value, "应在 (0, 1] 之内")
        case rate if rate in RATES:
            if not value > 0:
                raise Senseless(rate, value, "应大于 0")
        case count:
            try:
                whole = operator.index(value)
            except TypeError:
                raise Senseless(count, value, "应为整数") from None
            if whole < 1:
                raise Senseless(count, value, "应至少为 1")


def sensible(function):
    signature = inspect.signature(function)

    @functools.wraps(function)
    def checked(*args, **kwargs):
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        for item in bound.arguments.items():
            _inspect(*item)
        return function(*bound.args, **bound.kwargs)

    return checked


@sensible
def activation_bytes(tokens, d_model, bytes_per_element=2):
    return functools.reduce(operator.mul, (tokens, d_model, bytes_per_element))


@sensible
def ring_all_reduce_bytes_per_rank(message_bytes, t):
    reduce_scatter = all_gather = (t - 1) / t * message_bytes
    return reduce_scatter + all_gather


@sensible
def tp_layer_bytes_per_rank(tokens, d_model, t, bytes_per_element=2):
    f = g = ring_all_reduce_bytes_per_rank(t=t, message_bytes=activation_bytes(tokens, d_model, bytes_per_element))
    attention = mlp = f + g
    return attention + mlp


@sensible
def layer_matmul_flops(tokens, d_model, backward=True):
    shapes = {"q": (1, 1), "k": (1, 1), "v": (1, 1), "out": (1, 1), "up": (1, 4), "down": (4, 1)}
    forward = sum(2 * tokens * (i * d_model) * (o * d_model) for i, o in shapes.values())
    return forward + (backward and 2 * forward)


@sensible
def layer_compute_seconds(tokens, d_model, t, peak_flops, utilization=0.5):
    return layer_matmul_flops(tokens, d_model) / (peak_flops * utilization) / t


@sensible
def layer_comm_seconds(tokens, d_model, t, bandwidth, bytes_per_element=2):
    return tp_layer_bytes_per_rank(tokens, d_model, t, bytes_per_element) / bandwidth


@sensible
def comm_to_compute(tokens, d_model, t, peak_flops, bandwidth, utilization=0.5, bytes_per_element=2):
    seconds = layer_compute_seconds(tokens, d_model, t, peak_flops, utilization)
    return layer_comm_seconds(tokens, d_model, t, bandwidth, bytes_per_element) * seconds**-1
