"""Evidence against loops over rows: what any thresholds would have done with them."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import make_classification
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from reproduction.rivals.greedy_miser import GreedyMiserClassifier
from thrifty import ConfidenceRouter, Policy, Prices
from thrifty.engine.evidence.collect import evidence_of, point_of
from thrifty.engine.evidence.evidence import Evidence, GateAverages, RouteAverages
from thrifty.engine.evidence.frontier import Frontier
from thrifty.errors import InvalidInputError

SEEDS = st.integers(0, 2**32 - 1)


def random_evidence(seed, n_stages=1, n=25, *, cost_per_row=False, soft=False, **known):
    rng = np.random.default_rng(seed)
    quality = rng.random((n, n_stages + 1))
    cost = np.cumsum(rng.uniform(0.5, 2, (n, n_stages + 1)), axis=1)
    # A coarse gate, so that scores tie.
    return Evidence(
        np.round(rng.normal(size=(n, n_stages)), 1),
        quality if soft else quality < 0.6,
        cost if cost_per_row else cost[0],
        full_quality=(quality if soft else quality < 0.6)[:, -1],
        **known,
    )


def random_points(rng, evidence, n_points=9):
    points = np.r_[rng.normal(size=(n_points, evidence.n_stages)), evidence.gate[:2]]
    points[0], points[1] = np.inf, -np.inf
    points[2, rng.integers(evidence.n_stages)] = np.inf
    return rng.permutation(np.r_[points, points[:1]])


def by_hand(evidence, thresholds):
    """Place, cost and quality of each row, by a loop over rows and stages."""
    rows = []
    for row in range(evidence.n_rows):
        place = 0
        while place < evidence.n_stages and evidence.gate[row, place] > thresholds[place]:
            place += 1
        cost = evidence.cost[place] if evidence.cost.ndim == 1 else evidence.cost[row, place]
        rows.append((place, cost, float(evidence.quality[row, place])))
    return np.array(rows).T


# -- means of operating points -----------------------------------------------------------------------


@pytest.mark.slow
@given(SEEDS, st.integers(1, 4), st.booleans(), st.booleans())
def test_means_at_points_are_those_of_a_loop_over_the_rows(seed, n_stages, cost_per_row, soft):
    evidence = random_evidence(seed, n_stages, cost_per_row=cost_per_row, soft=soft)
    points = random_points(np.random.default_rng(seed), evidence)
    means = evidence.averages(points).under()
    for place, thresholds in enumerate(points):
        route, cost, quality = by_hand(evidence, thresholds)
        assert means.cost[place] == pytest.approx(cost.mean())
        assert means.score[place] == pytest.approx(quality.mean())
        assert means.share[place] == pytest.approx((route == n_stages).mean())
        for found, expected in zip(evidence.at_point(thresholds), (route, cost, quality), strict=True):
            np.testing.assert_allclose(found, expected)


@pytest.mark.slow
@given(SEEDS, st.integers(1, 3), st.booleans(), st.booleans())
def test_averages_under_weights_are_weighted_means_for_points_in_any_order(
    seed, n_stages, cost_per_row, soft
):
    evidence = random_evidence(seed, n_stages, cost_per_row=cost_per_row, soft=soft)
    rng = np.random.default_rng(seed)
    points = random_points(rng, evidence)
    weights = rng.integers(0, 4, (evidence.n_rows, 3)).astype(float) + 0.1
    means = evidence.averages(points).under(weights)
    for place, thresholds in enumerate(points):
        route, cost, quality = by_hand(evidence, thresholds)
        for column, weight in enumerate(weights.T):
            assert means.cost[place, column] == pytest.approx(np.average(cost, weights=weight))
            assert means.score[place, column] == pytest.approx(np.average(quality, weights=weight))
            share = np.average(route == n_stages, weights=weight)
            assert means.share[place, column] == pytest.approx(share)


@pytest.mark.slow
@given(SEEDS, st.booleans(), st.booleans(), st.booleans())
def test_a_single_gate_has_the_same_means_on_the_path_of_many_stages(seed, cost_per_row, soft, weighted):
    evidence = random_evidence(seed, cost_per_row=cost_per_row, soft=soft)
    rng = np.random.default_rng(seed)
    points = random_points(rng, evidence)
    weights = rng.multinomial(25, np.full(25, 1 / 25), size=6).T.astype(float) if weighted else None
    places, cost, quality = map(np.array, zip(*(evidence.at_point(point) for point in points), strict=True))
    gate, route = evidence.averages(points), RouteAverages(cost, places == 1, quality)
    assert isinstance(gate, GateAverages)
    for name in ("cost", "share", "score"):
        one, other = (getattr(path.under(weights), name) for path in (gate, route))
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@given(SEEDS, st.booleans(), st.booleans())
def test_every_point_of_a_single_gate_is_what_its_threshold_does_to_the_rows(seed, cost_per_row, soft):
    evidence = random_evidence(seed, cost_per_row=cost_per_row, soft=soft)
    points, means = evidence.every_point()
    assert points.shape == (len(np.unique(evidence.gate)) + 1, 1)
    for place, thresholds in enumerate(points):
        route, cost, quality = by_hand(evidence, thresholds)
        assert means.share[place] == pytest.approx(route.mean())
        assert means.cost[place] == pytest.approx(cost.mean())
        assert means.score[place] == pytest.approx(quality.mean())


def test_many_stages_have_the_points_they_were_given_and_must_be_given_some():
    points = np.array([[0.0, 0.5], [np.inf, np.inf], [-np.inf, 0.0]])
    found, means = random_evidence(1, 2, points=points).every_point()
    np.testing.assert_array_equal(found, points)
    assert means.cost.shape == (3,)
    with pytest.raises(InvalidInputError, match="for a single gate only; here are 2 stages. Give `points`"):
        random_evidence(1, 2).every_point()


def test_everybody_costs_the_same_to_the_last_digit_whatever_stopping_would_have_cost():
    ends = [
        two_sided(np.arange(7.0), np.zeros(7, bool), np.ones(7, bool), stop_cost=stop, go_cost=0.7)
        .every_point()[1]
        .cost[-1]
        for stop in (0.1, 0.3, 1 / 3)
    ]
    assert len(set(ends)) == 1


# -- one gate, one point -------------------------------------------------------------------------------


def two_sided(g, stop, go, stop_cost=1.0, go_cost=2.0, **known):
    return Evidence.of_gate(
        g, stop_cost=stop_cost, go_cost=go_cost, stop_quality=stop, go_quality=go, **known
    )


@given(SEEDS, st.booleans(), st.booleans())
def test_a_gate_comes_back_from_its_two_sides(seed, cost_per_row, soft):
    evidence = random_evidence(seed, cost_per_row=cost_per_row, soft=soft)
    again = two_sided(
        evidence.gate[:, 0], *evidence.quality.T, evidence.cost_at(0), evidence.cost_at(1), features=[3]
    )
    for name in ("gate", "quality", "cost", "full_quality"):
        one, other = getattr(again, name), getattr(evidence, name)
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
    assert again.features == (3,)
    assert again.sends_to_full


def test_one_cost_for_all_and_one_per_row_may_be_mixed():
    mixed = two_sided([1.0, 2.0], [1.0, 0.0], [1.0, 1.0], 1.0, [3.0, 4.0])
    np.testing.assert_array_equal(mixed.cost, [[1.0, 3.0], [1.0, 4.0]])


@pytest.mark.slow
@given(SEEDS, st.booleans(), st.floats(-2, 2))
def test_what_rows_did_at_one_point_is_a_point_with_the_same_means(seed, cost_per_row, cut):
    evidence = random_evidence(seed, 3, cost_per_row=cost_per_row)
    thresholds = np.full(3, cut)
    route, cost, quality = evidence.at_point(thresholds)
    point = Evidence.of_point(cost, quality, route == 3)
    _, one = point.every_point()
    other = evidence.averages(thresholds[None]).under()
    for name in ("cost", "share", "score"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name))
    assert point.is_fixed
    (there,) = Frontier.from_evidence([point])
    assert (there.threshold, there.thresholds) == (None, ())


def test_a_point_keeps_its_numbers_under_weights():
    point = Evidence.of_point([1.0, 2.0, 6.0], [True, False, True], [False, False, True])
    points, means = point.every_point()
    assert (means.cost[0], means.share[0], means.score[0]) == pytest.approx((3.0, 1 / 3, 2 / 3))
    weighted = point.averages(points).under(np.array([[2.0], [0.0], [1.0]]))
    np.testing.assert_allclose(weighted.cost, [[8 / 3]])
    np.testing.assert_allclose(weighted.score, [[1.0]])


def test_only_the_allowed_threshold_is_a_point():
    evidence = two_sided([1.0, 2.0], [True, False], [True, True], threshold=1.5)
    points, means = evidence.every_point()
    assert points.tolist() == [[1.5]]
    assert (means.cost[0], means.score[0]) == (1.5, 1.0)


def test_some_of_the_rows_and_some_of_the_stages():
    evidence = random_evidence(3, 3, cost_per_row=True, weight=np.arange(25.0))
    rows = np.array([4, 0, 7])
    some = evidence.take(rows)
    for name in ("gate", "quality", "cost", "full_quality", "weight"):
        np.testing.assert_array_equal(getattr(some, name), getattr(evidence, name)[rows])
    fewer = evidence.keep_stages([0, 2], np.zeros((1, 2)), evidence.cost[:, [0, 2, 3]])
    np.testing.assert_array_equal(fewer.quality, evidence.quality[:, [0, 2, 3]])
    assert fewer.n_stages == 2


# -- against the full model ----------------------------------------------------------------------------


@pytest.mark.slow
@given(SEEDS, st.integers(1, 3))
def test_holding_rows_against_f0_counts_where_f0_is_right_and_the_system_is_not(seed, n_stages):
    evidence = random_evidence(seed, n_stages)
    against = evidence.against_full()
    thresholds = np.median(evidence.gate, axis=0)
    _, _, right = evidence.at_point(thresholds)
    lost = (evidence.full_quality & ~right).mean()
    assert against.averages(thresholds[None]).under().score[0] == pytest.approx(1 - lost)
    assert against.quality[:, -1].all()
    assert against.sends_to_full
    again = against.against_full()
    np.testing.assert_array_equal(again.quality, against.quality)
    assert lost >= evidence.full_quality.mean() - right.mean() - 1e-12


def test_f0_behind_a_chain_is_not_what_the_gate_sends_to():
    full = np.array([True, True, False])
    go = np.array([False, True, True])
    evidence = two_sided([3.0, 2.0, 1.0], [True, False, False], go, full_quality=full)
    against = evidence.against_full()
    assert against.quality[:, 1].tolist() == [False, True, True]
    assert against.quality[:, 0].tolist() == [True, False, True]
    assert not evidence.sends_to_full
    assert not against.sends_to_full


def test_against_the_full_model_a_quality_of_any_kind_is_worse_where_it_is_smaller():
    evidence = two_sided([1.0, 2.0, 3.0], [0.5, 0.2, -1.0], [0.5, 0.3, -2.0])
    against = evidence.against_full()
    assert against.quality.tolist() == [[True, True], [False, True], [True, True]]
    assert against.sends_to_full


def test_a_point_that_does_not_know_f0_cannot_be_held_against_it():
    with pytest.raises(InvalidInputError, match=r"settings \{'price': 2\}.*Give full_quality"):
        Evidence.of_point([1.0], [True], [False], settings={"price": 2}).against_full()


# -- checks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"g": [1.0, np.nan]}, r"g must hold finite numbers; got nan in row 1"),
        ({"g": [1.0, np.inf]}, r"g must hold finite numbers; got inf in row 1"),
        ({"g": []}, r"g must hold numbers for at least one row"),
        ({"stop_cost": [1.0, 2.0, 3.0]}, r"stop_cost must hold .* shape \(2,\); got shape \(3,\)"),
        ({"go_cost": np.nan}, r"go_cost must hold finite numbers"),
        (
            {"stop_quality": [0.5]},
            r"must hold one number per row, shape \(2,\); got shapes \(1,\) and \(2,\)",
        ),
        ({"go_quality": ["yes", "no"]}, r"quality must hold numbers"),
        ({"threshold": "low"}, r"threshold must be a number, infinite ones included; got 'low'"),
        ({"threshold": np.nan}, r"threshold must be a number"),
        ({"settings": {"model": object()}}, r"settings must be a dict of what JSON can hold"),
        ({"full_quality": [True]}, r"full_quality must hold numbers .*\(2,\); got shape \(1,\)"),
    ],
)
def test_arrays_that_cannot_be_averaged_are_refused_by_name(change, words):
    sound = {
        "g": [1.0, 2.0],
        "stop_cost": 1.0,
        "go_cost": 2.0,
        "stop_quality": [1.0, 0.0],
        "go_quality": [1.0, 1.0],
    }
    with pytest.raises(InvalidInputError, match=words):
        Evidence.of_gate(**(sound | change))


def test_points_and_costs_that_do_not_suit_the_stages_are_refused():
    gate, quality = np.zeros((3, 2)), np.ones((3, 3))
    with pytest.raises(InvalidInputError, match=r"cost must hold numbers .*shape \(3,\); got shape \(2,\)"):
        Evidence(gate, quality, np.ones(2))
    with pytest.raises(InvalidInputError, match="threshold for each of 2 stages; got shape"):
        Evidence(gate, quality, np.ones(3), points=np.zeros((4, 3)))
    with pytest.raises(InvalidInputError, match="at least one point"):
        Evidence(gate, quality, np.ones(3), points=np.zeros((0, 2)))


def test_settings_are_kept_as_json_keeps_them():
    settings = {
        "gamma": np.float64(0.1),
        "depth": np.int64(3),
        "order": (1, 2),
        "prices": np.array([1.0, 2.0]),
    }
    evidence = two_sided([1.0], [True], [True], features=np.array([4, 2]), settings=settings)
    assert evidence.settings == {"gamma": 0.1, "depth": 3, "order": [1, 2], "prices": [1.0, 2.0]}
    assert json.loads(json.dumps(evidence.settings)) == evidence.settings
    assert evidence.features == (4, 2)


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
    two = ConfidenceRouter(full, features=[0, 1, 2, 3], prices=Prices(prices, full=9)).fit(X[:300], y[:300])
    chain = ConfidenceRouter(FrozenEstimator(two), features=[0, 1], prices=Prices(prices, full=9), p_full=0.5)
    return two, chain.fit(X[:300], y[:300]), full, X[300:], y[300:]


@pytest.mark.parametrize("which", [0, 1], ids=["one stage", "two stages"])
def test_evidence_is_what_the_estimator_does_at_every_threshold(routed, which):
    estimator, X, y = routed[which], *routed[3:]
    evidence = evidence_of(estimator, X, y, settings={"which": which})
    points, means = evidence.every_point()
    for place in (0, 1, 50, 200, len(points) - 1):
        cut = estimator.at(threshold=points[place, 0])
        assert means.score[place] == pytest.approx(cut.score(X, y))
        assert means.cost[place] == pytest.approx(cut.cost(X).mean())
        assert means.share[place] == pytest.approx((cut.route(X) > 0).mean())
    assert evidence.features == tuple(estimator.features_.tolist())
    assert evidence.sends_to_full == (which == 0)
    np.testing.assert_array_equal(
        evidence.full_quality, (routed[2].model.predict_proba(X)[:, 1] > 0.5) == (y == "yes")
    )


def test_f0_is_asked_once_and_not_at_all_where_its_answers_are_known(routed):
    two, chain, full, X, y = routed
    full.asked.clear()
    for estimator in (two, chain):
        evidence_of(estimator, X, y)
    assert full.asked == [len(X), len(X)]
    full.asked.clear()
    probability = full.model.predict_proba(X)
    for estimator in (two, chain):
        known = evidence_of(estimator, X, y, full_probability=probability)
        point_of(estimator, X, y, full_probability=probability[:, 1])
        assert full.asked == []
        np.testing.assert_array_equal(known.quality, evidence_of(estimator, X, y).quality)
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
    np.testing.assert_array_equal(known.quality, point.quality)


def test_a_system_without_f0_is_a_point_too(routed):
    X, y = routed[3:]
    alone = GreedyMiserClassifier(n_trees=5).fit(X, y)
    _, means = point_of(alone, X, y).every_point()
    assert means.share[0] == 0.0
    assert means.score[0] == pytest.approx(alone.score(X, y))
    # Once it is given a full model, its gate can be opened as far as one likes.
    points, means = evidence_of(alone.with_full(routed[2].model), X, y).every_point()
    assert len(points) > 10
    assert means.share[-1] == 1.0


def test_labels_and_probabilities_that_do_not_fit_are_refused(routed):
    two, _, _, X, y = routed
    with pytest.raises(
        InvalidInputError, match=r"labels the system was fitted on, \['no', 'yes'\]; got 'maybe' in row 0"
    ):
        evidence_of(two, X[:2], ["maybe", "yes"])
    with pytest.raises(InvalidInputError, match=r"y must hold one label per row, shape \(2,\)"):
        evidence_of(two, X[:2], y[:3])
    with pytest.raises(
        InvalidInputError, match=r"full_probability must give probabilities in \[0, 1\]; got 1.2"
    ):
        evidence_of(two, X[:2], y[:2], full_probability=[0.1, 1.2])
    with pytest.raises(
        InvalidInputError, match=r"full_probability must give one probability .* shape \(2,\) or \(2, 2\)"
    ):
        point_of(two, X[:2], y[:2], full_probability=[0.1])
    with pytest.raises(InvalidInputError, match="needs a chain, .* the LogisticRegression is not fitted"):
        evidence_of(LogisticRegression(), X, y)


@pytest.mark.slow
def test_a_cascade_has_the_points_it_was_fitted_with_and_does_there_what_the_evidence_says(cascade):
    clf, X, y = cascade
    policy = clf.chain_.policy
    assert len(policy) > 3
    evidence = evidence_of(clf, X, y)
    points, means = evidence.every_point()
    np.testing.assert_array_equal(points, policy.thresholds)
    for place in range(len(policy)):
        there = clf.chain_.at(policy.at(place))
        route, cost, quality = evidence.at_point(points[place])
        np.testing.assert_array_equal(there.route(X), route)
        np.testing.assert_allclose(there.cost(X), cost)
        np.testing.assert_array_equal(there.predict(X) == y, quality)
        assert means.score[place] == pytest.approx((there.predict(X) == y).mean())
    np.testing.assert_array_equal(evidence.full_quality, clf.chain_.full.estimator.predict(X) == y)


def blended(clf, policy):
    """The cascade with a blend that contradicts the full model where the last stage does."""
    return replace(clf.chain_, blend=np.array([0.1, 3.0, -0.5]), policy=policy)


@pytest.mark.slow
def test_probabilities_that_are_known_are_blended_as_the_full_models_own_would_be(cascade):
    clf, X, y = cascade
    known = clf.chain_.full.estimator.predict_proba(X)
    everybody = blended(clf, Policy.of(np.full(clf.n_stages_, -np.inf)))
    right = everybody.predict(X) == y
    assert (right != (known.argmax(axis=1) == y)).any()
    point = point_of(everybody, X, y, full_probability=known)
    np.testing.assert_array_equal(point.quality[:, 0], right)
    np.testing.assert_array_equal(point.quality, point_of(everybody, X, y).quality)
    np.testing.assert_array_equal(point.full_quality, known.argmax(axis=1) == y)
    for some in (evidence_of(everybody, X, y, full_probability=known), evidence_of(everybody, X, y)):
        np.testing.assert_array_equal(some.quality[:, -1], right)


@pytest.mark.slow
def test_a_gate_in_front_of_a_cascade_is_billed_for_what_each_row_does_in_it(cascade):
    clf, X, y = cascade
    half = len(X) // 2
    router = ConfidenceRouter(FrozenEstimator(clf.at(budget=2.0)), features=[7, 27]).fit(X[:half], y[:half])
    evidence = evidence_of(router, X[half:], y[half:])
    assert evidence.cost.shape == (len(X) - half, 2)
    points, means = evidence.every_point()
    for place in (0, 10, 50, len(points) - 1):
        there = router.at(threshold=points[place, 0])
        assert means.cost[place] == pytest.approx(there.cost(X[half:]).mean())
        assert means.score[place] == pytest.approx(there.score(X[half:], y[half:]))


# -- rules -----------------------------------------------------------------------------------------


def test_a_rule_is_a_place_that_all_rows_are_answered_at():
    rng = np.random.default_rng(0)
    cost, quality = np.sort(rng.random((50, 3)), axis=1), np.sort(rng.random((50, 3)), axis=1)
    evidence = Evidence.of_rules(cost, quality)
    points, means = evidence.every_point()
    assert points.tolist() == [[0.0], [1.0], [2.0]]
    np.testing.assert_allclose(means.cost, cost.mean(axis=0))
    np.testing.assert_allclose(means.score, quality.mean(axis=0))
    place, paid, value = evidence.at_point(points[1])
    assert (place.tolist(), paid.tolist(), value.tolist()) == ([1] * 50, [*cost[:, 1]], [*quality[:, 1]])
    frontier = Frontier.from_evidence([evidence])
    assert [point.thresholds for point in frontier] == [(0.0,), (1.0,), (2.0,)]
    assert frontier[0].as_dict()["share"] is None
    # A chain that stops all rows at one place is the same system.
    gates = np.array([[np.inf, np.inf], [-np.inf, np.inf], [-np.inf, -np.inf]])
    chain = Frontier.from_evidence([Evidence(rng.random((50, 2)), quality, cost, points=gates)])
    np.testing.assert_array_equal(frontier.band(n_boot=50).score_low, chain.band(n_boot=50).score_low)
    assert chain.score.tolist() == frontier.score.tolist()
    with pytest.raises(InvalidInputError, match="numbers of 3 rules"):
        Evidence.of_rules(cost, quality, points=np.array([[3.0]]))


def test_evidence_prints_its_size_and_that_of_a_point_its_means():
    point = Evidence.of_point([1.0, 3.0], [True, False], [False, True])
    assert repr(point) == "Evidence(2 rows: mean cost 2, mean quality 0.5)"
    gate = np.array([[0.1, 0.4], [0.2, 0.3], [0.5, 0.1]])
    assert repr(Evidence(gate, np.ones((3, 3)), np.array([1.0, 2.0, 3.0]))) == "Evidence(3 rows, 2 stages)"
