"""One growing ensemble over nested sets of columns: stage k continues stage k - 1's trees on more columns.

    f_k = KEPT f_(k-1) + trees over the columns of stage k,   each a Newton step of   sum_i w_i loss(y_i, f(x_i))

A row that goes on keeps the score it has: what was computed at the earlier stages is part of every later one. The
columns of a stage include those of the stages before it, so that new trees may combine what is old and what is new.

Only a part of the old score is kept, because it is surer of the rows it was grown on than of any others: taken as it
is, it would leave the next stage too little to learn. What is stored is ``f_k / KEPT^k``, of which the score of the
stage before is a plain summand; calibration undoes the scale.

Each tree is grown on a share of the rows. Which ones is a function of what a row holds and of the number of the tree,
so equal rows share their fate and a row of weight two is that row given twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from thrifty.arrays import Floats, Ints
from thrifty.learning.pairs.boosted import Boosting
from thrifty.rows import uniforms
from thrifty.tasks.task import Loss, Task
from thrifty.trees import BinnedTable, TreeEnsemble
from thrifty.trees.binning import WORD, Thresholds

__all__ = ["StagedTrees", "grow_stages", "narrow_table", "score_fold", "total_gains"]


KEPT = 0.7
"""Share of the score so far that the next stage starts from."""

ROWS_PER_TREE = 0.6
"""Share of the rows that a tree is grown on."""

MOST_SCALED = 100
"""Stages after which the whole score is kept: the stored scale must stay a number."""


@dataclass(frozen=True)
class StagedTrees:
    """What was grown.

    Attributes
    ----------
    base : ndarray of shape (n_scores,)
        Scores before any tree.
    sets : tuple of ndarray
        Columns of each stage, those of the stage before it first.
    parts : tuple of TreeEnsemble
        Trees that each stage adds, over all columns of the table.
    """

    base: Floats
    sets: tuple[Ints, ...]
    parts: tuple[TreeEnsemble, ...]

    def scores(self, table: BinnedTable) -> Floats:
        """Scores of every row after every stage, shape (n_rows, n_stages, n_scores)."""
        running = np.tile(self.base, (table.n_rows, 1))
        scores = np.empty((table.n_rows, len(self.parts), len(self.base)))
        for place, part in enumerate(self.parts):
            part.predict_binned(table, running)
            scores[:, place] = running
        return scores


def grow_stages(
    task: Task, table: BinnedTable, y: Floats, counts: Floats, sets: Sequence[Ints], boosting: Boosting
) -> StagedTrees:
    """Grow the ensemble, ``boosting.n_trees`` trees a stage.

    Parameters
    ----------
    task : Task
        What the stages answer.
    table : BinnedTable
        Training rows.
    y, counts : ndarray of shape (n_rows,)
        Targets, as the task encodes them, and weights.
    sets : sequence of ndarray of int
        Columns of each stage, nested. A stage without columns adds nothing.
    boosting : Boosting
        How trees are grown; Newton steps.
    """
    loss = task.loss(y)
    base = loss.base(counts)
    score = np.tile(base, (table.n_rows, 1))
    chance = uniforms(table.codes)
    parts, scale, n_before = [], 1.0, 0
    for place, columns in enumerate(sets):
        if 0 < place < MOST_SCALED:
            score *= KEPT
            scale /= KEPT
        trees: list[TreeEnsemble] = []
        if len(columns):
            drawn = _Drawn(chance, n_before)
            trees = _grow_on(table, loss, counts, columns, boosting, score, drawn)[0]
        n_before += len(trees)
        parts.append(_scaled(trees, scale) if trees else TreeEnsemble.empty(table.n_features, task.n_scores))
    return StagedTrees(base, tuple(np.asarray(columns, dtype=np.intp) for columns in sets), tuple(parts))


def score_fold(
    task: Task,
    table: BinnedTable,
    y: Floats,
    counts: Floats,
    fold: Ints,
    sets: Sequence[Ints],
    boosting: Boosting,
) -> Floats:
    """Scores of the rows of one fold at every stage, by an ensemble grown on all other rows."""
    rest = np.ones(table.n_rows, dtype=bool)
    rest[fold] = False
    grown = grow_stages(task, table.take(rest), y[rest], counts[rest], sets, boosting)
    return grown.scores(table.take(fold))


def total_gains(table: BinnedTable, loss: Loss, counts: Floats, columns: Ints, boosting: Boosting) -> Floats:
    """What all splits on each column gained together, shape (n_features,)."""
    score = np.tile(loss.base(counts), (table.n_rows, 1))
    return _grow_on(table, loss, counts, columns, boosting, score)[1]


def narrow_table(table: BinnedTable, columns: Ints) -> BinnedTable:
    """All rows with some of the columns: histograms of the others would be work for nothing."""
    padded = np.zeros((table.n_rows, -(-len(columns) // WORD) * WORD), dtype=np.uint8)
    padded[:, : len(columns)] = table.codes[:, columns]
    ends = [table.thresholds.of(int(column)) for column in columns]
    offsets = np.cumsum([0] + [len(values) for values in ends]).astype(np.int64)
    thresholds = Thresholds(np.concatenate([np.empty(0), *ends]), offsets)
    return BinnedTable(padded, thresholds, tuple(table.names[column] for column in columns))


@dataclass(frozen=True)
class _Drawn:
    """Which rows each tree is grown on: everyone's chance, and the number of trees that came before."""

    chance: Floats
    n_before: int

    def counts(self, counts: Floats, tree: int) -> Floats:
        """Weights, zero for rows that this tree does not see."""
        return counts * (uniforms(self.chance[:, None], self.n_before + tree + 1) < ROWS_PER_TREE)


def _scaled(trees: list[TreeEnsemble], scale: float) -> TreeEnsemble:
    joined = TreeEnsemble.concatenate(trees)
    return replace(joined, values=joined.values * scale)


def _grow_on(
    table: BinnedTable,
    loss: Loss,
    counts: Floats,
    columns: Ints,
    boosting: Boosting,
    score: Floats,
    drawn: _Drawn | None = None,
) -> tuple[list[TreeEnsemble], Floats]:
    """Trees on some columns, added to the scores in place, and the gain of each column."""
    # In the order of the table, whatever the order of purchase: trees must not depend on how ties are listed.
    columns = np.sort(columns)
    grower = boosting.grower(narrow_table(table, columns))
    trees, gains = [], np.zeros(table.n_features)
    for tree in range(boosting.n_trees):
        seen = counts if drawn is None else drawn.counts(counts, tree)
        grown = boosting.grow_tree(grower, *loss.derivatives(score), seen)
        grown.add_to(score)
        feature = columns[grown.tree.feature].astype(np.int32)
        np.add.at(gains, feature, grown.raw_gain)
        trees.append(replace(grown.tree, n_features=table.n_features, feature=feature))
    return trees, gains
