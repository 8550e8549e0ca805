"""The paper's budget, (OPT1): what columns are charged, against finite differences and every subset of columns."""

from itertools import combinations

import numpy as np
import pytest
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.frozen import FrozenEstimator

from reproduction.settings import estimator_of
from thrifty import (
    DynaModGbrtClassifier,
    DynaModGbrtRegressor,
    DynaModLinClassifier,
    DynaModLstsqClassifier,
    Prices,
)
from thrifty.engine.evidence.thresholds import threshold_curve
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.tasks.classes import BinaryTask
from thrifty.engine.trees import bin_columns
from thrifty.errors import InvalidInputError, UnspentBudgetWarning
from thrifty.learners.dynamod import Problem, alternate
from thrifty.learners.dynamod.boosted import BoostedPair
from thrifty.learners.dynamod.group_lasso import LinearCoefficients
from thrifty.learners.dynamod.linear import LinearPair
from thrifty.learners.dynamod.objective import DISTANCES
from thrifty.learners.dynamod.qstep import q_step_kl, q_step_squared
from thrifty.learners.trees.boosting import Boosting

TASK = BinaryTask(np.array([0, 1]))
COSTS = np.array([1.0, 3.0, 1.0, 2.0])
RNG = np.random.default_rng(4)
X = RNG.normal(size=(400, 4))
# The first and the dear second column tell the label, mostly; the third tells where only a call does.
HARD = X[:, 2] > 0.8
TRUTH = np.where(HARD, X[:, 3] * X[:, 1], X[:, 0] + 0.3 * X[:, 1]) > 0
LABEL = TRUTH ^ (RNG.random(400) < 0.04)


class Knows(ClassifierMixin, BaseEstimator):
    """A full model that knows all but the noise."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        hard = X[:, 2] > 0.8
        label = np.where(hard, X[:, 3] * X[:, 1], X[:, 0] + 0.3 * X[:, 1]) > 0
        return np.column_stack([np.where(label, 0.04, 0.96), np.where(label, 0.96, 0.04)])


FULL = FrozenEstimator(Knows().fit(X, LABEL))
BOOSTING = Boosting(n_trees=10, max_depth=2, learning_rate=0.4)
FAMILIES = {
    "linear": (DynaModLinClassifier, {"max_iter": 10, "tol": 1e-2, "standardize": False}),
    "boosted": (
        DynaModGbrtClassifier,
        {"n_trees": 10, "max_depth": 2, "learning_rate": 0.4, "max_iter": 5, "tol": 1e-2},
    ),
}


@pytest.mark.parametrize(("distance", "q_step"), [("kl", q_step_kl), ("squared", q_step_squared)])
def test_the_charge_is_what_a_dearer_pair_costs_the_best_shares(distance, q_step):
    excess, g = RNG.normal(size=(2, 60)) * 2
    behind = RNG.uniform(4.0, 6.0, size=60)

    def solved(price):
        return q_step(excess, g, 1.5 - price, extra_cost=behind - price)

    def value(price):
        t = solved(price).value
        return np.mean(expit(-t) * excess + DISTANCES[distance](t, g))

    step = solved(1.0)
    assert step.multiplier > 0
    charge = step.multiplier * np.mean(expit(-step.value))
    assert charge == pytest.approx((value(1.0 + 1e-4) - value(1.0 - 1e-4)) / 2e-4, rel=1e-3)


def pair_of(family, columns):
    free = PriceList(np.zeros(len(columns)), np.arange(len(columns)))
    if family == "linear":
        start = LinearCoefficients(np.zeros((len(columns), 2)), np.zeros(2))
        return LinearPair(0.0, free, l2=1e-3, start=start), X[:, columns]
    return BoostedPair(bin_columns(X[:, columns]), free, 0.0, BOOSTING, TASK), None


def loss_of(family, columns, budget):
    """Loss at the threshold that spends the budget, of the best pair that has bought just these columns."""
    y, full_loss = np.where(LABEL, 1.0, -1.0), -np.log(np.where(LABEL == TRUTH, 0.96, 0.04))
    stop, extra = COSTS[columns].sum(), COSTS.sum() - COSTS[columns].sum()
    pair, table = pair_of(family, columns)
    run = alternate(pair, table, Problem(y, full_loss, TASK, (budget - stop) / extra), max_iter=20, tol=1e-4)
    g, f1 = run.value.pair.scores(table)
    curve = threshold_curve(g, stop, COSTS.sum(), -TASK.loss(y).values(f1), -full_loss)
    return -curve.score[curve.within(budget).lower]


@pytest.mark.slow
@pytest.mark.parametrize("budget", [1.6, 3.5])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_budget_buys_the_columns_that_trying_every_subset_buys(family, budget):
    subsets = [list(some) for size in (1, 2, 3) for some in combinations(range(4), size)]
    losses = {tuple(some): loss_of(family, some, budget) for some in subsets if COSTS[some].sum() < budget}
    kind, how = FAMILIES[family]
    clf = estimator_of(kind, FULL, budget=budget, feature_costs=COSTS, cv=3, random_state=0, **how).fit(
        X, LABEL
    )
    found = losses[tuple(clf.features_.tolist())]
    others = sorted(losses.values())
    assert found <= others[0] + 0.25 * (others[-1] - others[0])
    assert clf.expected_cost_ <= budget + 1e-9


def test_over_given_trees_a_budget_is_the_cap_that_their_columns_leave():
    local = FrozenEstimator(GradientBoostingClassifier(n_estimators=3, max_depth=3).fit(X, LABEL))
    made = {"prices": Prices(COSTS, full=4.0), "max_iter": 3, "tol": 1.0, "trust": 0.0, "random_state": 0}
    clf = estimator_of(DynaModLstsqClassifier, FULL, local, budget=8.0, **made).fit(X, LABEL)
    stop = COSTS[clf.features_].sum()
    with pytest.raises(InvalidInputError, match=f"budget must be at least {stop:g}, the price"):
        estimator_of(DynaModLstsqClassifier, FULL, local, budget=stop - 0.5, **made).fit(X, LABEL)
    cap = (8.0 - stop) / (COSTS.sum() + 4.0 - stop)
    by_cap = estimator_of(DynaModLstsqClassifier, FULL, local, budget=8.0, p_full=cap, **made).fit(X, LABEL)
    for ours, theirs in zip(clf.scores(X), by_cap.scores(X), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_a_given_gamma_is_kept_and_one_that_follows_is_told():
    how = {"feature_costs": COSTS, "n_trees": 3, "max_iter": 1, "cv": 2, "random_state": 0}
    assert estimator_of(DynaModGbrtClassifier, FULL, gamma=2.0, budget=4.0, **how).fit(X, LABEL).gamma_ == 2.0
    assert estimator_of(DynaModGbrtClassifier, FULL, p_full=0.2, **how).fit(X, LABEL).gamma_ == 1.0
    wide, narrow = (
        estimator_of(DynaModGbrtClassifier, FULL, budget=one, **how).fit(X, LABEL) for one in (6.0, 1.2)
    )
    assert wide.gamma_ < narrow.gamma_
    assert COSTS[narrow.features_].sum() <= 1.2


@pytest.mark.parametrize("kind", [DynaModLinClassifier, DynaModGbrtClassifier, DynaModGbrtRegressor])
def test_a_budget_below_the_cheapest_purchase_is_refused_before_the_fit(kind):
    class Untouched(BaseEstimator):
        def fit(self, X, y):
            raise AssertionError

    with pytest.raises(InvalidInputError, match="budget must be at least 1, the price of the cheapest gate"):
        kind(Untouched(), budget=0.5, feature_costs=COSTS).fit(X, LABEL.astype(float))


def test_a_budget_that_is_left_unspent_while_calls_would_help_is_a_warning():
    how = {"feature_costs": COSTS, "n_trees": 3, "max_iter": 1, "random_state": 0}
    with pytest.warns(UnspentBudgetWarning, match="spends 0 of the budget of 4 a row"):
        estimator_of(DynaModGbrtClassifier, FULL, gamma=1e6, budget=4.0, **how).fit(X, LABEL)
