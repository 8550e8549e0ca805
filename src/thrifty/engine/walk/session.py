"""Sessions: one row, one purchase after another.

``Session`` is the interface that all sessions share. That of a chain is the walk of a batch of one row, in which every
column that was not given yet is a purchase that failed; that of a router is in ``model_session``.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from thrifty.arrays import Ints
from thrifty.engine.prices.billing import PriceList, check_amount, costs_text
from thrifty.engine.purchases.readers import Ledger, error_text
from thrifty.engine.purchases.receipts import Purchase, PurchaseReader, answer_text, decision_text
from thrifty.engine.table.table import find_column
from thrifty.errors import FullModelFailedError, InvalidInputError, RowsLeftBehindError, ThriftyError
from thrifty.rows import key_words

_ROW = np.zeros(1, dtype=np.intp)


class Session(ABC):
    """Prediction of one row, one purchase after another; made by ``start`` of an estimator, a chain or a router.

    Attributes
    ----------
    next_purchase : Purchase or None
        The next purchase to make; None once the row is settled.
    answer : object
        The answer, or the one that would be given if the row stopped here; None before the first one.
    cost : float
        Cost of the purchases so far.
    """

    next_purchase: Purchase | None
    answer: Any
    cost: float

    @property
    def is_settled(self) -> bool:
        """True if the row needs nothing more."""
        return self.next_purchase is None

    @abstractmethod
    def give(self, values: Any, /) -> Self:
        """Give the result of the next purchase, and return this session."""

    @abstractmethod
    def fail(self, cost: float = 0.0) -> Self:
        """Report that the next purchase failed, and what that cost, and return this session."""

    @abstractmethod
    def propensity(self, name: Any) -> float:
        """Probability of a purchase, over the operating points that are mixed, given what is known of the row.

        A point that would first make a purchase of which nothing is known counts as one without the purchase.
        """

    @abstractmethod
    def _lines(self) -> list[str]:
        """Purchases so far, a line each."""

    @abstractmethod
    def _answered(self) -> str:
        """The answer and its source, in words; empty without an answer."""

    def _last_line(self) -> str:
        return f"answered {self._answered()} for {self._paid}" if self._answered() else "no answer"

    @property
    def _paid(self) -> str:
        """Cost of the purchases so far, in words."""
        return f"{self.cost:g}"

    def explain(self) -> str:
        """Explain what was bought, paid and decided, a line for each purchase."""
        wanted = self.next_purchase
        if wanted is not None:
            verb = "buy" if wanted.columns else "ask"
            return "\n".join([*self._lines(), f"next: {verb} {wanted.name}"])
        return "\n".join([*self._lines(), self._last_line()])

    def __repr__(self) -> str:
        answer, wanted = self._answered(), self.next_purchase
        answer = f"answer {answer}" if answer else "no answer yet"
        if wanted is None:
            return f"Session(settled: {answer}, paid {self._paid})"
        names = list(map(str, wanted.columns)) or [wanted.name]
        shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        price = f"{wanted.price:g}" if wanted.prices is None else costs_text(wanted.prices)
        return f"Session({answer}, paid {self._paid}; next: {shown} for {price})"


class ChainSession(Session):
    """Prediction of one row whose columns are given one purchase after another.

    Parameters
    ----------
    chain : Chain
        Chain that answers.
    key : object, optional
        Key of the row, which decides between two operating points where they are mixed; one is drawn unless given.

    Attributes
    ----------
    key : object
        The key of the row.
    """

    def __init__(self, chain: Any, key: Any = None) -> None:
        self._chain = chain
        self._steps: list[str] = []
        self._failed_cost: float | None = None
        # Were it the same for all sessions, all of them would follow the same point, and spend another budget.
        self.key = random.getrandbits(63) if key is None else key
        self._source = _GivenCells({})
        self._reader: PurchaseReader = chain.buying(self._source, None, key_words([self.key], "key"))
        # A walk that begins anew only visits stages that the row has not visited.
        self._reader.visited = {}
        self._walk(self._source)

    def give(self, values: Mapping[Any, Any]) -> Self:
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
            read[column] = _number(name, value) if self._chain.schema.is_number(column) else value
        again = [self._called([column])[0] for column in read if column in self._source.cells]
        if again:
            raise InvalidInputError(f"{again[0]!r} was given before. Start anew to give another value.")
        lacking = set(self._source.lacking)
        # What completes the next purchase is read by the walk; the rest must be readable too, needed or not.
        rest = sorted(read.keys() - lacking if lacking <= read.keys() else read)
        if rest:
            self._chain.buying(_GivenCells(read), None).read(_ROW, np.array(rest, dtype=np.intp))
        source = _GivenCells({**self._source.cells, **read})
        if lacking and self._failed_cost is None:
            self._walk(source)
        else:  # a settled row needs nothing more
            self._source = source
        return self

    def fail(self, cost: float = 0.0) -> Self:
        """Report that the next purchase cannot be made, and what that cost: the last stage answers, as in ``buy``."""
        if self.next_purchase is not None:
            self._failed_cost = check_amount("cost", cost)
            self._steps.append(f"{self._name_of(self._source.lacking)} failed (paid {self._paid})")
        return self

    @property
    def next_purchase(self) -> Purchase | None:  # type: ignore[override]  # read only
        """The next purchase to make; None once the row is settled."""
        lacking = self._source.lacking
        if not lacking or self._failed_cost is not None:
            return None
        names = tuple(self._called(lacking))
        resources = self._chain.price_list.resources
        prices = None
        if resources is not None:
            prices = {
                name: float(each.prices[each.group_of[lacking]].max())
                if name in resources.delays
                else self._price_of(lacking, each)
                for name, each in zip(resources.names, resources.lists, strict=True)
            }
        price = self._price_of(lacking, self._chain.price_list)
        return Purchase(self._name_of(lacking), price, names, self._why(), prices)

    @property
    def answer(self) -> Any:
        """The answer, or the one that would be given if the row stopped here; None before the first stage."""
        return self._chain.task.answers(self._outputs).tolist()[0] if self.route >= 0 else None

    @property
    def probability(self) -> float:
        """Probability of the answer; NaN for a number or without an answer."""
        return float(self._chain.task.confidence(self._outputs)[0]) if self.route >= 0 else float("nan")

    @property
    def cost(self) -> float:  # type: ignore[override]  # read only
        """Cost of the purchases so far."""
        return float(self._reader.spent(_ROW, self._ledger.calls(_ROW))[0]) + (self._failed_cost or 0.0)

    @property
    def costs(self) -> dict[str, float] | None:
        """Cost of the purchases so far in each of several resources; None where there is one."""
        costs = self._chain._paid(self._reader, self._latest, self._ledger.calls(_ROW))
        return None if costs is None else dict(costs.iloc[0])

    @property
    def _paid(self) -> str:
        return f"{self.cost:g}" if self.costs is None else costs_text(self.costs)

    @property
    def route(self) -> int:
        """The stage that gave the answer; the number of stages is the full model, and -1 is no answer yet."""
        return self._route

    def propensity(self, name: Any) -> float:
        """Probability of buying a column, over the operating points that are mixed, given the values so far.

        A point that would first buy columns whose values are not known counts as one that does not buy this one.
        """
        chain, total = self._chain, 0.0
        column = find_column(name, chain.names, chain.price_list.n_features, "propensity")
        policy = chain.policy
        for weight, point in policy.in_force:
            source = _GivenCells(self._source.cells)
            reader = chain.buying(source, Ledger("answer"), key_words([self.key], "key"))
            stop = int(chain.at(replace(policy.at(point), explore=0.0)).walk(reader).route[0])
            read_by_full = chain.price_list.read_by_full.tolist() if stop == chain.n_stages else ()
            if column in source.asked or column in read_by_full:
                total += weight
            elif policy.explore and not source.lacking and 0 <= stop < chain.n_own_stages:
                bought = chain.bought_by_place[chain.first_places, column]
                if bought.any():
                    total += weight * policy.at(point).reached(int(bought.argmax()), np.full((1, 2), stop))[0]
        return total

    def _lines(self) -> list[str]:
        return self._steps

    def _answered(self) -> str:
        if self.route < 0:
            return ""
        by = "the full model" if self.route == self._chain.n_stages else f"stage {self.route}"
        return f"{answer_text(self.answer, self.probability)} by {by}"

    def _price_of(self, columns: Sequence[int], prices: PriceList) -> float:
        """Increase of the bill by some more columns."""
        held = self._reader.cells(_ROW)[0]
        if prices.by_row is None and prices.discounts is None:
            return prices.cost_of(columns)
        with_more = held.copy()
        with_more[0, columns] = True
        before, after = (
            prices.cost_of_rows(used, np.zeros(1, dtype=bool), self._reader.amounts(_ROW))[0]
            for used in (held, with_more)
        )
        return float(after - before)

    def _walk(self, source: "_GivenCells") -> None:
        """Route the row as far as its purchases allow; the session changes only if nothing is refused."""
        ledger = Ledger("answer")
        reader = self._reader.with_source(source, ledger)
        walk, outputs = self._chain.answered(reader, self._chain.walk(reader, _ROW))
        if ledger.errors:
            raise _of_full(ledger.errors[0]) if ledger.full_failed else ledger.errors[0]
        self._route, self._outputs, self._latest = int(walk.route[0]), outputs, walk
        self._source, self._reader, self._ledger = source, reader, ledger
        if source.delivered:
            self._steps.append(
                f"{self._name_of(source.delivered)} (paid {self._paid}); {self._answered() or 'no answer yet'}; "
                f"{self._decision(goes_on=bool(source.lacking))}"
            )

    def _why(self) -> str:
        """The stage or model that reads the next columns, and the answer so far."""
        place = self.route + 1
        reader = "the full model" if place == self._chain.n_stages else f"stage {place}"
        if self.route < 0:
            return f"{reader} reads it, where every row starts"
        answer = answer_text(self.answer, self.probability)
        return f"{reader} reads it: stage {self.route} says {answer}; {self._decision(goes_on=True)}"

    def _decision(self, *, goes_on: bool) -> str:
        """Reason why the row goes on from its last stage, or stops."""
        chain, place, visited = self._chain, self.route, self._reader.visited or {}
        while chain.behind and place >= chain.n_own_stages:
            chain, place = chain.behind, place - chain.n_own_stages
        point = ""
        if 0 <= place < chain.n_own_stages:
            gates = [float(visited[id(stage)][1][0]) for stage in chain.stages[: place + 1]]
            key = self._reader.keys(_ROW)
            point = chain.policy.reason(gates, key, int(chain.policy.follows(key)[0]))
        return decision_text(self.probability, goes_on=goes_on, point=point)

    def _name_of(self, columns: Sequence[int]) -> str:
        return ", ".join(map(str, self._called(columns)))

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
    """A source of one row: the cells that the user gave; a row that lacks a cell stays at its stage."""

    def __init__(self, cells: Mapping[int, Any]) -> None:
        self.cells = cells
        self.asked: set[int] = set()
        self.delivered: list[int] = []
        self.lacking: list[int] = []

    def __len__(self) -> int:
        return 1

    def fetch(self, rows: Ints, columns: Ints) -> Any:
        """The cells as they were given."""
        self.asked.update(columns.tolist())
        self.lacking = [column for column in columns.tolist() if column not in self.cells]
        if self.lacking:
            raise RowsLeftBehindError(rows)
        self.delivered += columns.tolist()
        cells = [self.cells[column] for column in columns.tolist()]
        is_number = all(isinstance(cell, float) for cell in cells)
        return np.array([cells] * len(rows), dtype=np.float64 if is_number else object)
