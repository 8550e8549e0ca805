"""A table of a database as a source of features."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from difflib import get_close_matches
from typing import Any

import numpy as np

from thrifty.arrays import Ints
from thrifty.engine.purchases.readers import Delivery
from thrifty.engine.purchases.retry import RetryingSource, python_values
from thrifty.errors import InvalidInputError


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
