"""Hidden tests of `tp_model_forward`: it equals the model, or what the student's own parts give when composed."""

import pytest
import torch

from comparing import changes_of, either, refuses, state_kept
from composing import compose_model
from exercises import samples
from exercises.checks import Check, gradients_of
from grader.student import StudentRaised

CALL = "tp_model_forward(model, idx, t, counter)"
SMALL = {"vocab_size": 11, "d": 12, "heads": 4, "layers": 2, "hidden": 16, "context": 8}


def logits_agree(check, student, model, idx, t, reply):
    either(
        lambda: check.value(reply["out"], model(idx), "the logits", "logits"),
        lambda: check.value(reply["out"], compose_model(student, model, idx, t).out, "the logits", "logits"),
    )


@pytest.mark.weight(2)
@pytest.mark.parametrize(
    ("sizes", "t", "shape"),
    [
        ({}, 1, (2, 5)),
        ({}, 2, (2, 7)),
        ({}, 4, (4, 8)),
        ({"layers": 1, "d": 18, "heads": 6, "hidden": 9, "vocab_size": 5}, 3, (2, 4)),
        ({"layers": 5, "d": 16, "heads": 8, "hidden": 8, "context": 20}, 8, (1, 19)),
        ({"layers": 1, "d": 10, "heads": 5, "hidden": 10, "context": 60}, 5, (1, 60)),
    ],
)
def test_logits(student, draw, sizes, t, shape):
    sizes = SMALL | sizes
    model, idx = draw.model(**sizes), draw.ids(*shape, vocab_size=sizes["vocab_size"])
    reply = student.ask("tp_model_forward", model, idx, t)
    logits_agree(Check(CALL, safe=True, idx=idx, blocks=sizes["layers"], t=t), student, model, idx, t, reply)


def test_float32(student, draw):
    model, idx = draw.model(**SMALL).float(), draw.ids(2, 5, vocab_size=11)
    reply = student.ask("tp_model_forward", model, idx, 2)
    logits_agree(Check(CALL, safe=True, idx=idx, t=2, dtype="float32"), student, model, idx, 2, reply)


def test_again_with_other_data(student, draw):
    """Another model with the same ids, then other ids with the same model."""
    models, inputs = [draw.model(**SMALL) for _ in range(2)], [draw.ids(2, 5, vocab_size=11) for _ in range(2)]
    for model, idx in ((models[0], inputs[0]), (models[1], inputs[0]), (models[1], inputs[1])):
        reply = student.ask("tp_model_forward", model, idx, 2)
        logits_agree(Check(f"{CALL}, called again", safe=True, idx=idx, t=2), student, model, idx, 2, reply)


@pytest.mark.weight(16)
@pytest.mark.parametrize(("layers", "t"), [(1, 2), (3, 4)])
def test_partial_outputs_are_reduced(student, draw, layers, t):
    """Block by block, the attention's before the MLP's."""
    model, idx = draw.model(**SMALL | {"layers": layers}), draw.ids(2, 5, vocab_size=11)
    check = Check(CALL, safe=True, idx=idx, blocks=layers, t=t)
    reply = student.ask("tp_model_forward", model, idx, t)
    logits_agree(check, student, model, idx, t, reply)
    check.that(len(reply["all_reduces"]) > 0, "nothing is all-reduced anywhere", "没有任何 all-reduce")

    def as_true():
        for parts, own in zip(reply["all_reduces"], true_partials(model, idx, t)):
            check.partials(parts, *own)

    def as_composed():
        composed = compose_model(student, model, idx, t)
        check.that(len(composed.all_reduces) > 0, "nothing is all-reduced anywhere", "没有任何 all-reduce")
        for parts, own in zip(reply["all_reduces"], composed.all_reduces):
            check.number(len(parts), len(own), "the number of partials", "部分输出的个数")
            for part, truth in zip(parts, own):
                check.value(part, truth, "a partial output", "部分输出")

    either(as_true, as_composed)


@pytest.mark.weight(3)
@pytest.mark.parametrize(("layers", "t"), [(2, 1), (1, 2), (3, 4)])
def test_two_all_reduces_a_block(student, draw, layers, t):
    """And the counter agrees."""
    model, idx = draw.model(**SMALL | {"layers": layers}), draw.ids(2, 5, vocab_size=11)
    check = Check(CALL, safe=True, idx=idx, blocks=layers, t=t)
    reply = student.ask("tp_model_forward", model, idx, t, {"all_reduce": 1})
    logits_agree(check, student, model, idx, t, reply)

    def as_true():
        check.number(len(reply["all_reduces"]), 2 * layers, "the number of all-reduces", "all-reduce 的次数")
        check.number(
            reply["counter"].get("all_reduce", 0), 1 + 2 * layers, "the counter, which stood at 1,", "counter（原为 1）"
        )

    def as_composed():
        composed = compose_model(student, model, idx, t, {"all_reduce": 1})
        count = len(composed.all_reduces)
        check.that(count > 0, "nothing is all-reduced anywhere", "没有任何 all-reduce")
        check.number(len(reply["all_reduces"]), count, "the number of all-reduces", "all-reduce 的次数")
        counted = composed.counter.get("all_reduce", 0)
        check.number(reply["counter"].get("all_reduce", 0), counted, "the counter", "counter")

    either(as_true, as_composed)


def true_partials(model, idx, t):
    """For each all-reduce the partial outputs that the ranks must bring, and the bias."""
    with torch.no_grad():
        x = model.tok_emb(idx) + model.pos_emb.weight[: idx.shape[1]]
        for block in model.blocks:
            normed = block.ln1(x)
            yield samples.partial_outputs(block.attn, "out_proj", t, normed), block.attn.out_proj.bias.detach()
            x = x + block.attn(normed)
            normed = block.ln2(x)
            yield samples.partial_outputs(block.mlp, "2", t, normed), block.mlp[2].bias.detach()
            x = x + block.mlp(normed)


@pytest.mark.weight(3)
@pytest.mark.parametrize("t", [1, 2])
def test_gradients(student, draw, t):
    model, idx = draw.model(**SMALL), draw.ids(2, 5, vocab_size=11)
    upstream, leaves = draw.uniform(2, 5, 11), dict(model.named_parameters())
    check = Check(CALL, safe=True, idx=idx, t=t)
    reply = student.ask("tp_model_forward", model, idx, t, None, upstream)
    logits_agree(check, student, model, idx, t, reply)

    def compare(out):
        check.gradients(reply["grads"].items(), gradients_of(out, upstream, leaves))

    either(lambda: compare(model(idx)), lambda: compare(compose_model(student, model, idx, t).out))


@pytest.mark.parametrize("training", [False, True])
def test_nothing_else_changes(student, draw, training):
    model, idx = draw.model(**SMALL).train(training), draw.ids(2, 5, vocab_size=11)
    check = Check(CALL, safe=True, idx=idx, t=2)
    reply = student.ask("tp_model_forward", model, idx, 2)
    changes = student.state_changes()
    logits_agree(check, student, model, idx, 2, reply)

    def as_true():
        for name in [*changes_of(reply), *changes]:
            check.fail(name, name, f"{name} was changed", f"{name} 被改动了")

    either(as_true, lambda: parts_change_something(student, draw))


def parts_change_something(student, draw):
    """Passes where one of the parts already leaves something changed: then that is where it costs."""
    mlp, attn, x = draw.mlp(12, 16), draw.attention(12, 4), draw.uniform(2, 5, 12)
    shards = [{"W1": mlp[0].weight.detach(), "b1": mlp[0].bias.detach(), "W2": mlp[2].weight.detach()}]
    check = Check("the parts", safe=True)
    for arguments in (
        ("split_mlp", mlp, 2),
        ("tp_mlp_forward", x, shards, mlp[2].bias.detach()),
        ("tp_attention_forward", attn, x, 2),
    ):
        if student.ask(*arguments)["changed"] or student.state_changes():
            return
    check.fail("the parts", "各部分", "they change nothing", "它们没有改动任何东西")


def test_too_long_a_sequence_is_refused(student, draw):
    model, fits, long = draw.model(**SMALL), draw.ids(1, 8, vocab_size=11), draw.ids(1, 9, vocab_size=11)
    check = Check(CALL, safe=True, context=8, T=9)
    logits_agree(check, student, model, fits, 2, student.ask("tp_model_forward", model, fits, 2))
    refuses(check, lambda: student.ask("tp_model_forward", model, long, 2))


@pytest.mark.parametrize(("t", "hidden"), [(0, 16), (3, 16), (8, 16), (4, 18)])
def test_a_t_that_does_not_fit_is_refused(student, draw, t, hidden):
    model, idx = draw.model(**SMALL | {"hidden": hidden}), draw.ids(1, 4, vocab_size=11)
    check = Check(CALL, safe=True, heads=4, F=hidden, t=t)
    logits_agree(check, student, model, idx, 2, student.ask("tp_model_forward", model, idx, 2))

    def parts_do_not_refuse():
        ask = student.ask
        try:
            compose_model(student, model, idx, t)
        except StudentRaised as raised:
            try:
                ask("tp_model_forward", model, idx, t)
            except StudentRaised as own:
                if (own.kind, own.text) == (raised.kind, raised.text):
                    return
            raise
        ask("tp_model_forward", model, idx, t)

    either(lambda: refuses(check, lambda: student.ask("tp_model_forward", model, idx, t)), parts_do_not_refuse)
    state_kept(check, student)
