"""Learned gates: expected loss of stopping at a stage, from the columns held there and the stage's own scores.

    gate_k(x) = E[ stop - go | columns of stage k, scores of stage k ]      by boosted least squares

"Go" is the loss of the row under the stopping rules of the later stages, at a price in the middle of the frontier. The
first trees read the scores alone, then small trees with a low learning rate read all columns. Every row's gate is
predicted by trees grown without the row's fold. In a graph of purchases every node has its own gate, learned from the
rows at that node.

A stage that holds few distinct rows has large groups of tied rows. Each fold's model would give a group another score,
and a threshold between those scores would split the group, which the served model cannot do. So gates of such stages
are taken from the served model itself: with many rows in a group, it hardly overfits.

The plain margin is a strong baseline: learned gates are used only if they are clearly better on folds that thresholds
were not chosen on.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np

from thrifty.arrays import Bools, Floats, Ints, Numbers
from thrifty.engine.evidence.evidence import Evidence
from thrifty.engine.evidence.thresholds import StoppingRules, price_grid, sweep_prices
from thrifty.engine.tasks.regression import SquaredLoss
from thrifty.engine.trees import BinnedTable, TreeEnsemble, bin_columns
from thrifty.engine.trees.binning import WORD, Thresholds
from thrifty.learners.cascade.problem import CascadeProblem, z_score
from thrifty.learners.cascade.stages import compact, narrow_table
from thrifty.learners.trees import EnsembleBuilder
from thrifty.learners.trees.boosting import Boosting
from thrifty.rows import uniforms

__all__ = [
    "LearnedGates",
    "RowNodes",
    "choose_gates",
    "learn_gates",
    "n_tied_stages",
    "scores_on_served_scale",
    "z_score_of_gain",
]

Candidate = tuple[Evidence, Floats, Numbers]
"""Evidence, loss and quality of every stage, to be compared with those of another structure or gate."""


Result = TypeVar("Result")

SCORE_ONLY = Boosting(n_trees=20, max_depth=4, learning_rate=0.3, step="gradient", min_child_samples=20)
ALL_COLUMNS = Boosting(n_trees=30, max_depth=3, learning_rate=0.05, step="gradient", min_child_samples=40)

REGRESSION_GATE_SIZES = (
    Boosting(n_trees=80, max_depth=4, learning_rate=0.08, step="gradient", min_child_samples=20),
    Boosting(n_trees=150, max_depth=5, learning_rate=0.1, step="gradient", min_child_samples=20),
)
"""Settings of the second trees for regression, where scores carry no uncertainty; chosen out of fold."""

ROWS_OF_LARGER = 1_500
"""Rows from which on the larger of them is tried: on fewer it would win by chance."""

MAX_ROWS = 6_000
"""Rows that gates are learned from: every stage of every fold has one."""

MAX_REGRESSION_ROWS = 20_000
"""The same for regression, where there is no margin to fall back on."""

N_BUDGETS = 25

MAX_TIED_GROUPS = 64
"""Most groups of identical inputs at a stage whose gate is taken from the served model."""

ROWS_PER_TIED_GROUP = 20
"""Least mean size of those groups: on smaller ones the served model would overfit."""

MIN_Z_OF_GATES = 2.0
"""z-score by which learned gates must be better than the margin."""


@dataclass(frozen=True, eq=False)
class LearnedGates:
    """Out-of-fold gate scores of every row, and a function that grows the gates that serve.

    Attributes
    ----------
    held_out : ndarray of shape (n_rows, n_stages)
        Gate scores by trees that have not seen the row, except at tied stages.
    grow : callable
        Grows the trees of each node of each stage on all rows at that node.
    """

    held_out: Floats
    grow: Callable[[], tuple[tuple[TreeEnsemble, ...], ...]]

    @cached_property
    def trees(self) -> tuple[tuple[TreeEnsemble, ...], ...]:
        """Trees of each node of each stage over its columns and, behind them, its scores."""
        return self.grow()


@dataclass(frozen=True, eq=False)
class RowNodes:
    """Columns held at every stage, and the node of each row where rows hold different ones.

    Attributes
    ----------
    nodes : sequence of sequence of ndarray
        Columns of every node of every stage; a stage of a line has one.
    node : ndarray of shape (n_rows, n_stages), optional
        Node of each row at each stage; None where every stage has one node.
    """

    nodes: Sequence[Sequence[Ints]]
    node: Ints | None = None

    @classmethod
    def on_line(cls, sets: Sequence[Ints]) -> "RowNodes":
        """One node a stage: all rows hold the same columns."""
        return cls([[columns] for columns in sets])

    def rows_at(self, stage: int, number: int) -> Any:
        """Rows at a node: a mask, or a slice of all of them."""
        return slice(None) if self.node is None else self.node[:, stage] == number


def n_tied_stages(problem: CascadeProblem, sets: Sequence[Ints]) -> int:
    """Number of leading stages at which rows form a few large groups of identical inputs."""
    max_groups = min(MAX_TIED_GROUPS, len(problem.y) // ROWS_PER_TIED_GROUP)
    for stage, columns in enumerate(sets):
        if len(np.unique(uniforms(problem.table.codes[:, problem.table.places(columns)]))) > max_groups:
            return stage
    return len(sets)


def scores_on_served_scale(
    problem: CascadeProblem,
    served: Floats,
    calibrations: Sequence[Floats],
    scores: Floats,
    ratio: Floats,
) -> Floats:
    """Out-of-fold scores on the scale of the served model: times the overconfidence ratio; at tied stages its own.

    ``served`` are the served model's scores at the tied stages, which are the first: (n_rows, n_tied, n_scores). Scores
    of regression, which carry no uncertainty, are not scaled.
    """
    settled = scores * ratio[:, None] if problem.task.has_uncertainty else scores.copy()
    for stage in range(served.shape[1]):
        settled[:, stage] = problem.task.calibrated(served[:, stage], calibrations[stage])
    return settled


def choose_gates(
    problem: CascadeProblem,
    row_nodes: RowNodes,
    evidence: Evidence,
    loss: Floats,
    scores: Floats,
    n_tied: int = 0,
) -> LearnedGates | None:
    """Learned gates, or None where the margin of the scores does as well out of fold."""
    price, n_stages = middle_price(evidence, loss), len(row_nodes.nodes)
    if not problem.task.has_uncertainty:
        return _choose_regression_gates(problem, row_nodes, evidence, loss, scores, price, n_tied)
    learn = partial(learn_gates, problem, row_nodes, evidence, loss, scores, price, n_tied)
    # Every second stage first: half of the gates should show half of the z-score.
    first, learned = (n_stages - 1) % 2, evidence.gate.copy()
    some = learn(range(first, n_stages, 2))
    learned[:, first::2] = some.held_out
    if _z_score_of_gates(problem, evidence, loss, learned) <= MIN_Z_OF_GATES / 2:
        return None
    others = learn(range(1 - first, n_stages, 2))
    learned[:, 1 - first :: 2] = others.held_out
    if _z_score_of_gates(problem, evidence, loss, learned) <= MIN_Z_OF_GATES:
        return None

    def grow() -> tuple[tuple[TreeEnsemble, ...], ...]:
        trees = [*some.trees, *others.trees]
        trees[first::2], trees[1 - first :: 2] = some.trees, others.trees
        return tuple(trees)

    return LearnedGates(learned, grow)


def _choose_regression_gates(
    problem: CascadeProblem,
    row_nodes: RowNodes,
    evidence: Evidence,
    loss: Floats,
    scores: Floats,
    price: float,
    n_tied: int,
) -> LearnedGates | None:
    """Learned gates for regression, where scores carry no uncertainty; None if a constant gate is better.

    Learned twice: the first gates assume that all rows stop at the same stage, the second that rows follow the first.
    """
    learned = []
    for second in REGRESSION_GATE_SIZES[: 2 if len(problem.y) >= ROWS_OF_LARGER else 1]:
        found, at = evidence, price
        for _ in range(2):
            gates = learn_gates(problem, row_nodes, found, loss, scores, at, n_tied, second=second)
            found = replace(evidence, gate=gates.held_out)
            at = middle_price(found, loss)
        learned.append((_z_score_of_gates(problem, evidence, loss, gates.held_out), gates))
    score, best = max(learned, key=lambda one: one[0])
    return best if score > 0.0 else None


def learn_gates(
    problem: CascadeProblem,
    row_nodes: RowNodes,
    evidence: Evidence,
    loss: Floats,
    scores: Floats,
    price: float,
    n_tied: int = 0,
    stages: Sequence[int] | None = None,
    second: Boosting | None = None,
) -> LearnedGates:
    """Grow a gate per fold and node for the rows of the fold and, once ``trees`` is read, one per node on all rows.

    ``stages`` limits this to some stages; ``second`` replaces ``ALL_COLUMNS``, the settings of trees over all columns.
    """
    target, n_scores = StoppingRules(evidence, loss).stop_minus_go(price), problem.task.n_scores
    # By content, so that equal rows are all used or not at all.
    max_rows = MAX_ROWS if problem.task.has_uncertainty else MAX_REGRESSION_ROWS
    used = uniforms(problem.table.codes, 1) < max_rows / len(problem.y)
    held_out = np.empty(scores.shape[:2])
    stages = range(len(row_nodes.nodes)) if stages is None else stages

    def part_of(stage: int, number: int) -> tuple[Ints, BinnedTable]:
        rows = np.arange(len(problem.y))[row_nodes.rows_at(stage, number)]
        narrow = narrow_table(problem.table, np.sort(row_nodes.nodes[stage][number]))
        narrow = narrow if len(rows) == narrow.n_rows else narrow.take(rows)
        return rows, _with_scores(narrow, scores[rows, stage], problem.weight[rows])

    def regress(stage: int, rows: Ints, table: BinnedTable, is_used: Bools) -> TreeEnsemble:
        wanted, weight = target[rows, stage], problem.weight[rows]
        return _regress(table, n_scores, wanted, weight, np.flatnonzero(is_used[rows]), second)

    def judge(stage: int) -> None:
        for number in range(len(row_nodes.nodes[stage])):
            rows, table = part_of(stage, number)
            if stage < n_tied:
                trees = compact(regress(stage, rows, table, used))
                held_out[rows, stage] = trees.predict_binned(table)[:, 0]
                continue
            for fold in problem.folds if len(rows) else ():
                rest = used.copy()
                rest[fold] = False
                own = np.flatnonzero(np.isin(rows, fold))
                trees = regress(stage, rows, table, rest)
                held_out[rows[own], stage] = trees.predict_binned(table.take(own))[:, 0]

    def serve_node(stage: int, number: int) -> TreeEnsemble:
        listed, (rows, table) = row_nodes.nodes[stage][number], part_of(stage, number)
        if not len(rows):
            return TreeEnsemble.empty(len(listed) + n_scores)
        places = np.searchsorted(np.sort(listed), listed)
        whole = compact(regress(stage, rows, table, used))
        return whole.over_columns(np.r_[places, len(places) + np.arange(n_scores)])

    def serve(stage: int) -> tuple[TreeEnsemble, ...]:
        return tuple(serve_node(stage, number) for number in range(len(row_nodes.nodes[stage])))

    each = partial(_map_stages, problem.n_threads, stages)
    each(judge)
    return LearnedGates(held_out[:, stages], partial(each, serve))


def _map_stages(n_threads: int, stages: Sequence[int], make: Callable[[int], Result]) -> tuple[Result, ...]:
    """Map a function over stages in threads."""
    with ThreadPoolExecutor(n_threads) as pool:
        return tuple(pool.map(make, stages))


def middle_price(evidence: Evidence, loss: Floats, n_prices: int = 30) -> float:
    """Price whose stopping rules spend the geometric mean of the cheapest and the dearest rules."""
    rules = StoppingRules(evidence, loss)
    prices = price_grid(evidence, n_prices)
    spent = np.array([_spent(evidence, one) for one in rules.at_each(prices)])
    positive = spent[spent > 0]
    if not len(positive):
        return float(prices[0])
    middle = np.sqrt(positive.min() * positive.max())
    return float(prices[int(np.argmin(np.abs(spent - middle)))])


def _spent(evidence: Evidence, thresholds: Floats) -> float:
    return float(np.average(evidence.at_point(thresholds)[1], weights=evidence.weights))


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
        grower, builder = boosting.grower(narrow_table(part, columns)), EnsembleBuilder(len(columns))
        boosting.add_trees(grower, builder, loss, counts, score, boosting.n_trees)
        trees = builder.ensemble()
        feature = columns[trees.feature].astype(np.int32)
        parts.append(replace(trees, n_features=table.n_features, feature=feature))
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


def _z_score_of_gates(problem: CascadeProblem, evidence: Evidence, loss: Floats, gate: Floats) -> float:
    """z-score of other gates against those of the evidence, by expected quality."""
    expected = problem.task.expected_quality(loss)
    return z_score_of_gain(
        problem, (evidence, loss, expected), (replace(evidence, gate=gate), loss, expected)
    )


def z_score_of_gain(problem: CascadeProblem, one: Candidate, other: Candidate) -> float:
    """z-score of the second candidate against the first: thresholds by half of the folds, quality by the others."""
    costs = [each[0].cost if each[0].cost.ndim == 1 else each[0].cost.mean(axis=0) for each in (one, other)]
    positive = np.concatenate(costs)
    if not (positive > 0).any():
        return 0.0
    budgets = np.geomspace(
        float(positive[positive > 0].min()), float(max(cost[-1] for cost in costs)), N_BUDGETS
    )
    gains = np.zeros(len(problem.y))
    halves = [np.concatenate(problem.folds[half::2]) for half in (0, 1)]
    for cut_on, counted_on in (halves, halves[::-1]):
        before, after = (_score_of_rows(*each, cut_on, counted_on, budgets) for each in (one, other))
        gains[counted_on] = after - before
    return z_score(gains, problem.weight)


def _score_of_rows(
    evidence: Evidence, loss: Floats, score: Numbers, cut_on: Ints, counted_on: Ints, budgets: Floats
) -> Floats:
    """Mean quality over budgets of each row, at the operating points (or mixes) that spend these budgets."""
    policy = sweep_prices(evidence.take(cut_on), loss[cut_on], score[cut_on], n_prices=30)
    there = evidence.take(counted_on)
    seen = [there.at_point(one) for one in policy.thresholds]
    row_scores = np.array([quality for _, _, quality in seen], dtype=np.float64)
    cost = np.array([np.average(paid, weights=there.weights) for _, paid, _ in seen])
    # Budgets are compared with the cost on the rows that are counted.
    cost = np.maximum.accumulate(cost)
    place = np.interp(budgets, cost, np.arange(len(cost)))
    share = np.zeros(len(cost))
    lower = np.floor(place).astype(int)
    np.add.at(share, lower, 1 - (place - lower))
    np.add.at(share, np.minimum(lower + 1, len(cost) - 1), place - lower)
    mean: Floats = share @ row_scores / len(budgets)
    return mean
