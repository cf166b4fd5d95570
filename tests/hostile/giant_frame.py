# Announces four gigabytes.
# exercise: split_mlp
# status: forbidden
import os

for fd in range(3, 256):
    try:
        os.write(fd, b"\xff" * 8)
    except OSError:
        pass
