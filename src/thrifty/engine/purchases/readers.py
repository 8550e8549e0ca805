"""Readers and sources of features, and the ledger of failures.

A chain asks its reader for blocks, rows x columns. A ``Table`` slices itself. A *source* is asked for what a
row's route needs, when it needs it, by ``PurchaseReader`` (``receipts.py``). Users write sources by number, by name, by
purchase, as a mapping or as a function; ``as_source`` adapts each to a ``FeatureSource`` that numbers its columns as
the fit does.

A failed purchase affects only its row, and so does a model that raises, times out or answers nonsense: the row stays at
its last stage, and the others go on. The ``Ledger`` finds the rows to blame in this order: the rows that an error
names, the rows that lack a value which the others have, all rows of the request.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from thrifty.arrays import Bools, Floats, Ints
from thrifty.engine.prices.billing import PriceList, check_amount
from thrifty.engine.table.reader import Cells
from thrifty.engine.table.table import Table, as_array, find_column, places_of_fit
from thrifty.errors import InvalidAnswerError, InvalidInputError, RowsLeftBehindError
from thrifty.threads import call_with_timeout


@dataclass(frozen=True)
class Delivery:
    """Values of a source together with failures and payments.

    Attributes
    ----------
    values : array-like of shape (n_rows, n_columns)
        Requested values; NaN is a value that is missing, and is billed like any other.
    failed : dict of int to str
        Rows that could not be delivered, by the numbers that they were asked for with, and why. Their values are
        ignored, and they are not billed.
    paid : array-like of shape (n_rows, n_columns), bool, optional
        Cells that cost something; None is all of them. Those that a source had in stock cost nothing.
    cost, evidence : array-like of shape (n_rows,), optional
        Of answers of models, which are ``values`` of shape (n_rows,): what was billed for each, of several resources a
        dict of such arrays, and a number known after asking, such as a log-probability.
    """

    values: Any
    failed: Mapping[int, str] = field(default_factory=dict)
    paid: Any = None
    cost: Any = None
    evidence: Any = None


@runtime_checkable
class FeatureSource(Protocol):
    """Protocol of sources of features: a database, a lab, a paid service.

    The name of the second parameter of ``fetch`` decides its form: ``columns`` are numbers of columns, ``names``
    a list of their names, and ``group`` a tuple of the names that come in one purchase; the source is then asked for
    one purchase at a time. Where the fit knew no names, all of them are numbers.

    A source that is asked by number may also list the names of its columns, as text, in an attribute ``columns``. They
    are then compared with those of the fit, and asked for by their numbers in that list.
    """

    def __len__(self) -> int:
        """Return the number of rows that can be asked about."""

    def fetch(self, rows: Ints, columns: Ints) -> ArrayLike | Delivery:
        """Values of ``columns`` for ``rows``, shape ``(len(rows), len(columns))``."""


# -- readers ---------------------------------------------------------------------------------------


class CellReader(Table):
    """Reader of cells that refuses unreadable ones only when they are read.

    Parameters
    ----------
    cells : Cells
        The rows.
    table : Table
        The rows as the full model reads them.
    full_needs : str, optional
        Name of the full model in errors, where it reads no missing values.
    """

    # Only cells that a row needs must be readable.
    is_at_hand = False

    def __init__(self, cells: Cells, table: Table, full_needs: str | None = None) -> None:
        super().__init__(cells.numbers, None, cells.row_numbers, cells.row_keys)
        self.native, self.kind = table.native, table.kind
        self._cells = cells
        self._full_needs = full_needs

    def block(self, rows: Ints, columns: Ints) -> Any:
        """Numbers of these cells, if they can be read."""
        self._cells.refuse_unreadable(rows, columns)
        return super().block(rows, columns)

    def part(self, rows: Ints, columns: Ints | None = None) -> Table:
        """Rows for the full model; unreadable or missing cells that it needs are refused."""
        wanted = np.arange(len(self._cells.names)) if columns is None else columns
        self._cells.refuse_unreadable(rows, wanted)
        if self._full_needs is not None:
            self._cells.refuse_missing(rows, wanted, self._full_needs)
        return super().part(rows, columns)


def amounts_of(
    price_list: PriceList, reader: Any, rows: Ints, used: Bools, names: Sequence[str] | None
) -> Floats | None:
    """Amounts that rows pay for the purchases whose price differs by row; None where no price does.

    Parameters
    ----------
    reader : Reader
        Where prices are read from.
    rows : ndarray of shape (n_rows,)
        Positions of the rows in their reader.
    used : ndarray of shape (n_rows, n_features), bool
        Columns that each row buys: a price is looked at, and must be there, where the row makes the purchase.
    names : sequence of str or None
        Names of the columns, for a refusal.
    """
    by_row = price_list.by_row
    if by_row is None:
        return None
    amounts = np.zeros((len(rows), len(by_row)))
    for place, purchase in enumerate(by_row.purchases):
        buys = np.flatnonzero(used[:, price_list.group_of == purchase].any(axis=1))
        if len(buys):
            amounts[buys, place] = by_row.take([place]).of_rows(reader, rows[buys], names)[:, 0]
    return amounts


# -- sources in every form -------------------------------------------------------------------------


@dataclass(frozen=True)
class _AdaptedSource:
    """A source of any form, adapted to ``FeatureSource``.

    Attributes
    ----------
    n_rows : int
        Rows that can be asked about.
    fetch : callable
        ``fetch(rows, columns)`` sends a request in the form of the source.
    by_group : bool
        Whether the source is asked for one purchase at a time.
    """

    n_rows: int
    fetch: Callable[[Ints, Ints], Any]
    by_group: bool = False

    def __len__(self) -> int:
        return self.n_rows


def as_source(
    source: Any, names: Sequence[str] | None, price_list: PriceList, needed: Ints, n_rows: int | None
) -> FeatureSource:
    """Adapt a source of any form to one that numbers its columns as a fit does.

    Parameters
    ----------
    source : FeatureSource, mapping or callable
        Source in any form.
    names : sequence of str or None
        Names of the columns of the fit.
    price_list : PriceList
        Which columns come in one purchase.
    needed : ndarray of int
        Columns that some row may need; a source that cannot have them is refused before anything is bought.
    n_rows : int or None
        Rows to ask about, where the source does not say how many it has.
    """
    if isinstance(source, Mapping):
        return _of_mapping(source, names, price_list, needed, n_rows)
    fetch = getattr(source, "fetch", None)
    if not callable(fetch):
        if not callable(source) or isinstance(source, type):
            raise InvalidInputError(
                f"a source must have __len__ and fetch(rows, columns); got {type(source).__name__}. A mapping from "
                f"columns to values or functions will do too, and a function of rows and columns. For a table that is "
                f"at hand use predict."
            )
        return _AdaptedSource(
            _length(None, n_rows), lambda rows, columns: source(rows, _called(columns, names))
        )
    length = _length(len(source) if hasattr(source, "__len__") else None, n_rows)
    if callable(getattr(source, "check", None)):
        source.check(_called(needed, names))
    parameter = _second_parameter(fetch)
    if parameter == "names":
        return _AdaptedSource(length, lambda rows, columns: fetch(rows, _called(columns, names)))
    if parameter == "group":
        return _AdaptedSource(
            length, lambda rows, columns: fetch(rows, tuple(_called(columns, names))), by_group=True
        )
    columns = getattr(source, "columns", None)
    columns = [] if columns is None or callable(columns) else list(columns)
    if names is None or not columns or not all(isinstance(name, str) for name in columns):
        return _AdaptedSource(length, fetch)
    places = places_of_fit(columns, names, "the source")
    return _AdaptedSource(
        length, fetch if places is None else lambda rows, columns: fetch(rows, places[columns])
    )


def _of_mapping(
    source: Mapping[Any, Any],
    names: Sequence[str] | None,
    price_list: PriceList,
    needed: Ints,
    n_rows: int | None,
) -> _AdaptedSource:
    """A mapping from a column, or a tuple of columns of one purchase, to values or to a function of rows."""
    for key in source:
        columns = [find_column(name, names, price_list.n_features, "the source") for name in _parts(key)]
        if len(set(price_list.group_of[columns].tolist())) > 1:
            raise InvalidInputError(
                f"the source offers {key!r} together, and these columns are different purchases. Offer each purchase "
                f"by itself, or make them one purchase with the groups of Prices."
            )
    offers, length = offers_of(source, n_rows)
    lacking = [name for name in _called(needed, names) if name not in offers]
    if lacking:
        raise InvalidInputError(
            f"the source offers nothing for {lacking[:5]}, which rows may need. Give values or a function of rows for "
            f"each of them."
        )

    def ask(rows: Ints, columns: Ints) -> Delivery:
        return side_by_side([offers[name] for name in _called(columns, names)], rows)

    return _AdaptedSource(length, ask, by_group=True)


def offers_of(source: Mapping[Any, Any], n_rows: int | None) -> tuple[dict[Any, tuple[Any, int]], int]:
    """The entry of a mapping that delivers each column, the column's place in it, and the number of rows.

    Parameters
    ----------
    source : mapping
        From a column, or a tuple of columns that come together, to values of all rows or to a function of rows.
    n_rows : int or None
        Rows to ask about, where there are only functions.
    """
    offers: dict[Any, tuple[Any, int]] = {}
    lengths = set()
    for key, value in source.items():
        names = _parts(key)
        offer = value if callable(value) else _values(key, value, len(names))
        lengths |= set() if callable(value) else {len(offer)}
        offers.update({name: (offer, place) for place, name in enumerate(names)})
    if len(lengths) > 1:
        raise InvalidInputError(
            f"the columns of a source must have the same number of rows; got {sorted(lengths)}."
        )
    return offers, _length(lengths.pop() if lengths else None, n_rows)


def _parts(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def _values(key: Any, value: Any, n_columns: int) -> Any:
    """Values of the columns of one purchase, a row each."""
    values = as_array(value)
    if values.ndim == 0 or values.shape[1:] not in ((), (n_columns,)) or (values.ndim == 1 and n_columns > 1):
        raise InvalidInputError(
            f"the source must offer {n_columns} value(s) per row for {key!r}, or a function of rows; got an array of "
            f"shape {values.shape}."
        )
    return values


def side_by_side(offers: Sequence[tuple[Any, int]], rows: Ints) -> Delivery:
    """Columns of several entries of a mapping, each called once; a row that one of them lacks is not delivered."""
    answers: dict[int, Delivery] = {}
    failed: dict[int, str] = {}
    columns = []
    for offer, place in offers:
        if id(offer) not in answers:
            answer = offer(rows.copy()) if callable(offer) else offer[rows]
            answers[id(offer)] = answer if isinstance(answer, Delivery) else Delivery(answer)
            failed.update(answers[id(offer)].failed)
        values = as_array(answers[id(offer)].values)
        if values.shape[:1] != (len(rows),) or values.ndim > 2 or place >= (*values.shape[1:], 1)[0]:
            raise InvalidInputError(
                f"the source was asked about {len(rows)} rows and must answer with a value for each of them; got an "
                f"array of shape {values.shape}."
            )
        columns.append(values if values.ndim == 1 else values[:, place])
    if any(column.dtype.kind not in "biuf" for column in columns):
        columns = [column.astype(object) for column in columns]  # numbers beside text stay numbers
    return Delivery(np.column_stack(columns), failed)


def _called(columns: Ints, names: Sequence[str] | None) -> list[Any]:
    """Names of some columns, or their numbers where the fit knew no names."""
    return columns.tolist() if names is None else [names[column] for column in columns]


def _length(of_source: int | None, n_rows: int | None) -> int:
    if of_source is None and n_rows is None:
        raise InvalidInputError(
            "n_rows must say how many rows to ask about, because this source does not say how many it has."
        )
    if of_source is not None and n_rows not in (None, of_source):
        raise InvalidInputError(
            f"n_rows must be the number of rows of the source, {of_source}; got {n_rows!r}."
        )
    length = of_source if n_rows is None else n_rows
    if not isinstance(length, int | np.integer) or length < 0:
        raise InvalidInputError(f"n_rows must be a whole number of rows; got {length!r}.")
    return int(length)


def _second_parameter(fetch: Callable[..., Any]) -> str:
    try:
        names = list(inspect.signature(fetch).parameters)
    except (TypeError, ValueError):  # a compiled function without a signature
        return ""
    return names[1] if len(names) > 1 else ""


# -- failures --------------------------------------------------------------------------------------


ON_FAILURE = ("answer", "skip", "raise")
"""Treatments of a row whose purchase fails."""

Result = TypeVar("Result")


class Ledger:
    """Failures by row, and calls of the full model that are billed.

    Parameters
    ----------
    on_failure : {"answer", "skip", "raise"}
        Whether a row is answered with the columns it holds, goes on without those it lacks, or ends all requests.
    batch_size : int, optional
        Rows per question; None asks about all of them together.
    full_timeout : float, optional
        Seconds that the full model may take to answer one question.

    Attributes
    ----------
    reasons : dict of int to str
        Reason of the first failure, by row.
    errors : list of Exception
        Errors that were raised.
    full_failed : set of int
        Rows that the full model was asked about in vain, and with which nothing had gone wrong before.
    interrupted : bool
        Whether the user interrupted the purchases; nothing more is asked for then.
    """

    def __init__(
        self, on_failure: str, batch_size: int | None = None, full_timeout: float | None = None
    ) -> None:
        if on_failure not in ON_FAILURE:
            raise InvalidInputError(
                f"on_failure must be 'answer' (with what the row holds), 'skip' (go on without it) or 'raise'; got "
                f"{on_failure!r}."
            )
        if batch_size is not None and not (isinstance(batch_size, int) and batch_size >= 1):
            raise InvalidInputError(
                f"batch_size must be a whole number of rows, 1 or more; got {batch_size!r}. None asks about all rows "
                f"together."
            )
        if full_timeout is not None:
            check_amount("full_timeout", full_timeout, rule="a number of seconds >= 0, or None to wait")
        self.on_failure = on_failure
        self.batch_size = batch_size
        self.full_timeout = full_timeout
        self.reasons: dict[int, str] = {}
        self.errors: list[Exception] = []
        self.full_failed: set[int] = set()
        self.interrupted = False
        self._full_errors: list[Exception] = []
        self._called: list[Ints] = []

    @property
    def is_closed(self) -> bool:
        """True if no further requests are made, after a failure with ``on_failure="raise"``."""
        return self.interrupted or (self.on_failure == "raise" and bool(self.reasons))

    def note(self, rows: Ints, reason: str, error: Exception | None = None) -> None:
        """Record why some rows failed; the first reason of a row stays."""
        # A model that cannot do without what another failure left out is not to blame.
        new = [row for row in rows.tolist() if row not in self.reasons]
        if any(error is full_error for full_error in self._full_errors):
            self.full_failed.update(new)
        self.reasons.update(dict.fromkeys(new, reason))
        if error is not None:
            self.errors.append(error)

    def calls(self, rows: Ints) -> Ints:
        """Number of billed calls of the full model for each of some rows."""
        if not self._called:
            return np.zeros(len(rows), dtype=np.intp)
        return np.bincount(np.concatenate(self._called), minlength=int(rows.max(initial=0)) + 1)[rows]

    def parts(self, rows: Ints) -> list[Ints]:
        """Split rows into requests of ``batch_size``."""
        if self.batch_size is None or len(rows) <= self.batch_size:
            return [rows]
        return np.split(rows, np.arange(self.batch_size, len(rows), self.batch_size))

    def ask_full(self, rows: Ints, ask: Callable[[], Floats]) -> Floats:
        """Call the full model for some rows; invalid answers are billed, too.

        Rows are asked about again where answers to others were invalid, but only once: a model that answers at random
        would otherwise be paid for ever.
        """
        if self.is_closed:
            self.note(rows, "the full model was not asked, because something else had failed before")
            raise RowsLeftBehindError(rows)
        try:
            outputs = call_with_timeout(self.full_timeout, ask, "the full model")
        except InvalidAnswerError as error:
            self._called.append(rows)
            self._full_errors.append(error)
            if self.calls(rows).max() > 1:
                error.rows = []
            raise
        except Exception as error:  # a user's model may raise anything
            self._full_errors.append(error)
            raise
        self._called.append(rows)
        return outputs

    def blame(self, rows: Ints, error: Exception, is_whole: Callable[[Ints], Bools]) -> Ints:
        """Record an error as a failure of the rows to blame, and return them; ``is_whole`` finds missing values."""
        rows_named = getattr(error, "rows", []) if isinstance(error, InvalidInputError) else []
        named = np.intersect1d(rows, np.asarray(rows_named, dtype=np.intp))
        with_holes = rows if len(named) else rows[~is_whole(rows)]
        blamed = named if len(named) else with_holes if len(with_holes) else rows
        self.note(blamed, error_text(error), error)
        return blamed


def error_text(error: Exception) -> str:
    """Message of an error, with its type unless it is an error of thrifty."""
    words = str(error)[:500]
    return words if isinstance(error, InvalidInputError) else f"{type(error).__name__}: {words}"


def run_for_readable_rows(
    reader: Any, rows: Ints, columns: Ints, act: Callable[[Any], Result]
) -> tuple[Bools | None, Result | None]:
    """Run a function for the rows that can be read; return their mask, None being all rows, and the result.

    Parameters
    ----------
    reader : Reader
        Where the rows are read from; one without a ledger lets every error pass.
    rows, columns : ndarray of int
        Cells that are read.
    act : callable
        The function, given the places of these rows in ``rows``.
    """
    ledger: Ledger | None = reader.ledger
    if ledger is None:
        return None, act(slice(None))
    able = np.ones(len(rows), dtype=bool)
    while able.any():
        try:
            return (None if able.all() else able), act(np.flatnonzero(able))
        except RowsLeftBehindError as left:
            blamed = left.rows
        except Exception as error:  # a user's model may raise anything
            blamed = ledger.blame(rows[able], error, lambda kept: reader.is_whole(kept, columns))
        able[np.isin(rows, blamed) if len(rows) > 1 else 0] = False
    return able, None
