"""The program of lecture 10: its figures, its words in both languages, and what it does with unwritten exercises."""

from __future__ import annotations

import argparse
import itertools
import json
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from wcwidth import wcswidth

import ablation
import palm_architecture
from ablation import VARIANTS, Ablation, Run, VariantError
from exercises.program import Program
from train_lab import FlexConfig, count_params, make_flex

ROOT = Path(__file__).resolve().parents[1]
ENGLISH = re.compile(r"[A-Za-z]{2,}(?:[ ,]+[A-Za-z]{2,}){2,}")  # three words on end
CJK = re.compile("[\u3000-\u303f\u3400-\u9fff\uff00-\uffef]")
NAMES = list(VARIANTS)


def run_program(folder: Path, *options: str) -> tuple[int, str, dict]:
    """Exit code, stdout and figures."""
    figures = folder / "figures.json"
    command = [sys.executable, ROOT / "exercises" / "lecture10" / "palm_architecture.py", "--json", figures, *options]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=600, cwd=folder)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, json.loads(figures.read_text(encoding="utf-8"))


@pytest.fixture(scope="module", params=["en", "zh"])
def run(request, tmp_path_factory):
    return request.param, *run_program(
        tmp_path_factory.mktemp("run"), "--impl", "solutions", "--steps", "2", "--lang", request.param
    )


# Real runs


def test_figures(run):
    _, code, _, figures = run
    assert code == 0
    part = figures["ablation"]
    assert part["settings"] == {"steps": 2, "seeds": [0, 1], "batch_size": 32, "lr": 3e-3}
    assert list(part["variants"]) == NAMES and part["unwritten"] == {}
    base = part["variants"]["baseline"]
    for name, f in part["variants"].items():
        assert f["params"] == count_params(make_flex(FlexConfig(**VARIANTS[name]), seed=0))
        assert f["params_change_percent"] == pytest.approx(100 * (f["params"] - base["params"]) / base["params"])
        assert f["mean"] == pytest.approx(sum(f["bits_per_char"]) / 2)
        assert f["difference"] == pytest.approx(f["mean"] - base["mean"])
        assert f["spread"] == pytest.approx(abs(f["bits_per_char"][0] - f["bits_per_char"][1]))
    cache = figures["kv_cache"]
    assert cache["multi_head"]["bytes_per_token"] == 5_799_936
    assert cache["multi_query"]["bytes_per_token"] == 120_832
    assert cache["param_bytes"] == pytest.approx(2 * 540.35e9, rel=1e-4)
    assert cache["multi_head"]["break_even_tokens"] == pytest.approx(186_331, abs=1)
    assert cache["multi_head"]["cache_bytes"][1] == pytest.approx(760.2e9, rel=1e-3)
    assert all(count["closed_form"] == count["built"] for count in figures["parameters"].values())


def test_printed_figures(run):
    _, _, out, figures = run
    for name, f in figures["ablation"]["variants"].items():
        bits = [f"{value:.3f}" for value in (*f["bits_per_char"], f["mean"])]
        row = next(line for line in out.splitlines() if f"{f['params']:,}" in line and bits[0] in line)
        assert row.split()[-3 - (name != "baseline") :][:3] == bits
    for text in ("5.80 MB", "121 KB", "1.08 TB", "186,331", "760 GB", "0.703", "3.04 TB"):
        assert text in out
    assert "✗" not in out


def test_language(run):
    language, _, out, _ = run
    assert bool(CJK.search(out)) == (language == "zh")
    assert bool(ENGLISH.search(out)) == (language == "en")
    told = [line for line in out.splitlines() if line[:2] in ("• ", "! ")]
    assert len(told) == 14 and all(bool(CJK.search(line)) == (language == "zh") for line in told)


def test_columns_line_up(run):
    """Right-aligned last columns end where the rule under the headers ends, in terminal columns."""
    _, _, out, _ = run
    blocks = [list(block) for filled, block in itertools.groupby(out.splitlines(), bool) if filled]
    tables = [block for block in blocks if len(block) > 2 and set(block[1]) == {"─", " "}]
    assert len(tables) == 5
    for header, rule, *rows in tables:
        assert wcswidth(header) == wcswidth(rule) == max(wcswidth(row) for row in rows)
        assert sum(wcswidth(row) == wcswidth(rule) for row in rows) >= len(rows) - 1  # the baseline has no change
    timed = [line for line in out.splitlines() if line.startswith("⏱")]
    assert len({wcswidth(line[: line.index("×")]) for line in timed if "×" in line}) == 1


@pytest.mark.parametrize("run", ["en"], indirect=True)
def test_only_times_differ_between_runs(run, tmp_path):
    language, code, out, figures = run
    again = run_program(tmp_path, "--impl", "solutions", "--steps", "2", "--lang", language)
    assert (again[0], again[2]) == (code, figures)
    timeless = [[line for line in text.splitlines() if not line.startswith("⏱")] for text in (out, again[1])]
    assert timeless[0] == timeless[1]
    assert len(out.splitlines()) == len(again[1].splitlines()) == len(timeless[0]) + len(NAMES) + 1


def test_unwritten_exercises(tmp_path):
    """Without RoPE and without the cost formulas, whatever needs neither still runs."""
    folder = tmp_path / "mine" / "lecture10"
    shutil.copytree(ROOT / "solutions" / "lecture10", folder)
    modules = (folder / "palm_modules.py").read_text(encoding="utf-8")
    body = "    a, b = x.chunk(2, dim=-1)\n"
    assert body in modules
    modules = modules.replace(body, "    raise NotImplementedError('to do: rope')\n")
    (folder / "palm_modules.py").write_text(modules, encoding="utf-8")
    costs = (folder / "kv_cache_cost.py").read_text(encoding="utf-8")
    costs = re.sub(r"    return .*", "    raise NotImplementedError('to do: kv_cache_cost')", costs)
    (folder / "kv_cache_cost.py").write_text(costs, encoding="utf-8")
    code, out, figures = run_program(
        tmp_path, "--impl", str(folder.parent), "--steps", "1", "--seeds", "1", "--lang", "en"
    )
    assert code == 1
    assert list(figures["ablation"]["variants"]) == ["baseline", "swiglu", "parallel", "mqa", "no_bias"]
    assert figures["ablation"]["unwritten"] == {"rope": "to do: rope", "all": "to do: rope"}
    assert "kv_cache" not in figures and "parameters" not in figures
    assert "Left out: RoPE, all choices\n✗" in out and out.count("✗") == 3
    ending = out[out.index("Still to do") :].splitlines()
    assert len(ending) == 3 and "exercise rope" in ending[1] and "exercise kv_cache_cost" in ending[2]


@pytest.mark.parametrize("options", [["--steps", "0"], ["--seeds", "x"], ["--impl", "nowhere"]])
def test_bad_options(options, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["palm_architecture.py", *options])
    monkeypatch.setattr(sys, "path", sys.path[:])
    with pytest.raises(SystemExit) as caught:
        palm_architecture.main()
    assert caught.value.code == 2 and options[0] in capsys.readouterr().err


# Made-up results: each observation has to be true of them.


def observations(
    monkeypatch, capsys, bits: dict[str, list[float]], lang: str = "en"
) -> tuple[Program, dict, list[str]]:
    seeds = len(bits["baseline"])
    runs = [
        Run(name, seed, params=1000 - i, bits_per_char=value, losses=[], seconds_per_step=0.1)
        for i, (name, values) in enumerate(bits.items())
        for seed, value in enumerate(values)
    ]
    monkeypatch.setattr(ablation, "run_ablation", lambda *_, **__: Ablation(runs, {}))
    program = Program(argparse.Namespace(lang=lang, json=None, steps=400, seeds=seeds))
    figures = palm_architecture.part_1(program)
    return program, figures, [line for line in capsys.readouterr().out.splitlines() if line[:2] in ("• ", "! ")]


@pytest.mark.parametrize("seed", range(20))
def test_a_difference_counts_beyond_the_spread_only(monkeypatch, capsys, seed):
    draw = random.Random(seed)
    bits = {name: [draw.gauss(1.2, 0.1) for _ in range(3)] for name in NAMES}
    program, figures, lines = observations(monkeypatch, capsys, bits)

    def spread(name: str) -> float:
        return max(bits[name]) - min(bits[name])

    def mean(name: str) -> float:
        return sum(bits[name]) / 3

    assert len(lines) == len(NAMES) + 2 and not program.missing
    for name, line in zip(NAMES[1:], lines[1:]):
        difference = mean(name) - mean("baseline")
        counts = abs(difference) > max(spread(name), spread("baseline"))
        assert figures["variants"][name]["counts"] == counts == line.startswith("•")
        assert f"{palm_architecture.NAMES[name][0]}: {difference:+.3f}" in line
        assert ("better by more" in line) == (counts and difference < 0)
        assert ("worse by more" in line) == (counts and difference > 0)
        assert ("chance" in line) == (not counts)
    best = min(NAMES, key=mean)
    assert palm_architecture.NAMES[best][0] in lines[-2]
    assert ("isn't size" in lines[-2]) == (best != "baseline" and figures["variants"][best]["counts"])


@pytest.mark.parametrize(("together", "interact"), [([0.6, 0.62], True), ([0.49, 0.52], False)])
def test_whether_the_choices_add_up(monkeypatch, capsys, together, interact):
    """One by one the five choices change −0.1 each, so 1.0 becomes 0.5 where they add up."""
    bits = {name: [0.9, 0.9] for name in NAMES} | {"baseline": [1.0, 1.0], "all": together}
    _, _, lines = observations(monkeypatch, capsys, bits)
    assert ("They interact" in lines[-1]) == interact == lines[-1].startswith("•")
    assert "sum to -0.500" in lines[-1]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_one_seed_decides_nothing(monkeypatch, capsys, lang):
    _, figures, lines = observations(monkeypatch, capsys, {name: [1.0 - 0.1 * i] for i, name in enumerate(NAMES)}, lang)
    assert len(lines) == 2 and all(line.startswith("!") for line in lines)
    assert not any(f["counts"] for f in figures["variants"].values())


def test_a_failed_training_is_told(monkeypatch, capsys):
    def fail(*_, **__):
        raise VariantError("rope (seed 0) failed with TypeError: oops")

    monkeypatch.setattr(ablation, "run_ablation", fail)
    program = Program(argparse.Namespace(lang="en", json=None, steps=400, seeds=2))
    program.run("ablation", palm_architecture.part_1)
    assert program.finish() == 1
    assert capsys.readouterr().out.count("rope (seed 0) failed with TypeError: oops") == 2


def test_wrong_formulas_are_not_praised(monkeypatch, capsys):
    """Keys without values, and a break-even and a count that do not fit."""
    import kv_cache_cost as cost

    program = Program(argparse.Namespace(lang="en", json=None))
    per_rank, count = cost.kv_cache_bytes_per_token_per_rank, cost.flex_param_count
    monkeypatch.setattr(cost, "break_even_tokens", lambda *_: 1000)
    monkeypatch.setattr(cost, "kv_cache_bytes_per_token_per_rank", lambda *sizes: 2 * per_rank(*sizes[:4], 1))
    monkeypatch.setattr(cost, "kv_cache_bytes", lambda *_: 1e15)
    monkeypatch.setattr(cost, "flex_param_count", lambda config: count(config) + config.mqa)
    palm_architecture.part_2_cache(program)
    palm_architecture.part_2_parameters(program)
    out = capsys.readouterr().out
    assert [line[0] for line in out.splitlines() if line[:2] in ("• ", "! ")] == ["•", "!", "!", "!", "!"]
    assert "multi-query: 2048 × 1, 2048 × 64, 8192 × 64" in out
    assert "differs from the model as built for: multi-query, all choices." in out
