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
    raise NotImplementedError("to do: comm_cost")


def ring_all_reduce_bytes_per_rank(message_bytes: int, t: int) -> float:
    """Bytes that each rank sends in a ring all-reduce of `message_bytes` over t ranks.

    A reduce-scatter, then an all-gather, each of t − 1 steps with 1/t of the message. One rank sends nothing.
    """
    raise NotImplementedError("to do: comm_cost")


def tp_layer_bytes_per_rank(tokens: int, d_model: int, t: int, bytes_per_element: int = 2) -> float:
    """Bytes that each rank sends for one transformer layer: its all-reduces, forward and backward."""
    raise NotImplementedError("to do: comm_cost")


def layer_matmul_flops(tokens: int, d_model: int, backward: bool = True) -> float:
    """FLOPs of one layer's weight matrix products: 12 d² weights (F = 4 d), 2 FLOPs a weight and token.

    The backward pass costs twice the forward pass. Attention's own products are left out.
    """
    raise NotImplementedError("to do: comm_cost")


def layer_compute_seconds(tokens: int, d_model: int, t: int, peak_flops: float, utilization: float = 0.5) -> float:
    """Seconds that one layer's products take, forward and backward, shared by t ranks.

    A rank reaches `utilization` of its `peak_flops`.
    """
    raise NotImplementedError("to do: comm_cost")


def layer_comm_seconds(tokens: int, d_model: int, t: int, bandwidth: float, bytes_per_element: int = 2) -> float:
    """Seconds that a rank needs to send one layer's all-reduces, forward and backward, at `bandwidth`. No latency."""
    raise NotImplementedError("to do: comm_cost")


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
    raise NotImplementedError("to do: comm_cost")
