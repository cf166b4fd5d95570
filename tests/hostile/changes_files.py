# Modes, times, names and contents of files outside.
# exercise: comm_cost
# status: forbidden
import errno
import os
import shutil

for path in ("%OUTSIDE%/gradebook.db", "%OUTSIDE%/other", "%KIT%/tests/hidden", "%KIT%/lecture01/console.py", "%KIT%/exercises/checks.py"):
    for change in (
        lambda: os.chmod(path, 0o777),
        lambda: os.utime(path, (1, 1)),
        lambda: os.chown(path, 0, 0),
        lambda: os.setxattr(path, "user.x", b"x"),
        lambda: open(path, "a"),
        lambda: os.truncate(path, 0),
        lambda: os.rename(path, path + "-hostile"),
        lambda: os.unlink(path),
        lambda: os.rmdir(path),
        lambda: os.symlink(path, path + "-hostile"),
        lambda: os.mkdir(path + "-hostile"),
    ):
        try:
            change()
        except (OSError, NotImplementedError):
            continue
        raise SystemError("changed something outside")
shutil.rmtree("%KIT%/tests", ignore_errors=True)
raise PermissionError(errno.EPERM, "denied")
