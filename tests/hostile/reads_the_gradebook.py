# A gradebook and another submission beside this one.
# exercise: swiglu
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


if list(readable(["%OUTSIDE%/gradebook.db", "%OUTSIDE%/other/lecture10/palm_modules.py", "%OUTSIDE%", "/etc/passwd"])):
    raise SystemError("could read it")
raise PermissionError(errno.EPERM, "denied")
