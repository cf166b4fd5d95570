"""Train the base model of lecture 1. Run as a program, it makes the shipped checkpoint anew:

    python lecture01/train_base_model.py

The result depends on nothing but the world, the tokenizer and the constants below (and, in the last digits, on the
processor). It takes a few minutes on one thread.

How many steps are enough, by validation bits per character of the world of seed 0 (its schedule fitted to each):
CONVERGENCE
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from tiny_gpt import TinyGPT
from torch import Tensor
from torch.nn import functional as F

STEPS = 3000
BATCH_SIZE = 32
PEAK_LR = 3e-3
WARM_UP_STEPS = 100
MAX_GRAD_NORM = 1.0
SEED = 0


def train_base_model(data: Tensor, vocab_size: int, steps: int = STEPS) -> TinyGPT:
    """A `TinyGPT` trained on `data`, a 1-D int64 tensor longer than the model's context (otherwise `ValueError`).

    Adam with warm-up and cosine decay, from PyTorch's default initialisation, on windows as long as the context so that
    every position is learned. A progress bar goes to stderr. The caller's random state and thread setting are kept.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model = TinyGPT(vocab_size).float()
    T = model.context
    if len(data) <= T:
        raise ValueError(f"{len(data)} characters are too few: one training window needs {T + 1}")
    generator = torch.Generator().manual_seed(SEED)
    optimizer = torch.optim.Adam(model.parameters(), lr=PEAK_LR, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: lr_factor(step, steps))
    offsets = torch.arange(T + 1)
    with one_thread(), progress_bar() as progress:
        bar = progress.add_task("Training the base model", total=steps, loss="")
        for _ in range(steps):
            starts = torch.randint(len(data) - T, (BATCH_SIZE,), generator=generator)
            batch = data[starts[:, None] + offsets]
            loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
            optimizer.step()
            schedule.step()
            progress.update(bar, advance=1, loss=f"{loss.item() / math.log(2):.2f} bits per character")
    model.zero_grad()
    return model


def lr_factor(step: int, steps: int) -> float:
    """The share of the peak rate at `step`: a linear warm-up, then half a cosine down to a hundredth."""
    if step < WARM_UP_STEPS:
        return (step + 1) / WARM_UP_STEPS
    progress = (step - WARM_UP_STEPS) / max(1, steps - WARM_UP_STEPS)
    return 0.01 + 0.99 * (1 + math.cos(math.pi * progress)) / 2


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for matrix products, so that the result doesn't depend on how many cores there are."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def progress_bar() -> Progress:
    """A bar with the loss and the time left, on stderr."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[loss]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
