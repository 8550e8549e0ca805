"""Training tables: features and target, checked before the fit.

Targets are class labels, numbers, or grades of documents. Text and booleans are labels. Numbers are labels up to
``MAX_NUMBERED`` distinct ones; a column with more is predicted as a number. Numbers are grades of relevance where
another column names the query of each row.

Text files do not declare dates: a text column that holds only dates of one format is read as dates here.

``Spread`` has the deciles of each training column, which a file keeps to detect drift of new rows.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Floats, Int64s, Labels
from thrifty.engine.table.columns import categories_problem
from thrifty.engine.table.reader import Cells, Schema
from thrifty.engine.table.table import Table, is_number, refuse_unknown
from thrifty.engine.tasks.ranking import GRADES
from thrifty.errors import InvalidInputError, InvalidParameterError, did_you_mean, listed
from thrifty.rows import fingerprints

FEWEST = 30
"""Fewest distinct rows of each class, or queries, for a fit: three in each tenth part. Regression needs twice that."""

_PLAIN_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?")
MAX_NUMBERED = 30
"""A column with more distinct numbers than this holds numbers, not classes, unless the user gives the task."""

MAX_LABELS = 1000
"""A target with more distinct values than this holds numbers or names, not classes."""


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
    """

    X: Any
    y: Labels
    classes: Labels
    cells: Cells


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
    if target in ignore:
        raise InvalidInputError(f"{target!r} is the target and cannot be ignored.")
    refuse_unknown("ignore", ignore, frame.columns)
    refuse_unknown("row_key", [row_key] if row_key else [], frame.columns)
    _check_query(frame, target, task, query)
    names = [name for name in frame.columns if name not in {target, query, row_key, *ignore}]
    if not names:
        raise InvalidInputError(f"the table has no column besides {target!r}: there is nothing to buy.")
    classes, y = _training_target(frame, target, task, query)
    X = frame[names].reset_index(drop=True)
    dates = [name for name in names if _holds_dates(X[name])]
    for name in set(names) - set(dates):
        problem = categories_problem(name, X[name].tolist(), 1) if is_text_column(X[name]) else None
        if problem is not None:
            raise InvalidInputError(problem)
    empty = [name for name in names if X[name].isna().all()]
    if empty:
        raise InvalidInputError(
            f"every column must hold a value in some row; {listed(empty)} {'have' if len(empty) > 1 else 'has'} none. "
            f"Ignore columns that hold nothing."
        )
    typed = X.assign(**{name: _as_dates(X[name]) for name in dates})
    cells = Schema.of(Table.of(typed)).cells(X)
    cells.refuse_unreadable()
    return TrainingTable(typed, y, classes, cells)


def refuse_few(data: TrainingTable, query: str = "") -> None:
    """Refuse a table with too few distinct rows, or queries, for a fit and its evaluation."""
    y, classes, keys = data.y, data.classes, fingerprints(data.cells.numbers)
    if query and (n_queries := len(np.unique(y[:, 1]))) < FEWEST:
        raise _too_few(
            f"{FEWEST} queries",
            f"column {query!r} names {n_queries:,}. Give more queries, or name another column as the query.",
        )
    if not len(classes) and (distinct := len(np.unique(keys))) < 2 * FEWEST:
        raise _too_few(
            f"{2 * FEWEST} different rows",
            f"it has {distinct:,} among {len(y):,}. Give more rows, or columns that tell them apart.",
        )
    for label, name in zip(classes, classes.tolist(), strict=True):
        of_class = keys[y == label]
        if (distinct := len(np.unique(of_class))) < FEWEST:
            raise _too_few(
                f"{FEWEST} different rows of each class",
                f"{name!r}, one of {len(classes):,} labels, has {distinct:,} among {len(of_class):,}. Give more rows, "
                f"columns that tell them apart, or fewer classes.",
            )


def _too_few(rule: str, problem: str) -> InvalidInputError:
    return InvalidInputError(
        f"the table must have at least {rule}, to learn from some and to evaluate on others; {problem}"
    )


def _holds_dates(column: Any) -> bool:
    """True for a column of dates, or of text that is dates of one format only."""
    if column.dtype.kind == "M":
        return True
    texts = column.dropna() if is_text_column(column) else ()
    return len(texts) > 0 and all(_PLAIN_DATE.fullmatch(str(text).strip()) for text in texts)


def _as_dates(column: Any) -> Any:
    """A column as dates without a time zone."""
    import pandas as pd

    text = column if column.dtype.kind == "M" else column.astype("string").str.strip()
    return pd.to_datetime(text, format="ISO8601", errors="coerce", utc=True).dt.tz_localize(None)


# -- targets ---------------------------------------------------------------------------------------


def _training_target(
    frame: Any, target: str, task: str | None, query: str
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Classes in order, none where numbers are predicted or documents ranked; and the target of each row."""
    if query:
        return np.empty(0), documents_of(frame, target, query)
    labels = labels_of(frame, target) if task != "number" else np.empty(0)
    is_number_like = labels.dtype.kind in "iuf" and len(np.unique(labels)) > MAX_NUMBERED
    if task == "classes" or (task is None and not is_number_like):
        classes = _classes(labels, target)
        return classes, labels.astype(classes.dtype)
    numbers = numbers_of(frame, target)
    if np.ptp(numbers) == 0:
        raise InvalidInputError(
            f"column {target!r} must hold different numbers; all {len(numbers):,} are {numbers[0]:g}, and there is "
            f"nothing to learn. Name another target."
        )
    return np.empty(0), numbers


def _check_query(frame: Any, target: str, task: str | None, query: str) -> None:
    """Check ``query`` against the table and ``task``."""
    if task == "ranking" and not query:
        raise InvalidParameterError(
            "query",
            f"must name the column with the query of each row where the task is ranking; the table has "
            f"{listed(frame.columns)}.",
        )
    if query and task not in (None, "ranking"):
        raise InvalidParameterError(
            "query", f"is for the task ranking; got {query} and the task {task}. Leave one of them out."
        )
    if query and (query == target or query not in frame.columns):
        raise InvalidParameterError(
            "query",
            f"must name a column of the table besides {target!r}, the target; got {query!r}, and the table has "
            f"{listed(frame.columns)}.",
        )


def targets_of(frame: Any, target: str, classes: NDArray[Any], query: str = "") -> NDArray[Any]:
    """Targets of each row for a system with these classes.

    Labels, each one of the classes; numbers where there are no classes; relevance and query, shape (n_rows, 2), where
    ``query`` names the column of queries.
    """
    if query:
        return documents_of(frame, target, query)
    if not len(classes):
        return numbers_of(frame, target)
    labels = labels_of(frame, target)
    strange = np.flatnonzero(~np.isin(labels, classes))
    if strange.size:
        row = int(strange[0])
        raise InvalidInputError(
            f"column {target!r} must hold the labels the system was fitted on, {classes.tolist()}; "
            f"got {plain(labels[row])!r} in row {row + 1}."
        )
    return labels.astype(classes.dtype)


def labels_of(frame: Any, target: str) -> NDArray[Any]:
    """Label of each row as a number, a boolean or text."""
    column = _column(frame, target)
    if is_text_column(column):
        return np.array([str(label) for label in column], dtype=object)
    labels: NDArray[Any] = column.to_numpy()
    return labels.astype(np.float64) if labels.dtype.kind == "O" else labels


def numbers_of(frame: Any, target: str) -> Floats:
    """Target of each row as a finite number."""
    column = _column(frame, target)
    values = column.to_numpy(dtype=object)
    numbers = np.array([float(value) if is_number(value) else np.nan for value in values])
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if wrong.size:
        row = int(wrong[0])
        raise InvalidInputError(
            f"column {target!r} must hold finite numbers, which are what is predicted; got {plain(values[row])!r} in "
            f"row {row + 1}. Correct it, leave the row out, or set the task to classes."
        )
    return numbers


def documents_of(frame: Any, target: str, query: str) -> Labels:
    """Relevance and query number of each row, shape (n_rows, 2); rows of a query must follow each other."""
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
    earlier: set[str] = set()
    for row in np.flatnonzero(is_first).tolist():
        if names[row] in earlier:
            raise InvalidInputError(
                f"column {query!r} must have the rows of a query one after the other; {names[row]!r} comes back in row "
                f"{row + 1}. Sort the table by {query!r}."
            )
        earlier.add(names[row])
    return np.column_stack([grades, np.cumsum(is_first) - 1])


def is_text_column(column: Any) -> bool:
    """True for a column of text or categories."""
    if str(column.dtype) == "category":
        return True
    if column.dtype.kind in "biuf":
        return False
    return bool(column.dropna().map(lambda value: isinstance(value, str)).any())


def plain(value: Any) -> Any:
    """Numpy scalars as Python objects; any other value is returned unchanged."""
    return value.item() if isinstance(value, np.generic) else value


def _column(frame: Any, target: str, called: str = "the label") -> Any:
    """A column of the table without missing values."""
    if target not in frame.columns:
        is_headless = sum(is_number(name) for name in frame.columns) > len(frame.columns) / 2
        raise InvalidInputError(
            f"the table has no column {target!r}, which should hold {called}. Its columns are {listed(frame.columns)}."
            + did_you_mean(str(target), map(str, frame.columns))
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


def _classes(labels: NDArray[Any], target: str) -> NDArray[Any]:
    classes = np.unique(labels)
    if len(classes) < 2:
        raise InvalidInputError(
            f"column {target!r} must hold two different labels or more; it holds only {plain(classes[0])!r}. "
            f"Give rows of other classes."
        )
    if len(classes) > MAX_LABELS:
        raise InvalidInputError(
            f"column {target!r} must hold labels; it holds {len(classes):,} different ones, and more than "
            f"{MAX_LABELS} look like numbers or names of rows. Put them into fewer classes."
        )
    return classes.astype(str) if classes.dtype == object else classes


# -- spread of the training columns ----------------------------------------------------------------


N_BINS = 10
"""Bins of each column; with fewer different values, those with a share of their own."""

MAX_ROWS = 100_000
"""Rows that are looked at, spread evenly over the table: shares of tenths need no more."""


@dataclass(frozen=True, eq=False)
class Spread:
    """Bins of every column, and the share of the training rows in each.

    Attributes
    ----------
    edges : ndarray of shape (n_columns, N_BINS - 1)
        Upper edges of all bins but the last, which belong to their bins; rising, and infinite where there are fewer.
    shares : ndarray of shape (n_columns, N_BINS)
        Shares of the values that are not missing; all zero in a column without any.
    """

    edges: Floats
    shares: Floats

    @classmethod
    def of(cls, numbers: Floats) -> "Spread":
        """Deciles of the columns of a table, shape (n_rows, n_columns); NaN is missing."""
        numbers = numbers[:: max(len(numbers) // MAX_ROWS, 1)]
        edges = np.full((numbers.shape[1], N_BINS - 1), np.inf)
        for column, values in enumerate(numbers.T):
            values = values[~np.isnan(values)]
            if values.size:
                tenths = np.linspace(0, 1, N_BINS + 1)[1:-1]
                deciles = np.unique(np.quantile(values, tenths, method="inverted_cdf"))
                edges[column, : len(deciles)] = deciles
        counts = cls(edges, np.zeros((len(edges), N_BINS))).counts(numbers)
        return cls(edges, counts / np.maximum(counts.sum(axis=1, keepdims=True), 1))

    @classmethod
    def of_system(cls, system: Any) -> "Spread | None":
        """Spread in the ``record_`` of a fit from a table; None where there is none."""
        spread = getattr(getattr(system, "record_", None), "spread", None)
        return spread if isinstance(spread, cls) else None

    def validate(self) -> "Spread":
        """Refuse edges that do not rise, and shares that do not sum to 1. Returns itself."""
        edges, shares = np.asarray(self.edges), np.asarray(self.shares)
        is_whole = (
            edges.shape == (len(edges), N_BINS - 1)
            and shares.shape == (len(edges), N_BINS)
            and edges.dtype == shares.dtype == np.float64
            and bool(np.all(edges[:, :-1] <= edges[:, 1:]))
            and bool(np.all(shares >= 0))
            and bool(np.all(np.isclose(shares.sum(axis=1), 1) | (shares == 0).all(axis=1)))
        )
        if not is_whole:
            raise InvalidInputError(
                "a spread must hold edges that rise and shares that sum to 1 in every column. Fit the system again."
            )
        return self

    def counts(self, numbers: Floats) -> Int64s:
        """Number of values of each column in each bin, shape (n_columns, N_BINS); missing ones are in none."""
        counts = np.zeros((len(self.edges), N_BINS), dtype=np.int64)
        for column, (edges, values) in enumerate(zip(self.edges, numbers.T, strict=True)):
            bins = np.searchsorted(edges, values[~np.isnan(values)])
            counts[column] = np.bincount(bins, minlength=N_BINS)
        return counts
