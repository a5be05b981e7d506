"""What programs in Python do with sockets, each with both ends: `cases.py CASE PORT`."""
import array
import asyncio
import base64
import errno
import hashlib
import os
import select
import selectors
import socket
import socketserver
import ssl
import struct
import sys
import threading

PORT = int(sys.argv[2])
HERE = ("127.0.0.1", PORT)


def name(error):
    return errno.errorcode.get(error.errno, str(error))


async def echoed(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


def asyncio_echo():
    async def one(number):
        reader, writer = await asyncio.open_connection(*HERE)
        writer.write(b"%d" % number * 1000)
        writer.write_eof()
        return len(await reader.read())

    async def main():
        await asyncio.start_server(echoed, *HERE)
        print(sum(await asyncio.gather(*map(one, range(100)))))

    asyncio.run(main())


def asyncio_datagrams():
    class Server(asyncio.DatagramProtocol):
        def connection_made(self, transport):
            self.transport = transport

        def datagram_received(self, data, address):
            self.transport.sendto(data[::-1], address)

    class Client(asyncio.DatagramProtocol):
        def __init__(self, done):
            self.done = done

        def datagram_received(self, data, address):
            self.done.set_result((data, address))

        def error_received(self, error):
            self.done.set_result(name(error))

    async def ask(port):
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        transport, _ = await loop.create_datagram_endpoint(lambda: Client(done), remote_addr=("127.0.0.1", port))
        transport.sendto(b"stressed")
        answer = await asyncio.wait_for(done, 10)
        transport.close()
        return answer

    async def main():
        await asyncio.get_running_loop().create_datagram_endpoint(Server, local_addr=HERE)
        print(await ask(PORT), await ask(PORT + 1))

    asyncio.run(main())


def asyncio_tls():
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain("both.pem")
    client = ssl.create_default_context(cafile="both.pem")

    async def main():
        await asyncio.start_server(echoed, *HERE, ssl=server)
        reader, writer = await asyncio.open_connection(*HERE, ssl=client, server_hostname="localhost")
        writer.write(b"x" * 200_000)
        print(len(await reader.readexactly(200_000)), writer.get_extra_info("cipher")[1])
        writer.close()

    asyncio.run(main())


def threads():
    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            for line in self.rfile:
                self.wfile.write(line.upper())

    socketserver.ThreadingTCPServer.allow_reuse_address = True
    server = socketserver.ThreadingTCPServer(HERE, Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    clients = [socket.create_connection(HERE) for _ in range(30)]
    for number, client in enumerate(clients):
        client.sendall(b"line %d\n" % number)
    print(sorted(client.recv(100) for client in clients)[:5])
    server.shutdown()


def forks():
    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.sendall(self.request.recv(100) + b" from a child")

    server = socketserver.ForkingTCPServer(HERE, Handler)
    child = os.fork()
    if child == 0:
        for _ in range(3):
            server.handle_request()
        server.server_close()
        os._exit(0)
    server.socket.close()
    for number in range(3):
        with socket.create_connection(HERE) as client:
            client.sendall(b"%d" % number)
            print(client.recv(100))
    print(os.waitpid(child, 0)[1])


def epoll():
    server = socket.create_server(HERE, backlog=100)
    server.setblocking(False)
    poll = select.epoll()
    poll.register(server, select.EPOLLIN)
    clients = [socket.create_connection(HERE) for _ in range(40)]
    by_name = {client.getsockname(): client for client in clients}
    ends, seen, closed = {}, 0, 0
    for client in clients:
        client.sendall(b"GET\n")
    while closed < 40:
        for descriptor, event in poll.poll(10):
            if descriptor == server.fileno():
                end, _ = server.accept()
                end.setblocking(False)
                ends[end.fileno()] = end
                poll.register(end, select.EPOLLIN | select.EPOLLET | select.EPOLLRDHUP)
            elif event & select.EPOLLRDHUP:
                closed += 1
                poll.unregister(descriptor)
                ends.pop(descriptor).close()
            else:
                seen += len(ends[descriptor].recv(100))
                ends[descriptor].send(b"OK\n")
                by_name[ends[descriptor].getpeername()].shutdown(socket.SHUT_WR)
    print(seen, closed, {client.recv(10) for client in clients}, {client.recv(10) for client in clients})


def events():
    """The events of poll in each state of a connection."""
    server = socket.create_server(HERE)
    client = socket.socket()
    poll = select.poll()

    def shown(step, sock):
        poll.register(sock, 0x3fff)
        print(step, [hex(event) for _, event in poll.poll(200)])
        poll.unregister(sock)

    shown("fresh", client)
    shown("listening", server)
    client.connect(HERE)
    shown("to accept", server)
    end, _ = server.accept()
    shown("connected", client)
    end.sendall(b"data")
    shown("data", client)
    end.shutdown(socket.SHUT_WR)
    shown("data and end", client)
    client.recv(10)
    shown("end", client)
    client.shutdown(socket.SHUT_WR)
    shown("both", client)
    shown("other", end)
    end.close()
    shown("closed", client)
    refused = socket.socket()
    refused.setblocking(False)
    print(errno.errorcode[refused.connect_ex(("127.0.0.1", PORT + 1))])
    shown("refused", refused)
    print(refused.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), refused.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
    other = socket.create_connection(HERE)
    end, _ = server.accept()
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.close()
    shown("reset", other)
    try:
        other.recv(1)
    except OSError as error:
        print(name(error))
    shown("reset told", other)


def many_selectors():
    for kind in (selectors.SelectSelector, selectors.PollSelector, selectors.EpollSelector):
        with kind() as chosen, socket.create_server(("127.0.0.1", 0)) as server:
            chosen.register(server, selectors.EVENT_READ, "accept")
            client = socket.create_connection(server.getsockname())
            print(kind.__name__, [(key.data, mask) for key, mask in chosen.select(5)])
            client.close()


def options():
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        sock = socket.socket(socket.AF_INET, kind)
        for level, option in (
            (socket.SOL_SOCKET, "SO_TYPE SO_DOMAIN SO_PROTOCOL SO_ERROR SO_ACCEPTCONN SO_REUSEADDR SO_REUSEPORT "
             "SO_KEEPALIVE SO_BROADCAST SO_OOBINLINE SO_PRIORITY SO_DONTROUTE SO_MARK SO_INCOMING_CPU SO_BUSY_POLL "
             "SO_RCVLOWAT SO_SNDLOWAT"),
            (socket.IPPROTO_IP, "IP_TTL IP_TOS IP_MULTICAST_TTL IP_MULTICAST_LOOP IP_RECVTOS"),
            (socket.IPPROTO_TCP, "TCP_NODELAY TCP_MAXSEG TCP_CORK TCP_KEEPIDLE TCP_KEEPINTVL TCP_KEEPCNT TCP_SYNCNT "
             "TCP_DEFER_ACCEPT TCP_WINDOW_CLAMP TCP_QUICKACK TCP_USER_TIMEOUT TCP_LINGER2 TCP_FASTOPEN"),
        ):
            for one in option.split():
                number = getattr(socket, one, None)
                try:
                    print(one, sock.getsockopt(level, number) if number is not None else "no name")
                except OSError as error:
                    print(one, name(error))


def buffers():
    for value in (1, 1000, 5000, 100_000, 1 << 30):
        sock = socket.socket()
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, value)
            got = sock.getsockopt(socket.SOL_SOCKET, option)
            print(value, got if value < 1 << 20 else got > 200_000)


def names():
    for host, port, kinds in (
        ("localhost", "http", 0), ("127.0.0.1", 80, socket.AI_NUMERICHOST), ("::1", 80, 0), (None, 80, socket.AI_PASSIVE),
        ("127.1", 1, 0), ("::ffff:127.0.0.1", 1, 0), ("fe80::1%lo", 1, 0),
    ):
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=kinds)
            print(host, sorted((int(one[0]), one[4]) for one in found))
        except OSError as error:
            print(host, error)
    print(socket.getnameinfo(("127.0.0.1", 80), 0), socket.getservbyname("domain", "udp"), socket.gethostbyname("localhost"))
    print(socket.if_nameindex()[0], socket.if_nametoindex("lo"), socket.if_indextoname(1), socket.has_dualstack_ipv6())


def reuse_port():
    servers = []
    for _ in range(4):
        server = socket.create_server(HERE, reuse_port=True, backlog=200)
        server.setblocking(False)
        servers.append(server)
    clients = [socket.create_connection(HERE) for _ in range(64)]
    shares = []
    for server in servers:
        count = 0
        try:
            while True:
                server.accept()
                count += 1
        except BlockingIOError:
            shares.append(count)
    print(sum(shares), all(shares))
    try:
        socket.create_server(HERE)
    except OSError as error:
        print(name(error))
    del clients


def sendfile():
    with open("file", "wb") as file:
        file.write(os.urandom(3_000_000))
    server = socket.create_server(HERE)
    client = socket.create_connection(HERE)
    end, _ = server.accept()

    def give():
        with open("file", "rb") as file:
            end.sendfile(file, 1000)
        end.close()

    threading.Thread(target=give).start()
    got = hashlib.md5()
    count = 0
    while data := client.recv(1 << 16):
        got.update(data)
        count += len(data)
    with open("file", "rb") as file:
        file.seek(1000)
        print(count, got.digest() == hashlib.md5(file.read()).digest())


def passed():
    """A connection that goes to another process by a local socket."""
    server = socket.create_server(HERE)
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        _, descriptors, _, _ = socket.recv_fds(theirs, 10, 1)
        socket.socket(fileno=descriptors[0]).sendall(b"by another")
        os._exit(0)
    client = socket.create_connection(HERE)
    end, _ = server.accept()
    socket.send_fds(ours, [b"x"], [end.fileno()])
    end.close()
    print(client.recv(100), os.wait()[1], client.recv(10))


def datagrams():
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(HERE)
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for size in (0, 1, 1472, 9000, 65507):
        client.sendto(b"x" * size, HERE)
        print(size, len(server.recvfrom(70000)[0]))
    for size, flags in ((65508, 0),):
        try:
            client.sendto(b"x" * size, flags, HERE)
        except OSError as error:
            print(size, name(error))
    client.sendto(b"0123456789", HERE)
    data, _, flags, _ = server.recvmsg(4)
    print(data, flags & socket.MSG_TRUNC != 0)
    client.connect(("127.0.0.1", PORT + 1))
    client.send(b"nobody")
    try:
        client.recv(10)
    except OSError as error:
        print(name(error))
    client.connect(HERE)
    server.connect(client.getsockname())
    stranger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    stranger.sendto(b"stranger", HERE)
    client.send(b"friend")
    print(server.recv(100))
    server.settimeout(0.2)
    try:
        server.recv(100)
    except TimeoutError:
        print("no more")


def multicast():
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.bind(("", PORT))
    member = socket.inet_aton("239.1.2.3") + socket.inet_aton("127.0.0.1")
    receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
    sender.sendto(b"to all", ("239.1.2.3", PORT))
    print(receiver.recvfrom(100)[0])
    receiver.setsockopt(socket.IPPROTO_IP, socket.IP_DROP_MEMBERSHIP, member)
    try:
        receiver.setsockopt(socket.IPPROTO_IP, socket.IP_DROP_MEMBERSHIP, member)
    except OSError as error:
        print(name(error))


def mapped():
    server = socket.create_server(("::", PORT), family=socket.AF_INET6, dualstack_ipv6=True)
    for host in ("127.0.0.1", "::1"):
        client = socket.create_connection((host, PORT))
        end, address = server.accept()
        print(address[0], end.getsockname()[0], client.getpeername()[0])
    only = socket.socket(socket.AF_INET6)
    only.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    only.bind(("::", PORT + 1))
    only.listen()
    four = socket.create_server(("0.0.0.0", PORT + 1))
    print(four.getsockname(), only.getsockname())
    try:
        socket.create_server(("0.0.0.0", PORT))
    except OSError as error:
        print(name(error))


def half_closed():
    server = socket.create_server(HERE)
    client = socket.create_connection(HERE)
    end, _ = server.accept()
    client.sendall(b"question")
    client.shutdown(socket.SHUT_WR)
    print(end.recv(100), end.recv(100))
    end.sendall(b"a" * 100_000)
    end.close()
    print(len(client.recv(200_000, socket.MSG_WAITALL)), client.recv(1))
    for call in (lambda: client.send(b"x"), lambda: client.shutdown(socket.SHUT_RDWR), client.getpeername):
        try:
            print(call())
        except OSError as error:
            print(name(error))


def full_queue():
    """More connections than a listener's queue takes: those that fit are connected, one more waits."""
    server = socket.socket()
    server.bind(HERE)
    server.listen(1)
    clients = []
    for _ in range(5):
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(HERE)
        clients.append(client)
    _, writable, _ = select.select([], clients, [], 0.3)
    print(len(select.select([], clients, [], 0.3)[1]))
    server.accept()
    print(len(select.select([], clients, [], 4)[1]) >= len(writable))


def urgent():
    server = socket.create_server(HERE)
    client = socket.create_connection(HERE)
    end, _ = server.accept()
    client.send(b"ab")
    client.send(b"!", socket.MSG_OOB)
    client.send(b"cd")
    select.select([], [], [end], 5)
    print(end.recv(1, socket.MSG_OOB), end.recv(10), end.recv(10))


def zero_windows():
    """A peer that reads nothing stops the sender, and lets it go on."""
    server = socket.create_server(HERE)
    client = socket.create_connection(HERE)
    end, _ = server.accept()
    end.setblocking(False)
    sent = 0
    try:
        while True:
            sent += end.send(b"x" * 65536)
    except BlockingIOError:
        print("stopped", sent > 100_000, select.select([], [end], [], 0.2)[1])
    got = 0
    while got < sent:
        got += len(client.recv(1 << 20))
    print(got == sent, len(select.select([], [end], [], 5)[1]))


def websocket():
    """A handshake and frames, as a library makes them."""
    server = socket.create_server(HERE)

    def serve():
        end, _ = server.accept()
        file = end.makefile("rwb")
        while (line := file.readline()) != b"\r\n":
            if line.lower().startswith(b"sec-websocket-key:"):
                key = line.split(b":")[1].strip()
        accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        file.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                   b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n")
        file.flush()
        while True:
            head = file.read(2)
            size = head[1] & 127
            if size == 126:
                size, = struct.unpack("!H", file.read(2))
            mask = file.read(4)
            data = bytes(byte ^ mask[at % 4] for at, byte in enumerate(file.read(size)))
            file.write(head[:1] + struct.pack("!BH", 126, len(data)) + data)
            file.flush()
            if head[0] == 0x88:
                return end.close()

    threading.Thread(target=serve).start()
    client = socket.create_connection(HERE).makefile("rwb")
    client.write(b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                 b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
    client.flush()
    while (line := client.readline()) != b"\r\n":
        print(line)
    for kind, text in ((0x81, b"hello"), (0x82, b"x" * 5000), (0x88, b"\x03\xe8")):
        client.write(struct.pack("!BBH", kind, 254, len(text)) + bytes(4) + text)
        client.flush()
        head = client.read(4)
        print(hex(head[0]), len(client.read(struct.unpack("!H", head[2:])[0])))
    print(client.read())


def errors():
    def shown(what, call):
        try:
            print(what, call())
        except OSError as error:
            print(what, name(error))

    used = socket.create_server(HERE)
    fresh = socket.socket
    shown("bind taken", lambda: fresh().bind(HERE))
    shown("bind far", lambda: fresh().bind(("192.0.2.1", 1)))
    shown("bind twice", lambda: used.bind(HERE))
    shown("send unconnected", lambda: fresh().send(b"x"))
    shown("recv unconnected", lambda: fresh().recv(1))
    shown("accept fresh", lambda: fresh().accept())
    shown("connect listening", lambda: used.connect(HERE))
    shown("listen connected", lambda: socket.create_connection(HERE).listen())
    shown("connect 0", lambda: fresh().connect(("127.0.0.1", 0)))
    shown("connect any", lambda: fresh().connect(("0.0.0.0", PORT)))
    shown("connect twice", lambda: socket.create_connection(HERE).connect(HERE))
    shown("shutdown fresh", lambda: fresh().shutdown(socket.SHUT_RD))
    shown("peer fresh", lambda: fresh().getpeername())
    shown("family", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_UDP))
    shown("broadcast", lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("255.255.255.255", PORT)))
    shown("no target", lambda: socket.socket(type=socket.SOCK_DGRAM).send(b"x"))
    shown("option", lambda: fresh().getsockopt(socket.IPPROTO_TCP, 9999))
    shown("level", lambda: fresh().getsockopt(77, 1))
    shown("unread", lambda: array.array("i", [fresh().fileno()]).itemsize)


def to_itself():
    sock = socket.socket()
    sock.bind(HERE)
    sock.connect(HERE)
    sock.sendall(b"to myself")
    print(sock.recv(100), sock.getpeername() == sock.getsockname())


def thousands():
    """A thousand connections that say nothing and a thousand half requests do not keep others waiting."""
    import resource
    import statistics
    import time
    resource.setrlimit(resource.RLIMIT_NOFILE, (5000, 5000))

    async def serve(reader, writer):
        while (await reader.readline()).strip():
            pass
        writer.write(b"answer")
        writer.close()

    async def server():
        await (await asyncio.start_server(serve, *HERE, backlog=4000)).serve_forever()

    child = os.fork()
    if child == 0:
        asyncio.run(server())

    def opened():
        while True:
            try:
                return socket.create_connection(HERE)
            except ConnectionRefusedError:
                time.sleep(0.05)

    def took(count):
        times = []
        for _ in range(count):
            begin = time.perf_counter()
            with opened() as client:
                client.sendall(b"GET / HTTP/1.0\r\n\r\n")
                assert client.recv(10) == b"answer"
            times.append(time.perf_counter() - begin)
        return statistics.median(times)

    alone = took(100)
    silent = [opened() for _ in range(1000)]
    half = [opened() for _ in range(1000)]
    for client in half:
        client.sendall(b"GET / HTTP/1.0\r\n")
    crowded = took(100)
    print(crowded < 3 * alone or (alone, crowded))
    for client in half:
        client.sendall(b"\r\n")
    print(sum(client.recv(10) == b"answer" for client in half), sum(client.send(b"\n") for client in silent))
    os.kill(child, 9)


def rpc():
    import xmlrpc.client
    import xmlrpc.server
    server = xmlrpc.server.SimpleXMLRPCServer(HERE, logRequests=False)
    server.register_function(pow, "power")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    proxy = xmlrpc.client.ServerProxy("http://127.0.0.1:%d" % PORT)
    print(proxy.power(2, 10))
    server.shutdown()


def managers():
    from multiprocessing.connection import Client, Listener
    listener = Listener(HERE, authkey=b"key")
    if os.fork() == 0:
        with Client(HERE, authkey=b"key") as client:
            client.send({"a": [1, 2, 3], "b": b"x" * 100_000})
            print(client.recv())
            sys.stdout.flush()
        os._exit(0)
    with listener.accept() as end:
        got = end.recv()
        end.send((got["a"], len(got["b"])))
    print(os.wait()[1])


globals()[sys.argv[1].replace("-", "_")]()
