"""A training table split into features and target, checked before the fit.

Text files do not declare dates: a text column that holds only dates of one format is read as dates here.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from thrifty.arrays import Labels
from thrifty.errors import InvalidInputError
from thrifty.rows import fingerprints
from thrifty.tables.columns import column_types, learn_levels, level_text
from thrifty.tables.frames import listed
from thrifty.tables.reader import Cells, Schema
from thrifty.tables.targets import classes_of, is_number, is_text_column, targets_of, task_of

__all__ = ["TrainingTable", "refuse_few", "training_table"]

FEWEST = 30
"""Fewest distinct rows of each class, or queries, for a fit: three in each tenth part. Regression needs twice that."""

MAX_CATEGORIES = 255
"""Text columns with more distinct values than this hold names or notes, unless the values are repeated."""
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


class TrainingTable(NamedTuple):
    """A checked training table.

    Attributes
    ----------
    X : pandas data frame
        The features, with dates as such.
    y : ndarray of shape (n_rows,), or (n_rows, 2)
        Labels, numbers, or relevance and query of documents.
    classes : ndarray of shape (n_classes,)
        The labels in order; none where numbers are predicted or documents ranked.
    cells : Cells
        The features as the stages read them.
    dates : tuple of str
        Columns of dates.
    """

    X: Any
    y: Labels
    classes: Labels
    cells: Cells
    dates: tuple[str, ...]


def training_table(
    frame: Any,
    target: str,
    *,
    task: str | None = None,
    query: str = "",
    row_key: str = "",
    ignore: Sequence[str] = (),
) -> TrainingTable:
    """Split a training table into features and target, and check both.

    Parameters
    ----------
    frame : pandas data frame
        Every column is a feature but the target, the query, the row key and those ignored.
    target : str
        Name of the column with the label, number or relevance.
    task : {"classes", "number", "ranking"}, optional
        What the target holds; None decides by the column, unless there are queries.
    query, row_key : str
        Names of the columns with the query and with the key of each row; empty where there is none.
    ignore : sequence of str
        Columns that are not features.
    """
    _check_known(frame, target, ignore)
    if row_key and row_key not in frame.columns:
        raise InvalidInputError(
            f"--row-key names {row_key!r}, not a column of the table, which has {listed(frame.columns)}."
        )
    task = task_of(frame, target, task, query)
    names = [name for name in frame.columns if name not in {target, query, row_key, *ignore}]
    if not names:
        raise InvalidInputError(f"the table has no column besides {target!r}: there is nothing to buy.")
    classes = classes_of(frame, target, task)
    X = frame[names].reset_index(drop=True)
    dates = tuple(name for name in names if _holds_dates(X[name]))
    for name in set(names) - set(dates):
        if is_text_column(X[name]):
            _check_categories(X[name])
    empty = [name for name in names if X[name].isna().all()]
    if empty:
        raise InvalidInputError(
            f"every column must hold a value in some row; {listed(empty)} {'have' if len(empty) > 1 else 'has'} none. "
            f"Leave out with --ignore what holds nothing."
        )
    typed = X.assign(**{name: _as_dates(X[name]) for name in dates})
    cells = Schema("pandas", tuple(names), column_types(typed), learn_levels(typed)).cells(X)
    cells.refuse_unreadable()
    y = targets_of(frame, target, classes, query)
    return TrainingTable(typed, y, classes, cells, dates)


def refuse_few(data: TrainingTable, query: str = "") -> None:
    """Refuse a table with too few distinct rows, or queries, for a fit and its evaluation."""
    y, classes, numbers = data.y, data.classes, data.cells.numbers
    if query:
        n_queries = len(np.unique(y[:, 1]))
        if n_queries < FEWEST:
            raise InvalidInputError(
                f"the table must have at least {FEWEST} queries, to learn from some and to be judged on others; column "
                f"{query!r} names {n_queries:,}. Give more queries, or name another column with --query."
            )
    if not len(classes):
        distinct = len(np.unique(fingerprints(numbers)))
        if distinct < 2 * FEWEST:
            raise InvalidInputError(
                f"the table must have at least {2 * FEWEST} different rows, to learn from some and to be judged on "
                f"others; it has {distinct:,} among {len(y):,}. Give more rows, or columns that tell them apart."
            )
        return
    for label, name in zip(classes, classes.tolist(), strict=True):
        distinct = len(np.unique(fingerprints(numbers[y == label])))
        if distinct < FEWEST:
            n_rows, n_labels = int((y == label).sum()), len(classes)
            raise InvalidInputError(
                f"the table must have at least {FEWEST} different rows of each class, to learn from some and to be "
                f"judged on others; {name!r}, one of {n_labels:,} labels, has {distinct:,} among {n_rows:,}. Give more "
                f"rows, columns that tell them apart, or fewer classes."
            )


def _check_known(frame: Any, target: str, ignore: Sequence[str]) -> None:
    if target in ignore:
        raise InvalidInputError(f"{target!r} is the target and cannot be ignored.")
    unknown = [name for name in ignore if name not in frame.columns]
    if unknown:
        raise InvalidInputError(
            f"--ignore names {listed(unknown)}, not a column of the table, which has {listed(frame.columns)}."
        )


def _check_categories(column: Any) -> None:
    """Refuse text columns that do not hold categories, such as notes, or numbers and dates written as text."""
    found = sorted({level_text(value) for value in column.dropna()})
    numbers = [value for value in found if is_number(value)]
    odd = next((value for value in found if not is_number(value)), None)
    if odd is not None and len(numbers) > len(found) / 2:
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
    if len(found) > max(MAX_CATEGORIES, column.notna().sum() / ROWS_PER_CATEGORY):
        raise InvalidInputError(
            f"column {column.name!r} holds text with {len(found):,} different values in {len(column):,} rows; more "
            f"than {MAX_CATEGORIES} must be there {ROWS_PER_CATEGORY} times each on average. Leave it out with "
            f"--ignore, or group its values."
        )


def _holds_dates(column: Any) -> bool:
    """Whether a column holds dates, or text that is dates of one format only."""
    if column.dtype.kind == "M":
        return True
    there = column.dropna() if is_text_column(column) else ()
    return len(there) > 0 and all(_PLAIN_DATE.fullmatch(str(value).strip()) for value in there)


def _as_dates(column: Any) -> Any:
    """A column as dates without a time zone."""
    import pandas as pd

    text = column if column.dtype.kind == "M" else column.astype("string").str.strip()
    return pd.to_datetime(text, format="ISO8601", errors="coerce", utc=True).dt.tz_localize(None)
