"""The lecture's program on tensor parallelism: its figures, both languages, and unwritten exercises."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from wcwidth import wcswidth

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "exercises" / "lecture09" / "tensor_parallel.py"
CJK = re.compile(r"[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]")
ENGLISH = re.compile(r"[A-Za-z]{2,}(?:[ ,]+[A-Za-z]{2,}){2,}")  # three words on end
PARTS = {"mlp", "attention", "model", "mlp_gradients", "attention_gradients", "real_ranks", "communication"}


def run(*options) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, PROGRAM, *map(str, options)], capture_output=True, encoding="utf-8", timeout=300, cwd=ROOT
    )


@pytest.fixture(scope="module")
def english(tmp_path_factory):
    file = tmp_path_factory.mktemp("program") / "figures.json"
    done = run("--impl", "solutions", "--lang", "en", "--json", file)
    assert done.returncode == 0, done.stdout + done.stderr
    return done, json.loads(file.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def chinese():
    done = run("--impl", "solutions", "--lang", "zh")
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_parts(english):
    done, figures = english
    assert set(figures) == PARTS
    assert "Warning" not in done.stderr
    assert not re.search(r"^[!✗]", done.stdout, re.MULTILINE)  # every observation holds
    assert done.stdout.count("• ") >= 15


def test_mlp(english):
    mlp = english[1]["mlp"]
    assert set(mlp["ranks"]) == {"2", "4", "8"}
    for row in mlp["ranks"].values():
        assert row["megatron"] <= 1e-13 * mlp["output_size"]
        assert 0.05 < row["wrong"] / mlp["output_size"] < 5
        assert row["all_reduces"] == 1


def test_attention(english):
    attention = english[1]["attention"]
    assert set(attention["ranks"]) == {"1", "2", "4"}
    for row in attention["ranks"].values():
        assert row["difference"] <= 1e-13 * attention["output_size"]
        assert row["all_reduces"] == 1


def test_model(english):
    model = english[1]["model"]
    assert 0 < model["one_device"] < 7
    assert set(model["ranks"]) == {"1", "2", "4"}
    for row in model["ranks"].values():
        assert row["bits_per_char"] == pytest.approx(model["one_device"], abs=1e-5)
        assert row["difference"] == row["bits_per_char"] - model["one_device"]
        assert row["all_reduces"] == 4


def test_gradients(english):
    figures = english[1]
    assert set(figures["mlp_gradients"]) == {"x", "W1", "b1", "W2", "b2"}
    assert {"x", "q_proj.weight", "out_proj.bias"} <= set(figures["attention_gradients"])
    for name in ("mlp_gradients", "attention_gradients"):
        scale = max(row["size"] for row in figures[name].values())
        for row in figures[name].values():
            assert set(row["ranks"]) == {"2", "4"}
            assert max(row["ranks"].values()) <= 1e-13 * scale


def test_real_ranks(english):
    figures = english[1]["real_ranks"]
    assert figures["all_reduces"] == {
        "with_f": {"forward": 4, "backward": 4},
        "without_f": {"forward": 4, "backward": 0},
    }
    errors = figures["gradient_errors"]
    assert max(errors["with_f"].values()) < 1e-13
    right = {group for group, error in errors["without_f"].items() if error < 1e-13}
    assert right == {"ln_f", "blocks.1.mlp"} and len(errors["without_f"]) == 11
    for loss in figures["losses"].values():
        assert loss == pytest.approx(figures["one_device_loss"], rel=1e-13)


def test_communication(english):
    ranks = english[1]["communication"]["ranks"]
    assert set(ranks) == {"2", "4", "8"}
    assert ranks["8"] == pytest.approx(
        {
            "bytes_per_rank": 352e6,
            "compute_seconds": 17.84e-3,
            "inside_seconds": 1.174e-3,
            "inside_ratio": 0.0658,
            "across_seconds": 56.4e-3,
            "across_ratio": 3.16,
        },
        rel=2e-3,
    )


def test_languages_do_not_mix(english, chinese):
    assert not CJK.search(english[0].stdout)
    assert CJK.search(chinese.stdout) and not ENGLISH.search(chinese.stdout)
    assert chinese.stdout.count("• ") == english[0].stdout.count("• ")


def test_tables_line_up(english, chinese):
    for text in (english[0].stdout, chinese.stdout):
        tables = [block for block in text.split("\n\n") if re.search("─  ─", block)]
        assert len(tables) == 7
        for block in tables:
            lines = block.splitlines()
            rule = next(i for i, line in enumerate(lines) if re.fullmatch("[─ ]+", line) and "─  ─" in line)
            assert {wcswidth(line) for line in lines[rule - 1 :]} == {wcswidth(lines[rule])}, block


@pytest.mark.parametrize(
    ("stubs", "exercises", "parts"),
    [
        (
            {"dist_sim.py": ["tp_attention_forward"], "tp_autograd.py": ["f"]},
            ["tp_attention_forward", "tp_autograd"],
            {"mlp", "mlp_gradients", "communication"},
        ),
        (
            {"dist_sim.py": ["split_mlp"], "comm_cost.py": ["layer_compute_seconds"]},
            ["split_mlp", "comm_cost"],
            {"attention", "attention_gradients", "real_ranks"},
        ),
    ],
)
def test_unwritten_exercises(tmp_path, stubs, exercises, parts):
    folder = tmp_path / "impl" / "lecture09"
    shutil.copytree(ROOT / "solutions" / "lecture09", folder)
    for name, functions in stubs.items():
        ids = {"f": "tp_autograd", "layer_compute_seconds": "comm_cost"}
        with (folder / name).open("a", encoding="utf-8") as file:
            for function in functions:
                message = f"to do: {ids.get(function, function)}"
                file.write(f"\n\ndef {function}(*args):\n    raise NotImplementedError({message!r})\n")
    done = run("--impl", folder.parent, "--lang", "en", "--json", tmp_path / "figures.json")
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    summary = done.stdout.rsplit("\n\n", 1)[-1]
    assert all(exercise in summary for exercise in exercises)
    assert set(json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))) == parts
