"""One row against the same row walking from stage to stage: routes, scores and bills are equal bit by bit."""

import pickle
import time
from dataclasses import fields, replace

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit

from thrifty import Prices
from thrifty.engine.full.model import CallableFull
from thrifty.engine.prices.prices import check_price_list
from thrifty.engine.table.table import Table
from thrifty.engine.tasks.classes import BinaryTask
from thrifty.engine.trees import TreeEnsemble
from thrifty.engine.trees.binning import LevelSets
from thrifty.engine.walk.chain import Chain
from thrifty.engine.walk.policy import Policy
from thrifty.engine.walk.stage import CascadeStage
from thrifty.errors import InvalidInputError

N_FEATURES = 8
TASK = BinaryTask(np.array(["a", "b"]))


class Guarded(Table):
    """A table of which only cells may be read that a row needs."""

    is_at_hand = False


def tree(rng, n_columns, depth):
    """A complete tree with random questions and answers; depth 0 is a leaf."""
    n_nodes = 2**depth - 1
    children = 2 * np.arange(n_nodes)[:, None] + [1, 2]
    return TreeEnsemble(
        n_columns,
        rng.integers(0, n_columns, n_nodes).astype(np.int32),
        rng.normal(size=n_nodes),
        np.zeros(n_nodes, np.uint8),
        rng.random(n_nodes) < 0.5,
        np.where(children < n_nodes, children, ~(children - n_nodes)).astype(np.int32),
        rng.normal(size=(n_nodes + 1, 1)) / 3,
        np.array([0, n_nodes], np.int32),
        np.array([0, n_nodes + 1], np.int32),
    ).validate()


def forest(rng, n_columns, n_trees=11):
    return TreeEnsemble.concatenate([tree(rng, n_columns, int(rng.integers(0, 5))) for _ in range(n_trees)])


def asking_for_sets(rng, trees):
    """The same trees, in which every second node asks for a set of levels."""
    nodes = np.arange(0, len(trees.feature), 2)
    return replace(trees, sets=LevelSets.of(nodes, [np.flatnonzero(rng.random(8) < 0.5) for _ in nodes]))


def first_column(table):
    return expit(np.asarray(table)[:, 0])


def cascade(n_stages, *, gated=0.0, share=0.0, full=None, seed=0):
    rng = np.random.default_rng(seed)
    order = rng.permutation(N_FEATURES)
    stages = []
    for place in range(n_stages):
        columns = order[: min(place + 1, N_FEATURES)]
        gate = forest(rng, len(columns) + 1, 3) if rng.random() < gated else None
        stages.append(CascadeStage(columns, forest(rng, len(columns)), rng.uniform(0.5, 2, 2), TASK, gate))
    prices = check_price_list(Prices(rng.uniform(1, 3, N_FEATURES), full=1.0), N_FEATURES)
    if full is None:
        full = CallableFull(first_column, TASK)
    nobody_stops = Policy.of(np.full(n_stages, -np.inf))
    chain = Chain(tuple(stages), full, prices, TASK, nobody_stops, np.array([0.3]), np.array([0.1, 0.4, 0.6]))
    # Every stage keeps some rows, and the second point lets more of them go on from some stage on.
    thresholds = np.quantile(chain.visit_all(chain.reader(rows_of())).gate, [0.35, 0.15], axis=0)
    thresholds[1, : n_stages // 3] = thresholds[0, : n_stages // 3]
    return chain.at(Policy.of(*thresholds, share=share, seed=3))


def rows_of(n_rows=60, seed=1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, N_FEATURES))
    X[rng.random(X.shape) < 0.1] = np.nan
    X[:, 0] = np.nan_to_num(X[:, 0])
    return X


def assert_same(one, other):
    np.testing.assert_array_equal(one.route, other.route)
    np.testing.assert_array_equal(one.scores, other.scores)


@pytest.mark.slow
@pytest.mark.parametrize("max_trees", [1, 25, 800])
@pytest.mark.parametrize("gated", [0.0, 0.6])
@pytest.mark.parametrize("n_stages", [1, 5, 16])
def test_one_row_is_answered_bit_by_bit_as_in_a_batch(monkeypatch, n_stages, gated, max_trees):
    monkeypatch.setattr("thrifty.engine.walk.walk.MAX_TREES", max_trees)
    chain, X = cascade(n_stages, gated=gated), rows_of()
    walk, outputs, cost = chain.walk(Table(X, X)), chain.predict_proba(X), chain.cost(X)
    assert len(set(walk.route.tolist())) > 1
    for row in range(0, len(X), 2):
        one = X[row : row + 1]
        np.testing.assert_array_equal(chain.route(one), walk.route[[row]])
        np.testing.assert_array_equal(chain.walk(Table(one, one)).scores, walk.scores[[row]])
        np.testing.assert_array_equal(chain.predict_proba(one), outputs[[row]])
        np.testing.assert_array_equal(chain.cost(one), cost[[row]])


def test_one_row_passes_a_first_stage_that_has_no_trees():
    chain, X = cascade(3), rows_of()
    first = chain.stages[0]
    empty = replace(first, trees=TreeEnsemble.empty(len(first.columns)))
    chain = replace(chain, stages=(empty, *chain.stages[1:]))
    np.testing.assert_array_equal(chain.predict_proba(X[:1]), chain.predict_proba(X)[:1])


@pytest.mark.slow
@pytest.mark.parametrize("max_trees", [1, 25, 800])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_chance_sends_one_row_where_it_sends_a_row_that_walks(monkeypatch, share, max_trees):
    monkeypatch.setattr("thrifty.engine.walk.walk.MAX_TREES", max_trees)
    chain = cascade(6, gated=0.3, share=share)
    routes = []
    for row in rows_of(100):
        one = row[None]
        walk = chain.walk(Table(one, one))
        assert_same(walk, chain.walk(Guarded(one, one)))
        routes.append(int(walk.route[0]))
    assert len(set(routes)) > 3


def test_one_row_walks_on_through_a_chain_in_the_place_of_the_full_model():
    behind = cascade(3, seed=5)
    chain = cascade(2, full=behind)
    walks = [chain.walk(Table(row[None], row[None])) for row in rows_of()]
    batch = chain.walk(Table(rows_of(), rows_of()))
    assert {0, 1, 2, 5} <= set(batch.route.tolist())
    np.testing.assert_array_equal(np.concatenate([walk.route for walk in walks]), batch.route)


def test_one_sparse_row_is_read_as_a_dense_one():
    chain, X = cascade(4), np.nan_to_num(rows_of(5))
    for row in X:
        assert_same(
            chain.walk(chain.reader(sparse.csr_array(row[None]))), chain.walk(chain.reader(row[None]))
        )


def test_one_row_of_a_table_at_hand_does_not_go_from_stage_to_stage(monkeypatch):
    chain, one = cascade(16), rows_of(1)

    def refuse(*_):
        raise AssertionError("a stage was asked alone")

    monkeypatch.setattr(CascadeStage, "visit", refuse)
    chain.predict_proba(one)
    with pytest.raises(AssertionError, match="a stage was asked alone"):
        chain.walk(Guarded(one, one))


@pytest.mark.slow
@pytest.mark.parametrize("max_trees", [1, 25])
def test_one_row_of_levels_is_answered_as_in_a_batch_and_not_stage_by_stage(monkeypatch, max_trees):
    monkeypatch.setattr("thrifty.engine.walk.walk.MAX_TREES", max_trees)
    rng, X, chain = np.random.default_rng(2), np.floor(3 * abs(rows_of())), cascade(5, gated=0.5)
    stages = [replace(stage, trees=asking_for_sets(rng, stage.trees)) for stage in chain.stages]
    stages = [
        stage if stage.gate is None else replace(stage, gate=asking_for_sets(rng, stage.gate))
        for stage in stages
    ]
    chain = replace(chain, stages=tuple(stages))
    thresholds = np.quantile(chain.visit_all(chain.reader(X)).gate, 0.3, axis=0)
    chain = chain.at(Policy.of(thresholds))
    walk = chain.walk(Table(X, X))
    assert len(set(walk.route.tolist())) > 3
    monkeypatch.setattr(CascadeStage, "visit", None)
    for row, one in enumerate(X[:, None]):
        alone = chain.walk(Table(one, one))
        np.testing.assert_array_equal(alone.route, walk.route[[row]])
        np.testing.assert_array_equal(alone.scores, walk.scores[[row]])


def test_one_row_without_a_score_is_refused_by_its_stage():
    chain = cascade(3)
    lost = replace(chain.stages[1], calibration=np.array([np.nan, 0.0]))
    nobody_stops = Policy.of(np.full(3, -np.inf))
    chain = replace(chain, stages=(chain.stages[0], lost, chain.stages[2]), policy=nobody_stops)
    with pytest.raises(InvalidInputError, match="stage 1 cannot score 1 rows"):
        chain.predict_proba(rows_of(1))


def test_a_pickle_holds_the_fields_of_a_chain_and_nothing_that_follows_from_them():
    chain = cascade(8)
    expected, cost = chain.predict_proba(rows_of(1)), chain.cost(rows_of(1))
    again = pickle.loads(pickle.dumps(chain))
    assert vars(again).keys() == {field.name for field in fields(Chain)}
    np.testing.assert_array_equal(again.predict_proba(rows_of(1)), expected)
    # Pickles of earlier versions hold caches, which are dropped.
    again.__setstate__({**vars(again), "has_forks": True, "bought_by_place": None, "cost_by_place": None})
    np.testing.assert_array_equal(again.cost(rows_of(1)), cost)


def test_one_row_of_sixteen_stages_takes_less_than_three_milliseconds():
    chain, one = cascade(16, gated=1.0, share=0.5), rows_of(1)
    times = []
    for _ in range(200):
        start = time.perf_counter()
        chain.predict(one)
        times.append(time.perf_counter() - start)
    assert min(times) < 3e-3
