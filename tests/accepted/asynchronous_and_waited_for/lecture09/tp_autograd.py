"""The all-reduce is started asynchronously and waited for before its result is used."""

from __future__ import annotations

import torch
import torch.distributed as dist


class _Pending:
    """A sum over the group that is under way."""

    def __init__(self, x: torch.Tensor, group) -> None:
        self.buffer = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        self.buffer.copy_(x)
        self.handle = dist.all_reduce(self.buffer, group=group, async_op=True)

    def result(self) -> torch.Tensor:
        self.handle.wait()
        return self.buffer


class CopyToTensorParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x[...]

    @staticmethod
    def backward(ctx, grad):
        pending = _Pending(grad, ctx.group)
        return pending.result(), None


class ReduceFromTensorParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        pending = _Pending(x, group)
        return pending.result()

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def f(x, group):
    return CopyToTensorParallelRegion.apply(x, group)


def g(x, group):
    return ReduceFromTensorParallelRegion.apply(x, group)
