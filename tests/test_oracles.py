"""The solutions against oracles that share no code with them: PyTorch's tensor parallelism, mpmath, exact arithmetic."""

from __future__ import annotations

import cmath
import copy
import itertools
import json
import os
import socket
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import mpmath
import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, parallelize_module
from torch.nn import functional as F
from torch.utils._python_dispatch import _disable_current_modes

import comm_cost
import dist_sim
import kv_cache_cost
import palm_modules
import tp_autograd
from collectives import run_on_ranks
from exercises import samples
from exercises.checks import gradients_of
from tiny_gpt import Block, TinyGPT
from train_lab import FlexConfig, count_params, make_flex

SCRIPT = Path(__file__).with_name("oracle_torchrun.py")


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# PyTorch's own tensor parallelism


def in_torchs_own_way(rank: int, group, *arguments) -> dict:
    with _disable_current_modes():  # the ranks' own watch over collectives does not let DTensor try its fake tensors
        return parallelized(group.size(), *arguments)


def parallelized(t: int, model: TinyGPT, idx: Tensor, upstream: Tensor) -> dict:
    """The model under `parallelize_module`: logits, all-reduces of both passes, and this rank's gradients.

    A gradient comes with the dimension along which its parameter is cut, or None for one that every rank has whole.
    """
    mesh = init_device_mesh("cpu", (t,))
    for block in model.blocks:
        plan = {
            # One replicated input for q, k and v: their gradients are added before the all-reduce, not after three.
            "attn": PrepareModuleInput(input_layouts=(Replicate(),), desired_input_layouts=(Replicate(),)),
            "attn.q_proj": ColwiseParallel(),
            "attn.k_proj": ColwiseParallel(),
            "attn.v_proj": ColwiseParallel(),
            "attn.out_proj": RowwiseParallel(),
            "mlp.0": ColwiseParallel(),
            "mlp.2": RowwiseParallel(),
        }
        parallelize_module(block, mesh, plan)
        block.attn.n_heads //= t  # a rank sees its own heads only
    with CommDebugMode() as forward:
        logits = model(idx)
    with CommDebugMode() as backward:
        (logits * upstream).sum().backward()
    grads = {}
    for name, parameter in model.named_parameters():
        grad = parameter.grad
        if isinstance(grad, DTensor):
            (placement,) = grad.placements
            grads[name] = (placement.dim if placement.is_shard() else None, grad.to_local())
        else:
            grads[name] = (None, grad)
    return {"logits": logits.detach(), "grads": grads, "counts": (counted(forward), counted(backward))}


def counted(mode: CommDebugMode) -> dict[str, int]:
    """Collectives by the name of their operation."""
    return {str(op).rpartition(".")[2]: count for op, count in mode.get_comm_counts().items() if count}


@pytest.mark.parametrize("t", [2, 4])
def test_the_model_agrees_with_torchs_own_tensor_parallelism(t):
    model = samples.model(vocab_size=11, d=16, heads=4, layers=2, hidden=24, context=8, seed=1)
    idx, upstream = samples.ids(2, 6, vocab_size=11, seed=2), samples.uniform(2, 6, 11, seed=3)
    counter: dict[str, int] = {}
    logits = dist_sim.tp_model_forward(model, idx, t, counter)
    grads = gradients_of(logits, upstream, dict(model.named_parameters()))
    assert counter == {"all_reduce": 4}

    for rank, result in enumerate(run_on_ranks(t, in_torchs_own_way, model, idx, upstream, timeout=120)):
        torch.testing.assert_close(result["logits"], logits.detach(), rtol=0, atol=1e-13)
        assert result["counts"] == ({"all_reduce": 4}, {"all_reduce": 4})
        assert result["grads"].keys() == grads.keys()
        for name, (dim, grad) in result["grads"].items():
            truth = grads[name] if dim is None else grads[name].chunk(t, dim)[rank]
            torch.testing.assert_close(grad, truth, rtol=0, atol=1e-12, msg=lambda text, name=name: f"{name}: {text}")
        cut = {name.split(".", 2)[2]: dim for name, (dim, _) in result["grads"].items() if dim is not None}
        column = {
            f"{name}.{what}": 0
            for name in ("attn.q_proj", "attn.k_proj", "attn.v_proj", "mlp.0")
            for what in ("weight", "bias")
        }
        assert cut == column | {"attn.out_proj.weight": 1, "mlp.2.weight": 1}


# mpmath, 50 digits


@pytest.fixture
def digits():
    with mpmath.workdps(50):
        yield


@pytest.mark.parametrize(("head_dim", "theta"), [(8, 10000.0), (6, 500.0), (64, 1e6)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 7e-8)])
def test_rope_tables_at_high_positions(digits, head_dim, theta, dtype, tolerance):
    """float64 angles at a million are good to 1e-10; a float32 table is then only rounded."""
    positions = [0, 1, 2047, 131_071, 999_983]
    torch.set_default_dtype(dtype)
    try:
        tables = palm_modules.rope_angles(head_dim, torch.tensor(positions), theta)
    finally:
        torch.set_default_dtype(torch.float32)
    for table, function in zip(tables, (mpmath.cos, mpmath.sin)):
        assert table.dtype == dtype and table.shape == (len(positions), head_dim // 2)
        for row, position in zip(table.tolist(), positions):
            for i, value in enumerate(row):
                angle = position * mpmath.mpf(theta) ** (mpmath.mpf(-2 * i) / head_dim)
                assert abs(value - function(angle)) <= tolerance


def test_rope_turns_complex_numbers():
    x, angles = samples.uniform(2, 3, 5, 8, seed=4), 9 * samples.uniform(5, 4, seed=5)
    turned = palm_modules.apply_rope(x, angles.cos(), angles.sin())
    for *rest, i in itertools.product(*map(range, (2, 3, 5, 4))):
        pair, result = (complex(z[*rest, i], z[*rest, i + 4]) for z in (x, turned))
        assert abs(pair * cmath.exp(1j * float(angles[rest[-1], i])) - result) < 1e-14


@pytest.mark.parametrize("bias", [True, False])
def test_swiglu(digits, bias):
    d, hidden = 3, 4
    module = samples.randomized(palm_modules.SwiGLU(d, hidden, bias), seed=6)
    rows = [samples.uniform(d, seed=7), 30 * samples.uniform(d, seed=8), torch.zeros(d, dtype=torch.float64)]

    def affine(layer, values):
        weight = mpmath.matrix(layer.weight.tolist())
        shift = [0.0] * layer.out_features if layer.bias is None else layer.bias.tolist()
        return weight * mpmath.matrix(values) + mpmath.matrix(shift)

    for x in rows:
        gate, up = affine(module.gate, x.tolist()), affine(module.up, x.tolist())
        gated = [a / (1 + mpmath.exp(-a)) * b for a, b in zip(gate, up)]
        for value, truth in zip(module(x).tolist(), affine(module.down, gated)):
            assert abs(value - truth) <= 1e-13 * (1 + abs(truth))


# Exact arithmetic and counting


def ring_all_reduce(messages: list[list[Fraction]]) -> tuple[list[list[Fraction]], list[Fraction]]:
    """Play the ring, t ranks with t chunks each: everybody's chunks afterwards, and how many chunks each one sent."""
    t = len(messages)
    chunks = [list(own) for own in messages]
    sent = [Fraction(0)] * t
    for phase, step in itertools.product(("reduce-scatter", "all-gather"), range(t - 1)):
        first = 0 if phase == "reduce-scatter" else 1
        moving = [((rank + first - step) % t, chunks[rank][(rank + first - step) % t]) for rank in range(t)]
        for rank, (index, value) in enumerate(moving):
            neighbour = chunks[(rank + 1) % t]
            neighbour[index] = neighbour[index] + value if phase == "reduce-scatter" else value
            sent[rank] += 1
    return chunks, sent


@pytest.mark.parametrize("t", [1, 2, 3, 5, 8])
def test_ring_bytes_are_those_of_a_ring_that_was_played(t):
    messages = [[Fraction(100 * rank + chunk) for chunk in range(t)] for rank in range(t)]
    results, sent = ring_all_reduce(messages)
    assert results == [[sum(column) for column in zip(*messages)]] * t  # it is an all-reduce
    for message_bytes in (1, 7, 50_331_648, 10**15 + 1):
        ours = comm_cost.ring_all_reduce_bytes_per_rank(message_bytes, t)
        for count in sent:
            exact = count * Fraction(message_bytes, t)
            assert abs(Fraction(ours) - exact) <= exact * Fraction(1, 2**50)


def test_matmul_flops_are_those_that_pytorch_counts():
    from torch.utils.flop_counter import FlopCounterMode

    d, B, T = 16, 3, 5
    block = Block(d, 4, 4 * d)
    x = torch.randn(B, T, d).requires_grad_()

    def products(counter) -> int:
        return sum(n for op, n in counter.get_flop_counts()["Global"].items() if "mm" in str(op))

    with FlopCounterMode(display=False) as forward:
        out = block(x)
    with FlopCounterMode(display=False) as backward:
        out.sum().backward()
    assert products(forward) == comm_cost.layer_matmul_flops(B * T, d, backward=False)
    assert products(forward) + products(backward) == comm_cost.layer_matmul_flops(B * T, d)


SIZES = [(1, 1, 1, 1), (2048, 12288, 8, 2), (37, 91, 3, 4), (4096, 18432, 7, 1)]  # tokens, d_model, t, bytes an element


@pytest.mark.parametrize(("tokens", "d", "t", "size"), SIZES)
@pytest.mark.parametrize("utilization", [0.5, 0.3, 1])
def test_costs_in_fractions(tokens, d, t, size, utilization):
    """The definitions, put together in exact arithmetic; the solutions round a few times."""
    peak, bandwidth = 312e12, 6.25e9
    message = Fraction(tokens) * d * size
    a_rank = 2 * 2 * 2 * (message - message / t)  # attention and MLP, forward and backward, two phases of a ring
    flops = 3 * sum(2 * Fraction(tokens) * i * o for i, o in [(d, d)] * 4 + [(d, 4 * d), (4 * d, d)])
    seconds = flops / (t * Fraction(peak) * Fraction(utilization))

    def close(ours, exact):
        assert abs(Fraction(ours) - exact) <= exact * Fraction(1, 2**48)

    close(comm_cost.activation_bytes(tokens, d, size), message)
    close(comm_cost.tp_layer_bytes_per_rank(tokens, d, t, size), a_rank)
    close(comm_cost.layer_compute_seconds(tokens, d, t, peak, utilization), seconds)
    close(comm_cost.layer_comm_seconds(tokens, d, t, bandwidth, size), a_rank / Fraction(bandwidth))
    ratio = comm_cost.comm_to_compute(tokens, d, t, peak, bandwidth, utilization, size)
    close(ratio, a_rank / Fraction(bandwidth) / seconds)


def test_cache_bytes_are_those_of_a_cache():
    layers, heads, hd, context, batch = 3, 5, 4, 7, 2
    for dtype in (torch.float16, torch.float32, torch.float64):
        cache = [
            [torch.empty(batch, heads, context, hd, dtype=dtype) for _ in ("keys", "values")] for _ in range(layers)
        ]
        held = sum(tensor.nbytes for layer in cache for tensor in layer)
        size = dtype.itemsize
        assert kv_cache_cost.kv_cache_bytes(context, batch, layers, heads, hd, size) == held
        assert kv_cache_cost.kv_cache_bytes_per_token(layers, heads, hd, size) == Fraction(held, context * batch)
        tokens = kv_cache_cost.break_even_tokens(held, layers, heads, hd, size)
        assert tokens == context * batch


@pytest.mark.parametrize(("kv_heads", "t"), [(1, 1), (1, 8), (2, 8), (8, 8), (8, 2), (12, 3)])
def test_cache_bytes_on_a_rank_are_those_of_the_heads_it_needs(kv_heads, t):
    """24 query heads in order over t ranks, in order over the key/value heads: which of these does a rank read?"""
    read = [{query * kv_heads // 24 for query in range(24) if query * t // 24 == rank} for rank in range(t)]
    for heads in read:
        ours = kv_cache_cost.kv_cache_bytes_per_token_per_rank(3, 24, kv_heads, 5, t, 4)
        assert ours == 3 * 2 * len(heads) * 5 * 4


@pytest.mark.parametrize(
    "choices", list(itertools.product(("gelu", "swiglu"), (0, 1), (0, 1), ("learned", "rope"), (0, 1)))
)
def test_parameter_counts_are_those_of_the_models(choices):
    mlp, parallel, mqa, pos, bias = choices
    sizes = {"vocab_size": 13, "context": 9, "n_layers": 3, "d_model": 20, "n_heads": 5, "d_ff": 17}
    config = FlexConfig(mlp, bool(parallel), bool(mqa), pos, bool(bias), **sizes)
    assert kv_cache_cost.flex_param_count(config) == count_params(make_flex(config, seed=0))


# Whole numbers, whose sums are exact in float64: sharded and unsharded agree bit by bit


def whole(*shape: int, seed: int) -> Tensor:
    return torch.randint(-4, 5, shape, generator=torch.Generator().manual_seed(seed)).double()


def whole_mlp(d: int, hidden: int) -> nn.Sequential:
    """Pre-activations are odd multiples of 64: GELU is there exactly the identity or 0, and its derivative 1 or 0."""
    mlp = nn.Sequential(nn.Linear(d, hidden), nn.GELU(), nn.Linear(hidden, d)).double()
    with torch.no_grad():
        for seed, parameter in enumerate(mlp.parameters()):
            parameter.copy_(whole(*parameter.shape, seed=seed))
        mlp[0].weight.mul_(128)
        mlp[0].bias.mul_(128).add_(64)
    return mlp


@pytest.mark.parametrize("t", [1, 2, 4, 8])
def test_mlp_bit_by_bit(t):
    mlp, x, upstream = whole_mlp(6, 16), whole(2, 3, 6, seed=10).requires_grad_(), whole(2, 3, 6, seed=11)
    leaves = {"x": x} | dict(mlp.named_parameters())
    out = dist_sim.tp_mlp_forward(x, *dist_sim.split_mlp(mlp, t))
    assert torch.equal(out, mlp(x)) and (out != 0).any()
    ours, truth = gradients_of(out, upstream, leaves), gradients_of(mlp(x), upstream, leaves)
    assert all(torch.equal(ours[name], truth[name]) for name in leaves)


@pytest.mark.parametrize("t", [1, 2, 4])
def test_attention_bit_by_bit(t):
    """One position: it attends to itself with a weight of exactly 1."""
    attn, x, upstream = (
        samples.attention(8, 4, seed=1),
        whole(3, 1, 8, seed=12).requires_grad_(),
        whole(3, 1, 8, seed=13),
    )
    with torch.no_grad():
        for seed, parameter in enumerate(attn.parameters()):
            parameter.copy_(whole(*parameter.shape, seed=20 + seed))
    leaves = {"x": x} | dict(attn.named_parameters())
    out = dist_sim.tp_attention_forward(attn, x, t)
    assert torch.equal(out, attn(x)) and (out != 0).any()
    ours, truth = gradients_of(out, upstream, leaves), gradients_of(attn(x), upstream, leaves)
    assert all(torch.equal(ours[name], truth[name]) for name in leaves)


def whole_block(rank: int, group, mlp: nn.Sequential, x: Tensor, upstream: Tensor) -> dict[str, Tensor]:
    """x + g(MLP(f(x))) on this rank's shard: the output and the gradients."""
    shards, b2 = dist_sim.split_mlp(copy.deepcopy(mlp), group.size())
    own = {name: shards[rank][name].detach().requires_grad_() for name in ("W1", "b1", "W2")}
    x = x.clone().requires_grad_()
    hidden = F.gelu(F.linear(tp_autograd.f(x, group), own["W1"], own["b1"]))
    out = x + tp_autograd.g(F.linear(hidden, own["W2"]), group) + b2.detach()
    return {"out": out.detach()} | gradients_of(out, upstream, {"x": x} | own)


@pytest.mark.parametrize("t", [2, 4])
def test_f_and_g_bit_by_bit(t):
    mlp, x, upstream = whole_mlp(6, 16), whole(2, 3, 6, seed=14).requires_grad_(), whole(2, 3, 6, seed=15)
    truth = gradients_of(x + mlp(x), upstream, {"x": x} | dict(mlp.named_parameters()))
    cuts = {"W1": truth["0.weight"].chunk(t), "b1": truth["0.bias"].chunk(t), "W2": truth["2.weight"].chunk(t, dim=1)}
    for rank, result in enumerate(run_on_ranks(t, whole_block, mlp, x.detach(), upstream)):
        assert torch.equal(result["out"], (x + mlp(x)).detach())
        assert torch.equal(result["x"], truth["x"])
        assert all(torch.equal(result[name], pieces[rank]) for name, pieces in cuts.items())


# Outside pytest, under PyTorch's own launcher


@pytest.mark.skipif(sys.platform == "win32", reason="torchrun needs a torch built with libuv there")
def test_a_step_under_torchrun(tmp_path):
    """oracle_torchrun.py on two ranks; nothing is left of them afterwards."""
    loopback = {"lo", "lo0"} & {name for _, name in socket.if_nameindex()}
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)}
    environment |= {"GLOO_SOCKET_IFNAME": loopback.pop()} if loopback else {}
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "localhost"]
    command = [*launcher, "--nproc_per_node", "2", str(SCRIPT), str(tmp_path)]
    process = subprocess.Popen(
        command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8"
    )
    try:
        output, _ = process.communicate(timeout=150)
    except subprocess.TimeoutExpired:
        process.terminate()  # the launcher hands that on to its ranks, which are in sessions of their own
        try:
            output, _ = process.communicate(timeout=40)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
        pytest.fail(f"torchrun did not end:\n{output}")
    assert process.returncode == 0, output
    reports = [json.loads((tmp_path / f"rank{rank}.json").read_text(encoding="utf-8")) for rank in (0, 1)]
    for rank, report in enumerate(reports):
        assert (report["rank"], report["world_size"], report["backend"]) == (rank, 2, "gloo")
        assert set(report["errors"]) == {"out", "x", "norm.weight", "norm.bias", "W1", "b1", "W2", "b2", "next out"}
        assert all(error < 1e-12 for error in report["errors"].values()), report
        with pytest.raises(ProcessLookupError):
            os.kill(report["pid"], 0)
