"""Hidden tests of `ablation`: the student's modules together, with trained weights, and trained from scratch.

`ablation_bounds.json` and `ablation_weights.safetensors` are made by `python tests/hidden/ablation_bounds.py`.
"""

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

from comparing import drawn_anew, either
from exercises.checks import Check, CheckFailed
from fm_world import ALPHABET, build_world
from tiny_gpt import CharTokenizer

HERE = Path(__file__).parent
BOUNDS = json.loads((HERE / "ablation_bounds.json").read_text(encoding="utf-8"))
VARIANTS = BOUNDS["weights"]
TRAINED = BOUNDS["training"]["variants"]
SMALL = {"n_layers": 2, "d_model": 12, "n_heads": 3, "d_ff": 16, "context": 32, "vocab_size": 9}


@pytest.fixture(scope="module")
def world():
    return build_world()


@pytest.fixture(scope="module")
def validation(world):
    return encoded(world.val_text())


def encoded(text):
    return torch.tensor(CharTokenizer(ALPHABET).encode(text))


@pytest.fixture(scope="module")
def weights():
    return load_file(HERE / "ablation_weights.safetensors")


def own(state, prefix):
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def bits(logits, targets):
    return float(F.cross_entropy(logits.flatten(0, 1), targets.flatten())) / math.log(2)


def composed_bits(student, choices, state, data):
    """Bits per character of `composed_logits`, in consecutive windows of 96 targets."""
    windows = (len(data) - 1) // 96
    idx, targets = data[: windows * 96].view(-1, 96), data[1 : windows * 96 + 1].view(-1, 96)
    return bits(composed_logits(student, choices, state, idx), targets)


def composed_logits(student, choices, state, idx):
    """The model block by block, each block built and called alone."""
    x = state["tok_emb.weight"][idx]
    if "pos_emb.weight" in state:
        x = x + state["pos_emb.weight"][: idx.shape[1]]
    layer = 0
    while block := own(state, f"blocks.{layer}."):
        x = student.ask("flex_block", choices, block, x)
        layer += 1
    x = F.layer_norm(x, x.shape[-1:], state["ln_f.weight"], state.get("ln_f.bias"))
    return x @ state["tok_emb.weight"].T


def dropped_in(student, weights, validation, variant):
    """Bits per character of the student's model with trained weights: the stored figure, or the composed model's."""
    torch.set_default_dtype(torch.float32)
    figures = VARIANTS[variant]
    choices, state = figures["choices"], own(weights, f"{variant}/")
    data = validation[: BOUNDS["characters"]]
    check = Check(f"eval_bpc(make_flex(FlexConfig({choices})), validation text) with trained weights", safe=True)
    actual = student.ask("flex_bits", choices, state, data)
    words = "the bits per character", "每字符比特数"
    either(
        lambda: check.number(actual, figures["bits_per_char"], *words, 2e-5),
        lambda: check.number(actual, composed_bits(student, choices, state, data), *words, 2e-5),
    )


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_trained_weights_dropped_in(student, weights, validation, variant):
    dropped_in(student, weights, validation, variant)


@pytest.mark.parametrize("models", [(0, 0, 0, 0), (0, 1, 0, 1)])
def test_calls_in_turn(student, draw, models):
    """Neither another model, nor an earlier call, nor the weights of that time may show."""
    choices = VARIANTS["all"]["choices"] | SMALL
    states = [draw.state(small_shapes(choices)) for _ in range(2)]
    inputs = [draw.ids(2, 7, vocab_size=9) for _ in range(2)]
    calls = [(m, states[i], inputs[j]) for m, (i, j) in zip(models, ((0, 0), (0, 1), (1, 1), (1, 0)))]
    check = Check("models of make_flex(FlexConfig(all choices)), called in turn", safe=True, models=models)
    for number, ((_, state, idx), logits) in enumerate(
        zip(calls, student.ask("flex_logits", choices, calls), strict=True), 1
    ):
        alone = composed_logits(student, choices, state, idx)
        check.value(logits, alone, f"the logits of call {number}", f"第 {number} 次调用的 logits")


def test_initial_parameters(student):
    """Two seeds and two blocks begin with other weights, as far as the modules alone do."""
    choices = VARIANTS["all"]["choices"] | SMALL
    one, other = (student.ask("flex_initial", choices, seed) for seed in (1, 2))
    check = Check("make_flex(FlexConfig(all choices), seed)", safe=True)

    def as_true():
        shapes = {name: tuple(value.shape) for name, value in one.items()}
        en, zh = "the model's parameters are not those it should have", "模型的参数与应有的不符"
        check.that(shapes == small_shapes(choices), en, zh)
        for name in (n for n in one if n.startswith("blocks.1.") and one[n].ndim == 2):
            twin = name.replace("blocks.1.", "blocks.0.")
            check.that(
                not one[name].equal(other[name]) and not one[name].equal(one[twin]),
                f"{name} begins the same for two seeds or in two blocks",
                f"{name} 在两个种子或两个块中初始值相同",
            )

    def a_module_alone_is_wrong():
        """Passes where a module's own parameters are wrong already: then that is where it costs."""
        expected = small_shapes(choices)
        for name, prefix, arguments in (
            ("SwiGLU", "blocks.0.mlp.", (12, 32, False)),
            ("MultiQueryAttention", "blocks.0.attn.", (12, 3, False, True)),
        ):
            shapes = student.ask("module_shapes", name, *arguments)
            if shapes != own(expected, prefix):
                return
            try:
                drawn_anew(check, student, name, *arguments)
            except CheckFailed:
                return
        block = student.ask("module_shapes", "ParallelBlock", 12, nn.Identity(), nn.Identity(), False)
        en, zh = "the modules alone are right", "各模块单独是对的"
        check.that(block != {"ln.weight": (12,)}, en, zh)

    either(as_true, a_module_alone_is_wrong)


def small_shapes(choices):
    """The parameters that the model of these choices must have, by name."""
    d, hidden, kv = choices["d_model"], (16 * choices["d_model"] + 3) // 6, choices["d_model"] // choices["n_heads"]
    block = {
        "ln.weight": (d,),
        "attn.q_proj.weight": (d, d),
        "attn.k_proj.weight": (kv, d),
        "attn.v_proj.weight": (kv, d),
        "attn.out_proj.weight": (d, d),
        "mlp.gate.weight": (hidden, d),
        "mlp.up.weight": (hidden, d),
        "mlp.down.weight": (d, hidden),
    }
    names = {f"blocks.{i}.{name}": shape for i in range(choices["n_layers"]) for name, shape in block.items()}
    return {"tok_emb.weight": (9, d), "ln_f.weight": (d,)} | names


@pytest.mark.train
@pytest.mark.weight(6)
@pytest.mark.parametrize("variant", list(TRAINED))
def test_short_training(student, world, validation, variant):
    """Bits per character after a short training from scratch, relative to the stored baseline.

    The trained parameters come back and are judged here: bits per character from there would be a mere claim.
    """
    figures, settings = TRAINED[variant], BOUNDS["training"]
    torch.set_default_dtype(torch.float32)
    choices = VARIANTS[variant]["choices"]
    arguments = settings["steps"], settings["batch_size"], settings["seed"]
    trained = student.ask("flex_train", choices, encoded(world.train_text()), *arguments)
    difference = composed_bits(student, choices, trained, validation) - settings["baseline"]["mean"]
    check = Check(
        "train_flex(make_flex(FlexConfig({})), …, steps={}, batch_size={})".format(choices, *arguments[:2]), safe=True
    )
    check.that(
        figures["lower"] <= difference <= figures["upper"],
        f"after training, the bits per character minus the baseline's are {difference:+.3f}; "
        f"they should lie between {figures['lower']:+.3f} and {figures['upper']:+.3f}",
        f"训练之后，每字符比特数减去基线为 {difference:+.3f}，应在 {figures['lower']:+.3f} 与 {figures['upper']:+.3f} 之间",
    )
