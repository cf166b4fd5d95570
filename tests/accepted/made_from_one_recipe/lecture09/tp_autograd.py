"""Both classes come from one factory that is told which of the two passes communicates."""

from __future__ import annotations

from functools import partial

import torch
import torch.distributed as dist


def _identity(x, group):
    return x.view_as(x)


def _reduction(x, group):
    total = torch.empty_like(x, memory_format=torch.contiguous_format).copy_(x)
    dist.all_reduce(total, group=group)
    return total


def _region(name: str, on_the_way_there, on_the_way_back):
    def forward(ctx, x, group):
        ctx.group = group
        return on_the_way_there(x, group)

    def backward(ctx, grad):
        return on_the_way_back(grad, ctx.group), None

    members = {"forward": staticmethod(forward), "backward": staticmethod(backward), "__module__": __name__}
    return type(name, (torch.autograd.Function,), members)


CopyToTensorParallelRegion = _region("CopyToTensorParallelRegion", _identity, _reduction)
ReduceFromTensorParallelRegion = _region("ReduceFromTensorParallelRegion", _reduction, _identity)


def _apply(region, x, group):
    return region.apply(x, group)


f = partial(_apply, CopyToTensorParallelRegion)
g = partial(_apply, ReduceFromTensorParallelRegion)
