"""Makes `ablation_bounds.json` and `ablation_weights.safetensors` from the solutions: `python tests/hidden/ablation_bounds.py`.

Weights: each variant after the lecture's own 400 steps, and its bits per character on the first characters of the
validation text. Training: a short one from 20 seeds for the baseline and three variants. The bounds on a variant's
difference from the baseline are its mean ± the margin, 6 standard deviations but at least 0.1; the share of further
seeds (`held_out`) that fall outside is the measured false-reject rate. Takes about ten minutes on two cores.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from exercises.paths import use_implementation

use_implementation("solutions")

import torch
from safetensors.torch import save_file

from ablation import VARIANTS, run_ablation
from fm_world import ALPHABET, build_world
from tiny_gpt import CharTokenizer
from train_lab import FlexConfig, eval_bpc, make_flex, train_flex

CHARACTERS = 2017  # 21 windows
WITH_MODULES = ("swiglu", "parallel", "mqa", "rope", "all")
TRAINED = ("swiglu", "rope", "all")
SETTINGS = {"steps": 80, "batch_size": 16, "seed": 0}
SEEDS, HELD_OUT = range(20), range(100, 120)


def trained(variant: str) -> tuple[dict, float]:
    """One variant's weights by name after 400 steps, and its bits per character."""
    torch.set_num_threads(1)
    world, tokenizer = build_world(), CharTokenizer(ALPHABET)
    train, val = (torch.tensor(tokenizer.encode(text)) for text in (world.train_text(), world.val_text()))
    model = make_flex(FlexConfig(**VARIANTS[variant]), seed=0)
    train_flex(model, train, steps=400)
    return {name: value.detach().numpy() for name, value in model.named_parameters()}, eval_bpc(model, val[:CHARACTERS])


def trained_weights() -> tuple[dict, dict]:
    """Weights by "variant/name", and each variant's choices and bits per character."""
    tensors, figures = {}, {}
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        for variant, (weights, bits) in zip(WITH_MODULES, pool.map(trained, WITH_MODULES)):
            tensors |= {f"{variant}/{name}": torch.from_numpy(value) for name, value in weights.items()}
            figures[variant] = {"choices": VARIANTS[variant], "bits_per_char": bits}
    return tensors, figures


def spread(seeds: range) -> dict[str, list[float]]:
    """Bits per character after the short training, by variant."""
    chosen = {name: VARIANTS[name] for name in ("baseline", *TRAINED)}
    ablation = run_ablation(chosen, seeds, SETTINGS["steps"], SETTINGS["batch_size"])
    return {name: [run.bits_per_char for run in ablation.runs if run.variant == name] for name in chosen}


def bounds(seen: list[float], others: list[float], baseline: float) -> dict:
    differences = [value - baseline for value in seen]
    mean, deviation = statistics.mean(differences), statistics.stdev(differences)
    margin = max(6 * deviation, 0.1)
    outside = sum(abs(value - baseline - mean) > margin for value in others)
    return {
        "mean": round(mean, 4),
        "standard_deviation": round(deviation, 4),
        "margin": round(margin, 4),
        "lower": round(mean - margin, 4),
        "upper": round(mean + margin, 4),
        "held_out": {"seeds": len(others), "outside": outside},
    }


def main() -> None:
    torch.set_num_threads(1)
    tensors, figures = trained_weights()
    save_file(tensors, HERE / "ablation_weights.safetensors")
    seen, others = spread(SEEDS), spread(HELD_OUT)
    baseline = statistics.mean(seen["baseline"])
    deviation = statistics.stdev(seen["baseline"])
    training = SETTINGS | {
        "seeds": len(SEEDS),
        "baseline": {"mean": round(baseline, 4), "standard_deviation": round(deviation, 4)},
        "variants": {name: bounds(seen[name], others[name], baseline) for name in TRAINED},
    }
    data = {"characters": CHARACTERS, "weights": figures, "training": training}
    (HERE / "ablation_bounds.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
