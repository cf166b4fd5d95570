"""Public tests of `tp_model_forward`. They use your `split_mlp`, `tp_mlp_forward` and `tp_attention_forward`, if you do."""

import pytest

from collectives import recorded_all_reduces
from exercises import samples
from exercises.checks import Check, gradients_of

CALL = "tp_model_forward(model, idx, t, counter)"


def small_model(seed, layers=2):
    return samples.model(vocab_size=11, d=12, heads=4, layers=layers, hidden=16, context=8, seed=seed)


@pytest.mark.parametrize("t", [1, 2, 4])
def test_logits_equal_one_device(dist_sim, t):
    model, idx = small_model(21), samples.ids(2, 7, vocab_size=11, seed=22)
    check = Check(CALL, idx=idx, t=t)
    with check.leaves_alone(model=model, idx=idx):
        logits = dist_sim.tp_model_forward(model, idx, t)
    check.value(logits, model(idx), "the logits", "logits")


@pytest.mark.parametrize("layers", [1, 3])
def test_two_all_reduces_a_block(dist_sim, layers):
    model, idx = small_model(23, layers), samples.ids(2, 5, vocab_size=11, seed=24)
    counter = {}
    check = Check(CALL, idx=idx, blocks=layers, t=2)
    with recorded_all_reduces() as recording:
        dist_sim.tp_model_forward(model, idx, 2, counter)
    check.number(counter.get("all_reduce", 0), 2 * layers, "the counter", "counter")
    check.number(len(recording), 2 * layers, "the number of all-reduces", "all-reduce 的次数")


def test_gradients_reach_every_parameter(dist_sim):
    model, idx = small_model(25), samples.ids(2, 5, vocab_size=11, seed=26)
    upstream = samples.uniform(2, 5, 11, seed=27)
    leaves = dict(model.named_parameters())
    expected = gradients_of(model(idx), upstream, leaves)
    logits = dist_sim.tp_model_forward(model, idx, 2)
    Check(CALL, idx=idx, t=2).gradients(gradients_of(logits, upstream, leaves).items(), expected)


def test_too_long_a_sequence_is_refused(dist_sim):
    model = small_model(28)
    dist_sim.tp_model_forward(model, samples.ids(1, 8, vocab_size=11, seed=29), 2)
    with Check(CALL, context=8, T=9).refuses():
        dist_sim.tp_model_forward(model, samples.ids(1, 9, vocab_size=11, seed=29), 2)


@pytest.mark.parametrize("t", [0, 3, 8])
def test_a_t_that_does_not_fit_is_refused(dist_sim, t):
    model, idx = small_model(30), samples.ids(1, 4, vocab_size=11, seed=31)
    dist_sim.tp_model_forward(model, idx, 2)
    with Check(CALL, heads=4, F=16, t=t).refuses(t):
        dist_sim.tp_model_forward(model, idx, t)
