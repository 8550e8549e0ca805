"""Base classes of estimators with a chain: ``predict``, ``route``, ``cost``, ``explain``, and steps of every fit."""

import copy
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import r2_score
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from thrifty._moved import FormerName
from thrifty._version import __version__
from thrifty.arrays import Floats, Ints, Labels
from thrifty.engine.evidence.collect import training_fingerprints
from thrifty.engine.evidence.evidence import Evidence
from thrifty.engine.full.crossfit import CrossFittedFull, TrainingRows, cross_fit_full
from thrifty.engine.full.model import EstimatorFull, FullModel, as_full_model
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.prices.prices import Prices, check_price_list, resolve_prices
from thrifty.engine.table.columns import Levels, has_dates
from thrifty.engine.table.table import Table
from thrifty.engine.tasks.classes import classification_of, default_classifier
from thrifty.engine.tasks.regression import RegressionTask, default_regressor, read_targets, regression_of
from thrifty.engine.tasks.task import Task
from thrifty.engine.walk.buying import BuyingMixin
from thrifty.engine.walk.chain import Chain
from thrifty.engine.walk.explain import Explanation, explain_rows
from thrifty.errors import InvalidInputError, OtherVersionWarning
from thrifty.learners.estimators.checks import validated
from thrifty.learners.estimators.notebook import Notebook
from thrifty.learners.estimators.operating_points import OperatingPoints

AnyTask = TypeVar("AnyTask", bound=RegressionTask)


def unwrap_chain(model: FullModel | Chain, prices: PriceList, task: Task) -> FullModel | Chain:
    """The chain that a full model is, which must have the same task and prices; other models are unchanged."""
    inner = chain_behind(model)
    if inner is None:
        return model
    theirs = inner.price_list
    if inner.task != task or theirs.n_features != prices.n_features:
        raise InvalidInputError(
            f"full is a chain for {theirs.n_features} features and {_answers_of(inner.task)}; here there are "
            f"{prices.n_features} features and {_answers_of(task)}. Both must agree."
        )
    if not theirs.is_same(prices):
        raise InvalidInputError(
            "full is itself a chain, and its prices differ from those given here. One route has one price list: give "
            "both the same."
        )
    return inner


def chain_behind(full: Any) -> Chain | None:
    """Chain of a full model that is one, by itself or inside an estimator; None for other models."""
    inner = getattr(unwrap_frozen(full), "chain_", full)
    return inner if isinstance(inner, Chain) else None


def task_of_route(task: AnyTask, full: Any, *same: str) -> AnyTask:
    """Task of a chain used as the full model, where some attributes are the same; else the task itself.

    One route has one unit: losses of a chain are in units of its own spread.
    """
    behind = chain_behind(full)
    theirs = None if behind is None else behind.task
    is_same = isinstance(theirs, type(task)) and all(getattr(theirs, k) == getattr(task, k) for k in same)
    return theirs if is_same else task  # type: ignore[return-value]  # of the same type


def _answers_of(task: Task) -> str:
    """Answers of a task, for error messages."""
    if len(task.classes):
        return f"the classes {task.classes.tolist()}"
    return f"numbers, by the {task.loss_name}"


def unwrap_frozen(full: Any) -> Any:
    """Unwrap a ``FrozenEstimator`` or ``EstimatorFull``; any other object is returned unchanged."""
    return full.estimator if isinstance(full, EstimatorFull | FrozenEstimator) else full


class PickledWithVersion:
    """Estimator whose pickles name the version of thrifty, as those of scikit-learn's own estimators do."""

    def __getstate__(self) -> dict[str, Any]:
        state: Any = super().__getstate__()  # that of scikit-learn's BaseEstimator
        return {**state, "_thrifty_version": __version__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        version = (state := dict(state)).pop("_thrifty_version", "0.3.0 or an earlier one")
        if version != __version__:
            warnings.warn(
                f"this {type(self).__name__} was pickled by version {version} of thrifty, and {__version__} reads it: "
                f"it may fail or answer otherwise. Fit again, or keep systems in files of `save`, which later versions "
                f"read.",
                OtherVersionWarning,
                stacklevel=2,
            )
        super().__setstate__(state)  # type: ignore[misc]  # scikit-learn's


class ChainEstimator(PickledWithVersion, Notebook, OperatingPoints, BuyingMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """Base class of estimators that predict with a ``chain_``; subclasses implement ``fit``.

    A fit stores ``chain_``, and ``evidence_``: results of the chain on the rows that choose operating points.
    """

    _accepts_missing = False
    _accepts_sparse = True
    _accepts_several = False
    # Whether text, categories and dates are read as they are.
    _accepts_levels = False
    # Prices where neither ``feature_costs`` nor ``prices`` is given.
    _default_prices = Prices()
    _levels: Levels | None = None

    full: Any
    feature_costs: Any
    prices: Any
    random_state: Any

    # -- answers -------------------------------------------------------------------------------

    def predict(self, X: Any, row_key: Any = None) -> Labels:
        """Predict each row: with the stage at which it stops, or with the full model.

        Parameters
        ----------
        X : table of shape (n_samples, n_features)
            Rows with the columns of the fit.
        row_key : str or array-like of shape (n_samples,), optional
            Keys of the rows, or the name of the column of X that holds them. Where two operating points are mixed, the
            key decides which of them a row follows: the same key takes the same route in one table, in parts of it and
            alone. Without it, keys are the index of a pandas data frame, else the numbers of the rows.
        """
        reader = self._reader(X, row_key)
        return self.chain_.task.answers(self.chain_.answer(reader))

    def route(self, X: Any, row_key: Any = None) -> Ints:
        """Stage that answers each row, from 0; ``n_stages`` is the full model, which is not called."""
        reader = self._reader(X, row_key)
        return self.chain_.walk(reader).route

    def cost(self, X: Any, row_key: Any = None) -> Floats:
        """Cost of each row. The full model is not called. ``row_key`` as in ``predict``."""
        reader = self._reader(X, row_key)
        return self.chain_.spent(reader, self.chain_.walk(reader))

    def _served(self) -> Chain:
        check_is_fitted(self)
        return self.chain_

    def explain(self, X: Any, row_key: Any = None) -> list[Explanation]:
        """Explain rows: purchases in their order, the answer that each stage would have given, and why a row stopped.

        The full model is asked about the rows that reach it. ``print(clf.explain(X)[0])`` is made to be read.
        ``row_key`` as in ``predict``.
        """
        reader = self._reader(X, row_key)
        names = getattr(self, "feature_names_in_", [f"x{column}" for column in range(self.n_features_in_)])
        return explain_rows(self.chain_, reader, names)

    # -- the same fit, changed -----------------------------------------------------------------

    def with_full(self, full: Any, X: Any = None) -> Self:
        """Return the same fit in front of another full model, in any fitted form: nothing is refitted.

        Operating points stay as they were evaluated with the old one; what was proved against it is forgotten.

        Parameters
        ----------
        full : fitted classifier, FrozenEstimator, callable, probabilities or Chain
            The new full model, which reads the same columns as the old one.
        X : table, optional
            Where ``full`` holds probabilities: the rows that they belong to, in their order.
        """
        check_is_fitted(self)
        prices = self.chain_.price_list
        names = getattr(self, "feature_names_in_", None)
        read = columns_of(full, prices)
        read = np.arange(prices.n_features) if read is None else read
        reader = None if X is None else self._reader(X)
        numbers = None if reader is None else reader.block(np.arange(reader.n_samples), read)
        model = as_full_model(
            full, self.chain_.task, len(read), names=None if names is None else names[read], numbers=numbers
        )
        other = copy.copy(self)
        other._forget_full()
        if training_fingerprints(full) is not None and hasattr(other, "evidence_"):
            other.evidence_ = replace(other.evidence_, seen=training_fingerprints(full, other))
        other._change_chain(lambda chain: chain.with_full(unwrap_chain(model, prices, chain.task)))
        return other

    def with_prices(self, prices: Mapping[Any, Any]) -> Self:
        """Return the same fit with other prices by row; nothing is refitted, and operating points stay as they are.

        Parameters
        ----------
        prices : dict
            As ``by_row`` of ``thrifty.Prices``, for some of the purchases that are not free: the column that holds the
            price of each row, or a function of the columns that are free. A file keeps no functions; what is loaded
            from it is given them here.
        """
        check_is_fitted(self)
        other = copy.copy(self)
        other._change_chain(lambda chain: chain.with_prices(prices))
        return other

    target_name_ = FormerName("record_.target")
    row_key_name_ = FormerName("record_.row_key")

    # -- for subclasses --------------------------------------------------------------------------

    def _task_of(self, y: Any, weight: Floats) -> Task:
        """Task for the targets ``y``, checked."""
        raise NotImplementedError

    def _change_chain(self, change: Any) -> None:
        self._learned, self.chain_ = change(self._learned), change(self.chain_)

    def _forget_full(self) -> None:
        """Delete what was measured against the former full model."""
        self.certificate_ = None
        evidence: Evidence | None = getattr(self, "evidence_", None)
        if evidence is not None:
            self.evidence_ = replace(evidence, full_quality=None, full_scores=None)

    def _reader(self, X: Any, row_key: Any = None) -> Table:
        if "chain_" not in vars(self):
            check_is_fitted(self)
        table = Table.of(X, row_key, getattr(self, "feature_names_in_", None))
        return table.with_numbers(validated(self, table, reset=False))

    def _full(self) -> Any:
        """The full model as given, or the default one."""
        return self._default_full() if self.full is None else self.full

    def _cross_fit_full(
        self,
        rows: TrainingRows,
        prices: PriceList,
        n_jobs: int | None,
        other_work: Future[Any] | None = None,
        *,
        reads_numbers: bool = False,
    ) -> CrossFittedFull:
        """Full model and its outputs on the training rows; an inner chain is checked before it is called.

        The default full model reads numbers, as the stages do; any other gets the user's table, unless it
        ``reads_numbers`` too.
        """
        full = self._full()
        unwrap_chain(full, prices, rows.task)
        asked = rows.with_columns(columns_of(full, prices))
        is_plain = self._levels is None and not has_dates(rows.table)
        if not reads_numbers and (self.full is not None or is_plain):
            return cross_fit_full(full, asked, n_jobs=n_jobs, other_work=other_work)
        asked = replace(asked, table=asked.table.in_numbers())
        cross_fitted = cross_fit_full(full, asked, n_jobs=n_jobs, other_work=other_work)
        assert isinstance(cross_fitted.model, EstimatorFull)  # a model of scikit-learn
        return replace(cross_fitted, model=replace(cross_fitted.model, reads_numbers=True))

    def _price_list(self, rows: TrainingRows) -> PriceList:
        """Price list of the purchases and the full model, checked."""
        n_features, names = rows.X.shape[1], getattr(self, "feature_names_in_", None)
        prices = check_price_list(
            resolve_prices(self.feature_costs, self.prices, self._default_prices),
            n_features,
            names,
            rows.table,
            rows.weight,
        )
        price_columns = () if prices.by_row is None else prices.by_row.price_column.tolist()
        levels = [column for column in price_columns if column in self._categorical]
        if levels:
            called = levels[0] if names is None else repr(str(names[levels[0]]))
            raise InvalidInputError(
                f"by_row reads prices from column {called}, which holds text or categories. Write prices as numbers."
            )
        return prices

    @property
    def _categorical(self) -> tuple[int, ...]:
        """Columns that hold levels."""
        return () if self._levels is None else self._levels.columns

    def _default_full(self) -> Any:
        """Unfitted full model, used if ``full`` is None."""
        raise NotImplementedError

    def _other_models(self) -> list[Any]:
        """Models besides the stages that read the table, as the user gave them."""
        return [self._full()]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # The estimator accepts only what all its models accept.
        models = [
            model for model in self._other_models() if hasattr(model, "fit") and not isinstance(model, type)
        ]
        others = [get_tags(model).input_tags for model in models]
        tags.input_tags.sparse = self._accepts_sparse and all(other.sparse for other in others)
        tags.input_tags.allow_nan = self._accepts_missing and all(other.allow_nan for other in others)
        return tags


class ChainClassifier(ClassifierMixin, ChainEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """Base class of classifiers that predict with a ``chain_``."""

    def predict_proba(self, X: Any, row_key: Any = None) -> Floats:
        """Probabilities of all classes, by the stage at which each row stops or by the full model.

        ``row_key`` as in ``predict``.
        """
        reader = self._reader(X, row_key)
        return self.chain_.answer(reader)

    def decision_function(self, X: Any, row_key: Any = None) -> Floats:
        """Log-odds of the second class, or a score for each of several, by the stage that answers or the full model.

        ``row_key`` as in ``predict``.
        """
        reader = self._reader(X, row_key)
        chain = self.chain_
        walk = chain.walk(reader)
        return chain.task.decision(chain.scores_of(walk, chain.answer(reader, walk)))

    def _task_of(self, y: Any, weight: Floats) -> Task:  # noqa: ARG002 - a label is a label at any weight
        return classification_of(y, several=self._accepts_several)

    def _default_full(self) -> Any:
        return default_classifier(self.random_state)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self._accepts_several
        return tags


class ChainRegressor(RegressorMixin, ChainEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """Base class of regressors that predict with a ``chain_``; subclasses store the ``loss``."""

    loss: str
    tolerance: float = 0.01
    quantile: float | None = None

    def _task_of(self, y: Any, weight: Floats) -> RegressionTask:
        task = regression_of(y, self.loss, weight, tolerance=self.tolerance, quantile=self.quantile)
        return task_of_route(task, getattr(self, "full", None), "kind", "quantile")

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R2 of the predictions, as of every regressor, in a unit in which squares of targets do not overflow."""
        predicted, task = self.predict(X), self.chain_.task
        assert isinstance(task, RegressionTask)  # as every fit of this class
        exponent = -int(np.frexp(task.spread)[1])
        both = np.ldexp(read_targets("y", y), exponent), np.ldexp(predicted, exponent)
        return float(r2_score(*both, sample_weight=sample_weight))

    def _default_full(self) -> Any:
        return default_regressor(self.loss, self.random_state, self.quantile)


def columns_of(full: Any, prices: PriceList) -> Ints | None:
    """Columns of the table that a full model gets; None (all) for a chain, which selects its own."""
    return None if isinstance(unwrap_frozen(full), Chain | ChainEstimator) else prices.full_columns


@contextmanager
def all_or_nothing(estimator: Any) -> Iterator[None]:
    """Restore the attributes of the estimator if an error is raised."""
    before = dict(estimator.__dict__)
    try:
        yield
    except BaseException:
        estimator.__dict__.clear()
        estimator.__dict__.update(before)
        raise
