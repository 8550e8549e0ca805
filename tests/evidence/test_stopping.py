"""Stopping rules against brute force, and the hull against all mixes."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thrifty.evidence.policies import (
    Policies,
    convex_hull,
    price_grid,
    sweep_prices,
)
from thrifty.evidence.stopping import Evidence, StoppingRules, route_by
from thrifty.exceptions import InvalidInputError


def make(seed, n_rows=40, n_stages=3, ties=False):
    rng = np.random.default_rng(seed)
    gate = rng.normal(size=(n_rows, n_stages))
    gate = np.round(gate) if ties else gate
    loss = rng.random((n_rows, n_stages + 1)) * np.linspace(1, 0.3, n_stages + 1)
    return Evidence(
        gate, loss, np.array([1.0, 2.0, 4.0, 9.0][: n_stages + 1]), rng.integers(1, 4, n_rows) * 1.0
    )


def total(evidence, thresholds, price):
    route = route_by(evidence.gate, thresholds)
    paid = evidence.loss[np.arange(len(route)), route] + price * evidence.cost[route]
    return float(evidence.weight @ paid)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_with_one_stage_no_threshold_is_better(seed, ties):
    evidence = make(seed, n_stages=1, ties=ties)
    for price in (0.0, 0.05, 0.3):
        found = total(evidence, StoppingRules(evidence).at(price), price)
        cuts = np.r_[-np.inf, np.unique(evidence.gate), np.inf]
        best = min(total(evidence, np.array([cut]), price) for cut in cuts)
        assert found == pytest.approx(best, abs=1e-9)


def test_each_threshold_is_the_best_for_all_rows_given_the_later_ones():
    evidence = make(3, n_stages=2)
    price = 0.05
    first, second = StoppingRules(evidence).at(price)
    cuts = np.r_[-np.inf, np.unique(evidence.gate), np.inf]
    last_only = [
        total(
            Evidence(evidence.gate[:, 1:], evidence.loss[:, 1:], evidence.cost[1:], evidence.weight),
            np.array([c]),
            price,
        )
        for c in (second, *cuts)
    ]
    assert last_only[0] == pytest.approx(min(last_only), abs=1e-9)
    both = [total(evidence, np.array([c, second]), price) for c in (first, *cuts)]
    assert both[0] == pytest.approx(min(both), abs=1e-9)


def test_a_route_is_the_first_stage_whose_threshold_is_not_exceeded():
    gate = np.array([[0.0, 2.0], [1.0, -1.0], [1.0, 5.0]])
    assert route_by(gate, np.array([0.0, 0.0])).tolist() == [0, 1, 2]
    for stops in product([-np.inf, np.inf], repeat=2):
        expected = next((k for k, stop in enumerate(stops) if stop == np.inf), 2)
        assert (route_by(gate, np.array(stops)) == expected).all()


def test_a_price_of_zero_minimises_the_loss_and_a_huge_price_stops_everybody_at_once():
    evidence = make(1)
    rules = StoppingRules(evidence)
    assert (route_by(evidence.gate, rules.at(1e6)) == 0).all()
    free = rules.at(0.0)
    assert total(evidence, free, 0.0) <= min(evidence.weight @ evidence.loss)


@given(st.integers(0, 10_000))
def test_a_higher_price_never_spends_more_with_one_stage(seed):
    evidence = make(seed, n_rows=15, n_stages=1)
    rules = StoppingRules(evidence)
    spent = [
        evidence.weight @ evidence.cost[route_by(evidence.gate, rules.at(price))]
        for price in (0.0, 0.01, 0.03, 0.1, 1.0)
    ]
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(spent))


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=12))
def test_no_mix_of_two_points_lies_above_the_hull(points):
    cost, score = np.array(points, dtype=float).T
    hull = convex_hull(cost, score)
    assert (np.diff(cost[hull]) > 0).all()
    assert (np.diff(score[hull]) > 0).all()
    assert (np.diff(np.diff(score[hull]) / np.diff(cost[hull])) < 0).all()
    top = np.interp(cost, cost[hull], score[hull])
    assert (score <= top + 1e-9).all()


def test_a_mix_spends_exactly_the_budget():
    policies = Policies(np.zeros((3, 2)), np.array([1.0, 2.0, 5.0]), np.array([0.6, 0.8, 0.9]))
    for budget in (1.0, 1.3, 2.0, 4.4, 5.0):
        mix = policies.within(budget)
        spent = (1 - mix.share) * policies.cost[mix.lower] + mix.share * policies.cost[mix.upper]
        assert spent == pytest.approx(budget)
    assert policies.within(9.0).lower == 2


def test_a_budget_under_the_cheapest_point_is_refused_with_the_least_that_will_do():
    policies = Policies(np.zeros((1, 1)), np.array([2.5]), np.array([0.6]))
    with pytest.raises(InvalidInputError, match="budget must be at least 2.5.*got 2.0"):
        policies.within(2.0)


def test_the_sweep_starts_where_everybody_stops_at_once():
    evidence = make(2)
    policies = sweep_prices(evidence, 1.0 - evidence.loss)
    assert policies.cost[0] == 1.0
    assert (np.diff(policies.cost) > 0).all()
    assert (np.diff(policies.score) > 0).all()
    assert (price_grid(evidence, 5)[1:] > 0).all()


def test_stop_minus_go_is_what_stopping_loses_under_the_rules_of_the_later_stages():
    evidence, price = make(1), 0.05
    rules = StoppingRules(evidence)
    thresholds, loses = rules.at(price), rules.stop_minus_go(price)
    later = np.where(
        evidence.gate[:, 2] > thresholds[2],
        evidence.loss[:, 3] + price * evidence.cost[3],
        evidence.loss[:, 2] + price * evidence.cost[2],
    )
    np.testing.assert_allclose(loses[:, 1], evidence.loss[:, 1] + price * evidence.cost[1] - later)
