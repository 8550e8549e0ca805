"""The walk of one row through a plain cascade: its route and scores equal those of ``Walker.walk``, bit for bit.

Visiting sixteen stages one by one takes a few hundred calls of numpy and of compiled code, and for one row these calls
take several times as long as the work itself. So one row is sent down the trees of several stages at once
(``StackedStages``); scores and gates are then arrays over stages.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from thrifty.arrays import Floats, Int32s, Ints, Words
from thrifty.engine.tasks.task import Task
from thrifty.engine.trees import TreeEnsemble
from thrifty.engine.trees.binning import LevelSets
from thrifty.engine.trees.ensemble import holds
from thrifty.engine.walk.policy import Policy
from thrifty.engine.walk.stage import CascadeStage, Stage
from thrifty.jit import kernel, lean_kernel

__all__ = ["StackedStages", "route_row", "stacked_stages"]

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
"""All fields of a node in one record: one memory access instead of four."""

SIDE_BY_SIDE = 8
"""Trees that a row descends together, which hides the latency of each step."""

MAX_TREES = 800
"""Trees per call: with more, a row that stops early descends trees in vain; with fewer, others need more calls."""


def route_row(
    legs: Sequence["StackedStages"],
    numbers: Any,
    carried: Floats,
    policy: Policy,
    keys: Callable[[], Words],
) -> tuple[int, Floats, Floats]:
    """Route one row by a policy, several stages at a time.

    Parameters
    ----------
    legs : sequence of StackedStages
        All stages of the cascade.
    numbers : array of shape (1, n_features)
        The row.
    carried : ndarray of shape (1, n_scores)
        Scores that it carries into the first stage.
    policy : Policy
        Where rows stop.
    keys : callable
        Key of the row, which is read only where two operating points part.

    Returns
    -------
    int, ndarray of shape (1,), ndarray of shape (1, n_scores)
        The stage that answers, the number of stages behind all of them; gate and scores of the last stage visited.
    """
    first, point = 0, policy.lower
    for leg in legs:
        end = first + leg.n_stages
        gate, scores, carried = leg.visit(numbers, carried)
        place = first + _first_stop(gate, policy.thresholds[point, first:end])
        parts = first <= policy.parting <= min(place, end - 1)
        if parts and policy.follows_upper(keys())[0]:
            point = policy.upper
            place = first + _first_stop(gate, policy.thresholds[point, first:end])
        if place < end:
            last = slice(place - first, place - first + 1)
            return place, gate[last], scores[last]
        first = end
    return first, gate[-1:], scores[-1:]


def _first_stop(gate: Floats, thresholds: Floats) -> int:
    """First of some stages at which a row stops; their number if it goes on from all."""
    goes_on = gate > thresholds
    place = int(goes_on.argmin())
    return len(gate) if goes_on[place] else place


@dataclass(frozen=True)
class StackedStages:
    """Consecutive stages of a cascade, evaluated together for one row.

    Attributes
    ----------
    trees : StackedTrees
        Trees of each stage, over the columns of the table.
    calibrations : ndarray of shape (n_numbers, n_stages)
        The calibration of each stage, as a column.
    gated : ndarray
        Stages with a learned gate.
    gates : StackedTrees, optional
        Their gates, over the columns of the table and, behind them, the calibrated scores.
    task : Task
        Applies the calibration, and gates by its uncertainty where no gate was learned.
    """

    trees: "StackedTrees"
    calibrations: Floats
    gated: Ints
    gates: "StackedTrees | None"
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
        """Gates, shape (n_stages,), scores, shape (n_stages, n_scores), and the scores that the row carries on."""
        row = row.toarray() if sparse.issparse(row) else row
        added = self.trees.predict(row.repeat(self.n_stages, axis=0))
        # Accumulating adds one stage after the other, as a row does that walks.
        carried = np.add.accumulate(np.concatenate([carried, added]))[1:]
        # A calibration treats scores one by one, so that the axis of rows may be one of stages.
        scores = np.ascontiguousarray(self.task.calibrated(carried.T, self.calibrations).T)
        gate = self.task.uncertainty(scores)
        if self.gates is not None:
            table = np.concatenate([row.repeat(len(self.gated), axis=0), scores[self.gated]], axis=1)
            gate[self.gated] = self.gates.predict(table)[:, 0]
        return gate, scores, carried[-1:]


def stacked_stages(stages: Sequence[Stage], n_features: int, task: Task) -> tuple[StackedStages, ...]:
    """Stages of a plain cascade, stacked into as few calls as pay off; empty for other chains and for forks."""
    legs: list[list[CascadeStage]] = []
    n_trees = 0
    for stage in stages:
        if not isinstance(stage, CascadeStage) or stage.turn is not None:
            return ()
        n_trees += stage.trees.n_trees
        if not legs or n_trees > MAX_TREES:
            legs.append([])
            n_trees = stage.trees.n_trees
        legs[-1].append(stage)
    return tuple(StackedStages.of(leg, n_features, task) for leg in legs)


# -- trees of several stages ------------------------------------------------------------------------


@dataclass(frozen=True)
class StackedTrees:
    """Trees of several ensembles one after the other; row ``i`` of a table is for ensemble ``i``.

    Attributes
    ----------
    nodes : ndarray of shape (n_nodes,)
        Split of each node, and its children: nodes or, from -1 downwards, leaves.
    roots : ndarray of shape (n_trees,)
        First node of each tree, or ``~leaf`` of a tree without splits.
    parts : ndarray of shape (n_ensembles + 1,)
        First tree of each ensemble.
    values : ndarray of shape (n_leaves, n_outputs)
        Values of the leaves.
    sets : LevelSets, optional
        Sets of levels that nodes split by.
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
        """Stack ensembles; ``columns`` holds, for each of them, the columns of the table that it reads."""
        n_nodes = np.cumsum([0] + [len(trees.feature) for trees in ensembles])
        n_leaves = np.cumsum([0] + [len(trees.values) for trees in ensembles])
        nodes, roots = np.empty(n_nodes[-1], NODE), []
        for place, (trees, of_trees) in enumerate(zip(ensembles, columns, strict=True)):
            part = nodes[n_nodes[place] : n_nodes[place + 1]]
            part["threshold"], part["missing_left"] = trees.threshold, trees.missing_left
            part["feature"] = of_trees[trees.feature]
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
    """Add the trees of ensemble ``i`` on row ``i`` to row ``i`` of ``out``, in the order of the trees."""
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
                        # No branch: a processor predicts the side of a split wrongly half of the time.
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
    """Variant of ``add_by_ensemble`` for nodes that split by sets of levels, which most tables do not have."""
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
