# SystemExit from an import, from a finaliser and at exit.
# exercise: swiglu
# status: failed
import atexit


class Leaver:
    def __del__(self):
        raise SystemExit(0)


atexit.register(exit, 0)
Leaver()
raise SystemExit(0)
