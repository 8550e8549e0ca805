"""Full models (f0) in a file: stored as arrays, or left outside and recognised by a fingerprint of their answers.

Trees, linear models, support vector machines and precomputed outputs are stored. Of any other model the file has the
name of its class and its answers to synthetic rows: the caller of ``load`` gives the model again, and another one is
refused. A function, or an estimator of another library, is never written.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from thrifty.arrays import Floats
from thrifty.bundle.codec import register
from thrifty.chain.chain import Chain
from thrifty.errors import InvalidInputError
from thrifty.estimators.base import ChainEstimator, link_of
from thrifty.full.convert import N_PROBES, probe_table, stored_model_of
from thrifty.full.foreign import models_of
from thrifty.full.model import AbsentFull, EstimatorFull, FullModel, PrecomputedFull, as_full_model
from thrifty.full.stored import StoredClassifier, StoredRegressor, stored_estimator
from thrifty.tables.columns import Levels
from thrifty.tables.reader import Schema
from thrifty.tasks.task import Task

__all__ = ["FullMode", "SavedModel", "full_to_store", "with_given_full"]

FullMode = Literal["inside", "outside", "absent"]

TOLERANCE = 1e-6
"""Relative tolerance of answers, for rounding that differs by machine."""


@register
@dataclass(frozen=True, eq=False)
class SavedModel:
    """A model in a file: ``EstimatorFull`` with arrays, or an estimator of thrifty, in the place of the estimator."""

    model: Any
    task: Task
    calibration: Floats | None
    reads_numbers: bool = False

    @classmethod
    def of(cls, full: EstimatorFull) -> "SavedModel | None":
        """Stored form of a fitted estimator, or None if it has none."""
        estimator = full.estimator
        if not isinstance(estimator, ChainEstimator):
            estimator = stored_model_of(estimator)
            if estimator is None:
                return None
            labels, core = full.task.classes, estimator.model.core
            if getattr(core, "library", "") == "xgboost" and len(labels) == len(estimator.model.classes):
                # XGBoost is fitted on numbers of classes, and is kept with their labels.
                estimator = stored_estimator(replace(estimator.model, classes=labels))
        return cls(estimator, full.task, full.calibration, full.reads_numbers)

    def restored(self) -> EstimatorFull:
        """The full model again."""
        if not isinstance(self.model, StoredClassifier | StoredRegressor | ChainEstimator):
            raise InvalidInputError(f"a model in the bundle must be one; got {type(self.model).__name__}.")
        shape = models_of(self.task).no_calibration.shape
        if self.calibration is not None and self.calibration.shape != shape:
            raise InvalidInputError(
                f"calibration of a model in the bundle must have the shape {shape}; got {self.calibration.shape}."
            )
        return EstimatorFull(
            self.model, self.task, self.calibration, is_loaded=True, reads_numbers=self.reads_numbers
        )


def full_to_store(chain: Chain, mode: FullMode) -> tuple[Any, str]:
    """Stored form of a chain's full model; or a placeholder and the name of a model that cannot be stored."""
    full = chain.full
    if isinstance(full, Chain):
        return full, ""
    if mode == "absent":
        return AbsentFull(), ""
    if isinstance(full, AbsentFull | PrecomputedFull):
        return full, ""
    if mode == "inside" and type(full) is EstimatorFull:
        saved = SavedModel.of(full)
        if saved is not None:
            return saved, ""
    name = name_of(full)
    outside = AbsentFull(name, _answers(full, chain), getattr(full, "calibration", None))
    return outside, name if mode == "inside" else ""


def name_of(model: FullModel) -> str:
    """Name of a model in error messages."""
    inner = getattr(model, "estimator", getattr(model, "function", model))
    return str(getattr(inner, "__qualname__", type(inner).__name__))[:200]


def _columns_of(chain: Chain) -> tuple[int, tuple[str, ...] | None]:
    """How many columns the full model reads, and their names."""
    columns = chain.price_list.read_by_full
    return len(columns), None if chain.names is None else tuple(chain.names[column] for column in columns)


def _answers(model: FullModel, chain: Chain) -> Floats | None:
    """Answers of a model to synthetic rows; None where it cannot read them."""
    n_features, names = _columns_of(chain)
    numbers = probe_table(n_features)
    table: Any = numbers
    if chain.kind is not None and names is not None:
        columns = chain.price_list.read_by_full.tolist()
        levels = {} if chain.levels is None else chain.levels.of_column
        known = {place: levels[column] for place, column in enumerate(columns) if column in levels}
        types = None if chain.types is None else tuple(chain.types[column] for column in columns)
        frame = Schema(chain.kind, names, types, Levels(known) if known else None)
        numbers = _plausible(numbers, frame)
        table = frame.table(numbers, np.arange(n_features))
    try:
        return np.asarray(model.outputs(table, numbers), dtype=np.float64)
    except Exception:  # models of other libraries raise errors of any type for synthetic rows
        return None


def _plausible(numbers: Floats, frame: Schema) -> Floats:
    """Rows that a model of text and truth values can read: numbers of levels, 0 and 1."""
    numbers = numbers.copy()
    for column, texts in (frame.levels.of_column if frame.levels else {}).items():
        numbers[:, column] = np.floor(np.abs(numbers[:, column])) % len(texts) if texts else np.nan
    for column in range(len(frame.names)):
        if frame.type_of(column).holds == "truth":
            numbers[:, column] = numbers[:, column] > 0
    return numbers


# -- a full model that is given when a file is loaded ----------------------------------------------------


def with_given_full(chain: Chain, full: Any) -> Chain:
    """Chain with the full model that the caller gives, which must be the one that the file names."""
    if isinstance(chain.full, Chain):
        return replace(chain, full=with_given_full(chain.full, full))
    n_features, names = _columns_of(chain)
    try:
        model = as_full_model(full, chain.task, n_features, names=names)
    except InvalidInputError:
        raise
    except Exception as error:  # a model of another make may fail at any question
        raise InvalidInputError(
            f"the model given as full cannot be used: {type(error).__name__}: {str(error)[:100]}."
        ) from error
    if isinstance(chain.full, AbsentFull) and chain.full.name:
        _check_same(chain.full, model, chain)
        if isinstance(model, EstimatorFull):
            model = replace(model, calibration=chain.full.calibration)
    return replace(chain, full=link_of(model, chain.price_list, chain.task))


def _check_same(expected: AbsentFull, model: FullModel, chain: Chain) -> None:
    if expected.answers is None:
        return
    calibrated = model
    if isinstance(model, EstimatorFull):
        calibrated = replace(model, calibration=expected.calibration)
    found = _answers(calibrated, chain)
    theirs = "none" if found is None else _shown(found)
    if found is None or found.shape != expected.answers.shape:
        is_same = False
    else:
        size = np.maximum(np.abs(expected.answers), 1.0)
        is_same = bool(np.all(np.abs(found - expected.answers) <= TOLERANCE * size))
    if not is_same:
        raise InvalidInputError(
            f"the file was saved with another full model, a {expected.name}, than the {name_of(model)} given: asked "
            f"about {N_PROBES} made-up rows it answered {_shown(expected.answers)}, and the one given {theirs}. Give "
            f"the one that it was saved with, or use with_full to take another."
        )


def _shown(answers: Floats) -> str:
    return ", ".join(f"{one:.4g}" for one in answers[:3, -1]) + ", ..."
