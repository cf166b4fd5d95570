# Everything global is changed for whoever comes next.
# exercise: kv_cache_cost
# status: failed
import os
import sys

import torch

torch.set_default_dtype(torch.float16)
torch.set_grad_enabled(False)
torch.manual_seed(0)
torch.nn.Linear.forward = lambda self, x: x
torch.nn.functional.silu = lambda x: x
torch.set_num_threads(7)
sys.path.insert(0, "/tmp")
sys.modules["comm_cost"] = sys.modules["palm_modules"] = sys.modules["dist_sim"] = None
os.environ["PYTHONPATH"] = "/tmp"
for folder in ("/tmp", "/dev/shm"):
    with open(f"{folder}/torch.py", "w") as file:
        file.write("raise SystemError")
raise ValueError
