"""A confined child: one student's files, and the requests of the judge about them.

What it says first is said before any student code runs: `("setup", text)` where the confinement failed,
`("reading", file)` before each file is parsed, then `("ready", {file: why})` with those that are no Python.
After that nothing it says is believed; replies are values that the judge compares.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import socket

import torch

from grader.solver import rank_requests, wire
from grader.student import NESTED, Cell, InProcessStudent, StudentRaised

_OUTPUT = "output"  # in the scratch folder


def warm_up() -> None:
    """What every child needs is loaded once, by the server.

    Torch looks at /proc/cpuinfo when it first computes. A child has none, and would take slower kernels.
    """
    model = torch.nn.Linear(2, 2)
    model(torch.zeros(2, 2)).sum().backward()
    importlib.import_module(rank_requests.COUNTING)
    student = InProcessStudent({})
    for request in ("split_mlp", "on_ranks"):
        with contextlib.suppress(StudentRaised):
            student.ask(request)
    wire.dumps({"x": torch.zeros(2)})


def report_setup(connection: socket.socket, text: str) -> None:
    with contextlib.suppress(wire.WireError):
        wire.send(connection, ("setup", text))


def serve(connection: socket.socket) -> int:
    """Answer requests until the judge has no more; the exit code."""
    _redirect_output()
    sources = {
        file: [Cell(label, bytes(text.tolist())) for label, text in cells]
        for file, cells in wire.receive(connection).items()
    }
    wire.send(connection, ("ready", _unreadable(connection, sources)))
    student = InProcessStudent(sources)
    while True:
        try:
            order = wire.receive(connection, modules=True)
        except wire.WireClosed:
            return 0
        torch.set_default_dtype(getattr(torch, order["dtype"]))
        reply: dict = {"number": order["number"]}
        try:
            reply["value"] = student.run(order["request"], *order["arguments"], **order["options"])
        except StudentRaised as raised:
            reply["raised"] = {
                "kind": raised.kind,
                "line": raised.line,
                "text": raised.text[:2000],
                "sentence": raised.sentence,
                "hit": _limit_hit(raised.__cause__),
            }
        except BaseException:  # KeyboardInterrupt and its like: they end a process
            return 1
        reply["changes"] = student.state_changes()
        try:
            wire.send(connection, reply)
        except wire.WireClosed:
            return 0
        except wire.WireError:
            wire.send(connection, {"number": order["number"], "unusable": True, "changes": []})


def _redirect_output() -> None:
    """What student code prints goes to a file that nobody reads, as far as the limits let it grow."""
    sink = os.open(_OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for descriptor in (1, 2):
        os.dup2(sink, descriptor)
    for each in (sink, nothing):
        os.close(each)


def _unreadable(connection: socket.socket, sources: dict[str, list[Cell]]) -> dict[str, str]:
    """Why, for every file that Python can't read; of a notebook's, by the cell's name."""
    broken = {}
    for file, cells in sources.items():
        wire.send(connection, ("reading", file))
        for cell in cells:
            name = file if len(cells) == 1 else cell.name
            try:
                cell.compiled()
            except SyntaxError as error:
                broken[name] = f"line {error.lineno}: {error.msg}" if error.lineno else error.msg
            except (RecursionError, MemoryError):
                broken[name] = NESTED
            except ValueError as error:
                broken[name] = str(error)
    return broken


def _limit_hit(error: BaseException | None) -> str:
    """Which limit an exception speaks of: "memory", "output", "forbidden", or "" for none."""
    text = str(error)
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "allocate memory" in text):
        return "memory"
    if isinstance(error, OSError) and error.errno in (errno.EFBIG, errno.ENOSPC, errno.EDQUOT):
        return "output"
    denied = (errno.EPERM, errno.EACCES, errno.EROFS, errno.ENETUNREACH)
    if isinstance(error, OSError) and error.errno in denied:
        return "forbidden"
    return ""
