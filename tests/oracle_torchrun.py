"""One training step of a tensor-parallel MLP block under torchrun, beside the same step on one device.

    torchrun --standalone --nproc_per_node 2 tests/oracle_torchrun.py FOLDER

Every rank writes FOLDER/rankN.json: the largest differences between the two, by name.
"""

from __future__ import annotations

import copy
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from exercises.paths import use_implementation

use_implementation("solutions")

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from tp_autograd import f, g

D, HIDDEN, LEARNING_RATE = 8, 16, 0.1


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    dist.init_process_group("gloo")
    rank, t = dist.get_rank(), dist.get_world_size()
    group = dist.new_group()

    torch.manual_seed(1)  # all ranks begin with the same whole module and data
    norm, mlp = nn.LayerNorm(D), nn.Sequential(nn.Linear(D, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, D))
    x, upstream = torch.randn(2, 5, D, requires_grad=True), torch.randn(2, 5, D)
    for parameter in norm.parameters():
        nn.init.normal_(parameter)

    own_x = x.detach().clone().requires_grad_()
    own_norm = copy.deepcopy(norm)
    own = {
        "W1": mlp[0].weight.chunk(t)[rank],
        "b1": mlp[0].bias.chunk(t)[rank],
        "W2": mlp[2].weight.chunk(t, dim=1)[rank],
        "b2": mlp[2].bias,
    }
    own = {name: piece.detach().clone().requires_grad_() for name, piece in own.items()}

    def sharded() -> torch.Tensor:
        hidden = F.gelu(F.linear(f(own_norm(own_x), group), own["W1"], own["b1"]))
        return own_x + g(F.linear(hidden, own["W2"]), group) + own["b2"]

    def whole() -> torch.Tensor:
        return x + mlp(norm(x))

    errors = {}

    def compare(name: str, ours: torch.Tensor, truth: torch.Tensor) -> None:
        errors[name] = (ours - truth).abs().max().item()

    ours, truth = sharded(), whole()
    compare("out", ours, truth)
    (ours * upstream).sum().backward()
    (truth * upstream).sum().backward()
    compare("x", own_x.grad, x.grad)
    for name, parameter in own_norm.named_parameters():
        compare(f"norm.{name}", parameter.grad, norm.get_parameter(name).grad)
    compare("W1", own["W1"].grad, mlp[0].weight.grad.chunk(t)[rank])
    compare("b1", own["b1"].grad, mlp[0].bias.grad.chunk(t)[rank])
    compare("W2", own["W2"].grad, mlp[2].weight.grad.chunk(t, dim=1)[rank])
    compare("b2", own["b2"].grad, mlp[2].bias.grad)

    torch.optim.SGD([*own_norm.parameters(), *own.values()], LEARNING_RATE).step()
    torch.optim.SGD([*norm.parameters(), *mlp.parameters()], LEARNING_RATE).step()
    compare("next out", sharded(), whole())

    report = {"rank": rank, "world_size": t, "backend": dist.get_backend(), "pid": os.getpid(), "errors": errors}
    (folder / f"rank{rank}.json").write_text(json.dumps(report), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
