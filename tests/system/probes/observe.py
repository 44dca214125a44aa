# Run inside a compartment: everything that an unprivileged program can read of the machine's state, as JSON. What
# is this process's own (its times, its memory) is left out.
import json, os, resource, socket, sys
from common import *

world = json.load(sys.stdin)
seen = {}


def note(what, look):
    try:
        seen[what] = look()
    except Exception as e:
        seen[what] = f"{type(e).__name__}: {e}"


def read(path):
    with open(path, errors="replace") as f:
        return f.read()


for mount in ("/", "/usr", "/etc", "/dev", "/dev/shm", "/dev/mqueue", "/dev/pts", "/proc", "/tmp", "/run", "/var",
              "/srv/own", "/srv/below"):
    def space(mount=mount):
        s = os.statvfs(mount)
        return [s.f_blocks, s.f_bfree, s.f_bavail, s.f_files, s.f_ffree]
    note(f"space of {mount}", space)
    note(f"entries of {mount}", lambda mount=mount: sorted(e for e in os.listdir(mount) if not e.isdigit()))

# The numbers of its own label's processes only.
note("processes", lambda: len([p for p in os.listdir("/proc") if p.isdigit()]))
for name in ("cgroup", "mountinfo", "mounts", "limits", "loginuid", "sessionid", "cpuset", "uid_map", "gid_map",
             "projid_map", "setgroups", "oom_score_adj", "autogroup", "timens_offsets", "personality"):
    note(f"/proc/self/{name}", lambda name=name: read(f"/proc/self/{name}").splitlines()[:200])
for name in sorted(os.listdir("/proc/self/net")):
    path = f"/proc/self/net/{name}"
    if os.path.isdir(path):
        note(path, lambda path=path: {n: read(f"{path}/{n}") for n in sorted(os.listdir(path))})
    else:
        note(path, lambda path=path: read(path))
for name in ("loadavg", "meminfo", "stat", "uptime", "vmstat", "cpuinfo", "diskstats", "interrupts", "softirqs",
             "schedstat", "slabinfo", "buddyinfo", "zoneinfo", "pressure/cpu", "pressure/memory", "sys/fs/file-nr",
             "sys/fs/inode-nr", "sys/fs/dentry-state", "sys/kernel/pty/nr", "sys/kernel/random/entropy_avail", "locks",
             "key-users", "net/sockstat", "net/softnet_stat"):
    note(f"/proc/{name}", lambda name=name: read(f"/proc/{name}"))
note("load", lambda: os.getloadavg())
note("sysinfo", lambda: call("sysinfo", ctypes.c_char_p(bytes(200))))
# Not SC_AVPHYS_PAGES: glibc does not look whether sysinfo failed, and answers what was on its stack.
note("processors", lambda: os.cpu_count())
note("affinity", lambda: sorted(os.sched_getaffinity(0)))
note("uname", lambda: list(os.uname()))
note("interfaces", lambda: socket.if_nameindex())
note("limits", lambda: [resource.getrlimit(i) for i in range(16)])
note("a lock on a program", lambda: __import__("fcntl").flock(open("/usr/bin/env"), 6))
for limit in ("user/max_user_namespaces", "kernel/pid_max", "kernel/threads-max", "fs/file-max"):
    note(f"sysctl {limit}", lambda limit=limit: read(f"/proc/sys/{limit}"))
print(json.dumps(seen))
