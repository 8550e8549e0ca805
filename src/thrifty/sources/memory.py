"""Features as values and functions in memory, by column."""

from collections.abc import Mapping, Sequence
from typing import Any

from thrifty.arrays import Ints
from thrifty.chain.sources import Delivery, offers_of, side_by_side
from thrifty.errors import InvalidInputError
from thrifty.sources.patient import PatientSource

__all__ = ["DictSource"]


class DictSource(PatientSource):
    """A mapping from columns to values or to functions of rows, asked with patience.

    Parameters
    ----------
    columns : mapping
        Values of all rows, or a function from numbers of rows to their values, for each column, or for each tuple of
        columns that come together.
    n_rows : int, optional
        Rows that can be asked about, where there are only functions.
    chunk_size, threads, timeout, retries, deadline, cache
        Most rows in one question, questions at the same time, seconds for one question, how often a question is put
        again, within how many seconds, and whether delivered cells are kept so that they are never bought again.
    """

    def __init__(
        self,
        columns: Mapping[Any, Any],
        n_rows: int | None = None,
        *,
        chunk_size: int = 1000,
        threads: int = 1,
        timeout: float | None = None,
        retries: int = 2,
        deadline: float | None = None,
        cache: bool = True,
    ) -> None:
        self._offers, length = offers_of(columns, n_rows)
        super().__init__(
            length,
            chunk_size=chunk_size,
            threads=threads,
            timeout=timeout,
            retries=retries,
            deadline=deadline,
            cache=cache,
        )

    def check(self, names: Sequence[Any]) -> None:
        """Refuse columns that are not there."""
        for name in names:
            if name not in self._offers:
                raise InvalidInputError(
                    f"the source offers nothing for {name!r}, which rows may need; it has {list(self._offers)[:8]}."
                )

    def fetch(self, rows: Ints, group: Sequence[Any]) -> Delivery:
        """Values of the columns of one purchase: what one function cannot deliver is not the problem of another."""
        return super().fetch(rows, group)

    def ask(self, rows: Ints, names: Sequence[Any]) -> Delivery:
        """Ask the offer of each column."""
        return side_by_side([self._offers[name] for name in names], rows)
