"""What an attacker on the wire can do with ESP in UDP: catch a datagram, and send others. And what root in a
compartment's network can: send packets that are nobody's.

usage: datagrams.py catch           prints, in hexadecimal, the next ESP datagram that leaves by `outer` for port 4500
       datagrams.py send HEX...     sends each to 10.77.0.1:4500; HEX*N is HEX and N zero bytes behind it
       datagrams.py stray SOURCE PORT DESTINATION PROTOCOL OFFSET LENGTH
                                    sends one IPv4 packet; its offset is that of a fragment, its length of what is in it
"""
import socket, struct, sys, time


def catch():
    # Of one protocol alone, only what arrives would be seen.
    every = 3
    # Without a protocol until it is bound: else it hears every interface until then (packet(7)).
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
    wire.bind(("outer", every))
    print("ready", flush=True)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        wire.settimeout(max(0.01, until - time.monotonic()))
        packet, (_, protocol, direction, *_) = wire.recvfrom(65536)
        if protocol != 0x0800:
            continue
        header = (packet[0] & 15) * 4
        udp = packet[header:]
        leaves = direction == socket.PACKET_OUTGOING and packet[9] == 17 and udp[2:4] == (4500).to_bytes(2, "big")
        # RFC 3948 2.2: a first word of zero is IKE.
        if leaves and len(udp) > 12 and udp[8:12] != bytes(4):
            # The checksum is not there yet, but the length is: a super-segment is none to catch.
            return udp[8:int.from_bytes(udp[4:6], "big")].hex()
    sys.exit("nothing was sent")


def stray(source, port, destination, protocol, offset, length):
    # Ports, and zeros for the rest.
    body = struct.pack(">HH", int(port), 9).ljust(int(length), b"\0")
    header = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(body), 1, int(offset), 64, int(protocol), 0,
                         socket.inet_aton(source), socket.inet_aton(destination))
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as out:
        out.sendto(header + body, (destination, 0))


if sys.argv[1] == "catch":
    print(catch(), flush=True)
elif sys.argv[1] == "stray":
    stray(*sys.argv[2:])
else:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        for text in sys.argv[2:]:
            text, _, zeros = text.partition("*")
            out.sendto(bytes.fromhex(text) + bytes(int(zeros or 0)), ("10.77.0.1", 4500))
