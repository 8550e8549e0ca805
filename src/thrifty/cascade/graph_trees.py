"""Ensembles for the nodes of a graph of purchases, and the turns between them.

    f_node = kept f_before + trees over the columns of the node

where ``f_before`` is the score that a row brings from the node it comes from. A node's trees are grown on the rows that
come there and, with less weight, on the others, whose cells are all known while a model is learned: they teach less to
the point, but they are many. They start from the scores of the node's parent.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from thrifty.arrays import Bools, Floats, Ints
from thrifty.cascade.graph import GraphNode, PurchaseGraph, learn_turn
from thrifty.cascade.problem import CascadeProblem
from thrifty.cascade.staged import ROWS_PER_TREE, Stage, compact, kept_share, stored_bytes, sureness
from thrifty.chain.fork import ForkStage
from thrifty.chain.stage import CascadeStage, Turn
from thrifty.rows import Draws, uniforms
from thrifty.tasks.task import Task
from thrifty.trees import BinnedTable, TreeEnsemble
from thrifty.trees.boosting import Boosting

__all__ = ["GraphTrees", "GrownNode", "grow_graph"]

OTHERS = 0.5
"""Weight, at a node, of the rows that do not come there."""

MOST_OTHERS = 12_000
"""Rows among which these are: of many, those that come there are enough."""

OTHERS_SEED = 5


@dataclass(frozen=True)
class GrownNode:
    """A node with its trees and its turn, both over all columns of the table."""

    columns: Ints
    trees: TreeEnsemble
    turn: Turn | None = None

    def taken(self, table: BinnedTable) -> Ints:
        """The node of the next level for each row of a table."""
        if self.turn is None or self.turn.trees is None:
            nodes = 0 if self.turn is None else self.turn.nodes[0]
            return np.full(table.n_rows, nodes, dtype=np.intp)
        taken: Ints = self.turn.nodes[self.turn.trees.predict_binned(table).argmax(axis=1)]
        return taken


@dataclass(frozen=True)
class GraphTrees:
    """What was grown.

    Attributes
    ----------
    base : ndarray of shape (n_scores,)
        Scores before any tree.
    levels : tuple of tuple of GrownNode
        The nodes.
    sure : ndarray of shape (n_levels,)
        How sure the answers are on average at each level, on the rows that the trees were grown on.
    """

    base: Floats
    levels: tuple[tuple[GrownNode, ...], ...]
    sure: Floats

    @property
    def n_bytes(self) -> Ints:
        """Bytes that the trees of each level take in a file at most, shape (n_levels,)."""
        return np.array([sum(stored_bytes(one.trees) for one in level) for level in self.levels])

    def to_serve(self) -> "GraphTrees":
        """The same trees as they are served and stored, as those of a line."""
        levels = tuple(
            tuple(replace(one, trees=compact(one.trees)) for one in level) for level in self.levels
        )
        return replace(self, levels=levels)

    def stages(
        self,
        task: Task,
        calibrations: Sequence[Floats],
        gates: Sequence[Sequence[TreeEnsemble]] | None = None,
    ) -> tuple[CascadeStage | ForkStage, ...]:
        """What serves; ``gates`` are the learned ones of the nodes of each level."""
        found: list[CascadeStage | ForkStage] = []
        for place, level in enumerate(self.levels):
            nodes = []
            for number, node in enumerate(level):
                turn, gate = node.turn, None if gates is None else gates[place][number]
                if turn is not None and turn.trees is not None:
                    turn = replace(turn, trees=turn.trees.over_columns(node.columns))
                trees = node.trees.over_columns(node.columns)
                nodes.append(CascadeStage(node.columns, trees, calibrations[place], task, gate, turn))
            found.append(nodes[0] if len(nodes) == 1 else ForkStage(tuple(nodes)))
        return tuple(found)

    def walk(self, table: BinnedTable) -> tuple[Floats, Ints]:
        """Scores of every row at every level, (n_rows, n_levels, n_scores), and its node there, (n_rows, n_levels)."""
        n_rows = table.n_rows
        scores = np.empty((n_rows, len(self.levels), len(self.base)))
        nodes = np.zeros((n_rows, len(self.levels)), dtype=np.intp)
        running, node = np.tile(self.base, (n_rows, 1)), np.zeros(n_rows, dtype=np.intp)
        for place, level in enumerate(self.levels):
            nodes[:, place], following = node, np.zeros(n_rows, dtype=np.intp)
            for number, one in enumerate(level):
                here = np.flatnonzero(node == number)
                if len(here) == 0:
                    continue
                part, own = table.take(here), running[here]
                one.trees.predict_binned(part, own)
                running[here], following[here] = own, one.taken(part)
            scores[:, place], node = running, following
        return scores, nodes


def grow_graph(
    problem: CascadeProblem, graph: PurchaseGraph, boosting: Boosting, n_trees: Sequence[int], rows: Ints
) -> GraphTrees:
    """Grow every node and learn every turn on some rows of a problem; ``n_trees`` are the trees of each level."""
    table, y, counts = problem.table.take(rows), problem.y[rows], problem.weight[rows]
    loss = problem.task.loss(y)
    base = loss.base(counts)
    place_of = np.full(len(problem.y), -1, dtype=np.intp)
    place_of[rows] = np.arange(len(rows))
    others = uniforms(table.codes, OTHERS_SEED) < MOST_OTHERS / len(rows)
    draws = Draws(uniforms(table.codes)[:, None], ROWS_PER_TREE)
    before, came_from = [np.tile(base, (len(rows), 1))], np.zeros(len(rows), dtype=np.intp)
    node_of, scale, number_of_tree = np.zeros(len(rows), dtype=np.intp), 1.0, 0
    levels, sure = [], np.zeros(len(graph.levels))
    for place, level in enumerate(graph.levels):
        kept = kept_share(place)
        scale /= kept
        grown, after, following = [], [], np.zeros(len(rows), dtype=np.intp)
        for number, node in enumerate(level):
            comes = node_of == number
            score = _start(before, node, comes, came_from) * kept
            some = np.flatnonzero(comes | others)
            own, trees = score[some], TreeEnsemble.empty(table.n_features, len(base))
            if len(node.columns):
                stage = Stage(table.take(some), node.columns, boosting, len(base))
                part_of_loss = problem.task.loss(y[some])
                here = counts[some] * np.where(comes[some], 1.0, OTHERS)
                for _ in range(n_trees[place]):
                    number_of_tree += 1
                    stage.grow(part_of_loss, here * draws(number_of_tree)[some], own)
                trees = stage.trees()
            score[some] = own
            following_nodes = graph.levels[place + 1] if place + 1 < len(graph.levels) else ()
            turn = _turn(table, counts, node, place_of) if len(following_nodes) > 1 else None
            one = GrownNode(node.columns, replace(trees, values=trees.values * scale), turn)
            if comes.any():
                how_sure = sureness(score[comes] * scale, base)
                sure[place] += float(how_sure @ counts[comes]) / float(counts.sum())
                following[comes] = one.taken(table.take(np.flatnonzero(comes)))
            grown.append(one)
            after.append(score)
        levels.append(tuple(grown))
        before, came_from, node_of = after, node_of, following
    return GraphTrees(base, tuple(levels), sure)


def _start(before: list[Floats], node: GraphNode, comes: Bools, came_from: Ints) -> Floats:
    """Scores that rows bring to a node; those that do not come there start from its parent's."""
    score = before[node.parent].copy()
    for number, scores in enumerate(before):
        here = comes & (came_from == number)
        if number != node.parent and here.any():
            score[here] = scores[here]
    return score


def _turn(table: BinnedTable, counts: Floats, node: GraphNode, place_of: Ints) -> Turn:
    """Where rows go on to from a node, learned from those of its lesson that are there."""
    if node.lesson is None:
        return Turn(node.choices[:1])
    places = place_of[node.lesson.rows]
    known = np.flatnonzero(places >= 0)
    some = places[known]
    trees = learn_turn(table.take(some), node.lesson.gains[known], counts[some], node.columns)
    return Turn(node.choices, trees)
