"""The file a sweep is kept in: one SQLite database, written by one process, a cell per transaction.

Whoever is killed loses at most what was being fitted: SQLite rolls an unfinished transaction back when the file is next
opened. The file says what it was made of, and is refused for anything else. It is locked as long as it is
open, by a lock that the operating system takes back from a process that dies.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from numpy.typing import NDArray

from thrifty.bundle.container import Contents, pack, unpack
from thrifty.dynamod.sweeping.identity import differences
from thrifty.errors import InvalidInputError

__all__ = ["FORMAT", "Store", "damaged", "pack_record", "unpack_record"]

FORMAT = 2
"""The layout this version writes and reads."""

_OURS = 0x74687277  # "thrw": SQLite's header says which program a file belongs to
_PATIENCE = 2.0  # seconds in which a process that was just killed gives its lock back
_TABLES = (
    "CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE records (key TEXT PRIMARY KEY, value BLOB NOT NULL)",
)


class Store:
    """Records by key, in a file or in memory; use as a context manager.

    Parameters
    ----------
    path : path or None
        The file; None keeps everything in memory.
    identity : dict
        What the records are made of, as JSON holds it.
    """

    def __init__(self, path: Any, identity: Mapping[str, Any]) -> None:
        self._path = None if path is None else Path(path)
        self._identity = json.loads(json.dumps(dict(identity)))
        with self._in_words():
            self._connection = sqlite3.connect(
                ":memory:" if self._path is None else self._path, timeout=_PATIENCE, isolation_level=None
            )
        try:
            with self._in_words():
                self._open()
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def keys(self) -> set[str]:
        """Keys of everything that is stored."""
        with self._in_words():
            return {key for (key,) in self._connection.execute("SELECT key FROM records")}

    def get(self, key: str) -> bytes | None:
        """The record of a key, if there is one."""
        with self._in_words():
            found = self._connection.execute("SELECT value FROM records WHERE key = ?", (key,)).fetchone()
        return None if found is None else bytes(found[0])

    def put(self, key: str, value: bytes) -> None:
        """Keep a record for good; when this returns it is on the disk. A key is written once."""
        with self._in_words():
            self._connection.execute("INSERT INTO records VALUES (?, ?)", (key, value))

    def _open(self) -> None:
        run = self._connection.execute
        run("PRAGMA locking_mode = EXCLUSIVE")
        run("PRAGMA journal_mode = DELETE")
        run("PRAGMA synchronous = FULL")
        run("BEGIN EXCLUSIVE")
        try:
            if run("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
                self._create()
            else:
                self._check()
        except BaseException:
            run("ROLLBACK")
            raise
        run("COMMIT")

    def _create(self) -> None:
        run = self._connection.execute
        run(f"PRAGMA application_id = {_OURS}")
        for statement in _TABLES:
            run(statement)
        about = {"format": FORMAT, "identity": self._identity}
        self._connection.executemany(
            "INSERT INTO about VALUES (?, ?)", [(name, json.dumps(value)) for name, value in about.items()]
        )

    def _check(self) -> None:
        run = self._connection.execute
        if run("PRAGMA application_id").fetchone()[0] != _OURS:
            raise InvalidInputError(
                f"store {self._path} is a database of another program. Give another file name."
            )
        if run("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise sqlite3.DatabaseError("its pages do not fit together")
        try:
            about = {name: json.loads(value) for name, value in run("SELECT name, value FROM about")}
            found, identity = about["format"], dict(about["identity"])
        except (KeyError, ValueError, TypeError) as error:
            raise sqlite3.DatabaseError("it does not say what it was made of") from error
        if found != FORMAT:
            raise InvalidInputError(
                f"store {self._path} has format {found!r}; this version reads format {FORMAT}. Give another file name, "
                f"or the version of thrifty that made it."
            )
        differing = differences(identity, self._identity)
        if differing:
            raise InvalidInputError(
                f"store {self._path} was made for another sweep: {'; '.join(differing)} differs. Results of the two "
                f"must not be mixed: give another file name, or delete the file to start afresh."
            )

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", None) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise InvalidInputError(
                    f"store {self._path} is in use by another sweep. Wait until that has ended, or give another "
                    f"file name."
                ) from error
            raise InvalidInputError(
                f"store {self._path} cannot be used: {error}. It must be a file in a folder that can be written, on a "
                f"disk with room."
            ) from error
        except sqlite3.DatabaseError as error:
            raise InvalidInputError(
                f"store {self._path} is damaged or no file of a sweep ({error}). Give another file name, or delete it "
                f"to start afresh."
            ) from error


def pack_record(key: str, arrays: Mapping[str, NDArray[Any]], **facts: Any) -> bytes:
    """Arrays by name and facts that JSON holds, as bytes of which none can change unnoticed."""
    return pack(Contents({**facts, "key": key, "names": list(arrays)}, list(arrays.values())))


def unpack_record(key: str, record: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Facts and arrays of the record that was packed under this key."""
    try:
        contents = unpack(record)
        names = contents.facts["names"]
        if contents.facts["key"] != key or len(names) != len(contents.arrays):
            raise InvalidInputError("it is the record of another cell")
        return contents.facts, dict(zip(names, contents.arrays, strict=True))
    except (InvalidInputError, KeyError, TypeError) as error:
        raise damaged(key, error) from error


def damaged(key: str, error: Exception) -> InvalidInputError:
    """The refusal of a record that is not what was written."""
    return InvalidInputError(
        f"the record {key!r} of the store is damaged ({error}). Delete the file to start afresh."
    )
