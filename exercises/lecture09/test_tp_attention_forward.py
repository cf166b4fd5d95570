"""Public tests of `tp_attention_forward`."""

import pytest

from collectives import recorded_all_reduces
from exercises import samples
from exercises.checks import Check, gradients_of

CALL = "tp_attention_forward(attn, x, t, counter)"


@pytest.mark.parametrize(("t", "heads"), [(1, 4), (2, 4), (4, 4), (2, 6)])
def test_output_equals_one_device(dist_sim, t, heads):
    attn, x = samples.attention(12, heads, seed=11), samples.uniform(2, 5, 12, seed=12)
    check = Check(CALL, x=x, heads=heads, t=t)
    with check.leaves_alone(attn=attn, x=x):
        out = dist_sim.tp_attention_forward(attn, x, t)
    check.value(out, attn(x), "the output", "输出")


def test_no_position_sees_a_later_one(dist_sim):
    attn, x = samples.attention(12, 4, seed=13), samples.uniform(2, 6, 12, seed=14)
    changed = x.clone()
    changed[:, 4:] += 1
    before = dist_sim.tp_attention_forward(attn, x, 2)
    after = dist_sim.tp_attention_forward(attn, changed, 2)
    Check(CALL, x=x, t=2).value(
        after[:, :4], before[:, :4], "positions 0 to 3, after a change at 4,", "改变位置 4 之后的位置 0 到 3"
    )


@pytest.mark.parametrize("t", [1, 4])
def test_one_all_reduce_of_the_partial_outputs(dist_sim, t):
    attn, x = samples.attention(12, 4, seed=15), samples.uniform(2, 5, 12, seed=16)
    counter = {}
    check = Check(CALL, x=x, heads=4, t=t)
    with recorded_all_reduces() as recording:
        dist_sim.tp_attention_forward(attn, x, t, counter)
    check.number(counter.get("all_reduce", 0), 1, "the counter", "counter")
    check.number(len(recording), 1, "the number of all-reduces", "all-reduce 的次数")
    check.partials(recording[0], samples.partial_outputs(attn, "out_proj", t, x), attn.out_proj.bias)


def test_gradients_reach_x_and_every_projection(dist_sim):
    attn, x = samples.attention(12, 4, seed=17), samples.uniform(2, 5, 12, seed=18).requires_grad_()
    upstream = samples.uniform(2, 5, 12, seed=19)
    leaves = {"x": x, **dict(attn.named_parameters())}
    expected = gradients_of(attn(x), upstream, leaves)
    out = dist_sim.tp_attention_forward(attn, x, 2)
    Check(CALL, x=x, heads=4, t=2).gradients(gradients_of(out, upstream, leaves).items(), expected)


@pytest.mark.parametrize("t", [0, -2, 3, 8])
def test_a_t_that_does_not_fit_is_refused(dist_sim, t):
    attn, x = samples.attention(12, 4, seed=11), samples.uniform(2, 5, 12, seed=12)
    dist_sim.tp_attention_forward(attn, x, 2)
    with Check(CALL, heads=4, t=t).refuses(t, 4):
        dist_sim.tp_attention_forward(attn, x, t)
