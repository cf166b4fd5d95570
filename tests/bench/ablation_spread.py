"""How far the ablation's figures depend on the seed: each variant's mean and standard deviation over several seeds.

python tests/bench/ablation_spread.py                     5 seeds, 35 trainings: about 12 minutes on two cores
python tests/bench/ablation_spread.py --json spread.json  the same, with every single figure in a file
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from exercises.paths import use_implementation


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5, help="seeds for each variant, at least 2 (default: 5)")
    parser.add_argument("--steps", type=int, default=400, help="steps a training (default: 400, as in the lecture)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures of every training to FILE")
    options = parser.parse_args()
    if options.seeds < 2:
        parser.error("a spread needs at least 2 seeds")
    use_implementation("solutions")
    from ablation import VARIANTS, run_ablation
    from console import print_table

    bits: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for run in run_ablation(VARIANTS, range(options.seeds), options.steps).runs:
        bits[run.variant].append(run.bits_per_char)

    summary = {}
    for name, figures in bits.items():
        # By seed, since both trainings of a pair see the same batches.
        differences = [figure - baseline for figure, baseline in zip(figures, bits["baseline"])]
        summary[name] = {
            "bits_per_char": figures,
            "mean": statistics.mean(figures),
            "spread": statistics.stdev(figures),
            "difference": statistics.mean(differences),
            "spread_of_difference": statistics.stdev(differences),
        }
    columns = ("mean", "spread", "difference", "spread_of_difference")
    print(f"bits per character after {options.steps} steps, {options.seeds} seeds; spread is the standard deviation")
    print_table(
        ["variant", *(column.replace("_", " ") for column in columns)],
        [
            [name, *(format(figures[column], "+.3f" if column == "difference" else ".3f") for column in columns)]
            for name, figures in summary.items()
        ],
    )
    if options.json:
        report = {"steps": options.steps, "seeds": options.seeds, "variants": summary}
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
