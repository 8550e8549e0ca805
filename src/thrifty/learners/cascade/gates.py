"""Learned gates: expected loss of stopping at a stage, from the columns held there and the stage's own scores.

    gate_k(x) = E[ stop - go | columns of stage k, scores of stage k ]      by boosted least squares

"Go" is the loss of the row under the stopping rules of the later stages, at a price in the middle of the frontier. The
first trees read the scores alone, then small trees with a low learning rate read all columns. Every row's gate is
predicted by trees grown without the row's fold.

A stage that holds few distinct rows has large groups of tied rows. Each fold's model would give a group another score,
and a threshold between those scores would split the group, which the served model cannot do. So gates of such stages
are taken from the served model itself: with many rows in a group, it hardly overfits.

The plain margin is a strong baseline: learned gates are used only if they are clearly better on folds that thresholds
were not chosen on.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from thrifty.arrays import Bools, Floats, Ints
from thrifty.engine.evidence.thresholds import StoppingRules, price_grid
from thrifty.engine.tasks.regression import SquaredLoss
from thrifty.engine.trees import BinnedTable, TreeEnsemble, bin_columns
from thrifty.engine.trees.binning import WORD, Thresholds
from thrifty.learners.cascade.evaluation import (
    CLEARLY_BETTER,
    N_PRICES,
    Candidate,
    compare_over_budgets,
)
from thrifty.learners.cascade.problem import SEARCH_ROWS, AnsweredProblem
from thrifty.learners.cascade.stages import StageGrower, compact, narrow_table
from thrifty.learners.trees.boosting import Boosting
from thrifty.rows import uniforms
from thrifty.threads import workers

SCORE_ONLY = Boosting(n_trees=20, max_depth=4, learning_rate=0.3, step="gradient", min_child_samples=20)
"""Settings of the first trees, over the scores alone (no command: a gate is taken only where it is clearly better)."""

ALL_COLUMNS = Boosting(n_trees=30, max_depth=3, learning_rate=0.05, step="gradient", min_child_samples=40)
"""Settings of the second trees, over all columns."""

REGRESSION_GATE_SIZES = (
    Boosting(n_trees=80, max_depth=4, learning_rate=0.08, step="gradient", min_child_samples=20),
    Boosting(n_trees=150, max_depth=5, learning_rate=0.1, step="gradient", min_child_samples=20),
)
"""Settings of the second trees for regression, where scores carry no uncertainty; chosen out of fold."""

ROWS_OF_LARGER = 1_500
"""Rows from which on the larger of them is tried: on fewer it would win by chance."""

MAX_REGRESSION_ROWS = 20_000
"""Rows that gates of regression are learned from, where there is no margin to fall back on; else ``SEARCH_ROWS``."""

MANY_STAGES = 8
"""Stages from which on those of a quarter of them show whether gates help (no command chose it)."""


LearnedGates = tuple[Floats, Callable[[], tuple[TreeEnsemble, ...]]]
"""Gate scores (n_rows, n_stages) by trees that have not seen the row, except at tied stages; and a function that grows
the trees of each stage that serve, over its columns and, behind them, its scores, on all rows."""


def with_learned_gates(problem: AnsweredProblem, candidate: Candidate) -> Candidate:
    """The candidate with learned gates, or as it is where the margin of its scores does as well out of fold."""
    if candidate.sets is None:
        return candidate
    problem = problem.evaluated
    problem.progress("learning gates", 0, 1)
    choose = _choose_gates if problem.task.has_uncertainty else _choose_regression_gates
    gates = choose(problem, candidate)
    problem.progress("learning gates", 1, 1)
    if gates is None:
        return candidate
    held_out, grow = gates
    return replace(candidate, evidence=replace(candidate.evidence, gate=held_out), grow_gates=grow)


def _choose_gates(problem: AnsweredProblem, candidate: Candidate) -> LearnedGates | None:
    """Learned gates that are clearly better than the margin."""
    price, n_stages = middle_price(candidate), candidate.evidence.n_stages
    # Every second or fourth stage first: a quarter of the gates should show a quarter of the z-score.
    step = 4 if n_stages >= MANY_STAGES else 2
    is_first, gate = (n_stages - 1 - np.arange(n_stages)) % step == 0, candidate.evidence.gate.copy()
    parts: list[tuple[Ints, Callable[[], tuple[TreeEnsemble, ...]]]] = []
    for is_next, min_z in ((is_first, CLEARLY_BETTER / step), (~is_first, CLEARLY_BETTER)):
        stages = np.flatnonzero(is_next)
        gate[:, stages], grow_part = learn_gates(problem, candidate, price, stages=stages.tolist())
        parts.append((stages, grow_part))
        if _lead_of_gates(problem, candidate, gate) <= min_z:
            return None

    def grow() -> tuple[TreeEnsemble, ...]:
        trees = {
            stage: of_stage
            for stages, grow_part in parts
            for stage, of_stage in zip(stages.tolist(), grow_part(), strict=True)
        }
        return tuple(trees[stage] for stage in range(n_stages))

    return gate, grow


def _choose_regression_gates(problem: AnsweredProblem, candidate: Candidate) -> LearnedGates | None:
    """Learned gates for regression, where scores carry no uncertainty; None if a constant gate is better.

    Learned twice: the first gates assume that all rows stop at the same stage, the second that rows follow the first.
    """
    gates_by_lead = []
    for second in REGRESSION_GATE_SIZES[: 2 if problem.n_rows >= ROWS_OF_LARGER else 1]:
        gated = candidate
        for _ in range(2):
            gates = learn_gates(problem, gated, middle_price(gated), second=second)
            gated = replace(candidate, evidence=replace(candidate.evidence, gate=gates[0]))
        gates_by_lead.append((_lead_of_gates(problem, candidate, gates[0]), gates))
    lead, best = max(gates_by_lead, key=lambda pair: pair[0])
    return best if lead > 0.0 else None


def _lead_of_gates(problem: AnsweredProblem, candidate: Candidate, gate: Floats) -> float:
    """z-score of other gates against those of the candidate, at points that are chosen by expected quality."""
    candidate = replace(candidate, score=problem.task.expected_quality(candidate.loss))
    gated = replace(candidate, evidence=replace(candidate.evidence, gate=gate))
    return compare_over_budgets(problem, gated, candidate)


def learn_gates(
    problem: AnsweredProblem,
    candidate: Candidate,
    price: float,
    *,
    stages: Sequence[int] | None = None,
    second: Boosting | None = None,
) -> LearnedGates:
    """Grow a gate per fold for the rows of the fold and, once ``grow`` is called, one on all rows.

    Parameters
    ----------
    candidate : Candidate
        Rows at every stage: what they hold there, their scores, and the rules of stopping behind it.
    price : float
        Loss per unit of cost at which the target of gates is computed.
    stages : sequence of int, optional
        Stages whose gates are learned; by default all.
    second : Boosting, optional
        Settings of trees over all columns; by default ``ALL_COLUMNS``.
    """
    target = StoppingRules(candidate.evidence, candidate.loss).stop_minus_go(price)
    scores, sets, n_scores = candidate.served_scores, candidate.sets, problem.task.n_scores
    assert scores is not None  # of evaluated stages
    assert sets is not None
    # By content, so that equal rows are all used or not at all.
    max_rows = SEARCH_ROWS if problem.task.has_uncertainty else MAX_REGRESSION_ROWS
    used = uniforms(problem.table.codes, 1) < max_rows / problem.n_rows
    held_out = np.empty(scores.shape[:2])
    stages = range(len(sets)) if stages is None else stages

    def table_of(stage: int) -> BinnedTable:
        return _with_scores(
            narrow_table(problem.table, np.sort(sets[stage])), scores[:, stage], problem.weight
        )

    def regress(stage: int, table: BinnedTable, is_used: Bools) -> TreeEnsemble:
        return _regress(table, n_scores, target[:, stage], problem.weight, np.flatnonzero(is_used), second)

    def evaluate(stage: int) -> None:
        table = table_of(stage)
        if stage < candidate.n_tied:
            held_out[:, stage] = compact(regress(stage, table, used)).predict_binned(table)[:, 0]
            return
        for fold in problem.folds:
            rest = used.copy()
            rest[fold] = False
            trees = regress(stage, table, rest)
            held_out[fold, stage] = trees.predict_binned(table.take(fold))[:, 0]

    def serve(stage: int) -> TreeEnsemble:
        places = np.searchsorted(np.sort(sets[stage]), sets[stage])
        trees = compact(regress(stage, table_of(stage), used))
        return trees.over_columns(np.r_[places, len(places) + np.arange(n_scores)])

    def at_each_stage(make: Callable[[int], Any]) -> tuple[Any, ...]:
        with workers(problem.n_threads) as pool:
            return tuple(pool.map(make, stages))

    at_each_stage(evaluate)
    return held_out[:, stages], partial(at_each_stage, serve)


def middle_price(candidate: Candidate) -> float:
    """Price whose stopping rules spend the geometric mean of the cheapest and the dearest rules."""
    evidence = candidate.evidence
    rules, prices = StoppingRules(evidence, candidate.loss), price_grid(evidence, N_PRICES)
    spent, _ = evidence.weighted_means(rules.at_each(prices))
    positive = spent[spent > 0]
    if not len(positive):
        return float(prices[0])
    middle = np.sqrt(positive.min() * positive.max())
    return float(prices[int(np.argmin(np.abs(spent - middle)))])


def _regress(
    table: BinnedTable,
    n_scores: int,
    target: Floats,
    weight: Floats,
    rows: Ints,
    second: Boosting | None = None,
) -> TreeEnsemble:
    """Boosted least squares: the scores, which are the last columns, alone, then all columns."""
    if not len(rows):
        return TreeEnsemble.empty(table.n_features)
    part, wanted, counts = table.take(rows), target[rows], weight[rows]
    margin = np.arange(table.n_features - n_scores, table.n_features)
    score, loss = np.zeros((len(rows), 1)), SquaredLoss(wanted)
    parts = []
    for boosting, columns in ((SCORE_ONLY, margin), (second or ALL_COLUMNS, np.arange(table.n_features))):
        stage = StageGrower(part, columns, boosting, n_scores=1)
        stage.grow(loss, counts, score, boosting.n_trees)
        parts.append(stage.trees())
    return TreeEnsemble.concatenate(parts)


def _with_scores(table: BinnedTable, scores: Floats, weight: Floats) -> BinnedTable:
    """A table with the scores of a stage as further columns."""
    last = bin_columns(scores, weight)
    n_before, n_columns = table.n_codes, table.n_codes + last.n_features
    padded = np.zeros((table.n_rows, -(-n_columns // WORD) * WORD), dtype=np.uint8)
    padded[:, :n_before] = table.codes
    padded[:, n_before:n_columns] = last.codes
    ends, offsets = table.thresholds.values, table.thresholds.offsets
    added = last.thresholds.values
    thresholds = Thresholds(
        np.concatenate([ends, added]), np.r_[offsets, offsets[-1] + last.thresholds.offsets[1:]]
    )
    categories = None if table.categories is None else table.categories.with_numbers(last.n_features)
    return BinnedTable(padded, thresholds, categories)
