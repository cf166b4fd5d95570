# The host's loopback, its local sockets and the world outside.
# exercise: comm_cost
# status: forbidden
import errno
import socket

reached = []
for address in (("127.0.0.1", int("%PORT%")), ("localhost", int("%PORT%")), ("1.1.1.1", 53), ("169.254.169.254", 80)):
    try:
        reached.append(socket.create_connection(address, timeout=1))
    except OSError:
        pass
for family, address in ((socket.AF_UNIX, "\0hostile-%PORT%"), (socket.AF_UNIX, "%OUTSIDE%/socket"), (40, (2, 1024))):
    try:
        with socket.socket(family, socket.SOCK_STREAM) as one:
            one.settimeout(1)
            one.connect(address)
            reached.append(one)
    except OSError:
        pass
try:
    socket.getaddrinfo("example.org", 80)
    reached.append("a name server")
except OSError:
    pass
if reached:
    raise SystemError("reached something")
raise PermissionError(errno.EPERM, "denied")
