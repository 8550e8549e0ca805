"""Routers and cascades of models whose answers cost several resources, with a budget for each."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

import thrifty
from thrifty import CascadeClassifier, Delivery, ModelRouter
from thrifty.cli import main
from thrifty.engine.full.seconds import Seconds
from thrifty.errors import InvalidInputError
from thrifty.learners.routing import model_cascade
from thrifty.reporting.measure import measure
from thrifty.reporting.page import report

NAMES = ["small", "fast", "slow"]
MEAN = {"dollars": [0.1, 2.0, 1.0], "seconds": [0.2, 0.5, 6.0]}
BOTH = {"dollars": 0.5, "seconds": 1.0}


def log_of(n_rows, seed):
    """A log in which the small model knows the easy rows; long rows cost more of everything."""
    rng = np.random.default_rng(seed)
    X = rng.random((n_rows, 2)).round(3)
    quality = rng.random((n_rows, 3)) > X[:, :1] * [1.0, 0.6, 0.1]
    length = (0.5 + X[:, 1:]) * rng.uniform(0.9, 1.1, (n_rows, 1))
    answers = np.where(quality, 0, rng.integers(1, 5, quality.shape))
    return {
        "X": X,
        "quality": quality.astype(float),
        "cost": {name: length * mean for name, mean in MEAN.items()},
        "answers": answers,
    }


@pytest.fixture(scope="module")
def log():
    return log_of(200, 0)


@pytest.fixture(scope="module")
def router(log):
    return ModelRouter(NAMES).fit(**log)


def without_quality(log):
    return {name: part for name, part in log.items() if name != "quality"}


def test_both_budgets_are_met_and_all_that_is_billed_is_that_of_the_models_asked(router, log):
    both = router.at(budget=BOTH)
    assert both.expected_cost_ == pytest.approx(BOTH)  # both bind
    new = log_of(3000, 1)
    replay = both.replay(**new)
    for k, (name, billed) in enumerate(new["cost"].items()):
        places = [[NAMES.index(model) for model in filter(None, asked)] for asked in replay.asked]
        paid = [billed[row, models].sum() for row, models in enumerate(places)]
        np.testing.assert_allclose(replay.costs[:, k], paid)
        np.testing.assert_allclose(both.cost(**without_quality(new))[name], paid)
        assert abs(np.mean(paid) / BOTH[name] - 1) < 0.2
        assert abs(both.cost(new["X"])[name].mean() / BOTH[name] - 1) < 0.2  # before anything is asked
    cheaper = [router.at(budget={name: limit}).expected_score_ for name, limit in BOTH.items()]
    assert both.expected_score_ < min(cheaper)


def test_two_budgets_are_kept_with_more_quality_than_the_router_of_any_single_exchange_rate_has(router, log):
    best = 0.0
    for weight in (0.3, 0.7):
        rates = {"dollars": weight / BOTH["dollars"], "seconds": (1 - weight) / BOTH["seconds"]}
        summed = sum(rates[name] * log["cost"][name] for name in rates)
        rival = ModelRouter(NAMES).fit(**{**log, "cost": summed})
        walks = [
            rival.walk(rival.read_log(**{**log, "cost": summed}), point)
            for point in range(len(rival.policy_))
        ]
        costs = []
        for walk in walks:  # each point of the rival, billed in both resources
            asked = np.array([np.bincount(row[row >= 0], minlength=3) for row in walk.asked])[
                :, rival_order(rival)
            ]
            costs.append([(asked * log["cost"][name]).sum(axis=1).mean() for name in BOTH])
        score, costs = rival.policy_.score, np.array(costs)
        for low in range(len(score) - 1):  # along its own frontier, as one exchange rate mixes
            for share in np.linspace(0, 1, 21):
                mean = (1 - share) * costs[low] + share * costs[low + 1]
                if np.all(mean <= [*BOTH.values()]):
                    best = max(best, (1 - share) * score[low] + share * score[low + 1])
    assert router.at(budget=BOTH).expected_score_ >= best - 1e-3


def rival_order(rival):
    """Place in the pool of each model of the log."""
    return [rival.pool_.index(name) for name in NAMES]


def test_a_file_keeps_the_mix_of_three_points_and_its_costs(router, log, tmp_path):
    both = router.at(budget=BOTH)
    assert len([share for share, _ in both.policy_.in_force if share > 0]) == 3
    certified = both.certified(**log_of(1500, 2), budget={"dollars": 1.2, "seconds": 3})
    assert set(certified.certificate_.bound) == set(BOTH)
    assert all(
        certified.certificate_.bound[name] <= limit for name, limit in certified.certificate_.budget.items()
    )
    for one in (both, certified):
        thrifty.save(one, tmp_path / "router.thrifty")
        back = thrifty.load(tmp_path / "router.thrifty")
        pd.testing.assert_frame_equal(back.cost(log["X"]), one.cost(log["X"]))
        assert back.budget == one.budget
        assert str(back.certificate_) == str(one.certificate_)


def test_sessions_and_receipts_say_what_was_paid_in_each_resource(router):
    def answering(rows):
        return Delivery(
            ["a"] * len(rows), cost={"dollars": np.full(len(rows), 0.5), "seconds": np.ones(len(rows))}
        )

    receipt = router.at(budget=BOTH).buy(dict.fromkeys(NAMES, answering), log_of(30, 3)["X"])
    n_asked = receipt.bought.sum(axis=1)
    np.testing.assert_allclose(receipt.costs, np.column_stack([0.5 * n_asked, n_asked]))
    session = router.start([0.1, 0.5])
    assert set(session.next_purchase.prices) == set(BOTH)
    first = session.next_purchase.name
    session = session.fail()
    assert session.costs == {"dollars": 0.0, "seconds": 0.0}
    session = session.give("a", cost={"dollars": 3.0})
    assert session.costs == {"dollars": 3.0, "seconds": 0.0}
    assert f"asked {first} (paid 0 dollars and 0 seconds)" in session.explain()
    with pytest.raises(InvalidInputError, match="name its resources"):
        router.start([0.1, 0.5]).give("a", cost=1.0)


def test_a_report_says_what_more_of_each_resource_buys(router, tmp_path):
    log = log_of(200, 6)
    log["y"] = log.pop("quality")
    facts = measure(router.at(budget=BOTH), **log, n_boot=20)
    replay = router.at(budget=BOTH).replay(log["X"], log["y"], log["cost"], log["answers"])
    assert [curve.value[facts.start] for curve in facts.costs] == pytest.approx(replay.costs.mean(axis=0))
    of_dollars, of_seconds, of_each = (float(text.split()[0]) for _, text in facts.more)
    assert 0 < of_dollars < of_each
    assert 0 < of_seconds < of_each  # both bind
    page = report(router.at(budget=BOTH), path=tmp_path / "page.html", **log).read_text()
    assert "10 % more seconds" in page
    assert facts.budgets_picture.startswith(b"\x89PNG")


def test_commands_read_a_log_with_a_column_of_costs_for_each_resource(tmp_path, capsys):
    log = log_of(40, 4)
    lines = [
        {
            "id": row,
            "x": log["X"][row, 0],
            "z": log["X"][row, 1],
            "model": model,
            "quality": log["quality"][row, place],
        }
        | {f"cost_{name}": billed[row, place] for name, billed in log["cost"].items()}
        for row in range(40)
        for place, model in enumerate(NAMES)
    ]
    path, out = tmp_path / "log.csv", tmp_path / "router.thrifty"
    pd.DataFrame(lines).to_csv(path, index=False)
    route = ["route", str(path), "-o", str(out), "--budget", "dollars=0.5", "--budget", "seconds=1", "--json"]
    assert main(route) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["expected_cost"] == pytest.approx(BOTH)
    assert set(facts["frontier"]["costs"]) == set(BOTH)
    answers = tmp_path / "answers.csv"
    assert main(["predict", str(out), str(path), "-o", str(answers), "--budget", "seconds=1.5"]) == 0
    assert "dollars" in capsys.readouterr().out
    assert pd.read_csv(answers)["cost_seconds"].mean() == pytest.approx(1.5, rel=0.3)
    assert main(["frontier", str(out)]) == 0
    assert "seconds" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda router, log: router.at(budget=1.0), "must name its resources"),
        (lambda router, log: router.at(budget={"dollars": 1e-4}), "The nearest is"),
        (lambda router, log: router.with_prices({"fast": 1.0}), "one resource"),
        (lambda router, log: router.with_model("new", 1.0, log["X"], log["quality"][:, 0]), "one resource"),
        (lambda router, log: router.replay(**{**log, "cost": log["cost"]["dollars"]}), "dict by resource"),
        (
            lambda router, log: ModelRouter({"a": 1.0, "b": {"dollars": 2}}).fit(None, log["quality"][:, :2]),
            "all be",
        ),
        (lambda router, log: ModelRouter(NAMES, after={"slow": {"fast": 1}}).fit(**log), "after= takes"),
    ],
)
def test_what_takes_one_resource_says_so(router, log, act, words):
    with pytest.raises(InvalidInputError, match=words):
        act(router, log)


@pytest.mark.filterwarnings("ignore::thrifty.errors.NothingSavedWarning")
def test_a_cascade_of_models_keeps_budgets_in_two_resources(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.random((300, 3)).round(3)
    y = (X[:, 0] > 0.5) ^ (X[:, 1] > 0.5 + 0.2 * (X[:, 2] - 0.5))
    models = [
        ("bayes", GaussianNB()),
        ("tree", DecisionTreeClassifier(max_depth=6)),
        ("forest", ExtraTreesClassifier(5)),
    ]
    prices = {
        "bayes": {"dollars": 1, "seconds": 2},
        "tree": {"dollars": 6, "seconds": 4},
        "forest": {"dollars": 4, "seconds": 9},
    }
    cascade = CascadeClassifier(
        models, model_prices=prices, columns=False, cv=2, max_asks=2, random_state=0
    ).fit(X[:240], y[:240])
    half = cascade.at(share=0.8)
    alone = next(
        each.cost for each in cascade.alternatives_ if each.name == f"{cascade.router_.best_model} alone"
    )
    assert all(half.expected_cost_[name] <= 0.8 * alone[name] + 1e-9 for name in alone)
    answers = half.answers(X[240:])
    pd.testing.assert_frame_equal(half.cost(X[240:]), pd.DataFrame({n: answers[f"cost_{n}"] for n in alone}))
    rivals = {rival.name: rival.cost[0] for rival in measure(half, X[240:], y[240:], n_boot=10).rivals}
    assert rivals["bayes alone"] < rivals["forest alone"]  # sums at the exchange rates
    asked = [explanation.bought for explanation in half.explain(X[240:])]
    expected = [[sum(prices[model][name] for model in models) for name in alone] for models in asked]
    np.testing.assert_allclose(half.cost(X[240:]), expected)
    with_clock = {name: {"dollars": price["dollars"], "seconds": None} for name, price in prices.items()}
    timed = CascadeClassifier(
        models[:2], model_prices={n: with_clock[n] for n in ("bayes", "tree")}, columns=False, cv=2
    )
    taken = {"bayes": Seconds(1.0, 0.25), "tree": Seconds(0.0, 0.5)}
    monkeypatch.setattr(model_cascade, "measure_seconds", lambda ask, _: taken[ask.args[0]])
    for name, price in timed.fit(X[:240], y[:240]).model_prices_.items():
        assert price["seconds"] == taken[name].of_row(timed.batch_size)
