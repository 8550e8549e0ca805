import copy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thrifty import BudgetedClassifier, Chain, Policy, hold_budget
from thrifty.engine.evidence.budgets import CostBounds, within_budget
from thrifty.engine.evidence.evidence import Evidence
from thrifty.engine.evidence.thresholds import measured, with_points_between
from thrifty.engine.full.model import CallableFull
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.tasks.classes import BinaryTask
from thrifty.engine.walk.stage import LinearStage
from thrifty.errors import InvalidInputError

TASK = BinaryTask(np.arange(2))
PRICES = PriceList(np.ones(4), np.arange(4), 6.0)


def full(table):
    return 1 / (1 + np.exp(-np.asarray(table).sum(axis=1)))


def system(n_stages=1, answer=full, prices=PRICES):
    """Gates read one column each: whole numbers tie."""
    stages = [LinearStage(np.array([place]), np.ones((1, 2)), np.zeros(2)) for place in range(n_stages)]
    return Chain(tuple(stages), CallableFull(answer, TASK), prices, TASK, Policy.of(np.zeros(n_stages)))


def batch(seed, n=60, *, values=3):
    chance = np.random.default_rng(seed)
    return np.column_stack(
        [chance.integers(0, values, n), chance.integers(-2, 3, n), chance.normal(size=(n, 2))]
    )


@pytest.mark.slow
@given(st.integers(0, 10_000), st.floats(1.0, 12.0), st.integers(1, 2), st.integers(1, 60))
@settings(deadline=None)
def test_a_batch_spends_at_most_its_budget_and_one_more_row_would_be_too_much(seed, budget, n_stages, n):
    X = batch(seed, n)
    held = hold_budget(system(n_stages), X, budget)
    spent = held.cost(X).mean()
    assert spent <= budget * (1 + 1e-9)
    if (held.route(X) == 0).any():
        assert spent > budget - 9.0 / n - 1e-9  # f0 and everything costs 10, the first column 1


@pytest.mark.parametrize("unit", [1e-100, 1e-14, 1e100])
def test_the_unit_of_the_prices_does_not_matter_to_a_budget_that_is_held(unit):
    X = batch(3)
    priced = system(prices=PriceList(np.full(4, unit), np.arange(4), 6 * unit))
    spent = hold_budget(priced, X, 4.2 * unit).cost(X).mean() / unit
    assert spent == pytest.approx(hold_budget(system(), X, 4.2).cost(X).mean())
    assert spent <= 4.2


def test_rows_with_higher_scores_are_sent_before_those_with_lower_ones():
    X = batch(3)
    held = hold_budget(system(), X, 4.2)
    sent = held.route(X) == 1
    assert held.policy.is_mixed
    assert X[sent, 0].min() >= X[~sent, 0].max()


def test_rows_that_are_equal_in_every_column_are_parted_where_the_budget_ends():
    X = np.repeat(batch(5, 10), 6, axis=0)
    held = hold_budget(system(), X, 4.0)
    routes = held.route(X).reshape(10, 6)
    assert (routes != routes[:, :1]).any()
    assert 4.0 - 9.0 / 60 < held.cost(X).mean() <= 4.0


def test_budgets_for_everybody_and_for_nobody_send_all_rows_and_none():
    X = batch(6)
    assert (hold_budget(system(), X, 1.0).route(X) == 0).all()
    assert (hold_budget(system(), X, 10.0).route(X) == 1).all()
    assert (hold_budget(system(), X, 99.0).route(X) == 1).all()


def test_a_batch_of_no_rows_has_nothing_to_hold():
    assert hold_budget(system(), np.empty((0, 4)), 4.0).route(np.empty((0, 4))).shape == (0,)


def test_f0_is_not_asked():
    def never(table):
        raise AssertionError

    hold_budget(system(answer=never), batch(7), 4.0)


def test_what_cannot_be_held_is_refused():
    with pytest.raises(InvalidInputError, match=r"budget must be at least 1, the mean cost of the cheapest"):
        hold_budget(system(), batch(8), 0.5)
    with pytest.raises(InvalidInputError, match="a gate to cut, .* the Chain has no stage"):
        hold_budget(system(0), batch(8), 5.0)
    with pytest.raises(InvalidInputError, match="needs a chain, or a fitted estimator .* the str is none"):
        hold_budget("system", batch(8), 5.0)
    with pytest.raises(InvalidInputError, match="BudgetedClassifier is not fitted"):
        hold_budget(BudgetedClassifier(), batch(8), 5.0)


def at_its_dearest(clf):
    return clf.chain_.at(clf.chain_.policy.at(len(clf.chain_.policy) - 1))


@pytest.mark.slow
@pytest.mark.parametrize("budget", [1.3, 2.0, 3.1, 5.0])
def test_a_cascade_spends_what_its_batch_may_and_not_more(cascade, budget):
    clf, batch, _ = cascade
    paid = hold_budget(clf, batch, budget).cost(batch)
    dearest = at_its_dearest(clf).cost(batch).mean()
    assert paid.mean() <= budget * (1 + 1e-9)
    assert paid.mean() > min(budget, dearest) - 0.15  # one lump of equal rows, no more


@pytest.mark.slow
def test_an_estimator_is_held_as_its_chain_is_and_stays_what_it_was(cascade):
    clf, batch, _ = cascade
    before = clf.chain_
    held = hold_budget(clf, batch, 2.0)
    assert isinstance(held, BudgetedClassifier)
    assert clf.chain_ is before
    by_chain = hold_budget(clf.chain_, batch, 2.0)
    assert isinstance(by_chain, Chain)
    without_rows = copy.copy(clf)
    del without_rows.evidence_
    np.testing.assert_array_equal(hold_budget(without_rows, batch, 2.0).route(batch), by_chain.route(batch))
    # With the rows of its fit, an estimator moves its thresholds, and leaves fewer rows to their keys.
    assert clf.evidence_.share_by_lot(held.chain_.policy) < 0.25 * clf.evidence_.share_by_lot(by_chain.policy)


@pytest.mark.slow
def test_a_cascade_takes_its_dearest_point_where_the_budget_is_large(cascade):
    clf, batch, _ = cascade
    held = hold_budget(clf, batch, 1e6)
    np.testing.assert_array_equal(held.route(batch), at_its_dearest(clf).route(batch))


@pytest.mark.slow
def test_a_batch_too_poor_for_the_cheapest_point_is_refused_with_what_it_costs(cascade):
    clf, batch, _ = cascade
    with pytest.raises(InvalidInputError, match=r"budget must be at least 1"):
        hold_budget(clf, batch, 0.5)


@pytest.mark.slow
def test_a_cascade_has_nothing_to_hold_for_no_rows(cascade):
    clf, batch, _ = cascade
    assert hold_budget(clf.chain_, batch[:0], 2.0).route(batch[:0]).shape == (0,)


# -- between two operating points ------------------------------------------------------------------


def rows_between(seed, *, digits=8, is_backwards=False):
    """Held-out rows of one gate, its score the chance to be wrong at once; the full model is right and costs 10."""
    chance = np.random.default_rng(seed)
    gate = chance.random(400).round(digits)
    right = chance.random(400) > (1 - gate if is_backwards else gate)
    quality = np.column_stack([right, np.ones(400, dtype=bool)])
    return Evidence(gate[:, None], quality, np.array([1.0, 11.0]), points=np.array([[np.inf], [-np.inf]]))


def ends_of(evidence):
    """All rows stop, or all go on: any budget between is met by a mix of both, or by thresholds on the way."""
    return measured(Policy(evidence.points, np.zeros(2), np.zeros(2)), evidence)


@pytest.mark.parametrize("budget", [1.5, 4.0, 10.9])
def test_between_two_points_rows_are_told_apart_by_their_gates(budget):
    evidence = rows_between(0)
    mix = ends_of(evidence).within(budget)
    between = within_budget(ends_of(evidence), budget, evidence)
    assert evidence.share_by_lot(mix) == 1.0
    assert evidence.share_by_lot(between) == 0.0
    assert budget - 10.0 / 400 < between.expected_cost <= budget
    assert between.expected_score > mix.expected_score
    np.testing.assert_allclose(
        [between.expected_cost, between.expected_score],
        np.ravel(evidence.weighted_means(between.thresholds[[between.lower]])),
    )
    sent = rows_between(1).gate[:, 0] > between.thresholds[between.lower]
    assert rows_between(1).gate[sent].min() > rows_between(1).gate[~sent].max()


def test_chance_decides_only_among_rows_of_one_gate_score():
    evidence = rows_between(0, digits=1)
    between = within_budget(ends_of(evidence), 5.3, evidence)
    lower, upper = (evidence.at_point(between.thresholds[at])[0] for at in (between.lower, between.upper))
    tied = evidence.gate[lower != upper]
    assert between.is_mixed
    assert between.expected_cost == pytest.approx(5.3)
    np.testing.assert_array_equal(tied, evidence.gate[evidence.gate == tied[0]][:, None])
    assert evidence.share_by_lot(between) == len(tied) / 400
    alone = within_budget(ends_of(evidence), 5.3, evidence, mix=False)
    assert not alone.is_mixed
    assert 4.0 < alone.expected_cost < 5.3


def test_a_budget_is_spent_where_the_first_purchase_tells_no_two_rows_apart():
    evidence = replace(rows_between(0), gate=np.full((400, 1), -2.42451096))
    between = within_budget(ends_of(evidence), 5.3, evidence)
    assert between.expected_cost == pytest.approx(5.3)
    np.testing.assert_allclose(evidence.weighted_means(between.thresholds)[0], [1.0, 1.0, 11.0, 11.0])
    assert evidence.share_by_lot(between) == 1.0


def test_two_points_are_mixed_where_thresholds_on_the_way_are_worse():
    evidence = rows_between(0, is_backwards=True)
    mix = within_budget(ends_of(evidence), 5.0, evidence)
    assert evidence.share_by_lot(mix) == 1.0
    assert mix.expected_cost == pytest.approx(5.0)
    assert within_budget(ends_of(evidence), 5.0, evidence, mix=False).expected_cost == 1.0


def test_a_larger_budget_never_buys_less_by_its_own_estimate():
    points = Policy(np.arange(5.0)[:, None], np.arange(1.0, 6.0), np.array([0.5, 0.8, 0.7, 0.9, 0.85]))
    budgets = np.linspace(1.0, 8.0, 50)
    score = [within_budget(points, budget, None).expected_score for budget in budgets]
    assert (np.diff(score) >= 0).all()
    assert within_budget(points, 8.0, None).expected_cost == 4.0
    assert (within_budget(points, 3.0, None).lower, within_budget(points, 3.0, None).upper) == (1, 3)


def test_a_bill_is_bounded_at_thresholds_on_the_way():
    fitted_on, new = rows_between(0), rows_between(1)
    bounds = CostBounds(new, 400)
    between = bounds.within(ends_of(fitted_on), 5.0, 0.95, fitted_on)
    assert new.share_by_lot(between) < 0.02
    assert 4.9 < bounds.bound(between, 0.95) <= 5.0


def test_an_estimator_moves_its_thresholds_and_says_what_chance_decides(cascade):
    clf = cascade[0]
    cheap, dear = clf.chain_.policy.cost[[0, -1]]
    spent = [clf.at(budget=budget, mix=False) for budget in np.linspace(cheap, dear + 1.0, 7)]
    assert all(one.share_by_lot_ == 0.0 and not one.chain_.policy.is_mixed for one in spent)
    assert all(
        one.expected_cost_ <= budget
        for one, budget in zip(spent, np.linspace(cheap, dear + 1.0, 7), strict=True)
    )
    mixed = clf.evidence_.share_by_lot(clf.chain_.policy.within(2.0))
    assert clf.at(budget=2.0).share_by_lot_ < 0.1 * mixed


def test_points_between_have_their_own_means_and_leave_fewer_rows_to_their_keys():
    evidence = rows_between(0)
    ends = ends_of(evidence)
    finer = with_points_between(ends, evidence)
    np.testing.assert_allclose([finer.cost, finer.score], evidence.weighted_means(finer.thresholds))
    assert len(finer) == 9
    assert (np.diff(finer.cost) > 0).all()
    for budget in np.linspace(1.0, 11.0, 20):
        within = finer.within(budget)
        assert within.expected_cost == pytest.approx(budget)
        assert within.expected_score >= ends.within(budget).expected_score
        assert evidence.share_by_lot(within) < 0.15
    backwards = rows_between(0, is_backwards=True)
    assert len(with_points_between(ends_of(backwards), backwards)) == 2  # no point that is worse than a mix
