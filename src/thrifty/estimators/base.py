"""What every single-stage estimator shares: checks, the fit template, routing and costs.

A subclass says how its scorer (g, f1) is learned; everything else, from labels to lazy buying, is
here. ``fit`` is all or nothing: after a refusal the estimator is exactly as it was before.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.utils import _safe_indexing, check_random_state, get_tags
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from threadpoolctl import threadpool_limits

from thrifty.exceptions import InvalidInputError
from thrifty.full import (
    CallableFull,
    FullModel,
    JudgedFull,
    PrecomputedFull,
    TrainingRows,
    assign_folds,
    judge_full,
)
from thrifty.objective.costs import PriceList, check_amount, check_price_list
from thrifty.policy.threshold import ThresholdCurve, threshold_curve
from thrifty.reading import FeatureSource, PurchaseReader, TableReader, kind_of_table, table_like
from thrifty.system import GatedSystem, Scorer, Stage

__all__ = ["GatedClassifier", "Task", "check_columns", "check_count", "check_share"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Task:
    """All that a subclass needs to learn its scorer."""

    rows: TrainingRows
    full: JudgedFull
    behind: GatedSystem
    price_list: PriceList
    seed: int

    @property
    def go_cost(self) -> Floats:
        """What each training row pays in all if it is sent on, before this stage's own purchases."""
        return self.behind.cost(self.rows.X)

    @property
    def extra_cost(self) -> Floats | None:
        """Price of sending each row on, scaled to a mean of 1; None where it is the same for all of them."""
        if not self.behind.stages:
            return None
        return self.go_cost / np.average(self.go_cost, weights=self.rows.weight)


class GatedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """Base of the estimators with one cheap stage in front of f0; see the subclasses.

    Subclasses store at least ``full, feature_costs, feature_groups, full_cost, budget, cv,
    n_jobs`` and ``random_state``, and implement ``_learn``.
    """

    _accepts_missing = False
    _accepts_sparse = True

    full: Any
    feature_costs: Any
    feature_groups: Any
    full_cost: float
    budget: float | None
    cv: Any
    n_jobs: int | None
    random_state: Any

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the cheap model and the gate, and judge f0 on these rows.

        Parameters
        ----------
        X : array, CSR matrix, pandas or polars data frame of shape (n_samples, n_features)
            Every feature f0 reads, bought or not: training pays for everything.
        y : array-like of shape (n_samples,)
            Two distinct labels.
        sample_weight : array-like of shape (n_samples,), optional
            Weights; a row of weight zero is left out.
        """
        self._check_parameters()
        with _all_or_nothing(self):
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            rows, full = self._check_rows(X, y, sample_weight, seed)
            names = getattr(self, "feature_names_in_", None)
            prices = check_price_list(
                self.feature_costs, self.feature_groups, self.full_cost, rows.X.shape[1], names
            )
            budget = None if self.budget is None else check_amount("budget", self.budget)
            judged = self._judge(full, rows)
            behind = _chain_of(judged.model, prices, rows.classes)
            task = Task(rows, judged, behind, prices, seed)
            # Sums of a BLAS depend on its number of threads in their last digit, and fits run side by side anyway.
            with threadpool_limits(1, user_api="blas"):
                stage = Stage(self._learn(task), 0.0)
            self.classes_ = rows.classes
            self.system_ = behind.behind(stage)
            self.features_ = stage.scorer.columns
            self._kind_of_table = kind_of_table(X)
            self._set_threshold(self._default_threshold(task, budget))
        return self

    def _check_parameters(self) -> None:
        """Refuse bad constructor arguments before anything is computed."""

    def _judge(self, full: Any, rows: TrainingRows) -> JudgedFull:
        """f0 and its loss on the training rows."""
        return judge_full(full, rows, n_jobs=self.n_jobs)

    def _learn(self, task: Task) -> Scorer:
        """Learn (g, f1); what else was learned is stored under names that end in ``_``."""
        raise NotImplementedError

    def _default_threshold(self, task: Task, budget: float | None) -> float:
        """Threshold of a fresh fit: the paper's ``g > 0``, or the one that spends the budget on the training rows."""
        if budget is None:
            return 0.0
        curve = self._curve(task.rows.X, task.rows.weight)
        return float(curve.threshold[curve.within(budget)])

    # -- answers -------------------------------------------------------------------------------

    def predict_proba(self, X: Any) -> Floats:
        """Probability of both classes: the cheap model's for rows it keeps, f0's for the others."""
        reader = self._reader(X)
        positive = self.system_.answer(
            self.system_.walk(reader), reader, np.arange(reader.n_samples), reader.n_samples
        )
        return np.column_stack([1.0 - positive, positive])

    def predict(self, X: Any) -> NDArray[Any]:
        """Label of each row."""
        return self._label(self.predict_proba(X)[:, 1])

    def decision_function(self, X: Any) -> Floats:
        """Log-odds of the second class."""
        return np.asarray(logit(self.predict_proba(X)[:, 1]), dtype=np.float64)

    def route(self, X: Any) -> NDArray[np.intp]:
        """Stage that answers each row: 0 is the cheap model; the last is f0. Never calls f0."""
        return self.system_.walk(self._reader(X)).route

    def cost(self, X: Any) -> Floats:
        """What each row spends. Never calls f0."""
        route = self.route(X)
        return self.system_.cost_by_route[route]

    def scores(self, X: Any) -> tuple[Floats, Floats]:
        """Gate and cheap-model scores ``(g, f1)`` of the first stage, for every row."""
        reader = self._reader(X)
        scorer = self.system_.stages[0].scorer
        return scorer(reader.block(np.arange(reader.n_samples), scorer.columns))

    def predict_from(self, source: FeatureSource) -> NDArray[Any]:
        """Label every row of a source, asking it only for the features each row really buys.

        Parameters
        ----------
        source : FeatureSource
            Has ``__len__`` and ``fetch(rows, columns)``; it is asked once per stage, for the rows
            that get there and the purchases they do not hold yet.
        """
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        wrap = table_like(self._kind_of_table, names)
        reader = PurchaseReader(source, self.system_.price_list, wrap)
        walk = self.system_.walk(reader)
        return self._label(self.system_.answer(walk, reader, np.arange(reader.n_samples), reader.n_samples))

    # -- operating points ----------------------------------------------------------------------

    def threshold_for(self, X: Any, *, budget: float) -> float:
        """Threshold at which the rows ``X`` spend at most ``budget`` on average, sending as many on as that allows."""
        reader = self._reader(X)
        curve = self._curve(reader.block(np.arange(reader.n_samples), np.arange(self.n_features_in_)), None)
        return float(curve.threshold[curve.within(check_amount("budget", budget))])

    def at(self, threshold: float) -> Self:
        """Return the same fit at another threshold of its gate; nothing is refitted."""
        check_is_fitted(self)
        other = copy.copy(self)
        other._set_threshold(float(threshold))
        return other

    def with_full(self, full: Any) -> Self:
        """Return the same fit in front of another f0: a function, probabilities per row, or a ``FullModel``."""
        check_is_fitted(self)
        model: FullModel
        if hasattr(full, "probability"):
            model = full
        elif callable(full):
            model = CallableFull(full)
        else:
            model = PrecomputedFull(np.asarray(full, dtype=np.float64).reshape(-1))
        other = copy.copy(self)
        other.system_ = self.system_.with_full(model)
        return other

    def _curve(self, X: Any, weight: Floats | None) -> ThresholdCurve:
        first = self.system_.stages[0].scorer
        g, _ = first(X[:, first.columns])
        # What a row pays that is sent on: the chain behind, plus what this stage bought and the chain did not.
        sent_on = self.system_.with_threshold(-np.inf).cost(X)
        return threshold_curve(g, self.system_.cost_by_route[0], sent_on, weight=weight)

    def _set_threshold(self, threshold: float) -> None:
        self.system_ = self.system_.with_threshold(threshold)
        self.threshold_ = threshold

    def _label(self, positive: Floats) -> NDArray[Any]:
        return self.classes_[(positive > 0.5).astype(np.intp)]

    # -- checks --------------------------------------------------------------------------------

    def _reader(self, X: Any) -> TableReader:
        check_is_fitted(self)
        numbers = _validated(self, X, reset=False)
        return TableReader(numbers, X if kind_of_table(X) else numbers)

    def _check_rows(self, X: Any, y: Any, sample_weight: Any, seed: int) -> tuple[TrainingRows, Any]:
        """The rows that count, and f0 for them: rows of weight zero are left out of everything."""
        if y is None:
            raise InvalidInputError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        numbers, y = _validated(self, X, y, reset=True)
        classes, signs = _signs(y)
        weight = _weights(sample_weight, numbers)
        table = X if kind_of_table(X) else numbers
        full = (
            HistGradientBoostingClassifier(random_state=self.random_state) if self.full is None else self.full
        )
        cv = self.cv
        kept = np.flatnonzero(weight > 0)
        if len(kept) < len(weight):
            if not isinstance(cv, Integral):
                cv = [
                    ((), assign_folds(cv, numbers, signs, seed)[kept] == fold) for fold in range(len(weight))
                ]
            if isinstance(full, np.ndarray | list | tuple):
                full = np.asarray(full)[kept]
            table, numbers, signs, weight = (
                _safe_indexing(table, kept),
                numbers[kept],
                signs[kept],
                weight[kept],
            )
            _refuse_one_class(signs, classes)
        folds = assign_folds(cv, numbers, signs, seed)
        return TrainingRows(table, numbers, signs, classes, weight, folds, sample_weight is not None), full

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        # A row may reach f0, so what f0 cannot read is not welcome either.
        full = get_tags(self.full).input_tags if hasattr(self.full, "fit") else None
        tags.input_tags.sparse = self._accepts_sparse and (full is None or full.sparse)
        tags.input_tags.allow_nan = self._accepts_missing and (full is None or full.allow_nan)
        return tags


@contextmanager
def _all_or_nothing(estimator: Any) -> Iterator[None]:
    before = dict(estimator.__dict__)
    try:
        yield
    except BaseException:
        estimator.__dict__.clear()
        estimator.__dict__.update(before)
        raise


def _chain_of(full: FullModel, prices: PriceList, classes: NDArray[Any]) -> GatedSystem:
    """What stands behind the new stage: f0 alone, or the chain that f0 already is."""
    inner = getattr(getattr(full, "estimator", None), "system_", full)
    if not isinstance(inner, GatedSystem):
        return GatedSystem((), full, prices, classes)
    theirs = inner.price_list
    if not np.array_equal(inner.classes, classes) or theirs.n_features != prices.n_features:
        raise InvalidInputError(
            f"full is a gated system for {theirs.n_features} features and the classes {inner.classes.tolist()}; "
            f"here there are {prices.n_features} features and the classes {classes.tolist()}. Both must agree."
        )
    if (
        not np.array_equal(theirs.group_of, prices.group_of)
        or not np.array_equal(theirs.prices, prices.prices)
        or theirs.full_cost != prices.full_cost
    ):
        raise InvalidInputError(
            "full is itself a gated system, and its feature_costs, feature_groups or full_cost differ from those "
            "given here. One route has one price list: give both the same."
        )
    return inner


def _validated(estimator: Any, X: Any, *y: Any, reset: bool) -> Any:
    try:
        return validate_data(
            estimator,
            X,
            *y,
            reset=reset,
            accept_sparse="csr" if estimator._accepts_sparse else False,
            ensure_all_finite="allow-nan" if get_tags(estimator).input_tags.allow_nan else True,
            dtype=np.float64,
        )
    except ValueError as error:
        raise InvalidInputError(str(error)) from error


def _signs(y: Any) -> tuple[NDArray[Any], Floats]:
    try:
        check_classification_targets(y)
    except ValueError as error:
        raise InvalidInputError(str(error)) from error
    classes, code = np.unique(y, return_inverse=True)
    if len(classes) > 2:
        raise InvalidInputError(
            f"Only binary classification is supported. The type of the target is {type_of_target(y)}, "
            f"with {len(classes)} classes. Make it one class against the rest."
        )
    signs = np.where(code == 1, 1.0, -1.0)
    _refuse_one_class(signs, classes)
    return classes, signs


def _refuse_one_class(signs: Floats, classes: NDArray[Any]) -> None:
    if len(np.unique(signs)) < 2:
        raise InvalidInputError(
            f"y must hold two classes; got 1 class, {classes.tolist()}. A classifier can't train on one class."
        )


def _weights(sample_weight: Any, numbers: Any) -> Floats:
    try:
        weight = _check_sample_weight(sample_weight, numbers, dtype=np.float64, ensure_non_negative=True)
    except ValueError as error:
        raise InvalidInputError(str(error)) from error
    if not weight.any():
        raise InvalidInputError("sample_weight must not be zero for every row.")
    return np.asarray(weight, dtype=np.float64)


def check_share(name: str, value: Any, *, meaning: str) -> float:
    """A number in [0, 1], or a refusal that says what it is for."""
    if not isinstance(value, int | float | np.integer | np.floating) or not 0.0 <= float(value) <= 1.0:
        raise InvalidInputError(f"{name} must lie in [0, 1]; got {value!r}. It is {meaning}.")
    return float(value)


def check_count(name: str, value: Any, *, least: int = 1) -> int:
    """A whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise InvalidInputError(f"{name} must be a whole number >= {least}; got {value!r}.")
    return int(value)


def check_columns(features: Any, n_features: int, names: Any) -> NDArray[np.intp]:
    """Column numbers from numbers, names or a mask; None is every column."""
    if features is None:
        return np.arange(n_features)
    wanted = np.asarray(features)
    if wanted.dtype.kind in "OUT":
        position = {name: i for i, name in enumerate(names)} if names is not None else {}
        unknown = [name for name in wanted.tolist() if name not in position]
        if unknown:
            raise InvalidInputError(f"features names {unknown[0]!r}, which is not a column of X.")
        wanted = np.array([position[name] for name in wanted.tolist()], dtype=np.intp)
    if wanted.dtype == bool and wanted.shape == (n_features,):
        wanted = np.flatnonzero(wanted)
    if wanted.dtype.kind not in "iu" or wanted.ndim != 1 or np.any((wanted < 0) | (wanted >= n_features)):
        raise InvalidInputError(
            f"features must be column numbers in [0, {n_features}), names, or a mask; got {features!r}."
        )
    return np.unique(wanted).astype(np.intp)
