"""A file system that ceases to answer: an empty directory, until there is a file STOP; then every request is taken, and none is answered.

usage: silent.py DIRECTORY STOP ASKED
ASKED is a file that comes to be when a request has been taken that is not answered. When this ends, whoever waits is told that it is gone.
"""
import ctypes, os, struct, sys

directory, stop, asked = sys.argv[1:4]
libc = ctypes.CDLL(None, use_errno=True)
fuse = os.open("/dev/fuse", os.O_RDWR)
options = "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other" % fuse
if libc.mount(b"silent", directory.encode(), b"fuse", 6, options.encode()) != 0:
    sys.exit(os.strerror(ctypes.get_errno()))
print("mounted", flush=True)

# include/uapi/linux/fuse.h
LOOKUP, FORGET, GETATTR, STATFS, INIT, OPENDIR, READDIR, RELEASEDIR, INTERRUPT, BATCH_FORGET = 1, 2, 3, 17, 26, 27, 28, 29, 36, 42
NOENT, NOSYS = 2, 38


def answer(opcode):
    """The error, and what follows."""
    if opcode == INIT:
        return 0, struct.pack("<IIIIHHIIHHI28x", 7, 31, 1 << 16, 0, 8, 8, 1 << 16, 1, 1, 0, 0)
    if opcode == GETATTR:
        # Known for no time: each is asked for.
        return 0, struct.pack("<QII", 0, 0, 0) + struct.pack("<QQQQQQIIIIIIIIII", 1, 0, 0, 1, 1, 1, 0, 0, 0, 0o40755, 2, 0, 0, 0, 4096, 0)
    if opcode == OPENDIR:
        return 0, struct.pack("<QII", 0, 0, 0)
    if opcode in (READDIR, RELEASEDIR):
        return 0, b""
    if opcode == STATFS:
        return 0, bytes(80)
    return (NOENT if opcode == LOOKUP else NOSYS), b""


while True:
    request = os.read(fuse, 1 << 20)
    _, opcode, unique = struct.unpack("<IIQ", request[:16])
    if opcode in (FORGET, INTERRUPT, BATCH_FORGET):
        continue
    if os.path.exists(stop):
        open(asked, "w").close()
        continue
    error, rest = answer(opcode)
    os.write(fuse, struct.pack("<IiQ", 16 + len(rest), -error, unique) + rest)
