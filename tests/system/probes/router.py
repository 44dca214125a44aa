"""A router on a labelled network, by hand: between two links, of which the way through takes less. The kernel has no part in it, since Linux
refuses options of a domain that NetLabel does not know, and labels no error of IPv6.

router.py MTU ONE OTHER      passes frames from one interface to the other. A packet that is larger than MTU is not passed: its sender is told
                             (RFC 1191, RFC 4443 3.2), with the label of the packet, as RFC 5570 and CIPSO's draft (5.4) have it.
"""
import select
import socket
import struct
import sys

PACKET_VNET_HDR, SOL_PACKET = 15, 263
VNET, ETHERNET = 10, 14
# Of itself, in both versions.
FOUR, SIX = socket.inet_aton("192.168.7.254"), socket.inet_pton(socket.AF_INET6, "fd07::254")


def checksum(octets):
    octets += b"\0" * (len(octets) % 2)
    total = sum(struct.unpack(f"!{len(octets) // 2}H", octets))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def opened(name):
    # Without a protocol until it is bound: else it hears every interface until then (packet(7)).
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    # Frames come with what is left to do about them, and go on with it: aggregates, checksums.
    end.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    end.bind((name, 3))
    return end


def largest(vnet, packet, headers):
    """Octets of the largest packet that a frame becomes. An aggregate is cut up behind the transport's header."""
    length, size = struct.unpack("=HH", vnet[2:6])
    return headers + 20 + size + 12 if vnet[1] else len(packet)


def error_four(packet):
    length = (packet[0] & 15) * 4
    body = struct.pack("!BBHHH", 3, 4, 0, 0, mtu) + packet[: length + 8]
    body = body[:2] + struct.pack("!H", checksum(body)) + body[4:]
    head = packet[:1] + b"\0" + struct.pack("!HHHBBH", length + len(body), 0, 0, 64, 1, 0) + FOUR + packet[12:16]
    head += packet[20:length]
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + body


def error_six(packet):
    options = packet[40 : 40 + (packet[41] + 1) * 8] if packet[6] == 0 else b""
    body = struct.pack("!BBHI", 2, 0, 0, mtu) + packet[:600]
    pseudo = SIX + packet[8:24] + struct.pack("!II", len(body), 58)
    body = body[:2] + struct.pack("!H", checksum(pseudo + body)) + body[4:]
    first, options = (0, b"\x3a" + options[1:]) if options else (58, b"")
    return packet[:4] + struct.pack("!HBB", len(options) + len(body), first, 64) + SIX + packet[8:24] + options + body


def told(vnet, frame):
    """The error about a packet that is too large, if it is."""
    kind, packet = frame[12:14], frame[ETHERNET:]
    if kind == b"\x08\x00":
        total, headers = struct.unpack("!H", packet[2:4])[0], (packet[0] & 15) * 4
        large = largest(vnet, packet[:total], headers) > mtu
        return error_four(packet) if large and packet[6] & 0x40 else None
    if kind == b"\x86\xdd":
        total = 40 + struct.unpack("!H", packet[4:6])[0]
        headers = 40 + ((packet[41] + 1) * 8 if packet[6] == 0 else 0)
        return error_six(packet) if largest(vnet, packet[:total], headers) > mtu else None
    return None


mtu, ends = int(sys.argv[1]), [opened(name) for name in sys.argv[2:4]]
print("ready", flush=True)
while True:
    for end in select.select(ends, [], [])[0]:
        other = ends[1 - ends.index(end)]
        octets, sender = end.recvfrom(VNET + ETHERNET + 66_000)
        if sender[2] == socket.PACKET_OUTGOING:
            continue
        vnet, frame = octets[:VNET], octets[VNET:]
        if error := told(vnet, frame):
            end.send(bytes(VNET) + frame[6:12] + frame[:6] + frame[12:14] + error)
        else:
            other.send(octets)
