"""Requests that nobody means well with: each is answered or refused in words, and nothing of ours fails."""

import gc
import importlib.util
import json
import threading
from pathlib import Path

import numpy as np
import pytest

from thrifty.serve.inference_protocol import parse_unique

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "attacks" / "requests.py"
OPERATIONS = {"/predict": "predict", "/v2/models/thrifty/infer": "infer"}


@pytest.fixture(scope="module")
def hostile():
    """What makes hostile requests."""
    spec = importlib.util.spec_from_file_location("attacks_requests", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("path", OPERATIONS)
def test_a_thousand_spoilt_requests_are_answered_or_refused_in_words(open_gateway, numbers, hostile, path):
    gateway, chance = open_gateway(numbers), np.random.default_rng(7)
    statuses = {}
    for _ in range(1000):
        request = hostile.asked(OPERATIONS[path], numbers.chain_.schema.names, chance)
        said = gateway.ask(path, json.dumps(hostile.spoilt(request, chance)).encode())
        statuses[said.status] = statuses.get(said.status, 0) + 1
        assert said.status in (200, 400), (said.said, request)
        assert said.status == 200 or len(said.said["error"]) < 500
    assert statuses[400] > 500
    assert statuses[200] > 20


@pytest.mark.slow
@pytest.mark.parametrize("path", OPERATIONS)
def test_bytes_that_were_mangled_on_the_way_are_answered_or_refused_in_words(
    open_gateway, numbers, hostile, path
):
    gateway, chance = open_gateway(numbers), np.random.default_rng(8)
    for _ in range(500):
        raw = json.dumps(hostile.asked(OPERATIONS[path], numbers.chain_.schema.names, chance)).encode()
        length = {"inference-header-content-length": str(chance.integers(len(raw) + 9))}
        headers = length if chance.random() < 0.2 else {}
        said = gateway.ask(path, hostile.mangled(raw, chance), headers=headers)
        assert said.status in (200, 400), said.said


def test_deep_and_repetitive_json_is_refused(open_gateway, numbers):
    gateway = open_gateway(numbers)
    for body in (b"[" * 100_000, b'{"rows":' * 50_000, b'{"rows": [' + b"{}," * 100_000 + b"{}]}"):
        assert gateway.ask("/predict", body).status == 400


def test_repeated_keys_are_refused_however_their_colons_are_written():
    for text in (b'{"a": 1, "a": 2}', b'{"a": 1, "a": 2, "b": "\\u003a"}', b'[1, {"b": {"a": 1, "a": 2}}]'):
        with pytest.raises(ValueError, match="'a' twice"):
            parse_unique(text)
    for text in (b'{"a": ":::", "b": "\\u003A"}', b'[{"a": 1}, {"a": 1}]', b'{"\\u003a": [1]}'):
        assert parse_unique(text) == json.loads(text)


def test_a_large_body_is_read_without_a_search_for_garbage_and_many_rows_not_in_the_event_loop(
    open_gateway, numbers
):
    phases = []
    gc.callbacks.append(lambda phase, _: phases.append(phase))
    try:
        parse_unique(b"[" + b"[[]]," * 50_000 + b"[]]")
    finally:
        gc.callbacks.pop()
    assert phases == []
    gateway = open_gateway(numbers)
    rows, threads = gateway.serving.model.rows, []
    read = rows.from_records
    rows.from_records = lambda given: threads.append(threading.current_thread().name) or read(given)
    for n_rows in (2, 40):  # 40 rows in 1 KB took as long as batches do
        gateway.ask("/predict", {"rows": [{}] * n_rows})
    assert threads[0] == "MainThread"
    assert threads[1].startswith("thrifty-batch")


@pytest.mark.slow
def test_the_description_names_every_operation_and_every_column(open_gateway, colours, numbers):
    for system in (colours, numbers):
        gateway = open_gateway(system, api_key="secret")
        described = gateway.ask("/openapi.json", headers={"x-api-key": "secret"}).said
        paths = {route.path for route in gateway.app.routes}
        assert set(described["paths"]) == paths
        row = described["components"]["schemas"]["Row"]
        assert list(row["properties"]) == list(system.chain_.schema.names)
        for methods in described["paths"].values():
            for operation in methods.values():
                assert set(operation["responses"]) == {"200", "default"}
