"""Sessions: one row whose features are given one purchase after another.

A session is the walk of a batch of one row, in which every column that was not given yet is a purchase that failed.
"""

import copy
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from thrifty.arrays import Bools, Floats, Ints, Words
from thrifty.chain.purchases import PurchaseReader, answer_text, decision_text
from thrifty.chain.readers import Ledger, error_text
from thrifty.errors import FullModelFailedError, InvalidInputError, RowsLeftBehindError, ThriftyError
from thrifty.prices.billing import PriceList
from thrifty.rows import key_words
from thrifty.tables.frames import find_column

__all__ = ["GivenRow", "NextPurchase", "Session"]


@dataclass(frozen=True)
class NextPurchase:
    """The next purchase that a row needs.

    Attributes
    ----------
    columns : tuple
        Names of the columns to give, or their numbers where the fit knew no names.
    price : float
        What they add to what was paid: the price of this row where prices differ by row, less what a discount saves.
    why : str
        Who reads them, and why the row is not answered yet.
    """

    columns: tuple[Any, ...]
    price: float
    why: str


class Session:
    """Prediction of one row, one purchase after another; made by ``start`` of an estimator or a chain.

    Parameters
    ----------
    chain : Chain
        What answers.
    key : object, optional
        Key of the row, which decides between two operating points where they are mixed; one is drawn unless given.

    Attributes
    ----------
    key : object
        The key of the row.
    """

    def __init__(self, chain: Any, key: Any = None) -> None:
        self._chain = chain
        # Were it the same for all sessions, all of them would follow the same point, and spend another budget.
        self.key = random.getrandbits(63) if key is None else key
        self._given = GivenRow(self.key, chain.price_list, chain.names, chain.buying)
        self._walk(self._given, is_new=True)

    def give(self, values: Mapping[Any, Any]) -> "Session":
        """Give values of columns, by name, and return this session; None or NaN is a value that is missing.

        Columns that were not asked for may be given too: they are paid for once the row needs them. Where something is
        refused, the session is as it was before.
        """
        if not isinstance(values, Mapping):
            raise InvalidInputError(
                f"give takes a mapping from columns to values, such as {{'age': 41}}; got {type(values).__name__}."
            )
        read = {}
        for name, value in values.items():
            column = find_column(name, self._chain.names, self._chain.price_list.n_features, "give")
            read[column] = _number(name, value) if self._chain.is_number(column) else value
        again = [self._called([column])[0] for column in read if column in self._given.cells]
        if again:
            raise InvalidInputError(f"{again[0]!r} was given before. Start anew to give another value.")
        self._walk(self._given.with_cells(read))
        return self

    @property
    def next_purchase(self) -> NextPurchase | None:
        """The next purchase to give; None once the row is settled."""
        lacking = self._given.lacking
        if not lacking:
            return None
        return NextPurchase(tuple(self._called(lacking)), self._price_of(lacking), self._why())

    @property
    def is_settled(self) -> bool:
        """Whether the row needs nothing more."""
        return not self._given.lacking

    @property
    def answer(self) -> Any:
        """The answer, or the one that would be given if the row stopped here; None before the first stage."""
        return self._chain.task.answers(self._outputs).tolist()[0] if self.route >= 0 else None

    @property
    def probability(self) -> float:
        """Probability of the answer; NaN for a number or without an answer."""
        return float(self._chain.task.confidence(self._outputs)[0]) if self.route >= 0 else float("nan")

    @property
    def cost(self) -> float:
        """What was paid so far."""
        return self._given.spent()

    @property
    def route(self) -> int:
        """The stage that gave the answer; the number of stages is the full model, and -1 is no answer yet."""
        return self._route

    def __repr__(self) -> str:
        answer = "no answer yet" if self.route < 0 else f"answer {answer_text(self.answer, self.probability)}"
        who = "" if self.route < 0 else f" by stage {self.route}"
        who = " by the full model" if self.route == self._chain.n_stages else who
        wanted = self.next_purchase
        if wanted is None:
            return f"Session(settled: {answer}{who}, paid {self.cost:g})"
        columns = ", ".join(map(str, wanted.columns[:5])) + (", ..." if len(wanted.columns) > 5 else "")
        return f"Session({answer}{who}, paid {self.cost:g}; next: {columns} for {wanted.price:g})"

    def _price_of(self, columns: Sequence[int]) -> float:
        """Increase of the bill by some more columns."""
        prices: PriceList = self._chain.price_list
        held = self._given.bought
        if prices.by_row is None and prices.discounts is None:
            return prices.cost_of(columns)
        every = held.copy()
        every[0, columns] = True
        before, after = (
            prices.cost_of_rows(used, np.zeros(1, dtype=bool), self._given.amounts)[0]
            for used in (held, every)
        )
        return float(after - before)

    def _walk(self, given: "GivenRow", *, is_new: bool = False) -> None:
        """Route the row as far as its purchases allow; the session changes only if nothing is refused."""
        if is_new or self._given.lacking:  # a settled row needs nothing more
            ledger = given.ledger = Ledger("answer")
            given.lacking = []
            route, outputs = self._chain.route_and_outputs(given, given.rows)
            if ledger.errors:
                raise _of_full(ledger.errors[0]) if ledger.full_failed else ledger.errors[0]
            self._route, self._outputs = int(route[0]), outputs
        self._given = given

    def _why(self) -> str:
        """The stage or model that reads the next columns, and the answer so far."""
        place = self.route + 1
        reader = "the full model" if place == self._chain.n_stages else f"stage {place}"
        if self.route < 0:
            return f"{reader} reads it, where every row starts"
        answer = answer_text(self.answer, self.probability)
        return f"{reader} reads it: stage {self.route} says {answer}; {decision_text(self.probability, goes_on=True)}"

    def _called(self, columns: Sequence[int]) -> list[Any]:
        names = self._chain.names
        return [column if names is None else names[column] for column in columns]


def _of_full(error: Exception) -> Exception:
    """Convert an error of the full model into one of thrifty that names the last answer."""
    if isinstance(error, ThriftyError):
        return error
    reason = error_text(error).rstrip(".")
    ours = FullModelFailedError(
        f"the full model failed on a row that is as it was fitted on: {reason}. The session is as it was before these "
        f"values, and its `answer` is that of the last stage. Give them again where the failure may pass, or another "
        f"full model with `with_full`."
    )
    ours.__cause__ = error
    return ours


def _number(name: Any, value: Any) -> float:
    """A value as a number; None is missing."""
    try:
        number = np.nan if value is None else float("x" if isinstance(value, str | bytes) else value)
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"{name!r} must be a number, or None where it is missing; got {value!r}."
        ) from None
    if np.isinf(number):
        raise InvalidInputError(
            f"{name!r} must be a finite number, or None where it is missing; got {value!r}."
        )
    return number


class _GivenCells:
    """A source of one row: the cells that the user gave last."""

    def __init__(self) -> None:
        self.cells: Mapping[int, Any] = {}

    def __len__(self) -> int:
        return 1

    def fetch(self, rows: Ints, columns: Ints) -> Any:
        """The cells as they were given."""
        cells = [self.cells[column] for column in columns.tolist()]
        is_number = all(isinstance(cell, float) for cell in cells)
        return np.array([cells] * len(rows), dtype=np.float64 if is_number else object)


class GivenRow:
    """A reader of one row: a column that was not given yet is a purchase that fails, and the walk stops there.

    Visits are remembered, so that a walk that begins anew only visits stages that the row has not seen.

    Parameters
    ----------
    key : object
        Key of the row.
    price_list : PriceList
        Which columns come in one purchase, and what it costs.
    names : tuple of str, optional
        Names of the columns.
    reading : callable
        Turns a source into what reads its answers as those of a batch are read.
    """

    is_at_hand = False

    def __init__(
        self,
        key: Any,
        price_list: PriceList,
        names: tuple[str, ...] | None,
        reading: Callable[[Any, Ledger | None], PurchaseReader],
    ) -> None:
        self.n_samples = 1
        self._key = key_words([key], "key")
        self.ledger: Ledger | None = None
        self.visited: dict[int, Any] | None = {}
        self.lacking: list[int] = []
        self.cells: dict[int, Any] = {}
        self.bought = np.zeros((1, price_list.n_features), dtype=bool)
        self.amounts: Floats | None = None
        self.rows, self._prices, self._names = np.zeros(1, dtype=np.intp), price_list, names
        self._source = _GivenCells()
        self._reader = reading(self._source, None)
        self._numbers = np.full((1, price_list.n_features), np.nan)
        self._raw = np.full((1, price_list.n_features), None, dtype=object)
        by_row = price_list.by_row
        self._looked_up = np.full((1, 0 if by_row is None else len(by_row)), np.nan)

    def with_cells(self, cells: Mapping[int, Any]) -> "GivenRow":
        """A copy of the row with more cells, parsed and checked as those of a batch."""
        columns, other = np.array(sorted(cells), dtype=np.intp), copy.copy(self)
        other.cells, other.visited = {**self.cells, **cells}, dict(self.visited or {})
        other.bought, other._looked_up = self.bought.copy(), self._looked_up.copy()
        other._numbers, other._raw = self._numbers.copy(), self._raw.copy()
        if len(columns):
            self._source.cells = cells
            kept = self._reader.read(self.rows, columns)
            other._numbers[:, columns] = kept.values
            other._raw[:, columns] = kept.values if kept.raw is None else kept.raw
        return other

    # -- as a reader -------------------------------------------------------------------------------

    def block(self, rows: Ints, columns: Ints) -> Floats:
        """The cells; missing ones are noted with the purchases that deliver them."""
        if self._prices.by_row is not None:
            self._look_up(rows, columns)
        self._pay(rows, columns)
        return np.repeat(self._numbers[:, columns], len(rows), axis=0)

    def table(self, rows: Ints, columns: Ints | None = None) -> Any:
        """The row as the full model reads it."""
        columns = np.arange(self._prices.n_features) if columns is None else columns
        self.block(rows, columns)
        return self._reader.as_table(self._numbers[:, columns], self._raw[:, columns], columns)

    def numbers_of(self, rows: Ints) -> Ints:
        """The number of the only row."""
        return rows

    def keys(self, rows: Ints) -> Words:
        """The key of the row as a word."""
        return self._key.repeat(len(rows))

    def is_whole(self, rows: Ints, columns: Ints) -> Bools:
        """Whether the row has a value in every one of some columns."""
        return np.full(len(rows), not np.isnan(self._numbers[:, columns]).any())

    def spent(self) -> float:
        """What was paid so far: what was needed and given, and the calls of the full model."""
        calls = np.zeros(1, dtype=np.intp) if self.ledger is None else self.ledger.calls(self.rows)
        cost = self._prices.cost_of_rows(self.bought, calls > 0, self.amounts)
        return float(cost[0] + self._prices.full_cost * max(int(calls[0]) - 1, 0))

    def _look_up(self, rows: Ints, columns: Ints) -> None:
        """Find what some purchases cost the row, before any of them is made."""
        by_row = self._prices.by_row
        assert by_row is not None  # asked for only where prices differ by row
        places = np.flatnonzero(np.isin(by_row.purchases, self._prices.group_of[columns]))
        if not len(places):
            return
        made = by_row.take(places)
        self._pay(rows, made.columns)
        new = np.flatnonzero(np.isnan(self._looked_up[0, places]))
        if len(new):
            unknown = made.take(new)
            found = unknown.amounts(
                1, lambda read: self._numbers[:, read], lambda read: self.table(self.rows, read)
            )
            self._looked_up[:, places[new]] = unknown.checked(found, self.rows, self._names)
            self.amounts = np.nan_to_num(self._looked_up)

    def _pay(self, rows: Ints, columns: Ints) -> None:
        """Make the purchases that deliver some columns, if all that they deliver was given."""
        group_of = self._prices.group_of
        wanted = np.flatnonzero(self._prices.bought_groups(columns)[group_of]).tolist()
        self.lacking = [column for column in wanted if column not in self.cells]
        if self.lacking:
            raise RowsLeftBehindError(rows)
        self.bought[0, wanted] = True
