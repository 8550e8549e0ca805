"""Providers: columns that a request lacks are bought by key on its way through the stages.

A provider is a source, as ``buy`` takes one. Delivered values are cached for a while, and cost nothing when another
request needs them. Buying waits for providers, so it runs in a thread of its own. The walk, the bill and the treatment
of failed purchases are those of ``buy``: the request is a source whose cells are at hand or sold by a provider.
"""

import sqlite3
import time
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from thrifty.arrays import Bools, Floats, Ints
from thrifty.engine.purchases.readers import Delivery, Ledger
from thrifty.engine.purchases.retry import CircuitBreaker
from thrifty.engine.purchases.sources import HttpSource, RetryingSource, SqlSource
from thrifty.engine.table.files import read_table
from thrifty.engine.walk.chain import Chain
from thrifty.engine.walk.policy import Policy
from thrifty.engine.walk.propensity import purchases_of
from thrifty.errors import InvalidAnswerError, InvalidInputError, PurchaseFailedError
from thrifty.serve.budget_controller import BudgetController, BudgetsController
from thrifty.serve.config import ProviderSettings, closest
from thrifty.serve.inference_protocol import Answered, Purchases, RequestCells, RequestRows


class Buyer:
    """Buys for the rows of requests.

    Parameters
    ----------
    chain : Chain
        What answers, with a full model that threads may ask.
    rows : RequestRows
        How rows, and what providers deliver, are read.
    providers : sequence of Provider
        Providers of columns.
    on_failure : {"answer", "skip", "raise"}
        How a row is treated for which a purchase fails.
    deadline : float
        Seconds that all purchases of a request may take.
    """

    def __init__(
        self,
        chain: Chain,
        rows: RequestRows,
        providers: "Sequence[Provider]",
        on_failure: str,
        deadline: float,
    ) -> None:
        self._chain = replace(chain, names=rows.names)
        self._rows, self._providers = rows, tuple(providers)
        self._on_failure, self._deadline = on_failure, deadline
        self._seller_of = np.full(len(rows.names), -1)
        for number, provider in enumerate(providers):
            for name in provider.settings.names:
                self._seller_of[rows.place_of(name)] = number

    def is_needed(self, cells: RequestCells) -> bool:
        """True if a request lacks something that can be bought."""
        return any(self._seller_of[column] >= 0 for column in cells.absent)

    def sells(self, cells: RequestCells, column: int) -> Bools:
        """Rows of a request that lack a column which can be bought for them."""
        seller, nothing = self._seller_of[column], np.zeros(len(cells), dtype=bool)
        if seller < 0:
            return nothing
        keys = cells.keys.get(self._providers[seller].settings.key, [None] * len(cells))
        has_key: Bools = np.array([key is not None for key in keys])
        return cells.absent.get(column, nothing) & has_key

    def answer(
        self,
        cells: RequestCells,
        controller: BudgetController | BudgetsController | None,
        policy: Policy,
        explored: Bools | None = None,
        chance_of_full: Floats | None = None,
    ) -> Answered:
        """Answer the rows of a request, buying what they need by a policy, or by the controller of the budget.

        Explored rows, which come last, buy everything. ``chance_of_full`` is the probability of that, for receipts.
        """
        chain = self._chain.at(policy)
        ledger, everyone = Ledger(self._on_failure), np.arange(len(cells))
        source = _RequestSource(self, cells, chain, time.monotonic() + self._deadline)
        reader = chain.buying(source, ledger, cells.row_keys)
        order, propensity = np.zeros(cells.numbers.shape, dtype=np.intp), np.ones(cells.numbers.shape)
        came = cells.came

        def run(point: Chain, rows: Ints) -> tuple[tuple[Ints, Ints, Floats, Bools], Floats]:
            reader.visited = None if chance_of_full is None else {}
            walk = point.walk(reader, rows)
            if chance_of_full is not None and len(rows):
                gated = chain if controller is None else controller.chain_at_setpoint
                by_gates = gated if explored is not None and explored[rows[0]] else point
                made = purchases_of(by_gates, reader, walk, came[rows], chance_of_full[rows])
                order[rows], propensity[rows] = made
            sent = walk.route == chain.n_stages
            walk, outputs = chain.answered(reader, walk)
            route = walk.route
            if source.refusal is not None:
                raise source.refusal
            # Calls count as answered: were a failed one worth nothing, an outage would send ever more rows on.
            calls = sent.astype(np.intp)
            in_each = reader.costs(rows, calls) if isinstance(controller, BudgetsController) else None
            return (rows, route, outputs, sent), (
                reader.spent(rows, calls) if in_each is None else in_each.to_numpy()
            )

        parts: list[tuple[Ints, Chain | None]] = [(everyone, None)]
        if explored is not None:
            parts = [(np.flatnonzero(~explored), None), (np.flatnonzero(explored), to_full(chain))]
        pieces = []
        for rows, beyond in parts:
            if controller is not None:
                pieces += controller.in_pieces(rows, run, beyond)
            else:
                pieces.append(run(beyond or chain, rows)[0])
        if self._on_failure == "raise" and source.failed_by:
            names = ", ".join(dict.fromkeys(source.failed_by.values())).replace("provider_", "")
            raise PurchaseFailedError(
                f"what {len(source.failed_by)} rows need could not be bought from {names}. Send it, or ask again later."
            )
        cost = reader.spent(everyone, ledger.calls(everyone))
        by_full = next(map(failure_reason, ledger.errors), "failed")
        reasons = {row: source.failed_by.get(row, by_full) for row in ledger.reasons}
        rows_of, route, outputs, sent = map(np.concatenate, zip(*pieces, strict=True))
        in_order = np.argsort(rows_of)
        costs = reader.costs(everyone, ledger.calls(everyone))
        named = {} if costs is None else {name: costs[name].to_numpy() for name in costs}
        answered = Answered(
            chain.task, route[in_order], outputs[in_order], cost, sent[in_order], reasons, costs=named
        )
        if chance_of_full is None:
            return answered
        bought = reader.cells(everyone)[0] | came
        order[~bought], propensity[~bought] = 0, 1.0
        order[came] = 1
        return replace(answered, purchases=Purchases(order, propensity, reader.delivered(everyone)))


def to_full(chain: Chain) -> Chain:
    """The chain at an operating point that sends every row to the full model."""
    return chain.at(Policy.of(np.full(len(chain.stages), -np.inf)))


def failure_reason(error: Exception) -> str:
    """Reason why the full model did not answer, as a word for metrics."""
    default = "bad_answer" if isinstance(error, InvalidAnswerError) else "failed"
    return str(getattr(error, "reason", default))


class _RequestSource:
    """The cells of a request, and what providers sell of those that it lacks.

    Attributes
    ----------
    seller_of : ndarray of shape (n_columns,)
        The number of each column's provider; -1 where none sells it.
    failed_by : dict of int to str
        Rows for which a purchase failed, and "provider_NAME".
    refusal : InvalidInputError, optional
        What is wrong with the request itself.
    """

    def __init__(self, buyer: Buyer, cells: RequestCells, chain: Chain, ends: float) -> None:
        self._cells, self._rows, self._providers = cells, buyer._rows, buyer._providers
        self.seller_of, self._ends = buyer._seller_of, ends
        self._needed, self._keeps_text = chain.bought_by_place[-1], chain.levels is not None
        self.failed_by: dict[int, str] = {}
        self.refusal: InvalidInputError | None = None

    def __len__(self) -> int:
        return len(self._cells)

    def fetch(self, rows: Ints, columns: Ints) -> Delivery:
        """Cells of columns that one provider, or none, sells."""
        try:
            if self.refusal is not None:
                raise self.refusal
            self._refuse_unreadable(rows, columns)
            return self._delivered(rows, columns)
        except InvalidInputError as error:
            self.refusal = error
            raise

    def _refuse_unreadable(self, rows: Ints, columns: Ints) -> None:
        """Refuse cells that came and cannot be read, and those that no provider sells, where the route reads them."""
        for column in columns.tolist():
            unreadable = self._cells.unreadable.get(column)
            if unreadable is None or not self._needed[column]:
                continue
            bad = unreadable.rows[rows]
            if self.seller_of[column] >= 0 and column in self._cells.absent:
                bad = bad & ~self._cells.absent[column][rows]
            if bad.any():
                row = int(rows[bad.argmax()])
                raise InvalidInputError(unreadable.why(unreadable.values[row], row + 1))

    def _delivered(self, rows: Ints, columns: Ints) -> Delivery:
        values = self._cells.numbers[np.ix_(rows, columns)]
        if self._keeps_text:
            values = values.astype(object)
            for place, column in enumerate(columns.tolist()):
                if column in self._cells.texts:
                    values[:, place] = [self._cells.texts[column][row] for row in rows.tolist()]
        nowhere = np.zeros(len(self._cells), dtype=bool)
        lacking = np.column_stack([self._cells.absent.get(one, nowhere)[rows] for one in columns.tolist()])
        paid = np.zeros(lacking.shape, dtype=bool)
        failed: dict[int, str] = {}
        if self.seller_of[columns[0]] >= 0:
            # Mostly one pattern: all rows of a request carry the same columns.
            for pattern in np.unique(lacking[lacking.any(axis=1)], axis=0):
                here = np.flatnonzero((lacking == pattern).all(axis=1))
                self._buy(rows, columns, here, np.flatnonzero(pattern), values, paid, failed)
        return Delivery(values, failed, paid)

    def _buy(
        self,
        rows: Ints,
        columns: Ints,
        here: Ints,
        lacking: Ints,
        values: Any,
        paid: Bools,
        failed: dict[int, str],
    ) -> None:
        """Buy some columns for some of the rows, and write down what came, what is billed and what failed."""
        provider = self._providers[self.seller_of[columns[0]]]
        keys = self._keys(provider, rows[here], columns[lacking[0]])
        first: dict[Any, int] = {}
        for place, key in enumerate(keys):
            first.setdefault(key, place)
        names = [self._rows.names[column] for column in columns[lacking]]
        bought = provider.buy(list(first), names, self._ends)
        numbers, wrong = self._rows.read_bought(bought.values, columns[lacking])
        is_text = [self._keeps_text and self._rows.is_text(name) for name in names]
        delivered = np.where(is_text, bought.values, numbers)
        place_of = {key: place for place, key in enumerate(first)}
        for number, key in enumerate(keys):
            place, row = place_of[key], int(rows[here[number]])
            why = bought.failed.get(place, wrong.get(place))
            values[here[number], lacking] = delivered[place]
            if why is not None:
                failed[row] = why
                self.failed_by[row] = f"provider_{provider.name}"
            elif first[key] == number:  # the rows of a request with the same key share one purchase
                paid[here[number], lacking] = bought.paid[place]

    def _keys(self, provider: "Provider", rows: Ints, column: int) -> list[Any]:
        key = provider.settings.key
        sent = self._cells.keys.get(key, ())
        keys = [sent[row] if len(sent) else None for row in rows.tolist()]
        if None in keys:
            row, name = int(rows[keys.index(None)]) + 1, self._rows.names[column]
            raise InvalidInputError(
                f"row {row} has neither column {name!r}, which its route reads, nor {key!r}, by which it is bought. "
                f"Send one of them."
            )
        return keys


class Provider:
    """Sells columns by key; may be asked by several threads.

    Parameters
    ----------
    name : str
        Its name in metrics.
    settings : ProviderSettings
        How it is asked.
    source : RetryingSource, optional
        What is asked about the keys of each request; None makes what the settings describe.

    Attributes
    ----------
    outcomes : Counter
        Rows, by whether what they needed was "bought", "cached" or "failed".
    failures : Counter
        Questions that failed, by the type of the error or the reason, and rows that were "not_delivered".
    """

    def __init__(self, name: str, settings: ProviderSettings, source: RetryingSource | None = None) -> None:
        self.name, self.settings = name, settings
        try:
            self._source = _source_of(settings) if source is None else source
        except InvalidInputError as error:
            raise InvalidInputError(f"[providers.{name}]: {error}") from error
        self._source.breaker = CircuitBreaker(max_in_flight=settings.max_in_flight)
        self.outcomes: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self._lock = Lock()
        self._kept: OrderedDict[Any, tuple[float, dict[str, Any]]] = OrderedDict()

    def buy(self, keys: Sequence[Any], names: Sequence[str], ends: float) -> Delivery:
        """Values of some columns for some keys, which differ, before a time of the monotonic clock."""
        source = self._source.over(keys, deadline=max(ends - time.monotonic(), 0.0))
        held = self._from_cache(keys)
        for name in names:
            cached = [place for place, cells in enumerate(held) if name in cells]
            if cached:
                values = np.array([held[place][name] for place in cached], dtype=object)
                source.keep(np.array(cached), [name], values[:, None])
        delivery = source.fetch(np.arange(len(keys)), names)
        is_new = delivery.paid.any(axis=1)
        with self._lock:
            self.failures.update(source.failures or Counter(not_delivered=len(delivery.failed)))
            self.outcomes["failed"] += len(delivery.failed)
            self.outcomes["bought"] += int(is_new.sum()) - len(delivery.failed)
            self.outcomes["cached"] += int((~is_new).sum())
        values = delivery.values.astype(object)  # numbers of Python, which the rules of requests are made for
        for place in np.flatnonzero(is_new).tolist():
            if self.settings.cache and place not in delivery.failed:
                self._to_cache(keys[place], {**held[place], **dict(zip(names, values[place], strict=True))})
        return replace(delivery, values=values)

    def _from_cache(self, keys: Sequence[Any]) -> list[dict[str, Any]]:
        now, nothing = time.monotonic(), (0.0, dict[str, Any]())
        with self._lock:
            kept = [self._kept.get(key, nothing) for key in keys]
        return [values if until > now else {} for until, values in kept]

    def _to_cache(self, key: Any, values: dict[str, Any]) -> None:
        with self._lock:
            now, (until, _) = time.monotonic(), self._kept.pop(key, (0.0, None))
            # What was kept before keeps its time: old values must not live on because others came.
            self._kept[key] = (until if until > now else now + self.settings.cache), values
            while len(self._kept) > self.settings.max_cached:
                self._kept.popitem(last=False)


def _source_of(settings: ProviderSettings) -> RetryingSource:
    """The source that settings describe, for keys that are still to come."""
    options: Any = {"timeout": settings.timeout, "retries": settings.retries}
    if settings.url is not None:
        return HttpSource(settings.url, [], headers=settings.headers, **options)
    if settings.database is not None:
        address = f"{Path(settings.database).resolve().as_uri()}?mode=ro"

        def connect() -> sqlite3.Connection:
            return sqlite3.connect(address, uri=True, timeout=settings.timeout)

        table = SqlSource(connect, str(settings.table), settings.key, [], columns=settings.names, **options)
        table.check(list(settings.names))
        return table
    return _FileSource(settings)


class _FileSource(RetryingSource):
    """Lines of a CSV or Parquet file by key, read once."""

    def __init__(self, settings: ProviderSettings) -> None:
        super().__init__(0, retries=0)
        frame = read_table(str(settings.path))
        for name in (settings.key, *settings.names.values()):
            if name not in frame.columns:
                raise InvalidInputError(
                    f"{settings.path} has no column {name!r}.{closest(name, [str(one) for one in frame.columns])}"
                )
        keys = frame[settings.key].tolist()
        if len(set(keys)) < len(keys):
            raise InvalidInputError(
                f"{settings.path} has a value of {settings.key!r} twice. Keys must differ."
            )
        self._line_of = {key: line for line, key in enumerate(keys)}
        self._columns = {name: frame[column].to_numpy() for name, column in settings.names.items()}

    def ask(self, rows: Ints, names: Sequence[Any]) -> Delivery:
        """Look the lines up."""
        lines = [self._line_of.get(self.keys[row]) for row in rows.tolist()]
        unknown = [row for row, line in zip(rows.tolist(), lines, strict=True) if line is None]
        places = np.array([line or 0 for line in lines])
        values = np.column_stack([self._columns[name][places].astype(object) for name in names])
        return Delivery(values, dict.fromkeys(unknown, "the file has no line with this key"))
