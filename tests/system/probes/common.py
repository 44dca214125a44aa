# System calls that Python has no function for. x86-64 and aarch64 numbers differ, so by name.
import ctypes, os, platform, errno

libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
NUMBERS = {
    "x86_64": {
        "ptrace": 101, "process_vm_readv": 310, "pidfd_open": 434, "pidfd_getfd": 438, "add_key": 248,
        "request_key": 249, "keyctl": 250, "bpf": 321, "perf_event_open": 298, "io_uring_setup": 425,
        "unshare": 272, "setns": 308, "mount": 165, "umount2": 166, "open_tree": 428, "fsopen": 430,
        "move_mount": 429, "pivot_root": 155, "chroot": 161, "sysinfo": 99, "syslog": 103, "userfaultfd": 323,
        "kexec_load": 246, "init_module": 175, "open_by_handle_at": 304, "name_to_handle_at": 303,
        "kcmp": 312, "quotactl": 179, "swapon": 167, "reboot": 169, "settimeofday": 164, "sethostname": 170,
        "clone3": 435, "inotify_init1": 294, "fanotify_init": 300, "acct": 163, "iopl": 172, "ioperm": 173,
        "process_madvise": 440, "pidfd_send_signal": 424, "clone": 56, "clock_settime": 227,
    },
    "aarch64": {
        "ptrace": 117, "process_vm_readv": 270, "pidfd_open": 434, "pidfd_getfd": 438, "add_key": 217,
        "request_key": 218, "keyctl": 219, "bpf": 280, "perf_event_open": 241, "io_uring_setup": 425,
        "unshare": 97, "setns": 268, "mount": 40, "umount2": 39, "open_tree": 428, "fsopen": 430,
        "move_mount": 429, "pivot_root": 41, "chroot": 51, "sysinfo": 179, "syslog": 116, "userfaultfd": 282,
        "kexec_load": 104, "init_module": 105, "open_by_handle_at": 265, "name_to_handle_at": 264,
        "kcmp": 272, "quotactl": 60, "swapon": 224, "reboot": 142, "settimeofday": 170, "sethostname": 161,
        "clone3": 435, "inotify_init1": 26, "fanotify_init": 262, "acct": 89,
        "process_madvise": 440, "pidfd_send_signal": 424, "clone": 220, "clock_settime": 112,
    },
}[platform.machine()]


def call(name, *arguments):
    """A raw system call; raises OSError as the kernel says."""
    arguments = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    answer = libc.syscall(ctypes.c_long(NUMBERS[name]), *arguments)
    if answer < 0:
        e = ctypes.get_errno()
        raise OSError(e, os.strerror(e))
    return answer


def function(name, *arguments):
    """A libc function that returns -1 and sets errno."""
    f = getattr(libc, name)
    f.restype = ctypes.c_int
    answer = f(*arguments)
    if answer == -1:
        e = ctypes.get_errno()
        raise OSError(e, os.strerror(e))
    return answer
