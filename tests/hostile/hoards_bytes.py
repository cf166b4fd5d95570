# Bytes without end.
# exercise: split_mlp
# status: memory
hoard = []
while True:
    hoard.append(bytearray(1 << 28))
