import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import make_classification
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from thrifty import ConfidenceRouter, GreedyMiserClassifier
from thrifty.evidence.observing import outcomes_of, point_of
from thrifty.evidence.outcomes import PointOutcomes, RowOutcomes
from thrifty.exceptions import InvalidInputError


def random_outcomes(seed, n=25, *, cost_per_row=False, soft=False, settings=None):
    rng = np.random.default_rng(seed)
    right = rng.random((2, n)) if soft else rng.random((2, n)) < 0.6
    go_cost = rng.uniform(3, 4, n) if cost_per_row else 3.5
    # A coarse gate, so that scores tie.
    return RowOutcomes(np.round(rng.normal(size=n), 1), 1.25, go_cost, *right, settings=settings or {})


@given(st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
def test_every_point_is_what_its_threshold_does_to_the_rows(seed, cost_per_row, soft):
    rows = random_outcomes(seed, cost_per_row=cost_per_row, soft=soft)
    thresholds, means = rows.every_point()
    assert len(thresholds) == len(np.unique(rows.g)) + 1
    for place, threshold in enumerate(thresholds):
        sent = rows.g > threshold
        assert means.share[place] == pytest.approx(sent.mean())
        assert means.cost[place] == pytest.approx(np.where(sent, rows.go_cost, rows.stop_cost).mean())
        assert means.score[place] == pytest.approx(np.where(sent, rows.go_right, rows.stop_right).mean())


@given(st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
def test_averages_under_weights_are_weighted_means_for_thresholds_in_any_order(seed, cost_per_row, soft):
    rows = random_outcomes(seed, cost_per_row=cost_per_row, soft=soft)
    rng = np.random.default_rng(seed)
    thresholds = rng.permutation(np.r_[-np.inf, np.inf, 0.0, 0.0, rng.normal(size=4), rows.g[:2]])
    weights = rng.integers(0, 4, (rows.n_rows, 3)).astype(float) + 0.1
    means = rows.averages(thresholds).under(weights)
    for place, threshold in enumerate(thresholds):
        sent = rows.g > threshold
        for column in range(3):
            weight = weights[:, column]
            cost = np.average(np.where(sent, rows.go_cost, rows.stop_cost), weights=weight)
            score = np.average(np.where(sent, rows.go_right, rows.stop_right), weights=weight)
            assert means.cost[place, column] == pytest.approx(cost)
            assert means.score[place, column] == pytest.approx(score)
            assert means.share[place, column] == pytest.approx(np.average(sent, weights=weight))


def test_a_point_keeps_its_numbers_under_weights_whatever_threshold_is_asked_for():
    point = PointOutcomes([1.0, 2.0, 6.0], [True, False, True], [False, False, True])
    threshold, means = point.every_point()
    assert np.isnan(threshold).all()
    assert (means.cost[0], means.share[0], means.score[0]) == pytest.approx((3.0, 1 / 3, 2 / 3))
    weighted = point.averages(np.array([np.nan, 7.0])).under(np.array([[2.0], [0.0], [1.0]]))
    np.testing.assert_allclose(weighted.cost, [[8 / 3], [8 / 3]])
    np.testing.assert_allclose(weighted.score, [[1.0], [1.0]])


def test_only_the_allowed_threshold_is_a_point():
    rows = RowOutcomes([1.0, 2.0], 1.0, 2.0, [True, False], [True, True], threshold=1.5)
    threshold, means = rows.every_point()
    assert threshold.tolist() == [1.5]
    assert (means.cost[0], means.score[0]) == (1.5, 1.0)


def test_everybody_costs_the_same_to_the_last_digit_whatever_stopping_would_have_cost():
    ends = [
        RowOutcomes(np.arange(7.0), stop, 0.7, np.zeros(7, bool), np.ones(7, bool)).every_point()[1].cost[-1]
        for stop in (0.1, 0.3, 1 / 3)
    ]
    assert len(set(ends)) == 1


@given(st.integers(0, 2**32 - 1))
def test_holding_rows_against_f0_counts_where_f0_is_right_and_the_system_is_not(seed):
    rows = random_outcomes(seed)
    against = rows.against_full()
    threshold = float(np.median(rows.g))
    right = np.where(rows.g > threshold, rows.go_right, rows.stop_right)
    lost = (rows.go_right & ~right).mean()
    assert against.averages(np.array([threshold])).under().score[0] == pytest.approx(1 - lost)
    assert against.go_right.all()
    again = against.against_full()
    np.testing.assert_array_equal(again.stop_right, against.stop_right)
    assert lost >= rows.go_right.mean() - right.mean() - 1e-12


def test_f0_behind_a_chain_is_not_what_the_gate_sends_to():
    full = np.array([True, True, False])
    go = np.array([False, True, True])
    rows = RowOutcomes([3.0, 2.0, 1.0], 1.0, 2.0, [True, False, False], go, full_right=full)
    assert rows.against_full().go_right.tolist() == [False, True, True]
    assert rows.against_full().stop_right.tolist() == [True, False, True]
    assert not rows.sends_to_full


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"g": [1.0, np.nan]}, r"g must hold finite numbers; got nan in row 1"),
        ({"g": [1.0, np.inf]}, r"g must hold finite numbers; got inf in row 1"),
        ({"g": []}, r"g must hold one number per row"),
        ({"stop_cost": [1.0, 2.0, 3.0]}, r"stop_cost must hold one number per row, shape \(2,\); got shape \(3,\)"),
        ({"go_cost": np.nan}, r"go_cost must hold finite numbers"),
        ({"stop_right": [0.5]}, r"stop_right must hold one number per row"),
        ({"go_right": ["yes", "no"]}, r"go_right must hold one number per row"),
        ({"threshold": "low"}, r"threshold must be a number or None; got 'low'"),
        ({"threshold": np.nan}, r"threshold must be a number or None"),
        ({"settings": {"model": object()}}, r"settings must be a dict of what JSON can hold"),
        ({"full_right": [True]}, r"full_right must hold one number per row"),
    ],
)  # fmt: skip
def test_arrays_that_cannot_be_averaged_are_refused_by_name(change, words):
    sound = {
        "g": [1.0, 2.0],
        "stop_cost": 1.0,
        "go_cost": 2.0,
        "stop_right": [1.0, 0.0],
        "go_right": [1.0, 1.0],
    }
    with pytest.raises(InvalidInputError, match=words):
        RowOutcomes(**(sound | change))


def test_soft_scores_cannot_be_held_against_f0():
    with pytest.raises(InvalidInputError, match="stop_right must be right or wrong"):
        RowOutcomes([1.0, 2.0], 1.0, 2.0, [0.5, 0.2], [True, True]).against_full()


def test_a_point_that_does_not_know_f0_cannot_be_held_against_it():
    with pytest.raises(InvalidInputError, match=r"settings \{'price': 2\}.*Give full_right"):
        PointOutcomes([1.0], [True], [False], settings={"price": 2}).against_full()


def test_settings_are_kept_as_json_keeps_them():
    settings = {
        "gamma": np.float64(0.1),
        "depth": np.int64(3),
        "order": (1, 2),
        "prices": np.array([1.0, 2.0]),
    }
    rows = RowOutcomes([1.0], 1.0, 2.0, [True], [True], features=np.array([4, 2]), settings=settings)
    assert rows.settings == {"gamma": 0.1, "depth": 3, "order": [1, 2], "prices": [1.0, 2.0]}
    assert json.loads(json.dumps(rows.settings)) == rows.settings
    assert rows.features == (4, 2)


# -- from fitted estimators ------------------------------------------------------------------------


class CountingFull:
    """An f0 that counts how often, and about how many rows, it is asked."""

    def __init__(self, model):
        self.model, self.asked = model, []

    def __call__(self, table):
        self.asked.append(len(table))
        return self.model.predict_proba(table)


@pytest.fixture(scope="module")
def routed():
    X, y = make_classification(700, 8, n_informative=5, flip_y=0.1, random_state=0)
    y = np.array(["no", "yes"])[y]
    full = CountingFull(LogisticRegression().fit(X[:300], y[:300]))
    prices = [1, 2, 3, 4, 5, 6, 7, 8]
    two = ConfidenceRouter(full, features=[0, 1, 2, 3], feature_costs=prices, full_cost=9).fit(
        X[:300], y[:300]
    )
    chain = ConfidenceRouter(
        FrozenEstimator(two), features=[0, 1], feature_costs=prices, full_cost=9, p_full=0.5
    )
    return two, chain.fit(X[:300], y[:300]), full, X[300:], y[300:]


@pytest.mark.parametrize("which", [0, 1], ids=["one stage", "two stages"])
def test_outcomes_are_what_the_estimator_does_at_every_threshold(routed, which):
    estimator, X, y = routed[which], *routed[3:]
    rows = outcomes_of(estimator, X, y, settings={"which": which})
    thresholds, means = rows.every_point()
    for place in (0, 1, 50, 200, len(thresholds) - 1):
        cut = estimator.at(thresholds[place])
        assert means.score[place] == pytest.approx(cut.score(X, y))
        assert means.cost[place] == pytest.approx(cut.cost(X).mean())
        assert means.share[place] == pytest.approx((cut.route(X) > 0).mean())
    assert rows.features == tuple(estimator.features_.tolist())
    assert rows.sends_to_full == (which == 0)
    np.testing.assert_array_equal(
        rows.go_right if which == 0 else rows.full_right,
        (routed[2].model.predict_proba(X)[:, 1] > 0.5) == (y == "yes"),
    )


def test_f0_is_asked_once_and_not_at_all_where_its_answers_are_known(routed):
    two, chain, full, X, y = routed
    full.asked.clear()
    for estimator in (two, chain):
        outcomes_of(estimator, X, y)
    assert full.asked == [len(X), len(X)]
    full.asked.clear()
    probability = full.model.predict_proba(X)
    for estimator in (two, chain):
        known = outcomes_of(estimator, X, y, full_probability=probability)
        point_of(estimator, X, y, full_probability=probability[:, 1])
        assert full.asked == []
        np.testing.assert_array_equal(known.go_right, outcomes_of(estimator, X, y).go_right)
        full.asked.clear()


def test_an_estimator_as_it_is_is_one_point_with_its_own_cost_and_score(routed):
    _, chain, full, X, y = routed
    full.asked.clear()
    point = point_of(chain, X, y)
    assert full.asked == [int((chain.route(X) == 2).sum())]
    _, means = point.every_point()
    assert means.score[0] == pytest.approx(chain.score(X, y))
    assert means.cost[0] == pytest.approx(chain.cost(X).mean())
    assert means.share[0] == pytest.approx((chain.route(X) == 2).mean())
    assert point.features == (0, 1, 2, 3)
    known = point_of(chain, X, y, full_probability=full.model.predict_proba(X))
    np.testing.assert_array_equal(known.right, point.right)


def test_a_system_without_f0_is_a_point_too(routed):
    X, y = routed[3:]
    alone = GreedyMiserClassifier(n_trees=5).fit(X, y)
    _, means = point_of(alone, X, y).every_point()
    assert means.share[0] == 0.0
    assert means.score[0] == pytest.approx(alone.score(X, y))


def test_labels_and_probabilities_that_do_not_fit_are_refused(routed):
    two, _, _, X, y = routed
    with pytest.raises(
        InvalidInputError, match=r"labels the system was fitted on, \['no', 'yes'\]; got 'maybe' in row 0"
    ):
        outcomes_of(two, X[:2], ["maybe", "yes"])
    with pytest.raises(InvalidInputError, match=r"y must hold one label per row, shape \(2,\)"):
        outcomes_of(two, X[:2], y[:3])
    with pytest.raises(InvalidInputError, match=r"full_probability must lie in \[0, 1\]"):
        outcomes_of(two, X[:2], y[:2], full_probability=[0.1, 1.2])
    with pytest.raises(
        InvalidInputError, match=r"full_probability must hold one number per row, shape \(2,\)"
    ):
        point_of(two, X[:2], y[:2], full_probability=[0.1])
