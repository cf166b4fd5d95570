# Thirty processes that compute for nothing: the neighbours must not starve.
# exercise: tp_autograd
# status: forbidden
import os
import time

for _ in range(30):
    if os.fork() == 0:
        try:
            os.setsid()
        except OSError:
            pass
        time.sleep(0.3)
        while True:
            pass
while True:
    pass
