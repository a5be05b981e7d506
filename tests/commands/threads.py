#!/usr/bin/python3
"""threading, asyncio and mmap."""
import asyncio
import mmap
import queue
import tempfile
import threading


def threads():
    lock, total = threading.Lock(), [0]

    def add():
        for _ in range(1000):
            with lock:
                total[0] += 1

    workers = [threading.Thread(target=add) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(total[0])
    work, done = queue.Queue(), queue.Queue()
    worker = threading.Thread(target=lambda: [done.put(item * 2) for item in iter(work.get, None)])
    worker.start()
    for item in range(10):
        work.put(item)
    work.put(None)
    worker.join()
    print([done.get() for _ in range(10)])


async def echo():
    async def serve(reader, writer):
        writer.write((await reader.readline()).upper())
        await writer.drain()
        writer.close()

    with tempfile.TemporaryDirectory() as folder:
        server = await asyncio.start_unix_server(serve, folder + "/socket")
        for text in ("one", "two"):
            reader, writer = await asyncio.open_unix_connection(folder + "/socket")
            writer.write(text.encode() + b"\n")
            print(await reader.read())
            writer.close()
        server.close()
        await server.wait_closed()
    child = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
    print(await child.communicate(b"through cat"), child.returncode)
    print(await asyncio.gather(*(asyncio.sleep(0.01 * (5 - n), n) for n in range(5))))


def mapping():
    with tempfile.TemporaryFile() as file:
        file.truncate(3 * 4096)
        with mmap.mmap(file.fileno(), 0) as view:
            view[4090:4100] = b"0123456789"
            view.flush()
            print(view.find(b"567"))
        file.seek(4090)
        print(file.read(10))
    with mmap.mmap(-1, 8192) as view:
        view.write(b"anonymous")
        print(view[:9], len(view))


threads()
asyncio.run(echo())
mapping()
