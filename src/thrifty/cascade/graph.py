"""A graph of purchases: sets that were bought, the ways between them, and the trees that choose among the ways."""

from dataclasses import dataclass, replace

import numpy as np

from thrifty.arrays import Floats, Ints
from thrifty.cascade.staged import narrow_table
from thrifty.trees import BinnedTable, EnsembleBuilder, TreeEnsemble
from thrifty.trees.boosting import Boosting

__all__ = ["GraphNode", "Lesson", "PurchaseGraph", "learn_turn"]

TURNS = Boosting(n_trees=60, max_depth=5, learning_rate=0.1, step="gradient", min_child_samples=30)
"""Trees that predict what each choice gains."""


@dataclass(frozen=True, eq=False)
class Lesson:
    """What the turns of a node are learned from.

    Attributes
    ----------
    rows : ndarray of shape (n,)
        Rows of the problem that come to the node.
    gains : ndarray of shape (n, n_choices)
        What each choice gains them, out of fold, less the mean over the choices.
    """

    rows: Ints
    gains: Floats


@dataclass(frozen=True, eq=False)
class GraphNode:
    """A set of columns that was bought.

    Attributes
    ----------
    columns : ndarray
        The columns, in the order of purchase along one of the ways here.
    parent : int
        Node of the level before on that way.
    choices : ndarray
        Nodes of the next level that rows may go on to.
    lesson : Lesson, optional
        What a choice among several is learned from.
    """

    columns: Ints
    parent: int
    choices: Ints
    lesson: Lesson | None = None


@dataclass(frozen=True, eq=False)
class PurchaseGraph:
    """Nodes by level; the last level has one.

    Attributes
    ----------
    levels : tuple of tuple of GraphNode
        A row stands at one node of each level it gets to.
    """

    levels: tuple[tuple[GraphNode, ...], ...]

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return sum(len(level) for level in self.levels)


def learn_turn(table: BinnedTable, gains: Floats, weight: Floats, columns: Ints) -> TreeEnsemble:
    """Trees over the columns of the table that predict, from some of them, what each choice gains."""
    order = np.sort(columns)
    spread = float(np.sqrt(np.mean(np.square(gains)))) or 1.0
    wanted, score, ones = gains / spread, np.zeros(gains.shape), np.ones(gains.shape)
    grower, builder = TURNS.grower(narrow_table(table, order)), EnsembleBuilder(len(order), gains.shape[1])
    for _ in range(TURNS.n_trees):
        TURNS.add_tree(grower, builder, (score - wanted, ones), weight, score)
    trees = builder.ensemble()
    return replace(trees, n_features=table.n_features, feature=order[trees.feature].astype(np.int32))
