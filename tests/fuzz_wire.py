"""Fuzz the wire by hand: `pip install atheris`, then `python tests/fuzz_wire.py -max_total_time=60`.

Coverage guides the bytes; whatever `loads` raises, other than its own `WireError`, stops the run and is shown.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from exercises.paths import use_implementation

use_implementation()

import atheris
import torch

with atheris.instrument_imports(include=["grader.solver.wire", "json"]):
    from grader.solver import wire


def one(data: bytes) -> None:
    """The first two bytes say how many of the others are the header."""
    cut = int.from_bytes(data[:2], "big")
    with contextlib.suppress(wire.WireError):
        wire.loads(data[2 : 2 + cut], data[2 + cut :], modules=bool(cut & 1))


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="fuzz-wire-"))
    seeds = [1, {"a": (1.5, None)}, [torch.ones(2, dtype=dtype) for dtype in wire.DTYPES], torch.nn.Linear(2, 2), 2**70]
    for number, value in enumerate(seeds):
        frame = wire.dumps(value)
        header = int.from_bytes(frame[:4], "big")
        (folder / str(number)).write_bytes(header.to_bytes(2, "big") + frame[8:])
    atheris.Setup([*sys.argv, str(folder)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
