"""Settings of providers, and the sources that they describe."""

import dataclasses
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from thrifty.errors import InvalidInputError
from thrifty.serve.config import meant
from thrifty.sources.memory import DictSource
from thrifty.sources.patient import PatientSource
from thrifty.sources.sql import SqlSource
from thrifty.sources.web import HttpSource
from thrifty.tables.formats import read_table

__all__ = ["Make", "ProviderSettings", "make_of", "settings_of"]

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
