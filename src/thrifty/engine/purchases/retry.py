"""Calls of services that fail: attempts within a deadline, a circuit breaker, and sources of features built on both.

``attempts`` is the one schedule of retries, and ``CircuitBreaker`` the one breaker, of sources, of the remote full
model and of language models.
"""

import copy
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from itertools import repeat
from typing import Any, Literal, Self

import numpy as np

from thrifty.arrays import Bools, Floats, Ints
from thrifty.engine.prices.billing import check_amount
from thrifty.engine.purchases.readers import Delivery
from thrifty.errors import InvalidInputError, RemoteFailure
from thrifty.threads import call_with_timeout

NOT_TRIED = ("breaker_open", "too_many_in_flight", "deadline", "not_started")
"""Reasons of failures in which no request was sent."""


def attempts(
    retries: int | None, ends: float, *, first_pause: float = 0.05, longest_pause: float = 2.0
) -> Iterator[float]:
    """Yield the seconds to wait before each attempt: none before the first, then twice as long each time.

    Parameters
    ----------
    retries : int, optional
        Most attempts after the first; None limits them by time alone.
    ends : float
        Time of the monotonic clock at which the last attempt must begin; the first one is always made.
    first_pause, longest_pause : float
        Seconds before the first retry, and the most before any.

    Examples
    --------
    >>> list(attempts(4, ends=float("inf"), longest_pause=0.15))
    [0.0, 0.05, 0.1, 0.15, 0.15]
    """
    yield 0.0
    pause = first_pause
    for _ in repeat(None) if retries is None else repeat(None, retries):
        if time.monotonic() + pause > ends:
            return
        yield pause
        pause = min(2 * pause, longest_pause)


State = Literal["closed", "open", "half_open"]


class CircuitBreaker:
    """Refuse calls to a service that keeps failing, or that has too many calls in flight.

    Parameters
    ----------
    failures : int
        Failures in a row after which it opens.
    share, window : float, int
        It also opens at such a share of failures among so many of the latest calls.
    pause : float
        Seconds until an open breaker lets a probe through.
    max_in_flight : int
        Most calls at the same time.
    clock : callable
        Seconds of a clock that never goes back.

    Attributes
    ----------
    in_flight : int
        Calls under way.
    """

    def __init__(
        self,
        failures: int = 5,
        share: float = 0.5,
        window: int = 20,
        pause: float = 1.0,
        max_in_flight: int = 64,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if failures < 1 or window < 1 or not 0.0 < share <= 1.0 or not pause >= 0.0:
            raise InvalidInputError(
                f"a breaker must open after at least 1 failure in a row, or a share in (0, 1] of at least 1 call, for "
                f"a pause of at least 0 seconds; got {failures!r} failures, a share of {share!r} of {window!r} calls "
                f"and a pause of {pause!r}. Change the settings that begin with breaker_."
            )
        self._failures, self._share, self._pause, self._clock = failures, share, pause, clock
        self._max_in_flight = max_in_flight
        self._latest: deque[bool] = deque(maxlen=window)  # whether each call failed
        self._in_a_row = self.in_flight = 0
        self._opened_at: float | None = None
        self._is_probing = False
        self._lock = threading.Lock()

    @property
    def state(self) -> State:
        """``"closed"``, ``"open"``, or ``"half_open"`` while a probe may go through or is under way."""
        if self._opened_at is None:
            return "closed"
        is_over = self._clock() - self._opened_at >= self._pause
        return "half_open" if self._is_probing or is_over else "open"

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """One call: refused with a ``RemoteFailure``, or counted by its result."""
        with self._lock:
            if self.in_flight >= self._max_in_flight:
                raise RemoteFailure(
                    "too_many_in_flight", f"{self.in_flight} calls are under way, the most allowed"
                )
            if not self._allows():
                raise RemoteFailure("breaker_open", "it failed so often that it is not asked for a while")
            self.in_flight += 1
        count = self._abandoned
        try:
            yield
            count = self._succeeded
        except Exception:
            count = self._failed
            raise
        finally:
            with self._lock:
                self.in_flight -= 1
                count()

    def _allows(self) -> bool:
        state = self.state
        if state == "half_open" and not self._is_probing:
            self._is_probing = True
            return True
        return state == "closed"

    def _succeeded(self) -> None:
        if self._is_probing:
            self._latest.clear()
            self._opened_at, self._is_probing = None, False
        self._in_a_row = 0
        self._latest.append(False)

    def _failed(self) -> None:
        self._in_a_row += 1
        self._latest.append(True)
        is_full = len(self._latest) == self._latest.maxlen
        too_many = is_full and sum(self._latest) >= self._share * len(self._latest)
        if self._is_probing or self._in_a_row >= self._failures or too_many:
            # Calls that were under way when it opened fail one after another: they do not make the pause longer.
            if self._opened_at is None or self._is_probing:
                self._opened_at = self._clock()
            self._is_probing = False

    def _abandoned(self) -> None:
        """Count nothing for a cancelled call, and allow another probe."""
        self._is_probing = False


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
