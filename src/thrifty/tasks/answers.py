"""What models of other people may answer: every answer is checked before anything is made of it.

A probability that is missing, or that is none, would otherwise become a label like any other, and nobody would know.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from thrifty.arrays import Bools, Floats, Labels, unmasked
from thrifty.errors import InvalidAnswerError

__all__ = ["check_decisions", "check_numbers", "check_probabilities"]

SUM_TOLERANCE = 1e-3
"""How far from one the probabilities of a row may sum: models that compute in single precision exist."""

ROUNDING = 1e-6
"""How far outside [0, 1] a probability may be: single precision again, and no further than it is clipped anyway."""

_WANTS = {
    "values": "It must be a classifier or, for numbers, a regressor, a FrozenEstimator, a function that returns "
    "probabilities or numbers, or an array of them.",
    "missing": "Impute what the model cannot read, or answer for it in a function that it is wrapped in.",
    "range": "Give probabilities; a model that has only scores is calibrated if it offers them as decision_function.",
    "sum": "Divide each row by its sum, or calibrate the model with CalibratedClassifierCV.",
    "order": "Sort the columns by label: classes come in the order of classes_.",
}


def check_probabilities(
    said: Any, n_rows: int | None, classes: Labels, who: str, *, second_alone: bool = False
) -> Floats:
    """Probabilities as numbers, as they were given, or a refusal that names the model and the rows.

    Parameters
    ----------
    said : array-like of shape (n_rows, n_classes), or (n_rows,) if ``second_alone``
        The answer.
    n_rows : int or None
        Number of rows the model was asked about; None where any number will do.
    classes : ndarray of shape (n_classes,)
        The labels, in the order of the columns.
    who : str
        Who gave it, for the refusal.
    second_alone : bool
        Whether the probability of the second class says all.
    """
    n, n_classes = "n" if n_rows is None else str(n_rows), len(classes)
    rule = (
        f"one probability of the second class per row, shape ({n},) or ({n}, 2)"
        if second_alone
        else f"the probability of each of {n_classes} classes per row, shape ({n}, {n_classes}), in the order "
        f"{classes.tolist()}"
    )
    probability = _numbers(said, rule, who)
    allowed = ((), (n_classes,)) if second_alone else ((n_classes,),)
    if probability.ndim not in (1, 2) or probability.shape[1:] not in allowed:
        raise InvalidAnswerError(who, rule, _shape(probability), "Give one line per row.")
    _check_length(probability, n_rows, rule, who)
    _check_order(said, classes, who)
    inside = (probability >= -ROUNDING) & (probability <= 1.0 + ROUNDING)
    if not inside.all():
        wants = "missing" if np.isnan(probability[~inside]).any() else "range"
        _refuse(~inside, probability, "probabilities in [0, 1]", _WANTS[wants], who)
    if probability.ndim == 2:
        off = np.abs(probability.sum(axis=1) - 1.0) > SUM_TOLERANCE
        if off.any():
            sums = probability.sum(axis=1)
            _refuse(off, sums, "probabilities that sum to 1", _WANTS["sum"], who, "a sum of ")
    return probability


def check_decisions(said: Any, n_rows: int, widths: Sequence[int], who: str) -> Floats:
    """Scores of a ``decision_function`` as numbers, shape (n_rows, one of the widths), all of them finite."""
    shapes = " or ".join(
        f"({n_rows}, {width})" if width > 1 else f"({n_rows},)" for width in dict.fromkeys(widths)
    )
    rule = f"decision values, shape {shapes}"
    decision = _numbers(said, rule, who)
    decision = decision[:, None] if decision.ndim == 1 else decision
    if decision.ndim != 2 or decision.shape[1] not in widths:
        raise InvalidAnswerError(who, rule, f"shape {np.shape(said)}", "Give one line per row.")
    _check_length(decision, n_rows, rule, who)
    finite = np.isfinite(decision)
    if not finite.all():
        _refuse(~finite, decision, "finite decision values", _WANTS["missing"], who)
    return decision


def check_numbers(said: Any, n_rows: int | None, who: str) -> Floats:
    """Numbers that a model predicts, shape (n_rows, 1), all of them finite."""
    n = "n" if n_rows is None else str(n_rows)
    rule = f"one number per row, shape ({n},)"
    numbers = _numbers(said, rule, who)
    numbers = numbers[:, None] if numbers.ndim == 1 else numbers
    if numbers.ndim != 2 or numbers.shape[1] != 1:
        raise InvalidAnswerError(who, rule, f"shape {np.shape(said)}", "Give one line per row.")
    _check_length(numbers, n_rows, rule, who)
    finite = np.isfinite(numbers)
    if not finite.all():
        _refuse(~finite, numbers, "finite numbers", _WANTS["missing"], who)
    return numbers


def _numbers(said: Any, rule: str, who: str) -> Floats:
    """The answer as float64; text that looks like numbers is text."""
    try:
        values = np.asarray(unmasked(said))
    except (TypeError, ValueError):
        values = np.array(None)
    if values.ndim and values.dtype.kind in "biuf":
        return values.astype(np.float64, copy=False)
    found = type(said).__name__ if values.ndim == 0 else f"{values.dtype.name} values"
    if values.ndim and values.dtype.kind == "O":
        import pandas as pd

        text = next((one for one in values.flat if isinstance(one, str)), None)
        try:
            if text is None:
                return np.where(pd.isna(values), np.nan, values).astype(np.float64)
        except (TypeError, ValueError):
            pass
        found = "objects" if text is None else f"text such as {text!r}"
    elif values.ndim and values.size and values.dtype.kind in "UST":
        found = f"text such as {str(values.flat[0])!r}"
    raise InvalidAnswerError(who, rule, found, _WANTS["values"])


def _check_length(values: Floats, n_rows: int | None, rule: str, who: str) -> None:
    if n_rows not in (None, len(values)):
        told = "Give one line for each row, in the order of the rows."
        raise InvalidAnswerError(who, rule, _shape(values), told)


def _check_order(said: Any, classes: Labels, who: str) -> None:
    """Refuse a data frame whose columns are named after the classes and stand in another order."""
    columns = [str(name) for name in getattr(said, "columns", ())]
    wanted = [str(label) for label in classes.tolist()]
    if columns != wanted and sorted(columns) == sorted(wanted):
        rule = f"probabilities in the order of the classes, {wanted}"
        raise InvalidAnswerError(who, rule, f"columns {columns}", _WANTS["order"])


def _refuse(wrong: Bools, values: Floats, rule: str, way_out: str, who: str, what: str = "") -> None:
    rows = np.flatnonzero(wrong if wrong.ndim == 1 else wrong.any(axis=1))
    found = f"{what}{float(values[wrong][0]):.6g}"
    raise InvalidAnswerError(who, rule, found, way_out, rows.tolist(), len(values))


def _shape(values: Floats) -> str:
    return f"shape {values.shape}"
