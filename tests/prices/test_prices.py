"""Prices as people write them: defaults, files and discounts, and that every door bills them alike."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import thrifty
from reproduction.rivals.greedy_miser import GreedyMiserClassifier
from thrifty import BudgetedClassifier, Prices, StageOptions
from thrifty.engine.prices.prices import check_price_list, resolve_prices
from thrifty.errors import InvalidInputError
from thrifty.reporting.measure import measure

NAMES = ["age", "glucose", "insulin", "ecg", "stress"]
BLOOD = {"blood": (["glucose", "insulin", "ecg"], 2.0)}
COSTS = [1.0, 17.0, 22.0, 5.0, 80.0]


def listed(prices):
    """What ``feature_costs`` or ``prices`` of an estimator says, with a price of the full model."""
    is_short = not isinstance(prices, Prices | str | Path)
    given = resolve_prices(prices if is_short else None, None if is_short else prices, Prices())
    return check_price_list(replace(given, full=3.0), 5, NAMES)


def paid_one_by_one(order):
    """What somebody pays who buys in this order and remembers whether blood has been drawn."""
    total, drawn = 0.0, False
    for name in order:
        in_blood = name in BLOOD["blood"][0]
        total += COSTS[NAMES.index(name)] - (2.0 if in_blood and drawn else 0.0)
        drawn |= in_blood
    return total


@pytest.mark.parametrize("n_bought", [1, 2, 3, 4])
def test_a_set_costs_what_its_purchases_cost_in_any_order(n_bought):
    prices = listed(Prices(COSTS, discounts=BLOOD))
    for order in itertools.permutations(NAMES, n_bought):
        columns = [NAMES.index(name) for name in order]
        assert prices.cost_of(columns) == pytest.approx(paid_one_by_one(order), abs=1e-12)
        used = np.zeros((1, 5), dtype=bool)
        used[0, columns] = True
        assert prices.cost_of_rows(used, np.zeros(1, bool))[0] == pytest.approx(paid_one_by_one(order))
        # and one purchase more costs what the list says that it costs then
        for more in set(range(5)) - set(columns):
            step = prices.prices_after(prices.bought_groups(columns))[more]
            assert prices.cost_of([*columns, more]) == pytest.approx(prices.cost_of(columns) + step)


def test_everything_costs_the_sum_less_what_is_saved_once_for_each_test_after_the_first():
    prices = listed(Prices(COSTS, discounts=BLOOD))
    assert prices.cost_of_everything == prices.cost_of_full == sum(COSTS) - 2 * 2.0 + 3.0


def test_columns_that_are_not_named_cost_the_default():
    given = Prices({"ecg": 15.5}, default=2.0)
    np.testing.assert_array_equal(listed(given).prices, [2.0, 2.0, 2.0, 15.5, 2.0])
    np.testing.assert_array_equal(listed(Prices(default=2.0)).prices, np.full(5, 2.0))
    with pytest.raises(InvalidInputError, match=r"no price for 'age'.*Prices\(costs, default=1.0\)"):
        listed({"ecg": 15.5})


def test_files_say_what_arguments_say(tmp_path):
    table = tmp_path / "prices.csv"
    table.write_text(
        "feature,cost,group,discount,saving\nglucose,17,,blood,2\ninsulin,22,,blood,2\necg,5,,blood,2\n"
        "stress,80,,,\n*,1,,,\n"
    )
    facts = tmp_path / "prices.json"
    costs = {"glucose": 17, "insulin": 22, "ecg": 5, "stress": 80}
    facts.write_text(json.dumps({"costs": costs, "default": 1, "discounts": BLOOD}))
    plain = tmp_path / "plain.json"
    plain.write_text(json.dumps(dict(zip(NAMES, COSTS, strict=True))))
    wanted = listed(Prices(COSTS, discounts=BLOOD))
    for path in (table, str(table), facts):
        assert listed(path).is_same(wanted)
    assert listed(plain).is_same(listed(COSTS))
    assert listed(Prices.of(wanted)).is_same(wanted)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (Prices(COSTS, discounts={"blood": (["glucose"], 2.0)}), "at least two purchases.*got 1"),
        (Prices(COSTS, discounts={"blood": (["age", "ecg"], 2.0)}), "saves 2 on column 'age', which costs 1"),
        (Prices(COSTS, discounts={"blood": (["glucos", "ecg"], 2.0)}), "Did you mean 'glucose'"),
        (Prices(COSTS, discounts={"blood": (["ecg", "glucose"], -1.0)}), "saving of .*'blood'.*-1.0"),
        (Prices(COSTS, discounts={"a": ([1, 2], 1.0), "b": ([2, 3], 1.0)}), "'insulin' is in two discounts"),
        (Prices(COSTS, discounts={"a": ([1, 9], 1.0)}), "column 9; X has columns 0 to 4"),
        (Prices(COSTS, discounts={"a": 2.0}), r"must be \(columns, saving\); got 2.0"),
        (Prices(COSTS, discounts=[2.0]), "must be a dict"),
        (
            Prices(
                default=5.0, groups={"ecg": "lab", "glucose": "lab"}, discounts={"a": (["lab", "age"], 1.0)}
            ),
            "'lab' is a group. Name one of its columns",
        ),
        (Prices({"ecgs": 1.0}, default=1.0), "Did you mean 'ecg'"),
        (Prices({"ecg": 1.0}, default=-1.0), "default must be .*-1.0"),
        ("nowhere.csv", "nowhere.csv cannot be read"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(given, words):
    with pytest.raises(InvalidInputError, match=words):
        listed(given)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("p.csv", "feature,cost,group,discount,saving\necg,5,,blood,\n", "only one of them"),
        ("p.csv", "feature,cost,discount,saving\necg,5,b,1\nage,5,b,2\n", "must save the same"),
        ("p.csv", "feature,cost\n", "no prices"),
        ("p.csv", "feature,cost,colour\necg,1,red\n", "got feature, cost, colour. Remove 'colour'"),
        ("p.csv", "feature,group,saving\necg,1,red\n", "columns of a table of prices are"),
        ("p.csv", "feature,cost,group,colour\necg,1,,red\n", "columns of a table of prices are"),
        ("p.csv", "ecg,-1\n", "'ecg' must be finite and at least 0"),
        ("p.json", "[1, 2]", "must hold an object; got list"),
        ("p.json", '{"costs": {}, "discount": {}}', "got 'discount'"),
        ("p.json", "{", "no JSON"),
    ],
)
def test_bad_files_are_refused_with_their_name(tmp_path, name, text, words):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InvalidInputError, match=rf"{name}.*{words}"):
        listed(path)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"feature_costs": COSTS, "prices": Prices(COSTS)}, "give feature_costs or prices, not both"),
        ({"feature_costs": Prices(COSTS)}, r"got a Prices. Give it as prices=\.\.\."),
        ({"feature_costs": "prices.csv"}, r"got a str. Give it as prices=\.\.\."),
        ({"prices": COSTS}, "prices must be a thrifty.Prices or the path of a file"),
    ],
)
def test_prices_are_said_in_one_place(patients, given, words):
    with pytest.raises(InvalidInputError, match=words):
        BudgetedClassifier(**given).fit(*patients)


# -- through the doors -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def patients():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(300, 5)), columns=NAMES)
    y = (X["glucose"] + X["insulin"] + 0.5 * X["stress"] + 0.3 * rng.normal(size=300) > 0).astype(int)
    return X, y


@pytest.fixture(scope="module")
def fitted(patients):
    X, y = patients
    prices = Prices(COSTS, discounts={"blood": (["glucose", "insulin"], 15.0)})
    return BudgetedClassifier(
        LogisticRegression(), prices=prices, stages=StageOptions(sizes=[(10, 2)]), cv=2, random_state=0
    ).fit(X, y)


@pytest.mark.slow
def test_rows_pay_by_what_they_bought_and_never_the_sum_of_single_prices(patients, fitted):
    X, _ = patients
    for budget in (20.0, 35.0, 60.0):
        at = fitted.at(budget=budget)
        bought = at.chain_.bought_by_place[at.chain_.walk(at._reader(X)).route]
        single = bought @ np.array(COSTS)
        both = bought[:, 1] & bought[:, 2]
        np.testing.assert_allclose(at.cost(X), single - 15.0 * both)
        assert both.any()


def test_a_discount_brings_the_tests_that_share_it_next_to_each_other(fitted):
    places = {NAMES[purchase]: place for place, purchase in enumerate(fitted.order_)}
    assert abs(places["glucose"] - places["insulin"]) == 1


def test_a_file_keeps_discounts_and_the_argument_that_made_them(fitted, patients, tmp_path):
    X, _ = patients
    path = tmp_path / "system.thrifty"
    thrifty.save(fitted, path)
    again = thrifty.load(path)
    assert again.chain_.price_list.is_same(fitted.chain_.price_list)
    assert again.feature_costs == fitted.feature_costs
    np.testing.assert_array_equal(again.cost(X), fitted.cost(X))


def test_trees_buy_the_second_of_two_tests_for_less(patients):
    X, y = patients
    dear, cheap = (
        GreedyMiserClassifier(prices=Prices([10.0] * 5, discounts=discounts), gamma=4.0, n_trees=20).fit(X, y)
        for discounts in ({}, {"blood": (["glucose", "insulin"], 10.0)})
    )
    assert set(dear.features_) < set(cheap.features_)


def test_a_report_adds_up_discounted_costs(patients, fitted):
    X, y = patients
    facts = measure(fitted, X, y, n_boot=40)
    assert facts.cost.full == sum(COSTS) - 15.0


@pytest.mark.slow
def test_the_command_line_bills_the_discounts_of_its_file(patients, tmp_path):
    from typer.testing import CliRunner

    from thrifty.cli import app

    X, y = patients
    X.assign(sick=y).to_csv(tmp_path / "table.csv", index=False)
    (tmp_path / "prices.csv").write_text(
        "feature,cost,discount,saving\nglucose,17,blood,15\ninsulin,22,blood,15\n*,30,,\n"
    )
    names = [str(tmp_path / name) for name in ("table.csv", "prices.csv", "s.thrifty")]
    options = [
        "--target",
        "sick",
        "--prices",
        names[1],
        "--full",
        "svm",
        "--budget",
        "30",
        "-o",
        names[2],
    ]
    run = CliRunner().invoke(app, ["fit", names[0], *options])
    assert run.exit_code == 0, run.output
    prices = thrifty.load(names[2]).chain_.price_list
    assert prices.cost_of([1, 2]) == 24.0
