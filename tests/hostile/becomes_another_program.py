# Turns into a program that says "ok" on every descriptor.
# exercise: comm_cost
# status: crashed
import os

for fd in range(3, 64):
    try:
        os.set_inheritable(fd, True)
    except OSError:
        pass
os.execv("/bin/sh", ["sh", "-c", "for n in 3 4 5 6 7 8 9; do echo ok >&$n; done; exit 0"])
