"""What a judge can ask of a student's code. Each request calls it and returns plain values, never a verdict.

The student's modules are imported by bare name, so whoever runs a request decides first which ones those are. Calls
are positional, in the contract's order. Modules that come as arguments are the request's own to use up.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from collectives import recorded_all_reduces, run_on_ranks
from exercises.checks import Foreign, gradients_of, same, snapshot
from grader.solver import rank_requests

Leaves = dict[str, Tensor]


def laid_out(x: Tensor, layout: str) -> Tensor:
    """The values of x in another memory layout: "plain", "transposed" (strides swapped) or "expanded" (stride 0).

    "expanded" keeps only x[0] and repeats it along the first axis.
    """
    if layout == "transposed":
        return x.transpose(-1, -2).contiguous().transpose(-1, -2)
    if layout == "expanded":
        return x[:1].expand_as(x)
    return x.clone()


def value_of(result: Any) -> Any:
    """A tensor's values without its history; None stays None, and of anything else its type is left."""
    if isinstance(result, Tensor):
        return result.detach().clone()
    return None if result is None else Foreign(type(result).__name__)


def visible(paths: list[str]) -> list[str]:
    """Which of these files can be read from here: the engine's own question, before it trusts a confinement."""
    seen = []
    for path in paths:
        with contextlib.suppress(OSError), open(path, "rb") as file:
            file.read(1)
            seen.append(path)
    return seen


def call(module: str, name: str, *arguments: Any) -> Any:
    """The result of a function, for numbers in and numbers out."""
    return getattr(importlib.import_module(module), name)(*arguments)


def split_mlp(mlp: nn.Module, t: int, upstream: list[Leaves] | None = None) -> dict:
    """The shards and b2, as values; with `upstream` (one dict a rank, then b2's) also the parameters' gradients."""
    before = snapshot(mlp)
    shards, b2 = importlib.import_module("dist_sim").split_mlp(mlp, t)
    reply: dict = {"changed": [] if same(before, snapshot(mlp)) else ["mlp"]}
    if upstream is not None:
        pieces = [(shard[name], upstream[r][name]) for r, shard in enumerate(shards) for name in ("W1", "b1", "W2")]
        total = sum((piece * up).sum() for piece, up in [*pieces, (b2, upstream[-1]["b2"])])
        reply["grads"] = gradients_of(total, torch.ones(()), dict(mlp.named_parameters()))
    reply["shards"] = [{name: value_of(shard[name]) for name in ("W1", "b1", "W2")} for shard in shards]
    reply["b2"] = value_of(b2)
    return reply


def tp_mlp_forward(
    x: Tensor,
    shards: list[Leaves],
    b2: Tensor,
    counter: dict | None = None,
    upstream: Tensor | None = None,
    layout: str = "plain",
) -> dict:
    """See `_forward`. Gradients of x, b2 and every shard tensor ("W1 of rank 0" and so on)."""
    shards = [{name: piece.clone().requires_grad_() for name, piece in shard.items()} for shard in shards]
    b2 = b2.clone().requires_grad_()
    x = laid_out(x, layout).requires_grad_()
    leaves = {"x": x, "b2": b2} | {f"{k} of rank {r}": v for r, shard in enumerate(shards) for k, v in shard.items()}
    watched = {"x": x, "shards": shards, "b2": b2}
    function = importlib.import_module("dist_sim").tp_mlp_forward
    return _forward(lambda: function(x, shards, b2, counter), watched, leaves, counter, upstream)


def tp_attention_forward(
    attn: nn.Module,
    x: Tensor,
    t: int,
    counter: dict | None = None,
    upstream: Tensor | None = None,
    layout: str = "plain",
) -> dict:
    """See `_forward`. Gradients of x and of attn's parameters by name."""
    x = laid_out(x, layout).requires_grad_(x.is_floating_point())
    leaves = {"x": x, **dict(attn.named_parameters())}
    function = importlib.import_module("dist_sim").tp_attention_forward
    return _forward(lambda: function(attn, x, t, counter), {"attn": attn, "x": x}, leaves, counter, upstream)


def tp_model_forward(
    model: nn.Module, idx: Tensor, t: int, counter: dict | None = None, upstream: Tensor | None = None
) -> dict:
    """See `_forward`. Gradients of the model's parameters by name."""
    watched = {"model": model, "idx": idx}
    function = importlib.import_module("dist_sim").tp_model_forward
    leaves: Leaves = dict(model.named_parameters())
    return _forward(lambda: function(model, idx, t, counter), watched, leaves, counter, upstream)


def _forward(function: Callable, watched: dict, leaves: Leaves, counter: dict | None, upstream: Tensor | None) -> dict:
    """Call it once: `out`; `all_reduces`, what each one carried, rank by rank; `counter`, as it stands afterwards;
    `changed`, the watched arguments that are no longer what they were; with `upstream`, `grads` by name; `aliased`,
    the watched tensors that share memory with the output."""
    before = {name: snapshot(value) for name, value in watched.items()}
    with recorded_all_reduces() as recording:
        out = function()
    carried = [[value_of(part) for part in parts] for parts in recording]
    reply = {"out": value_of(out), "all_reduces": carried, "counter": counter, "changed": [], "aliased": []}
    if not isinstance(out, Tensor):
        return reply | {"grads": dict.fromkeys(leaves)}
    if upstream is not None and out.shape == upstream.shape:
        reply["grads"] = gradients_of(out, upstream, leaves)
    reply["changed"] = [name for name, value in watched.items() if not same(before[name], snapshot(value))]
    tensors = {name: value for name, value in watched.items() if isinstance(value, Tensor)}
    storage = out.untyped_storage().data_ptr()
    reply["aliased"] = [name for name, value in tensors.items() if value.untyped_storage().data_ptr() == storage]
    return reply


def on_ranks(t: int, program: str, *arguments: Any) -> list:
    """The results of t real ranks, each running a function of `rank_requests`."""
    for module in (rank_requests.COUNTING, "tp_autograd"):  # once, before the ranks are forked
        importlib.import_module(module)
    return run_on_ranks(t, getattr(rank_requests, program), *arguments)


def module_shapes(name: str, *arguments: Any) -> dict[str, tuple[int, ...]]:
    """The shapes of a palm module's parameters by name."""
    module = getattr(importlib.import_module("palm_modules"), name)(*arguments)
    return {parameter: tuple(value.shape) for parameter, value in module.named_parameters()}


def module_initial(name: str, arguments: tuple, seeds: list[int]) -> list[dict[str, Tensor]]:
    """The parameters that a palm module begins with, for each random state."""
    begun = []
    for seed in seeds:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = getattr(importlib.import_module("palm_modules"), name)(*arguments)
        begun.append({parameter: value.detach().clone() for parameter, value in module.named_parameters()})
    return begun


def module_calls(
    name: str,
    arguments: tuple,
    state: dict[str, Tensor],
    inputs: list[Tensor],
    upstream: Tensor | None = None,
    layout: str = "plain",
    training: bool = True,
) -> dict:
    """One palm module with the parameters of `state`, called on each of `inputs` in turn: `outs`.

    With `upstream`, `grads` of the last call by name, x among them. `changed` as in `_forward`.
    """
    with torch.random.fork_rng(devices=[]):  # building a module may draw random numbers, calling it may not
        module = getattr(importlib.import_module("palm_modules"), name)(*arguments)
    load_by_name(module, state)
    module.train(training)
    before = snapshot(dict(module.named_parameters()))
    outs, changed = [], []
    for values in inputs:
        x = laid_out(values, layout).requires_grad_()
        held = snapshot(x)
        out = module(x)
        outs.append(value_of(out))
        if not same(held, snapshot(x)):
            changed.append("x")
    reply: dict = {"outs": outs}
    if upstream is not None and isinstance(out, Tensor) and out.shape == upstream.shape:
        reply["grads"] = gradients_of(out, upstream, {"x": x, **dict(module.named_parameters())})
    if not same(before, snapshot(dict(module.named_parameters()))):
        changed.append("the module's parameters")
    return reply | {"changed": changed}


def load_by_name(module: nn.Module, state: dict[str, Tensor]) -> None:
    """Copy `state` into the module's parameters; extra buffers are free, names are not."""
    own = dict(module.named_parameters())
    for name, value in state.items():
        if name not in own:
            raise AttributeError(f"there is no parameter called {name}")
        with torch.no_grad():
            own[name].copy_(value)


def rope_angles(head_dim: int, positions: Tensor, *theta: float) -> dict:
    """`cos` and `sin`, under the default dtype of this moment."""
    before = snapshot(positions)
    cos, sin = importlib.import_module("palm_modules").rope_angles(head_dim, positions, *theta)
    return {"cos": cos, "sin": sin, "changed": [] if same(before, snapshot(positions)) else ["positions"]}


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor, upstream: Tensor | None = None, layout: str = "plain") -> dict:
    """`out`, with `upstream` the gradient of x; `changed` as in `_forward`."""
    x = laid_out(x, layout).requires_grad_()
    watched = {"x": x, "cos": cos, "sin": sin}
    before = snapshot(watched)
    out = importlib.import_module("palm_modules").apply_rope(x, cos, sin)
    reply: dict = {"out": value_of(out)}
    if upstream is not None and isinstance(out, Tensor) and out.shape == upstream.shape:
        reply["grads"] = gradients_of(out, upstream, {"x": x})
    return reply | {"changed": [] if same(before, snapshot(watched)) else ["x or the tables"]}


def flex_count(choices: dict) -> int:
    """The number of parameters of the lab's model built from the student's modules."""
    lab = importlib.import_module("train_lab")
    return lab.count_params(lab.make_flex(lab.FlexConfig(**choices), seed=0))


def flex_param_count(choices: dict) -> Any:
    """What the student's closed form says of the same model."""
    lab = importlib.import_module("train_lab")
    return importlib.import_module("kv_cache_cost").flex_param_count(lab.FlexConfig(**choices))


def flex_initial(choices: dict, seed: int) -> dict[str, Tensor]:
    """The parameters that the lab's model begins with."""
    lab = importlib.import_module("train_lab")
    model = lab.make_flex(lab.FlexConfig(**choices), seed)
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def flex_logits(choices: dict, calls: list[tuple[int, dict[str, Tensor], Tensor]]) -> list[Tensor]:
    """Logits of several of the lab's models that exist at once, in eval mode and without gradients.

    Each call names its model by number, gives it the parameters of a state, and sends ids through it.
    """
    lab = importlib.import_module("train_lab")
    models = [lab.make_flex(lab.FlexConfig(**choices), seed=0) for _ in range(1 + max(number for number, *_ in calls))]
    out = []
    for number, state, idx in calls:
        load_what_fits(models[number], state)
        with torch.no_grad():
            out.append(models[number].eval()(idx).clone())
    return out


def flex_block(choices: dict, state: dict[str, Tensor], x: Tensor) -> Tensor:
    """The output of one block of the lab's model, built and called alone, with gradients as in the modules' tests."""
    lab = importlib.import_module("train_lab")
    with torch.random.fork_rng(devices=[]):
        block = lab.make_block(lab.FlexConfig(**choices))
    load_what_fits(block, state)
    return block.eval()(x).detach()


def flex_bits(choices: dict, state: dict[str, Tensor], data: Tensor) -> float:
    """Bits per character of the lab's model with the parameters of `state`."""
    lab = importlib.import_module("train_lab")
    model = lab.make_flex(lab.FlexConfig(**choices), seed=0)
    load_what_fits(model, state)
    return lab.eval_bpc(model, data)


def load_what_fits(model: nn.Module, state: dict[str, Tensor]) -> None:
    """Copy what has the right name and shape and set the rest to 0: what is missing there costs in the module's tests."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            value = state.get(name)
            if value is not None and value.shape == parameter.shape:
                parameter.copy_(value)
            else:
                parameter.zero_()


def flex_train(choices: dict, train: Tensor, steps: int, batch_size: int, seed: int) -> dict[str, Tensor]:
    """The model's parameters after a training from scratch."""
    lab = importlib.import_module("train_lab")
    model = lab.make_flex(lab.FlexConfig(**choices), seed=seed)
    lab.train_flex(model, train, steps, batch_size=batch_size, seed=seed)
    return {name: value.detach() for name, value in model.named_parameters()}
