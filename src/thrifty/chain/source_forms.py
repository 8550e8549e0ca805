"""Sources in every form that users have them: by number, by name, by purchase, as a mapping or as a function.

Whatever the form, the reader sees a ``FeatureSource`` that counts its columns as the fit does.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from thrifty.arrays import Ints
from thrifty.chain.columns import number_of, places_of_fit
from thrifty.chain.sources import Delivery, FeatureSource, kind_of_table
from thrifty.errors import InvalidInputError
from thrifty.prices.billing import PriceList

__all__ = ["as_source", "offers_of", "side_by_side"]


@dataclass(frozen=True)
class Form:
    """A source as the reader sees it.

    Attributes
    ----------
    n_rows : int
        Rows that can be asked about.
    ask : callable
        ``ask(rows, columns)`` puts the question in the words of the source.
    by_group : bool
        Whether the source is asked for one purchase at a time.
    """

    n_rows: int
    ask: Callable[[Ints, Ints], Any]
    by_group: bool = False

    def __len__(self) -> int:
        return self.n_rows

    def fetch(self, rows: Ints, columns: Ints) -> Any:
        """Ask for the columns as the source knows them."""
        return self.ask(rows, columns)


def as_source(
    source: Any, names: Sequence[str] | None, price_list: PriceList, needed: Ints, n_rows: int | None
) -> FeatureSource:
    """A source that counts its columns as a fit does.

    Parameters
    ----------
    source : FeatureSource, mapping or callable
        What a user gave.
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
        return Form(_length(None, n_rows), lambda rows, columns: source(rows, _called(columns, names)))
    length = _length(len(source) if hasattr(source, "__len__") else None, n_rows)
    if callable(getattr(source, "check", None)):
        source.check(_called(needed, names))
    given = _second_parameter(fetch)
    if given == "names":
        return Form(length, lambda rows, columns: fetch(rows, _called(columns, names)))
    if given == "group":
        return Form(length, lambda rows, columns: fetch(rows, tuple(_called(columns, names))), by_group=True)
    told = getattr(source, "columns", None)
    told = [] if told is None or callable(told) else list(told)
    if names is None or not told or not all(isinstance(name, str) for name in told):
        return Form(length, fetch)
    places = places_of_fit(told, names, "the source")
    return Form(length, fetch if places is None else lambda rows, columns: fetch(rows, places[columns]))


def _of_mapping(
    source: Mapping[Any, Any],
    names: Sequence[str] | None,
    price_list: PriceList,
    needed: Ints,
    n_rows: int | None,
) -> Form:
    """A mapping from a column, or a tuple of columns of one purchase, to values or to a function of rows."""
    for key in source:
        columns = [number_of(one, names, price_list.n_features, "the source") for one in _parts(key)]
        if len(set(price_list.group_of[columns].tolist())) > 1:
            raise InvalidInputError(
                f"the source offers {key!r} together, and these columns are different purchases. Offer each purchase "
                f"by itself, or name them in feature_groups."
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

    return Form(length, ask, by_group=True)


def offers_of(source: Mapping[Any, Any], n_rows: int | None) -> tuple[dict[Any, tuple[Any, int]], int]:
    """Who offers each column of a mapping, and as which of several, and the number of rows.

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
    values = np.asarray(value.to_numpy() if kind_of_table(value) else value)
    if values.ndim == 0 or values.shape[1:] not in ((), (n_columns,)) or (values.ndim == 1 and n_columns > 1):
        raise InvalidInputError(
            f"the source must offer {n_columns} value(s) per row for {key!r}, or a function of rows; got an array of "
            f"shape {values.shape}."
        )
    return values


def side_by_side(offers: Sequence[tuple[Any, int]], rows: Ints) -> Delivery:
    """Columns that several offers deliver, each asked once; a row that one of them lacks is not delivered at all."""
    said: dict[int, Delivery] = {}
    failed: dict[int, str] = {}
    columns = []
    for offer, place in offers:
        if id(offer) not in said:
            found = offer(rows.copy()) if callable(offer) else offer[rows]
            said[id(offer)] = found if isinstance(found, Delivery) else Delivery(found)
            failed.update(said[id(offer)].failed)
        values = said[id(offer)].values
        values = np.asarray(values.to_numpy() if kind_of_table(values) else values)
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


def _length(own: int | None, n_rows: int | None) -> int:
    if own is None and n_rows is None:
        raise InvalidInputError(
            "n_rows must say how many rows to ask about, because this source does not say how many it has."
        )
    if own is not None and n_rows not in (None, own):
        raise InvalidInputError(f"n_rows must be the number of rows of the source, {own}; got {n_rows!r}.")
    length = own if n_rows is None else n_rows
    if not isinstance(length, int | np.integer) or length < 0:
        raise InvalidInputError(f"n_rows must be a whole number of rows; got {length!r}.")
    return int(length)


def _second_parameter(fetch: Callable[..., Any]) -> str:
    try:
        names = list(inspect.signature(fetch).parameters)
    except (TypeError, ValueError):  # a function that is compiled and does not say
        return ""
    return names[1] if len(names) > 1 else ""
