"""One row of which more is known with time: what was given of it, what it needs next, and what it has paid for."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from thrifty.arrays import Bools, Floats, Ints, Words
from thrifty.chain.ledger import Ledger
from thrifty.chain.purchase_reader import PurchaseReader
from thrifty.errors import RowsLeftBehindError
from thrifty.prices.billing import PriceList
from thrifty.rows import key_words

__all__ = ["GivenRow"]


class _Offered:
    """A source of one row, which answers with the cells that were given just now."""

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

    What stages said of the row is remembered, so that a walk that begins anew only visits those that it has not met.

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
        self._source = _Offered()
        self._reader = reading(self._source, None)
        self._numbers = np.full((1, price_list.n_features), np.nan)
        self._raw = np.full((1, price_list.n_features), None, dtype=object)
        by_row = price_list.by_row
        self._looked_up = np.full((1, 0 if by_row is None else len(by_row)), np.nan)

    def with_cells(self, cells: Mapping[int, Any]) -> "GivenRow":
        """The row with more cells, read as those of a batch are, or a refusal; this one stays as it is."""
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
        """The cells, or a note of those that are lacking of the purchases that deliver them."""
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
        """The row, which is alone."""
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
            told = made.take(new)
            found = told.amounts(
                1, lambda read: self._numbers[:, read], lambda read: self.table(self.rows, read)
            )
            self._looked_up[:, places[new]] = told.checked(found, self.rows, self._names)
            self.amounts = np.nan_to_num(self._looked_up)

    def _pay(self, rows: Ints, columns: Ints) -> None:
        """Make the purchases that deliver some columns, if all that they deliver was given."""
        group_of = self._prices.group_of
        wanted = np.flatnonzero(self._prices.bought_groups(columns)[group_of]).tolist()
        self.lacking = [column for column in wanted if column not in self.cells]
        if self.lacking:
            raise RowsLeftBehindError(rows)
        self.bought[0, wanted] = True
