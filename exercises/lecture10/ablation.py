"""Lecture 10, given: trains the base model with each PaLM choice, one process of one thread for each core.

A model this small gains little from a second thread, so the trainings run side by side instead. Each is a function of
its configuration and seed alone: the results are the same bit for bit however many processes share the work.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import multiprocessing
import os
import signal
import statistics
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, MutableSequence, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

import palm_modules
from fm_world import ALPHABET, build_world
from tiny_gpt import CharTokenizer
from train_lab import FlexConfig, count_params, eval_bpc, make_flex, train_flex

# What each variant changes in a `FlexConfig`; the baseline is the base model of lecture 1.
VARIANTS: dict[str, dict] = {
    "baseline": {},
    "swiglu": {"mlp": "swiglu"},
    "parallel": {"parallel": True},
    "mqa": {"mqa": True},
    "rope": {"pos": "rope"},
    "no_bias": {"bias": False},
    "all": {"mlp": "swiglu", "parallel": True, "mqa": True, "pos": "rope", "bias": False},
}

# What a worker's process starts with. glibc by default hands the memory of a few-megabyte tensor back to the system
# and faults it in again, thousands of times a step; here it keeps it, on huge pages where it can. Other C libraries
# ignore the variable. 32 MiB is the highest threshold that every glibc accepts.
WORKER_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=33554432"
    ":glibc.malloc.trim_threshold=1073741824:glibc.malloc.top_pad=67108864",
}


class VariantError(RuntimeError):
    """A training failed. The message names the variant, the seed and the line."""


@dataclass(frozen=True)
class Job:
    """One training."""

    variant: str
    seed: int
    config: FlexConfig
    steps: int
    batch_size: int
    lr: float


@dataclass(frozen=True)
class Run:
    """What one training gave. `losses` are in nats, one every 100 steps; `seconds_per_step` is the median wall time."""

    variant: str
    seed: int
    params: int
    bits_per_char: float
    losses: list[float]
    seconds_per_step: float


@dataclass(frozen=True)
class Ablation:
    """All runs, by variant and then by seed; and of each variant that could not run, the exercise it waits for."""

    runs: list[Run]
    unwritten: dict[str, str]


def usable_cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # knows about taskset and containers, but exists on Linux only
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_ablation(
    variants: Mapping[str, Mapping] = VARIANTS,
    seeds: Sequence[int] = (0, 1),
    steps: int = 400,
    batch_size: int = 32,
    lr: float = 3e-3,
    workers: int | None = None,
    label: str = "training",
) -> Ablation:
    """Train every variant with every seed on the course's world, in `workers` processes (default: one for each core).

    `variants` maps a name to keyword arguments of `FlexConfig`. At one seed all variants see the same batches. The
    progress bar, called `label`, is drawn on stderr.

    A variant that needs an unwritten exercise (`NotImplementedError`) is listed in the result, and the others run. Any
    other failure ends all trainings and is a `VariantError`. No seeds, or fewer than one worker, or an argument that
    `FlexConfig` refuses: `ValueError`.
    """
    jobs = [
        Job(name, seed, FlexConfig(**choices), steps, batch_size, lr)
        for name, choices in variants.items()
        for seed in seeds
    ]
    if not jobs:
        raise ValueError("nothing to train: give at least one variant and one seed")
    workers = usable_cores() if workers is None else workers
    if workers < 1:
        raise ValueError(f"workers = {workers} must be at least 1")
    context = multiprocessing.get_context("spawn")  # a fork would copy a process in which OpenMP has run: it may hang
    steps_done = context.RawArray("l", [-1] * len(jobs))  # -1: not begun
    longest_first = sorted(range(len(jobs)), key=lambda i: -_cost(jobs[i].config))
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(min(workers, len(jobs)), context, _start_worker, (steps_done,))
    try:
        with _worker_surroundings():
            futures = {pool.submit(_work, i, jobs[i]): jobs[i] for i in longest_first}
        return _gather(futures, jobs, steps_done, label)
    except BrokenProcessPool:
        begun = [f"{job.variant} (seed {job.seed})" for job, done in zip(jobs, steps_done) if 0 <= done < job.steps]
        raise VariantError(
            "a training process died without a word: killed, or out of memory; "
            f"in training at that time: {', '.join(begun) or 'nothing yet'}"
        ) from None
    except BaseException:
        for worker in set(multiprocessing.active_children()) - others:
            worker.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def train_variant(job: Job, on_step: Callable[[int], None] | None = None) -> Run:
    """Do one training in this process, with as many threads as PyTorch has here."""
    train_data, val_data = _world_data()
    model = make_flex(job.config, job.seed)
    clock = [time.perf_counter()]

    def tick(step: int) -> None:
        clock.append(time.perf_counter())
        if on_step:
            on_step(step)

    losses = train_flex(model, train_data, job.steps, job.batch_size, job.lr, job.seed, on_step=tick)
    bits = eval_bpc(model, val_data)
    if not math.isfinite(bits):
        raise FloatingPointError(f"after {job.steps} steps the model's loss is {bits}")
    seconds_per_step = statistics.median(end - start for start, end in itertools.pairwise(clock))
    return Run(job.variant, job.seed, count_params(model), bits, losses, seconds_per_step)


@functools.cache
def _world_data() -> tuple[Tensor, Tensor]:
    """The world's text for training and for validation, each 1-D int64."""
    world = build_world()
    tokenizer = CharTokenizer(ALPHABET)
    return torch.tensor(tokenizer.encode(world.train_text())), torch.tensor(tokenizer.encode(world.val_text()))


def _cost(config: FlexConfig) -> float:
    """Roughly how long a step takes, relative to the baseline, as measured on one thread."""
    return 1 + 0.15 * (config.mlp == "swiglu") + 0.2 * (config.pos == "rope") - 0.05 * config.mqa


def _gather(futures: dict[Future, Job], jobs: list[Job], steps_done: Sequence[int], label: str) -> Ablation:
    """Wait for all jobs, drawing the bar."""
    runs: dict[Job, Run] = {}
    unwritten: dict[str, str] = {}
    total = sum(job.steps for job in jobs)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=4) as bar:
        task = bar.add_task(label, total=total)
        pending = set(futures)
        while pending:
            done, pending = wait(pending, timeout=0.25, return_when=FIRST_COMPLETED)
            for future in done:
                job = futures[future]
                try:
                    runs[job] = future.result()
                except NotImplementedError as error:
                    unwritten[job.variant] = str(error)
                    total -= job.steps
            bar.update(task, completed=sum(max(done, 0) for done in steps_done), total=total)
    return Ablation(
        runs=[runs[job] for job in jobs if job in runs],
        unwritten={job.variant: unwritten[job.variant] for job in jobs if job.variant in unwritten},
    )


@contextlib.contextmanager
def _worker_surroundings() -> Iterator[None]:
    """Processes started within the block get `WORKER_ENVIRONMENT`, and ignore Ctrl-C: ending them is up to us."""
    before = {name: os.environ.get(name) for name in WORKER_ENVIRONMENT}
    in_main_thread = threading.current_thread() is threading.main_thread()  # only there a handler can be set
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN) if in_main_thread else None
    os.environ.update(WORKER_ENVIRONMENT)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        if in_main_thread:
            signal.signal(signal.SIGINT, handler)


_steps_done: MutableSequence[int]  # in a worker: memory shared with the parent, one entry for each job


def _start_worker(steps_done: MutableSequence[int]) -> None:
    """Run once in each worker, before its first job."""
    global _steps_done
    _steps_done = steps_done
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this worker when its parent is gone, killed for example; nobody else would."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _work(index: int, job: Job) -> Run:
    """Do one job in a worker. Exceptions leave as plain text, since a student's own classes need not pickle."""

    def on_step(step: int) -> None:
        _steps_done[index] = step

    on_step(0)
    try:
        return train_variant(job, on_step)
    except NotImplementedError as error:
        raise NotImplementedError(str(error)) from None
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        frame = ([frame for frame in frames if frame.filename == palm_modules.__file__] or frames)[-1]
        raise VariantError(
            f"{job.variant} (seed {job.seed}) failed with {type(error).__name__}: {error}\n"
            f"  {frame.filename}, line {frame.lineno}, in {frame.name}: {frame.line}"
        ) from None
