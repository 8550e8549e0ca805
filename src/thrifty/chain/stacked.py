"""Stages of a cascade, stacked, so that one row gets the scores of several stages from one call.

Stage after stage, sixteen stages are a few hundred calls of numpy and of compiled code, and for one row these calls
take several times as long as the work itself. So one row is sent down the trees of several stages at once; scores and
gates are then arrays over stages. What a stage says is, bit by bit, what it says when rows walk from stage to stage.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from thrifty.arrays import Floats, Int32s, Ints
from thrifty.chain.stage import CascadeStage, Stage
from thrifty.jit import kernel, lean_kernel
from thrifty.tasks.task import Task
from thrifty.trees import TreeEnsemble
from thrifty.trees.categories import LevelSets
from thrifty.trees.level_walks import holds

__all__ = ["StackedStages", "stacked_stages"]

NODE = np.dtype(
    [
        ("threshold", np.float64),
        ("feature", np.int32),
        ("left", np.int32),
        ("right", np.int32),
        ("missing_left", np.bool_),
    ],
    align=True,
)
"""A node in one place: a row that is alone waits for memory, and this is one wait in place of four."""

SIDE_BY_SIDE = 8
"""Trees that a row goes down together: their steps do not wait for each other."""

MOST_TREES = 800
"""Trees that are worth a call. A row that stops early goes down trees in vain, one that does not makes more calls."""


@dataclass(frozen=True)
class StackedTrees:
    """Trees of several ensembles one after the other; row ``i`` of a table is for ensemble ``i``.

    Attributes
    ----------
    nodes : ndarray of shape (n_nodes,)
        What each node asks, and the nodes or, from -1 downwards, the leaves that follow.
    roots : ndarray of shape (n_trees,)
        First node of each tree, or ``~leaf`` of a tree without splits.
    parts : ndarray of shape (n_ensembles + 1,)
        Where the trees of each ensemble begin.
    values : ndarray of shape (n_leaves, n_outputs)
        What a leaf adds.
    sets : LevelSets, optional
        Sets of levels that nodes ask for.
    set_of : ndarray of shape (n_nodes,), optional
        Number of the set of each node, -1 where it compares numbers.
    """

    nodes: NDArray[np.void]
    roots: Ints
    parts: Ints
    values: Floats
    sets: LevelSets | None
    set_of: Int32s | None

    @classmethod
    def of(cls, ensembles: Sequence[TreeEnsemble], columns: Sequence[Ints]) -> "StackedTrees":
        """Stack ensembles; ``columns`` are the columns of the table that those of each of them are."""
        n_nodes = np.cumsum([0] + [len(trees.feature) for trees in ensembles])
        n_leaves = np.cumsum([0] + [len(trees.values) for trees in ensembles])
        nodes, roots = np.empty(n_nodes[-1], NODE), []
        for place, (trees, own) in enumerate(zip(ensembles, columns, strict=True)):
            part = nodes[n_nodes[place] : n_nodes[place + 1]]
            part["threshold"], part["missing_left"] = trees.threshold, trees.missing_left
            part["feature"] = own[trees.feature]
            for side, name in enumerate(("left", "right")):
                part[name] = _moved(trees.children[:, side], n_nodes[place], n_leaves[place])
            roots.append(_moved(trees.roots, n_nodes[place], n_leaves[place]))
        sets = LevelSets.concatenate([trees.sets for trees in ensembles], n_nodes.tolist())
        return cls(
            nodes,
            np.concatenate(roots),
            np.cumsum([0] + [trees.n_trees for trees in ensembles]),
            np.concatenate([trees.values for trees in ensembles]),
            sets,
            None if sets is None else sets.of_node(len(nodes)),
        )

    def predict(self, table: Floats) -> Floats:
        """Scores of shape (n_ensembles, n_outputs)."""
        out = np.zeros((len(table), self.values.shape[1]))
        stacked = self.nodes, self.roots, self.parts, self.values
        if self.sets is None:
            add_by_ensemble(table, *stacked, out)
        else:
            add_by_levels(table, *stacked, self.set_of, self.sets.offsets, self.sets.levels, out)
        return out


def _moved(children: Any, n_nodes: int, n_leaves: int) -> Ints:
    moved: Ints = np.where(children >= 0, children + n_nodes, children - n_leaves)
    return moved


@kernel
def add_by_ensemble(table: Any, nodes: Any, roots: Any, parts: Any, values: Any, out: Any) -> None:
    """Add to row ``i`` of ``out`` what the trees of ensemble ``i`` say about row ``i``, in the order of the trees."""
    reached = np.empty(SIDE_BY_SIDE, np.int64)
    for i in range(len(table)):
        for begin in range(parts[i], parts[i + 1], SIDE_BY_SIDE):
            n_trees = min(parts[i + 1] - begin, SIDE_BY_SIDE)
            for t in range(n_trees):
                reached[t] = roots[begin + t]
            under_way = True
            while under_way:
                under_way = False
                for t in range(n_trees):
                    at = reached[t]
                    if at >= 0:
                        node = nodes[at]
                        value = table[i, node.feature]
                        goes_right = not value <= node.threshold
                        if value != value and node.missing_left:  # only NaN differs from itself
                            goes_right = False
                        # Computed, because a processor that guesses the side is wrong half of the time.
                        at = node.left + (node.right - node.left) * np.int64(goes_right)
                        reached[t] = at
                        under_way |= at >= 0
            for t in range(n_trees):
                for k in range(values.shape[1]):
                    out[i, k] += values[~reached[t], k]


@lean_kernel
def add_by_levels(
    table: Any,
    nodes: Any,
    roots: Any,
    parts: Any,
    values: Any,
    set_of: Any,
    offsets: Any,
    levels: Any,
    out: Any,
) -> None:
    """Add like ``add_by_ensemble`` where some nodes ask for sets of levels; apart, as most tables have none."""
    for i in range(len(table)):
        for root in roots[parts[i] : parts[i + 1]]:
            at = root
            while at >= 0:
                node, number = nodes[at], set_of[at]
                value = table[i, node.feature]
                if value != value:
                    goes_left = node.missing_left
                elif number < 0:
                    goes_left = value <= node.threshold
                else:
                    goes_left = holds(levels, offsets[number], offsets[number + 1], np.int64(value))
                at = node.left if goes_left else node.right
            for k in range(values.shape[1]):
                out[i, k] += values[~at, k]


@dataclass(frozen=True)
class StackedStages:
    """What stages of a cascade that follow each other say about one row.

    Attributes
    ----------
    trees : StackedTrees
        What each stage adds to the score, over the columns of the table.
    calibrations : ndarray of shape (n_numbers, n_stages)
        The calibration of each stage, as a column.
    gated : ndarray
        Stages with a learned gate.
    gates : StackedTrees, optional
        Their gates, over the columns of the table and, behind them, the calibrated scores.
    task : Task
        Applies the calibration, and doubts scores where no gate was learned.
    """

    trees: StackedTrees
    calibrations: Floats
    gated: Ints
    gates: StackedTrees | None
    task: Task

    @classmethod
    def of(cls, stages: Sequence[CascadeStage], n_features: int, task: Task) -> "StackedStages":
        """Stack some stages."""
        gated = np.array([place for place, stage in enumerate(stages) if stage.gate is not None], np.intp)
        behind = np.arange(n_features, n_features + task.n_scores)
        gates = [(stage.gate, np.r_[stage.columns, behind]) for stage in stages if stage.gate is not None]
        return cls(
            StackedTrees.of([stage.trees for stage in stages], [stage.columns for stage in stages]),
            np.stack([stage.calibration for stage in stages], axis=1),
            gated,
            StackedTrees.of(*zip(*gates, strict=True)) if gates else None,
            task,
        )

    @property
    def n_stages(self) -> int:
        """Number of stages."""
        return int(self.calibrations.shape[1])

    def visit(self, row: Any, carried: Floats) -> tuple[Floats, Floats, Floats]:
        """Gates, shape (n_stages,), scores, shape (n_stages, n_scores), and what the row carries away from here."""
        row = row.toarray() if sparse.issparse(row) else row
        added = self.trees.predict(row.repeat(self.n_stages, axis=0))
        # Accumulating adds one stage after the other, as a row does that walks.
        carried = np.add.accumulate(np.concatenate([carried, added]))[1:]
        # A calibration treats scores one by one, so that stages can stand in the place of rows.
        scores = np.ascontiguousarray(self.task.calibrated(carried.T, self.calibrations).T)
        gate = self.task.doubt(scores)
        if self.gates is not None:
            table = np.concatenate([row.repeat(len(self.gated), axis=0), scores[self.gated]], axis=1)
            gate[self.gated] = self.gates.predict(table)[:, 0]
        return gate, scores, carried[-1:]


def stacked_stages(stages: Sequence[Stage], n_features: int, task: Task) -> tuple[StackedStages, ...]:
    """The stages of a chain, as many together as are worth a call; nothing where it is not a cascade, or has forks."""
    legs: list[list[CascadeStage]] = []
    n_trees = 0
    for stage in stages:
        if not isinstance(stage, CascadeStage) or stage.turn is not None:
            return ()
        n_trees += stage.trees.n_trees
        if not legs or n_trees > MOST_TREES:
            legs.append([])
            n_trees = stage.trees.n_trees
        legs[-1].append(stage)
    return tuple(StackedStages.of(leg, n_features, task) for leg in legs)
