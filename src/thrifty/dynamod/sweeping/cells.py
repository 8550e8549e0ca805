"""One cell of a sweep, from its settings to its record: what runs on a worker."""

import json
import multiprocessing
import os
import threading
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from thrifty.arrays import Floats, Labels
from thrifty.bundle import from_bytes, to_bytes
from thrifty.dynamod.sweeping.full_model import Answers, known_full
from thrifty.dynamod.sweeping.grid import PlannedCell
from thrifty.dynamod.sweeping.store import damaged, pack_record, unpack_record
from thrifty.errors import FullModelNotWorthItWarning, OptimisticFullModelWarning
from thrifty.evidence.evidence import Evidence, QueryEvidence
from thrifty.evidence.observe import evidence_of
from thrifty.threads import limited_threads

__all__ = ["Cell", "FailedCell", "fit_cell", "quiet", "start_from"]

Start = tuple[Floats, Floats]
"""Weights of the gate and of the cheap model that a linear fit starts from, each with its intercept behind it."""

WATCH_SECONDS = 0.5
"""How often a worker looks whether its parent is still there."""


@dataclass(frozen=True, eq=False)
class Cell:
    """One fitted setting.

    Attributes
    ----------
    settings : dict
        What the grid says about it.
    seconds : float
        How long the fit took.
    evidence : Evidence
        What it did with the validation rows, at every operating point.
    fitted : bytes
        The fitted estimator as a bundle, without the full model and without its training rows.
    key : str
        Equal for equal settings and equal start.
    """

    settings: dict[str, Any]
    seconds: float
    evidence: Evidence
    fitted: bytes = field(repr=False)
    key: str = field(repr=False)

    def to_bytes(self) -> bytes:
        """The cell as one record."""
        found = {entry.name: getattr(self.evidence, entry.name) for entry in fields(self.evidence)}
        found["task"] = found["task"] is not None  # that of the estimator, which is in the record too
        arrays = {name: value for name, value in found.items() if isinstance(value, np.ndarray)}
        others = json.dumps({name: value for name, value in found.items() if name not in arrays})
        arrays["fitted"] = np.frombuffer(self.fitted, dtype=np.uint8)
        return pack_record(self.key, arrays, evidence=others, seconds=self.seconds)

    @classmethod
    def from_bytes(cls, record: bytes, key: str) -> Self:
        """The cell that ``to_bytes`` wrote under this key."""
        facts, arrays = unpack_record(key, record)
        try:
            fitted, others = arrays.pop("fitted").tobytes(), json.loads(facts["evidence"])
            known: dict[str, Any] = {**arrays, **{name: _tuples(value) for name, value in others.items()}}
            known["task"] = from_bytes(fitted).chain_.task if known["task"] else None
            evidence = (QueryEvidence if "document_targets" in known else Evidence)(**known)
            return cls(evidence.settings, float(facts["seconds"]), evidence, fitted, key)
        except (KeyError, TypeError, ValueError) as error:
            raise damaged(key, error) from error


def _tuples(value: Any) -> Any:
    """Lists, in which JSON keeps tuples, as tuples."""
    return tuple(_tuples(one) for one in value) if isinstance(value, list) else value


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
    y_val: Labels,
    answers: Answers | None,
    trusted: tuple[str | type, ...] = (),
    sweeping: int | None = None,
) -> Cell | FailedCell:
    """Fit one cell and score the validation rows; whatever goes wrong is handed back, not raised.

    Tables are arguments of their own: backends send those that are large, and the same for all cells, once. A worker
    that the process with the number ``sweeping`` has started ends with it.
    """
    try:
        end_with(sweeping)
        full = None if answers is None else known_full(answers, trusted)
        began = time.perf_counter()
        fitted = _fit(planned, start, X, y, sample_weight, full)
        seconds = time.perf_counter() - began
        known = None if answers is None else answers.val
        with limited_threads(openmp=1, blas=1):
            evidence = evidence_of(fitted, X_val, y_val, settings=planned.settings, full_probability=known)
        packed = to_bytes(fitted, full="absent", evidence=False)
        return Cell(planned.settings, seconds, evidence, packed, planned.key)
    except Exception as error:
        cause = f"{type(error).__name__}: {error}"
        return FailedCell(planned.settings, planned.key, cause, traceback.format_exc())


_watched: set[int] = set()


def end_with(parent: int | None) -> None:
    """End this process when its parent of this number is gone: one that is killed cannot stop its workers."""
    started_by = multiprocessing.parent_process()
    # Only a worker of the sweep: a process that sweeps by itself may well outlive whoever started it.
    if parent is None or started_by is None or started_by.pid != parent or parent in _watched:
        return
    _watched.add(parent)

    def watch() -> None:
        if os.name == "nt":
            started_by.join()
        else:
            # An orphan gets another parent, unless a server forked it for the one that is gone. Pipes tell less:
            # workers that are forked hold the ends of one another's.
            over_us = os.getppid()
            while os.getppid() == over_us and _is_there(parent):
                time.sleep(WATCH_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, name="end with the sweep", daemon=True).start()


def _is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def start_from(cell: Cell) -> Start:
    """Where a successor starts: read from the record, so that it is the same after an interruption."""
    before = from_bytes(cell.fitted)
    return (
        np.append(before.gate_coef_, before.gate_intercept_),
        np.column_stack([np.atleast_2d(before.cheap_coef_), np.atleast_1d(before.cheap_intercept_)]),
    )


@contextmanager
def quiet() -> Iterator[None]:
    """No warnings of single fits: settings are compared converged or not, and behind one full model."""
    with warnings.catch_warnings():
        for category in (ConvergenceWarning, OptimisticFullModelWarning, FullModelNotWorthItWarning):
            warnings.simplefilter("ignore", category)
        yield


def _owns_warnings() -> bool:
    """Filters belong to a whole process: threads beside others leave them to whoever started the threads."""
    alone = threading.current_thread() is threading.main_thread()
    return alone or multiprocessing.parent_process() is not None


def _fit(planned: PlannedCell, start: Start | None, X: Any, y: Any, sample_weight: Any, full: Any) -> Any:
    given = planned.estimator.get_params(deep=False)
    for_now: dict[str, Any] = {"n_jobs": 1} if "n_jobs" in given else {}
    if start is not None:
        for_now["init"] = start
    behind = {} if full is None else {"full": full}
    estimator = clone(planned.estimator).set_params(**for_now, **behind)
    with quiet() if _owns_warnings() else nullcontext():
        estimator.fit(X, y, sample_weight=sample_weight)
    return estimator.set_params(**{name: given[name] for name in for_now})
