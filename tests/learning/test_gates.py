"""Learned gates: taken where the margin misleads, left where it does not, and honest about their rows."""

from dataclasses import replace

import numpy as np
import pytest

from thrifty import BudgetedClassifier
from thrifty.bundle import from_bytes, to_bytes
from thrifty.evidence.policies import price_grid
from thrifty.evidence.stopping import Evidence
from thrifty.learning.cascade.gates import (
    choose_gates,
    learn_gates,
    middle_price,
    n_coarse_stages,
    settled_log_odds,
)
from thrifty.learning.cascade.problem import CascadeProblem
from thrifty.learning.cascade.staged import grow_stages
from thrifty.learning.pairs.boosted import Boosting
from thrifty.objective.costs import PriceList
from thrifty.rows import content_folds
from thrifty.trees import Binner


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
    clf = BudgetedClassifier(belief(X), feature_costs=[0, 0, 1, 1], sizes=[(20, 4)], cv=4, random_state=0)
    return clf.fit(X, y)


@pytest.fixture(scope="module")
def gated():
    return fitted(hopeless=0.4)


def test_gates_are_learned_where_rows_that_look_unsure_cannot_be_helped(gated):
    assert all(step.gate is not None for step in gated.cascade_.steps)
    X, _ = make(2000, 0.4, seed=1)
    hopeless = X[:, 0] == 1
    cost = gated.at(budget=0.5).cost(X)
    assert cost[hopeless].mean() < 0.5 * cost[~hopeless].mean()


def test_the_margin_stays_the_gate_where_it_says_all_there_is():
    assert all(step.gate is None for step in fitted(hopeless=0.0, n_rows=1500).cascade_.steps)


def test_learned_gates_are_kept_in_files_and_explained(gated):
    X, _ = make(200, 0.4, seed=2)
    there = gated.at(budget=0.5)
    again = from_bytes(to_bytes(there))
    np.testing.assert_array_equal(again.route(X), there.route(X))
    there = there.with_full(belief(X[:20]))
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
        Binner().fit_transform(X),
        y,
        np.ones(800),
        [np.flatnonzero(folds == fold) for fold in range(4)],
        3 * y,
        PriceList(np.ones(4), np.arange(4)),
    )
    log_odds = np.column_stack([X[:, 1], X[:, 1] + X[:, 2]])
    loss = np.column_stack([(log_odds > 0) != (y > 0)[:, None], np.zeros(800)]).astype(float)
    evidence = Evidence(-np.abs(log_odds), loss, np.array([1.0, 2.0, 4.0]), np.ones(800))
    return problem, (np.array([1, 0]), np.array([1, 0, 2])), evidence, log_odds


def test_a_held_out_gate_does_not_know_the_losses_of_its_fold(known):
    problem, sets, evidence, log_odds = known
    fold, price = problem.folds[0], middle_price(evidence)
    before = learn_gates(problem, sets, evidence, log_odds, price).held_out
    changed = evidence.loss.copy()
    changed[fold] = 1 - changed[fold]
    after = learn_gates(problem, sets[1:], _last_stage(evidence, changed), log_odds[:, 1:], price).held_out
    np.testing.assert_array_equal(after[fold, 0], before[fold, 1])
    assert (after[:, 0] != before[:, 1]).any()


def _last_stage(evidence, loss):
    # What happens behind the last stage depends on no threshold, so only the labels of the fold differ.
    return replace(evidence, gate=evidence.gate[:, 1:], loss=loss[:, 1:], cost=evidence.cost[1:])


def test_a_gate_reads_its_block_in_the_order_of_purchase(known):
    problem, sets, evidence, log_odds = known
    trees = learn_gates(problem, sets, evidence, log_odds, middle_price(evidence)).trees
    X, _ = make(800, 0.4)
    block = np.column_stack([X[:, sets[1]], log_odds[:, 1]])
    other = block.copy()
    other[:, 1] = 1 - other[:, 1]  # the mark of the hopeless
    assert (trees[1].predict(other) != trees[1].predict(block)).any()
    assert trees[1].n_features == 4


def test_stages_of_few_lumps_are_judged_by_the_model_that_serves(known):
    problem, _, _, log_odds = known
    sets = (np.array([0]), np.array([0, 1]))
    assert n_coarse_stages(problem, sets) == 1
    assert n_coarse_stages(problem, sets[1:]) == 0
    staged = grow_stages(problem.table, problem.y, problem.weight, sets, Boosting(n_trees=3))
    sigmoids = np.array([[2.0, 0.1], [1.0, 0.0]])
    settled = settled_log_odds(staged, problem.table, sigmoids, log_odds, 1)
    np.testing.assert_array_equal(settled[:, 1], log_odds[:, 1])
    np.testing.assert_array_equal(settled[:, 0], 2 * staged.scores(problem.table)[:, 0] + 0.1)


def test_the_middle_price_is_one_of_the_grid(known):
    assert middle_price(known[2]) in price_grid(known[2], 30)


def test_equally_good_gates_are_not_taken(known):
    problem, sets, evidence, log_odds = known
    right = evidence.loss == 0
    flat = replace(evidence, loss=np.zeros_like(evidence.loss))
    assert choose_gates(problem, sets, flat, log_odds, np.ones_like(right)) is None
