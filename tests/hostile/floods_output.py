# Prints without end.
# exercise: swiglu
# status: output_limit
while True:
    print("x" * (1 << 20))
