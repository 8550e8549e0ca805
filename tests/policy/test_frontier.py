import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from thrifty.policy.frontier import best_within, efficient

POINTS = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=40)


@given(POINTS)
def test_a_point_is_efficient_iff_no_other_is_as_cheap_and_as_good(points):
    cost, score = np.array(points, dtype=float).T
    kept = {(cost[i], score[i]) for i in efficient(cost, score)}
    undominated = {
        (c, s)
        for c, s in zip(cost, score, strict=True)
        if not np.any((cost <= c) & (score >= s) & ((cost < c) | (score > s)))
    }
    assert kept == undominated


@given(POINTS, st.integers(0, 8))
def test_the_best_within_a_budget_is_the_brute_force_best(points, budget):
    cost, score = np.array(points, dtype=float).T
    best = best_within(cost, score, budget)
    affordable = [(-s, c) for c, s in zip(cost, score, strict=True) if c <= budget]
    if best is None:
        assert not affordable
    else:
        assert (-score[best], cost[best]) == min(affordable)
