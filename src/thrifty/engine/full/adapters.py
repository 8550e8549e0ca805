"""Adapters of models of other libraries to a task: how they are fitted, checked, called and calibrated.

``models_of(task)`` returns the adapter. Every output of a model is checked before it is used: a probability that is
missing or out of range would otherwise become a label like any other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
from scipy.special import expit, log_expit
from sklearn.base import is_classifier, is_regressor
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import has_fit_parameter

from thrifty.arrays import Bools, Floats, Labels, unmasked
from thrifty.engine.full.stored import StoredModel
from thrifty.engine.tasks.classes import (
    BinaryTask,
    ClassTask,
    MulticlassTask,
    both_probabilities,
    clip_probability,
)
from thrifty.engine.tasks.logistic import log_loss_of_probability
from thrifty.engine.tasks.ranking import RankingTask, grades_of, queries_of, rows_by_query
from thrifty.engine.tasks.regression import RegressionTask, SquaredLoss
from thrifty.engine.tasks.task import Task
from thrifty.errors import FULL_MODEL, InvalidAnswerError, InvalidInputError


@singledispatch
def models_of(task: Task) -> "ModelAdapter":
    """Adapter of models for a task; register one for a further task with ``models_of.register``."""
    raise InvalidInputError(
        f"a {type(task).__name__} has no adapter of models of other libraries. Derive it from a task of thrifty, "
        f"or register an adapter with thrifty.engine.full.adapters.models_of.register."
    )


@dataclass(frozen=True)
class ModelAdapter:
    """Interface between models of other libraries and a task.

    *Raw outputs* are what a model returns, checked, shape (n_rows, any); a calibration turns them into outputs.
    """

    task: Any

    def fit_arguments(self, model: Any, y: Floats) -> tuple[Labels, dict[str, Any]]:  # noqa: ARG002 - of rankers
        """Targets that a model is fitted on, as the user wrote them, and further arguments of its ``fit``."""
        return self.task.decode(y), {}

    def check_unfitted(self, model: Any, name: str) -> None:
        """Refuse an unfitted model of the wrong kind."""
        raise NotImplementedError

    def check_fitted(self, model: Any, name: str) -> None:
        """Refuse a fitted model that does not answer this task."""
        raise NotImplementedError

    def raw_outputs(self, model: Any, table: Any) -> Floats:
        """Raw outputs of a fitted model for the rows of a table."""
        raise NotImplementedError

    def check_outputs(self, outputs: Any, n_rows: int, who: str) -> Floats:
        """Check the outputs of a ``FullModel`` of the user's own, and return them unchanged."""
        raise NotImplementedError

    def read_outputs(self, outputs: Any, n_rows: int | None, who: str) -> Floats:
        """Check outputs that the user computed, and return them clipped, shape (n_rows, n_outputs)."""
        raise NotImplementedError

    def is_calibrated(self, model: Any) -> bool:
        """True if raw outputs of the model are outputs of the task."""
        raise NotImplementedError

    @property
    def no_calibration(self) -> Floats:
        """The calibration that takes raw outputs as scores."""
        return np.array([1.0, 0.0])

    def calibrate(self, raw: Floats, y: Floats, weight: Floats) -> Floats:
        """Fit the calibration of raw outputs on rows that the model was not fitted on."""
        raise NotImplementedError

    def calibration_of(self, model: Any, raw: Floats, y: Floats, weight: Floats) -> Floats | None:
        """Calibration of a model that was fitted on ``fit_arguments``; None where its raw outputs are outputs."""
        return None if self.is_calibrated(model) else self.calibrate(raw, y, weight)

    def outputs(self, raw: Floats, calibration: Floats | None) -> Floats:
        """Clipped outputs from raw outputs; ``calibration`` is None for a calibrated model."""
        raise NotImplementedError

    def loss(self, y: Floats, outputs: Floats) -> Floats:
        """Loss of outputs, shape (n_rows,)."""
        return self.task.loss(y).values(self.task.scores(outputs))


class _ClassModels(ModelAdapter):
    """Classifiers."""

    task: ClassTask

    @property
    def decision_widths(self) -> tuple[int, ...]:
        """Allowed numbers of decision values per row: one for two classes."""
        return (1,)

    def fit_arguments(self, model: Any, y: Floats) -> tuple[Labels, dict[str, Any]]:
        """Labels as the user wrote them; for a model that takes no others, the numbers of their classes."""
        return self.task.strata(y) if _takes_codes(model) else self.task.decode(y), {}

    def check_unfitted(self, model: Any, name: str) -> None:
        if not is_classifier(model):
            raise InvalidInputError(
                f"{name} must be a classifier; got {type(model).__name__}. Wrap a fitted model in FrozenEstimator, "
                f"or pass a function that returns probabilities."
            )

    def check_fitted(self, model: Any, name: str) -> None:
        kind, classes = type(model).__name__, self.task.classes
        if not (hasattr(model, "predict_proba") or hasattr(model, "decision_function")):
            raise InvalidInputError(
                f"{name} must offer predict_proba or decision_function; {kind} has neither. "
                f"Pass a function that returns probabilities instead."
            )
        if (theirs := self._other_classes(model)) is not None:
            raise InvalidInputError(
                f"{name} was fitted on the classes {theirs.tolist()}, but y holds {classes.tolist()}. "
                f"Both must have the same labels, in the same order."
            )

    def _other_classes(self, model: Any) -> Labels | None:
        """Classes of a model that are not those of the task in their order; None where they are."""
        classes = self.task.classes
        theirs = np.asarray(getattr(model, "classes_", classes))
        is_coded = _takes_codes(model) and np.array_equal(theirs, np.arange(len(classes)))
        return None if is_coded or np.array_equal(theirs, classes) else theirs

    def raw_outputs(self, model: Any, table: Any) -> Floats:
        n_rows, who, table = (
            table.shape[0],
            f"{FULL_MODEL} ({type(model).__name__})",
            as_read_by(model, table),
        )
        if (theirs := self._other_classes(model)) is not None:
            raise InvalidAnswerError(
                who,
                f"probabilities of the classes {self.task.classes.tolist()}",
                f"a model of the classes {theirs.tolist()}",
                "Fit again with the model as it is now.",
            )
        if hasattr(model, "predict_proba"):
            return check_probabilities(model.predict_proba(table), n_rows, self.task.classes, who)
        return check_decisions(model.decision_function(table), n_rows, self.decision_widths, who)

    def check_outputs(self, outputs: Any, n_rows: int, who: str) -> Floats:
        return check_probabilities(outputs, n_rows, self.task.classes, who)

    def is_calibrated(self, model: Any) -> bool:
        # Some have probabilities only with certain settings.
        return hasattr(model, "predict_proba")


class _BinaryModels(_ClassModels):
    """Classifiers of two classes: raw outputs are of the second class alone."""

    task: BinaryTask

    def raw_outputs(self, model: Any, table: Any) -> Floats:
        return super().raw_outputs(model, table)[:, -1:]

    def calibrate(self, raw: Floats, y: Floats, weight: Floats) -> Floats:
        """Slope and intercept of the logistic regression of the labels on one score."""
        decision = raw[:, 0]
        middle = np.average(decision, weights=weight)
        scale = float(np.sqrt(np.average(np.square(decision - middle), weights=weight))) or 1.0
        # To the last digits: what follows treats a row of weight two as two rows.
        sigmoid = LogisticRegression(C=1e4, tol=1e-10, max_iter=1000).fit(
            (decision / scale)[:, None], y > 0, sample_weight=weight
        )
        return np.array([float(sigmoid.coef_[0, 0]) / scale, float(sigmoid.intercept_[0])])

    def outputs(self, raw: Floats, calibration: Floats | None) -> Floats:
        if calibration is None:
            return both_probabilities(clip_probability(raw[:, 0]))
        return both_probabilities(clip_probability(expit(calibration[0] * raw[:, 0] + calibration[1])))

    def read_outputs(self, outputs: Any, n_rows: int | None, who: str) -> Floats:
        """Probabilities of both classes from those of the second class or of both."""
        probability = check_probabilities(outputs, n_rows, self.task.classes, who, second_alone=True)
        probability = probability if probability.ndim == 1 else probability[:, 1]
        return both_probabilities(clip_probability(probability))

    def loss(self, y: Floats, outputs: Floats) -> Floats:
        return log_loss_of_probability(y, outputs[:, 1])


class _MulticlassModels(_ClassModels):
    """Classifiers of several classes."""

    task: MulticlassTask

    @property
    def decision_widths(self) -> tuple[int, ...]:
        """A value per class, or one for each pair of classes."""
        n_classes = self.task.n_scores
        return (n_classes, n_classes * (n_classes - 1) // 2)

    def raw_outputs(self, model: Any, table: Any) -> Floats:
        raw, n_classes = super().raw_outputs(model, table), self.task.n_scores
        return raw if raw.shape[1] == n_classes else _votes(raw, n_classes)

    @property
    def no_calibration(self) -> Floats:
        """No shifts, and a slope of one."""
        return np.append(np.zeros(self.task.n_scores), 1.0)

    def calibrate(self, raw: Floats, y: Floats, weight: Floats) -> Floats:
        """A shift per class and one slope."""
        return self.task.calibrate(raw, y, weight)

    def outputs(self, raw: Floats, calibration: Floats | None) -> Floats:
        task = self.task
        return task.bounded(raw if calibration is None else task.outputs(task.calibrated(raw, calibration)))

    def read_outputs(self, outputs: Any, n_rows: int | None, who: str) -> Floats:
        return self.task.bounded(check_probabilities(outputs, n_rows, self.task.classes, who))

    def loss(self, y: Floats, outputs: Floats) -> Floats:
        return -np.log(outputs[np.arange(len(y)), self.task.strata(y)])


class _RegressionModels(ModelAdapter):
    """Regressors; predictions are used unchanged, or multiplied by the unit that the targets were divided by."""

    task: RegressionTask

    def fit_arguments(self, model: Any, y: Floats) -> tuple[Labels, dict[str, Any]]:  # noqa: ARG002 - of rankers
        return self.task.decode(y) / self.task.unit, {}

    def check_unfitted(self, model: Any, name: str) -> None:
        if not is_regressor(model):
            raise InvalidInputError(
                f"{name} must be a regressor; got {type(model).__name__}. Wrap a fitted model in FrozenEstimator, "
                f"or pass a function that returns numbers."
            )

    def check_fitted(self, model: Any, name: str) -> None:
        if not hasattr(model, "predict"):
            raise InvalidInputError(
                f"{name} must offer predict; {type(model).__name__} does not. Pass a function that returns numbers."
            )
        if getattr(model, "classes_", None) is not None and not is_regressor(model):
            raise InvalidInputError(
                f"{name} is a {type(model).__name__}, which answers with classes, but y holds numbers. Give a "
                f"regressor, or use BudgetedClassifier."
            )

    def raw_outputs(self, model: Any, table: Any) -> Floats:
        answers = model.predict(as_read_by(model, table))
        return check_numbers(answers, table.shape[0], f"{FULL_MODEL} ({type(model).__name__})")

    def check_outputs(self, outputs: Any, n_rows: int, who: str) -> Floats:
        return check_numbers(outputs, n_rows, who)

    def read_outputs(self, outputs: Any, n_rows: int | None, who: str) -> Floats:
        return check_numbers(outputs, n_rows, who)

    def is_calibrated(self, model: Any) -> bool:  # noqa: ARG002 - rankers are not
        return True

    def calibration_of(self, model: Any, raw: Floats, y: Floats, weight: Floats) -> Floats | None:  # noqa: ARG002 - numbers are on their scale
        return None if self.task.unit == 1.0 else np.array([self.task.unit, 0.0])

    def outputs(self, raw: Floats, calibration: Floats | None) -> Floats:
        return raw if calibration is None else calibration[0] * raw + calibration[1]


class _RankingModels(_RegressionModels):
    """Rankers and regressors; the scale of their scores is arbitrary, so they are calibrated."""

    task: RankingTask

    def fit_arguments(self, model: Any, y: Floats) -> tuple[Labels, dict[str, Any]]:
        """Grades, and the queries in the form in which a ranker of another library takes them."""
        grades, query = grades_of(y), queries_of(y)
        if has_fit_parameter(model, "group"):
            return grades, {"group": rows_by_query(query)[2]}
        return grades, {"qid": query} if has_fit_parameter(model, "qid") else {}

    def check_unfitted(self, model: Any, name: str) -> None:
        if not (has_fit_parameter(model, "group") or has_fit_parameter(model, "qid")):
            super().check_unfitted(model, name)

    def is_calibrated(self, model: Any) -> bool:  # noqa: ARG002 - part of the contract
        return False

    def calibrate(self, raw: Floats, y: Floats, weight: Floats) -> Floats:
        """Slope and intercept."""
        return self.task.calibrate(self.task.scores(raw), y, weight)

    def calibration_of(self, model: Any, raw: Floats, y: Floats, weight: Floats) -> Floats | None:  # noqa: ARG002 - of any ranker
        return self.calibrate(raw, y, weight)

    def outputs(self, raw: Floats, calibration: Floats | None) -> Floats:
        task = self.task
        return raw if calibration is None else task.outputs(task.calibrated(task.scores(raw), calibration))

    def loss(self, y: Floats, outputs: Floats) -> Floats:
        return SquaredLoss(self.task.targets(y)).values(self.task.scores(outputs))


models_of.register(BinaryTask, _BinaryModels)
models_of.register(MulticlassTask, _MulticlassModels)
models_of.register(RegressionTask, _RegressionModels)
models_of.register(RankingTask, _RankingModels)


def as_read_by(model: Any, table: Any) -> Any:
    """A table as a model of another library reads it: LightGBM ends the process on categories of polars.

    They become categories of pandas, also for a model that holds one of LightGBM.
    """
    if not type(table).__module__.startswith("polars.") or not {"Categorical", "Enum"} & {
        type(dtype).__name__ for dtype in table.dtypes
    }:
        return table
    parts = [model, *getattr(model, "get_params", dict)().values()]
    return (
        table.to_pandas() if any(type(part).__module__.startswith("lightgbm.") for part in parts) else table
    )


def _takes_codes(model: Any) -> bool:
    """True for classifiers that accept only the labels 0, 1, ..., as XGBoost's and stored boosters do."""
    if isinstance(model, StoredModel):
        return model.library != "scikit-learn"
    return type(model).__module__.startswith("xgboost.")


def _votes(raw: Floats, n_classes: int) -> Floats:
    """A score per class from decisions of every pair of classes: the sum of their log-sigmoids."""
    first, second = np.triu_indices(n_classes, 1)
    scores = np.zeros((len(raw), n_classes))
    for pair in range(raw.shape[1]):
        scores[:, first[pair]] += log_expit(raw[:, pair])
        scores[:, second[pair]] += log_expit(-raw[:, pair])
    return scores


# -- checks of answers -----------------------------------------------------------------------------

SUM_TOLERANCE = 1e-3
"""Tolerance of the sum of the probabilities of a row, for models that compute in single precision."""

ROUNDING = 1e-6
"""Tolerance of a probability outside [0, 1], for single precision; smaller than the clipping of probabilities."""

_WANTS = {
    "values": "It must be a classifier or, for numbers, a regressor, a FrozenEstimator, a function that returns "
    "probabilities or numbers, or an array of them.",
    "missing": "Impute what the model cannot read, or answer for it in a function that it is wrapped in.",
    "range": "Give probabilities; a model that has only scores is calibrated if it offers them as decision_function.",
    "sum": "Divide each row by its sum, or calibrate the model with CalibratedClassifierCV.",
    "length": "Give one line for each row, in the order of the rows.",
    "order": "Sort the columns by label: classes come in the order of classes_.",
}


def check_probabilities(
    outputs: Any, n_rows: int | None, classes: Labels, who: str, *, second_alone: bool = False
) -> Floats:
    """Check probabilities and return them as numbers; an error names the model and the rows.

    Parameters
    ----------
    outputs : array-like of shape (n_rows, n_classes), or (n_rows,) if ``second_alone``
        What the model returned.
    n_rows : int or None
        Number of rows that the model got; None allows any number.
    classes : ndarray of shape (n_classes,)
        The labels, in the order of the columns.
    who : str
        Name of the model in error messages.
    second_alone : bool
        Whether the probability of the second class suffices.
    """
    n, n_classes = "n" if n_rows is None else str(n_rows), len(classes)
    rule = (
        f"one probability of the second class per row, shape ({n},) or ({n}, 2)"
        if second_alone
        else f"the probability of each of {n_classes} classes per row, shape ({n}, {n_classes}), in the order "
        f"{classes.tolist()}"
    )
    probability = _numbers(outputs, rule, who)
    allowed = ((), (n_classes,)) if second_alone else ((n_classes,),)
    if probability.ndim not in (1, 2) or probability.shape[1:] not in allowed:
        raise InvalidAnswerError(who, rule, f"shape {probability.shape}", "Give one line per row.")
    if n_rows not in (None, len(probability)):
        raise InvalidAnswerError(who, rule, f"shape {probability.shape}", _WANTS["length"])
    _check_order(outputs, classes, who)
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


def check_decisions(outputs: Any, n_rows: int, widths: Sequence[int], who: str) -> Floats:
    """Check scores of a ``decision_function``: finite numbers of shape (n_rows, one of the widths)."""
    shapes = " or ".join(
        f"({n_rows}, {width})" if width > 1 else f"({n_rows},)" for width in dict.fromkeys(widths)
    )
    return _check_finite(
        outputs, n_rows, widths, ("decision values", f"decision values, shape {shapes}"), who
    )


def check_numbers(outputs: Any, n_rows: int | None, who: str) -> Floats:
    """Check numbers that a model predicts: finite, returned in shape (n_rows, 1)."""
    n = "n" if n_rows is None else str(n_rows)
    return _check_finite(outputs, n_rows, (1,), ("numbers", f"one number per row, shape ({n},)"), who)


def _check_finite(
    outputs: Any, n_rows: int | None, widths: Sequence[int], names: tuple[str, str], who: str
) -> Floats:
    """Finite numbers of shape (n_rows, one of the widths); ``names`` are what they are called, and the rule."""
    what, rule = names
    numbers = _numbers(outputs, rule, who)
    numbers = numbers[:, None] if numbers.ndim == 1 else numbers
    if numbers.ndim != 2 or numbers.shape[1] not in widths:
        raise InvalidAnswerError(who, rule, f"shape {np.shape(outputs)}", "Give one line per row.")
    if n_rows not in (None, len(numbers)):
        raise InvalidAnswerError(who, rule, f"shape {numbers.shape}", _WANTS["length"])
    finite = np.isfinite(numbers)
    if not finite.all():
        _refuse(~finite, numbers, f"finite {what}", _WANTS["missing"], who)
    return numbers


def _numbers(outputs: Any, rule: str, who: str) -> Floats:
    """Outputs as float64; text is refused, also where it looks like numbers."""
    try:
        values = np.asarray(unmasked(outputs))
    except (TypeError, ValueError):
        values = np.array(None)
    if values.ndim and values.dtype.kind in "biuf":
        return values.astype(np.float64, copy=False)
    contents = type(outputs).__name__ if values.ndim == 0 else f"{values.dtype.name} values"
    if values.ndim and values.dtype.kind == "O":
        import pandas as pd

        text = next((value for value in values.flat if isinstance(value, str)), None)
        try:
            if text is None:
                return np.where(pd.isna(values), np.nan, values).astype(np.float64)
        except (TypeError, ValueError):
            pass
        contents = "objects" if text is None else f"text such as {text!r}"
    elif values.ndim and values.size and values.dtype.kind in "UST":
        contents = f"text such as {str(values.flat[0])!r}"
    raise InvalidAnswerError(who, rule, contents, _WANTS["values"])


def _check_order(outputs: Any, classes: Labels, who: str) -> None:
    """Refuse a data frame whose columns are named after the classes, in another order."""
    columns = [str(name) for name in getattr(outputs, "columns", ())]
    wanted = [str(label) for label in classes.tolist()]
    if columns != wanted and sorted(columns) == sorted(wanted):
        rule = f"probabilities in the order of the classes, {wanted}"
        raise InvalidAnswerError(who, rule, f"columns {columns}", _WANTS["order"])


def _refuse(wrong: Bools, values: Floats, rule: str, way_out: str, who: str, what: str = "") -> None:
    rows = np.flatnonzero(wrong if wrong.ndim == 1 else wrong.any(axis=1))
    value = f"{what}{float(values[wrong][0]):.6g}"
    raise InvalidAnswerError(who, rule, value, way_out, rows.tolist(), len(values))
