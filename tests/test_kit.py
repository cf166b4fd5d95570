"""The lint of the kit: manifest, stubs, solutions, tests and files belong together."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re

import pytest

from exercises.diagnosis import FINGERPRINTS
from exercises.manifest import load_manifest, student_files
from exercises.paths import EXERCISES, ROOT
from grader.authoring import SOLUTIONS, AuthoringError, stub_of, stubs
from grader.misconceptions import FOLDER as MISCONCEPTIONS
from grader.misconceptions import load_misconceptions
from grader.trial import run_pytest

MANIFEST = load_manifest()
HIDDEN = ROOT / "tests" / "hidden"

# The contract's names, argument order and defaults.
SIGNATURES = {
    "console": {"pad": "(value, width, align='<')", "print_header": "(title)"},
    "fm_world": {"build_world": "(seed=0)"},
    "tiny_gpt": {
        "CharTokenizer": "(alphabet)",
        "TinyGPT": "(vocab_size, d_model=64, n_heads=4, n_layers=2, d_ff=256, context=128)",
        "load_or_train_base_model": "(world, tok)",
        "bits_per_char": "(model, data, T=96)",
    },
    "collectives": {"all_reduce": "(parts, counter=None)"},
    "dist_sim": {
        "split_mlp": "(mlp, t)",
        "tp_mlp_forward": "(x, shards, b2, counter=None)",
        "wrong_mlp_forward": "(x, mlp, t)",
        "tp_attention_forward": "(attn, x, t, counter=None)",
        "tp_model_forward": "(model, idx, t, counter=None)",
    },
    "tp_autograd": {"f": "(x, group)", "g": "(x, group)"},
    "comm_cost": {
        "activation_bytes": "(tokens, d_model, bytes_per_element=2)",
        "ring_all_reduce_bytes_per_rank": "(message_bytes, t)",
        "tp_layer_bytes_per_rank": "(tokens, d_model, t, bytes_per_element=2)",
        "layer_matmul_flops": "(tokens, d_model, backward=True)",
        "layer_compute_seconds": "(tokens, d_model, t, peak_flops, utilization=0.5)",
        "layer_comm_seconds": "(tokens, d_model, t, bandwidth, bytes_per_element=2)",
        "comm_to_compute": "(tokens, d_model, t, peak_flops, bandwidth, utilization=0.5, bytes_per_element=2)",
    },
    "palm_modules": {
        "swiglu_hidden": "(d_model)",
        "SwiGLU": "(d_model, hidden, bias=True)",
        "rope_angles": "(head_dim, positions, theta=10000.0)",
        "apply_rope": "(x, cos, sin)",
        "MultiQueryAttention": "(d_model, n_heads, bias=True, rope=False)",
        "ParallelBlock": "(d_model, attn, mlp, bias=True)",
    },
    "train_lab": {
        "make_flex": "(config, seed)",
        "count_params": "(model)",
        "eval_bpc": "(model, data)",
        "train_flex": "(model, data, steps, batch_size=32, lr=0.003, seed=0, log_every=100)",
    },
    "kv_cache_cost": {
        "kv_cache_bytes_per_token": "(layers, kv_heads, head_dim, bytes_per_element=2)",
        "kv_cache_bytes": "(context, batch, layers, kv_heads, head_dim, bytes_per_element=2)",
        "kv_cache_bytes_per_token_per_rank": "(layers, n_heads, kv_heads, head_dim, t, bytes_per_element=2)",
        "break_even_tokens": "(param_bytes, layers, kv_heads, head_dim, bytes_per_element=2)",
        "flex_param_count": "(config)",
    },
}


def test_manifest_entries_are_complete():
    assert sum(exercise.points for exercise in MANIFEST) == 100
    seen: set[str] = set()
    for exercise in MANIFEST:
        assert exercise.id not in seen
        assert set(exercise.builds_on) <= seen, f"{exercise.id} builds on an exercise that comes later"
        seen.add(exercise.id)
        assert exercise.title.keys() == exercise.hints.keys() == {"en", "zh"}
        assert len(exercise.hints["en"]) == len(exercise.hints["zh"]) >= 2
        assert exercise.time_limit > 0
        for path in (
            EXERCISES / exercise.file,
            SOLUTIONS / exercise.file,
            EXERCISES / exercise.public,
            HIDDEN / exercise.hidden,
        ):
            assert path.is_file(), f"{exercise.id}: {path} is missing"


def test_every_exercise_has_its_place_in_a_handout():
    for exercise in MANIFEST:
        handout = (EXERCISES / exercise.lecture / "handout.md").read_text(encoding="utf-8")
        assert len(re.findall(rf"^## Exercise: {exercise.id} — \S", handout, re.MULTILINE)) == 1


def test_stubs_are_what_the_solutions_generate():
    for file, text in stubs().items():
        assert (EXERCISES / file).read_text(encoding="utf-8") == text, f"run `make author`: {file} is not up to date"


def test_no_solution_is_in_a_stub():
    """Every line of a solution's body is gone, and what stays is a docstring that says what to build."""
    for file, stub in stubs().items():
        source = (SOLUTIONS / file).read_text(encoding="utf-8")
        regions = re.findall(r"### BEGIN SOLUTION\n(.*?)### END SOLUTION", source, re.DOTALL)
        given = re.sub(r"### BEGIN SOLUTION\n.*?### END SOLUTION", "", source, flags=re.DOTALL)
        lines = {line.strip() for region in regions for line in region.splitlines() if len(line.strip()) > 12}
        assert not {line for line in lines if line in stub and line not in given}
        for node in ast.walk(ast.parse(stub)):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name[0] != "_" and node.col_offset == 0:
                assert ast.get_docstring(node), f"{file}: {node.name} has no docstring"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("### END SOLUTION\n", "without"),
        ("### BEGIN SOLUTION\n", "without"),
        ("### BEGIN SOLUTION\n### BEGIN SOLUTION\n### END SOLUTION\n", "second"),
        ("def g():\n    ### BEGIN SOLUTION\n    pass\n    ### END SOLUTION\n", "no exercise"),
    ],
)
def test_bad_markers_are_refused(source, message):
    with pytest.raises(AuthoringError, match=message):
        stub_of(source, {"f": "first"})


def test_every_stub_is_to_do(submission):
    for outcome in run_pytest([str(EXERCISES), "--impl", str(submission(stubs()))]):
        assert outcome.state == "failed" and "to do: " in outcome.message, outcome


def test_every_solution_passes():
    outcomes = run_pytest([str(EXERCISES), "--impl", "solutions"])
    assert len(outcomes) > 100
    assert [outcome for outcome in outcomes if outcome.state != "passed"] == []


@pytest.mark.parametrize("module", SIGNATURES)
def test_signatures_are_the_contracts(module):
    for name, expected in SIGNATURES[module].items():
        function = getattr(importlib.import_module(module), name)
        signature = inspect.signature(function)
        plain = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
        actual = str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))
        assert actual.startswith(expected[:-1]), f"{module}.{name}{actual}"  # more options may follow


def test_no_file_is_stray():
    assert {file.relative_to(SOLUTIONS).as_posix() for file in SOLUTIONS.glob("lecture*/*.py")} == set(student_files())
    public = {exercise.public for exercise in MANIFEST}
    assert {file.relative_to(EXERCISES).as_posix() for file in EXERCISES.glob("lecture*/test_*.py")} == public
    assert {file.name for file in HIDDEN.glob("test_*.py")} == {exercise.hidden for exercise in MANIFEST}
    assert {file.stem for file in MISCONCEPTIONS.glob("*.toml")} == {exercise.id for exercise in MANIFEST}
    modules = [*EXERCISES.glob("lecture*/*.py"), *(ROOT / "lecture01").glob("*.py")]
    names = [file.stem for file in modules]
    assert len(names) == len(set(names)), "lecture code is imported by bare name, so no name may stand twice"
    texts = {
        file: file.read_text(encoding="utf-8", errors="replace")  # an accepted answer is in Latin-1
        for folder in ("lecture01", "exercises", "tests", "grader")
        for file in (ROOT / folder).rglob("*.py")
    }
    for file in modules:
        imported = re.compile(rf"^\s*(?:import|from) {file.stem}\b", re.MULTILINE)
        used = any(imported.search(text) for other, text in texts.items() if other != file)
        assert (
            used
            or "__main__" in texts[file]
            or file.name.startswith("test_")
            or file.parent.joinpath(file.name).relative_to(EXERCISES).as_posix() in student_files()
        ), f"nothing uses {file}"


def test_dependencies_run_one_way():
    for folder in ("lecture01", "exercises"):
        for file in (ROOT / folder).rglob("*.py"):
            text = file.read_text(encoding="utf-8")
            assert not re.search(r"^\s*(?:import|from) (?:grader|solutions|tests)\b", text, re.MULTILINE), file
    for file in (ROOT / "lecture01").rglob("*.py"):
        assert not re.search(r"^\s*(?:import|from) exercises\b", file.read_text(encoding="utf-8"), re.MULTILINE), file


def test_fingerprints_fit_the_misconceptions():
    """The committed file names only misconceptions that exist, with their sentences as they stand now."""
    known = {(m.exercise, m.id): (m.en, m.zh) for m in load_misconceptions()}
    found = {
        (exercise, entry["id"]): (entry["en"], entry["zh"])
        for exercise, entries in json.loads(FINGERPRINTS.read_text(encoding="utf-8")).items()
        for entry in entries
    }
    assert len(found) >= 20
    assert found.items() <= known.items(), "run `make author`"
