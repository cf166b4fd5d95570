# Aborts.
# exercise: comm_cost
# status: crashed
import os

os.abort()
