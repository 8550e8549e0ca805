"""Fitting models of other libraries, whose errors become refusals."""

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.utils import check_array
from sklearn.utils._indexing import _safe_assign

from thrifty.arrays import Ints, Labels
from thrifty.errors import InvalidInputError, ThriftyError

__all__ = ["fit_model"]


def fit_model(model: Any, table: Any, labels: Labels, **arguments: Any) -> Any:
    """Fit a model of another library; what it does not take is refused in its own words.

    Columns without a value say nothing, and histogram boosting fails on them: they are filled with zeros where a model
    cannot be fitted otherwise.
    """
    try:
        return model.fit(table, labels, **arguments)
    except (ThriftyError, AssertionError, MemoryError):
        raise  # said already, or no fault of the rows
    except Exception as error:
        empty = _empty_columns(table)
        if len(empty):
            return fit_model(clone(model), _with_zeros(table, empty), labels, **arguments)
        told = " ".join(str(error).split())[:300].rstrip(".")
        way_out = _way_out(table) or "Give it rows that it can read, or take another model."
        raise InvalidInputError(
            f"{type(model).__name__} cannot be fitted on {len(labels):,} of the rows: {told}. {way_out}"
        ) from error


def _way_out(table: Any) -> str:
    """What to do where a column holds no numbers; empty where all do."""
    types = getattr(table, "dtypes", ())
    names = [str(name) for name in getattr(table, "columns", ())]
    other = [name for name, one in zip(names, types, strict=True) if _is_no_number(one)] if names else []
    if not other:
        return ""
    return (
        f"The full model is given the table as it came, and column {other[0]!r} holds no numbers. Give a Pipeline that "
        f"encodes it, or no full model: the default one reads what the stages read."
    )


def _is_no_number(dtype: Any) -> bool:
    if hasattr(dtype, "is_numeric"):  # polars
        return not dtype.is_numeric() and str(dtype) != "Boolean"
    return getattr(dtype, "kind", "O") not in "biuf"


def _empty_columns(table: Any) -> Ints:
    """Numbers of the columns without a value; none in a table without rows, and in a sparse one."""
    if sparse.issparse(table) or not len(table):
        return np.empty(0, dtype=np.intp)
    try:
        numbers = check_array(table, dtype=np.float64, ensure_all_finite="allow-nan")
    except (TypeError, ValueError):  # text, say
        return np.empty(0, dtype=np.intp)
    return np.flatnonzero(np.isnan(numbers).all(axis=0))


def _with_zeros(table: Any, columns: Ints) -> Any:
    """A copy of an array or data frame with zeros in some of its columns."""
    if hasattr(table, "with_columns"):  # polars
        return table.with_columns(**dict.fromkeys([table.columns[column] for column in columns], 0.0))
    filled = table.copy()
    _safe_assign(filled, np.zeros((len(filled), len(columns))), column_indexer=columns)
    return filled
