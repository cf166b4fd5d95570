"""Lecture 9, exercise 6: what tensor parallelism costs in communication. Plain Python numbers, SI units.

Counts (`tokens`, `d_model`, `t`, `bytes_per_element`, `message_bytes`) are whole numbers of at least 1, rates
(`peak_flops` in FLOP/s, `bandwidth` in bytes/s) are positive, `utilization` lies in (0, 1]. Anything else is a
`ValueError` whose message contains the argument's name.

Sources: Shoeybi et al. 2019, "Megatron-LM", section 3 (which all-reduces); Narayanan et al. 2021, "Efficient
Large-Scale Language Model Training on GPU Clusters", section 3.2 (their bytes); Patarasuk and Yuan 2009, "Bandwidth
optimal all-reduce algorithms for clusters of workstations" (the ring).
"""

from __future__ import annotations


def activation_bytes(tokens: int, d_model: int, bytes_per_element: int = 2) -> float:
    """Bytes of one all-reduce message: an activation of `tokens` × `d_model` elements."""
    ### BEGIN SOLUTION
    _check_counts(tokens=tokens, d_model=d_model, bytes_per_element=bytes_per_element)
    return tokens * d_model * bytes_per_element
    ### END SOLUTION


def ring_all_reduce_bytes_per_rank(message_bytes: int, t: int) -> float:
    """Bytes that each rank sends in a ring all-reduce of `message_bytes` over t ranks.

    A reduce-scatter, then an all-gather, each of t − 1 steps with 1/t of the message. One rank sends nothing.
    """
    ### BEGIN SOLUTION
    _check_counts(message_bytes=message_bytes, t=t)
    return 2 * (t - 1) * message_bytes / t
    ### END SOLUTION


def tp_layer_bytes_per_rank(tokens: int, d_model: int, t: int, bytes_per_element: int = 2) -> float:
    """Bytes that each rank sends for one transformer layer: its all-reduces, forward and backward."""
    ### BEGIN SOLUTION
    return 4 * ring_all_reduce_bytes_per_rank(activation_bytes(tokens, d_model, bytes_per_element), t)
    ### END SOLUTION


def layer_matmul_flops(tokens: int, d_model: int, backward: bool = True) -> float:
    """FLOPs of one layer's weight matrix products: 12 d² weights (F = 4 d), 2 FLOPs a weight and token.

    The backward pass costs twice the forward pass. Attention's own products are left out.
    """
    ### BEGIN SOLUTION
    _check_counts(tokens=tokens, d_model=d_model)
    return 24 * tokens * d_model**2 * (3 if backward else 1)
    ### END SOLUTION


def layer_compute_seconds(tokens: int, d_model: int, t: int, peak_flops: float, utilization: float = 0.5) -> float:
    """Seconds that one layer's products take, forward and backward, shared by t ranks.

    A rank reaches `utilization` of its `peak_flops`.
    """
    ### BEGIN SOLUTION
    _check_counts(t=t)
    _check_rates(peak_flops=peak_flops, utilization=utilization)
    if utilization > 1:
        raise ValueError(f"utilization = {utilization!r} is a fraction of the peak: it can't be above 1")
    return layer_matmul_flops(tokens, d_model) / (t * peak_flops * utilization)
    ### END SOLUTION


def layer_comm_seconds(tokens: int, d_model: int, t: int, bandwidth: float, bytes_per_element: int = 2) -> float:
    """Seconds that a rank needs to send one layer's all-reduces, forward and backward, at `bandwidth`. No latency."""
    ### BEGIN SOLUTION
    _check_rates(bandwidth=bandwidth)
    return tp_layer_bytes_per_rank(tokens, d_model, t, bytes_per_element) / bandwidth
    ### END SOLUTION


def comm_to_compute(
    tokens: int,
    d_model: int,
    t: int,
    peak_flops: float,
    bandwidth: float,
    utilization: float = 0.5,
    bytes_per_element: int = 2,
) -> float:
    """Communication time divided by compute time of one layer, forward and backward. 0 for one rank."""
    ### BEGIN SOLUTION
    communication = layer_comm_seconds(tokens, d_model, t, bandwidth, bytes_per_element)
    return communication / layer_compute_seconds(tokens, d_model, t, peak_flops, utilization)
    ### END SOLUTION


### BEGIN SOLUTION
def _check_counts(**counts) -> None:
    for name, value in counts.items():
        if value < 1 or value != int(value):
            raise ValueError(f"{name} = {value!r} is a count: it must be a whole number of at least 1")


def _check_rates(**rates) -> None:
    for name, value in rates.items():
        if not value > 0:
            raise ValueError(f"{name} = {value!r} must be greater than 0")


### END SOLUTION
