# What every label has that another one could want: listening sockets of every kind, shared memory, queues,
# semaphores, a locked program file, a process. It answers with its label whoever reaches it.
import fcntl, os, selectors, socket, sys
from common import *

label, number = sys.argv[1], int(sys.argv[2])
name = label.encode()
selector = selectors.DefaultSelector()


def listen(family, kind, address):
    s = socket.socket(family, kind)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    s.bind(address)
    if kind == socket.SOCK_STREAM:
        s.listen(64)
    selector.register(s, selectors.EVENT_READ, kind)


for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    listen(socket.AF_INET, kind, ("0.0.0.0", 7000))
    listen(socket.AF_INET6, kind, ("::", 7000))
listen(socket.AF_UNIX, socket.SOCK_STREAM, f"/run/victim-{number}")
listen(socket.AF_UNIX, socket.SOCK_STREAM, f"\0victim-{number}")

# System V: a segment, a queue and a semaphore, open to every uid.
IPC_CREAT = 0o1000
shm = function("shmget", 0x51000 + number, 4096, IPC_CREAT | 0o666)
ctypes.memmove(libc.shmat(shm, None, 0), name, len(name))
function("msgget", 0x52000 + number, IPC_CREAT | 0o666)
function("semget", 0x53000 + number, 1, IPC_CREAT | 0o666)
# POSIX.
function("mq_open", f"/victim-{number}".encode(), os.O_CREAT | os.O_RDWR, 0o666, None)
with open(f"/dev/shm/victim-{number}", "wb") as f:
    f.write(name)
os.chmod(f"/dev/shm/victim-{number}", 0o666)

# A lock on a program of the host's that everyone has: no other label may meet it.
flocked = open(sys.argv[3])
fcntl.flock(flocked, fcntl.LOCK_EX)

with open("/srv/own/doc.txt", "w") as f:
    f.write(label)
os.chmod("/srv/own/doc.txt", 0o666)
os.makedirs("/srv/own/dir", exist_ok=True)

secret = (b"secret of " + name) * 10  # in memory, for whoever can read it
print("ready", os.getpid(), ctypes.addressof(ctypes.c_char_p(secret)), flush=True)
while True:
    for key, _ in selector.select():
        if key.data == socket.SOCK_STREAM:
            connection, _ = key.fileobj.accept()
            connection.sendall(name)
            connection.close()
        else:
            _, peer = key.fileobj.recvfrom(100)
            key.fileobj.sendto(name, peer)
