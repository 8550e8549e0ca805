"""``FullModel`` and its forms: a fitted estimator, a function of a table, or outputs computed elsewhere.

The rest of thrifty sees a ``FullModel`` only: its outputs for the rows of a table. Errors of models of other libraries
are raised again as errors of thrifty. Probabilities are clipped away from 0 and 1, so that one overconfident mistake
does not cost infinitely much.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from thrifty.arrays import Floats, Ints, Labels, Words
from thrifty.engine.full.adapters import as_read_by, models_of
from thrifty.engine.full.stored import StoredModel
from thrifty.engine.table.table import Table
from thrifty.engine.tasks.task import Task
from thrifty.errors import (
    FULL_MODEL,
    FullModelFailedError,
    InvalidInputError,
    ThriftyError,
    renumber_rows_in_errors,
)
from thrifty.rows import fingerprints
from thrifty.threads import limited_threads, threads_for, usable_threads


def fit_model(model: Any, table: Any, labels: Labels, **arguments: Any) -> Any:
    """Fit a model of another library; its errors are raised again as ``InvalidInputError`` with its own message.

    Histogram boosting fails on columns without any value: they are filled with zeros where a model cannot be fitted
    otherwise.
    """
    try:
        return model.fit(as_read_by(model, table), labels, **arguments)
    except (ThriftyError, AssertionError, MemoryError):
        raise  # the message is complete, or the rows are not the cause
    except Exception as error:
        empty = _empty_columns(table)
        if len(empty):
            return fit_model(clone(model), Table.of(table).with_zeros(empty).native, labels, **arguments)
        reason = " ".join(str(error).split())[:300].rstrip(".")
        # The full model is given the table as it came.
        culprit = Table.of(table).describe_bad_column()
        way_out = f"{culprit} A Pipeline can encode it." if "encode it" in culprit else culprit
        raise InvalidInputError(
            f"{type(model).__name__} cannot be fitted on {len(labels):,} of the rows: {reason}."
            f"{way_out or ' Give it rows that it can read, or take another model.'}"
        ) from error


def _empty_columns(table: Any) -> Ints:
    """Numbers of the columns without a value; empty for a sparse table and for one without rows."""
    if sparse.issparse(table) or not len(table):
        return np.empty(0, dtype=np.intp)
    try:
        numbers = check_array(table, dtype=np.float64, ensure_all_finite="allow-nan")
    except (TypeError, ValueError):  # text, say
        return np.empty(0, dtype=np.intp)
    return np.flatnonzero(np.isnan(numbers).all(axis=0))


class FullModel(Protocol):
    """The expensive model as the rest of thrifty sees it."""

    def outputs(self, table: Any, numbers: Any) -> Floats:
        """Outputs of the task for each row, shape (n_rows, n_outputs).

        Parameters
        ----------
        table : array or data frame
            The rows, as the model was fitted on them.
        numbers : ndarray or CSR of shape (n_rows, n_columns)
            The same rows as numbers.
        """


@dataclass(frozen=True)
class EstimatorFull:
    """A fitted scikit-learn estimator.

    Attributes
    ----------
    estimator : fitted estimator
        A classifier with ``predict_proba`` or ``decision_function``.
    task : Task
        What it answers.
    calibration : ndarray, optional
        Calibration that turns its raw outputs into outputs of the task; None for a model with ``predict_proba``.
    reads_numbers : bool
        Whether it was fitted on the numbers that stages read, instead of a table with text and dates.
    """

    estimator: Any
    task: Task
    calibration: Floats | None = None
    reads_numbers: bool = False

    def outputs(self, table: Any, numbers: Any) -> Floats:
        """Outputs of the estimator, calibrated if need be."""
        n_rows = numbers.shape[0]
        try:
            with limited_threads(openmp=threads_for(n_rows), blas=usable_threads()):
                raw = models_of(self.task).raw_outputs(
                    self.estimator, numbers if self.reads_numbers else table
                )
            return models_of(self.task).outputs(raw, self.calibration)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            # Arrays of a file may have been made to fail.
            if not isinstance(self.estimator, StoredModel) or isinstance(error, ThriftyError):
                raise
            raise FullModelFailedError(
                f"the full model, whose arrays are stored, failed when it was asked about {n_rows} rows: "
                f"{type(error).__name__}: {str(error)[:200]} If the rows are as it expects them, give another full "
                f"model with `with_full`."
            ) from error


@dataclass(frozen=True)
class CallableFull:
    """A function of a table that returns outputs: probabilities of the second class, or of all classes."""

    function: Callable[[Any], ArrayLike]
    task: Task

    def outputs(self, table: Any, numbers: Any) -> Floats:
        """Call the function and check what it returns."""
        name = getattr(self.function, "__qualname__", type(self.function).__qualname__)
        return models_of(self.task).read_outputs(
            self.function(table), numbers.shape[0], f"{FULL_MODEL} (the function {name})"
        )


@dataclass(frozen=True)
class PrecomputedFull:
    """Outputs computed beforehand, looked up by the content of the rows.

    Attributes
    ----------
    values : ndarray of shape (n_known, n_outputs)
        Outputs, one line per known row.
    keys : ndarray of shape (n_known,), optional
        Exact fingerprints of those rows. None looks rows up by their place in a batch of ``n_known`` rows.
    """

    values: Floats
    keys: Words | None = None

    def validate(self) -> "PrecomputedFull":
        """Refuse outputs that are not those of known rows. Returns itself."""
        if self.values.ndim not in (1, 2) or (self.keys is not None and not len(self.values)):
            raise InvalidInputError("values must be outputs of known rows.")
        if self.keys is not None and self.keys.shape != (len(self.values),):
            raise InvalidInputError(
                f"keys must be {len(self.values)}, one for each row; got {self.keys.shape}."
            )
        return self

    def outputs(self, table: Any, numbers: Any) -> Floats:  # noqa: ARG002 - one contract for all full models
        """Look the rows up by their content."""
        if self.keys is None:
            return self.by_place(numbers.shape[0])
        asked = fingerprints(numbers, exact=True)
        if len(asked) == len(self.keys) and np.array_equal(asked, self.keys):
            return self.values
        distinct, first_row = np.unique(self.keys, return_index=True)
        place = np.minimum(np.searchsorted(distinct, asked), len(distinct) - 1)
        strange = distinct[place] != asked
        if strange.any():
            raise InvalidInputError(
                f"full holds probabilities that were computed beforehand, and {int(strange.sum())} of the {len(asked)} "
                f"rows asked about are not those they belong to. Give those of these rows with "
                f"`with_full(probabilities, X)`, or a model that can compute them."
            )
        return self.values[first_row[place]]

    def by_place(self, n_rows: int) -> Floats:
        """Outputs of a whole batch, by place."""
        if n_rows != len(self.values):
            raise InvalidInputError(
                f"full holds precomputed probabilities for {len(self.values)} rows, but {n_rows} rows are to be "
                f"answered. Give theirs with `with_full(probabilities, X)`, or a model that can compute them."
            )
        return self.values


@dataclass(frozen=True, eq=False)
class AbsentFull:
    """No full model: for systems that answer every row themselves, or that are given it again.

    Attributes
    ----------
    name : str
        Class of the full model that a file does not hold; empty where nothing is known of it.
    answers : ndarray of shape (n_probes, n_outputs), optional
        Outputs of that model for synthetic rows: its fingerprint.
    calibration : ndarray, optional
        Calibration of its raw outputs.
    """

    name: str = ""
    answers: Floats | None = None
    calibration: Floats | None = None

    def outputs(self, table: Any, numbers: Any) -> Floats:  # noqa: ARG002 - one contract for all full models
        """Refuse: there is no model to ask."""
        if self.name:
            raise InvalidInputError(
                f"{numbers.shape[0]} rows are sent to the full model, a {self.name}, which the file does not hold. "
                f"Give it: load(path, full=model), or `with_full(model)`."
            )
        raise InvalidInputError(
            f"{numbers.shape[0]} rows are sent to a full model, and there is none. Give one with `with_full(full)`, or "
            f"raise the threshold so that no row is sent."
        )


def ask_model(
    model: FullModel,
    task: Task,
    table: Any,
    numbers: Any,
    *,
    rows: Ints | None = None,
    who: str = FULL_MODEL,
) -> Floats:
    """Checked outputs of a ``FullModel``; every call of one goes through here.

    Parameters
    ----------
    model, table, numbers : FullModel and the rows
        As ``FullModel.outputs`` takes them.
    task : Task
        What the model must answer.
    rows : ndarray of shape (n_rows,), optional
        Numbers of these rows in the user's table, for error messages; None counts them from 0.
    who : str
        Name of the model in error messages.
    """
    with renumber_rows_in_errors(rows, who):
        outputs = model.outputs(table, numbers)
        if isinstance(model, EstimatorFull | CallableFull | PrecomputedFull):
            return outputs
        # A FullModel of the user's own does not check its outputs.
        return models_of(task).check_outputs(
            outputs, numbers.shape[0], f"{FULL_MODEL} ({type(model).__name__})"
        )


def as_full_model(
    full: Any, task: Task, n_features: int, *, names: Any = None, numbers: Any = None, who: str = "full"
) -> FullModel:
    """Wrap a model that is fitted already as a ``FullModel``, checked against the task and the columns it reads.

    Parameters
    ----------
    full : fitted estimator, FrozenEstimator, FullModel, callable or array
        The model. The ``decision_function`` of a classifier without ``predict_proba`` is taken as log-odds.
    task : Task
        What it must predict.
    n_features, names : int, sequence of str
        Columns of the table that it gets.
    numbers : ndarray or CSR, optional
        The rows that an array of outputs belongs to; required for an array.
    who : str
        Name of the model in error messages.
    """
    if isinstance(full, type):
        raise InvalidInputError(
            f"{who} must be a model, not a class; got {full.__name__}. Write {full.__name__}()."
        )
    estimator = full.estimator if isinstance(full, FrozenEstimator) else full
    if is_estimator(estimator):
        try:
            check_is_fitted(estimator)
        except NotFittedError as error:
            raise InvalidInputError(
                f"{who} is a {type(estimator).__name__} that is not fitted. Fit it first, or pass it unfrozen."
            ) from error
        models = models_of(task)
        models.check_fitted(estimator, who)
        _check_columns(estimator, n_features, names, who)
        calibration = None if models.is_calibrated(estimator) else models.no_calibration
        return EstimatorFull(estimator, task, calibration)
    if callable(getattr(full, "outputs", None)):
        model: FullModel = full
        _check_columns(model, n_features, names, who)
        return model
    if callable(full):
        return CallableFull(full, task)
    values = models_of(task).read_outputs(full, None, who)
    if numbers is None:
        raise InvalidInputError(
            f"precomputed probabilities need the rows they belong to; got {len(values)} of them without rows. Write "
            f"`with_full(probabilities, X)`."
        )
    if len(values) != numbers.shape[0]:
        raise InvalidInputError(
            f"{who} holds precomputed probabilities for {len(values)} rows, but X has {numbers.shape[0]}. "
            f"Give one for each row of X."
        )
    return PrecomputedFull(values, fingerprints(numbers, exact=True))


def is_estimator(full: Any) -> bool:
    """True for an object with scikit-learn's ``fit`` and ``get_params``."""
    return hasattr(full, "fit") and hasattr(full, "get_params") and not isinstance(full, type)


def _check_columns(model: Any, n_features: int, names: Any, who: str) -> None:
    """Refuse an estimator, or a chain, that was fitted on other columns."""
    width = getattr(model, "n_features_in_", n_features)
    if width != n_features:
        raise InvalidInputError(
            f"{who} was fitted on {width} features, but X has {n_features}. Give X with the columns it reads, or name "
            f"them with `full_features` of Prices."
        )
    of_fit = getattr(model, "feature_names_in_", getattr(model, "names", None))
    if of_fit is not None and names is not None and list(of_fit) != list(names):
        other = next(
            (f"{a!r} where X has {b!r}" for a, b in zip(of_fit, names, strict=False) if a != b),
            f"{len(of_fit)} of them where X has {len(names)}",
        )
        raise InvalidInputError(
            f"{who} was fitted on other columns, or in another order: {other}. Give X with its columns, in its order."
        )
