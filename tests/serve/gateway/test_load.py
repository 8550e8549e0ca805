"""Overload: which requests are answered, which wait for room, and which get 503."""

import asyncio
import json
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from thrifty import Policy


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

        async def ask(rows, *_):
            await release.wait()
            return np.tile([0.5, 0.5], (len(rows), 1))

        remote.ask = ask
        gateway = open_gateway(numbers, {"remote": remote}, **settings)
        return SimpleNamespace(gateway=gateway, room=gateway.serving.room, release=release)

    return opened


async def until(is_so):
    async with asyncio.timeout(10):
        while not is_so():
            await asyncio.sleep(0.001)


def asking(gateway, *bodies):
    return [asyncio.ensure_future(gateway.call("/predict", body)) for body in bodies]


def test_batches_in_short_bodies_wait_for_the_full_model_side_by_side(stalled, question):
    under_test = stalled()
    gateway, waits, under_way = under_test.gateway, under_test.gateway.serving.remote.ask, []

    async def ask(*arguments):
        under_way.append(arguments)
        return await waits(*arguments)

    gateway.serving.remote.ask = ask

    async def crowd():
        waiting = asking(gateway, *[question] * 12)  # eight long bodies are read at a time
        await until(lambda: len(under_way) == 12)
        under_test.release.set()
        return [(await one).status for one in waiting]

    assert gateway.run(crowd()) == [200] * 12


def test_requests_over_the_limit_get_503_in_a_moment_while_others_wait_and_health_answers(
    stalled, question, one_row
):
    under_test = stalled(max_in_flight=2, retry_after=7, max_delay=0.1)
    gateway, room = under_test.gateway, under_test.room

    async def crowd():
        waiting = asking(gateway, question, question)
        await until(lambda: room.n_taken == 2)
        began = time.perf_counter()
        refused = await asyncio.gather(*asking(gateway, one_row, one_row, one_row))
        took = time.perf_counter() - began
        healthy = await gateway.call("/v2/health/live", None)
        assert not any(one.done() for one in waiting)
        under_test.release.set()
        return refused, took, healthy, await asyncio.gather(*waiting), await gateway.call("/predict", one_row)

    refused, took, healthy, answered, after = gateway.run(crowd())
    for one in refused:
        assert (one.status, one.headers["retry-after"]) == (503, "7")
        assert one.said == {"error": "there is too much to do. Ask again later."}
    assert 0.1 <= took < 2.0
    assert [one.status for one in (healthy, *answered, after)] == [200, 200, 200, 200]
    assert gateway.counts("rejected") == {(): 3}
    assert gateway.counts("requests") == {("live", "200"): 1, ("predict", "200"): 3, ("predict", "503"): 3}
    assert room.n_taken == 0
    assert "thrifty_in_flight 0.0" in gateway.admin("/metrics").said.decode()


def test_a_request_that_waits_is_answered_as_soon_as_there_is_room(stalled, question, one_row):
    under_test = stalled(max_in_flight=1, max_delay=60.0)

    async def crowd():
        first, second = asking(under_test.gateway, question, one_row)
        await until(lambda: under_test.room.n_taken == 1)
        await asyncio.sleep(0.02)
        assert not second.done()
        under_test.release.set()
        return await asyncio.gather(first, second)

    assert [one.status for one in under_test.gateway.run(crowd())] == [200, 200]


def test_a_client_that_leaves_before_its_answer_leaves_its_place(stalled, question, one_row):
    under_test = stalled(max_in_flight=1, max_delay=60.0)

    async def leaves():
        first, second = asking(under_test.gateway, question, one_row)
        await until(lambda: under_test.room.n_taken == 1)
        await asyncio.sleep(0.02)
        for one in (second, first):
            one.cancel()
        await asyncio.wait([first, second])
        under_test.release.set()
        return await under_test.gateway.call("/predict", question)

    assert under_test.gateway.run(leaves()).status == 200
    assert under_test.room.n_taken == 0


def test_clients_that_ask_again_at_once_are_all_answered(open_gateway, numbers, one_row):
    gateway = open_gateway(numbers, max_in_flight=3, max_delay=60.0)

    async def client():
        return [(await gateway.call("/predict", one_row)).status for _ in range(5)]

    async def storm():
        return await asyncio.gather(*(client() for _ in range(20)))

    assert {status for statuses in gateway.run(storm()) for status in statuses} == {200}


def test_batches_wait_for_those_before_them_and_no_row_waits_behind_them(
    open_gateway, numbers, question, one_row
):
    always_full = numbers.chain_.at(Policy.of(np.full(numbers.chain_.n_stages, -np.inf)))
    gateway = open_gateway(always_full)
    held = threading.Event()

    async def crowd():
        try:
            busy = asyncio.ensure_future(gateway.serving.model.in_batch_thread(held.wait))
            batches = asking(gateway, *[question] * 6)
            await until(lambda: gateway.serving.room.n_taken == 6)
            row = await asyncio.wait_for(gateway.call("/predict", one_row), 10)
            assert not any(one.done() for one in batches)
        finally:
            held.set()
        await busy
        return row, await asyncio.gather(*batches)

    row, batches = gateway.run(crowd())
    assert [one.status for one in batches] == 6 * [200]
    assert row.said["answers"][0]["route"] == numbers.chain_.n_stages
    # A body that is long is a batch before its rows are counted.
    assert gateway.ask("/predict", json.dumps(one_row).encode() + b" " * 2**17).status == 200
