"""A cascade of models behind the gateway: one model in the file, one in ONNX, one behind another gateway."""

import socket
import threading
import time
from functools import partial

import numpy as np
import onnx
import pytest
import uvicorn
from onnx import TensorProto, helper, numpy_helper
from sklearn.compose import make_column_transformer
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from thrifty import CascadeClassifier, CascadeRegressor, save
from thrifty.errors import FullModelOutsideWarning, InvalidInputError
from thrifty.serve.app import create_app
from thrifty.serve.config import Config
from thrifty.serve.gateway import load_version

PRICES = {"bayes": 1.0, "logistic": 2.0, "trees": 10.0}


@pytest.fixture(scope="module")
def slowest(numbers):
    """A cascade of columns at one operating point, not at a mix of two that depends on the keys of rows."""
    return numbers.at(budget=float(numbers.chain_.policy.cost[-1]))


@pytest.fixture(scope="module")
def rows(numbers, make_table):
    table = make_table(500, seed=3)
    return table[list(numbers.chain_.schema.names)], table["label"]


@pytest.fixture(scope="module")
def cascade(slowest, rows):
    X, y = rows
    logistic = make_pipeline(StandardScaler(), LogisticRegression())
    models = [
        ("bayes", GaussianNB().fit(X[:150], y[:150])),
        ("logistic", logistic.fit(X[:150], y[:150])),
        ("trees", slowest),
    ]
    return CascadeClassifier(models, model_prices=PRICES, budget=5.0, cv="prefit", random_state=0).fit(
        X[150:400], y[150:400]
    )


@pytest.fixture(scope="module")
def onnx_file(cascade, tmp_path_factory):
    """The logistic regression as an ONNX file."""
    scaler, model = cascade.models_["logistic"].estimator
    weight = model.coef_[0] / scaler.scale_
    shift = model.intercept_[0] - weight @ scaler.mean_
    parts = {
        "weight": np.column_stack([-weight, weight]) / 2,
        "shift": np.array([-shift, shift]) / 2,
    }
    nodes = [
        helper.make_node("Gemm", ["X", "weight", "shift"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["probabilities"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "logistic",
        [helper.make_tensor_value_info("X", TensorProto.DOUBLE, [None, len(weight)])],
        [helper.make_tensor_value_info("probabilities", TensorProto.DOUBLE, [None, 2])],
        [numpy_helper.from_array(values, name) for name, values in parts.items()],
    )
    path = tmp_path_factory.mktemp("onnx") / "logistic.onnx"
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    onnx.save(made, path)
    return path


@pytest.fixture(scope="module")
def second_gateway(slowest):
    """The address of the slowest model, behind a gateway of its own, and its application."""
    app = create_app(slowest, Config(name="trees", max_rows=1000))
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on"))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/v2/models/trees", app
    server.should_exit = True
    thread.join()


@pytest.fixture
def elsewhere(onnx_file, second_gateway):
    """Settings of the models that are not in the file."""
    patient = {"total_timeout": 5.0, "connect_timeout": 5.0, "output_name": "probabilities"}
    return {"logistic": {"onnx": str(onnx_file)}, "trees": {"url": second_gateway[0], **patient}}


def body(X):
    return {"rows": X.to_dict("records"), "id": "one"}


def test_models_in_the_file_in_onnx_and_behind_a_gateway_answer_as_in_python(
    open_gateway, cascade, rows, elsewhere, second_gateway, of_request
):
    X = rows[0][400:]
    gateway = open_gateway(
        cascade, models=elsewhere, budget=5.0
    )  # which the first request leaves where it is
    served_there = second_gateway[1].state.gateway.metrics
    before, said = served_there.n_rows, gateway.ask("/predict", body(X))
    assert said.status == 200, said.said
    answers = said.said["answers"]
    expected = cascade.run(of_request(X, "one"))
    assert [one["answer"] for one in answers] == cascade.predict(of_request(X, "one")).tolist()
    assert [one["route"] for one in answers] == cascade.route(of_request(X, "one")).tolist()
    np.testing.assert_allclose([one["cost"] for one in answers], expected.cost)
    np.testing.assert_allclose(
        [one["probability"] for one in answers], cascade.outputs_of(expected).max(axis=1), rtol=1e-6
    )
    asked = dict(
        zip(cascade.router_.pool_, (~np.isnan(expected.asked_outputs[:, :, 0])).sum(axis=0), strict=True)
    )
    assert min(asked.values()) > 0
    assert gateway.counts("asked") == asked
    assert gateway.counts("spend") == {(): pytest.approx(expected.cost.sum())}
    assert gateway.counts("remote_calls") == {}  # published when somebody looks
    status = gateway.admin("/status.json").said
    assert gateway.counts("remote_calls") == {(): 1}  # all rows of the request in one batch
    assert served_there.n_rows - before == asked["trees"]
    assert (status["asked"], status["rival"], status["breaker"]) == (asked, "trees", "closed")


def test_tensors_name_the_models_that_were_asked(open_gateway, cascade, rows, elsewhere):
    X = rows[0][400:440]
    gateway = open_gateway(cascade, models=elsewhere)
    tensor = {"name": "X", "shape": list(X.shape), "datatype": "FP64", "data": X.to_numpy().ravel().tolist()}
    wanted = [{"name": name} for name in ("probabilities", "route", "asked", "cost")]
    said = gateway.ask("/v2/models/thrifty/infer", {"inputs": [tensor], "outputs": wanted}).said["outputs"]
    outputs = {one["name"]: one for one in said}
    assert outputs["probabilities"]["shape"] == [40, 2]
    assert outputs["route"]["datatype"] == outputs["asked"]["datatype"] == "BYTES"
    for route, asked, cost in zip(
        *(outputs[name]["data"] for name in ("route", "asked", "cost")), strict=True
    ):
        assert route in asked.split(", ")
        assert cost == sum(PRICES[name] for name in asked.split(", "))
    described = gateway.ask("/v2/models/thrifty").said
    assert described["parameters"]["models"] == cascade.router_.pool_
    types = {one["name"]: one["datatype"] for one in described["outputs"]}
    assert {name: one["datatype"] for name, one in outputs.items()}.items() <= types.items()
    route = gateway.ask("/openapi.json").said["components"]["schemas"]["Answer"]["properties"]["route"]
    assert set(cascade.router_.pool_) <= set(route["enum"])


def test_a_budget_is_held_over_the_requests_and_changed_while_they_come(open_gateway, cascade, rows):
    gateway = open_gateway(cascade, budget=3.0, budget_window=200)

    def mean_cost():
        costs = []
        for start in range(0, 500, 50):
            said = gateway.ask("/predict", {"rows": rows[0][start : start + 50].to_dict("records")})
            costs += [one["cost"] for one in said.said["answers"]]
        return np.mean(costs[100:])

    assert mean_cost() == pytest.approx(3.0, rel=0.15)
    assert gateway.admin("/budget", {"budget": 7.0}).status == 200
    assert mean_cost() == pytest.approx(7.0, rel=0.15)
    assert gateway.admin("/status.json").said["target"] == 7.0


def test_a_file_and_its_reload_leave_models_where_the_settings_say(
    open_gateway, cascade, rows, elsewhere, tmp_path
):
    path = tmp_path / "models.thrifty"
    with pytest.warns(FullModelOutsideWarning, match="bayes"):
        save(cascade, path)
    read = partial(load_version, path, None)
    with pytest.raises(InvalidInputError, match=r"\[models.bayes\] must say where"):
        create_app(read(), Config(models=elsewhere))
    gateway = open_gateway(read(), {"load": read}, models=elsewhere | {"bayes": elsewhere["logistic"]})
    before = gateway.ask("/predict", body(rows[0][400:])).said
    with pytest.warns(FullModelOutsideWarning):
        save(cascade.at(budget=float(cascade.frontier_.cost[0])), path)
    version = gateway.admin("/reload", {}).said["version"]
    after = gateway.ask("/predict", body(rows[0][400:])).said
    assert (before["model_version"] != version, after["model_version"]) == (True, version)
    assert {one["route"] for one in before["answers"]} > {one["route"] for one in after["answers"]}


def test_settings_that_a_cascade_of_models_cannot_have_are_refused(cascade, tmp_path):
    def refused(**settings):
        with pytest.raises(InvalidInputError) as refusal:
            create_app(cascade, Config(**settings))
        return str(refusal.value)

    def with_model(name, **settings):
        return refused(models={name: settings})

    assert "explore" in refused(explore=0.1)
    assert "[models.bays] is no model of the system. Did you mean 'bayes'" in with_model(
        "bays", onnx="b.onnx"
    )
    assert "either url or onnx" in with_model("bayes", onnx="b.onnx", url="http://h/v2/models/b")
    assert "must say where 'bayes' is: url" in with_model("bayes", url="http://h/v1")
    assert "NO_SUCH_KEY" in with_model("bayes", url="http://h/v2/models/b", key_env="NO_SUCH_KEY")
    (tmp_path / "bad.onnx").write_bytes(b"not a graph")
    assert "must be an ONNX model" in with_model("bayes", onnx=str(tmp_path / "bad.onnx"))


def test_numbers_are_predicted_from_columns_of_text_as_in_python(open_gateway, make_bikes, of_request):
    table = make_bikes(300)
    X, y = table.drop(columns="count"), table["count"]
    models = [
        (
            name,
            make_pipeline(
                make_column_transformer((OneHotEncoder(), ["weather"]), remainder="passthrough"), model
            ),
        )
        for name, model in (("ridge", Ridge()), ("trees", ExtraTreesRegressor(10, random_state=0)))
    ]
    cascade = CascadeRegressor(models, model_prices={"ridge": 1, "trees": 5}, budget=3, cv=2, random_state=0)
    cascade.fit(X[:200], y[:200])
    gateway, rows = open_gateway(cascade), of_request(X[200:], "one")
    answers = gateway.ask("/predict", body(X[200:])).said["answers"]
    np.testing.assert_allclose([one["answer"] for one in answers], cascade.predict(rows))
    assert [one["route"] for one in answers] == cascade.route(rows).tolist()
    assert {"probability"}.isdisjoint(answers[0])
    unknown = gateway.ask("/predict", {"rows": [{**X.iloc[0].to_dict(), "weather": "hail"}]})
    assert (unknown.status, "'hail' in row 1" in unknown.said["error"]) == (400, True)


@pytest.mark.parametrize("rule", ["local", "error", "abstain"])
def test_rows_go_on_without_a_model_that_does_not_answer_as_the_settings_say(
    open_gateway, cascade, rows, rule
):
    nowhere = {"url": "http://127.0.0.1:9/v2/models/trees", "max_retries": 0}
    gateway = open_gateway(cascade, models={"trees": nowhere}, on_remote_failure=rule)
    said = gateway.ask("/predict", body(rows[0][400:]))
    if rule == "error":
        assert (said.status, "model_trees" in said.said["error"]) == (503, True)
        return
    answers = said.said["answers"]
    degraded = [one for one in answers if one["degraded"]]
    assert 0 < len(degraded) < len(answers)
    assert gateway.counts("degraded") == {"model_trees": len(degraded)}
    assert "trees" not in {one["route"] for one in answers}
    assert {one["route"] for one in degraded} == {"none"} or rule == "local"
    assert {one["answer"] is None for one in degraded} == {rule == "abstain"}


def test_a_request_that_no_model_answers_is_refused_until_one_does(open_gateway, cascade, rows):
    nowhere = {"url": "http://127.0.0.1:9/v2/models/trees", "max_retries": 0}
    gateway = open_gateway(cascade, models=dict.fromkeys(PRICES, nowhere))
    said = gateway.ask("/predict", body(rows[0][400:410]))
    assert (said.status, said.headers["retry-after"]) == (503, "1")
