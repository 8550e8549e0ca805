from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.special import expit

from thrifty.chain.sources import FeatureSource, PurchaseReader, TableReader
from thrifty.chain.system import GatedSystem, Stage, Tie
from thrifty.exceptions import InvalidInputError
from thrifty.full.model import CLIP, CallableFull, PrecomputedFull
from thrifty.learning.pairs.linear import LinearScorer
from thrifty.objective.costs import PriceList, check_price_list

N_FEATURES = 6


@dataclass
class StrictSource:
    """Answers only for cells that a route was entitled to, and each of them once."""

    X: np.ndarray
    allowed: np.ndarray

    def __post_init__(self):
        self.asked = np.zeros(self.X.shape, dtype=bool)
        self.batches = 0

    def __len__(self):
        return len(self.X)

    def fetch(self, rows, columns):
        cells = np.ix_(rows, columns)
        if not self.allowed[cells].all():
            raise AssertionError("asked for a cell that the route did not buy")
        if self.asked[cells].any():
            raise AssertionError("asked twice for the same cell")
        self.asked[cells] = True
        self.batches += 1
        return self.X[cells]


def chain(seed: int, groups, n_stages: int = 2) -> GatedSystem:
    rng = np.random.default_rng(seed)
    stages = []
    for _ in range(n_stages):
        columns = np.sort(rng.choice(N_FEATURES, size=rng.integers(1, 4), replace=False))
        scorer = LinearScorer(columns, rng.normal(size=(len(columns), 2)), rng.normal(size=2))
        stages.append(Stage(scorer, float(rng.normal())))
    by_group = rng.uniform(0.5, 3, size=max(groups) + 1)
    prices = check_price_list(by_group[list(groups)], list(groups), 1.5, N_FEATURES)
    full = CallableFull(lambda table: expit(np.asarray(table) @ np.arange(1.0, N_FEATURES + 1)))
    return GatedSystem(tuple(stages), full, prices, np.array(["a", "b"]))


SEEDS = st.integers(0, 10_000)
GROUPS = st.lists(st.integers(0, 3), min_size=N_FEATURES, max_size=N_FEATURES)


def rows_of(seed: int, n: int = 40) -> np.ndarray:
    return np.random.default_rng(seed + 1).normal(size=(n, N_FEATURES))


@given(SEEDS, GROUPS, st.integers(0, 3))
@settings(deadline=None, max_examples=60)
def test_routing_is_what_a_row_by_row_walk_does(seed, groups, n_stages):
    system, X = chain(seed, groups, n_stages), rows_of(seed)
    route, cost, probability = system.route(X), system.cost(X), system.predict_proba(X)[:, 1]
    for i, x in enumerate(X):
        bought, place = set(), n_stages
        for number, stage in enumerate(system.stages):
            bought |= {system.price_list.group_of[c] for c in stage.scorer.columns}
            g, f1 = (x[stage.scorer.columns] @ stage.scorer.coef + stage.scorer.intercept).tolist()
            if not g > stage.threshold:
                place = number
                break
        assert route[i] == place
        if place == n_stages:
            assert cost[i] == pytest.approx(system.price_list.prices.sum() + 1.5)
            assert probability[i] == pytest.approx(expit(x @ np.arange(1.0, 7.0)), abs=CLIP)
        else:
            assert cost[i] == pytest.approx(sum(system.price_list.prices[g] for g in bought))
            assert probability[i] == pytest.approx(expit(f1))


@given(SEEDS, GROUPS, st.integers(0, 3))
@settings(deadline=None, max_examples=60)
def test_lazy_buying_asks_only_for_what_the_route_bought_once_and_in_one_batch_per_stage(
    seed, groups, n_stages
):
    system, X = chain(seed, groups, n_stages), rows_of(seed)
    bought = system.bought_by_route[system.route(X)]
    # A purchase delivers every column of its group.
    entitled = np.array([[any(row[np.equal(groups, g)]) for g in groups] for row in bought])
    source = StrictSource(X, entitled)
    np.testing.assert_array_equal(system.predict_from(source), system.predict(X))
    np.testing.assert_array_equal(source.asked, entitled)
    assert source.batches <= n_stages + 1


def tied(n=6000):
    """A chain whose first gate gives every row one of three scores, and 6 columns that tell the rows apart."""
    whole = chain(0, list(range(N_FEATURES)), 1)
    scorer = LinearScorer(np.array([0]), np.ones((1, 2)), np.zeros(2))
    chance = np.random.default_rng(0)
    X = np.column_stack([chance.integers(0, 3, n), chance.normal(size=(n, N_FEATURES - 1))])
    return whole, scorer, X


def test_a_share_of_the_tied_rows_is_sent_on_and_the_cost_is_what_that_share_says():
    whole, scorer, X = tied()
    for share in (0.0, 0.2, 0.7, 1.0):
        system = replace(whole, stages=(Stage(scorer, 1.5, Tie(0.5, share)),))
        sent = system.route(X) == 1
        assert sent[X[:, 0] == 2].all()
        assert not sent[X[:, 0] == 0].any()
        assert sent[X[:, 0] == 1].mean() == pytest.approx(share, abs=0.03)
        assert system.with_threshold(1.5).stages[0].tie is None


def test_whether_a_tied_row_is_sent_on_depends_on_that_row_alone():
    whole, scorer, X = tied(300)
    system = replace(whole, stages=(Stage(scorer, 1.5, Tie(0.5, 0.4, seed=3)),))
    route = system.route(X)
    for rows in (np.arange(10), np.arange(300)[::-1], np.array([17])):
        np.testing.assert_array_equal(system.route(X[rows]), route[rows])
    np.testing.assert_array_equal(system.route(sparse.csr_array(X)), route)
    np.testing.assert_array_equal(system.route(pd.DataFrame(X)), route)
    other_seed = replace(whole, stages=(Stage(scorer, 1.5, Tie(0.5, 0.4, seed=4)),))
    assert (other_seed.route(X) != route).any()


def test_a_source_is_asked_for_nothing_to_settle_a_tie_and_the_share_holds_there_too():
    whole, scorer, X = tied()
    system = replace(whole, stages=(Stage(scorer, 1.5, Tie(0.5, 0.4)),))
    source = StrictSource(X, np.ones(X.shape, dtype=bool))
    walk = system.walk(PurchaseReader(source, system.price_list, lambda rows: rows))
    np.testing.assert_array_equal(source.asked.any(axis=0), np.arange(N_FEATURES) == 0)
    assert (walk.route[X[:, 0] == 1] == 1).mean() == pytest.approx(0.4, abs=0.03)


def test_a_source_that_is_asked_too_much_would_be_noticed():
    system, X = chain(0, list(range(N_FEATURES))), rows_of(0)
    source = StrictSource(X, np.zeros(X.shape, dtype=bool))
    with pytest.raises(AssertionError, match="did not buy"):
        system.walk(PurchaseReader(source, system.price_list, lambda rows: rows))
    assert isinstance(source, FeatureSource)


@given(SEEDS, GROUPS)
@settings(deadline=None, max_examples=40)
def test_a_chain_behind_a_stage_is_the_longer_chain(seed, groups):
    whole, X = chain(seed, groups, 3), rows_of(seed)
    tail = GatedSystem(whole.stages[1:], whole.full, whole.price_list, whole.classes)
    joined = tail.behind(whole.stages[0])
    np.testing.assert_array_equal(joined.route(X), whole.route(X))
    # As an opaque f0 the tail gives the same answers.
    opaque = GatedSystem(whole.stages[:1], tail, whole.price_list, whole.classes)
    np.testing.assert_allclose(opaque.predict_proba(X), whole.predict_proba(X), atol=2 * CLIP)


def test_routing_and_cost_never_ask_the_full_model():
    system, X = chain(3, list(range(N_FEATURES))), rows_of(3)

    def refuse(table):
        raise AssertionError("f0 was asked")

    silent = system.with_full(CallableFull(refuse))
    assert (silent.route(X) == silent.n_stages).any()
    assert silent.cost(X).shape == (len(X),)
    with pytest.raises(AssertionError, match="f0 was asked"):
        silent.predict(X)


def test_precomputed_answers_are_looked_up_by_position_through_a_chain():
    system, X = chain(5, list(range(N_FEATURES))), rows_of(5)
    known = system.full.probability(X, np.arange(len(X)), len(X))
    by_value = system.with_full(PrecomputedFull(known))
    np.testing.assert_allclose(by_value.predict_proba(X), system.predict_proba(X))
    opaque = GatedSystem((), by_value, system.price_list, system.classes)
    np.testing.assert_allclose(opaque.predict_proba(X), system.predict_proba(X), atol=2 * CLIP)


def test_a_threshold_of_infinity_keeps_every_row_and_minus_infinity_none():
    system, X = chain(7, list(range(N_FEATURES)), 1), rows_of(7)
    assert np.all(system.with_threshold(np.inf).route(X) == 0)
    assert np.all(system.with_threshold(-np.inf).route(X) == 1)


def test_a_missing_value_in_a_bought_feature_is_refused():
    system, X = chain(1, list(range(N_FEATURES))), rows_of(1)
    X[3, system.stages[0].scorer.columns[0]] = np.nan
    with pytest.raises(InvalidInputError, match=r"stage 0 cannot score .* missing \(NaN\) or infinite"):
        system.predict(X)


def test_a_source_with_the_wrong_shape_is_refused():
    system, X = chain(1, list(range(N_FEATURES))), rows_of(1)

    class Short(StrictSource):
        def fetch(self, rows, columns):
            return self.X[np.ix_(rows, columns)][:-1]

    reader = PurchaseReader(Short(X, np.ones(X.shape, bool)), system.price_list, lambda rows: rows)
    with pytest.raises(InvalidInputError, match="must answer with an array"):
        system.walk(reader)


def test_rows_that_hold_different_purchases_are_asked_about_separately():
    prices = PriceList(np.ones(3), np.arange(3))
    X = np.arange(12.0).reshape(4, 3)
    source = StrictSource(X, np.ones(X.shape, dtype=bool))
    reader = PurchaseReader(source, prices, lambda rows: rows)
    reader.block(np.array([0, 1]), np.array([0]))
    np.testing.assert_array_equal(reader.block(np.arange(4), np.array([0, 1])), X[:, :2])
    np.testing.assert_array_equal(reader.table(np.array([2])), X[[2]])
    assert reader.bought.sum() == source.asked.sum() == 9


def test_a_system_reads_tables_of_every_kind_and_refuses_other_widths():
    system, X = chain(2, list(range(N_FEATURES))), rows_of(2)
    names = list("abcdef")
    for table in (
        pd.DataFrame(X, columns=names),
        pl.DataFrame(X, schema=names),
        sparse.csr_array(X),
        X.tolist(),
    ):
        np.testing.assert_array_equal(system.route(table), system.route(X))
    for width in (2, 12):
        with pytest.raises(InvalidInputError, match=f"6 columns of the price list; got {width}"):
            system.route(np.zeros((3, width)))
    with pytest.raises(InvalidInputError, match="Column 'c' holds (object|str)"):
        system.route(pd.DataFrame(X, columns=names).assign(c="red"))


def test_what_is_not_a_source_is_refused():
    system, X = chain(2, list(range(N_FEATURES))), rows_of(2)
    with pytest.raises(InvalidInputError, match=r"fetch\(rows, columns\); got ndarray"):
        system.predict_from(X)

    class Words(StrictSource):
        def fetch(self, rows, columns):
            return [["red"] * len(columns) for _ in rows]

    with pytest.raises(InvalidInputError, match="answer with numbers"):
        system.predict_from(Words(X, np.ones(X.shape, bool)))


def test_a_table_reader_slices_rows_and_columns():
    X = np.arange(12.0).reshape(4, 3)
    reader = TableReader(X, X)
    np.testing.assert_array_equal(reader.block(np.array([1, 3]), np.array([0, 2])), X[[1, 3]][:, [0, 2]])
    np.testing.assert_array_equal(reader.table(np.array([1])), X[[1]])
