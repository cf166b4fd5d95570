"""Lecture 9, given: all-reduce played in one process, and real ranks on torch.distributed (gloo)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from ranks import run_on_ranks

__all__ = ["all_reduce", "recorded_all_reduces", "run_on_ranks"]

_recordings: list[list[list[Tensor]]] = []


def all_reduce(parts: list[Tensor], counter: dict | None = None) -> Tensor:
    """The sum over ranks of `parts`, a list of t tensors of one shape, added in rank order.

    `counter["all_reduce"]` goes up by one for the collective as a whole, however many ranks take part, from 0 where
    the key is absent; `counter=None` counts nothing. The sum is a tensor of its own: changing it changes no part.
    """
    parts = list(parts)
    if not parts:
        raise ValueError("all_reduce got an empty list; it takes one tensor from each rank")
    shapes = [tuple(part.shape) for part in parts]
    if len(set(shapes)) > 1:
        raise ValueError(f"all_reduce needs the same shape from every rank, and got {shapes}")
    for recording in _recordings:
        recording.append(parts)
    if counter is not None:
        counter["all_reduce"] = counter.get("all_reduce", 0) + 1
    total = parts[0].clone()
    for part in parts[1:]:
        total = total + part
    return total


@contextmanager
def recorded_all_reduces() -> Iterator[list[list[Tensor]]]:
    """Within the block, the list that it gives holds what each all-reduce carried: one list of t partials a call."""
    recording: list[list[Tensor]] = []
    _recordings.append(recording)
    try:
        yield recording
    finally:
        _recordings[:] = [other for other in _recordings if other is not recording]
