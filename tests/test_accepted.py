"""Right answers in odd styles (tests/accepted/): the hidden tests give each of them full points and say nothing.

A folder holds the student files that an answer changes, without what a file is given (`wrong_mlp_forward`); all others
are the solutions. Files count byte by byte, so line ends, byte-order marks and encodings are part of an answer.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import shutil
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.distributed.tensor.debug  # slow to import: here once, or in every forked child

from collectives import recorded_all_reduces
from exercises import samples
from exercises.manifest import Exercise, load_manifest, student_files
from grader.misconceptions import write_submission
from grader.trial import run_pytest

TESTS = Path(__file__).resolve().parent
HIDDEN = TESTS / "hidden"
ACCEPTED = TESTS / "accepted"
NAMES = sorted(folder.name for folder in ACCEPTED.iterdir() if folder.is_dir())


def files_of(name: str) -> list[str]:
    """The student files that an answer changes."""
    return [file for file in student_files() if (ACCEPTED / name / file).is_file()]


def exercises_of(name: str) -> list[Exercise]:
    """The exercises that an answer has a say in and that have hidden tests."""
    return [e for e in load_manifest() if e.file in files_of(name) and (HIDDEN / e.hidden).is_file()]


def load(name: str, file: str) -> ModuleType:
    """A module of an answer, under a name of its own."""
    spec = importlib.util.spec_from_file_location(f"accepted_{name}", ACCEPTED / name / file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", NAMES)
def test_full_points_and_no_message(name, tmp_path):
    submission, report = write_submission(tmp_path / "submission", {}), tmp_path / "report.json"
    for file in files_of(name):
        shutil.copyfile(ACCEPTED / name / file, submission / file)
    tests = [str(HIDDEN / exercise.hidden) for exercise in exercises_of(name)]
    outcomes = run_pytest([*tests, "--submission", str(submission), "-m", "not train", "--report", str(report)])
    assert {outcome.nodeid: outcome.message for outcome in outcomes if outcome.state != "passed"} == {}
    exercises = json.loads(report.read_text(encoding="utf-8"))["exercises"]
    assert list(exercises) == [exercise.id for exercise in exercises_of(name)]
    for entry in exercises.values():
        assert entry["points"] == entry["max"] > 0 and entry["messages"] == []


def test_every_exercise_has_several():
    counts = {e.id: sum(e in exercises_of(name) for name in NAMES) for e in load_manifest()}
    assert all(count >= 5 for id_, count in counts.items() if id_ != "ablation"), counts
    assert len(NAMES) >= 40


def test_each_says_what_is_odd():
    for name in NAMES:
        files = [path.relative_to(ACCEPTED / name).as_posix() for path in (ACCEPTED / name).rglob("*.py")]
        assert files and set(files) == set(files_of(name))
        for file in files:
            docstring = ast.get_docstring(ast.parse((ACCEPTED / name / file).read_bytes()))
            assert docstring and "\n\n" not in docstring, (name, file)


# What the answers stand for is in them: each of these would otherwise pass for want of a case.


def test_callable_instances_and_star_args():
    module = load("callables_of_every_kind", "lecture09/dist_sim.py")
    assert not any(map(inspect.isfunction, (module.split_mlp, module.tp_attention_forward, module.tp_model_forward)))
    assert [p.kind for p in inspect.signature(module.tp_mlp_forward).parameters.values()] == [
        inspect.Parameter.VAR_POSITIONAL
    ]


def test_persistent_buffers():
    module = load("tables_in_persistent_buffers", "lecture10/palm_modules.py").MultiQueryAttention(8, 2, True, True)
    assert {"cos", "sin", "future"} <= set(module.state_dict()) - set(dict(module.named_parameters()))
    kept = load("tables_grown_on_demand", "lecture10/palm_modules.py").MultiQueryAttention(8, 2, True, True)
    assert "tables" in dict(kept.named_buffers()) and "tables" not in kept.state_dict()


def test_another_creation_order():
    names = [name for name, _ in load("own_linear_class", "lecture10/palm_modules.py").SwiGLU(4, 6).named_parameters()]
    assert names == ["down.bias", "down.weight", "up.bias", "up.weight", "gate.bias", "gate.weight"]


def test_a_norm_applied_twice():
    module = load("norm_applied_twice", "lecture10/palm_modules.py")
    block = module.ParallelBlock(4, torch.nn.Identity(), torch.nn.Identity())
    calls: list[int] = []
    block.ln.register_forward_hook(lambda *_: calls.append(1))
    block(torch.ones(1, 2, 4))
    assert len(calls) == 2


def test_float64_partials_in_a_float32_model():
    module = load("float64_partials", "lecture09/dist_sim.py")
    mlp, x = samples.mlp(6, 8, seed=1).float(), samples.uniform(1, 3, 6, seed=2, dtype=torch.float32)
    with recorded_all_reduces() as recording:
        out = module.tp_mlp_forward(x, *module.split_mlp(mlp, 2))
    assert [part.dtype for part in recording[0]] == [torch.float64] * 2 and out.dtype == torch.float32


def test_student_files_that_import_each_other():
    student_modules = {Path(file).stem for file in student_files()}
    importing = set()
    for name in NAMES:
        for file in files_of(name):
            tree = ast.parse((ACCEPTED / name / file).read_bytes())
            imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
            importing |= {(Path(file).stem, other) for other in imported & student_modules}
    assert {("dist_sim", "comm_cost"), ("kv_cache_cost", "palm_modules")} <= importing


AT_IMPORT = {"draws_numbers_at_import": "lecture09/tp_autograd.py", "self_test_at_import": "lecture10/palm_modules.py"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", AT_IMPORT)
def test_text_on_stderr_and_random_numbers_at_import(name, capfd):
    before = torch.get_rng_state()
    load(name, AT_IMPORT[name])
    assert capfd.readouterr().err and not before.equal(torch.get_rng_state())


def test_errors_are_subclasses():
    module = load("own_error_and_decorators", "lecture09/dist_sim.py")
    with pytest.raises(ValueError, match=r"5.*8") as raised:
        module.split_mlp(samples.mlp(4, 8, seed=1), 5)
    assert raised.type is not ValueError


def test_bytes_as_an_editor_left_them():
    """A formatter or git's conversion of line ends would make ordinary files of these."""
    crlf = (ACCEPTED / "windows_line_ends/lecture09/dist_sim.py").read_bytes()
    assert crlf.count(b"\n") == crlf.count(b"\r\n") > 20 and not crlf.endswith(b"\n")
    assert (ACCEPTED / "chinese_names/lecture09/dist_sim.py").read_bytes().startswith(b"\xef\xbb\xbf")
    with pytest.raises(UnicodeDecodeError):
        (ACCEPTED / "latin1_file/lecture09/comm_cost.py").read_text(encoding="utf-8")
