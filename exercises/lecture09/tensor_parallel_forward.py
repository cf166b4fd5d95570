"""Lecture 9, parts 1 to 3 of the program: outputs, with one process playing all ranks."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from base_model import ROUNDING, B, T, base, largest, listed, sci, table, title
from exercises.program import Program
from tiny_gpt import TinyGPT, bits_per_char

RANKS = (1, 2, 4)  # the base model has 4 heads


def mlp_cut(program: Program) -> dict:
    """Part 1: the MLP cut Megatron's way and the wrong way."""
    title(program, "Part 1. The MLP, cut for t ranks", "第一部分：把 MLP 切给 t 个 rank")
    from dist_sim import split_mlp, tp_mlp_forward, wrong_mlp_forward

    mlp, x = base().block.mlp, base().mlp_in
    ranks: dict[str, dict] = {}
    with torch.no_grad():
        truth = mlp(x)
        size = largest(truth)
        for t in (2, 4, 8):
            counter: dict[str, int] = {}
            out = tp_mlp_forward(x, *split_mlp(mlp, t), counter)
            ranks[str(t)] = {
                "megatron": largest(out - truth),
                "wrong": largest(wrong_mlp_forward(x, mlp, t) - truth),
                "all_reduces": counter.get("all_reduce", 0),
            }
    print(
        program.say(
            f"Largest difference from one device, in float64, on {B} × {T} characters of real text:",
            f"与单机输出的最大差值（float64，取 {B} × {T} 个字符的真实文本）：",
        )
    )
    table(
        program,
        [
            ("ranks", "rank 数"),
            ("Megatron's cut", "Megatron 切法"),
            ("wrong cut", "错误切法"),
            ("largest output", "输出的最大值"),
        ],
        [[f"t = {t}", sci(row["megatron"]), f"{row['wrong']:.2f}", f"{size:.2f}"] for t, row in ranks.items()],
    )
    worst = max(row["megatron"] for row in ranks.values())
    program.observe(
        worst <= ROUNDING * size,
        f"Cut Megatron's way, the MLP computes the same as on one device: at most {sci(worst)} off, which is rounding.",
        f"按 Megatron 的方法切，结果与单机相同：最多差 {sci(worst)}，只是舍入误差。",
        f"Cut Megatron's way, the MLP should be off by rounding only, and it is off by {sci(worst)}.",
        f"按 Megatron 的方法切，本应只有舍入误差，现在却差了 {sci(worst)}。",
    )
    wrong = [row["wrong"] / size for row in ranks.values()]
    program.observe(
        min(wrong) > 0.01,
        f"Cut the wrong way, it is off by {min(wrong):.0%} to {max(wrong):.0%} of the largest output: "
        "GELU was applied to sums that were not complete.",
        f"切错方向，误差是输出最大值的 {min(wrong):.0%} 到 {max(wrong):.0%}：求和还没完成，就先做了 GELU。",
        f"Cut the wrong way, it is off by only {min(wrong):.0%} to {max(wrong):.0%} of the largest output.",
        f"切错方向，误差也只有输出最大值的 {min(wrong):.0%} 到 {max(wrong):.0%}。",
    )
    _observe_one_all_reduce(program, {row["all_reduces"] for row in ranks.values()})
    return {"output_size": size, "ranks": ranks}


def attention_cut(program: Program) -> dict:
    """Part 2: attention with its heads spread over the ranks."""
    title(program, "Part 2. Attention, its heads spread over t ranks", "第二部分：把注意力头分给 t 个 rank")
    from dist_sim import tp_attention_forward

    attn, x = base().block.attn, base().attn_in
    ranks: dict[str, dict] = {}
    with torch.no_grad():
        truth = attn(x)
        size = largest(truth)
        for t in RANKS:
            counter: dict[str, int] = {}
            out = tp_attention_forward(attn, x, t, counter)
            ranks[str(t)] = {"difference": largest(out - truth), "all_reduces": counter.get("all_reduce", 0)}
    print(program.say("Largest difference from one device, in float64:", "与单机输出的最大差值（float64）："))
    table(
        program,
        [
            ("ranks", "rank 数"),
            ("heads a rank", "每个 rank 的头数"),
            ("difference", "差值"),
            ("largest output", "输出的最大值"),
        ],
        [[f"t = {t}", attn.n_heads // int(t), sci(row["difference"]), f"{size:.2f}"] for t, row in ranks.items()],
    )
    worst = max(row["difference"] for row in ranks.values())
    program.observe(
        worst <= ROUNDING * size,
        f"However the heads are dealt out, the output is at most {sci(worst)} off: no head needs another one.",
        f"不论头怎么分，输出最多只差 {sci(worst)}：各个头互不相干。",
        f"However the heads are dealt out, the output should be off by rounding only, and it is off by {sci(worst)}.",
        f"不论头怎么分，本应只有舍入误差，现在却差了 {sci(worst)}。",
    )
    _observe_one_all_reduce(program, {row["all_reduces"] for row in ranks.values()})
    return {"output_size": size, "ranks": ranks}


def _observe_one_all_reduce(program: Program, counts: set[int]) -> None:
    program.observe(
        counts == {1},
        "One all-reduce does it, whatever t is.",
        "不论 t 是多少，一次全归约就够了。",
        f"All-reduces counted: {listed(counts)}. One is enough.",
        f"数到的全归约次数：{listed(counts)}。其实一次就够。",
    )


class _OnRanks(nn.Module):
    """`tp_model_forward` in a model's clothes, for `bits_per_char`."""

    def __init__(self, model: TinyGPT, t: int) -> None:
        super().__init__()
        self.model = model
        self.t = t

    def forward(self, idx: Tensor) -> Tensor:
        from dist_sim import tp_model_forward

        return tp_model_forward(self.model, idx, self.t)


def whole_model(program: Program) -> dict:
    """Part 3: bits per character of the base model, on one device and on t ranks."""
    title(program, "Part 3. The whole model", "第三部分：整个模型")
    from dist_sim import tp_model_forward

    model, val = base().model, base().val
    blocks = len(model.blocks)
    ranks = {}
    for t in RANKS:
        counter: dict[str, int] = {}
        with torch.no_grad():
            tp_model_forward(model, base().idx, t, counter)
        ranks[str(t)] = {
            "bits_per_char": bits_per_char(_OnRanks(model, t), val),
            "all_reduces": counter.get("all_reduce", 0),
        }
    single = bits_per_char(model, val)
    for row in ranks.values():
        row["difference"] = row["bits_per_char"] - single
    print(
        program.say(
            f"The base model in float32 on {len(val):,} characters of validation text:",
            f"基础模型（float32）在 {len(val):,} 个字符的验证文本上：",
        )
    )
    table(
        program,
        [
            ("", ""),
            ("bits per character", "每字符比特数"),
            ("difference", "差值"),
            ("all-reduces, one forward pass", "一次前向的全归约次数"),
        ],
        [[program.say("one device", "单机"), f"{single:.6f}", 0, 0]]
        + [
            [f"t = {t}", f"{row['bits_per_char']:.6f}", sci(row["difference"]), row["all_reduces"]]
            for t, row in ranks.items()
        ],
    )
    worst = max(abs(row["difference"]) for row in ranks.values())
    program.observe(
        worst <= 1e-5,
        f"The score moves by at most {sci(worst)} bits: float32 rounds a sum differently when it is made in parts.",
        f"分数最多变化 {sci(worst)} 比特：float32 下，分几份求和，舍入会略有不同。",
        f"The score moves by {sci(worst)} bits, and rounding alone should not move it by 1e-5.",
        f"分数变化了 {sci(worst)} 比特，而单凭舍入误差应该不到 1e-5。",
    )
    counts = {row["all_reduces"] for row in ranks.values()}
    program.observe(
        counts == {2 * blocks},
        f"{listed(counts)} all-reduces a forward pass: 2 in each of the {blocks} blocks, however many ranks there are.",
        f"一次前向有 {listed(counts)} 次全归约：共 {blocks} 个块，每块 2 次，与 rank 数无关。",
        f"All-reduces counted in a forward pass: {listed(counts)}. There should be 2 in each of the {blocks} blocks.",
        f"一次前向数到的全归约次数：{listed(counts)}。应为 {blocks} 个块，每块 2 次。",
    )
    return {"one_device": single, "ranks": ranks}
