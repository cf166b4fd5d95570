# Results too large or too deep to send.
# exercise: split_mlp
# status: failed
def deep():
    value = []
    for _ in range(100_000):
        value = [value]
    return value


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return lambda *_: deep() if len(name) % 2 else [0] * 10_000_000
