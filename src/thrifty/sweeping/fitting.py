"""One cell, from its settings to its record: what runs on a worker."""

import multiprocessing
import threading
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from thrifty.arrays import Floats
from thrifty.bundle import from_bytes, to_bytes
from thrifty.evidence.observing import outcomes_of
from thrifty.exceptions import OptimisticFullModelWarning
from thrifty.sweeping.fulls import known_full
from thrifty.sweeping.grid import PlannedCell
from thrifty.sweeping.records import Cell

__all__ = ["FailedCell", "Start", "fit_cell", "quiet", "start_from"]

Start = tuple[Floats, Floats]


@dataclass(frozen=True)
class FailedCell:
    """A cell that could not be fitted, and why."""

    settings: dict[str, Any]
    key: str
    cause: str
    trace: str


def fit_cell(
    planned: PlannedCell,
    start: Start | None,
    X: Any,
    y: Any,
    sample_weight: Any,
    X_val: Any,
    y_val: NDArray[Any],
    full_train: Floats | None,
    full_val: Floats,
    chain: bytes,
    trusted: tuple[str | type, ...] = (),
) -> Cell | FailedCell:
    """Fit one cell and score the validation rows; whatever goes wrong is handed back, not raised.

    Tables and arrays are arguments of their own: backends send those that are large, and the same for all cells, once.
    """
    try:
        full = None if full_train is None else known_full(full_train, chain, trusted)
        began = time.perf_counter()
        fitted = _fit(planned, start, X, y, sample_weight, full)
        seconds = time.perf_counter() - began
        # A gate with nobody behind it is shut.
        only = float("inf") if full is None else None
        outcomes = outcomes_of(
            fitted, X_val, y_val, settings=planned.settings, threshold=only, full_probability=full_val
        )
        return Cell(planned.settings, seconds, outcomes, to_bytes(fitted, full="absent"), planned.key)
    except Exception as error:
        cause = f"{type(error).__name__}: {error}"
        return FailedCell(planned.settings, planned.key, cause, traceback.format_exc())


def start_from(cell: Cell) -> Start:
    """Where a successor starts: read from the record, so that it is the same after an interruption."""
    before = from_bytes(cell.fitted)
    return (
        np.append(before.gate_coef_, before.gate_intercept_),
        np.append(before.cheap_coef_, before.cheap_intercept_),
    )


@contextmanager
def quiet() -> Iterator[None]:
    """No warnings of single fits: settings are compared converged or not, and f0's probabilities are out of fold."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", OptimisticFullModelWarning)
        yield


def _owns_warnings() -> bool:
    """Filters belong to a whole process: threads beside others leave them to whoever started the threads."""
    alone = threading.current_thread() is threading.main_thread()
    return alone or multiprocessing.parent_process() is not None


def _fit(planned: PlannedCell, start: Start | None, X: Any, y: Any, sample_weight: Any, full: Any) -> Any:
    changed: dict[str, Any] = {} if full is None else {"n_jobs": 1}
    if start is not None:
        changed["init"] = start
    before = {name: planned.estimator.get_params(deep=False)[name] for name in changed}
    estimator = clone(planned.estimator).set_params(**changed, **({} if full is None else {"full": full}))
    with quiet() if _owns_warnings() else nullcontext():
        estimator.fit(X, y, sample_weight=sample_weight)
    return estimator.set_params(**before)
