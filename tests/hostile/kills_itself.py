# SIGKILL to itself: the first process of a namespace is deaf to it.
# exercise: swiglu
# status: failed
import os
import signal

os.kill(os.getpid(), signal.SIGKILL)
