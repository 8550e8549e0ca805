"""Structure "neighbours": rows choose their next purchase, and are predicted by kernel neighbours.

Columns are cut into a few levels with positions, which define the distance of two values. Level by level, from the
first purchase of the line, every row goes on to the purchase with the largest expected gain per unit of price
(``engine/walk/kernel_neighbours.py``), neighbours of its own fold left out. Of the sets that rows come to, those with
the most rows are the nodes of the next level; a row chooses among the purchases that lead to one of them. Behind the
last level all rows buy all purchases of the line, and are scored by the trees of the line.

Numbers are predicted clearly worse by neighbours than by trees. There neighbours only choose, among fewer purchases and
nodes, and every node has trees of its own (``nodes.py``); rows that have bought all that they choose from
hold the same, and go on along the line.

Bandwidths are found by coordinate descent over columns, sharpness and pull level by level, by the held-out log-loss or
squared error of some rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Floats, Ints
from thrifty.engine.tasks.regression import quantile_of
from thrifty.engine.tasks.task import Task
from thrifty.engine.trees import TreeEnsemble
from thrifty.engine.trees.binning import BinnedTable
from thrifty.engine.walk.kernel_neighbours import Neighbours, NeighbourStage, NeighbourTurn, TurnByNeighbours
from thrifty.engine.walk.stage import CascadeStage, ForkStage, Stage
from thrifty.errors import InvalidInputError
from thrifty.learners.cascade.nodes import NodeTrees, TreeTrials
from thrifty.learners.cascade.problem import CascadeProblem, Plan
from thrifty.learners.cascade.stages import StagedTrees, shrinkage_at, stored_bytes

MAX_LEVELS = 24
"""Levels of a column; more values are cut into as many parts of equally many rows."""

UNEVEN = 1.5
"""Largest ratio of steps between values for which positions are the values themselves, not their ranks."""


def coarse_levels(
    table: BinnedTable, columns: Ints, weight: Floats
) -> tuple[NDArray[np.uint8], Floats, NDArray[np.int64], Floats]:
    """Columns in at most ``MAX_LEVELS`` levels: codes, ends, offsets, and positions with a standard deviation of one.

    Positions of few values at about even steps, such as counts, are the values; those of others are ranks, and many
    values are cut into levels of equally many rows.
    """
    codes = np.empty((table.n_rows, len(columns)), dtype=np.uint8)
    ends, positions, offsets = [], [], [0]
    for number, column in enumerate(columns):
        own, cuts = table.codes[:, column], table.thresholds.of(int(column))
        n_bins = len(cuts) + 1
        is_there = own < n_bins
        mass = np.bincount(own[is_there], weight[is_there], minlength=n_bins)
        level_of, gaps = np.arange(n_bins), np.diff(cuts)
        if n_bins > MAX_LEVELS:
            middle = (np.cumsum(mass) - mass / 2) / max(mass.sum(), 1e-300)
            level_of = np.minimum((middle * MAX_LEVELS).astype(int), MAX_LEVELS - 1)
            level_of = np.unique(level_of, return_inverse=True)[1]
        if n_bins <= MAX_LEVELS and len(gaps) > 1 and gaps.max() <= UNEVEN * gaps.min():
            # Cuts are half-way between values.
            place = np.r_[cuts[0] - gaps[0] / 2, (cuts[1:] + cuts[:-1]) / 2, cuts[-1] + gaps[-1] / 2]
        else:
            shares = np.bincount(level_of, mass)
            place = (np.cumsum(shares) - shares / 2) / max(shares.sum(), 1e-300)
        last_of = np.flatnonzero(np.diff(level_of))  # the last bin of every level but the last
        ends.append(cuts[last_of])
        shares = np.bincount(level_of, mass)
        mean = float(place @ shares) / max(float(shares.sum()), 1e-300)
        spread = float(np.sqrt(np.square(place - mean) @ shares / max(float(shares.sum()), 1e-300)))
        positions.append((place - mean) / (spread or 1.0))
        codes[:, number] = np.where(is_there, level_of[np.minimum(own, n_bins - 1)], len(place))
        offsets.append(offsets[-1] + len(last_of))
    flat = np.concatenate([np.empty(0), *ends]), np.concatenate([np.empty(0), *positions])
    return codes, flat[0], np.array(offsets, dtype=np.int64), flat[1]


MAX_NEIGHBOURS = 16_000
"""Training rows that are kept as neighbours."""

MAX_ROWS = 60_000
"""With more rows, predicting all of them by neighbours takes longer than trees do."""

POOL = 36
"""First purchases of the line's order, among which rows choose."""

DEPTH, WIDTH = 9, 64
"""Purchases that rows make in orders of their own, and most nodes of a level, but for those without which rows could
not go on."""

POOL_OF_NUMBERS, WIDTH_OF_NUMBERS = 8, 12
"""The same where a number is predicted, by trees for each node."""

INTERVALS = 32
"""Intervals of a number, by which neighbours choose the next purchase."""

FIRST_BANDWIDTH = 0.2
"""Bandwidth that the search begins with, in standard deviations of the column's positions."""

STEPS = (1.6, 1.4, 1.25)
"""Factors by which bandwidths are changed in each round of their search."""

HELD_IN_SEARCH = 5
"""Columns of the sets, drawn at random, by which bandwidths are evaluated."""

ROWS_IN_SEARCH, GROUPS = 400, 40
"""Rows by which bandwidths, sharpness and pull are evaluated, and sets of columns that they hold in turns at least."""

SHARPNESS = (1.6, 1.25, 1.0, 0.8, 0.64, 0.4)
PULLS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)

AHEAD, HORIZON = 3, 5
"""First purchases that are valued by trials, and after how many purchases in all."""

EARLIER = 0.25
"""Weight of the losses on the way to the horizon against that at the horizon."""

TRIALS, SCREENED, MIN_TRIALS = 600, 150, 100
"""Most rows that try purchases at a level, those of a node that try every purchase, and the least at a node: with
fewer, the expected gain decides."""

MAX_TRIALS = 1_500
"""Rows of a node whose trials by trees are kept."""

BEST_ON_AVERAGE, BEST_FOR_SOME = 4, 4
"""Purchases that are tried to the horizon: the best for all rows, and those that are best for some."""


@dataclass(frozen=True, eq=False)
class NodeOfSets:
    """A set of purchases with its columns, and the turns that lead on from it."""

    bought: frozenset[int]
    columns: Ints
    turn: NeighbourTurn | None = None


@dataclass(frozen=True, eq=False)
class NeighbourGraph:
    """Nodes of every level, neighbours that choose between them, and what predicts there.

    Attributes
    ----------
    among : Neighbours
        Training rows that choose and, without trees at the nodes, answer.
    levels : tuple of tuple of NodeOfSets
        Nodes of each level.
    sharpness, pull : tuple of float
        Of each level.
    line : StagedTrees
        The line whose trees score rows behind the last level, without trees at the nodes.
    trees : NodeTrees, optional
        Trees of the nodes of all levels and, behind them, of ``tail``.
    tail : tuple of ndarray
        Columns of the stages behind the last level.
    """

    among: Neighbours
    levels: tuple[tuple[NodeOfSets, ...], ...]
    sharpness: tuple[float, ...]
    pull: tuple[float, ...]
    line: StagedTrees
    tail: tuple[Ints, ...]
    trees: NodeTrees | None = None

    @property
    def base(self) -> Floats:
        """Scores before any tree."""
        return self.line.base if self.trees is None else self.trees.base

    @property
    def sets(self) -> list[list[Ints]]:
        """Columns of the nodes of every stage, those behind the last level included."""
        return [*([node.columns for node in level] for level in self.levels), *([own] for own in self.tail)]

    @property
    def neighbour_bytes(self) -> int:
        """Bytes that neighbours take in a file at most."""
        among = (self.among.codes, self.among.label, self.among.weight, self.among.ends, self.among.positions)
        return sum(array.nbytes for array in among)

    def _last_trees(self) -> TreeEnsemble:
        return TreeEnsemble.concatenate(self.line.parts)

    def stages(
        self,
        task: Task,
        calibrations: Sequence[Floats],
        gates: Sequence[Sequence[TreeEnsemble]] | None = None,
    ) -> tuple[Stage, ...]:
        """Stages that serve; ``gates`` are the learned gates of the nodes of each stage."""
        found: list[Stage] = []
        for place, columns in enumerate(self.sets):
            turns = [node.turn for node in self.levels[place]] if place < len(self.levels) else [None]
            nodes = tuple(
                self._node(place, number, own, turn, calibrations[place], task, gates)
                for number, (own, turn) in enumerate(zip(columns, turns, strict=True))
            )
            found.append(nodes[0] if len(nodes) == 1 else ForkStage(nodes))
        return tuple(found)

    def _node(
        self,
        place: int,
        number: int,
        columns: Ints,
        turn: NeighbourTurn | None,
        calibration: Floats,
        task: Task,
        gates: Sequence[Sequence[TreeEnsemble]] | None,
    ) -> Stage:
        if self.trees is None and place < len(self.levels):
            shared = (self.among, self.sharpness[place], self.pull[place], calibration, task)
            return NeighbourStage(columns, *shared, turn)
        trees = self._last_trees() if self.trees is None else self.trees.trees[place][number]
        return CascadeStage(
            columns,
            trees.over_columns(columns),
            calibration,
            task,
            None if gates is None else gates[place][number],
            None if turn is None else TurnByNeighbours(self.among, columns, self.sharpness[place], turn),
        )


def find_neighbours(
    problem: CascadeProblem, plan: Plan, line: StagedTrees
) -> tuple[NeighbourGraph, Floats, Ints, Floats] | None:
    """Find a graph of neighbours, without trees at its nodes, or None where it is not supported.

    Returns
    -------
    graph : NeighbourGraph
        What serves.
    scores : ndarray of shape (n_rows, n_levels, n_scores)
        Held-out scores at every level, by neighbours.
    node : ndarray of shape (n_rows, n_stages)
        Node of each row at each level and behind them.
    served : ndarray of shape (n_rows, n_scores)
        Scores of the first level with all neighbours, the row itself among them.
    """
    if unsupported_reason(len(problem.y), has_categories=problem.table.categories is not None):
        return None
    n_free = int((problem.price_list.prices[problem.price_list.group_of] == 0).sum())
    if n_free > POOL:  # so many columns, held by all, leave no row a neighbour
        return None
    search = _Search(problem, plan)
    if search.n_levels < 2:
        return None
    levels, scores, node = search.levels()
    if all(len(level) == 1 for level in levels):
        return None
    tail = (line.sets[-1],) if search.is_labels else search.tail(plan)
    graph = NeighbourGraph(
        search.among, tuple(levels), tuple(search.sharpness), tuple(search.pull), line, tail
    )
    n_bytes = graph.neighbour_bytes + (stored_bytes(graph._last_trees()) if search.is_labels else 1)
    if problem.max_bytes is not None and n_bytes > problem.max_bytes:
        raise InvalidInputError(
            f"max_bytes must leave room for the neighbours and the trees behind them, {n_bytes} bytes here; got "
            f"{problem.max_bytes}. Raise it, or give structure='line'."
        )
    first = levels[0][0].columns
    codes = search.codes[:, search.among.places(first)]
    masses, _ = search.among.look(codes, first, graph.sharpness[0])
    served = search.scores_of(search.among.outputs(masses, graph.pull[0]))
    behind = np.zeros((len(node), len(tail)), dtype=np.intp)
    return graph, scores, np.hstack([node, behind]), served


def unsupported_reason(n_rows: int, *, has_categories: bool) -> str:
    """Reason why neighbours do not support some rows; empty if they do."""
    if has_categories:
        return "the table has columns of text or categories, between which there is no distance"
    return f"they are at most {MAX_ROWS:,}, and here are {n_rows:,}" if n_rows > MAX_ROWS else ""


def even_steps(n: int, max_places: int) -> Ints:
    """At most so many of ``n`` places, at even steps."""
    return np.arange(n) if n <= max_places else np.linspace(0, n - 1, max_places).astype(np.intp)


@dataclass(frozen=True, eq=False)
class _Trial:
    """What some purchases, by their place in the pool, were worth to some rows: (n_rows, n_places)."""

    places: list[int]
    rows: Ints
    worth: Floats


def _best_of(expected: Floats) -> list[int]:
    """The choices that are best on average and, one by one, those that add most to what rows find best."""
    best = np.argsort(-expected.mean(axis=0), kind="stable")[:BEST_ON_AVERAGE].tolist()
    while len(best) < min(BEST_ON_AVERAGE + BEST_FOR_SOME, expected.shape[1]):
        so_far = expected[:, best].max(axis=1)
        added = np.maximum(expected - so_far[:, None], 0.0).mean(axis=0)
        added[best] = -1.0
        best.append(int(np.argmax(added)))
    return [int(one) for one in best]


class _Search:
    """Finds bandwidths and levels."""

    def __init__(self, problem: CascadeProblem, plan: Plan) -> None:
        self.problem, prices = problem, problem.price_list
        self.is_labels = len(problem.task.classes) > 1
        self.pool = [int(one) for one in plan.order[: POOL if self.is_labels else POOL_OF_NUMBERS]]
        self.width = WIDTH if self.is_labels else WIDTH_OF_NUMBERS
        self.free = np.flatnonzero(prices.prices[prices.group_of] == 0)
        known = np.sort(np.concatenate([self.free, *(self._delivered(one) for one in self.pool)]))
        self.known = known.astype(np.intp)
        max_levels = DEPTH if problem.n_stages is None else min(DEPTH, problem.n_stages - 1)
        # Rows that have bought all of the pool hold the same; trees go on from there, and kernels end before.
        self.n_levels = min(max_levels, len(self.pool) - self.is_labels) + (len(self.free) > 0)
        self.fold = np.empty(len(problem.y), dtype=np.int64)
        for number, rows in enumerate(problem.folds):
            self.fold[rows] = number
        self.codes, ends, offsets, positions = coarse_levels(problem.table, self.known, problem.weight)
        self.label, n_classes, values = self._labels()
        label = self.label
        self.weight = problem.weight / problem.weight.mean()
        # At even steps through rows sorted by content: independent of the order of rows.
        by_content = np.lexsort((self.fold, self.weight, label, *self.codes.T))
        some = by_content[even_steps(len(by_content), MAX_NEIGHBOURS)]
        self.rows = some
        self.among = Neighbours(
            self.known,
            ends,
            offsets,
            positions / FIRST_BANDWIDTH,
            np.ascontiguousarray(self.codes[some].T),
            label[some],
            self.weight[some],
            n_classes,
            values,
        )
        self.sharpness: list[float] = []
        self.pull: list[float] = []
        self.judges = some[even_steps(len(some), ROWS_IN_SEARCH)]
        self.triers = some[even_steps(len(some), TRIALS)]
        self._find_bandwidths()
        self.by_number = [self._sharpen_random(number) for number in range(min(HORIZON, len(self.pool)) + 1)]

    def _labels(self) -> tuple[NDArray[np.int32], int, Floats]:
        """Number of each row's class, number of classes, and their values where they are intervals of numbers."""
        y, classes = self.problem.y, self.problem.task.classes
        if self.is_labels:
            by_name = np.argsort(classes)
            found = by_name[np.searchsorted(classes, self.problem.task.decode(y), sorter=by_name)]
            return found.astype(np.int32), len(classes), np.empty(0)
        ends = np.unique(
            [quantile_of(y, self.problem.weight, part / INTERVALS) for part in range(1, INTERVALS)]
        )
        label = np.unique(np.searchsorted(ends, y), return_inverse=True)[1].astype(np.int32)
        mass = np.bincount(label, self.problem.weight)
        return label, len(mass), np.bincount(label, self.problem.weight * y) / mass

    def scores_of(self, outputs: Floats) -> Floats:
        """Scores of probabilities of the classes, shape (n_rows, n_scores)."""
        if self.is_labels:
            return self.problem.task.scores(outputs)
        return (outputs * self.among.values).sum(axis=1, keepdims=True)

    def tail(self, plan: Plan) -> tuple[Ints, ...]:
        """Columns of the stages of the line that hold more than the pool, and at least one that holds all of it."""
        held, found = self._columns(frozenset(self.pool)), []
        for columns in plan.sets:
            if not np.isin(columns, held).all():
                held = np.r_[held, columns[~np.isin(columns, held)]]
                found.append(held)
        return tuple(found or [held])

    def _delivered(self, purchase: int) -> Ints:
        return np.flatnonzero(self.problem.price_list.group_of == purchase)

    # -- bandwidths --------------------------------------------------------------------------------

    def _find_bandwidths(self) -> None:
        chance, n_held = np.random.default_rng(0), min(HELD_IN_SEARCH, len(self.known))
        n_groups = min(max(GROUPS, -(-3 * len(self.known) // n_held)), len(self.judges))
        # Judges in groups that hold the same, so that a group is one call; columns are dealt out in turns.
        groups = [self.judges[number::n_groups] for number in range(n_groups)]
        n_turns = -(-n_groups * n_held // len(self.known))
        dealt = np.concatenate([chance.permutation(self.known) for _ in range(n_turns)])
        sets = [np.unique(dealt[number * n_held :][:n_held]) for number in range(n_groups)]
        losses = np.array([self._group_loss(*both) for both in zip(groups, sets, strict=True)])
        starts = np.r_[0, np.cumsum(self.among.n_levels - 1)]
        for number, step in enumerate(STEPS):
            for place, column in enumerate(self.known):
                touched = [group for group, columns in enumerate(sets) if column in columns]
                for factor in (step, 1.0 / step):
                    before, positions = self.among, self.among.positions.copy()
                    positions[starts[place] : starts[place + 1]] /= factor
                    self.among = replace(before, positions=positions)
                    found = [self._group_loss(groups[group], sets[group]) for group in touched]
                    if sum(found) < losses[touched].sum():
                        losses[touched] = found
                        break
                    self.among = before
            self.problem.progress("finding bandwidths", number + 1, len(STEPS))

    def _group_loss(self, rows: Ints, columns: Ints) -> float:
        """Summed held-out loss of some rows that hold the same."""
        return float(self.weight[rows].sum() * self._loss(rows, columns, 1.0, PULLS[-2:-1])[0])

    def _loss(self, rows: Ints, columns: Ints, sharpness: float, pulls: Sequence[float]) -> Floats:
        """Held-out loss of some rows that hold the same, for each pull."""
        masses, _ = self._look(rows, columns, sharpness, None)
        found = (self._losses(rows, self.among.outputs(masses, pull)) for pull in pulls)
        return np.array([np.average(one, weights=self.weight[rows]) for one in found])

    def _losses(self, rows: Ints, outputs: Floats) -> Floats:
        """Log-loss or squared error of the probabilities of some rows."""
        if self.is_labels:
            return -np.log(outputs[np.arange(len(rows)), self.label[rows]])
        return np.square(self.scores_of(outputs)[:, 0] - self.problem.y[rows])

    def _look(
        self, rows: Ints, columns: Ints, sharpness: float, candidates: Ints | None
    ) -> tuple[Floats, Floats]:
        codes = self.codes[rows][:, self.among.places(columns)]
        return self.among.look(codes, columns, sharpness, candidates, (self.fold[self.rows], self.fold[rows]))

    # -- levels ------------------------------------------------------------------------------------

    def levels(self) -> tuple[list[tuple[NodeOfSets, ...]], Floats, Ints]:
        """Nodes of each level, and out-of-fold scores and nodes of the rows."""
        problem = self.problem
        n_rows = len(problem.y)
        scores = np.empty((n_rows, self.n_levels, problem.task.n_scores))
        node = np.zeros((n_rows, self.n_levels), dtype=np.intp)
        start = frozenset(() if len(self.free) else (self._first(),))
        if not self.is_labels:
            self.trees = TreeTrials(problem)
            self.grown = {start: self.trees.grown(self.trees.base, self._columns(start), 1.0)}
        level, levels = [NodeOfSets(start, self._columns(start))], []
        for place in range(self.n_levels):
            is_last = place == self.n_levels - 1
            sharpness, pull = self._sharpen(level, node[:, place])
            outputs, gain = self._visit(level, node[:, place], sharpness, pull, is_last=is_last)
            scores[:, place] = self.scores_of(outputs)
            self.sharpness.append(sharpness)
            self.pull.append(pull)
            following: list[NodeOfSets] = []
            if not is_last:
                attempt = self._try_level if self.is_labels else self._try_trees
                trials = attempt(level, node[:, place], sharpness, gain)
                level, following, node[:, place + 1] = self._go_on(level, node[:, place], gain, trials)
            levels.append(tuple(level))
            level = following
            problem.progress("finding sets of purchases", place + 1, self.n_levels)
        return levels, scores, node

    def _columns(self, bought: frozenset[int]) -> Ints:
        delivered = [self._delivered(one) for one in self.pool if one in bought]
        return np.concatenate([self.free, *delivered]).astype(np.intp)

    def _sharpen(self, level: Sequence[NodeOfSets], node: Ints) -> tuple[float, float]:
        """Sharpness and pull of the least held-out loss of some rows."""
        losses = np.zeros((len(SHARPNESS), len(PULLS)))
        for number, one in enumerate(level):
            rows = self.judges[node[self.judges] == number]
            for place, sharpness in enumerate(SHARPNESS if len(rows) else ()):
                losses[place] += self.weight[rows].sum() * self._loss(rows, one.columns, sharpness, PULLS)
        best = np.unravel_index(np.argmin(losses), losses.shape)
        return SHARPNESS[best[0]], PULLS[best[1]]

    def _prices(self, bought: frozenset[int]) -> Floats:
        held = np.zeros(len(self.problem.price_list.prices), dtype=bool)
        held[list(bought)] = True
        return np.maximum(self.problem.price_list.prices_after(held), 1e-12)

    def _visit(
        self, level: Sequence[NodeOfSets], node: Ints, sharpness: float, pull: float, *, is_last: bool
    ) -> tuple[Floats, Floats]:
        """Held-out probabilities, and what each purchase of the pool is expected to gain for its price."""
        n_rows = len(node)
        outputs = np.empty((n_rows, self.among.n_classes))
        gain = np.full((n_rows, len(self.pool)), -np.inf)
        for number, one in enumerate(level):
            rows = np.flatnonzero(node == number)
            if not len(rows):
                continue
            left = [place for place, purchase in enumerate(self.pool) if purchase not in one.bought]
            columns = [self._delivered(self.pool[place]) for place in left]
            every = None if is_last or not left else np.unique(np.concatenate(columns)).astype(np.intp)
            masses, gains = self._look(rows, one.columns, sharpness, every)
            outputs[rows] = self.among.outputs(masses, pull)
            if every is None:
                continue
            prices = self._prices(one.bought)
            for place, own in zip(left, columns, strict=True):
                best = gains[:, np.searchsorted(every, own)].max(axis=1)
                gain[rows, place] = best / prices[self.pool[place]]
        return outputs, gain

    # -- trials ------------------------------------------------------------------------------------

    def _first(self) -> int:
        """The first purchase of all rows: the line's, or one that is not dearer and clearly worth more."""
        prices = self._prices(frozenset())
        # A first purchase that is dearer than the line's would leave small budgets without an answer.
        left = [place for place, one in enumerate(self.pool) if prices[one] <= prices[self.pool[0]]]
        nothing = NodeOfSets(frozenset(), self.free)
        before = self._losses(self.triers, np.tile(self.among.prior, (len(self.triers), 1)))
        trial = self._try(nothing, self.triers, left, before, 1.0, [0])
        worth = self._expected(nothing, trial.rows, trial.worth, self.triers[:1], 1.0)[0]
        return self.pool[trial.places[int(np.argmax(worth))] if worth.max() > 0.0 else 0]

    def _try_level(
        self, level: Sequence[NodeOfSets], node: Ints, sharpness: float, gain: Floats
    ) -> dict[int, _Trial]:
        """Trials at the nodes of a level, by number; choices that they advise come before others in ``gain``."""
        trials = {}
        for number, one in enumerate(level):
            rows = self.triers[node[self.triers] == number]
            left = [place for place, purchase in enumerate(self.pool) if purchase not in one.bought]
            if len(one.bought) >= AHEAD or len(rows) < MIN_TRIALS or len(left) < 2:
                continue
            trials[number] = self._try(one, rows, left, self._losses_at(rows, one.bought), sharpness)
            self._advise(one, trials[number], np.flatnonzero(node == number), sharpness, gain)
        return trials

    def _advise(self, one: NodeOfSets, trial: _Trial, here: Ints, sharpness: float, gain: Floats) -> None:
        """Put what trials advise the rows of a node before what they would gain."""
        worth = self._expected(one, trial.rows, trial.worth, here, sharpness)
        # Below zero, where no worth is that counts.
        gain[here] -= np.max(gain[here], axis=1, keepdims=True, initial=0.0)
        gain[here[:, None], trial.places] = np.where(worth > 0.0, worth, gain[here[:, None], trial.places])

    def _try_trees(
        self, level: Sequence[NodeOfSets], node: Ints, sharpness: float, gain: Floats
    ) -> dict[int, _Trial]:
        """Trials as ``_try_level``, of every purchase at every node, by trees that continue those of the node."""
        trials, grown, mass = {}, {}, dict[frozenset[int], float]()
        for number, one in enumerate(level):
            left = [place for place, purchase in enumerate(self.pool) if purchase not in one.bought]
            prices, before = self._prices(one.bought), self.grown[one.bought]
            here = np.flatnonzero(node[self.trees.rows] == number)
            worth = np.empty((len(self.trees.rows), len(left)))
            for choice, place in enumerate(left):
                key = one.bought | {self.pool[place]}
                after = self.trees.grown(before, self._columns(key), shrinkage_at(len(one.bought)))
                fall = self.trees.losses(before) - self.trees.losses(after)
                worth[:, choice] = fall / prices[self.pool[place]]
                if key not in grown or len(here) > mass[key]:
                    grown[key], mass[key] = after, len(here)
            is_large = len(here) >= MIN_TRIALS
            best = int(np.argmax(worth[here if len(here) else slice(None)].mean(axis=0)))
            worth -= worth[:, [best]].copy()
            worth[:, best] = 1e-9  # taken where nothing else is clearly worth more
            chosen = list(range(len(left))) if is_large else [best]
            some = here[even_steps(len(here), MAX_TRIALS)] if is_large else even_steps(len(worth), MIN_TRIALS)
            places = [left[choice] for choice in chosen]
            trials[number] = trial = _Trial(places, self.trees.rows[some], worth[some][:, chosen])
            self._advise(one, trial, np.flatnonzero(node == number), sharpness, gain)
        self.grown = grown
        return trials

    def _try(
        self,
        one: NodeOfSets,
        rows: Ints,
        left: Sequence[int],
        before: Floats,
        sharpness: float,
        default: Sequence[int] | None = None,
    ) -> _Trial:
        """Try purchases at a node: all of them one further purchase ahead, and the best of these to the horizon.

        ``default`` are the places of the purchase that others are compared with; None is that of the largest gain.
        """
        some = even_steps(len(rows), SCREENED)
        worth = self._worth(rows[some], one.bought, left, 1, before[some])
        expected = self._expected(one, rows[some], worth, rows[some], sharpness)
        places = [left[choice] for choice in _best_of(expected)]
        n_more = min(HORIZON, len(self.pool)) - len(one.bought) - 1
        usual = self._worth(rows, one.bought, default or [-1], n_more, before)
        return _Trial(places, rows, self._worth(rows, one.bought, places, n_more, before) - usual)

    def _worth(
        self, rows: Ints, bought: frozenset[int], places: Sequence[int], n_more: int, before: Floats
    ) -> Floats:
        """How much less rows lose, for its price, after each of some purchases and a few more: (n_rows, n_places).

        The place -1 is the purchase of the largest gain.
        """
        # All purchases at once: rows of different ones may come to the same set.
        row, first = np.tile(np.arange(len(rows)), len(places)), np.repeat(places, len(rows))
        groups = {bought: np.arange(len(row))}
        loss, paid = np.zeros(len(row)), np.empty(len(row))
        for step in range(n_more + 1):
            following: dict[frozenset[int], list[Ints]] = {}
            for key, here in groups.items():
                is_given = step == 0 and places[0] >= 0
                best = first[here] if is_given else self._gains(rows[row[here]], key).argmax(axis=1)
                for taken in np.unique(best):
                    following.setdefault(key | {self.pool[taken]}, []).append(here[best == taken])
            groups = {key: np.sort(np.concatenate(parts)) for key, parts in following.items()}
            weight = 1.0 if step == n_more else EARLIER / n_more
            for key, here in groups.items():
                loss[here] += weight * (self._losses_at(rows[row[here]], key) - before[row[here]])
                paid[here] = self._cost(key) - self._cost(bought)
        return (-loss / np.maximum(paid, 1e-12)).reshape(len(places), len(rows)).T

    def _gains(self, rows: Ints, bought: frozenset[int]) -> Floats:
        """Expected gain of each purchase of the pool for its price; -inf where it is bought."""
        gain = np.full((len(rows), len(self.pool)), -np.inf)
        left = [place for place, purchase in enumerate(self.pool) if purchase not in bought]
        columns = [self._delivered(self.pool[place]) for place in left]
        every, prices = np.unique(np.concatenate(columns)).astype(np.intp), self._prices(bought)
        _, gains = self._look(rows, self._columns(bought), self.by_number[len(bought)][0], every)
        for place, own in zip(left, columns, strict=True):
            best = gains[:, np.searchsorted(every, own)].max(axis=1)
            gain[:, place] = best / prices[self.pool[place]]
        return gain

    def _losses_at(self, rows: Ints, bought: frozenset[int]) -> Floats:
        """Held-out losses of some rows after some purchases."""
        sharpness, pull = self.by_number[len(bought)]
        masses, _ = self._look(rows, self._columns(bought), sharpness, None)
        return self._losses(rows, self.among.outputs(masses, pull))

    def _expected(self, one: NodeOfSets, tried: Ints, worth: Floats, asked: Ints, sharpness: float) -> Floats:
        """What rows at a node expect purchases to be worth, by what they were to others."""
        held, fold = self.among.places(one.columns), (self.fold[tried], self.fold[asked])
        levels = self.codes[:, held]
        return self.among.means_around(levels[asked], one.columns, sharpness, levels[tried], worth, fold)

    def _cost(self, bought: frozenset[int]) -> float:
        columns = self._columns(bought)
        return float(self.problem.price_list.cost_of(columns)) if len(columns) else 0.0

    def _sharpen_random(self, number: int) -> tuple[float, float]:
        """Sharpness and pull of the least held-out loss of rows that have made so many purchases, drawn at random."""
        if number == 0 and not len(self.free):
            return 1.0, PULLS[-1]
        chance, n_groups = np.random.default_rng(number), min(GROUPS, len(self.judges))
        drawn = [frozenset(chance.permutation(self.pool)[:number].tolist()) for _ in range(n_groups)]
        level = [NodeOfSets(key, self._columns(key)) for key in drawn]
        node = np.zeros(len(self.fold), dtype=np.intp)
        node[self.judges] = np.arange(len(self.judges)) % n_groups
        return self._sharpen(level, node)

    def _go_on(
        self, level: Sequence[NodeOfSets], node: Ints, gain: Floats, trials: Mapping[int, _Trial]
    ) -> tuple[list[NodeOfSets], list[NodeOfSets], Ints]:
        """Keep the sets that most rows come to, and send each row to one of them."""
        weight, best = self.problem.weight, gain.argmax(axis=1)
        mass: dict[frozenset[int], float] = {}
        for number, one in enumerate(level):
            here = node == number
            taken = np.bincount(best[here], weight[here], minlength=len(self.pool))
            for place in np.flatnonzero(taken):
                key = one.bought | {self.pool[place]}
                mass[key] = mass.get(key, 0.0) + float(taken[place])
        by_mass = sorted(mass, key=lambda key: (-mass[key], sorted(key)))
        kept = set(by_mass[: self.width])
        for number, one in enumerate(level):
            if not any(one.bought < key for key in kept):
                kept.add(self._best_child(one, gain[node == number]))
        ordered = sorted(kept, key=lambda key: (-mass.get(key, 0.0), sorted(key)))
        number_of = {key: number for number, key in enumerate(ordered)}
        turned, following = [], np.zeros(len(node), dtype=np.intp)
        for number, one in enumerate(level):
            open_to = [p for p, one_more in enumerate(self.pool) if one.bought | {one_more} in number_of]
            open_to = [place for place in open_to if self.pool[place] not in one.bought]
            nodes = np.array([number_of[one.bought | {self.pool[place]}] for place in open_to], dtype=np.intp)
            turned.append(
                NodeOfSets(one.bought, one.columns, self._turn(one, open_to, nodes, trials.get(number)))
            )
            rows = np.flatnonzero(node == number)
            if len(rows):
                following[rows] = nodes[gain[rows][:, open_to].argmax(axis=1)]
        return turned, [NodeOfSets(key, self._columns(key)) for key in ordered], following

    def _best_child(self, one: NodeOfSets, gain: Floats) -> frozenset[int]:
        left = [place for place, purchase in enumerate(self.pool) if purchase not in one.bought]
        mean = gain[:, left].mean(axis=0) if len(gain) else np.zeros(len(left))
        return one.bought | {self.pool[left[int(np.argmax(mean))]]}

    def _turn(
        self, one: NodeOfSets, open_to: Sequence[int], nodes: Ints, trial: _Trial | None
    ) -> NeighbourTurn:
        columns = [self._delivered(self.pool[place]) for place in open_to]
        tells = np.full((len(columns), max(map(len, columns))), -1, dtype=np.int64)
        for place, own in enumerate(columns):
            tells[place, : len(own)] = own
        prices = self._prices(one.bought)[[self.pool[place] for place in open_to]]
        if trial is None or len(open_to) == 1:
            return NeighbourTurn(nodes, tells, prices)
        tried = [choice for choice, place in enumerate(open_to) if place in trial.places]
        worth = trial.worth[:, [trial.places.index(open_to[choice]) for choice in tried]]
        levels = self.codes[trial.rows][:, self.among.places(one.columns)]
        return NeighbourTurn(nodes, tells, prices, np.array(tried, dtype=np.intp), levels, worth)
