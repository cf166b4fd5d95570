# Namespaces, mounts, tracing, keys, capabilities, another seccomp filter, higher limits.
# exercise: split_mlp
# status: forbidden
import ctypes
import errno
import os
import resource

libc = ctypes.CDLL(None, use_errno=True)
buffer = ctypes.create_string_buffer(4096)
for call in (
    lambda: libc.unshare(0x10000000),
    lambda: libc.unshare(0x00020000),
    lambda: libc.mount(b"none", b"/tmp", b"tmpfs", 0, None),
    lambda: libc.umount2(b"/proc", 2),
    lambda: libc.chroot(b"/tmp"),
    lambda: libc.ptrace(16, 1, None, None),
    lambda: libc.process_vm_readv(1, buffer, 1, buffer, 1, 0),
    lambda: libc.setns(0, 0),
    lambda: libc.personality(0x0008),
    lambda: libc.syscall(272, 0x10000000),
    lambda: libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0),
    lambda: libc.syscall(425, 1, buffer),
    lambda: libc.setuid(0),
    lambda: libc.setgid(0),
    lambda: libc.capset(buffer, buffer),
):
    ctypes.set_errno(0)
    if call() == 0 and call.__code__.co_names[1] not in ("personality",) and os.getuid() == 0:
        raise SystemError("it was allowed")
for limit in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE):
    try:
        resource.setrlimit(limit, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (ValueError, OSError):
        continue
    raise SystemError("a limit was raised")
raise PermissionError(errno.EPERM, "denied")
