"""Lazy features: a request carries what is at hand, and the rest of what a row needs is bought on its way."""

import asyncio
import sqlite3
import time

import numpy as np
import pytest

from thrifty import Receipts, fit_table
from thrifty.engine.purchases.sources import RetryingSource
from thrifty.errors import InvalidInputError
from thrifty.learners.estimators.incomplete import Bought
from thrifty.serve.config import Config
from thrifty.serve.gateway import Gateway


class Down(RetryingSource):
    """A source that fails, after a while, and counts how often it was asked."""

    def __init__(self, seconds=0.0, **how):
        super().__init__(0, **how)
        self.seconds, self.asked = seconds, []

    def ask(self, rows, names):
        self.asked.append(len(rows))
        time.sleep(self.seconds)
        raise ConnectionError("the service is down")


class Sold(RetryingSource):
    """Lines of a table by key; counts what was asked for."""

    def __init__(self, table):
        super().__init__(0)
        self.table, self.asked = table.set_index("id"), []

    def ask(self, rows, names):
        self.asked.append(len(rows))
        return self.table.loc[[self.keys[row] for row in rows], list(names)].to_numpy()


def sold(system, **settings):
    """Settings of a provider of everything that the system reads."""
    where = {} if {"database", "path", "url"} & set(settings) else {"path": "unread.csv"}
    return {"lab": {"columns": list(system.chain_.schema.names), "key": "id", **where, **settings}}


@pytest.fixture(scope="session")
def table(make_table):
    return make_table(30, seed=5).assign(id=[f"n{row}" for row in range(30)])


@pytest.fixture
def made(table):
    return Sold(table)


def known_by_key(table):
    return {"rows": [{"id": key} for key in table["id"]]}


@pytest.mark.parametrize("system", ["colours", "numbers"])
def test_rows_known_by_key_alone_get_the_answers_and_the_costs_of_the_whole_table(
    answers_to, open_gateway, request, table, made, system
):
    system = request.getfixturevalue(system)
    gateway = open_gateway(system, {"sources": {"lab": made}}, providers=sold(system), row_key="id")
    said = gateway.ask("/predict", known_by_key(table))
    assert said.status == 200, said.said
    expected = answers_to(system, table, row_key="id")
    for name in ("answer", "probability", "cost"):
        assert [one[name] for one in said.said["answers"]] == expected[name].tolist()
    assert not any(one["degraded"] for one in said.said["answers"])
    # One question for each stage, about the rows that get there, and one for the full model.
    assert made.asked[0] == len(table)
    assert sorted(made.asked, reverse=True) == made.asked
    assert len(made.asked) <= system.chain_.n_stages + 1
    tensor = {"name": "id", "datatype": "BYTES", "shape": [30], "data": table["id"].tolist()}
    infer = gateway.ask("/v2/models/thrifty/infer", {"inputs": [tensor], "outputs": [{"name": "cost"}]})
    assert infer.said["outputs"][0]["data"] == expected["cost"].tolist()


def test_what_comes_with_a_request_is_not_bought_and_costs_nothing(open_gateway, numbers, table, made):
    gateway = open_gateway(numbers, {"sources": {"lab": made}}, providers=sold(numbers))
    whole = table[list(numbers.chain_.schema.names)].to_dict("records")
    call = numbers.chain_.price_list.full_cost
    said = gateway.ask("/predict", {"rows": whole}).said["answers"]
    assert [one["cost"] for one in said] == [
        call if one["route"] == numbers.chain_.n_stages else 0.0 for one in said
    ]
    assert made.asked == []
    first = numbers.chain_.schema.names[numbers.chain_.stages[0].columns[0]]
    lacking = [
        {name: value for name, value in row.items() if name != first} | {"id": key}
        for row, key in zip(whole, table["id"], strict=True)
    ]
    dearer = gateway.ask("/predict", {"rows": lacking}).said["answers"]
    price = numbers.chain_.price_list.cost_of([numbers.chain_.schema.names.index(first)])
    np.testing.assert_allclose([one["cost"] for one in dearer], [one["cost"] + price for one in said])
    assert made.asked == [30]


def test_what_was_bought_is_kept_for_the_next_request_and_shared_by_rows_of_one_key(
    open_gateway, numbers, table, made
):
    gateway = open_gateway(numbers, {"sources": {"lab": made}}, providers=sold(numbers, cache=60.0))
    twice = gateway.ask("/predict", {"rows": [{"id": "n1"}, {"id": "n1"}], "id": "a"}).said["answers"]
    assert twice[0]["cost"] > 0
    n_questions = len(made.asked)
    again = gateway.ask("/predict", {"rows": [{"id": "n1"}, {"id": "n1"}], "id": "a"}).said["answers"][0]
    assert len(made.asked) == n_questions
    assert again["cost"] in (0.0, numbers.chain_.price_list.full_cost)
    lab = gateway.serving.providers[0]
    assert lab.outcomes["cached"] > 0


@pytest.mark.parametrize("on_failure", ["answer", "skip", "raise"])
def test_a_provider_that_dies_leaves_rows_with_what_they_hold_or_an_error(
    open_gateway, colours, table, on_failure
):
    stages = colours.chain_.stages
    at_hand = {colours.chain_.schema.names[column] for column in stages[0].columns}
    columns = [name for name in colours.chain_.schema.names if name not in at_hand]
    gateway = open_gateway(
        colours,
        {"sources": {"lab": Down(retries=0)}},
        providers=sold(colours, columns=columns),
        on_provider_failure=on_failure,
    )
    rows = [{name: row[name] for name in at_hand} | {"id": row["id"]} for row in table.to_dict("records")]
    said = gateway.ask("/predict", {"rows": rows, "id": "a"})  # keys that follow both operating points
    if on_failure == "raise":
        assert said.status == 503
        assert "could not be bought from lab" in said.said["error"]
        assert said.headers["retry-after"] == "1"
        return
    answers = said.said["answers"]
    lost = [one for one in answers if one["degraded"]]
    assert 0 < len(lost) < len(answers)
    assert all(one["answer"] in colours.classes_ for one in answers)
    # Nothing was bought; what is held came with the request. Who goes on without gets to a later stage.
    assert {one["cost"] for one in answers if one["route"] < colours.chain_.n_stages} == {0.0}
    assert (
        {one["route"] for one in lost} == {0}
        if on_failure == "answer"
        else max(one["route"] for one in lost) > 0
    )
    text = gateway.admin("/metrics").said.decode()
    assert f'thrifty_degraded_rows_total{{reason="provider_lab"}} {len(lost)}.0' in text
    assert 'thrifty_purchase_failures_total{provider="lab",reason="ConnectionError"} ' in text
    assert 'thrifty_purchases_total{outcome="failed",provider="lab"} ' in text


def test_purchases_end_at_the_deadline_and_block_nobody(open_gateway, numbers, table):
    gateway = open_gateway(
        numbers,
        {"sources": {"lab": Down(3.0, timeout=0.1, retries=5)}},
        providers=sold(numbers),
        purchase_deadline=0.15,
    )
    whole = {"rows": table[list(numbers.chain_.schema.names)].to_dict("records")}

    async def both():
        start = time.perf_counter()
        waits = asyncio.ensure_future(gateway.call("/predict", {"rows": [{"id": "n1"}]}))
        await asyncio.sleep(0.01)
        at_hand = await gateway.call("/predict", whole)
        between = waits.done()
        return at_hand, between, await waits, time.perf_counter() - start

    at_hand, was_done, late, seconds = gateway.run(both())
    assert at_hand.status == late.status == 200
    assert not was_done
    assert late.said["answers"][0] == {
        "answer": None,
        "probability": None,
        "route": -1,
        "cost": 0.0,
        "degraded": True,
    }
    assert seconds < 2.0
    assert gateway.serving.providers[0].failures["TimeoutError"] > 0


def test_a_provider_that_keeps_failing_is_left_alone(open_gateway, numbers):
    down = Down(retries=0)
    gateway = open_gateway(numbers, {"sources": {"lab": down}}, providers=sold(numbers))
    for _ in range(8):
        assert gateway.ask("/predict", {"rows": [{"id": "n1"}]}).said["answers"][0]["degraded"]
    assert len(down.asked) == 5
    assert gateway.serving.providers[0].failures == {"ConnectionError": 5, "breaker_open": 3}


def test_what_nobody_sells_and_rows_without_a_key_are_refused_by_name(open_gateway, numbers, made):
    first = numbers.chain_.schema.names[numbers.chain_.stages[0].columns[0]]
    others = [name for name in numbers.chain_.schema.names if name != first]
    gateway = open_gateway(numbers, {"sources": {"lab": made}}, providers=sold(numbers, columns=others))
    said = gateway.ask("/predict", {"rows": [{"id": "n1"}]})
    assert said.status == 400
    assert f"row 1 has no column '{first}', which its route reads" in said.said["error"]
    gateway = open_gateway(numbers, {"sources": {"lab": made}}, providers=sold(numbers))
    assert "nor 'id', by which it is bought" in gateway.ask("/predict", {"rows": [{}]}).said["error"]
    assert "must be text or a whole number" in gateway.ask("/predict", {"rows": [{"id": 1.5}]}).said["error"]
    assert "Did you mean 'id'?" in gateway.ask("/predict", {"rows": [{"idd": 1}]}).said["error"]


def test_a_key_that_no_database_can_hold_is_the_fault_of_its_request(open_gateway, numbers, made):
    gateway = open_gateway(numbers, {"sources": {"lab": made}}, providers=sold(numbers))
    for key in (2**63, 2**64, -(2**63) - 1, 1e30, 2.0**53):
        said = gateway.ask("/predict", {"rows": [{"id": "n1"}, {"id": key}]})
        assert (said.status, made.asked) == (400, [])
        assert "whole number of 64 bits" in said.said["error"]
    assert gateway.serving.providers[0].failures == {}


def test_a_full_model_that_fails_rows_that_were_bought_for_follows_its_own_policy(
    open_gateway, numbers, table, made, fake_remote
):
    def fails(_):
        raise type("Down", (Exception,), {"reason": "connect"})

    how = {"sources": {"lab": made}, "remote": fake_remote(fails)}
    n_stages, rows = numbers.chain_.n_stages, known_by_key(table)
    bought = numbers.chain_.price_list.cost_of(np.flatnonzero(numbers.chain_.bought_by_place[-1]))
    for policy, route in (("local", n_stages - 1), ("abstain", -1)):
        gateway = open_gateway(numbers, how, providers=sold(numbers), on_remote_failure=policy)
        lost = [one for one in gateway.ask("/predict", rows).said["answers"] if one["degraded"]]
        assert {(one["route"], one["cost"], one["answer"] is None) for one in lost} == {
            (route, bought, policy == "abstain")
        }
        assert gateway.counts("degraded") == {"connect": len(lost)}
    gateway = open_gateway(numbers, how, providers=sold(numbers), on_remote_failure="error")
    assert "did not answer (connect)" in gateway.ask("/predict", rows).said["error"]


def test_a_budget_is_held_over_what_is_really_bought(open_gateway, numbers, table, made):
    cheapest, dearest = numbers.chain_.policy.cost[[0, -1]]
    target = float(cheapest + 0.3 * (dearest - cheapest))
    gateway = open_gateway(
        numbers,
        {"sources": {"lab": made}},
        providers=sold(numbers),
        budget=target,
        budget_window=20,
        budget_cap=1.2 * target,
    )
    costs = [one["cost"] for one in gateway.ask("/predict", known_by_key(table)).said["answers"]]
    for start in range(len(costs) - 20):
        assert np.mean(costs[start : start + 20]) <= 1.2 * target * (1 + 1e-12)
    assert gateway.serving.model.controller.mean_spend == pytest.approx(np.mean(costs[-20:]))


@pytest.mark.parametrize("kind", ["database", "path"])
def test_providers_of_a_file_of_settings_sell_by_their_own_names(
    answers_to, open_gateway, numbers, table, tmp_path, kind
):
    names = list(numbers.chain_.schema.names)
    own = table.rename(columns={names[0]: "other"})[["id", "other", *names[1:]]]
    columns = dict(zip(names, ["other", *names[1:]], strict=True))
    if kind == "path":
        own.to_csv(tmp_path / "lab.csv", index=False)
        where = {"path": str(tmp_path / "lab.csv")}
    else:
        with sqlite3.connect(tmp_path / "lab.db") as connection:
            own.to_sql("people", connection, index=False)
        where = {"database": str(tmp_path / "lab.db"), "table": "people"}
    gateway = open_gateway(
        numbers, providers=sold(numbers, columns=columns, timeout=5.0, **where), row_key="id"
    )
    said = gateway.ask("/predict", known_by_key(table)).said["answers"]
    assert [one["cost"] for one in said] == answers_to(numbers, table, row_key="id")["cost"].tolist()
    strange = gateway.ask("/predict", {"rows": [{"id": "nobody"}]}).said["answers"][0]
    assert (strange["route"], strange["degraded"]) == (-1, True)
    assert gateway.serving.providers[0].failures == {"not_delivered": 1}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"key": "id"}, "must set 'columns'"),
        ({"columns": ["age"], "key": "id"}, "exactly one of url, database and path"),
        (
            {"columns": ["age"], "key": "id", "url": "http://127.0.0.1:9", "tiemout": 1},
            "Did you mean 'timeout'",
        ),
        ({"columns": ["aeg"], "key": "id", "url": "http://127.0.0.1:9"}, "aeg.* is no column of the model"),
        ({"columns": "age", "key": "id", "url": "http://127.0.0.1:9"}, "columns must be a list"),
        ({"columns": ["age"], "key": "id", "database": "x"}, "database and table belong together"),
    ],
)
def test_a_provider_whose_settings_break_a_rule_is_refused(numbers, settings, words):
    with pytest.raises(InvalidInputError, match=words):
        Gateway(numbers, Config(providers={"lab": settings}))


# -- receipts --------------------------------------------------------------------------------------

SHARE = 0.4


@pytest.fixture(scope="module")
def people(make_table):
    return make_table(600, seed=5).assign(id=[f"n{row}" for row in range(600)])


@pytest.fixture(scope="module")
def asked(people):
    """Requests: by key alone, with a column of their own, and whole."""
    by_key = [{"id": key} for key in people["id"][:400]]
    with_x = people[["id", "lab one"]][400:500].to_dict("records")
    return by_key, with_x, people.drop(columns=["label", "colour", "old"])[500:].to_dict("records")


@pytest.fixture
def receipts(open_gateway, numbers, people, asked, tmp_path):
    how = {"providers": sold(numbers), "row_key": "id", "explore": SHARE, "receipts": str(tmp_path / "r.csv")}
    gateway = open_gateway(numbers, {"sources": {"lab": Sold(people)}}, max_rows=1000, **how)
    said = [gateway.ask("/predict", {"rows": rows}) for rows in asked]
    assert [one.status for one in said] == [200] * 3
    answers = [answer for one in said for answer in one.said["answers"]]
    return Receipts.read(tmp_path / "r.csv", row_key="id"), answers


def test_a_gateway_keeps_what_rows_held_and_bought_and_with_which_probability(
    receipts, numbers, people, asked
):
    table, answers = receipts
    names = list(numbers.chain_.schema.names)
    assert table.key.tolist() == people["id"].tolist()
    assert [str(answer) for answer in table.answer.tolist()] == [str(one["answer"]) for one in answers]
    np.testing.assert_allclose(table.cost, [one["cost"] for one in answers])
    values, bought = table.X[names].to_numpy(dtype=float), table.bought[names].to_numpy() > 0
    np.testing.assert_allclose(values[bought], people[names].to_numpy()[bought])
    assert np.isnan(values[~bought]).all()
    assert 0.2 < bought[:400].mean() < 0.95
    assert bought[500:].all()
    chances = table.propensity[names].to_numpy()
    assert (chances[500:] == 1.0).all()  # what came was there anyway
    assert (table.bought["lab one"][400:500] == 1).all()
    assert (table.propensity["lab one"][400:500] == 1.0).all()
    # A row by key alone has its first purchase with certainty; behind its stop it has one with the share explored.
    is_explored = np.array([one["route"] == numbers.chain_.n_stages for one in answers[:400]])
    products = chances[:400].prod(axis=1)
    few = np.round(products[is_explored], 6)
    assert np.isin(few, np.round([SHARE, 1.0], 6)).mean() > 0.5
    assert (few >= SHARE - 1e-6).all()


def test_rows_that_were_explored_stand_for_all(receipts, numbers):
    table = receipts[0]
    order = table.bought.to_numpy(dtype=float)[:400]
    cells = Bought(order > 0, table.propensity.to_numpy()[:400], order)
    everything = np.arange(order.shape[1])
    has_all = cells.cells.all(axis=1)
    weight = np.where(has_all, 1.0 / cells.chance_of(everything, everything), 0.0)
    assert weight.mean() == pytest.approx(1.0, abs=4 * weight.std() / 20)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::thrifty.errors.FullModelNotWorthItWarning")
def test_a_fit_learns_from_the_receipts_of_a_gateway(receipts, people):
    labels = people[["id", "label"]]
    fitted = fit_table(receipts[0], labels=labels, row_key="id", full="svm", budget=2.0)
    new = people[list(fitted.feature_names_in_)]
    assert fitted.score(new, people["label"]) > people["label"].value_counts(normalize=True).max()


def test_receipts_without_a_key_or_beside_a_cap_are_refused(numbers, tmp_path):
    path = str(tmp_path / "r.csv")
    with pytest.raises(InvalidInputError, match="Set row_key"):
        Gateway(numbers, Config(receipts=path))
    with pytest.raises(InvalidInputError, match="budget_cap stops rows"):
        Config(receipts=path, budget=2.0, budget_cap=3.0)
