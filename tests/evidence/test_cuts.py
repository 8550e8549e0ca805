import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thrifty.engine.evidence.thresholds import threshold_curve
from thrifty.errors import InvalidInputError

SCORES = st.lists(
    st.one_of(st.floats(-1e300, 1e300), st.sampled_from([0.0, 1.0, -1.0, 1e-300])), min_size=1, max_size=30
)


@pytest.mark.slow
@given(SCORES, st.integers(0, 2**32 - 1))
def test_every_point_of_the_curve_is_what_its_threshold_does(scores, seed):
    g = np.array(scores)
    rng = np.random.default_rng(seed)
    stop_cost, go_cost = rng.uniform(0, 1, len(g)), rng.uniform(1, 2, len(g))
    stop_score, go_score = rng.integers(0, 2, (2, len(g))).astype(float)
    weight = rng.uniform(0.1, 1, len(g))
    curve = threshold_curve(g, stop_cost, go_cost, stop_score, go_score, weight)
    for point, threshold in enumerate(curve.thresholds[:, 0]):
        sent = g > threshold
        assert curve.cost[point] == pytest.approx(
            np.average(np.where(sent, go_cost, stop_cost), weights=weight)
        )
        assert curve.score[point] == pytest.approx(
            np.average(np.where(sent, go_score, stop_score), weights=weight)
        )
    assert len(curve) == len(np.unique(g)) + 1


def test_rows_with_equal_scores_are_never_separated():
    curve = threshold_curve(np.array([1.0, 1.0, 0.0]), 0.0, 1.0)
    np.testing.assert_allclose(curve.cost, [0.0, 2 / 3, 1.0])


def test_the_point_within_a_budget_sends_on_as_many_as_it_affords():
    curve = threshold_curve(np.array([3.0, 2.0, 1.0, 0.0]), 1.0, 5.0)
    assert curve.cost[curve.within(3.0).lower] == pytest.approx(3.0)
    assert curve.cost[curve.within(2.99).lower] == pytest.approx(2.0)
    assert curve.cost[curve.within(100.0).lower] == pytest.approx(5.0)


def test_a_budget_below_the_cheapest_route_is_refused_with_that_cost():
    with pytest.raises(InvalidInputError, match=r"budget must be at least 1, .*got 0.5"):
        threshold_curve(np.array([1.0, 0.0]), 1.0, 5.0).within(0.5)
