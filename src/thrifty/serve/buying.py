"""Columns that a request does not carry are bought on its way through the stages, from providers, by a key.

A provider is asked through one of the sources of ``thrifty.sources``. What it delivered is kept for a while and costs
nothing when another request needs it. A provider that fails again and again is left alone for a second at a time.

Buying waits for providers, so all of this runs in a thread of its own. The walk, the bill and what becomes of a row for
which a purchase fails are those of ``buy``: the request is a source whose cells are at hand or sold by a provider.
"""

import dataclasses
import sqlite3
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from thrifty.arrays import Bools, Floats, Ints
from thrifty.chain.chain import Chain
from thrifty.chain.sources import Delivery, Ledger
from thrifty.errors import InvalidAnswerError, InvalidInputError, PurchaseFailedError
from thrifty.serve.config import meant
from thrifty.serve.controller import BudgetController
from thrifty.serve.protocol import RequestCells, RequestRows
from thrifty.serve.remote import Breaker
from thrifty.sources.memory import DictSource
from thrifty.sources.patient import PatientSource
from thrifty.sources.sql import SqlSource
from thrifty.sources.web import HttpSource
from thrifty.tables.formats import read_table

__all__ = [
    "Bought",
    "Buyer",
    "Make",
    "Provider",
    "ProviderSettings",
    "Purchased",
    "make_of",
    "providers_of",
    "settings_of",
]

AskFull = Callable[[Any, Any], Floats]


@dataclass(frozen=True)
class Purchased:
    """What became of rows that were bought for.

    Attributes
    ----------
    route, outputs, cost : ndarray
        Who answered each row, -1 being nobody, with what, and what it really paid.
    sent : ndarray of shape (n_rows,), bool
        Rows that got to the full model.
    reasons : dict of int to str
        Why a row is degraded: "provider_NAME", or why the full model did not answer.
    """

    route: Ints
    outputs: Floats
    cost: Floats
    sent: Bools
    reasons: dict[int, str]

    def lost_by_full(self, n_stages: int) -> Ints:
        """Rows that only the full model failed."""
        is_lost = self.sent & (self.route < n_stages)
        bought = [not self.reasons.get(row, "").startswith("provider_") for row in range(len(self.route))]
        return np.flatnonzero(is_lost & np.array(bought))


class Buyer:
    """Buys for the rows of requests.

    Parameters
    ----------
    chain : Chain
        What answers.
    rows : RequestRows
        How rows, and what providers deliver, are read.
    providers : sequence of Provider
        Who sells columns.
    on_failure : {"answer", "skip", "raise"}
        What becomes of a row for which a purchase fails.
    deadline : float
        Seconds that all purchases of a request may take.
    """

    def __init__(
        self,
        chain: Chain,
        rows: RequestRows,
        providers: "Sequence[Provider]",
        on_failure: str,
        deadline: float,
    ) -> None:
        self._chain = replace(chain, names=rows.names)
        self._rows, self._providers = rows, tuple(providers)
        self._on_failure, self._deadline = on_failure, deadline
        self._seller_of = np.full(len(rows.names), -1)
        for number, provider in enumerate(providers):
            for name in provider.settings.names:
                self._seller_of[rows.place_of(name)] = number

    def is_needed(self, cells: RequestCells) -> bool:
        """Whether a request lacks something that can be bought."""
        return any(self._seller_of[column] >= 0 for column in cells.absent)

    def answer(
        self, cells: RequestCells, ask_full: AskFull, controller: BudgetController | None
    ) -> Purchased:
        """Answer the rows of a request, buying what they need."""
        chain = self._chain.with_innermost(_CallableFull(ask_full))
        ledger = Ledger(self._on_failure)
        source = _RequestSource(
            cells,
            self._rows,
            self._providers,
            self._seller_of,
            chain.bought_by_place[-1],
            time.monotonic() + self._deadline,
            keeps_text=chain.levels is not None,
        )
        reader, everyone = chain.buying(source, ledger, cells.row_keys), np.arange(len(cells))
        routes, outputs, sent, first = [], [], [], 0
        while first < len(cells):
            n_rows, point = (
                (len(cells), chain) if controller is None else controller.begin(len(cells) - first)
            )
            rows, costs = everyone[first : first + n_rows], np.zeros(0)
            try:
                walk = point.walk(reader, rows)
                sent.append(walk.route == chain.n_stages)
                route, said = chain.route_and_outputs(reader, rows, walk)
                if source.refusal is not None:
                    raise source.refusal
                # Calls count as answered: were a failed one worth nothing, an outage would send ever more rows on.
                costs = reader.spent(rows, sent[-1].astype(np.intp))
            finally:
                if controller is not None:
                    controller.end(n_rows, costs)
            routes.append(route)
            outputs.append(said)
            first += n_rows
        self._refuse_failed(source)
        cost = reader.spent(everyone, ledger.calls(everyone))
        reason = _reason_of_full(ledger.errors)
        reasons = {row: source.failed_by.get(row, reason) for row in ledger.reasons}
        return Purchased(np.concatenate(routes), np.concatenate(outputs), cost, np.concatenate(sent), reasons)

    def _refuse_failed(self, source: "_RequestSource") -> None:
        if self._on_failure == "raise" and source.failed_by:
            counts = Counter(source.failed_by.values())
            names = ", ".join(name.removeprefix("provider_") for name in counts)
            raise PurchaseFailedError(
                f"what {counts.total()} rows need could not be bought from {names}. Send it, or ask again later."
            )


@dataclass(frozen=True, eq=False)
class _CallableFull:
    """A full model behind a function, which asks another thread or another machine."""

    ask: AskFull

    def outputs(self, table: Any, numbers: Any) -> Floats:
        """What it says."""
        return self.ask(table, numbers)


class _RequestSource:
    """The cells of a request, and what providers sell of those that it lacks.

    Attributes
    ----------
    seller_of : ndarray of shape (n_columns,)
        The number of each column's provider; -1 where nobody sells it.
    failed_by : dict of int to str
        Rows for which a purchase failed, and whose it was.
    refusal : InvalidInputError, optional
        What is wrong with the request itself.
    """

    def __init__(
        self,
        cells: RequestCells,
        rows: RequestRows,
        providers: "Sequence[Provider]",
        seller_of: Ints,
        needed: Bools,
        ends: float,
        *,
        keeps_text: bool,
    ) -> None:
        self._cells, self._rows, self._providers = cells, rows, providers
        self.seller_of, self._needed, self._ends = seller_of, needed, ends
        self._keeps_text = keeps_text
        self.failed_by: dict[int, str] = {}
        self.refusal: InvalidInputError | None = None

    def __len__(self) -> int:
        return len(self._cells)

    def fetch(self, rows: Ints, columns: Ints) -> Delivery:
        """Cells of columns that one provider, or nobody, sells."""
        try:
            if self.refusal is not None:
                raise self.refusal
            self._refuse_unreadable(rows, columns)
            return self._delivered(rows, columns)
        except InvalidInputError as error:
            self.refusal = error
            raise

    def _refuse_unreadable(self, rows: Ints, columns: Ints) -> None:
        """Refuse cells that came and cannot be read, and those that nobody sells, where somebody reads them."""
        for column in columns.tolist():
            one = self._cells.unreadable.get(column)
            if one is None or not self._needed[column]:
                continue
            bad = one.rows[rows]
            if self.seller_of[column] >= 0 and column in self._cells.absent:
                bad = bad & ~self._cells.absent[column][rows]
            if bad.any():
                row = int(rows[bad.argmax()])
                raise InvalidInputError(one.why(one.values[row], row + 1))

    def _delivered(self, rows: Ints, columns: Ints) -> Delivery:
        values = self._cells.numbers[np.ix_(rows, columns)]
        if self._keeps_text:
            values = values.astype(object)
            for place, column in enumerate(columns.tolist()):
                texts = self._cells.texts.get(column)
                values[:, place] = (
                    self._rows.values_of(column, self._cells.numbers[rows, column])
                    if texts is None
                    else [texts[row] for row in rows.tolist()]
                )
        nowhere = np.zeros(len(self._cells), dtype=bool)
        lacking = np.column_stack([self._cells.absent.get(one, nowhere)[rows] for one in columns.tolist()])
        paid = np.zeros(lacking.shape, dtype=bool)
        failed: dict[int, str] = {}
        if self.seller_of[columns[0]] >= 0:
            # Mostly one pattern: all rows of a request carry the same columns.
            for pattern in np.unique(lacking[lacking.any(axis=1)], axis=0):
                here = np.flatnonzero((lacking == pattern).all(axis=1))
                self._buy(rows, columns, here, np.flatnonzero(pattern), values, paid, failed)
        return Delivery(values, failed, paid)

    def _buy(
        self,
        rows: Ints,
        columns: Ints,
        here: Ints,
        lacking: Ints,
        values: Any,
        paid: Bools,
        failed: dict[int, str],
    ) -> None:
        """Buy some columns for some of the rows, and write down what came, what is billed and what failed."""
        provider = self._providers[self.seller_of[columns[0]]]
        keys = self._keys(provider, rows[here], columns[lacking[0]])
        first: dict[Any, int] = {}
        for place, key in enumerate(keys):
            first.setdefault(key, place)
        names = [self._rows.names[column] for column in columns[lacking]]
        bought = provider.buy(list(first), names, self._ends)
        place_of = {key: place for place, key in enumerate(first)}
        for number, key in enumerate(keys):
            place, row = place_of[key], int(rows[here[number]])
            why = bought.failed.get(place)
            for column, value in zip(lacking if why is None else (), bought.values[place], strict=False):
                read, wrong = self._rows.from_provider(int(columns[column]), value)
                why = why or wrong
                is_text = self._keeps_text and self._rows.is_text(self._rows.names[columns[column]])
                values[here[number], column] = value if is_text else read
            if why is not None:
                failed[row] = why
                self.failed_by[row] = f"provider_{provider.name}"
            elif first[key] == number:  # the rows of a request with the same key share one purchase
                paid[here[number], lacking] = bought.paid[place]

    def _keys(self, provider: "Provider", rows: Ints, column: int) -> list[Any]:
        key = provider.settings.key
        given = self._cells.keys.get(key, ())
        keys = [given[row] if len(given) else None for row in rows.tolist()]
        if None in keys:
            row, name = int(rows[keys.index(None)]) + 1, self._rows.names[column]
            raise InvalidInputError(
                f"row {row} has neither column {name!r}, which its route reads, nor {key!r}, by which it is bought. "
                f"Send one of them."
            )
        return keys


def _reason_of_full(errors: Sequence[Exception]) -> str:
    """Why the full model did not answer, in a word that can be counted."""
    for error in errors:
        if hasattr(error, "reason"):
            return str(error.reason)
        if isinstance(error, InvalidAnswerError):
            return "bad_answer"
    return "failed"


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
        Makes the source that is asked about some keys.

    Attributes
    ----------
    outcomes : Counter
        Rows, by whether what they needed was "bought", "cached" or "failed".
    failures : Counter
        Questions that failed by the type of the error, and rows that were not asked for, or not delivered, by why.
    """

    def __init__(self, name: str, settings: "ProviderSettings", make: "Make") -> None:
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
            if self._in_flight >= self.settings.max_in_flight:
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
            while len(self._kept) > self.settings.max_cached:
                self._kept.popitem(last=False)


def providers_of(
    tables: Mapping[str, Any], makes: "Mapping[str, Make] | None" = None
) -> tuple[Provider, ...]:
    """The providers in a file of settings.

    Parameters
    ----------
    tables : dict of str to dict
        Settings of each provider, by its name.
    makes : dict of str to callable, optional
        How to make the source of some of them from keys, where settings cannot tell; ``path`` is then not read.
    """
    found = []
    for name, settings in settings_of(tables).items():
        try:
            make = (makes or {}).get(name) or make_of(settings)
        except InvalidInputError as error:
            raise InvalidInputError(f"[providers.{name}]: {error}") from error
        found.append(Provider(name, settings, make))
    return tuple(found)


Make = Callable[..., PatientSource]
"""Makes a source from the keys to ask about and from ``timeout``, ``retries``, ``deadline`` and ``cache``."""

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
    max_cached : int
        Keys of which something is kept; the oldest make room.
    max_in_flight : int
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
    max_cached: int = 10_000
    max_in_flight: int = 64

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
        for name, least in (("timeout", 1e-3), ("cache", 0), ("max_cached", 1), ("max_in_flight", 1)):
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not value >= least:
                raise InvalidInputError(f"{name} must be a number, at least {least:g}; got {value!r}.")

    @property
    def names(self) -> dict[str, str]:
        """What the provider calls each column."""
        if isinstance(self.columns, Mapping):
            return dict(self.columns)
        return {name: name for name in self.columns}


def settings_of(tables: Mapping[str, Any]) -> dict[str, ProviderSettings]:
    """Settings of providers in a file, by their names; a column must not be sold by two of them."""
    known, found = {one.name for one in dataclasses.fields(ProviderSettings)}, dict[str, ProviderSettings]()
    for name, table in tables.items():
        where = f"[providers.{name}]"
        if not isinstance(table, Mapping):
            raise InvalidInputError(f"{where} must be a table of settings; got {type(table).__name__}.")
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
        except InvalidInputError as error:
            raise InvalidInputError(f"{where}: {error}") from error
        twice = [one for other in found.values() for one in other.names if one in settings.names]
        if twice:
            raise InvalidInputError(f"{where} sells {twice[0]!r}, which another provider sells. Choose one.")
        found[name] = settings
    return found


def make_of(settings: ProviderSettings) -> Make:
    """How to make the source that settings describe from some keys."""
    names = settings.names
    if settings.url is not None:
        if any(name != own for name, own in names.items()):
            raise InvalidInputError("a service is asked by the names of the model: columns must be a list.")
        url, each = settings.url, len(names) * BYTES_PER_VALUE

        def ask(keys: Sequence[Any], **how: Any) -> PatientSource:
            most = SPARE_BYTES + each * len(keys)
            return HttpSource(url, keys, headers=settings.headers, max_bytes=most, **how)

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
