# Disarms every timer and alarm, ignores every signal, then loops.
# exercise: comm_cost
# status: timeout
import faulthandler
import resource
import signal

signal.alarm(0)
signal.setitimer(signal.ITIMER_REAL, 0)
signal.setitimer(signal.ITIMER_PROF, 0)
faulthandler.cancel_dump_traceback_later()
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    try:
        signal.signal(number, signal.SIG_IGN)
    except OSError:
        pass
try:
    resource.setrlimit(resource.RLIMIT_CPU, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
except (ValueError, OSError):
    pass
while True:
    pass
