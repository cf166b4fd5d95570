# Answers left in /tmp, /dev/shm and on the network for the next child.
# exercise: comm_cost
# status: crashed
import os
import socket

for folder in ("/tmp", "/dev/shm"):
    if os.path.exists(f"{folder}/hostile-note"):
        raise SystemError("an earlier child left it")
    with open(f"{folder}/hostile-note", "w") as file:
        file.write("answers")
with socket.socket() as one:
    one.bind(("127.0.0.1", 4321))
os._exit(0)
