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
from thrifty.learners.cascade.evaluation import (
    Candidate,
    StageScores,
    n_tied_stages,
    scores_on_served_scale,
)
from thrifty.learners.cascade.gates import learn_gates, middle_price, with_learned_gates
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
        task=BinaryTask(np.array([0, 1])),
        table=bin_columns(X),
        y=y,
        weight=np.ones(800),
        folds=[np.flatnonzero(folds == fold) for fold in range(4)],
        price_list=PriceList(np.ones(4), np.arange(4)),
    ).with_full(3 * y[:, None])
    log_odds = np.column_stack([X[:, 1], X[:, 1] + X[:, 2]])
    loss = np.column_stack([(log_odds > 0) != (y > 0)[:, None], np.zeros(800)]).astype(float)
    evidence = Evidence(-np.abs(log_odds), loss == 0, np.array([1.0, 2.0, 4.0]))
    settled, sets = log_odds[:, :, None], (np.array([1, 0]), np.array([1, 0, 2]))
    return problem, sets, Candidate(evidence, loss, [], problem.task.full_alone, settled, sets=sets)


def last_stage(candidate, loss):
    """The candidate with its last stage alone: what happens behind that depends on no threshold, only on losses."""
    evidence = candidate.evidence
    last = Evidence(evidence.gate[:, 1:], evidence.quality[:, 1:], evidence.cost[1:])
    served = candidate.served_scores[:, 1:]
    return replace(candidate, evidence=last, loss=loss[:, 1:], served_scores=served, sets=candidate.sets[1:])


def test_a_held_out_gate_does_not_know_the_losses_of_its_fold(known):
    problem, _, candidate = known
    fold, price = problem.folds[0], middle_price(candidate)
    before = learn_gates(problem, candidate, price)[0]
    changed = candidate.loss.copy()
    changed[fold] = 1 - changed[fold]
    last = last_stage(candidate, changed)  # only the labels of the fold differ
    after = learn_gates(problem, last, price)[0]
    np.testing.assert_array_equal(after[fold, 0], before[fold, 1])
    assert (after[:, 0] != before[:, 1]).any()


def test_a_gate_reads_its_block_in_the_order_of_purchase(known):
    problem, sets, candidate = known
    trees = learn_gates(problem, candidate, middle_price(candidate))[1]()
    X, _ = make(800, 0.4)
    block = np.column_stack([X[:, sets[1]], candidate.served_scores[:, 1]])
    other = block.copy()
    other[:, 1] = 1 - other[:, 1]  # the mark of the hopeless
    assert (trees[1].predict(other) != trees[1].predict(block)).any()
    assert trees[1].n_features == 4


def test_stages_of_few_groups_of_equal_rows_have_the_scores_of_the_served_model(known):
    problem, _, candidate = known
    sets, scores = (np.array([0]), np.array([0, 1])), candidate.served_scores
    assert n_tied_stages(problem, sets) == 1
    assert n_tied_stages(problem, sets[1:]) == 0
    staged = grow_stages(problem, sets, Boosting(n_trees=3))
    calibrations = [np.array([2.0, 0.1]), np.array([1.0, 0.0])]
    tied = staged.scores(problem.table)[:, :1]
    stages = StageScores(scores, tied, ratio=np.array([3.0, 1.5]), costs=np.arange(3.0))
    settled = scores_on_served_scale(problem.task, stages, calibrations, scores)
    np.testing.assert_array_equal(settled[:, 1], 1.5 * scores[:, 1])  # as sure as the model that serves
    np.testing.assert_array_equal(settled[:, 0], 2 * staged.scores(problem.table)[:, 0] + 0.1)


def test_the_middle_price_is_one_of_the_grid(known):
    candidate = known[-1]
    assert middle_price(candidate) in price_grid(candidate.evidence, 30)


def test_equally_good_gates_are_not_taken(known):
    problem, _, candidate = known
    level = replace(candidate.evidence, quality=np.ones_like(candidate.evidence.quality))
    flat = replace(candidate, evidence=level, loss=np.zeros_like(candidate.loss))
    assert with_learned_gates(problem, flat) is flat
