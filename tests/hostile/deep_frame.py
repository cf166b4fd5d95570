# A hundred thousand brackets.
# exercise: split_mlp
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


data = b"[" * 100_000 + b"]" * 100_000
everywhere(struct.pack(">II", len(data), 0) + data)
