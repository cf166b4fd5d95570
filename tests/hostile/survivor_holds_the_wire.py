# Leaves, while a child keeps the wire open.
# exercise: tp_autograd
# status: crashed
import os
import time

if os.fork() == 0:
    time.sleep(1000)
os._exit(0)
