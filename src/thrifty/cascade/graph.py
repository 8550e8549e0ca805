"""Structure "graph": rows choose their next purchase, and every set of purchases has trees of its own.

A line buys for all rows in one order. In a graph, rows that hold the same columns may go on to different purchases,
chosen by the values they hold. The graph is found level by level, from nothing bought:

1. At every node each candidate purchase is tried: a few trees that may use it continue the scores, on one half of the
   rows, and the other half measures, row by row, the gain per unit of price. Then the halves are swapped.
2. The gain of each candidate is regressed on the held columns. A row takes the candidate with the largest predicted
   gain. Candidates are added to a node one by one, as long as the held-out gain of rows that choose among them clearly
   grows.
3. Nodes of a level that hold the same columns are merged. Of too many, those with the most rows stay, and a row chooses
   among all candidates that lead to one of them.

The candidates are the first ``POOL`` purchases of the line's order. So every row that buys all of them holds the same
columns, on any path, and goes on along the line: paths part and merge without extra purchases.

The trees of a node continue the scores of the node before,

    f_node = shrinkage f_before + trees over the columns of the node

and are grown on the rows that come to the node and, with less weight, on the others, whose cells are all known during a
fit. The others start from the scores of the node's parent.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from thrifty.arrays import Bools, Floats, Ints
from thrifty.cascade.problem import CascadeProblem, Plan
from thrifty.cascade.stages import (
    ROWS_PER_TREE,
    Stage,
    compact,
    margins,
    narrow_table,
    shrinkage_at,
    stored_bytes,
)
from thrifty.chain.stage import CascadeStage, ForkStage, Turn
from thrifty.prices.billing import PriceList
from thrifty.rows import Subsampler, uniforms
from thrifty.tasks.task import Task
from thrifty.trees import BinnedTable, EnsembleBuilder, TreeEnsemble
from thrifty.trees.boosting import Boosting

__all__ = [
    "MIN_ROWS",
    "GraphNode",
    "GraphTrees",
    "GrownNode",
    "PurchaseGraph",
    "TurnTargets",
    "find_graph",
    "grow_graph",
    "learn_turn",
]

TURNS = Boosting(n_trees=60, max_depth=5, learning_rate=0.1, step="gradient", min_child_samples=30)
"""Trees that predict what each choice gains."""


@dataclass(frozen=True, eq=False)
class TurnTargets:
    """Regression targets of the turn of a node.

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
    """A node: a set of bought columns.

    Attributes
    ----------
    columns : ndarray
        The columns, in the order of purchase along one of the ways here.
    parent : int
        Node of the level before on that way.
    choices : ndarray
        Nodes of the next level that rows may go on to.
    targets_of_turn : TurnTargets, optional
        What a choice among several is learned from.
    """

    columns: Ints
    parent: int
    choices: Ints
    targets_of_turn: TurnTargets | None = None


@dataclass(frozen=True, eq=False)
class PurchaseGraph:
    """Nodes by level; the last level has one.

    Attributes
    ----------
    levels : tuple of tuple of GraphNode
        A row is at one node of each level that it reaches.
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


TRIAL = Boosting(n_trees=12, max_depth=6, learning_rate=0.2, l2=5.0)
"""Trees that a trial of a purchase adds."""

MAX_ROWS = 12_000
"""Rows that a graph is found on."""

MIN_ROWS = 300
"""Rows that must come to a node before it is worth more than one choice."""

POOL = 8
"""First purchases of the line's order, among which rows choose; then all hold the same."""

WIDTH, CHOICES = 12, 4
"""Most nodes of a level, but for those without which rows could not go on, and most choices of a node."""

MIN_GAIN = 0.02
"""Share by which one more choice must raise what rows gain at a node."""

SPLIT_SEED, N_FOLDS = 3, 4


def find_graph(problem: CascadeProblem, plan: Plan) -> PurchaseGraph | None:
    """A graph, or None where no node has more than one choice that is worth having."""
    search = _Search(problem, plan.order[:POOL])
    levels = search.levels()
    if not any(len(state.children) > 1 for level in levels for state in level):
        return None
    return PurchaseGraph(_with_line(search, levels, plan))


@dataclass(eq=False)
class _State:
    """A node during the search: its rows, and scores of all rows by models grown on each half."""

    bought: frozenset[int]
    order: tuple[int, ...]
    comes: Bools
    scores: tuple[Floats, Floats]
    parent: int = 0
    children: dict[frozenset[int], int] = field(default_factory=dict)
    gains: Floats = field(default_factory=lambda: np.empty((0, 0)))
    predicted: Floats | None = None
    candidates: list[int] = field(default_factory=list)


class _Search:
    """Finds the levels of a graph on a part of the rows."""

    def __init__(self, problem: CascadeProblem, pool: Ints) -> None:
        # By content, so that equal rows are all used or not at all.
        chance = uniforms(problem.table.codes, 1)
        self.rows = np.flatnonzero(chance < MAX_ROWS / len(problem.y))
        self.problem, self.pool = problem, [int(purchase) for purchase in pool]
        self.table, self.weight = problem.table.take(self.rows), problem.weight[self.rows]
        self.loss = problem.task.loss(problem.y[self.rows])
        halves = uniforms(self.table.codes, SPLIT_SEED)
        self.is_first = halves < 0.5
        self.part = np.minimum(
            (uniforms(self.table.codes, SPLIT_SEED + 1) * N_FOLDS).astype(int), N_FOLDS - 1
        )
        self._halves = [np.flatnonzero(self.is_first), np.flatnonzero(~self.is_first)]
        self._tables = [self.table.take(half) for half in self._halves]
        self._losses = [problem.task.loss(problem.y[self.rows[half]]) for half in self._halves]

    @property
    def prices(self) -> PriceList:
        """What purchases cost."""
        return self.problem.price_list

    def columns_of(self, order: Sequence[int]) -> Ints:
        """Columns that are free or delivered by these purchases, in their order."""
        group_of = self.prices.group_of
        free = np.flatnonzero(self.prices.prices[group_of] == 0)
        return np.concatenate([free, *(np.flatnonzero(group_of == one) for one in order)]).astype(np.intp)

    # -- trials ------------------------------------------------------------------------------------

    def grown(self, state: _State, columns: Ints, kept: float) -> tuple[Floats, Floats]:
        """Scores of all rows after a few more trees over some columns, by copies grown on each half.

        Rows that do not come to the node teach as much as those that do: with less weight, trees of trials were worse.
        """
        both = []
        for table, loss, half, before in zip(
            self._tables, self._losses, self._halves, state.scores, strict=True
        ):
            score, own = before * kept, before[half] * kept
            stage = Stage(table, columns, TRIAL, score.shape[1])
            for _ in range(TRIAL.n_trees):
                stage.grow(loss, self.weight[half], own)
            stage.trees().predict_binned(self.table, score)
            both.append(score)
        return both[0], both[1]

    def losses(self, scores: tuple[Floats, Floats]) -> Floats:
        """Loss of each row by the copy that has not seen it."""
        return self.loss.values(np.where(self.is_first[:, None], scores[1], scores[0]))

    # -- levels ------------------------------------------------------------------------------------

    def levels(self) -> list[list[_State]]:
        """Levels of the graph until all purchases of the pool are made, without the line."""
        base = [loss.base(self.weight[half]) for loss, half in zip(self._losses, self._halves, strict=True)]
        n_rows = len(self.rows)
        start = _State(
            frozenset(),
            (),
            np.ones(n_rows, dtype=bool),
            (np.tile(base[0], (n_rows, 1)), np.tile(base[1], (n_rows, 1))),
        )
        free = self.columns_of(())
        if len(free):
            start.scores = self.grown(start, free, 1.0)
        levels = [[start]]
        n_steps = len(self.pool)
        for step in range(n_steps):
            levels.append(self._next_level(levels[-1], step))
            self.problem.progress("finding a graph", step + 1, n_steps)
            if step == 2 and all(len(level) == 1 for level in levels):
                break  # no row chooses differently at the level where that gains most
        return levels if len(free) else levels[1:]

    def _next_level(self, level: list[_State], step: int) -> list[_State]:
        found: dict[frozenset[int], _State] = {}
        mass: dict[frozenset[int], float] = {}
        for number, state in enumerate(level):
            tried = self._try(state)
            chosen = self._choose(state)
            taken = self._taken(state, chosen)
            for place in chosen:
                purchase = state.candidates[place]
                key = state.bought | {purchase}
                here = state.comes & (taken == place)
                n_here = float(self.weight[here].sum())
                if key not in found or n_here > mass[key]:
                    comes = here if key not in found else here | found[key].comes
                    found[key] = _State(key, (*state.order, purchase), comes, tried[place], number)
                    mass[key] = n_here
                else:
                    found[key].comes |= here
        return self._kept(level, list(found.values()), step)

    def _try(self, state: _State) -> list[tuple[Floats, Floats]]:
        """Try candidates at a node; what each gains every row per unit of price is noted in the node."""
        state.candidates = [one for one in self.pool if one not in state.bought]
        if not state.bought and not len(self.columns_of(())):
            # A first purchase that is dearer than the line's would leave small budgets without an answer.
            max_price = self.prices.prices[self.pool[0]]
            state.candidates = [one for one in self.pool if self.prices.prices[one] <= max_price]
        held = np.zeros(len(self.prices.prices), dtype=bool)
        held[list(state.bought)] = True
        prices = self.prices.prices_after(held)
        before = self.losses(state.scores)
        kept = shrinkage_at(len(state.bought))
        tried = [self.grown(state, self.columns_of((*state.order, one)), kept) for one in state.candidates]
        gains = [
            (before - self.losses(scores)) / max(float(prices[one]), 1e-12)
            for one, scores in zip(state.candidates, tried, strict=True)
        ]
        state.gains = np.column_stack(gains)
        return tried

    def _choose(self, state: _State) -> list[int]:
        """Places of the candidates that rows choose from at a node: as many as are clearly worth it."""
        means, here = self._means(state), np.flatnonzero(state.comes)
        weight, gains = self.weight[here], state.gains[here]
        chosen = [int(np.argmax(means))]
        columns = self.columns_of(state.order)
        if len(here) < MIN_ROWS or len(columns) == 0 or gains.shape[1] < 2:
            return chosen
        predicted = self._predict(gains - gains.mean(axis=1, keepdims=True), here, columns)
        state.predicted = np.zeros(state.gains.shape)
        state.predicted[here] = predicted
        best = float(means[chosen[0]])
        while len(chosen) < min(CHOICES, gains.shape[1]):
            trials = []
            for place in range(gains.shape[1]):
                some = [*chosen, place]
                taken = np.array(some)[predicted[:, some].argmax(axis=1)]
                trials.append(float(np.average(gains[np.arange(len(here)), taken], weights=weight)))
            place = int(np.argmax(trials))
            if place in chosen or trials[place] < best + MIN_GAIN * max(abs(best), 1e-12):
                break
            best = trials[place]
            chosen.append(place)
        return chosen

    def _means(self, state: _State) -> Floats:
        """Mean gain of each candidate over the rows at a node, or over all rows where it has none."""
        counts = self.weight * state.comes if state.comes.any() else self.weight
        means: Floats = np.average(state.gains, axis=0, weights=counts)
        return means

    def _predict(self, wanted: Floats, here: Ints, columns: Ints) -> Floats:
        """Predicted gains of the rows that come to a node, by trees that have not seen them."""
        table, part, weight = self.table.take(here), self.part[here], self.weight[here]
        predicted = np.zeros(wanted.shape)
        for number in range(N_FOLDS):
            rest, own = np.flatnonzero(part != number), np.flatnonzero(part == number)
            if len(own) and len(rest):
                trees = learn_turn(table.take(rest), wanted[rest], weight[rest], columns)
                predicted[own] = trees.predict_binned(table.take(own))
        return predicted

    @staticmethod
    def _taken(state: _State, chosen: list[int]) -> Ints:
        """Place of the candidate that each row chooses among some."""
        if state.predicted is None or len(chosen) == 1:
            return np.full(len(state.comes), chosen[0], dtype=np.intp)
        taken: Ints = np.array(chosen)[state.predicted[:, chosen].argmax(axis=1)]
        return taken

    def _kept(self, level: list[_State], found: list[_State], step: int) -> list[_State]:
        """The nodes of the next level that stay, with all rows sent to one of them."""
        found.sort(key=lambda state: (-self.weight[state.comes].sum(), state.order))
        width = 1 if step == 0 and not len(self.columns_of(())) else WIDTH
        kept = {state.bought: state for state in found[:width]}
        for state in level:
            reached = self._reached(state, kept)
            if not reached:  # its best child stays, even a small one
                best = state.bought | {state.candidates[int(np.argmax(self._means(state)))]}
                child = next((one for one in found if one.bought == best), None)
                child = child or next(one for one in found if state.bought < one.bought)
                kept[child.bought] = child
        nodes = list(kept.values())
        numbers = {state.bought: number for number, state in enumerate(nodes)}
        for node in nodes:
            node.comes = np.zeros(len(self.rows), dtype=bool)
        for state in level:
            reached = self._reached(state, kept)
            taken = self._taken(state, list(reached))
            for place, key in reached.items():
                kept[key].comes |= state.comes & (taken == place)
            state.children = {key: numbers[key] for key in reached.values()}
        return nodes

    def _reached(self, state: _State, kept: dict[frozenset[int], _State]) -> dict[int, frozenset[int]]:
        """Candidates of a node that lead to a node that stays: all where rows can choose, or else the best one."""
        every = {
            place: state.bought | {purchase}
            for place, purchase in enumerate(state.candidates)
            if state.bought | {purchase} in kept
        }
        if state.predicted is not None or not every:
            return every
        means = self._means(state)
        best = max(every, key=lambda place: means[place])
        return {best: every[best]}


def _with_line(search: _Search, levels: list[list[_State]], plan: Plan) -> tuple[tuple[GraphNode, ...], ...]:
    """The levels as nodes, and behind them the line, as far as its stages hold more."""
    last = levels[-1][0]
    tail: list[Ints] = []
    held = search.columns_of(last.order)
    for columns in plan.sets:
        if len(columns) > len(held) and not np.isin(columns, held).all():
            held = np.r_[held, columns[~np.isin(columns, held)]]
            tail.append(held)
    nodes: list[tuple[GraphNode, ...]] = []
    for number, level in enumerate(levels):
        is_last = number == len(levels) - 1
        nodes.append(
            tuple(
                GraphNode(
                    search.columns_of(state.order),
                    state.parent if number else 0,
                    np.zeros(1, np.intp) if is_last else np.array(list(state.children.values()), np.intp),
                    None if is_last else _turn_targets(search, state),
                )
                for state in level
            )
        )
    nodes += [(GraphNode(columns, 0, np.zeros(1, np.intp)),) for columns in tail]
    return tuple(nodes)


def _turn_targets(search: _Search, state: _State) -> TurnTargets | None:
    """Regression targets of the choice among the children of a node."""
    if len(state.children) < 2:
        return None
    added = [next(iter(key - state.bought)) for key in state.children]
    here = np.flatnonzero(state.comes)
    places = np.array([state.candidates.index(one) for one in added])
    gains = state.gains[np.ix_(here, places)]
    return TurnTargets(search.rows[here], gains - gains.mean(axis=1, keepdims=True))


OTHERS = 0.5
"""Weight, at a node, of the rows that do not come to it."""

MAX_OTHERS = 12_000
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
    """Trees and turns of every node of a graph.

    Attributes
    ----------
    base : ndarray of shape (n_scores,)
        Scores before any tree.
    levels : tuple of tuple of GrownNode
        The nodes.
    mean_margin : ndarray of shape (n_levels,)
        How sure the answers are on average at each level, on the rows that the trees were grown on.
    """

    base: Floats
    levels: tuple[tuple[GrownNode, ...], ...]
    mean_margin: Floats

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
        """Stages that serve; ``gates`` are the learned gates of the nodes of each level."""
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
    others = uniforms(table.codes, OTHERS_SEED) < MAX_OTHERS / len(rows)
    subsampler = Subsampler(uniforms(table.codes)[:, None], ROWS_PER_TREE)
    before, came_from = [np.tile(base, (len(rows), 1))], np.zeros(len(rows), dtype=np.intp)
    node_of, scale, number_of_tree = np.zeros(len(rows), dtype=np.intp), 1.0, 0
    levels, mean_margin = [], np.zeros(len(graph.levels))
    for place, level in enumerate(graph.levels):
        kept = shrinkage_at(place)
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
                    stage.grow(part_of_loss, here * subsampler(number_of_tree)[some], own)
                trees = stage.trees()
            score[some] = own
            following_nodes = graph.levels[place + 1] if place + 1 < len(graph.levels) else ()
            turn = _turn(table, counts, node, place_of) if len(following_nodes) > 1 else None
            one = GrownNode(node.columns, replace(trees, values=trees.values * scale), turn)
            if comes.any():
                margin = margins(score[comes] * scale, base)
                mean_margin[place] += float(margin @ counts[comes]) / float(counts.sum())
                following[comes] = one.taken(table.take(np.flatnonzero(comes)))
            grown.append(one)
            after.append(score)
        levels.append(tuple(grown))
        before, came_from, node_of = after, node_of, following
    return GraphTrees(base, tuple(levels), mean_margin)


def _start(before: list[Floats], node: GraphNode, comes: Bools, came_from: Ints) -> Floats:
    """Scores that rows bring to a node; those that do not come there start from its parent's."""
    score = before[node.parent].copy()
    for number, scores in enumerate(before):
        here = comes & (came_from == number)
        if number != node.parent and here.any():
            score[here] = scores[here]
    return score


def _turn(table: BinnedTable, counts: Floats, node: GraphNode, place_of: Ints) -> Turn:
    """Turn of a node, learned from the rows of its targets that are in the table."""
    if node.targets_of_turn is None:
        return Turn(node.choices[:1])
    places = place_of[node.targets_of_turn.rows]
    known = np.flatnonzero(places >= 0)
    some = places[known]
    trees = learn_turn(table.take(some), node.targets_of_turn.gains[known], counts[some], node.columns)
    return Turn(node.choices, trees)
