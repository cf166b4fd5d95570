"""The Linux calls behind the confinement that Python has no functions for. Each raises `OSError` where it is refused."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import socket
import struct
from collections.abc import Iterable

_libc = ctypes.CDLL(None, use_errno=True)

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE = 442, -100, 0x8000
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID = 1, 2

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _PR_SET_CHILD_SUBREAPER = 1, 4, 22, 38, 36
_PR_CAPBSET_DROP = 24


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    _checked(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    result = _libc.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode())
    _checked(result, f"mount on {target}")


def read_only(path: str) -> None:
    """Nothing at and below `path` can be changed through this mount namespace: not even modes and times of files."""
    attributes = struct.pack("QQQQ", _MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID, 0, 0, 0)
    result = _libc.syscall(
        _MOUNT_SETATTR, _AT_FDCWD, path.encode(), _AT_RECURSIVE, attributes, ctypes.c_size_t(len(attributes))
    )
    _checked(result, f"read-only mount of {path}")


def no_new_privileges() -> None:
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def die_with_parent(signal: int) -> None:
    _prctl(_PR_SET_PDEATHSIG, signal)


def adopt_orphans() -> None:
    """From now on the orphans among this process's descendants become its children."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def allow_tracing(allowed: bool) -> None:
    """Whether processes of the same user may trace this one, and whether its files in /proc are its user's."""
    _prctl(_PR_SET_DUMPABLE, int(allowed))


def _prctl(option: int, value: int) -> None:
    _checked(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), "prctl")


def drop_capabilities() -> None:
    """Give up all capabilities, for programs that are run later as well."""
    for capability in range(64):
        if _libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) < 0:
            break  # past the last one that the kernel knows, or not allowed to: then there is nothing to give up
    header = struct.pack("Ii", 0x20080522, 0)  # version 3, this process
    _checked(_libc.capset(header, bytes(24)), "capset")


def loopback_up() -> None:
    """Bring up the loopback interface of a new network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", b"lo", 1)  # IFF_UP
        fcntl.ioctl(any_socket, 0x8914, request)  # SIOCSIFFLAGS


# Landlock: man 7 landlock. Its numbers are the same on all architectures.

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_EXECUTE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 2, 1 << 3
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_OF_A_FILE = _EXECUTE | 1 << 1 | _READ_FILE | 1 << 14  # with write and truncate


def landlock_version() -> int:
    """The version of Landlock that the kernel offers, 0 for none."""
    return max(0, _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1))


def landlock(readable: Iterable[str], writable: Iterable[str]) -> None:
    """From now on only what lies under `readable` can be read, and under `writable` also written. No way back."""
    version = landlock_version()
    if version < 2:
        raise OSError(errno.ENOSYS, "this kernel has no Landlock, or one before version 2")
    everything = (1 << (15 if version >= 3 else 14)) - 1
    ruleset = _checked(
        _libc.syscall(_CREATE_RULESET, struct.pack("Q", everything), ctypes.c_size_t(8), 0), "landlock_create_ruleset"
    )
    for paths, access in ((readable, _READ), (writable, everything)):
        for path in paths:
            if not os.path.exists(path):
                continue
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            allowed = access & everything & (-1 if os.path.isdir(path) else _OF_A_FILE)
            rule = struct.pack("<Qi", allowed, fd)
            _checked(_libc.syscall(_ADD_RULE, ruleset, 1, rule, 0), f"landlock_add_rule for {path}")
            os.close(fd)
    _checked(_libc.syscall(_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
    os.close(ruleset)


# seccomp: man 2 seccomp. A list of calls that fail with EPERM; everything else goes through.

_DENIED = {
    "x86_64": {
        "memfd_create": 319,  # memory that no limit counts
        "shmget": 29,
        "msgget": 68,
        "vmsplice": 278,
        "setsid": 112,  # a scheduler may share out its time by session
        "ptrace": 101,
        "process_vm_readv": 310,
        "process_vm_writev": 311,
        "pidfd_getfd": 438,
        "kcmp": 312,
        "mount": 165,
        "umount2": 166,
        "pivot_root": 155,
        "chroot": 161,
        "unshare": 272,
        "setns": 308,
        "open_tree": 428,
        "move_mount": 429,
        "fsopen": 430,
        "mount_setattr": 442,
        "bpf": 321,
        "perf_event_open": 298,
        "userfaultfd": 323,
        "io_uring_setup": 425,
        "keyctl": 250,
        "add_key": 248,
        "request_key": 249,
    },
    "aarch64": {
        "memfd_create": 279,
        "shmget": 194,
        "msgget": 186,
        "vmsplice": 75,
        "setsid": 157,  # a scheduler may share out its time by session
        "ptrace": 117,
        "process_vm_readv": 270,
        "process_vm_writev": 271,
        "pidfd_getfd": 438,
        "kcmp": 272,
        "mount": 40,
        "umount2": 39,
        "pivot_root": 41,
        "chroot": 51,
        "unshare": 97,
        "setns": 268,
        "open_tree": 428,
        "move_mount": 429,
        "fsopen": 430,
        "mount_setattr": 442,
        "bpf": 280,
        "perf_event_open": 241,
        "userfaultfd": 282,
        "io_uring_setup": 425,
        "keyctl": 219,
        "add_key": 217,
        "request_key": 218,
    },
}
_CALLS = {  # refused for some of their arguments
    "x86_64": {"clone": 56, "mmap": 9, "socket": 41, "socketpair": 53},
    "aarch64": {"clone": 220, "mmap": 222, "socket": 198, "socketpair": 199},
}
_FORKS = {"x86_64": (57, 58), "aarch64": ()}  # fork and vfork
_CLONE3 = 435
_THREAD = 0x00010000
_ANY_NAMESPACE = 0x7E020000
_SHARED, _ANONYMOUS = 0x01, 0x20
_FAMILIES = (2, 10, 16)  # IPv4, IPv6 and netlink: each network namespace has its own of these
_DATAGRAM = 0x2  # in a socket's type; stream and seqpacket don't have this bit
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def deny_system_calls(*, new_processes: bool) -> None:
    """From now on the calls above and new namespaces fail with EPERM; calls of another architecture end the process.

    Without `new_processes` so does all that starts a process; threads may be started.
    """
    machine = platform.machine()
    if machine not in _DENIED:
        raise OSError(errno.ENOSYS, f"the system calls of {machine} are not known here")
    load, equal, any_bit, give = 0x20, 0x15, 0x45, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_JMP|JSET|K, BPF_RET|K
    allow, refuse, unknown, kill = 0x7FFF0000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS, 0x80000000
    program = [
        (load, 0, 0, 4),  # the architecture
        (equal, 1, 0, _ARCHITECTURES[machine]),
        (give, 0, 0, kill),
        (load, 0, 0, 0),  # the call's number
        (any_bit, 0, 1, 0x40000000),  # x32, another set of numbers
        (give, 0, 0, kill),
        (equal, 0, 1, _CLONE3),  # its flags can't be seen from here; the C library falls back to clone
        (give, 0, 0, unknown),
    ]
    denied = [*_DENIED[machine].values(), *([] if new_processes else _FORKS[machine])]
    threads_only = [(any_bit, 1, 0, _ANY_NAMESPACE), (any_bit, 1, 0, _THREAD)]
    for number in denied:
        program += [(equal, 0, 1, number), (give, 0, 0, refuse)]
    # For each call the number of an argument, and jumps that end behind the refusal where it is harmless.
    judged = {
        "clone": (0, [(any_bit, 0, 1, _ANY_NAMESPACE)] if new_processes else threads_only),
        "mmap": (3, [(any_bit, 0, 2, _SHARED), (any_bit, 0, 1, _ANONYMOUS)]),  # stays allocated when nobody maps it
        "socket": (0, [(equal, len(_FAMILIES) - i, 0, family) for i, family in enumerate(_FAMILIES)]),
        "socketpair": (1, [(any_bit, 0, 1, _DATAGRAM)]),  # one that can be connected anew, to a socket in a folder
    }
    for name, (argument, jumps) in judged.items():
        block = [(load, 0, 0, 16 + 8 * argument), *jumps, (give, 0, 0, refuse), (give, 0, 0, allow)]
        program += [(equal, 0, len(block), _CALLS[machine][name]), *block]
    program += [(give, 0, 0, allow)]
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    filter_ = struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer))
    result = _libc.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(2), ctypes.create_string_buffer(filter_, len(filter_)), 0, 0)
    _checked(result, "seccomp")
