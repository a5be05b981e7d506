"""Servers that are the other end of a line: `echo.py KIND PORT`."""
import asyncio
import socket
import struct
import sys

KIND, PORT = sys.argv[1], int(sys.argv[2])


def names():
    """Answers every A question with 192.0.2.7 and names without `there` with NXDOMAIN."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", PORT))
    while True:
        question, client = server.recvfrom(2000)
        end = question.index(b"\0", 12) + 5
        asked = question[12:end]
        kind = struct.unpack("!H", asked[-4:-2])[0]
        found = b"there" in asked
        answers = {1: bytes([192, 0, 2, 7]), 28: socket.inet_pton(socket.AF_INET6, "2001:db8::7")}
        data = answers.get(kind, b"") if found else b""
        head = question[:2] + struct.pack("!HHHHH", 0x8580 if found else 0x8583, 1, bool(data), 0, 0)
        record = b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, 60, len(data)) + data if data else b""
        server.sendto(head + asked + record, client)


def files():
    """TFTP: `data` is a file of 1,300 bytes."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", PORT))
    contents = bytes(range(256)) * 5 + b"the twenty last bytes"[:20]
    while True:
        question, client = server.recvfrom(2000)
        transfer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        transfer.bind(("127.0.0.1", 0))
        if not question[2:].startswith(b"data\0"):
            transfer.sendto(struct.pack("!HH", 5, 1) + b"none\0", client)
            continue
        for number, at in enumerate(range(0, len(contents) + 1, 512), 1):
            transfer.sendto(struct.pack("!HH", 3, number) + contents[at:at + 512], client)
            transfer.recvfrom(2000)


async def byte_echo(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def echo():
    server = await asyncio.start_server(byte_echo, "127.0.0.1", PORT, backlog=200)
    await server.serve_forever()


def silence():
    """A listener that accepts and says nothing."""
    server = socket.create_server(("127.0.0.1", PORT))
    kept = []
    while True:
        kept.append(server.accept())


if KIND == "echo":
    asyncio.run(echo())
else:
    {"names": names, "files": files, "silence": silence}[KIND]()
