"""Says what can be done with sockets of other processes, without doing it: a line "PID FD reads writes" for each pair "PID FD" that is
given and is one, with "-" for what cannot be (pidfd_getfd(2))."""

import ctypes
import errno
import os
import socket
import sys

GETFD = 438
libc = ctypes.CDLL(None, use_errno=True)
for line in sys.stdin:
    pid, fd = map(int, line.split())
    process = os.pidfd_open(pid)
    copy = libc.syscall(GETFD, process, fd, 0)
    os.close(process)
    if copy < 0:
        sys.exit(f"descriptor {fd} of {pid}: {os.strerror(ctypes.get_errno())}")
    room = ctypes.create_string_buffer(16)
    flags = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
    read = libc.recv(copy, room, 16, flags | socket.MSG_PEEK)
    if read < 0 and ctypes.get_errno() == errno.ENOTSOCK:
        os.close(copy)
        continue
    # From where no memory is: what could be sent is not, and what could not says so before.
    written = libc.send(copy, ctypes.c_void_p(1), 16, flags)
    sent = written >= 0 or ctypes.get_errno() != errno.EPIPE
    print(pid, fd, "-" if read == 0 else "reads", "writes" if sent else "-")
    os.close(copy)
