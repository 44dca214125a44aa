"""Says which open file descriptions two processes have in common: a line "PID FD PID FD" for each pair that is given and is the same
(kcmp(2), KCMP_FILE)."""

import ctypes
import platform
import sys

KCMP = {"x86_64": 312, "aarch64": 272}[platform.machine()]
libc = ctypes.CDLL(None, use_errno=True)
for line in sys.stdin:
    first, one, second, other = map(int, line.split())
    answer = libc.syscall(KCMP, first, second, 0, ctypes.c_ulong(one), ctypes.c_ulong(other))
    if answer == 0:
        print(first, one, second, other)
