# Files in /dev/shm until it is full.
# exercise: swiglu
# status: output_limit
number = 0
while True:
    number += 1
    with open(f"/dev/shm/{number}", "wb") as file:
        file.write(bytes(16 << 20))
