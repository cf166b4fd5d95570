# Bytes that are no frame.
# exercise: split_mlp
# status: forbidden
import os

for fd in range(3, 256):
    try:
        os.write(fd, bytes(range(256)) * 64)
    except OSError:
        pass
