"""Which size and order a cascade takes."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeRegressor

from thrifty import BudgetedClassifier, BudgetedRegressor, StageOptions
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.tasks.classes import BinaryTask
from thrifty.engine.trees import bin_columns
from thrifty.learners.cascade import learn, orders, stages
from thrifty.learners.cascade.estimators import check_sizes
from thrifty.learners.cascade.evaluation import compare
from thrifty.learners.cascade.orders import ORDERS
from thrifty.learners.cascade.plan import choose_plan
from thrifty.learners.cascade.problem import (
    CAPACITIES,
    MAX_PURCHASES,
    CascadeProblem,
    Plan,
    lighter,
)
from thrifty.learners.trees.boosting import Boosting
from thrifty.rows import content_folds
from thrifty.threads import call_with_timeout


def problem(X, y, sizes, report=None):
    y = np.where(y, 1.0, -1.0)
    folds = content_folds(X, y, 3)
    known = CascadeProblem(
        task=BinaryTask(np.array([0, 1])),
        table=bin_columns(X),
        y=y,
        weight=np.ones(len(y)),
        folds=[np.flatnonzero(folds == fold) for fold in range(3)],
        price_list=PriceList(np.ones(X.shape[1]), np.arange(X.shape[1])),
        capacities=sizes,
        progress=(lambda *_: None) if report is None else report,
    )
    return known.with_full(2 * y[:, None])


SMALL, LARGE = Boosting(n_trees=5, max_depth=2), Boosting(n_trees=60, max_depth=8)
MIDDLE = Boosting(n_trees=40, max_depth=6)


def test_labels_that_are_chance_take_the_smallest_size():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    assert choose_plan(problem(X, rng.random(300) < 0.5, (SMALL, LARGE))).boosting is SMALL


@pytest.mark.parametrize("flipped", [0.0, 0.35])
def test_few_rows_take_small_penalties_unless_labels_are_half_chance(flipped):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = (X[:, 0] > 1.2) ^ (rng.random(200) < flipped)
    sizes = check_sizes(None, 200)
    assert sizes == (CAPACITIES[0], lighter(CAPACITIES[0]))
    assert choose_plan(problem(X, y, sizes)).boosting is sizes[flipped == 0.0]
    assert check_sizes(None, 50) == sizes[:1]
    assert check_sizes(None, 1000) == CAPACITIES[:2]


@pytest.mark.slow
def test_labels_that_need_many_splits_take_the_large_size():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 3))
    y = (np.sin(4 * X[:, 0]) + np.sin(3 * X[:, 1]) > 0) ^ (rng.random(1500) < 0.02)
    assert choose_plan(problem(X, y, (SMALL, LARGE))).boosting is LARGE


def test_every_order_is_found_and_told():
    rng = np.random.default_rng(0)
    X, told = rng.normal(size=(200, 3)), []
    plan = choose_plan(problem(X, X[:, 1] > 0, (SMALL,), lambda *what: told.append(what)))
    assert plan.order[0] == 1
    assert [done for what, done, _ in told if what == "finding orders"] == list(range(1, len(ORDERS) + 1))
    assert set(ORDERS) == {"elimination", "gain", "falling price"}


def test_what_several_orders_begin_with_is_grown_once(monkeypatch):
    grown, grow = [], orders.total_gains
    monkeypatch.setattr(orders, "total_gains", lambda *known: grown.append(len(known[1])) or grow(*known))
    X = np.random.default_rng(0).normal(size=(200, 4))
    choose_plan(problem(X, X.sum(axis=1) > 0, (SMALL,)))
    assert grown == [4, 3, 2]  # and the last purchase that is left needs no trees


def test_stages_of_few_rows_stop_at_some_hundred_purchases():
    wide = problem(np.random.default_rng(0).normal(size=(100, 2000)), np.arange(100) % 2 == 0, (SMALL,))
    assert wide.places[-1] == MAX_PURCHASES


def test_a_lead_counts_a_row_of_weight_two_as_two_rows():
    gains = np.random.default_rng(0).normal(0.1, 1.0, size=200)
    nothing, twice = np.zeros(200), np.repeat(gains, 2)
    lead = compare(gains, nothing, np.full(200, 2.0))
    assert lead == pytest.approx(compare(twice, np.zeros(400), np.ones(400)))
    assert lead == -compare(nothing, gains, np.full(200, 2.0))
    # What differs in the last bits is level, whatever its standard error.
    assert compare(nothing + 1.0, nothing + 1.0 - 1e-16, np.ones(200)) == 0.0


def test_sizes_grow():
    work = [size.n_trees * 2**size.max_depth for size in CAPACITIES]
    assert work == sorted(work)


@pytest.mark.parametrize(
    ("budget", "cheap", "first"),
    [(None, [1.0, 1.0], 1), (None, [3.0, 3.0], 0), (2.0, [1.0, 1.0], 1), (2.0, [1.0, 0.0], 0)],
    ids=["none", "none, nearly equal prices", "tight", "free"],
)
def test_an_order_begins_with_a_purchase_that_small_budgets_pay_for_unless_something_is_free(
    budget, cheap, first
):
    """Column 0 says everything, for 5, and beside it column 1, a copy of it with noise, is worth nothing.

    Beginning with column 0, no row is served for less than 5; beginning with column 1, some are.
    """
    X = np.random.default_rng(0).normal(size=(200, 3))
    X[:, 1] = X[:, 0] + 2 * X[:, 1]
    prices = PriceList(np.array([5.0, *cheap]), np.arange(3))
    known = problem(X, X[:, 0] > 0, (SMALL,))
    found = choose_plan(replace(known, price_list=prices, budget=budget))
    assert found.order[0] == first
    assert sorted(found.order.tolist()) == np.flatnonzero(prices.prices).tolist()


@pytest.mark.parametrize(("dear", "seed"), [(1, 0), (2, 0)], ids=["one", "two"])
@pytest.mark.filterwarnings("ignore::thrifty.errors.FullModelNotWorthItWarning")
def test_scores_at_budgets_below_a_dear_purchase_are_expected_as_they_are_found(dear, seed):
    """Orders by gain, which correct the expected score, begin with a dear purchase: nothing there costs as little."""

    def draw(n_rows, seed):
        X = np.random.default_rng(seed).normal(size=(n_rows, 5)).round(3)
        return X, X @ [3.0, 1.0 if dear == 1 else 2.0, 0.8, 0.5, 0.0] > 0

    (X, y), new = draw(700, seed), draw(20_000, 99)
    clf = BudgetedClassifier(
        LogisticRegression(),
        feature_costs=[4.0] * dear + [1.0] * (5 - dear),
        stages=StageOptions(sizes=[(40, 3)]),
        cv=3,
        random_state=0,
    ).fit(X, y)
    assert clf.order_[0] >= dear
    for budget in (1.05, 2.0, 4.0):
        there = clf.at(budget=budget)
        low, high = there.expected_score_interval_
        assert low - 0.01 <= there.score(*new) <= high + 0.01


def test_an_error_in_the_first_fold_ends_a_fit(monkeypatch):
    """Other folds wait for the numbers of trees that the first one finds."""

    def fail(*_):
        raise MemoryError("no room")

    monkeypatch.setattr(stages, "EarlyStopping", fail)
    X = np.random.default_rng(0).normal(size=(200, 3))
    known = replace(problem(X, X[:, 0] > 0, (SMALL,)), n_threads=2)
    plan = Plan("gain", np.arange(3), tuple(np.arange(n + 1) for n in range(3)), SMALL)

    def grow():
        with ThreadPoolExecutor(2) as pool:
            learn._start_line(known, plan, pool).result(known, plan.sets)

    with pytest.raises(MemoryError, match="no room"):
        call_with_timeout(20.0, grow, "the stages")


def test_trees_that_have_not_seen_the_few_rows_that_are_held_out_serve():
    X = np.random.default_rng(0).normal(size=(400, 3))
    plan = Plan("gain", np.arange(3), tuple(np.arange(n + 1) for n in range(3)), SMALL)
    for n_held_out, is_few in ((20, True), (21, False)):
        fold = np.arange(n_held_out)
        known = replace(problem(X, X.sum(axis=1) > 0, (SMALL,)), folds=[fold])
        with ThreadPoolExecutor(1) as pool:
            serving = learn._start_line(known, plan, pool).result(known, plan.sets).trees
        without = stages.grow_stages(known, plan.sets, SMALL, held_out=fold).to_serve()
        values = [np.concatenate([part.values for part in trees.parts]) for trees in (serving, without)]
        assert np.array_equal(*values) == is_few


def zones(n_rows):
    """A size, two coordinates, a code that says as much as both, and chance."""
    world, rng = np.random.default_rng(1), np.random.default_rng(0)
    centre, code, peak = world.uniform(size=(70, 2)), world.permutation(70), world.uniform(size=(8, 2))
    height = np.exp(-np.square(centre[:, None] - peak).sum(axis=2) / 0.03) @ world.normal(size=8)
    effect = centre[:, 0] / centre[:, 0].std() + height / height.std()
    zone, X = rng.integers(0, 70, n_rows), rng.normal(size=(n_rows, 5))
    X[:, 1:3] = centre[zone] + 0.01 * X[:, 1:3]
    X[:, 3] = code[zone]
    return X.round(4), X[:, 0] + effect[zone] - effect.mean()


@pytest.mark.filterwarnings("ignore::thrifty.errors.FullModelNotWorthItWarning")
def test_a_budget_for_two_purchases_buys_the_code_that_says_what_two_coordinates_say():
    """Trees over all columns read the coordinates: orders made from them buy the code behind both."""
    (X, y), full = zones(2000), DecisionTreeRegressor(min_samples_leaf=20, random_state=0)
    reg = BudgetedRegressor(full, budget=2.0, stages=StageOptions(sizes=[(40, 6)]), cv=2, random_state=0)
    reg.fit(X[:1500], y[:1500])
    assert set(reg.order_[:2].tolist()) == {0, 3}
    assert reg.score(X[1500:], y[1500:]) > 0.9  # with one coordinate in place of the code about .75


def test_purchases_of_chance_are_made_last():
    """Gains on the rows of the fit prefer chance of many values to a weak column of two."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 7))
    X[:, 6] = X[:, 6] > 0
    y = X[:, 5] + 0.8 * (X[:, 6] - 0.5) + rng.logistic(size=1500) > 0
    known = problem(X, y, (SMALL,))
    learner = orders.Learner(known, known.price_list, MIDDLE)
    assert orders.by_gain(learner)[-1] == 6
    assert choose_plan(known).order[:2].tolist() == [5, 6]
