# Programs that take a little each: the limit is for all of them together.
# exercise: tp_autograd
# status: memory
import subprocess
import sys
import time

program = "import time; hoard = bytes(range(250)) * 1_800_000; time.sleep(1000)"
crowd = [subprocess.Popen([sys.executable, "-S", "-E", "-c", program]) for _ in range(6)]
time.sleep(1000)
