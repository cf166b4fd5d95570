"""Hidden tests of f and g, on real gloo ranks, with collectives counted by PyTorch's CommDebugMode."""

import pytest
import torch
from torch.nn import functional as F

from comparing import state_kept
from exercises.checks import Check, gradients_of

WORDS = {"forward": "前向", "backward": "反向"}


def expected_of(name, inputs, upstream):
    """For each rank its output and the gradient of its x."""
    sums = sum(inputs), sum(upstream)
    return [(x, sums[1]) if name[0] == "f" else (sums[0], grad) for x, grad in zip(inputs, upstream)]


def compare(check, name, result, rank, out, grad):
    check.value(result["out"], out, f"{name}'s output on rank {rank}", f"{name} 在 rank {rank} 上的输出")
    check.value(result["grad"], grad, f"{name}'s gradient of x on rank {rank}", f"rank {rank} 上 {name} 的 x 梯度")
    for phase, count in {"forward": int(name[0] == "g"), "backward": int(name[0] == "f")}.items():
        en, zh = f"the number of {name}'s all-reduces in {phase}", f"{name} 在{WORDS[phase]}中 all-reduce 的次数"
        check.number(result[phase], count, en, zh)
    check.number(result["others"], 0, f"the number of {name}'s other collectives", f"{name} 的其他集合通信次数")
    for what in result["changed"]:
        check.fail(what, what, f"{name} changed {what} in place", f"{name} 就地修改了 {what}")


@pytest.mark.weight(3)
@pytest.mark.parametrize("name", ["f", "g"])
@pytest.mark.parametrize("t", [2, 4])
def test_rank_valued_inputs_and_gradients(student, draw, name, t):
    inputs, upstream = ([draw.uniform(3, 5) for _ in range(t)] for _ in range(2))
    names = [name] if t == 4 else [name, f"{name}.apply"]
    check = Check(f"{name}(x, group)", safe=True, x=inputs[0], t=t)
    results = student.ask("on_ranks", t, "pass_through", names, inputs, upstream, "plain")
    state_kept(check, student)
    for rank, truth in enumerate(expected_of(name, inputs, upstream)):
        for which, result in zip(names, results[rank]):
            compare(check, which, result, rank, *truth)


@pytest.mark.parametrize("name", ["f", "g"])
def test_whole_numbers_give_the_same_bits(student, draw, name):
    inputs, upstream = ([draw.integers(7) for _ in range(2)] for _ in range(2))
    check = Check(f"{name}(x, group)", safe=True, x=inputs[0], t=2, numbers="whole")
    results = student.ask("on_ranks", 2, "pass_through", [name], inputs, upstream, "plain")
    for rank, (out, grad) in enumerate(expected_of(name, inputs, upstream)):
        check.value(results[rank][0]["out"], out, f"the output on rank {rank}", f"rank {rank} 上的输出", 0.0)
        check.value(results[rank][0]["grad"], grad, f"the gradient on rank {rank}", f"rank {rank} 上的梯度", 0.0)


@pytest.mark.weight(2)
@pytest.mark.parametrize(("name", "dtype"), [("f", torch.float32), ("g", torch.float64), ("g", torch.bfloat16)])
def test_strides_and_dtypes(student, draw, name, dtype):
    """A transposed input, and the stride-0 gradient of a sum."""
    inputs = [draw.integers(3, 5).to(dtype) for _ in range(2)]
    check = Check(f"{name}(x.t(), group).sum().backward()", safe=True, x=inputs[0], t=2)
    results = student.ask("on_ranks", 2, "pass_through", [name], inputs, inputs, "awkward")
    ones = torch.ones_like(inputs[0])
    for rank, (out, grad) in enumerate(expected_of(name, inputs, [ones, ones])):
        compare(check, name, results[rank][0], rank, out.t(), grad)


@pytest.mark.weight(2)
@pytest.mark.parametrize("name", ["f", "g"])
def test_a_group_that_is_not_the_default_one(student, draw, name):
    """Four ranks in two groups: even ones among themselves, odd ones among themselves."""
    inputs, upstream = ([draw.uniform(2, 3) for _ in range(4)] for _ in range(2))
    check = Check(f"{name}(x, group)", safe=True, x=inputs[0], ranks=4, groups="[0, 2] and [1, 3]")
    results = student.ask("on_ranks", 4, "pass_in_pairs", name, inputs, upstream)
    for parity in (0, 1):
        pair = expected_of(name, inputs[parity::2], upstream[parity::2])
        for index, truth in enumerate(pair):
            rank = parity + 2 * index
            compare(check, name, results[rank], rank, *truth)


@pytest.mark.parametrize("name", ["f", "g"])
def test_two_calls_before_anything_is_read(student, draw, name):
    """Each call keeps its own group and its own result; the second is over one rank."""
    inputs, upstream = ([draw.uniform(2, 3) for _ in range(2)] for _ in range(2))
    check = Check(f"{name}(x, group) and {name}(2 x, group of this rank)", safe=True, x=inputs[0], t=2)
    results = student.ask("on_ranks", 2, "pass_twice", name, inputs, upstream)
    for rank, (out, grad) in enumerate(expected_of(name, inputs, upstream)):
        check.value(results[rank]["outs"][0], out, f"the first output on rank {rank}", f"rank {rank} 上的第一个输出")
        second = 2 * inputs[rank]
        check.value(
            results[rank]["outs"][1], second, f"the second output on rank {rank}", f"rank {rank} 上的第二个输出"
        )
        check.value(
            results[rank]["grads"][0], grad, f"the first gradient on rank {rank}", f"rank {rank} 上的第一个梯度"
        )
        own = upstream[rank]
        check.value(
            results[rank]["grads"][1], own, f"the second gradient on rank {rank}", f"rank {rank} 上的第二个梯度"
        )


@pytest.mark.weight(4)
@pytest.mark.parametrize("t", [2, 4])
def test_blocks_train_as_on_one_device(student, draw, t):
    d, hidden = 6, 8
    x, upstream = draw.uniform(2, 3, d), draw.uniform(2, 3, d)
    whole = {f"norm{i}": draw.uniform(d) for i in (0, 1)} | {f"b2.{i}": draw.uniform(d) for i in (0, 1)}
    mlps = [draw.mlp(d, hidden) for _ in (0, 1)]
    cuts = {"W1": ("0.weight", 0), "b1": ("0.bias", 0), "W2": ("2.weight", 1)}
    full = {f"{key}.{i}": mlps[i].get_parameter(name).detach() for i in (0, 1) for key, (name, _) in cuts.items()}
    axes = {name: cuts[name.partition(".")[0]][1] for name in full}
    shards = [{n: w.tensor_split(t, dim=axes[n])[rank].contiguous() for n, w in full.items()} for rank in range(t)]

    leaves = {name: value.clone().requires_grad_() for name, value in ({"x": x} | whole | full).items()}
    out = leaves["x"]
    for i in (0, 1):
        inner = F.layer_norm(out, (d,), leaves[f"norm{i}"])
        inner = F.gelu(F.linear(inner, leaves[f"W1.{i}"], leaves[f"b1.{i}"]))
        out = out + F.linear(inner, leaves[f"W2.{i}"]) + leaves[f"b2.{i}"]
    truth = gradients_of(out, upstream, leaves)

    check = Check("x + g(MLP(f(norm(x)))), two blocks", safe=True, x=x, t=t)
    for rank, result in enumerate(student.ask("on_ranks", t, "block", x, whole, shards, upstream)):
        check.value(result["out"], out, f"the output on rank {rank}", f"rank {rank} 上的输出")
        expected = {n: g.tensor_split(t, dim=axes[n])[rank] if n in axes else g for n, g in truth.items()}
        named = {f"{name} on rank {rank}": grad for name, grad in expected.items()}
        check.gradients([(f"{name} on rank {rank}", result["grads"][name]) for name in expected], named)
        for phase in ("forward", "backward"):
            en, zh = f"the number of all-reduces in {phase}", f"{WORDS[phase]}中 all-reduce 的次数"
            check.number(result[phase], 2, en, zh)
        check.number(result["others"], 0, "the number of other collectives", "其他集合通信的次数")
