"""The all-reduce is called as a method of the process group, on a list of one flat buffer."""

from __future__ import annotations

import torch


def _add_up(x, group):
    flat = torch.cat([x.detach().reshape(-1)])
    group.allreduce([flat]).wait()
    return flat.reshape(x.shape)


class CopyToTensorParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, *grads):
        return *(_add_up(grad, ctx.group) for grad in grads), None


class ReduceFromTensorParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *args):
        return _add_up(*args)

    @staticmethod
    def backward(ctx, *grads):
        return *grads, None


def f(*args):
    return CopyToTensorParallelRegion.apply(*args)


def g(*args):
    return ReduceFromTensorParallelRegion.apply(*args)
