"""What a student sees of `pytest exercises/`."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from exercises.manifest import load_manifest
from exercises.paths import ROOT
from grader.authoring import SOLUTIONS, stubs
from grader.misconceptions import load_misconceptions
from grader.trial import forget_student_modules

IDS = [exercise.id for exercise in load_manifest()]


def _main(arguments: list[str], out: str) -> None:
    forget_student_modules()
    with open(out, "w", encoding="utf-8") as file:
        sys.stdout = sys.stderr = file
        code = pytest.main(["-p", "no:cacheprovider", *arguments])
    os._exit(code)


@pytest.fixture
def board(tmp_path, monkeypatch):
    """Run `pytest exercises/ …` in a fork of this process; exit code and all that it prints."""
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("PYTEST_CURRENT_TEST", raising=False)

    def run(*arguments: str, lang: str = "en") -> tuple[int, str]:
        out = tmp_path / "out.txt"
        command = [*arguments] if any(a.startswith("exercises/") for a in arguments) else ["exercises/", *arguments]
        process = multiprocessing.get_context("fork").Process(target=_main, args=([*command, "--lang", lang], str(out)))
        process.start()
        process.join()
        return process.exitcode or 0, out.read_text(encoding="utf-8")

    return run


@pytest.fixture
def unwritten(submission):
    return str(submission(stubs()))


def wrong(exercise: str, misconception: str) -> dict[str, str]:
    found = next(m for m in load_misconceptions() if m.name == f"{exercise}/{misconception}")
    return {found.file: found.patched()}


def test_untouched_stubs_are_to_do(board, unwritten):
    code, text = board("--impl", unwritten)
    assert code == 1
    assert "Traceback" not in text and "NotImplementedError" not in text and "FAILURES" not in text
    rows = re.findall(r"^ · +\d+ (\w+) .* 0/\d+ +to do$", text, re.MULTILINE)
    assert rows == IDS
    assert "Next: split_mlp (Cut the MLP)" in text
    assert "hint 1 of 3" in text and "hint 2 of 3" not in text
    assert "0 of 100 points" in text


def test_more_hints(board, unwritten):
    _, text = board("--impl", unwritten, "--hint", "2", "-k", "split_mlp")
    assert "hint 2 of 3" in text and "hint 3 of 3" not in text


def test_solutions_pass(board):
    code, text = board("--impl", "solutions")
    assert code == 0
    assert "All public tests passed" in text and "all tests passed" not in text.lower()
    assert "testing solutions/lecture09/dist_sim.py" in text
    assert [int(n) for n in re.findall(r"^ ✓ +(\d+) ", text, re.MULTILINE)] == list(range(1, len(IDS) + 1))


def test_in_chinese(board, unwritten):
    _, text = board("--impl", unwritten, "-k", "split_mlp", lang="zh")
    assert "待完成" in text and "下一步：split_mlp（切分 MLP）" in text and "提示 1/3" in text


def test_a_wrong_answer_is_named(board, submission):
    folder = submission(wrong("tp_mlp_forward", "bias_on_every_rank"))
    code, text = board("exercises/lecture09/test_tp_mlp_forward.py", "--impl", str(folder))
    assert code == 1
    assert "called   tp_mlp_forward(x, shards, b2, counter), x (2, 5, 6) float64, t = 2" in text
    assert re.search(r"found    the output is off by up to [\d.e-]+ of the reference's largest value, most at \[", text)
    assert text.count("this is what you get when: every rank adds the output bias") >= 2
    assert re.search(r"✗ +2 tp_mlp_forward .* \d\.\d/10 +\d of 6 checks\n +the output is off by", text)
    assert "mend tp_mlp_forward in" in text
    assert "Traceback" not in text


def test_a_syntax_error_costs_its_own_file_only(board, submission):
    folder = submission({"lecture09/dist_sim.py": "def split_mlp(mlp, t)\n    pass\n"})
    code, text = board("exercises/lecture09", "--impl", str(folder))
    assert code == 1
    assert "can't be imported: SyntaxError" in text and "dist_sim.py:1" in text
    assert re.search(r"✓ +5 tp_autograd", text) and re.search(r"✓ +6 comm_cost", text)


def test_an_exception_names_the_students_line(board, submission):
    source = (SOLUTIONS / "lecture09/comm_cost.py").read_text()
    source = source.replace("    return tokens * d_model * bytes_per_element", "    return tokens * width")
    folder = submission({"lecture09/comm_cost.py": source})
    _, text = board("exercises/lecture09/test_comm_cost.py", "--impl", str(folder))
    assert re.search(r"NameError at \S*comm_cost.py:\d+: name 'width' is not defined", text)


def test_ordinary_pytest_use(board, unwritten, tmp_path):
    code, text = board("--impl", unwritten, "-x")
    assert code == 1 and "not run" in text
    code, text = board("--impl", "solutions", "-k", "swiglu and output", "--junitxml", str(tmp_path / "junit.xml"))
    assert code == 0 and "not run" in text and re.search(r"✓|○", text)
    assert ElementTree.parse(tmp_path / "junit.xml").getroot()[0].get("failures") == "0"
    code, text = board("--impl", "nowhere")
    assert code == pytest.ExitCode.USAGE_ERROR and "--impl takes a folder" in text


def test_junit_of_stubs_has_failures(board, unwritten, tmp_path):
    board("--impl", unwritten, "-k", "swiglu", "--junitxml", str(tmp_path / "junit.xml"))
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()[0]
    assert int(suite.get("failures")) == int(suite.get("tests")) > 0


@pytest.fixture
def kit(tmp_path):
    """All that a student receives, alone in a folder, with the solutions written in and a time limit of 1 s."""
    for name in ("lecture01", "exercises"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", ".cache"))
    manifest = tmp_path / "exercises" / "manifest.toml"
    manifest.write_text(
        re.sub(r"time_limit = \d+", "time_limit = 2", manifest.read_text(encoding="utf-8")), encoding="utf-8"
    )
    for file in SOLUTIONS.glob("lecture*/*.py"):
        shutil.copy(file, tmp_path / "exercises" / file.parent.name)
    return tmp_path


def run_alone(kit: Path, *arguments: str) -> subprocess.CompletedProcess:
    paths = [] if any(argument.startswith("exercises/") for argument in arguments) else ["exercises/"]
    command = [sys.executable, "-m", "pytest", *paths, "--lang", "en", *arguments]
    return subprocess.run(command, cwd=kit, capture_output=True, text=True, encoding="utf-8", timeout=120)


def endless(kit: Path) -> None:
    file = kit / "exercises" / "lecture09" / "dist_sim.py"
    text = file.read_text(encoding="utf-8")
    file.write_text(
        text.replace("    first, second = mlp[0], mlp[2]\n    hidden", "    while True:\n        pass\n    hidden", 1)
    )


def test_the_students_kit_stands_alone(kit):
    """NumPy is in no student's install."""
    (kit / "numpy.py").write_text("raise ModuleNotFoundError('no NumPy here')\n")
    result = run_alone(kit)
    assert result.returncode == 0, result.stdout
    assert "All public tests passed" in result.stdout


def test_spread_over_processes(kit):
    result = run_alone(kit, "-n", "2", "exercises/lecture10/test_rope.py")
    assert result.returncode == 0 and re.search(r"✓ +8 rope .* 8/8", result.stdout), result.stdout


def test_an_endless_loop_costs_its_own_exercise_only(kit):
    endless(kit)
    result = run_alone(kit)
    assert result.returncode == 1
    assert "split_mlp took longer than 2 s and was stopped" in result.stdout
    assert re.search(r"✗ +1 split_mlp .* 0/8 +0 of 10 checks, 9 not run", result.stdout)
    assert re.search(r"✓ +2 tp_mlp_forward", result.stdout) and re.search(r"✓ +12 ablation", result.stdout)


def test_an_endless_loop_where_only_the_process_can_be_ended(kit):
    """As on Windows, where pytest-timeout has no signal to interrupt a test with."""
    endless(kit)
    result = run_alone(kit, "--timeout-method", "thread")
    assert result.returncode == 1
    assert "split_mlp took longer than 2 s and was stopped" in result.stdout
    assert "The run ended in split_mlp. Not reached: split_mlp, tp_mlp_forward" in result.stdout
