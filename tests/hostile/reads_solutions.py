# The solutions, by every way to them.
# exercise: comm_cost
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


kit = "%KIT%"
ways = [kit, *(os.path.relpath(kit, folder) for folder in (".", "/usr/lib", "/tmp"))]
paths = [f"{way}/solutions/lecture09/comm_cost.py" for way in ways]
os.symlink(paths[0], "/tmp/link")
try:
    os.link(paths[0], "/tmp/hard")
except OSError:
    pass
if list(readable([*paths, "/tmp/link", "/tmp/hard", f"{kit}/.git"])):
    raise SystemError("could read it")
raise PermissionError(errno.EPERM, "denied")
