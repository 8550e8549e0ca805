"""How rows walk through the stages of a chain, and where they went.

A walker knows the stages of one chain and nothing of what stands behind them: neither the full model nor prices. Under
which policy rows walk is said by whoever sends them.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from thrifty.arrays import Bools, Floats, Ints
from thrifty.chain.fork import ForkStage, joined_visit, nodes_of, rows_by_node
from thrifty.chain.ledger import for_able
from thrifty.chain.policy import Policy
from thrifty.chain.sources import Reader
from thrifty.chain.stacked import StackedStages, stacked_stages
from thrifty.chain.stage import Stage, Visit
from thrifty.errors import UnreadableRowsError, asking
from thrifty.tasks.task import Task

__all__ = ["StagesSeen", "Walk", "Walker"]


@dataclass(frozen=True)
class Walk:
    """Where a batch went.

    Attributes
    ----------
    rows : ndarray of shape (n_rows,)
        Positions of the rows in their reader.
    route : ndarray of shape (n_rows,)
        The place that answers each row, counted through all chains; the number of stages means the full model, and -1
        nobody, where a row could not be bought for.
    scores : ndarray of shape (n_rows, n_scores)
        Scores of the last stage that each row visited in this chain.
    behind : Walk, optional
        Where the rows went that were sent on to a chain in the place of the full model.
    node : ndarray of shape (n_rows,), optional
        Node of the last stage that each row visited in this chain; None in a chain without forks.
    """

    rows: Ints
    route: Ints
    scores: Floats
    behind: "Walk | None" = None
    node: Ints | None = None

    def take(self, kept: Ints) -> "Walk":
        """Where some of the rows went, none of which was sent on to a chain behind without being answered there."""
        inner = self.behind
        if inner is not None:
            inner = inner.take(np.flatnonzero(np.isin(inner.rows, self.rows[kept])))
        node = None if self.node is None else self.node[kept]
        return Walk(self.rows[kept], self.route[kept], self.scores[kept], inner, node)


@dataclass(frozen=True)
class StagesSeen:
    """What every stage of a chain says about every row, as if it got there.

    Attributes
    ----------
    gate : ndarray of shape (n_rows, n_stages)
        Gate scores.
    scores : ndarray of shape (n_rows, n_stages, n_scores)
        What each stage would answer.
    node : ndarray of shape (n_rows, n_stages), optional
        The node of each stage at which a row would stand; None in a chain without forks.
    """

    gate: Floats
    scores: Floats
    node: Ints | None = None


@dataclass
class _UnderWay:
    """Rows that have not stopped yet: their places in the batch and in the reader, and what is known of them."""

    here: Ints
    rows: Ints
    carried: Floats
    latest: Floats
    follows_upper: Bools
    node: Ints | None

    def only(self, kept: Bools) -> "_UnderWay":
        """Some of them."""
        return _UnderWay(
            self.here[kept],
            self.rows[kept],
            self.carried[kept],
            self.latest[kept],
            self.follows_upper[kept],
            None if self.node is None else self.node[kept],
        )


@dataclass(frozen=True, eq=False)
class Walker:
    """Sends rows through the stages of one chain.

    Attributes
    ----------
    stages : tuple of Stage
        The cheapest first.
    task : Task
        What is answered.
    base : ndarray of shape (n_scores,) or None
        What a row carries into the first stage; None is zero.
    n_features : int
        Columns of the table.
    """

    stages: tuple[Stage, ...]
    task: Task
    base: Floats | None
    n_features: int

    @cached_property
    def has_forks(self) -> bool:
        """Whether what a row holds at a stage may differ from row to row."""
        return any(isinstance(stage, ForkStage) for stage in self.stages)

    @cached_property
    def legs(self) -> tuple[StackedStages, ...]:
        """The stages, several to a call, for one row; empty where they cannot be stacked."""
        return stacked_stages(self.stages, self.n_features, self.task)

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
        """What rows carry into the first stage."""
        start = np.zeros(self.task.n_scores) if self.base is None else self.base
        return start[None].repeat(n_rows, axis=0)

    # -- as far as a policy says -----------------------------------------------------------------

    def walk(self, reader: Reader, rows: Ints, policy: Policy) -> Walk:
        """Send rows as far as a policy says; the number of stages is the route of those that went past all of them."""
        if len(rows) == 1 and reader.is_at_hand and self.legs:
            return self._walk_of_one(reader, rows, policy)
        n_rows = len(rows)
        route = np.full(n_rows, len(self.stages), dtype=np.intp)
        scores, follows = np.zeros((n_rows, self.task.n_scores)), np.zeros(n_rows, dtype=bool)
        # In a chain with forks: the node that a row stands at, and the one it was last seen at.
        last_node = np.zeros(n_rows, dtype=np.intp) if self.has_forks else None
        node = None if last_node is None else last_node.copy()
        on = _UnderWay(np.arange(n_rows), rows, self.carried_at_start(n_rows), scores, follows, node)

        def others(goes_on: Bools, place: int) -> _UnderWay:
            """Rows that go on; the others stay at a place."""
            stays = on.here[~goes_on]
            route[stays], scores[stays] = place, on.latest[~goes_on]
            return on.only(goes_on)

        for place in range(len(self.stages)):
            if len(on.here) == 0:
                break
            able, met = self._meet(place, reader, on.rows, on.carried, on.node)
            if able is not None:
                on = others(able, place - 1)
            if met is None:
                break
            visit, gate = met
            on.carried, on.latest = visit.carried, visit.scores
            if on.node is not None and last_node is not None:
                last_node[on.here] = on.node
                on.node = np.zeros_like(on.node) if visit.turn is None else visit.turn
            if place == policy.parting:
                on.follows_upper = policy.follows_upper(reader.keys(on.rows))
            goes_on = gate > policy.thresholds_at(place, on.follows_upper)
            if np.count_nonzero(goes_on) < len(goes_on):
                on = others(goes_on, place)
        scores[on.here] = on.latest
        return Walk(rows, route, scores, node=last_node)

    def _walk_of_one(self, reader: Reader, row: Ints, policy: Policy) -> Walk:
        """Send one row as far as a policy says, several stages at a time."""
        n_own, first, carried = len(self.stages), 0, self.carried_at_start(1)
        numbers, thresholds = reader.block(row, np.arange(self.n_features)), policy.thresholds
        point = policy.lower
        for leg in self.legs:
            end = first + leg.n_stages
            gate, scores, carried = leg.visit(numbers, carried)
            place = first + _first_stop(gate, thresholds[point, first:end])
            parts = first <= policy.parting <= min(place, end - 1)
            if parts and policy.follows_upper(reader.keys(row))[0]:
                point = policy.upper
                place = first + _first_stop(gate, thresholds[point, first:end])
            if place < end:
                break
            first = end
        last = slice(place - first, place - first + 1) if place < n_own else slice(-1, None)
        _refuse_nan(gate[last], scores[last], min(place, n_own - 1), row)
        return Walk(row, np.array([place]), scores[last])

    def _meet(
        self, place: int, reader: Reader, rows: Ints, carried: Floats, node: Ints | None
    ) -> tuple[Bools | None, tuple[Visit, Floats] | None]:
        """Which rows can visit a stage, None being all, and what it makes of them, with the score of "go on"."""
        stage, visited = self.stages[place], reader.visited
        if visited is not None and id(stage) in visited:
            return None, visited[id(stage)]

        def meet(kept: Any) -> tuple[Visit, Floats]:
            visit = self.visit(stage, reader, rows[kept], carried[kept])
            gate = self.gate_of(visit)
            _refuse_nan(gate, visit.scores, place, rows[kept])
            return visit, gate

        if isinstance(stage, ForkStage) and node is not None:
            able, met = self._meet_nodes(place, stage, reader, rows, carried, node)
        else:
            able, met = for_able(reader, rows, stage.columns, meet)
        if visited is not None and met is not None:
            visited[id(stage)] = met
        return able, met

    def _meet_nodes(
        self, place: int, stage: ForkStage, reader: Reader, rows: Ints, carried: Floats, node: Ints
    ) -> tuple[Bools | None, tuple[Visit, Floats] | None]:
        """The same at a fork, node by node."""
        is_able, parts = np.ones(len(rows), dtype=bool), []
        for number, here in rows_by_node(stage, node):
            one, asked, held = stage.nodes[number], rows[here], carried[here]

            def meet(kept: Any, one: Stage = one, asked: Ints = asked, held: Floats = held) -> Visit:
                visit = self.visit(one, reader, asked[kept], held[kept])
                _refuse_nan(self.gate_of(visit), visit.scores, place, asked[kept])
                return visit

            able, visit = for_able(reader, asked, one.columns, meet)
            if able is not None:
                is_able[here[~able]] = False
            if visit is not None:
                parts.append((here if able is None else here[able], visit))
        if not parts:
            return is_able, None
        # Places among all rows become places among those that are able.
        place_of = np.cumsum(is_able) - 1
        joined = [(place_of[places], visit) for places, visit in parts]
        visit = joined_visit(int(is_able.sum()), joined, self.gate_of)
        return (None if is_able.all() else is_able), (visit, self.gate_of(visit))

    # -- as if every row got there ---------------------------------------------------------------

    def visit_all(self, reader: Reader) -> StagesSeen:
        """What every stage says about every row, as if it got there."""
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
        return StagesSeen(gate, scores, None if node is None else node[:, :-1])

    def visit_at(self, stage: Stage, reader: Reader, rows: Ints, carried: Floats, node: Ints | None) -> Visit:
        """What a stage makes of some rows, each of which stands at a node of it."""
        parts = [
            (here, self.visit(nodes_of(stage)[number], reader, rows[here], carried[here]))
            for number, here in rows_by_node(stage, node)
        ]
        if not parts:
            return Visit(np.empty((0, self.task.n_scores)), np.empty(0), carried)
        return joined_visit(len(rows), parts, self.gate_of)

    @staticmethod
    def visit(stage: Stage, reader: Reader, rows: Ints, carried: Floats) -> Visit:
        """What a stage makes of some rows of a reader."""
        with asking(reader.numbers_of(rows)):
            return stage.visit(reader.block(rows, stage.columns), carried)

    def gate_of(self, visit: Visit) -> Floats:
        """Score of "go on" after a visit: the stage's own, or the doubt of the task."""
        if visit.gate is None:
            return self.task.doubt(visit.scores)
        if visit.margin == 0.0:
            return visit.gate
        gate: Floats = visit.gate - visit.margin * self.task.doubt(visit.scores)
        return gate


def _first_stop(gate: Floats, thresholds: Floats) -> int:
    """First of some stages that a row does not go on from; their number if it goes on from all."""
    goes_on = gate > thresholds
    place = int(goes_on.argmin())
    return len(gate) if goes_on[place] else place


def _refuse_nan(gate: Floats, scores: Floats, place: int, rows: Ints) -> None:
    gate_lost, score_lost = np.isnan(gate), np.isnan(scores)
    if np.count_nonzero(gate_lost) or np.count_nonzero(score_lost):
        bad = gate_lost | score_lost.any(axis=1)
        raise UnreadableRowsError(
            f"stage {place} cannot score {int(bad.sum())} rows: a feature it reads is missing (NaN) or infinite, and "
            f"this model accepts neither. Impute the feature before it is handed over.",
            rows[bad],
        )
