"""The solver server: loads torch and the given code once, then forks a confined child for each exercise.

It never holds a hidden test, a solution or an expected value, because children inherit its memory. The judge asks for
a child over the control socket, one message each: limits as JSON, with two sockets, the child's wire and the one over
which the server reports the child's end. Closing the second one kills the child and everything it has started.

A report is one JSON object: `setup`, what went wrong before student code could run; else `killed` ("memory",
"processes" or ""), `exit` or `signal`, `cpu_seconds` and `memory_mb`.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import selectors
import signal
import socket
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from grader.solver import child, syscalls
from grader.solver.confinement import Limits, close_doors, enter_namespaces

_WATCH_SECONDS = 0.02
_ENDED = struct.Struct("id")  # a wait status and CPU seconds


@dataclass
class _Child:
    keeper: int  # pid of the process between server and child
    keeper_fd: int
    report: socket.socket
    ended: int  # where the keeper writes how the child ended
    limits: Limits
    peak: int = 0
    killed: str = ""
    abandoned: bool = False


class Server:
    """Forks children, watches their memory, kills and reports them."""

    def __init__(self, tier: str, control: socket.socket) -> None:
        self.tier = tier
        self.control = control
        self.children: dict[int, _Child] = {}  # by keeper
        self.selector = selectors.DefaultSelector()
        self.selector.register(control, selectors.EVENT_READ, self._take_order)
        self.base = _own_memory(os.getpid())

    def run(self) -> None:
        """Until the judge's side closes the control socket."""
        while True:
            for key, _ in self.selector.select(_WATCH_SECONDS if self.children else None):
                key.data()
            for kept in self.children.values():
                self._watch(kept)

    def _take_order(self) -> None:
        message, fds, _, _ = socket.recv_fds(self.control, 1 << 16, 2)
        if not message:
            for kept in self.children.values():
                _kill_below(kept.keeper)
            os._exit(0)
        wire, report = (socket.socket(fileno=fd) for fd in fds)
        limits = Limits(**json.loads(message))
        reader, writer = os.pipe()
        try:
            keeper = os.fork()
        except OSError as error:  # the machine has no more processes to give
            _tell(report, {"setup": f"a process could not be started: {error.strerror}"})
            for each in (wire, report):
                each.close()
            for end in (reader, writer):
                os.close(end)
            return
        if keeper == 0:
            self.selector.close()
            self.control.close()
            report.close()
            os.close(reader)
            for other in self.children.values():
                other.report.close()
                os.close(other.ended)
                os.close(other.keeper_fd)
            _keep(self.tier, limits, wire, writer)
        wire.close()
        os.close(writer)
        kept = _Child(keeper, os.pidfd_open(keeper), report, reader, limits)
        self.children[keeper] = kept
        self.selector.register(kept.keeper_fd, selectors.EVENT_READ, lambda: self._bury(kept))
        self.selector.register(report, selectors.EVENT_READ, lambda: self._abandon(kept))

    def _abandon(self, kept: _Child) -> None:
        """The judge has closed its end."""
        self.selector.unregister(kept.report)
        kept.abandoned = True
        _kill_below(kept.keeper)

    def _watch(self, kept: _Child) -> None:
        below = _descendants(kept.keeper, kept.limits.processes + 1)
        if len(below) > kept.limits.processes:
            kept.killed = kept.killed or "processes"
        elif not kept.killed:
            memory = sum(max(0, _own_memory(pid) - self.base) for pid in below)
            kept.peak = max(kept.peak, memory)
            if memory > kept.limits.memory_bytes:
                kept.killed = "memory"
        if kept.killed or kept.abandoned:  # again and again: it may have been forking just then
            _kill_below(kept.keeper)

    def _bury(self, kept: _Child) -> None:
        self.selector.unregister(kept.keeper_fd)
        if not kept.abandoned:
            self.selector.unregister(kept.report)
        os.waitpid(kept.keeper, 0)
        del self.children[kept.keeper]
        data = os.read(kept.ended, 4096)
        os.close(kept.ended)
        os.close(kept.keeper_fd)
        if len(data) == _ENDED.size:
            status, cpu = _ENDED.unpack(data)
            code = os.waitstatus_to_exitcode(status)
            report = {"killed": kept.killed, "exit": max(code, 0), "signal": max(-code, 0)}
            report |= {"cpu_seconds": round(cpu, 3), "memory_mb": round(kept.peak / 2**20, 1)}
        else:
            report = {"setup": data.decode(errors="replace") or "the keeper of the process was killed"}
        _tell(kept.report, report)
        kept.report.close()


def _tell(judge: socket.socket, report: dict) -> None:
    """Send the report, if the judge is still there to read it."""
    with contextlib.suppress(OSError):
        judge.setblocking(False)
        judge.send(json.dumps(report).encode())


def _keep(tier: str, limits: Limits, wire: socket.socket, ended: int) -> None:
    """The keeper: starts the child in namespaces of its own, waits for it, clears up behind it. Never returns."""
    try:
        syscalls.adopt_orphans()
        enter_namespaces(tier)
        pid = os.fork()
        if pid == 0:
            os.close(ended)
            _be_the_child(tier, limits, wire)
        wire.close()
        _, status, usage = os.wait4(pid, 0)
        while _kill_below(os.getpid()):  # what it left behind, where it had no namespace that ended with it
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-1, 0)
        os.write(ended, _ENDED.pack(status, usage.ru_utime + usage.ru_stime))
    except BaseException as error:
        os.write(ended, f"{type(error).__name__}: {error}".encode()[:4000])
    os._exit(0)


def _be_the_child(tier: str, limits: Limits, wire: socket.socket) -> None:
    code = 1
    try:
        close_doors(tier, limits)
        code = child.serve(wire)
    except BaseException as error:
        child.report_setup(wire, f"{type(error).__name__}: {error}")
    finally:
        os._exit(code)


def _descendants(pid: int, enough: int = 1000) -> list[int]:
    """All processes below `pid`, the nearest first; not many more than `enough` of them, for they may be multiplying."""
    found: list[int] = []
    waiting = [pid]
    while waiting and len(found) < enough:
        parent = waiting.pop(0)
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{parent}/task"):
                children = Path(f"/proc/{parent}/task/{task}/children").read_text().split()
                waiting += [int(each) for each in children]
                found += [int(each) for each in children]
    return found


def _kill_below(pid: int) -> int:
    """Kill all that is below `pid`; how many were there."""
    below = _descendants(pid)
    for each in below:
        with contextlib.suppress(OSError):
            os.kill(each, signal.SIGKILL)
    return len(below)


def _own_memory(pid: int) -> int:
    """Bytes of memory that no file on disk stands behind."""
    total = 0
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(("RssAnon:", "RssShmem:", "VmSwap:")):
                total += int(line.split()[1]) << 10
    return total


def main(tier: str, control_fd: str) -> None:
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the judge's
    child.warm_up()
    gc.collect()
    gc.freeze()
    control = socket.socket(fileno=int(control_fd))
    control.send(b"ready")
    syscalls.allow_tracing(False)
    Server(tier, control).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
