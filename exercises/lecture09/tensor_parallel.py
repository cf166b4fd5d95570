"""Lecture 9: does a model cut for several ranks compute the same as on one device, and what does that cost?

    python exercises/lecture09/tensor_parallel.py [--impl solutions|FOLDER] [--lang en|zh] [--json FILE]

It runs on your `dist_sim.py`, `tp_autograd.py` and `comm_cost.py`. A part whose exercises are still to do says so, and
the others run. Each part imports your files for itself, and only once the options have said whose they are.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from exercises.program import parse_options


def main() -> int:
    program = parse_options(__doc__.splitlines()[0])
    import tensor_parallel_backward as backward
    import tensor_parallel_cost as cost
    import tensor_parallel_forward as forward

    program.run("mlp", forward.mlp_cut)
    program.run("attention", forward.attention_cut)
    program.run("model", forward.whole_model)
    program.run("mlp_gradients", backward.mlp_gradients)
    program.run("attention_gradients", backward.attention_gradients)
    program.run("real_ranks", backward.real_ranks)
    program.run("communication", cost.communication)
    return program.finish()


if __name__ == "__main__":
    sys.exit(main())
