"""Whatever a sane person hands in is found; the rest is refused with a reason."""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
import zipfile
from pathlib import Path

import pytest

from exercises.manifest import student_files
from exercises.paths import EXERCISES
from grader import intake
from grader.course import repair
from grader.intake import FILE_BYTES, Refused, Submission, take
from grader.student import InProcessStudent

CODE = b"def split_mlp(mlp, t):\n    return 'mine'\n"
FILE = "lecture09/dist_sim.py"


def folder_of(root: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def zip_of(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def tar_of(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def notebook(*cells: str | tuple[str, str], **changes) -> bytes:
    """Code cells; of a pair, the first is the grade_id."""
    made = []
    for cell in cells:
        grade_id, source = cell if isinstance(cell, tuple) else ("", cell)
        metadata = {"nbgrader": {"grade_id": grade_id}} if grade_id else {}
        made.append({"cell_type": "code", "metadata": metadata, "source": source, "outputs": []})
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5} | changes).encode()


def code_of(submission: Submission, file: str = FILE) -> bytes:
    return b"\n".join(cell.source for cell in submission.sources[file])


@pytest.mark.parametrize("make", ["folder", "zip", "tar"])
@pytest.mark.parametrize(
    "name",
    [
        FILE,
        "dist_sim.py",
        f"homework/{FILE}",
        f"Ada Łovelace 作业/exercises/{FILE}",
        "a/b/c/dist_sim.py",
        "Lecture09/Dist_Sim.PY",
    ],
)
def test_files_are_found_wherever_they_are(tmp_path, make, name):
    files = {name: CODE, f"__MACOSX/{name}": b"\0", "notes.txt": b"hello", ".git/config": b"[core]"}
    made = {
        "folder": lambda: folder_of(tmp_path / "made", files),
        "zip": lambda: zip_of(tmp_path / "made.zip", files),
        "tar": lambda: tar_of(tmp_path / "made.tar.gz", files),
    }[make]()
    submission = take(made)
    assert list(submission.sources) == [FILE] and code_of(submission) == CODE and not submission.refused


def test_a_single_file(tmp_path):
    (tmp_path / "dist_sim.py").write_bytes(CODE)
    assert code_of(take(tmp_path / "dist_sim.py")) == CODE


def test_the_solutions_folder_itself():
    assert list(take(EXERCISES.parent / "solutions").sources) == list(student_files())


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig", "utf-8"])
def test_encodings(tmp_path, encoding):
    text = 'def split_mlp(mlp, t):\n    return "分片"\n'
    (tmp_path / "dist_sim.py").write_bytes(text.encode(encoding))
    (cell,) = take(tmp_path / "dist_sim.py").sources[FILE]
    names: dict = {}
    exec(cell.compiled(), names)
    assert names["split_mlp"](None, 1) == "分片"


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_newlines(tmp_path, newline):
    (tmp_path / "dist_sim.py").write_bytes(CODE.replace(b"\n", newline))
    names: dict = {}
    exec(take(tmp_path / "dist_sim.py").sources[FILE][0].compiled(), names)
    assert names["split_mlp"](None, 1) == "mine"


def test_a_declared_encoding(tmp_path):
    (tmp_path / "dist_sim.py").write_bytes("# -*- coding: gbk -*-\nx = '并行'\n".encode("gbk"))
    names: dict = {}
    exec(take(tmp_path / "dist_sim.py").sources[FILE][0].compiled(), names)
    assert names["x"] == "并行"


def test_two_versions_of_one_file_cost_that_file_only(tmp_path):
    files = {"a/dist_sim.py": CODE, "b/dist_sim.py": CODE + b"#", "tp_autograd.py": b"x = 1\n"}
    submission = take(folder_of(tmp_path, files))
    assert "two versions of dist_sim.py: a/dist_sim.py and b/dist_sim.py" in submission.refused[FILE]["en"]
    assert list(submission.sources) == ["lecture09/tp_autograd.py"]


def test_the_same_file_twice_is_one(tmp_path):
    assert code_of(take(folder_of(tmp_path, {"a/dist_sim.py": CODE, "b/dist_sim.py": CODE}))) == CODE


def test_the_lectures_folder_decides(tmp_path):
    assert code_of(take(folder_of(tmp_path, {FILE: CODE, "old/dist_sim.py": b"x = 1\n"}))) == CODE


def test_a_file_that_is_too_large_costs_that_file_only(tmp_path):
    files = {FILE: b"#" * (FILE_BYTES + 1), "comm_cost.py": b"x = 1\n"}
    submission = take(folder_of(tmp_path, files))
    assert "262,145 bytes" in submission.refused[FILE]["en"] and list(submission.sources) == ["lecture09/comm_cost.py"]


@pytest.mark.parametrize("kind", ["link", "folder", "fifo"])
def test_what_is_no_file(tmp_path, kind):
    folder_of(tmp_path, {"comm_cost.py": b"x = 1\n"})
    make = {
        "link": lambda path: path.symlink_to(EXERCISES / FILE),
        "folder": lambda path: path.mkdir(),
        "fifo": os.mkfifo,
    }[kind]
    make(tmp_path / "dist_sim.py")
    submission = take(tmp_path)
    assert submission.refused[FILE]["en"].startswith("dist_sim.py is a")
    assert list(submission.sources) == ["lecture09/comm_cost.py"]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda p: zip_of(p, {"../dist_sim.py": CODE}), "path"),
        (lambda p: zip_of(p, {"/etc/dist_sim.py": CODE}), "path"),
        (lambda p: zip_of(p, {"C:\\dist_sim.py": CODE}), "path"),
        (lambda p: zip_of(p, {"notes.txt": CODE}), "empty"),
        (lambda p: zip_of(p, {"dist_sim.py": bytes(300 << 20)}), "bomb"),
        (lambda p: zip_of(p, {f"{i}.txt": b"" for i in range(5001)}), "too many"),
        (lambda p: tar_of(p, {"../dist_sim.py": CODE}), "path"),
        (lambda p: p.write_bytes(b"PK\x03\x04 and no more"), "damaged"),
        (lambda p: p.write_bytes(b"\x1f\x8b and no more"), "damaged"),
        (lambda p: p.write_bytes(b"%PDF-1.4"), "damaged"),
        (lambda p: p.symlink_to(EXERCISES), "link"),
        (lambda p: p.mkdir(), "empty"),
        (os.mkfifo, "special"),
    ],
)
def test_whole_submissions_that_are_refused(tmp_path, make, reason):
    path = tmp_path / "homework.zip"
    make(path)
    with pytest.raises(Refused) as refused:
        take(path)
    assert refused.value.reason == reason
    en, zh = refused.value.text["en"], refused.value.text["zh"]
    assert re.search("[\u4e00-\u9fff]", zh) and not re.search("[\u4e00-\u9fff]", en)


def test_a_truncated_archive(tmp_path):
    whole = tar_of(tmp_path / "whole.tar.gz", {"dist_sim.py": os.urandom(10_000)}).read_bytes()
    (tmp_path / "cut.tar.gz").write_bytes(whole[:5000])
    with pytest.raises(Refused, match="not uploaded whole"):
        take(tmp_path / "cut.tar.gz")


def test_an_encrypted_file_in_a_zip(tmp_path):
    path = zip_of(tmp_path / "a.zip", {"dist_sim.py": CODE})
    data = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + offset] |= 1
    path.write_bytes(data)
    with pytest.raises(Refused, match="is encrypted"):
        take(path)


def test_a_notebook_becomes_all_modules_of_its_lecture(tmp_path):
    cells = [("setup", "boom()"), "helper = 1", ("split_mlp", "def split_mlp(): pass"), ("split_mlp-check", "check()")]
    (tmp_path / "lecture09.ipynb").write_bytes(notebook(*cells))
    submission = take(tmp_path / "lecture09.ipynb")
    assert {file.partition("/")[0] for file in submission.sources} == {"lecture09"} and len(submission.sources) == 3
    assert [cell.name for cell in submission.sources[FILE]] == ["cell 2", "split_mlp"]


def test_a_notebook_under_another_name(tmp_path):
    (tmp_path / "Untitled.ipynb").write_bytes(notebook("def apply_rope(x, cos, sin): pass"))
    assert list(take(tmp_path).sources) == ["lecture10/palm_modules.py", "lecture10/kv_cache_cost.py"]


def test_a_notebook_beside_the_stubs_counts(tmp_path):
    stubs = {f"exercises/{file}": (EXERCISES / file).read_bytes().replace(b"\n", b"\r\n") for file in student_files()}
    made = notebook("def split_mlp(): pass")
    submission = take(folder_of(tmp_path, stubs | {"lecture09.ipynb": made}))
    assert code_of(submission) == b"def split_mlp(): pass"


def test_magics_are_left_out_with_a_note(tmp_path):
    source = '%matplotlib inline\n!pip install x\nif True:\n    %timeit f()\ns = """\n%kept\n"""\nsplit_mlp?\n'
    (tmp_path / "lecture09.ipynb").write_bytes(notebook(source, "%%bash\nrm -rf /", "%%time\ny = 2"))
    submission = take(tmp_path)
    names: dict = {}
    for cell in submission.sources[FILE]:
        exec(cell.compiled(), names)
    assert names["s"] == "\n%kept\n" and names["y"] == 2
    assert any("!pip" in note["en"] for note in submission.notes) and any(
        "%%bash" in note["en"] for note in submission.notes
    )


def test_formats_of_notebooks(tmp_path):
    cells = [{"cell_type": "code", "language": "python", "input": ["def split_mlp():\n", "    pass"], "outputs": []}]
    old = {"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": [{"cells": cells}]}
    (tmp_path / "lecture09.ipynb").write_text(json.dumps(old))
    assert code_of(take(tmp_path)) == b"def split_mlp():\n    pass"


@pytest.mark.parametrize(
    "data",
    [
        notebook("def split_mlp(): pass")[:60],
        b"[" * 100_000,
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"cells": 3}',
        b'{"cells": [{"cell_type": "code", "source": 1' + b"0" * 5000 + b"}]}",
    ],
)
def test_damaged_notebooks(tmp_path, data):
    (tmp_path / "lecture09.ipynb").write_bytes(data)
    with pytest.raises(Refused):
        take(tmp_path)


def test_notebook_oddities_are_survived(tmp_path):
    odd = json.loads(notebook("x = 1", "y = '\ud800'"))
    odd["cells"] += [None, 3, {"cell_type": "code"}, {"cell_type": "code", "source": 7, "metadata": []}]
    (tmp_path / "lecture09.ipynb").write_text(json.dumps(odd))
    assert code_of(take(tmp_path)).startswith(b"x = 1")


def test_a_cell_that_fails_or_leaves_doesnt_keep_the_next_from_running(tmp_path):
    (tmp_path / "lecture09.ipynb").write_bytes(
        notebook("1 / 0", "raise SystemExit", "def split_mlp(mlp, t):\n    return 'mine'")
    )
    student = InProcessStudent(take(tmp_path / "lecture09.ipynb").sources)
    assert student.ask("call", "dist_sim", "split_mlp", None, 1) == "mine"


def test_huge_outputs_are_no_reason_to_refuse(tmp_path):
    cell = {"cell_type": "code", "metadata": {}, "source": "x = 1", "outputs": [{"text": "o" * 60_000_000}]}
    (tmp_path / "lecture09.ipynb").write_text(json.dumps({"cells": [cell]}))
    assert code_of(take(tmp_path / "lecture09.ipynb")) == b"x = 1"


def test_the_course_reads_notebooks_of_the_same_size():
    assert repair.LARGEST == intake.NOTEBOOK_BYTES
