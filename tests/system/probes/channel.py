# One end of a covert channel: sends or receives bits in windows of wall-clock time, by a counter that the whole
# machine shares. Standard input: which channel, which end, when to begin, how long a window is, the bits.
import json, os, sys, time
from common import *

job = json.load(sys.stdin)


def sessions():
    """Sends by setsid, received as the number that the kernel gives each session's group of processes."""
    if os.fork() == 0:
        os.setsid()
        os._exit(0)
    os.wait()


def session_number():
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.write(writer, open("/proc/self/autogroup", "rb").read())
        os._exit(0)
    os.wait()
    os.close(writer)
    text = os.read(reader, 100).decode()
    os.close(reader)
    return int(text.split()[0].split("-")[1])


def inodes():
    """Sends by making pipes, received as inode numbers, which come in batches of 1,024 for each processor."""
    for _ in range(256):
        a, b = os.pipe()
        os.close(a)
        os.close(b)


def inode_number():
    # Until the own processor's batch is used up and a new one shows how many others have been taken meanwhile.
    for _ in range(1100):
        a, b = os.pipe()
        number = os.fstat(a).st_ino
        os.close(a)
        os.close(b)
    return number


def burn():
    """Sends by using the processor, received as how far a loop gets."""
    sum(range(5000))


def progress():
    return None


CHANNELS = {"setsid": (sessions, session_number), "inodes": (inodes, inode_number), "processor": (burn, progress)}
send, receive = CHANNELS[job["channel"]]
window, begin = job["window"], job["begin"]
seen = []
for i, bit in enumerate(job["bits"]):
    start, end = begin + i * window, begin + (i + 1) * window
    while time.time() < start:
        if start - time.time() > 0.002:
            time.sleep(0.001)
    if job["end"] == "send":
        while bit and time.time() < end - window * 0.25:
            send()
    elif job["channel"] == "processor":
        n = 0
        while time.time() < end - window * 0.1:
            sum(range(1000))
            n += 1
        seen.append(-n)
    else:
        first = receive()
        while time.time() < end - window * 0.2:
            time.sleep(0.0002)
        seen.append(receive() - first)
print(json.dumps(seen))
