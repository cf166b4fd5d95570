# Files and nested folders without end.
# exercise: split_mlp
# status: output_limit
import os

os.chdir("/tmp")
while True:
    os.mkdir("x" * 200)
    os.chdir("x" * 200)
