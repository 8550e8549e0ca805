"""What the gateway answers, and what it refuses."""

import asyncio
import json

import numpy as np
import pytest

import thrifty
from thrifty import Policy
from thrifty.serve.config import Config

INFER = "/v2/models/thrifty/infer"


def records(frame):
    rows = frame.to_dict("records")
    return [{name: float(one) if isinstance(one, bool) else one for name, one in row.items()} for row in rows]


@pytest.fixture
def rows(make_table):
    return make_table(40, seed=3).drop(columns="label")


def test_rows_by_name_get_the_answers_of_the_command_line(
    answers_to, open_gateway, colours, rows, of_request
):
    gateway = open_gateway(colours)
    expected = answers_to(colours, of_request(rows, "a"))
    said = gateway.ask("/predict", {"rows": records(rows), "id": "a"})
    assert said.status == 200
    answers = said.said["answers"]
    assert [one["answer"] for one in answers] == expected["answer"].tolist()
    assert [one["probability"] for one in answers] == expected["probability"].tolist()
    assert [one["cost"] for one in answers] == expected["cost"].tolist()
    n_stages = colours.chain_.n_stages
    assert [one["route"] for one in answers] == [
        n_stages if s == "full" else int(s) for s in expected["stage"]
    ]
    assert 0 < sum(one["route"] == n_stages for one in answers) < len(answers)
    assert not any(one["degraded"] for one in answers)


def test_one_row_at_a_time_gets_the_answers_of_the_batch(answers_to, open_gateway, colours, rows):
    gateway = open_gateway(colours, name="shop")
    # Where two operating points are mixed, the id of the request is the key of its row, in the body or in the header.
    expected = answers_to(colours, rows)
    for place, one in enumerate(records(rows)):
        said = gateway.ask("/predict", {"rows": [one], "id": str(place)})
        assert said.status == 200, said.said
        assert (
            said.said == gateway.ask("/predict", {"rows": [one]}, headers={"x-request-id": str(place)}).said
        )
        said = said.said["answers"][0]
        assert (said["answer"], said["cost"]) == (expected["answer"][place], expected["cost"][place])


def test_a_device_with_another_system_is_refused(open_gateway, colours, rows, tmp_path):
    gateway = open_gateway(colours, name="shop")
    identity = thrifty.export(colours, tmp_path / "c").identity
    asked = {"rows": records(rows)[:2]}
    assert gateway.ask("/predict", asked, headers={"thrifty-model": identity}).status == 200
    said = gateway.ask("/predict", asked, headers={"thrifty-model": "0123456789abcdef"})
    assert said.status == 409
    assert f"{identity!r} is served" in said.said["error"]


def test_requests_without_an_id_follow_either_point_and_spend_the_budget(open_gateway, colours, rows):
    policy = colours.chain_.policy
    assert policy.is_mixed
    parted = colours.chain_.schema.cells(rows)
    lower, upper = (
        colours.chain_.at(policy.at(one)).walk(colours.chain_.reader(parted)).route
        for one in (policy.lower, policy.upper)
    )
    place = int(np.flatnonzero(lower != upper)[0])
    gateway, row = open_gateway(colours), records(rows)[place]
    routes = [gateway.ask("/predict", {"rows": [row]}).said["answers"][0]["route"] for _ in range(400)]
    sent = np.mean(np.array(routes) == upper[place])
    assert set(routes) == {lower[place], upper[place]}
    assert abs(sent - policy.share) < 4 * np.sqrt(policy.share * (1 - policy.share) / 400)


def test_a_table_and_a_tensor_for_each_column_are_the_same_request(
    answers_to, open_gateway, numbers, rows, of_request
):
    gateway = open_gateway(numbers)
    table = rows[list(numbers.chain_.schema.names)].to_numpy()
    flat = {"name": "X", "datatype": "FP64", "shape": list(table.shape), "data": table.reshape(-1).tolist()}
    nested = flat | {"data": table.tolist()}
    columns = [
        {"name": name, "datatype": "FP64", "shape": [len(table)], "data": table[:, place].tolist()}
        for place, name in enumerate(numbers.chain_.schema.names)
    ]
    wanted = [{"name": name} for name in ("answer", "probabilities", "cost")]
    first, *others = (
        gateway.ask(INFER, {"inputs": inputs, "outputs": wanted, "id": "7"})
        for inputs in ([flat], [nested], columns[::-1])
    )
    assert first.status == 200
    assert first.said["id"] == "7"
    outputs = {one["name"]: one for one in first.said["outputs"]}
    assert list(outputs) == ["answer", "probabilities", "cost"]
    assert outputs["answer"]["datatype"] == "BYTES"
    assert outputs["probabilities"]["shape"] == [40, 2]
    expected = answers_to(numbers, of_request(rows, "7"))
    assert outputs["answer"]["data"] == expected["answer"].tolist()
    assert all(other.said == first.said for other in others)


def test_numbers_are_predicted_without_a_probability(answers_to, open_gateway, bike_system, make_bikes):
    gateway = open_gateway(bike_system)
    bikes = make_bikes(5, seed=1).drop(columns="count")
    said = gateway.ask("/predict", {"rows": bikes.to_dict("records")}).said["answers"]
    assert [one["answer"] for one in said] == answers_to(bike_system, bikes)["answer"].tolist()
    assert set(said[0]) == {"answer", "route", "cost", "degraded"}


ROW = '{"age": %s, "lab one": 0.1, "lab two": 0.2, "noise": 0, "colour": "red", "old": 1}'


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("NaN", "finite numbers"),
        ("Infinity", "finite numbers"),
        ("1e999", "finite numbers"),
        ('"1.5"', "column 'age' must hold numbers"),
        ("true", "got true in row 1"),
        ("[1]", "got a list of 1"),
    ],
)
def test_what_only_looks_like_a_number_is_refused(open_gateway, colours, value, words):
    said = open_gateway(colours).ask("/predict", f'{{"rows": [{ROW % value}]}}'.encode())
    assert said.status == 400
    assert words in said.said["error"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"agee": 1.0}, "\"agee\" is no column of the model. Did you mean 'age'?"),
        ({"colour": 3}, "column 'colour' holds 3 in row 1, which was not there"),
        ({"colour": ["red"]}, "column 'colour' must hold one value in each row; got a list of 1"),
        ({"colour": "pink"}, "'pink' in row 1, which was not there"),
        ({"age": ...}, "row 1 has no column 'age', which its route reads"),
    ],
)
def test_a_row_that_cannot_be_read_is_refused_by_column(open_gateway, colours, rows, change, words):
    row = {**records(rows)[0], **change}
    gateway = open_gateway(colours)
    # No row stops before the full model, which reads every column.
    chain = gateway.serving.model.chain
    gateway.serving.model.chain = chain.at(Policy.of(np.full(chain.n_stages, -np.inf)))
    said = gateway.ask("/predict", {"rows": [{k: v for k, v in row.items() if v is not ...}]})
    assert said.status == 400
    assert words in said.said["error"]


def test_a_key_that_an_object_has_twice_is_refused(open_gateway, colours, numbers, rows):
    gateway, row = open_gateway(colours), json.dumps(records(rows)[0])
    for body in (
        f'{{"rows": [{row[:-1]}, "age": 1}}]}}',
        f'{{"rows": [{row}], "id": "a:b", "id": "c"}}',
        f'{{"rows": [{row}], "rows": [{row}]}}',
    ):
        said = gateway.ask("/predict", body.encode())
        assert said.status == 400
        assert "' twice. A missing value" in said.said["error"]
    # Colons within text are no keys.
    assert gateway.ask("/predict", f'{{"rows": [{row}], "id": "a:b"}}'.encode()).status == 200
    deep = '{"rows": ' + '{"a":' * 900 + '":"' + "}" * 901
    assert gateway.ask("/predict", deep.encode()).status == 400
    names = list(numbers.chain_.schema.names)
    tensor = f'"name": "X", "datatype": "FP64", "shape": [1, {len(names)}], "data": {[0.5] * len(names)}'
    twice = f'{{"inputs": [{{{tensor}, "data": {[0.1] * len(names)}}}]}}'
    said = open_gateway(numbers).ask(INFER, twice.encode())
    assert (said.status, "'data' twice" in said.said["error"]) == (400, True)


def test_a_column_that_no_route_reads_may_be_left_out(open_gateway, colours, rows):
    gateway = open_gateway(colours)
    chain = gateway.serving.model.chain
    gateway.serving.model.chain = chain.at(Policy.of(np.full(chain.n_stages, np.inf)))
    first = {colours.chain_.schema.names[column] for column in chain.stages[0].columns}
    assert len(first) < len(colours.chain_.schema.names)
    said = gateway.ask("/predict", {"rows": [{name: records(rows)[0][name] for name in first}]})
    assert said.status == 200, said.said


def test_null_is_missing_where_the_model_reads_missing_values_and_refused_where_it_does_not(
    open_gateway, colours, numbers
):
    for system, status in ((colours, 200), (numbers, 400)):
        gateway = open_gateway(system)
        chain = gateway.serving.model.chain
        gateway.serving.model.chain = chain.at(Policy.of(np.full(chain.n_stages, -np.inf)))
        said = gateway.ask("/predict", {"rows": [dict.fromkeys(system.chain_.schema.names)]})
        assert said.status == status
    assert "reads no missing values" in said.said["error"]


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        ({"shape": [2, 4]}, "must have 8 data; got 4 values"),
        ({"shape": [1, 3], "data": [0, 0, 0]}, "must have the shape [rows, 4]"),
        ({"shape": [0, 4]}, "whole numbers from 1 on"),
        ({"datatype": "BOOL"}, "must hold true or false"),
        ({"datatype": "TRUTH"}, "must have one of the datatypes"),
        ({"datatype": "INT32", "data": [1, 2, 3, 1.5]}, "must hold whole numbers"),
        ({"datatype": "INT8", "data": [1, 2, 3, 300]}, "whole numbers from -128 to 127"),
        ({"name": "Y"}, '"Y" is no column'),
        ({"data": [1, 2, 3, True]}, "got true in row 1"),
        ({"parameters": {"binary_data_size": 32}}, "more bytes than follow"),
    ],
)
def test_a_tensor_that_breaks_a_rule_is_refused_in_words(open_gateway, numbers, tensor, words):
    whole = {"name": "X", "datatype": "FP64", "shape": [1, 4], "data": [0.1, 0.2, 0.3, 0.4]}
    said = open_gateway(numbers).ask(INFER, {"inputs": [whole | tensor]})
    assert said.status == 400
    assert words in said.said["error"]


def test_metadata_say_what_to_send_and_versions_are_told_apart(open_gateway, colours, numbers):
    gateway = open_gateway(numbers)
    said = gateway.ask("/v2/models/thrifty").said
    assert said["inputs"] == [{"name": "X", "datatype": "FP64", "shape": [-1, 4]}]
    assert said["versions"] == ["1"]
    assert gateway.ask("/v2/models/thrifty/versions/1/ready").said == {"ready": True}
    assert gateway.ask("/v2/models/thrifty/versions/2").status == 404
    assert gateway.ask("/v2/models/other").status == 404
    inputs = open_gateway(colours).ask("/v2/models/thrifty").said["inputs"]
    assert {"name": "colour", "datatype": "BYTES", "shape": [-1]} in inputs


def test_a_key_is_needed_where_one_is_set(open_gateway, numbers):
    gateway = open_gateway(numbers, api_key="secret")
    body = {"rows": [dict.fromkeys(numbers.chain_.schema.names, 0.5)]}
    assert gateway.ask("/predict", body).status == 401
    assert gateway.ask("/predict", body, headers={"x-api-key": "secre"}).status == 401
    assert gateway.ask("/predict", body, headers={"x-api-key": "secret"}).status == 200
    assert gateway.ask("/predict", body, headers={"authorization": "Bearer secret"}).status == 200
    assert gateway.ask("/v2/health/live").status == 200
    assert gateway.admin("/budget", {"budget": None}).status == 401
    assert "secret" not in repr(Config(api_key="secret"))


def test_bodies_and_batches_have_a_largest_size(open_gateway, numbers):
    gateway = open_gateway(numbers, max_body_bytes=500, max_rows=3)
    row = dict.fromkeys(numbers.chain_.schema.names, 0)
    assert gateway.ask("/predict", {"rows": [row] * 3}).status == 200
    assert gateway.ask("/predict", {"rows": [row] * 4}).status == 400
    assert gateway.ask("/predict", {"rows": [row] * 40}).status == 413
    assert gateway.ask("/predict", b"{}", headers={"content-length": "501"}).status == 413
    assert gateway.ask("/predict", b"{}", headers={"content-encoding": "gzip"}).status == 415


def test_a_batch_is_answered_by_a_thread_as_rows_are_without(open_gateway, numbers, make_table):
    table = make_table(100, seed=4)[list(numbers.chain_.schema.names)]
    tensor = {"name": "X", "datatype": "FP64", "shape": [100, 4], "data": table.to_numpy().tolist()}
    said = open_gateway(numbers).ask(INFER, {"inputs": [tensor], "id": "b"}).said["outputs"]
    expected = numbers.chain_.cost(table, row_key=[("b", place) for place in range(100)])
    np.testing.assert_array_equal(said[3]["data"], expected)


def test_requests_that_come_together_are_answered_as_they_are_alone(open_gateway, colours, rows):
    # The point in force is a mix: chance must not notice who else is there.
    assert colours.chain_.policy.is_mixed
    gateway = open_gateway(colours)
    requests = [{"rows": [row], "id": str(place)} for place, row in enumerate(records(rows))]
    requests.append({"rows": records(rows)[:7], "id": "several"})
    requests[3]["rows"][0]["colour"] = "pink"

    async def all_at_once():
        return await asyncio.gather(*(gateway.call("/predict", one) for one in requests))

    together = gateway.run(all_at_once())
    for one, request in zip(together, requests, strict=True):
        alone = gateway.ask("/predict", request)
        assert (one.status, one.said) == (alone.status, alone.said)
    assert [one.status for one in together].count(200) >= len(requests) - 2
