"""Sessions: one row whose features are given one purchase after another.

A session is the walk of a batch of one row, in which every column that was not given yet is a purchase that failed.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from thrifty.arrays import Ints
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.purchases.readers import Ledger, error_text
from thrifty.engine.purchases.receipts import PurchaseReader, answer_text, decision_text
from thrifty.engine.table.names import find_column
from thrifty.errors import FullModelFailedError, InvalidInputError, RowsLeftBehindError, ThriftyError
from thrifty.rows import key_words

__all__ = ["NextPurchase", "Session"]

_ROW = np.zeros(1, dtype=np.intp)


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
        self._source = _GivenCells({})
        self._reader: PurchaseReader = chain.buying(self._source, None, key_words([self.key], "key"))
        # A walk that begins anew only visits stages that the row has not seen.
        self._reader.visited = {}
        self._walk(self._source)

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
        again = [self._called([column])[0] for column in read if column in self._source.cells]
        if again:
            raise InvalidInputError(f"{again[0]!r} was given before. Start anew to give another value.")
        lacking = set(self._source.lacking)
        # What completes the next purchase is read by the walk; the rest must be readable too, needed or not.
        rest = sorted(read.keys() - lacking if lacking <= read.keys() else read)
        if rest:
            self._chain.buying(_GivenCells(read), None).read(_ROW, np.array(rest, dtype=np.intp))
        source = _GivenCells({**self._source.cells, **read})
        if lacking:
            self._walk(source)
        else:  # a settled row needs nothing more
            self._source = source
        return self

    @property
    def next_purchase(self) -> NextPurchase | None:
        """The next purchase to give; None once the row is settled."""
        lacking = self._source.lacking
        if not lacking:
            return None
        return NextPurchase(tuple(self._called(lacking)), self._price_of(lacking), self._why())

    @property
    def is_settled(self) -> bool:
        """Whether the row needs nothing more."""
        return not self._source.lacking

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
        return float(self._reader.spent(_ROW, self._ledger.calls(_ROW))[0])

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
        held = self._reader.cells(_ROW)[0]
        if prices.by_row is None and prices.discounts is None:
            return prices.cost_of(columns)
        every = held.copy()
        every[0, columns] = True
        before, after = (
            prices.cost_of_rows(used, np.zeros(1, dtype=bool), self._reader.amounts(_ROW))[0]
            for used in (held, every)
        )
        return float(after - before)

    def _walk(self, source: "_GivenCells") -> None:
        """Route the row as far as its purchases allow; the session changes only if nothing is refused."""
        ledger = Ledger("answer")
        reader = self._reader.with_source(source, ledger)
        route, outputs = self._chain.route_and_outputs(reader, _ROW)
        if ledger.errors:
            raise _of_full(ledger.errors[0]) if ledger.full_failed else ledger.errors[0]
        self._route, self._outputs = int(route[0]), outputs
        self._source, self._reader, self._ledger = source, reader, ledger

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
    """A source of one row: the cells that the user gave; a row that lacks one stays where it is."""

    def __init__(self, cells: Mapping[int, Any]) -> None:
        self.cells = cells
        self.lacking: list[int] = []

    def __len__(self) -> int:
        return 1

    def fetch(self, rows: Ints, columns: Ints) -> Any:
        """The cells as they were given."""
        self.lacking = [column for column in columns.tolist() if column not in self.cells]
        if self.lacking:
            raise RowsLeftBehindError(rows)
        cells = [self.cells[column] for column in columns.tolist()]
        is_number = all(isinstance(cell, float) for cell in cells)
        return np.array([cells] * len(rows), dtype=np.float64 if is_number else object)
