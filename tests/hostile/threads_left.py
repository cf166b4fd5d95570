# Two hundred threads that never end.
# exercise: swiglu
# status: failed
import threading
import time

for _ in range(200):
    try:
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    except RuntimeError:
        break
