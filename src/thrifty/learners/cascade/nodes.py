"""Trees for each set of purchases, where rows that hold different columns are predicted by trees of their own.

The trees of a node continue the scores of the node before,

    f_node = shrinkage f_before + trees over the columns of the node

and are grown on the rows that come to the node and, with less weight, on the others, whose cells are all known during a
fit. The others start from the scores of the node that most rows come from.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from thrifty.arrays import Floats, Ints
from thrifty.engine.trees import BinnedTable, TreeEnsemble
from thrifty.learners.cascade.problem import CascadeProblem
from thrifty.learners.cascade.stages import (
    SUBSAMPLE,
    EarlyStopping,
    StageGrower,
    compact,
    grow_until,
    margins,
    shrinkage_at,
    stored_bytes,
)
from thrifty.learners.trees.boosting import Boosting
from thrifty.rows import Subsampler, uniforms

TRIAL = Boosting(n_trees=12, max_depth=6, learning_rate=0.2, l2=5.0)
"""Trees that a trial of a purchase adds."""

MAX_ROWS = 10_000
"""Rows of trials."""

SPLIT_SEED = 3


class TreeTrials:
    """Trials of purchases: a few trees on each half of the rows, evaluated on the other half.

    Scores of a node are those of all rows, by the copy that is grown on each half.
    """

    def __init__(self, problem: CascadeProblem) -> None:
        # By content, so that equal rows are all used or not at all.
        self.rows = np.flatnonzero(uniforms(problem.table.codes, 1) < MAX_ROWS / len(problem.y))
        self._table, weight = problem.table.take(self.rows), problem.weight[self.rows]
        self._loss = problem.task.loss(problem.y[self.rows])
        is_first = uniforms(self._table.codes, SPLIT_SEED) < 0.5
        self._is_first = is_first[:, None]
        self._halves = []
        for half in (np.flatnonzero(is_first), np.flatnonzero(~is_first)):
            loss = problem.task.loss(problem.y[self.rows[half]])
            self._halves.append((half, self._table.take(half), loss, weight[half]))
        self.base = [np.tile(loss.base(weight), (len(self.rows), 1)) for _, _, loss, weight in self._halves]

    def grown(self, before: list[Floats], columns: Ints, kept: float) -> list[Floats]:
        """Scores after a few more trees over some columns.

        Rows that do not come to the node teach as much as those that do: with less weight, trees of trials were worse.
        """
        both = []
        for (half, table, loss, weight), scores in zip(self._halves, before, strict=True):
            score, own = scores * kept, scores[half] * kept
            stage = StageGrower(table, columns, TRIAL, score.shape[1])
            stage.grow(loss, weight, own, TRIAL.n_trees)
            stage.trees().predict_binned(self._table, score)
            both.append(score)
        return both

    def losses(self, scores: list[Floats]) -> Floats:
        """Loss of each row by the copy that has not seen it."""
        return self._loss.values(np.where(self._is_first, scores[1], scores[0]))


OTHERS = 0.5
"""Weight, at a node, of the rows that do not come to it."""

MAX_OTHERS = 12_000
"""Rows among which these are: of many, those that come there are enough."""

OTHERS_SEED = 5


@dataclass(frozen=True, eq=False)
class NodeTrees:
    """Trees of every node of every level.

    Attributes
    ----------
    base : ndarray of shape (n_scores,)
        Scores before any tree.
    trees : tuple of tuple of TreeEnsemble
        What each node adds to the score that a row carries, over all columns of the table.
    mean_margin : ndarray of shape (n_levels,)
        Mean margin at each level, on the training rows.
    """

    base: Floats
    trees: tuple[tuple[TreeEnsemble, ...], ...]
    mean_margin: Floats

    @property
    def n_bytes(self) -> Ints:
        """Bytes that the trees of each level take in a file at most, shape (n_levels,)."""
        return np.array([sum(map(stored_bytes, level)) for level in self.trees])

    def to_serve(self) -> "NodeTrees":
        """The same trees as they are served and stored, as those of a line."""
        return replace(self, trees=tuple(tuple(map(compact, level)) for level in self.trees))

    def scores(self, table: BinnedTable, node: Ints) -> Floats:
        """Scores of every row at its node of every level, shape (n_rows, n_levels, n_scores)."""
        scores = np.empty((table.n_rows, len(self.trees), len(self.base)))
        running = np.tile(self.base, (table.n_rows, 1))
        for place, level in enumerate(self.trees):
            for number, trees in enumerate(level):
                here = np.flatnonzero(node[:, place] == number)
                own = running[here]
                trees.predict_binned(table.take(here), own)
                running[here] = own
            scores[:, place] = running
        return scores


def grow_nodes(
    problem: CascadeProblem,
    sets: Sequence[Sequence[Ints]],
    node: Ints,
    boosting: Boosting,
    n_trees: Sequence[int],
    rows: Ints,
) -> NodeTrees:
    """Grow the trees of every node on some rows of a problem.

    Parameters
    ----------
    sets : sequence of sequence of ndarray
        Columns of the nodes of each level.
    node : ndarray of shape (n_rows of the problem, n_levels)
        Node of each row at each level.
    n_trees : sequence of int
        Trees of the nodes of each level.
    """
    table, y, counts, node = problem.table.take(rows), problem.y[rows], problem.weight[rows], node[rows]
    base = problem.task.loss(y).base(counts)
    others = uniforms(table.codes, OTHERS_SEED) < MAX_OTHERS / len(rows)
    subsampler = Subsampler(uniforms(table.codes)[:, None], SUBSAMPLE)
    # Scores of all rows at each node of the level before, as far as they are known.
    before, came_from = [np.tile(base, (len(rows), 1))], np.zeros(len(rows), dtype=np.intp)
    scale, number_of_tree = 1.0, 0
    levels, mean_margin = [], np.zeros(len(sets))
    for place, level in enumerate(sets):
        kept = shrinkage_at(place)
        scale /= kept
        grown, after = [], []
        for number, columns in enumerate(level):
            comes = node[:, place] == number
            parent = int(np.bincount(came_from[comes], counts[comes], minlength=1).argmax())
            score = before[parent] * kept
            for other in np.unique(came_from[comes]):
                own = comes & (came_from == other)
                score[own] = before[other][own] * kept
            some = np.flatnonzero(comes | others)
            running, trees = score[some], TreeEnsemble.empty(table.n_features, len(base))
            if len(columns):
                stage = StageGrower(table.take(some), columns, boosting, len(base))
                loss = problem.task.loss(y[some])
                here = counts[some] * np.where(comes[some], 1.0, OTHERS)
                for _ in range(n_trees[place]):
                    number_of_tree += 1
                    stage.grow(loss, here * subsampler(number_of_tree)[some], running)
                trees = stage.trees()
            score[some] = running
            if comes.any():
                margin = margins(score[comes] * scale, base)
                mean_margin[place] += float(margin @ counts[comes]) / float(counts.sum())
            grown.append(replace(trees, values=trees.values * scale))
            after.append(score)
        levels.append(tuple(grown))
        before, came_from = after, node[:, place]
    return NodeTrees(base, tuple(levels), mean_margin)


def grow_branches(
    problem: CascadeProblem,
    sets: Sequence[Sequence[Ints]],
    node: Ints,
    boosting: Boosting,
    *,
    held_out: Ints | None = None,
    n_trees: Sequence[Sequence[int]] | None = None,
) -> NodeTrees:
    """Grow the trees of every node on the rows that come to it; nodes form a tree.

    Parameters
    ----------
    sets, node : sequence of sequence of ndarray, ndarray
        As in ``grow_nodes``.
    held_out : ndarray, optional
        Rows that are left out.
    n_trees : sequence of sequence of int, optional
        Trees of each node of each level; by default each node stops early by the loss of the rows that are left out.
    """
    table, y, counts = problem.table, problem.y, problem.weight
    is_grown = np.ones(len(y), dtype=bool)
    is_grown[held_out if held_out is not None else []] = False
    base = problem.task.loss(y[is_grown]).base(counts[is_grown])
    score, scale = np.tile(base, (len(y), 1)), 1.0
    subsampler = Subsampler(uniforms(table.codes)[:, None], SUBSAMPLE)
    levels, mean_margin = [], np.zeros(len(sets))
    for place, level in enumerate(sets):
        score *= shrinkage_at(place)
        scale /= shrinkage_at(place)
        grown = []
        for number, columns in enumerate(level):
            comes = node[:, place] == number
            own, left_out = np.flatnonzero(comes & is_grown), np.flatnonzero(comes & ~is_grown)
            if not len(columns) or not len(own):
                grown.append(TreeEnsemble.empty(table.n_features, len(base)))
                continue
            running, stopping = score[own], None
            if n_trees is None and len(left_out):
                stopping = EarlyStopping(problem.take(left_out), score[left_out])
                stopping.begin(running)
            stage, loss = (
                StageGrower(table.take(own), columns, boosting, len(base)),
                problem.task.loss(y[own]),
            )
            max_trees = boosting.n_trees if n_trees is None else n_trees[place][number]
            seed = place * boosting.n_trees + 1
            trees = grow_until(stage, loss, counts[own], running, max_trees, seed, subsampler, stopping, own)
            score[own] = running
            if stopping:
                score[left_out] = stopping.score
            margin = margins(running * scale, base)
            mean_margin[place] += float(margin @ counts[own]) / float(counts[is_grown].sum())
            grown.append(replace(trees, values=trees.values * scale))
        levels.append(tuple(grown))
    return NodeTrees(base, tuple(levels), mean_margin)
