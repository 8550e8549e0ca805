"""Routing of rows through the stages of one chain.

A walker knows the stages of one chain, but neither the full model, nor a chain behind them, nor prices. The policy is
an argument of each walk.

Visiting sixteen stages one by one takes a few hundred calls of numpy and of compiled code, and for one row these calls
take several times as long as the work itself. So one row of a plain cascade is sent down the trees of several stages at
once (``StackedStages``), with the same bits; scores and gates are then arrays over stages.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from thrifty.arrays import Bools, Floats, Int32s, Ints, Words
from thrifty.engine.purchases.readers import run_for_readable_rows
from thrifty.engine.purchases.receipts import Reader
from thrifty.engine.tasks.task import Task
from thrifty.engine.trees import TreeEnsemble
from thrifty.engine.trees.binning import LevelSets
from thrifty.engine.trees.ensemble import holds
from thrifty.engine.walk.policy import Policy
from thrifty.engine.walk.stage import (
    CascadeStage,
    ForkStage,
    Stage,
    Visit,
    joined_visit,
    nodes_of,
    rows_by_node,
)
from thrifty.errors import UnreadableRowsError, renumber_rows_in_errors
from thrifty.jit import kernel, lean_kernel


@dataclass(frozen=True)
class Walk:
    """Routes and scores of a batch.

    Attributes
    ----------
    rows : ndarray of shape (n_rows,)
        Positions of the rows in their reader.
    route : ndarray of shape (n_rows,)
        The place that answers each row, counted through all chains; the number of stages means the full model, and -1
        no answer, where a purchase failed.
    scores : ndarray of shape (n_rows, n_scores)
        Scores of the last stage that each row visited in this chain.
    behind : Walk, optional
        Walk of the rows that were sent on to a chain behind the stages.
    node : ndarray of shape (n_rows,), optional
        Node of the last stage that each row visited in this chain; None in a chain without forks.
    costs : ndarray of shape (n_rows, n_resources), optional
        Cost in each of several resources, where a live budget sent the rows: delays depend on the point in force then.
    """

    rows: Ints
    route: Ints
    scores: Floats
    behind: "Walk | None" = None
    node: Ints | None = None
    costs: Floats | None = None

    def take(self, kept: Ints) -> "Walk":
        """Walk of some of the rows, all of which have an answer if sent on to a chain behind."""
        inner = self.behind
        if inner is not None:
            inner = inner.take(np.flatnonzero(np.isin(inner.rows, self.rows[kept])))
        node = None if self.node is None else self.node[kept]
        costs = None if self.costs is None else self.costs[kept]
        return Walk(self.rows[kept], self.route[kept], self.scores[kept], inner, node, costs)


@dataclass(frozen=True)
class StageOutputs:
    """Outputs of every stage of a chain for every row, as if every row reached it.

    Attributes
    ----------
    gate : ndarray of shape (n_rows, n_stages)
        Gate scores.
    scores : ndarray of shape (n_rows, n_stages, n_scores)
        Scores of each stage.
    node : ndarray of shape (n_rows, n_stages), optional
        Node of each row at each stage; None in a chain without forks.
    """

    gate: Floats
    scores: Floats
    node: Ints | None = None


@dataclass
class _ActiveRows:
    """Rows that have not stopped yet: their places in the batch and in the reader, scores and nodes."""

    places: Ints
    rows: Ints
    carried: Floats
    latest: Floats
    follows: Ints
    explores_to: Ints
    node: Ints | None

    def only(self, kept: Bools) -> "_ActiveRows":
        """Some of them."""
        arrays: Any = (None if array is None else array[kept] for array in vars(self).values())
        return _ActiveRows(*arrays)


@dataclass(frozen=True, eq=False)
class Walker:
    """Sends rows through the stages of one chain.

    Attributes
    ----------
    stages : tuple of Stage
        The cheapest first.
    task : Task
        Kind of answer.
    base : ndarray of shape (n_scores,) or None
        Scores that a row carries into the first stage; None is zero.
    n_features : int
        Columns of the table.
    """

    stages: tuple[Stage, ...]
    task: Task
    base: Floats | None
    n_features: int

    @cached_property
    def has_forks(self) -> bool:
        """True if rows may hold different columns at a stage."""
        return any(isinstance(stage, ForkStage) for stage in self.stages)

    @cached_property
    def legs(self) -> "tuple[StackedStages, ...]":
        """The stages, several to a call, for one row; empty where they cannot be stacked."""
        legs: list[list[CascadeStage]] = []
        n_trees = 0
        for stage in self.stages:
            if not isinstance(stage, CascadeStage) or stage.turn is not None:
                return ()
            n_trees += stage.trees.n_trees
            if not legs or n_trees > MAX_TREES:
                legs.append([])
                n_trees = stage.trees.n_trees
            legs[-1].append(stage)
        return tuple(StackedStages.of(leg, self.n_features, self.task) for leg in legs)

    @cached_property
    def _held(self) -> tuple[Ints, ...]:
        """Columns that every row has bought before the first stage, at it, at the second one, and so on."""
        bought: dict[int, None] = {}
        held = [np.empty(0, dtype=np.intp)]
        for stage in self.stages:
            bought |= dict.fromkeys(stage.columns.tolist())
            common = set(bought)
            if isinstance(stage, ForkStage):
                common = common.intersection(*(node.columns.tolist() for node in stage.nodes))
            held.append(np.array([column for column in bought if column in common], dtype=np.intp))
        return tuple(held)

    def held_at(self, place: int) -> Ints:
        """Columns that every row has bought once it is at a stage, or behind all of them, in the order of purchase."""
        return self._held[min(place + 1, len(self.stages))]

    def carried_at_start(self, n_rows: int) -> Floats:
        """Scores that rows carry into the first stage."""
        start = np.zeros(self.task.n_scores) if self.base is None else self.base
        return start[None].repeat(n_rows, axis=0)

    # -- routing by a policy ---------------------------------------------------------------------

    def walk(
        self,
        reader: Reader,
        rows: Ints,
        policy: Policy,
        together: Callable[[int, int], Ints | None] | None = None,
    ) -> Walk:
        """Route rows by a policy; the route of rows that pass all stages is the number of stages.

        ``together(point, place)`` has the columns that rows which follow a point buy at once when they get to a stage,
        where these are more than those of the stage.
        """
        is_at_hand = reader.is_at_hand and reader.visited is None and not policy.explore
        if len(rows) == 1 and is_at_hand and self.legs:
            # Several stages at a time.
            numbers, carried = reader.block(rows, np.arange(self.n_features)), self.carried_at_start(1)
            stop, gate, score = route_row(self.legs, numbers, carried, policy, lambda: reader.keys(rows))
            _refuse_nan(gate, score, min(stop, len(self.stages) - 1), rows)
            return Walk(rows, np.array([stop]), score)
        n_rows = len(rows)
        route = np.full(n_rows, len(self.stages), dtype=np.intp)
        scores, follows = np.zeros((n_rows, self.task.n_scores)), np.full(n_rows, policy.lower)
        # In a chain with forks: the current node of a row, and the last one that scored it.
        last_node = np.zeros(n_rows, dtype=np.intp) if self.has_forks else None
        node = None if last_node is None else last_node.copy()
        explores_to = np.full(n_rows, -1, dtype=np.intp)  # known once a row would stop
        start = np.arange(n_rows), rows, self.carried_at_start(n_rows), scores, follows, explores_to
        active = _ActiveRows(*start, node)
        if together is not None:
            active.follows = policy.follows(reader.keys(rows))

        def forward(goes_on: Bools, place: int) -> _ActiveRows:
            """Rows that go on; the others stop at a place."""
            stays = active.places[~goes_on]
            route[stays], scores[stays] = place, active.latest[~goes_on]
            return active.only(goes_on)

        for place in range(len(self.stages)):
            if len(active.places) == 0:
                break
            if together is not None:
                readable = _buy_together(
                    reader, active, [point for _, point in policy.in_force], place, together
                )
                if not readable.all():
                    active = forward(readable, place - 1)
            able, visited_rows = self._visit_stage(place, reader, active.rows, active.carried, active.node)
            if able is not None:
                active = forward(able, place - 1)
            if visited_rows is None:
                break
            visit, gate = visited_rows
            active.carried, active.latest = visit.carried, visit.scores
            if active.node is not None and last_node is not None:
                last_node[active.places] = active.node
                active.node = np.zeros_like(active.node) if visit.turn is None else visit.turn
            if place == policy.parting:
                active.follows = policy.follows(reader.keys(active.rows))
            goes_on = gate > policy.thresholds_at(place, active.follows)
            if policy.explore:
                stops = ~goes_on & (active.explores_to < 0)
                active.explores_to[stops] = policy.explored_to(place, reader.keys(active.rows[stops]))
                goes_on = np.where(active.explores_to < 0, goes_on, active.explores_to > place)
            if np.count_nonzero(goes_on) < len(goes_on):
                active = forward(goes_on, place)
        scores[active.places] = active.latest
        return Walk(rows, route, scores, node=last_node)

    def _visit_stage(
        self, place: int, reader: Reader, rows: Ints, carried: Floats, node: Ints | None
    ) -> tuple[Bools | None, tuple[Visit, Floats] | None]:
        """Visit a stage: mask of the rows that could be read, None being all, and their visit with its gate score."""
        stage, visited = self.stages[place], reader.visited
        if visited is not None and id(stage) in visited:
            return None, visited[id(stage)]
        if isinstance(stage, ForkStage) and node is not None:
            able, visit_and_gate = self._visit_fork(place, stage, reader, rows, carried, node)
        else:
            able, visit_and_gate = self._visit_node(place, stage, reader, rows, carried)
        if visited is not None and visit_and_gate is not None:
            visited[id(stage)] = visit_and_gate
        return able, visit_and_gate

    def _visit_node(
        self, place: int, stage: Stage, reader: Reader, rows: Ints, carried: Floats
    ) -> tuple[Bools | None, tuple[Visit, Floats] | None]:
        """Visit a stage that is no fork, or one node of a fork."""

        def visit_rows(kept: Any) -> tuple[Visit, Floats]:
            visit = self.visit(stage, reader, rows[kept], carried[kept])
            gate = self.gate_of(visit)
            _refuse_nan(gate, visit.scores, place, rows[kept])
            return visit, gate

        return run_for_readable_rows(reader, rows, stage.columns, visit_rows)

    def _visit_fork(
        self, place: int, stage: ForkStage, reader: Reader, rows: Ints, carried: Floats, node: Ints
    ) -> tuple[Bools | None, tuple[Visit, Floats] | None]:
        """Visit a fork, node by node."""
        is_able, parts = np.ones(len(rows), dtype=bool), []
        for number, places in rows_by_node(stage, node):
            able, visit_and_gate = self._visit_node(
                place, stage.nodes[number], reader, rows[places], carried[places]
            )
            if able is not None:
                is_able[places[~able]] = False
            if visit_and_gate is not None:
                parts.append((places if able is None else places[able], visit_and_gate[0]))
        if not parts:
            return is_able, None
        # Places among all rows become places among those that are able.
        place_of = np.cumsum(is_able) - 1
        joined = [(place_of[places], visit) for places, visit in parts]
        visit = joined_visit(int(is_able.sum()), joined, self.gate_of)
        return (None if is_able.all() else is_able), (visit, self.gate_of(visit))

    # -- as if every row reached all ---------------------------------------------------------------

    def visit_all(self, reader: Reader) -> StageOutputs:
        """Outputs of every stage for every row, as if every row reached it."""
        rows, carried = np.arange(reader.n_samples), self.carried_at_start(reader.n_samples)
        gate = np.empty((len(rows), len(self.stages)))
        scores = np.empty((len(rows), len(self.stages), self.task.n_scores))
        node = np.zeros((len(rows), len(self.stages) + 1), dtype=np.intp) if self.has_forks else None
        for place, stage in enumerate(self.stages):
            visit = self.visit_at(stage, reader, rows, carried, None if node is None else node[:, place])
            carried, scores[:, place] = visit.carried, visit.scores
            gate[:, place] = self.gate_of(visit)
            if node is not None and visit.turn is not None:
                node[:, place + 1] = visit.turn
        return StageOutputs(gate, scores, None if node is None else node[:, :-1])

    def visit_at(self, stage: Stage, reader: Reader, rows: Ints, carried: Floats, node: Ints | None) -> Visit:
        """Visit a stage with some rows, each at its node."""
        parts = [
            (places, self.visit(nodes_of(stage)[number], reader, rows[places], carried[places]))
            for number, places in rows_by_node(stage, node)
        ]
        if not parts:
            return Visit(np.empty((0, self.task.n_scores)), np.empty(0), carried)
        return joined_visit(len(rows), parts, self.gate_of)

    @staticmethod
    def visit(stage: Stage, reader: Reader, rows: Ints, carried: Floats) -> Visit:
        """Visit a stage with some rows of a reader."""
        with renumber_rows_in_errors(reader.numbers_of(rows)):
            return stage.visit(reader.block(rows, stage.columns), carried)

    def gate_of(self, visit: Visit) -> Floats:
        """Score of "go on" after a visit: the stage's own, or the uncertainty of the task."""
        if visit.gate is None:
            return self.task.uncertainty(visit.scores)
        if visit.margin == 0.0:
            return visit.gate
        gate: Floats = visit.gate - visit.margin * self.task.uncertainty(visit.scores)
        return gate


def _buy_together(
    reader: Reader,
    active: _ActiveRows,
    points: Sequence[int],
    place: int,
    together: Callable[[int, int], Ints | None],
) -> Bools:
    """Buy what rows buy at once when they get to a stage; mask of the rows for which that did not fail."""
    readable = np.ones(len(active.rows), dtype=bool)
    for point in dict.fromkeys(points):
        columns, places = together(point, place), np.flatnonzero(active.follows == point)
        if columns is None or not len(places):
            continue
        some = active.rows[places]

        def buy(kept: Any, some: Ints = some, columns: Ints = columns) -> Any:
            return reader.block(some[kept], columns)

        able, _ = run_for_readable_rows(reader, some, columns, buy)
        if able is not None:
            readable[places[~able]] = False
    return readable


def _refuse_nan(gate: Floats, scores: Floats, place: int, rows: Ints) -> None:
    gate_lost, score_lost = np.isnan(gate), np.isnan(scores)
    if np.count_nonzero(gate_lost) or np.count_nonzero(score_lost):
        bad = gate_lost | score_lost.any(axis=1)
        raise UnreadableRowsError(
            f"stage {place} cannot score {int(bad.sum())} rows: a feature it reads is missing (NaN) or infinite, and "
            f"this model accepts neither. Impute the feature before it is handed over.",
            rows[bad],
        )


# -- one row ---------------------------------------------------------------------------------------


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
        if parts and (follows := int(policy.follows(keys())[0])) != point:
            point = follows
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
