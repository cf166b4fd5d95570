# Closes every descriptor and sleeps.
# exercise: swiglu
# status: crashed
import os
import time

os.closerange(3, 256)
time.sleep(1000)
