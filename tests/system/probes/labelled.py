"""A host on a labelled network, by hand: ARP or neighbour discovery, IPv4 or IPv6 with any options, and a little TCP. The kernel
has no part in it.

labelled.py 4|6 get OPTION          fetches a page with the option in each packet; prints it, and the options of the answers
labelled.py 4|6 knock COUNT OPTION  so many SYN with the option; prints how many packets answered, of any protocol

4@ADDRESS and 6@ADDRESS: from another address. An OPTION of "" is none.
"""
import os
import select
import socket
import struct
import sys
import time

DEVICE = "eth0"
SYN, ACK, FIN, PSH = 2, 16, 1, 8
TCP, ICMP_6 = 6, 58
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
wire.bind((DEVICE, 0))
mac = wire.getsockname()[4]


def checksum(octets):
    octets += b"\0" * (len(octets) % 2)
    total = sum(struct.unpack(f"!{len(octets) // 2}H", octets))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


class Four:
    own, server = socket.inet_aton("192.168.7.9"), socket.inet_aton("192.168.7.1")
    kind = b"\x08\x00"

    def pseudo(self, protocol, length):
        return self.own + self.server + struct.pack("!HH", protocol, length)

    def packet(self, option, segment):
        option += bytes(-len(option) % 4)
        length = 20 + len(option)
        head = struct.pack("!BBHHHBBH", 0x40 | length // 4, 0, length + len(segment), 1, 0x4000, 64, TCP, 0)
        head += self.own + self.server + option
        return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + segment

    def segment(self, body):
        """The options and the TCP segment of a packet for us."""
        if body[9] == TCP and body[16:20] == self.own:
            length = (body[0] & 15) * 4
            return body[20:length], body[length : struct.unpack("!H", body[2:4])[0]]
        return None

    def is_for_us(self, body):
        return body[16:20] == self.own

    def question(self):
        body = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1) + mac + self.own + bytes(6) + self.server
        return b"\xff" * 6 + mac + b"\x08\x06" + body

    def answer(self, frame):
        """An answer to who asks for our address."""
        body = frame[14:]
        if frame[12:14] == b"\x08\x06" and body[7] == 1 and body[24:28] == self.own:
            return frame[6:12] + mac + b"\x08\x06" + body[:7] + b"\2" + mac + self.own + body[8:18]
        return None

    def found(self, frame):
        """The server's Ethernet address, where it says that."""
        body = frame[14:]
        if frame[12:14] == b"\x08\x06" and body[7] == 2 and body[14:18] == self.server:
            return body[8:14]
        return None


class Six:
    own, server = socket.inet_pton(socket.AF_INET6, "fd07::9"), socket.inet_pton(socket.AF_INET6, "fd07::1")
    kind = b"\x86\xdd"
    SOLICIT, ADVERTISE = 135, 136

    def pseudo(self, protocol, length, to=None):
        return self.own + (to or self.server) + struct.pack("!II", length, protocol)

    def packet(self, option, segment):
        header = b""
        if option:
            padding = -(2 + len(option)) % 8
            filled = b"" if padding == 0 else b"\0" if padding == 1 else bytes([1, padding - 2]) + bytes(padding - 2)
            header = bytes([TCP, (2 + len(option) + padding) // 8 - 1]) + option + filled
        length = len(header) + len(segment)
        head = struct.pack("!IHBB", 6 << 28, length, 0 if header else TCP, 64) + self.own + self.server
        return head + header + segment

    def segment(self, body):
        next_header, option, at = body[6], b"", 40
        if next_header == 0:
            next_header, at = body[40], 40 + (body[41] + 1) * 8
            # The label's option alone, without what fills up behind it.
            option = body[42 : 42 + 2 + body[43]]
        if next_header == TCP and body[24:40] == self.own:
            return option, body[at : 40 + struct.unpack("!H", body[4:6])[0]]
        return None

    def is_for_us(self, body):
        """Of whatever protocol, but for neighbour discovery."""
        return body[24:40] == self.own and not (body[6] == ICMP_6 and 133 <= body[40] <= 137)

    def message(self, kind, flags, to, target, option):
        body = struct.pack("!BBHI", kind, 0, 0, flags) + target + bytes([option, 1]) + mac
        sum_ = checksum(self.pseudo(ICMP_6, len(body), to) + body)
        head = struct.pack("!IHBB", 6 << 28, len(body), ICMP_6, 255) + self.own + to
        return head + body[:2] + struct.pack("!H", sum_) + body[4:]

    def question(self):
        group = socket.inet_pton(socket.AF_INET6, "ff02::1:ff00:1")
        return b"\x33\x33" + group[12:] + mac + self.kind + self.message(self.SOLICIT, 0, group, self.server, 1)

    def answer(self, frame):
        body = frame[14:]
        if frame[12:14] == self.kind and body[6] == ICMP_6 and body[40] == self.SOLICIT and body[48:64] == self.own:
            # Solicited, and to be taken for what was known before.
            said = self.message(self.ADVERTISE, 3 << 29, body[8:24], self.own, 2)
            return frame[6:12] + mac + self.kind + said
        return None

    def found(self, frame):
        body = frame[14:]
        if frame[12:14] == self.kind and body[6] == ICMP_6 and body[40] == self.ADVERTISE and body[48:64] == self.server:
            return frame[6:12]
        return None


def frames(until):
    """What comes for us, with questions for our address answered, until a time."""
    while (left := until - time.monotonic()) > 0:
        if not select.select([wire], [], [], left)[0]:
            return
        frame, sender = wire.recvfrom(65536)
        if sender[2] == socket.PACKET_OUTGOING:
            continue
        if answer := version.answer(frame):
            wire.send(answer)
        yield frame


def find():
    """The server's Ethernet address."""
    for _ in range(10):
        wire.send(version.question())
        for frame in frames(time.monotonic() + 1):
            if address := version.found(frame):
                return address
    sys.exit("nobody answers for the server's address")


def send(to, option, port, sequence, acknowledged, flags, data=b""):
    tcp = struct.pack("!HHIIBBHHH", port, 80, sequence, acknowledged, 0x50, flags, 65535, 0, 0) + data
    tcp = tcp[:16] + struct.pack("!H", checksum(version.pseudo(TCP, len(tcp)) + tcp)) + tcp[18:]
    wire.send(to + mac + version.kind + version.packet(option, tcp))


def answers(port, until):
    """TCP to our port: options, sequence, flags, data."""
    for frame in frames(until):
        if frame[12:14] != version.kind or not (segment := version.segment(frame[14:])):
            continue
        option, tcp = segment
        if struct.unpack("!H", tcp[2:4])[0] == port:
            yield option.hex(), struct.unpack("!I", tcp[4:8])[0], tcp[13], tcp[(tcp[12] >> 4) * 4 :]


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
    for port in range(1024, 1024 + count):
        send(to, option, port, 1, 0, SYN)
    heard = 0
    for frame in frames(time.monotonic() + 0.5):
        heard += frame[12:14] == version.kind and version.is_for_us(frame[14:])
    print("answers", heard)


name, _, own = sys.argv[1].partition("@")
version = Four() if name == "4" else Six()
if own:
    version.own = socket.inet_pton(socket.AF_INET if name == "4" else socket.AF_INET6, own)
if sys.argv[2] == "get":
    get(bytes.fromhex(sys.argv[3]))
else:
    knock(int(sys.argv[3]), bytes.fromhex(sys.argv[4]))
