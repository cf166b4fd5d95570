# Leaves itself neither files nor memory for the next request.
# exercise: comm_cost
# status: crashed
import resource

resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def __getattr__(name):
    return lambda *_: 1
