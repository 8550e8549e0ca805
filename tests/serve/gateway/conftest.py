"""Gateways without a network: an application is called as a server would call it."""

import asyncio
import contextlib
import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from tests.mixes import mixed_at
from thrifty.serve.app import create_admin, create_app
from thrifty.serve.config import Config


@pytest.fixture(scope="session")
def colours(make_table, fit_by_command):
    """A fit on a table with a text column, at a mix of two points; its full model reads missing values."""
    return mixed_at(fit_by_command(make_table(300), "label", "--budget", 3, "--full", "boosting"), 3.0)


@pytest.fixture(scope="session")
def numbers(make_table, fit_by_command):
    """What a fit on numbers alone makes; its full model reads no missing values."""
    table = make_table(400).drop(columns=["colour", "old"])
    return fit_by_command(table, "label", "--budget", 2.5, "--full", "svm")


@pytest.fixture(scope="session")
def of_request():
    """``of_request(rows, id)``: rows with the keys that rows of a request with that id have."""

    def keyed(rows, request_id):
        keys = (
            pd.Index([request_id]) if len(rows) == 1 else [(request_id, place) for place in range(len(rows))]
        )
        return rows.set_axis(keys if len(rows) == 1 else pd.MultiIndex.from_tuples(keys))

    return keyed


@pytest.fixture
def open_gateway():
    """``open_gateway(system, **settings)``: a gateway that has started; it is closed when the test ends."""
    with contextlib.ExitStack() as stack:
        yield lambda system, how=None, **settings: stack.enter_context(_gateway(system, how or {}, settings))


@contextlib.contextmanager
def _gateway(system, how, settings):
    app = create_app(system, Config(**settings), **how)
    admin = create_admin(app.state.gateway)
    with asyncio.Runner() as runner:
        life = app.router.lifespan_context(app)
        runner.run(life.__aenter__())

        def ask(path, body=None, *, method=None, headers=(), query="", app=app):
            return runner.run(call(app, path, body, method, headers, query))

        yield SimpleNamespace(
            ask=ask,
            admin=lambda *args, **how: ask(*args, **how, app=admin),
            serving=app.state.gateway,
            run=runner.run,
            call=lambda path, body: call(app, path, body),
            counts=lambda name: counts(getattr(app.state.gateway.metrics, name)),
            app=app,
            administration=admin,
        )
        runner.run(life.__aexit__(None, None, None))


def counts(counter):
    """Values of a counter by its labels, of those that are not 0."""
    samples = [one for family in counter.collect() for one in family.samples if one.name.endswith("_total")]
    by_labels = {tuple(one.labels.values()): one.value for one in samples if one.value}
    return {labels[0] if len(labels) == 1 else labels: value for labels, value in by_labels.items()}


async def call(app, path, body=None, method=None, headers=(), query=""):
    """Send one request to an application; returns status, headers and, where it is JSON, what was said."""
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    given = {b"host": b"127.0.0.1", b"content-type": b"application/json"}
    given |= {name.encode(): value.encode() for name, value in dict(headers).items()}
    scope = {
        "type": "http",
        "method": method or ("GET" if body is None else "POST"),
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": list(given.items()),
        "http_version": "1.1",
        "scheme": "http",
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1),
    }
    sent = []

    async def receive():
        return {"type": "http.request", "body": raw, "more_body": False}

    async def send(message):
        sent.append(message)

    await app(scope, receive, send)
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    said = b"".join(message.get("body", b"") for message in sent[1:])
    if headers.get("content-type", "").startswith("application/json"):
        said = json.loads(said)
    return SimpleNamespace(status=sent[0]["status"], headers=headers, said=said)


class FakeRemote:
    """A full model that says what a function says of the rows, or fails."""

    def __init__(self, says):
        self.says = says
        self.asked = []
        self.calls = self.retries = 0
        self.failures = {}
        self.breaker = SimpleNamespace(state="closed", in_flight=0)

    async def start(self):
        self.loop = asyncio.get_running_loop()

    async def close(self):
        pass

    async def ask(self, rows, columns, n_outputs):
        self.calls += 1
        self.asked.append(np.array(rows))
        return self.says(rows)


@pytest.fixture
def fake_remote():
    """A remote full model, made from a function of rows."""
    return FakeRemote
