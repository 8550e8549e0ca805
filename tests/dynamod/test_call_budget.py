"""Learning under a budget, (OPT1): what is left for calls once the columns are bought."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.naive_bayes import GaussianNB

from reproduction.settings import estimator_of
from thrifty import DynaModGbrtClassifier, DynaModLinClassifier, DynaModLstsqClassifier, Prices
from thrifty.learners.dynamod import BoostedOptions
from thrifty.learners.dynamod import alternating as call_budget
from thrifty.learners.dynamod.alternating import CallBudget

X, Y = load_breast_cancer(return_X_y=True)
X, Y = X[:200, :5], Y[:200]
COSTS = np.array([1.0, 2.0, 2.0, 3.0, 1.5])


@pytest.fixture
def asked(monkeypatch):
    """Every limit that a q-step was given, with the columns it was for."""
    found, of = [], CallBudget.of

    def listen(self, columns):
        found.append((columns, *of(self, columns)))
        return found[-1][1:]

    monkeypatch.setattr(call_budget.CallBudget, "of", listen)
    return found


def test_the_limit_is_what_the_columns_leave_and_a_call_costs_what_is_not_bought_yet(asked):
    clf = DynaModLinClassifier(GaussianNB(), gamma=0.05, budget=6.0, prices=Prices(COSTS, full=4.0))
    clf.set_params(options__max_iter=3, options__tol=1.0, random_state=0).fit(X, Y)
    assert len(asked[0][0]) == 0
    assert len(asked) > 1
    for columns, limit, extra in asked:
        bought = COSTS[columns].sum()
        np.testing.assert_allclose(extra, COSTS.sum() + 4.0 - bought)
        assert limit == pytest.approx(max(6.0 - bought, 0.01 * extra[0]))


def test_behind_a_chain_a_call_costs_what_each_row_pays_there(asked):
    behind = DynaModLinClassifier(GaussianNB(), gamma=0.05, feature_costs=COSTS, random_state=0).fit(X, Y)
    behind = behind.at(budget=0.5 * (behind.cost(X).min() + COSTS.sum())).chain_
    front = DynaModGbrtClassifier(
        behind, options=BoostedOptions(n_trees=3, max_iter=2, tol=1.0), gamma=3.0, budget=5.0
    )
    front.set_params(feature_costs=COSTS, random_state=0).fit(X, Y)
    assert len(np.unique(behind.cost(X))) > 1
    np.testing.assert_allclose(asked[0][2], behind.cost(X))
    columns, limit, extra = asked[-1]
    wide_open = front.at(threshold=-np.inf)
    np.testing.assert_allclose(extra, wide_open.cost(X) - COSTS[columns].sum())
    assert limit == pytest.approx(5.0 - COSTS[columns].sum())


def test_where_features_are_free_a_budget_is_the_paper_s_cap():
    made = {"n_trees": 3, "max_iter": 3, "tol": 1.0, "budget": 0.2, "random_state": 0}
    by_budget = estimator_of(DynaModLstsqClassifier, GaussianNB(), **made).fit(X, Y)
    by_cap = estimator_of(DynaModLstsqClassifier, GaussianNB(), p_full=0.2, **made).fit(X, Y)
    for ours, theirs in zip(by_budget.scores(X), by_cap.scores(X), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_without_a_budget_a_cap_that_is_left_out_is_three_tenths():
    made = {"gamma": 0.02, "feature_costs": COSTS, "random_state": 0}
    plain = estimator_of(DynaModLinClassifier, GaussianNB(), **made).fit(X, Y)
    named = estimator_of(DynaModLinClassifier, GaussianNB(), p_full=0.3, **made).fit(X, Y)
    np.testing.assert_array_equal(plain.scores(X), named.scores(X))
