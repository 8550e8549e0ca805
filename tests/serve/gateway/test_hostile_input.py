"""Requests that nobody means well with: each is answered or refused in words, and nothing of ours fails."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

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
