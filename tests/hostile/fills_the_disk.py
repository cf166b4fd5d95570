# One file in /tmp, without end.
# exercise: comm_cost
# status: output_limit
with open("/tmp/flood", "wb") as file:
    while True:
        file.write(bytes(1 << 20))
