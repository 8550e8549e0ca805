"""Attacks by what a gateway asks and by what it is asked for: a remote full model, providers of columns, budgets.

Gateways are applications in this process, called as a server would call them; services are sockets on the loopback that
fail in every way there is. The gateway answers every request in time, and marks answers as degraded.
"""

import asyncio
import contextlib
import json
import os
import sqlite3
import threading
import time
from urllib.parse import unquote

import numpy as np
import pandas as pd

from ports import free_ports

HOST, DEADLINE, SLACK = "127.0.0.1", 0.3, 0.25

# -- a gateway in this process -----------------------------------------------------------------------


@contextlib.contextmanager
def gateway(system, sources=None, load=None, **settings):
    """``ask(path, body)`` and ``ask(path, body, admin=True)`` of a gateway: status and what was said."""
    from thrifty.serve.app import create_admin, create_app
    from thrifty.serve.config import Config

    how = {"sources": sources, "load": load}
    how = {name: value for name, value in how.items() if value is not None}
    app = create_app(system, Config(**{"max_delay": 60.0, **settings}), **how)
    administration = create_admin(app.state.gateway)
    with asyncio.Runner() as runner:
        life = app.router.lifespan_context(app)
        runner.run(life.__aenter__())

        def ask(path, body, *, admin=False):
            return runner.run(_call(administration if admin else app, path, body))

        def ask_together(path, bodies, **how):
            async def all_of_them():
                return await asyncio.gather(*(_call(app, path, body, **how) for body in bodies))

            return runner.run(all_of_them())

        ask.together, ask.gateway = ask_together, app.state.gateway
        try:
            yield ask
        finally:
            runner.run(life.__aexit__(None, None, None))


async def _call(app, path, body, leaves_after=3600.0):
    raw, sent = body if isinstance(body, bytes) else json.dumps(body).encode(), []
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(raw)).encode()),
            (b"host", b"127.0.0.1"),
        ],
        "http_version": "1.1",
        "scheme": "http",
        "server": (HOST, 80),
        "client": (HOST, 1),
    }

    parts = iter([{"type": "http.request", "body": raw, "more_body": False}])

    async def receive():
        if (part := next(parts, None)) is None:
            await asyncio.sleep(leaves_after)
        return part or {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    await app(scope, receive, send)
    body = b"".join(one.get("body", b"") for one in sent[1:])
    return (sent[0]["status"], body if body.startswith(b"data:") else json.loads(body)) if sent else (0, None)


# -- services that fail ------------------------------------------------------------------------------


def whole(body, status="200 OK", fields=b""):
    """An answer of HTTP."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n".encode() + fields + b"\r\n" + body


class Service:
    """A service in a thread that answers as the first part of an address says; ``heard`` are the heads it got."""

    def __init__(self, answer):
        self._answer, self._loop = answer, asyncio.new_event_loop()
        self.heard, started = [], threading.Event()

        def run():
            asyncio.set_event_loop(self._loop)
            server = self._loop.run_until_complete(asyncio.start_server(self._serve, HOST, 0))
            self.port = server.sockets[0].getsockname()[1]
            started.set()
            self._loop.run_forever()

        threading.Thread(target=run, daemon=True).start()
        started.wait(10)

    async def _serve(self, reader, writer):
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while line := await reader.readline():
                mode, head = unquote(line.decode().split()[1].split("/")[1]), line
                while (field := await reader.readline()) not in (b"\r\n", b""):
                    head += field
                self.heard.append(head)
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
                await self._misbehave(mode, json.loads(await reader.readexactly(length)), writer)
        writer.close()

    async def _misbehave(self, mode, asked, writer):
        good = self._answer("good", asked, self)
        if mode == "slow":
            await asyncio.sleep(3)
            writer.write(good)
        elif mode in ("drip", "dripping head"):
            start = good.index(b"\r\n\r\n") if mode == "drip" else 10
            writer.write(good[:start])
            for at in range(start, min(len(good), start + 40)):
                writer.write(good[at : at + 1])
                await writer.drain()
                await asyncio.sleep(0.2)
        elif mode == "endless":
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for _ in range(100):
                writer.write(b"100000\r\n" + b" " * 2**20 + b"\r\n")
                await writer.drain()
        elif mode == "endless head":
            writer.write(b"HTTP/1.1 200 OK\r\n")
            for _ in range(300):
                writer.write(b"x: " + b"a" * 10_000 + b"\r\n")
                await writer.drain()
        elif mode == "silent":
            await asyncio.sleep(3)
        elif mode == "cut":
            writer.write(good[:-10])
            await writer.drain()
            writer.close()
        elif mode == "reset":
            writer.transport.abort()
        else:
            writer.write(self._answer(mode, asked, self))
        await writer.drain()


WIRE = ("slow", "drip", "dripping head", "endless", "endless head", "silent", "cut", "reset")
"""Faults of the connection, which every service can have."""


FAULTS = (
    *("500", "429", "404", "204", "bad json", "a list", "a number", "null", "nothing", "no text", "deep"),
    *("a long number", "garbage", "a negative length", "a length of 50 MB", "a bad chunk", "padded", "compressed"),
)  # fmt: skip
"""Wrong answers to any request."""


def any_fault(mode, good):
    """Wrong answers to any request in some modes; None in the other modes."""
    faults = {
        "500": whole(b"sorry", "500 Sorry"),
        "429": whole(b"sorry", "429 Sorry"),
        "404": whole(b"sorry", "404 Sorry"),
        "204": b"HTTP/1.1 204 Nothing\r\n\r\n",
        "bad json": whole(b'{"outputs": ['),
        "a list": whole(b"[]"),
        "a number": whole(b"1"),
        "null": whole(b"null"),
        "nothing": whole(b""),
        "no text": whole(b"\xff\xfe\x00"),
        "deep": whole(b"[" * 50_000),
        "a long number": whole(b"9" * 50_000),
        "garbage": b"this is not HTTP\r\n\r\n",
        "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        "a length of 50 MB": b"HTTP/1.1 200 OK\r\nContent-Length: 52428800\r\n\r\n",
        "a bad chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "padded": whole(json.dumps(good).encode() + b" " * 200_000),
        "compressed": whole(json.dumps(good), fields=b"Content-Encoding: gzip\r\n"),
    }
    return faults.get(mode)


def remote_answer(mode, asked, _):
    """What a remote model of two classes says to an inference request."""
    n_rows = asked["inputs"][0]["shape"][0]
    data = [0.25, 0.75] * n_rows
    output = {"name": "probabilities", "datatype": "FP64", "shape": [n_rows, 2], "data": data}
    good = {"model_name": "m", "outputs": [output]}
    if (fault := any_fault(mode, good)) is not None:
        return fault
    change = {
        "NaN": {"data": [float("nan"), *data[1:]]},
        "infinite": {"data": [float("inf"), *data[1:]]},
        "missing": {"data": [None, *data[1:]]},
        "as text": {"data": ["0.5"] * len(data)},
        "truth values": {"data": [True, False] * n_rows},
        "sums": {"data": [0.9] * len(data)},
        "negative": {"data": [-0.5, 1.5] * n_rows},
        "shape": {"shape": [n_rows, 3]},
        "short": {"data": data[:-1]},
        "labels": {"datatype": "INT64"},
        "no type": {"datatype": None},
    }.get(mode, {})
    if mode in ("name", "names"):
        names = {"name": []} if mode == "name" else {"name": {"a": 1}}
        return whole({"outputs": [output | names, output | names]})
    if mode == "key twice":
        text = json.dumps(good)
        return whole(text.replace('"data":', '"data": [0.5], "data":').encode())
    if mode == "no outputs":
        return whole({"outputs": []})
    return whole({"outputs": [output | change]})


REMOTE = (
    *WIRE,
    *FAULTS,
    *("NaN", "infinite", "missing", "as text", "truth values", "sums", "negative", "shape", "short"),
    *("labels", "no type", "name", "names", "key twice", "no outputs"),
)  # fmt: skip


def remote(cases, folder, _):
    """Every fault of a remote full model: rows get the last stage's answer within the deadline, and it is counted."""
    from thrifty import Policy, load

    system, table = load(folder / "cancer.thrifty").chain_, pd.read_csv(folder / "rows.csv")[:100]
    gate = system.visit_all(system.reader(table)).gate
    system = system.at(Policy.of(np.quantile(gate, 0.5, axis=0)))  # half of the rows go on from each stage
    rows = {"rows": table.to_dict("records")}
    service = Service(remote_answer)
    own = {"total_timeout": DEADLINE, "connect_timeout": DEADLINE}
    url = f"http://{HOST}:{service.port}"
    with (
        cases.case("a remote that behaves is believed"),
        gateway(system, full=f"{url}/good/v2/models/m", remote=own | {"total_timeout": 10.0}) as ask,
    ):
        status, said = ask("/predict", rows)
        assert status == 200
        assert not any(one["degraded"] for one in said["answers"])
        assert any(one["route"] == system.n_stages for one in said["answers"])
    for mode in REMOTE:
        with (
            cases.case(f"remote: {mode}"),
            gateway(system, full=f"{url}/{mode.replace(' ', '%20')}/v2/models/m", remote=own) as ask,
        ):
            _is_degraded_in_time(ask, rows, counted=lambda g: g.model.remote.failures)
    with (
        cases.case("remote: no server listens"),
        gateway(system, full=f"http://{HOST}:{free_ports(1)[0]}/v2/models/m", remote=own) as ask,
    ):
        _is_degraded_in_time(ask, rows, counted=lambda g: g.model.remote.failures)
    with cases.case("remote: a redirect is not followed, and carries no key"):
        other = Service(remote_answer)
        target = f"Location: http://{HOST}:{other.port}/good/v2/models/m/infer\r\n".encode()
        moved = Service(lambda *_: whole(b"", "307 Moved", target))
        address = f"http://{HOST}:{moved.port}/x/v2/models/m"
        with gateway(system, full=address, remote=own, remote_api_key="hidden") as ask:
            _is_degraded_in_time(ask, rows, counted=lambda g: g.model.remote.failures)
        assert any(b"hidden" in head for head in moved.heard)
        assert not other.heard
    for policy in ("error", "abstain"):
        with cases.case(f"remote: on_remote_failure = {policy}"):
            where = {"full": f"{url}/500/v2/models/m", "remote": own, "on_remote_failure": policy}
            with gateway(system, **where) as ask:
                status, said = ask("/predict", rows)
            assert status == (503 if policy == "error" else 200)
            if policy == "abstain":
                assert any(one["answer"] is None for one in said["answers"])


def _is_degraded_in_time(ask, rows, counted):
    """Rows are answered within the deadline (some tries: the machine may be busy), some degraded, and all counted."""
    took = []
    while len(took) < 5 and (not took or min(took) > DEADLINE + SLACK):
        began = time.perf_counter()
        status, said = ask("/predict", rows)
        took.append(time.perf_counter() - began)
        assert status == 200, (status, said)
        assert len(said["answers"]) == len(rows["rows"])
        assert any(one["degraded"] for one in said["answers"])
        for one in said["answers"]:
            assert np.isfinite(one["cost"])
            assert one["answer"] is None or one["answer"] in (0, 1)
    assert min(took) <= DEADLINE + SLACK, took
    if counted is not None:
        assert sum(counted(ask.gateway).values()) > 0


# -- providers ---------------------------------------------------------------------------------------


def provider_answer(mode, asked, _):
    """What a service says that sells every column for 1."""
    values = [[1.0] * len(asked["columns"]) for _ in asked["rows"]]
    good = {"values": values}
    if (fault := any_fault(mode, good)) is not None:
        return fault
    n_columns = len(asked["columns"])
    cell = {"infinite": float("inf"), "text": "red", "truth values": True, "huge": 10**400}
    cell |= {"lists": [1], "objects": {"a": 1}}
    if mode in cell:
        return whole({"values": [[cell[mode]] * n_columns for _ in values]})
    other = {
        "too few rows": values[:-1],
        "too many columns": [[*row, 1.0] for row in values],
        "no lists": [1.0] * len(values),
        "an object": {"0": [1.0]},
    }
    if mode in other:
        return whole({"values": other[mode]})
    if mode == "key twice":
        return whole(b'{"values": [[5.0]], ' + json.dumps(good).encode()[1:])
    if mode == "failed":
        return whole(good | {"failed": dict.fromkeys(map(str, asked["rows"]), "sold out")})
    return whole(good)


PROVIDER = (
    *WIRE,
    *FAULTS,
    *("infinite", "text", "lists", "objects", "truth values", "huge", "too few rows", "too many columns"),
    *("no lists", "an object", "key twice", "failed"),
)  # fmt: skip


KEYS = (2**63, -(2**63) - 1, 2**64, 10**30, 1e30, 2.0**53 + 2, 1.5, True, [], {}, "", None, "x" * 10**5)
SQL = (
    *("' OR '1'='1", "a' --", "a'; DROP TABLE people; --", 'a"; DROP TABLE people; --', "') OR 1=1 --"),
    *("a' UNION SELECT * FROM people --", "%", "*", "?", ":1", "a\x00"),
)  # fmt: skip


def providers(cases, folder, _):
    """Every fault of a provider, keys that are none, redirects, and SQL in keys."""
    from thrifty import load

    system = load(folder / "cancer.thrifty")
    names = list(pd.read_csv(folder / "rows.csv", nrows=1).columns)
    service = Service(provider_answer)

    def sold(url, **more):
        table = {"columns": names, "key": "id", "url": url, "timeout": DEADLINE, "retries": 0, **more}
        return {"providers": {"lab": table}, "purchase_deadline": DEADLINE}

    url = f"http://{HOST}:{service.port}"
    rows = {"rows": [{"id": f"n{number}"} for number in range(5)]}

    def counted(one):
        return one.providers[0].failures

    with (
        cases.case("a provider that behaves is believed"),
        gateway(system, **sold(f"{url}/good", timeout=5.0) | {"purchase_deadline": 10.0}) as ask,
    ):
        status, said = ask("/predict", rows)
        assert status == 200
        assert not any(one["degraded"] for one in said["answers"])
    for mode in PROVIDER:
        with (
            cases.case(f"provider: {mode}"),
            gateway(system, **sold(f"{url}/{mode.replace(' ', '%20')}")) as ask,
        ):
            # Values of another kind are no failure of the service: the column may be one of text.
            is_value = mode in ("infinite", "text", "truth values")
            _is_degraded_in_time(ask, rows, None if is_value else counted)
    with (
        cases.case("a dripping provider leaves no threads and descriptors behind"),
        gateway(system, **sold(f"{url}/drip")) as ask,
    ):
        ask("/predict", rows)
        before = threading.active_count(), len(os.listdir("/proc/self/fd"))
        for number in range(40):
            ask("/predict", {"rows": [{"id": number}]})
        time.sleep(0.5)
        after = threading.active_count(), len(os.listdir("/proc/self/fd"))
        assert after[0] <= before[0] + 4, (before, after)
        assert after[1] <= before[1] + 10, (before, after)
    with cases.case("a redirect is not followed, and carries no key"):
        other = Service(provider_answer)
        target = f"Location: http://{HOST}:{other.port}/good\r\n".encode()
        moved = Service(lambda *_: whole(b"", "307 Moved", target))
        where = sold(f"http://{HOST}:{moved.port}/x", headers={"Authorization": "hidden"})
        with gateway(system, **where) as ask:
            # Values of another kind are no failure of the service: the column may be one of text.
            _is_degraded_in_time(ask, rows, None if mode in ("infinite", "text", "truth values") else counted)
        assert any(b"hidden" in head for head in moved.heard)
        assert not other.heard
    with gateway(system, **sold(f"{url}/good", timeout=5.0) | {"purchase_deadline": 10.0}) as ask:
        for key in KEYS:
            with cases.case(f"a key {str(key)[:25]!r} is the fault of its request"):
                status, said = ask("/predict", {"rows": [{"id": "n1"}, {"id": key}]})
                is_text = isinstance(key, str)
                assert status == 400 or (status == 200 and is_text), (status, said)
                assert not sum(counted(ask.gateway).values()), counted(ask.gateway)
        with cases.case("bad keys of some do not degrade the answers of others"):
            bodies = [{"rows": [{"id": 2**63 if number % 2 else "n1"}]} for number in range(40)]
            found = ask.together("/predict", bodies)
            assert [status for status, _ in found] == [200, 400] * 20
            assert not any(said["answers"][0]["degraded"] for _, said in found[::2])
    _sql(cases, folder, system, names)


def _sql(cases, folder, system, names):
    """Keys that are SQL find nothing and change nothing."""
    path = folder / "lab.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        table = pd.DataFrame(1.0, index=range(3), columns=names).assign(id=["a", "b", "c"])
        table.to_sql("people", connection, index=False, if_exists="replace")
    where = {"columns": names, "key": "id", "database": str(path), "table": "people", "timeout": 5.0}
    with gateway(system, providers={"lab": where}, purchase_deadline=10.0) as ask:
        with cases.case("a key of the database is found"):
            assert not ask("/predict", {"rows": [{"id": "a"}]})[1]["answers"][0]["degraded"]
        for key in SQL:
            with cases.case(f"a key that is SQL: {key!r}"):
                status, said = ask("/predict", {"rows": [{"id": key}]})
                assert status in (200, 400)
                assert status == 400 or said["answers"][0]["route"] == -1, said
    with cases.case("the table is as it was"), contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM people").fetchone() == (3,)


# -- language models ---------------------------------------------------------------------------------


def chat_answer(mode, asked, _):
    """What a server of OpenAI's protocol says to a request for a completion, in parts where they are asked for."""
    usage, word = {"prompt_tokens": 9, "completion_tokens": 1}, {"content": "right"}
    change = {
        "no choices": {"choices": []},
        "odd choices": {"choices": [1]},
        "empty": {"content": " "},
        "odd calls": {"tool_calls": [1, "a", None]},
        "deep calls": {"tool_calls": [{"a": "DEEP"}]},
        "content of numbers": {"content": [1]},
        "usage of 2**62": {"completion_tokens": 2**62},
        "usage below 0": {"completion_tokens": -(10**30)},
        "an odd reason": {"finish_reason": ["DEEP"]},
    }.get(mode, {})
    usage |= {name: change[name] for name in change if name in usage}
    word |= {name: change[name] for name in ("content", "tool_calls") if name in change}
    choice = {"index": 0, "finish_reason": change.get("finish_reason", "stop")}
    choice |= {"delta" if asked.get("stream") else "message": word}
    good = {"choices": change.get("choices", [choice]), "usage": usage}
    if (fault := any_fault(mode, good)) is not None:
        return fault
    body = json.dumps(good).encode().replace(b'"DEEP"', b"[" * 900 + b"]" * 900)
    if not asked.get("stream"):
        return whole(body)
    head = b": keep-alive\n\n" * (10**5 if mode == "comments" else 1)
    lines = {"a long line": b"data: " + b" " * 2**22, "bytes": b"data: \xff\xfe\n\n", "cut early": b""}
    return whole(head + lines.get(mode, b"data: " + body + b"\n\n") + b"data: [DONE]\n\n")


BELIEVED = ("good", "usage of 2**62", "usage below 0", "an odd reason", "padded", "comments")
CHAT = (
    *("no choices", "odd choices", "empty", "odd calls", "deep calls", "content of numbers"),
    *("a long line", "bytes", "cut early"),
)  # fmt: skip

PRICED = (
    {"tools": [{"type": "web_search"}]},
    {"tools": [{"type": "function", "function": {"name": "f"}, "web_search": {"size": 9}}]},
    {"web_search_options": {}, "audio": {"voice": "a"}, "n": 9},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "image_url": {"url": "u"}}]}]},
    {"messages": [{"role": "user", "content": "x", "audio": {"id": "a"}}]},
    {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [{"type": "mcp"}]}]},
)


def chat(cases, _, args):
    """Every fault of a language model, requests that cost more than they say, dead servers, clients that leave."""
    from thrifty import ModelRouter
    from thrifty.learners.routing import quality as quality_models

    quality_models.N_TREES, rng = 10, np.random.default_rng(args.seed)
    right, texts = rng.random((60, 2)) < [0.7, 0.9], [f"question {number}" for number in range(60)]
    prices = {"cheap": (1.0, 10.0), "dear": (5.0, 50.0)}
    router = ModelRouter(prices).fit(texts, right.astype(float), np.full((60, 2), [0.001, 0.01]))
    router, service = router.at(budget=0.001), Service(chat_answer)
    address, path = f"http://{HOST}:{service.port}", "/v1/chat/completions"

    def opened(mode, other="good", **how):
        where = {"cheap": f"{address}/{mode.replace(' ', '%20')}/v1", "dear": f"{address}/{other}/v1"}
        models = {
            name: {"url": url, "timeout": DEADLINE, "stream_timeout": 1.0} for name, url in where.items()
        }
        return gateway(router, models=models, **how)

    asked = {"model": "thrifty", "messages": [{"role": "user", "content": "question 3"}], "max_tokens": 9}
    most = ((len(json.dumps(asked)) + 64) * 6.0 + 9 * 60.0) / 1e6
    faults = dict.fromkeys((*BELIEVED, *WIRE, *FAULTS, *CHAT))
    for mode, stream in ((mode, stream) for mode in faults for stream in (False, True)):
        with cases.case(f"chat: {mode}, stream {stream}"), opened(mode) as ask:
            began = time.perf_counter()
            status, said = ask(path, asked | {"stream": stream})
            assert time.perf_counter() - began < DEADLINE + 1.0
            assert (status, "right" in str(said)) == (200, True), (status, str(said)[:200])
            assert 0.0 < ask.gateway.ledger.today <= most, ask.gateway.ledger.today
    with opened("good") as ask:
        for change in PRICED:
            with cases.case(f"chat: a price of its own in {change}"):
                status, said = ask(path, asked | change)
                assert (status, ask.gateway.ledger.today) == (400, 0.0), (status, said)
    with cases.case("chat: all servers are dead"), opened("reset", "reset") as ask:
        began = time.perf_counter()
        assert ask(path, asked)[0] == 503
        assert time.perf_counter() - began < 2.0
    with cases.case("chat: clients that leave free their places"), opened("silent", max_in_flight=4) as ask:
        for _ in range(3):
            ask.together(path, [asked] * 4, leaves_after=0.05)
        assert (ask.gateway.room.n_taken, ask.gateway.model.models["cheap"].breaker.state) == (0, "closed")


# -- budgets -----------------------------------------------------------------------------------------


def budgets(cases, folder, args):
    """The gateway keeps every window of rows below a cap: rows together or alone, across reloads and changes."""
    from thrifty import load
    from thrifty.errors import InvalidInputError
    from thrifty.serve.config import Config

    system = load(folder / "cancer.thrifty")
    rows = pd.read_csv(folder / "rows.csv")
    low, high = map(float, system.chain_.policy.cost[[0, -1]])
    middle = (low + high) / 2
    with gateway(system) as ask:
        costs = [one["cost"] for one in ask("/predict", {"rows": rows.to_dict("records")})[1]["answers"]]
    dear = rows[np.array(costs) == max(costs)]  # rows that would go all the way
    streams = {
        "rows of the fit": rows,
        "the dearest rows": dear,
        "shifted rows": rows + rows.std() * 3,
        "rows of zeros": rows * 0,
        "rows that were scaled": rows * 100,
        "rows in waves": pd.concat([rows[:60], dear, rows[60:120], dear]),
    }
    chance = np.random.default_rng(args.seed)
    for name, stream in streams.items():
        for target in (low + 0.1 * (high - low), middle, low + 0.9 * (high - low)):
            for size in (1, 7, 50):
                with cases.case(f"a cap over {name}, a target of {target:.3g}, {size} rows at a time"):
                    records = stream.sample(240, replace=True, random_state=int(chance.integers(2**31)))
                    _holds_cap(system, records.to_dict("records"), target, 1.1 * target, size)
    with cases.case("a cap under requests that come together"):
        with gateway(
            system, budget=middle, budget_window=40, budget_cap=1.1 * middle, max_in_flight=500
        ) as ask:
            bodies = [{"rows": [row]} for row in dear.sample(200, replace=True).to_dict("records")]
            costs = [said["answers"][0]["cost"] for _, said in ask.together("/predict", bodies)]
        assert np.mean(costs) <= 1.1 * middle * (1 + 1e-9), np.mean(costs)
    with cases.case("a cap without a budget is refused"):
        try:
            Config(budget_cap=1.0)
        except InvalidInputError:
            pass
        else:
            raise AssertionError("it was taken")
    for change in ("null", "-1", '"1"', "true", "[1]", "NaN", "1e999", "0", "1e300", "{}"):
        with (
            cases.case(f"a budget of {change} is refused while a cap holds"),
            gateway(system, budget=middle, budget_window=20, budget_cap=1.1 * middle) as ask,
        ):
            status, _ = ask("/budget", f'{{"budget": {change}}}'.encode(), admin=True)
            assert status == 400, status
            assert ask.gateway.budget == middle


def _holds_cap(system, rows, target, cap, size):
    """Ask about rows, so many at a time, with reloads and changes of the budget between them."""
    window, costs = 20, []
    with gateway(system, load=lambda: system, budget=target, budget_window=window, budget_cap=cap) as ask:
        for number, start in enumerate(range(0, len(rows), size)):
            status, said = ask("/predict", {"rows": rows[start : start + size]})
            assert status == 200, said
            costs += [one["cost"] for one in said["answers"]]
            if number % 9 == 4:
                ask("/budget", {"budget": None}, admin=True)
            if number % 9 == 8:
                assert ask("/reload", {}, admin=True)[0] == 200
    means = np.convolve(costs, np.full(window, 1 / window), "valid")
    assert means.max() <= cap * (1 + 1e-9), (means.max(), cap)
