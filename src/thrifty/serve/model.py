"""Answers to the rows of a request: the walk through the stages, then the full model for the rows sent on.

A row or a few are answered where the request is read: the walk takes less time than handing it to a thread. Larger
batches have a thread of their own, and the full model in the file another one, so that other requests are read
meanwhile and a row does not wait behind batches.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from thrifty.arrays import Bools, Floats, Ints, Labels
from thrifty.device.export import identity_of
from thrifty.engine.evidence.collect import chain_of
from thrifty.engine.full.adapters import models_of
from thrifty.engine.full.model import FullModel, PrecomputedFull
from thrifty.engine.purchases.readers import amounts_of
from thrifty.engine.purchases.receipt_table import bought_as_text, columns_of_values
from thrifty.engine.purchases.receipts import Reader
from thrifty.engine.purchases.retry import NOT_TRIED
from thrifty.engine.table.columns import is_missing
from thrifty.engine.table.reader import Cells
from thrifty.engine.table.table import Table
from thrifty.engine.walk.chain import Chain
from thrifty.engine.walk.policy import Policy
from thrifty.engine.walk.walk import Walk
from thrifty.errors import (
    FULL_MODEL,
    FullModelDownError,
    FullModelFailedError,
    InvalidAnswerError,
    InvalidInputError,
    listed,
)
from thrifty.learners.table_fit import record_of
from thrifty.rows import key_chance
from thrifty.serve.budget_controller import (
    BudgetController,
    BudgetsController,
    cost_at_hand,
    costs_at_hand,
    joined,
)
from thrifty.serve.config import Config
from thrifty.serve.csv_log import CsvLog
from thrifty.serve.inference_protocol import Answered, Purchases, RequestCells, RequestRows, output_types
from thrifty.serve.metrics import Drift
from thrifty.serve.providers import Buyer, Provider, failure_reason, to_full
from thrifty.serve.remote import RemoteFull, RemoteModel

BATCH_ROWS, BATCH_BYTES = 32, 2**16
"""Rows and bytes of the largest request that is answered in the event loop; larger ones, batches, have a thread of
their own. ``python benchmarks/serve.py batches`` shows how long a row waits beside them."""

_NOTHING_TO_READ = Table(np.zeros((0, 0)), np.zeros((0, 0)))
"""For answers of stages, whose rows have been read on their walk."""

_EXPLORE_SEED = 1
"""Seed of the chance by which rows are explored: any but that of the mix of two operating points, which is 0."""


class Model:
    """A system made ready to serve.

    Parameters
    ----------
    system : fitted estimator or Chain
        What answers.
    version : str
        Version, as clients see it.
    batch_thread, full_thread : Executor
        The thread for batches, and the one in which the full model in the file answers other requests.
    buyers : Executor
        Threads that wait for providers.
    providers : sequence of Provider
        Providers of columns that requests do not carry. Rows then pay for what is bought, not for what they come with.
    remote : RemoteModel, optional
        The full model; None is the one in the file.
    config : Config
        Limits, and how rows are treated for which something fails.
    """

    def __init__(
        self,
        system: Any,
        *,
        version: str,
        config: Config,
        batch_thread: Executor,
        full_thread: Executor,
        buyers: Executor,
        providers: Sequence[Provider] = (),
        remote: RemoteModel | None = None,
    ) -> None:
        self.system, self.chain = system, chain_of(system)
        self.version = version
        self.providers = tuple(providers)
        self.rows = RequestRows(
            self.chain.schema,
            unseen_is_missing=config.unseen == "missing",
            max_rows=config.max_rows,
            keys=dict.fromkeys(provider.settings.key for provider in providers),
            row_key=config.row_key or record_of(system).row_key or None,
        )
        by_row = self.chain.price_list.by_row
        if by_row is not None and any(by_row.functions):
            raise InvalidInputError(
                "prices of this system come from a function, and the gateway reads them from a column of the request. "
                "Write the prices into a column, name it in by_row, and fit again."
            )
        if by_row is not None and providers:
            raise InvalidInputError(
                "prices of this system differ by row, and what a provider sells is billed by one list. Leave the "
                "providers out, or fit it with one price for each purchase."
            )
        self.is_number = len(self.chain.classes) == 0
        self.classes, self.output_types = self.chain.classes, output_types(self.chain.task)
        self.parameters = {"stages": self.chain.n_stages}
        self.rival = "the full model"
        self.remote = remote
        self.controller: BudgetController | BudgetsController | None = None
        self.resources = self.chain.price_list.resources
        self.drift: Drift | None = None
        self.receipts: CsvLog | None = None
        self.routes = (*map(str, range(self.chain.n_stages)), "full", "none")  # -1 is the last one
        self._explore = config.explore
        self.cost_of_full = self.chain.price_list.cost_of_full
        self.cost_by_place = cost_at_hand(self.chain, is_free=bool(providers))
        self._on_failure = config.on_remote_failure
        self._batch_thread, self._full_thread, self._buyers = batch_thread, full_thread, buyers
        self._buyer = None
        if providers:
            how = config.on_provider_failure, config.purchase_deadline
            full: FullModel = FullInThread(self.chain.innermost, full_thread, batch_thread)
            if remote is not None:
                full = RemoteFull(remote, self.chain.task, self.full_names)
            self._buyer = Buyer(self.chain.with_innermost(full), self.rows, providers, *how)
        self._refuses_missing = bool(self.chain.refuses_missing)
        if not self.chain.n_stages and self._on_failure == "local":
            self._on_failure = "error"  # no stage can answer

    @cached_property
    def identity(self) -> str:
        """Identity of the system, ``THRIFTY_MODEL_ID`` of a device that it was exported to."""
        return identity_of(self.chain)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Outputs of the model."""
        with_probability = ("answer", "probability", "probabilities", "route", "cost", "degraded")
        outputs = ("answer", "route", "cost", "degraded") if self.is_number else with_probability
        return (*outputs, *self.cost_outputs)

    @property
    def cost_outputs(self) -> tuple[str, ...]:
        """Outputs with the cost in each of several resources."""
        return () if self.resources is None else tuple(f"cost_{name}" for name in self.resources.names)

    @cached_property
    def full_names(self) -> tuple[str, ...]:
        """Columns that the full model reads."""
        return tuple(self.rows.names[column] for column in self.chain.price_list.read_by_full)

    @cached_property
    def n_outputs(self) -> int:
        """Numbers with which the full model answers a row."""
        return int(self.chain.task.outputs(np.zeros((1, self.chain.task.n_scores))).shape[1])

    def warm_up(self) -> None:
        """Answer rows of zeros, so that the first request waits for no compiler."""
        for n_rows in (1, 2):
            numbers = np.zeros((n_rows, len(self.rows.names)))
            reader = Table(numbers, numbers)
            self.chain.answer(reader, _without_full(self.chain, self.chain.walk(reader)))

    def is_batch(self, cells: Cells) -> bool:
        """True for more rows than are answered in the event loop."""
        return len(cells) > BATCH_ROWS

    async def answer(self, cells: RequestCells, *, asks_full: bool = False) -> Answered:
        """Answer the rows of a request.

        Parameters
        ----------
        cells : RequestCells
            The rows.
        asks_full : bool, default=False
            True if a device has run the stages and asks the full model: without a budget, every row goes there.
        """
        answered = await self._answer(cells, asks_full=asks_full)
        if self.receipts is not None and not asks_full:  # what a device had bought is not known

            def write() -> None:
                assert self.receipts is not None  # as above
                self.receipts.add(lines_of_receipts(self.rows, cells, answered))

            await self.in_batch_thread(write) if self.is_batch(cells) else write()
        return answered

    async def _answer(self, cells: RequestCells, *, asks_full: bool) -> Answered:
        chain = self._to_full if asks_full else self.chain
        can_explore = None if asks_full or not self._explore else self._can_explore(cells)
        explored = None if can_explore is None else self._explored(cells, can_explore)
        if self._buyer is not None and self._buyer.is_needed(cells):
            kept: Floats | None = None
            if self.receipts is not None and not asks_full:
                kept = np.full(len(cells), self._explore) * (can_explore if can_explore is not None else 0.0)
            results = await self._bought(self._buyer, cells, chain.policy, explored, kept)
            return self._answered_by_full(results, explored)
        if self.is_batch(cells):
            walk = await self.in_batch_thread(lambda: self._send(self._reader(cells), chain, explored))
        else:
            walk = self._send(self._reader(cells), chain, explored)
        route = walk.route.tolist()  # for one row, a few times sooner than numpy
        if self.chain.n_stages in route:
            answered = self._answered_by_full(await self._with_full(cells, walk), explored)
            return answered if explored is None else self._compared(cells, answered, explored)
        outputs, nothing = self.chain.answer(_NOTHING_TO_READ, walk), np.zeros(len(route), dtype=bool)
        cost, costs = self._cost(cells, walk)
        return Answered(self.chain.task, walk.route, outputs, cost, nothing, costs=costs)

    @cached_property
    def _to_full(self) -> Chain:
        """The chain at an operating point that sends every row to the full model."""
        return to_full(self.chain)

    def _send(self, reader: Reader, chain: Chain, explored: Bools | None) -> Walk:
        """Send rows as far as the operating point, or the budget, says, and explored ones to the full model."""

        def walk(rows: Ints | None, beyond: Chain | None = None) -> Walk:
            if self.controller is not None:
                return self.controller.walk(reader, rows, beyond)
            return (beyond or chain).walk(reader, rows)

        if explored is None:
            return walk(None)
        return joined([walk(np.flatnonzero(~explored)), walk(np.flatnonzero(explored), self._to_full)])

    # -- exploration -------------------------------------------------------------------------------

    def _can_explore(self, cells: RequestCells) -> Bools:
        """Rows that may go on beyond their stop: all that they then need can be read."""
        can = np.ones(len(cells), dtype=bool)
        for column, unreadable in cells.unreadable.items():
            if self.chain.bought_by_place[-1][column]:
                is_sold = False if self._buyer is None else self._buyer.sells(cells, column)
                can &= ~unreadable.rows | is_sold
        if self._refuses_missing:
            can &= ~(np.isnan(cells.numbers) & cells.came).any(axis=1)  # what is absent is bought
        return can

    def _explored(self, cells: RequestCells, can_explore: Bools) -> Bools | None:
        """Those of them that are drawn by their keys to do so."""
        drawn: Bools = (key_chance(cells.row_keys, _EXPLORE_SEED) < self._explore) & can_explore
        return drawn if drawn.any() else None

    def _compared(self, cells: RequestCells, answered: Answered, explored: Bools) -> Answered:
        """Count explored rows that would have stopped, and those to which their stop gives the same answer."""
        rows = np.flatnonzero(explored & (answered.route == self.chain.n_stages))
        point = self.chain if self.controller is None else self.controller.chain_at_setpoint
        stop = point.walk(self._reader(cells), rows)
        stop = stop.take(np.flatnonzero(stop.route < self.chain.n_stages))
        cheap = self.chain.task.answers(self.chain.answer(_NOTHING_TO_READ, stop))
        full = self.chain.task.answers(answered.outputs[stop.rows])
        n_agreed = int(_agree(cheap, full, self.is_number).sum())
        return replace(answered, n_explored=len(stop.rows), n_agreed=n_agreed)

    def _answered_by_full(self, answered: Answered, explored: Bools | None = None) -> Answered:
        """Answers where rows were sent to the full model; those that it failed are treated as the settings say."""
        failed = answered.failed_by_full
        if explored is not None:  # their stop could have answered them
            failed = failed[~explored[failed]]
        if not failed.size or self._on_failure == "local":
            return answered
        if self._on_failure == "error":
            raise FullModelDownError(answered.failures[int(failed[0])])
        route = answered.route.copy()
        route[failed] = -1
        return replace(answered, route=route)

    # -- what is bought ------------------------------------------------------------------------------

    async def _bought(
        self,
        buyer: Buyer,
        cells: RequestCells,
        policy: Policy,
        explored: Bools | None,
        to_full: Floats | None,
    ) -> Answered:
        """Answer rows that lack something that can be bought."""
        results = await asyncio.get_running_loop().run_in_executor(
            self._buyers, buyer.answer, cells, self.controller, policy, explored, to_full
        )
        failed = results.failed_by_full
        if failed.size and self.remote is None and self._refuses_missing:
            columns = [column for column in self.chain.price_list.read_by_full if column not in cells.absent]
            cells.refuse_missing(failed, np.array(columns, dtype=np.intp), "the full model")
        return results

    # -- the full model ----------------------------------------------------------------------------

    async def _with_full(self, cells: Cells, walk: Walk) -> Answered:
        """Answer rows some of which were sent to the full model; without it they fall back to their last stage."""
        chain, sent = self.chain, walk.route == self.chain.n_stages
        rows = np.flatnonzero(sent)
        full, reason = await self._ask_full(cells, rows)
        if full is not None:
            cost, costs = self._cost(cells, walk)
            answers = np.zeros((len(cells), self.n_outputs))
            answers[rows] = full
            answered = chain.with_innermost(PrecomputedFull(answers))
            outputs = answered.answer(_plain_reader(cells), walk)
            return Answered(chain.task, walk.route, outputs, cost, sent, costs=costs)
        walk = _without_full(chain, walk)
        cost, costs = self._cost(cells, walk)
        if reason not in NOT_TRIED and not self.providers:
            # What the full model reads was bought before the call failed; the call itself is not paid for.
            bought, prices = chain.bought_by_place[[-1]], chain.price_list
            every = np.repeat(bought, len(rows), axis=0)
            amounts = amounts_of(prices, self._reader(cells), rows, every, chain.names)
            cost[rows] = prices.cost_of_rows(bought, np.zeros(1, dtype=bool), amounts)
            for name, each in zip(costs, prices.by_resource, strict=True):
                costs[name][rows] = each.cost_of_rows(bought, np.zeros(1, dtype=bool))
        outputs = chain.answer(_NOTHING_TO_READ, walk)
        reasons = dict.fromkeys(rows.tolist(), reason)
        return Answered(chain.task, walk.route, outputs, cost, sent, reasons, costs=costs)

    def _cost(self, cells: Cells, walk: Walk) -> tuple[Floats, dict[str, Floats]]:
        """Cost of the rows on their way, by the prices of each row where they differ; and that in each resource."""
        if self.resources is not None:
            if walk.costs is not None:
                costs = walk.costs
            elif self.providers:
                costs = costs_at_hand(self.chain, walk)
            else:
                point = self.chain if self.controller is None else self.controller.chain_at_setpoint
                costs = point.costs(self._reader(cells), walk)
            return (costs * self.resources.rates).sum(axis=1), dict(
                zip(self.resources.names, costs.T, strict=True)
            )
        if self.chain.price_list.by_row is None:
            return self.cost_by_place[self.chain.places(walk)], {}
        return self.chain.spent(self._reader(cells), walk), {}

    async def _ask_full(self, cells: Cells, rows: Ints) -> tuple[Floats | None, str]:
        """Outputs of the full model for some rows, or why there are none."""
        try:
            if self.remote is None:
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._thread_for(cells), self._ask_file, cells, rows), ""
            numbers = self._reader(cells).block(rows, self.chain.price_list.read_by_full)
            outputs = await self.remote.ask(numbers, self.full_names, self.n_outputs)
            return models_of(self.chain.task).read_outputs(outputs, len(numbers), FULL_MODEL), ""
        except Exception as error:
            is_of_request = isinstance(error, InvalidInputError)
            if is_of_request and not isinstance(error, InvalidAnswerError | FullModelFailedError):
                raise
            return None, failure_reason(error)

    def _ask_file(self, cells: Cells, rows: Ints) -> Floats:
        """Outputs of the full model in the file."""
        innermost = self.chain
        while innermost.behind is not None:
            innermost = innermost.behind
        return innermost.ask_full(self._full_reader(cells), rows)

    # -- readers -----------------------------------------------------------------------------------

    def _reader(self, cells: Cells) -> Table:
        """Reads for the stages."""
        if cells.unreadable or (self._refuses_missing and np.isnan(cells.numbers).any()):
            return self.chain.reader(cells)
        return _plain_reader(cells)

    def _full_reader(self, cells: Cells) -> Table:
        """Reads for the full model in the file too, which is given the table that it was fitted on."""
        if cells.unreadable or self._refuses_missing:
            return self.chain.reader(cells)
        return self.chain.schema.table_of(cells)

    def _thread_for(self, cells: Cells) -> Executor:
        """Thread in which the full model in the file answers rows."""
        return self._batch_thread if self.is_batch(cells) else self._full_thread

    async def in_batch_thread(self, call: Callable[[], Any]) -> Any:
        """Result of a call in the thread of batches, while other requests are read."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._batch_thread, call)


@dataclass(frozen=True)
class FullInThread:
    """A model of this process, asked in the thread for so many rows."""

    model: FullModel
    full_thread: Executor
    batch_thread: Executor

    def outputs(self, table: Any, numbers: Any) -> Floats:
        """Outputs of the model."""
        thread = self.batch_thread if len(numbers) > BATCH_ROWS else self.full_thread
        return thread.submit(self.model.outputs, table, numbers).result()


def _plain_reader(cells: Cells) -> Table:
    """Reads cells all of which are numbers."""
    return Table(cells.numbers, cells.numbers, row_keys=cells.row_keys)


def _without_full(chain: Chain, walk: Walk) -> Walk:
    """The walk with the rows that reached the full model back at their last stage."""
    route = np.minimum(walk.route, chain.n_stages - 1)
    if walk.behind is None or chain.behind is None:
        return replace(walk, route=route, costs=None)
    return replace(walk, route=route, costs=None, behind=_without_full(chain.behind, walk.behind))


# -- receipts --------------------------------------------------------------------------------------


def columns_of_receipts(rows: RequestRows) -> tuple[str, ...]:
    """Columns of the log of receipts, which ``Receipts`` reads."""
    if not rows.row_key:
        raise InvalidInputError(
            "receipts need to know by which key outcomes will come. Set row_key to the column of requests with it."
        )
    dates = [name for name in rows.names if set(rows.json_types(name)) == {"string", "number"}]
    if dates:
        raise InvalidInputError(
            f"receipts hold numbers and text, and {listed(dates)} holds dates. Leave receipts out, and keep what is "
            f"bought where the source is."
        )
    own = (rows.row_key, "answer", "cost", "bought", "propensity")
    return (*own, *columns_of_values(rows.names, own))


def lines_of_receipts(rows: RequestRows, cells: RequestCells, answered: Answered) -> list[list[Any]]:
    """A line for each row: what came with the request is held from the start, with probability 1."""
    came, purchases = cells.came, answered.purchases
    if purchases is None:
        purchases = Purchases(came.astype(np.intp), np.ones(came.shape), cells.numbers)
    columns = []
    for place in range(len(rows.names)):
        values = cells.texts[place].tolist() if place in cells.texts else cells.numbers[:, place].tolist()
        if not came[:, place].all():
            delivered = Table.of(purchases.values).values(place)
            values = [
                a if is_here else b for a, b, is_here in zip(values, delivered, came[:, place], strict=True)
            ]
        columns.append(["" if is_missing(value) else value for value in values])
    bought, chances = bought_as_text(purchases.order, purchases.propensity, rows.names)
    answer = answered.answer
    answers = answer if isinstance(answer, list) else answer.tolist()
    keys = cells.keys.get(rows.row_key or "", [""] * len(cells))
    own = (keys, answers, answered.cost.tolist(), bought, chances)
    return [list(line) for line in zip(*own, *columns, strict=True)]


def _agree(first: Labels, second: Labels, is_number: bool) -> Bools:
    """Rows to which both give the same answer; of numbers, to one part in a hundred."""
    same: Bools = np.isclose(first, second, rtol=0.01) if is_number else first == second
    return same
