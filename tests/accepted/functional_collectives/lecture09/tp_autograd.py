"""The all-reduce is PyTorch's functional one, which makes a tensor of its own and is waited for explicitly."""

from __future__ import annotations

from torch.autograd import Function
from torch.distributed import _functional_collectives as functional


def _reduced(x, group):
    return functional.wait_tensor(functional.all_reduce(x, "sum", group))


class CopyToTensorParallelRegion(Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return _reduced(grad, ctx.group), None


class ReduceFromTensorParallelRegion(Function):
    @staticmethod
    def forward(ctx, x, group):
        return _reduced(x, group)

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def f(x, group):
    return CopyToTensorParallelRegion.apply(x, group)


def g(x, group):
    return ReduceFromTensorParallelRegion.apply(x, group)
