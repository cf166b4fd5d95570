# Memory files and shared mappings, which address-space limits don't see.
# exercise: split_mlp
# status: forbidden
import ctypes
import errno
import mmap
import os

for take in (lambda: os.memfd_create("x"), lambda: mmap.mmap(-1, 1 << 20), lambda: open("/dev/zero", "r+b") and None):
    try:
        if take():
            raise SystemError("got memory that nobody counts")
    except OSError:
        pass
libc = ctypes.CDLL(None)
if libc.shmget(0, 1 << 20, 0o1600) >= 0 or libc.msgget(0, 0o1600) >= 0:
    raise SystemError("got memory that nobody counts")
raise PermissionError(errno.EPERM, "denied")
