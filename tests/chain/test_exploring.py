"""Rows that go on beyond their stop, so that a later fit can learn from what they bought."""

from dataclasses import replace

import numpy as np
import pytest

from thrifty import BudgetedClassifier, BudgetedRanker, BudgetedRegressor, StageOptions, evidence_of
from thrifty.bundle import from_bytes, to_bytes
from thrifty.engine.walk.policy import later_places
from thrifty.errors import InvalidInputError, InvalidParameterError

N_COLUMNS, SHARE = 5, 0.2


def table(seed, n_rows):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n_rows)
    return (rng.normal(size=(n_rows, N_COLUMNS)) + y[:, None]).round(3), y


@pytest.fixture(scope="module")
def fitted():
    options = StageOptions(sizes=[(10, 2)], structure="line")
    return BudgetedClassifier(stages=options, cv=2, random_state=0).fit(*table(0, 600))


@pytest.fixture(scope="module")
def exploring(fitted):
    return fitted.at(budget=2.5, explore=SHARE)


def test_a_share_of_rows_goes_on_evenly_to_all_later_places(exploring):
    policy, rows = exploring.chain_.policy, np.arange(40_000, dtype=np.uint64)
    to = policy.explored_to(1, rows)
    shares = np.bincount(to, minlength=policy.n_stages + 1) / len(rows)
    np.testing.assert_allclose(shares, later_places(SHARE, policy.n_stages + 1)[1], atol=0.01)


def test_what_exploring_costs_counts_in_the_budget(fitted, exploring):
    new, y = table(1, 20_000)
    assert exploring.expected_cost_ == pytest.approx(2.5, rel=1e-3)
    policy = exploring.chain_.policy
    means = (
        evidence_of(fitted, new, y)
        .explored(SHARE)
        .weighted_means(policy.thresholds[[policy.lower, policy.upper]])
    )
    cost, score = ((1 - policy.share) * lower + policy.share * upper for lower, upper in means)
    assert exploring.cost(new).mean() == pytest.approx(cost, rel=0.01)
    assert exploring.score(new, y) == pytest.approx(score, abs=0.005)
    stopping = exploring.chain_.at(replace(policy, explore=0.0))
    assert stopping.cost(new).mean() < 0.9 * cost


def test_chances_of_getting_to_a_place_are_the_shares_of_rows_that_do(exploring):
    policy = exploring.chain_.policy
    keys, stops = np.arange(40_000, dtype=np.uint64), np.array([[1, 3]])
    upper = policy.at(0, 1, 0.4)
    stop = np.where(upper.follows_upper(keys), 3, 1)
    to = np.where(stop == 3, upper.explored_to(3, keys), upper.explored_to(1, keys))
    for place in range(policy.n_stages + 1):
        assert np.mean(to >= place) == pytest.approx(upper.reached(place, stops)[0], abs=0.01)


def test_a_row_goes_as_far_alone_from_a_file_a_source_and_a_session_as_in_a_table(exploring):
    new, _ = table(2, 60)
    route = exploring.route(new)
    again = from_bytes(to_bytes(exploring))
    np.testing.assert_array_equal(again.route(new), route)
    alone = [again.route(new[row : row + 1], row_key=[row])[0] for row in range(len(new))]
    np.testing.assert_array_equal(alone, route)
    receipt = exploring.buy(lambda rows, columns: new[np.ix_(rows, columns)], n_rows=len(new))
    np.testing.assert_array_equal(receipt.route, route)
    for row in range(len(new)):
        session = exploring.start(key=row)
        while not session.is_settled:
            assert session.propensity(session.next_purchase.columns[0]) > 0.0
            session.give({column: new[row, column] for column in session.next_purchase.columns})
        assert session.route == route[row]


def test_the_reason_of_a_row_that_explores_is_that_it_explores(fitted, exploring):
    new, _ = table(3, 300)
    policy = exploring.chain_.policy
    for told in exploring.explain(new):
        gates = np.array([stage.gate > stage.threshold for stage in told.stages])
        points = [stage.point for stage in told.stages]
        goes_on = [stage.goes_on for stage in told.stages]
        assert goes_on == [True] * (len(goes_on) - 1) + [told.asked_full]
        if "explores" in points:
            assert not gates[points.index("explores")]
            assert "this key is drawn to explore" in str(told)
            assert told.asked_full or points[-1] == "explored"
    assert policy.explore == SHARE
    assert any("explores" in [stage.point for stage in told.stages] for told in exploring.explain(new))
    assert not any("explores" in [stage.point for stage in told.stages] for told in fitted.explain(new))


def test_exploring_needs_a_budget_and_a_share(fitted):
    with pytest.raises(InvalidInputError, match="explore must be given with a budget"):
        fitted.at(max_loss=0.1, explore=0.1)
    for others in ({"cap": 4.0}, {"min_recall": {1: 0.5}}):
        with pytest.raises(InvalidInputError, match="explore (must be given with a budget|sends rows on)"):
            fitted.at(budget=3.0, explore=0.1, **others)
    with pytest.raises(InvalidInputError, match="explore (must be given with a budget|sends rows on)"):
        fitted.at(budget=3.0, cap=4.0).at(budget=3.0, explore=0.1)
    with pytest.raises(InvalidParameterError, match="explore must lie in"):
        fitted.at(budget=3.0, explore=1.5)


@pytest.mark.filterwarnings("ignore::thrifty.errors.FullModelNotWorthItWarning")
def test_regressors_and_rankers_explore_too():
    X, y = table(4, 400)
    small = {"stages": StageOptions(sizes=[(10, 2)], structure="line"), "cv": 2, "random_state": 0}
    fits = (
        BudgetedRegressor(**small).fit(X, X.sum(axis=1)),
        BudgetedRanker(**small).fit(X, y, qid=np.repeat(np.arange(40), 10)),
    )
    for one in fits:
        exploring = one.at(budget=4.0, explore=0.3)
        assert exploring.chain_.policy.explore == 0.3
        stopping = exploring.chain_.at(replace(exploring.chain_.policy, explore=0.0))
        stop, place = stopping.route(X, np.arange(len(X))), exploring.route(X, np.arange(len(X)))
        can_go_on = stop < one.chain_.n_stages  # the others are behind the last stage
        assert can_go_on.sum() > 100
        assert np.mean(place[can_go_on] > stop[can_go_on]) == pytest.approx(0.3, abs=0.12)
        assert np.array_equal(place[~can_go_on], stop[~can_go_on])
        assert exploring.expected_cost_ <= 4.0 + 1e-9
