"""The chain that predicts: stages, the cheapest first, then the full model.

A row enters at the first stage. Each stage buys its columns, scores the row, and either answers or, if its gate's score
exceeds the threshold in force, sends the row on; the last resort is the full model (f0). A row that reaches it may be
answered by a blend of the full model and the last stage. A chain is a model like the full model itself and can replace
it behind a further, cheaper stage, the paper's general framework; a row then pays only for what it buys in it.

Bills are computed from *places*: the nodes of the stages, one after the other, then those of a chain behind them; the
last is the full model. The columns of a row are a function of its place, and so is its cost, unless prices differ by
row, or the full model does not read the same columns of every row.

``explain_rows`` has the purchases of a row in their order, the answer of each stage, why the row stopped, and savings.
"""

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.utils import get_tags

from thrifty.arrays import Bools, Floats, Ints, Labels, Words
from thrifty.engine.full.model import EstimatorFull, FullModel, PrecomputedFull, ask_model
from thrifty.engine.prices.billing import PriceList, Resources, costs_in_rounds, costs_text
from thrifty.engine.prices.prices import with_prices
from thrifty.engine.purchases.readers import (
    CellReader,
    Ledger,
    amounts_of,
    as_source,
    run_for_readable_rows,
)
from thrifty.engine.purchases.receipts import PurchaseReader, Reader, Receipt, answer_text, decision_text
from thrifty.engine.table.columns import ColumnType, Levels, plain_table
from thrifty.engine.table.reader import Cells, Schema
from thrifty.engine.table.table import Table
from thrifty.engine.tasks.task import Task
from thrifty.engine.walk.buying import BuyingMixin
from thrifty.engine.walk.policy import SLACK, Policy
from thrifty.engine.walk.propensity import purchases_of
from thrifty.engine.walk.stage import LinearStage, Stage, check_stages, check_turns, nodes_of
from thrifty.engine.walk.walk import StageOutputs, Walk, Walker
from thrifty.errors import InvalidInputError, InvalidParameterError
from thrifty.rows import key_words

MAX_STAGES = 1000
"""Stages of a chain that a file may hold."""


@dataclass(frozen=True, eq=False)
class Chain(BuyingMixin):
    """Stages, then the full model.

    Attributes
    ----------
    stages : tuple of Stage
        The cheapest first.
    full : FullModel or Chain
        The full model, or a chain instead of it.
    price_list : PriceList
        Prices of purchases, and the columns that the full model reads.
    task : Task
        Kind of answer.
    policy : Policy
        Where rows stop.
    base : ndarray of shape (n_scores,), optional
        Scores that a row carries into the first stage; None is zero.
    blend : ndarray, optional
        Blend of the scores of the last stage with those of the full model; None is the full model alone.
    names : tuple of str, optional
        Names of the columns.
    kind : {"pandas", "polars"}, optional
        The kind of table the full model expects; None is an array.
    levels : Levels, optional
        Levels of the columns of text or categories, which the stages read as numbers; the full model is given the
        original values.
    types : tuple of ColumnType, optional
        Column types of the data frame of the fit: the full model is given such a frame again, from any source of cells.
        None where the fit had no data frame, or where a file does not hold them.
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
    types: tuple[ColumnType, ...] | None = None

    def __post_init__(self) -> None:
        if self.policy.n_stages != len(self.stages):
            raise InvalidInputError(
                f"a policy must have a threshold for each of the {len(self.stages)} stages; got {self.policy.n_stages}."
            )
        check_turns(self.stages)
        if self.behind and self.behind.levels != self.levels:
            raise InvalidInputError(
                "a chain instead of the full model reads the numbers of levels that the stages before it read, "
                "and both must have the same levels; these were fitted on other categories. Fit the stages with "
                "full=chain, which takes its levels over."
            )

    def validate(self) -> "Chain":
        """Refuse parts that do not fit together, beyond what is checked when a chain is made. Returns itself."""
        n_features, task = self.price_list.n_features, self.task
        rules = {
            f"a chain must have at most {MAX_STAGES} stages": len(self.stages) <= MAX_STAGES,
            f"names must name {n_features} columns": self.names is None or len(self.names) == n_features,
            "kind must be a kind of table": self.kind in (None, "pandas", "polars"),
            f"types must declare {n_features} columns": self.types is None or len(self.types) == n_features,
            f"levels must be of columns in [0, {n_features})": self.levels is None
            or all(0 <= column < n_features for column in self.levels.of_column),
            f"base must have {task.n_scores} numbers": self.base is None
            or self.base.shape == (task.n_scores,),
            f"blend must have {len(task.full_alone)} numbers": self.blend is None
            or self.blend.shape == (len(task.full_alone),),
            "costs of operating points must be of the resources of the prices": (self.policy.costs is None)
            == (self.price_list.resources is None)
            or (self.policy.costs is None and not self.policy.is_measured),
            "a chain behind must have as many columns": self.behind is None
            or self.behind.price_list.n_features == n_features,
        }
        for rule, holds in rules.items():
            if not holds:
                raise InvalidInputError(f"{rule}.")
        levels = None if self.levels is None else self.levels.of_column
        n_levels = None if levels is None else {column: len(texts) for column, texts in levels.items()}
        check_stages(self.stages, n_features, task, n_levels)
        return self

    def __getstate__(self) -> dict[str, Any]:
        # Caches, such as a second copy of the trees, are computed again.
        return {name: value for name, value in vars(self).items() if name in self.__dataclass_fields__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Pickles of earlier versions hold caches.
        vars(self).update({name: state[name] for name in self.__dataclass_fields__ if name in state})

    @property
    def classes(self) -> Labels:
        """The user's labels."""
        return self.task.classes

    @cached_property
    def schema(self) -> Schema:
        """Names, types and levels of the columns; a fit that knew no names has x0, x1 and so on."""
        names = self.names or tuple(f"x{column}" for column in range(self.price_list.n_features))
        return Schema(self.kind if self.names else None, names, self.types, self.levels)

    @property
    def refuses_missing(self) -> str:
        """Name of the part that refuses missing values, a stage or the full model; empty if all accept them."""
        if any(isinstance(stage, LinearStage) for stage in self.stages):
            return "a linear stage"
        return "" if self.full_reads_missing else "the full model"

    @property
    def full_reads_missing(self) -> bool:
        """True if the full model accepts missing values, by scikit-learn's tags."""
        model = self.innermost
        return not isinstance(model, EstimatorFull) or bool(get_tags(model.estimator).input_tags.allow_nan)

    @property
    def behind(self) -> "Chain | None":
        """The chain instead of the full model, if there is one."""
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
    def walker(self) -> Walker:
        """Sends rows through the stages of this chain; the same one under every policy."""
        return Walker(self.stages, self.task, self.base, self.price_list.n_features)

    # -- the same chain, changed -------------------------------------------------------------------

    def at(self, policy: Policy) -> "Chain":
        """The chain under another policy."""
        other = replace(self, policy=policy)
        # Caches of the stages hold under every policy.
        _ = self.walker, self.cost_by_place
        vars(other).update((name, value) for name, value in vars(self).items() if name not in vars(other))
        return other

    def with_full(self, full: "FullModel | Chain") -> "Chain":
        """The chain in front of another full model."""
        return replace(self, full=full)

    def with_innermost(self, full: FullModel) -> "Chain":
        """The chain with another model at the end of all chains."""
        return self.with_full(full if self.behind is None else self.behind.with_innermost(full))

    def with_prices(self, prices: Mapping[Any, Any] | None) -> "Chain":
        """The chain with other prices by row, as ``by_row`` of ``thrifty.Prices``; unchanged for None."""
        if prices is None:
            return self
        full = self.behind.with_prices(prices) if self.behind else self.full
        return replace(self, full=full, price_list=with_prices(self.price_list, prices, self.names))

    def ready(self) -> "Chain":
        """Build the caches that single rows need, for all operating points, and return the chain."""
        _ = self.walker.legs, self.cost_by_place
        return self

    # -- walking -----------------------------------------------------------------------------------

    def walk(self, reader: Reader, rows: Ints | None = None) -> Walk:
        """Route every row by the policy, without calling the full model."""
        rows = np.arange(reader.n_samples) if rows is None else rows
        together = self.together if self.rounds is not None and not reader.is_at_hand else None
        walk = self.walker.walk(reader, rows, self.policy, together)
        if self.behind is None:
            return walk
        sent = np.flatnonzero(walk.route == len(self.stages))
        if not sent.size:
            return walk
        inner = self.behind.walk(reader, walk.rows[sent])
        walk.route[sent] += inner.route
        return replace(walk, behind=inner)

    def visit_all(self, reader: Reader) -> StageOutputs:
        """Scores and gates of every stage of this chain for every row, as if every row reached it."""
        return self.walker.visit_all(reader)

    # -- answering ---------------------------------------------------------------------------------

    def answer(self, reader: Reader, walk: Walk | None = None) -> Floats:
        """Outputs of the task: those of the answering stage, of the full model, or of its blend with the last stage."""
        return self.answered(reader, self.walk(reader) if walk is None else walk)[1]

    def answered(self, reader: Reader, walk: Walk) -> tuple[Walk, Floats]:
        """The walk, with rows that the full model failed on back at their last stage, and the outputs of its rows.

        The route of a row without an answer is -1; a row stops where a purchase fails.
        """
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
        """Mask of the rows sent on that are answered (None: all), and their routes and outputs."""
        if walk.behind is not None and self.behind:
            is_answered = walk.behind.route >= 0
            inner = walk.behind if is_answered.all() else walk.behind.take(np.flatnonzero(is_answered))
            inner, full = self.behind.answered(reader, inner)
            able = inner.route >= 0
            if able.all():
                return None, inner, full
            return able, inner.take(np.flatnonzero(able)), full[able]
        if reader.ledger is None:
            return None, None, self.ask_full(reader, walk.rows[sent])
        is_able, outputs = [np.zeros(0, dtype=bool)], [self.task.outputs(walk.scores[:0])]
        for rows in reader.ledger.parts(walk.rows[sent]):

            def ask_full(kept: Any, rows: Ints = rows) -> Floats:
                return self.ask_full(reader, rows[kept])

            mask, full_outputs = run_for_readable_rows(reader, rows, self.price_list.read_by_full, ask_full)
            is_able.append(np.ones(len(rows), dtype=bool) if mask is None else mask)
            outputs += [] if full_outputs is None else [full_outputs]
        return np.concatenate(is_able), None, np.concatenate(outputs)

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
        """Outputs of the full model, or of the chain instead of it, for some rows."""
        if self.behind:
            return self.behind.answer(reader, self.behind.walk(reader, rows))
        full = self.innermost
        numbers = reader.block(rows, self.price_list.read_by_full)

        def ask() -> Floats:
            if isinstance(full, PrecomputedFull) and full.keys is None:
                return full.by_place(reader.n_samples)[rows]
            table = self.read_by_full(reader, rows)
            return ask_model(full, self.task, table, numbers, rows=reader.numbers_of(rows))

        return ask() if reader.ledger is None else reader.ledger.ask_full(rows, ask)

    def read_by_full(self, reader: Reader, rows: Ints) -> Any:
        """Rows as the full model was fitted on them."""
        columns = self.price_list.full_columns
        table = reader.part(rows, columns)
        if getattr(self.innermost, "reads_numbers", False):
            return table.native
        return self.schema.conformed(table, columns)

    def blended(self, last: Floats, full: Floats) -> Floats:
        """Outputs where the full model was asked, from the scores of the last stage and its outputs."""
        if self.blend is None:
            return full
        return self.task.outputs(self.task.blended(self.blend, last, self.task.scores(full)))

    # -- what is held and paid ---------------------------------------------------------------------

    @cached_property
    def has_forks(self) -> bool:
        """True if rows may hold different columns at a stage, here or in a chain behind."""
        return self.walker.has_forks or (self.behind is not None and self.behind.has_forks)

    @cached_property
    def first_places(self) -> Ints:
        """Place of the first node of each own stage and, last, of the chain or model behind them."""
        return np.cumsum([0, *(len(nodes_of(stage)) for stage in self.stages)])

    def places(self, walk: Walk) -> Ints:
        """Place of the answer of each row, counted through the nodes of all stages; the route without forks."""
        if not self.has_forks:
            return walk.route
        first, n_own = self.first_places, len(self.stages)
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
        """Columns that a row holds once answered at each place: (n_places, n_features); the last is the full model."""
        n_own, first, prices = len(self.stages), self.first_places, self.price_list
        inner = None if self.behind is None else self.behind.bought_by_place
        n_behind = 1 if inner is None else len(inner)
        bought = np.zeros((first[-1] + n_behind, prices.n_features), dtype=bool)
        for number, stage in enumerate(self.stages):
            for place, node in enumerate(nodes_of(stage), first[number]):
                bought[place, node.columns] = True
        # What was bought before is held; in a graph a node holds the columns of every node that leads to it.
        for number in range(1, n_own):
            if first[number + 1] - first[number] == 1 and first[number] - first[number - 1] == 1:
                bought[first[number]] |= bought[first[number] - 1]
        if n_own:
            bought[first[-1] :] |= bought[first[-1] - 1]
        if inner is None:
            bought[-1, prices.read_by_full] = True
        else:
            bought[first[-1] :] |= inner
        for held in bought if prices.by_row is not None else ():
            held[prices.with_row_prices(np.flatnonzero(held))] = True
        return bought

    @cached_property
    def cost_by_place(self) -> Floats:
        """Price of an answer at each place, by the listed prices: (n_places,)."""
        bought = self.bought_by_place
        return self.price_list.cost_of_rows(bought, np.arange(len(bought)) == len(bought) - 1)

    @property
    def columns(self) -> Ints:
        """Columns that the stages of this chain buy, in the order of purchase."""
        return self.walker.held_at(len(self.stages))

    def spent(self, reader: Reader, walk: Walk) -> Floats:
        """Cost of each row of a walk."""
        prices = self.price_list
        if self.rounds is not None and prices.resources is not None:
            rates = prices.resources.rates
            return np.sum(self.costs(reader, walk) * rates, axis=1)
        if prices.by_row is None:
            return self.cost_by_place[self.places(walk)]
        used = self.bought_by_place[self.places(walk)]
        amounts = amounts_of(prices, reader, walk.rows, used, self.names)
        return prices.cost_of_rows(used, walk.route == self.n_stages, amounts)

    @cached_property
    def by_resource(self) -> "tuple[Chain, ...]":
        """The chain with the prices of each of several resources, which bills its rows in them."""
        resources = self.price_list.resources
        return () if resources is None else tuple(map(self._in_prices, resources.lists))

    def _in_prices(self, price_list: PriceList) -> "Chain":
        full = self.full if self.behind is None else self.behind._in_prices(price_list)
        return replace(self, full=full, price_list=price_list)

    def costs(self, reader: Reader, walk: Walk) -> Floats:
        """Cost of each row of a walk in each of several resources, shape (n_rows, n_resources)."""
        if self.rounds is None:
            return np.column_stack([chain.spent(reader, walk) for chain in self.by_resource])
        follows, costs = (
            self.policy.follows(reader.keys(walk.rows)),
            np.empty((len(walk.rows), len(self.by_resource))),
        )
        for _, point in self.policy.in_force:
            by_place = costs_in_rounds(self.rounds, self.policy.thresholds[point])
            costs[follows == point] = by_place[walk.route[follows == point]]
        costs[walk.route < 0] = 0.0
        return costs

    @cached_property
    def rounds(self) -> Floats | None:
        """Costs of making the purchases of several places together; None where no resource is a delay."""
        resources = self.price_list.resources
        return None if resources is None or not resources.delays else resources.rounds(self.bought_by_place)

    def together(self, point: int, place: int) -> Ints | None:
        """Columns that a row which follows a point buys together with those of a stage; None if these alone."""
        thresholds = self.policy.thresholds[point]
        if place and np.isneginf(thresholds[place - 1]):
            return None  # they were bought with those of the stage before
        stops: Ints = np.flatnonzero(~np.isneginf(thresholds[place:]))
        last = place + int(stops[0]) if len(stops) else len(thresholds)
        return None if last == place else np.flatnonzero(self.bought_by_place[last])

    def walks_by_stage(self, reader: Reader, node: Ints | None = None) -> list[Walk]:
        """Walks in which all rows end at a stage, one for each stage of all chains, without scores.

        ``node`` is the node of each row at each stage of this chain, if it has been visited.
        """
        nodes = self.nodes_by_stage(reader, node)
        return [self._walk_to(reader, route, nodes) for route in range(self.n_stages)]

    def nodes_by_stage(self, reader: Reader, node: Ints | None = None) -> list[Ints | None]:
        """Node of each row at each stage of all chains; None where there are no forks."""
        if not self.has_forks:
            return [None] * self.n_stages
        node = self.walker.visit_all(reader).node if node is None else node
        of_stages = [None if node is None else node[:, place] for place in range(len(self.stages))]
        return [*of_stages, *(self.behind.nodes_by_stage(reader) if self.behind else [])]

    def _walk_to(self, reader: Reader, route: int, nodes: Sequence[Ints | None]) -> Walk:
        rows, n_own, inner = np.arange(reader.n_samples), len(self.stages), None
        if self.has_forks and self.behind and route >= n_own:
            inner = self.behind._walk_to(reader, route - n_own, nodes[n_own:])
        routes, no_scores = np.full(len(rows), route), np.empty((len(rows), 0))
        return Walk(rows, routes, no_scores, inner, nodes[route] if route < n_own else None)

    # -- tables and sources ------------------------------------------------------------------------

    def reader(self, X: Any, row_key: Any = None) -> Table:
        """Read from a table of any kind: array, CSR, data frame, list of rows or cells; a reader is returned unchanged.

        ``row_key`` names the column of a data frame that holds the keys of the rows, or is the keys; without it they
        are the index of a pandas data frame, or the numbers of the rows.
        """
        if isinstance(X, Cells):
            return self._cell_reader(X)
        table = Table.of(X, row_key, self.names)
        if table.numbers is not None:
            return table
        table = table.in_order_of(self.names)
        numbers = plain_table(table, self.levels).as_numbers()
        if numbers.shape[1] != self.price_list.n_features:
            raise InvalidInputError(
                f"X must have the {self.price_list.n_features} columns of the price list; got {numbers.shape[1]}."
            )
        return table.with_numbers(numbers)

    def _cell_reader(self, cells: Cells) -> CellReader:
        """Read cells; unreadable cells are refused only where a row needs them."""
        if any(isinstance(stage, LinearStage) for stage in self.stages):
            columns = self.stages[0].columns
            cells.refuse_unreadable(columns=columns)
            cells.refuse_missing(np.arange(len(cells)), columns, "a linear stage")
        reads_numbers = getattr(self.innermost, "reads_numbers", False)
        table = Table(cells.numbers) if reads_numbers else self.schema.table_of(cells)
        # With text or dates, the full model itself refuses what it cannot read.
        is_plain = reads_numbers or all(column.holds in ("number", "truth") for column in self.types or ())
        is_needy = is_plain and not self.full_reads_missing
        return CellReader(cells, table, "the full model" if is_needy else None)

    def _served(self) -> "Chain":
        return self

    def buyer(
        self, source: Any, ledger: Ledger | None = None, n_rows: int | None = None, row_key: Any = None
    ) -> PurchaseReader:
        """Read from a source of any form, buying only what routes need."""
        needed = np.flatnonzero(self.bought_by_place[-1])
        adapted = as_source(source, self.names, self.price_list, needed, n_rows)
        keys = None if row_key is None else key_words(row_key)
        if keys is not None and len(keys) != len(adapted):
            raise InvalidInputError(
                f"row_key must have a key for each of the {len(adapted)} rows of the source; got {len(keys)}."
            )
        return self.buying(adapted, ledger, keys)

    def buying(self, source: Any, ledger: Ledger | None, row_keys: Words | None = None) -> PurchaseReader:
        """Read from a source that counts its columns as the fit does."""
        return PurchaseReader(source, self.price_list, self.schema, self.names, ledger, row_keys)

    def receipt(self, reader: PurchaseReader, rows: Ints) -> Receipt:
        """Receipt of some rows whose features are bought."""
        reader.visited = {}
        walk = self.walk(reader, rows)
        order, propensity = purchases_of(self, reader, walk)
        walk, outputs = self.answered(reader, walk)
        route = walk.route
        answer, probability = self.task.answers(outputs), self.task.confidence(outputs)
        unanswered = route < 0
        if unanswered.any():
            outputs[unanswered], probability[unanswered] = np.nan, np.nan
            if len(self.task.classes):
                answer = answer.astype(object)
            answer[unanswered] = None if len(self.task.classes) else np.nan
        ledger = reader.ledger or Ledger("raise")
        bought, failed = reader.cells(rows)
        order[~bought], propensity[~bought] = 0, 1.0
        return Receipt(
            answer,
            probability,
            outputs,
            route,
            reader.spent(rows, ledger.calls(rows)),
            bought,
            failed,
            np.array([ledger.reasons.get(row) for row in rows.tolist()], dtype=object),
            self.names or tuple(range(self.price_list.n_features)),
            np.isin(rows, list(ledger.full_failed)),
            reader.delivered(rows),
            order,
            propensity,
            costs=self._paid(reader, walk, ledger.calls(rows)),
        )

    def _paid(self, reader: PurchaseReader, walk: Walk, calls: Ints) -> Any:
        """What rows really paid in each of several resources; how long they waited is that of their routes."""
        costs, resources = reader.costs(walk.rows, calls), self.price_list.resources
        if resources is not None and resources.delays:
            waited = resources.named(self.costs(reader, walk))
            costs[list(resources.delays)] = waited[list(resources.delays)]
        return costs

    def route(self, X: Any, row_key: Any = None) -> Ints:
        """Stage that answers each row; ``n_stages`` means the full model, which is not called."""
        return self.walk(self.reader(X, row_key)).route

    def cost(self, X: Any, row_key: Any = None) -> Any:
        """Cost of each row; of several resources a data frame. The full model is not called."""
        reader = self.reader(X, row_key)
        walk, resources = self.walk(reader), self.price_list.resources
        return self.spent(reader, walk) if resources is None else resources.named(self.costs(reader, walk))

    def predict_proba(self, X: Any, row_key: Any = None) -> Floats:
        """Probabilities of all classes, shape (n_samples, n_classes)."""
        return self.answer(self.reader(X, row_key))

    def predict(self, X: Any, row_key: Any = None) -> Labels:
        """Labels, as the user wrote them."""
        return self.task.answers(self.predict_proba(X, row_key))

    def outputs(self, table: Any, numbers: Any) -> Floats:
        """Outputs, as of a full model: a chain can replace it behind another stage."""
        return self.task.bounded(self.answer(Table(numbers, table)))


def capped_thresholds(chain: Chain, thresholds: Floats, cap: Any) -> Floats:
    """Thresholds of operating points without the routes on which a row would spend more than a cap.

    All rows stop at the last stage before such a route: there the threshold is infinite. In a chain with forks the
    dearest node of a stage decides, and of a chain behind its dearest route. Where a resource is a delay, the rounds of
    each point count.

    Parameters
    ----------
    chain : Chain
        The chain.
    thresholds : ndarray of shape (n_points, n_own_stages)
        Thresholds of each point.
    cap : float, or dict of resource to float
        What no row may spend, checked.
    """
    if chain.price_list.by_row is not None:
        raise InvalidInputError(
            "a cap needs to know what each route costs, and prices of this system differ by row. List one price for "
            "each purchase, or leave cap out."
        )
    resources, paid = chain.price_list.resources, chain.cost_by_place[None]
    limits = np.array([cap])
    if resources is not None:
        paid, limits = np.array([each.cost_by_place for each in chain.by_resource]), resources.limits(cap)
    first = chain.first_places
    # What each own stage costs at most, and what is behind all of them.
    dearest = np.array([paid[:, start:end].max(axis=1) for start, end in pairwise([*first, paid.shape[1]])])

    is_within = np.all(dearest <= limits * (1 + SLACK), axis=1)
    if not is_within[0]:
        least = dearest[0] if resources is None else resources.named(dearest[0])
        shown = f"{least[0]:.6g}" if resources is None else costs_text(least)
        raise InvalidParameterError(
            "cap", f"must be at least {shown}, the cost of the cheapest route; got {cap!r}. Raise the cap."
        )
    if chain.rounds is None:
        return np.where(is_within[1:], thresholds, np.inf)

    def ends_within(point: Floats, rounds: Floats) -> bool:
        """True if no row that stops under a point has spent more than the cap."""
        ends = np.flatnonzero(np.r_[~np.isneginf(point), True])
        beyond = np.flatnonzero(np.isposinf(point[ends[:-1]]))
        ends = ends[: int(beyond[0]) + 1 if len(beyond) else None]
        return bool(np.all(costs_in_rounds(rounds, point)[ends] <= limits * (1 + SLACK)))

    capped, places = thresholds.copy(), np.arange(thresholds.shape[1])
    for point in capped:
        stopping = (np.where(places == last, np.inf, point) for last in (-1, *places[::-1]))
        point[:] = next(each for each in stopping if ends_within(each, chain.rounds))
    return capped


# -- explanations ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class StageView:
    """One stage of the explanation of a row.

    Attributes
    ----------
    bought : tuple of str
        Columns that were new at this stage, in the order of purchase.
    cost : float
        Cost of the row by the end of this stage.
    answer : object
        The answer that the stage would have given.
    probability : float
        Probability of that answer, by the stage.
    gate, threshold : float
        The row went on iff its gate score exceeded the threshold.
    point : {"", "cheaper", "dearer", "explores", "explored"}
        What decided besides the gate: the one of two mixed operating points that the key of the row follows, where only
        one of them sends the row on; or that the key is drawn to explore, and goes on, or got where it was drawn to.
    costs : dict of str to float, optional
        Cost by then in each of several resources; ``cost`` is then their sum at the exchange rates of the fit.
    """

    bought: tuple[str, ...]
    cost: float
    answer: Any
    probability: float
    gate: float
    threshold: float
    point: str = ""
    costs: dict[str, float] | None = None

    @property
    def goes_on(self) -> bool:
        """True if the row was sent on from this stage."""
        return self.point == "explores" or (self.gate > self.threshold and self.point != "explored")


@dataclass(frozen=True)
class Explanation:
    """Explanation of one row: its stages, answer, cost and savings.

    Attributes
    ----------
    stages : tuple of StageView
        The stages it visited, in order.
    asked_full : bool
        Whether it went on to the full model.
    answer, probability : object, float
        The answer and its probability.
    cost, saved : float
        Cost of the row, and by how much less it is than that of the full model alone.
    costs, savings : dict of str to float, optional
        The same in each of several resources.
    """

    stages: tuple[StageView, ...]
    asked_full: bool
    answer: Any
    probability: float
    cost: float
    saved: float
    costs: dict[str, float] | None = None
    savings: dict[str, float] | None = None

    @property
    def bought(self) -> tuple[str, ...]:
        """Columns bought before the full model, in order."""
        return tuple(name for stage in self.stages for name in stage.bought)

    def as_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON: no probability of numbers, infinity as text, a point only where it decided."""
        entries = asdict(self)
        for entry in (entries, *entries["stages"]):
            if np.isnan(entry["probability"]):
                del entry["probability"]
        for entry in (entries, *entries["stages"]):
            for name in ("costs", "savings"):
                if entry.get(name, 0) is None:
                    del entry[name]
        for stage, view in zip(entries["stages"], self.stages, strict=True):
            if not stage["point"]:
                del stage["point"]
            stage["goes_on"] = view.goes_on
            if np.isinf(stage["threshold"]):
                stage["threshold"] = str(stage["threshold"])
        return entries

    @property
    def _saved_text(self) -> str:
        if self.savings is not None:
            return f"{costs_text(self.savings)} less than the full model"
        return f"{abs(self.saved):g} {'less' if self.saved >= 0 else 'more'} than the full model"

    def __str__(self) -> str:
        lines = []
        for number, stage in enumerate(self.stages):
            names = ", ".join(stage.bought) or "nothing new"
            why = decision_text(stage.probability, goes_on=stage.goes_on, point=stage.point)
            answer = answer_text(stage.answer, stage.probability)
            then = "goes on" if stage.goes_on else "stops"
            lines.append(f"stage {number}: {names} (cost so far {paid_text(stage)}); {answer}; {why}, {then}")
        if self.asked_full:
            answer = answer_text(self.answer, self.probability)
            lines.append(f"full model: all that it reads (cost so far {paid_text(self)}); {answer}")
        lines.append(f"answered {answer_text(self.answer)} for {paid_text(self)}, {self._saved_text}")
        return "\n".join(lines)


def paid_text(view: "StageView | Explanation") -> str:
    """A cost in words, by resource where there are several."""
    return f"{view.cost:g}" if view.costs is None else costs_text(view.costs)


def explain_rows(chain: Chain, reader: Reader, names: Sequence[str]) -> list[Explanation]:
    """Explain the route of every row through a chain; the full model is called for the rows that reach it."""
    reader = copy(reader)
    reader.visited = {}  # the walk leaves its visits there
    walk = chain.walk(reader)
    outputs, spent = chain.answer(reader, walk), chain.spent(reader, walk)
    answers, probability = chain.task.answers(outputs).tolist(), chain.task.confidence(outputs)
    views: list[list[StageView]] = [[] for _ in range(len(walk.route))]
    cost, total = _costs(chain, reader, len(walk.route))
    held = np.zeros((len(walk.route), chain.price_list.n_features), dtype=bool)
    resources, walks = chain.price_list.resources, chain.walks_by_stage(reader)
    by_resource, costs, most = [], np.empty(0), np.empty(0)
    if resources is not None:
        by_resource = [chain.costs(reader, to_stage) for to_stage in walks]
        costs, most = chain.costs(reader, walk), np.array([each.cost_of_full for each in resources.lists])
    _add_views(views, chain, reader, walk, held, names, (cost, by_resource, resources), 0)
    return [
        Explanation(
            tuple(views[row]),
            bool(walk.route[row] == chain.n_stages),
            answers[row],
            float(probability[row]),
            float(spent[row]),
            float(total[row]) - float(spent[row]),
            None if resources is None else resources.named(costs[row]),
            None if resources is None else resources.named(most - costs[row]),
        )
        for row in range(len(walk.route))
    ]


def _costs(chain: Chain, reader: Reader, n_rows: int) -> tuple[Sequence[Floats], Floats]:
    """Cost of each row by the end of each stage, and at the full model alone."""
    prices = chain.price_list
    by_stage = [chain.spent(reader, walk) for walk in chain.walks_by_stage(reader)]
    if prices.by_row is None:
        return by_stage, np.full(n_rows, prices.cost_of_full)
    read = np.zeros((1, prices.n_features), dtype=bool)
    read[0, prices.read_by_full] = True
    amounts = amounts_of(prices, reader, np.arange(n_rows), np.repeat(read, n_rows, axis=0), chain.names)
    total = prices.cost_of_rows(read, np.ones(1, dtype=bool), amounts)
    return by_stage, total


def _add_views(
    views: list[list[StageView]],
    chain: Chain,
    reader: Reader,
    walk: Walk,
    held: Bools,
    names: Sequence[str],
    paid: tuple[Sequence[Floats], Sequence[Floats], Resources | None],
    first: int,
) -> None:
    """Add the stages of one chain, and of the chain behind it, to the explanations; stages count from ``first``.

    ``held`` marks the columns that each row holds, and is updated.
    """
    policy, task, rows, (cost, costs, resources) = chain.policy, chain.task, walk.rows, paid
    follows = np.full(len(rows), policy.lower)
    node = np.zeros(len(rows), dtype=np.intp)
    for place, stage in enumerate(chain.stages):
        visitors: Ints = np.flatnonzero(walk.route >= first + place)
        if not len(visitors):
            break
        if place == policy.parting:
            follows[visitors] = policy.follows(reader.keys(rows[visitors]))
        visit, gate = (reader.visited or {})[id(stage)]
        at_node = node[visitors]
        node[visitors] = 0 if visit.turn is None else visit.turn
        outputs = task.outputs(visit.scores)
        answers, sure = task.answers(outputs).tolist(), task.confidence(outputs)
        followed = follows[visitors]
        thresholds = np.broadcast_to(policy.thresholds_at(place, followed), len(visitors))
        at = first + place
        columns_of = [node.columns for node in nodes_of(stage)]
        for number, row in enumerate(rows[visitors]):
            columns = columns_of[at_node[number] if len(columns_of) > 1 else 0]
            new, held[row, columns] = columns[~held[row, columns]], True
            gates = [*(view.gate for view in views[row][first:]), float(gate[number])]
            key = reader.keys(rows[visitors[[number]]])
            views[row].append(
                StageView(
                    tuple(str(names[column]) for column in new),
                    float(cost[at][row]),
                    answers[number],
                    float(sure[number]),
                    float(gate[number]),
                    float(thresholds[number]),
                    policy.reason(gates, key, int(followed[number])),
                    None if resources is None else resources.named(costs[at][row]),
                )
            )
    if chain.behind and walk.behind is not None:
        n_before = first + chain.n_own_stages
        inner = replace(walk.behind, route=walk.behind.route + n_before)
        _add_views(views, chain.behind, reader, inner, held, names, paid, n_before)
