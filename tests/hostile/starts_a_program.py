# Starts another program and a fork, where no exercise needs any.
# exercise: comm_cost
# status: forbidden
import os
import subprocess

try:
    os.fork()
except OSError:
    subprocess.run(["/bin/true"], check=True)
raise SystemError("a process was started")
