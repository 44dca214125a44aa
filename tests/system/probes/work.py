# Run inside a compartment: uses up what it can of everything, says so, and goes on until it is killed.
import fcntl, json, multiprocessing, os, signal, socket, sys, threading
from common import *

json.load(sys.stdin)
held = []


def until_refused(make, most):
    for i in range(most):
        try:
            held.append(make(i))
        except OSError:
            return i
    return most


def fill(path):
    try:
        with open(path, "wb", buffering=0) as f:
            while f.write(bytes(1 << 16)):
                pass
    except OSError:
        pass


os.makedirs("/srv/own/many", exist_ok=True)
directory = os.open("/srv/own/many", os.O_RDONLY)
files = until_refused(lambda i: os.close(os.open(f"/srv/own/many/{i}", os.O_CREAT | os.O_WRONLY)), 3000)
for path in ("/srv/own/big", "/tmp/big", "/run/big", "/var/big", "/dev/shm/big"):
    fill(path)
queues = until_refused(lambda i: function("mq_open", b"/w%d" % i, os.O_CREAT | os.O_RDWR, 0o600, None), 1000)
segments = until_refused(lambda i: function("shmget", 0x61000 + i, 1 << 20, 0o1600), 50)
pipes = until_refused(lambda i: os.pipe(), 200)
terminals = until_refused(lambda i: os.openpty(), 50)
locks = until_refused(lambda i: fcntl.flock(held.append(open("/usr/bin/env")) or held[-1], fcntl.LOCK_SH), 1)
listener = socket.create_server(("127.0.0.1", 7777), backlog=1000)
connections = until_refused(lambda i: (socket.create_connection(("127.0.0.1", 7777)), listener.accept()[0]), 200)


def traffic():
    a, b = socket.socketpair()
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    while True:
        for c, d in [c for c in held if isinstance(c, tuple) and isinstance(c[0], socket.socket)]:
            c.send(bytes(1000))
        udp.sendto(bytes(1000), ("127.0.0.1", 7000))


def burn():
    while True:
        sum(range(100000))


for target in (burn, burn):
    multiprocessing.Process(target=target, daemon=True).start()
threading.Thread(target=traffic, daemon=True).start()
print(json.dumps({"files": files, "queues": queues, "segments": segments, "pipes": pipes, "terminals": terminals,
                  "connections": connections}), flush=True)
signal.pause()
