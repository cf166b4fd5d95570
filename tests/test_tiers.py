"""Every tier that this machine offers: right answers are right in it, and a probe finds nothing that it should not."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from exercises.paths import ROOT
from grader.engine import Engine, NoTier
from grader.misconceptions import write_submission
from grader.solver.confinement import TIERS, bubblewrap, python_folders
from grader.solver.syscalls import landlock_version

PROBE = '''
import glob
import os
import socket


def found():
    """What student code can see here that it should not, one word each."""
    for path in {hidden!r}:
        try:
            open(path, "rb").close()
            yield "file"
        except OSError:
            pass
        try:
            os.chmod(path, 0o644)
            yield "mode"
        except OSError:
            pass
    if any("TIERS_SECRET" in name for name in os.environ):
        yield "environment"
    if glob.glob("/proc/[0-9]*"):
        yield "process"
    for pid in {pids!r}:
        try:
            os.kill(pid, 0)
            yield "signal"
        except OSError:
            pass
    for address in (("127.0.0.1", {port}), ("1.1.1.1", 53)):
        try:
            socket.create_connection(address, timeout=1).close()
            yield "network"
        except OSError:
            pass
    for folder in ("/", "/usr", "/var/tmp", os.path.expanduser("~root"), {kit!r} + "/exercises"):
        try:
            open(os.path.join(folder, "tiers-probe"), "w").close()
            yield "writing"
        except OSError:
            pass


def swiglu_hidden(d_model):
    words = sorted(set(found()))
    if words:
        raise {{"file": IndexError, "mode": KeyError, "environment": NameError, "process": EOFError}}.get(
            words[0], SystemError
        )(words)
    return (16 * d_model + 3) // 6
'''


def offered(tier: str) -> str:
    """Why this machine doesn't have the tier, or nothing."""
    if tier == "bubblewrap" and bubblewrap() is None:
        return "bubblewrap is not installed"
    if tier == "landlock" and landlock_version() < 2:
        return "this kernel has no Landlock"
    if tier == "uid":
        if os.geteuid() != 0:
            return "only root can change to another user"
        parents = [parent for folder in python_folders() for parent in (Path(folder), *Path(folder).parents)]
        if not all(parent.stat().st_mode & 0o001 for parent in parents):
            return "the user nobody can't read this Python"
    return ""


@pytest.fixture(scope="module", params=TIERS)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    if reason := offered(request.param):
        pytest.skip(reason)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIERS_SECRET", "x")
        with Engine(tier=request.param, trust=request.param == "limits") as engine:
            assert engine.tier == request.param
            yield engine


def test_solutions_get_full_marks(engine: Engine, tmp_path: Path):
    result = engine.grade(write_submission(tmp_path / "right", {}), ["split_mlp", "tp_autograd", "swiglu"])
    assert [(entry.status, entry.points) for entry in result.exercises] == [("ok", 8), ("ok", 12), ("ok", 6)]
    assert result.tier == engine.tier


def test_a_probe_finds_nothing(engine: Engine, tmp_path: Path):
    if engine.tier == "limits":
        pytest.skip("what runs in it is trusted")
    hidden = [
        ROOT / "tests/hidden/reference.py",
        ROOT / "solutions/lecture10/palm_modules.py",
        ROOT / "grader/judge.py",
    ]
    (tmp_path / "gradebook.db").write_text("x")
    with socket.create_server(("127.0.0.1", 0)) as server:
        probe = PROBE.format(
            hidden=[*map(str, hidden), str(tmp_path / "gradebook.db")],
            pids=[os.getpid(), os.getppid()],
            port=server.getsockname()[1],
            kit=str(ROOT),
        )
        folder = write_submission(tmp_path / "probe", {"lecture10/palm_modules.py": probe})
        (result,) = engine.grade(folder, ["swiglu"]).exercises
    # The width is right, so these two of the tests' points are the probe's own.
    assert not any("raised" in message and "AttributeError" not in message for message in result.messages), result
    assert result.points == pytest.approx(6 * 2 / 23, abs=0.5) and result.points > 0


def test_a_partial_submission_is_graded(engine: Engine, tmp_path: Path):
    """What is missing is read from the stubs: the kit is there in every tier."""
    folder = tmp_path / "partial"
    (folder / "lecture09").mkdir(parents=True)
    (folder / "lecture09" / "comm_cost.py").write_bytes((ROOT / "solutions/lecture09/comm_cost.py").read_bytes())
    result = engine.grade(folder, ["comm_cost", "swiglu"])
    assert [entry.status for entry in result.exercises] == ["ok", "not_started"]


def test_the_lowest_tier_needs_trust():
    with pytest.raises(NoTier, match="--trust"), Engine(tier="limits"):
        pass
