"""A model server that misbehaves as its path says: ``/MODE/v2/models/3/infer``. Prints its port, then serves.

The name of the model is the number of its classes; the probability of the first is the first number of each row.
"""

import asyncio
import json
import sys
from urllib.parse import unquote

SEEN = {}


def answer(rows, n_classes, datatype="FP64"):
    first = [min(max(row[0], 0.0), 1.0) for row in rows]
    rest = [[(1 - p) / (n_classes - 1)] * (n_classes - 1) for p in first]
    data = [number for p, others in zip(first, rest, strict=True) for number in (p, *others)]
    output = {"name": "probability", "datatype": datatype, "shape": [len(rows), n_classes], "data": data}
    return {"model_name": "m", "outputs": [output]}


def whole(body, status="200 OK"):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def said(mode, rows, n_classes):
    """The bytes that a mode answers with, if it answers at once and whole."""
    good = answer(rows, n_classes)
    data = good["outputs"][0]["data"]
    if mode.startswith("after-"):
        return whole(b"sorry", f"429 Sorry\r\nRetry-After: {unquote(mode[6:])}")
    if mode.isdigit():
        return whole(b"sorry", f"{mode} Sorry")
    if mode == "flapping":
        return whole(good) if SEEN[mode] % 2 == 0 else whole(b"", "500 Sorry")
    if mode == "bad_json":
        return whole(b'{"outputs": [')
    if mode == "nan":
        data[1] = float("nan")
    elif mode == "null":
        data[1] = None
    elif mode == "text":
        data[:] = ["0.5"] * len(data)
    elif mode == "sums":
        data[1] += 0.5
    elif mode == "shape":
        good = answer(rows, n_classes + 1)
    elif mode == "short":
        data.pop()
    elif mode == "labels":
        good = answer(rows, n_classes, "INT64")
    elif mode == "padded":
        return whole(json.dumps(good).encode() + b" " * 100_000)
    elif mode == "garbage":
        return b"this is not HTTP\r\n\r\n"
    return whole(good)


async def serve(reader, writer):
    try:
        while line := await reader.readline():
            _, mode, *_, n_classes, _ = line.decode().split()[1].split("/")
            length = 0
            while (header := await reader.readline()) not in (b"\r\n", b""):
                name, _, value = header.decode().partition(":")
                length = int(value) if name.lower() == "content-length" else length
            tensor = json.loads(await reader.readexactly(length))["inputs"][0]
            width = tensor["shape"][1]
            rows = [tensor["data"][at : at + width] for at in range(0, len(tensor["data"]), width)]
            SEEN[mode] = SEEN.get(mode, 0) + 1
            await misbehave(mode, rows, int(n_classes), writer)
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def misbehave(mode, rows, n_classes, writer):
    good = said("good", rows, n_classes)
    if mode == "slow":
        await asyncio.sleep(2.0)
        writer.write(good)
    elif mode == "large":
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(50):
            writer.write(b"100000\r\n" + b" " * 2**20 + b"\r\n")
            await writer.drain()
    elif mode == "declared":
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 52428800\r\n\r\n")
    elif mode == "drip":
        for at in range(len(good)):
            writer.write(good[at : at + 1])
            await writer.drain()
            await asyncio.sleep(1.0)
    elif mode == "cut":
        writer.write(good[:-20])
        await writer.drain()
        writer.close()
    else:
        writer.write(said(mode, rows, n_classes))
    await writer.drain()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    async with asyncio.timeout(float(sys.argv[1])):
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
