"""What the columns of a table mean: features, text, dates, target, keys.

The column that a system answers for: labels of classes, numbers, or the relevance of documents to their query.

Text and truth values are labels. Numbers are labels while few of them differ, at most ``MOST_NUMBERED``; of more, the
number itself is predicted. Numbers are relevance where another column names the query of each row.

What the columns of a table mean: their order, the text they may hold, the label.

Models read numbers. A column of text becomes the number of its category, counted in sorted order among those seen when
the schema was learned. The schema is kept with the system: whatever comes later is read in the same way, or refused by
the name of the column and the value. Dates are read as days since the first of January 1970.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Floats, Labels, Words
from thrifty.chain.columns import Levels, level_numbers, level_text, truth_of
from thrifty.errors import InvalidInputError
from thrifty.rows import key_words
from thrifty.tables.formats import listed
from thrifty.tables.reader import Cells, Unreadable
from thrifty.tasks.ranking import GRADES

__all__ = [
    "MOST_CATEGORIES",
    "TASKS",
    "Schema",
    "classes_of",
    "documents_of",
    "is_number",
    "is_text",
    "labels_of",
    "learn_schema",
    "numbers_of",
    "plain",
    "task_of",
]

TASKS = ("classes", "number", "ranking")
"""What a target may be said to hold."""

MOST_NUMBERED = 30
"""A column with more distinct numbers than this holds numbers, not classes, unless somebody says otherwise."""

MOST_LABELS = 1000
"""A target with more distinct values than this holds numbers or names, not classes."""


def task_of(frame: Any, target: str, task: str | None, query: str) -> str | None:
    """What the target is said to hold: relevance where a column of queries is named, else ``task`` as it is."""
    if task == "ranking" and not query:
        raise InvalidInputError(
            f"--task ranking needs --query, the column that says which query each row is a document of; the table has "
            f"{listed(frame.columns)}."
        )
    if not query:
        return task
    if task not in (None, "ranking"):
        raise InvalidInputError(
            f"--query is for --task ranking; got --query {query} and --task {task}. Leave one of them out."
        )
    if query == target or query not in frame.columns:
        raise InvalidInputError(
            f"--query must name a column of the table besides {target!r}, the target; got {query!r}, and the table has "
            f"{listed(frame.columns)}."
        )
    return "ranking"


def classes_of(frame: Any, target: str, task: str | None = None) -> NDArray[Any]:
    """The classes that the target holds, in order; none where it holds numbers or relevance.

    Parameters
    ----------
    frame : pandas data frame
        The training table.
    target : str
        Name of the column.
    task : {"classes", "number", "ranking"}, optional
        What it is said to hold; None decides by the column.
    """
    if task not in (None, *TASKS):
        raise InvalidInputError(f"--task must be one of {', '.join(TASKS)}; got {task!r}.")
    if task == "ranking":
        return np.empty(0)
    if task == "number":
        _refuse_constant(numbers_of(frame, target), target)
        return np.empty(0)
    labels = labels_of(frame, target)
    if task is None and labels.dtype.kind in "iuf" and len(np.unique(labels)) > MOST_NUMBERED:
        numbers_of(frame, target)
        return np.empty(0)
    return _distinct(labels, target)


def labels_of(frame: Any, target: str) -> NDArray[Any]:
    """The label of each row as numbers, truth values or text."""
    column = _column(frame, target)
    if is_text(column):
        return np.array([str(label) for label in column], dtype=object)
    labels: NDArray[Any] = column.to_numpy()
    return labels.astype(np.float64) if labels.dtype.kind == "O" else labels


def numbers_of(frame: Any, target: str) -> Floats:
    """The number of each row, all of them finite."""
    column = _column(frame, target)
    values = column.to_numpy(dtype=object)
    numbers = np.array([float(value) if is_number(value) else np.nan for value in values])
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if wrong.size:
        row = int(wrong[0])
        raise InvalidInputError(
            f"column {target!r} must hold finite numbers, which are what is predicted; got {plain(values[row])!r} in "
            f"row {row + 1}. Correct it, leave the row out, or have labels predicted with --task classes."
        )
    return numbers


def documents_of(frame: Any, target: str, query: str) -> Labels:
    """Relevance and number of the query of each row, shape (n_rows, 2); rows of a query stand together."""
    values = _column(frame, target).to_numpy(dtype=object)
    grades = np.array([float(value) if is_number(value) else np.nan for value in values])
    wrong = np.flatnonzero(~np.isin(grades, np.arange(GRADES)))
    if wrong.size:
        row = int(wrong[0])
        raise InvalidInputError(
            f"column {target!r} must hold grades of relevance, whole numbers from 0 to {GRADES - 1}; got "
            f"{plain(values[row])!r} in row {row + 1}. The gain of a grade is 2**grade - 1: make grades of finer "
            f"numbers."
        )
    column = _column(frame, query, "the query").astype("object")
    names = np.array([str(name) for name in column], dtype=object)
    is_first = np.r_[True, names[1:] != names[:-1]]
    seen: set[str] = set()
    for row in np.flatnonzero(is_first).tolist():
        if names[row] in seen:
            raise InvalidInputError(
                f"column {query!r} must have the rows of a query one after the other; {names[row]!r} comes back in row "
                f"{row + 1}. Sort the table by {query!r}."
            )
        seen.add(names[row])
    return np.column_stack([grades, np.cumsum(is_first) - 1])


def is_text(column: Any) -> bool:
    """Whether a column of a table holds text."""
    if str(column.dtype) == "category":
        return True
    if column.dtype.kind in "biuf":
        return False
    return bool(column.dropna().map(lambda value: isinstance(value, str)).any())


def is_number(value: Any) -> bool:
    """Whether a value is a number, or text that can be read as one."""
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def plain(value: Any) -> Any:
    """A value as Python writes it."""
    return value.item() if isinstance(value, np.generic) else value


def _column(frame: Any, target: str, called: str = "the label") -> Any:
    """The column, which holds something in every row."""
    if target not in frame.columns:
        is_headless = sum(is_number(name) for name in frame.columns) > len(frame.columns) / 2
        raise InvalidInputError(
            f"the table has no column {target!r}, which should hold {called}. Its columns are {listed(frame.columns)}."
            + (" The first line of a file must hold the names of its columns." if is_headless else "")
        )
    column = frame[target]
    missing = np.flatnonzero(column.isna())
    if missing.size:
        raise InvalidInputError(
            f"column {target!r}, {called}, is missing in {missing.size:,} of {len(column):,} rows, the first of "
            f"them row {missing[0] + 1}. Leave those rows out."
        )
    return column


def _refuse_constant(numbers: Floats, target: str) -> None:
    if np.ptp(numbers) == 0:
        raise InvalidInputError(
            f"column {target!r} must hold different numbers; all {len(numbers):,} are {numbers[0]:g}, and there is "
            f"nothing to learn. Name another column with --target."
        )


def _distinct(labels: NDArray[Any], target: str) -> NDArray[Any]:
    classes = np.unique(labels)
    if len(classes) < 2:
        raise InvalidInputError(
            f"column {target!r} must hold two different labels or more; it holds only {plain(classes[0])!r}. "
            f"Give rows of other classes."
        )
    if len(classes) > MOST_LABELS:
        raise InvalidInputError(
            f"column {target!r} must hold labels; it holds {len(classes):,} different ones, and more than "
            f"{MOST_LABELS} look like numbers or names of rows. Put them into fewer classes."
        )
    return classes.astype(str) if classes.dtype == object else classes


MOST_CATEGORIES = 255
"""Text columns with more distinct values than this hold names or notes, unless each of them is there several times."""
ROWS_PER_CATEGORY = 5

_DRESSED = re.compile(
    r"[+-]?[$€£¥]?\s?[+-]?(\d{1,3}([,' \u00a0\u202f]\d{3})+(\.\d+)?|\d{1,3}(\.\d{3})+,\d+|\d+([.,]\d+)?)\s?[%$€£¥]?"
)
_DATE = re.compile(
    r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-.]\d{1,2}[-.]\d{4}|\d{1,2}/\d{1,2}/(\d{2}|\d{4}))([T ]\d{1,2}:\d{2}.*)?"
)
_PLAIN_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?")
_DISGUISES = (
    (_DRESSED, "numbers with separators or units", "Write them plainly, with a point before the decimals"),
    (_DATE, "dates", "Write them as 2026-01-31, or with a time as 2026-01-31 12:30"),
)
"""Text that is no category: models would be given its place in the alphabet, and new rows would hold other text."""


@dataclass(frozen=True)
class Schema:
    """The columns a system reads, and the one it answers for.

    Attributes
    ----------
    names : tuple of str
        Features, in the order the models know them.
    categories : dict of str to tuple of str
        The text that each text column may hold, sorted; its code is its place.
    target : str
        Name of the column with the label, or with the number that is predicted.
    classes : ndarray of shape (n_classes,)
        The labels, as the table writes them, in order; none where a number is predicted.
    query : str
        Name of the column with the query of each row, where documents are ranked; empty elsewhere.
    dates : tuple of str
        Columns of dates, which models read as days since the first of January 1970.
    row_key : str
        Name of the column with the keys of the rows; empty where rows are known by their number.
    truths : tuple of str
        Columns of truth values, which models read as 1 and 0.
    """

    names: tuple[str, ...]
    categories: Mapping[str, tuple[str, ...]]
    target: str
    classes: NDArray[Any] = field(compare=False)
    query: str = ""
    dates: tuple[str, ...] = ()
    row_key: str = ""
    truths: tuple[str, ...] = ()

    @property
    def is_number(self) -> bool:
        """Whether a number is predicted, by which documents may be ranked, and not one of several labels."""
        return len(self.classes) == 0

    @property
    def categorical(self) -> tuple[int, ...]:
        """Numbers of the columns of text."""
        return tuple(place for place, name in enumerate(self.names) if name in self.categories)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Columns that must be read as text: levels, keys of rows with their leading zeros, labels that are text."""
        keys = (self.row_key,) if self.row_key else ()
        return (*self.categories, *keys, *((self.target,) if self.classes.dtype.kind == "U" else ()))

    def extra_columns(self, frame: Any) -> list[str]:
        """Columns of a table that nobody reads."""
        return [
            name for name in frame.columns if name not in {*self.names, self.target, self.query, self.row_key}
        ]

    def cells(self, frame: Any, *, unseen_is_missing: bool = False, row_keys: Words | None = None) -> Cells:
        """The features in the order the models know; cells that cannot be read are kept as such.

        Parameters
        ----------
        frame : pandas data frame
            Its columns may come in any order; one that lacks is one that cannot be read.
        unseen_is_missing : bool, default=False
            Whether text that was not there when the schema was learned counts as missing.
        row_keys : ndarray of shape (n_rows,), optional
            Keys of the rows as words, where the table does not tell them.
        """
        numbers = np.full((len(frame), len(self.names)), np.nan)
        unreadable = {}
        for place, name in enumerate(self.names):
            if name not in frame.columns:
                found: Unreadable | None = _absent(name, frame)
            elif name in self.categories:
                numbers[:, place], found = _codes(frame[name], self.categories[name])
                found = None if unseen_is_missing else found
            elif name in self.dates:
                numbers[:, place], found = _days(frame[name])
            elif name in self.truths:
                numbers[:, place], found = _as_truths(frame[name])
            else:
                numbers[:, place], found = _as_numbers(frame[name])
            if found is not None and found.rows.any():
                unreadable[place] = found
        keys = self.keys_of(frame) if row_keys is None else row_keys
        return Cells(self.names, numbers, np.arange(1, len(frame) + 1), keys, unreadable)

    def keys_of(self, frame: Any) -> Words:
        """Keys of the rows of a table: those in the column of keys, else its index."""
        if not self.row_key:
            return key_words(frame.index)
        if self.row_key not in frame.columns:
            raise InvalidInputError(
                f"the table lacks column {self.row_key!r}, which holds the keys of its rows. Its columns are "
                f"{listed(frame.columns)}."
            )
        return key_words(frame[self.row_key].to_list(), f"column {self.row_key!r}")

    def raw(self, frame: Any) -> Any:
        """The features as they came, in the order the models know, with dates as such."""
        table = frame.reindex(columns=list(self.names))
        return table.assign(**{name: _dates(table[name]) for name in self.dates})

    def labels(self, frame: Any) -> NDArray[Any]:
        """The labels of a table, each one of the classes; its numbers, or relevance and query, where there are none."""
        if self.query:
            return documents_of(frame, self.target, self.query)
        if self.is_number:
            return numbers_of(frame, self.target)
        labels = labels_of(frame, self.target)
        strange = np.flatnonzero(~np.isin(labels, self.classes))
        if strange.size:
            row = int(strange[0])
            raise InvalidInputError(
                f"column {self.target!r} must hold the labels the system was fitted on, {self.classes.tolist()}; "
                f"got {plain(labels[row])!r} in row {row + 1}."
            )
        return labels.astype(self.classes.dtype)


def learn_schema(
    frame: Any,
    target: str,
    ignore: Sequence[str] = (),
    task: str | None = None,
    query: str = "",
    row_key: str = "",
) -> Schema:
    """The schema of a training table: every column is a feature but the target, query, row key and those ignored.

    ``task`` is "classes", "number" or "ranking"; None has the column of the target decide, unless there are queries.
    """
    _check_known(frame, target, ignore)
    if row_key and row_key not in frame.columns:
        raise InvalidInputError(
            f"--row-key names {row_key!r}, not a column of the table, which has {listed(frame.columns)}."
        )
    task = task_of(frame, target, task, query)
    names = tuple(name for name in frame.columns if name not in {target, query, row_key, *ignore})
    if not names:
        raise InvalidInputError(f"the table has no column besides {target!r}: there is nothing to buy.")
    classes = classes_of(frame, target, task)
    dates = tuple(name for name in names if _holds_dates(frame[name]))
    categories = {
        name: _learn_categories(frame[name]) for name in names if name not in dates and is_text(frame[name])
    }
    empty = [name for name in names if frame[name].isna().all()]
    if empty:
        raise InvalidInputError(
            f"every column must hold a value in some row; {listed(empty)} {'have' if len(empty) > 1 else 'has'} none. "
            f"Leave out with --ignore what holds nothing."
        )
    truths = tuple(name for name in names if _holds_truths(frame[name]))
    return Schema(names, categories, target, classes, query, dates, row_key, truths)


def _check_known(frame: Any, target: str, ignore: Sequence[str]) -> None:
    if target in ignore:
        raise InvalidInputError(f"{target!r} is the target and cannot be ignored.")
    unknown = [name for name in ignore if name not in frame.columns]
    if unknown:
        raise InvalidInputError(
            f"--ignore names {listed(unknown)}, not a column of the table, which has {listed(frame.columns)}."
        )


def _learn_categories(column: Any) -> tuple[str, ...]:
    found = sorted({level_text(value) for value in column.dropna()})
    numbers = [value for value in found if is_number(value)]
    if len(numbers) > len(found) / 2:
        odd = next(value for value in found if not is_number(value))
        row = int(np.flatnonzero(column.astype("object").map(str) == odd)[0])
        raise InvalidInputError(
            f"column {column.name!r} holds numbers, but {odd!r} in row {row + 1}. Correct it, or leave the cell empty."
        )
    for pattern, called, way_out in _DISGUISES:
        alike = [value for value in found if pattern.fullmatch(value.strip()) and not is_number(value)]
        if len(alike) > len(found) / 2:
            raise InvalidInputError(
                f"column {column.name!r} holds {called} such as {alike[0]!r}, which would be read as names of "
                f"categories. {way_out}, or leave the column out with --ignore."
            )
    if len(found) > max(MOST_CATEGORIES, column.notna().sum() / ROWS_PER_CATEGORY):
        raise InvalidInputError(
            f"column {column.name!r} holds text with {len(found):,} different values in {len(column):,} rows; more "
            f"than {MOST_CATEGORIES} must be there {ROWS_PER_CATEGORY} times each on average. Leave it out with "
            f"--ignore, or group its values."
        )
    return tuple(found)


def _holds_dates(column: Any) -> bool:
    """Whether a column is one of dates, or of text that all is dates of one form."""
    if column.dtype.kind == "M":
        return True
    there = column.dropna() if is_text(column) else ()
    return len(there) > 0 and all(_PLAIN_DATE.fullmatch(str(value).strip()) for value in there)


def _holds_truths(column: Any) -> bool:
    """Whether a column holds nothing but truth values."""
    if column.dtype.kind == "b":
        return True
    there = column.dropna() if column.dtype.kind == "O" else ()
    return len(there) > 0 and all(isinstance(value, bool | np.bool_) for value in there)


def _dates(column: Any) -> Any:
    """A column as dates of no time zone; missing where it holds none."""
    import pandas as pd

    text = column if column.dtype.kind == "M" else column.astype("string").str.strip()
    return pd.to_datetime(text, format="ISO8601", errors="coerce", utc=True).dt.tz_localize(None)


def _days(column: Any) -> tuple[Floats, Unreadable]:
    """Dates as days since the first of January 1970."""
    table = _dates(column).to_frame()

    def why(value: Any, row: int) -> str:
        return (
            f"column {column.name!r} must hold dates such as 2026-01-31; got {value!r} in row {row}. "
            f"Correct it, or leave the cell empty."
        )

    days = Levels({}).numbers(table)[:, 0]
    return days, Unreadable(np.isnan(days) & np.array(column.notna()), column.to_numpy(dtype=object), why)


def _absent(name: str, frame: Any) -> Unreadable:
    def why(_: Any, row: int) -> str:
        return f"the table lacks column {name!r}, which is read in row {row}. Its columns are {listed(frame.columns)}."

    return Unreadable(np.ones(len(frame), dtype=bool), np.full(len(frame), None), why)


def _codes(column: Any, categories: Sequence[str]) -> tuple[Floats, Unreadable]:
    text = np.array([level_text(value) for value in column], dtype=object)
    absent = np.array(column.isna(), dtype=bool)
    codes = level_numbers(text.tolist(), categories)
    codes[absent] = np.nan

    def why(value: Any, row: int) -> str:
        return (
            f"column {column.name!r} holds {value!r} in row {row}, which was not there when the system was "
            f"fitted; known are {listed(categories)}. Correct it, or have it read as missing with --unseen missing."
        )

    return codes, Unreadable(np.isnan(codes) & ~absent, text, why)


def _as_truths(column: Any) -> tuple[Floats, Unreadable]:
    """Truth values as 1 and 0, also where they are written in words; numbers as they are."""
    cells = column.to_numpy(dtype=object)
    numbers, bad = np.full(len(cells), np.nan), np.zeros(len(cells), dtype=bool)
    for row, cell in enumerate(cells):
        try:
            numbers[row] = truth_of(cell)
        except (TypeError, ValueError):
            bad[row] = True
    infinite = np.isinf(numbers)
    numbers[infinite] = np.nan

    def why(value: Any, row: int) -> str:
        return (
            f"column {column.name!r} must hold True or False, or 1 or 0; got {value!r} in row {row}. "
            f"Correct it, or leave the cell empty."
        )

    return numbers, Unreadable(bad | infinite, cells, why)


_SCALARS = (str, bool, int, float, Decimal, np.number, np.bool_)


def _as_numbers(column: Any) -> tuple[Floats, Unreadable]:
    values = column.to_numpy(dtype=object)
    numbers = np.full(len(values), np.nan)
    if column.dtype.kind in "biuf":
        numbers = column.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
        bad = np.zeros(len(values), dtype=bool)
    else:
        bad = np.array(column.notna(), dtype=bool)
        for row in np.flatnonzero(bad):
            if isinstance(values[row], _SCALARS) and is_number(values[row]):
                numbers[row], bad[row] = float(values[row]), False
    infinite = np.isinf(numbers)
    numbers[infinite] = np.nan

    def why(value: Any, row: int) -> str:
        if isinstance(value, str) or np.isscalar(value):
            rule = "finite numbers" if is_number(value) else "numbers"
            return (
                f"column {column.name!r} must hold {rule}; got {value!r} in row {row}. "
                f"Correct it, or leave the cell empty."
            )
        return (
            f"column {column.name!r} must hold numbers or text; it holds {column.dtype} values. Leave it out with "
            f"--ignore, or write it as numbers."
        )

    return numbers, Unreadable(bad | infinite, values, why)
