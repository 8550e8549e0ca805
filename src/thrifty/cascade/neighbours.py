"""Structure "neighbours": rows choose their next purchase, and are predicted by kernel neighbours.

Columns are cut into a few levels with positions, which define the distance of two values. Level by level, from the
first purchase of the line, every row goes on to the purchase with the largest expected gain per unit of price
(``thrifty.chain.neighbours``), neighbours of its own fold left out. Of the sets that rows come to, those with the most
rows are the nodes of the next level; a row chooses among the purchases that lead to one of them. Behind the last level
all rows buy all purchases of the line, and are scored by the trees of the line.

Bandwidths are found by coordinate descent over columns, sharpness and pull level by level, by the held-out log-loss of
some rows. Only classification is supported: numbers were predicted clearly worse than by trees.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Floats, Ints
from thrifty.cascade.problem import CascadeProblem, Plan
from thrifty.cascade.stages import StagedTrees, stored_bytes
from thrifty.chain.neighbours import Neighbours, NeighbourStage, NeighbourTurn
from thrifty.chain.stage import CascadeStage, ForkStage, Stage
from thrifty.errors import InvalidInputError
from thrifty.tasks.task import Task
from thrifty.trees import TreeEnsemble
from thrifty.trees.binning import BinnedTable

__all__ = ["MAX_LEVELS", "NeighbourGraph", "coarse_levels", "find_neighbours", "unsupported_reason"]

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
"""With more rows, judging all of them by neighbours takes longer than trees do."""

POOL = 24
"""First purchases of the line's order, among which rows choose."""

DEPTH, WIDTH = 9, 64
"""Purchases that rows make in orders of their own, and most nodes of a level, but for those without which rows could
not go on."""

FIRST_BANDWIDTH = 0.2
"""Bandwidth that the search begins with, in standard deviations of the column's positions."""

STEPS = (1.6, 1.4, 1.25)
"""Factors by which bandwidths are changed in each round of their search."""

HELD_IN_SEARCH = 5
"""Columns of the sets, drawn at random, by which bandwidths are judged."""

ROWS_IN_SEARCH, GROUPS = 400, 40
"""Rows by which bandwidths, sharpness and pull are judged, and sets of columns that they hold in turns at least."""

SHARPNESS = (1.6, 1.25, 1.0, 0.8, 0.64)
PULLS = (1e-4, 1e-3, 1e-2, 1e-1)


@dataclass(frozen=True, eq=False)
class NodeOfSets:
    """A set of purchases with its columns, and the turns that lead on from it."""

    bought: frozenset[int]
    columns: Ints
    turn: NeighbourTurn | None = None


@dataclass(frozen=True, eq=False)
class NeighbourGraph:
    """Nodes of every level, neighbours that predict there, and trees of the last stage.

    Attributes
    ----------
    among : Neighbours
        Training rows that answer.
    levels : tuple of tuple of NodeOfSets
        Nodes of each level.
    sharpness, pull : tuple of float
        Of each level.
    last : StagedTrees
        The line whose trees score rows behind the last level.
    """

    among: Neighbours
    levels: tuple[tuple[NodeOfSets, ...], ...]
    sharpness: tuple[float, ...]
    pull: tuple[float, ...]
    last: StagedTrees

    @property
    def base(self) -> Floats:
        """Scores before any tree of the line."""
        return self.last.base

    @property
    def sets(self) -> list[list[Ints]]:
        """Columns of the nodes of every stage, the last one included."""
        return [*([node.columns for node in level] for level in self.levels), [self.last.sets[-1]]]

    @property
    def n_bytes(self) -> int:
        """Bytes that neighbours and trees take in a file at most."""
        among = (self.among.codes, self.among.label, self.among.weight, self.among.ends, self.among.positions)
        return sum(array.nbytes for array in among) + stored_bytes(self._trees())

    def _trees(self) -> TreeEnsemble:
        return TreeEnsemble.concatenate(self.last.parts)

    def stages(
        self,
        task: Task,
        calibrations: Sequence[Floats],
        gates: Sequence[Sequence[TreeEnsemble]] | None = None,
    ) -> tuple[Stage, ...]:
        """Stages that serve; gates are not learned here."""
        assert gates is None
        found: list[Stage] = []
        for place, level in enumerate(self.levels):
            shared = (self.among, self.sharpness[place], self.pull[place], calibrations[place], task)
            nodes = tuple(NeighbourStage(node.columns, *shared, node.turn) for node in level)
            found.append(nodes[0] if len(nodes) == 1 else ForkStage(nodes))
        columns = self.last.sets[-1]
        trees = self._trees().over_columns(columns)
        return (*found, CascadeStage(columns, trees, calibrations[-1], task))


def find_neighbours(
    problem: CascadeProblem, plan: Plan, line: StagedTrees, raw: Floats
) -> tuple[NeighbourGraph, Floats, Ints, Floats] | None:
    """Find a graph of neighbours, or None where it is not supported.

    Parameters
    ----------
    raw : ndarray of shape (n_rows, n_stages, n_scores)
        Held-out scores of the line.

    Returns
    -------
    graph : NeighbourGraph
        What serves.
    scores : ndarray of shape (n_rows, n_levels + 1, n_scores)
        Held-out scores at every level and behind them.
    node : ndarray of shape (n_rows, n_levels + 1)
        Node of each row at each level.
    served : ndarray of shape (n_rows, n_scores)
        Scores of the first level with all neighbours, the row itself among them.
    """
    if unsupported_reason(problem.task, len(problem.y), has_categories=problem.table.categories is not None):
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
    graph = NeighbourGraph(search.among, tuple(levels), tuple(search.sharpness), tuple(search.pull), line)
    if problem.max_bytes is not None and graph.n_bytes > problem.max_bytes:
        if problem.structure == "auto":
            return None
        raise InvalidInputError(
            f"max_bytes must leave room for the neighbours and the trees behind them, {graph.n_bytes} bytes here; got "
            f"{problem.max_bytes}. Raise it, or give structure='line'."
        )
    first = levels[0][0].columns
    codes = search.codes[:, search.among.places(first)]
    masses, _ = search.among.look(codes, first, graph.sharpness[0])
    served = problem.task.scores(search.among.outputs(masses, graph.pull[0]))
    everyone = np.zeros((len(node), 1), dtype=np.intp)
    return graph, np.concatenate([scores, raw[:, -1:]], axis=1), np.hstack([node, everyone]), served


def unsupported_reason(task: Task, n_rows: int, *, has_categories: bool) -> str:
    """Why neighbours do not support a task; empty if they do."""
    if not task.has_uncertainty or len(task.classes) < 2:
        return "the target is not a choice between classes: neighbours predict numbers clearly worse than trees do"
    if has_categories:
        return "the table has columns of text or categories, between which there is no distance"
    return f"they are at most {MAX_ROWS:,}, and here are {n_rows:,}" if n_rows > MAX_ROWS else ""


def even_steps(n: int, max_places: int) -> Ints:
    """At most so many of ``n`` places, at even steps."""
    return np.arange(n) if n <= max_places else np.linspace(0, n - 1, max_places).astype(np.intp)


class _Search:
    """Finds bandwidths and levels."""

    def __init__(self, problem: CascadeProblem, plan: Plan) -> None:
        self.problem, prices = problem, problem.price_list
        self.pool = [int(one) for one in plan.order[:POOL]]
        self.free = np.flatnonzero(prices.prices[prices.group_of] == 0)
        known = np.sort(np.concatenate([self.free, *(self._delivered(one) for one in self.pool)]))
        self.known = known.astype(np.intp)
        max_levels = DEPTH if problem.n_stages is None else min(DEPTH, problem.n_stages - 1)
        self.n_levels = min(max_levels, len(self.pool) - 1) + (len(self.free) > 0)
        self.fold = np.empty(len(problem.y), dtype=np.int64)
        for number, rows in enumerate(problem.folds):
            self.fold[rows] = number
        self.codes, ends, offsets, positions = coarse_levels(problem.table, self.known, problem.weight)
        classes = problem.task.classes
        by_name = np.argsort(classes)
        found = by_name[np.searchsorted(classes, problem.task.decode(problem.y), sorter=by_name)]
        self.label = label = found.astype(np.int32)
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
            len(classes),
        )
        self.sharpness: list[float] = []
        self.pull: list[float] = []
        self.judges = some[even_steps(len(some), ROWS_IN_SEARCH)]
        self._find_bandwidths()

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
        """Summed held-out log-loss of some rows that hold the same."""
        return float(self.weight[rows].sum() * self._loss(rows, columns, 1.0, PULLS[-2:-1])[0])

    def _loss(self, rows: Ints, columns: Ints, sharpness: float, pulls: Sequence[float]) -> Floats:
        """Held-out log-loss of some rows that hold the same, for each pull."""
        masses, _ = self._look(rows, columns, sharpness, None)
        label = self.label[rows]
        found = (self.among.outputs(masses, pull)[np.arange(len(rows)), label] for pull in pulls)
        return np.array([np.average(-np.log(one), weights=self.weight[rows]) for one in found])

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
        start = () if len(self.free) else (self.pool[0],)
        level, levels = [NodeOfSets(frozenset(start), self._columns(frozenset(start)))], []
        for place in range(self.n_levels):
            is_last = place == self.n_levels - 1
            sharpness, pull = self._sharpen(level, node[:, place])
            outputs, gain = self._visit(level, node[:, place], sharpness, pull, is_last=is_last)
            scores[:, place] = problem.task.scores(outputs)
            self.sharpness.append(sharpness)
            self.pull.append(pull)
            following: list[NodeOfSets] = []
            if not is_last:
                level, following, node[:, place + 1] = self._go_on(level, node[:, place], gain)
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

    def _go_on(
        self, level: Sequence[NodeOfSets], node: Ints, gain: Floats
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
        kept = set(by_mass[:WIDTH])
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
            turned.append(NodeOfSets(one.bought, one.columns, self._turn(one, open_to, nodes)))
            rows = np.flatnonzero(node == number)
            if len(rows):
                following[rows] = nodes[gain[rows][:, open_to].argmax(axis=1)]
        return turned, [NodeOfSets(key, self._columns(key)) for key in ordered], following

    def _best_child(self, one: NodeOfSets, gain: Floats) -> frozenset[int]:
        left = [place for place, purchase in enumerate(self.pool) if purchase not in one.bought]
        mean = gain[:, left].mean(axis=0) if len(gain) else np.zeros(len(left))
        return one.bought | {self.pool[left[int(np.argmax(mean))]]}

    def _turn(self, one: NodeOfSets, open_to: Sequence[int], nodes: Ints) -> NeighbourTurn:
        columns = [self._delivered(self.pool[place]) for place in open_to]
        tells = np.full((len(columns), max(map(len, columns))), -1, dtype=np.int64)
        for place, own in enumerate(columns):
            tells[place, : len(own)] = own
        prices = self._prices(one.bought)[[self.pool[place] for place in open_to]]
        return NeighbourTurn(nodes, tells, prices)
