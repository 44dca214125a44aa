# Run inside a compartment: tries to reach what every label has and what the host has, and says for each attempt
# whether it succeeded. It reads on standard input what there is (JSON) and writes a line of JSON per attempt.
# An attempt returns normally if it got what it wanted, and raises if it did not.
import array, errno, fcntl, json, os, signal, socket, struct, sys
from common import *

world = json.load(sys.stdin)
me = world["me"]

# All that a compartment has mounted; /etc/alternatives where the host has it.
OWN_MOUNTS = {"/", "/usr", "/etc/alternatives", "/dev/pts", "/dev/mqueue", "/dev/shm", "/proc", "/tmp", "/run", "/var",
              "/srv/own", "/srv/below"}


class Refused(Exception):
    pass


def want(got, expected):
    if got != expected:
        raise Refused(f"got {got!r}")


def stream(family, address, label):
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.settimeout(2)
        s.connect(address)
        want(s.recv(100).decode(), label)


def datagram(family, address, label):
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        s.settimeout(2)
        s.sendto(b"?", address)
        want(s.recv(100).decode(), label)


def read(path, label):
    with open(path) as f:
        want(f.read(), label)


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


def opened(path, flags=os.O_RDONLY):
    os.close(os.open(path, flags))


def shared_memory(key, label):
    segment = function("shmget", key, 4096, 0)
    address = libc.shmat(segment, None, 0)
    want(ctypes.string_at(address, len(label)).decode(), label)


def locked(path, how):
    """Succeeds if somebody's lock is seen."""
    with open(path) as f:
        try:
            how(f)
        except OSError as e:
            if e.errno in (errno.EAGAIN, errno.EACCES):
                return
            raise
    raise Refused("no lock is seen")


def read_memory(pid, address):
    buffer = ctypes.create_string_buffer(16)
    vector = struct.pack("QQ", ctypes.addressof(buffer), 16)
    remote = struct.pack("QQ", address, 16)
    call("process_vm_readv", pid, ctypes.c_char_p(vector), 1, ctypes.c_char_p(remote), 1, 0)


def read_through_proc(pid, address):
    with open(f"/proc/{pid}/mem", "rb") as f:
        f.seek(address)
        f.read(16)


def descriptor_of(pid):
    """Takes any descriptor of that process."""
    pidfd = call("pidfd_open", pid, 0)
    for fd in range(16):
        try:
            os.close(call("pidfd_getfd", pidfd, fd, 0))
            return
        except OSError as e:
            last = e
    raise last


def attempts_on(o):
    """Everything tried against one label, itself included."""
    own = o["label"] == me
    n, label = o["number"], o["label"]
    below = "/srv/own" if own else f"/srv/below/{o['file_name']}"
    # Process numbers: the own victim by the number it has in here, others by the host's number, which is all that
    # could name them.
    pid = o["inner_pid"] if own else o["victim_pid"]
    yield "read a document", lambda: read(f"{below}/doc.txt", label)
    yield "write a document", lambda: write(f"{below}/doc.txt", label)
    yield "add a document", lambda: write(f"{below}/by-{world['number']}", me)
    yield "add a directory", lambda: os.makedirs(f"{below}/directory-by-{world['number']}", exist_ok=True)
    yield "change a document's mode", lambda: os.chmod(f"{below}/doc.txt", 0o666)
    yield "take a write lease on a document", lambda: fcntl.fcntl(os.open(f"{below}/doc.txt", 0), 1024, 1)
    yield "watch a document", lambda: call("inotify_init1", 0)
    yield "open the store's image", lambda: opened(o["image"])
    yield "open the store's block device", lambda: opened(o["device"])
    yield "TCP over IPv4", lambda: stream(socket.AF_INET, (o["ipv4"], 7000), label)
    yield "TCP over IPv6", lambda: stream(socket.AF_INET6, (o["ipv6"], 7000), label)
    yield "UDP over IPv4", lambda: datagram(socket.AF_INET, (o["ipv4"], 7000), label)
    yield "UDP over IPv6", lambda: datagram(socket.AF_INET6, (o["ipv6"], 7000), label)
    yield "the same server address", lambda: stream(socket.AF_INET, (world["server"], 7000), label)
    yield "Unix socket by path", lambda: stream(socket.AF_UNIX, f"/run/victim-{n}", label)
    yield "Unix socket by abstract name", lambda: stream(socket.AF_UNIX, f"\0victim-{n}", label)
    yield "System V shared memory", lambda: shared_memory(0x51000 + n, label)
    yield "System V message queue", lambda: function("msgget", 0x52000 + n, 0)
    yield "System V semaphore", lambda: function("semget", 0x53000 + n, 1, 0)
    yield "POSIX message queue", lambda: function("mq_open", f"/victim-{n}".encode(), os.O_RDONLY)
    yield "POSIX shared memory", lambda: read(f"/dev/shm/victim-{n}", label)
    yield "meet its lock on a program", lambda: locked(
        o["locked"], lambda f: fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB))
    yield "signal its process", lambda: os.kill(pid, signal.SIGCONT)
    yield "signal its process by pidfd", lambda: call("pidfd_send_signal", call("pidfd_open", pid, 0), 18, 0, 0)
    yield "see its process in /proc", lambda: opened(f"/proc/{pid}/status")
    yield "read its memory", lambda: read_memory(pid, o["secret"])
    yield "read its memory through /proc", lambda: read_through_proc(pid, o["secret"])
    yield "trace its process", lambda: call("ptrace", 16, pid, 0, 0)
    yield "take its descriptors", lambda: descriptor_of(pid)
    init = o["init_pid"]
    yield "enter through its process 1's root", lambda: opened(f"/proc/{init}/root/srv")
    yield "join its network namespace", lambda: call("setns", os.open(f"/proc/{init}/ns/net", 0), 0)
    yield "join its user namespace", lambda: call("setns", os.open(f"/proc/{init}/ns/user", 0), 0)
    yield "signal its vault", lambda: os.kill(o["vault_pid"], 0)
    yield "take its vault's descriptors", lambda: descriptor_of(o["vault_pid"])
    yield "open its vault's descriptors in /proc", lambda: os.listdir(f"/proc/{o['vault_pid']}/fd")
    yield "see its store among the mounts", lambda: mounted(o["device"])
    yield "see its control group", lambda: os.listdir(o["cgroup"])


def refuse():
    raise Refused("empty")


def netlink(kind, flags, body):
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as s:
        s.send(struct.pack("IHHII", 16 + len(body), kind, flags, 1, 0) + body)
        answer = s.recv(65536)
        kind, = struct.unpack_from("H", answer, 4)
        if kind == 2:
            code, = struct.unpack_from("i", answer, 16)
            if code:
                raise OSError(-code, os.strerror(-code))


def interfaces():
    names = sorted(name for _, name in socket.if_nameindex())
    if set(names) <= {"lo", "levee0"}:
        raise Refused(f"only {names}")


def mounts():
    """Where each mount is, and from what."""
    with open("/proc/self/mountinfo") as f:
        for line in f:
            fields, source = line.split(" - ")
            yield fields.split()[4], source.split()[1]


def other_mounts():
    others = sorted(at for at, _ in mounts() if at not in OWN_MOUNTS)
    if not others:
        raise Refused("only its own")


def mounted(device):
    want(device in {source for _, source in mounts()}, True)


def outer_groups():
    """Succeeds if a control group is seen by more than its own name."""
    with open("/proc/self/cgroup") as f:
        paths = {line.strip().split(":", 2)[2] for line in f}
    if paths == {"/"}:
        raise Refused("only its own")


def attempts_on_host():
    h = world["host"]
    yield "connect to the host's loopback", lambda: stream(socket.AF_INET, ("127.0.0.1", h["port"]), "host")
    yield "connect to the host's address", lambda: stream(socket.AF_INET, (h["address"], h["port"]), "host")
    yield "connect to the host's Unix socket", lambda: stream(socket.AF_UNIX, h["socket"], "host")
    yield "connect to the host's abstract socket", lambda: stream(socket.AF_UNIX, "\0" + h["abstract"], "host")
    yield "read a file of the host's", lambda: opened(h["file"])
    yield "list the host's /root", lambda: (os.listdir("/root") or refuse())
    yield "signal the warden", lambda: os.kill(h["warden"], 0)
    yield "take the warden's descriptors", lambda: descriptor_of(h["warden"])
    yield "open the warden's descriptors in /proc", lambda: os.listdir(f"/proc/{h['warden']}/fd")
    yield "open the warden's root", lambda: opened(f"/proc/{h['warden']}/root/etc")
    yield "open process 1's descriptors", lambda: os.listdir("/proc/1/fd")
    yield "open process 1's memory", lambda: opened("/proc/1/mem", os.O_RDWR)
    yield "kill process 1", lambda: os.kill(1, signal.SIGKILL)
    yield "trace process 1", lambda: call("ptrace", 16, 1, 0, 0)
    yield "take process 1's channel", lambda: descriptor_of(1)
    yield "see other interfaces", interfaces
    yield "add an address", lambda: netlink(20, 5, struct.pack(
        "BBBBIHH4s", 2, 24, 0, 0, 1, 8, 2, bytes([10, 9, 9, 9])))
    yield "set an interface down", lambda: netlink(16, 5, struct.pack("BxHiII", 0, 0, 1, 0, 1))
    yield "add a route", lambda: netlink(24, 5, struct.pack("BBBBBBBBIHHI", 2, 0, 0, 0, 254, 4, 253, 1, 0, 8, 4, 1))
    yield "move an interface to the host", lambda: netlink(16, 5, struct.pack(
        "BxHiIIHHI", 0, 0, 1, 0, 0, 8, 19, 1))
    yield "raw socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)
    yield "packet socket", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3)
    yield "vsock", lambda: socket.socket(40, socket.SOCK_STREAM)
    yield "AF_ALG", lambda: socket.socket(38, socket.SOCK_SEQPACKET)
    yield "bluetooth", lambda: socket.socket(31, socket.SOCK_RAW, 1)
    yield "netlink audit", lambda: socket.socket(16, socket.SOCK_RAW, 9)
    yield "netlink uevents", lambda: socket.socket(16, socket.SOCK_RAW, 15)
    yield "netlink netfilter", lambda: socket.socket(16, socket.SOCK_RAW, 12)
    yield "netlink sock_diag", lambda: socket.socket(16, socket.SOCK_RAW, 4)
    yield "open a TUN device", lambda: opened("/dev/net/tun", os.O_RDWR)
    for device in ("mem", "kmsg", "port", "loop-control", "loop0", "vda", "sda", "fuse", "vsock", "kvm", "input", "tty0"):
        yield f"open /dev/{device}", lambda device=device: opened(f"/dev/{device}")
    yield "make a block device", lambda: os.mknod("/tmp/block", 0o60666, os.makedev(7, 0))
    yield "make a memory device", lambda: os.mknod("/tmp/mem", 0o20666, os.makedev(1, 1))
    yield "mount a tmpfs", lambda: call("mount", ctypes.c_char_p(b"x"), ctypes.c_char_p(b"/tmp"), ctypes.c_char_p(b"tmpfs"), 0, 0)
    yield "unmount the copies", lambda: call("umount2", ctypes.c_char_p(b"/srv/below"), 2)
    yield "remount the copies read-write", lambda: call("mount", 0, ctypes.c_char_p(b"/srv/below"), 0, 32 | 4096, 0)
    yield "open a tree to mount", lambda: call("open_tree", -100, ctypes.c_char_p(b"/usr"), 1)
    yield "open a file system to mount", lambda: call("fsopen", ctypes.c_char_p(b"tmpfs"), 0)
    yield "change the root", lambda: call("chroot", ctypes.c_char_p(b"/tmp"))
    yield "pivot the root", lambda: call("pivot_root", ctypes.c_char_p(b"/tmp"), ctypes.c_char_p(b"/tmp"))
    for flag, what in ((0x10000000, "user"), (0x20000, "mount"), (0x40000000, "network"), (0x20000000, "pid"), (0x8000000, "IPC"), (0x2000000, "control-group")):
        yield f"make a {what} namespace", lambda flag=flag: call("unshare", flag)
    yield "clone into a user namespace", lambda: call("clone", 0x10000000 | 17, 0, 0, 0, 0)
    yield "clone3", lambda: call("clone3", ctypes.c_char_p(struct.pack("11Q", 0x10000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0)), 88)
    yield "become uid 0", lambda: os.setuid(0)
    yield "become another uid", lambda: os.setuid(1001)
    yield "gain a group", lambda: os.setgroups([0])
    yield "join a session keyring by name", lambda: call("keyctl", 1, ctypes.c_char_p(b"_ses"), 0, 0, 0)
    yield "list the user keyring", lambda: call("keyctl", 0, -4, 1, 0, 0)
    yield "add a key", lambda: call("add_key", ctypes.c_char_p(b"user"), ctypes.c_char_p(b"x"), ctypes.c_char_p(b"y"), 1, -3)
    yield "the machine's load and memory by sysinfo", lambda: call("sysinfo", ctypes.c_char_p(bytes(200)))
    yield "the kernel's log", lambda: call("syslog", 10, 0, 0)
    for name in ("meminfo", "loadavg", "stat", "uptime", "cpuinfo", "vmstat", "interrupts", "diskstats",
                 "partitions", "kallsyms", "kcore", "sysrq-trigger", "keys", "key-users", "locks", "timer_list",
                 "sys/kernel/hostname", "sys/kernel/random/boot_id", "sys/vm/drop_caches", "sys/fs/file-nr"):
        yield f"/proc/{name}", lambda name=name: opened(f"/proc/{name}")
    yield "see a mount of the host's", other_mounts
    yield "see the host's control groups", outer_groups
    yield "/sys", lambda: os.listdir("/sys")
    yield "/sys/fs/cgroup", lambda: os.listdir("/sys/fs/cgroup")
    yield "/boot", lambda: os.listdir("/boot")
    yield "/etc/shadow", lambda: opened("/etc/shadow")
    yield "write to a program of the host's", lambda: opened("/usr/bin/env", os.O_WRONLY)
    yield "write beside the programs of the host's", lambda: write("/usr/share/x", "x")
    yield "write to /etc", lambda: write("/etc/x", "x")
    yield "write to /", lambda: write("/x", "x")
    yield "a core dump pattern", lambda: write("/proc/sys/kernel/core_pattern", "|/tmp/x")
    yield "a file by handle", lambda: call("open_by_handle_at", -100, ctypes.c_char_p(bytes(64)), 0)
    yield "io_uring", lambda: call("io_uring_setup", 4, ctypes.c_char_p(bytes(120)))
    yield "bpf", lambda: call("bpf", 0, ctypes.c_char_p(bytes(128)), 128)
    yield "perf_event_open", lambda: call("perf_event_open", ctypes.c_char_p(struct.pack("II", 1, 112) + bytes(104)), 0, -1, -1, 0)
    yield "userfaultfd", lambda: call("userfaultfd", 1)
    yield "fanotify", lambda: call("fanotify_init", 0, 0)
    yield "kcmp", lambda: call("kcmp", 1, os.getpid(), 0, 0, 1)
    yield "set the host name", lambda: call("sethostname", ctypes.c_char_p(b"x"), 1)
    yield "set the clock", lambda: call("clock_settime", 0, ctypes.c_char_p(struct.pack("qq", 0, 0)))
    yield "reboot", lambda: call("reboot", 0, 0, 0, 0)
    yield "load a module", lambda: call("init_module", 0, 0, ctypes.c_char_p(b""))
    yield "load a kernel", lambda: call("kexec_load", 0, 0, 0, 0)
    yield "a set-uid program", lambda: set_uid_program()
    yield "type into a terminal", lambda: fcntl.ioctl(0, 0x5412, b"x")


def set_uid_program():
    path = "/tmp/set-uid"
    with open("/usr/bin/id", "rb") as f, open(path, "wb") as g:
        g.write(f.read())
    os.chmod(path, 0o6755)
    if os.popen(path + " -u").read().strip() != "0":
        raise Refused("it does not run as root")


def say(o, what, attempt):
    try:
        attempt()
        ok, detail = True, ""
    except Exception as e:
        ok, detail = False, f"{type(e).__name__}: {e}"
    print(json.dumps({"object": o, "what": what, "ok": ok, "detail": detail}), flush=True)


for o in world["objects"]:
    for what, attempt in attempts_on(o):
        say(o["label"], what, attempt)
for what, attempt in attempts_on_host():
    say("host", what, attempt)
