"""The lab of lecture 10: configurations, training, and the ablation in several processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import ablation
from ablation import VARIANTS, VariantError, run_ablation, train_variant
from tiny_gpt import TinyGPT
from train_lab import WINDOW, FlexConfig, count_params, eval_bpc, make_flex, train_flex

ROOT = Path(__file__).resolve().parents[1]
SOLUTION = (ROOT / "solutions" / "lecture10" / "palm_modules.py").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def data() -> torch.Tensor:
    return torch.randint(20, (400,), generator=torch.Generator().manual_seed(1))


def small(**choices) -> FlexConfig:
    return FlexConfig(vocab_size=20, d_model=16, n_heads=2, d_ff=32, **choices)


# Configurations and models


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"mlp": "relu"}, ["relu", "gelu", "swiglu"]),
        ({"pos": "alibi"}, ["alibi", "learned", "rope"]),
        ({"mqa": "yes"}, ["mqa", "yes", "True", "False"]),
        ({"n_layers": 0}, ["n_layers", "0"]),
        ({"n_heads": 5}, ["5", "64"]),
        ({"pos": "rope", "d_model": 12, "n_heads": 4}, ["rope", "3"]),
    ],
)
def test_config_refuses(choices, words):
    with pytest.raises(ValueError) as caught:
        FlexConfig(**choices)
    assert all(word in str(caught.value) for word in words)


def test_parameter_counts_of_the_base_sizes():
    counts = {name: count_params(make_flex(FlexConfig(**choices), seed=0)) for name, choices in VARIANTS.items()}
    assert list(counts) == ["baseline", "swiglu", "parallel", "mqa", "rope", "no_bias", "all"]
    change = {name: 100 * (count / counts["baseline"] - 1) for name, count in counts.items()}
    assert change["mqa"] == pytest.approx(-11, abs=1)
    assert change["all"] == pytest.approx(-19, abs=1)
    assert abs(change["swiglu"]) < 1


@pytest.mark.parametrize("choices", VARIANTS.values(), ids=VARIANTS)
def test_make_flex_depends_on_its_seed_alone(choices):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = make_flex(small(**choices), seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    again, other = make_flex(small(**choices), seed=3).state_dict(), make_flex(small(**choices), seed=4).state_dict()
    assert all(torch.equal(weight, again[name]) for name, weight in first.state_dict().items())
    assert not torch.equal(first.tok_emb.weight, other["tok_emb.weight"])


def test_the_baseline_is_the_base_model():
    flex, tiny = make_flex(FlexConfig(), seed=0).double(), TinyGPT(FlexConfig().vocab_size).double()
    tiny.load_state_dict(flex.state_dict())
    idx = torch.randint(FlexConfig().vocab_size, (3, 50), generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(flex(idx), tiny(idx), rtol=1e-12, atol=1e-12)


def test_no_bias_means_none_anywhere():
    assert not [name for name, _ in make_flex(small(bias=False), seed=0).named_parameters() if "bias" in name]


@pytest.mark.parametrize("pos", ["learned", "rope"])
def test_a_sequence_beyond_the_context_is_refused(pos):
    model = make_flex(small(context=10, pos=pos), seed=0)
    assert model(torch.zeros(2, 10, dtype=torch.int64)).shape == (2, 10, 20)
    with pytest.raises(ValueError, match=r"11.*10"):
        model(torch.zeros(2, 11, dtype=torch.int64))


# Training


def trained(data: torch.Tensor, seed: int = 0, **options) -> tuple[list[float], dict]:
    model = make_flex(small(pos="rope"), seed=0)
    return train_flex(model, data, 6, batch_size=4, seed=seed, log_every=2, **options), model.state_dict()


def test_training_depends_on_its_seed_alone(data):
    torch.manual_seed(5)
    losses, weights = trained(data)
    torch.manual_seed(6)
    again, same = trained(data)
    other, _ = trained(data, seed=1)
    assert losses == again and losses != other and len(losses) == 3
    assert all(torch.equal(weight, same[name]) for name, weight in weights.items())
    steps = []
    assert trained(data, on_step=steps.append)[0] == losses
    assert steps == [1, 2, 3, 4, 5, 6]


def test_training_learns(data):
    repeated = data[:20].repeat(20)
    model = make_flex(small(), seed=0)
    before = eval_bpc(model, repeated)
    train_flex(model, repeated, 60, batch_size=8)
    assert eval_bpc(model, repeated) < 0.5 * before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"steps": 0}, ["steps", "0"]),
        ({"batch_size": -1}, ["batch_size", "-1"]),
        ({"log_every": 0}, ["log_every", "0"]),
        ({"data": torch.zeros(WINDOW, dtype=torch.int64)}, [str(WINDOW), str(WINDOW + 1)]),
    ],
)
def test_training_refuses(data, options, words):
    with pytest.raises(ValueError) as caught:
        train_flex(make_flex(small(), seed=0), **({"data": data, "steps": 1} | options))
    assert all(word in str(caught.value) for word in words)


def test_training_refuses_a_context_below_its_window(data):
    with pytest.raises(ValueError, match=rf"{WINDOW}.*{WINDOW - 1}"):
        train_flex(make_flex(small(context=WINDOW - 1), seed=0), data, steps=1)


def test_the_shortest_data_has_one_window(data):
    assert len(train_flex(make_flex(small(), seed=0), data[: WINDOW + 1], steps=1, log_every=1)) == 1


# The ablation. Workers import `palm_modules` anew, so a folder in front of the path is what they see.

TWO = {name: VARIANTS[name] for name in ("baseline", "all")}


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """Put a changed copy of the solution in front of the path: `modules(old, new)`."""

    def change(old: str, new: str) -> None:
        assert old in SOLUTION
        (tmp_path / "palm_modules.py").write_text(SOLUTION.replace(old, new), encoding="utf-8")
        monkeypatch.syspath_prepend(str(tmp_path))

    return change


def figures(runs: list[ablation.Run]) -> list[tuple]:
    """All but the times."""
    return [(run.variant, run.seed, run.params, run.bits_per_char, run.losses) for run in runs]


def test_results_do_not_depend_on_the_number_of_processes():
    one, two = (run_ablation(TWO, seeds=(0, 1), steps=2, batch_size=4, workers=workers) for workers in (1, 2))
    here = [
        train_variant(ablation.Job(name, seed, FlexConfig(**choices), steps=2, batch_size=4, lr=3e-3))
        for name, choices in TWO.items()
        for seed in (0, 1)
    ]
    assert figures(one.runs) == figures(two.runs) == figures(here)
    assert one.unwritten == two.unwritten == {}
    assert all(run.seconds_per_step > 0 for run in two.runs)


def test_an_unwritten_exercise_costs_its_own_variants_only(modules):
    modules("    a, b = x.chunk(2, dim=-1)\n", "    raise NotImplementedError('rope is still to do')\n")
    variants = {name: VARIANTS[name] for name in ("rope", "baseline", "mqa", "all")}
    result = run_ablation(variants, seeds=(0,), steps=1, batch_size=2, workers=1)
    assert [run.variant for run in result.runs] == ["baseline", "mqa"]
    assert result.unwritten == {"rope": "rope is still to do", "all": "rope is still to do"}


def test_a_failing_variant_is_named_with_the_students_line(modules):
    line = "raise Oops('gate and up disagree')"
    modules(
        "    return self.down(F.silu",
        f"    class Oops(Exception): ...\n        {line}\n        return self.down(F.silu",
    )
    with pytest.raises(VariantError) as caught:
        run_ablation({"swiglu": VARIANTS["swiglu"]}, seeds=(7,), steps=1, batch_size=2)
    for part in ("swiglu", "seed 7", "Oops", "gate and up disagree", "palm_modules.py", "in forward", line):
        assert part in str(caught.value)


def test_a_worker_that_dies_is_reported_with_what_it_trained(modules):
    modules("    return self.down(F.silu", "    import os; os._exit(3)\n        return self.down(F.silu")
    with pytest.raises(VariantError, match=r"died.*swiglu \(seed 0\)"):
        run_ablation({"swiglu": VARIANTS["swiglu"]}, seeds=(0,), steps=1, batch_size=2)


@pytest.mark.parametrize(("options", "word"), [({"seeds": ()}, "seed"), ({"workers": 0}, "workers")])
def test_the_ablation_refuses(options, word):
    with pytest.raises(ValueError, match=word):
        run_ablation(TWO, steps=1, **options)


def test_the_surroundings_of_workers_are_taken_back(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    handler = signal.getsignal(signal.SIGINT)
    with ablation._worker_surroundings():
        assert os.environ["OMP_NUM_THREADS"] == "1" and "GLIBC_TUNABLES" in os.environ
    assert os.environ["OMP_NUM_THREADS"] == "3" and "GLIBC_TUNABLES" not in os.environ
    assert signal.getsignal(signal.SIGINT) is handler


@pytest.mark.skipif(os.name == "nt", reason="sends POSIX signals")
@pytest.mark.parametrize("end", ["ctrl-c", "killed"])
def test_no_worker_outlives_the_parent(tmp_path, end):
    """Each worker leaves a file named after its process id when it trains."""
    mark = f"    import os, pathlib; pathlib.Path({str(tmp_path)!r}, f'{{os.getpid()}}.pid').touch()\n"
    (tmp_path / "palm_modules.py").write_text(SOLUTION.replace("    a, b = x.chunk", mark + "    a, b = x.chunk"))
    script = tmp_path / "train.py"
    script.write_text(
        f"import sys\nsys.path[:0] = {[str(tmp_path), *sys.path]!r}\nimport ablation\n"
        "if __name__ == '__main__':\n"
        "    ablation.run_ablation({'rope': {'pos': 'rope'}}, steps=1_000_000, batch_size=2, workers=2)\n"
    )
    process = subprocess.Popen(
        [sys.executable, script],
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job is started deaf to Ctrl-C
    )
    try:
        deadline = time.monotonic() + 120
        while len(list(tmp_path.glob("*.pid"))) < 2:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        workers = [int(path.stem) for path in tmp_path.glob("*.pid")]
        if end == "ctrl-c":
            os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to every process in the foreground
        else:
            process.kill()
        _, errors = process.communicate(timeout=60)
        while any(alive(pid) for pid in workers):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        process.kill()
    assert errors.count("Traceback") == (end == "ctrl-c")  # the parent's own
    assert end == "killed" or "KeyboardInterrupt" in errors


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
