"""Budgets that new rows keep with a stated probability, and the interval of the mean cost that a fit expects."""

import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from thrifty import BudgetedClassifier, ConfidenceRouter, Evidence, Policy, StageOptions, evidence_of
from thrifty.bundle import from_bytes, to_bytes
from thrifty.engine.evidence.budgets import CostBounds
from thrifty.errors import InvalidInputError

CASCADE = BudgetedClassifier(
    LinearDiscriminantAnalysis(), stages=StageOptions(max_stages=2, sizes=[(3, 2)]), cv=2, random_state=0
)
ROUTER = ConfidenceRouter(
    LinearDiscriminantAnalysis(), LinearDiscriminantAnalysis(), features=[0], random_state=0
)


def drawn(n_rows, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 4))
    return X, (X[:, 0] + X[:, 1] + 0.3 * rng.normal(size=n_rows) > 0).astype(int)


@pytest.fixture(scope="module")
def rows():
    return drawn(400)


@pytest.fixture(scope="module")
def new():
    return drawn(100, seed=1)


@pytest.fixture(scope="module")
def fitted(rows):
    return {recipe: clone(recipe).set_params(budget=2.5).fit(*rows) for recipe in (CASCADE, ROUTER)}


@pytest.fixture(params=[CASCADE, ROUTER], ids=["cascade", "single gate"])
def clf(request, fitted):
    return fitted[request.param]


def bound_of(paid, confidence):
    """Student's one-sided bound, by scipy."""
    return stats.t.ppf(confidence, len(paid) - 1, paid.mean(), stats.sem(paid))


def test_the_bound_on_new_rows_is_within_the_budget_and_nearly_spends_it(clf, new):
    kept = clf.certified(*new, budget=2.5, confidence=0.9)
    policy, seen = kept.chain_.policy, evidence_of(clf, *new)
    lower, upper = (seen.at_point(policy.thresholds[one])[1] for one in (policy.lower, policy.upper))
    paid = (1 - policy.share) * lower + policy.share * upper
    assert paid.mean() < 2.5 * 0.97 < bound_of(paid, 0.9) <= 2.5 * (1 + 1e-9)
    assert clf.certified(*new, budget=2.5, confidence=0.99).expected_cost_ < kept.expected_cost_


def test_a_loaded_fit_is_certified_as_before(clf, rows, new):
    again = from_bytes(to_bytes(clf))
    assert again.expected_cost_interval_ == clf.expected_cost_interval_
    one, other = (each.certified(*new, budget=2.0, confidence=0.8) for each in (clf, again))
    np.testing.assert_array_equal(one.route(rows[0]), other.route(rows[0]))


def test_what_cannot_be_shown_is_refused_with_what_may_be_spent(clf, rows, new):
    with pytest.raises(InvalidInputError, match=r"budget of 0.5 cannot be shown .* Raise the budget"):
        clf.certified(*new, budget=0.5, confidence=0.9)
    with pytest.raises(InvalidInputError, match="confidence must lie strictly between 0 and 1; got 1.0"):
        clf.certified(*new, budget=2.0, confidence=1.0)
    with pytest.raises(InvalidInputError, match="give one of max_loss, budget; got none"):
        clf.certified(*new)
    with pytest.raises(InvalidInputError, match="400 of the 400 rows to prove with"):
        clf.certified(*rows, budget=2.0)


def test_the_interval_of_the_cost_allows_for_the_copies_that_judged_the_rows(rows):
    plain = clone(ROUTER).set_params(budget=2.5).fit(*rows)
    low, high = plain.expected_cost_interval_
    assert low < plain.expected_cost_ < high
    assert not plain.chain_.policy.is_mixed
    paid = plain.evidence_.at_point(plain.chain_.policy.thresholds[0])[1]
    # Five copies judged the rows, and what serves is a sixth.
    assert high - low == pytest.approx(2 * stats.t.ppf(0.975, 399) * stats.sem(paid) * np.sqrt(6), rel=1e-9)


def test_equal_rows_are_one_observation_of_what_is_spent():
    gate = np.random.default_rng(0).normal(size=50)
    known = {"stop_cost": 1.0, "go_cost": 9.0, "stop_quality": gate > 0, "go_quality": gate > 0}
    once = Evidence.of_gate(gate, **known)
    often = once.take(np.repeat(np.arange(50), 20))
    policy = Policy.of(np.zeros(1))
    narrow = CostBounds(often, 1000).interval(policy, 0.95)
    assert CostBounds(often, 50).interval(policy, 0.95) == pytest.approx(
        CostBounds(once, 50).interval(policy, 0.95)
    )
    assert np.ptp(narrow) < np.ptp(CostBounds(once, 50).interval(policy, 0.95)) / 4


def test_the_interval_of_a_mix_holds_the_chance_of_who_follows_which_point():
    """Every row pays 1 at the one point and 9 at the other, so that new rows vary by that chance alone."""
    gate, mix = np.zeros(400), Policy.of(np.array([np.inf]), np.array([-np.inf]), share=0.25)
    seen = Evidence.of_gate(gate, stop_cost=1.0, go_cost=9.0, stop_quality=gate == 0, go_quality=gate == 0)
    low, high = CostBounds(seen, 400).interval(mix, 0.95)
    spent = 1 + 8 * np.random.default_rng(0).binomial(400, 0.25, 2000) / 400
    assert np.mean((low <= spent) & (spent <= high)) == pytest.approx(0.95, abs=0.02)
    assert CostBounds(seen, 400).interval(mix.at(0), 0.95) == (1.0, 1.0)


def test_costs_with_a_long_tail_keep_to_their_bound_as_often_as_stated():
    """Log-normal costs, of which one row in a hundred pays a third: Student's t alone is exceeded 15 times in 100."""
    rng, point = np.random.default_rng(0), Policy.of(np.zeros(1))
    draws = np.exp(1.5 * rng.standard_normal((400, 300, 1)))
    bounds = [CostBounds(Evidence.of_rules(paid, paid > 0), 300).bound(point, 0.95) for paid in draws]
    plain = stats.t.ppf(0.95, 299, draws.mean(axis=1), stats.sem(draws, axis=1))
    mean = np.exp(1.5**2 / 2)
    assert np.mean(np.array(bounds) < mean) <= 0.075 < np.mean(plain < mean)


@pytest.mark.slow
def test_means_of_new_rows_keep_to_a_budget_as_often_as_stated():
    """A gate whose scores are uniform sends on a share of all rows there are that is known exactly."""
    rng = np.random.default_rng(0)
    cuts = Policy.of(*np.linspace(1, 0, 21)[:, None])
    over, spent = 0, []
    for _ in range(200):
        gate = rng.random(120)
        seen = Evidence.of_gate(gate, stop_cost=1.0, go_cost=5.0, stop_quality=gate > 0, go_quality=gate > 0)
        chosen = CostBounds(seen, 120).within(cuts, 3.0, 0.9)
        cut = cuts.thresholds[[chosen.lower, chosen.upper], 0] @ [1 - chosen.share, chosen.share]
        spent.append(1.0 + 4.0 * (1 - cut))
        over += spent[-1] > 3.0
    assert 6 <= over <= 32  # 20 in the mean
    assert np.mean(spent) > 2.7
