# Forks for ever, where no exercise needs any process.
# exercise: comm_cost
# status: timeout
import os

while True:
    try:
        os.fork()
    except OSError:
        pass
