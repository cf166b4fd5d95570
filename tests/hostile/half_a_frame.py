# Begins a frame and never ends it.
# exercise: comm_cost
# status: timeout
import os
import time

for fd in range(3, 256):
    try:
        os.write(fd, b"\0\0\1\0\0\0\0\0{")
    except OSError:
        pass
time.sleep(1000)
