"""Purchases from a source, made when a route needs them and never twice, and the receipt of a batch.

A purchase delivers all columns of its group. Deliveries and failures are both kept: neither is requested again. This
module alone computes the cost of a row, from the purchases that were delivered to it.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from thrifty.arrays import Bools, Floats, Ints, Labels, Words
from thrifty.engine.prices.billing import PriceList, RowPrices, costs_text
from thrifty.engine.purchases.readers import Delivery, FeatureSource, Ledger, error_text
from thrifty.engine.table.reader import Schema
from thrifty.engine.table.table import Table
from thrifty.errors import FULL_MODEL, InvalidInputError, PurchaseFailedError, RowsLeftBehindError


@dataclass(frozen=True)
class Purchase:
    """A purchase: a group of columns, or the answer of a model.

    Attributes
    ----------
    name : str
        Name of the model, or of the columns.
    price : float
        Increase of the cost of the row: for columns the price of this row where prices differ by row, less what a
        discount saves; for an answer its price, or its expected cost.
    columns : tuple
        Columns that it brings: their names, or their numbers where the fit knew no names. Empty for an answer.
    why : str
        Reader of the columns, or the row's state, and why the row is not answered yet.
    prices : dict of str to float, optional
        Price in each of several resources; ``price`` is then their sum at the exchange rates of the fit.
    at_once : tuple of str
        Models that are asked at the same time as this one, so that they wait together; empty where it is alone.
    limit : float, optional
        Seconds that the model may take, where costs are run times; call ``fail(cost=seconds)`` once they are over.
    """

    name: str
    price: float
    columns: tuple[Any, ...] = ()
    why: str = ""
    prices: dict[str, float] | None = None
    at_once: tuple[str, ...] = ()
    limit: float | None = None


@dataclass(frozen=True)
class _Delivered:
    """Delivery of one request: values of some columns, for some rows, both in rising order.

    Attributes
    ----------
    rows, columns : ndarray of int
        Cells that were asked for.
    values : ndarray of shape (n_rows, n_columns)
        Values as numbers; NaN where nothing was delivered.
    failed : ndarray of shape (n_rows,), bool
        Rows that nothing was delivered for.
    paid : ndarray of shape (n_rows, n_columns), bool
        Cells that the source bills.
    raw : ndarray of shape (n_rows, n_columns), object, or None
        Values as they were delivered, where columns hold text or categories.
    """

    rows: Ints
    columns: Ints
    values: Floats
    failed: Bools
    paid: Bools
    raw: Any = None


class PurchaseReader:
    """Reader that buys from a source what a route needs, when it needs it, once.

    A purchase delivers all columns of its group, so the source is asked for all of them together. Memory is taken for
    the cells delivered, not for the whole table.

    Parameters
    ----------
    source : FeatureSource
        Source of the values. A true ``by_group`` marks one that is asked for a single purchase at a time; an array
        ``seller_of`` numbers the seller of each column, where there are several: they are asked separately, so that a
        failure of one does not lose the delivery of another.
    price_list : PriceList
        Columns of each purchase, and its price.
    schema : Schema
        Columns of the fit, by which answers are read, and made into the table that the full model reads.
    names : sequence of str, optional
        Names of the columns, by which a data frame is read that a source answers with.
    ledger : Ledger, optional
        Keeps what fails; without one, every error is raised as it is.
    row_keys : ndarray of shape (n_rows,), optional
        Keys of the rows as words; their places in the source, unless given.
    """

    is_at_hand = False
    visited: dict[int, Any] | None = None

    def __init__(
        self,
        source: FeatureSource,
        price_list: PriceList,
        schema: Schema,
        names: Sequence[str] | None = None,
        ledger: Ledger | None = None,
        row_keys: Words | None = None,
    ) -> None:
        self._schema = schema
        # Text that the fit has not seen has no number, but the full model may read it.
        self._keeps_raw = schema.levels is not None
        self._source = source
        self._price_list = price_list
        self._group_of = price_list.group_of
        by_group = bool(getattr(source, "by_group", False))
        self._asked_apart: Ints | None = self._group_of if by_group else getattr(source, "seller_of", None)
        self._names = names
        self._kept: list[_Delivered] = []
        self._amounts: Floats | None = None
        self.ledger = ledger
        self.n_samples = len(source)
        self._keys = np.arange(self.n_samples, dtype=np.uint64) if row_keys is None else row_keys

    def with_source(self, source: FeatureSource, ledger: Ledger) -> "PurchaseReader":
        """The reader with all that was delivered, in front of another source."""
        other = copy.copy(self)
        other._source, other.ledger, other._kept = source, ledger, list(self._kept)
        other._amounts = None if self._amounts is None else self._amounts.copy()
        other.visited = None if self.visited is None else dict(self.visited)
        return other

    def block(self, rows: Ints, columns: Ints) -> Any:
        """Buy the missing ones of these cells, and return all of them."""
        if len(rows) and len(columns):
            able = rows if self._price_list.by_row is None else self._with_prices(rows, columns)
            if len(able):
                self._buy(able, self._columns_of_purchases(columns))
        values, bought = self._delivered(rows, columns)
        if self.ledger is not None and self.ledger.on_failure != "skip" and not bought.all():
            raise RowsLeftBehindError(rows[~bought.all(axis=1)])
        return values

    def part(self, rows: Ints, columns: Ints | None = None) -> Table:
        """Buy the missing cells of these columns, and return them as the kind of table the full model reads."""
        columns = np.arange(len(self._group_of)) if columns is None else columns
        numbers = self.block(rows, columns)
        return Table(None, self._as_given(numbers, rows, columns))

    def _as_given(self, numbers: Floats, rows: Ints, columns: Ints) -> Any:
        """Cells that were bought, as the kind of table of the fit."""
        raw = np.full(numbers.shape, None, dtype=object)
        for kept, cells, places in self._requests(rows, columns) if self._keeps_raw else ():
            raw[cells] = kept.raw[places]
        texts = dict(zip(columns.tolist(), raw.T, strict=True)) if self._keeps_raw else None
        return self._schema.table(numbers, columns, texts)

    def numbers_of(self, rows: Ints) -> Ints:
        """Places in the source."""
        return rows

    def keys(self, rows: Ints) -> Words:
        """Keys of these rows as words."""
        return self._keys[rows]

    def delivered(self, rows: Ints) -> Any:
        """All columns of some rows as the kind of table of the fit, blank where nothing was delivered."""
        columns = np.arange(len(self._group_of))
        return self._as_given(self._delivered(rows, columns)[0], rows, columns)

    # -- deliveries and costs ---------------------------------------------------------------------------

    def is_whole(self, rows: Ints, columns: Ints) -> Bools:
        """Rows that have a value in every one of some columns."""
        whole: Bools = np.all(~np.isnan(self._delivered(rows, columns)[0]), axis=1)
        return whole

    def cells(self, rows: Ints) -> tuple[Bools, Bools]:
        """Masks of the columns of some rows that were delivered, and that failed: (n_rows, n_features) each."""
        everything = np.arange(len(self._group_of))
        return self._delivered(rows, everything)[1], self._marked(rows, lambda kept: kept.failed[:, None])

    def spent(self, rows: Ints, calls: Ints) -> Floats:
        """Cost of some rows: the purchases that were delivered and billed, and the calls of the full model."""
        paid = self._marked(rows, lambda kept: kept.paid & ~kept.failed[:, None])
        cost = self._price_list.cost_of_rows(paid, calls > 0, self.amounts(rows))
        again: Floats = cost + self._price_list.full_cost * np.maximum(calls - 1, 0)
        return again

    def costs(self, rows: Ints, calls: Ints) -> Any:
        """The same in each of several resources, as a data frame; None where there is one."""
        resources = self._price_list.resources
        if resources is None:
            return None
        paid = self._marked(rows, lambda kept: kept.paid & ~kept.failed[:, None])
        again = np.outer(np.maximum(calls - 1, 0), [each.full_cost for each in resources.lists])
        return resources.named(self._price_list.costs_of_rows(paid, calls > 0) + again)

    def amounts(self, rows: Ints) -> Floats | None:
        """Prices of the purchases whose price differs by row, for some rows; 0 where they were not looked up."""
        # The price of a purchase was looked up before it was made, and price functions are called once.
        return None if self._amounts is None else np.nan_to_num(self._amounts[rows])

    def _marked(self, rows: Ints, mark: Callable[[_Delivered], Bools]) -> Bools:
        marked = np.zeros((len(rows), len(self._group_of)), dtype=bool)
        for kept in self._kept:
            row, row_place = _places(kept.rows, rows)
            marked[row[:, None], kept.columns] |= mark(kept)[row_place]
        return marked

    def _delivered(self, rows: Ints, columns: Ints) -> tuple[Floats, Bools]:
        """Values of some cells, NaN where nothing was bought, and which were bought."""
        values = np.full((len(rows), len(columns)), np.nan)
        bought = np.zeros(values.shape, dtype=bool)
        for kept, cells, places in self._requests(rows, columns):
            values[cells] = kept.values[places]
            bought[cells] = ~kept.failed[places[0]]
        return values, bought

    def _requests(self, rows: Ints, columns: Ints) -> Iterator[tuple[_Delivered, Any, Any]]:
        """Requests that delivered some of these cells, and the places of the cells in them."""
        for kept in self._kept:
            row, row_place = _places(kept.rows, rows)
            column, column_place = _places(kept.columns, columns)
            if row.size and column.size:
                yield kept, (row[:, None], column), (row_place[:, None], column_place)

    # -- asking ------------------------------------------------------------------------------------

    def _columns_of_purchases(self, columns: Ints) -> Ints:
        """All columns of the purchases that deliver some columns."""
        return np.flatnonzero(self._price_list.bought_groups(columns)[self._group_of])

    def _with_prices(self, rows: Ints, columns: Ints) -> Ints:
        """Look up the prices of some purchases for each row, and return the rows that have all of them."""
        by_row, group_of = self._price_list.by_row, self._group_of
        assert by_row is not None  # asked for only where prices differ by row
        places = np.flatnonzero(np.isin(by_row.purchases, group_of[columns]))
        if not len(places):
            return rows
        made = by_row.take(places)
        self._buy(rows, self._columns_of_purchases(made.columns))
        has_price: Bools = np.all(self._delivered(rows, made.columns)[1], axis=1)
        amounts = self._looked_up(rows, has_price, places)
        able = made.is_priced(amounts)
        for place in np.flatnonzero(~able & has_price):
            refused = made.refusal(amounts[place], int(rows[place]), self._names)
            if self.ledger is None or int(rows[place]) not in self.ledger.reasons:
                self._fail(rows[[place]], refused)
        # Nothing is bought at a price that is not known.
        unpriced = np.flatnonzero(np.isin(group_of, made.purchases))
        left = rows[~able & ~self._marked(rows, lambda kept: kept.failed[:, None])[:, unpriced].all(axis=1)]
        if len(left):
            self._keep([_nothing(left, unpriced, has_raw=self._keeps_raw)])
        return rows if self.ledger is None or self.ledger.on_failure == "skip" else rows[able]

    def _looked_up(self, rows: Ints, has_price: Bools, places: Ints) -> Floats:
        """Prices of some purchases for the rows whose price is known; NaN for the others."""
        by_row = self._price_list.by_row
        assert by_row is not None  # asked for only where prices differ by row
        if self._amounts is None:
            self._amounts = np.full((self.n_samples, len(by_row)), np.nan)
        for place in places:
            asked = rows[has_price & np.isnan(self._amounts[rows, place])]
            if len(asked):
                self._amounts[asked, place] = self._price_of(by_row.take([place]), asked)
        return self._amounts[np.ix_(rows, places)]

    def _price_of(self, price: RowPrices, rows: Ints) -> Floats:
        """Price of one purchase for some rows; an error of the user's price function is a failure of these rows."""
        try:
            amounts = price.amounts(
                len(rows),
                lambda columns: self._delivered(rows, columns)[0],
                lambda columns: self.part(rows, columns).native,
            )
        except Exception as error:
            if self.ledger is None:
                raise
            self.ledger.note(rows, error_text(error), error)
            return np.full(len(rows), np.nan)
        return amounts[:, 0]

    def _buy(self, rows: Ints, columns: Ints) -> None:
        lacking = ~self._delivered(rows, columns)[1]
        if self.ledger is not None and self.ledger.reasons:
            lacking &= ~self._marked(rows, lambda kept: kept.failed[:, None])[:, columns]
        # In a chain always, and cheaper than to sort the rows.
        if len(rows) == 1 or (lacking == lacking[0]).all():
            patterns, pattern_of = lacking[:1], np.zeros(len(rows), dtype=np.intp)
        else:
            patterns, pattern_of = np.unique(lacking, axis=0, return_inverse=True)
        for number, pattern in enumerate(patterns):
            waiting = rows if len(patterns) == 1 else rows[pattern_of.reshape(-1) == number]
            wanted = columns[pattern]
            seller = np.zeros(len(wanted)) if self._asked_apart is None else self._asked_apart[wanted]
            for question in [wanted[seller == one] for one in dict.fromkeys(seller.tolist())]:
                if len(waiting):
                    waiting = self._fetch(waiting, question)

    def _fetch(self, rows: Ints, columns: Ints) -> Ints:
        """Request some columns of some rows, and return the rows that did not fail."""
        ledger, parts = self.ledger, list[_Delivered]()
        try:
            for part in [rows] if ledger is None else ledger.parts(rows):
                if ledger is None:
                    parts.append(self.read(part, columns))
                elif ledger.is_closed:
                    ledger.note(part, "nothing more was asked for, because something else had failed before")
                else:
                    try:
                        parts.append(self.read(part, columns))
                    except RowsLeftBehindError:  # of a session: the rows may go on later
                        raise
                    except Exception as error:  # a user's source may raise anything
                        ledger.note(part, error_text(error), error)
                        parts.append(_nothing(part, columns, has_raw=self._keeps_raw))
        finally:
            # Also before an interrupt: deliveries have been paid for.
            if parts:
                self._keep(parts)
        if parts and (ledger is None or ledger.on_failure == "skip"):
            return rows
        return np.concatenate([rows[:0], *(part.rows[~part.failed] for part in parts)])

    def _keep(self, parts: Sequence[_Delivered]) -> None:
        """Keep the parts of a delivery, joined with an earlier one of the same rows, which makes look-ups faster."""
        kept = _joined(parts)
        last = self._kept[-1] if self._kept else None
        is_alike = last is not None and np.array_equal(last.rows, kept.rows)
        if last is not None and is_alike and np.array_equal(last.failed, kept.failed):
            columns = np.concatenate([last.columns, kept.columns])
            order = np.argsort(columns)
            values, paid = np.hstack([last.values, kept.values]), np.hstack([last.paid, kept.paid])
            raw = None if not self._keeps_raw else np.hstack([last.raw, kept.raw])[:, order]
            self._kept[-1] = _Delivered(
                kept.rows, columns[order], values[:, order], kept.failed, paid[:, order], raw
            )
        else:
            self._kept.append(kept)

    def read(self, rows: Ints, columns: Ints) -> _Delivered:
        """Request some cells and parse the answer; nothing is kept."""
        # Copies: a source may change the arrays that it receives, and reuse the one that it answers with.
        answer = self._source.fetch(rows.copy(), columns.copy())
        delivery = answer if isinstance(answer, Delivery) else Delivery(answer)
        in_order, raw = self._in_order(Table.of(delivery.values), columns), None
        numbers, unreadable = self._schema.read(in_order, columns)
        if self._keeps_raw:
            raw = np.array(in_order.native, dtype=object)
        values = numbers.toarray() if sparse.issparse(numbers) else np.array(numbers)
        if values.shape != (len(rows), len(columns)):
            raise InvalidInputError(
                f"the source was asked for {len(rows)} rows of {len(columns)} features and must answer with an array "
                f"of that shape; got {values.shape}."
            )
        failed = self._failed(delivery, rows)
        for cells in unreadable.values():
            bad = cells.rows & ~failed
            for place in np.flatnonzero(bad).tolist():
                self._fail(rows[[place]], InvalidInputError(cells.why(cells.values[place], None)))
            failed |= bad
        infinite = np.isinf(values) & ~failed[:, None]
        if infinite.any():
            failed |= self._refused(infinite, values, rows, columns)
        values[failed] = np.nan
        paid = np.ones(values.shape, dtype=bool) if delivery.paid is None else np.asarray(delivery.paid, bool)
        return _Delivered(rows, columns, values, failed, np.broadcast_to(paid, values.shape), raw)

    def _failed(self, delivery: Delivery, rows: Ints) -> Bools:
        """The rows that a source reports as failed."""
        if not delivery.failed:
            return np.zeros(len(rows), dtype=bool)
        failed = np.isin(rows, list(delivery.failed))
        if self.ledger is None:
            first = int(rows[failed.argmax()])
            raise PurchaseFailedError(
                f"the source could not deliver {int(failed.sum())} of {len(rows)} rows; row {first}: "
                f"{delivery.failed[first]}."
            )
        for row in rows[failed].tolist():
            self.ledger.note(np.array([row]), str(delivery.failed[row]))
        return failed

    def _refused(self, infinite: Bools, values: Floats, rows: Ints, columns: Ints) -> Bools:
        """Record rows with an infinite value as failed, and return their mask."""
        row, column = np.argwhere(infinite)[0]
        failed: Bools = np.any(infinite, axis=1)
        self._fail(
            rows[failed],
            InvalidInputError(
                f"the source must answer with finite numbers; got {values[row, column]} for row {rows[row]} of "
                f"{self._name(columns[column])}. Where a value is missing, answer with NaN."
            ),
        )
        return failed

    def _fail(self, rows: Ints, error: Exception) -> None:
        """Record an error as a failure of some rows; raise it where there is no ledger."""
        if self.ledger is None:
            raise error
        self.ledger.note(rows, str(error), error)

    def _in_order(self, answer: Table, columns: Ints) -> Table:
        """The answer with its columns in the requested order, where it names them."""
        labels = answer.columns if answer.kind else []
        if self._names is None or not labels or not all(isinstance(name, str) for name in labels):
            return answer
        asked = [self._names[column] for column in columns]
        if sorted(labels) != sorted(asked):
            raise InvalidInputError(
                f"the source was asked for the columns {asked[:5]} and answered with a data frame of the columns "
                f"{labels[:5]}; both must be the same. Answer with those columns, or with an array in the order asked "
                f"for."
            )
        return answer.with_columns([labels.index(name) for name in asked])

    def _name(self, column: int) -> str:
        return f"column {column}" if self._names is None else f"column {self._names[column]!r}"


def _nothing(rows: Ints, columns: Ints, *, has_raw: bool) -> _Delivered:
    shape = (len(rows), len(columns))
    raw = np.full(shape, None, dtype=object) if has_raw else None
    return _Delivered(
        rows, columns, np.full(shape, np.nan), np.ones(len(rows), bool), np.zeros(shape, bool), raw
    )


def _joined(parts: Sequence[_Delivered]) -> _Delivered:
    """Join the parts of one request, with their rows in rising order."""
    rows = np.concatenate([part.rows for part in parts])
    rising = np.argsort(rows, kind="stable")
    values, failed, paid = (
        np.concatenate([getattr(part, name) for part in parts])[rising]
        for name in ("values", "failed", "paid")
    )
    raw = None if parts[0].raw is None else np.concatenate([part.raw for part in parts])[rising]
    return _Delivered(rows[rising], parts[0].columns, values, failed, paid, raw)


def _places(sorted_values: Ints, wanted: Ints) -> tuple[Ints, Ints]:
    """Places in ``wanted`` of the values that are in ``sorted_values``, and their places in the latter."""
    place = np.minimum(sorted_values.searchsorted(wanted), len(sorted_values) - 1)
    is_in = (sorted_values[place] == wanted).nonzero()[0]
    return is_in, place[is_in]


Reader = Table | PurchaseReader
"""Through which a chain reads features.

``is_at_hand`` says that any cell may be read, at no price; ``ledger`` keeps what fails and lets the other rows go on,
None lets every error pass; ``visited`` has visits by the identity of their stage, None remembers nothing.
"""


# -- the receipt of a batch ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Receipt:
    """Table of answers, costs, purchases and failures, a line for each row; ``receipt["cost"]`` is a column.

    Attributes
    ----------
    answer : ndarray of shape (n_rows,)
        Labels or numbers; None, or NaN among numbers, for a row that holds nothing that could be answered from.
    probability : ndarray of shape (n_rows,)
        Probability of the answer; NaN where there is none.
    outputs : ndarray of shape (n_rows, n_outputs)
        Probabilities of all classes, or the numbers; NaN for rows without an answer.
    route : ndarray of shape (n_rows,)
        The stage that answered; the number of stages is the full model, and -1 is no answer.
    cost : ndarray of shape (n_rows,)
        Amount that was really paid: purchases that were delivered, and calls of the full model that returned.
    bought, failed : ndarray of shape (n_rows, n_features), bool
        Columns that were delivered, and columns that were asked for in vain.
    full_failed : ndarray of shape (n_rows,), bool
        Rows that the full model was asked about in vain: it raised an error, took too long or answered nonsense.
    X : table of shape (n_rows, n_features)
        What was delivered, of the kind of table of the fit; blank where nothing was. None for answers of models.
    order : ndarray of shape (n_rows, n_features), int
        Number of the purchase of a row that brought a column, from 1; 0 where nothing did.
    propensity : ndarray of shape (n_rows, n_features)
        Probability of that purchase, given those before it: at operating points that are mixed or explore, the key of a
        row draws. 1 where nothing was bought.
    key : ndarray of shape (n_rows,)
        Keys of the rows.
    costs : DataFrame of shape (n_rows, n_resources), optional
        What was really paid in each of several resources; ``cost`` is then their sum at the exchange rates of the fit.
    reason : ndarray of shape (n_rows,)
        Reason of the first failure; None for a row without one.
    names : tuple
        Names of the columns, or their numbers.
    """

    answer: Labels
    probability: Floats
    outputs: Floats
    route: Ints
    cost: Floats
    bought: Bools
    failed: Bools
    reason: Labels
    names: tuple[Any, ...]
    full_failed: Bools
    X: Any = None
    order: Ints | None = None
    propensity: Floats | None = None
    key: Labels | None = None
    costs: Any = None

    def __len__(self) -> int:
        return len(self.route)

    def __repr__(self) -> str:
        failed = [row for row, reason in enumerate(self.reason) if reason is not None]
        summary = f"{len(self):,} rows, {int(self.is_answered.sum()):,} answered"
        if len(self):
            cost = self.cost.mean()
            summary += (
                f", mean cost {f'{cost:.4g}' if self.costs is None else costs_text(dict(self.costs.mean()))}"
            )
        if failed:
            summary += (
                f", {len(failed):,} with failures, the first in row {failed[0]}: {self.reason[failed[0]]}"
            )
        return f"Receipt({summary})"

    @property
    def is_answered(self) -> Bools:
        """Rows that have an answer."""
        answered: Bools = self.route >= 0
        return answered

    def keys(self) -> tuple[str, ...]:
        """Names of the columns of this table."""
        names = ("answer", "probability", "route", "cost", "bought", "failed", "reason")
        return names if self.propensity is None else (*names, "propensity")

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __getitem__(self, name: str) -> Any:
        if name not in self.keys():
            raise InvalidInputError(f"a receipt has the columns {', '.join(self.keys())}; got {name!r}.")
        return getattr(self, name)

    def to_pandas(self) -> Any:
        """The table as a data frame; purchases, in order, and failures, of the full model too, as tuples of names."""
        import pandas as pd

        columns = {name: self[name] for name in self.keys()}
        if self.costs is not None:
            columns |= {f"cost_{name}": paid.to_numpy() for name, paid in self.costs.items()}
        for name in ("bought", "failed"):
            columns[name] = _listed(columns[name], self.names)
        if self.order is not None and self.propensity is not None:
            in_order = np.argsort(self.order, axis=1, kind="stable")
            first = (self.order == 0).sum(axis=1)
            lists = [line[begin:] for line, begin in zip(in_order, first.tolist(), strict=True)]
            columns["bought"] = [tuple(self.names[column] for column in line.tolist()) for line in lists]
            columns["propensity"] = [
                tuple(of_row[line].tolist()) for of_row, line in zip(self.propensity, lists, strict=True)
            ]
        for row in np.flatnonzero(self.full_failed):
            columns["failed"][row] += (FULL_MODEL,)
        return pd.DataFrame(columns)


def _listed(cells: Bools, names: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Names of the columns that are marked in each row."""
    patterns, pattern_of = np.unique(cells, axis=0, return_inverse=True)
    listed = [tuple(names[column] for column in np.flatnonzero(pattern).tolist()) for pattern in patterns]
    return [listed[number] for number in pattern_of.reshape(-1)]


def answer_text(answer: Any, probability: float = np.nan) -> str:
    """An answer in words, with its probability where it has one."""
    if isinstance(answer, float):
        answer = float(f"{answer:.6g}")
    return f"{answer!r}" + ("" if np.isnan(probability) else f" with probability {probability:.3f}")


def decision_text(probability: float, *, goes_on: bool, point: str = "") -> str:
    """Reason why a row goes on, or stops; ``point`` is that of ``Policy.reason``."""
    if point in ("explores", "explored"):
        return "this key is drawn to explore" + (" and got here" if point == "explored" else "")
    if point:
        return f"the mix of two operating points: this key follows the {point} one"
    if np.isnan(probability):  # predicted numbers have no probability
        return "more would help" if goes_on else "more would help little"
    return "not sure enough" if goes_on else "sure enough"
