"""The sum is taken from the future of an asynchronous all-reduce, not from the tensor that was handed in."""

from __future__ import annotations

import torch
import torch.distributed as dist


def _sum_over(group, x: torch.Tensor) -> torch.Tensor:
    dense = torch.zeros(x.shape, dtype=x.dtype) + x
    future = dist.all_reduce(dense, group=group, async_op=True).get_future()
    (total,) = future.wait()
    return total


class CopyToTensorParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.backward_sum = lambda grad: _sum_over(group, grad)
        return x.expand_as(x)

    @staticmethod
    def backward(ctx, grad):
        return ctx.backward_sum(grad), None


class ReduceFromTensorParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        return _sum_over(group, x)

    @staticmethod
    def backward(ctx, grad):
        return grad.view_as(grad), None


def f(x, group):
    return CopyToTensorParallelRegion.apply(x, group)


def g(x, group):
    return ReduceFromTensorParallelRegion.apply(x, group)
