"""Overload: which requests are admitted, which get 503, through a real server and without one."""

import asyncio
import contextlib
import json
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
import uvicorn

from thrifty import Policy
from thrifty.serve.admission import LARGE_BODY, Limiter
from thrifty.serve.config import Config
from thrifty.serve.connections import Connections


@pytest.fixture
def question(numbers, make_table):
    return {"rows": make_table(60, seed=5)[list(numbers.chain_.schema.names)].to_dict("records")}


@pytest.fixture
def one_row(numbers):
    return {"rows": [dict.fromkeys(numbers.chain_.schema.names, 0.5)]}


@pytest.fixture
def stalled(open_gateway, numbers, fake_remote):
    """``stalled(**settings)``: a gateway whose full model answers once ``release`` is set."""

    def opened(**settings):
        remote, release = fake_remote(None), asyncio.Event()

        async def ask(rows):
            await release.wait()
            return np.tile([0.5, 0.5], (len(rows), 1))

        remote.ask = ask
        gateway = open_gateway(numbers, {"connect": lambda model: remote}, **settings)
        return SimpleNamespace(gateway=gateway, load=gateway.serving.limiter, release=release)

    return opened


@contextlib.asynccontextmanager
async def listening(app):
    """Serve an application that has started, as the command does; yields how to connect."""
    gateway, common = app.state.gateway, {"port": 0, "lifespan": "off", "log_config": None}
    connections, plain = Connections(gateway.config, gateway.limiter, gateway.metrics), uvicorn.Config(app)
    plain.load()
    http = connections.protocol(plain.http_protocol_class)
    server = uvicorn.Server(uvicorn.Config(connections.app(app), http=http, **common))
    running = asyncio.ensure_future(server.serve())
    while not server.started:
        await asyncio.sleep(0.001)
    port, opened = server.servers[0].sockets[0].getsockname()[1], []

    async def connect():
        opened.append(await asyncio.open_connection("127.0.0.1", port))
        return opened[-1]

    try:
        yield connect
    finally:
        for _, writer in opened:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        server.should_exit = server.force_exit = True
        await running


def raw(body, path="/predict"):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


HEALTH = b"GET /v2/health/live HTTP/1.1\r\nhost: a\r\n\r\n"


async def exchange(connection, data):
    """Send bytes; returns status, headers and body of the answer."""
    reader, writer = connection
    writer.write(data)
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)).decode()
    lines = head.split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
    return int(lines[0].split()[1]), headers, await reader.readexactly(int(headers["content-length"]))


async def until(is_so):
    async with asyncio.timeout(10):
        while not is_so():
            await asyncio.sleep(0.001)


def test_requests_over_the_limit_get_503_in_a_moment_while_others_wait_and_health_answers(
    stalled, question, one_row
):
    under_test = stalled(max_in_flight=2, retry_after=7)
    gateway, load = under_test.gateway, under_test.load

    async def crowd():
        async with listening(gateway.app) as connect:
            waiting = [asyncio.ensure_future(exchange(await connect(), raw(question))) for _ in range(2)]
            await until(lambda: load.waiting.now == 2)
            kept = await connect()
            in_pieces = raw(one_row)
            refused = [await exchange(kept, raw(one_row)) for _ in range(2)]
            kept[1].write(in_pieces[:9])
            await asyncio.sleep(0.01)
            refused.append(await exchange(kept, in_pieces[9:]))
            healthy = await exchange(kept, HEALTH)
            assert not any(one.done() for one in waiting)
            under_test.release.set()
            answered = await asyncio.gather(*waiting)
            return refused, healthy, answered, await exchange(kept, raw(one_row))

    refused, healthy, answered, after = gateway.run(crowd())
    for status, headers, body in refused:
        assert (status, headers["retry-after"]) == (503, "7")
        assert json.loads(body) == {"error": "there is too much to do. Ask again later."}
    assert [one[0] for one in (healthy, *answered, after)] == [200, 200, 200, 200]
    assert gateway.counts("turned_away") == {"in_flight": 3}
    # Requests whose heads came in one piece are refused before their addresses are read.
    statuses = {("refused", 503): 2, ("predict", 503): 1, ("live", 200): 1, ("predict", 200): 3}
    assert gateway.counts("requests") == statuses
    assert (load.in_flight.now, load.in_flight.finished) == (0, 3)
    assert "thrifty_in_flight 0.0" in gateway.admin("/metrics").said.decode()


def test_a_batch_that_is_refused_before_its_body_came_leaves_the_connection_to_the_next_request(
    open_gateway, numbers, one_row
):
    gateway = open_gateway(numbers, max_delay=0.05)
    limiter = gateway.serving.limiter
    limiter.byte_cost = 1.0
    batch = raw({"rows": one_row["rows"] * 3000})
    assert len(batch) > LARGE_BODY

    async def refused():
        async with listening(gateway.app) as connect:
            kept = await connect()
            with limiter.batch(1):
                before = await exchange(kept, batch[:200])
            kept[1].write(batch[200:])
            return before, await exchange(kept, raw(one_row)), await exchange(kept, batch)

    assert [one[0] for one in gateway.run(refused())] == [503, 200, 200]
    assert gateway.counts("turned_away") == {"batches": 1}


@pytest.mark.parametrize("n_sent", [0, 20])
def test_a_slow_body_is_cut_off_and_counts_as_no_work(open_gateway, numbers, one_row, n_sent):
    gateway = open_gateway(numbers, body_timeout=0.1, head_timeout=0.1)
    body = json.dumps(one_row).encode()
    request = raw(body)[: -len(body)] + body[:n_sent]

    async def slow():
        async with listening(gateway.app) as connect:
            return await exchange(await connect(), request)

    assert gateway.run(slow())[0] == 408
    load = gateway.serving.limiter
    assert load.in_flight.now == load.in_flight.finished == load.reading.now == 0


def test_bodies_in_pieces_are_bounded_and_keep_no_small_request_out(open_gateway, numbers, one_row):
    gateway = open_gateway(numbers, max_in_flight=3, head_timeout=0.4)
    load = gateway.serving.limiter
    begun = raw(one_row)[:-3]

    async def dripping():
        async with listening(gateway.app) as connect:
            slow = [await connect() for _ in range(3)]
            for _, writer in slow:
                writer.write(begun)
            await until(lambda: load.reading.now == 3)
            one_more = await exchange(await connect(), begun)
            small = await exchange(await connect(), raw(one_row))
            for _, writer in slow:
                writer.close()
            await until(lambda: not load.reading.now)
            return one_more[0], small[0], (await exchange(await connect(), raw(one_row)))[0]

    assert gateway.run(dripping()) == (503, 200, 200)
    assert gateway.counts("turned_away") == {"reading": 1}
    assert load.in_flight.now == 0


def test_a_client_that_leaves_before_its_answer_leaks_no_count(stalled, question):
    under_test = stalled()

    async def leaves():
        async with listening(under_test.gateway.app) as connect:
            _, writer = await connect()
            writer.write(raw(question))
            await until(lambda: under_test.load.waiting.now == 1)
            writer.close()
            await writer.wait_closed()
            under_test.release.set()
            await until(lambda: under_test.load.in_flight.now == 0)

    under_test.gateway.run(leaves())
    assert under_test.load.waiting.now == 0


def test_a_request_waits_a_moment_for_room_and_is_refused_without(open_gateway, numbers, one_row):
    gateway = open_gateway(numbers, max_delay=0.05)
    limiter = gateway.serving.limiter
    limiter.cost = 0.0101  # while five are under way the next one would wait too long
    limiter.in_flight.now = 5

    async def crowd():
        async with listening(gateway.app) as connect:
            began = time.perf_counter()
            asked = [await connect() for _ in range(3)]
            refused = await asyncio.gather(*(exchange(one, raw(one_row)) for one in asked))
            took = time.perf_counter() - began
            waiting = [asyncio.ensure_future(exchange(one, raw(one_row))) for one in asked]
            await until(lambda: gateway.serving.limiter._queue)
            for _ in range(5):
                limiter.leave()
            return refused, took, await asyncio.gather(*waiting)

    refused, took, answered = gateway.run(crowd())
    assert [one[0] for one in refused] == [503, 503, 503]
    assert took >= 0.1
    assert [one[0] for one in answered] == [200, 200, 200]
    assert gateway.counts("turned_away") == {"busy": 3}
    assert limiter.in_flight.now == 0


def test_clients_that_ask_again_at_once_are_all_answered(open_gateway, numbers, one_row):
    gateway = open_gateway(numbers, max_delay=0.05)
    gateway.serving.limiter.cost = 0.02  # three at a time

    async def storm():
        async with listening(gateway.app) as connect:

            async def client():
                connection = await connect()
                return [(await exchange(connection, raw(one_row)))[0] for _ in range(5)]

            return await asyncio.gather(*(client() for _ in range(20)))

    statuses = [one for statuses in gateway.run(storm()) for one in statuses]
    assert statuses.count(200) >= 80
    assert gateway.serving.limiter.in_flight.now == 0


def test_a_long_pause_is_no_reason_to_refuse(open_gateway, numbers, one_row):
    gateway = open_gateway(numbers, max_delay=0.05)

    async def paused():
        end = time.thread_time() + 0.1  # as a collection of garbage in this thread, or a page of metrics
        while time.thread_time() < end:
            pass
        return await asyncio.gather(*(gateway.call("/predict", one_row) for _ in range(8)))

    assert {one.status for one in gateway.run(paused())} == {200}


def test_requests_that_wait_for_the_full_model_are_no_work(stalled, question):
    under_test = stalled(max_delay=0.05)
    gateway, load = under_test.gateway, under_test.load
    load.cost = 0.02

    async def many():
        asked = []
        for _ in range(6):
            asked.append(asyncio.ensure_future(gateway.call("/predict", question)))
            await until(lambda: load.waiting.now == len(asked))
        assert load.in_flight.now == 6
        under_test.release.set()
        return await asyncio.gather(*asked)

    assert {one.status for one in gateway.run(many())} == {200}
    assert load.waiting.now == 0


def test_batches_that_would_wait_too_long_for_those_before_them_are_refused_and_no_row_waits(
    open_gateway, numbers, question, one_row
):
    always_full = numbers.chain_.at(Policy.of(np.full(numbers.chain_.n_stages, -np.inf)))
    gateway = open_gateway(always_full, max_delay=0.05)
    # Behind two batches of 60 rows the next one waits too long.
    gateway.serving.limiter.byte_cost = 0.03 / (60 * 8 * len(numbers.chain_.schema.names))
    held = threading.Event()

    async def crowd():
        try:
            busy = asyncio.ensure_future(gateway.serving.model.in_batch_thread(held.wait))
            asked = [asyncio.ensure_future(gateway.call("/predict", question)) for _ in range(6)]
            await until(lambda: gateway.counts("turned_away")["batches"] == 4)
            row = await asyncio.wait_for(gateway.call("/predict", one_row), 10)
        finally:
            held.set()
        await busy
        return row, await asyncio.gather(*asked)

    row, batches = gateway.run(crowd())
    assert [one.status for one in batches] == 2 * [200] + 4 * [503]
    assert row.said["answers"][0]["route"] == numbers.chain_.n_stages
    assert gateway.counts("turned_away") == {"batches": 4}
    assert gateway.ask("/predict", question).status == 200


def test_what_a_request_costs_is_learned_while_there_is_much_to_do_and_never_in_a_leap():
    load = Limiter(Config())
    first = load.cost
    load.learn(0.05, 0.02, 1)  # mostly idle: what was used went into other things
    load.learn(0.05, 0.05, 0)
    assert load.cost == first
    load.learn(0.2, 0.2, 1)
    assert load.cost == 1.25 * first
    for _ in range(50):
        load.learn(0.05, 0.05, 20)
    assert load.cost == pytest.approx(0.0025, rel=1e-3)
