"""Chat completions: a router in front of real servers that speak OpenAI's protocol, asked by OpenAI's client."""

import asyncio
import copy
import csv
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import numpy as np
import orjson
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from benchmarks.ports import free_ports
from thrifty import ModelRouter, load, save
from thrifty.cli import main
from thrifty.engine.purchases import retry
from thrifty.errors import InvalidInputError
from thrifty.learners.routing import learn
from thrifty.learners.routing import quality as quality_models
from thrifty.serve.app import create_app
from thrifty.serve.config import Config
from thrifty.serve.gateway import Loaded

openai = pytest.importorskip("openai")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

PRICES = {"tiny": (1.0, 10.0), "small": (2.0, 20.0), "large": (50.0, 500.0)}  # dollars per million tokens
PROMPT, ANSWER = 12, 5  # tokens that each call uses
DEEP = b'[{"a":' + b"[" * 900 + b"]" * 900 + b"}]"
BAD_CALLS = {"deep calls": DEEP, "odd calls": b'[1, "a", null]', "no calls": b'{"a": 1}'}


@pytest.fixture(scope="module")
def router():
    """Two cheap models that are right where they agree: at any cost, a cascade with the large one is best."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quality_models, "N_TREES", 10)
        patch.setattr(learn, "N_PRICES", 10)
        rng = np.random.default_rng(0)
        right = rng.random((300, 3)) < [0.8, 0.8, 0.9]
        answers = np.where(right, "right", [["wrong", "false", "not so"]] * 300)
        texts = [f"question {number} {'abcdefgh'[number % 8]}" for number in range(300)]
        cost = np.array([0.00006, 0.00012, 0.003]) * rng.uniform(0.9, 1.1, (300, 3))
        return ModelRouter(PRICES).fit(texts, right.astype(float), cost, answers)


class Stub:
    """A server of one model; ``mode`` says how it behaves, ``answer`` what it says."""

    def __init__(self, answer):
        self.answer, self.mode, self.calls, self.tokens = answer, "good", [], [0, 0]
        self.gate = threading.Event()
        self.app = Starlette(routes=[Route("/v1/chat/completions", self.complete, methods=["POST"])])

    async def complete(self, request):
        body = orjson.loads(await request.body())
        self.calls.append(body | {"key": request.headers.get("authorization")})
        if self.mode.startswith("429"):
            after = self.mode.partition(" after ")[2] or "1"
            return JSONResponse({"error": {"message": "slow down"}}, 429, {"Retry-After": after})
        if self.mode == "slow":
            await asyncio.sleep(0.5)
        if self.mode == "nonsense":
            return Response(b"<html>sorry</html>", media_type="text/html")
        if self.mode in ("500", "400"):
            return JSONResponse({"error": {"message": "sorry"}}, int(self.mode))
        usage = {"prompt_tokens": PROMPT, "completion_tokens": ANSWER, "total_tokens": PROMPT + ANSWER}
        if body.get("stream"):
            return StreamingResponse(self.events(usage), media_type="text/event-stream")
        self.bill()
        if self.mode == "hangs":
            await asyncio.to_thread(self.gate.wait, 20)
        message = {"role": "assistant", "content": "" if self.mode == "empty" else self.answer}
        if self.mode in BAD_CALLS:
            message["tool_calls"] = "CALLS"
        if self.mode == "huge usage":
            usage["completion_tokens"] = 2**62
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        content = orjson.dumps({"id": "x", "choices": [choice], "usage": usage})
        return Response(content.replace(b'"CALLS"', BAD_CALLS.get(self.mode, b"")))

    def bill(self):
        self.tokens[0] += PROMPT
        self.tokens[1] += ANSWER

    async def events(self, usage):
        def event(choices, **more):
            return b"data: " + orjson.dumps({"id": "x", "choices": choices, **more}) + b"\n\n"

        if self.mode == "long line":
            yield event([{"index": 0, "delta": {"content": "x" * 2**20}, "finish_reason": "stop"}])
        while self.mode == "comments":
            yield b": keep-alive\n\n"
            await asyncio.sleep(0.02)
        if self.mode == "early usage":
            yield event([], usage=usage | {"completion_tokens": 0})
        for number, letter in enumerate("" if self.mode == "empty" else self.answer):
            if number == 2 and self.mode in ("cut", "early usage"):
                raise ConnectionError("the model was killed")
            while number == 2 and self.mode in ("drips", "hangs"):
                if self.mode == "drips":
                    yield event([{"index": 0, "delta": {"content": "."}, "finish_reason": None}])
                await asyncio.sleep(0.02)
            if number == 1 and self.mode == "held":
                await asyncio.to_thread(self.gate.wait, 20)
            yield event([{"index": 0, "delta": {"content": letter}, "finish_reason": None}])
        self.bill()
        yield event([{"index": 0, "delta": {}, "finish_reason": "stop"}])
        huge = {"completion_tokens": 2**62} if self.mode == "huge usage" else {}
        yield event([], usage=usage | huge)
        yield b"data: [DONE]\n\n"


class Server(uvicorn.Server):
    """Ends when it should: uvicorn looks ten times a second."""

    async def main_loop(self):
        while not await self.on_tick(0):
            await asyncio.sleep(0.01)


@contextmanager
def serving(app, port=0):
    """Serve an application in a thread; yields its port."""
    listening = socket.create_server(("127.0.0.1", port))
    # Inherited by connections: asyncio sets it where a socket names its protocol, and responses come in two parts.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server = Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])))
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.005)
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def servers():
    """Three models, and their ports."""
    stubs = {name: Stub("right") for name in PRICES}
    with ExitStack() as stack:
        yield stubs, {name: stack.enter_context(serving(stub.app)) for name, stub in stubs.items()}


@pytest.fixture
def models(servers):
    """The three models as good as new."""
    for stub in servers[0].values():
        stub.answer, stub.mode, stub.calls, stub.tokens = "right", "good", [], [0, 0]
        stub.gate.clear()
    return servers[0]


@pytest.fixture
def gateway(servers, router):
    """``with gateway(chat={...}) as client:`` OpenAI's client of a gateway."""

    @contextmanager
    def opened(at=None, tables=(), load=None, **settings):
        urls = {
            name: {"url": f"http://127.0.0.1:{port}/v1", "timeout": 1.0} for name, port in servers[1].items()
        }
        for name, table in dict(tables).items():
            urls[name] |= table
        settings = {**settings, "models": urls}
        how = {} if load is None else {"load": load}
        app = create_app(router if at is None else router.at(budget=at), Config(**settings), **how)
        with serving(app) as port:
            client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="key", max_retries=0)
            client.gateway = app.state.gateway
            with client:
                yield client

    return opened


def ask(client, text="question 7 b", model="thrifty", raw=False, **how):
    messages = text if isinstance(text, list) else [{"role": "user", "content": text}]
    create = client.chat.completions.with_raw_response if raw else client.chat.completions
    return create.create(model=model, messages=messages, **how)


def price(*names):
    return sum(PRICES[name][0] * PROMPT + PRICES[name][1] * ANSWER for name in names) / 1e6


def asked(models):
    return [name for name, stub in models.items() if stub.calls]


# -- answers ---------------------------------------------------------------------------------------


def test_two_models_that_agree_answer_and_headers_have_the_bill(gateway, models):
    with gateway() as client:
        found = ask(client, raw=True)
        answer, headers = found.parse(), found.headers
        assert asked(models) == ["tiny", "small"]
        assert answer.choices[0].message.content == "right"
        assert answer.usage.total_tokens == 2 * (PROMPT + ANSWER)
        assert headers["x-thrifty-models"].split(",") == [
            *dict.fromkeys(headers["x-thrifty-models"].split(","))
        ]
        assert set(headers["x-thrifty-models"].split(",")) == {"tiny", "small"}
        assert answer.model == headers["x-thrifty-model"] in ("tiny", "small")
        assert float(headers["x-thrifty-cost"]) == pytest.approx(price("tiny", "small"))
        assert float(headers["x-thrifty-saved"]) == pytest.approx(0.003 - price("tiny", "small"), rel=0.2)
        assert float(headers["x-thrifty-propensity"]) == 1.0
        assert answer.id == headers["x-request-id"] == answer._request_id
        assert [one.id for one in client.models.list()] == ["thrifty"]


def test_where_they_differ_the_third_one_is_asked_and_a_budget_changes_the_policy(gateway, models):
    models["small"].answer = "false"
    with gateway() as client:
        found = ask(client)
        assert (found.model, asked(models)) == ("large", ["tiny", "small", "large"])
        models["large"].calls.clear()
        assert ask(client, model="thrifty:budget=0.00007").model == "tiny"
        assert not models["large"].calls
        with pytest.raises(openai.BadRequestError, match="budget must be at least"):
            ask(client, model="thrifty:budget=0.000001")


def test_answers_are_compared_as_the_pattern_parses_them(gateway, models):
    models["tiny"].answer, models["small"].answer = "I think: A", "Surely the answer is A"
    with gateway() as client:
        ask(client)
        assert asked(models) == ["tiny", "small", "large"]
    models["large"].calls.clear()
    with gateway(chat={"answer_pattern": r"\b([A-D])$"}) as client:
        assert ask(client).choices[0].message.content.endswith("A")
        assert not models["large"].calls


def test_an_answer_that_will_be_taken_streams_as_it_comes_and_another_one_in_the_end(gateway, models):
    models["tiny"].mode = "held"
    with gateway(at=0.00007) as client:
        parts, text = ask(client, stream=True, stream_options={"include_usage": True}), ""
        for part in parts:
            text += part.choices[0].delta.content or "" if part.choices else ""
            if text == "r":
                assert models["tiny"].tokens == [0, 0]  # the rest has not come yet
                models["tiny"].gate.set()
            last = part
        assert (text, last.usage.total_tokens) == ("right", PROMPT + ANSWER)
        assert client.gateway.ledger.today == pytest.approx(price("tiny"))
    models["tiny"].mode = "good"
    with gateway() as client:
        parts = list(ask(client, stream=True))
        assert "".join(part.choices[0].delta.content or "" for part in parts) == "right"
        assert parts[-1].choices[0].finish_reason == "stop"
        assert parts[-1].thrifty["cost"] == pytest.approx(price("tiny", "small"))


def test_a_conversation_stays_with_the_model_that_answered_it_first(gateway, models):
    with gateway() as client:
        models["small"].answer = "false"
        first = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "question 3 c"}]
        found = ask(client, first)
        assert found.model == "large"
        more = [
            *first,
            {"role": "assistant", "content": found.choices[0].message.content},
            {"role": "user", "content": "and question 4 d?"},
        ]
        for stub in models.values():
            stub.calls.clear()
        assert ask(client, more).model == "large"
        assert asked(models) == ["large"]
        models["large"].mode = "500"
        assert ask(client, more).model in ("tiny", "small")
        models["large"].mode = "good"
        assert ask(client, more).model in ("tiny", "small")  # from now on


# -- failures --------------------------------------------------------------------------------------


FAULTS = [
    "500",
    "429",
    "429 after \u00c2\u00b2",
    "nonsense",
    "empty",
    "slow",
    "400",
    *BAD_CALLS,
    "long line",
    "comments",
]


@pytest.mark.parametrize("mode", FAULTS)
@pytest.mark.parametrize("stream", [False, True])
def test_a_model_that_fails_costs_quality_and_no_request(gateway, models, mode, stream):
    models["tiny"].mode = mode
    if (mode in BAD_CALLS and stream) or (mode in ("long line", "comments") and not stream):
        return  # answers of the other kind cannot fail so
    tables = {"tiny": {"timeout": 0.1}} if mode in ("slow", "comments") else {}
    with gateway(at=0.00007, tables=tables) as client:  # tiny alone
        for _ in range(3):
            found = ask(client, stream=stream)
            text = (
                "".join(part.choices[0].delta.content or "" for part in found)
                if stream
                else found.choices[0].message.content
            )
            assert text == "right"
        assert models["small"].calls
        if mode == "429":  # left alone for the second that it asked for
            assert len(models["tiny"].calls) == 1
        if mode == "429" and not stream:
            time.sleep(1.05)
            models["tiny"].mode = "good"
            assert ask(client).model == "tiny"


def test_a_model_that_breaks_off_in_mid_stream_is_followed_by_another_one(gateway, models):
    models["tiny"].mode = "cut"
    with gateway(at=0.00007) as client:
        parts = list(ask(client, stream=True))
        assert "".join(part.choices[0].delta.content or "" for part in parts) == "ri\n\nright"
        assert parts[-1].thrifty["models"] == ["tiny", "small"]
        # What the first one may have billed counts.
        assert parts[-1].thrifty["cost"] > 2 * price("small")


def test_a_model_that_is_killed_and_revived_loses_no_request(gateway, models, servers):
    stub = Stub("right")
    with ThreadPoolExecutor(8) as pool:
        with serving(stub.app) as port:
            table = {"tiny": {"url": f"http://127.0.0.1:{port}/v1"}}
            opened = gateway(at=0.00007, tables=table)
            client = opened.__enter__()
            assert {one.model for one in pool.map(lambda _: ask(client), range(20))} == {"tiny"}
        assert {one.model for one in pool.map(lambda _: ask(client), range(40))} == {"small"}
        with serving(stub.app, port):
            time.sleep(1.05)  # the breaker lets a call through after a second
            found = [one.model for one in pool.map(lambda _: ask(client), range(40))]
            assert set(found[-10:]) == {"tiny"}
        opened.__exit__(None, None, None)


def test_a_storm_of_429_at_all_models_loses_no_request(gateway, models):
    for stub in models.values():
        stub.mode = "429"
    with gateway(at=0.00007) as client, ThreadPoolExecutor(16) as pool:
        waiting = [pool.submit(ask, client) for _ in range(30)]
        time.sleep(0.5)
        assert not any(one.done() for one in waiting)
        assert sum(len(stub.calls) for stub in models.values()) <= 60  # paused, not stormed
        for stub in models.values():
            stub.mode = "good"
        assert {one.result().choices[0].message.content for one in waiting} == {"right"}
    with gateway(at=0.00007, chat={"deadline": 0.2}) as client:
        for stub in models.values():
            stub.mode = "500"
        with pytest.raises(
            openai.InternalServerError, match=r"no model answers: .*large \(status_500\)"
        ) as error:
            ask(client)
        assert error.value.response.headers["retry-after"] == "1"


def test_a_model_that_hangs_or_drips_in_mid_stream_is_followed_by_another_one(gateway, models):
    for mode in ("hangs", "drips"):
        models["tiny"].mode = mode
        table = {"timeout": 0.2, "stream_timeout": 0.6}
        with gateway(at=0.00007, tables={"tiny": table}) as client:
            began, parts = time.monotonic(), list(ask(client, stream=True))
            text = "".join(part.choices[0].delta.content or "" for part in parts)
            assert text.startswith("ri")
            assert text.endswith("\n\nright")
            assert parts[-1].thrifty["model"] == "small"
            assert time.monotonic() - began < 3.0


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_before_the_first_part_frees_its_place(gateway, models, stream):
    models["tiny"].mode = "hangs" if not stream else "comments"
    body = {"model": "thrifty", "stream": stream, "messages": [{"role": "user", "content": "x"}]}
    content = orjson.dumps(body)
    tables = {"tiny": {"timeout": 20.0}}
    with gateway(at=0.00007, tables=tables, max_in_flight=3) as client:
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n\r\n" % len(content)
        address = ("127.0.0.1", client.base_url.port)
        sockets = [socket.create_connection(address) for _ in range(3)]
        for one in sockets:
            one.sendall(head + content)
        room, calls = client.gateway.room, models["tiny"].calls
        waits_for(lambda: len(calls) == 3 and room.n_taken == 3)
        for one in sockets:
            one.close()
        waits_for(lambda: room.n_taken == 0)
        model = client.gateway.model.models["tiny"]
        assert (model.breaker.in_flight, model.breaker.state) == (0, "closed")
        assert client.gateway.ledger.today == pytest.approx(3 * price_at_most("tiny", body))
        models["tiny"].gate.set()
        models["tiny"].mode = "good"
        assert ask(client).model == "tiny"


def waits_for(condition, seconds=3.0):
    """Fail unless a condition holds soon."""
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.01)


def price_at_most(name, body, max_tokens=1024):
    n_bytes = len(orjson.dumps({"messages": body["messages"]}))
    return (PRICES[name][0] * (n_bytes + 64) + PRICES[name][1] * max_tokens) / 1e6


def test_streamed_requests_with_chunked_bodies_take_places_too(gateway, models):
    models["tiny"].mode = "held"
    body = orjson.dumps({"model": "thrifty", "stream": True, "messages": [{"role": "user", "content": "x"}]})
    with gateway(at=0.00007, tables={"tiny": {"timeout": 20.0}}, max_in_flight=4) as client:
        url, headers = client.base_url.join("chat/completions"), {"content-type": "application/json"}

        def post(_):
            return client._client.post(url, content=iter([body[:20], body[20:]]), headers=headers).status_code

        with ThreadPoolExecutor(30) as pool:
            waiting = [pool.submit(post, number) for number in range(30)]
            waits_for(lambda: sum(one.done() for one in waiting) == 26, 10.0)
            assert len(models["tiny"].calls) == 4
            models["tiny"].gate.set()
        assert sorted(one.result() for one in waiting) == [200] * 4 + [503] * 26


def test_servers_that_are_all_dead_are_reported_within_the_timeout_of_a_call(gateway, models):
    dead = {
        name: {"url": f"http://127.0.0.1:{port}/v1"} for name, port in zip(PRICES, free_ports(3), strict=True)
    }
    with gateway(
        at=0.00007, tables=dead
    ) as client:  # a call may take half a second, and the deadline is a minute
        began = time.monotonic()
        with pytest.raises(openai.InternalServerError, match=r"no model answers: .*large \(connect\)"):
            ask(client)
        assert time.monotonic() - began < 1.0


def test_a_pause_that_a_model_asks_for_is_bounded_and_ends_with_a_reload(
    gateway, models, router, monkeypatch
):
    models["tiny"].mode = "429 after " + "9" * 400
    with gateway(at=0.00007, load=lambda: Loaded(router.at(budget=0.00007), "2")) as client:
        assert ask(client).model == "small"
        models["tiny"].mode = "good"
        assert ask(client).model == "small"
        assert asyncio.run(client.gateway.reload()) == "2"
        assert ask(client).model == "tiny"
        monkeypatch.setattr(retry, "MAX_RETRY_AFTER", 0.1)
        models["tiny"].mode = "429 after 1000"
        assert ask(client).model == "small"
        models["tiny"].mode = "good"
        time.sleep(0.11)
        assert ask(client).model == "tiny"


def test_other_requests_are_answered_while_a_long_message_is_read(gateway, models, monkeypatch):
    reading, gate, start = threading.Event(), threading.Event(), ModelRouter.start

    def slow_start(router, text):
        if len(text) > 500_000:
            reading.set()
            assert gate.wait(10)
        return start(router, text[:1000])

    monkeypatch.setattr(ModelRouter, "start", slow_start)
    with gateway(at=0.00007) as client, ThreadPoolExecutor(1) as pool:
        long = pool.submit(ask, client, "word " * 180_000)
        assert reading.wait(10)
        health = client._client.get(client.base_url.join("/v2/health/live"), timeout=5.0)
        gate.set()
        assert health.status_code == 200
        assert long.result().model == "tiny"


# -- ceilings --------------------------------------------------------------------------------------


def billed(models):
    return sum(
        (PRICES[name][0] * stub.tokens[0] + PRICES[name][1] * stub.tokens[1]) / 1e6
        for name, stub in models.items()
    )


def test_no_request_costs_more_than_its_ceiling_fallbacks_included(gateway, models):
    models["small"].answer = "false"
    with gateway(chat={"max_cost": 0.004, "max_tokens": 5}) as client:
        assert ask(client).model != "large"  # 5 of its tokens and the prompt may cost more
        assert not models["large"].calls
        assert models["tiny"].calls[0]["max_tokens"] == 5
        n_asked = len(models["tiny"].calls)
        assert "".join(part.choices[0].delta.content or "" for part in ask(client, stream=True))
        assert not models["large"].calls  # nor in a stream
        del models["tiny"].calls[n_asked:]
        with pytest.raises(openai.BadRequestError, match="max_cost leaves"):
            ask(client, max_tokens=1000)
        assert len(models["tiny"].calls) == 1


def test_the_ceiling_of_a_day_holds_with_streams_under_way_and_over_restarts(gateway, models, tmp_path):
    ceiling = 0.0011
    chat = {
        "max_cost_per_day": ceiling,
        "max_tokens": ANSWER,
        "ledger": str(tmp_path / "ledger"),
        "deadline": 5.0,
    }
    models["tiny"].mode = "held"
    patient = {"tiny": {"timeout": 20.0}}
    with gateway(at=0.00007, tables=patient, chat=chat) as client, ThreadPoolExecutor(20) as pool:
        streams = [ask(client, stream=True) for _ in range(3)]

        def one(_):
            try:
                return ask(client, raw=True)
            except openai.RateLimitError as error:
                return error

        threading.Timer(0.3, models["tiny"].gate.set).start()
        answers = list(pool.map(one, range(30)))
        texts = ["".join(part.choices[0].delta.content or "" for part in stream) for stream in streams]
        assert texts == ["right"] * 3  # what was begun is finished
        refusals = [one for one in answers if isinstance(one, openai.RateLimitError)]
        assert 0 < len(refusals) < 30
        assert {one.code for one in refusals} == {"insufficient_quota"}
        assert int(refusals[0].response.headers["retry-after"]) > 0
        assert billed(models) <= ceiling
        spent = client.gateway.ledger.today
        assert spent == pytest.approx(billed(models))
        with pytest.raises(InvalidInputError, match="must belong to one gateway"), gateway(chat=chat):
            pass
    with gateway(at=0.00007, chat=chat) as client:
        assert client.gateway.ledger.today == spent
        results = [one(None) for _ in range(10)]
        assert any(isinstance(one, openai.RateLimitError) for one in results)
        assert billed(models) <= ceiling
    assert ceiling - billed(models) < 0.0002  # it is used up


def test_calls_of_a_model_beyond_its_capacity_of_a_day_go_to_others_and_the_response_says_so(
    gateway, models, tmp_path
):
    chat = {"ledger": str(tmp_path / "ledger")}
    tables = {"tiny": {"capacity": 2}}
    with gateway(tables=tables, chat=chat) as client:
        for _ in range(2):
            assert "x-thrifty-at-capacity" not in ask(client, raw=True).headers
    with gateway(tables=tables, chat=chat) as client:  # the count outlives a restart
        found = ask(client, raw=True)
        assert found.headers["x-thrifty-at-capacity"] == "tiny"
        assert found.parse().choices[0].message.content == "right"
        assert client.gateway.refresh()["today"] > 0.0
    assert len(models["tiny"].calls) == 2
    for stub in models.values():
        stub.calls.clear()
    with (
        gateway(tables={name: {"capacity": 0} for name in models}) as client,
        pytest.raises(openai.RateLimitError, match=r"tiny \(capacity\)"),
    ):
        ask(client)
    assert asked(models) == []


@pytest.mark.parametrize("stream", [False, True])
def test_a_report_of_usage_counts_up_to_what_was_sent_and_received(gateway, models, stream):
    models["tiny"].mode = "huge usage"
    body = {"messages": [{"role": "user", "content": "question 7 b"}]}
    with gateway(at=0.00007, chat={"max_cost_per_day": 1.0}) as client:
        for _ in range(3):
            found = ask(client, stream=stream)
            assert (list(found)[-1].thrifty["model"] if stream else found.model) == "tiny"
        most = price_at_most("tiny", body)
        assert most - 0.0002 < client.gateway.ledger.today / 3 <= most


def test_usage_that_is_reported_before_an_answer_breaks_off_does_not_count(gateway, models):
    models["tiny"].mode = "early usage"
    with gateway(at=0.00007) as client:
        last = list(ask(client, stream=True))[-1]
        most = price_at_most("tiny", {"messages": [{"role": "user", "content": "question 7 b"}]})
        assert last.thrifty["cost"] == pytest.approx(most + price("small"))


def test_a_reload_takes_the_prices_of_the_new_router(gateway, models, router):
    dearer = copy.copy(router.at(budget=0.00007))
    dearer.models = {name: (2 * into, 2 * out) for name, (into, out) in PRICES.items()}
    with gateway(at=0.00007, load=lambda: Loaded(dearer, "2")) as client:
        ask(client)
        breaker = client.gateway.model.models["tiny"].breaker
        asyncio.run(client.gateway.reload())
        found = ask(client, raw=True)
        assert float(found.headers["x-thrifty-cost"]) == pytest.approx(2 * price("tiny"))
        assert client.gateway.model.models["tiny"].breaker is breaker


def test_the_status_page_compares_with_the_best_single_model(gateway, models, router):
    text = "question 7 b"
    with gateway(at=0.00007, explore=0.0) as client:
        for _ in range(4):
            ask(client, text)
        status = asyncio.run(client.gateway.status())
        alone = router.start(text).expected_cost("large")
        assert status["saved_share"] == pytest.approx(1.0 - price("tiny") / alone)
        assert status["rival"] == "large"
        models["tiny"].mode = models["small"].mode = models["large"].mode = "nonsense"
        with pytest.raises(openai.InternalServerError):
            ask(client, text)  # what is paid for nothing is not saved
        status = asyncio.run(client.gateway.status())
        assert status["saved"] == pytest.approx(4 * alone - status["spend"])


# -- requests --------------------------------------------------------------------------------------


def nested(depth):
    """JSON of lists in lists."""
    return orjson.Fragment(b"[" * depth + b"]" * depth)


MALFORMED = [
    (b"{", 400, "JSON"),
    (b"[]", 400, "JSON object"),
    ({"model": "gpt-7"}, 404, "model must be 'thrifty'"),
    ({"model": "thrifty:budget=x"}, 404, "budget=NUMBER"),
    ({"model": "thrifty:budget=-1"}, 404, "budget=NUMBER"),
    ({"messages": []}, 400, "at least one object"),
    ({"messages": ["hi"]}, 400, "at least one object"),
    ({"messages": [{"role": "user"}]}, 400, "must be text"),
    ({"messages": [{"role": "king", "content": "x"}]}, 400, "role must be one of"),
    ({"messages": [{"role": "system", "content": "x"}]}, 400, 'of the role "user"'),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "must be text"),
    ({"max_tokens": 0}, 400, "max_tokens must be a whole number"),
    ({"max_tokens": True}, 400, "max_tokens must be a whole number"),
    ({"n": 2}, 400, "n must be 1"),
    ({"stream": "yes"}, 400, "stream must be true or false"),
    ({"best_of": 4}, 400, "'best_of' is not supported"),
    ({"temperature": "hot"}, 400, "temperature must be a number"),
    ({"tools": "all"}, 400, "tools must be a list"),
    ({"tools": [{"type": "web_search"}]}, 400, "tools must be functions"),
    ({"tools": [{"type": "function", "function": {}, "web_search": {"a": 1}}]}, 400, "'web_search' is not"),
    ({"messages": [{"role": "user", "content": "x", "audio": {"id": "a"}}]}, 400, "'audio' is not supported"),
    (
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "x", "image_url": {"url": "u"}}]}
            ]
        },
        400,
        "'image_url' is not supported",
    ),
    ({"tools": [{"type": "function", "function": {"a": nested(260)}}]}, 400, "deeply"),
    ({"temperature": nested(950)}, 400, "deeply"),
    ({"temperature": nested(240)}, 400, "temperature must be a number; got '[["),
]


def test_a_malformed_request_is_refused_in_the_words_of_the_protocol(gateway, models):
    with gateway() as client:
        for body, status, words in MALFORMED:
            if isinstance(body, dict):
                body = {"model": "thrifty", "messages": [{"role": "user", "content": "x"}], **body}
            content = body if isinstance(body, bytes) else orjson.dumps(body)
            url, headers = client.base_url.join("chat/completions"), {"content-type": "application/json"}
            found = client._client.post(url, content=content, headers=headers)
            assert (found.status_code, words in found.json()["error"]["message"]) == (status, True), body
        assert not asked(models)


def test_keys_are_needed_and_sent_on_and_fields_are_handed_on(gateway, models, monkeypatch):
    monkeypatch.setenv("TINY_KEY", "secret")
    tables = {"tiny": {"key_env": "TINY_KEY", "model": "tiny-2", "max_tokens_name": "max_completion_tokens"}}
    with gateway(at=0.00007, tables=tables, api_key="key") as client:
        ask(client, temperature=0.5, max_tokens=9, tools=[{"type": "function", "function": {"name": "f"}}])
        call = models["tiny"].calls[0]
        assert call["key"] == "Bearer secret"
        assert (call["model"], call["max_completion_tokens"], call["temperature"]) == ("tiny-2", 9, 0.5)
        with pytest.raises(openai.AuthenticationError, match="a key is needed"):
            ask(client.with_options(api_key="other"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"workers": 2}, "served by one process"),
        ({"models": {}}, r"\[models.tiny\] must say where"),
        ({"models": {"huge": {"url": "http://h/v1"}}}, r"\[models.huge\] is no model"),
        ({"models": {"tiny": {"url": "ftp://h"}}}, "url must read"),
        ({"chat": {"answer_pattern": "("}}, "must be a regular expression"),
        ({"chat": {"max_cots": 1.0}}, "Did you mean 'max_cost'"),
    ],
)
def test_settings_that_break_a_rule_are_refused_before_the_start(router, settings, words):
    tables = {name: {"url": "http://127.0.0.1:9/v1"} for name in PRICES}
    with pytest.raises(InvalidInputError, match=words):
        create_app(router, Config(**{"models": tables, **settings}))


def test_a_router_of_tables_speaks_no_chat(monkeypatch):
    monkeypatch.setattr(quality_models, "N_TREES", 2)
    X, quality = np.random.default_rng(0).random((60, 2)), np.tile([0.0, 1.0], (60, 1))
    quality[:5] = 1.0
    with pytest.raises(InvalidInputError, match="fitted on texts"):
        create_app(ModelRouter({"a": 1.0, "b": 2.0}).fit(X, quality), Config())


# -- the log ---------------------------------------------------------------------------------------


def test_the_log_is_one_that_a_router_learns_from(gateway, models, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(quality_models, "N_TREES", 2)
    monkeypatch.setattr(learn, "N_PRICES", 10)
    path = tmp_path / "usage.csv"
    models["small"].answer = 'a "quoted", long\nanswer'
    with gateway(at=0.00007, chat={"log": str(path)}, explore=0.5) as client:  # mostly tiny alone
        for number in range(40):
            ask(client, f'question {number}, "quoted"\nin two lines')
        models["tiny"].mode = "500"
        ask(client, "question 61")
        while client.gateway._tasks:
            time.sleep(0.01)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[-1]["text"] == "question 61"
    failed = [row for row in rows if row["outcome"] == "status_500"]
    assert all((row["model"], row["quality"], float(row["cost"])) == ("tiny", "0", 0.0) for row in failed)
    # Of the conversations that tiny answers, a share goes on to one of the two models that were not asked.
    stopped = {row["id"] for row in rows[:-2] if (row["model"], row["taken"]) == ("tiny", "1")}
    explored = [row for row in rows[:-2] if row["id"] in stopped and row["taken"] == "0"]
    assert 0.25 * len(stopped) < len(explored) < 0.75 * len(stopped)
    assert {row["model"] for row in explored} == {"small", "large"}
    assert all(0.25 <= float(row["propensity"]) < 0.6 for row in explored)
    rng = np.random.default_rng(0)
    for row in rows:
        row["quality"] = row["quality"] or rng.integers(0, 2)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows([*rows, {"id": "last", "text": "not judged", "model": "large", "cost": 0.1}])
    assert main(["route", str(path), "-o", str(tmp_path / "next.thrifty")]) == 0
    assert "41 rows, 3 models" in capsys.readouterr().out
    refitted, dearest = load(tmp_path / "next.thrifty"), max(float(row["cost"]) for row in rows)
    assert refitted.predict(["question 3"])[0] in PRICES
    for text in ("question 3", "question 61", "x", "word " * 1000):
        session = refitted.start(text)
        assert all(session.expected_cost(name) <= 1.01 * dearest for name in PRICES)


@pytest.mark.parametrize("max_log_bytes", [2**20, 250])  # the latter: another file must be begun meanwhile
def test_a_log_that_cannot_be_written_costs_no_answer(gateway, models, tmp_path, monkeypatch, max_log_bytes):
    path, write, room = tmp_path / "usage.csv", os.write, [2]

    def write_some(file, content):
        if not (b"question" in content or content.startswith(b"id,time")):
            return write(file, content)
        room[0] -= 1
        if room[0] < -1:
            raise OSError("no space left on device")
        return write(file, content[:20] if room[0] == -1 else content)

    monkeypatch.setattr(os, "write", write_some)
    with gateway(at=0.00007, chat={"log": str(path), "max_log_bytes": max_log_bytes}) as client:
        for number in range(14):
            assert ask(client, f"question {number}").model == "tiny"
        metrics = asyncio.run(client.gateway.prometheus()).decode()
        assert "thrifty_unlogged_calls_total 13.0" in metrics
        room[0] = 10
        ask(client, "question 20")
        ask(client, "question 21")
    texts = []
    for one in sorted(tmp_path.glob("usage.csv*"), reverse=True):
        with one.open(newline="") as file:
            texts += [row["text"] for row in csv.DictReader(file)]
    assert texts == ["question 0", "question 20", "question 21"]


def test_a_full_log_makes_room_for_another_one(gateway, models, tmp_path):
    path = tmp_path / "usage.csv"
    with gateway(at=0.00007, chat={"log": str(path), "max_log_bytes": 700}) as client:
        for number in range(60):
            ask(client, f"question {number}")
    paths = [path, *(tmp_path / f"usage.csv.{number}" for number in range(1, 10))]
    assert sorted(tmp_path.iterdir()) == sorted(paths)
    texts = []
    for one in reversed(paths):
        assert one.stat().st_size <= 700
        assert one.stat().st_mode & 0o777 == 0o600
        with one.open(newline="") as file:
            texts += [row["text"] for row in csv.DictReader(file)]
    texts = list(dict.fromkeys(texts))
    assert texts == [f"question {number}" for number in range(60 - len(texts), 60)]


def test_a_file_that_is_no_log_is_refused_and_stays_as_it_is(gateway, router, tmp_path):
    path = tmp_path / "usage.csv"
    path.write_text("id,text\n1,hello\n")
    with (
        pytest.raises(InvalidInputError, match="must be empty, or begin with id,time,text"),
        gateway(chat={"log": str(path)}),
    ):
        pass
    assert path.read_text() == "id,text\n1,hello\n"


def is_open(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_the_command_serves_a_router(router, servers, models, tmp_path):
    save(router.at(budget=0.00007), tmp_path / "router.thrifty")
    port, admin = free_ports(2)
    tables = "".join(
        f'[models.{name}]\nurl = "http://127.0.0.1:{own}/v1"\n' for name, own in servers[1].items()
    )
    (tmp_path / "serve.toml").write_text(f"port = {port}\nadmin_port = {admin}\n{tables}")
    code = "import sys; from thrifty.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "serve", "router.thrifty", "--config", "serve.toml"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        while not is_open(port):
            assert process.poll() is None
            time.sleep(0.02)
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=2)
        assert ask(client).model == "tiny"
        assert "".join(part.choices[0].delta.content or "" for part in ask(client, stream=True)) == "right"
        web = client._client
        assert "thrifty_spend_total" in web.get(f"http://127.0.0.1:{admin}/metrics").text
        status = web.get(f"http://127.0.0.1:{admin}/status.json").json()
        assert status["today"] == pytest.approx(2 * price("tiny"))
        budget = web.post(f"http://127.0.0.1:{admin}/budget", json={"budget": 0.01})
        assert budget.status_code == 200
        assert web.post(f"http://127.0.0.1:{admin}/reload", json={}).status_code == 200
        ask(client)
        assert asked(models) == ["tiny", "small"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) in (0, -signal.SIGTERM)
    finally:
        process.kill()
        process.communicate()


def test_tenants_keep_their_own_budgets_within_the_ceiling_of_all_and_over_restarts(
    gateway, models, tmp_path, monkeypatch
):
    budgets = {"small": 0.0003, "large": 0.0009}
    for name in budgets:
        monkeypatch.setenv(f"{name.upper()}_KEY", f"key of {name}")
    tenants = {name: {"budget": most, "key_env": f"{name.upper()}_KEY"} for name, most in budgets.items()}
    chat = {"max_cost_per_day": 0.001, "max_tokens": ANSWER, "ledger": str(tmp_path / "ledger")}
    opened = {"at": 0.00007, "chat": chat, "tenants": tenants, "api_key": "key"}

    def spend(client, name):
        other = client.with_options(api_key=f"key of {name}")

        def one(_):
            try:
                return ask(other, raw=True)
            except openai.RateLimitError as error:
                return str(error)

        with ThreadPoolExecutor(20) as pool:
            return [answer for answer in pool.map(one, range(25)) if isinstance(answer, str)]

    with gateway(**opened) as client:
        refused = spend(client, "small")
        assert refused
        assert all("the budget of 'small' for this day" in words for words in refused)
        spent = client.gateway.tenants["small"].today
        assert 0 < spent <= budgets["small"]
        assert client.gateway.ledger.today == pytest.approx(spent) == pytest.approx(billed(models))
        refused = spend(client, "large")  # the pool is nearly used up
        assert all("max_cost_per_day" in words for words in refused)
        assert billed(models) <= 0.001
        ask_of_all = client.gateway.ledger.today
    with gateway(**opened) as client:
        assert client.gateway.tenants["small"].today == spent
        assert client.gateway.ledger.today == ask_of_all
        assert len(spend(client, "small")) == 25
        with pytest.raises(openai.AuthenticationError):
            ask(client.with_options(api_key="key of nobody"))


@pytest.mark.parametrize(
    ("tenant", "words"),
    [
        ({"key_env": "A_KEY"}, "budget above 0"),
        ({"budget": 1.0}, "key_env"),
        ({"budget": 1.0, "key_env": "NONE"}, "not set"),
    ],
)
def test_a_tenant_without_budget_or_key_is_refused(router, tenant, words):
    with pytest.raises(InvalidInputError, match=words):
        create_app(
            router,
            Config(tenants={"one": tenant}, models={n: {"url": "http://127.0.0.1:9/v1"} for n in PRICES}),
        )
