"""How long the ablation takes beside the same trainings in a plain loop: prints the ratio of the two wall times.

The plain loop trains one model after another in one process with two threads, in the way that nanoGPT does it
(github.com/karpathy/nanoGPT, train.py): batches stacked from slices, the stock optimizer, the same model modules. Both
sides evaluate each model, and both start with everything imported; the ablation's time includes starting its processes.

    python tests/bench/ablation_speed.py                  the full comparison, about 10 minutes a repeat
    python tests/bench/ablation_speed.py --steps 60       shorter trainings; starting processes weighs more here
    python tests/bench/ablation_speed.py --busy           the same while another process keeps one core busy
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from exercises.paths import use_implementation

SEEDS = (0, 1)
BATCH_SIZE = 32
LEARNING_RATE = 3e-3


def plain_loop(steps: int) -> None:
    """The trainings of the ablation, one after another with two threads."""
    import torch
    from torch.nn import functional as F

    from ablation import VARIANTS
    from fm_world import ALPHABET, build_world
    from tiny_gpt import CharTokenizer
    from train_lab import MAX_GRAD_NORM, WINDOW, FlexConfig, eval_bpc, make_flex

    torch.set_num_threads(2)
    world = build_world()
    tokenizer = CharTokenizer(ALPHABET)
    data, val_data = (torch.tensor(tokenizer.encode(text)) for text in (world.train_text(), world.val_text()))
    for choices in VARIANTS.values():
        for seed in SEEDS:
            model = make_flex(FlexConfig(**choices), seed)
            torch.manual_seed(seed)
            optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
            for _ in range(steps):
                ix = torch.randint(len(data) - WINDOW, (BATCH_SIZE,))
                x = torch.stack([data[i : i + WINDOW] for i in ix])
                y = torch.stack([data[i + 1 : i + 1 + WINDOW] for i in ix])
                logits = model(x)
                loss = F.cross_entropy(logits.view(-1, logits.size(-1)), y.view(-1))
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
                optimizer.step()
            eval_bpc(model, val_data)


def ablation(steps: int) -> None:
    """The kit's way."""
    from ablation import VARIANTS, run_ablation

    run_ablation(VARIANTS, SEEDS, steps, BATCH_SIZE, LEARNING_RATE)


@contextlib.contextmanager
def busy_core() -> Iterator[None]:
    """Within the block, one other process computes without pause."""
    spinning = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        spinning.kill()
        spinning.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400, help="steps a training (default: 400, as in the lecture)")
    parser.add_argument("--repeats", type=int, default=3, help="how often each side runs, in turns (default: 3)")
    parser.add_argument("--busy", action="store_true", help="keep one core busy with something else")
    options = parser.parse_args()
    use_implementation("solutions")
    import ablation as _  # noqa: F401  both sides start with everything imported

    ratios = []
    with busy_core() if options.busy else contextlib.nullcontext():
        for repeat in range(1, options.repeats + 1):
            seconds = []
            for side in (plain_loop, ablation):
                start = time.perf_counter()
                side(options.steps)
                seconds.append(time.perf_counter() - start)
            ratios.append(seconds[1] / seconds[0])
            print(
                f"repeat {repeat}: plain loop {seconds[0]:.1f} s, ablation {seconds[1]:.1f} s, ratio {ratios[-1]:.3f}"
            )
    condition = "one core busy" if options.busy else "nothing else running"
    print(f"median ratio over {options.repeats} repeats, {options.steps} steps, {condition}: ", end="")
    print(f"{statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
