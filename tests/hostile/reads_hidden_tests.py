# Hidden tests, misconceptions and the judge.
# exercise: kv_cache_cost
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
if list(readable([f"{kit}/tests/hidden/test_hidden_kv_cache_cost.py", f"{kit}/tests/misconceptions/comm_cost.toml"])):
    raise SystemError("could read it")
if list(readable([f"{kit}/grader/judge.py", f"{kit}/tests", *glob.glob(f"{kit}/tests/*")])):
    raise SystemError("could read it")
raise PermissionError(errno.EPERM, "denied")
