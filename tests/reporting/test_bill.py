"""Pages of systems whose mistakes have prices, and measures beside accuracy: against predictions and scikit-learn."""

import re
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, confusion_matrix, log_loss

from thrifty import BudgetedClassifier, StageOptions, evidence_of
from thrifty.errors import InvalidInputError
from thrifty.reporting.measure import measure, mistake_kinds
from thrifty.reporting.page import page_of

PRICES = np.array([[0.0, 20.0, 3.0], [9.0, 1.0, 9.0], [6.0, 30.0, 0.0]])
"""A right answer may cost something too, such as a treatment."""
pytestmark = pytest.mark.slow

LOSSES = {"error": "error", "log": "log", "prices": PRICES}


@pytest.fixture(scope="module")
def systems():
    X, y = make_classification(340, 4, n_informative=3, n_redundant=0, n_classes=3, random_state=0)
    names = np.array(["a", "b", "c"])[y]
    small = {"stages": StageOptions(sizes=[(4, 2)]), "cv": 2, "random_state": 0}
    fitted = {
        name: BudgetedClassifier(LogisticRegression(), loss=loss, **small).fit(X[:180], names[:180])
        for name, loss in LOSSES.items()
    }
    return fitted, X[180:], names[180:]


def measured(systems, name, **known):
    fitted, X, y = systems
    one = fitted[name]
    there = one.frontier_.on([evidence_of(one, X, y)])
    facts = measure(one, X, y, n_boot=60, **known)
    return one, X, y, there, facts


@pytest.fixture(scope="module")
def priced(systems):
    return measured(systems, "prices")


@pytest.mark.parametrize("name", LOSSES)
def test_measures_are_those_of_scikit_learn_with_the_bands_of_the_frontier(systems, name):
    one, X, y, there, facts = measured(systems, name)
    curves = {curve.name: curve for curve in facts.measures}
    expected = {
        "balanced accuracy": balanced_accuracy_score(y, one.predict(X)),
        "log-loss": log_loss(y, one.predict_proba(X)),
    }
    assert set(curves) == {"AUC", *expected, *(["accuracy"] if name == "prices" else [])}
    assert {key: curves[key].value[facts.marked["deployed"]] for key in expected} == pytest.approx(expected)
    shown = [place for place in range(len(facts)) if facts.efficient[place]]
    table = there.measures(there.chosen.cost, n_boot=60, seed=0)
    for key, curve in curves.items():
        if not curve.low:
            continue
        for column, values in ((key, curve.value), (f"{key}_low", curve.low), (f"{key}_high", curve.high)):
            np.testing.assert_allclose([values[place] for place in shown], table[column])
    full = one.chain_.ask_full(one.chain_.reader(X), np.arange(len(y)))
    assert curves["log-loss"].full == pytest.approx(log_loss(y, full))
    shares = np.unique(y, return_counts=True)[1] / len(y)
    assert curves["log-loss"].constant == pytest.approx(log_loss(y, np.tile(shares, (len(y), 1))))


def test_answers_that_lose_by_probability_are_shown_as_right_answers(systems):
    one, X, y, _, facts = measured(systems, "log")
    assert facts.score.name == "accuracy"
    assert facts.score.value[facts.marked["deployed"]] == np.mean(one.predict(X) == y)
    full = one.chain_.ask_full(one.chain_.reader(X), np.arange(len(y))).argmax(axis=1)
    assert facts.score.full == np.mean(one.classes_[full] == y)
    assert facts.held_out


def test_a_bill_adds_up_from_the_answers_and_their_prices(priced):
    one, X, y, _, facts = priced
    place = facts.marked["deployed"]
    table = confusion_matrix(y, one.predict(X))
    assert facts.score.value[place] == pytest.approx((table * PRICES).sum() / len(y))
    assert facts.total.value[place] == pytest.approx(one.cost(X).mean() + (table * PRICES).sum() / len(y))
    classes = one.classes_.tolist()
    kinds = {(classes.index(kind.truth), classes.index(kind.answer)): kind for kind in facts.mistakes}
    assert set(kinds) == set(map(tuple, np.argwhere(PRICES > 0).tolist()))
    for pair, kind in kinds.items():
        assert (kind.price, kind.count[place]) == (PRICES[pair], table[pair])
        assert kind.lost[place] == pytest.approx(table[pair] * PRICES[pair] / len(y))
    assert sum(kind.full for kind in facts.mistakes) == pytest.approx(facts.score.full)
    for at in range(len(facts)):
        assert sum(kind.lost[at] for kind in facts.mistakes) == pytest.approx(facts.score.value[at])
        assert facts.total.low[at] < facts.total.value[at] < facts.total.high[at]
        assert facts.score.low[at] < facts.score.value[at] < facts.score.high[at]
    constant = (np.unique(y, return_counts=True)[1] @ PRICES) / len(y)
    assert facts.score.constant == pytest.approx(constant.min())


def test_the_point_of_least_total_cost_is_chosen_on_the_rows_of_the_choice_and_marked(
    systems, priced, monkeypatch
):
    _, _, _, there, facts = priced
    least = int(np.argmin(there.chosen.cost - there.chosen.score))
    assert facts.budget[facts.marked["least total cost"]] == pytest.approx(there.chosen.cost[least])
    assert "least total cost" in facts.marks(facts.marked["least total cost"])
    monkeypatch.setattr("thrifty.reporting.measure.MAX_POINTS", 2)
    thinned = measured(systems, "prices")[-1]
    assert thinned.budget[thinned.marked["least total cost"]] == pytest.approx(there.chosen.cost[least])


def test_the_page_of_a_bill_tells_totals_and_does_not_count_right_answers(priced):
    facts = replace(priced[-1], unit="EUR")
    page = page_of(facts)
    shown = re.sub("<[^>]*>", " ", page.split('<script type="application')[0].split("</style>")[1])
    least = facts.marked["least total cost"]
    for tests, mistakes in (
        (facts.cost.value[least], facts.score.value[least]),
        (facts.cost.full, facts.score.full),
    ):
        total, *parts = (f"{amount * (1 + 1e-9):.2f}" for amount in (tests + mistakes, tests, mistakes))
        assert f"{total}\N{NO-BREAK SPACE}EUR per row, {parts[0]} for tests and {parts[1]} for" in shown
    for words in ("What tests and mistakes cost", "What mistakes cost", "least total cost", "Deployed:"):
        assert words in shown
    for words in ("is right on", "majority class", "Answers right"):
        assert words not in shown


def test_the_interval_of_a_total_holds_tests_and_mistakes_of_the_same_draws(priced):
    one, X, y, _, facts = priced
    place, rng = facts.marked["deployed"], np.random.default_rng(0)
    said = one.classes_.searchsorted(one.predict(X))
    total = one.cost(X) + PRICES[one.classes_.searchsorted(y), said]
    drawn = total[rng.integers(0, len(y), size=(4000, len(y)))].mean(axis=1)
    width = np.subtract(*np.quantile(drawn, [0.975, 0.025]))
    assert facts.total.high[place] - facts.total.low[place] == pytest.approx(width, rel=0.25)


def test_a_rival_that_is_judged_by_right_answers_is_refused_beside_a_bill(systems, priced):
    fitted, X, y = systems
    one, _, _, there, _ = priced
    with pytest.raises(InvalidInputError, match="'plain'.*share of right answers.*what mistakes cost"):
        measure(one, X, y, rivals={"plain": fitted["error"]}, n_boot=60)
    rival = measure(one, X, y, rivals={"itself": there}, n_boot=60).rivals[0]
    np.testing.assert_allclose(rival.score, -there.score)


def test_of_many_kinds_of_mistakes_the_cheapest_share_a_line():
    rng = np.random.default_rng(0)
    costs = rng.uniform(1, 5, size=(6, 6))
    np.fill_diagonal(costs, 0.0)
    truth, said = rng.integers(0, 6, size=(2, 300))
    kinds = mistake_kinds(list("abcdef"), costs, truth, [said], None)
    assert (len(kinds), kinds[-1].truth, kinds[-1].price) == (20, "11 other kinds", None)
    assert sum(kind.lost[0] for kind in kinds) == pytest.approx(costs[truth, said].mean())
    assert sum(kind.count[0] for kind in kinds) == np.sum(truth != said)
