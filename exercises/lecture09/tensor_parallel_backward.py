"""Lecture 9, part 4 of the program: gradients, with one process playing all ranks and on real ranks."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from base_model import ROUNDING, base, largest, percent, sci, table, title
from exercises.program import Program
from sharded_gpt import forward_backward, piece

# The parameters of TinyGPT in the order in which the backward pass reaches them.
GROUPS = (
    "ln_f",
    *(f"blocks.{i}.{part}" for i in (1, 0) for part in ("mlp", "ln2", "attn", "ln1")),
    "tok_emb",
    "pos_emb",
)


def mlp_gradients(program: Program) -> dict:
    """The cut MLP, one process playing all ranks."""
    title(program, "Part 4. Backward", "第四部分：反向传播")
    print(program.say("One process plays all ranks. The MLP:", "先由一个进程扮演所有 rank。MLP："))
    from dist_sim import split_mlp, tp_mlp_forward

    mlp, x = base().block.mlp, base().mlp_in.clone().requires_grad_()
    inputs = dict(zip(("x", "W1", "b1", "W2", "b2"), [x, *mlp.parameters()]))
    truth = dict(zip(inputs, _grads(mlp(x), list(inputs.values()))))
    off: dict[str, dict[str, float]] = {name: {} for name in inputs}
    for t in (2, 4):
        shards, b2 = split_mlp(mlp, t)
        tensors = [x, b2, *(shard[name] for shard in shards for name in ("W1", "b1", "W2"))]
        grads = _grads(tp_mlp_forward(x, shards, b2), tensors)
        off["x"][str(t)] = largest(grads[0] - truth["x"])
        off["b2"][str(t)] = largest(grads[1] - truth["b2"])
        for i, name in enumerate(("W1", "b1", "W2")):
            slices = truth[name].chunk(t, dim=1 if name == "W2" else 0)
            off[name][str(t)] = max(largest(grad - part) for grad, part in zip(grads[2 + i :: 3], slices))
    return _compared(program, truth, off)


def attention_gradients(program: Program) -> dict:
    """Attention by heads, one process playing all ranks."""
    print()
    print(program.say("Attention:", "注意力："))
    from dist_sim import tp_attention_forward

    attn, x = base().block.attn, base().attn_in.clone().requires_grad_()
    inputs = {"x": x, **dict(attn.named_parameters())}
    truth = dict(zip(inputs, _grads(attn(x), list(inputs.values()))))
    off: dict[str, dict[str, float]] = {name: {} for name in inputs}
    for t in (2, 4):
        grads = _grads(tp_attention_forward(attn, x, t), list(inputs.values()))
        for name, grad in zip(inputs, grads):
            off[name][str(t)] = max(largest(piece(f".{name}", grad - truth[name], r, t)) for r in range(t))
    return _compared(program, truth, off)


def _grads(out: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    """Gradients for a random gradient of `out`, the same one in every call."""
    upstream = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(0))
    # As a weighted sum, because autograd imports sympy (a second) when it is given a gradient to check.
    return torch.autograd.grad((out * upstream).sum(), inputs)


def _compared(program: Program, truth: dict[str, Tensor], off: dict[str, dict[str, float]]) -> dict:
    """Table and verdict: the ranks' gradients against their slices of the gradient on one device."""
    figures: dict[str, dict] = {name: {"size": largest(truth[name]), "ranks": ranks} for name, ranks in off.items()}
    table(
        program,
        [
            ("gradient of", "梯度"),
            ("largest on one device", "单机上的最大值"),
            ("difference, t = 2", "差值，t = 2"),
            ("difference, t = 4", "差值，t = 4"),
        ],
        [
            [name, f"{row['size']:.3g}", *(sci(difference) for difference in row["ranks"].values())]
            for name, row in figures.items()
        ],
    )
    scale = max(row["size"] for row in figures.values())
    worst = max(difference for row in figures.values() for difference in row["ranks"].values())
    program.observe(
        worst <= ROUNDING * scale,
        f"Every rank's gradients are its slices of the gradients on one device: at most {sci(worst)} off.",
        f"每个 rank 的梯度都是单机梯度的对应切片：最多差 {sci(worst)}。",
        f"The ranks' gradients should be slices of those on one device, and they are off by up to {sci(worst)}.",
        f"各 rank 的梯度本应是单机梯度的对应切片，现在最多差了 {sci(worst)}。",
    )
    return figures


def real_ranks(program: Program) -> dict:
    """The whole model on real ranks, forward and backward, with f and without it."""
    t = 2
    print()
    print(
        program.say(
            f"{t} real ranks, each a process of its own, run the whole model with f and g, then without f.\n"
            "Largest relative error of the gradients, from the last layer to the first:",
            f"再启动 {t} 个真正的 rank，每个都是独立的进程：先用 f 和 g 跑整个模型，再去掉 f 跑一遍。\n"
            "各部分梯度的最大相对误差，从最后一层排到最前面：",
        )
    )
    from collectives import run_on_ranks

    model, idx, targets = base().double, base().idx, base().targets
    passes = run_on_ranks(t, forward_backward, model, idx, targets, timeout=60.0)
    loss = F.cross_entropy(model(idx).flatten(0, 1), targets.flatten())
    truth = dict(zip((n for n, _ in model.named_parameters()), torch.autograd.grad(loss, list(model.parameters()))))
    errors = {
        way: {group: _error(group, truth, [rank[way]["grads"] for rank in passes]) for group in GROUPS}
        for way in ("with_f", "without_f")
    }
    table(
        program,
        [("parameters", "参数"), ("with f", "有 f"), ("without f", "没有 f")],
        [[group, *(percent(errors[way][group]) for way in errors)] for group in GROUPS],
    )
    worst = max(errors["with_f"].values())
    program.observe(
        worst <= ROUNDING,
        f"With f and g, every gradient on every rank is right, to {sci(worst)}.",
        f"f 和 g 都在时，每个 rank 上的每个梯度都正确，相对误差不超过 {sci(worst)}。",
        f"With f and g, every gradient should be right, and the worst is off by {sci(worst)} of its size.",
        f"f 和 g 都在时，梯度应当全部正确，现在相对误差最大达到 {sci(worst)}。",
    )
    right = [group for group in GROUPS if errors["without_f"][group] <= ROUNDING]
    wrong = [errors["without_f"][group] for group in GROUPS if group not in right]
    program.observe(
        right == list(GROUPS[:2]) and min(wrong) > 1e-3,
        f"Without f, only {' and '.join(right)}, behind the last f, stay right; everything before is off by "
        f"{min(wrong, default=0):.0%} to {max(wrong, default=0):.0%}.",
        f"没有 f 时，只有排在最后一个 f 之后的 {' 和 '.join(right)} 仍然正确；更靠前的参数全错，"
        f"误差从 {min(wrong, default=0):.0%} 到 {max(wrong, default=0):.0%}。",
        f"Without f, ln_f and blocks.1.mlp alone should stay right. Right here: {', '.join(right) or 'nothing'}.",
        f"没有 f 时，本应只有 ln_f 和 blocks.1.mlp 仍然正确。这里正确的有：{'、'.join(right) or '无'}。",
    )
    losses = {way: passes[0][way]["loss"] for way in errors}
    apart = max(abs(other - loss.item()) for other in losses.values())
    program.observe(
        apart <= ROUNDING * loss.item(),
        f"The loss tells none of this: {losses['with_f']:.6f} with f, {losses['without_f']:.6f} without, "
        f"{loss.item():.6f} on one device.",
        f"光看损失却看不出来：有 f 时 {losses['with_f']:.6f}，没有 f 时 {losses['without_f']:.6f}，"
        f"单机上 {loss.item():.6f}。",
        f"The loss should be the same three times: {losses['with_f']:.6f} with f, {losses['without_f']:.6f} without, "
        f"{loss.item():.6f} on one device.",
        f"三个损失本应相同：有 f 时 {losses['with_f']:.6f}，没有 f 时 {losses['without_f']:.6f}，"
        f"单机上 {loss.item():.6f}。",
    )
    counts = {way: {phase: passes[0][way][phase] for phase in ("forward", "backward")} for way in errors}
    forward, backward, bare = counts["with_f"]["forward"], counts["with_f"]["backward"], counts["without_f"]["backward"]
    blocks = len(model.blocks)
    program.observe(
        (forward, backward, bare) == (2 * blocks, 2 * blocks, 0),
        f"All-reduces on each rank: {forward} forward from g and {backward} backward from f, "
        f"2 a block each way. Without f: {bare} backward.",
        f"每个 rank 的全归约：前向 {forward} 次，来自 g；反向 {backward} 次，来自 f；两个方向都是每块 2 次。"
        f"没有 f 时，反向 {bare} 次。",
        f"All-reduces on each rank: {forward} forward and {backward} backward, {bare} backward without f. "
        f"There should be 2 a block each way, in {blocks} blocks, and none backward without f.",
        f"每个 rank 的全归约：前向 {forward} 次，反向 {backward} 次，没有 f 时反向 {bare} 次。"
        f"应为 {blocks} 个块，前向反向每块各 2 次；没有 f 时，反向应为 0 次。",
    )
    return {"one_device_loss": loss.item(), "losses": losses, "gradient_errors": errors, "all_reduces": counts}


def _error(group: str, truth: dict[str, Tensor], ranks: list[dict[str, Tensor]]) -> float:
    """Over all ranks: the largest error of the group's gradients, relative to the largest of them."""
    names = [name for name in truth if name.startswith(f"{group}.")]
    scale = max(largest(truth[name]) for name in names)
    t = len(ranks)
    errors = (
        largest(grads[name] - piece(name, truth[name], rank, t)) for rank, grads in enumerate(ranks) for name in names
    )
    return max(errors) / scale
