"""Rows of a request that lack what their route needs: it is bought on the way, stage by stage, and answered from.

Whoever buys waits for providers, so all of this runs in a thread of its own. The walk, the bill and what becomes of
a row for which a purchase fails are those of ``buy``: the request is a source whose cells are at hand or sold by
somebody.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from thrifty.arrays import Bools, Floats, Ints
from thrifty.chain.chain import Chain
from thrifty.chain.sources import Delivery, Ledger
from thrifty.errors import InvalidAnswerError, InvalidInputError, PurchaseFailedError
from thrifty.serve.providers import Provider
from thrifty.serve.request_rows import RequestCells, RequestRows

__all__ = ["Buyer", "Purchased", "TakesTurns"]

AskFull = Callable[[Any, Any], Floats]


class TakesTurns(Protocol):
    """What holds a budget over rows whose costs are known only after they were bought for."""

    def begin(self, n_rows: int) -> tuple[int, Chain]:
        """How many of some rows go next, and the chain at the point that they follow."""

    def end(self, n_rows: int, costs: Floats) -> None:
        """Take note that rows which had begun are done, and of what they paid."""


@dataclass(frozen=True)
class Purchased:
    """What became of rows that were bought for.

    Attributes
    ----------
    route, outputs, cost : ndarray
        Who answered each row, -1 being nobody, with what, and what it really paid.
    sent : ndarray of shape (n_rows,), bool
        Rows that got to the full model.
    reasons : dict of int to str
        Why a row is degraded: "provider_NAME", or why the full model did not answer.
    """

    route: Ints
    outputs: Floats
    cost: Floats
    sent: Bools
    reasons: dict[int, str]

    def lost_by_full(self, n_stages: int) -> Ints:
        """Rows that only the full model failed."""
        is_lost = self.sent & (self.route < n_stages)
        bought = [not self.reasons.get(row, "").startswith("provider_") for row in range(len(self.route))]
        return np.flatnonzero(is_lost & np.array(bought))


class Buyer:
    """Buys for the rows of requests.

    Parameters
    ----------
    chain : Chain
        What answers.
    rows : RequestRows
        How rows, and what providers deliver, are read.
    providers : sequence of Provider
        Who sells columns.
    on_failure : {"answer", "skip", "raise"}
        What becomes of a row for which a purchase fails.
    deadline : float
        Seconds that all purchases of a request may take.
    """

    def __init__(
        self, chain: Chain, rows: RequestRows, providers: Sequence[Provider], on_failure: str, deadline: float
    ) -> None:
        if chain.buys_by_row:
            raise InvalidInputError(
                "the full model of this system decides node by node what a row needs, and providers are asked stage by "
                "stage. Leave out [providers], or serve another full model."
            )
        self._chain = replace(chain, names=rows.names)
        self._rows, self._providers = rows, tuple(providers)
        self._on_failure, self._deadline = on_failure, deadline
        self._seller_of = np.full(len(rows.names), -1)
        for number, provider in enumerate(providers):
            for name in provider.settings.names:
                self._seller_of[rows.place_of(name)] = number

    def is_needed(self, cells: RequestCells) -> bool:
        """Whether a request lacks something that can be bought."""
        return any(self._seller_of[column] >= 0 for column in cells.absent)

    def answer(self, cells: RequestCells, ask_full: AskFull, controller: TakesTurns | None) -> Purchased:
        """Answer the rows of a request, buying what they need."""
        chain = _with_innermost(self._chain, _Elsewhere(ask_full))
        ledger = Ledger(self._on_failure)
        source = _RequestSource(
            cells,
            self._rows,
            self._providers,
            self._seller_of,
            chain.bought_by_place[-1],
            time.monotonic() + self._deadline,
            keeps_text=chain.levels is not None,
        )
        reader, everyone = chain.buying(source, ledger, cells.row_keys), np.arange(len(cells))
        routes, outputs, sent, first = [], [], [], 0
        while first < len(cells):
            n_rows, point = (
                (len(cells), chain) if controller is None else controller.begin(len(cells) - first)
            )
            rows, costs = everyone[first : first + n_rows], np.zeros(0)
            try:
                walk = point.walk(reader, rows)
                sent.append(walk.route == chain.n_stages)
                route, said = chain.route_and_outputs(reader, rows, walk)
                if source.refusal is not None:
                    raise source.refusal
                # Calls count as answered: were a failed one worth nothing, an outage would send ever more rows on.
                costs = reader.spent(rows, sent[-1].astype(np.intp))
            finally:
                if controller is not None:
                    controller.end(n_rows, costs)
            routes.append(route)
            outputs.append(said)
            first += n_rows
        self._refuse_failed(source)
        cost = reader.spent(everyone, ledger.calls(everyone))
        reason = _reason_of_full(ledger.errors)
        reasons = {row: source.failed_by.get(row, reason) for row in ledger.reasons}
        return Purchased(np.concatenate(routes), np.concatenate(outputs), cost, np.concatenate(sent), reasons)

    def _refuse_failed(self, source: "_RequestSource") -> None:
        if self._on_failure == "raise" and source.failed_by:
            counts = Counter(source.failed_by.values())
            names = ", ".join(name.removeprefix("provider_") for name in counts)
            raise PurchaseFailedError(
                f"what {counts.total()} rows need could not be bought from {names}. Send it, or ask again later."
            )


@dataclass(frozen=True, eq=False)
class _Elsewhere:
    """A full model that another thread, or another machine, asks."""

    ask: AskFull

    def outputs(self, table: Any, numbers: Any) -> Floats:
        """What it says."""
        return self.ask(table, numbers)


class _RequestSource:
    """The cells of a request, and what providers sell of those that it lacks.

    Attributes
    ----------
    seller_of : ndarray of shape (n_columns,)
        The number of each column's provider; -1 where nobody sells it.
    failed_by : dict of int to str
        Rows for which a purchase failed, and whose it was.
    refusal : InvalidInputError, optional
        What is wrong with the request itself.
    """

    def __init__(
        self,
        cells: RequestCells,
        rows: RequestRows,
        providers: Sequence[Provider],
        seller_of: Ints,
        needed: Bools,
        ends: float,
        *,
        keeps_text: bool,
    ) -> None:
        self._cells, self._rows, self._providers = cells, rows, providers
        self.seller_of, self._needed, self._ends = seller_of, needed, ends
        self._keeps_text = keeps_text
        self.failed_by: dict[int, str] = {}
        self.refusal: InvalidInputError | None = None

    def __len__(self) -> int:
        return len(self._cells)

    def fetch(self, rows: Ints, columns: Ints) -> Delivery:
        """Cells of columns that one provider, or nobody, sells."""
        try:
            if self.refusal is not None:
                raise self.refusal
            self._refuse_unreadable(rows, columns)
            return self._delivered(rows, columns)
        except InvalidInputError as error:
            self.refusal = error
            raise

    def _refuse_unreadable(self, rows: Ints, columns: Ints) -> None:
        """Refuse cells that came and cannot be read, and those that nobody sells, where somebody reads them."""
        for column in columns.tolist():
            one = self._cells.unreadable.get(column)
            if one is None or not self._needed[column]:
                continue
            bad = one.rows[rows]
            if self.seller_of[column] >= 0 and column in self._cells.absent:
                bad = bad & ~self._cells.absent[column][rows]
            if bad.any():
                row = int(rows[bad.argmax()])
                raise InvalidInputError(one.why(one.values[row], row + 1))

    def _delivered(self, rows: Ints, columns: Ints) -> Delivery:
        values = self._cells.numbers[np.ix_(rows, columns)]
        if self._keeps_text:
            values = values.astype(object)
            for place, column in enumerate(columns.tolist()):
                texts = self._cells.texts.get(column)
                values[:, place] = (
                    self._rows.values_of(column, self._cells.numbers[rows, column])
                    if texts is None
                    else [texts[row] for row in rows.tolist()]
                )
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
        place_of = {key: place for place, key in enumerate(first)}
        for number, key in enumerate(keys):
            place, row = place_of[key], int(rows[here[number]])
            why = bought.failed.get(place)
            for column, value in zip(lacking if why is None else (), bought.values[place], strict=False):
                read, wrong = self._rows.from_provider(int(columns[column]), value)
                why = why or wrong
                is_text = self._keeps_text and self._rows.is_text(self._rows.names[columns[column]])
                values[here[number], column] = value if is_text else read
            if why is not None:
                failed[row] = why
                self.failed_by[row] = f"provider_{provider.name}"
            elif first[key] == number:  # the rows of a request with the same key share one purchase
                paid[here[number], lacking] = bought.paid[place]

    def _keys(self, provider: Provider, rows: Ints, column: int) -> list[Any]:
        key = provider.settings.key
        given = self._cells.keys.get(key, ())
        keys = [given[row] if len(given) else None for row in rows.tolist()]
        if None in keys:
            row, name = int(rows[keys.index(None)]) + 1, self._rows.names[column]
            raise InvalidInputError(
                f"row {row} has neither column {name!r}, which its route reads, nor {key!r}, by which it is bought. "
                f"Send one of them."
            )
        return keys


def _with_innermost(chain: Chain, full: Any) -> Chain:
    """The chain with another model at the end of all chains."""
    return chain.with_full(full if chain.behind is None else _with_innermost(chain.behind, full))


def _reason_of_full(errors: Sequence[Exception]) -> str:
    """Why the full model did not answer, in a word that can be counted."""
    for error in errors:
        if hasattr(error, "reason"):
            return str(error.reason)
        if isinstance(error, InvalidAnswerError):
            return "bad_answer"
    return "failed"
