"""Models that are asked at once, so that they wait together, and caps of routers: what no row ever pays."""

import itertools
import threading
import time

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

import thrifty
from thrifty import CascadeClassifier, ModelRouter
from thrifty.cli import main
from thrifty.engine.walk.next_model import at_once
from thrifty.errors import InvalidInputError

PRICES = {
    "a": {"dollars": 1.0, "seconds": 2.0},
    "b": {"dollars": 1.5, "seconds": 2.5},
    "c": {"dollars": 2.0, "seconds": 3.0},
}


def log_of(n_rows, seed):
    """Three models that err independently; two that agree are right."""
    rng = np.random.default_rng(seed)
    quality = (rng.random((n_rows, 3)) > 0.3).astype(float)
    answers = np.where(quality > 0, 0, rng.integers(1, 9, quality.shape))
    return {"X": rng.random((n_rows, 2)).round(3), "quality": quality, "answers": answers}


@pytest.fixture(scope="module")
def routers():
    return {ask: ModelRouter(PRICES, ask=ask).fit(**log_of(300, 0)) for ask in ("in turn", "parallel")}


def test_seconds_are_the_longest_of_a_round_and_dollars_add(routers):
    router, new = routers["parallel"], log_of(500, 1)
    read = router.read_log(**new)
    names, lengths = router.pool_, set()
    for point in range(len(router.policy_)):
        replay, family = router.walk(read, point), router.state_.families[router.state_.point_family[point]]
        number = at_once(family, int(router.state_.point_place[point]))
        lengths.add(int(number))
        for asked, paid in itertools.islice(zip(replay.asked, replay.costs, strict=True), 50):
            models = [PRICES[names[model]] for model in asked if model >= 0]
            waits = [price["seconds"] for price in models]
            seconds = max(waits[:number]) + sum(waits[number:])
            assert paid == pytest.approx([sum(price["dollars"] for price in models), seconds])
    assert lengths >= {1, 2}


def test_where_time_is_scarce_models_are_asked_at_once_and_where_money_is_they_are_not(routers):
    hurried = {ask: router.at(budget={"seconds": 3.0}) for ask, router in routers.items()}
    assert hurried["parallel"].expected_score_ > hurried["in turn"].expected_score_ + 0.03
    assert hurried["parallel"].expected_cost_["seconds"] <= 3.0 + 1e-9
    poor = {ask: router.at(budget={"dollars": 2.6}) for ask, router in routers.items()}
    assert poor["parallel"].expected_score_ >= poor["in turn"].expected_score_ - 0.005


def test_sessions_name_the_models_of_a_round_and_are_billed_as_replays_are(routers):
    router, new = routers["parallel"].at(budget={"seconds": 3.0}), log_of(40, 2)
    replay, n_rounds = router.replay(**new), 0
    names = list(PRICES)
    for row, session in enumerate(router.sessions(new["X"], router.unasked(new["X"]))):
        while (purchase := session.next_purchase) is not None:
            n_rounds += len(purchase.at_once) > 1
            assert not purchase.at_once or purchase.at_once[0] == purchase.name
            session.give(str(new["answers"][row, names.index(purchase.name)]))
        assert [*session.costs.values()] == pytest.approx(replay.costs[row])
        assert session.cost == pytest.approx(replay.cost[row])
    assert n_rounds > 0


def test_buy_asks_the_models_of_a_round_at_the_same_time(routers):
    router, new = routers["parallel"].at(budget={"seconds": 3.0}), log_of(60, 3)
    running, most, lock = [0], [0], threading.Lock()

    def model(name):
        def ask(rows):
            with lock:
                running[0] += 1
                most[0] = max(most[0], running[0])
            time.sleep(0.05)
            with lock:
                running[0] -= 1
            place = list(PRICES).index(name)
            at = [int(np.flatnonzero((new["X"] == row).all(axis=1))[0]) for row in rows]
            return [str(new["answers"][row, place]) for row in at]

        return ask

    receipt = router.buy({name: model(name) for name in PRICES}, new["X"])
    assert most[0] >= 2
    np.testing.assert_allclose(receipt.costs, router.replay(**new).costs)


def test_a_file_keeps_rounds_and_caps(routers, tmp_path):
    router, new = routers["parallel"].at(budget={"seconds": 3.5}, cap={"dollars": 3.5}), log_of(50, 4)
    thrifty.save(router, tmp_path / "router.thrifty")
    loaded = thrifty.load(tmp_path / "router.thrifty")
    np.testing.assert_array_equal(loaded.replay(**new).costs, router.replay(**new).costs)
    assert loaded.at(budget={"seconds": 6.0}).replay(**new).costs[:, 0].max() <= 3.5


@pytest.mark.parametrize(
    "cap",
    [
        {"dollars": 1.0},
        {"dollars": 2.6},
        {"seconds": 2.5},
        {"seconds": 4.5},
        {"dollars": 3.0, "seconds": 3.0},
    ],
)
@pytest.mark.parametrize("ask", ["in turn", "parallel"])
def test_no_row_pays_more_than_the_cap_also_where_models_fail(routers, ask, cap):
    router, new, rng = routers[ask].at(cap=cap), log_of(2000, 5), np.random.default_rng(0)
    limits = np.array([cap.get(name, np.inf) for name in ("dollars", "seconds")]) + 1e-9
    for system in (router, router.at(budget={"dollars": 2.0, "seconds": 3.0})):
        assert np.all(system.replay(**new).costs <= limits)
        assert np.all(system.cost(new["X"]) <= limits)
    for session in router.sessions(new["X"][:60], router.unasked(new["X"][:60])):
        while (purchase := session.next_purchase) is not None:
            if rng.random() < 0.4:
                session.fail(cost=PRICES[purchase.name])
            else:
                session.give(str(rng.integers(3)))
        assert np.all(np.array([*session.costs.values()]) <= limits)


def test_a_cap_that_leaves_all_routes_changes_nothing_and_one_below_the_cheapest_model_is_refused(routers):
    router, new = routers["in turn"], log_of(100, 6)
    free = router.at(cap={"dollars": 100.0}, budget={"dollars": 3.0})
    np.testing.assert_array_equal(
        free.replay(**new).costs, router.at(budget={"dollars": 3.0}).replay(**new).costs
    )
    with pytest.raises(InvalidInputError, match="the price of the cheapest model"):
        router.at(cap={"dollars": 0.5})
    log, rng = log_of(100, 0), np.random.default_rng(0)
    with pytest.raises(InvalidInputError, match="max_cost keeps a ceiling per request"):
        ModelRouter(["a", "b", "c"], cap=2.0).fit(**log, cost=rng.uniform(1, 2, (100, 3)))
    with pytest.raises(InvalidInputError, match="'parallel' takes costs in several resources"):
        ModelRouter({"a": 1.0, "b": 2.0, "c": 3.0}, ask="parallel").fit(**log)


def test_a_cap_of_one_resource_holds_with_evidence_and_the_rules_that_read_it():
    rng = np.random.default_rng(0)
    X = rng.random((600, 2)).round(3)
    evidence = rng.random((600, 3)).round(3)
    quality = (rng.random((600, 3)) < evidence).astype(float)
    answers = np.where(quality > 0, 0, rng.integers(1, 5, quality.shape))
    router = ModelRouter({"a": 1.0, "b": 2.0, "c": 4.0}, cap=5.5).fit(
        X, quality, answers=answers, evidence=evidence
    )
    dearest = [
        router.at(budget=budget).replay(X, quality, answers=answers, evidence=evidence).cost.max()
        for budget in (1.5, 3.0, 5.0, 9.0)
    ]
    assert max(dearest) <= 5.5
    assert max(dearest) == 5.0  # a and c


def test_commands_keep_caps_and_ask_at_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log = log_of(120, 0)
    pd.DataFrame(
        {
            "id": np.repeat(np.arange(120), 3),
            "model": [*PRICES] * 120,
            "quality": log["quality"].ravel(),
            "answer": log["answers"].ravel(),
        }
    ).to_csv("log.csv", index=False)
    pd.DataFrame(PRICES).T.rename_axis("model").to_csv("models.csv")
    route = ["route", "log.csv", "--models", "models.csv", "-o", "router.thrifty"]
    assert main([*route, "--parallel", "--cap", "seconds=2.6"]) == 0
    router = thrifty.load("router.thrifty")
    assert (router.ask, router.cap) == ("parallel", {"seconds": 2.6})
    assert (
        router.at(budget={"dollars": 9.0})
        .replay(None, log["quality"], answers=log["answers"])
        .costs[:, 1]
        .max()
        <= 2.6
    )


@pytest.mark.filterwarnings("ignore::thrifty.errors.NothingSavedWarning")
def test_a_cascade_of_models_asks_in_threads_and_keeps_its_cap():
    X, y = load_breast_cancer(return_X_y=True)
    models = [
        ("bayes", GaussianNB()),
        ("tree", DecisionTreeClassifier(max_depth=2)),
        ("forest", ExtraTreesClassifier(10, random_state=0)),
    ]
    prices = {"bayes": PRICES["a"], "tree": PRICES["b"], "forest": PRICES["c"]}
    clf = CascadeClassifier(models, model_prices=prices, ask="parallel", random_state=0)
    clf = clf.fit(X[:300, :6], y[:300]).at(cap={"seconds": 3.0})
    assert clf.cost(X[300:, :6])["seconds"].max() <= 3.0
    assert clf.at(budget={"dollars": 4.0}).score(X[300:, :6], y[300:]) > 0.8
    with pytest.raises(InvalidInputError, match="measured seconds differ"):
        CascadeClassifier(models).fit(X[:300, :6], y[:300]).at(cap=1.0)
