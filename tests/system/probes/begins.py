"""begins.py MAC: begins connections at SECRET in thirty made-up names, by the server's Ethernet address, with CIPSO's label and with CALIPSO's."""
import socket, struct, sys
raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
raw.bind(('eth0', 0))
mac, to = raw.getsockname()[4], bytes.fromhex(sys.argv[1].replace(':', ''))
def checksum(octets):
    total = sum(struct.unpack('!%dH' % (len(octets) // 2), octets))
    total = (total & 0xffff) + (total >> 16)
    return ~((total & 0xffff) + (total >> 16)) & 0xffff
def segment(ends):
    syn = struct.pack('!HHIIBBHHH', 40000, 80, 1, 0, 0x50, 2, 65535, 0, 0)
    return syn[:16] + struct.pack('!H', checksum(ends + struct.pack('!II', len(syn), 6) + syn)) + syn[18:]
cipso, calipso = bytes.fromhex('860a00000010010400050000'), bytes.fromhex('0708000000100005ba55')
for n in range(130, 160):
    ends = socket.inet_aton('192.168.7.%d' % n) + socket.inet_aton('192.168.7.1')
    tcp = segment(ends)
    head = struct.pack('!BBHHHBBH', 0x48, 0, 32 + len(tcp), 1, 0x4000, 64, 6, 0) + ends + cipso
    head = head[:10] + struct.pack('!H', checksum(head)) + head[12:]
    raw.send(to + mac + b'\x08\x00' + head + tcp)
    ends = socket.inet_pton(socket.AF_INET6, 'fd07::%d' % n) + socket.inet_pton(socket.AF_INET6, 'fd07::1')
    tcp = segment(ends)
    options = bytes([6, 1]) + calipso + bytes([1, 2, 0, 0])
    raw.send(to + mac + b'\x86\xdd' + struct.pack('!IHBB', 6 << 28, 16 + len(tcp), 0, 64) + ends + options + tcp)
