"""f0 in every form a user has it, once it is fitted.

f0 may be a fitted estimator, a function of a table, or probabilities computed elsewhere. All that the rest
of thrifty sees is a ``FullModel``: the probability of class +1 for the rows it is asked about.
Probabilities are clipped to ``[CLIP, 1 - CLIP]``: one overconfident mistake must not cost infinitely much.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted

from thrifty.arrays import Floats
from thrifty.exceptions import InvalidInputError

__all__ = [
    "CLIP",
    "AbsentFull",
    "CallableFull",
    "EstimatorFull",
    "FullModel",
    "PrecomputedFull",
    "as_full_model",
    "clip_probability",
    "is_estimator",
    "offers_probability",
    "raw_scores",
]


CLIP = 1e-6
"""Probabilities of f0 stay this far from 0 and 1; its loss on one row is at most 13.8."""


class FullModel(Protocol):
    """The expensive model as the rest of thrifty sees it."""

    def probability(self, table: Any, rows: NDArray[np.intp], n_batch: int) -> Floats:
        """Probability of class +1 for each row of ``table``.

        ``rows`` are the positions of those rows in the batch of ``n_batch`` rows that is being
        answered: a model that was computed beforehand looks its answers up by them.
        """


@dataclass(frozen=True)
class EstimatorFull:
    """A fitted scikit-learn classifier; one with only a ``decision_function`` is calibrated.

    Attributes
    ----------
    estimator : fitted classifier
        With ``predict_proba`` or ``decision_function``.
    slope, intercept : float
        Sigmoid calibration ``expit(slope * decision + intercept)``; unused with ``predict_proba``.
    """

    estimator: Any
    slope: float = 1.0
    intercept: float = 0.0

    def probability(self, table: Any, rows: NDArray[np.intp], n_batch: int) -> Floats:  # noqa: ARG002
        """Probability of the estimator's second class."""
        raw = raw_scores(self.estimator, table)
        if offers_probability(self.estimator):
            return clip_probability(raw)
        return clip_probability(expit(self.slope * raw + self.intercept))


@dataclass(frozen=True)
class CallableFull:
    """A function ``table -> probabilities``: of class +1, ``(n,)``, or of both classes, ``(n, 2)``."""

    function: Callable[[Any], ArrayLike]

    def probability(self, table: Any, rows: NDArray[np.intp], n_batch: int) -> Floats:  # noqa: ARG002
        """Ask the function and check what it says."""
        return clip_probability(
            _check_probability(self.function(table), len(rows), "the callable given as full")
        )


@dataclass(frozen=True)
class PrecomputedFull:
    """Probabilities of class +1 that were computed elsewhere, one per row of a known batch."""

    values: Floats

    def probability(self, table: Any, rows: NDArray[np.intp], n_batch: int) -> Floats:  # noqa: ARG002
        """Look the rows up by position."""
        if n_batch != len(self.values):
            raise InvalidInputError(
                f"full holds precomputed probabilities for {len(self.values)} rows, but {n_batch} rows are to be "
                f"answered. Give those of these rows with `with_full(probabilities)`, or a model that can compute them."
            )
        return clip_probability(self.values[rows])


@dataclass(frozen=True)
class AbsentFull:
    """No full model: for systems that answer every row themselves."""

    def probability(self, table: Any, rows: NDArray[np.intp], n_batch: int) -> Floats:  # noqa: ARG002
        """Refuse: there is nobody to ask."""
        raise InvalidInputError(
            f"{len(rows)} rows are sent to a full model, and there is none. Give one with `with_full(full)`, or raise "
            f"the threshold so that no row is sent."
        )


def clip_probability(probability: ArrayLike) -> Floats:
    """Probabilities moved to at least ``CLIP`` from 0 and 1."""
    return np.clip(np.asarray(probability, dtype=np.float64), CLIP, 1.0 - CLIP)


def as_full_model(full: Any, classes: NDArray[Any], n_features: int, *, names: Any = None) -> FullModel:
    """A ``FullModel`` of something that was fitted elsewhere, checked against the classes and the columns.

    A classifier with only a ``decision_function`` answers with ``expit`` of it, uncalibrated.
    """
    if isinstance(full, type):
        raise InvalidInputError(
            f"full must be a model, not a class; got {full.__name__}. Write {full.__name__}()."
        )
    estimator = full.estimator if isinstance(full, FrozenEstimator) else full
    if is_estimator(estimator):
        _check_suits(estimator, classes, n_features, names)
        return EstimatorFull(estimator)
    if callable(getattr(full, "probability", None)):
        model: FullModel = full
        return model
    if callable(full):
        return CallableFull(full)
    return PrecomputedFull(_check_probability(full, None, "full"))


def is_estimator(full: Any) -> bool:
    """Whether this is an object with scikit-learn's ``fit`` and ``get_params``."""
    return hasattr(full, "fit") and hasattr(full, "get_params") and not isinstance(full, type)


def _check_suits(estimator: Any, classes: NDArray[Any], n_features: int, names: Any) -> None:
    kind = type(estimator).__name__
    try:
        check_is_fitted(estimator)
    except NotFittedError as error:
        raise InvalidInputError(
            f"full is a {kind} that is not fitted. Fit it first, or pass it unfrozen."
        ) from error
    if not (offers_probability(estimator) or hasattr(estimator, "decision_function")):
        raise InvalidInputError(
            f"full must offer predict_proba or decision_function; {kind} has neither. "
            f"Pass a function that returns probabilities instead."
        )
    theirs = np.asarray(getattr(estimator, "classes_", classes))
    if not np.array_equal(theirs, classes):
        raise InvalidInputError(
            f"full was fitted on the classes {theirs.tolist()}, but y holds {classes.tolist()}. "
            f"Both must have the same two labels."
        )
    width = getattr(estimator, "n_features_in_", n_features)
    if width != n_features:
        raise InvalidInputError(
            f"full was fitted on {width} features, but X has {n_features}. Give X with the columns f0 reads."
        )
    known = getattr(estimator, "feature_names_in_", None)
    if known is not None and names is not None and list(known) != list(names):
        other = next(f"{a!r} where X has {b!r}" for a, b in zip(known, names, strict=True) if a != b)
        raise InvalidInputError(
            f"full was fitted on other columns, or in another order: {other}. Give X with f0's columns, in its order."
        )


def offers_probability(estimator: Any) -> bool:
    """Whether the estimator has ``predict_proba``, which some have only with certain settings."""
    return hasattr(estimator, "predict_proba")


def raw_scores(estimator: Any, table: Any) -> Floats:
    """Probability of the second class, or the decision value where there is no probability."""
    if offers_probability(estimator):
        return np.asarray(estimator.predict_proba(table), dtype=np.float64)[:, 1]
    if hasattr(estimator, "decision_function"):
        return np.asarray(estimator.decision_function(table), dtype=np.float64).reshape(-1)
    raise InvalidInputError(
        f"full must offer predict_proba or decision_function; {type(estimator).__name__} has neither."
    )


def _check_probability(answer: ArrayLike, n_rows: int | None, who: str) -> Floats:
    """Probabilities of class +1, one per row, from those of class +1 or of both classes."""
    try:
        probability = np.asarray(answer, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"full must be a classifier, a FrozenEstimator, a function or an array of probabilities; "
            f"got {type(answer).__name__}."
        ) from None
    if probability.ndim == 2 and probability.shape[1] == 2:
        probability = probability[:, 1]
    wanted = "n" if n_rows is None else str(n_rows)
    if probability.ndim != 1 or n_rows not in (None, len(probability)):
        raise InvalidInputError(
            f"{who} must give one probability of the second class per row, shape ({wanted},) or ({wanted}, 2); "
            f"got shape {np.shape(answer)}."
        )
    wrong = ~((probability >= 0) & (probability <= 1))
    if wrong.any():
        raise InvalidInputError(
            f"{who} must give probabilities in [0, 1]; got {float(probability[wrong][0])!r}."
        )
    return probability
