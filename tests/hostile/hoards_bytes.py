# Bytes without end.
# exercise: split_mlp
# status: memory
hoard = []
while True:
    hoard.append(bytearray(b"x") * (1 << 26))
