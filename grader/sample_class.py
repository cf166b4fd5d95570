"""A small class to try the engine on: right, half done, wrong in instructive ways, hostile and broken submissions.

They are made from the solutions and from `tests/misconceptions/`, so they change with them.
"""

from __future__ import annotations

import io
import shutil
import zipfile
from pathlib import Path

from exercises.manifest import student_files
from grader.authoring import SOLUTIONS
from grader.misconceptions import load_misconceptions, write_submission

_WRONG = {
    "carla-bias-on-every-rank": ["tp_mlp_forward/bias_on_every_rank", "tp_autograd/sum_thrown_away"],
    "dmitri-some-mistakes": ["rope/interleaved_pairs", "comm_cost/one_round_of_the_ring"],
}

_HOSTILE = '''

import collectives, glob, os

def split_mlp(mlp, t):
    """Looks for the answers, then leaves as if all were well."""
    kit = os.path.dirname(os.path.dirname(os.path.dirname(collectives.__file__)))
    for path in glob.glob(f"{kit}/solutions/*/dist_sim.py") + glob.glob(f"{kit}/tests/hidden/*.py"):
        exec(open(path).read(), globals())
    os._exit(0)

def tp_mlp_forward(x, shards, b2, counter=None):
    """Takes all the memory there is."""
    hoard = []
    while True:
        hoard.append(bytearray(1 << 24))
'''


def write_sample_class(folder: Path) -> list[Path]:
    """Write the class into `folder`; the path of each submission."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {file: (SOLUTIONS / file).read_text(encoding="utf-8") for file in student_files()}
    write_submission(folder / "ada-right", {})
    first_lecture = {file: text for file, text in texts.items() if file.startswith("lecture09/")}
    (folder / "boris-half-done.zip").write_bytes(_zipped("homework", first_lecture))
    known = {misconception.name: misconception for misconception in load_misconceptions()}
    for name, mistakes in _WRONG.items():
        write_submission(folder / name, {known[m].file: known[m].patched() for m in mistakes})
    shutil.rmtree(folder / "carla-bias-on-every-rank" / "lecture10")  # still to come
    (folder / "mallory-hostile").mkdir()
    (folder / "mallory-hostile" / "dist_sim.py").write_text(texts["lecture09/dist_sim.py"] + _HOSTILE, encoding="utf-8")
    broken = texts["lecture10/palm_modules.py"].replace("class SwiGLU(nn.Module):", "class SwiGLU(nn.Module)")
    write_submission(folder / "nora-syntax-error", {"lecture10/palm_modules.py": broken})
    (folder / "otto-upload-cut-off.zip").write_bytes(_zipped("homework", texts)[:2000])
    return sorted(folder.iterdir())


def _zipped(top: str, texts: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, text in texts.items():
            archive.writestr(f"{top}/{file}", text)
    return buffer.getvalue()
