# Eight gigabytes in a tensor.
# exercise: swiglu
# status: memory
import torch

torch.ones(1 << 30)
