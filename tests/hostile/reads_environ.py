# The environment, here and in other processes.
# exercise: split_mlp
# status: forbidden
import errno
import glob
import os


def readable(paths):
    for path in paths:
        try:
            if os.path.isdir(path):
                os.listdir(path)
            else:
                open(path, "rb").read(1)
        except OSError:
            continue
        yield path


if any("SECRET" in value for value in os.environ.values()):
    raise SystemError("the judge's environment")
if list(readable(["/proc/self/environ", "/proc/1/environ", "/proc/self/mem", *glob.glob("/proc/[0-9]*/*"), *glob.glob("/sys/*")])):
    raise SystemError("could read it")
raise PermissionError(errno.EPERM, "denied")
