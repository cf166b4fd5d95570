"""run_on_ranks: results, errors, deadlocks, deaths, and that nothing is left behind."""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "exercises" / "lecture09"))

import collectives
import ranks
from ranks import CollectiveMismatch, RankError, RankTimeout, counted_all_reduces, run_on_ranks

LECTURE = Path(ranks.__file__).parent

forked = pytest.mark.skipif(
    ranks._suitable_start_method() != "fork", reason="each of these would wait for spawned ranks"
)


@pytest.fixture(autouse=True)
def nothing_left_behind(tmp_path, monkeypatch):
    """No child process, running or zombie, and no temporary file, whatever the test did."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield
    ranks._end_pool()
    assert multiprocessing.active_children() == []
    if hasattr(os, "WNOHANG"):
        with contextlib.suppress(ChildProcessError):  # multiprocessing's own resource tracker may be there, alive
            assert os.waitpid(-1, os.WNOHANG) == (0, 0)
    assert not list(tmp_path.glob("ranks-*"))


def all_reduced(rank, group, x):
    x = x * (rank + 1)
    dist.all_reduce(x, group=group)
    return rank, x


@forked
@pytest.mark.parametrize("t", [1, 2, 3, 4])
def test_results_come_in_rank_order(t):
    results = run_on_ranks(t, all_reduced, torch.ones(2, dtype=torch.float64))
    assert [rank for rank, _ in results] == list(range(t))
    for _, x in results:
        torch.testing.assert_close(x, torch.full((2,), t * (t + 1) / 2, dtype=torch.float64))


@pytest.mark.parametrize("t", [0, -1])
def test_no_ranks(t):
    with pytest.raises(ValueError, match=f"t = {t}"):
        run_on_ranks(t, all_reduced)


def test_collectives_gives_it_too():
    assert collectives.run_on_ranks is run_on_ranks


def surroundings(rank, group):
    default = group is dist.group.WORLD or group is None
    members = dist.get_process_group_ranks(group)
    return default, members, torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled(), torch.rand(1)


@forked
def test_surroundings_of_a_rank():
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            results = run_on_ranks(2, surroundings)
    finally:
        torch.set_default_dtype(torch.float32)
    for default, members, threads, dtype, grad, random in results:
        assert (default, members, threads, dtype, grad) == (False, [0, 1], 1, torch.float64, True)
        assert random == results[0][-1]


@forked
def test_it_is_quick():
    run_on_ranks(2, all_reduced, torch.ones(2))
    start = time.perf_counter()
    run_on_ranks(2, all_reduced, torch.ones(2))
    assert time.perf_counter() - start < 2  # about 0.1 s on an idle machine


@forked
def test_a_large_result():
    results = run_on_ranks(2, all_reduced, torch.ones(2_000_000))
    assert results[1][1].numel() == 2_000_000


# --- failures


def fails(rank, group, who, error):
    if rank in who:
        raise error
    dist.all_reduce(torch.ones(2), group=group)


@forked
def test_one_rank_raises():
    start = time.perf_counter()
    with pytest.raises(RankError) as caught:
        run_on_ranks(3, fails, [1], ValueError("boom"))
    assert time.perf_counter() - start < 5
    message = str(caught.value)
    assert message.startswith("rank 1 raised ValueError: boom (test_ranks.py, line ")
    assert "raise error" in message and list(caught.value.failures) == [1]
    assert "Traceback" in caught.value.failures[1].traceback


@forked
def test_all_ranks_raise_the_same():
    with pytest.raises(RankError, match="ranks 0, 1, 2 raised KeyError") as caught:
        run_on_ranks(3, fails, [0, 1, 2], KeyError("W1"))
    assert sorted(caught.value.failures) == [0, 1, 2]


@forked
def test_an_exit_is_a_failure():
    with pytest.raises(RankError, match="rank 0 raised SystemExit: 0"):
        run_on_ranks(2, fails, [0], SystemExit(0))


@forked
def test_unwritten_exercise():
    with pytest.raises(NotImplementedError, match=r"^write f first$"):
        run_on_ranks(2, fails, [0, 1], NotImplementedError("write f first"))


def returns_a_lambda(rank, group):
    return lambda: rank


@forked
def test_result_that_cannot_be_pickled():
    with pytest.raises(RankError, match="result can't be pickled"):
        run_on_ranks(2, returns_a_lambda)


def dies(rank, group, how):
    dist.all_reduce(torch.ones(2), group=group)
    if rank == 1:
        faulthandler.disable()  # pytest's would print every thread's stack
        os.kill(os.getpid(), how) if how > 3 else os._exit(how)
    dist.all_reduce(torch.ones(2), group=group)


@forked
@pytest.mark.parametrize(
    ("how", "text"), [(signal.SIGSEGV, r"signal 11 \(SIGSEGV\)"), (3, "exit code 3"), (0, "exit code 0")]
)
def test_a_rank_dies(how, text):
    start = time.perf_counter()
    with pytest.raises(RankError, match=f"^rank 1 died with {text}$") as caught:
        run_on_ranks(4, dies, how)
    assert time.perf_counter() - start < 5
    assert list(caught.value.failures) == [1]  # the others' broken connections are not failures of their own


# --- ranks that do not meet


class Reduce(torch.autograd.Function):
    """Identity, and in backward an all-reduce, unless `skip`."""

    @staticmethod
    def forward(ctx, x, group, skip):
        ctx.group, ctx.skip = group, skip
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        if not ctx.skip:
            dist.all_reduce(grad, group=ctx.group, async_op=True).wait()
        return grad, None, None


def skips_backward(rank, group, layers):
    x = torch.ones(3, requires_grad=True)
    y = x
    for layer in range(layers):
        y = Reduce.apply(y, group, rank == 2 and layer == 0)
    y.sum().backward()


def skips_functional(rank, group):
    return None if rank == 0 else functional.all_reduce(torch.ones(2), "sum", group) + 1


@forked
@pytest.mark.parametrize(
    ("fn", "args", "text"),
    [
        (skips_backward, [1], r"rank 2 never called all-reduce in backward \(ranks 0, 1, 3 wait there\)"),
        (skips_backward, [2], r"rank 2 called all-reduce in backward only 1 time \(ranks 0, 1, 3 wait in one more\)"),
        (skips_functional, [], r"rank 0 never called all-reduce in forward \(ranks 1, 2, 3 wait there\)"),
    ],
)
def test_a_rank_leaves_a_collective_out(fn, args, text):
    start = time.perf_counter()
    with pytest.raises(CollectiveMismatch, match=f"^{text}$"):
        run_on_ranks(4, fn, *args, timeout=60)
    assert time.perf_counter() - start < 5


def differing(rank, group, what):
    x = torch.ones(3 + rank if what == "size" else 3, dtype=torch.float64 if what == "dtype" and rank else None)
    if what == "kind" and rank:
        dist.broadcast(x, 0, group=group)
    else:
        dist.all_reduce(x, op=dist.ReduceOp.MAX if what == "op" and rank else dist.ReduceOp.SUM, group=group)


@forked
@pytest.mark.parametrize(
    ("what", "texts"),
    [
        ("kind", ["rank 0 calls all-reduce", "rank 1 calls broadcast in forward"]),
        ("size", ["sum of 3 float32", "sum of 4 float32"]),
        ("dtype", ["float32", "float64"]),
        ("op", ["sum of", "max of"]),
    ],
)
def test_collectives_that_do_not_match(what, texts):
    with pytest.raises(CollectiveMismatch) as caught:
        run_on_ranks(2, differing, what, timeout=60)
    assert all(text in str(caught.value) for text in texts)


def groups_of_two(rank, group):
    """Legal: the two halves call different numbers of collectives, on groups of their own."""
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    for _ in range(1 + 2 * (rank < 2)):
        dist.all_reduce(torch.ones(2), group=halves[rank // 2])
    return rank


@forked
def test_groups_may_differ():
    assert run_on_ranks(4, groups_of_two) == [0, 1, 2, 3]


def straggles(rank, group, seconds):
    dist.all_reduce(torch.ones(2), group=group)
    if rank == 1:
        time.sleep(seconds)
    dist.all_reduce(torch.ones(2), group=group)
    return rank


@forked
def test_waiting_is_no_failure():
    assert run_on_ranks(2, straggles, 0.8) == [0, 1]


def stays(rank, group):
    dist.all_reduce(torch.ones(2), group=group)
    while rank == 1:
        pass
    dist.all_reduce(torch.ones(2), group=dist.group.WORLD)


@forked
def test_timeout_names_where_the_ranks_are():
    start = time.perf_counter()
    with pytest.raises(RankTimeout) as caught:
        run_on_ranks(2, stays, timeout=0.6)
    assert 0.5 < time.perf_counter() - start < 3
    message = str(caught.value)
    assert "0.6 s" in message and "rank 0: waiting in all-reduce in forward on the default group" in message
    assert "rank 1: computing, after all-reduce in forward" in message


def reduces_in_place(rank, group, x):
    dist.all_reduce(x, group=group)
    return x


@forked
@pytest.mark.parametrize(("x", "fine"), [(torch.ones(1).expand(1000), False), (torch.ones(4, 3).t(), True)])
def test_memory_is_safe(x, fine):
    """gloo would write behind an expanded tensor; a transposed one fills its memory."""
    if fine:
        torch.testing.assert_close(run_on_ranks(2, reduces_in_place, x)[0], x * 2)
    else:
        with pytest.raises(RankError, match=r"reduce a clone of it \(test_ranks.py"):
            run_on_ranks(2, reduces_in_place, x)


# --- counting


def counts(rank, group):
    x = torch.ones(6, requires_grad=True)
    with counted_all_reduces() as everything:
        with counted_all_reduces() as forward:
            y = Reduce.apply(x, group, False)
            dist.all_reduce(torch.ones(5, dtype=torch.float64), op=dist.ReduceOp.MAX)
            functional.all_reduce(torch.ones(4), "sum", group) + 1
            dist.broadcast(torch.ones(3), 0, group=group)
        with counted_all_reduces() as backward:
            y.sum().backward()
    dist.all_reduce(torch.ones(2), group=group)
    calls = [(call.phase, call.numel, call.dtype, call.op, call.group == group.group_name) for call in everything.calls]
    return calls, forward.total, backward.total, everything.calls[0].group


@forked
def test_counting():
    for calls, forward, backward, first_group in run_on_ranks(2, counts):
        assert calls == [
            ("forward", 5, "float64", "max", False),
            ("forward", 4, "float32", "sum", True),
            ("backward", 6, "float32", "sum", True),
        ]
        assert (forward, backward, first_group) == (2, 1, "default")


def attends(rank, group):
    """Fused attention hands the watch plain tensors in C++ clothes, functional results are a subclass of tensors."""
    q = torch.ones(1, 2, 3, 4, requires_grad=True)
    out = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
    (functional.all_reduce(out.detach(), "sum", group) * out).sum().backward()
    return q.grad.shape


@forked
def test_the_watch_disturbs_nothing():
    assert run_on_ranks(2, attends) == [(1, 2, 3, 4)] * 2


# --- spawned ranks


@pytest.fixture
def spawned(monkeypatch, tmp_path):
    """Ranks are spawned, and `program(text)` writes a module for them and imports it."""
    monkeypatch.setattr(ranks, "_START_METHOD", "spawn")
    monkeypatch.syspath_prepend(str(tmp_path))

    def program(text):
        path = tmp_path / "spawned_program.py"
        path.write_text("import os, torch, torch.distributed as dist\n" + textwrap.dedent(text))
        os.utime(path, ns=(time.time_ns(), time.time_ns()))
        sys.modules.pop("spawned_program", None)
        return __import__("spawned_program")

    yield program
    sys.modules.pop("spawned_program", None)


FIRST = """
def fn(rank, group, x):
    dist.all_reduce(x, group=group)
    return os.getpid(), x, 1
"""


def test_spawned_ranks_are_kept_until_something_changes(spawned):
    module = spawned(FIRST)
    (first, x, _), _ = run_on_ranks(2, module.fn, torch.ones(2))
    assert x.tolist() == [2, 2]
    start = time.perf_counter()
    assert run_on_ranks(1, module.fn, torch.ones(2))[0][0] == first
    assert time.perf_counter() - start < 2

    module = spawned(FIRST.replace("x, 1", "x, 2"))  # an edited file: the ranks run the new one
    second, _, version = run_on_ranks(1, module.fn, torch.ones(2))[0]
    assert second != first and version == 2

    module.late = lambda rank, group: rank  # known in this process only
    module.late.__name__ = module.late.__qualname__ = "late"
    module.late.__module__ = "spawned_program"
    with pytest.raises(TypeError, match=r"module level.*late"):
        run_on_ranks(1, module.late)
    assert ranks._pool is None  # a failure ends them


def test_spawned_ranks_need_a_function_at_module_level(spawned):
    with pytest.raises(TypeError, match="module level"):
        run_on_ranks(1, lambda rank, group: rank)


def test_spawned_ranks_end_with_the_program(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(f"""
        import os, sys
        sys.path.insert(0, {str(LECTURE)!r})
        import ranks

        def fn(rank, group):
            return os.getpid()

        if __name__ == "__main__":
            ranks._START_METHOD = "spawn"
            print(*ranks.run_on_ranks(1, fn), flush=True)
        """)
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=100, env=environment)
    assert run.returncode == 0 and run.stderr == ""
    with pytest.raises(ProcessLookupError):
        os.kill(int(run.stdout), 0)
