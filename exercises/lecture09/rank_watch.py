"""Lecture 9, given: what collectives a rank program calls, in whichever form it calls them.

`torch.distributed`'s calls, asynchronous and functional ones included, all pass PyTorch's dispatcher, in the forward
pass and in the backward pass alike. A dispatch mode sees them there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

# By the start of the dispatcher's name without underscores; "reducescatter" has to stand before "reduce".
_KINDS = {
    "allreduce": "all-reduce",
    "allgather": "all-gather",
    "reducescatter": "reduce-scatter",
    "alltoall": "all-to-all",
    "broadcast": "broadcast",
    "gather": "gather",
    "scatter": "scatter",
    "reduce": "reduce",
    "barrier": "barrier",
}
_REDUCE_OPS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum")  # c10d's own numbering


class Collective(NamedTuple):
    """One collective call of one rank. `numel`, `dtype`, `op` and `dense` are filled in for an all-reduce."""

    kind: str  # "all-reduce", "all-gather", …
    phase: str  # "forward" or "backward"
    group: str  # the process group's name, or "default"
    ranks: tuple[int, ...]  # its members
    numel: int = 0  # elements that this rank brings
    dtype: str = ""
    op: str = ""  # "sum", "max", …
    dense: bool = True  # False where the collective reads and writes beside the elements: an expanded or cut tensor

    def __str__(self) -> str:
        return f"{self.kind} in {self.phase}"

    @property
    def cargo(self) -> str:
        """What the ranks of one collective must agree on."""
        return f"{self.kind} ({self.op} of {self.numel} {self.dtype} elements)" if self.numel else self.kind


@dataclass
class AllReduceCount:
    """The all-reduces that one rank has called, in order."""

    calls: list[Collective] = field(default_factory=list)

    @property
    def total(self) -> int:
        return len(self.calls)


@contextmanager
def counted_all_reduces() -> Iterator[AllReduceCount]:
    """Count this rank's all-reduces within the block: `count.total`, and `count.calls` for each one's `Collective`.

    Counts `dist.all_reduce` on any group, asynchronous and functional ones, in forward and in backward. A coalesced
    all-reduce of several tensors is one call.
    """
    count = AllReduceCount()
    with CollectiveWatch(lambda call: count.calls.append(call) if call.kind == "all-reduce" else None):
        yield count


class CollectiveWatch(TorchDispatchMode):
    """Calls `on_start(collective)` before each collective, and waits for functional ones within `on_wait()`."""

    def __init__(
        self, on_start: Callable[[Collective], Any], on_wait: Callable[[], AbstractContextManager] = nullcontext
    ) -> None:
        super().__init__()
        self._on_start = on_start
        self._on_wait = on_wait

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or the first operation would import torch.compile's machinery, a second or more

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ for kind in types):
            return NotImplemented  # a subclass such as DTensor unfolds into plain calls, and those come by here again
        kwargs = kwargs or {}
        if getattr(func, "namespace", "") in ("c10d", "_c10d_functional"):
            name = func.overloadpacket.__name__
            if name == "wait_tensor":
                with self._on_wait():
                    return func(*args, **kwargs)
            kind = next((kind for start, kind in _KINDS.items() if name.replace("_", "").startswith(start)), None)
            if kind:
                self._on_start(_described(kind, func.namespace, (*args, *kwargs.values())))
        return func(*args, **kwargs)


def _described(kind: str, namespace: str, args: tuple) -> Collective:
    phase = "forward" if torch._C._current_graph_task_id() == -1 else "backward"
    group, ranks = _group(args)
    if kind != "all-reduce":
        return Collective(kind, phase, group, ranks)
    tensors = args[0] if isinstance(args[0], (list, tuple)) else [args[0]]
    numel = sum(tensor.numel() for tensor in tensors)
    dtype = str(tensors[0].dtype).removeprefix("torch.")
    dense = namespace != "c10d" or all(_is_dense(tensor) for tensor in tensors)  # the functional form makes a copy
    return Collective(kind, phase, group, ranks, numel, dtype, _reduce_op(args), dense)


def _is_dense(tensor: torch.Tensor) -> bool:
    """Its elements fill a piece of memory, each place once, in whatever order."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True


def _group(args: tuple) -> tuple[str, tuple[int, ...]]:
    """Name and members of the group. A raw call carries the group itself, a functional one ends with its name."""
    name: Any = ""
    for arg in args:
        if isinstance(arg, str):
            name = arg
        elif _is_boxed(arg, "ProcessGroup"):
            name = dist.ProcessGroup.unbox(arg).group_name
        elif isinstance(arg, dist.ProcessGroup):
            name = arg.group_name
    group = dist.distributed_c10d._resolve_process_group(name)
    return "default" if group is dist.group.WORLD else name, tuple(dist.get_process_group_ranks(group))


def _reduce_op(args: tuple) -> str:
    for arg in args:
        if isinstance(arg, str):
            return arg
        if _is_boxed(arg, "ReduceOp"):
            return _REDUCE_OPS[int(arg.op())]
    return ""


def _is_boxed(arg: Any, name: str) -> bool:
    return isinstance(arg, torch.ScriptObject) and arg._type().qualified_name().endswith(f".{name}")
