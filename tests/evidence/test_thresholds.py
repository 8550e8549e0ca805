"""Stopping rules against brute force, and the hull against all mixes."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thrifty.engine.evidence import thresholds
from thrifty.engine.evidence.evidence import Evidence
from thrifty.engine.evidence.thresholds import StoppingRules, convex_hull, price_grid, sweep_prices
from thrifty.engine.walk.policy import route_by


def make(seed, n_rows=40, n_stages=3, ties=False, cost_per_row=False):
    """Evidence, and what an answer at each place loses."""
    rng = np.random.default_rng(seed)
    gate = rng.normal(size=(n_rows, n_stages))
    gate = np.round(gate) if ties else gate
    loss = rng.random((n_rows, n_stages + 1)) * np.linspace(1, 0.3, n_stages + 1)
    cost = np.array([1.0, 2.0, 4.0, 9.0][: n_stages + 1])
    weight = rng.integers(1, 4, n_rows) * 1.0
    if cost_per_row:
        cost = cost + np.cumsum(rng.random((n_rows, n_stages + 1)), axis=1)
    return Evidence(gate, 1.0 - loss, cost, weight=weight), loss


def total(evidence, loss, thresholds, price):
    route = route_by(evidence.gate, thresholds)
    rows = np.arange(len(route))
    cost = np.broadcast_to(evidence.cost, loss.shape)
    return float(evidence.weight @ (loss[rows, route] + price * cost[rows, route]))


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("cost_per_row", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_with_one_stage_no_threshold_is_better(seed, ties, cost_per_row):
    evidence, loss = make(seed, n_stages=1, ties=ties, cost_per_row=cost_per_row)
    for price in (0.0, 0.05, 0.3):
        found = total(evidence, loss, StoppingRules(evidence, loss).at(price), price)
        cuts = np.r_[-np.inf, np.unique(evidence.gate), np.inf]
        best = min(total(evidence, loss, np.array([cut]), price) for cut in cuts)
        assert found == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("cost_per_row", [False, True])
def test_each_threshold_is_the_best_for_all_rows_given_the_later_ones(cost_per_row):
    evidence, loss = make(3, n_stages=2, cost_per_row=cost_per_row)
    price = 0.05
    first, second = StoppingRules(evidence, loss).at(price)
    cuts = np.r_[-np.inf, np.unique(evidence.gate), np.inf]
    last = Evidence(
        evidence.gate[:, 1:], evidence.quality[:, 1:], evidence.cost[..., 1:], weight=evidence.weight
    )
    last_only = [total(last, loss[:, 1:], np.array([c]), price) for c in (second, *cuts)]
    assert last_only[0] == pytest.approx(min(last_only), abs=1e-9)
    both = [total(evidence, loss, np.array([c, second]), price) for c in (first, *cuts)]
    assert both[0] == pytest.approx(min(both), abs=1e-9)


def test_a_route_is_the_first_stage_whose_threshold_is_not_exceeded():
    gate = np.array([[0.0, 2.0], [1.0, -1.0], [1.0, 5.0]])
    assert route_by(gate, np.array([0.0, 0.0])).tolist() == [0, 1, 2]
    for stops in product([-np.inf, np.inf], repeat=2):
        expected = next((k for k, stop in enumerate(stops) if stop == np.inf), 2)
        assert (route_by(gate, np.array(stops)) == expected).all()


def test_a_price_of_zero_minimises_the_loss_and_a_huge_price_stops_everybody_at_once():
    evidence, loss = make(1)
    rules = StoppingRules(evidence, loss)
    assert (route_by(evidence.gate, rules.at(1e6)) == 0).all()
    free = rules.at(0.0)
    assert total(evidence, loss, free, 0.0) <= min(evidence.weight @ loss)


@given(st.integers(0, 10_000))
def test_a_higher_price_never_spends_more_with_one_stage(seed):
    evidence, loss = make(seed, n_rows=15, n_stages=1)
    rules = StoppingRules(evidence, loss)
    spent = [
        evidence.weight @ evidence.cost[route_by(evidence.gate, rules.at(price))]
        for price in (0.0, 0.01, 0.03, 0.1, 1.0)
    ]
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(spent))


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=12))
def test_no_mix_of_two_points_lies_above_the_hull(points):
    cost, score = np.array(points, dtype=float).T
    hull = convex_hull(cost, score)
    assert (np.diff(cost[hull]) > 0).all()
    assert (np.diff(score[hull]) > 0).all()
    assert (np.diff(np.diff(score[hull]) / np.diff(cost[hull])) < 0).all()
    top = np.interp(cost, cost[hull], score[hull])
    assert (score <= top + 1e-9).all()


def test_the_sweep_starts_where_everybody_stops_at_once():
    evidence, loss = make(2)
    policy = sweep_prices(evidence, loss, 1.0 - loss)
    assert policy.cost[0] == 1.0
    assert (np.diff(policy.cost) > 0).all()
    assert (np.diff(policy.score) > 0).all()
    assert (price_grid(evidence, 5)[1:] > 0).all()


@pytest.mark.parametrize("cost_per_row", [False, True])
def test_the_points_of_a_sweep_have_the_means_of_their_thresholds(cost_per_row):
    evidence, loss = make(4, cost_per_row=cost_per_row)
    policy = sweep_prices(evidence, loss, evidence.quality)
    assert len(policy) > 3
    for place, point in enumerate(policy.thresholds):
        _, cost, quality = evidence.at_point(point)
        assert policy.cost[place] == pytest.approx(np.average(cost, weights=evidence.weight))
        assert policy.score[place] == pytest.approx(np.average(quality, weights=evidence.weight))


def test_stop_minus_go_is_what_stopping_loses_under_the_rules_of_the_later_stages():
    (evidence, loss), price = make(1), 0.05
    rules = StoppingRules(evidence, loss)
    thresholds, loses = rules.at(price), rules.stop_minus_go(price)
    later = np.where(
        evidence.gate[:, 2] > thresholds[2],
        loss[:, 3] + price * evidence.cost[3],
        loss[:, 2] + price * evidence.cost[2],
    )
    np.testing.assert_allclose(loses[:, 1], loss[:, 1] + price * evidence.cost[1] - later)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("cost_per_row", [False, True])
@pytest.mark.parametrize("n_together", [1, 7, 80])
def test_prices_that_are_looked_at_together_have_the_thresholds_they_have_alone(
    ties, cost_per_row, n_together, monkeypatch
):
    evidence, loss = make(4, ties=ties, cost_per_row=cost_per_row)
    monkeypatch.setattr(thresholds, "BLOCK", n_together * evidence.n_rows)
    rules, prices = StoppingRules(evidence, loss), price_grid(evidence, 30)
    alone = np.array([rules.at(float(price)) for price in prices])
    assert len(np.unique(alone, axis=0)) > 5
    np.testing.assert_array_equal(rules.at_each(prices), alone)
