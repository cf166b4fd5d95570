"""`pytest tests/hidden` as a command: the report's form, the choice of an exercise, replay, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from exercises.manifest import load_manifest
from exercises.paths import ROOT
from grader.authoring import SOLUTIONS
from grader.marking import Marking
from grader.student import InProcessStudent, StudentRaised
from grader.trial import run_pytest

HIDDEN = str(ROOT / "tests" / "hidden")


def report_of(tmp_path, *options: str) -> dict:
    run_pytest([HIDDEN, "-m", "not train", "--report", str(tmp_path / "report.json"), *options])
    return json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))


def test_one_exercise_of_the_solutions(tmp_path):
    report = report_of(tmp_path, "--submission", str(SOLUTIONS), "--exercise", "rope")
    assert report["exercises"] == {"rope": {"points": 8, "max": 8, "messages": []}}
    assert (report["points"], report["max"]) == (8, 8)


def test_half_an_exercise_earns_about_half(tmp_path, submission):
    """rope_angles right, apply_rope unwritten."""
    source = (SOLUTIONS / "lecture10/palm_modules.py").read_text(encoding="utf-8")
    source = source.replace("    a, b = x.chunk(2, dim=-1)\n", '    raise NotImplementedError("to do: rope")\n')
    folder = submission({"lecture10/palm_modules.py": source})
    report = report_of(tmp_path, "--submission", str(folder), "--exercise", "rope")
    assert 2 < report["points"] < 6
    assert report["exercises"]["rope"]["messages"] == ["not written yet"]


def test_what_a_folder_lacks_is_unwritten(tmp_path):
    (tmp_path / "empty").mkdir()
    report = report_of(tmp_path, "--submission", str(tmp_path / "empty"))
    assert report["points"] == 0 and report["max"] == 100
    assert list(report["exercises"]) == [exercise.id for exercise in load_manifest()]
    assert all(entry["messages"] for entry in report["exercises"].values())


def test_messages_hold_no_text_of_an_exception_and_no_values(tmp_path, submission):
    source = (SOLUTIONS / "lecture09/comm_cost.py").read_text(encoding="utf-8")
    leak = "    raise RuntimeError(f'SECRET {tokens} {d_model}')\n"
    folder = submission(
        {
            "lecture09/comm_cost.py": source.replace(
                "    _check_counts(tokens=tokens, d_model=d_model, b",
                leak + "    _check_counts(tokens=tokens, d_model=d_model, b",
            )
        }
    )
    messages = report_of(tmp_path, "--submission", str(folder), "--exercise", "comm_cost")["exercises"]["comm_cost"][
        "messages"
    ]
    assert any(message.startswith("your code raised RuntimeError at comm_cost.py:") for message in messages)
    assert "SECRET" not in "".join(messages)


def test_a_seed_replays_the_inputs(tmp_path, submission):
    source = (SOLUTIONS / "lecture09/comm_cost.py").read_text(encoding="utf-8")
    wrong = source.replace(
        "return tokens * d_model * bytes_per_element", "return tokens * d_model * bytes_per_element + 1"
    )
    folder = submission({"lecture09/comm_cost.py": wrong})
    reports = [
        report_of(tmp_path, "--submission", str(folder), "--exercise", "comm_cost", "--seed", "7") for _ in range(2)
    ]
    assert reports[0] == reports[1] and reports[0]["seed"] == 7


def test_a_conftest_in_a_submission_is_not_run(tmp_path, submission):
    folder = submission()
    (folder / "conftest.py").write_text("raise SystemExit('the conftest of a submission ran')\n")
    report = report_of(tmp_path, "--submission", str(folder), "--exercise", "swiglu")
    assert report["points"] == 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "say which folder to grade"),
        (("--submission", "nowhere"), "say which folder to grade"),
        (("--submission", "solutions", "--exercise", "ropes"), "there is no exercise ropes; choose one of split_mlp"),
    ],
)
def test_misuse_is_explained(options, message):
    command = [sys.executable, "-m", "pytest", HIDDEN, *options]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert result.returncode == pytest.ExitCode.USAGE_ERROR
    assert message in result.stdout + result.stderr


def test_an_expected_test_that_never_ran_has_failed():
    marking = Marking("en")
    exercise = load_manifest()[0]
    marking.expect(exercise, "one", 1)
    marking.expect(exercise, "other", 3)
    marking.passed("one")
    assert marking.report()["exercises"][exercise.id]["points"] == exercise.points / 4


def test_students_do_not_share_modules():
    texts = [{"lecture09/comm_cost.py": f"def activation_bytes(*_):\n    return {n}\n"} for n in (1, 2)]
    students = [InProcessStudent(text) for text in texts]
    for _ in range(2):
        assert [s.ask("call", "comm_cost", "activation_bytes", 1, 1) for s in students] == [1, 2]
    with pytest.raises(StudentRaised, match="NotImplementedError"):
        students[0].ask("call", "palm_modules", "swiglu_hidden", 64)
