"""Hostile answers gain nothing, tell nothing, leave nothing behind, and harm nobody beside them.

Each file in `tests/hostile/` is one such answer. Its first lines say what it does, the exercise whose student file it
stands for, and the status that it must end with. `%KIT%`, `%OUTSIDE%` and `%PORT%` in it are this repository, a folder
with a gradebook, and a port on which this test listens. An attack that succeeds raises `SystemError`.
"""

from __future__ import annotations

import io
import json
import lzma
import os
import py_compile
import re
import socket
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

from exercises.manifest import Exercise, load_manifest
from exercises.paths import ROOT
from grader import judge
from grader.authoring import SOLUTIONS
from grader.engine import Engine
from grader.misconceptions import write_submission
from grader.results import ExerciseResult, SubmissionResult, write_json
from grader.show import print_results

FOLDER = Path(__file__).parent / "hostile"
BESIDE = ("split_mlp", "swiglu", "kv_cache_cost")  # graded in every submission where no hostile code runs in them
SECONDS = {"comm_cost": 1, "tp_autograd": 10}  # for one request, in place of the manifest's limits; 3 elsewhere
EXERCISES = {exercise.id: exercise for exercise in load_manifest()}

# What is right in these answers (parameters and their names; outputs, where only the sharding is faked), and no more.
ALLOWED = {
    "cached_answers": 3,
    "inputs_in_shapes": 2.2,
    "single_device": 4.0,
    "single_device_reduced": 5.3,
    "single_device_model": 3.9,
}


@dataclass(frozen=True)
class Answer:
    name: str
    exercise: Exercise
    status: str
    text: str

    @classmethod
    def read(cls, path: Path) -> Answer:
        text = path.read_text(encoding="utf-8")
        head = dict(re.findall(r"^# (exercise|status): ([\w ]+)$", text, re.MULTILINE))
        return cls(path.stem, EXERCISES[head["exercise"]], head["status"], text)


ANSWERS = [Answer.read(path) for path in sorted(FOLDER.glob("*.py"))]


def descendants(pid: int) -> set[int]:
    found = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found |= {child} | descendants(child)
    return found


def state_of(folders: list[Path]) -> dict:
    """Names, modes, times and sizes of all files, but for what Python caches."""
    files = [path for folder in folders for path in (folder, *folder.rglob("*")) if "__pycache__" not in str(path)]
    return {
        path: (s.st_mode, s.st_uid, s.st_mtime_ns * path.is_file(), s.st_size) for path in files if (s := path.lstat())
    }


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """With short time limits: judges are forked from here and find them so."""
    limits = [(exercise, exercise.time_limit) for exercise in load_manifest()]
    for exercise, _ in limits:
        object.__setattr__(exercise, "time_limit", SECONDS.get(exercise.id, 3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judge, "_ENOUGH", 2)
        patch.setenv("HOSTILE_TEST", "SECRET")
        with Engine() as engine:
            yield engine
    for exercise, limit in limits:
        object.__setattr__(exercise, "time_limit", limit)


@dataclass
class Class:
    """What became of a class of hostile submissions."""

    packs: list[dict[str, Answer]]  # for each submission, the hostile answers in it by exercise
    results: list[SubmissionResult]
    reached: list[str]  # who connected to this process
    changed: dict
    left: set[int]  # processes


@pytest.fixture(scope="module")
def graded(engine: Engine, tmp_path_factory) -> Class:
    """All hostile answers, at most one in each student file of a submission, the solutions in the others."""
    root, outside = tmp_path_factory.mktemp("class"), tmp_path_factory.mktemp("outside")
    (outside / "gradebook.db").write_text("SECRET")
    write_submission(outside / "other", {})
    reached: list[str] = []
    listeners = [socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)]
    port = listeners[0].getsockname()[1]
    for listener, address in zip(listeners[1:], (f"\0hostile-{port}", str(outside / "socket"))):
        listener.bind(address)
        listener.listen()
    for listener in listeners:
        threading.Thread(target=_listen, args=(listener, reached), daemon=True).start()

    packs: list[dict[str, Answer]] = []
    for answer in ANSWERS:
        pack = next((pack for pack in packs if not files_of(answer.exercise) & touched_by(pack)), None)
        if pack is None:
            packs.append(pack := {})
        pack[answer.exercise.id] = answer
    paths = []
    for number, pack in enumerate(packs):
        texts = {}
        for answer in pack.values():
            text = answer.text.replace("%KIT%", str(ROOT)).replace("%OUTSIDE%", str(outside))
            texts[answer.exercise.file] = text.replace("%PORT%", str(port))
        paths.append(write_submission(root / str(number), texts))

    watched = [outside, *(ROOT / name for name in ("exercises", "grader", "lecture01", "solutions", "tests"))]
    before, processes = state_of(watched), descendants(engine._server.pid)
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(engine.grade, paths, map(exercises_of, packs)))
    after = state_of(watched)
    for listener in listeners:
        listener.close()
    changed = {path: after.get(path) for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    return Class(packs, results, reached, changed, descendants(engine._server.pid) - processes)


def files_of(exercise: Exercise) -> set[str]:
    """The student files that its code runs."""
    return {exercise.file, *(EXERCISES[other].file for other in exercise.builds_on)}


def touched_by(pack: dict[str, Answer]) -> set[str]:
    return set().union(*(files_of(answer.exercise) for answer in pack.values()))


def exercises_of(pack: dict[str, Answer]) -> list[str]:
    """The hostile answers' exercises, and some that run solutions only."""
    hostile = {answer.exercise.file for answer in pack.values()}
    return [*pack, *(beside for beside in BESIDE if not files_of(EXERCISES[beside]) & hostile)]


def _listen(listener: socket.socket, reached: list[str]) -> None:
    while True:
        try:
            listener.accept()
        except OSError:
            return
        reached.append(str(listener))


def result_of(result: SubmissionResult, exercise: str) -> ExerciseResult:
    return next(entry for entry in result.exercises if entry.id == exercise)


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer.name)
def test_a_hostile_answer_gains_nothing(graded: Class, answer: Answer):
    number = next(n for n, pack in enumerate(graded.packs) if answer in pack.values())
    submission = graded.results[number]
    assert submission.status == "graded", submission.reason
    result = result_of(submission, answer.exercise.id)
    assert result.status in answer.status.split(" or "), result
    assert result.points <= ALLOWED.get(answer.name, 0), result
    assert result.seconds <= 2 * answer.exercise.time_limit + 3
    assert result.memory_mb <= 1300
    for message in result.messages:
        assert message.isprintable() and len(message) < 400
        assert not re.search("SECRET|SystemError|1234567|1_234_567|[<>\x1b]", message.replace("->", "")), message


def test_the_right_answers_beside_them_are_right(graded: Class):
    for pack, result in zip(graded.packs, graded.results):
        assert result.status == "graded", result.reason
        for entry in result.exercises:
            assert entry.id in pack or (entry.status, entry.points) == ("ok", entry.max), (list(pack.values()), entry)


def test_nobody_was_reached(graded: Class):
    assert not graded.reached


def test_nothing_outside_has_changed(graded: Class):
    assert not graded.changed


def test_no_process_is_left(graded: Class):
    assert not graded.left


def test_a_class_of_all_kinds(engine: Engine, tmp_path: Path):
    """Four hostile submissions among right ones and one that is half right, several at a time."""
    texts = {answer.name: answer.text for answer in ANSWERS}
    shard = (SOLUTIONS / "lecture09/dist_sim.py").read_text(encoding="utf-8")
    graded_here = ["split_mlp", "tp_mlp_forward", "swiglu"]
    hostile = ("kills_its_group", "floods_output", "hoards_tensors", "fork_bomb_without_ranks")
    paths = [write_submission(tmp_path / "right", {})]
    for name in hostile:
        paths.append(write_submission(tmp_path / name, {"lecture10/palm_modules.py": texts[name]}))
    paths.append(write_submission(tmp_path / "right as well", {}))
    half = shard.replace("def split_mlp(", "def split_mlp_for_later(")
    paths.append(write_submission(tmp_path / "half", {"lecture09/dist_sim.py": half}))
    results = dict(zip((path.name for path in paths), engine.grade_all(paths, graded_here)))
    for name, result in results.items():
        assert result.status == "graded"
        lost = {"split_mlp"} if name == "half" else {"swiglu"} if name in hostile else set()
        assert {entry.id for entry in result.exercises if entry.points == 0} == lost
        assert {entry.id for entry in result.exercises if entry.points == entry.max} == set(graded_here) - lost


def test_files_beside_the_students_are_nothing(engine: Engine, tmp_path: Path):
    """Names of given modules, packages, bytecode, extension modules, and what Python and pytest run by themselves."""
    folder = write_submission(tmp_path / "submission", {})
    trap = "raise SystemError('a file of the submission ran that nobody asked for')\n"
    names = [
        "sitecustomize.py",
        "usercustomize.py",
        "conftest.py",
        "torch.py",
        "pytest.py",
        "json.py",
        "safetensors.py",
    ]
    names += [
        "collectives.py",
        "ranks.py",
        "tiny_gpt.py",
        "train_lab.py",
        "dist_sim/__init__.py",
        "exercises/checks.py",
    ]
    for place in (folder, folder / "lecture09", folder / "lecture10"):
        for name in names:
            (place / name).parent.mkdir(exist_ok=True)
            (place / name).write_text(trap)
        (place / "dist_sim.so").write_bytes(b"\x7fELF")
        (place / "pytest.ini").write_text("[pytest]\naddopts = --help\n")
        (place / "x.pth").write_text("import os; os._exit(0)\n")
        (place / "__pycache__").mkdir()
    source = tmp_path / "trap.py"
    source.write_text(trap)
    for module in ("dist_sim", "comm_cost", "palm_modules"):
        lecture = "lecture10" if module == "palm_modules" else "lecture09"
        target = folder / lecture / "__pycache__" / f"{module}.{sys.implementation.cache_tag}.pyc"
        py_compile.compile(str(source), str(target), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    result = engine.grade(folder, ["split_mlp", "comm_cost", "swiglu"])
    assert [entry.status for entry in result.exercises] == ["ok", "ok", "ok"]


def test_names_that_steer_terminals_or_are_no_text(engine: Engine, tmp_path: Path):
    """File names are shown, so they are made harmless; those of the submission itself are kept as far as they can be."""
    top = os.fsencode(tmp_path) + b"/bad\xff\x1b[2J<b>"
    for folder in (b"=cmd()", b"\xfe\x1b]0;x\a"):
        os.makedirs(top + b"/" + folder)
        with open(top + b"/" + folder + b"/dist_sim.py", "wb") as file:
            file.write(folder)
    result = engine.grade(Path(os.fsdecode(top)), ["split_mlp"])
    assert result.exercises[0].status == "ungradable"
    for text in (*result.exercises[0].messages, *result.notes, result.reason):
        assert text.isprintable()
    write_json([result], tmp_path / "results.json")
    (entry,) = json.loads((tmp_path / "results.json").read_text(encoding="ascii"))
    entry["submission"].encode()
    output = io.StringIO()
    print_results([result, result], Console(file=output, force_terminal=False))
    assert "\x1b" not in output.getvalue()


def test_folders_that_are_hard_to_walk_through(engine: Engine, tmp_path: Path):
    """A thousand folders in each other, folders and files without any permission, links to outside and to themselves."""
    folder = write_submission(tmp_path / "submission", {})
    inner = os.open(folder, os.O_RDONLY)
    for _ in range(1000):
        os.mkdir("deeper", dir_fd=inner)
        inner, outer = os.open("deeper", os.O_RDONLY, dir_fd=inner), inner
        os.close(outer)
    os.close(inner)
    (folder / "locked").mkdir(mode=0)
    (folder / "itself").symlink_to(folder)
    (folder / "lecture09" / "comm_cost.py").unlink()
    (folder / "lecture09" / "comm_cost.py").symlink_to(SOLUTIONS / "lecture09" / "comm_cost.py")
    os.mkfifo(folder / "lecture10" / "pipe.py")
    try:
        result = engine.grade(folder, ["comm_cost", "swiglu"])
    finally:
        (folder / "locked").chmod(0o700)
        subprocess.run(["rm", "-rf", folder], check=True)  # pytest's own clearing up can't
    assert [entry.status for entry in result.exercises] == ["ungradable", "ok"]


SOURCES = {
    "minus signs": "x = " + "-" * 200_000 + "1",
    "parentheses": "x = " + "(" * 50_000 + ")" * 50_000,
    "a huge number": "x = " + "9" * 200_000,
    "a null byte": "x = 1\0",
    "a lone surrogate": b"x = '\xed\xa0\x80'",
    "an unknown encoding": "# coding: no-such-" + "x" * 1000,
    "a long name": f"f({'x' * 90_000}=1, {'x' * 90_000}=2)",
    "nested finally": "def f():\n"
    + "".join(f"{' ' * n}try:\n{' ' * n} a()\n{' ' * n}finally:\n" for n in range(1, 20))
    + " " * 20
    + "b()\n",
}


@pytest.mark.parametrize("name", list(SOURCES))
def test_sources_that_break_their_reader(engine: Engine, tmp_path: Path, name: str):
    """They cost their own exercise, whose message is short; the others are graded."""
    folder = write_submission(tmp_path / "submission", {})
    source = SOURCES[name]
    (folder / "lecture09" / "comm_cost.py").write_bytes(source.encode() if isinstance(source, str) else source)
    broken, right = engine.grade(folder, ["split_mlp", "comm_cost"]).exercises[::-1]
    assert (broken.status, broken.points, right.status) == ("ungradable", 0, "ok")
    assert all(len(message) <= 500 and message.isprintable() for message in broken.messages)


def archive(path: Path, write) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        write(file)
    return path


def bomb(path: Path) -> Path:
    return archive(path, lambda file: [file.writestr(f"{n}.py", bytes(32 << 20)) for n in range(12)])


def nested_notebook(path: Path) -> Path:
    path.write_text('{"cells": ' + "[" * 100_000 + "]" * 100_000 + "}")
    return path


def leaving(path: Path) -> Path:
    return archive(path, lambda file: file.writestr("../../lecture09/dist_sim.py", "x = 1"))


def lying_about_sizes(path: Path) -> Path:
    archive(path, lambda file: file.writestr("dist_sim.py", "x = 1\n" * 1000))
    data = bytearray(path.read_bytes())
    start = data.rindex(b"PK\x01\x02") + 24
    data[start : start + 4] = (5).to_bytes(4, "little")
    path.write_bytes(data)
    return path


def compressed_tar(path: Path) -> Path:
    """What is damaged in the middle of an .xz is found out only there."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as file:
        member = tarfile.TarInfo("dist_sim.py")
        member.size = 1 << 20
        file.addfile(member, io.BytesIO(os.urandom(1 << 20)))
    data = bytearray(lzma.compress(buffer.getvalue()))
    data[len(data) // 2] ^= 255
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (bomb, "bomb.zip"),
        (nested_notebook, "lecture09.ipynb"),
        (leaving, "leaving.zip"),
        (lying_about_sizes, "lying.zip"),
        (compressed_tar, "damaged.tar.gz"),
    ],
)
def test_archives_that_break_their_reader(engine: Engine, tmp_path: Path, capfd, make, name: str):
    result = engine.grade(make(tmp_path / name), ["split_mlp"])
    assert (result.status, result.points) == ("ungradable", 0)
    assert result.reason and not capfd.readouterr().err
