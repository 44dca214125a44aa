"""A host on a labelled network, by hand: ARP, IPv4 with any options, and a little TCP. The kernel has no part in it.

cipso.py get OPTION          fetches a page with the option in each packet; prints it, and the options of the answers
cipso.py knock COUNT OPTION  so many SYN with the option; prints how many packets answered
"""
import os
import select
import socket
import struct
import sys
import time

DEVICE, OWN, SERVER = "eth0", socket.inet_aton("192.168.7.9"), socket.inet_aton("192.168.7.1")
SYN, ACK, FIN, PSH = 2, 16, 1, 8
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
wire.bind((DEVICE, 0))
mac = wire.getsockname()[4]


def checksum(octets):
    octets += b"\0" * (len(octets) % 2)
    total = sum(struct.unpack(f"!{len(octets) // 2}H", octets))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def frames(until):
    """What comes for us, with ARP answered, until a time."""
    while (left := until - time.monotonic()) > 0:
        if not select.select([wire], [], [], left)[0]:
            return
        frame, sender = wire.recvfrom(65536)
        if sender[2] == socket.PACKET_OUTGOING:
            continue
        kind, body = frame[12:14], frame[14:]
        if kind == b"\x08\x06" and body[7] == 1 and body[24:28] == OWN:
            answer = body[:7] + b"\2" + mac + OWN + body[8:18]
            wire.send(frame[6:12] + mac + b"\x08\x06" + answer)
        yield kind, body


def find():
    """The server's Ethernet address."""
    question = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1) + mac + OWN + bytes(6) + SERVER
    for _ in range(10):
        wire.send(b"\xff" * 6 + mac + b"\x08\x06" + question)
        for kind, body in frames(time.monotonic() + 1):
            if kind == b"\x08\x06" and body[7] == 2 and body[14:18] == SERVER:
                return body[8:14]
    sys.exit("nobody answers for the server's address")


def send(to, option, port, sequence, acknowledged, flags, data=b""):
    tcp = struct.pack("!HHIIBBHHH", port, 80, sequence, acknowledged, 0x50, flags, 65535, 0, 0) + data
    pseudo = OWN + SERVER + struct.pack("!HH", 6, len(tcp))
    tcp = tcp[:16] + struct.pack("!H", checksum(pseudo + tcp)) + tcp[18:]
    option += bytes(-len(option) % 4)
    length = 20 + len(option)
    head = struct.pack("!BBHHHBBH", 0x40 | length // 4, 0, length + len(tcp), 1, 0x4000, 64, 6, 0) + OWN + SERVER + option
    head = head[:10] + struct.pack("!H", checksum(head)) + head[12:]
    wire.send(to + mac + b"\x08\x00" + head + tcp)


def answers(port, until):
    """TCP to our port: options, sequence, flags, data."""
    for kind, body in frames(until):
        if kind != b"\x08\x00" or body[9] != 6 or body[16:20] != OWN:
            continue
        length = (body[0] & 15) * 4
        tcp = body[length : struct.unpack("!H", body[2:4])[0]]
        if struct.unpack("!H", tcp[2:4])[0] == port:
            yield body[20:length].hex(), struct.unpack("!I", tcp[4:8])[0], tcp[13], tcp[(tcp[12] >> 4) * 4 :]


def get(option):
    to, port, own = find(), 20000 + os.getpid() % 40000, 1000
    labels, page, theirs, ended = set(), b"", None, False
    until = time.monotonic() + 10
    send(to, option, port, own, 0, SYN)
    for label, sequence, flags, data in answers(port, until):
        labels.add(label)
        if theirs is None and flags & SYN:
            theirs, own = sequence + 1, own + 1
            send(to, option, port, own, theirs, ACK | PSH, b"GET / HTTP/1.0\r\n\r\n")
            own += 18
        elif theirs is not None and sequence == theirs and (data or flags & FIN):
            page, ended = page + data, bool(flags & FIN)
            theirs += len(data) + ended
            send(to, option, port, own, theirs, ACK | (FIN if ended else 0))
            if ended:
                break
    print(page.decode(errors="replace"))
    print("labels", *sorted(labels))


def knock(count, option):
    to = find()
    ports = range(1024, 1024 + count)
    for port in ports:
        send(to, option, port, 1, 0, SYN)
    heard = 0
    for kind, body in frames(time.monotonic() + 0.5):
        heard += kind == b"\x08\x00"
    print("answers", heard)


if sys.argv[1] == "get":
    get(bytes.fromhex(sys.argv[2]))
else:
    knock(int(sys.argv[2]), bytes.fromhex(sys.argv[3]))
