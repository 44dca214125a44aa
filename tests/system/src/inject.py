"""Has a running process make a system call of somebody else's choice, as code that took it over would.

usage: inject.py PID CALL    CALL is a key of `calls` below
Prints what came of it: «killed by signal N» or «returned N».
"""
import ctypes, os, platform, signal, socket, struct, sys

ATTACH, DETACH, KILL, GETREGS, SETREGS, STEP = 16, 17, 8, 12, 13, 9
WALL, PIDFD_OPEN, PIDFD_GETFD = 0x40000000, 434, 438
REGISTERS = ("r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss "
             "fs_base gs_base ds es fs gs").split()

if platform.machine() != "x86_64":
    sys.exit("inject.py knows the registers of x86_64 alone")
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


class Registers(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in REGISTERS]


def ptrace(request, pid, address=None, data=None):
    if libc.ptrace(request, pid, address, data) == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), f"ptrace {request}")


def sockets(pid):
    """Its sockets, those for datagrams from outside first."""
    pidfd, found = libc.syscall(PIDFD_OPEN, pid, 0), []
    for name in os.listdir(f"/proc/{pid}/fd"):
        if os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
            with socket.socket(fileno=libc.syscall(PIDFD_GETFD, pidfd, int(name), 0)) as ours:
                found.append((ours.family not in (socket.AF_INET, socket.AF_INET6), int(name)))
    return [fd for _, fd in sorted(found)]


def instruction(pid):
    """Where in it a `syscall` instruction is."""
    for line in open(f"/proc/{pid}/maps"):
        bounds, flags, *_ = line.split()
        if flags.startswith("r-x"):
            start, end = (int(bound, 16) for bound in bounds.split("-"))
            at = os.pread(memory, end - start, start).find(b"\x0f\x05")
            if at >= 0:
                return start + at
    sys.exit("no syscall instruction")


pid, call = int(sys.argv[1]), sys.argv[2]
memory = os.open(f"/proc/{pid}/mem", os.O_RDWR)
fd = sockets(pid)[0]
ptrace(ATTACH, pid)
os.waitpid(pid, WALL)
before = Registers()
ptrace(GETREGS, pid, None, ctypes.addressof(before))
scratch = (before.rsp - 4096) & ~63
# {a BPF program that answers 0} {struct sock_fprog of it} {an address, 127.0.0.1:9} {1}
program, filter_, address, one = scratch, scratch + 16, scratch + 32, scratch + 48
os.pwrite(memory, struct.pack("<HBBI8xHxxxxxxQ", 6, 0, 0, 0, 1, program), program)
os.pwrite(memory, struct.pack("<H", socket.AF_INET) + b"\x00\x09\x7f\x00\x00\x01" + bytes(8), address)
os.pwrite(memory, struct.pack("<i", 1), one)
calls = {
    "setsockopt SO_ATTACH_REUSEPORT_CBPF": (54, fd, 1, 51, filter_, 16),
    "setsockopt SO_DETACH_REUSEPORT_BPF": (54, fd, 1, 68, one, 4),
    "connect": (42, fd, address, 16),
    "bind": (49, fd, address, 16),
    "shutdown": (48, fd, 2),
    "ioctl": (16, fd, 0x8912, scratch),
    "ptrace": (101, 0, 0, 0, 0),
}
number, *arguments = calls[call]
after = Registers.from_buffer_copy(before)
after.rip, after.rax, after.orig_rax = instruction(pid), number, 2**64 - 1
for register, value in zip(("rdi", "rsi", "rdx", "r10", "r8"), arguments):
    setattr(after, register, value)
ptrace(SETREGS, pid, None, ctypes.addressof(after))
ptrace(STEP, pid)
_, status = os.waitpid(pid, WALL)
if os.WIFSIGNALED(status):
    print(f"killed by signal {os.WTERMSIG(status)}")
elif os.WSTOPSIG(status) == signal.SIGSYS:
    # The kernel shows the signal to the tracer before it kills.
    ptrace(DETACH, pid)
    print(f"killed by signal {int(signal.SIGSYS)}")
else:
    ptrace(GETREGS, pid, None, ctypes.addressof(after))
    print(f"returned {ctypes.c_longlong(after.rax).value}")
    ptrace(KILL, pid)
