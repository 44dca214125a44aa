"""The wire of a one-way channel, and somebody on it: carries frames from one interface to another, loses, repeats and holds back as many of
1,000 as it is told, and adds some of its own. What comes the other way it carries too, and counts.

usage: lossy.py FROM TO LOST-OF-1000 COUNTS
COUNTS is a file that has, as JSON, how many there were of each: `back` what came from TO, `answered` what came from FROM and is no datagram.
"""
import json, os, random, select, socket, struct, sys, time

ahead, behind, loss, counts_file = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
OUTGOING, ALL = 4, 3


def interface(name):
    # Without a protocol until it is bound: else it hears every interface until then (packet(7)).
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    end.bind((name, ALL))
    end.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)  # SO_RCVBUFFORCE
    return end


def checksum(data):
    total = sum(struct.unpack(">%dH" % (len(data) // 2), data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def to_the_sender(frame):
    """What would tell the sender something: datagrams of its own channel the other way, and that its datagrams do not arrive (ICMP, ARP)."""
    source, destination = frame[26:30], frame[30:34]
    ethernet = frame[6:12] + frame[0:6]

    def ip(protocol, payload):
        head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), 0, 0, 64, protocol, 0, destination, source)
        head = head[:10] + struct.pack(">H", checksum(head)) + head[12:]
        return ethernet + b"\x08\x00" + head + payload
    icmp = struct.pack(">BBHI", 3, 3, 0, 0) + frame[14:42]
    icmp = icmp[:2] + struct.pack(">H", checksum(icmp)) + icmp[4:]
    arp = struct.pack(">HHBBH6s4s6s4s", 1, 0x800, 6, 4, 1, frame[0:6], destination, bytes(6), source)
    return [ip(17, frame[36:38] + frame[34:36] + frame[38:]), ip(1, icmp), b"\xff" * 6 + frame[0:6] + b"\x08\x06" + arp]


def to_the_receiver(frame):
    """What a host answers that answers anything: who has its address (ARP), whether it is there (ICMP)."""
    source, destination = frame[26:30], frame[30:34]
    arp = struct.pack(">HHBBH6s4s6s4s", 1, 0x800, 6, 4, 1, frame[6:12], source, bytes(6), destination)
    echo = struct.pack(">BBHHH", 8, 0, 0xF7FF, 0, 0)
    head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 28, 0, 0, 64, 1, 0, source, destination)
    head = head[:10] + struct.pack(">H", checksum(head)) + head[12:]
    return [b"\xff" * 6 + frame[6:12] + b"\x08\x06" + arp, frame[:14] + head + echo]


def forged(frame):
    """One octet of it is another, behind the ports."""
    at = random.randrange(42, len(frame))
    return frame[:at] + bytes([frame[at] ^ (1 << random.randrange(8))]) + frame[at + 1:]


down, up = interface(ahead), interface(behind)
counts = dict(carried=0, answered=0, asked=0, lost=0, repeated=0, held=0, forged=0, replayed=0, back=0, told=0)
held, old, said = [], [], 0.0


def send(end, frame):
    try:
        end.send(frame)
    except OSError:
        counts["lost"] += 1


while True:
    ready, _, _ = select.select([down, up], [], [], 0.01)
    for end in ready:
        frame, (_, _, kind, _, _) = end.recvfrom(65536)
        if kind == OUTGOING:
            continue
        if end is up:
            counts["back"] += 1
            send(down, frame)
            continue
        is_ipv4 = frame[12:14] == b"\x08\x00"
        # A checksum that the sender's interface would have made. With IPv4 0 is none (RFC 768).
        if is_ipv4:
            frame = frame[:40] + b"\0\0" + frame[42:]
        elif frame[12:14] == b"\x86\xdd" and frame[20] == 17:
            datagram = frame[54:60] + b"\0\0" + frame[62:]
            pseudo = frame[22:54] + struct.pack(">II", len(datagram), 17)
            made = checksum(pseudo + datagram + bytes(len(datagram) % 2)) or 0xFFFF
            frame = frame[:60] + struct.pack(">H", made) + frame[62:]
        if not (is_ipv4 and frame[23] == 17) and not (frame[12:14] == b"\x86\xdd" and frame[20] == 17):
            counts["answered"] += 1
        counts["carried"] += 1
        # By chance, since each block has as many datagrams; and ahead of the true one, behind which nobody needs another.
        meddles = is_ipv4 and loss and random.randrange(20) == 0
        if meddles:
            counts["forged"] += 1
            send(up, forged(frame))
        if random.randrange(1000) < loss:
            counts["lost"] += 1
        elif random.randrange(1000) < loss:
            counts["held"] += 1
            held.append((time.monotonic() + random.uniform(0, 0.03), frame))
        else:
            send(up, frame)
        if random.randrange(1000) < loss:
            counts["repeated"] += 1
            send(up, frame)
        if len(old) < 500:
            old.append(frame)
        if meddles:
            counts["replayed"] += 1
            send(up, random.choice(old))
            for more in to_the_receiver(frame):
                counts["asked"] += 1
                send(up, more)
            for more in to_the_sender(frame):
                counts["told"] += 1
                send(down, more)
    now = time.monotonic()
    for _, frame in [one for one in held if one[0] <= now]:
        send(up, frame)
    held = [one for one in held if one[0] > now]
    if now - said > 0.2:
        said = now
        with open(counts_file + ".new", "w") as file:
            json.dump(counts, file)
        os.replace(counts_file + ".new", counts_file)
