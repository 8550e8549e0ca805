"""What every ready source shares: questions in chunks, side by side, asked again within a deadline, and a stock.

What was delivered once is kept in stock, so that no cell is ever bought twice, not even by two batches: a cell from
stock costs nothing.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any

import numpy as np

from thrifty.arrays import Bools, Floats, Ints
from thrifty.chain.sources import Delivery
from thrifty.errors import InvalidInputError
from thrifty.prices.billing import check_amount
from thrifty.threads import call_within

__all__ = ["PatientSource", "plain_keys"]

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
"""Seconds before a question is asked again; every pause is twice as long as the one before."""


class PatientSource:
    """A source that is asked in chunks and asked again; subclasses say how one question is put.

    Parameters
    ----------
    n_rows : int
        Rows that can be asked about.
    chunk_size : int
        Most rows in one question.
    threads : int
        Questions under way at the same time.
    timeout : float, optional
        Seconds that one question may take; None waits.
    retries : int
        How often a question that failed is asked again, for the rows that failed.
    deadline : float, optional
        Seconds after which nothing is asked again; None is when the retries are used up.
    cache : bool
        Whether what was delivered is kept in stock.

    Attributes
    ----------
    n_questions : int
        Questions that were put.
    failures : Counter
        Questions that failed as a whole, by the type of the error.
    """

    def __init__(
        self,
        n_rows: int,
        *,
        chunk_size: int = 1000,
        threads: int = 1,
        timeout: float | None = None,
        retries: int = 2,
        deadline: float | None = None,
        cache: bool = True,
    ) -> None:
        for name, value, least in (
            ("chunk_size", chunk_size, 1),
            ("threads", threads, 1),
            ("retries", retries, 0),
        ):
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise InvalidInputError(f"{name} must be a whole number, {least} or more; got {value!r}.")
        for name, seconds in (("timeout", timeout), ("deadline", deadline)):
            if seconds is not None:
                check_amount(name, seconds, rule="a number of seconds >= 0, or None to wait")
        self._n_rows = n_rows
        self._chunk_size, self._threads, self._retries = chunk_size, threads, retries
        self._timeout, self._deadline = timeout, deadline
        self._keeps = cache
        self._stock: dict[Any, tuple[Floats, Bools]] = {}
        self._lock = Lock()
        self.n_questions = 0
        self.failures: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._n_rows

    def ask(self, rows: Ints, names: Sequence[Any]) -> Any:
        """Put one question; return values, or a ``Delivery``, or raise."""
        raise NotImplementedError

    def fetch(self, rows: Ints, names: Sequence[Any]) -> Delivery:
        """Values of the named columns, from stock or bought, for the rows that could be had."""
        values, held = self._from_stock(rows, names)
        patience = np.inf if self._deadline is None else time.monotonic() + self._deadline
        failed: dict[int, str] = {}
        lacking = ~held
        alike = (
            len(rows) > 0 and (lacking == lacking[0]).all()
        )  # almost always, and cheaper than to sort the rows
        for pattern in lacking[:1] if alike else np.unique(lacking, axis=0):
            if not pattern.any():
                continue
            here = np.flatnonzero((lacking == pattern).all(axis=1))
            wanted = [name for name, is_lacking in zip(names, pattern, strict=True) if is_lacking]
            chunks = np.split(here, np.arange(self._chunk_size, len(here), self._chunk_size))
            questions = [(rows[chunk], wanted, patience) for chunk in chunks]
            for chunk, (found, gone_wrong) in zip(chunks, self._side_by_side(questions), strict=True):
                values = _roomy(values, found)
                values[np.ix_(chunk, np.flatnonzero(pattern))] = found
                failed.update(gone_wrong)
        arrived = ~np.isin(rows, list(failed))
        self._to_stock(rows[arrived], names, values[arrived])
        return Delivery(values, failed, paid=lacking)

    def _side_by_side(self, questions: Sequence[tuple[Any, ...]]) -> list[tuple[Floats, Mapping[int, str]]]:
        n_threads = min(self._threads, len(questions))
        if n_threads == 1:
            return [self._patiently(*question) for question in questions]
        with ThreadPoolExecutor(n_threads) as pool:
            return list(pool.map(lambda question: self._patiently(*question), questions))

    def _patiently(
        self, rows: Ints, names: Sequence[Any], patience: float
    ) -> tuple[Floats, Mapping[int, str]]:
        """Ask, and ask again about the rows that failed, as often and as long as it is allowed."""
        values = np.full((len(rows), len(names)), np.nan)
        waiting, reasons, pause = np.arange(len(rows)), dict[int, str](), FIRST_PAUSE
        for attempt in range(self._retries + 1):
            if attempt:
                if time.monotonic() + pause > patience:
                    break
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            found, reasons = self._once(rows[waiting], names, patience)
            values = _roomy(values, found)
            values[waiting] = found
            waiting = waiting[np.isin(rows[waiting], list(reasons))]
            if not len(waiting):
                break
        return values, reasons

    def _once(self, rows: Ints, names: Sequence[Any], patience: float) -> tuple[Floats, dict[int, str]]:
        """Put one question, and take whatever goes wrong for a failure of its rows."""
        with self._lock:
            self.n_questions += 1
        left = min(np.inf if self._timeout is None else self._timeout, patience - time.monotonic())
        limit = None if np.isinf(left) else max(left, 0.0)
        shape = (len(rows), len(names))
        try:
            said = call_within(limit, lambda: self.ask(rows, names), type(self).__name__)
            delivery = said if isinstance(said, Delivery) else Delivery(said)
            values = _plain(delivery.values)
            if values.shape != shape:
                raise InvalidInputError(f"the answer must have the shape {shape}; got {values.shape}.")
        except Exception as error:  # whatever a driver of somebody else raises
            with self._lock:
                self.failures[type(error).__name__] += 1
            return np.full(shape, np.nan), dict.fromkeys(rows.tolist(), f"{type(error).__name__}: {error}")
        return values, dict(delivery.failed)

    # -- the stock ---------------------------------------------------------------------------------

    def _from_stock(self, rows: Ints, names: Sequence[Any]) -> tuple[Floats, Bools]:
        values = np.full((len(rows), len(names)), np.nan)
        held = np.zeros(values.shape, dtype=bool)
        for place, name in enumerate(names):
            if name in self._stock:
                column, known = self._stock[name]
                values = _roomy(values, column)
                values[:, place], held[:, place] = column[rows], known[rows]
        return values, held

    def _to_stock(self, rows: Ints, names: Sequence[Any], values: Floats) -> None:
        if not self._keeps:
            return
        for place, name in enumerate(names):
            if name not in self._stock:
                self._stock[name] = np.full(self._n_rows, np.nan), np.zeros(self._n_rows, dtype=bool)
            column, known = self._stock[name]
            column = _roomy(column, values)
            column[rows], known[rows] = values[:, place], True
            self._stock[name] = column, known


def _plain(values: Any) -> Any:
    """Values as numbers, or as they are where some of them are text."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        return np.asarray(values, dtype=object)


def _roomy(values: Any, more: Any) -> Any:
    """An array that has room for some more values: text among them has none among numbers."""
    return values.astype(object) if more.dtype == object and values.dtype != object else values


def plain_keys(keys: Any) -> list[Any]:
    """Keys as numbers and text of Python: drivers and JSON know no others."""
    return list(keys.tolist() if hasattr(keys, "tolist") else keys)
