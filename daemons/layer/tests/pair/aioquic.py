"""The other end of a second tunnel, by another implementation of QUIC and TLS (aioquic).
client CHAIN KEY AUTHORITY NAME PORT ALPN: says how the tunnel came to be, sends a datagram of each length from 1 octet to the longest in steps, and says which came back.
server CHAIN KEY AUTHORITY NAME PORT ALPN: sends back what comes. Without a chain (-) it shows no certificate."""

import asyncio
import logging
import sys

from aioquic import tls
from aioquic.asyncio import QuicConnectionProtocol, connect, serve
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, DatagramFrameReceived, HandshakeCompleted

role, chain, key, authority, name, port, alpn = sys.argv[1:]
LENGTHS = [1, 2, 100, 1000, 1316]


class End(QuicConnectionProtocol):
    def quic_event_received(self, event):
        if isinstance(event, HandshakeCompleted):
            suite = self._quic.tls.key_schedule.cipher_suite
            print("up", event.alpn_protocol, suite.name, flush=True)
            if role == "client":
                for length in LENGTHS:
                    # (An octet that says what it is, and a packet of the tunnel within.)
                    self._quic.send_datagram_frame(b"\1" + bytes([length % 256]) * length)
                self.transmit()
        elif isinstance(event, DatagramFrameReceived):
            if role == "server":
                self._quic.send_datagram_frame(event.data)
                self.transmit()
            else:
                print("came", event.data[0], len(event.data) - 1, flush=True)
        elif isinstance(event, ConnectionTerminated):
            print("over", event.error_code, event.reason_phrase, flush=True)


def configuration():
    made = QuicConfiguration(
        is_client=role == "client",
        alpn_protocols=[alpn],
        server_name=name,
        max_datagram_frame_size=65535,
        max_datagram_size=1452,
        cafile=authority,
    )
    if chain != "-":
        made.load_cert_chain(chain, key)
    return made


class Asking(tls.Context):
    """A server that asks for a certificate, as levee's does; the one that it is shown is not looked at."""

    def __init__(self, *all, **named):
        super().__init__(*all, **named)
        self._request_client_certificate = not self._is_client


async def main():
    if role == "server":
        import aioquic.quic.connection

        aioquic.quic.connection.tls.Context = Asking
        await serve("127.0.0.1", int(port), configuration=configuration(), create_protocol=End)
        print("serves", flush=True)
        await asyncio.Future()
    try:
        async with connect("127.0.0.1", int(port), configuration=configuration(), create_protocol=End) as end:
            await end.wait_closed()
    except ConnectionError:
        pass


logging.getLogger("quic").setLevel(logging.CRITICAL)
asyncio.run(main())
