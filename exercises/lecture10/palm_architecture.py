"""Lecture 10: what PaLM's choices do to a small model, and what they save in a large one.

Part 1 trains the base model with each choice; part 2 works out the KV cache of PaLM 540B. Both run on the student's
code. Lines that begin with ⏱ hold times; all others are the same in every run.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from exercises.program import Program, parse_options

BATCH_SIZE = 32
LEARNING_RATE = 3e-3
NAMES = {  # of the variants, in English and Chinese
    "baseline": ("baseline", "基线"),
    "swiglu": ("SwiGLU", "SwiGLU"),
    "parallel": ("parallel layers", "并行层"),
    "mqa": ("multi-query", "多查询注意力"),
    "rope": ("RoPE", "RoPE"),
    "no_bias": ("no biases", "去掉偏置"),
    "all": ("all choices", "全部选择"),
}

# PaLM 540B: Chowdhery et al. 2022, table 1 and section 2. 16 bit a number; the norms' weights are left out.
LAYERS, HEADS, HEAD_DIM, WIDTH, HIDDEN, VOCABULARY = 118, 48, 256, 18_432, 73_728, 256_000
PARAMS = LAYERS * WIDTH * (2 * (HEADS + 1) * HEAD_DIM + 3 * HIDDEN) + VOCABULARY * WIDTH
PARAM_BYTES = 2 * PARAMS
CACHES = ((2048, 1), (2048, 64), (8192, 64))  # context, batch
RANKS = (1, 8, 48)


def part_1(program: Program) -> dict:
    """The ablation: parameters, bits per character and time of each variant."""
    from ablation import VARIANTS, VariantError, run_ablation
    from console import print_header
    from train_lab import WINDOW

    say = program.say
    steps, seeds = program.options.steps, list(range(program.options.seeds))
    print_header(say("Part 1: one choice at a time", "第一部分：一次只换一项选择"))
    sizes = f"{BATCH_SIZE} × {WINDOW}"
    print(say(f"Each model: {steps} steps of {sizes} characters.", f"每个模型训练 {steps} 步，每步 {sizes} 个字符。"))
    print(say("Bits per character on the validation text; lower is better.", "验证文本上的每字符比特数，越低越好。"))
    start = time.perf_counter()
    try:
        result = run_ablation(VARIANTS, seeds, steps, BATCH_SIZE, LEARNING_RATE, label=say("training", "训练"))
    except VariantError as error:
        print(f"✗ {error}")
        program.missing.append(str(error))
        return {"failed": str(error)}
    seconds = time.perf_counter() - start
    variants: dict[str, dict] = {}
    step_seconds: dict[str, float] = {}
    for name in VARIANTS:
        runs = [run for run in result.runs if run.variant == name]
        if runs:
            bits = [run.bits_per_char for run in runs]
            base = variants.get("baseline", {"params": runs[0].params, "mean": statistics.mean(bits)})
            variants[name] = {
                "params": runs[0].params,
                "params_change_percent": 100 * (runs[0].params / base["params"] - 1),
                "bits_per_char": bits,
                "mean": statistics.mean(bits),
                "spread": max(bits) - min(bits),
                "difference": statistics.mean(bits) - base["mean"],
            }
            step_seconds[name] = statistics.mean(run.seconds_per_step for run in runs)
    _print_variants(program, variants, seeds)
    _report_unwritten(program, result.unwritten)
    _print_times(program, step_seconds, seconds)
    _observe_differences(program, variants, len(seeds))
    _observe_sums(program, variants, len(seeds))
    settings = {"steps": steps, "seeds": seeds, "batch_size": BATCH_SIZE, "lr": LEARNING_RATE}
    return {"settings": settings, "variants": variants, "unwritten": result.unwritten}


def _report_unwritten(program: Program, unwritten: dict[str, str]) -> None:
    """Say which variants are left out, and which exercises they wait for."""
    for missing in dict.fromkeys(unwritten.values()):
        names = [program.say(*NAMES[name]) for name in unwritten if unwritten[name] == missing]
        print(program.say(f"Left out: {', '.join(names)}", f"未列出：{'、'.join(names)}"))
        program.report_missing(NotImplementedError(missing))
    if unwritten:
        print()


def _print_variants(program: Program, variants: dict[str, dict], seeds: list[int]) -> None:
    from console import print_table

    say = program.say
    headers = [say("choice", "选择"), say("parameters", "参数量"), say("change", "变化")]
    headers += [say(f"seed {seed}", f"种子 {seed}") for seed in seeds]
    headers += [say("mean", "平均"), say("against baseline", "与基线之差")]
    rows = []
    for name, f in variants.items():
        bits = [f"{value:.3f}" for value in (*f["bits_per_char"], f["mean"])]
        change, difference = f"{f['params_change_percent']:+.1f} %", f"{f['difference']:+.3f}"
        if name == "baseline":
            change = difference = ""
        rows.append([say(*NAMES[name]), f"{f['params']:,}", change, *bits, difference])
    print()
    print_table(headers, rows)
    print()


def _print_times(program: Program, step_seconds: dict[str, float], seconds: float) -> None:
    from console import pad

    say = program.say
    for name, step in step_seconds.items():
        ratio = step / step_seconds["baseline"]
        figures = f"{1e3 * step:7.1f} {say('ms a step', '毫秒/步')} {ratio:7.2f} ×"
        print(f"⏱ {pad(say(*NAMES[name]), 16)}{figures}")
    print(f"⏱ {say(f'all trainings together: {seconds:.1f} s', f'全部训练共用时 {seconds:.1f} 秒')}")
    print()


def _observe_differences(program: Program, variants: dict[str, dict], seeds: int) -> None:
    """A difference counts only where it exceeds what the seed alone changes, in the variant or in the baseline."""
    program.observe(
        seeds > 1,
        "A difference from the baseline counts where it exceeds what the seed alone changes.",
        "与基线的差别，只有超出种子本身带来的波动才算数。",
        "One seed shows no spread: no difference in this table can be told from chance.",
        "只有一个种子，看不出波动，表中的差别都可能只是偶然。",
    )
    for name, f in variants.items():
        spread = max(f["spread"], variants["baseline"]["spread"])
        f["counts"] = seeds > 1 and abs(f["difference"]) > spread
        if name == "baseline" or seeds == 1:
            continue
        better = f["difference"] < 0
        label, change = program.say(*NAMES[name]), f"{f['difference']:+.3f}"
        program.observe(
            f["counts"],
            f"{label}: {change}, {'better' if better else 'worse'} by more than the seeds differ ({spread:.3f}).",
            f"{label}：{change}，超出种子之间的波动（{spread:.3f}），确实{'更好' if better else '更差'}。",
            f"{label}: {change}, no more than the seeds differ ({spread:.3f}), so it may be chance.",
            f"{label}：{change}，没有超出种子之间的波动（{spread:.3f}），可能只是偶然。",
        )


def _observe_sums(program: Program, variants: dict[str, dict], seeds: int) -> None:
    """Size and quality, and whether the choices add up."""
    say = program.say
    best = min(variants, key=lambda name: variants[name]["mean"])
    label, change = say(*NAMES[best]), f"{variants[best]['params_change_percent']:+.1f} %"
    program.observe(
        variants[best]["counts"] and variants[best]["params_change_percent"] < 0,
        f"Best mean: {label}, with {change} parameters. It isn't size that makes it better.",
        f"平均值最好的是{label}，参数量 {change}：更好并不是因为模型更大。",
        f"Best mean: {label}, with {change} parameters.",
        f"平均值最好的是{label}，参数量 {change}。",
    )
    if set(variants) != set(NAMES) or seeds == 1:
        return
    bits = {name: f["bits_per_char"] for name, f in variants.items()}
    changes = {name: [b - base for b, base in zip(bits[name], bits["baseline"])] for name in variants}
    sums = [sum(changes[name][i] for name in changes if name != "all") for i in range(seeds)]
    gaps = [together - apart for together, apart in zip(changes["all"], sums)]
    figures = f"{statistics.mean(changes['all']):+.3f}", f"{statistics.mean(sums):+.3f}"
    program.observe(
        abs(statistics.mean(gaps)) > max(gaps) - min(gaps),
        f"Together the choices change {figures[0]}; one by one their changes sum to {figures[1]}. They interact.",
        f"全部选择一起改变 {figures[0]}，单独的改变相加是 {figures[1]}：各项选择互相影响。",
        f"Together the choices change {figures[0]}; one by one their changes sum to {figures[1]}, within the spread.",
        f"全部选择一起改变 {figures[0]}，单独的改变相加是 {figures[1]}，相差没有超出波动。",
    )


def part_2_cache(program: Program) -> dict:
    """The KV cache of PaLM 540B."""
    import kv_cache_cost as cost
    from console import print_header, print_table

    say = program.say
    print_header(say("Part 2: what generating costs PaLM 540B", "第二部分：PaLM 540B 生成时的开销"))
    figures: dict = {"param_bytes": PARAM_BYTES}
    for kind, kv_heads in (("multi_head", HEADS), ("multi_query", 1)):
        sizes = (LAYERS, kv_heads, HEAD_DIM)
        per_rank = [cost.kv_cache_bytes_per_token_per_rank(LAYERS, HEADS, kv_heads, HEAD_DIM, t) for t in RANKS]
        figures[kind] = {  # as float, since JSON has no Fraction
            "bytes_per_token": float(cost.kv_cache_bytes_per_token(*sizes)),
            "break_even_tokens": float(cost.break_even_tokens(PARAM_BYTES, *sizes)),
            "cache_bytes": [float(cost.kv_cache_bytes(context, batch, *sizes)) for context, batch in CACHES],
            "bytes_per_token_per_rank": [float(size) for size in per_rank],
        }
    head, query = figures["multi_head"], figures["multi_query"]
    labels = [say("multi-head", "多头"), say("multi-query", "多查询")]
    count, size = say(f"{PARAMS / 1e9:.2f} billion", f"{PARAMS / 1e8:.1f} 亿"), _bytes(PARAM_BYTES)
    print(say(f"{LAYERS} layers, {HEADS} heads of {HEAD_DIM}", f"{LAYERS} 层，{HEADS} 个头，每头 {HEAD_DIM} 维"))
    print(say(f"{count} parameters, {size} in 16 bit", f"{count}个参数，每个 16 位，共 {size}"))
    print()
    rows = [
        [label, _bytes(f["bytes_per_token"]), f"{f['break_even_tokens']:,.0f} tokens"]
        for label, f in zip(labels, (head, query))
    ]
    print_table([say("attention", "注意力"), say("a token", "每个 token"), say("break-even", "平衡点")], rows)
    print()
    share = say("of the parameters", "与参数之比")
    rows = [
        [f"{context} × {batch}", *(text for n in pair for text in (_bytes(n), f"{n / PARAM_BYTES:.3f}"))]
        for (context, batch), *pair in zip(CACHES, head["cache_bytes"], query["cache_bytes"])
    ]
    print_table([say("context × batch", "上下文 × 批大小"), labels[0], share, labels[1], share], rows)
    print()
    rows = [
        [f"t = {t}", _bytes(a), _bytes(b), f"{a / b:.4g} ×"]
        for t, a, b in zip(RANKS, head["bytes_per_token_per_rank"], query["bytes_per_token_per_rank"])
    ]
    print_table([say("a token, a rank", "每 rank 每 token"), *labels, say("saving", "节省")], rows)
    print()
    _observe_caches(program, head, query)
    return figures


def _bytes(count: float) -> str:
    """A number of bytes with three digits, in decimal units."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= size:
            value = count / size
            return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"
    return f"{count:.0f} B"


def _observe_caches(program: Program, head: dict, query: dict) -> None:
    say, observe = program.say, program.observe
    saving = f"{head['bytes_per_token'] / query['bytes_per_token']:.4g}"
    observe(
        head["bytes_per_token"] == HEADS * query["bytes_per_token"],
        f"Multi-query attention makes the cache {saving} times smaller, as many times as there are heads.",
        f"多查询注意力把缓存缩小到 1/{saving}，缩小的倍数正好是头数。",
        f"Multi-query attention makes the cache {saving} times smaller, though there are {HEADS} heads.",
        f"多查询注意力把缓存缩小到 1/{saving}，可是头数是 {HEADS}。",
    )
    above = [
        [f"{context} × {batch}" for (context, batch), size in zip(CACHES, f["cache_bytes"]) if size > PARAM_BYTES]
        for f in (head, query)
    ]
    names = [", ".join(cases) or say("none", "无") for cases in above]
    observe(
        bool(above[0]) and not above[1],
        f"Multi-head, reading the cache costs more than reading the parameters at {names[0]}; multi-query, at none.",
        f"多头注意力在 {names[0]} 时，读缓存比读参数还费；多查询注意力在表中各种情形下都不会。",
        f"Cases with more cache than parameters: multi-head: {names[0]}; multi-query: {names[1]}.",
        f"缓存大于参数的情形：多头：{names[0]}；多查询：{names[1]}。",
    )
    at_even = [f["break_even_tokens"] * f["bytes_per_token"] / PARAM_BYTES for f in (head, query)]
    sequences = f"{head['break_even_tokens'] / 2048:.0f}"
    observe(
        all(abs(ratio - 1) < 1e-9 for ratio in at_even),
        f"At the break-even both reads cost the same; multi-head, that is a batch of about {sequences} × 2048 tokens.",
        f"在平衡点，两者读起来一样费；对多头注意力来说，大约是 {sequences} 条 2048 个 token 的序列。",
        f"At your break-even points the cache is {at_even[0]:.4g} and {at_even[1]:.4g} times the parameters, not once.",
        f"在你算出的平衡点，缓存是参数的 {at_even[0]:.4g} 倍和 {at_even[1]:.4g} 倍，而不是 1 倍。",
    )
    savings = [a / b for a, b in zip(head["bytes_per_token_per_rank"], query["bytes_per_token_per_rank"])]
    listed = ", ".join(f"{saving:.4g}" for saving in savings)
    observe(
        all(saving == HEADS / t for t, saving in zip(RANKS, savings)),
        f"Split by heads over t ranks, each rank saves only {HEADS} / t, because all hold the shared head: {listed}.",
        f"按头切到 t 个 rank 上时，每个 rank 都要存那个共用的头，只省下 {HEADS} / t 倍：{listed}。",
        f"Split by heads, each rank saves {listed} times, where {HEADS} / t was to be expected.",
        f"按头切分后，每个 rank 省下 {listed} 倍，本来应该是 {HEADS} / t。",
    )


def part_2_parameters(program: Program) -> dict:
    """The closed form of the small models' parameters, beside each model that can be built."""
    from ablation import VARIANTS
    from console import print_table
    from kv_cache_cost import flex_param_count
    from train_lab import FlexConfig, count_params, make_flex

    say = program.say
    counts: dict[str, dict] = {}
    unwritten: dict[str, str] = {}
    for name, choices in VARIANTS.items():
        config = FlexConfig(**choices)
        closed_form = float(flex_param_count(config))
        try:
            counts[name] = {"closed_form": closed_form, "built": count_params(make_flex(config, seed=0))}
        except NotImplementedError as error:
            unwritten[name] = str(error)
    print()
    rows = [[say(*NAMES[name]), f"{c['closed_form']:,.0f}", f"{c['built']:,}"] for name, c in counts.items()]
    print_table([say("parameters of", "参数量"), say("closed form", "公式"), say("as built", "实际模型")], rows)
    print()
    _report_unwritten(program, unwritten)
    wrong = [say(*NAMES[name]) for name, c in counts.items() if c["closed_form"] != c["built"]]
    program.observe(
        not wrong,
        f"The closed form agrees with the model as built in all {len(counts)} cases.",
        f"{len(counts)} 种情形下，公式与实际模型都一致。",
        f"The closed form differs from the model as built for: {', '.join(wrong)}.",
        f"公式与实际模型不一致的有：{'、'.join(wrong)}。",
    )
    return counts


def _count(text: str) -> int:
    """A whole number from 1 on, for an option."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=_count, default=400, metavar="N", help="steps of each training (default: 400)")
    parser.add_argument("--seeds", type=_count, default=2, metavar="N", help="trainings of each variant (default: 2)")


def main() -> int:
    program = parse_options(__doc__.splitlines()[0], _add_options)
    program.run("ablation", part_1)
    program.run("kv_cache", part_2_cache)
    program.run("parameters", part_2_parameters)
    return program.finish()


if __name__ == "__main__":  # each training process imports this file again
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
