"""Attacks on `thrifty serve` through sockets: heads, connections, smuggling, values, keys, reloads.

Each part starts a gateway on the loopback; heads, connections, smuggling and TLS go through nginx, set up by
`deploy/nginx.conf`. An attack is refused with a status that blames the request, or closed; a failure is another status,
a traceback in the log, memory or descriptors that stay taken, or others that are not served.
"""

import contextlib
import http.client
import json
import os
import resource
import selectors
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd

KEY = "correct-horse"
HOST = "127.0.0.1"
HEALTH = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"

SCALARS = [
    0, -1, 1.5, 1e308, -0.0, 2**63, 10**30, True, None, "", "1.5", "red", "\u0000", "x" * 5000, [], {}, [[1]],
]  # fmt: skip
"""What stands where something else is expected."""


# -- requests to start from, and changes of them ----------------------------------------------------


def asked(operation, names, chance):
    """A request that is well meant."""
    numbers = chance.normal(size=(2, len(names))).round(3).tolist()
    if operation == "predict":
        return {"rows": [dict(zip(names, row, strict=True)) for row in numbers]}
    if chance.random() < 0.5:
        tensor = {"name": "X", "datatype": "FP64", "shape": [2, len(names)], "data": numbers}
        return {"inputs": [tensor], "outputs": [{"name": "answer"}], "id": "a"}
    columns = zip(names, zip(*numbers, strict=True), strict=True)
    tensors = [{"name": one, "datatype": "FP64", "shape": [2], "data": list(two)} for one, two in columns]
    return {"inputs": tensors}


def spoilt(thing, chance):
    """The same with something in it replaced, left out or added."""
    keys = (
        list(thing) if isinstance(thing, dict) else list(range(len(thing))) if isinstance(thing, list) else []
    )
    if not keys or chance.random() < 0.15:
        return SCALARS[chance.integers(len(SCALARS))]
    key, what = keys[chance.integers(len(keys))], chance.random()
    other = dict(thing) if isinstance(thing, dict) else list(thing)
    if what < 0.12:
        del other[key]
    elif what < 0.2 and isinstance(other, dict):
        other[str(SCALARS[chance.integers(len(SCALARS))])] = other[key]
    elif what < 0.25 and isinstance(other, list):
        other.append(other[key])
    else:
        other[key] = spoilt(thing[key], chance)
    return other


def mangled(raw, chance):
    """The same bytes with some of them changed, cut out or repeated."""
    raw = bytearray(raw)
    for _ in range(chance.integers(1, 4)):
        at = int(chance.integers(len(raw) + 1))
        what = chance.integers(4)
        if what == 0 and at < len(raw):
            raw[at] = int(chance.integers(256))
        elif what == 1:
            del raw[at : at + int(chance.integers(1, 30))]
        elif what == 2:
            raw[at:at] = [b"NaN", b"1e999", b"\xff", b"{", b"]", b'"', b"null", b"\r\n"][chance.integers(8)]
        else:
            raw[at:at] = raw[at : at + int(chance.integers(1, 30))]
    return bytes(raw)


def request(names, chance):
    """A well-meant request: its head and its body."""
    operation = ("predict", "infer")[chance.integers(2)]
    raw = json.dumps(asked(operation, names, chance)).encode()
    path = {"predict": "/predict", "infer": "/v2/models/cancer/infer"}[operation]
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(raw)}\r\n\r\n".encode(), raw


# -- a gateway and its clients -----------------------------------------------------------------------


class Server:
    """``thrifty serve`` in a process of its own, until the block ends; its log must then hold no failure.

    ``proxy`` puts nginx in front, with or without TLS ("tls" or "plain").
    """

    def __init__(self, cases, folder, max_descriptors=1024, proxy=None, hurry=10, **settings):
        self._cases, self._folder, self._max_descriptors = cases, folder, max_descriptors
        from ports import free_ports

        self.port, self.admin_port, own_port = free_ports(3)
        self._own_port = own_port if proxy else self.port
        self._settings = {
            "port": self._own_port,
            "admin_port": self.admin_port,
            "max_delay": 60.0,
            **settings,
        }
        self._hurry, self._proxy, self._processes = hurry, proxy, contextlib.ExitStack()
        self._nginx = self._context = None

    def __enter__(self):
        from hostile import end_with_parent

        def limit():
            end_with_parent()
            resource.setrlimit(resource.RLIMIT_NOFILE, (self._max_descriptors, self._max_descriptors))

        lines = [f"{name} = {json.dumps(value)}" for name, value in self._settings.items()]
        (self._folder / "serve.toml").write_text("\n".join(lines) + "\n")
        code = "import sys; from thrifty.cli import main; sys.exit(main(sys.argv[1:]))"
        command = [sys.executable, "-c", code, "serve", "cancer.thrifty", "--config", "serve.toml"]
        self.log = self._folder / "serve.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, cwd=self._folder, stdout=log, stderr=log, preexec_fn=limit
            )
        for _ in range(1200):
            with contextlib.suppress(OSError), socket.create_connection((HOST, self._own_port), 1):
                break
            time.sleep(0.1)
        if self._proxy:
            from proxy import proxied

            folder = self._folder / "nginx"
            how = {"tls": self._proxy == "tls", "hurry": self._hurry, "preexec_fn": end_with_parent}
            self._nginx = self._processes.enter_context(proxied(folder, self.port, self._own_port, **how))
            if self._proxy == "tls":
                self._context = ssl.create_default_context(cafile=str(folder / "cert.pem"))
                self._context.check_hostname = False
        # The port is open before workers have started, which takes a busy machine its time.
        if not until(lambda: self.status(HEALTH) == 200, 120):
            raise RuntimeError(self.log.read_text()[-500:])
        return self

    def __exit__(self, *_):
        self._processes.close()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        with self._cases.case("the log has no traceback and no failure of the gateway"):
            text = self.log.read_text()
            assert "Traceback" not in text, text[text.index("Traceback") :][:300]
            assert '"failure"' not in text, text[max(text.index('"failure"') - 300, 0) :][:400]

    def connected(self, address=HOST, timeout=5.0, *, is_plain=False):
        """A connection from an address of the loopback, with TLS where the gateway speaks it."""
        plain = socket.create_connection((HOST, self.port), timeout, source_address=(address, 0))
        return plain if self._context is None or is_plain else self._context.wrap_socket(plain)

    def said(self, *parts, pause=0.0, timeout=3.0, address=HOST, end=False):
        """Everything that is answered to some bytes, until the gateway closes or is silent."""
        found = b""
        with self.connected(address, timeout) as client:
            with contextlib.suppress(TimeoutError, ConnectionError):
                for part in parts:
                    client.sendall(part)
                    if pause:
                        time.sleep(pause)
                if end:
                    client.shutdown(socket.SHUT_WR)
            with contextlib.suppress(TimeoutError, ConnectionError):
                while part := client.recv(65536):
                    found += part
                    if not end and is_whole(found):
                        client.settimeout(0.3)  # a second answer would be there
        return found

    def status(self, *parts, **how):
        """The status of the first answer; None without one."""
        found = self.said(*parts, **how)
        return int(found[9:12]) if found.startswith(b"HTTP/1.") else None

    def post(self, path, body, headers=(), key=None):
        """Status and body of the answer to a request with a body."""
        client = http.client.HTTPConnection(HOST, self.port, timeout=30)
        try:
            given = dict(headers) | ({} if key is None else {"X-API-Key": key})
            client.request("POST", path, body, given)
            answer = client.getresponse()
            return answer.status, answer.read()
        finally:
            client.close()

    def admin(self, method, path, body=None, headers=()):
        """Status and body of an answer of the administration."""
        client = http.client.HTTPConnection(HOST, self.admin_port, timeout=5)
        try:
            client.request(method, path, body, dict(headers))
            answer = client.getresponse()
            return answer.status, answer.read()
        finally:
            client.close()

    def n_live(self):
        """Health checks that the gateway has answered."""
        text = self.admin("GET", "/metrics")[1].decode()
        name = 'thrifty_requests_total{operation="live",status="200"} '
        return sum(int(float(line.rsplit(" ", 1)[1])) for line in text.splitlines() if line.startswith(name))

    def _pids(self):
        """The gateway, and the workers of nginx."""
        return [self.process.pid, *(_children(self._nginx.pid) if self._nginx else ())]

    def megabytes(self):
        """Memory that the gateway, and the proxy, hold."""
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self._pids())
        return pages * resource.getpagesize() / 2**20

    def n_descriptors(self):
        """Files and sockets that the gateway, and the proxy, hold open."""
        return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in self._pids())


def is_whole(found):
    """Whether the first answer is there with its body."""
    head, end, body = found.partition(b"\r\n\r\n")
    length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    return bool(end) and length.isdigit() and len(body) >= int(length)


def until(is_so, seconds):
    """Wait until something is so, for some seconds; returns whether it is."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        with contextlib.suppress(OSError):
            if is_so():
                return True
        time.sleep(0.05)
    return False


def table(folder):
    return pd.read_csv(folder / "rows.csv")


def good_request(folder, n_rows=1):
    """A well-meant request as bytes."""
    raw = json.dumps({"rows": table(folder)[:n_rows].to_dict("records")}).encode()
    return b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(raw) + raw


def closing(raw):
    """A request after which the connection is closed."""
    return raw.replace(b"Host: x", b"Host: x\r\nConnection: close", 1)


# -- heads -------------------------------------------------------------------------------------------


def heads(cases, folder, _):
    """Heads that are too long, too many, too slow, and trailers that pass for headers."""
    start = b"GET /v2 HTTP/1.1\r\nHost: x\r\n"
    field = b"x%d: 1\r\n"
    large = {
        "one long field": [start + b"long: " + b"a" * 70_000 + b"\r\n\r\n"],
        "a long field in pieces": [start + b"long: ", *[b"a" * 5000] * 14, b"\r\n\r\n"],
        "a long name": [start + b"a" * 70_000 + b": 1\r\n\r\n"],
        "a long target": [b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"],
        "a long method": [b"G" * 70_000 + b" / HTTP/1.1\r\nHost: x\r\n\r\n"],
        "many short fields": [start + b"".join(field % one for one in range(8000)) + b"\r\n"],
    }
    with Server(cases, folder, proxy="plain", api_key=KEY) as server:
        for name, parts in large.items():
            with cases.case(name):
                status = server.status(*parts)
                assert status in (None, 400, 405, 414, 431), status
                assert status != 200
        with cases.case("99 fields are few enough"):
            few = b"".join(field % one for one in range(97))
            assert server.status(HEALTH[:-2] + few + b"\r\n") == 200
        with cases.case("a second head counts from its own beginning"):
            one = HEALTH[:-2] + b"long: " + b"a" * 7000 + b"\r\n\r\n"
            assert server.said(one, one, one, pause=0.1).count(b"HTTP/1.1 200") == 3
        for name, sent in (
            ("silent", b""),
            ("half of a line", b"GET / HT"),
            ("no end", HEALTH[:-2]),
            ("a second head without an end", HEALTH + HEALTH[:-2]),
        ):
            with cases.case(f"a head that never ends is closed: {name}"):
                began = time.monotonic()
                with server.connected(timeout=20) as client:
                    client.sendall(sent)
                    with contextlib.suppress(ConnectionError):
                        while client.recv(4096):
                            pass
                assert time.monotonic() - began < 12, time.monotonic() - began
        with cases.case("a head of a byte every tenth of a second is closed"):
            assert _dripped(server) < 150
        with cases.case("300 MiB of headers are not held"):
            before = server.megabytes()
            assert _flooded(server, 40, 8) is None
            assert server.megabytes() - before < 60, server.megabytes() - before
        right = b"x-api-key: " + KEY.encode() + b"\r\n"
        for name, headers, trailer, expected in (
            ("a key in a trailer", b"", b"x-api-key: " + KEY.encode(), 401),
            ("a bearer key in a trailer", b"", b"authorization: Bearer " + KEY.encode(), 401),
            ("a wrong key in a trailer", right, b"x-api-key: wrong", 200),
            ("a right key in a trailer", b"x-api-key: wrong\r\n", b"x-api-key: " + KEY.encode(), 401),
            ("a length in a trailer", right, b"content-length: 9", 200),
            ("an encoding in a trailer", right, b"content-encoding: gzip", 200),
        ):
            with cases.case(f"trailers are no headers: {name}"):
                raw = good_request(folder).split(b"\r\n\r\n", 1)[1]
                head = (
                    b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n" + headers + b"\r\n"
                )
                chunks = b"%x\r\n" % len(raw) + raw + b"\r\n0\r\n" + trailer + b"\r\n\r\n"
                for parts in ([head + chunks], [head, chunks], [head + chunks[:-8], chunks[-8:]]):
                    status = server.status(*parts, pause=0.05)
                    assert status in (expected, 400), status
        with cases.case("others are served"):
            assert server.status(HEALTH) == 200


def _dripped(server):
    """Bytes of a head that are taken, one every tenth of a second."""
    n_sent = 0
    with contextlib.suppress(ConnectionError), server.connected() as client:
        while n_sent < 150:
            client.sendall(b"G")
            n_sent += 1
            time.sleep(0.1)
    return n_sent


def _flooded(server, n_connections, megabytes):
    """Send so many MiB of header on each of so many connections."""
    clients = [server.connected() for _ in range(n_connections)]
    for client in clients:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nlong: ")
    for _ in range(16 * megabytes):
        for client in clients:
            with contextlib.suppress(OSError):
                client.settimeout(0.2)
                client.sendall(b"a" * 2**16)
    for client in clients:
        client.close()


# -- connections -------------------------------------------------------------------------------------


def connections(cases, folder, _):
    """Connections that are idle, slow, deaf or gone, with few descriptors: others are served."""
    with Server(cases, folder, proxy="plain") as server:
        begin = good_request(folder)
        n_idle = server.n_descriptors()

        def others_are_served(where):
            with cases.case(f"{where}: health answers another address"):
                assert until(lambda: server.status(HEALTH, address="127.0.0.2") == 200, 5)
            with cases.case(f"{where}: predictions are made for another address"):
                assert until(lambda: server.status(begin, address="127.0.0.3") == 200, 5)
            with cases.case(f"{where}: the administration answers"):
                assert server.admin("GET", "/status.json")[0] == 200

        def ends(where, seconds=12):
            with cases.case(f"{where}: connections are closed and descriptors given back"):
                assert until(lambda: server.n_descriptors() <= n_idle + 8, seconds), server.n_descriptors()
            with cases.case(f"{where}: the address is served again"):
                assert until(lambda: server.status(HEALTH) == 200, 3)

        for name, sent in (
            ("300 idle", b""),
            ("300 with half of a head", HEALTH[:-2]),
            ("300 with half of a body", begin[:-20]),
            ("300 that have been answered", HEALTH),
        ):
            clients = []
            for _ in range(300):
                with contextlib.suppress(OSError):
                    clients.append(server.connected())
                    clients[-1].sendall(sent)
            others_are_served(name)
            ends(name)
            for client in clients:
                client.close()
        with cases.case("2,000 connections that are reset leave nothing behind"):
            for _ in range(2000):
                client = socket.socket()
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                with contextlib.suppress(OSError):
                    client.connect((HOST, server.port))
                    client.send(begin[:50])
                client.close()
            assert until(lambda: server.n_descriptors() <= n_idle + 8, 10), server.n_descriptors()
        with cases.case("clients that leave before their answers leave nothing behind"):
            many = good_request(folder, 200)
            for _ in range(100):
                with contextlib.suppress(OSError), server.connected() as client:
                    client.sendall(many)
            assert until(lambda: server.n_descriptors() <= n_idle + 8, 15), server.n_descriptors()
        with cases.case("clients that read nothing do not fill the memory"):
            before, deaf = server.megabytes(), []
            for _ in range(20):
                client = socket.socket()
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.connect((HOST, server.port))
                client.setblocking(False)
                deaf.append(client)
            ends_at = time.monotonic() + 5
            while time.monotonic() < ends_at:
                for client in deaf:
                    with contextlib.suppress(OSError):
                        client.send(many)
                time.sleep(0.01)
            assert server.megabytes() - before < 400, server.megabytes() - before
        others_are_served("20 that read nothing")
        for client in deaf:
            client.close()
        ends("all of them")
    with Server(cases, folder, proxy="plain", hurry=1) as server, crowd(server, 5000, 200, 200) as n_opened:
        for name, ask in (
            ("health", lambda: server.status(closing(HEALTH))),
            ("health of another address", lambda: server.status(closing(HEALTH), address="127.0.0.2")),
            ("predictions", lambda: server.status(closing(begin))),
            ("the administration", lambda: server.admin("GET", "/status.json")[0]),
        ):
            with cases.case(
                f"{name} beside 5,000 idle, 200 slow and 200 reopening connections of one address"
            ):
                seconds, began = [], time.monotonic()
                while time.monotonic() < began + 6.0:  # together beyond client_header_timeout
                    start = time.perf_counter()
                    assert ask() == 200
                    seconds.append(time.perf_counter() - start)
                median, worst = np.median(seconds), max(seconds)
                print(
                    f"{name}: {len(seconds)} asked, {1e3 * median:.0f} ms in the middle, {1e3 * worst:.0f} at most"
                )
                assert worst < 2.0, worst
        with cases.case("connections were opened all the time"):
            print(f"{n_opened[0]:,} connections opened")
            assert n_opened[0] > 6000, n_opened


@contextlib.contextmanager
def crowd(server, n_idle, n_slow, n_reopening):
    """Hold connections of one address: silent ones, heads of a byte a second, and some that are opened again."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * n_idle), hard))
    n_opened, stop, ready, selector = [0], threading.Event(), threading.Event(), selectors.DefaultSelector()

    def opened(kind):
        client = socket.create_connection((HOST, server.port), 20)
        client.setblocking(False)
        selector.register(client, selectors.EVENT_READ, kind)
        n_opened[0] += 1

    def hold():
        for kind in ["idle"] * n_idle + ["slow"] * n_slow + ["reopening"] * n_reopening:
            opened(kind)
        ready.set()
        while not stop.is_set():
            closed = {key.fileobj: key.data for key, _ in selector.select(0)}
            for client, kind in [(key.fileobj, key.data) for key in selector.get_map().values()]:
                if kind == "slow" and client not in closed:
                    with contextlib.suppress(OSError):
                        client.send(b"G")
                elif kind == "reopening":
                    closed[client] = kind
            for client, kind in closed.items():
                selector.unregister(client)
                client.close()
                with contextlib.suppress(OSError):
                    opened(kind)
            stop.wait(1.0)

    holding = threading.Thread(target=hold)
    holding.start()
    try:
        assert ready.wait(60), n_opened
        yield n_opened
    finally:
        stop.set()
        holding.join()
        for key in list(selector.get_map().values()):
            key.fileobj.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# -- smuggling ---------------------------------------------------------------------------------------


def smuggling(cases, folder, _):
    """Messages whose end two programs may see in different places: proxy and gateway see the same requests."""
    inner = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
    chunked, post = b"Transfer-Encoding: chunked\r\n", b"POST /predict HTTP/1.1\r\nHost: x\r\n"
    length = b"Content-Length: %d\r\n"
    both = {
        "length, then chunked": length % 5 + chunked,
        "chunked, then length": chunked + length % 5,
        "chunked twice": chunked + chunked,
        "chunked in another case": length % 5 + b"transfer-ENCODING: Chunked\r\n",
        "chunked behind identity": length % 5 + b"Transfer-Encoding: identity, chunked\r\n",
        "chunked, then identity": length % 5 + b"Transfer-Encoding: chunked, identity\r\n",
        "chunked with a tab": length % 5 + b"Transfer-Encoding:\tchunked\r\n",
        "chunked with a space before the colon": length % 5 + b"Transfer-Encoding : chunked\r\n",
        "chunked on a folded line": length % 5 + b"Transfer-Encoding:\r\n chunked\r\n",
        "chunked with a vertical tab": length % 5 + b"Transfer-Encoding: \x0bchunked\r\n",
        "xchunked": length % 5 + b"Transfer-Encoding: xchunked\r\n",
        "chunked in quotes": length % 5 + b'Transfer-Encoding: "chunked"\r\n',
        "an unknown encoding": length % 5 + b"Transfer-Encoding: cow\r\n",
    }
    lengths = {
        "two lengths": length % 5 + length % (5 + len(inner)),
        "two lengths, the longer first": length % (5 + len(inner)) + length % 5,
        "lengths in a list": b"Content-Length: 5, %d\r\n" % (5 + len(inner)),
        "a length with a sign": b"Content-Length: +5\r\n",
        "a negative length": b"Content-Length: -5\r\n",
        "a length in hexadecimal": b"Content-Length: 0x5\r\n",
        "a length with a space inside": b"Content-Length: 5 5\r\n",
        "a length with an underscore": b"Content-Length: 5_0\r\n",
        "a length beyond 64 bits": b"Content-Length: 18446744073709551621\r\n",
        "an empty length": b"Content-Length:\r\n",
        "a length with a space before the colon": b"Content-Length : 5\r\n",
        "a length behind a null byte": b"X: a\x00\r\n" + length % 5,
        "a length on a folded line": b"X: a\r\n Content-Length: 5\r\n" + length % 5,
        "a length behind a bare line feed": b"X: a\nContent-Length: 5\r\n",
        "a length behind a bare carriage return": b"X: a\rContent-Length: 5\r\n",
    }
    chunks = {
        "a size with a sign": b"+5\r\nhello\r\n0\r\n\r\n",
        "a negative size": b"-1\r\nhello\r\n0\r\n\r\n",
        "a size with a prefix": b"0x5\r\nhello\r\n0\r\n\r\n",
        "a size beyond 64 bits": b"10000000000000005\r\nhello\r\n0\r\n\r\n",
        "a size with an underscore": b"0_5\r\nhello\r\n0\r\n\r\n",
        "a chunk longer than its size": b"5\r\nhelloworld\r\n0\r\n\r\n",
        "a chunk without its line end": b"5\r\nhello0\r\n\r\n",
        "a bare line feed behind a size": b"5\nhello\r\n0\r\n\r\n",
        "a bare line feed in an extension": b"5;a\nb\r\nhello\r\n0\r\n\r\n",
        "a space before the size": b" 5\r\nhello\r\n0\r\n\r\n",
    }
    with Server(cases, folder, proxy="plain") as server:
        with cases.case("requests one behind the other are answered in turn"):
            assert server.said(inner * 3).count(b'{"live":true}') == 3
        for name, fields in both.items():
            for body in (b"0\r\n\r\n", b"hello"):
                with cases.case(f"{name}, {body!r}"):
                    _is_not_smuggled(server, post + fields + b"\r\n" + body + inner)
        for name, fields in lengths.items():
            with cases.case(name):
                _is_not_smuggled(server, post + fields + b"\r\n" + b"hello" + inner)
        for name, body in chunks.items():
            with cases.case(name):
                _is_not_smuggled(server, post + chunked + b"\r\n" + body + inner)
        for name, message in (
            ("an absolute target of another host", b"GET http://evil/v2 HTTP/1.1\r\nHost: x\r\n\r\n"),
            ("two hosts", b"GET /v2 HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n"),
            ("a request line of HTTP/0.9", b"GET /v2\r\n\r\n"),
            ("an unknown version", b"GET /v2 HTTP/9.9\r\nHost: x\r\n\r\n"),
            ("a preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
            (
                "an upgrade to HTTP/2",
                b"GET /v2 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
            ),
            ("a tunnel", b"CONNECT evil:80 HTTP/1.1\r\nHost: evil\r\n\r\n"),
            ("TLS where there is none", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200)),
        ):
            with cases.case(name):
                status = server.status(message)
                assert status is None or status in (200, 501, 505) or 400 <= status < 500, status
        with cases.case("others are served"):
            assert server.status(HEALTH) == 200


def _is_not_smuggled(server, message):
    before = server.n_live()
    said = server.said(message, timeout=1.0)
    # A request that the proxy has taken for a part of another one would be answered to nobody.
    assert server.n_live() - before == said.count(b'{"live":true}'), said[:300]
    assert b"HTTP/1.1 5" not in said.replace(b"HTTP/1.1 501", b""), said[:300]


# -- values and shapes -------------------------------------------------------------------------------

ODD_CELLS = [
    '"1.5"', "true", "[1]", "{}", '""', '"red"', "NaN", "Infinity", "-Infinity", "1e999", "-1e999", '"\\u0000"',
    '"\\ud800"', '"' + "x" * 5000 + '"', "[]", "[[[[]]]]", '{"$array": 0}', '{"__class__": "x"}', "00", "0x10",
    "1.", ".5", "+1", "1_000", "'1'", "undefined", "--1", "1e", "nan", "9" * 5000,
]  # fmt: skip
"""JSON, or what looks like it, in the place of a number: refused wherever it is read."""

ODD_TENSORS = [
    {"shape": [2, 6]}, {"shape": [1, 5]}, {"shape": [6]}, {"shape": [0, 6]}, {"shape": [-1, 6]}, {"shape": [1, 6, 1]},
    {"shape": [2**62, 2**62]}, {"shape": [2**63, 6]}, {"shape": [10**30, 6]}, {"shape": [1.0, 6]}, {"shape": "1x6"},
    {"shape": [True, 6]}, {"shape": []}, {"shape": None}, {"shape": [[1], [6]]}, {"datatype": "BOOL"},
    {"datatype": "INT8", "data": [300, 0, 0, 0, 0, 0]}, {"datatype": "UINT8", "data": [-1, 0, 0, 0, 0, 0]},
    {"datatype": "INT64", "data": [2**63, 0, 0, 0, 0, 0]}, {"datatype": "INT32", "data": [0.5, 0, 0, 0, 0, 0]},
    {"datatype": "TRUTH"}, {"datatype": None}, {"datatype": []}, {"name": "Y"}, {"name": []},
    {"name": None}, {"data": [1, 2, 3, 4, 5]}, {"data": [True] * 6}, {"data": ["1"] * 6}, {"data": [[1]] * 6},
    {"data": {}}, {"data": None}, {"data": "AAAA"}, {"parameters": {"binary_data_size": 48}},
    {"parameters": {"binary_data_size": -1}}, {"parameters": {"binary_data_size": 2**62}},
    {"parameters": {"binary_data_size": "48"}},
]  # fmt: skip
"""What in a tensor of one row of six columns breaks a rule."""


def values(cases, folder, args):
    """Cells, shapes, bodies and bytes that are none; thousands of requests that were changed on the way."""
    names = list(table(folder).columns)
    with Server(cases, folder) as server:
        for cell in ODD_CELLS:
            with cases.case(f"a cell {cell[:20]}"):
                row = ", ".join(f'"{name}": {cell}' for name in names)
                status, said = server.post("/predict", f'{{"rows": [{{{row}}}]}}'.encode())
                assert status == 400, (status, said[:200])
                assert len(json.loads(said)["error"]) < 1000
        whole = {"name": "X", "datatype": "FP64", "shape": [1, 6], "data": [1.0] * 6}
        with cases.case("a tensor that breaks no rule"):
            assert server.post("/v2/models/cancer/infer", json.dumps({"inputs": [whole]}))[0] == 200
        for change in ODD_TENSORS:
            with cases.case(f"a tensor with {change}"[:80]):
                status, said = server.post(
                    "/v2/models/cancer/infer", json.dumps({"inputs": [whole | change]})
                )
                assert status == 400, (status, said[:200])
        row = json.dumps(dict.fromkeys(names, 1.0))
        twice = row[:-1] + f', "{names[0]}": 2.0}}'
        for name, body in {
            "nothing": b"",
            "a list": b"[]",
            "text": b'"rows"',
            "no rows": b'{"rows": []}',
            "rows that are none": b'{"rows": [1, null, "x"]}',
            "a name that is none": b'{"rows": [{"x": 1}]}',
            "a row name twice": f'{{"rows": [{twice}]}}'.encode(),
            "rows twice": f'{{"rows": [{row}], "rows": [{row}]}}'.encode(),
            "another member": f'{{"rows": [{row}], "admin": true}}'.encode(),
            "an id that is none": f'{{"rows": [{row}], "id": [1]}}'.encode(),
            "a deep list": b"[" * 100_000,
            "a deep object": b'{"rows":' * 50_000,
            "a deep cell": b'{"rows": [{"x": ' + b"[" * 90_000 + b"]" * 90_000 + b"}]}",
            "bytes that are no text": b'{"rows": [{"\xff\xfe": 1}]}',
            "UTF-16": f'{{"rows": [{row}]}}'.encode("utf-16"),
            "a mark of the byte order": b"\xef\xbb\xbf" + f'{{"rows": [{row}]}}'.encode() + b"x",
            "null bytes": b"\x00" * 1000,
            "too many rows": b'{"rows": [' + b"{}," * 20_000 + b"{}]}",
            "more behind the end": f'{{"rows": [{row}]}} {{}}'.encode(),
            "a comment": f'{{"rows": [{row}]}} // so'.encode(),
        }.items():
            with cases.case(f"a body: {name}"):
                status, said = server.post("/predict", body)
                assert status == 400, (status, said[:200])
        for name, headers, expected in (
            ("compressed", {"Content-Encoding": "gzip"}, 415),
            ("of 2 MiB", {}, 413),
            ("with a header beyond its body", {"Inference-Header-Content-Length": "99999999"}, 400),
            ("with a negative header", {"Inference-Header-Content-Length": "-1"}, 400),
            ("with a header that is no number", {"Inference-Header-Content-Length": "1e1"}, 400),
            ("with a digit that is no number", {"Inference-Header-Content-Length": "\xb2"}, 400),
        ):
            with cases.case(f"a body {name}"):
                body = b" " * 2**21 if expected == 413 else json.dumps({"inputs": [whole]}).encode()
                assert server.post("/v2/models/cancer/infer", body, headers)[0] == expected
        for path in ("/../etc/passwd", "/%2e%2e/etc/passwd", "/v2/models/..%2f", "/metrics", "/budget", "/reload",
                     "/v2/models/cancer/versions/%00/infer", "/" + "a/" * 5000, "//predict", "/predict/"):  # fmt: skip
            with cases.case(f"an address {path[:30]}"):
                assert server.post(path, b"{}")[0] in (404, 405, 400, 307), server.post(path, b"{}")
        _held_up(cases, server)
        _thousands(cases, server, names, args)


def _held_up(cases, server):
    """Large bodies that take long to read: others are answered meanwhile."""
    for name, part in (("lists", b"[[]]"), ("deep lists", b"[" * 200 + b"]" * 200), ("rows", b"{}")):
        body = b'{"rows": [' + b",".join([part] * (800_000 // (len(part) + 1))) + b"]}"
        with cases.case(f"0.8 MB of {name} do not delay other requests"), ThreadPoolExecutor(2) as pool:
            asked, seconds = [pool.submit(server.post, "/predict", body) for _ in range(8)], []
            while not all(one.done() for one in asked):
                began = time.perf_counter()
                assert server.status(closing(HEALTH)) == 200
                seconds.append(time.perf_counter() - began)
            print(f"0.8 MB of {name}: health within {1e3 * max(seconds):.0f} ms")
            assert {one.result()[0] for one in asked} == {400}
            assert max(seconds) < 1.0, max(seconds)


def _thousands(cases, server, names, args):
    """Requests with values replaced, and with bytes changed, cut out or repeated, heads included."""
    chance, sizes, failures, statuses = np.random.default_rng(args.seed), [], {}, Counter()
    for number in range(args.requests):
        head, body = request(names, chance)
        if number % 2:
            whole = head + mangled(body, chance) if chance.random() < 0.7 else mangled(head + body, chance)
            status = server.status(whole, end=True, timeout=5.0)
        else:
            operation, path = (("predict", "/predict"), ("infer", "/v2/models/cancer/infer"))[number // 2 % 2]
            spoilt_body = json.dumps(spoilt(asked(operation, names, chance), chance))
            status = server.post(path, spoilt_body.encode())[0]
        statuses[status] += 1
        if status is not None and status >= 500:
            failures[f"changed request {number}"] = f"status {status}"
        if number % (args.requests // 4) == args.requests // 4 - 1:
            sizes.append(server.megabytes())
    cases.add(args.requests, failures)
    print("statuses", statuses, "memory", sizes)
    with cases.case("memory stays while thousands of requests are refused"):
        assert sizes[-1] - sizes[0] < 20, sizes
    with cases.case("changed requests are refused and answered, both"):  # otherwise they would say little
        assert statuses[400] > args.requests / 4, statuses
        assert statuses[200] > 0, statuses


# -- keys and administration -------------------------------------------------------------------------


def keys(cases, folder, _):
    """Keys that are nearly right, and ways around the limits of the administration."""
    one = json.loads(good_request(folder).split(b"\r\n\r\n", 1)[1])
    with Server(cases, folder, api_key=KEY) as server:
        body = json.dumps(one)
        for name, headers in (
            ("X-API-Key", {"X-API-Key": KEY}),
            ("Bearer", {"Authorization": f"Bearer {KEY}"}),
        ):
            with cases.case(f"the right key as {name}"):
                assert server.post("/predict", body, headers)[0] == 200
        spoilt_keys = ["", " ", KEY[:-1], KEY + "x", KEY.upper(), KEY + "\x00", f"{KEY},{KEY}", "\xff" * 50]
        schemes = ["Bearer", "Bearer ", f"bearer {KEY}x", f"Basic {KEY}", f"Bearer Bearer {KEY}"]
        for headers in (
            {},
            *({"X-API-Key": key} for key in spoilt_keys),
            *({"Authorization": scheme} for scheme in schemes),
            {"Cookie": f"X-API-Key={KEY}"},
            {"X-Api_Key": KEY},
        ):
            with cases.case(f"a key that is none: {headers}"[:70]):
                assert server.post("/predict", body, headers)[0] in (400, 401)
        for path in ("/v2", "/v2/models/cancer", "/openapi.json", "/v2/models/cancer/versions/x"):
            with cases.case(f"{path} without a key"):
                assert server.status(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()) == 401
        with cases.case("a key in the query is none"):
            assert server.post(f"/predict?api_key={KEY}", body)[0] == 401
        text = {"X-API-Key": KEY, "Content-Type": "text/plain"}
        json_only = {"Content-Type": "application/json"}
        with_key = json_only | {"X-API-Key": KEY}
        for name, method, path, sent, headers, refused in (
            ("a budget without a key", "POST", "/budget", b'{"budget": 1}', json_only, 401),
            ("a reload without a key", "POST", "/reload", b"{}", json_only, 401),
            ("a form from a page", "POST", "/reload", b"{}", text, 415),
            ("no type", "POST", "/reload", b"{}", {"X-API-Key": KEY}, 415),
            ("another host", "GET", "/metrics", None, {"Host": "evil.example"}, 400),
            (
                "another host, as a subdomain",
                "GET",
                "/metrics",
                None,
                {"Host": "127.0.0.1.evil.example"},
                400,
            ),
            ("a page's preflight", "OPTIONS", "/reload", None, {"Origin": "http://evil"}, 405),
            ("a budget that is none", "POST", "/budget", b'{"budget": "1"}', with_key, 400),
            ("a budget of NaN", "POST", "/budget", b'{"budget": NaN}', with_key, 400),
            ("a negative budget", "POST", "/budget", b'{"budget": -1}', with_key, 400),
            ("a budget twice", "POST", "/budget", b'{"budget": 1, "budget": 2}', with_key, 400),
        ):
            with cases.case(f"administration: {name}"):
                status, said = server.admin(method, path, sent, headers)
                assert status == refused, (status, said[:100])
                assert b"access-control-allow" not in said.lower()
        with cases.case("no key is in the log, in metrics or on the status page"):
            shown = server.log.read_text() + "".join(
                server.admin("GET", path)[1].decode() for path in ("/", "/metrics", "/status.json")
            )
            assert KEY not in shown
    _several_keys(cases, folder, one)


def _several_keys(cases, folder, body):
    """Keys of clients, of metrics and of changes open nothing else, and can be replaced while the gateway serves."""
    path, body = folder / "keys.toml", json.dumps(body)

    def write(clients):
        new = path.with_suffix(".new")
        new.write_text(f'clients = {json.dumps(clients)}\nmetrics = ["watcher"]\nadmin = ["boss"]\n')
        new.replace(path)

    write(["one", "two"])
    with Server(cases, folder, keys=str(path)) as server:

        def predicts(key):
            return server.post("/predict", body, {"X-API-Key": key})[0]

        def administers(method, place, key):
            headers = {"Content-Type": "application/json"} | ({} if key is None else {"X-API-Key": key})
            return server.admin(method, place, b"{}" if method == "POST" else None, headers)[0]

        for key, expected in (("one", 200), ("two", 200), ("watcher", 401), ("boss", 401), ("onetwo", 401)):
            with cases.case(f"several keys: predictions with {key!r}"):
                assert predicts(key) == expected
        for place in ("/metrics", "/status.json"):
            for key, expected in ((None, 401), ("watcher", 200), ("one", 401), ("", 401)):
                with cases.case(f"several keys: {place} with {key!r}"):
                    assert administers("GET", place, key) == expected
        for key, expected in ((None, 401), ("one", 401), ("watcher", 401), ("boss", 200)):
            with cases.case(f"several keys: a reload with {key!r}"):
                assert administers("POST", "/reload", key) == expected
        with cases.case("several keys: they are rotated by a signal, and old ones end"):
            write(["two", "three"])
            server.process.send_signal(signal.SIGHUP)
            assert until(lambda: predicts("three") == 200, 10)
            assert (predicts("one"), predicts("two")) == (401, 200)
        for name, text in (("broken", "clients = ["), ("empty", ""), ("without clients", 'admin = ["x"]')):
            with cases.case(f"several keys: a file that is {name} changes nothing"):
                path.write_text(text)
                assert administers("POST", "/reload", "boss") == 400
                assert (predicts("three"), predicts("")) == (200, 401)


# -- TLS ---------------------------------------------------------------------------------------------


def tls(cases, folder, _):
    """Plain text, old protocols, and handshakes and heads that never end."""
    with Server(cases, folder, proxy="tls") as server:
        n_idle = server.n_descriptors()
        with cases.case("predictions"):
            assert server.status(good_request(folder)) == 200
        with cases.case("plain text is not answered"), server.connected(is_plain=True) as client:
            client.sendall(HEALTH)
            assert b"HTTP/1.1 200" not in client.recv(1000)
        for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
            with cases.case(f"{version.name} is refused"):
                old = ssl.create_default_context()
                old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
                old.minimum_version = old.maximum_version = version
                try:
                    old.wrap_socket(server.connected(is_plain=True)).close()
                except OSError:
                    continue
                raise AssertionError("it was taken")
        with cases.case("a head that never ends is closed"), server.connected(timeout=20) as client:
            client.sendall(HEALTH[:-2])
            assert b"HTTP/1.1 200" not in client.recv(4096)
        for name, sent in (("silent", b""), ("begun", b"\x16\x03\x01\x02\x00\x01")):
            with (
                cases.case(f"300 {name} handshakes are closed, and others are served meanwhile"),
                contextlib.ExitStack() as stack,
            ):
                clients = [
                    stack.enter_context(server.connected(is_plain=True, timeout=20)) for _ in range(300)
                ]
                began = time.monotonic()
                for client in clients:
                    with contextlib.suppress(OSError):
                        client.sendall(sent)
                assert server.status(good_request(folder)) == 200
                assert server.admin("GET", "/status.json")[0] == 200
                for client in clients:
                    with contextlib.suppress(ConnectionError):
                        assert client.recv(4096) == b""
                assert time.monotonic() - began < 8.0
                assert until(lambda: server.n_descriptors() <= n_idle + 8, 5), server.n_descriptors()


# -- reloads -----------------------------------------------------------------------------------------


def reloads(cases, folder, _):
    """Files that take turns, broken files, storms of signals, and an end with requests under way."""
    files = [(folder / name).read_bytes() for name in ("cancer.thrifty", "cheap.thrifty")]
    rows = table(folder)[:20].to_dict("records")
    body = json.dumps({"rows": rows, "id": "a"})
    headers = {"Content-Type": "application/json"}
    path = folder / "cancer.thrifty"

    def put(data):
        (folder / "new").write_bytes(data)
        (folder / "new").replace(path)

    try:
        with Server(cases, folder) as server:
            known = {}
            for file in files:
                put(file)
                assert server.admin("POST", "/reload", b"{}", headers)[0] == 200
                said = json.loads(server.post("/predict", body)[1])
                known[said["model_version"]] = said
            with cases.case("two files answer differently"):
                assert len(known) == 2
                assert len({json.dumps(one["answers"]) for one in known.values()}) == 2
            found, stop = [], threading.Event()

            def ask():
                while not stop.is_set():
                    found.append(server.post("/predict", body))

            clients = [threading.Thread(target=ask) for _ in range(4)]
            for client in clients:
                client.start()
            for number in range(30):
                with cases.case(f"reload {number} under load"):
                    put(files[number % 2])
                    assert server.admin("POST", "/reload", b"{}", headers)[0] == 200
            for name, data in (
                ("empty", b""),
                ("nonsense", b"nonsense"),
                ("cut", files[0][:-100]),
                ("changed", files[0][:500] + b"\xff" + files[0][501:]),
                ("long", files[0] + b"x"),
                ("of zeros", bytes(10**6)),
            ):
                with cases.case(f"a file that is {name} changes nothing"):
                    path.write_bytes(data)
                    assert server.admin("POST", "/reload", b"{}", headers)[0] == 400
            with cases.case("a file that is gone changes nothing"):
                path.unlink()
                assert server.admin("POST", "/reload", b"{}", headers)[0] == 400
            with cases.case("a pipe in its place changes nothing"):
                os.mkfifo(path)
                assert server.admin("POST", "/reload", b"{}", headers)[0] == 400
                path.unlink()
            with cases.case("100 signals to reload"):
                put(files[1])
                for _ in range(100):
                    server.process.send_signal(signal.SIGHUP)
                    time.sleep(0.01)
                assert until(lambda: server.status(HEALTH) == 200, 10)
            stop.set()
            for client in clients:
                client.join()
            with cases.case("every answer was wholly that of one file"):
                assert len(found) > 20
                for status, said in found:
                    assert status == 200, said[:200]
                    said = json.loads(said)
                    assert said == known[said["model_version"]]
            with cases.case("requests under way are answered before the end"):
                many = json.dumps({"rows": table(folder).to_dict("records") * 10})
                results = []
                clients = [
                    threading.Thread(target=lambda: results.append(server.post("/predict", many)[0]))
                    for _ in range(4)
                ]
                for client in clients:
                    client.start()
                time.sleep(0.1)
                server.process.send_signal(signal.SIGTERM)
                for client in clients:
                    client.join(20)
                assert results == [200] * 4, results
                assert server.process.wait(15) in (0, -signal.SIGTERM)
    finally:
        put(files[0])
    _workers(cases, folder)


def _workers(cases, folder):
    """Workers that are killed are replaced, share a cap, and end with their supervisor."""
    from thrifty import load

    cost = load(folder / "cancer.thrifty").chain_.policy.cost
    budget = float(cost[0] + cost[-1]) / 2
    capped = {"budget": budget, "budget_cap": 1.1 * budget, "budget_window": 40}
    rows = pd.concat([table(folder)] * 2)[:400].to_dict("records")
    with Server(cases, folder, workers=2, **capped) as server:
        costs, turn = [], threading.Lock()

        def ask(part):
            for row in part:
                said = json.loads(server.post("/predict", json.dumps({"rows": [row]}))[1])
                with turn:
                    costs.append(said["answers"][0]["cost"])

        with cases.case("workers share a cap"):
            clients = [threading.Thread(target=ask, args=(rows[start::4],)) for start in range(4)]
            for client in clients:
                client.start()
            for client in clients:
                client.join()
            assert len(costs) == 400
            assert sum(costs) <= 400 * capped["budget_cap"] * (1 + 1e-9), np.mean(costs)
        started = _children(server.process.pid)
        with cases.case("workers that are killed are replaced"):
            for one in started:
                os.kill(one, signal.SIGKILL)
            assert until(lambda: server.status(good_request(folder)) == 200, 60)
        started |= _children(server.process.pid)
    with cases.case("workers end with their supervisor"):
        assert until(lambda: not any(Path(f"/proc/{one}").exists() for one in started), 10)


def _children(process):
    """Workers of a process, but for its tracker of resources."""
    numbers = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return {
        int(one) for one in numbers if b"resource_tracker" not in Path(f"/proc/{one}/cmdline").read_bytes()
    }
