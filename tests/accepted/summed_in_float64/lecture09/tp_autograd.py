"""The ranks add in float64, whatever comes in, and the sum is cast back; so bfloat16 loses nothing on the way."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor


def _sum(x: Tensor, group) -> Tensor:
    wide = x.to(torch.float64, copy=True, memory_format=torch.contiguous_format)
    dist.all_reduce(wide, op=dist.ReduceOp.SUM, group=group)
    return wide.to(x.dtype)


class CopyToTensorParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, group) -> Tensor:
        ctx.group = group
        return x.alias() if hasattr(x, "alias") else x.view_as(x)

    @staticmethod
    def backward(ctx, grad: Tensor):
        return _sum(grad, ctx.group), None


class ReduceFromTensorParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, group) -> Tensor:
        return _sum(x, group)

    @staticmethod
    def backward(ctx, grad: Tensor):
        return grad, None


def f(x: Tensor, group) -> Tensor:
    return CopyToTensorParallelRegion.apply(x, group)


def g(x: Tensor, group) -> Tensor:
    return ReduceFromTensorParallelRegion.apply(x, group)
