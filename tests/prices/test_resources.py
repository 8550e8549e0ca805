"""Prices in several resources, and budgets of all of them at once."""

import ast
import itertools
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer

import thrifty
from thrifty import BudgetedClassifier, Prices, StageOptions, hold_budget
from thrifty.cli import main
from thrifty.engine.evidence.budgets import (
    best_mix,
    certified_within,
    mix_within,
    mixes_up_to,
    nearest_limits,
)
from thrifty.engine.evidence.measures import recalls_at
from thrifty.engine.prices.prices import check_price_list
from thrifty.engine.walk.policy import Policy
from thrifty.errors import InvalidInputError
from thrifty.rows import key_words

NAMES = ["age", "ecg", "blood", "scan"]
COSTS = {
    "age": 0,
    "ecg": {"dollars": 30, "minutes": 20},
    "blood": {"dollars": 8, "minutes": 5},
    "scan": {"minutes": 60},
}
FULL = {"dollars": 2, "minutes": 1}


@pytest.fixture(scope="module", autouse=True)
def small_fits_of_module(while_fits_are_small):
    """What these tests show does not depend on how much is searched for."""
    with while_fits_are_small():
        yield


def price_list(**parts):
    return check_price_list(Prices(COSTS, full=FULL, **parts), 4, NAMES)


def test_rows_are_billed_in_each_resource_and_the_sum_is_at_the_exchange_rates():
    prices = price_list(discounts={"visit": (["ecg", "blood"], {"dollars": 3, "minutes": 4})})
    used = np.array([[True, True, True, False], [True, True, True, True], [True, False, False, False]])
    costs = prices.costs_of_rows(used, np.array([False, True, False]))
    np.testing.assert_allclose(costs, [[35, 21], [37, 82], [0, 0]])
    total = prices.cost_of_rows(used, np.array([False, True, False]))
    np.testing.assert_allclose(total, costs @ prices.resources.rates)
    assert prices.resources.names == ("dollars", "minutes")


def test_a_table_of_prices_has_a_column_for_each_resource():
    rows = [["feature", "dollars", "minutes"], ["age", "0", "0"], ["ecg", "30", "20"], ["*", "8", "5"]]
    frame = pd.DataFrame({"dollars": [0, 30, 8, 8], "minutes": [0, 20, 5, 5]}, index=NAMES)
    lists = [
        check_price_list(prices, 4, NAMES).resources.lists
        for prices in (Prices.from_rows(rows), Prices(frame), Prices(frame.reset_index(drop=True)))
    ]
    for each in lists:
        assert [of.prices.tolist() for of in each] == [[0, 30, 8, 8], [0, 20, 5, 5]]
    in_one = Prices.from_rows([["feature", "cost", "group"], ["age", "1", "2"], ["ecg", "1", "2"]])
    assert in_one.groups == {"age": "2", "ecg": "2"}  # a group, not a resource


def test_prices_of_a_price_list_are_those_it_was_made_from():
    prices = price_list(discounts={"visit": (["ecg", "blood"], {"dollars": 3})})
    assert check_price_list(Prices.of(prices), 4, NAMES).is_same(prices)
    assert not price_list().is_same(prices)
    assert prices.resources.at_rates(np.array([1.0, 7.0])).is_same(prices)  # rates are no prices


@pytest.mark.parametrize(
    ("prices", "message"),
    [
        (Prices({**COSTS, "age": 1.0}, full=FULL), "price of 'age' must be a dict by resource"),
        (Prices(COSTS, full=2.0), "full must be a dict by resource"),
        (Prices(COSTS, by_row={"ecg": "age"}), "must be in one resource"),
        (Prices({**COSTS, "age": {"dollars": -1}}), ">= 0"),
    ],
)
def test_prices_that_name_no_resource_among_others_are_refused(prices, message):
    with pytest.raises(InvalidInputError, match=message):
        check_price_list(prices, 4, NAMES)


# -- mixes of operating points -----------------------------------------------------------------------


def best_by_hand(costs, score, limits):
    """The best mean score of a mix, by trying every vertex: as many points as constraints, all of them solved."""
    n_points, n_resources = costs.shape
    best = -np.inf
    for size in range(1, n_resources + 2):
        for points in map(list, itertools.combinations(range(n_points), size)):
            for binding in itertools.combinations(range(n_resources), size - 1):
                left = np.vstack([costs[points].T[list(binding)], np.ones(size)])
                if abs(np.linalg.det(left)) < 1e-12:
                    continue
                shares = np.linalg.solve(left, np.r_[limits[list(binding)], 1.0])
                if np.all(shares >= -1e-9) and np.all(shares @ costs[points] <= limits + 1e-9):
                    best = max(best, float(shares @ score[points]))
    return best


@pytest.mark.parametrize("n_resources", [1, 2, 3])
def test_a_mix_is_as_good_as_the_best_vertex_and_has_few_points(n_resources):
    rng = np.random.default_rng(n_resources)
    for _ in range(40):
        costs, score = rng.uniform(0, 10, (7, n_resources)), rng.uniform(size=7)
        limits = rng.uniform(1, 9, n_resources)
        shares, best = mix_within(costs, score, limits), best_by_hand(costs, score, limits)
        if shares is None:
            assert best == -np.inf
            nearest = nearest_limits(costs, limits)
            assert np.all(nearest >= limits)
            assert mix_within(costs, score, nearest * (1 + 1e-9)) is not None
            continue
        assert float(shares @ score) == pytest.approx(best, abs=1e-7)
        assert np.count_nonzero(shares) <= n_resources + 1
        assert np.all(shares @ costs <= limits * (1 + 1e-9))


def test_keys_follow_each_point_of_a_mix_as_often_as_its_share_says():
    thresholds = np.array([[np.inf, np.inf], [0.0, np.inf], [0.0, 0.0], [-np.inf, 0.0]])
    policy = Policy(thresholds, np.arange(4.0), np.zeros(4)).mixed(
        np.array([0, 2, 3]), np.array([0.5, 0.2, 0.3])
    )
    follows = policy.follows(key_words(np.arange(20_000)))
    counts = np.bincount(follows, minlength=4) / len(follows)
    np.testing.assert_allclose(counts, [0.5, 0.0, 0.2, 0.3], atol=0.015)
    assert policy.parting == 0
    assert policy.expected_cost == pytest.approx(0.2 * 2 + 0.3 * 3)


# -- a fit -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table():
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    return X.iloc[:, :6], y


@pytest.fixture(scope="module")
def fitted(table):
    X, y = table
    dollars, minutes = [1, 9, 2, 6, 3, 4], [20, 2, 11, 1, 9, 4]
    costs = {
        name: {"dollars": d, "minutes": m} for name, d, m in zip(X.columns, dollars, minutes, strict=True)
    }
    few = StageOptions(sizes=[(20, 3)])
    clf = BudgetedClassifier(
        prices=Prices(costs, full=FULL),
        budget={"dollars": 8, "minutes": 14},
        stages=few,
        cv=2,
        random_state=0,
    )
    return clf.fit(X[::2], y[::2])


def test_costs_have_a_column_for_each_resource_and_keep_to_the_budgets(fitted, table):
    X, _ = table
    expected = fitted.expected_cost_
    assert expected["dollars"] <= 8 * (1 + 1e-9)
    assert expected["minutes"] <= 14 * (1 + 1e-9)
    costs = fitted.cost(X)
    assert costs.columns.tolist() == ["dollars", "minutes"]
    low, high = fitted.expected_cost_interval_["minutes"]
    assert low < expected["minutes"] < high
    bought = fitted.chain_.bought_by_place[fitted.chain_.places(fitted.chain_.walk(fitted.chain_.reader(X)))]
    asks_full = fitted.route(X) == fitted.chain_.n_stages
    by_hand = fitted.chain_.price_list.costs_of_rows(bought, asks_full)
    np.testing.assert_array_equal(costs.to_numpy(), by_hand)


def test_rows_of_a_mix_have_the_same_costs_alone_in_a_table_and_from_a_file(fitted, table, tmp_path):
    X, _ = table
    tight = fitted.at(budget={"dollars": 7, "minutes": 12})
    assert tight.chain_.policy.is_mixed
    costs = tight.cost(X)
    alone = pd.concat([tight.cost(X.iloc[[row]], row_key=[row]) for row in range(60)], ignore_index=True)
    pd.testing.assert_frame_equal(costs[:60], alone)
    thrifty.save(tight, tmp_path / "several.thrifty")
    loaded = thrifty.load(tmp_path / "several.thrifty")
    pd.testing.assert_frame_equal(loaded.cost(X), costs)
    assert (
        loaded.at(budget={"minutes": 12}).expected_cost_ == fitted.at(budget={"minutes": 12}).expected_cost_
    )


def test_budgets_that_nothing_meets_are_refused_with_the_nearest(fitted):
    with pytest.raises(
        InvalidInputError, match=r"nearest is \{'dollars': [\d.]+, 'minutes': [\d.]+\}"
    ) as refused:
        fitted.at(budget={"dollars": 0.5, "minutes": 0.5})
    nearest = ast.literal_eval(str(refused.value).split("nearest is ")[1].rstrip("."))
    assert fitted.at(budget=nearest).expected_cost_.keys() == nearest.keys()


def test_recalls_are_reached_within_budgets_of_several_resources(fitted):
    budget, evidence = {"dollars": 7.0, "minutes": 12.0}, fitted.evidence_
    free = fitted.at(budget=budget)

    def recall(system):
        shares, points = zip(*system.chain_.policy.in_force, strict=True)
        return float(
            np.array(shares) @ recalls_at(evidence, system.chain_.policy.thresholds[list(points)], 2)[:, 0]
        )

    floor = recall(free) + 0.004
    reached = fitted.at(budget=budget, min_recall={0: floor})
    assert recall(reached) >= floor - 1e-9
    assert all(reached.expected_cost_[name] <= limit * (1 + 1e-9) for name, limit in budget.items())
    assert reached.expected_score_ <= free.expected_score_
    cheapest = fitted.at(min_recall={0: floor})
    assert recall(cheapest) >= floor - 1e-9
    assert cheapest.chain_.policy.expected_cost <= reached.chain_.policy.expected_cost + 1e-9
    assert not fitted.at(budget=budget, min_recall={0: floor - 0.02}, mix=False).chain_.policy.is_mixed
    with pytest.raises(InvalidInputError, match="with recalls of at least 1; .* with recalls of"):
        fitted.at(budget={"dollars": 1.0, "minutes": 0.5}, min_recall={0: 1.0})


@pytest.mark.parametrize(
    ("budget", "message"), [(3.0, "must name its resources"), ({"euro": 1}, "must be of dollars")]
)
def test_budgets_of_other_resources_are_refused(fitted, budget, message):
    with pytest.raises(InvalidInputError, match=message):
        fitted.at(budget=budget)


def test_an_explanation_names_what_was_paid_in_each_resource(fitted, table):
    X, _ = table
    one = fitted.explain(X[:1])[0]
    assert one.costs == fitted.cost(X[:1]).iloc[0].to_dict()
    assert f"{one.costs['dollars']:g} dollars and {one.costs['minutes']:g} minutes" in str(one)
    assert one.as_dict()["stages"][0]["costs"].keys() == {"dollars", "minutes"}


def test_a_certificate_keeps_to_all_budgets_and_is_below_the_estimate(fitted, table):
    X, y = table
    budget = {"dollars": 8, "minutes": 14}
    proved = fitted.certified(X[1::2], y[1::2], budget=budget, confidence=0.9, duplicates="drop")
    for name, limit in budget.items():
        assert proved.expected_cost_[name] < limit
    bounds = [SimpleNamespace(bound=lambda *_: 1.0, n_rows=9), SimpleNamespace(bound=lambda *_: 99.0)]
    resources, policy = fitted.chain_.price_list.resources, fitted._learned.policy
    with pytest.raises(InvalidInputError, match="cannot be shown .* may be 99 minutes"):
        certified_within(mixes_up_to(policy, np.array([8.0, 14.0])), bounds, resources, budget, 0.9)


def test_a_batch_keeps_to_all_budgets_exactly_and_as_well_as_any_mix_of_its_own_points(fitted, table):
    X, _ = table
    budget = {"dollars": 7.0, "minutes": 12.0}
    for rows in (X[1::2], X[:40]):
        held = hold_budget(fitted, rows, budget)
        spent = held.cost(rows).mean()
        assert all(spent[name] <= limit * (1 + 1e-9) for name, limit in budget.items())
        assert max(spent[name] / limit for name, limit in budget.items()) > 0.9
    with pytest.raises(InvalidInputError, match="The nearest is"):
        hold_budget(fitted, X[:40], {"dollars": 0.01})


def test_what_was_bought_is_learned_from_in_several_resources_as_in_one(table):
    X, y = table
    mask = np.random.default_rng(0).random(X.shape) < 0.7
    incomplete = X.where(mask)
    prices = {key: 1.0 + place for place, key in enumerate(X.columns)}
    both = {key: {"dollars": price, "minutes": 2 * price} for key, price in prices.items()}
    settings = {"stages": StageOptions(max_stages=3, sizes=[(8, 3)]), "cv": 2, "random_state": 0}
    one, two = (
        BudgetedClassifier(prices=Prices(each), **settings).fit(incomplete, y, bought=mask)
        for each in (prices, both)
    )
    np.testing.assert_array_equal(one.order_, two.order_)
    np.testing.assert_allclose(one.evidence_.gate, two.evidence_.gate)
    limit = float(np.mean(one.frontier_.cost))
    single, double = one.at(budget=limit), two.at(budget={"dollars": limit, "minutes": 100 * limit})
    assert double.expected_cost_["dollars"] <= limit * (1 + 1e-9)
    assert double.expected_cost_["minutes"] == pytest.approx(2 * double.expected_cost_["dollars"])
    assert double.expected_score_ == pytest.approx(single.expected_score_, abs=0.02)


# -- other doors -------------------------------------------------------------------------------------


def test_bought_rows_are_billed_in_each_resource(fitted, table):
    X, _ = table
    receipt = fitted.buy(lambda rows, columns: X.iloc[rows][columns], n_rows=80, row_key=X.index[:80])
    pd.testing.assert_frame_equal(receipt.costs, fitted.cost(X[:80]))
    assert {"cost_dollars", "cost_minutes"} < set(receipt.to_pandas())
    session = fitted.start(key=int(X.index[5]))
    while (wanted := session.next_purchase) is not None:
        before = session.costs
        session.give(X.iloc[5][list(wanted.columns)].to_dict())
        paid = {name: session.costs[name] - before[name] for name in before}
        assert wanted.prices == pytest.approx(paid) or session.route == fitted.chain_.n_stages
    assert session.costs == fitted.cost(X)[5:6].iloc[0].to_dict()
    assert "dollars and" in repr(session)


def test_commands_take_budgets_and_write_costs_by_resource(table, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    X, y = table
    X.round(3).assign(y=y).to_csv("rows.csv", index=False)
    amounts = zip(X.columns, [1, 9, 2, 6, 3, 4], [20, 2, 11, 1, 9, 4], strict=True)
    lines = ["feature,dollars,minutes", *(f"{name},{d},{m}" for name, d, m in amounts)]
    Path("prices.csv").write_text("\n".join(lines))
    fit = "fit rows.csv --target y --prices prices.csv --full svm --full-cost dollars=2 -o several.thrifty"
    assert main([*fit.split(), *["--budget", "dollars=8", "--budget", "minutes=14"]]) == 0
    assert "mean cost in minutes" in capsys.readouterr().out
    assert main(["predict", "several.thrifty", "rows.csv", "-o", "out.csv", "--budget", "minutes=12"]) == 0
    out, loaded = pd.read_csv("out.csv"), thrifty.load("several.thrifty").at(budget={"minutes": 12})
    expected = loaded.cost(X.round(3)).add_prefix("cost_")
    pd.testing.assert_frame_equal(out[["cost_dollars", "cost_minutes"]], expected)
    assert main(["predict", "several.thrifty", "rows.csv", "-o", "out.csv", "--budget", "12"]) != 0
    assert "must name its resources" in capsys.readouterr().err
    assert main([*fit.split(), "--budget", "minutes=12", "--delay", "minutes"]) == 0
    assert thrifty.load("several.thrifty").chain_.price_list.resources.delays == ("minutes",)


def test_budgets_are_spent_where_scores_differ_by_less_than_their_error():
    def mixed(error, limits):
        policy = Policy(
            np.arange(3.0)[:, None],
            np.array([1.0, 2.0, 6.0]),
            np.array([0.8, 0.79, 0.7]),
            costs=np.array([[0.5, 0.5], [1.0, 1.0], [3.0, 3.0]]),
            error=error,
        )
        return best_mix(policy, np.array(limits)).expected_costs.tolist()

    assert mixed(0.0, [1.0, 1.0]) == [0.5, 0.5]
    assert mixed(0.1, [1.0, 1.0]) == pytest.approx([1.0, 1.0])
    assert mixed(0.1, [3.0, 3.0]) == pytest.approx([1.0, 1.0])  # the last point scores less by more than that
    assert mixed(0.1, [1.0, np.inf]) == [0.5, 0.5]  # what has no limit is not there to be spent
