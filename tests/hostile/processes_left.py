# A daemon of the daemon: double forks that ignore signals and go on.
# exercise: tp_autograd
# status: forbidden
import os
import signal
import time

for _ in range(5):
    if os.fork() == 0:
        if os.fork() == 0:
            for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            time.sleep(1000)
        os._exit(0)
raise ValueError
