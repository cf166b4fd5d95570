"""Lecture 9, part 5 of the program: what tensor parallelism costs a layer of GPT-3, inside a machine and across."""

from __future__ import annotations

from base_model import table, title
from exercises.program import Program

TOKENS, D_MODEL = 2048, 12288  # Brown et al. 2020, "Language Models are Few-Shot Learners", table 2.1
PEAK_FLOPS = 312e12  # an A100 in 16 bit, of which half is reached
INSIDE = 300e9  # bytes/s that a card sends over NVLink
ACROSS = 100e9 / 16  # bytes/s that are left for each of 16 cards that share a machine's network


def communication(program: Program) -> dict:
    """Communication beside compute time for one layer, forward and backward."""
    title(program, "Part 5. What it costs", "第五部分：通信的代价")
    from comm_cost import comm_to_compute, layer_comm_seconds, layer_compute_seconds, tp_layer_bytes_per_rank

    ranks = {}
    for t in (2, 4, 8):
        ranks[str(t)] = {
            "bytes_per_rank": float(tp_layer_bytes_per_rank(TOKENS, D_MODEL, t)),
            "compute_seconds": float(layer_compute_seconds(TOKENS, D_MODEL, t, PEAK_FLOPS)),
            "inside_seconds": float(layer_comm_seconds(TOKENS, D_MODEL, t, INSIDE)),
            "inside_ratio": float(comm_to_compute(TOKENS, D_MODEL, t, PEAK_FLOPS, INSIDE)),
            "across_seconds": float(layer_comm_seconds(TOKENS, D_MODEL, t, ACROSS)),
            "across_ratio": float(comm_to_compute(TOKENS, D_MODEL, t, PEAK_FLOPS, ACROSS)),
        }
    print(
        program.say(
            f"One layer of GPT-3 (d = {D_MODEL}, {TOKENS} tokens, 16 bit), forward and backward, at half of "
            f"{PEAK_FLOPS / 1e12:.0f} TFLOP/s.\nA card sends {INSIDE / 1e9:.0f} GB/s inside a machine and "
            f"{ACROSS / 1e9:.2f} GB/s across machines (16 cards share {ACROSS * 16 / 1e9:.0f} GB/s):",
            f"GPT-3 的一层（d = {D_MODEL}，{TOKENS} 个 token，16 位），前向加反向，算力取 "
            f"{PEAK_FLOPS / 1e12:.0f} TFLOP/s 的一半。\n每张卡的带宽：机器内 {INSIDE / 1e9:.0f} GB/s，"
            f"跨机器 {ACROSS / 1e9:.2f} GB/s（16 张卡共用 {ACROSS * 16 / 1e9:.0f} GB/s）：",
        )
    )
    table(
        program,
        [
            ("ranks", "rank 数"),
            ("sent by a rank", "每个 rank 发送"),
            ("compute", "计算"),
            ("inside", "机器内"),
            ("of compute", "占计算"),
            ("across", "跨机器"),
            ("of compute", "占计算"),
        ],
        [
            [
                f"t = {t}",
                f"{row['bytes_per_rank'] / 1e6:.0f} MB",
                f"{row['compute_seconds'] * 1e3:.2f} ms",
                f"{row['inside_seconds'] * 1e3:.2f} ms",
                f"{row['inside_ratio']:.1%}",
                f"{row['across_seconds'] * 1e3:.1f} ms",
                f"{row['across_ratio']:.0%}",
            ]
            for t, row in ranks.items()
        ],
    )
    few, many = ranks["2"], ranks["8"]
    inside, across = many["inside_ratio"], many["across_ratio"]
    program.observe(
        inside < 0.1,
        f"Inside a machine, 8 ranks spend {inside:.1%} of their compute time on sending.",
        f"在一台机器内，8 个 rank 的通信时间只相当于计算时间的 {inside:.1%}。",
        f"Inside a machine, 8 ranks would spend {inside:.1%} of their compute time on sending, more than expected.",
        f"在一台机器内，8 个 rank 的通信时间相当于计算时间的 {inside:.1%}，比预想的多。",
    )
    program.observe(
        across > 1,
        f"Across machines, sending would take {across:.1f} times as long as computing: "
        "tensor parallelism stays inside a machine.",
        f"跨机器时，通信时间是计算时间的 {across:.1f} 倍：所以张量并行要留在一台机器之内。",
        f"Across machines, sending would take {across:.2f} times as long as computing, less than expected.",
        f"跨机器时，通信时间是计算时间的 {across:.2f} 倍，比预想的少。",
    )
    compute = many["compute_seconds"] / few["compute_seconds"]
    sent = many["bytes_per_rank"] / few["bytes_per_rank"]
    program.observe(
        compute < 1 < sent,
        f"From 2 ranks to 8, a rank computes {compute:.3g} times as much and sends {sent:.3g} times as much.",
        f"从 2 个 rank 到 8 个，每个 rank 的计算量变为原来的 {compute:.3g} 倍，发送量却变为 {sent:.3g} 倍。",
        f"From 2 ranks to 8, a rank should compute less and send more; here it is {compute:.3g} and {sent:.3g} times.",
        f"从 2 个 rank 到 8 个，本应算得更少、发得更多；这里的计算量变为 {compute:.3g} 倍，发送量变为 {sent:.3g} 倍。",
    )
    return {"ranks": ranks}
