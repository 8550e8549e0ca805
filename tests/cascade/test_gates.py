"""Learned gates: taken where the margin misleads, left where it does not, and honest about their rows."""

from dataclasses import replace

import numpy as np
import pytest

from thrifty import BudgetedClassifier, StageOptions
from thrifty.bundle import from_bytes, to_bytes
from thrifty.engine.evidence.evidence import Evidence
from thrifty.engine.evidence.thresholds import price_grid
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.tasks.classes import BinaryTask
from thrifty.engine.trees import bin_columns
from thrifty.learners.cascade import gates
from thrifty.learners.cascade.gates import (
    RowNodes,
    choose_gates,
    learn_gates,
    middle_price,
    n_tied_stages,
    scores_on_served_scale,
)
from thrifty.learners.cascade.problem import CascadeProblem
from thrifty.learners.cascade.stages import grow_stages
from thrifty.learners.trees.boosting import Boosting
from thrifty.rows import content_folds


def make(n_rows, hopeless, seed=0):
    """Labels are the sign of a sum, with few exceptions; those of hopeless rows, which a column marks, are chance."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 4))
    X[:, 0] = rng.random(n_rows) < hopeless
    y = (X[:, 1:].sum(axis=1) > 0) ^ (rng.random(n_rows) < 0.02)
    chance = X[:, 0] == 1
    y[chance] = rng.random(chance.sum()) < 0.5
    return X, y.astype(int)


def belief(X):
    """An f0 that knows all there is to know."""
    is_positive = X[:, 1:].sum(axis=1) > 0
    return np.where(X[:, 0] == 1, np.where(is_positive, 0.51, 0.49), np.where(is_positive, 0.98, 0.02))


def fitted(hopeless, n_rows=3000):
    X, y = make(n_rows, hopeless)
    clf = BudgetedClassifier(
        belief(X), feature_costs=[0, 0, 1, 1], stages=StageOptions(sizes=[(20, 4)]), cv=4, random_state=0
    )
    return clf.fit(X, y)


@pytest.fixture(scope="module")
def gated():
    return fitted(hopeless=0.4)


@pytest.mark.slow
def test_gates_are_learned_where_rows_that_look_unsure_cannot_be_helped(gated):
    assert all(stage.gate is not None for stage in gated.chain_.stages)
    X, _ = make(2000, 0.4, seed=1)
    hopeless = X[:, 0] == 1
    cost = gated.at(budget=0.5).cost(X)
    assert cost[hopeless].mean() < 0.5 * cost[~hopeless].mean()


@pytest.mark.slow
def test_the_margin_stays_the_gate_where_it_says_all_there_is_and_no_other_is_grown_on_all_rows(monkeypatch):
    grown_on, regress = [], gates._regress
    monkeypatch.setattr(gates, "_regress", lambda *known: grown_on.append(len(known[4])) or regress(*known))
    assert all(stage.gate is None for stage in fitted(hopeless=0.0, n_rows=1500).chain_.stages)
    assert 1000 < max(grown_on) < 1200  # three folds of four


def test_learned_gates_are_kept_in_files(gated):
    X, _ = make(200, 0.4, seed=2)
    there = gated.at(budget=0.5)
    again = from_bytes(to_bytes(there))
    np.testing.assert_array_equal(again.route(X), there.route(X))


def test_learned_gates_are_explained(gated):
    X, _ = make(200, 0.4, seed=2)
    there = gated.at(budget=0.5).with_full(belief(X[:20]), X[:20])
    for told, route in zip(there.explain(X[:20]), there.route(X[:20]), strict=True):
        assert [stage.goes_on for stage in told.stages] == [
            place < route for place in range(len(told.stages))
        ]


@pytest.fixture(scope="module")
def known():
    X, y = make(800, 0.4)
    y = 2.0 * y - 1
    folds = content_folds(X, y, 4)
    problem = CascadeProblem(
        bin_columns(X),
        BinaryTask(np.array([0, 1])),
        y,
        np.ones(800),
        [np.flatnonzero(folds == fold) for fold in range(4)],
        3 * y[:, None],
        PriceList(np.ones(4), np.arange(4)),
    )
    log_odds = np.column_stack([X[:, 1], X[:, 1] + X[:, 2]])
    loss = np.column_stack([(log_odds > 0) != (y > 0)[:, None], np.zeros(800)]).astype(float)
    evidence = Evidence(-np.abs(log_odds), loss == 0, np.array([1.0, 2.0, 4.0]))
    return problem, (np.array([1, 0]), np.array([1, 0, 2])), evidence, loss, log_odds[:, :, None]


def test_a_held_out_gate_does_not_know_the_losses_of_its_fold(known):
    problem, sets, evidence, loss, scores = known
    fold, price = problem.folds[0], middle_price(evidence, loss)
    before = learn_gates(problem, RowNodes.on_line(sets), evidence, loss, scores, price).held_out
    changed = loss.copy()
    changed[fold] = 1 - changed[fold]
    # What happens behind the last stage depends on no threshold, so only the labels of the fold differ.
    last = Evidence(evidence.gate[:, 1:], evidence.quality[:, 1:], evidence.cost[1:])
    after = learn_gates(
        problem, RowNodes.on_line(sets[1:]), last, changed[:, 1:], scores[:, 1:], price
    ).held_out
    np.testing.assert_array_equal(after[fold, 0], before[fold, 1])
    assert (after[:, 0] != before[:, 1]).any()


def test_the_gate_of_a_node_is_learned_from_the_rows_that_stand_there(known):
    problem, sets, evidence, loss, scores = known
    price = middle_price(evidence, loss)
    # The last stage alone, because what happens behind it depends on no threshold.
    last = Evidence(evidence.gate[:, 1:], evidence.quality[:, 1:], evidence.cost[1:])
    node = (problem.table.codes[:, 3] > np.median(problem.table.codes[:, 3])).astype(int)[:, None]
    row_nodes = RowNodes([[sets[1], np.array([1, 0, 3])]], node)
    changed, there = loss.copy(), node[:, 0] == 0
    changed[there] = 1 - changed[there]
    one, other = (
        learn_gates(problem, row_nodes, last, losses[:, 1:], scores[:, 1:], price)
        for losses in (loss, changed)
    )
    np.testing.assert_array_equal(one.held_out[~there], other.held_out[~there])
    assert (one.held_out[there] != other.held_out[there]).any()
    assert [trees.n_features for trees in one.trees[0]] == [4, 4]


def test_a_gate_reads_its_block_in_the_order_of_purchase(known):
    problem, sets, evidence, loss, scores = known
    trees = learn_gates(
        problem, RowNodes.on_line(sets), evidence, loss, scores, middle_price(evidence, loss)
    ).trees
    X, _ = make(800, 0.4)
    block = np.column_stack([X[:, sets[1]], scores[:, 1]])
    other = block.copy()
    other[:, 1] = 1 - other[:, 1]  # the mark of the hopeless
    assert (trees[1][0].predict(other) != trees[1][0].predict(block)).any()
    assert trees[1][0].n_features == 4


def test_stages_of_few_lumps_are_judged_by_the_model_that_serves(known):
    problem, scores = known[0], known[-1]
    sets = (np.array([0]), np.array([0, 1]))
    assert n_tied_stages(problem, sets) == 1
    assert n_tied_stages(problem, sets[1:]) == 0
    staged = grow_stages(problem.task, problem.table, problem.y, problem.weight, sets, Boosting(n_trees=3))
    calibrations = [np.array([2.0, 0.1]), np.array([1.0, 0.0])]
    served = staged.scores(problem.table)[:, :1]
    settled = scores_on_served_scale(problem, served, calibrations, scores, np.array([3.0, 1.5]))
    np.testing.assert_array_equal(settled[:, 1], 1.5 * scores[:, 1])  # as sure as the model that serves
    np.testing.assert_array_equal(settled[:, 0], 2 * staged.scores(problem.table)[:, 0] + 0.1)


def test_the_middle_price_is_one_of_the_grid(known):
    _, _, evidence, loss, _ = known
    assert middle_price(evidence, loss) in price_grid(evidence, 30)


def test_equally_good_gates_are_not_taken(known):
    problem, sets, evidence, loss, scores = known
    flat = replace(evidence, quality=np.ones_like(evidence.quality))
    assert choose_gates(problem, RowNodes.on_line(sets), flat, np.zeros_like(loss), scores) is None
