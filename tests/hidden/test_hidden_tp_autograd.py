"""Hidden tests of f and g, on real gloo ranks, with collectives counted by PyTorch's CommDebugMode."""

from functools import cache

import pytest
import torch
from torch.nn import functional as F

from comparing import changes_of, state_kept
from draws import Draw
from exercises.checks import Check, gradients_of
from grader.student import StudentRaised

WORDS = {"forward": "前向", "backward": "反向"}
DTYPES = {"f": (torch.float32, torch.float16), "g": (torch.float64, torch.bfloat16)}


class Ranks:
    """One student's results on t ranks. All programs run in one start of the ranks; where that fails, each alone."""

    def __init__(self, student, seed, t):
        self.student, self.t = student, t
        draw = Draw(seed, f"{t} ranks")
        self.programs = {}
        for name in ("f", "g"):
            names = [name] if t == 4 else [name, f"{name}.apply"]
            self.programs["plain", name] = "pass_through", (names, *self.drawn(draw, 3, 5), "plain")
            if t == 4:
                self.programs["pairs", name] = "pass_in_pairs", (name, *self.drawn(draw, 2, 1, 3, 2))
            else:
                whole = [[draw.integers(7) for _ in range(t)] for _ in range(2)]
                self.programs["whole", name] = "pass_through", ([name], *whole, "plain")
                self.programs["twice", name] = "pass_twice", (name, *self.drawn(draw, 2, 3))
                for dtype in DTYPES[name]:
                    inputs = [draw.integers(3, 5).to(dtype) for _ in range(t)]
                    self.programs["awkward", name, dtype] = "pass_through", ([name], inputs, inputs, "awkward")
        self.block = Block(draw, t)
        self.programs["block",] = "block", self.block.arguments
        try:
            together = student.ask("on_ranks", t, "several", list(self.programs.values()))
            self.results = {key: [rank[i] for rank in together] for i, key in enumerate(self.programs)}
        except StudentRaised:
            self.results = {}

    def drawn(self, draw, *shape):
        """Inputs and upstream gradients, one of each for every rank."""
        return [[draw.uniform(*shape) for _ in range(self.t)] for _ in range(2)]

    def of(self, *key):
        """Each rank's result of one program, its inputs and its upstream gradients."""
        program, arguments = self.programs[key]
        if key not in self.results:
            self.results[key] = self.student.ask("on_ranks", self.t, program, *arguments)
        lists = [argument for argument in arguments if isinstance(argument, list)]
        return self.results[key], *lists[-2:]


class Block:
    """Two residual MLP blocks with trained norms: inputs, shards, and what one device gives."""

    def __init__(self, draw, t):
        d, hidden = 6, 8
        self.x, upstream = draw.uniform(2, 3, d), draw.uniform(2, 3, d)
        whole = {f"norm{i}": draw.uniform(d) for i in (0, 1)} | {f"b2.{i}": draw.uniform(d) for i in (0, 1)}
        mlps = [draw.mlp(d, hidden) for _ in (0, 1)]
        cuts = {"W1": ("0.weight", 0), "b1": ("0.bias", 0), "W2": ("2.weight", 1)}
        full = {f"{key}.{i}": mlps[i].get_parameter(name).detach() for i in (0, 1) for key, (name, _) in cuts.items()}
        self.axes = {name: cuts[name.partition(".")[0]][1] for name in full}
        cut = {name: value.tensor_split(t, dim=self.axes[name]) for name, value in full.items()}
        shards = [{name: pieces[rank].contiguous() for name, pieces in cut.items()} for rank in range(t)]
        self.arguments = self.x, whole, shards, upstream
        leaves = {name: value.clone().requires_grad_() for name, value in ({"x": self.x} | whole | full).items()}
        self.out = leaves["x"]
        for i in (0, 1):
            inner = F.layer_norm(self.out, (d,), leaves[f"norm{i}"])
            inner = F.gelu(F.linear(inner, leaves[f"W1.{i}"], leaves[f"b1.{i}"]))
            self.out = self.out + F.linear(inner, leaves[f"W2.{i}"]) + leaves[f"b2.{i}"]
        self.grads = gradients_of(self.out, upstream, leaves)


@cache
def ranks(student, seed, t):
    return Ranks(student, seed, t)


@pytest.fixture
def seed(request):
    return request.config.getoption("--seed")


def expected_of(name, inputs, upstream):
    """For each rank its output and the gradient of its x."""
    sums = sum(inputs), sum(upstream)
    return [(x, sums[1]) if name[0] == "f" else (sums[0], grad) for x, grad in zip(inputs, upstream)]


def compare(check, name, result, rank, out, grad, tolerance=None):
    on = f"on rank {rank}", f"rank {rank} 上"
    check.value(result["out"], out, f"{name}'s output {on[0]}", f"{on[1]} {name} 的输出", tolerance)
    check.value(result["grad"], grad, f"{name}'s gradient of x {on[0]}", f"{on[1]} {name} 的 x 梯度", tolerance)
    for phase, count in {"forward": int(name[0] == "g"), "backward": int(name[0] == "f")}.items():
        en, zh = f"the number of {name}'s all-reduces in {phase}", f"{name} 在{WORDS[phase]}中 all-reduce 的次数"
        check.number(result[phase], count, en, zh)
    check.number(result["others"], 0, f"the number of {name}'s other collectives", f"{name} 的其他集合通信次数")
    for what in changes_of(result):
        check.fail(what, what, f"{name} changed {what} in place", f"{name} 就地修改了 {what}")


@pytest.mark.weight(3)
@pytest.mark.parametrize("name", ["f", "g"])
@pytest.mark.parametrize("t", [2, 4])
def test_rank_valued_inputs_and_gradients(student, seed, name, t):
    batch = ranks(student, seed, t)
    results, inputs, upstream = batch.of("plain", name)
    names, *_ = batch.programs["plain", name][1]
    check = Check(f"{name}(x, group)", safe=True, x=inputs[0], t=t)
    state_kept(check, student)
    for rank, truth in enumerate(expected_of(name, inputs, upstream)):
        for which, result in zip(names, results[rank], strict=True):
            compare(check, which, result, rank, *truth)


@pytest.mark.parametrize("name", ["f", "g"])
def test_whole_numbers_give_the_same_bits(student, seed, name):
    results, inputs, upstream = ranks(student, seed, 2).of("whole", name)
    check = Check(f"{name}(x, group)", safe=True, x=inputs[0], t=2, numbers="whole")
    for rank, truth in enumerate(expected_of(name, inputs, upstream)):
        compare(check, name, results[rank][0], rank, *truth, tolerance=0.0)


@pytest.mark.weight(2)
@pytest.mark.parametrize(("name", "dtype"), [(name, dtype) for name in "fg" for dtype in DTYPES[name]])
def test_strides_and_dtypes(student, seed, name, dtype):
    """A transposed input, and the stride-0 gradient of a sum."""
    results, inputs, _ = ranks(student, seed, 2).of("awkward", name, dtype)
    check = Check(f"{name}(x.t(), group).sum().backward()", safe=True, x=inputs[0], t=2)
    ones = torch.ones_like(inputs[0])
    for rank, (out, grad) in enumerate(expected_of(name, inputs, [ones, ones])):
        compare(check, name, results[rank][0], rank, out.t(), grad)


@pytest.mark.weight(2)
@pytest.mark.parametrize("name", ["f", "g"])
def test_a_group_that_is_not_the_default_one(student, seed, name):
    """Four ranks in two groups: even ones among themselves, odd ones among themselves."""
    results, inputs, upstream = ranks(student, seed, 4).of("pairs", name)
    check = Check(f"{name}(x, group)", safe=True, x=inputs[0], ranks=4, groups="[0, 2] and [1, 3]")
    for parity in (0, 1):
        for index, truth in enumerate(expected_of(name, inputs[parity::2], upstream[parity::2])):
            rank = parity + 2 * index
            compare(check, name, results[rank], rank, *truth)


@pytest.mark.parametrize("name", ["f", "g"])
def test_two_calls_before_anything_is_read(student, seed, name):
    """Each call keeps its own group and its own result; the second is over one rank."""
    results, inputs, upstream = ranks(student, seed, 2).of("twice", name)
    check = Check(f"{name}(x, group) and {name}(2 x, group of this rank)", safe=True, x=inputs[0], t=2)
    for rank, (out, grad) in enumerate(expected_of(name, inputs, upstream)):
        expected = {"outs": (out, 2 * inputs[rank]), "grads": (grad, upstream[rank])}
        for key, en, zh in (("outs", "output", "输出"), ("grads", "gradient", "梯度")):
            for place, zh_place, actual, truth in zip(
                ("first", "second"), "一二", results[rank][key], expected[key], strict=True
            ):
                check.value(actual, truth, f"the {place} {en} on rank {rank}", f"rank {rank} 上的第{zh_place}个{zh}")


@pytest.mark.weight(4)
@pytest.mark.parametrize("t", [2, 4])
def test_blocks_train_as_on_one_device(student, seed, t):
    batch = ranks(student, seed, t)
    block = batch.block
    check = Check("x + g(MLP(f(norm(x)))), two blocks", safe=True, x=block.x, t=t)
    results, *_ = batch.of("block")
    for rank in range(t):
        result = results[rank]
        check.value(result["out"], block.out, f"the output on rank {rank}", f"rank {rank} 上的输出")
        expected = {
            n: g.tensor_split(t, dim=block.axes[n])[rank] if n in block.axes else g for n, g in block.grads.items()
        }
        named = {f"{name} on rank {rank}": grad for name, grad in expected.items()}
        check.gradients([(f"{name} on rank {rank}", result["grads"][name]) for name in expected], named)
        for phase in ("forward", "backward"):
            en, zh = f"the number of all-reduces in {phase}", f"{WORDS[phase]}中 all-reduce 的次数"
            check.number(result[phase], 2, en, zh)
        check.number(result["others"], 0, "the number of other collectives", "其他集合通信的次数")
