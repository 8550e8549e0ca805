"""Policies: what a budget mixes, where two points part, and which rows follow which of them."""

from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from thrifty.engine.full.model import CallableFull
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.tasks.classes import BinaryTask
from thrifty.engine.walk.chain import Chain
from thrifty.engine.walk.policy import Policy
from thrifty.engine.walk.stage import LinearStage
from thrifty.errors import InvalidInputError
from thrifty.rows import key_chance, key_words

TASK = BinaryTask(np.arange(2))
PRICES = PriceList(np.ones(6), np.arange(6), 1.5)


def measured(cost, score=None):
    cost = np.array(cost)
    score = np.linspace(0.6, 0.9, len(cost)) if score is None else np.array(score)
    return Policy(np.linspace(0, 1, 2 * len(cost)).reshape(-1, 2), cost, score, seed=7)


# -- budgets -----------------------------------------------------------------------------------------


@pytest.mark.slow
@given(st.lists(st.floats(0.01, 5), min_size=1, max_size=6), st.floats(0, 1))
def test_a_mix_of_two_neighbours_spends_exactly_the_budget(steps, place):
    cost = np.cumsum(steps)
    budget = float(cost[0] + place * (cost[-1] - cost[0]))
    there = measured(cost).within(budget)
    assert there.expected_cost == pytest.approx(budget)
    assert there.upper - there.lower in (0, 1)
    assert there.expected_score == pytest.approx(np.interp(budget, cost, there.score))
    assert (there.seed, len(there)) == (7, len(cost))


def test_a_budget_at_a_point_mixes_nothing_and_one_beyond_the_dearest_takes_that():
    policy = measured([1.0, 2.0, 5.0])
    for place, budget in enumerate((1.0, 2.0, 5.0)):
        there = policy.within(budget)
        assert (there.lower, there.share) == (place, 0.0)
        assert not there.is_mixed
    beyond = policy.within(99.0)
    assert (beyond.lower, beyond.upper, beyond.share) == (2, 2, 0.0)


def test_a_budget_under_the_cheapest_point_is_refused_with_the_least_that_will_do():
    with pytest.raises(InvalidInputError, match="budget must be at least 2.5.*got 2.0"):
        measured([2.5]).within(2.0)
    assert measured([0.1]).within(0.1 * (1 - 1e-13)).lower == 0  # a mean may miss by its last digit


def test_scores_within_budgets_lie_on_the_line_between_the_points():
    policy = measured([1.0, 3.0], [0.6, 0.8])
    found = policy.score_within(np.array([0.5, 1.0, 2.0, 9.0]), 0.25)
    np.testing.assert_allclose(found, [0.25, 0.6, 0.7, 0.8])


def test_a_share_beyond_all_rows_is_refused():
    for share in (1.5, -0.1, np.nan):
        with pytest.raises(InvalidInputError, match=r"share of a mix must lie in \[0, 1\]"):
            Policy.of(np.zeros(1), np.ones(1), share=share)


def test_a_policy_made_of_thresholds_is_not_measured_and_one_of_chosen_points_is():
    assert not Policy.of(np.zeros(2)).is_measured
    policy = measured([1.0, 2.0, 5.0])
    assert policy.is_measured
    some = policy[np.array([0, 2])]
    np.testing.assert_array_equal(some.cost, [1.0, 5.0])
    assert (some.n_stages, some.seed, some.lower, some.share) == (2, 7, 0, 0.0)


# -- two points --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lower", "upper", "parting"),
    [([0, 1, 2], [0, 1, 2], -1), ([0, 1, 2], [0, 5, 2], 1), ([0, 1], [-1, 1], 0), ([np.inf], [np.inf], -1)],
)
def test_two_points_part_at_the_first_stage_where_they_differ(lower, upper, parting):
    policy = Policy.of(np.array(lower), np.array(upper), share=0.5)
    assert policy.parting == parting
    assert policy.is_mixed == (parting >= 0)
    assert policy.at(0).parting == policy.at(1).parting == -1


def mixed_chain(policy):
    """A gate per column: stage k reads column k and sends on what is above the threshold."""
    stages = [
        LinearStage(np.array([place]), np.ones((1, 2)), np.zeros(2)) for place in range(policy.n_stages)
    ]
    full = CallableFull(lambda table: np.full(len(table), 0.9), TASK)
    return Chain(tuple(stages), full, PRICES, TASK, policy)


@pytest.mark.slow
@given(st.integers(0, 10_000), st.floats(0, 1), st.integers(0, 5))
def test_a_row_follows_one_point_all_the_way_and_chance_says_which(seed, share, chance_seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(50, 6))
    policy = Policy.of(*rng.normal(scale=0.5, size=(2, 3)), share=share, seed=chance_seed)
    chain = mixed_chain(policy)
    lower, upper = (chain.at(policy.at(point)).route(X) for point in (0, 1))
    follows = key_chance(key_words(range(50)), chance_seed) < share
    np.testing.assert_array_equal(chain.route(X), np.where(follows, upper, lower))


# -- ties --------------------------------------------------------------------------------------------


def tied(n=6000):
    """Rows whose first column, which the gate reads, has three values, and five columns that tell them apart."""
    rng = np.random.default_rng(0)
    return np.column_stack([rng.integers(0, 3, n), rng.normal(size=(n, 5))])


def tie(lower, threshold, share, seed=0):
    return mixed_chain(Policy.of(np.array([threshold]), np.array([lower]), share=share, seed=seed))


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.2, 0.7, 1.0]))
def test_exactly_the_tied_rows_whose_chance_is_below_the_share_are_sent_on(seed, share):
    X = tied(200)
    sent = tie(0.5, 1.5, share, seed).route(X) == 1
    g = X[:, 0]
    chance = key_chance(key_words(range(200)), seed)
    expected = (g > 1.5) | ((g > 0.5) & (g <= 1.5) & (chance < share))
    np.testing.assert_array_equal(sent, expected)


def test_a_share_of_the_tied_rows_is_sent_on_and_the_cost_is_what_that_share_says():
    X = tied()
    for share in (0.0, 0.2, 0.7, 1.0):
        chain = tie(0.5, 1.5, share)
        sent = chain.route(X) == 1
        assert sent[X[:, 0] == 2].all()
        assert not sent[X[:, 0] == 0].any()
        assert sent[X[:, 0] == 1].mean() == pytest.approx(share, abs=0.03)
        np.testing.assert_array_equal(chain.cost(X), np.where(sent, 7.5, 1.0))


def test_whether_a_tied_row_is_sent_on_depends_on_its_key_alone():
    X = tied(300)
    chain = tie(0.5, 1.5, 0.4, seed=3)
    route = chain.route(X)
    np.testing.assert_array_equal(chain.route(X[:10]), route[:10])
    unbought = X.copy()
    unbought[:, 1:] = 7.0
    np.testing.assert_array_equal(chain.route(unbought), route)
    np.testing.assert_array_equal(chain.route(sparse.csr_array(X)), route)
    frame = pd.DataFrame(X)
    np.testing.assert_array_equal(chain.route(frame), route)
    shuffled = np.random.default_rng(1).permutation(300)
    np.testing.assert_array_equal(chain.route(frame.iloc[shuffled]), route[shuffled])
    np.testing.assert_array_equal(chain.route(X[shuffled], row_key=shuffled), route[shuffled])
    named = pl.DataFrame(X).with_columns(key=pl.Series(np.arange(300).astype(str)))
    by_name = replace(chain, names=tuple(named.columns[:6]))
    np.testing.assert_array_equal(by_name.route(named[shuffled.tolist()], row_key="key"), route[shuffled])
    other_seed = chain.at(replace(chain.policy, seed=4))
    assert (other_seed.route(X) != route).any()


class Rows:
    """A source that notes which columns it was asked for."""

    def __init__(self, X):
        self.X, self.asked = X, np.zeros(X.shape[1], dtype=bool)

    def __len__(self):
        return len(self.X)

    def fetch(self, rows, columns):
        self.asked[columns] = True
        return self.X[np.ix_(rows, columns)]


def test_a_source_is_asked_for_nothing_to_settle_a_tie_and_sends_rows_where_a_table_does():
    X = tied()
    chain, source = tie(0.5, 1.5, 0.4), Rows(X)
    walk = chain.walk(chain.buyer(source))
    np.testing.assert_array_equal(source.asked, np.arange(6) == 0)
    np.testing.assert_array_equal(walk.route, chain.route(X))


def test_row_keys_that_do_not_fit_the_table_are_refused():
    X, chain = tied(10), tie(0.5, 1.5, 0.4)
    for keys, words in (
        (range(9), "row_key must have a key for each of the 10 rows of X; got 9"),
        ("id", "row_key='id' names a column, and X is ndarray without names"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            chain.route(X, row_key=keys)
    with pytest.raises(InvalidInputError, match="row_key='id' must be a column of X"):
        chain.route(pd.DataFrame(X), row_key="id")
    with pytest.raises(
        InvalidInputError, match="row_key must have a key for each of the 10 rows of the source; got 2"
    ):
        chain.buy(Rows(X), row_key=[1, 2])
