"""Asks in thirty made-up names where the server is: by ARP, and by neighbour solicitation (RFC 4861)."""
import socket, struct
raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
raw.bind(('eth0', 0))
mac = raw.getsockname()[4]
server4, server6 = socket.inet_aton('192.168.7.1'), socket.inet_pton(socket.AF_INET6, 'fd07::1')
for n in range(100, 130):
    name = socket.inet_aton('192.168.7.%d' % n)
    request = struct.pack('!HHBBH', 1, 0x800, 6, 4, 1) + mac + name + bytes(6) + server4
    raw.send(b'\xff' * 6 + mac + b'\x08\x06' + request)
    name = socket.inet_pton(socket.AF_INET6, 'fd07::%d' % n)
    group = socket.inet_pton(socket.AF_INET6, 'ff02::1:ff00:1')
    asks = struct.pack('!BBHI', 135, 0, 0, 0) + server6 + b'\x01\x01' + mac
    summed = name + group + struct.pack('!II', len(asks), 58) + asks
    total = sum(struct.unpack('!%dH' % (len(summed) // 2), summed))
    total = (total & 0xffff) + (total >> 16)
    total = ~((total & 0xffff) + (total >> 16)) & 0xffff
    asks = asks[:2] + struct.pack('!H', total) + asks[4:]
    header = struct.pack('!IHBB', 6 << 28, len(asks), 58, 255) + name + group
    raw.send(b'\x33\x33\xff\x00\x00\x01' + mac + b'\x86\xdd' + header + asks)
