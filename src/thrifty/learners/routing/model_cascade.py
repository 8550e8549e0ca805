"""``CascadeClassifier`` and ``CascadeRegressor``: models of one's own, fitted, measured, and run within a budget.

**Every model answers every row once, out of fold; the log of these answers teaches which model is to see which row.**

The estimators are cross-fitted, and what a row of each takes is measured, unless ``model_prices`` say it. A
``ModelRouter`` learns from that log: operating points, budgets, certificates and explanations are its own. ``predict``
follows its rules with the fitted estimators: each model is asked, in one batch, about the rows that reach it.
"""

import copy
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import r2_score
from sklearn.model_selection import GroupKFold
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from thrifty.arrays import Floats, Ints, Labels
from thrifty.engine.full.crossfit import TrainingRows, cross_fit_full
from thrifty.engine.full.model import FullModel, ask_model, is_estimator
from thrifty.engine.prices.billing import check_amount
from thrifty.engine.table.reader import Schema
from thrifty.engine.table.table import Table
from thrifty.engine.tasks.classes import classification_of
from thrifty.engine.tasks.regression import RegressionTask, regression_of
from thrifty.engine.tasks.task import Task
from thrifty.engine.walk.model_session import ModelExplanation
from thrifty.errors import (
    InvalidInputError,
    InvalidParameterError,
    NothingSavedWarning,
    OptimisticFullModelWarning,
    SlowModelWarning,
)
from thrifty.learners.estimators.base import all_or_nothing
from thrifty.learners.estimators.checks import check_count, check_seed, check_training_rows, validated
from thrifty.learners.routing.frontier import RouterFrontier
from thrifty.learners.routing.router import ModelRouter

N_REPEATS = 5
"""Calls of which the median is the time of a model."""
_LARGEST_LOSS = 10.0
"""Squared errors are cut at so many times the mean one of the best estimator, where a plan for numbers is learned."""
_N_CELLS = 32
_WORTH_IT = 0.95
"""Share of the price of the best estimator for which a plan that is as good must exist."""
_SLOWER, _LEAST_SECONDS = 3.0, 0.5
"""A model that takes so many times its measured time, and so many seconds more, is named after ``predict``."""


class Alternative(NamedTuple):
    """A plain alternative to the plan, on the rows of the fit, out of fold."""

    name: str
    cost: float
    score: float


class Seconds(NamedTuple):
    """Seconds that one call of a model takes: a part per call, and a part per row."""

    per_call: float
    per_row: float

    def of_row(self, batch_size: int) -> float:
        """Seconds of one row in a batch."""
        return self.per_row + self.per_call / batch_size


def measure_seconds(ask: Callable[[Ints], Any], n_rows: int) -> Seconds:
    """Measure calls with one row and with all rows: medians, after a call that warms up."""
    ask(np.arange(min(n_rows, 1)))
    one, many = (_median_seconds(ask, rows) for rows in (np.arange(1), np.arange(n_rows)))
    per_row = max(many - one, 0.05 * many) / max(n_rows - 1, 1)
    return Seconds(max(one - per_row, 0.0), per_row)


def _median_seconds(ask: Callable[[Ints], Any], rows: Ints) -> float:
    taken = []
    for _ in range(N_REPEATS):
        began = time.perf_counter()
        ask(rows)
        taken.append(time.perf_counter() - began)
    return float(np.median(taken))


class Run(NamedTuple):
    """What ``predict`` did with each row."""

    outputs: Floats
    """Outputs of the model that answers, shape (n_rows, n_outputs)."""
    asked_outputs: Floats
    """Outputs of every model that was asked, shape (n_rows, n_models, n_outputs); NaN of the others."""
    model: Ints
    """Model that answers, by its place in ``pool_``."""
    cost: Floats


@dataclass(eq=False, repr=False)
class ModelCascade(BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """Base class of ``CascadeClassifier`` and ``CascadeRegressor``."""

    _accepts_levels = True
    _accepts_several = True
    _levels = None

    estimators: Any = None
    _: KW_ONLY
    model_prices: Any = None
    budget: float | None = None
    max_asks: int = 3
    cv: Any = 4
    batch_size: int = 1000
    n_jobs: int | None = None
    random_state: Any = None

    # -- parameters --------------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters, and with ``deep`` the estimators and their parameters by name, such as ``forest__max_depth``."""
        params: dict[str, Any] = super().get_params(deep=False)
        for name, model in (self.estimators or ()) if deep else ():
            params[name] = model
            if is_estimator(model):
                params |= {f"{name}__{key}": value for key, value in model.get_params().items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters; an estimator is replaced by its name."""
        named = dict(self.estimators or ())
        replaced = {name: params.pop(name) for name in [*params] if name in named}
        if replaced:
            self.estimators = [(name, replaced.get(name, model)) for name, model in self.estimators]
        super().set_params(**params)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        models = [getattr(model, "estimator", model) for _, model in self.estimators or ()]
        others = [get_tags(model).input_tags for model in models if is_estimator(model)]
        tags.input_tags.sparse = False
        tags.input_tags.allow_nan = all(other.allow_nan for other in others)
        return tags

    def _named_models(self) -> dict[str, Any]:
        """The estimators by name, checked."""
        try:
            pairs = [(name, model) for name, model in self.estimators]
        except (TypeError, ValueError):
            pairs = []
        names = [name for name, _ in pairs]
        if len(pairs) < 2 or not all(isinstance(name, str) and name for name in names):
            raise InvalidParameterError(
                "estimators",
                f"must be a list of at least two (name, estimator), as of StackingClassifier; got {self.estimators!r}.",
            )
        taken = {*super().get_params(deep=False)}
        for name in names:
            if names.count(name) > 1 or name in taken or "__" in name:
                raise InvalidParameterError(
                    "estimators",
                    f"must have different names, without '__', that are no parameters of {type(self).__name__}; got "
                    f"{name!r}.",
                )
        is_prefit = isinstance(self.cv, str) and self.cv == "prefit"
        return {
            name: FrozenEstimator(model) if is_prefit and is_estimator(model) else model
            for name, model in pairs
        }

    # -- learning ----------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        reference: str | None = None,
    ) -> Self:
        """Cross-fit the estimators, measure them, and learn which of them to ask about which row.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
            Rows. With ``cv="prefit"``, rows that no estimator was trained on.
        y : array-like of shape (n_samples,), optional
            Labels or numbers; left out with ``reference``.
        sample_weight : array-like of shape (n_samples,), optional
            Weights in the fits of the estimators; rows of weight zero are left out.
        groups : array-like of shape (n_samples,), optional
            Groups of rows that stay together in one fold.
        reference : str, optional
            Name of a fitted estimator whose answers are taken instead of labels: scores are the agreement with it.
        """
        budget = None if self.budget is None else check_amount("budget", self.budget)
        batch_size = check_count("batch_size", self.batch_size)
        with all_or_nothing(self):
            seed, models = check_seed(self.random_state), self._named_models()
            if reference is not None:
                y = self._answers_of(reference, models, X, y)
            cv = 4 if isinstance(self.cv, str) and self.cv == "prefit" else self.cv
            if groups is not None:
                cv = list(GroupKFold(cv if isinstance(cv, int) else 4).split(X, y, groups))
            rows = check_training_rows(self, X, y, sample_weight, cv, seed)
            cross_fitted = []
            for name, model in models.items():
                with warnings.catch_warnings():
                    if name == reference:  # which agrees with itself
                        warnings.simplefilter("ignore", OptimisticFullModelWarning)
                    called = f"the estimator {name!r}"
                    cross_fitted.append(cross_fit_full(model, rows, n_jobs=self.n_jobs, name=called))
            self.task_, self.reference_, self.schema_ = rows.task, reference, _schema_of(rows.table)
            if len(rows.task.classes):
                self.classes_ = rows.task.classes
            self.models_: dict[str, FullModel] = {
                name: one.model for name, one in zip(models, cross_fitted, strict=True)
            }
            self.model_prices_ = self._prices(rows, batch_size)
            outputs = np.stack([one.outputs for one in cross_fitted], axis=1)
            self._learn_scale(rows, outputs)
            self.router_ = ModelRouter(
                self.model_prices_, budget=budget, max_asks=self.max_asks, random_state=seed
            )
            self.router_.fit(rows.X, self._quality(rows.y, outputs), evidence=self._evidence_of(outputs))
            self.alternatives_ = self._alternatives()
            self._mention_no_gain()
        return self

    def _answers_of(self, reference: str, models: Mapping[str, Any], X: Any, y: Any) -> Any:
        if y is not None:
            raise InvalidInputError(
                f"reference={reference!r} takes the answers of that estimator as labels; got y too. Leave one out."
            )
        if reference not in models:
            raise InvalidInputError(
                f"reference must name one of the estimators, {', '.join(models)}; got {reference!r}."
            )
        model = models[reference]
        if is_estimator(model) and not isinstance(model, FrozenEstimator):
            raise InvalidInputError(
                f"reference={reference!r} must be fitted: its answers are the labels. Give FrozenEstimator(model), or "
                f"cv='prefit' where all estimators are fitted."
            )
        return model.predict(X)

    def _prices(self, rows: TrainingRows, batch_size: int) -> dict[str, float]:
        """Price of a row of each model: as given, or measured seconds."""
        given = self.model_prices
        self.seconds_: dict[str, Seconds] = {}
        if given is None:
            places = np.arange(min(len(rows.y), batch_size))
            for name in self.models_:
                self.seconds_[name] = measure_seconds(partial(self._ask, name, rows.table), len(places))
            return {name: one.of_row(batch_size) for name, one in self.seconds_.items()}
        lacking = [name for name in self.models_ if not isinstance(given, Mapping) or name not in given]
        if lacking or len(given) > len(self.models_):
            raise InvalidParameterError(
                "model_prices",
                f"must be a dict with a price for each estimator, {', '.join(self.models_)}; got {given!r}. Leave it "
                f"out to measure seconds.",
            )
        prices = {name: check_amount(f"model_prices[{name!r}]", given[name]) for name in self.models_}
        free = [name for name, price in prices.items() if price == 0.0]
        if free:
            raise InvalidParameterError(
                "model_prices", f"must be positive; got 0 for {free[0]!r}. Give what its time is worth."
            )
        return prices

    def _alternatives(self) -> tuple[Alternative, ...]:
        """Each model alone, out of fold."""
        state = self.router_.state_
        singles = zip(state.names, state.single_cost.tolist(), state.single_quality.tolist(), strict=True)
        return tuple(
            Alternative(f"{name} alone", cost, self._score_of(quality)) for name, cost, quality in singles
        )

    def _mention_no_gain(self) -> None:
        """Warn where no plan for less is level with the best model up to a standard error, out of fold."""
        state, frontier = self.router_.state_, self.router_.frontier_
        best = state.best_single
        price, alone = float(state.single_cost[best]), float(state.single_quality[best])
        name, reached = state.names[best], float(frontier.quality_at(_WORTH_IT * price))
        # Qualities lie in [0, 1]: their variance is at most that of right and wrong.
        variance = max(share * (1.0 - share) for share in (alone, np.nan_to_num(reached)))
        if reached >= alone - np.sqrt(variance / len(state.log)):
            return
        others = (
            "the cheapest estimator is the best one"
            if np.isnan(reached)
            else f"the plan reaches {self._score_of(reached):.4g} for {_WORTH_IT:.0%} of that"
        )
        warnings.warn(
            f"no plan is as good as {name} alone for less: out of fold {name} scores {self._score_of(alone):.4g} for "
            f"{price:.3g} a row; {others}.",
            NothingSavedWarning,
            stacklevel=3,
        )

    # -- other settings of the same fit ------------------------------------------------------------

    def at(self, *, budget: float | None = None, share: float | None = None) -> Self:
        """Return the same fit at another budget; nothing is learned again.

        Parameters
        ----------
        budget : float, optional
            Mean price of a row.
        share : float, optional
            The same as a share of the price of the most accurate model.
        """
        check_is_fitted(self, "router_")
        if (budget is None) == (share is None):
            raise InvalidParameterError(
                "budget", f"or share must be given, and not both; got budget={budget!r}, share={share!r}."
            )
        if share is not None:
            budget = check_amount("share", share) * self.router_.model_costs[self.router_.best_model]
        return self._with_router(self.router_.at(budget=budget), budget=budget)

    def with_prices(self, prices: Mapping[str, float]) -> Self:
        """Return a cascade for other prices of some estimators: the plan is learned again, no estimator is fitted."""
        check_is_fitted(self, "router_")
        other = self._with_router(self.router_.with_prices(prices))
        other.model_prices_ = {**self.model_prices_, **{name: float(price) for name, price in prices.items()}}
        return other

    def certified(
        self, X: Any, y: Any, *, max_loss: float | None = None, budget: float | None = None, **how: Any
    ) -> Self:
        """Return the cascade at a setting whose loss against the best model, or whose cost, new rows bound.

        Parameters
        ----------
        X, y : rows that no estimator was trained on, and their targets
            Every estimator is asked about all of them.
        max_loss, budget : float, optional
            As of ``ModelRouter.certified``, as are further arguments.
        """
        log = self.log_of(X, y)
        return self._with_router(self.router_.certified(**log, max_loss=max_loss, budget=budget, **how))

    def _with_router(self, router: ModelRouter, **parameters: Any) -> Self:
        other = copy.copy(self)
        other.router_ = router
        for name, value in parameters.items():
            setattr(other, name, value)
        return other

    # -- answers -----------------------------------------------------------------------------------

    def predict(self, X: Any, row_key: Any = None) -> Labels:
        """Answer each row: estimators are asked one after another, each about the rows that the plan sends to it.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
            Rows with the columns of the fit.
        row_key : str or array-like of shape (n_samples,), optional
            Keys of the rows, or the column that holds them; where two operating points are mixed, the key decides which
            of them a row follows.
        """
        answers: Labels = self.task_.answers(self.run(X, row_key).outputs)
        return answers

    def cost(self, X: Any, row_key: Any = None) -> Floats:
        """Price of the estimators that are asked about each row; they are asked to tell it."""
        return self.run(X, row_key).cost

    def route(self, X: Any, row_key: Any = None) -> Labels:
        """Name of the estimator that answers each row."""
        return np.array(self.router_.pool_, dtype=object)[self.run(X, row_key).model]

    def explain(self, X: Any, row_key: Any = None) -> list[ModelExplanation]:
        """Explain rows: estimators asked in their order, how sure the answer was, and the cost."""
        run, table = self.run(X, row_key), self._table(X, row_key)
        evidence = self._evidence_of(run.asked_outputs)
        log = self.router_.unasked(table.numbers)._replace(keys=table.keys(np.arange(len(table))))
        rows = zip(self.router_.sessions(table.numbers, log), evidence, strict=True)
        explanations = []
        for session, line in rows:
            while (purchase := session.next_purchase) is not None:
                place = self.router_.pool_.index(purchase.name)
                session.give(None, evidence=line[place])
            explanations.append(session.explanation())
        return explanations

    def log_of(self, X: Any, y: Any = None) -> dict[str, Any]:
        """Log of all estimators on rows, as ``ModelRouter.replay`` takes it; they are asked about every row."""
        table = self._table(X)
        rows = np.arange(len(table))
        outputs = np.stack([self._ask(name, table, rows) for name in self.models_], axis=1)
        log = {"X": table.numbers, "evidence": self._evidence_of(outputs)}
        if y is None:
            return log
        return {**log, "quality": self._quality(self.task_.encode("y", y, len(rows)), outputs)}

    @property
    def frontier_(self) -> RouterFrontier:
        """Mean price and quality of the operating points, out of fold."""
        return self.router_.frontier_

    @property
    def expected_cost_(self) -> float:
        """Mean price of a row at the operating point in force, out of fold."""
        return self.router_.expected_cost_

    @property
    def expected_score_(self) -> float:
        """Mean score at the operating point in force, out of fold."""
        return self._score_of(self.router_.expected_score_)

    @property
    def certificate_(self) -> Any:
        """What ``certified`` proved, or None."""
        return self.router_.certificate_

    def _table(self, X: Any, row_key: Any = None) -> Table:
        check_is_fitted(self, "router_")
        table = Table.of(X, row_key, getattr(self, "feature_names_in_", None))
        return table.with_numbers(validated(self, table, reset=False))

    def _ask(self, name: str, table: Table, rows: Ints) -> Floats:
        """Outputs of an estimator."""
        return ask_model(
            self.models_[name],
            self.task_,
            table.native_rows(rows),
            table.numbers[rows],
            rows=table.numbers_of(rows),
            who=f"the estimator {name!r}",
        )

    def run(self, X: Any, row_key: Any = None) -> Run:
        """Follow the plan."""
        table = self._table(X, row_key)
        everyone, pool = np.arange(len(table)), self.router_.pool_
        outputs = np.full((len(table), len(pool), len(self.task_.classes) or 1), np.nan)
        seconds, counts = np.zeros(len(pool)), np.zeros(len(pool))

        def ask(name: str, rows: Ints) -> Floats:
            began, model = time.perf_counter(), pool.index(name)
            outputs[rows, model] = self._ask(name, table, rows)
            seconds[model] += time.perf_counter() - began
            counts[model] += len(rows)
            evidence: Floats = self._evidence_of(outputs[rows, model : model + 1], [name])[:, 0]
            return evidence

        replay = self.router_.run(ask, table.numbers, table.keys(everyone))
        self._mention_slow(seconds, counts)
        return Run(outputs[everyone, replay.model], outputs, replay.model, replay.cost)

    def _mention_slow(self, seconds: Floats, counts: Floats) -> None:
        """Warn of estimators that took far longer than was measured."""
        for place, name in enumerate(self.router_.pool_):
            measured = self.seconds_.get(name)
            if measured is None or not counts[place]:
                continue
            expected = measured.per_call + measured.per_row * counts[place]
            if seconds[place] > _SLOWER * expected + _LEAST_SECONDS:
                warnings.warn(
                    f"the estimator {name!r} took {seconds[place]:.3g} seconds for {int(counts[place]):,} rows, and "
                    f"{expected:.3g} as measured at the fit: budgets are not kept. Fit again on this machine, or give "
                    f"model_prices.",
                    SlowModelWarning,
                    stacklevel=4,
                )

    # -- for subclasses ----------------------------------------------------------------------------

    def _quality(self, y: Floats, outputs: Floats) -> Floats:
        """Quality of each estimator on each row, in [0, 1]."""
        raise NotImplementedError

    def _evidence_of(self, outputs: Floats, names: Sequence[str] | None = None) -> Floats:
        """What the plan is told about the answers of some estimators."""
        raise NotImplementedError

    def _score_of(self, quality: float) -> float:
        """Score for users from mean quality."""
        return quality

    def _learn_scale(self, rows: TrainingRows, outputs: Floats) -> None:
        """Learn what qualities and evidence are measured by."""


@dataclass(eq=False, repr=False)
class CascadeClassifier(ClassifierMixin, ModelCascade):  # type: ignore[misc]  # scikit-learn is untyped
    """Predicts classes with several models of one's own, asking the slow ones only where it matters.

    In the form of ``StackingClassifier``. The estimators are cross-fitted, and the seconds that a row of each takes are
    measured, unless ``model_prices`` say what a row costs. ``predict`` asks one estimator after another, each in one
    batch about the rows that the plan sends to it, until the answer at hand is sure enough.

    Parameters
    ----------
    estimators : list of (str, estimator)
        At least two classifiers, or functions of rows that return probabilities. Fitted ones stay as they are inside
        ``FrozenEstimator`` or with ``cv="prefit"``.
    model_prices : dict of str to float, default=None
        Price of a row of each estimator, in any unit; None measures seconds.
    budget : float, default=None
        Mean price of a row; None is the best score at any price.
    max_asks : int, default=3
        Estimators that may be asked about one row.
    cv : int, splitter, iterable or "prefit", default=4
        Folds of the cross-fitting; "prefit" takes fitted estimators, and rows that they were not trained on.
    batch_size : int, default=1000
        Rows of a usual call of ``predict``, for which seconds are measured: a part of them is paid once per call.
    n_jobs : int, default=None
        Fits at a time.
    random_state : int, RandomState or None, default=None
        Seed of folds.

    Attributes
    ----------
    classes_ : ndarray
        Labels.
    models_ : dict of str to FullModel
        The fitted estimators.
    model_prices_ : dict of str to float
        Price of a row of each estimator.
    seconds_ : dict of str to Seconds
        Measured seconds, per call and per row; empty with ``model_prices``.
    router_ : ModelRouter
        The plan, learned from what the estimators answered out of fold.
    frontier_, expected_cost_, expected_score_, certificate_
        As of ``ModelRouter``; scores are accuracies, or with ``reference`` the agreement with that estimator.
    alternatives_ : tuple of Alternative
        Each estimator alone, out of fold.
    task_ : Task
        Encoding of labels.
    schema_ : Schema
        Names, types and levels of the columns.
    reference_ : str or None
        Estimator whose answers were taken as labels.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.ensemble import ExtraTreesClassifier
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from thrifty import CascadeClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> models = [("bayes", GaussianNB()), ("forest", ExtraTreesClassifier(100, random_state=0))]
    >>> fast = CascadeClassifier(models, model_prices={"bayes": 1, "forest": 20}, random_state=0).fit(X[::2], y[::2])
    >>> half = fast.at(share=0.6)
    >>> bool(half.score(X[1::2], y[1::2]) > 0.95), bool(half.cost(X[1::2]).mean() < 14)
    (True, True)
    """

    def predict_proba(self, X: Any, row_key: Any = None) -> Floats:
        """Probabilities of all classes, by the estimator that answers each row."""
        return self.run(X, row_key).outputs

    def _task_of(self, y: Any, weight: Floats) -> Task:  # noqa: ARG002 - a label is a label at any weight
        return classification_of(y)

    def _quality(self, y: Floats, outputs: Floats) -> Floats:
        columns = [self.task_.quality(y, outputs[:, model]) for model in range(outputs.shape[1])]
        return np.column_stack(columns).astype(np.float64)

    def _evidence_of(self, outputs: Floats, names: Sequence[str] | None = None) -> Floats:  # noqa: ARG002 - class probabilities are as they are
        return outputs


@dataclass(eq=False, repr=False)
class CascadeRegressor(RegressorMixin, ModelCascade):  # type: ignore[misc]  # scikit-learn is untyped
    """Predicts numbers with several models of one's own, asking the slow ones only where it matters.

    A number does not say how sure it is: the plan reads the columns, and how large errors are where an estimator
    predicts such a number.

    Parameters
    ----------
    estimators : list of (str, estimator)
        At least two regressors, or functions of rows that return numbers; as of ``CascadeClassifier``.
    model_prices, budget, max_asks, cv, batch_size, n_jobs, random_state
        As of ``CascadeClassifier``.

    Attributes
    ----------
    models_, model_prices_, seconds_, router_, frontier_, expected_cost_, certificate_, alternatives_, task_, reference_
        As of ``CascadeClassifier``. Qualities of the plan are one minus the squared error divided by
        ``largest_loss_``, and not below 0.
    schema_ : Schema
        Names, types and levels of the columns.
    largest_loss_ : float
        Ten times the mean squared error of the best estimator, in units of the variance of y.
    error_curves_ : dict of str to ndarray of shape (2, n_cells)
        Mean quality of each estimator by the number that it predicts.
    expected_score_ : float
        R2 at the operating point in force, out of fold.

    Examples
    --------
    >>> from sklearn.datasets import make_friedman1
    >>> from sklearn.ensemble import ExtraTreesRegressor
    >>> from sklearn.linear_model import Ridge
    >>> from thrifty import CascadeRegressor
    >>> X, y = make_friedman1(600, random_state=0)
    >>> models = [("ridge", Ridge(0.1)), ("forest", ExtraTreesRegressor(100, random_state=0))]
    >>> fast = CascadeRegressor(models, model_prices={"ridge": 1, "forest": 20}, random_state=0).fit(X[::2], y[::2])
    >>> bool(fast.at(budget=10).cost(X[1::2]).mean() < 14)
    True
    """

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R2 of the predictions."""
        return float(r2_score(y, self.predict(X), sample_weight=sample_weight))

    def _task_of(self, y: Any, weight: Floats) -> RegressionTask:
        return regression_of(y, "squared", weight, tolerance=0.01, quantile=None)

    def _learn_scale(self, rows: TrainingRows, outputs: Floats) -> None:
        loss = self._loss(rows.y, outputs)
        self.largest_loss_ = float(max(_LARGEST_LOSS * loss.mean(axis=0).min(), np.finfo(np.float64).tiny))
        quality = self._quality(rows.y, outputs)
        self.error_curves_ = {
            name: _error_curve(outputs[:, place, 0], quality[:, place])
            for place, name in enumerate(self.models_)
        }

    def _quality(self, y: Floats, outputs: Floats) -> Floats:
        return np.clip(1.0 - self._loss(y, outputs) / self.largest_loss_, 0.0, 1.0)

    def _loss(self, y: Floats, outputs: Floats) -> Floats:
        quality: Floats = np.column_stack([self.task_.quality(y, one) for one in outputs.swapaxes(0, 1)])
        return 1.0 - quality

    def _evidence_of(self, outputs: Floats, names: Sequence[str] | None = None) -> Floats:
        return np.column_stack(
            [
                np.interp(outputs[:, place, 0], *self.error_curves_[name])
                for place, name in enumerate(self.models_ if names is None else names)
            ]
        )

    def _score_of(self, quality: float) -> float:
        return 1.0 - self.largest_loss_ * (1.0 - quality)


def _error_curve(predicted: Floats, quality: Floats) -> Floats:
    """Mean quality where an estimator predicts such a number, over cells of equal numbers of rows."""
    order = np.argsort(predicted, kind="stable")
    cells = [part for part in np.array_split(order, _N_CELLS) if len(part)]
    places = np.array([predicted[part].mean() for part in cells])
    levels = np.array([quality[part].mean() for part in cells])
    distinct = np.r_[True, np.diff(places) > 0.0]
    return np.stack([places[distinct], levels[distinct]])


def _schema_of(table: Table) -> Schema:
    """Schema of the table of a fit; without names, columns are x0, x1 and so on."""
    schema = Schema.of(table)
    if table.feature_names is not None:
        return schema
    return Schema(None, tuple(f"x{column}" for column in range(len(schema.names))), None, schema.levels)
