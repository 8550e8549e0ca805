"""How the gateway is run: failures of the full model, load, budgets, reloads, metrics and logs."""

import asyncio
import logging
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from thrifty import BudgetedClassifier, Policy, Prices, StageOptions
from thrifty.engine.purchases.sources import RetryingSource
from thrifty.errors import InvalidInputError
from thrifty.serve.config import Config, read_config
from thrifty.serve.gateway import Loaded


class DownError(Exception):
    reason = "connect"


def fails(_):
    raise DownError


@pytest.fixture
def question(numbers, make_table):
    rows = make_table(60, seed=5)[list(numbers.chain_.schema.names)]
    return {"rows": rows.to_dict("records"), "id": "question"}


def with_remote(fake_remote, says):
    remote = fake_remote(says)
    return remote, {"remote": remote}


def test_a_remote_full_model_is_asked_about_the_rows_sent_on_and_about_no_other(
    open_gateway, numbers, fake_remote, question
):
    remote, how = with_remote(fake_remote, lambda rows: np.tile([0.25, 0.75], (len(rows), 1)))
    said = open_gateway(numbers, how).ask("/predict", question).said["answers"]
    sent = [place for place, one in enumerate(said) if one["route"] == numbers.chain_.n_stages]
    assert 0 < len(sent) < len(said)
    np.testing.assert_array_equal(remote.asked[0], [list(question["rows"][place].values()) for place in sent])
    if numbers.chain_.blend is None:
        assert {said[place]["probability"] for place in sent} == {0.75}


def test_a_remote_that_says_what_the_model_in_the_file_says_gives_the_same_answers(
    open_gateway, numbers, fake_remote, question
):
    full = numbers.chain_.innermost
    _, how = with_remote(fake_remote, lambda rows: full.outputs(rows, rows))
    said = open_gateway(numbers, how).ask("/predict", question).said
    assert said == open_gateway(numbers).ask("/predict", question).said


@pytest.mark.parametrize(
    "says",
    [
        pytest.param(fails, id="connect"),
        pytest.param(lambda rows: np.full((len(rows), 2), np.nan), id="bad_answer"),
        pytest.param(lambda rows: np.zeros((len(rows) + 1, 2)), id="bad_answer of another shape"),
        pytest.param(lambda rows: 1 / 0, id="failed"),
    ],
)
def test_without_the_full_model_rows_get_the_last_stages_answer_marked_and_counted(
    open_gateway, numbers, fake_remote, question, says, request
):
    _, how = with_remote(fake_remote, says)
    whole = open_gateway(numbers).ask("/predict", question).said["answers"]
    gateway = open_gateway(numbers, how)
    said = gateway.ask("/predict", question).said["answers"]
    n_stages, chain = numbers.chain_.n_stages, numbers.chain_
    bought = chain.price_list.cost_of(np.flatnonzero(chain.bought_by_place[-1]))
    for one, before in zip(said, whole, strict=True):
        assert one["degraded"] == (before["route"] == n_stages)
        if one["degraded"]:
            assert one["route"] == n_stages - 1
            assert one["answer"] in {"yes", "no"}
            assert one["cost"] == bought
        else:
            assert one == before
    n_degraded = sum(one["degraded"] for one in said)
    reason = request.node.callspec.id.split()[0]
    assert gateway.counts("degraded") == {reason: n_degraded}


def test_a_call_that_was_not_tried_costs_what_the_stages_bought(open_gateway, numbers, fake_remote, question):
    error = type("Open", (Exception,), {"reason": "breaker_open"})

    def refuses(_):
        raise error

    _, how = with_remote(fake_remote, refuses)
    said = open_gateway(numbers, how).ask("/predict", question).said["answers"]
    degraded = {one["cost"] for one in said if one["degraded"]}
    assert degraded == {numbers.chain_.cost_by_place[-2]}


def test_error_and_abstain_give_no_answer_of_a_stage(open_gateway, numbers, fake_remote, question):
    _, how = with_remote(fake_remote, fails)
    said = open_gateway(numbers, how, on_remote_failure="error").ask("/predict", question)
    assert said.status == 503
    assert said.headers["retry-after"] == "1"
    assert "did not answer (connect)" in said.said["error"]
    said = open_gateway(numbers, how, on_remote_failure="abstain").ask("/predict", question).said["answers"]
    lost = [one for one in said if one["degraded"]]
    assert lost
    for one in lost:
        assert (one["answer"], one["probability"], one["route"]) == (None, None, -1)


def test_the_budget_is_held_from_the_start_and_changed_at_the_admin_port(open_gateway, numbers, question):
    gateway = open_gateway(numbers, budget=2.9, budget_window=60)
    dear = gateway.ask("/predict", question).said["answers"]
    spent = np.mean([one["cost"] for one in dear])
    assert gateway.serving.model.controller.mean_spend == pytest.approx(spent)
    cheapest = float(numbers.chain_.policy.cost[0])
    assert gateway.admin("/budget", {"budget": cheapest}).said == {"budget": cheapest}
    cheap = gateway.ask("/predict", question).said["answers"]
    assert np.mean([one["cost"] for one in cheap]) < np.mean([one["cost"] for one in dear])
    for budget in ("2", True, -1, [1]):
        assert gateway.admin("/budget", {"budget": budget}).status == 400
    assert gateway.admin("/status.json").said["budget"] == cheapest
    assert gateway.admin("/budget", {"budget": None}).said == {"budget": None}
    assert gateway.serving.model.controller is None


def test_a_cap_outlives_reloads_and_is_not_given_up_by_a_change_of_the_budget(
    open_gateway, numbers, make_table
):
    window, budget = 20, float(numbers.chain_.policy.cost[[0, -1]].mean())
    how, cap = {"load": lambda: Loaded(numbers, "b")}, 1.02 * budget
    gateway = open_gateway(numbers, how, budget=budget, budget_window=window, budget_cap=cap)
    costs = []
    for row in make_table(120, seed=5)[list(numbers.chain_.schema.names)].to_dict("records"):
        costs.append(gateway.ask("/predict", {"rows": [row]}).said["answers"][0]["cost"])
        if len(costs) % 15 == 0:
            assert gateway.admin("/reload", {}).status == 200
    assert max(costs) > cap
    means = np.convolve(costs, np.full(window, 1 / window), "valid")
    assert means.max() <= cap * (1 + 1e-9)
    assert "while budget_cap" in gateway.admin("/budget", {"budget": None}).said["error"]


def test_another_file_takes_over_and_a_bad_one_changes_nothing(open_gateway, numbers, question):
    chain = numbers.chain_
    stops = chain.at(Policy.of(np.full(chain.n_stages, np.inf)))
    files = [Loaded(stops, "b"), InvalidInputError("the file is broken."), OSError("gone")]

    def load():
        found = files.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    gateway = open_gateway(Loaded(numbers, "a"), {"load": load})
    assert gateway.ask("/predict", question).said["model_version"] == "a"
    assert gateway.admin("/reload", {}).said == {"version": "b"}
    said = gateway.ask("/predict", question).said
    assert said["model_version"] == "b"
    assert {one["route"] for one in said["answers"]} == {0}
    for _ in range(2):
        assert gateway.admin("/reload", {}).status == 400
    assert gateway.ask("/predict", question).said == said
    assert gateway.counts("reloads") == {"done": 1, "refused": 2}


def test_a_request_under_way_is_answered_by_the_model_it_started_with(
    open_gateway, numbers, fake_remote, question
):
    remote, how = with_remote(fake_remote, None)
    gateway = open_gateway(Loaded(numbers, "a"), {**how, "load": lambda: Loaded(numbers, "b")})
    waiting = asyncio.Event()

    async def slow(rows, *_):
        await waiting.wait()
        return np.tile([0.5, 0.5], (len(rows), 1))

    remote.ask = slow

    async def both():
        under_way = asyncio.ensure_future(gateway.call("/predict", question))
        await asyncio.sleep(0)
        await gateway.serving.reload()
        waiting.set()
        return await under_way, await gateway.call("/predict", question)

    old, new = gateway.run(both())
    assert (old.said["model_version"], new.said["model_version"]) == ("a", "b")


def test_explored_rows_are_drawn_by_key_go_on_to_the_full_model_and_are_compared(
    open_gateway, numbers, fake_remote, question, caplog
):
    _, how = with_remote(fake_remote, lambda rows: np.tile([0.25, 0.75], (len(rows), 1)))
    n_stages, plain = numbers.chain_.n_stages, open_gateway(numbers, how).ask("/predict", question)
    plain = plain.said["answers"]
    easy = [place for place, one in enumerate(plain) if one["route"] < n_stages]
    gateway = open_gateway(numbers, how, explore=0.4)
    with caplog.at_level(logging.INFO, "thrifty.serve"):
        first, again = (gateway.ask("/predict", question).said["answers"] for _ in range(2))
    assert first == again
    explored = [place for place in easy if first[place]["route"] == n_stages]
    assert 0.2 * len(easy) < len(explored) < 0.6 * len(easy)
    assert [first[place] for place in range(60) if place not in explored] == [
        plain[place] for place in range(60) if place not in explored
    ]
    assert {first[place]["cost"] for place in explored} == {numbers.chain_.price_list.cost_of_full}
    agreed = [place for place in explored if plain[place]["answer"] == first[place]["answer"]]
    assert gateway.counts("explored") == {"compared": 2 * len(explored), "agreed": 2 * len(agreed)}
    facts = caplog.records[-1].facts
    assert (facts["explored"], facts["propensity"]) == (len(explored), 0.4)


def test_exploration_keeps_the_cap_and_harms_no_row_that_its_stop_can_answer(
    open_gateway, numbers, fake_remote, question
):
    _, how = with_remote(fake_remote, fails)
    gateway = open_gateway(numbers, how, explore=1.0, on_remote_failure="error")
    stops = numbers.chain_.at(Policy.of(np.full(numbers.chain_.n_stages, np.inf)))
    first = [numbers.chain_.schema.names[column] for column in numbers.chain_.stages[0].columns]
    assert (
        open_gateway(stops, how, explore=1.0, on_remote_failure="error").ask("/predict", question).status
        == 200
    )
    lacking = {"rows": [{name: row[name] for name in first} for row in question["rows"]]}
    said = open_gateway(stops, explore=1.0).ask("/predict", lacking)
    assert said.status == 200  # columns that only exploration would read may be left out
    budget = float(numbers.chain_.policy.cost[[0, -1]].mean())
    gateway = open_gateway(numbers, explore=1.0, budget=budget, budget_window=20, budget_cap=1.05 * budget)
    costs = [one["cost"] for one in gateway.ask("/predict", question).said["answers"]]
    assert np.convolve(costs, np.full(20, 1 / 20), "valid").max() <= 1.05 * budget * (1 + 1e-9)


def test_metrics_count_rows_spend_and_missing_values(open_gateway, numbers, fake_remote, question):
    _, how = with_remote(fake_remote, fails)
    gateway = open_gateway(numbers, how, budget=2.9)
    question["rows"][0]["noise"] = None
    said = gateway.ask("/predict", question).said["answers"]
    text = gateway.admin("/metrics").said.decode()
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(lines["thrifty_spend_total"]) == pytest.approx(sum(one["cost"] for one in said))
    full = numbers.chain_.price_list.cost_of_full
    assert float(lines["thrifty_saved_total"]) == pytest.approx(60 * full - sum(one["cost"] for one in said))
    assert float(lines['thrifty_missing_share{feature="noise"}']) == pytest.approx(1 / 60)
    assert lines['thrifty_requests_total{operation="predict",status="200"}'] == "1.0"
    assert float(lines['thrifty_degraded_rows_total{reason="connect"}']) == sum(
        one["degraded"] for one in said
    )
    assert lines['thrifty_latency_seconds_count{route="degraded"}'] == "1.0"
    assert lines["thrifty_breaker_open"] == "0.0"
    assert lines["thrifty_budget_target"] == "2.9"


def test_the_log_says_what_happened_and_no_values(open_gateway, numbers, caplog):
    gateway = open_gateway(numbers)
    row = dict.fromkeys(numbers.chain_.schema.names, 0.123456)
    with caplog.at_level(logging.INFO, "thrifty.serve"):
        gateway.ask("/predict", {"rows": [row]})
        gateway.ask("/predict", {"rows": [{**row, "age": "0.123456"}]})
    first, second = (record.facts for record in caplog.records)
    assert (first["operation"], first["status"], first["rows"]) == ("predict", 200, 1)
    assert second["status"] == 400
    assert "0.123456" not in f"{first}{second}"


def test_an_error_of_our_own_is_a_500_without_a_traceback(open_gateway, numbers, question, caplog):
    gateway = open_gateway(numbers)

    def breaks(*_):
        raise RuntimeError("value 0.5")

    gateway.serving.model.rows.from_records = breaks
    with caplog.at_level(logging.INFO, "thrifty.serve"):
        said = gateway.ask("/predict", question)
    assert said.status == 500
    assert said.said == {"error": "the gateway failed. Its log says where."}
    assert caplog.records[-1].facts["failure"].startswith("RuntimeError at ")
    assert "value 0.5" not in str(caplog.records[-1].facts)


def test_pages_of_others_cannot_reach_the_administration(open_gateway, numbers):
    gateway = open_gateway(numbers)
    assert gateway.admin("/metrics", headers={"host": "evil.example"}).status == 400
    assert gateway.admin("/budget", b"{}", headers={"content-type": "text/plain"}).status == 415
    assert b"<h1" in gateway.admin("/").said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prot = 1", "sets 'prot', which is no setting. Did you mean 'port'?"),
        ("port = '80'", "port must be a whole number; got '80'"),
        ("port = 70000", "port must lie in"),
        ("explore = true", "explore must be a number; got True"),
        ("on_remote_failure = 'lokal'", "Did you mean 'local'?"),
        ("name = 'a/b'", "name must be made of letters"),
        ("api_key = 5", "api_key must be text. "),
        ("port =", "must be a TOML file"),
        ("budget_cap = 2.0", "budget_cap needs a budget"),
        (
            "head_timeout = 5.0",
            "no setting. The proxy in front of the gateway has it: client_header_timeout in",
        ),
        ("[remote]\nretry_budget = 0.1", "no setting. Retries are at most a fifth of the calls"),
        (f'keys = "{"k" * 5000}"', "keys: 'k+...' can be the path of no file: File name too long"),
        (
            r'tls_cert = "a\u0000"' + '\ntls_key = "b"',
            "tls_cert: .* can be the path of no file: embedded null",
        ),
        (r'chat = {ledger = "a\u0000"}', "ledger: .* can be the path of no file: embedded null"),
        (
            f'providers.a = {{key = "i", columns = ["x"], path = "{"p" * 5000}"}}',
            "path: .* can be the path of no file",
        ),
    ],
)
def test_a_file_of_settings_that_breaks_a_rule_is_refused(tmp_path, text, words):
    path = tmp_path / "serve.toml"
    path.write_text(text)
    with pytest.raises(InvalidInputError, match=words.replace("?", r"\?").replace("'", ".")):
        read_config(path)


def test_settings_are_read_from_a_file_and_changed_by_options(tmp_path):
    path = tmp_path / "serve.toml"
    path.write_text('budget = 3\nfull = "http://127.0.0.1:9/v2/models/f"\n[remote]\ntotal_timeout = 0.5\n')
    config = read_config(path).with_changes(budget=2.0, port=None)
    assert config == Config(budget=2.0, full="http://127.0.0.1:9/v2/models/f", remote={"total_timeout": 0.5})


def test_every_answer_is_wholly_that_of_one_file_while_two_take_turns(open_gateway, numbers, question):
    chain = numbers.chain_
    stops = chain.at(Policy.of(np.full(chain.n_stages, np.inf)))
    files = [Loaded(numbers, "a"), Loaded(stops, "b")]
    whole = {one.version: open_gateway(one).ask("/predict", question).said for one in files}
    gateway = open_gateway(files[0], {"load": lambda: files[len(turns) % 2]})
    turns, seen = [], set()

    async def reloads():
        while len(turns) < 10 or len(seen) < 2:
            turns.append(await gateway.serving.reload())
            await asyncio.sleep(0.02)  # so that each file answers something, on a busy machine too

    async def asks():
        said = []
        while len(turns) < 10 or len(seen) < 2:
            said.append(await gateway.call("/predict", question))
            seen.add(said[-1].said["model_version"])
        return said

    async def both():
        return (await asyncio.gather(asks(), asks(), asks(), reloads()))[:3]

    said = [one for many in gateway.run(both()) for one in many]
    assert {one.status for one in said} == {200}
    assert {one.said["model_version"] for one in said} == {"a", "b"}
    assert all(one.said == whole[one.said["model_version"]] for one in said)


# -- several resources -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def of_two_resources():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(500, 3)).round(3), columns=["age", "ecg", "scan"])
    y = np.where(X["ecg"] + X["scan"] + 0.5 * X["age"] > 0, "sick", "well")
    costs = {"age": 0, "ecg": {"dollars": 5, "minutes": 20}, "scan": {"dollars": 20, "minutes": 5}}
    stages = StageOptions(sizes=[(10, 3)])
    cascade = BudgetedClassifier(
        LogisticRegression(), prices=Prices(costs), stages=stages, cv=2, random_state=0
    )
    return cascade.fit(X, y), X


def rows_of(X, first, n_rows=20):
    return {"rows": X.iloc[first : first + n_rows].to_dict("records")}


def test_budgets_of_two_resources_are_held_shown_and_changed(open_gateway, of_two_resources):
    cascade, X = of_two_resources
    most = cascade.expected_cost_
    budget = {"dollars": 0.6 * most["dollars"], "minutes": 0.5 * most["minutes"]}
    gateway = open_gateway(cascade, budget=budget, budget_window=200)
    paid = []
    for first in range(0, 400, 20):
        paid += gateway.ask("/predict", rows_of(X, first)).said["answers"]
    spent = {name: np.mean([one[f"cost_{name}"] for one in paid]) for name in budget}
    for name, limit in budget.items():
        assert spent[name] <= 1.15 * limit
    assert max(spent[name] / budget[name] for name in budget) > 0.85
    shown = gateway.admin("/metrics").said.decode()
    for name, amount in spent.items():
        total = float(re.search(rf'thrifty_spend_by_resource{{resource="{name}"}} (\S+)', shown)[1])
        assert total == pytest.approx(400 * amount, rel=1e-6)
        target = float(re.search(rf'thrifty_budgets_target{{resource="{name}"}} (\S+)', shown)[1])
        assert target == pytest.approx(budget[name])
    assert gateway.admin("/budget", {"budget": {"minutes": 0.0}}).status == 200
    free = gateway.ask("/predict", rows_of(X, 400)).said["answers"]
    assert np.mean([one["cost_minutes"] for one in free]) <= budget["minutes"]
    for refused in (3.0, {"hours": 1}, {"dollars": -1}):
        assert gateway.admin("/budget", {"budget": refused}).status == 400


def test_delays_are_billed_by_the_budget_that_sent_the_rows_and_not_by_a_later_one(
    open_gateway, of_two_resources, fake_remote
):
    _, X = of_two_resources
    y = X.sum(axis=1) > 0
    costs = {"age": 0, "ecg": {"dollars": 5, "days": 1}, "scan": {"dollars": 20, "days": 1}}
    prices, stages = Prices(costs, delays=["days"]), StageOptions(sizes=[(10, 3)])
    cascade = BudgetedClassifier(LogisticRegression(), prices=prices, stages=stages, cv=2, random_state=0)
    cascade.fit(X[::2], y[::2])

    class Changing(fake_remote):
        """A full model while which is asked the budget changes to that of purchases one by one, or stays."""

        later = None

        async def ask(self, rows, columns, n_outputs):
            if self.later is not None:
                await gateway.serving.change_budget(self.later)
            return await super().ask(rows, columns, n_outputs)

    paid = []
    for later in (None, {"dollars": 12.0}):
        remote = Changing(lambda rows: np.full((len(rows), 2), 0.5))
        gateway = open_gateway(cascade, {"remote": remote}, budget={"days": 0.7})
        remote.later = later
        answers = gateway.ask("/predict", rows_of(X, 0, 50)).said["answers"]
        assert remote.calls == 1
        paid.append([one["cost_days"] for one in answers])
    assert paid[1] == paid[0]


class Sold(RetryingSource):
    """Lines of a table by key."""

    def __init__(self, table):
        super().__init__(0)
        self.table = table

    def ask(self, rows, names):
        return self.table.loc[[self.keys[row] for row in rows], list(names)].to_numpy()


def test_budgets_of_two_resources_are_held_by_what_providers_sell(open_gateway, of_two_resources):
    cascade, X = of_two_resources
    most = cascade.expected_cost_
    budget = {"dollars": 0.6 * most["dollars"], "minutes": 0.5 * most["minutes"]}
    lab = {"lab": {"columns": ["ecg", "scan"], "key": "id", "path": "unread.csv"}}
    table = X.set_index(X.index.map(lambda row: f"n{row}"))
    gateway = open_gateway(
        cascade, {"sources": {"lab": Sold(table)}}, providers=lab, budget=budget, budget_window=200
    )
    paid = []
    for first in range(0, 400, 20):
        rows = [{"age": X["age"][row], "id": f"n{row}"} for row in range(first, first + 20)]
        paid += gateway.ask("/predict", {"rows": rows}).said["answers"]
    spent = {name: np.mean([one[f"cost_{name}"] for one in paid]) for name in budget}
    assert all(spent[name] <= 1.15 * limit for name, limit in budget.items())
    assert max(spent[name] / budget[name] for name in budget) > 0.8
    whole = gateway.ask("/predict", {"rows": X.iloc[:50].to_dict("records")}).said["answers"]
    assert {one["cost_minutes"] for one in whole} == {0.0}  # all columns came with the request


def test_what_a_live_budget_in_several_resources_cannot_do_is_refused(
    open_gateway, of_two_resources, numbers
):
    cascade, _ = of_two_resources
    with pytest.raises(InvalidInputError, match="budget_cap takes prices in one resource"):
        open_gateway(cascade, budget={"dollars": 9}, budget_cap=10.0)
    with pytest.raises(InvalidInputError, match="prices are in one resource"):
        open_gateway(numbers, budget={"dollars": 9})
    with pytest.raises(InvalidInputError, match="or a table of resources"):
        open_gateway(numbers, budget={"dollars": "9"})
