"""Lecture 9, exercise 5: f and g, the two conjugate functions around a tensor-parallel region.

Here every rank is a process of its own and `group` is a `torch.distributed` process group.

Source: Shoeybi et al. 2019, "Megatron-LM", section 3, figures 3 and 4 and listing 1.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor


class CopyToTensorParallelRegion(torch.autograd.Function):
    """f: identity in the forward pass, all-reduce of the gradient in the backward pass.

    `CopyToTensorParallelRegion.apply(x, group)`; x has any shape, any floating dtype and any strides. Neither x nor
    the incoming gradient is changed in place. The all-reduce is a sum over `group`.
    """

    @staticmethod
    def forward(ctx, x: Tensor, group) -> Tensor:
        raise NotImplementedError("to do: tp_autograd")

    @staticmethod
    def backward(ctx, grad: Tensor):
        raise NotImplementedError("to do: tp_autograd")


class ReduceFromTensorParallelRegion(torch.autograd.Function):
    """g: all-reduce in the forward pass, identity in the backward pass.

    `ReduceFromTensorParallelRegion.apply(x, group)`; x has any shape, any floating dtype and any strides. Neither x
    nor the incoming gradient is changed in place. The all-reduce is a sum over `group`.
    """

    @staticmethod
    def forward(ctx, x: Tensor, group) -> Tensor:
        raise NotImplementedError("to do: tp_autograd")

    @staticmethod
    def backward(ctx, grad: Tensor):
        raise NotImplementedError("to do: tp_autograd")


def f(x: Tensor, group) -> Tensor:
    """Exercise `tp_autograd`: `CopyToTensorParallelRegion` as a function."""
    raise NotImplementedError("to do: tp_autograd")


def g(x: Tensor, group) -> Tensor:
    """Exercise `tp_autograd`: `ReduceFromTensorParallelRegion` as a function."""
    raise NotImplementedError("to do: tp_autograd")
