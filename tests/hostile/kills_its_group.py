# SIGKILL to its process group: the server is of the same one, if nobody has seen to it.
# exercise: kv_cache_cost
# status: failed
import os
import signal

os.kill(0, signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
