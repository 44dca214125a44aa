#!/usr/bin/env python3
"""An etcd that is an enemy: it stands between the servers of a federation and a real etcd, and does with what passes what it is told.

usage: carrier.py STATE ORDERS    STATE has etcd's key and certificates; ORDERS is a file with one order a line, read at each message:

    hide ADDRESS WORD     this server hears nothing of keys that have WORD in them
    alter WORD            a bit of each value of such a key is another
    repeat ADDRESS        after each message this server hears all that there was before, once more
    back ADDRESS          this server hears of each key what it said first, and so when it reads the table
    late ADDRESS SECONDS  this server hears everything so much later
    swap                  each server's envelope is shown under the other's name
    flood                 with each message come keys that nobody writes, and values that nobody signed
    rant ADDRESS          this server is told at great length that its watch is over
    deaf ADDRESS          what this server writes is not carried out, and said to be

Nothing here knows a key of a server: what it cannot sign it can only make up.
"""

import base64
import http.client
import json
import os
import socket
import ssl
import sys
import threading
import time

STATE, ORDERS = sys.argv[1:3]
ETCD = ("127.0.0.1", 23790)
NAMES = {"10.77.0.1": "server.harbour.example", "10.77.0.2": "two.harbour.example"}
PREFIX = "/levee/harbour/server/"
lock = threading.Lock()
# Of each key, everything it ever said.
history = {}


def orders(kind, address):
    try:
        with open(ORDERS) as file:
            lines = [line.split() for line in file if line.strip()]
    except FileNotFoundError:
        return []
    return [line for line in lines if line[0] == kind and (address is None or line[1] == address)]


def text(key):
    return base64.b64decode(key).decode("utf-8", "replace")


def remember(kv):
    with lock:
        all = history.setdefault(kv["key"], [])
        if kv.get("value") and (not all or all[-1]["value"] != kv["value"]) and len(all) < 400:
            all.append(dict(kv))


def flip(value):
    raw = bytearray(base64.b64decode(value))
    if raw:
        raw[len(raw) // 2] ^= 1
    return base64.b64encode(bytes(raw)).decode()


def twisted(kvs, address):
    """What is shown to this server in the place of these."""
    shown = []
    for kv in kvs:
        remember(kv)
        kv, key = dict(kv), text(kv["key"])
        if any(word in key for _, _, word in orders("hide", address)):
            continue
        if kv.get("value"):
            if any(word in key for _, word in orders("alter", None)):
                kv["value"] = flip(kv["value"])
            if orders("back", address):
                with lock:
                    kv["value"] = history[kv["key"]][0]["value"]
            if orders("swap", None):
                for a, b in (("server.", "two."), ("two.", "server.")):
                    if key == PREFIX + a + "harbour.example":
                        kv["key"] = base64.b64encode((PREFIX + b + "harbour.example").encode()).decode()
        shown.append(kv)
    if orders("repeat", address):
        with lock:
            old = [dict(kv) for all in history.values() for kv in all[-40:]]
        shown += [dict(kv, mod_revision=kvs[-1]["mod_revision"]) for kv in old if kvs]
    if kvs and orders("flood", None):
        junk = base64.b64encode(os.urandom(70_000)).decode()
        like = lambda key, value: dict(kvs[-1], key=base64.b64encode(key.encode()).decode(), value=value)
        shown.append(like(f"{PREFIX}two.harbour.example", junk))
        for n in range(8):
            shown.append(like(f"{PREFIX}stranger-{n}.example", junk[:4000]))
            shown.append(like(f"{PREFIX}two.harbour.example", junk[: 4 * 100 * (n + 1)]))
            shown.append(like(f"{PREFIX}two.harbour.example/{n}", junk[:4000]))
            shown.append(like(f"/levee/harbour/session/ws{n}", junk[:400]))
    return shown


def chunk(data):
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def serve(stream, address):
    upstream = http.client.HTTPConnection(*ETCD)
    file = stream.makefile("rb")
    while True:
        head = file.readline().split()
        if len(head) < 2:
            return
        length = 0
        while (line := file.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        body, path = file.read(length), head[1].decode()
        if path == "/v3/kv/txn" and orders("deaf", address):
            answer(stream, b'{"header":{"revision":"1"},"succeeded":true}')
            continue
        upstream.request("POST", path, body)
        response = upstream.getresponse()
        if path == "/v3/watch":
            return watch(stream, response, address)
        data = response.read()
        if path == "/v3/kv/range" and response.status == 200:
            found = json.loads(data)
            found["kvs"] = twisted(found.get("kvs", []), address)
            data = json.dumps(found).encode()
        answer(stream, data, response.status)


def answer(stream, data, status=200):
    stream.sendall(f"HTTP/1.1 {status} OK\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)


def watch(stream, response, address):
    stream.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while line := response.readline():
        said = json.loads(line)
        result = said.get("result", {})
        events = result.get("events", [])
        for _, _, seconds in orders("late", address):
            time.sleep(float(seconds))
        if events:
            puts = [event["kv"] for event in events if event.get("type", "PUT") == "PUT"]
            result["events"] = [{"kv": kv} for kv in twisted(puts, address)]
        if orders("rant", address):
            result["canceled"] = "because " * 4000
        stream.sendall(chunk(json.dumps(said).encode() + b"\n"))


def client(raw, address):
    try:
        with context.wrap_socket(raw, server_side=True) as stream:
            serve(stream, address)
    except (OSError, ValueError, http.client.HTTPException):
        pass


context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(f"{STATE}/chain.pem", f"{STATE}/tls.key")
context.load_verify_locations(f"{STATE}/authority.pem")
context.verify_mode = ssl.CERT_REQUIRED
listener = socket.create_server(("10.77.0.9", 2379), backlog=64)
while True:
    connection, (host, _) = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    threading.Thread(target=client, args=(connection, host), daemon=True).start()
