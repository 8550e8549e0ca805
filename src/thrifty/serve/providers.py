"""Providers: who sells the columns that a request does not carry, asked by a key that it does carry.

A provider is asked through one of the sources of ``thrifty.sources``. What it delivered is kept for a while and costs
nothing when another request needs it. A provider that fails again and again is left alone for a second at a time.
"""

import dataclasses
import sqlite3
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from thrifty.exceptions import InvalidInputError
from thrifty.serve.breaker import Breaker
from thrifty.serve.config import meant
from thrifty.sources.memory import DictSource
from thrifty.sources.patient import PatientSource
from thrifty.sources.sql import SqlSource
from thrifty.sources.web import HttpSource
from thrifty.tables.formats import read_table

__all__ = ["Bought", "Provider", "ProviderSettings", "providers_of"]

Make = Callable[..., PatientSource]

SPARE_BYTES, BYTES_PER_VALUE = 2**16, 2**10
"""Size of the largest answer of a service: many times what an answer takes, and no flood."""


@dataclass(frozen=True)
class ProviderSettings:
    """How a provider is asked; exactly one of ``url``, ``database`` and ``path`` says where.

    Attributes
    ----------
    columns : list of str, or dict of str to str
        Columns of the model that it sells; a table tells what it calls them, where that differs.
    key : str
        Name under which requests carry what it knows rows by, and, in a database or a file, the column that holds it.
    url : str, optional
        Address of a service, asked as ``HttpSource`` asks.
    headers : dict of str to str
        Headers of every question to that service, such as an authorisation.
    database, table : str, optional
        File of an SQLite database, and the table or view in it.
    path : str, optional
        A CSV or Parquet file, which is read once, when the gateway starts.
    timeout : float
        Seconds that one question may take.
    retries : int
        How often a question that failed is put again, while the deadline of the request allows it.
    cache : float
        Seconds for which what was delivered is kept; 0 keeps nothing.
    most_cached : int
        Keys of which something is kept; the oldest make room.
    most_in_flight : int
        Most questions at the same time; a purchase that would be one more fails at once.
    """

    columns: Any
    key: str
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    database: str | None = None
    table: str | None = None
    path: str | None = None
    timeout: float = 0.25
    retries: int = 1
    cache: float = 0.0
    most_cached: int = 10_000
    most_in_flight: int = 64

    def __post_init__(self) -> None:
        if sum(one is not None for one in (self.url, self.database, self.path)) != 1:
            raise InvalidInputError("exactly one of url, database and path must say where to buy.")
        if (self.database is None) != (self.table is None):
            raise InvalidInputError(
                "database and table belong together: the file, and the table or view in it."
            )
        named = self.columns if isinstance(self.columns, Mapping | list) else []
        if not named or not all(isinstance(one, str) for one in [*named, *self.names.values()]):
            raise InvalidInputError(f"columns must be a list of names of columns; got {self.columns!r}.")
        if not isinstance(self.key, str) or not self.key:
            raise InvalidInputError(f"key must be the name under which requests carry it; got {self.key!r}.")
        for name, least in (("timeout", 1e-3), ("cache", 0), ("most_cached", 1), ("most_in_flight", 1)):
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not value >= least:
                raise InvalidInputError(f"{name} must be a number, at least {least:g}; got {value!r}.")

    @property
    def names(self) -> dict[str, str]:
        """What the provider calls each column."""
        if isinstance(self.columns, Mapping):
            return dict(self.columns)
        return {name: name for name in self.columns}


@dataclass(frozen=True)
class Bought:
    """What came of a purchase for some keys.

    Attributes
    ----------
    values : ndarray of shape (n_keys, n_columns), object
        What was delivered.
    paid : ndarray of shape (n_keys, n_columns), bool
        Cells that were not at hand already.
    failed : dict of int to str
        Why nothing was delivered, by the place of the key.
    """

    values: Any
    paid: Any
    failed: dict[int, str]


class Provider:
    """Sells columns by key; may be asked by several threads.

    Parameters
    ----------
    name : str
        What metrics call it.
    settings : ProviderSettings
        How it is asked.
    make : callable
        Makes a source from the keys to ask about and from ``timeout``, ``retries``, ``deadline`` and ``cache``.

    Attributes
    ----------
    outcomes : Counter
        Rows, by whether what they needed was "bought", "cached" or "failed".
    failures : Counter
        Questions that failed by the type of the error, and rows that were not asked for, or not delivered, by why.
    """

    def __init__(self, name: str, settings: ProviderSettings, make: Make) -> None:
        self.name, self.settings, self._make = name, settings, make
        self.breaker = Breaker()
        self.outcomes: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self._in_flight = 0
        self._lock = Lock()
        self._kept: OrderedDict[Any, tuple[float, dict[str, Any]]] = OrderedDict()

    def buy(self, keys: Sequence[Any], names: Sequence[str], ends: float) -> Bought:
        """Values of some columns for some keys, which differ, before a time of the monotonic clock."""
        held = self._from_cache(keys)
        lacking: dict[tuple[str, ...], list[int]] = {}
        for place, found in enumerate(held):
            lacking.setdefault(tuple(name for name in names if name not in found), []).append(place)
        failed: dict[int, str] = {}
        paid = np.array([[name not in found for name in names] for found in held], dtype=bool)
        for wanted, places in lacking.items():
            if wanted:
                failed |= self._ask([keys[place] for place in places], wanted, ends, places, held)
        values = np.array([[found.get(name) for name in names] for found in held], dtype=object)
        with self._lock:
            is_new = paid.any(axis=1)
            self.outcomes["failed"] += len(failed)
            self.outcomes["bought"] += int(is_new.sum()) - len(failed)
            self.outcomes["cached"] += int((~is_new).sum())
        return Bought(values.reshape(len(keys), len(names)), paid, failed)

    def _ask(
        self,
        keys: list[Any],
        wanted: Sequence[str],
        ends: float,
        places: list[int],
        held: list[dict[str, Any]],
    ) -> dict[int, str]:
        """Ask about keys that lack the same columns, add what came to what they hold, and tell what did not."""
        left = ends - time.monotonic()
        reason = "deadline" if left <= 0 else self._begin()
        if reason is not None:
            return self._not_sold(reason, places)
        how = {"timeout": self.settings.timeout, "retries": self.settings.retries, "deadline": left}
        try:
            source = self._make(keys, **how, cache=False)
            delivery = source.fetch(np.arange(len(keys)), list(wanted))
        except Exception as error:  # of a source of somebody else
            self._end(Counter({type(error).__name__: 1}), is_there=False)
            return dict.fromkeys(places, f"{self.name} failed ({type(error).__name__})")
        failures = source.failures or Counter(not_delivered=len(delivery.failed))
        # One try that was answered shows that the provider is there.
        self._end(failures, is_there=source.n_questions > source.failures.total())
        for number, place in enumerate(places):
            if number not in delivery.failed:
                found = [
                    one.item() if isinstance(one, np.generic) else one for one in delivery.values[number]
                ]
                held[place].update(zip(wanted, found, strict=True))
                self._to_cache(keys[number], held[place])
        return {places[number]: str(why) for number, why in delivery.failed.items()}

    def _not_sold(self, reason: str, places: list[int]) -> dict[int, str]:
        with self._lock:
            self.failures[reason] += len(places)
        return dict.fromkeys(places, f"{self.name} was not asked ({reason})")

    def _begin(self) -> str | None:
        """Take a place among the questions under way, or say why there is none."""
        with self._lock:
            if self._in_flight >= self.settings.most_in_flight:
                return "too_many_in_flight"
            if not self.breaker.allows():
                return "breaker_open"
            self._in_flight += 1
            return None

    def _end(self, failures: Counter[str], *, is_there: bool) -> None:
        with self._lock:
            self._in_flight -= 1
            self.failures.update(failures)
            (self.breaker.succeeded if is_there else self.breaker.failed)()

    # -- what is kept ------------------------------------------------------------------------------

    def _from_cache(self, keys: Sequence[Any]) -> list[dict[str, Any]]:
        """What is held of each key, in dictionaries of their own."""
        if not self.settings.cache:
            return [{} for _ in keys]
        now, nothing = time.monotonic(), (0.0, dict[str, Any]())
        with self._lock:
            found = [self._kept.get(key, nothing) for key in keys]
        return [dict(values) if until > now else {} for until, values in found]

    def _to_cache(self, key: Any, values: Mapping[str, Any]) -> None:
        if not self.settings.cache:
            return
        with self._lock:
            now, (until, _) = time.monotonic(), self._kept.pop(key, (0.0, None))
            # What was kept before keeps its time: old values must not live on because others came.
            self._kept[key] = (until if until > now else now + self.settings.cache), dict(values)
            while len(self._kept) > self.settings.most_cached:
                self._kept.popitem(last=False)


def providers_of(tables: Mapping[str, Any], makes: Mapping[str, Make] | None = None) -> tuple[Provider, ...]:
    """The providers in a file of settings.

    Parameters
    ----------
    tables : dict of str to dict
        Settings of each provider, by its name.
    makes : dict of str to callable, optional
        How to make the source of some of them from keys, where settings cannot tell; ``path`` is then not read.
    """
    known = {one.name for one in dataclasses.fields(ProviderSettings)}
    found: list[Provider] = []
    for name, table in tables.items():
        where = f"[providers.{name}]"
        if not isinstance(table, Mapping):
            raise InvalidInputError(f"{where} must be a table of settings; got {table!r}.")
        for setting in table:
            if setting not in known:
                raise InvalidInputError(
                    f"{where} sets {setting!r}, which is no setting.{meant(setting, known)}"
                )
        for setting in ("columns", "key"):
            if setting not in table:
                raise InvalidInputError(f"{where} must set {setting!r}.")
        try:
            settings = ProviderSettings(**table)
            make = (makes or {}).get(name) or _make_of(settings)
        except InvalidInputError as error:
            raise InvalidInputError(f"{where}: {error}") from error
        twice = [one for other in found for one in other.settings.names if one in settings.names]
        if twice:
            raise InvalidInputError(f"{where} sells {twice[0]!r}, which another provider sells. Choose one.")
        found.append(Provider(name, settings, make))
    return tuple(found)


def _make_of(settings: ProviderSettings) -> Make:
    """How to make the source that settings describe from some keys."""
    names = settings.names
    if settings.url is not None:
        if any(name != own for name, own in names.items()):
            raise InvalidInputError("a service is asked by the names of the model: columns must be a list.")
        url, each = settings.url, len(names) * BYTES_PER_VALUE

        def ask(keys: Sequence[Any], **how: Any) -> PatientSource:
            most = SPARE_BYTES + each * len(keys)
            return HttpSource(url, keys, headers=settings.headers, most_bytes=most, **how)

        return ask
    if settings.database is not None:
        path = Path(settings.database).resolve()
        address, table = f"{path.as_uri()}?mode=ro", str(settings.table)

        def connect() -> sqlite3.Connection:
            return sqlite3.connect(address, uri=True, timeout=settings.timeout)

        SqlSource(connect, table, settings.key, [], columns=names).check(list(names))
        return lambda keys, **how: SqlSource(connect, table, settings.key, keys, columns=names, **how)
    return _in_memory(settings)


def _in_memory(settings: ProviderSettings) -> Make:
    """A file as values by key."""
    frame = read_table(str(settings.path))
    for name in (settings.key, *settings.names.values()):
        if name not in frame.columns:
            raise InvalidInputError(
                f"{settings.path} has no column {name!r}.{meant(name, [str(one) for one in frame.columns])}"
            )
    keys = frame[settings.key].tolist()
    if len(set(keys)) < len(keys):
        raise InvalidInputError(f"{settings.path} has a value of {settings.key!r} twice. Keys must differ.")
    line_of = {key: line for line, key in enumerate(keys)}
    columns = {name: frame[own].to_numpy() for name, own in settings.names.items()}

    def make(keys: Sequence[Any], **_: Any) -> PatientSource:
        # Nobody has to be waited for, so there is nothing to keep time of.
        return _Lines(columns, [line_of.get(key) for key in keys], retries=0, cache=False)

    return make


class _Lines(DictSource):
    """Lines of a table in memory; None is a key that it does not have."""

    def __init__(self, columns: Mapping[str, Any], lines: Sequence[int | None], **how: Any) -> None:
        super().__init__(columns, **how)
        self._lines = lines

    def ask(self, rows: Any, names: Sequence[Any]) -> Any:
        """Look the lines up."""
        lines = [self._lines[row] for row in rows.tolist()]
        said = super().ask(np.array([line or 0 for line in lines]), names)
        strange = [row for row, line in zip(rows.tolist(), lines, strict=True) if line is None]
        return dataclasses.replace(said, failed=dict.fromkeys(strange, "the file has no line with this key"))
