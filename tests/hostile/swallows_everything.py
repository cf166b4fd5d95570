# A loop that no exception ends.
# exercise: comm_cost
# status: timeout
while True:
    try:
        while True:
            pass
    except BaseException:
        continue
