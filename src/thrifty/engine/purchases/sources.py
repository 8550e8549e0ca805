"""Ready sources of features: values and functions in memory here, SQL tables and HTTP services in modules of their own.

All derive from ``RetryingSource``: requests in chunks and threads, retries within a deadline, a circuit breaker and a
cache. A delivered cell is cached, so that no cell is bought twice, not even by two batches, and costs nothing again.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from thrifty.arrays import Ints
from thrifty.engine.purchases.http import HttpSource
from thrifty.engine.purchases.readers import Delivery, offers_of, side_by_side
from thrifty.engine.purchases.retry import CircuitBreaker, RetryingSource
from thrifty.engine.purchases.sql import SqlSource
from thrifty.engine.table.reader import Schema
from thrifty.errors import InvalidInputError

__all__ = ["CircuitBreaker", "DictSource", "HttpSource", "RefusesUnseen", "RetryingSource", "SqlSource"]


class DictSource(RetryingSource):
    """A mapping from columns to values or to functions of rows.

    Parameters
    ----------
    columns : mapping
        Values of all rows, or a function from numbers of rows to their values, for each column, or for each tuple of
        columns that come together.
    n_rows : int, optional
        Rows that can be asked about, where there are only functions.
    **options
        ``chunk_size``, ``threads``, ``timeout``, ``retries``, ``deadline`` and ``cache`` of ``RetryingSource``.
    """

    def __init__(self, columns: Mapping[Any, Any], n_rows: int | None = None, **options: Any) -> None:
        self._offers, length = offers_of(columns, n_rows)
        super().__init__(length, **options)

    def check(self, names: Sequence[Any]) -> None:
        """Refuse columns that the mapping does not have."""
        for name in names:
            if name not in self._offers:
                raise InvalidInputError(
                    f"the source offers nothing for {name!r}, which rows may need; it has {list(self._offers)[:8]}."
                )

    def fetch(self, rows: Ints, group: Sequence[Any]) -> Delivery:
        """Values of the columns of one purchase, so that a failing function affects only its own columns."""
        return super().fetch(rows, group)

    def ask(self, rows: Ints, names: Sequence[Any]) -> Delivery:
        """Ask the offer of each column."""
        return side_by_side([self._offers[name] for name in names], rows)


class RefusesUnseen:
    """A source of named columns in which a cell of text that the fit has not seen fails, for its row alone."""

    def __init__(self, source: Any, schema: Schema) -> None:
        self._source, self._schema = source, schema

    def __len__(self) -> int:
        return len(self._source)

    def check(self, names: Sequence[str]) -> None:
        """Refuse columns that the source does not have."""
        self._source.check(names)

    def fetch(self, rows: Ints, names: Sequence[str]) -> Delivery:
        """Ask the source, and look for text that is new."""
        delivery: Delivery = self._source.fetch(rows, names)
        columns = np.array([self._schema.names.index(name) for name in names], dtype=np.intp)
        _, unreadable = self._schema.read(delivery.values, columns, unseen_is_missing=False)
        failed = {
            int(rows[place]): cells.why(cells.values[place], None)
            for cells in unreadable.values()
            for place in np.flatnonzero(cells.rows)
        }
        return Delivery(delivery.values, {**failed, **delivery.failed}, delivery.paid)
