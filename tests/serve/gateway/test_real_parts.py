"""A gateway with its real remote, controller and drift: faults of a server, a cap under load, columns that move."""

import asyncio
import time

import numpy as np
import pytest

from thrifty.serve.metrics import MIN_VALUES

DEADLINE, SLACK = 0.15, 0.05


@pytest.fixture
def question(numbers, make_table):
    rows = make_table(60, seed=5)[list(numbers.chain_.schema.names)]
    return {"rows": rows.to_dict("records")}


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "reason"), [("500", "status_500"), ("cut", "closed"), ("slow", "timeout")])
def test_a_gateway_answers_every_row_whatever_the_remote_does(
    misbehaving_port, open_gateway, numbers, question, mode, reason
):
    url = f"http://127.0.0.1:{misbehaving_port}/{mode}/v2/models/2"
    gateway = open_gateway(numbers, full=url, remote={"total_timeout": DEADLINE, "connect_timeout": DEADLINE})
    took = []
    while len(took) < 4 and (not took or min(took) > DEADLINE + SLACK):
        start = time.perf_counter()
        said = gateway.ask("/predict", question)
        took.append(time.perf_counter() - start)
        assert said.status == 200
        assert any(one["degraded"] for one in said.said["answers"])
        assert all(one["answer"] in numbers.classes_ for one in said.said["answers"])
    assert min(took) <= DEADLINE + SLACK
    assert gateway.counts("degraded")[reason] > 0
    assert gateway.serving.model.remote.failures[reason] > 0


def test_a_gateway_asks_a_remote_that_behaves(misbehaving_port, open_gateway, numbers, question):
    gateway = open_gateway(
        numbers,
        full=f"http://127.0.0.1:{misbehaving_port}/good/v2/models/2",
        remote={"total_timeout": 5.0, "connect_timeout": 5.0},
    )
    said = gateway.ask("/predict", question).said["answers"]
    assert not any(one["degraded"] for one in said)
    assert any(one["route"] == numbers.chain_.n_stages for one in said)


def test_a_gateway_tells_the_drift_of_each_feature(open_gateway, numbers, make_table):
    table = make_table(MIN_VALUES, seed=1)[list(numbers.chain_.schema.names)].assign(age=9.0)
    gateway = open_gateway(numbers)
    assert gateway.ask("/predict", {"rows": table.to_dict("records")}).status == 200
    text = gateway.admin("/metrics").said.decode()
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(lines['thrifty_drift{feature="age"}']) > 1.0
    assert float(lines['thrifty_drift{feature="noise"}']) < 0.25


def test_requests_that_come_at_the_same_time_do_not_break_the_cap_of_a_gateway(open_gateway, numbers):
    cheapest, target = numbers.chain_.cost_by_place[0], 2.0
    gateway = open_gateway(numbers, budget=target, budget_window=40, budget_cap=2.2, max_in_flight=500)
    rows_of_each = [
        {"rows": [dict.fromkeys(numbers.chain_.schema.names, place / 200 - 0.5)]} for place in range(200)
    ]

    async def at_once():
        return await asyncio.gather(*(gateway.call("/predict", one) for one in rows_of_each))

    costs = np.array([one.said["answers"][0]["cost"] for one in gateway.run(at_once())])
    assert costs.max() > cheapest
    assert costs.sum() <= 2.2 * len(costs)
    assert gateway.serving.model.controller.n_seen == 200
    assert gateway.serving.model.controller.mean_spend <= 2.2
