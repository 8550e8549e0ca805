"""Limits on connections and heads of requests, with a real uvicorn."""

import contextlib
import json
import socket
import threading
import time

import pytest

uvicorn = pytest.importorskip("uvicorn")

from thrifty.serve.admission import Limiter  # noqa: E402
from thrifty.serve.config import Config  # noqa: E402
from thrifty.serve.connections import MAX_HEAD_BYTES, Connections  # noqa: E402
from thrifty.serve.metrics import Metrics  # noqa: E402

pytestmark = pytest.mark.slow


LARGE = 20_000_000
"""Bytes of a large response, more than any buffer of the kernel holds."""


async def echo(scope, receive, send):
    """Wait for the body, then say which headers are there."""
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            break
    said = {"headers": [name.decode() for name, _ in scope["headers"]]}
    said |= {"n_bytes": len(b"".join(parts)), "n_parts": len(parts)}
    content = json.dumps(said).encode() + b" " * (LARGE * (scope["path"] == "/large"))
    length = str(len(content)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
    await send({"type": "http.response.body", "body": content})


@pytest.fixture(scope="module", params=["httptools", "h11"])
def port(request):
    config = Config(max_connections_per_address=12, head_timeout=0.4)
    connections = Connections(config, Limiter(config), Metrics())
    connections.send_timeout = 0.3
    common = {"log_config": None, "lifespan": "off"}
    plain = uvicorn.Config(echo, http=request.param, **common)
    plain.load()
    http = connections.protocol(plain.http_protocol_class)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(connections.app(echo), http=http, **common))
        thread = threading.Thread(target=lambda: server.run([listening]))
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield listening.getsockname()[1]
        server.should_exit = True
        thread.join()


def said_to(port, *parts, n_answers=1, pause=0.0):
    """Everything that the server answers to some bytes, until it closes or has answered so often and is silent."""
    with socket.create_connection(("127.0.0.1", port), timeout=2) as client:
        found = b""
        try:
            for part in parts:
                client.sendall(part)
                time.sleep(pause)
            while received := client.recv(65536):
                found += received
                client.settimeout(0.1 if found.count(b"HTTP/1.1 ") >= n_answers else 2.0)
        except (TimeoutError, ConnectionError):
            pass
        return found


def test_ordinary_requests_are_answered_one_after_the_other_on_one_connection(port):
    one = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n" + b"a" * 100_000
    last = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
    answers = said_to(port, one, one, one[:70], one[70:], last, n_answers=4, pause=0.05)
    assert answers.count(b"HTTP/1.1 200") == 4
    assert answers.count(b'"n_bytes": 100000') == 3


def test_a_small_body_reaches_the_application_whole_unless_it_is_slow(port):
    head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3000\r\n\r\n"
    quick = said_to(port, head, b"a" * 1000, b"a" * 2000, head + b"a" * 2999, b"a", n_answers=2, pause=0.01)
    assert quick.count(b'"n_bytes": 3000, "n_parts": 1}') == 2
    slow = said_to(port, head, b"a" * 1000, b"a" * 2000, pause=0.25)
    assert b'"n_bytes": 3000' in slow
    assert b'"n_parts": 1}' not in slow
    # What follows it on the connection is another request.
    pipelined = said_to(port, head, b"a" * 3000 + head + b"a" * 3000, n_answers=2)
    assert pipelined.count(b'"n_bytes": 3000') == 2


@pytest.mark.parametrize("n_requests", [1, 3])
def test_a_client_that_does_not_read_its_responses_is_closed(port, n_requests):
    with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        client.sendall(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n" * n_requests)
        time.sleep(0.8)
        found = 0
        with contextlib.suppress(ConnectionError):
            while received := client.recv(1_000_000):
                found += len(received)
        assert found < LARGE


def test_a_client_that_reads_slowly_gets_its_whole_response(port):
    with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        client.sendall(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n")
        found = 0
        while found < LARGE and (received := client.recv(1_000_000)):
            found += len(received)
            time.sleep(0.03)
        assert found > LARGE


def test_a_head_that_is_too_long_is_refused_before_it_ends(port):
    start = b"GET / HTTP/1.1\r\nhost: x\r\nlong: "
    assert said_to(port, start, b"a" * (MAX_HEAD_BYTES + 1)).startswith(b"HTTP/1.1 431")
    # The second head of a connection counts from its own beginning.
    fine = start + b"a" * (MAX_HEAD_BYTES - 100) + b"\r\n\r\n"
    answers = said_to(port, fine, fine, start, b"b" * MAX_HEAD_BYTES, n_answers=3, pause=0.05)
    assert answers.count(b"HTTP/1.1 200") == 2
    assert answers.count(b"HTTP/1.1 431") == 1


def test_a_head_of_too_many_fields_is_refused(port):
    fields = b"".join(b"x%d: 1\r\n" % number for number in range(101))
    assert said_to(port, b"GET / HTTP/1.1\r\nhost: x\r\n" + fields + b"\r\n").startswith(b"HTTP/1.1 431")


def test_silent_and_dripping_connections_are_closed(port):
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=5) as silent:
        assert silent.recv(1) == b""
    assert 0.2 < time.monotonic() - began < 2.0
    n_sent = 0
    with (
        contextlib.suppress(ConnectionError),
        socket.create_connection(("127.0.0.1", port), timeout=5) as slow,
    ):
        while n_sent < 40:
            slow.sendall(b"G")
            n_sent += 1
            time.sleep(0.1)
    assert n_sent < 20


def test_a_trailer_is_no_header(port):
    head = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    chunked = head + b"1\r\na\r\n0\r\nauthorization: Bearer stolen\r\n\r\n"
    answer = said_to(port, chunked)
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"authorization" not in answer
    # Nor is that of a request that came together with the one before it.
    before = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc"
    answers = said_to(port, before + chunked, n_answers=2)
    assert answers.count(b"HTTP/1.1 200") == 2
    assert b"authorization" not in answers
    # Behind a chunked body, whose end is not known, no request is answered.
    answers = said_to(port, 2 * chunked, n_answers=2)
    assert answers.count(b"HTTP/1.1 200") == answers.count(b"HTTP/1.1 400") == 1
    assert b"authorization" not in answers


def test_more_connections_than_allowed_are_closed_and_leave_room_when_they_end(port):
    many = [socket.create_connection(("127.0.0.1", port), timeout=2) for _ in range(12)]
    time.sleep(0.1)
    assert said_to(port, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n") == b""
    for one in many:
        one.close()
    time.sleep(0.1)
    assert said_to(port, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").startswith(b"HTTP/1.1 200")


def test_new_clients_do_not_wait_for_those_that_keep_the_gateway_busy():
    pytest.importorskip("uvloop")

    answered = []

    async def slow(scope, receive, send):
        time.sleep(0.01)  # the processor is busy
        answered.append(scope["client"])
        await echo(scope, receive, send)

    request = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
    listening = socket.create_server(("127.0.0.1", 0), backlog=100)
    address = listening.getsockname()
    connections = Connections(Config(), Limiter(Config()), Metrics(), listening=listening)
    plain = uvicorn.Config(slow)
    plain.load()
    http, common = connections.protocol(plain.http_protocol_class), {"log_config": None, "access_log": False}
    server = uvicorn.Server(uvicorn.Config(connections.app(slow), http=http, lifespan="off", **common))
    thread = threading.Thread(target=lambda: server.run([listening]))
    thread.start()
    is_over = threading.Event()

    def keeps_asking():
        with socket.create_connection(address) as client:
            while not is_over.is_set():
                client.sendall(request)
                client.recv(65536)

    busy = [threading.Thread(target=keeps_asking) for _ in range(10)]
    for one in busy:
        one.start()
    time.sleep(0.3)
    before = len(answered)
    clients = [socket.create_connection(address, timeout=60) for _ in range(30)]
    for client in clients:
        client.sendall(request)
    for client in clients:
        assert client.recv(65536).startswith(b"HTTP/1.1 200")
        client.close()
    n_answered = len(answered) - before
    is_over.set()
    for one in (*busy, thread):
        server.should_exit = True
        one.join()
    # About 50; one in a turn would take 30 turns, in each of which others are answered as well: about 190.
    assert n_answered < 100
