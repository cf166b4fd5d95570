# KeyboardInterrupt and GeneratorExit, which are no Exceptions.
# exercise: kv_cache_cost
# status: crashed
def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def leave(*_):
        raise KeyboardInterrupt if len(name) % 2 else GeneratorExit

    return leave
