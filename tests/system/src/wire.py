"""What an onlooker on the wire of `outer` notes of each packet, until standard input ends. One line a packet:
time, out or in, tcp or udp, TOS, TTL, fragmentation bits, the client's port, the server's, sequence number, length, payload in
hexadecimal (of UDP a digest and the first twelve bytes).
"""
import hashlib, select, socket, struct, sys, time

every = 3
# Without a protocol until it is bound: else it hears every interface until then (packet(7)).
wire = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
wire.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
wire.bind(("outer", every))
print("ready", flush=True)
while True:
    ready = select.select([wire, sys.stdin], [], [])[0]
    if sys.stdin in ready:
        break
    packet, (_, protocol, direction, *_) = wire.recvfrom(70000)
    if protocol != 0x0800 or packet[9] not in (6, 17):
        continue
    way = "out" if direction == socket.PACKET_OUTGOING else "in"
    header = (packet[0] & 15) * 4
    length, = struct.unpack(">H", packet[2:4])
    body = packet[header:length]
    ports = struct.unpack(">HH", body[:4])
    client, server = ports if way == "out" else ports[::-1]
    bits = packet[6] >> 5
    if packet[9] == 17:
        payload, sequence, name = body[8:], 0, "udp"
        shown = payload[:12].hex() + hashlib.sha256(payload).hexdigest()[:16]
    else:
        payload, name = body[(body[12] >> 4) * 4:], "tcp"
        sequence, = struct.unpack(">I", body[4:8])
        # A SYN takes a number: what comes behind it begins a stream.
        if body[13] & 2:
            name = "syn"
        shown = payload.hex()
    print(f"{time.time():.6f} {way} {name} {packet[1]} {packet[8]} {bits} {client} {server} {sequence} {len(payload)} {shown}-", flush=True)
