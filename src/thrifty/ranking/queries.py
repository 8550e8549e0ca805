"""Which rows are documents of the same query."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thrifty.arrays import Floats, Ints
from thrifty.exceptions import InvalidInputError

__all__ = ["Queries", "as_queries"]


class Queries:
    """Documents of each query stand together; the order of queries, and their names, mean nothing.

    Parameters
    ----------
    qid : array-like of shape (n_documents,)
        Query of each document. A query that comes back after another one is refused: in files that were shuffled
        or joined it is mostly a mistake, and two queries of one name would be ranked as one.

    Attributes
    ----------
    ids : ndarray of shape (n_queries,)
        Names of the queries, in the order of the rows.
    start, size : ndarray of shape (n_queries,)
        First row of each query, and its number of rows.
    number : ndarray of shape (n_documents,)
        Number of each row's query, from 0.
    """

    ids: NDArray[Any]
    start: Ints
    size: Ints
    number: Ints

    def __init__(self, qid: ArrayLike) -> None:
        given = np.asarray(qid)
        if given.ndim != 1 or not len(given):
            raise InvalidInputError(
                f"qid must hold one query per document, at least one; got shape {given.shape}."
            )
        self.start = np.flatnonzero(np.r_[True, given[1:] != given[:-1]])
        self.ids = given[self.start]
        names, first = np.unique(self.ids, return_index=True)
        if len(names) < len(self.ids):
            again = int(np.setdiff1d(np.arange(len(self.ids)), first)[0])
            raise InvalidInputError(
                f"documents of one query must stand together; query {self.ids[again]} comes back in row "
                f"{int(self.start[again])}. Sort the rows by query, all arrays alike."
            )
        self.size = np.diff(np.r_[self.start, len(given)])
        self.number = np.repeat(np.arange(len(self.ids)), self.size)

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return len(self.ids)

    @property
    def n_documents(self) -> int:
        """Number of rows."""
        return len(self.number)

    def total(self, values: ArrayLike) -> Floats:
        """Sum per query of a value per document: of costs, what a query's documents paid together."""
        spread = np.broadcast_to(np.asarray(values, dtype=np.float64), (self.n_documents,))
        return np.add.reduceat(spread, self.start)

    def folds(self, n_folds: int, seed: int = 0) -> Ints:
        """Fold of each document such that no query is torn apart, and folds hold nearly equally many queries."""
        if not 2 <= n_folds <= self.n_queries:
            raise InvalidInputError(
                f"n_folds must lie between 2 and the number of queries, {self.n_queries}; got {n_folds!r}."
            )
        dealt = np.random.default_rng(seed).permutation(self.n_queries) % n_folds
        return np.asarray(dealt[self.number], dtype=np.intp)

    def __repr__(self) -> str:
        return f"Queries({self.n_queries:,} queries, {self.n_documents:,} documents)"


def as_queries(queries: "Queries | ArrayLike", n_documents: int) -> Queries:
    """Queries from themselves or from query ids, for so many documents."""
    found = queries if isinstance(queries, Queries) else Queries(queries)
    if found.n_documents != n_documents:
        raise InvalidInputError(
            f"queries must cover the documents one by one; got {found.n_documents} for {n_documents} documents."
        )
    return found
