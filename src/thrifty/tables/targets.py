"""Targets of a training table: class labels, numbers, or grades of documents.

Text and booleans are labels. Numbers are labels up to ``MAX_NUMBERED`` distinct ones; a column with more is predicted
as a number. Numbers are grades of relevance where another column names the query of each row.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Floats, Labels
from thrifty.errors import InvalidInputError
from thrifty.tables.frames import listed
from thrifty.tasks.ranking import GRADES

__all__ = ["classes_of", "is_number", "is_text_column", "labels_of", "numbers_of", "targets_of", "task_of"]

TASKS = ("classes", "number", "ranking")
"""Kinds of targets."""

MAX_NUMBERED = 30
"""A column with more distinct numbers than this holds numbers, not classes, unless the user says otherwise."""

MAX_LABELS = 1000
"""A target with more distinct values than this holds numbers or names, not classes."""


def task_of(frame: Any, target: str, task: str | None, query: str) -> str | None:
    """Check ``--task`` and ``--query``; return "ranking" where a column of queries is named, else ``task``."""
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
    """Sorted classes of the target; empty where it holds numbers or relevance.

    Parameters
    ----------
    frame : pandas data frame
        The training table.
    target : str
        Name of the column.
    task : {"classes", "number", "ranking"}, optional
        Kind of target; None decides by the column.
    """
    if task not in (None, *TASKS):
        raise InvalidInputError(f"--task must be one of {', '.join(TASKS)}; got {task!r}.")
    if task == "ranking":
        return np.empty(0)
    if task == "number":
        _refuse_constant(numbers_of(frame, target), target)
        return np.empty(0)
    labels = labels_of(frame, target)
    if task is None and labels.dtype.kind in "iuf" and len(np.unique(labels)) > MAX_NUMBERED:
        numbers_of(frame, target)
        return np.empty(0)
    return _distinct(labels, target)


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
            f"row {row + 1}. Correct it, leave the row out, or have labels predicted with --task classes."
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
    seen: set[str] = set()
    for row in np.flatnonzero(is_first).tolist():
        if names[row] in seen:
            raise InvalidInputError(
                f"column {query!r} must have the rows of a query one after the other; {names[row]!r} comes back in row "
                f"{row + 1}. Sort the table by {query!r}."
            )
        seen.add(names[row])
    return np.column_stack([grades, np.cumsum(is_first) - 1])


def is_text_column(column: Any) -> bool:
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
    """Numpy scalars as Python objects; any other value is returned unchanged."""
    return value.item() if isinstance(value, np.generic) else value


def _column(frame: Any, target: str, called: str = "the label") -> Any:
    """A column of the table without missing values."""
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
    if len(classes) > MAX_LABELS:
        raise InvalidInputError(
            f"column {target!r} must hold labels; it holds {len(classes):,} different ones, and more than "
            f"{MAX_LABELS} look like numbers or names of rows. Put them into fewer classes."
        )
    return classes.astype(str) if classes.dtype == object else classes
