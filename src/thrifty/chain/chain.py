"""What serves: stages, the cheapest first, then the full model.

A row enters at the first stage. Each stage buys its columns, scores the row, and either answers or, if its gate's score
exceeds the threshold in force, sends the row on; the end is the full model (f0). A row that got there may be answered
by a blend of the full model and the last stage. A chain is a model like the full model itself and can stand in its
place behind a further, cheaper stage, the paper's general framework; a row then pays for what it really buys in it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from thrifty.arrays import Bools, Floats, Ints, Labels
from thrifty.chain.buying import BuysFromSources
from thrifty.chain.columns import table_of_fit
from thrifty.chain.fork import ForkStage, check_turns, joined_visit, nodes_of, rows_by_node
from thrifty.chain.ledger import for_able
from thrifty.chain.levels import Levels, plain_table
from thrifty.chain.policy import Policy
from thrifty.chain.sources import Reader, TableReader, amounts_of, as_numbers, kind_of_table
from thrifty.chain.stacked import StackedStages, stacked_stages
from thrifty.chain.stage import Stage, Visit
from thrifty.exceptions import InvalidInputError, UnreadableRowsError, asking
from thrifty.full.model import BuysByRow, EstimatorFull, FullModel, PrecomputedFull, ask_model
from thrifty.objective.costs import PriceList
from thrifty.objective.price_list import with_prices
from thrifty.tasks.task import Task

__all__ = ["Chain", "StagesSeen", "Walk"]


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


@dataclass(frozen=True, eq=False)
class Chain(BuysFromSources):
    """Stages, then the full model.

    Attributes
    ----------
    stages : tuple of Stage
        The cheapest first.
    full : FullModel or Chain
        The full model, or a chain that stands in its place.
    price_list : PriceList
        What purchases cost, and what the full model reads.
    task : Task
        What is answered.
    policy : Policy
        Where rows stop.
    base : ndarray of shape (n_scores,), optional
        What a row carries into the first stage; None is zero.
    blend : ndarray, optional
        How the task blends the last stage's scores with the full model's; None is the full model alone.
    names : tuple of str, optional
        Names of the columns.
    kind : {"pandas", "polars"}, optional
        The kind of table the full model expects; None is an array.
    levels : Levels, optional
        Levels of the columns of text or categories, which the stages read as numbers; the full model is given them as
        they came.
    dates : tuple of int
        Columns that held dates in the fit, which a file of text is read by; the full model is given them as such.
    """

    stages: tuple[Stage, ...]
    full: "FullModel | Chain"
    price_list: PriceList
    task: Task
    policy: Policy
    base: Floats | None = None
    blend: Floats | None = None
    names: tuple[str, ...] | None = None
    kind: str | None = None
    levels: Levels | None = None
    dates: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.policy.n_stages != len(self.stages):
            raise InvalidInputError(
                f"a policy must have a threshold for each of the {len(self.stages)} stages; got {self.policy.n_stages}."
            )
        check_turns(self.stages)
        if self.behind and self.behind.levels != self.levels:
            raise InvalidInputError(
                "a chain in the place of the full model reads the numbers of levels that the stages before it read, "
                "and both must have the same levels; these were fitted on other categories. Fit the stages with "
                "full=chain, which takes its levels over."
            )

    def __getstate__(self) -> dict[str, Any]:
        # Stacked stages are a second copy of the trees.
        return {name: value for name, value in vars(self).items() if name != "_legs"}

    @property
    def classes(self) -> Labels:
        """The user's labels."""
        return self.task.classes

    @property
    def behind(self) -> "Chain | None":
        """The chain that stands in the place of the full model, if there is one."""
        return self.full if isinstance(self.full, Chain) else None

    @property
    def innermost(self) -> FullModel:
        """The model at the end of all chains."""
        return self.full.innermost if isinstance(self.full, Chain) else self.full

    @property
    def n_own_stages(self) -> int:
        """Stages of this chain, without those of a chain behind it."""
        return len(self.stages)

    @property
    def n_stages(self) -> int:
        """Number of stages in front of the full model, which is also its place in a route."""
        return len(self.stages) + (self.behind.n_stages if self.behind else 0)

    @cached_property
    def has_forks(self) -> bool:
        """Whether what a row holds at a stage may differ from row to row, here or in a chain behind."""
        own = any(isinstance(stage, ForkStage) for stage in self.stages)
        return own or (self.behind is not None and self.behind.has_forks)

    @cached_property
    def _first_places(self) -> Ints:
        """Number of the first node of each own stage and, last, of whatever stands behind them."""
        return np.cumsum([0, *(len(nodes_of(stage)) for stage in self.stages)])

    def places(self, walk: Walk) -> Ints:
        """Where each row was answered, counted through the nodes of all stages; the route where there are no forks."""
        if not self.has_forks:
            return walk.route
        first, n_own = self._first_places, len(self.stages)
        place: Ints = first[np.minimum(walk.route, n_own)] + np.maximum(walk.route - n_own, 0)
        if walk.node is not None:
            place += np.where(walk.route < n_own, walk.node, 0)
        if self.behind and walk.behind is not None:
            sent = np.flatnonzero(walk.route >= n_own)
            inner = walk.behind.take(np.flatnonzero(np.isin(walk.behind.rows, walk.rows[sent])))
            place[sent] = first[-1] + self.behind.places(inner)
        place[walk.route < 0] = -1
        return place

    @cached_property
    def bought_by_place(self) -> Bools:
        """Columns a row holds that was answered at each place: (n_places, n_features); the last is the full model."""
        n_own, first = len(self.stages), self._first_places
        inner = None if self.behind is None else self.behind.bought_by_place
        n_behind = 1 if inner is None else len(inner)
        bought = np.zeros((first[-1] + n_behind, self.price_list.n_features), dtype=bool)
        for number, stage in enumerate(self.stages):
            for node, one in enumerate(nodes_of(stage)):
                bought[first[number] + node, one.columns] = True
        # What was bought before is held; in a graph a node holds the columns of every node that leads to it.
        for number in range(1, n_own):
            if first[number + 1] - first[number] == 1 and first[number] - first[number - 1] == 1:
                bought[first[number]] |= bought[first[number] - 1]
        if n_own:
            bought[first[-1] :] |= bought[first[-1] - 1]
        if inner is None:
            bought[-1, self.price_list.read_by_full] = True
        else:
            bought[first[-1] :] |= inner
        for held in bought if self.price_list.by_row is not None else ():
            held[self.price_list.with_row_prices(np.flatnonzero(held))] = True
        return bought

    @cached_property
    def cost_by_place(self) -> Floats:
        """What a row pays that was answered at each place, by the listed prices: (n_places,)."""
        bought = self.bought_by_place
        return self.price_list.cost_of_rows(bought, np.arange(len(bought)) == len(bought) - 1)

    # -- the same chain, changed -------------------------------------------------------------------

    def at(self, policy: Policy) -> "Chain":
        """The chain under another policy."""
        other = replace(self, policy=policy)
        # What was worked out of the stages holds under every policy.
        kept = ("_legs", "has_forks", "_first_places", "bought_by_place", "cost_by_place")
        vars(other).update({name: value for name, value in vars(self).items() if name in kept})
        return other

    def with_full(self, full: "FullModel | Chain") -> "Chain":
        """The chain in front of another full model."""
        return replace(self, full=full)

    def with_prices(self, prices: Mapping[Any, Any] | None) -> "Chain":
        """The chain with other prices by row, as ``by_row`` of ``thrifty.Prices``; where None are given, as it is."""
        if prices is None:
            return self
        full = self.behind.with_prices(prices) if self.behind else self.full
        return replace(self, full=full, price_list=with_prices(self.price_list, prices, self.names))

    def ready(self) -> "Chain":
        """The chain itself, with everything made that single rows need, here and at its other operating points."""
        _ = self._legs, self.cost_by_place
        return self

    # -- walking -----------------------------------------------------------------------------------

    def walk(self, reader: Reader, rows: Ints | None = None) -> Walk:
        """Send every row as far as the policy says, without asking the full model anything."""
        everyone = np.arange(reader.n_samples) if rows is None else rows
        if len(everyone) == 1 and reader.is_at_hand and self._legs:
            return self._walk_of_one(reader, everyone)
        n_own = len(self.stages)
        n_rows, policy = len(everyone), self.policy
        route, scores = np.full(n_rows, n_own, dtype=np.intp), np.zeros((n_rows, self.task.n_scores))
        # Of the rows that are under way: their places in the batch and in the reader, and what is known of them.
        here, asked, carried, latest = np.arange(n_rows), everyone, self.carried_at_start(n_rows), scores
        follows_upper = np.zeros(n_rows, dtype=bool)
        # In a chain with forks: the node that a row stands at, and the one it was last seen at.
        node = np.zeros(n_rows, dtype=np.intp) if self.has_forks else None
        last_node = None if node is None else node.copy()
        for place in range(n_own):
            if len(here) == 0:
                break
            able, met = self._meet(place, reader, asked, carried, node)
            if able is not None:
                left = here[~able]
                route[left], scores[left] = place - 1, latest[~able]
                here, asked, follows_upper, latest = (
                    here[able],
                    asked[able],
                    follows_upper[able],
                    latest[able],
                )
                node = None if node is None else node[able]
            if met is None:
                break
            visit, gate = met
            carried, latest = visit.carried, visit.scores
            if node is not None and last_node is not None:
                last_node[here] = node
                node = np.zeros_like(node) if visit.turn is None else visit.turn
            if place == policy.parting:
                follows_upper = self._follows_upper(reader, asked)
            goes_on = gate > policy.thresholds_at(place, follows_upper)
            if np.count_nonzero(goes_on) < len(here):
                stops = here[~goes_on]
                route[stops], scores[stops] = place, latest[~goes_on]
                here, asked, follows_upper = here[goes_on], asked[goes_on], follows_upper[goes_on]
                carried, latest = carried[goes_on], latest[goes_on]
                node = None if node is None else node[goes_on]
        scores[here] = latest
        inner = None
        if self.behind and len(here):
            inner = self.behind.walk(reader, asked)
            route[here] = n_own + inner.route
        return Walk(everyone, route, scores, inner, last_node)

    def _meet(
        self, place: int, reader: Reader, rows: Ints, carried: Floats, node: Ints | None = None
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

    @cached_property
    def _legs(self) -> tuple[StackedStages, ...]:
        return stacked_stages(self.stages, self.price_list.n_features, self.task)

    def _walk_of_one(self, reader: Reader, row: Ints) -> Walk:
        """Send one row as far as the policy says, several stages at a time."""
        policy, n_own, first, carried = self.policy, len(self.stages), 0, self.carried_at_start(1)
        numbers, thresholds = reader.block(row, np.arange(self.price_list.n_features)), policy.thresholds
        point = policy.lower
        for leg in self._legs:
            end = first + leg.n_stages
            gate, scores, carried = leg.visit(numbers, carried)
            place = first + _first_stop(gate, thresholds[point, first:end])
            if first <= policy.parting <= min(place, end - 1) and self._follows_upper(reader, row)[0]:
                point = policy.upper
                place = first + _first_stop(gate, thresholds[point, first:end])
            if place < end:
                break
            first = end
        last = slice(place - first, place - first + 1) if place < n_own else slice(-1, None)
        _refuse_nan(gate[last], scores[last], min(place, n_own - 1), row)
        inner = self.behind.walk(reader, row) if self.behind and place == n_own else None
        route = np.array([place]) if inner is None else n_own + inner.route
        return Walk(row, route, scores[last], inner)

    def _follows_upper(self, reader: Reader, rows: Ints) -> Bools:
        return self.policy.follows_upper(reader, rows, self._held_at_parting)

    def gate_of(self, visit: Visit) -> Floats:
        """Score of "go on" after a visit: the stage's own, or the doubt of the task."""
        if visit.gate is None:
            return self.task.doubt(visit.scores)
        if visit.margin == 0.0:
            return visit.gate
        gate: Floats = visit.gate - visit.margin * self.task.doubt(visit.scores)
        return gate

    @staticmethod
    def visit(stage: Stage, reader: Reader, rows: Ints, carried: Floats) -> Visit:
        """What a stage makes of some rows of a reader."""
        with asking(reader.numbers_of(rows)):
            return stage.visit(reader.block(rows, stage.columns), carried)

    def visit_all(self, reader: Reader) -> StagesSeen:
        """What every stage of this chain says about every row, as if it got there."""
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

    def answer(self, reader: Reader, walk: Walk | None = None) -> Floats:
        """Outputs of the task: the answering stage's own, the full model's, or its blend, where a row reached it."""
        return self._settle(reader, self.walk(reader) if walk is None else walk)[1]

    def route_and_outputs(self, reader: Reader, rows: Ints, walk: Walk | None = None) -> tuple[Ints, Floats]:
        """Who answers some rows, -1 being nobody, and with what; a row goes no further than it can be bought for."""
        walk, outputs = self._settle(reader, self.walk(reader, rows) if walk is None else walk)
        return walk.route, outputs

    def _settle(self, reader: Reader, walk: Walk) -> tuple[Walk, Floats]:
        """Outputs, and the walk with those rows back at their last stage that nobody behind it could answer."""
        n_own, outputs = len(self.stages), self.task.outputs(walk.scores)
        sent = np.flatnonzero(walk.route >= n_own)
        if sent.size:
            able, inner, full = self._ask_behind(reader, walk, sent)
            if able is not None:
                walk.route[sent[~able]] = n_own - 1
                sent = sent[able]
            if inner is not None:
                walk.route[sent] = n_own + inner.route
            if full.shape != (len(sent), outputs.shape[1]):
                raise InvalidInputError(
                    f"the full model must answer {len(sent)} rows with {outputs.shape[1]} numbers each; its answers "
                    f"have the shape {full.shape}. Give a model of the same classes with `with_full`."
                )
            outputs[sent] = self.blended(walk.scores[sent], full)
        # The sum, not each number: one row is answered in microseconds.
        if not math.isfinite(outputs.sum()):
            bad = int((~np.isfinite(outputs)).any(axis=1).sum())
            raise InvalidInputError(
                f"{bad} rows have no answer: numbers of a stage or of the full model are so large that their sums are "
                f"no numbers. Scale the columns, or give another model."
            )
        return walk, outputs

    def _ask_behind(self, reader: Reader, walk: Walk, sent: Ints) -> tuple[Bools | None, Walk | None, Floats]:
        """Which of the rows that were sent on are answered, None being all, and where and with what."""
        if walk.behind is not None and self.behind:
            known = walk.behind.route >= 0
            inner = walk.behind if known.all() else walk.behind.take(np.flatnonzero(known))
            inner, full = self.behind._settle(reader, inner)
            able = inner.route >= 0
            if able.all():
                return None, inner, full
            return able, inner.take(np.flatnonzero(able)), full[able]
        if reader.ledger is None:
            return None, None, self.ask_full(reader, walk.rows[sent])
        is_able, said = [np.zeros(0, dtype=bool)], [self.task.outputs(walk.scores[:0])]
        for part in reader.ledger.parts(walk.rows[sent]):
            some, answers = self._ask_able(reader, part)
            is_able.append(np.ones(len(part), dtype=bool) if some is None else some)
            said += [] if answers is None else [answers]
        return np.concatenate(is_able), None, np.concatenate(said)

    def _ask_able(self, reader: Reader, rows: Ints) -> tuple[Bools | None, Floats | None]:
        """Which rows the full model can answer, None being all, and its outputs."""
        read = self.price_list.read_by_full
        return for_able(reader, rows, read, lambda kept: self.ask_full(reader, rows[kept]))

    def scores_of(self, walk: Walk, outputs: Floats) -> Floats:
        """Scores behind some outputs: those of the answering stage itself, where one answered."""
        scores = np.where(
            (walk.route < len(self.stages))[:, None], walk.scores, self.task.exact_scores(outputs)
        )
        if self.behind and walk.behind is not None and self.blend is None:
            sent = np.flatnonzero(walk.route >= len(self.stages))
            scores[sent] = self.behind.scores_of(walk.behind, outputs[sent])
        return scores

    def ask_full(self, reader: Reader, rows: Ints) -> Floats:
        """Outputs of the full model, or of the chain in its place, for some rows."""
        if self.behind:
            return self.behind.answer(reader, self.behind.walk(reader, rows))
        full, columns = self.innermost, self.price_list.full_columns
        numbers = reader.block(rows, self.price_list.read_by_full)

        def ask() -> Floats:
            if isinstance(full, PrecomputedFull) and full.keys is None:
                return full.by_place(reader.n_samples)[rows]
            table = reader.table(rows, columns)
            return ask_model(full, self.task, table, numbers, rows=reader.numbers_of(rows))

        return ask() if reader.ledger is None else reader.ledger.ask_full(rows, ask)

    def blended(self, last: Floats, full: Floats) -> Floats:
        """Outputs where the full model was asked, from the scores of the last stage and its outputs."""
        if self.blend is None:
            return full
        return self.task.outputs(self.task.blended(self.blend, last, self.task.scores(full)))

    def spent(self, reader: Reader, walk: Walk) -> Floats:
        """What each row of a walk pays."""
        prices, amounts = self.price_list, None
        if prices.by_row is None:
            cost = self.cost_by_place[self.places(walk)]
        else:
            used = self.bought_by_place[self.places(walk)]
            amounts = amounts_of(prices, reader, walk.rows, used, self.names)
            cost = prices.cost_of_rows(used, walk.route == self.n_stages, amounts)
        sent = np.flatnonzero(walk.route == self.n_stages)
        if sent.size and self.buys_by_row:
            used = np.zeros((len(sent), prices.n_features), dtype=bool)
            if self.n_stages:
                used |= self.bought_by_place[-2]
            asked = reader.table(walk.rows[sent], prices.full_columns)
            used[:, prices.read_by_full] |= _asked(self.innermost).bought(asked)
            some = None if amounts is None else amounts[sent]
            cost[sent] = prices.cost_of_rows(used, np.ones(len(sent), dtype=bool), some)
        return cost

    def spent_at(self, reader: Reader, place: int) -> Floats:
        """What each row of a reader would pay that is answered at a place."""
        return self.spent(reader, self._walk_to(reader, place, self._nodes(reader)))

    def spent_by_stage(self, reader: Reader) -> list[Floats]:
        """The same at each stage of all chains."""
        nodes = self._nodes(reader)
        return [self.spent(reader, self._walk_to(reader, place, nodes)) for place in range(self.n_stages)]

    def held_by_stage(self, reader: Reader) -> tuple[Bools, ...]:
        """Columns that each row of a reader would hold at each stage of all chains: (n_rows, n_features) each."""
        nodes = self._nodes(reader)
        walks = (self._walk_to(reader, place, nodes) for place in range(self.n_stages))
        return tuple(self.bought_by_place[self.places(walk)] for walk in walks)

    def _nodes(self, reader: Reader) -> list[Ints | None]:
        """Where each row would stand at each stage of all chains; None where there are no forks."""
        if not self.has_forks:
            return [None] * self.n_stages
        seen = self.visit_all(reader).node
        own = [None if seen is None else seen[:, place] for place in range(len(self.stages))]
        return [*own, *(self.behind._nodes(reader) if self.behind else [])]

    def _walk_to(self, reader: Reader, place: int, nodes: Sequence[Ints | None]) -> Walk:
        """The walk of rows that all get to one place; what they score on the way is left out."""
        rows, n_own = np.arange(reader.n_samples), len(self.stages)
        route, nothing, inner = np.full(len(rows), place), np.empty((len(rows), 0)), None
        if self.has_forks and self.behind and place >= n_own:
            inner = self.behind._walk_to(reader, place - n_own, nodes[n_own:])
        return Walk(rows, route, nothing, inner, nodes[place] if place < n_own else None)

    @property
    def buys_by_row(self) -> bool:
        """Whether the model at the end does not read the same columns of every row."""
        return isinstance(_asked(self.innermost), BuysByRow)

    @property
    def columns(self) -> Ints:
        """Columns that the stages of this chain buy, in the order of purchase."""
        return self.held_at(len(self.stages))

    def held_at(self, place: int) -> Ints:
        """Columns that every row has bought in this chain once it is at a place, in the order of purchase."""
        stages = self.stages[: place + 1]
        columns = list(dict.fromkeys(column for stage in stages for column in stage.columns.tolist()))
        if stages and isinstance(stages[-1], ForkStage):
            common = set(columns).intersection(*(node.columns.tolist() for node in stages[-1].nodes))
            columns = [column for column in columns if column in common]
        return np.array(columns, dtype=np.intp)

    @cached_property
    def _held_at_parting(self) -> Ints:
        return self.held_at(self.policy.parting)

    # -- tables and sources ------------------------------------------------------------------------

    def reader(self, X: Any) -> TableReader:
        """Read from a table of any kind: array, CSR, data frame or list of rows; a reader comes back as it is."""
        if isinstance(X, TableReader):
            return X
        X = table_of_fit(X, self.names)
        numbers = as_numbers(plain_table(X, self.levels))
        if numbers.shape[1] != self.price_list.n_features:
            raise InvalidInputError(
                f"X must have the {self.price_list.n_features} columns of the price list; got {numbers.shape[1]}."
            )
        return TableReader(numbers, X if kind_of_table(X) else numbers)

    def route(self, X: Any) -> Ints:
        """Place that answers each row; ``n_stages`` means the full model, which is not asked."""
        return self.walk(self.reader(X)).route

    def cost(self, X: Any) -> Floats:
        """What each row pays. The full model is not asked."""
        reader = self.reader(X)
        return self.spent(reader, self.walk(reader))

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities of all classes, shape (n_samples, n_classes)."""
        return self.answer(self.reader(X))

    def predict(self, X: Any) -> Labels:
        """Labels, as the user wrote them."""
        return self.task.answers(self.predict_proba(X))

    def outputs(self, table: Any, numbers: Any) -> Floats:
        """Answer as a full model would, so that this can stand behind another stage."""
        return self.task.bounded(self.answer(TableReader(numbers, table)))

    def carried_at_start(self, n_rows: int) -> Floats:
        """What rows carry into the first stage."""
        start = np.zeros(self.task.n_scores) if self.base is None else self.base
        return start[None].repeat(n_rows, axis=0)


def _asked(model: FullModel) -> Any:
    """Whoever answers: an estimator, or the model itself."""
    return model.estimator if isinstance(model, EstimatorFull) else model


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
