# The same on the other stream, past Python.
# exercise: comm_cost
# status: output_limit
import os

while True:
    if os.write(2, b"y" * (1 << 20)) <= 0:
        break
