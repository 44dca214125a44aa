# One end of a covert channel by what two labels could share: `above` sends a bit in each window, or does as much that says
# nothing; `below` prints what it saw in each. A refusal is seen as None. Standard input: channel, end, begin, window, bits.
import ctypes, fcntl, json, mmap, os, socket, struct, sys, threading, time
from common import *

job = json.load(sys.stdin)
window = 0.0
PROGRAM = os.path.realpath("/usr/bin/python3")
# Of the same package, and nobody has it mapped.
TEXT = f"/usr/lib/python{sys.version_info.major}.{sys.version_info.minor}/pydoc_data/topics.py"
libc.syscall.restype = ctypes.c_long


def refused(f):
    """None where the kernel says no."""
    try:
        return f()
    except (OSError, AttributeError):
        return None


class Locks:
    """Record locks on one inode: held, or not, and asked for."""

    WORDS = "hhqqi4x"

    def __init__(self, fd, ask=36, set=37):  # F_OFD_GETLK, F_OFD_SETLK
        self.fd, self.ask, self.set = fd, ask, set

    def lock(self, how):
        fcntl.fcntl(self.fd, self.set, struct.pack(self.WORDS, how, 0, 4242, 1, 0))

    def send(self, bit):
        # A read lock suffices, and the descriptor need not be writable for it.
        refused(lambda: self.lock(1 if self.writable() else 0) if bit else self.lock(2))

    def writable(self):
        return os.O_ACCMODE & fcntl.fcntl(self.fd, fcntl.F_GETFL) != os.O_RDONLY

    def look(self):
        ask = struct.pack(self.WORDS, 1, 0, 4242, 1, 0)
        answer = refused(lambda: fcntl.fcntl(self.fd, self.ask, ask))
        return None if answer is None else int(struct.unpack(self.WORDS, answer)[0] != 2)


class Whole(Locks):
    """flock(2) on one inode."""

    def send(self, bit):
        refused(lambda: fcntl.flock(self.fd, fcntl.LOCK_EX if bit else fcntl.LOCK_UN))

    def look(self):
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(self.fd, fcntl.LOCK_UN)
            return 0
        except BlockingIOError:
            return 1
        except OSError:
            return None


class Futex:
    """A sleeper on a word of a program's file, and who wakes it."""

    WAIT, WAKE, NUMBER, WAITV = 0, 1, {"x86_64": 202, "aarch64": 98}[platform.machine()], 449

    def __init__(self, flags, vector=False):
        self.fd = os.open(PROGRAM, os.O_RDONLY)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
        self.at = libc.mmap(None, 4096, mmap.PROT_READ, flags, self.fd, 0x1000) + 64
        self.word = ctypes.c_uint32.from_address(self.at).value
        self.vector = vector

    def send(self, bit):
        until = time.time() + window * 0.5
        while bit and time.time() < until:
            libc.syscall(self.NUMBER, ctypes.c_void_p(self.at), self.WAKE, 1, None, None, 0)

    def end_thread(self):
        """A thread that ends wakes whoever waits on the word that it has named, by the kernel itself."""
        libc.syscall({"x86_64": 218, "aarch64": 96}[platform.machine()], ctypes.c_void_p(self.at))

    def wait(self):
        if self.vector:
            waiter = struct.pack("QQII", self.word, self.at, 2, 0)
            end = time.clock_gettime(time.CLOCK_MONOTONIC) + window * 0.5
            limit = struct.pack("qq", int(end), int(end % 1 * 1e9))
            return libc.syscall(self.WAITV, waiter, 1, 0, limit, 1)
        limit = struct.pack("qq", 0, int(window * 0.5e9))
        return libc.syscall(self.NUMBER, ctypes.c_void_p(self.at), self.WAIT, self.word, limit, None, 0)

    early = True

    def look(self):
        answer = self.wait()
        if answer >= 0:
            return 1
        return 0 if ctypes.get_errno() == errno.ETIMEDOUT else None


class ThreadsEnd(Futex):
    """The same, woken by the end of threads."""

    def send(self, bit):
        until = time.time() + window * 0.4
        while bit and time.time() < until:
            threading.Thread(target=self.end_thread, daemon=True).start()
            time.sleep(window * 0.1)


class Counter:
    """A number that the whole machine shares: how far it went in a window."""

    def __init__(self, count, read):
        self.count, self.read = count, read
        self.last = refused(read)

    def send(self, bit):
        if bit:
            for _ in range(8):
                refused(self.count)

    def look(self):
        now = refused(self.read)
        seen = None if now is None or self.last is None else now - self.last
        self.last = now
        return seen


def eventfd_id():
    fd = os.eventfd(0)
    try:
        text = open(f"/proc/self/fdinfo/{fd}").read()
        return int(next(line for line in text.splitlines() if "eventfd-id" in line).split()[1])
    finally:
        os.close(fd)


class Events(Counter):
    """The first free one of the machine's numbers of eventfds."""

    def __init__(self):
        self.held = []

    def send(self, bit):
        while self.held:
            os.close(self.held.pop())
        self.held = [os.eventfd(0) for _ in range(300 if bit else 0)]

    def look(self):
        return refused(eventfd_id)


def child():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def pidfd():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    try:
        fd = os.pidfd_open(pid)
        number = os.fstat(fd).st_ino
        os.close(fd)
        return number
    finally:
        os.waitpid(pid, 0)


def clone_pidfd():
    place = ctypes.c_int(-1)
    pid = call("clone", 0x1000 | 17, 0, ctypes.byref(place), 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    number = os.fstat(place.value).st_ino
    os.close(place.value)
    return number


def peer_pidfd():
    a, b = socket.socketpair()
    fd = a.getsockopt(socket.SOL_SOCKET, 77)  # SO_PEERPIDFD
    number = os.fstat(fd).st_ino
    os.close(fd)
    return number


def session():
    """Sets the audit session anew: the number that the kernel gives it counts all of the machine's."""
    pid = os.fork()
    if pid == 0:
        try:
            open("/proc/thread-self/loginuid", "w").write("1000")
        except OSError:
            os._exit(1)
        os._exit(0)
    os.waitpid(pid, 0)


def session_number():
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            open("/proc/thread-self/loginuid", "w").write("1000")
            os.write(writer, open("/proc/self/sessionid", "rb").read())
        except OSError:
            pass
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(writer)
    text = os.read(reader, 20)
    os.close(reader)
    return int(text) if text else None


def arp():
    """Looks a neighbour up, as SIOCGARP does."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        ask = struct.pack("HH4s8x", 2, 0, bytes([10, 80, 1, 7])) + struct.pack("H14xi16x", 0, 0) + b"levee0".ljust(16, b"\0")
        refused(lambda: fcntl.ioctl(s, 0x8954, bytearray(ask[:68])))


def lookups():
    """How often anybody has looked a neighbour up (RTM_GETNEIGHTBL, NDTPA_STATS)."""
    with socket.socket(16, socket.SOCK_RAW, 0) as s:
        s.send(struct.pack("IHHII", 20, 66, 0x301, 1, 0) + struct.pack("B3x", 2))
        found = None
        while True:
            data = s.recv(65536)
            while data:
                length, kind = struct.unpack_from("IH", data)
                if kind == 3:
                    return found
                if kind == 2:
                    raise OSError("refused")
                attributes = data[20:length]
                while len(attributes) >= 4:
                    size, what = struct.unpack_from("HH", attributes)
                    if size < 4:
                        break
                    if what & 0x3FFF == 7 and found is None:
                        found = struct.unpack_from("5Q", attributes, 4)[4]
                    attributes = attributes[(size + 3) & ~3 :]
                data = data[(length + 3) & ~3 :]


class Pages:
    """Whether a page of a program's file is in memory. The sender reads it, or another that nobody looks at."""

    AT = 1 << 18

    def __init__(self, look):
        self.fd = os.open(TEXT, os.O_RDONLY)
        self.look = getattr(self, look)
        self.look()

    def send(self, bit):
        time.sleep(window * 0.3)
        os.pread(self.fd, 4096, self.AT if bit else self.AT * 2)
        if not bit:
            os.posix_fadvise(self.fd, self.AT * 2, 4096, os.POSIX_FADV_DONTNEED)

    def evict(self):
        os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def timed(self):
        begun = time.perf_counter_ns()
        os.pread(self.fd, 4096, self.AT)
        took = time.perf_counter_ns() - begun
        self.evict()
        return took

    def at_once(self):
        there = 1
        try:
            os.preadv(self.fd, [bytearray(4096)], self.AT, 8)  # RWF_NOWAIT
        except OSError as e:
            there = 0 if e.errno == errno.EAGAIN else None
        self.evict()
        return there


def source_port():
    """The port that the kernel gives a connection: drawn from a counter for each pair of ends, whichever label's they are."""
    with socket.socket() as s:
        s.setblocking(False)
        s.connect_ex(("127.0.0.9", 9))
        return s.getsockname()[1]


class Stamps:
    """Whether anybody on the machine wants to know when packets came: then all have a time from when they did."""

    held = None

    def send(self, bit):
        if bit and not self.held:
            self.held = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            refused(lambda: self.held.setsockopt(socket.SOL_SOCKET, 29, 1))  # SO_TIMESTAMP
        elif not bit and self.held:
            self.held.close()
            self.held = None

    def look(self):
        kinds = (socket.AF_INET, socket.SOCK_DGRAM)
        with socket.socket(*kinds) as to, socket.socket(*kinds) as by:
            to.bind(("127.0.0.1", 0))
            by.sendto(b"x", to.getsockname())
            time.sleep(0.0005)
            asked = time.time()
            try:
                to.setsockopt(socket.SOL_SOCKET, 29, 1)
            except OSError:
                return None
            seconds, rest = struct.unpack("qq", to.recvmsg(1, 64)[1][0][2])
            return int(seconds + rest / 1e6 < asked - 0.0003)


def null():
    return os.open("/dev/null", os.O_RDWR)


CHANNELS = {
    "locks on /dev/null": lambda: Locks(null()),
    # One open file description in both: its owner is the process.
    "locks on what is inherited": lambda: Locks(2, 5, 6),
    "locks on an eventfd": lambda: Locks(os.eventfd(0)),
    "locks on an epoll": lambda: Locks(libc.epoll_create1(0)),
    "locks on a timerfd": lambda: Locks(libc.timerfd_create(1, 0)),
    "whole locks on an eventfd": lambda: Whole(os.eventfd(0)),
    "locks on the time namespace": lambda: Locks(os.open("/proc/self/ns/time", os.O_RDONLY)),
    "locks on a program": lambda: Locks(os.open(PROGRAM, os.O_RDONLY)),
    "futex on a shared page of a program": lambda: Futex(mmap.MAP_SHARED),
    "futex on a private page of a program": lambda: Futex(mmap.MAP_PRIVATE),
    "futex vector on a page of a program": lambda: Futex(mmap.MAP_SHARED, True),
    "futex woken by a thread's end": lambda: ThreadsEnd(mmap.MAP_SHARED),
    "numbers of eventfds": Events,
    "inode of a pidfd": lambda: Counter(child, pidfd),
    "inode of a pidfd from clone": lambda: Counter(child, clone_pidfd),
    "inode of a pidfd from a socket": lambda: Counter(child, peer_pidfd),
    "audit sessions": lambda: Counter(session, session_number),
    "neighbours looked up": lambda: Counter(arp, lookups),
    "source ports": lambda: Counter(source_port, source_port),
    "time stamps": Stamps,
    "page cache, timed": lambda: Pages("timed"),
    "page cache, without waiting": lambda: Pages("at_once"),
}


def wait(until):
    while time.time() < until:
        if until - time.time() > 0.002:
            time.sleep(0.001)


def run(name, begin):
    channel = refused(CHANNELS[name])
    seen = []
    for i, bit in enumerate(job["bits"]):
        start = begin + i * window
        if job["end"] == "send":
            wait(start)
            if channel:
                channel.send(bit)
        else:
            # A sleeper is there before it is woken; whatever else is looked at shows what was done.
            wait(start if getattr(channel, "early", False) else start + window * 0.75)
            seen.append(channel.look() if channel else None)
    if job["end"] == "send" and channel:
        channel.send(0)  # nothing is left held for the next channel
    return seen


all = {}
for name, begin, window in job["channels"]:
    wait(begin - 0.1)
    all[name] = run(name, begin)
print(json.dumps(all))
