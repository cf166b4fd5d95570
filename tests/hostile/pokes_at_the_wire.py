# Writes through ctypes, past Python, and sends descriptors along.
# exercise: swiglu
# status: forbidden
import array
import ctypes
import os
import socket

libc = ctypes.CDLL(None)
for fd in range(3, 256):
    try:
        one = socket.socket(fileno=os.dup(fd))
        one.sendmsg([b"\0\0\0\4\0\0\0\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
    except OSError:
        continue
    libc.write(fd, b"null", 4)
