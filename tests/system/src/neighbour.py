"""Lines "uid UID", "pid PID" and "path PATH": says what a process with each of these uids, and no capability, may do to these processes and
files: signal, trace, read. Nothing is said of what may not be done."""

import ctypes
import os
import sys

PTRACE_SEIZE, PTRACE_DETACH = 0x4206, 17
libc = ctypes.CDLL(None, use_errno=True)
words = [line.split(None, 1) for line in sys.stdin]
given = {kind: [value.strip() for k, value in words if k == kind] for kind in ("uid", "pid", "path")}


def tries(uid, pid):
    yield "signals", lambda: os.kill(pid, 0)
    for name in ("mem", "environ", "fd/0", "maps"):
        yield "reads " + name + " of", lambda name=name: os.close(os.open(f"/proc/{pid}/{name}", os.O_RDONLY))
    yield "traces", lambda: trace(pid)


def trace(pid):
    if libc.ptrace(PTRACE_SEIZE, pid, None, None) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")
    libc.ptrace(PTRACE_DETACH, pid, None, None)


for uid in map(int, given["uid"]):
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        every = [(f"{what} {pid}", act) for pid in map(int, given["pid"]) for what, act in tries(uid, pid)]
        for path in given["path"]:
            every.append((f"opens {path}", lambda path=path: os.close(os.open(path, os.O_RDONLY))))
        for what, act in every:
            try:
                act()
                print(uid, what, flush=True)
            except OSError:
                pass
        os._exit(0)
    os.waitpid(child, 0)
