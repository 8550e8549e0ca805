"""Too much load: who is let in, who is turned away, and what that costs."""

import asyncio
import json
import socket
import time
from types import SimpleNamespace

import numpy as np
import pytest
import uvicorn
from uvicorn.server import ServerState

from thrifty.serve.config import Config
from thrifty.serve.connection import Connection, refusal_of
from thrifty.serve.load import Load
from thrifty.serve.server import _Welcoming, _work_of

uvloop = pytest.importorskip("uvloop")


class Transport:
    """Keeps what is written to a client."""

    def __init__(self):
        self.said, self.is_closed, self.n_writes = b"", False, 0

    def write(self, data):
        self.said += data
        self.n_writes += 1

    def close(self):
        self.is_closed = True

    def is_closing(self):
        return self.is_closed

    def get_extra_info(self, _):
        return None

    def pause_reading(self):
        pass

    resume_reading = pause_reading


@pytest.fixture
def connect(numbers, open_gateway):
    """A gateway, and ``connect()``: a connection to it without a network."""
    gateway = open_gateway(numbers, most_delay=0.05)
    serving, state = gateway.serving, ServerState()
    state.default_headers = [(b"date", b"today")]
    how = {"config": uvicorn.Config(gateway.app, log_config=None), "server_state": state, "app_state": {}}
    how |= {"operations": _work_of(gateway.app), "load": serving.load, "tally": serving.tally}

    async def connected(count=1):
        made = [
            Connection(**how, refusal=refusal_of(7), _loop=asyncio.get_running_loop()) for _ in range(count)
        ]
        for one in made:
            one.connection_made(Transport())
        return made

    return SimpleNamespace(connected=connected, gateway=gateway, serving=serving, tasks=state.tasks)


@pytest.fixture
def request_bytes(numbers):
    body = json.dumps({"rows": [dict.fromkeys(numbers.schema.names, 0.5)], "id": "1"}).encode()
    head = f"POST /predict HTTP/1.1\r\nhost: a\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    return head + body


async def settled(tasks):
    while tasks:
        await asyncio.sleep(0)
    await asyncio.sleep(0)


def said_by(connection):
    head, _, body = connection.transport.said.partition(b"\r\n\r\n")
    return head.split(b"\r\n"), body


def test_what_cannot_be_answered_in_time_is_refused_before_any_work_begins(connect, request_bytes):
    connect.serving.load.cost = 0.0101  # five may wait before the next one would wait too long

    async def crowd():
        connections = await connect.connected(12)
        for one in connections:
            one.data_received(request_bytes)
        at_once = [one.transport.said[9:12] for one in connections]
        assert len(connect.tasks) == 5
        await settled(connect.tasks)
        connections[-1].data_received(
            request_bytes
        )  # the connection of one that was refused is good for another
        await settled(connect.tasks)
        return at_once, connections

    at_once, connections = connect.gateway.run(crowd())
    assert at_once == 5 * [b""] + 7 * [b"503"]
    head, body = said_by(connections[5])
    assert b"retry-after: 7" in head
    assert json.loads(body) == {"error": "there is too much to do. Ask again later."}
    assert connections[-1].transport.said.count(b"HTTP/1.1 200 OK") == 1
    tally, load = connect.serving.tally, connect.serving.load
    assert tally.turned_away == {"busy": 7}
    assert tally.requests == {("predict", 503): 7, ("predict", 200): 6}
    metrics = connect.gateway.admin("/metrics").said.decode()
    assert 'thrifty_refusal_wait_seconds_bucket{le="2.5"} 7.0' in metrics
    assert "thrifty_in_flight 0.0" in metrics
    assert (load.in_flight, load.finished) == (0, 6)


def test_an_answer_is_written_at_once_and_says_what_the_application_says(connect, request_bytes):
    async def ask(data):
        (one,) = await connect.connected()
        one.data_received(data)
        await settled(connect.tasks)
        return one

    said = connect.gateway.ask("/predict", request_bytes.partition(b"\r\n\r\n")[2])
    one = connect.gateway.run(ask(request_bytes))
    head, body = said_by(one)
    assert one.transport.n_writes == 1
    assert json.loads(body) == said.said
    expected = [b"HTTP/1.1 200 OK", b"date: today", b"content-type: application/json"]
    assert head == [*expected, b"content-length: %d" % len(body)]
    two = connect.gateway.run(ask(2 * request_bytes))
    assert two.transport.said.count(body) == 2
    last = connect.gateway.run(ask(request_bytes.replace(b"host: a", b"connection: close")))
    assert last.transport.is_closed
    assert last.transport.said.endswith(body)
    assert connect.serving.load.in_flight == 0


def test_a_body_of_a_refused_request_is_dropped_and_one_that_waits_for_leave_is_not_waited_for(
    connect, request_bytes
):
    async def refused():
        slow, asks_first = await connect.connected(2)
        connect.serving.load.cost = 0.0
        connect.serving.load.in_flight = 10**6
        slow.data_received(request_bytes[:-3])
        asks_first.data_received(request_bytes.replace(b"host: a", b"expect: 100-continue")[:-3])
        assert not slow.transport.is_closed
        connect.serving.load.in_flight = 0
        slow.data_received(request_bytes[-3:] + request_bytes)
        await settled(connect.tasks)
        return slow, asks_first

    slow, asks_first = connect.gateway.run(refused())
    assert slow.transport.said.startswith(b"HTTP/1.1 503")
    assert b"HTTP/1.1 200" in slow.transport.said
    assert asks_first.transport.is_closed
    assert b"connection: close" in said_by(asks_first)[0]


def test_a_connection_that_is_silent_after_a_refusal_is_closed_and_one_that_asks_again_is_not(
    connect, request_bytes
):
    async def silent():
        gone, stays, dripping = connections = await connect.connected(3)
        connect.serving.load.in_flight = 10**6
        for one in connections:
            one.timeout_keep_alive = 0.05
            one.data_received(request_bytes[:-3] if one is dripping else request_bytes)
        connect.serving.load.in_flight = 0
        stays.timeout_keep_alive = 60
        stays.data_received(request_bytes)
        end = time.monotonic() + 10
        while not (gone.transport.is_closed and dripping.transport.is_closed) and time.monotonic() < end:
            await asyncio.sleep(0.01)
        return [one.transport.is_closed for one in connections]

    assert connect.gateway.run(silent()) == [True, False, True]


def test_a_body_that_never_comes_whole_is_no_work(connect, request_bytes):
    async def dripping():
        for one in await connect.connected(3):
            one.data_received(request_bytes[:-3])
            await asyncio.sleep(0)
            one.connection_lost(None)
        await settled(connect.tasks)

    connect.gateway.run(dripping())
    assert connect.serving.load.in_flight == connect.serving.load.finished == 0


def test_a_long_pause_turns_nobody_away(open_gateway, numbers, request_bytes):
    gateway = open_gateway(numbers, most_delay=0.05)
    body = request_bytes.partition(b"\r\n\r\n")[2]

    async def paused():
        end = time.thread_time() + 0.1  # as a collection of garbage in this thread, or a page of metrics
        while time.thread_time() < end:
            pass
        return await asyncio.gather(*(gateway.call("/predict", body) for _ in range(8)))

    assert {one.status for one in gateway.run(paused())} == {200}


def test_who_waits_for_the_full_model_is_no_work(open_gateway, numbers, fake_remote, make_table):
    remote = fake_remote(None)
    gateway = open_gateway(numbers, {"connect": lambda model: remote}, most_delay=0.05)
    question = {"rows": make_table(60, seed=5)[list(numbers.schema.names)].to_dict("records")}
    load, waiting = gateway.serving.load, asyncio.Event()
    load.cost = 0.02

    async def slow(rows):
        await waiting.wait()
        return np.tile([0.5, 0.5], (len(rows), 1))

    async def many():
        asked = []
        for _ in range(6):
            asked.append(asyncio.ensure_future(gateway.call("/predict", question)))
            while load.elsewhere.count < len(asked):
                await asyncio.sleep(0.001)
        assert (load.in_flight, load.excess) == (6, None)
        waiting.set()
        return await asyncio.gather(*asked)

    remote.ask = slow
    assert {one.status for one in gateway.run(many())} == {200}
    assert load.elsewhere.count == 0


def test_between_requests_that_wait_the_event_loop_looks_at_the_connections_again():
    load, begun = Load(Config()), []
    load.cost = 0.0033  # three of them are as much as a turn may take

    async def one(number):
        await load.begin()
        begun.append(number)

    async def seven():
        tasks = [asyncio.ensure_future(one(number)) for number in range(7)]
        counts = []
        while len(begun) < len(tasks):
            await asyncio.sleep(0)
            counts.append(len(begun))
        return counts

    assert asyncio.run(seven()) == [3, 6, 7]
    assert begun == list(range(7))


def test_what_a_request_costs_is_learned_while_there_is_much_to_do_and_never_in_a_leap():
    load = Load(Config())
    first = load.cost
    load.learn(0.05, 0.02, 1)  # mostly idle: what was used went into other things
    load.learn(0.05, 0.05, 0)
    assert load.cost == first
    load.learn(0.2, 0.2, 1)
    assert load.cost == 1.25 * first
    for _ in range(50):
        load.learn(0.05, 0.05, 20)
    assert load.cost == pytest.approx(0.0025, rel=1e-3)


def test_what_is_read_has_lain_no_longer_than_a_turn_of_the_event_loop_and_nothing_after_a_rest():
    async def turns():
        load = Load(Config())
        waits = [load.look()]
        for _ in range(2):
            await asyncio.sleep(0)
            time.sleep(0.002)
            waits.append(load.look())
        for _ in range(3):
            await asyncio.sleep(0)
        return [*waits, load.look()]

    first, second, third, last = asyncio.run(turns())
    assert first == last == 0.0
    assert min(second, third) >= 0.002


def test_a_crowd_of_connections_is_taken_in_one_turn():
    async def application(scope, receive, send):
        pass

    async def crowd():
        config = uvicorn.Config(application, port=0, lifespan="off", log_config=None)
        server = _Welcoming(config)
        config.load()
        server.lifespan = config.lifespan_class(config)
        await server.startup()
        address = server.servers[0].sockets[0].getsockname()
        clients = [socket.create_connection(address) for _ in range(50)]
        for _ in range(5):  # a turn to take them and some to set them up; uvloop alone takes one in each
            await asyncio.sleep(0)
        taken = len(server.server_state.connections)
        for one in clients:
            one.close()
        await server.shutdown()
        return taken

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(crowd()) == 50


def test_a_gateway_without_room_for_more_connections_rests_before_it_takes_another(monkeypatch):
    monkeypatch.setattr("thrifty.serve.server._NO_ROOM_PAUSE", 0.01)
    tries = []

    class Full:
        def accept(self):
            tries.append(asyncio.get_running_loop().time())
            raise OSError(24, "too many open files")

        def fileno(self):
            return reading.fileno()

    async def wait():
        server = _Welcoming(uvicorn.Config(None))
        writing.send(b"x")  # somebody waits, and goes on waiting
        server._watch(Full())
        while len(tries) < 3:
            await asyncio.sleep(0)
        return np.diff(tries)

    reading, writing = socket.socketpair()
    with reading, writing, asyncio.Runner() as runner:
        assert min(runner.run(wait())) >= 0.009
