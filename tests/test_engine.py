"""The engine on submissions of good will: the right points, the same points again, and no zero for our own trouble."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from exercises.manifest import load_manifest
from exercises.paths import ROOT
from grader import engine as engine_module
from grader import judge
from grader.authoring import SOLUTIONS
from grader.engine import Engine, NoTier
from grader.misconceptions import load_misconceptions, write_submission
from grader.results import SCHEMA, SubmissionResult, schema, with_changes_noted, write_json
from grader.trial import run_pytest

KNOWN = {misconception.name: misconception for misconception in load_misconceptions()}
FUNCTIONAL = [exercise.id for exercise in load_manifest() if exercise.id != "ablation"]


def by_id(result: SubmissionResult) -> dict:
    return {exercise.id: exercise for exercise in result.exercises}


@pytest.fixture
def wrong(tmp_path):
    """Lay out a submission with known mistakes in it."""

    def lay_out(*names: str):
        return write_submission(tmp_path / "wrong", {KNOWN[name].file: KNOWN[name].patched() for name in names})

    return lay_out


def test_the_solutions_get_full_marks_every_time(engine):
    results = list(engine.grade_all([SOLUTIONS] * 3, FUNCTIONAL))
    for result in results:
        assert (result.status, result.points, result.max) == ("graded", 94, 94)
        assert all(exercise.status == "ok" and not exercise.messages for exercise in result.exercises)
    assert len({result.seed for result in results}) == 3


def test_the_ablation_is_trained(engine):
    (ablation,) = engine.grade(SOLUTIONS, ["ablation"]).exercises
    assert (ablation.status, ablation.points) == ("ok", 6) and ablation.cpu_seconds > 2


def test_stubs_are_not_started(engine):
    result = engine.grade(ROOT / "exercises")
    assert result.points == 0 and {e.status for e in result.exercises} == {"not_started"}


def test_the_same_points_and_messages_as_in_process(engine, wrong, tmp_path):
    folder = wrong(
        "tp_mlp_forward/gelu_forgotten", "rope/interleaved_pairs", "kv_cache_cost/" + _first("kv_cache_cost")
    )
    ids = ["tp_mlp_forward", "tp_model_forward", "rope", "multi_query_attention", "kv_cache_cost"]
    options = [part for exercise in ids for part in ("--exercise", exercise)]
    report = tmp_path / "report.json"
    run_pytest([str(judge.HIDDEN), "--submission", str(folder), "--seed", "5", "--report", str(report), *options])
    with Engine(seed=5) as again:
        result = again.grade(folder, ids)
    expected = json.loads(report.read_text(encoding="utf-8"))["exercises"]
    actual = {e.id: {"points": e.points, "max": e.max, "messages": e.messages} for e in result.exercises}
    assert actual == expected and result.seed == 5
    assert by_id(result)["tp_mlp_forward"].status == "failed"


def _first(exercise: str) -> str:
    return next(m.id for m in KNOWN.values() if m.exercise == exercise)


def test_a_syntax_error_costs_its_file_only(engine, submission):
    source = (
        (SOLUTIONS / "lecture09/dist_sim.py").read_text(encoding="utf-8").replace("def split_mlp(", "def split_mlp(:")
    )
    exercises = by_id(engine.grade(submission({"lecture09/dist_sim.py": source}), ["split_mlp", "swiglu"]))
    assert exercises["split_mlp"].status == "ungradable" and exercises["swiglu"].status == "ok"
    (message,) = exercises["split_mlp"].messages
    assert message.startswith("lecture09/dist_sim.py can't be graded: line ")


def test_a_syntax_error_in_a_file_that_another_exercise_uses(engine, submission):
    source = (SOLUTIONS / "lecture10/palm_modules.py").read_text(encoding="utf-8") + "def\n"
    exercises = by_id(engine.grade(submission({"lecture10/palm_modules.py": source}), ["kv_cache_cost"]))
    result = exercises["kv_cache_cost"]
    assert result.status == "failed" and result.points > 0
    assert result.messages == ["a file that this exercise uses can't be read: SyntaxError"]


def test_a_parser_that_dies_costs_its_file_only(engine, submission):
    exercises = by_id(
        engine.grade(submission({"lecture09/dist_sim.py": "x = " + "-" * 240_000 + "1\n"}), ["split_mlp", "swiglu"])
    )
    assert exercises["split_mlp"].status == "ungradable" and exercises["swiglu"].status == "ok"
    assert "nested too deeply" in exercises["split_mlp"].messages[0]


def test_what_cannot_be_read_is_ungradable(engine, tmp_path):
    (tmp_path / "homework.zip").write_bytes(b"PK\x03\x04")
    result = engine.grade(tmp_path / "homework.zip")
    assert result.status == "ungradable" and result.points == 0 and "damaged" in result.reason
    assert {e.status for e in result.exercises} == {"ungradable"} and len(result.exercises) == 12


def test_in_chinese(tmp_path, submission):
    (tmp_path / "homework.zip").write_bytes(b"PK\x03\x04")
    nested = submission({"lecture09/dist_sim.py": "x = " + "-" * 240_000 + "1\n"})
    with Engine(language="zh") as engine:
        refused = engine.grade(tmp_path / "homework.zip")
        (result,) = engine.grade(nested, ["split_mlp"]).exercises
    assert refused.reason == "压缩包已损坏或没有完整上传；请重新打包"
    assert result.messages == ["lecture09/dist_sim.py 无法评分：嵌套太深"]


def test_a_server_that_is_killed_is_no_zero(engine):
    server = engine._server
    killer = threading.Timer(0.5, server.kill)
    killer.start()
    result = engine.grade(SOLUTIONS, FUNCTIONAL)
    killer.join()
    assert result.status == "error" and result.points is None and result.reason
    assert engine.grade(SOLUTIONS, ["split_mlp"]).points == 8, "the next one gets a new server"


@pytest.mark.parametrize("way", ["killed", "raises"])
def test_a_judge_that_fails_is_no_zero(engine, monkeypatch, way):
    def fail(*_):
        if way == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(engine_module.judge, "judge", fail)
    result = engine.grade(SOLUTIONS, ["split_mlp"])
    assert result.status == "error" and result.points is None and result.exercises == []


def test_nothing_is_left_when_it_ends():
    with Engine(workers=1) as own:
        pid = own._server.pid
        own.grade(SOLUTIONS, ["split_mlp"])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    deadline = time.monotonic() + 5
    while "grader.solver.server" in _commands_below(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert "grader.solver.server" not in _commands_below(pid)


def _commands_below(session: int) -> str:
    return subprocess.run(["ps", "-s", str(session), "-o", "args="], capture_output=True, text=True).stdout


def test_limits_alone_need_trust():
    with pytest.raises(NoTier, match="--trust"), Engine(tier="limits"):
        pass


def test_the_schema_is_the_one_in_the_repository():
    assert SCHEMA.read_text(encoding="utf-8") == schema(), "run make author"


def test_results_are_written_whole_or_not_at_all(engine, tmp_path):
    file = tmp_path / "results.json"
    file.write_text("old")
    with pytest.raises(AttributeError):
        write_json([None], file)
    assert file.read_text() == "old" and os.listdir(tmp_path) == ["results.json"]
    results = [engine.grade(SOLUTIONS, ["split_mlp"])]
    write_json(results, file)
    (entry,) = json.loads(file.read_text())
    assert SubmissionResult(**entry) == results[0]
    assert {"submission", "status", "points", "max", "tier", "exercises"} <= entry.keys()
    assert {"id", "status", "points", "max", "messages"} <= entry["exercises"][0].keys()


def test_points_that_changed_are_flagged(engine, tmp_path):
    result = engine.grade(SOLUTIONS, ["split_mlp"])
    write_json([result.model_copy(update={"points": 7.0, "seed": 3})], tmp_path / "r.json")
    (noted,) = with_changes_noted([result], tmp_path / "r.json")
    assert noted.notes == ["not steady: the same files got 7 points in an earlier run (seed 3)"]
    write_json([result], tmp_path / "r.json")
    assert with_changes_noted([result], tmp_path / "r.json") == [result]


def test_the_command(tmp_path):
    """One right and one broken submission: both in the file and on the board, and the exit code says so."""
    (tmp_path / "cut.zip").write_bytes(b"PK\x03\x04")
    command = [
        sys.executable,
        "-m",
        "grader",
        "grade",
        str(SOLUTIONS),
        str(tmp_path / "cut.zip"),
        "--exercise",
        "swiglu",
    ]
    done = subprocess.run([*command, "--json", str(tmp_path / "r.json")], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    good, bad = json.loads((tmp_path / "r.json").read_text())
    assert (good["submission"], good["status"], good["points"], good["max"]) == (str(SOLUTIONS), "graded", 6, 6)
    assert (bad["status"], bad["points"]) == ("ungradable", 0)
    assert "cut.zip: ungradable" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "there is nothing at nowhere"),
        (["solutions", "--exercise", "ropes"], "there is no exercise ropes"),
        (["solutions", "--json", "no/such/folder.json"], "there is no folder"),
        ([], "PATH"),
    ],
)
def test_misuse_is_2(arguments, message):
    done = subprocess.run(
        [sys.executable, "-m", "grader", "grade", *arguments], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2 and message in done.stderr


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            "        return _summed_over(grad, ctx.group), None\n",
            "        return grad if dist.get_rank() else _summed_over(grad, ctx.group), None\n",
            "never called all-reduce in backward",
        ),
        (
            "    dist.all_reduce(total, group=group)\n",
            "    dist.all_reduce(total, group=group) if dist.get_rank() else dist.all_reduce(total, op=dist.ReduceOp.MAX, group=group)\n",
            "don't match",
        ),
    ],
)
def test_ranks_that_never_meet_are_told_so(engine, submission, old, new, sentence):
    source = (SOLUTIONS / "lecture09/tp_autograd.py").read_text(encoding="utf-8")
    assert old in source
    (result,) = engine.grade(
        submission({"lecture09/tp_autograd.py": source.replace(old, new)}), ["tp_autograd"]
    ).exercises
    assert result.status == "failed" and any(sentence in message for message in result.messages), result.messages


@pytest.mark.parametrize(
    "text",
    [
        "rank 1 never called 0.123456 in forward (rank 0 waits there)",
        "<b>rank 1</b>",
        7,
        None,
        "rank 0 never called all-reduce in forward (rank 1 waits there)\n0.5",
    ],
)
def test_any_other_sentence_is_not_passed_on(text):
    assert judge._sentence(text) == ""
