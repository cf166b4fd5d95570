"""Train the base model of lecture 1. Run as a program, this makes the shipped checkpoint anew:

    python lecture01/train_base_model.py

The result depends only on the world, the tokenizer and the constants below (and, in the last digits, on the
processor). It takes a few minutes.

How many steps are enough was measured on the world of seed 0, with the rate falling over just those steps. Bits per
character in validation, and in training: 0.534 and 0.557 after 1,500 steps, 0.441 and 0.415 after 3,000, 0.450 and
0.311 after 6,000. Beyond 3,000 the model learns the training lines by heart and gets no better at new ones.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor
from torch.nn import functional as F

import checkpoint
from fm_world import ALPHABET, World, build_world
from tiny_gpt import SHIPPED, CharTokenizer, TinyGPT, bits_per_char

STEPS = 3000
BATCH_SIZE = 32
PEAK_LR = 3e-3
WARM_UP_STEPS = 100
MAX_GRAD_NORM = 1.0
SEED = 0


def train_base_model(world: World, tok: CharTokenizer) -> tuple[TinyGPT, dict[str, str]]:
    """A base model for `world`, in eval mode, and the metadata for its checkpoint."""
    model = train(torch.tensor(tok.encode(world.train_text())), tok.vocab_size, STEPS).eval()
    alphabet = tok.decode(range(tok.vocab_size))
    metadata = {
        "fingerprint": checkpoint.fingerprint(world.train_text(), world.val_text(), alphabet, model),
        "val_bits_per_char": repr(bits_per_char(model, torch.tensor(tok.encode(world.val_text())))),
        "steps": str(STEPS),
        "batch_size": str(BATCH_SIZE),
    }
    return model, metadata


def train(data: Tensor, vocab_size: int, steps: int) -> TinyGPT:
    """A `TinyGPT` trained on `data`, a 1-D int64 tensor longer than the model's context (otherwise `ValueError`).

    Adam with warm-up and cosine decay, from PyTorch's default initialisation, on windows as long as the context, so
    that every position is learned. A progress bar goes to stderr. The random state and the thread setting of the caller
    are kept.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(SEED)  # torch.manual_seed would seed the GPUs' states as well, for good
        model = TinyGPT(vocab_size).float()
    T = model.context
    if len(data) <= T:
        raise ValueError(f"{len(data)} characters are too few: one training window needs {T + 1}")
    generator = torch.Generator().manual_seed(SEED)
    optimizer = torch.optim.Adam(model.parameters(), lr=PEAK_LR, fused=True)
    offsets = torch.arange(T + 1)
    with one_thread(), progress_bar() as progress:
        bar = progress.add_task("Training the base model", total=steps, loss="")
        for step in range(steps):
            optimizer.param_groups[0]["lr"] = learning_rate(step, steps)
            starts = torch.randint(len(data) - T, (BATCH_SIZE,), generator=generator)
            batch = data[starts[:, None] + offsets]
            loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
            optimizer.step()
            progress.update(bar, advance=1, loss=f"{loss.item() / math.log(2):.2f} bits per character")
    optimizer.zero_grad()  # the caller gets parameters without gradients
    return model


def learning_rate(step: int, steps: int) -> float:
    """The rate at `step`, counted from 0: a linear warm-up, then half a cosine down to a hundredth of the peak."""
    if step < WARM_UP_STEPS:
        return PEAK_LR * (step + 1) / WARM_UP_STEPS
    share = (step - WARM_UP_STEPS) / max(1, steps - WARM_UP_STEPS)
    return PEAK_LR * (0.01 + 0.99 * (1 + math.cos(math.pi * share)) / 2)


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for matrix products, so that the result does not depend on the number of cores."""
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


if __name__ == "__main__":
    base_model, about = train_base_model(build_world(), CharTokenizer(ALPHABET))
    checkpoint.save(SHIPPED, base_model.state_dict(), about)
    print(f"{SHIPPED}: {float(about['val_bits_per_char']):.4f} bits per character in validation", file=sys.stderr)
