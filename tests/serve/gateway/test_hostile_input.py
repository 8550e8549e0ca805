"""Requests that nobody means well with: each is answered or refused in words, and nothing of ours fails."""

import json

import numpy as np
import pytest

SCALARS = [
    0,
    -1,
    1.5,
    1e308,
    -0.0,
    2**63,
    10**30,
    True,
    None,
    "",
    "1.5",
    "red",
    "\u0000",
    "x" * 5000,
    [],
    {},
    [[1]],
]
"""What stands where something else is expected."""

OPERATIONS = {"/predict": "predict", "/v2/models/thrifty/infer": "infer"}


def asked(operation, names, chance):
    """A request that is well meant."""
    numbers = chance.normal(size=(2, len(names))).round(3).tolist()
    if operation == "predict":
        return {"rows": [dict(zip(names, row, strict=True)) for row in numbers]}
    if chance.random() < 0.5:
        tensor = {"name": "X", "datatype": "FP64", "shape": [2, len(names)], "data": numbers}
        return {"inputs": [tensor], "outputs": [{"name": "answer"}], "id": "a"}
    columns = zip(names, zip(*numbers, strict=True), strict=True)
    tensors = [{"name": one, "datatype": "FP64", "shape": [2], "data": list(two)} for one, two in columns]
    return {"inputs": tensors}


def spoilt(thing, chance):
    """The same with something in it replaced, left out or added."""
    keys = (
        list(thing) if isinstance(thing, dict) else list(range(len(thing))) if isinstance(thing, list) else []
    )
    if not keys or chance.random() < 0.15:
        return SCALARS[chance.integers(len(SCALARS))]
    key, what = keys[chance.integers(len(keys))], chance.random()
    other = dict(thing) if isinstance(thing, dict) else list(thing)
    if what < 0.12:
        del other[key]
    elif what < 0.2 and isinstance(other, dict):
        other[str(SCALARS[chance.integers(len(SCALARS))])] = other[key]
    elif what < 0.25 and isinstance(other, list):
        other.append(other[key])
    else:
        other[key] = spoilt(thing[key], chance)
    return other


def mangled(raw, chance):
    """The same bytes with some of them changed, cut out or repeated."""
    raw = bytearray(raw)
    for _ in range(chance.integers(1, 4)):
        at = int(chance.integers(len(raw) + 1))
        what = chance.integers(4)
        if what == 0 and at < len(raw):
            raw[at] = int(chance.integers(256))
        elif what == 1:
            del raw[at : at + int(chance.integers(1, 30))]
        elif what == 2:
            raw[at:at] = [b"NaN", b"1e999", b"\xff", b"{", b"]", b'"', b"null", b"\x00"][chance.integers(8)]
        else:
            raw[at:at] = raw[at : at + int(chance.integers(1, 30))]
    return bytes(raw)


@pytest.mark.slow
@pytest.mark.parametrize("path", OPERATIONS)
def test_a_thousand_spoilt_requests_are_answered_or_refused_in_words(open_gateway, numbers, path):
    gateway, chance = open_gateway(numbers), np.random.default_rng(7)
    statuses = {}
    for _ in range(1000):
        request = asked(OPERATIONS[path], numbers.schema.names, chance)
        said = gateway.ask(path, json.dumps(spoilt(request, chance)).encode())
        statuses[said.status] = statuses.get(said.status, 0) + 1
        assert said.status in (200, 400), (said.said, request)
        assert said.status == 200 or len(said.said["error"]) < 500
    assert statuses[400] > 500
    assert statuses[200] > 20


@pytest.mark.slow
@pytest.mark.parametrize("path", OPERATIONS)
def test_bytes_that_were_mangled_on_the_way_are_answered_or_refused_in_words(open_gateway, numbers, path):
    gateway, chance = open_gateway(numbers), np.random.default_rng(8)
    for _ in range(500):
        raw = json.dumps(asked(OPERATIONS[path], numbers.schema.names, chance)).encode()
        length = {"inference-header-content-length": str(chance.integers(len(raw) + 9))}
        headers = length if chance.random() < 0.2 else {}
        said = gateway.ask(path, mangled(raw, chance), headers=headers)
        assert said.status in (200, 400), said.said


def test_deep_and_repetitive_json_is_refused(open_gateway, numbers):
    gateway = open_gateway(numbers)
    for body in (b"[" * 100_000, b'{"rows":' * 50_000, b'{"rows": [' + b"{}," * 100_000 + b"{}]}"):
        assert gateway.ask("/predict", body).status == 400


@pytest.mark.slow
def test_the_description_names_every_operation_and_every_status(open_gateway, colours, numbers):
    for system in (colours, numbers):
        gateway = open_gateway(system, api_key="secret")
        described = gateway.ask("/openapi.json", headers={"x-api-key": "secret"}).said
        paths = {route.path for route in gateway.app.routes}
        assert set(described["paths"]) == paths
        row = described["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert list(row["properties"]["rows"]["items"]["properties"]) == list(system.schema.names)
        for methods in described["paths"].values():
            for operation in methods.values():
                assert {"200", "401", "503"} <= set(operation["responses"])
