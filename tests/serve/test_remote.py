"""A remote model that fails in every way, as a real server in another process: each failure has its reason, in time."""

import asyncio
import json
import os
import signal
import socket
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from thrifty.engine.purchases.retry import MAX_RETRY_AFTER, CircuitBreaker
from thrifty.errors import InvalidInputError, RemoteFailure
from thrifty.serve.config import Config, RemoteSettings
from thrifty.serve.remote import RemoteModel, answer_of, request_of

ROWS = np.array([[0.25, 7.0], [0.5, np.nan], [0.75, 1e300]])
COLUMNS = ("share", "other")
DEADLINE, SLACK = 0.15, 0.05
SETTINGS = RemoteSettings(max_retries=0, total_timeout=DEADLINE)
PATIENT = RemoteSettings(connect_timeout=5.0, total_timeout=5.0)  # where time is not what is tested


def address(port, mode, n_classes=3):
    return f"http://127.0.0.1:{port}/{mode}/v2/models/{n_classes}"


def with_remote(url, use, settings=SETTINGS):
    """What ``await use(remote)`` returns, and the remote."""

    async def run():
        remote = RemoteModel(url, settings=settings)
        await remote.start()
        try:
            return await use(remote), remote
        finally:
            await remote.close()

    return asyncio.run(run())


async def reason_of(remote, rows=ROWS):
    """The reason of the failure of one call, None if there is none, and the seconds it took."""
    start = time.perf_counter()
    try:
        await remote.ask(rows, COLUMNS, 3)
    except RemoteFailure as failure:
        return failure.reason, time.perf_counter() - start
    return None, time.perf_counter() - start


async def reasons_of(remote, n_calls):
    return [(await reason_of(remote))[0] for _ in range(n_calls)]


def test_a_remote_that_behaves_answers_with_checked_probabilities(misbehaving_port):
    async def use(remote):
        return await remote.ask(ROWS, COLUMNS, 3), await remote.ask(ROWS[:0], COLUMNS, 3)

    (outputs, none), remote = with_remote(address(misbehaving_port, "good"), use, PATIENT)
    np.testing.assert_allclose(outputs, np.column_stack([ROWS[:, 0], *[(1 - ROWS[:, 0]) / 2] * 2]))
    assert none.shape == (0, 3)
    assert (remote.calls, remote.retries, remote.breaker.in_flight, remote.failures) == (1, 0, 0, {})


FAULTS = {
    "500": "status_500",
    "429": "status_429",
    "302": "status_302",
    "bad_json": "bad_json",
    "text": "bad_json",
    "nan": "nan",
    "null": "nan",
    "sums": "not_probabilities",
    "shape": "shape",
    "short": "shape",
    "labels": "datatype",
    "large": "too_large",
    "padded": "too_large",
    "declared": "too_large",
    "cut": "closed",
    "garbage": "bad_http",
    "slow": "timeout",
    "drip": "timeout",
}


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "reason"), FAULTS.items())
def test_every_fault_has_its_reason_within_the_deadline_and_is_counted(misbehaving_port, mode, reason):
    async def use(remote):
        tries = [await reason_of(remote)]
        # A busy machine may hold up some tries, and then they are late or have another reason; not all of them.
        while len(tries) < 5 and not (tries[-1][0] == reason and tries[-1][1] <= DEADLINE + SLACK):
            tries.append(await reason_of(remote))
        return tries

    tries, remote = with_remote(address(misbehaving_port, mode), use)
    assert tries[-1][0] == reason
    assert tries[-1][1] <= DEADLINE + SLACK
    assert remote.failures == Counter(found for found, _ in tries)
    assert remote.breaker.in_flight == 0


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), ("9" * 400, MAX_RETRY_AFTER), ("%C2%B2", None), ("-1", None), ("1e9", None)],
)
def test_a_remote_cannot_say_for_long_that_it_is_not_to_be_asked(misbehaving_port, header, seconds):
    async def use(remote):
        with pytest.raises(RemoteFailure) as failed:
            await remote.ask(ROWS, COLUMNS, 3)
        return failed.value

    failure, _ = with_remote(address(misbehaving_port, f"after-{header}"), use, PATIENT)
    assert (failure.reason, failure.retry_after) == ("status_429", seconds)


@pytest.mark.slow
def test_a_server_that_is_killed_fails_the_call_under_way_and_refuses_the_next(misbehaving_server):
    with misbehaving_server() as (process, port):

        async def use(remote):
            under_way = asyncio.create_task(reason_of(remote))
            await asyncio.sleep(0.2)
            os.kill(process.pid, signal.SIGKILL)
            return (await under_way)[0], (await reason_of(remote))[0]

        (first, second), _ = with_remote(address(port, "slow"), use, replace(PATIENT, max_retries=0))
    # The next call may still find the old connection, and then hears that it is closed.
    assert first == "closed"
    assert second in ("connect", "closed")


def test_a_connection_that_does_not_come_about_is_given_up_before_the_deadline():
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        port = deaf.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]  # nobody accepts them: they fill the queue
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        settings = RemoteSettings(connect_timeout=0.05, total_timeout=5.0)
        (reason, seconds), _ = with_remote(address(port, "good"), reason_of, settings)
        for one in waiting:
            one.close()
    assert reason == "connect"
    assert seconds < 1.0


def test_a_passing_failure_is_tried_again_but_no_more_than_every_fifth_call_is(misbehaving_port):
    n_calls = 30

    async def use(remote):
        remote.breaker = CircuitBreaker(failures=1000, share=1.0, window=1000)
        return await reasons_of(remote, n_calls)

    reasons, remote = with_remote(address(misbehaving_port, "flapping"), use, PATIENT)
    assert remote.calls == n_calls
    assert 4 <= remote.retries <= 0.2 * n_calls
    # Every second answer fails: a retry that was made turns a failure into an answer.
    assert remote.failures["status_500"] == reasons.count("status_500") + remote.retries
    assert reasons.count(None) > n_calls / 2


def test_a_long_good_time_saves_up_only_a_few_retries(misbehaving_port):
    async def use(remote):
        remote.breaker = CircuitBreaker(failures=1000, window=1000)
        await reasons_of(remote, 80)  # would be worth sixteen
        remote.url = address(misbehaving_port, "500") + "/infer"
        await reasons_of(remote, 10)

    _, remote = with_remote(address(misbehaving_port, "good"), use, PATIENT)
    assert remote.retries == 10


def test_an_open_breaker_asks_nobody_and_closes_after_a_good_probe(misbehaving_port):
    async def use(remote):
        remote.breaker = CircuitBreaker(pause=0.05)
        failing = await reasons_of(remote, 8)
        sent = remote.calls
        remote.url = address(misbehaving_port, "good") + "/infer"
        await asyncio.sleep(0.05)
        return failing, sent, await reasons_of(remote, 2)

    settings = replace(PATIENT, max_retries=0)
    (failing, sent, after), remote = with_remote(address(misbehaving_port, "500"), use, settings)
    assert failing == ["status_500"] * 5 + ["breaker_open"] * 3
    assert (sent, after) == (5, [None, None])
    assert remote.failures == {"status_500": 5, "breaker_open": 3}
    assert remote.breaker.state == "closed"


def test_a_cancelled_probe_does_not_lock_the_breaker(misbehaving_port):
    async def use(remote):
        remote.breaker = CircuitBreaker(pause=0.0)
        await reasons_of(remote, 5)
        remote.url = address(misbehaving_port, "slow") + "/infer"
        probe = asyncio.create_task(remote.ask(ROWS, COLUMNS, 3))
        await asyncio.sleep(0.02)
        probe.cancel()
        await asyncio.wait([probe])
        remote.url = address(misbehaving_port, "good") + "/infer"
        return await reason_of(remote)

    settings = replace(PATIENT, max_retries=0)
    (reason, _), remote = with_remote(address(misbehaving_port, "500"), use, settings)
    assert reason is None
    assert remote.breaker.in_flight == 0


def test_one_call_too_many_at_the_same_time_is_refused_at_once(misbehaving_port):
    async def use(remote):
        return await asyncio.gather(*(reason_of(remote) for _ in range(3)))

    settings = RemoteSettings(max_in_flight=2, connect_timeout=5.0, total_timeout=0.1)
    found, remote = with_remote(address(misbehaving_port, "slow"), use, settings)
    assert [reason for reason, _ in found] == ["timeout", "timeout", "too_many_in_flight"]
    assert found[-1][1] < 0.05
    assert remote.calls == 2


def test_a_remote_that_was_not_started_says_so():
    remote = RemoteModel(address(1, "good"), settings=SETTINGS)
    with pytest.raises(RemoteFailure, match="not_started.*`start` comes before calls"):
        asyncio.run(remote.ask(ROWS, COLUMNS, 3))


def test_an_answer_with_a_key_twice_is_none():
    output = b'{"name": "probabilities", "datatype": "FP64", "shape": [1, 2], "data": [0.5, 0.5]}'
    assert answer_of(b'{"outputs": [' + output + b"]}", 1, 2).tolist() == [[0.5, 0.5]]
    with pytest.raises(RemoteFailure, match="'data' twice"):
        answer_of(b'{"outputs": [' + output[:-1] + b', "data": [0.9, 0.1]}]}', 1, 2)


def test_two_classes_may_come_as_the_probability_of_the_second():
    said = b'{"outputs": [{"name": "p", "datatype": "FP32", "shape": [2], "data": [0.25, 1.0]}]}'
    np.testing.assert_array_equal(answer_of(said, 2, 2), [[0.75, 0.25], [0.0, 1.0]])
    with pytest.raises(RemoteFailure, match="none of its outputs"):
        answer_of(said, 2, 2, "other")
    for name in (b"[]", b"{}", b"null"):
        assert len(answer_of(said.replace(b'"p"', name), 2, 2)) == 2
        with pytest.raises(RemoteFailure, match="none of its outputs"):
            answer_of(said.replace(b'"p"', name), 2, 2, "other")


def test_rows_are_sent_as_one_tensor_or_as_one_of_each_column():
    one = json.loads(request_of(ROWS, COLUMNS, SETTINGS))["inputs"]
    assert [(tensor["name"], tensor["shape"]) for tensor in one] == [("X", [3, 2])]
    assert one[0]["data"] == [0.25, 7.0, 0.5, None, 0.75, 1e300]
    settings = RemoteSettings(input_name=None, datatype="FP32")
    each = json.loads(request_of(ROWS, COLUMNS, settings))["inputs"]
    assert [(tensor["name"], tensor["shape"], tensor["datatype"]) for tensor in each] == [
        ("share", [3, 1], "FP32"),
        ("other", [3, 1], "FP32"),
    ]
    assert each[1]["data"] == [7.0, None, 1e300]
    with pytest.raises(InvalidInputError, match="must have its 2 columns; got the shape"):
        request_of(ROWS[:, :1], COLUMNS, SETTINGS)


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "http://host/predict", "ftp://host/v2/models/m"])
def test_an_address_of_something_else_is_refused(url):
    with pytest.raises(InvalidInputError, match="must read http://HOST/v2/models/NAME; got"):
        Config(full=url)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"total_timeout": 0.0}, r"\[remote\]: total_timeout must lie in"),
        ({"max_retries": -1}, "max_retries must be at least 0; got -1"),
        ({"datatype": "INT8"}, "datatype must be one of 'FP64', 'FP32'; got 'INT8'"),
        ({"total_timeuot": 1.0}, "Did you mean 'total_timeout'"),
        ({"total_timeout": "half"}, "total_timeout must be a number; got 'half'"),
    ],
)
def test_settings_that_break_a_rule_are_refused(bad, words):
    with pytest.raises(InvalidInputError, match=words):
        Config(remote=bad)
