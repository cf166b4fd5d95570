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
        ### BEGIN SOLUTION
        ctx.group = group
        return x.view_as(x)
        ### END SOLUTION

    @staticmethod
    def backward(ctx, grad: Tensor):
        ### BEGIN SOLUTION
        return _summed_over(grad, ctx.group), None
        ### END SOLUTION


class ReduceFromTensorParallelRegion(torch.autograd.Function):
    """g: all-reduce in the forward pass, identity in the backward pass.

    `ReduceFromTensorParallelRegion.apply(x, group)`; x has any shape, any floating dtype and any strides. Neither x
    nor the incoming gradient is changed in place. The all-reduce is a sum over `group`.
    """

    @staticmethod
    def forward(ctx, x: Tensor, group) -> Tensor:
        ### BEGIN SOLUTION
        return _summed_over(x, group)
        ### END SOLUTION

    @staticmethod
    def backward(ctx, grad: Tensor):
        ### BEGIN SOLUTION
        return grad, None
        ### END SOLUTION


def f(x: Tensor, group) -> Tensor:
    """Exercise `tp_autograd`: `CopyToTensorParallelRegion` as a function."""
    ### BEGIN SOLUTION
    return CopyToTensorParallelRegion.apply(x, group)
    ### END SOLUTION


def g(x: Tensor, group) -> Tensor:
    """Exercise `tp_autograd`: `ReduceFromTensorParallelRegion` as a function."""
    ### BEGIN SOLUTION
    return ReduceFromTensorParallelRegion.apply(x, group)
    ### END SOLUTION


### BEGIN SOLUTION
def _summed_over(x: Tensor, group) -> Tensor:
    """A new tensor: the sum of x over the ranks. gloo needs it dense, and the caller may still need x."""
    total = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=group)
    return total


### END SOLUTION
