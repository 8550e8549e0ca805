"""One row at a time: what to buy next, and the answer once nothing more is worth its price.

A session is the walk of one row whose purchases are made by somebody else: whenever the row needs a column that it was
not given, the walk stops there, and begins anew once it has it; stages that were met before are remembered. So the row
goes the way that it would go in a batch.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from thrifty.arrays import Floats, Ints
from thrifty.chain.columns import number_of
from thrifty.chain.given_row import GivenRow
from thrifty.chain.ledger import Ledger, told
from thrifty.chain.purchase_reader import PurchaseReader
from thrifty.chain.receipts import in_words, verdict
from thrifty.chain.sources import Reader
from thrifty.errors import FullModelFailedError, InvalidInputError, ThriftyError
from thrifty.prices.billing import PriceList
from thrifty.tasks.task import Task

__all__ = ["NextPurchase", "Session"]


class Served(Protocol):
    """A chain as a session sees it."""

    @property
    def price_list(self) -> PriceList:
        """What purchases cost."""

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns."""

    def is_number(self, column: int) -> bool:
        """Whether a column holds plain numbers, and neither text nor dates nor truth values."""

    @property
    def task(self) -> Task:
        """What is answered."""

    @property
    def n_stages(self) -> int:
        """Number of stages in front of the full model."""

    def buying(self, source: Any, ledger: Ledger | None) -> PurchaseReader:
        """Read from a source that counts its columns as the fit does."""

    def route_and_outputs(self, reader: Reader, rows: Ints) -> tuple[Ints, Floats]:
        """Who answers some rows, -1 being nobody, and with what."""


@dataclass(frozen=True)
class NextPurchase:
    """What a row needs next.

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
    """The way of one row, one purchase after another; made by ``start`` of an estimator or a chain.

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

    def __init__(self, chain: Served, key: Any = None) -> None:
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
            column = number_of(name, self._chain.names, self._chain.price_list.n_features, "give")
            read[column] = _number(name, value) if self._chain.is_number(column) else value
        again = [self._called([column])[0] for column in read if column in self._given.cells]
        if again:
            raise InvalidInputError(f"{again[0]!r} was given before. Start anew to give another value.")
        self._walk(self._given.with_cells(read))
        return self

    @property
    def next_purchase(self) -> NextPurchase | None:
        """What to give next; None once the row is settled."""
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
        """Probability of the answer; NaN where there is none."""
        return float(self._chain.task.confidence(self._outputs)[0]) if self.route >= 0 else float("nan")

    @property
    def cost(self) -> float:
        """What was paid so far."""
        return self._given.spent()

    @property
    def route(self) -> int:
        """The stage that gave the answer; the number of stages is the full model, and -1 is nobody yet."""
        return self._route

    def __repr__(self) -> str:
        said = "no answer yet" if self.route < 0 else f"answer {in_words(self.answer, self.probability)}"
        who = "" if self.route < 0 else f" by stage {self.route}"
        who = " by the full model" if self.route == self._chain.n_stages else who
        wanted = self.next_purchase
        if wanted is None:
            return f"Session(settled: {said}{who}, paid {self.cost:g})"
        columns = ", ".join(map(str, wanted.columns[:5])) + (", ..." if len(wanted.columns) > 5 else "")
        return f"Session({said}{who}, paid {self.cost:g}; next: {columns} for {wanted.price:g})"

    def _price_of(self, columns: Sequence[int]) -> float:
        """What the bill grows by with some more columns."""
        prices, held = self._chain.price_list, self._given.bought
        if prices.by_row is None and prices.discounts is None:
            return prices.cost_of(columns)
        every = held.copy()
        every[0, columns] = True
        before, after = (
            prices.cost_of_rows(used, np.zeros(1, dtype=bool), self._given.amounts)[0]
            for used in (held, every)
        )
        return float(after - before)

    def _walk(self, given: GivenRow, *, is_new: bool = False) -> None:
        """Send the row as far as it can be bought for; the session changes only if nothing is refused."""
        if is_new or self._given.lacking:  # a settled row needs nothing more
            ledger = given.ledger = Ledger("answer")
            given.lacking = []
            route, outputs = self._chain.route_and_outputs(given, given.rows)
            if ledger.errors:
                raise _of_full(ledger.errors[0]) if ledger.full_failed else ledger.errors[0]
            self._route, self._outputs = int(route[0]), outputs
        self._given = given

    def _why(self) -> str:
        """Who reads the next columns, and what was said so far."""
        place = self.route + 1
        reader = "the full model" if place == self._chain.n_stages else f"stage {place}"
        if self.route < 0:
            return f"{reader} reads it, where every row starts"
        said = in_words(self.answer, self.probability)
        return f"{reader} reads it: stage {self.route} says {said}; {verdict(self.probability, goes_on=True)}"

    def _called(self, columns: Sequence[int]) -> list[Any]:
        names = self._chain.names
        return [column if names is None else names[column] for column in columns]


def _of_full(error: Exception) -> Exception:
    """An error of the full model as one of ours, which says what the row still has."""
    if isinstance(error, ThriftyError):
        return error
    reason = told(error).rstrip(".")
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
