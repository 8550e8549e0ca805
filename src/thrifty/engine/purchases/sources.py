"""Sources of features: ``RetryingSource``, and values and functions in memory, SQL tables and HTTP services as such.

Requests go out in chunks and threads, with retries within a deadline, a circuit breaker and a cache. A delivered cell
is cached, so that no cell is bought twice, not even by two batches, and costs nothing again.
"""

import asyncio
import copy
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from difflib import get_close_matches
from typing import Any, Self

import numpy as np

from thrifty.arrays import Bools, Floats, Ints
from thrifty.engine.prices.billing import check_amount
from thrifty.engine.purchases.readers import Delivery, offers_of, side_by_side
from thrifty.engine.purchases.retry import (
    NOT_TRIED,
    CircuitBreaker,
    attempts,
    http_session,
    parse_json,
    post,
    response_limit,
)
from thrifty.engine.table.reader import Schema
from thrifty.errors import InvalidInputError, RemoteFailure
from thrifty.threads import call_with_timeout


class RetryingSource:
    """Base class of sources that send chunked requests with retries; subclasses implement ``ask``, one request.

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
        Number of times that a failed question is asked again, for the rows that failed.
    deadline : float, optional
        Seconds after which nothing is asked again; None is when the retries are used up.
    cache : bool
        Whether delivered cells are cached.

    Attributes
    ----------
    keys : list
        Keys of the rows, where the source has them.
    breaker : CircuitBreaker, optional
        Refuses questions while the source fails again and again; None asks always.
    n_questions : int
        Questions that were put.
    failures : Counter
        Questions that failed as a whole, by the type of the error or the reason of a ``RemoteFailure``.
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
        for name, value, minimum in (
            ("chunk_size", chunk_size, 1),
            ("threads", threads, 1),
            ("retries", retries, 0),
        ):
            if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
                raise InvalidInputError(f"{name} must be a whole number, {minimum} or more; got {value!r}.")
        for name, seconds in (("timeout", timeout), ("deadline", deadline)):
            if seconds is not None:
                check_amount(name, seconds, rule="a number of seconds >= 0, or None to wait")
        self.keys: list[Any] = []
        self.breaker: CircuitBreaker | None = None
        self._n_rows = n_rows
        self._chunk_size, self._threads, self._retries = chunk_size, threads, retries
        self._timeout, self._deadline = timeout, deadline
        self._keeps = cache
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Condition()
        self._cached: dict[Any, tuple[Floats, Bools]] = {}
        # Cells that some thread is asking for.
        self._under_way: dict[Any, Bools] = {}
        self.n_questions = 0
        self.failures: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._n_rows

    def over(self, keys: Sequence[Any], deadline: float | None = None) -> Self:
        """The same source with an empty cache, for the rows of other keys; both share the circuit breaker."""
        other = copy.copy(self)
        other.keys, other._n_rows = python_values(keys), len(keys)
        other._deadline, other._keeps = deadline, True
        other._reset()
        return other

    def ask(self, rows: Ints, names: Sequence[Any]) -> Any:
        """Send one request; return values or a ``Delivery``, or raise."""
        raise NotImplementedError

    def ask_within(self, seconds: float | None, rows: Ints, names: Sequence[Any]) -> Any:
        """Send one request that may take ``seconds``; None waits."""
        return call_with_timeout(seconds, lambda: self.ask(rows, names), type(self).__name__)

    def fetch(self, rows: Ints, names: Sequence[Any]) -> Delivery:
        """Values of the named columns, cached or bought, for the rows that could be delivered.

        Several threads may call this at once: a cell that one of them is asking for is waited for by the others.
        """
        with self._claimed(rows, names) as (values, lacking):
            return self._bought(rows, names, values, lacking)

    def _bought(self, rows: Ints, names: Sequence[Any], values: Any, lacking: Bools) -> Delivery:
        """Buy the cells that are lacking."""
        ends = np.inf if self._deadline is None else time.monotonic() + self._deadline
        failed: dict[int, str] = {}
        # Mostly all rows lack the same columns, which is found sooner than by sorting the rows.
        alike = len(rows) > 0 and (lacking == lacking[0]).all()
        for pattern in lacking[:1] if alike else np.unique(lacking, axis=0):
            if not pattern.any():
                continue
            places = np.flatnonzero((lacking == pattern).all(axis=1))
            wanted = [name for name, is_lacking in zip(names, pattern, strict=True) if is_lacking]
            chunks = np.split(places, np.arange(self._chunk_size, len(places), self._chunk_size))
            questions = [(rows[chunk], wanted, ends) for chunk in chunks]
            for chunk, (bought, reasons) in zip(chunks, self._side_by_side(questions), strict=True):
                values = _with_room_for(values, bought)
                values[np.ix_(chunk, np.flatnonzero(pattern))] = bought
                failed.update(reasons)
        return Delivery(values, failed, paid=lacking)

    @contextmanager
    def _claimed(self, rows: Ints, names: Sequence[Any]) -> Iterator[tuple[Any, Bools]]:
        """Cached values, and the cells that only this thread may request until the end of the block."""
        if not self._keeps:
            yield np.full((len(rows), len(names)), np.nan), np.ones((len(rows), len(names)), dtype=bool)
            return
        with self._lock:
            claims = [self._under_way.setdefault(name, np.zeros(self._n_rows, dtype=bool)) for name in names]
            while True:
                values, held = self._from_cache(rows, names)
                # A thread that waits has no claims, so that no two wait for each other.
                if not any((claim[rows] & ~held[:, place]).any() for place, claim in enumerate(claims)):
                    break
                self._lock.wait()
            for place, claim in enumerate(claims):
                claim[rows[~held[:, place]]] = True
        try:
            yield values, ~held
        finally:
            with self._lock:
                for place, claim in enumerate(claims):
                    claim[rows[~held[:, place]]] = False
                self._lock.notify_all()

    def _side_by_side(self, questions: Sequence[tuple[Any, ...]]) -> list[tuple[Floats, Mapping[int, str]]]:
        n_threads = min(self._threads, len(questions))
        if n_threads == 1:
            return [self._ask_again(*question) for question in questions]
        with ThreadPoolExecutor(n_threads) as pool:
            try:
                return list(pool.map(lambda question: self._ask_again(*question), questions))
            except BaseException:  # an interrupt: requests not sent yet are not made
                pool.shutdown(cancel_futures=True)
                raise

    def _ask_again(self, rows: Ints, names: Sequence[Any], ends: float) -> tuple[Floats, Mapping[int, str]]:
        """Send a request, and retry the rows that failed within ``retries`` and the deadline."""
        values = np.full((len(rows), len(names)), np.nan)
        waiting, reasons = np.arange(len(rows)), dict[int, str]()
        for pause in attempts(self._retries, ends):
            time.sleep(pause)
            answers, reasons, was_tried = self._ask_once(rows[waiting], names, ends)
            values = _with_room_for(values, answers)
            values[waiting] = answers
            failed = np.isin(rows[waiting], list(reasons))
            if self._keeps:  # before anything else: deliveries are paid for
                self.keep(rows[waiting[~failed]], names, answers[~failed])
            waiting = waiting[failed]
            if not len(waiting) or not was_tried:
                break
        return values, reasons

    def _ask_once(self, rows: Ints, names: Sequence[Any], ends: float) -> tuple[Floats, dict[int, str], bool]:
        """Send one request: values, failed rows (all of them where the request fails), and whether it was sent."""
        left = min(np.inf if self._timeout is None else self._timeout, ends - time.monotonic())
        shape, reason = (len(rows), len(names)), ""
        try:
            if left <= 0:
                raise RemoteFailure("deadline", "the deadline passed before the question was put")
            with nullcontext() if self.breaker is None else self.breaker.attempt():
                with self._lock:
                    self.n_questions += 1
                answer = self.ask_within(None if np.isinf(left) else left, rows, names)
                delivery = answer if isinstance(answer, Delivery) else Delivery(answer)
                values = _as_array(delivery.values)
                if values.shape != shape:
                    raise InvalidInputError(f"the answer must have the shape {shape}; got {values.shape}.")
        except Exception as error:  # a driver of another library may raise anything
            reason = error.reason if isinstance(error, RemoteFailure) else type(error).__name__
            with self._lock:
                self.failures[reason] += 1
            words = str(error) if isinstance(error, RemoteFailure) else f"{reason}: {error}"
            return np.full(shape, np.nan), dict.fromkeys(rows.tolist(), words), reason not in NOT_TRIED
        return values, dict(delivery.failed), True

    # -- the cache ---------------------------------------------------------------------------------

    def _from_cache(self, rows: Ints, names: Sequence[Any]) -> tuple[Floats, Bools]:
        values = np.full((len(rows), len(names)), np.nan)
        held = np.zeros(values.shape, dtype=bool)
        for place, name in enumerate(names):
            if name in self._cached:
                column, is_cached = self._cached[name]
                values = _with_room_for(values, column)
                values[:, place], held[:, place] = column[rows], is_cached[rows]
        return values, held

    def keep(self, rows: Ints, names: Sequence[Any], values: Floats) -> None:
        """Add values of some cells to the cache."""
        with self._lock:
            for place, name in enumerate(names):
                if name not in self._cached:
                    self._cached[name] = np.full(self._n_rows, np.nan), np.zeros(self._n_rows, dtype=bool)
                column, is_cached = self._cached[name]
                column = _with_room_for(column, values)
                column[rows], is_cached[rows] = values[:, place], True
                self._cached[name] = column, is_cached


def _as_array(values: Any) -> Any:
    """Values as numbers, or as they are where some of them are text or truth values."""
    array = np.asarray(values)
    if array.dtype == object and bool in set(map(type, array.ravel().tolist())):
        return array
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        return np.asarray(values, dtype=object)


def _with_room_for(values: Any, more: Any) -> Any:
    """An array that can hold some more values: text has no place among numbers."""
    return values.astype(object) if more.dtype == object and values.dtype != object else values


def python_values(keys: Any) -> list[Any]:
    """Keys as numbers and text of Python: drivers and JSON know no others."""
    return list(keys.tolist() if hasattr(keys, "tolist") else keys)


# -- ready sources -----------------------------------------------------------------------------


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


class SqlSource(RetryingSource):
    """A table, or a view, with a row for each key.

    Each stage puts one query for every ``chunk_size`` rows that get there: the columns that they lack, for their keys.

    Parameters
    ----------
    connect : callable
        Opens a connection, such as ``lambda: sqlite3.connect("customers.db")``. It is called for every query, in the
        thread that puts it, and the connection is closed afterwards; where opening one is slow, give one of a pool.
    table : str
        Name of the table or view.
    key : str
        Column with the key of each row.
    keys : sequence
        The rows to ask about, by their keys, in the order of the answers.
    columns : dict of name to str, optional
        Columns of the table, by the names of the fit, where they differ.
    placeholder : str, default="?"
        Parameter in the syntax of the driver: "?" for sqlite3, "%s" for most others.
    quote : str, default='"'
        Quotes around names in the database.
    **options
        ``chunk_size``, ``threads``, ``timeout``, ``retries``, ``deadline`` and ``cache`` of ``RetryingSource``; a chunk
        is one query.

    Examples
    --------
    >>> import sqlite3, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "people.db"
    >>> with sqlite3.connect(path) as people:
    ...     _ = people.execute("create table people (id text primary key, age real, income real)")
    ...     _ = people.executemany("insert into people values (?, ?, ?)", [("ann", 41, 9), ("bob", 27, None)])
    >>> source = SqlSource(lambda: sqlite3.connect(path), "people", "id", ["bob", "ann", "eve"])
    >>> delivery = source.fetch(np.array([0, 1, 2]), ["income"])
    >>> delivery.values.ravel().tolist(), delivery.failed
    ([nan, 9.0, nan], {2: "people has no row with id = 'eve'"})
    """

    def __init__(
        self,
        connect: Callable[[], Any],
        table: str,
        key: str,
        keys: Sequence[Any],
        *,
        columns: Mapping[Any, str] | None = None,
        placeholder: str = "?",
        quote: str = '"',
        **options: Any,
    ) -> None:
        if not callable(connect):
            raise InvalidInputError(
                f"connect must be a function that opens a connection, because every query has one of its own; got "
                f"{type(connect).__name__}. Write lambda: sqlite3.connect(path)."
            )
        super().__init__(len(keys), **options)
        self.keys = python_values(keys)
        self._connect = connect
        self._table, self._key = table, key
        self._columns = dict(columns or {})
        self._placeholder, self._quote = placeholder, quote

    def check(self, names: Sequence[Any]) -> None:
        """Refuse columns that the table does not have."""
        try:
            with closing(self._connect()) as connection, closing(connection.cursor()) as cursor:
                cursor.execute(f"SELECT * FROM {self._quoted(self._table)} WHERE 1 = 0")
                columns = [column[0] for column in cursor.description]
        except Exception as error:  # every driver has errors of its own
            raise InvalidInputError(
                f"the table {self._table!r} must be there to buy from; the database says {type(error).__name__}: "
                f"{error}. Check connect and table."
            ) from error
        for wanted in [self._key, *(self._column(name) for name in names)]:
            if wanted not in columns:
                near = get_close_matches(str(wanted), columns, n=1)
                hint = (
                    f"did you mean {near[0]!r}?" if near else f"it has {', '.join(map(repr, columns[:8]))}."
                )
                raise InvalidInputError(
                    f"the table {self._table!r} has no column {wanted!r}; {hint} Where names differ, say so in "
                    f"columns={{name: column}}."
                )

    def ask(self, rows: Ints, names: Sequence[Any]) -> Delivery:
        """Send one query."""
        keys = [self.keys[row] for row in rows.tolist()]
        table = self._quoted(self._table)
        # With the name of the table: SQLite takes a quoted name of no column for text.
        key_column, *columns = [
            f"{table}.{self._quoted(column)}" for column in (self._key, *map(self._column, names))
        ]
        query = (
            f"SELECT {', '.join([key_column, *columns])} FROM {table} "
            f"WHERE {key_column} IN ({', '.join([self._placeholder] * len(keys))})"
        )
        with closing(self._connect()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(query, keys)
            lines = cursor.fetchall()
        by_key, n_lines = {line[0]: line[1:] for line in lines}, Counter(line[0] for line in lines)
        nothing = (None,) * len(names)
        values = np.array([by_key.get(key, nothing) for key in keys], dtype=object).reshape(len(keys), -1)
        failed = {}
        for row, key in zip(rows.tolist(), keys, strict=True):
            if n_lines[key] != 1:
                rule = f"{n_lines[key]} rows, where one must be," if n_lines[key] else "no row"
                failed[row] = f"{self._table} has {rule} with {self._key} = {key!r}"
        return Delivery(values, failed)

    def _column(self, name: Any) -> str:
        column = self._columns.get(name, name)
        if not isinstance(column, str):
            raise InvalidInputError(
                f"the fit knew no names of columns, and a table of a database has nothing else: name column {name!r} "
                f"in columns={{{name!r}: ...}}, or fit on a data frame."
            )
        return column

    def _quoted(self, name: str) -> str:
        if self._quote in name:
            raise InvalidInputError(f"a name in a database must not contain {self._quote}; got {name!r}.")
        return f"{self._quote}{name}{self._quote}"


class HttpSource(RetryingSource):
    """A service that takes a POST of ``{"rows": [keys], "columns": [names]}``; needs aiohttp (``thrifty[serve]``).

    It answers with ``{"values": [[...], ...]}``, a list per row in the order asked for and ``null`` where a value is
    missing; ``"failed": {"key": "why"}`` may name rows that it could not deliver. Redirects are not followed.

    Parameters
    ----------
    url : str
        Address of the service, http or https.
    keys : sequence
        The rows to ask about, as the service calls them, in the order of the answers.
    headers : dict, optional
        Headers of every question, such as an authorisation.
    max_bytes : int, optional
        Size of the largest response that is read; None is 64 KiB, and 1 KiB for each value that was asked for.
    threads, timeout, retries : int, float, int
        As ``RetryingSource`` takes them.
    **options
        ``chunk_size``, ``deadline`` and ``cache`` of ``RetryingSource``.
    """

    def __init__(
        self,
        url: str,
        keys: Sequence[Any],
        *,
        headers: Mapping[str, str] | None = None,
        max_bytes: int | None = None,
        threads: int = 4,
        timeout: float | None = 30.0,
        retries: int = 3,
        **options: Any,
    ) -> None:
        if not str(url).startswith(("http://", "https://")):
            raise InvalidInputError(f"url must begin with http:// or https://; got {url!r}.")
        super().__init__(len(keys), threads=threads, timeout=timeout, retries=retries, **options)
        self.keys = python_values(keys)
        self._url, self._max_bytes = url, max_bytes
        self._headers = {"Content-Type": "application/json", **(headers or {})}

    def ask_within(self, seconds: float | None, rows: Ints, names: Sequence[Any]) -> Delivery:
        """Send one request; one that takes too long is cancelled, and its connection closed."""
        keys = [self.keys[row] for row in rows.tolist()]
        body = json.dumps({"rows": keys, "columns": list(names)}).encode()
        largest = response_limit(len(keys) * len(names)) if self._max_bytes is None else self._max_bytes
        response = _run_in_event_loop(self._post(body, largest, seconds))
        try:
            answer = parse_json(response)
        except ValueError as error:
            raise RemoteFailure(
                "bad_json", f"the response must be JSON with different keys: {error}"
            ) from error
        values = answer.get("values") if isinstance(answer, dict) else None
        if not isinstance(values, list) or not all(map(_is_row, values)):
            raise RemoteFailure(
                "bad_json", f'the response must be {{"values": [[...], ...]}}; got {str(answer)[:80]!r}'
            )
        failed = answer.get("failed") or {}
        row_of = {str(key): int(row) for key, row in zip(keys, rows, strict=True)}
        return Delivery(
            np.array(values, dtype=object).reshape(len(values), -1),
            {row_of[key]: str(why) for key, why in failed.items() if key in row_of},
        )

    async def _post(self, body: bytes, largest: int, seconds: float | None) -> bytes:
        async with http_session(self._headers) as session:
            return await post(session, self._url, body, max_bytes=largest, seconds=seconds)


def _is_row(row: Any) -> bool:
    """True if a row of a response is a list of numbers, text, truth values and nulls."""
    return isinstance(row, list) and not any(isinstance(cell, list | dict) for cell in row)


_loop_of_process: tuple[int, asyncio.AbstractEventLoop] | None = None
_starting = threading.Lock()


def _run_in_event_loop(work: Coroutine[Any, Any, bytes]) -> bytes:
    """Result of a coroutine, run by the one event loop in a thread of its own that all sources share."""
    global _loop_of_process
    with _starting:
        if _loop_of_process is None or _loop_of_process[0] != os.getpid():  # a fork has no such thread
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="thrifty-http", daemon=True).start()
            _loop_of_process = os.getpid(), loop
    future = asyncio.run_coroutine_threadsafe(work, _loop_of_process[1])
    try:
        return future.result()
    except BaseException:
        future.cancel()  # the caller was interrupted
        raise


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
