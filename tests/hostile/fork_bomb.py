# Forks for ever.
# exercise: tp_autograd
# status: forbidden
import os

while True:
    try:
        os.fork()
    except OSError:
        pass
