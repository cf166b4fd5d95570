"""Public tests of `ablation`: your modules together in `train_lab.FlexGPT`."""

import pytest
import torch

from exercises import samples
from exercises.checks import Check

ONE_BY_ONE = {"mlp": "swiglu", "parallel": True, "mqa": True, "pos": "rope"}
VARIANTS = [{name: value} for name, value in ONE_BY_ONE.items()] + [ONE_BY_ONE | {"bias": False}]


@pytest.mark.parametrize("choices", VARIANTS, ids=[*ONE_BY_ONE, "all"])
def test_variant_is_a_causal_language_model(palm_modules, choices):
    from train_lab import FlexConfig, make_flex

    model = make_flex(FlexConfig(**choices), seed=0)
    idx = samples.ids(2, 12, vocab_size=model.config.vocab_size, seed=81)
    changed = idx.clone()
    changed[:, 8:] = (changed[:, 8:] + 1) % model.config.vocab_size
    check = Check(f"make_flex(FlexConfig({choices}), seed=0)(idx)", idx=idx)
    with torch.no_grad():
        logits, after = model(idx), model(changed)
    check.that(
        logits.shape == (2, 12, model.config.vocab_size),
        f"the logits have shape {tuple(logits.shape)}",
        f"logits 的形状是 {tuple(logits.shape)}",
    )
    check.value(after[:, :8], logits[:, :8], "positions 0 to 7, after a change at 8,", "改变位置 8 之后的位置 0 到 7")
    check.that(
        not torch.allclose(after[:, 8], logits[:, 8]),
        "position 8 doesn't depend on its own token",
        "位置 8 不依赖于它自己的 token",
    )


@pytest.mark.train
def test_short_training_with_rope_beats_the_baseline(palm_modules):
    """120 steps of batch 16: RoPE is ahead by far more than two seeds differ."""
    from fm_world import ALPHABET, build_world
    from tiny_gpt import CharTokenizer
    from train_lab import FlexConfig, eval_bpc, make_flex, train_flex

    torch.set_default_dtype(torch.float32)
    world, tokenizer = build_world(), CharTokenizer(ALPHABET)
    train, val = (torch.tensor(tokenizer.encode(text)) for text in (world.train_text(), world.val_text()))
    bits = {}
    for pos in ("learned", "rope"):
        model = make_flex(FlexConfig(pos=pos), seed=0)
        train_flex(model, train, steps=120, batch_size=16)
        bits[pos] = eval_bpc(model, val)
    gain = bits["learned"] - bits["rope"]
    Check("train_flex(make_flex(FlexConfig(pos='rope'), seed=0), steps=120, batch_size=16)").that(
        gain > 0.2,
        f"with RoPE the validation bits per character are {bits['rope']:.3f}, with learned positions "
        f"{bits['learned']:.3f}; RoPE should be at least 0.2 below",
        f"使用 RoPE 时验证集每字符 {bits['rope']:.3f} 比特，可学习位置为 {bits['learned']:.3f}；RoPE 应至少低 0.2",
    )
