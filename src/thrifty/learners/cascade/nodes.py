"""Trees for each set of purchases, where rows that hold different columns are predicted by trees of their own.

The trees of a node continue the scores of the node before,

    f_node = shrinkage f_before + trees over the columns of the node

and are grown on the rows that come to the node.
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
        Columns of the nodes of each level, and the node of each row there, shape (n_rows, n_levels).
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
