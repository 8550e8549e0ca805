"""``CascadeClassifier`` and ``CascadeRegressor``: the user's models, fitted, measured, and run within a budget.

**Every model answers every row once, out of fold; the log of these answers teaches which model is to see which row.**

The estimators are cross-fitted, and what a row of each takes is measured, unless ``model_prices`` say it. A
``ModelRouter`` learns from that log: operating points, budgets, certificates and explanations are its own. ``predict``
follows its rules with the fitted estimators: each model is asked, in one batch, about the rows that reach it.
"""

import copy
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from itertools import permutations
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GroupKFold, check_cv
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from thrifty.arrays import Bools, Floats, Ints, Labels
from thrifty.engine.evidence.evidence import Evidence
from thrifty.engine.full.adapters import models_of
from thrifty.engine.full.crossfit import CrossFittedFull, TrainingRows, cross_fit_full, fit_copy
from thrifty.engine.full.model import AbsentFull, FullModel, ask_model, is_estimator
from thrifty.engine.full.seconds import Seconds, measure_seconds, median_seconds
from thrifty.engine.prices.billing import amount_text, check_amount, times
from thrifty.engine.prices.prices import Prices, check_price, resolve_prices, resources_of_models
from thrifty.engine.purchases.readers import Delivery, Ledger
from thrifty.engine.table.columns import Levels
from thrifty.engine.table.reader import Schema
from thrifty.engine.table.table import Table, frame_of
from thrifty.engine.tasks.classes import classification_of
from thrifty.engine.tasks.regression import RegressionTask, regression_of
from thrifty.engine.tasks.task import Task
from thrifty.engine.walk.buying import buy_answers
from thrifty.engine.walk.model_session import ModelSession
from thrifty.engine.walk.next_model import DIGITS, Thresholds, walk
from thrifty.engine.walk.policy import Policy
from thrifty.errors import (
    FullModelFailedError,
    FullModelFailedWarning,
    InvalidAnswerError,
    InvalidInputError,
    InvalidParameterError,
    NothingSavedWarning,
    OptimisticFullModelWarning,
    SlowModelWarning,
    ThriftyError,
    UnspentBudgetWarning,
)
from thrifty.learners.estimators.base import PickledWithVersion, all_or_nothing
from thrifty.learners.estimators.checks import check_count, check_seed, check_training_rows, validated
from thrifty.learners.routing.logs import check_resources, shares_after
from thrifty.learners.routing.nested_columns import ColumnPlan, plan_columns
from thrifty.learners.routing.router import N_FOLDS, ModelRouter, NewLog
from thrifty.learners.routing.state import RouterState
from thrifty.learners.routing.thresholds import pool_classes
from thrifty.rows import fingerprints

_LARGEST_LOSS = 10.0
"""Squared errors are cut at so many times the mean one of the best estimator, where a plan for numbers is learned."""
_SPENT = 0.8
"""Share of a budget below which a plan leaves it unspent (no command chose it)."""

_CLEARLY_LESS = 0.9
"""Share of an estimator's seconds below which it is clearly faster on half of the columns: times vary by a tenth."""
_WORTH_IT = 0.95
"""Share of the price of the best estimator for which a plan that is as good must exist."""
_IMPORTANCE_ROWS = 2000
"""Most rows from which trees learn which half of the columns is the better one."""
_BUDGETS = np.array([0.1, 0.2, 0.35, 0.5, 1.0])
"""Shares of the price of the best estimator at which plans with and without columns are compared."""
_SLOWER, _LEAST_SECONDS = 3.0, 2.0
"""A model that takes so many times its measured time, and so many seconds more, is named after ``predict``."""


@dataclass(frozen=True)
class Alternative:
    """A plain alternative to the plan, on the rows of the fit, out of fold.

    ``rule`` has the estimators that it asks, by their places in ``router_.pool_``, and the confidence at which it
    stops; None for an estimator that was trained for the comparison alone: there is no such model for new rows.
    """

    name: str
    cost: Any
    score: float
    rule: Thresholds | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Retrained:
    """The best estimator trained otherwise, to compare the plan with; no model of it is kept.

    ``how`` says it in words, ``quality`` is its mean out of fold, ``price_ratio`` its price as a share of that of the
    estimator, and ``columns`` are those that it reads, where these are not all.
    """

    model: str
    how: str
    quality: float
    price_ratio: float = 1.0
    columns: tuple[str, ...] = ()


class Run(NamedTuple):
    """What ``predict`` did with each row."""

    outputs: Floats
    """Outputs of the model that answers, as it gave them, shape (n_rows, n_outputs)."""
    asked_outputs: Floats
    """Outputs of every model that was asked, shape (n_rows, n_models, n_outputs); NaN of the others."""
    failed: Bools
    """Whether a model failed to answer a row, shape (n_rows, n_models)."""
    model: Ints
    """Model that answers, by its place in ``pool_``."""
    cost: Floats
    costs: Floats | None = None
    """Cost in each of several resources, shape (n_rows, n_resources); ``cost`` is then their sum at exchange rates."""


@dataclass(eq=False, repr=False)
class ModelCascade(PickledWithVersion, BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """Base class of ``CascadeClassifier`` and ``CascadeRegressor``."""

    _accepts_levels = True
    _accepts_several = True
    _levels = None
    _quality_name = "accuracy"

    estimators: Any = None
    _: KW_ONLY
    model_prices: Any = None
    budget: Any = None
    max_asks: int = 3
    cv: Any = 4
    batch_size: int = 1000
    n_jobs: int | None = None
    random_state: Any = None
    after: Any = None
    columns: bool | None = None
    ask: str = "in turn"
    prices: Any = None

    # -- parameters --------------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters, and with ``deep`` the estimators and their parameters by name, such as ``forest__max_depth``."""
        params: dict[str, Any] = super().get_params(deep=False)
        for name, model in self._pairs() if deep else ():
            params[name] = model
            if is_estimator(model):
                params |= {f"{name}__{key}": value for key, value in model.get_params().items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters; an estimator is replaced by its name."""
        named = dict(self._pairs())
        replaced = {name: params.pop(name) for name in [*params] if name in named}
        if replaced:
            self.estimators = [(name, replaced.get(name, model)) for name, model in self.estimators]
        super().set_params(**params)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        models = [getattr(model, "estimator", model) for _, model in self._pairs()]
        others = [get_tags(model).input_tags for model in models if is_estimator(model)]
        tags.input_tags.sparse = False
        tags.input_tags.allow_nan = all(other.allow_nan for other in others)
        return tags

    def _pairs(self) -> list[tuple[Any, Any]]:
        """Names and estimators; nothing where ``estimators`` is something else."""
        try:
            return [(name, model) for name, model in self.estimators]
        except (TypeError, ValueError):
            return []

    @property
    def _is_prefit(self) -> bool:
        return isinstance(self.cv, str) and self.cv == "prefit"

    def _named_models(self) -> dict[str, Any]:
        """The estimators by name, checked."""
        pairs = self._pairs()
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
        return {
            name: FrozenEstimator(model) if self._is_prefit and is_estimator(model) else model
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
        batch_size = check_count("batch_size", self.batch_size)
        with all_or_nothing(self):
            seed, models = check_seed(self.random_state), self._named_models()
            prices = self._given_prices([*models])
            resources = check_resources(resources_of_models(None, prices), self.after, self.ask)
            budget = self.budget
            if budget is not None:
                budget = (
                    check_amount("budget", budget)
                    if resources is None
                    else resources.check_budget("budget", budget)
                )
            if reference is not None:
                y = self._answers_of(reference, models, X, y)
            self._check_prices(prices, resources is not None, reference)
            cv = 4 if self._is_prefit else self.cv
            if groups is not None:
                splitter = GroupKFold(cv) if isinstance(cv, int) else check_cv(cv)
                with _naming("groups", kind="the argument"):
                    cv = list(splitter.split(X, y, groups))
            rows = check_training_rows(self, X, y, sample_weight, cv, seed)
            plan = None if self.prices is None else self._with_columns(models, prices, rows)
            self.columns_of_: dict[str, tuple[int, ...]] = {} if plan is None else plan.columns_of
            self.free_columns_ = None if plan is None else plan.free
            if plan is not None:
                models, prices = plan.models, plan.prices
            cross_fitted = {}
            for name, model in models.items():
                is_fitted_here = is_estimator(model) and not isinstance(model, FrozenEstimator)
                if rows.weighted and is_fitted_here and not has_fit_parameter(model, "sample_weight"):
                    warnings.warn(
                        f"the estimator {name!r} is fitted without sample_weight, which its fit does not take.",
                        stacklevel=2,
                    )
                with _naming(name), warnings.catch_warnings():
                    if name == reference:  # which agrees with itself
                        warnings.simplefilter("ignore", OptimisticFullModelWarning)
                    cross_fitted[name] = self._cross_fit(name, model, rows)
            self.task_, self.reference_, self.schema_ = rows.task, reference, _schema_of(rows.table)
            if len(rows.task.classes):
                self.classes_ = rows.task.classes
            self.models_: dict[str, FullModel] = {name: one.model for name, one in cross_fitted.items()}
            self.seconds_ = {} if prices else self._measured(rows)
            measured = {name: seconds.of_row(batch_size) for name, seconds in self.seconds_.items()}
            self.model_prices_: dict[str, Any] = self._with_seconds(prices, rows, batch_size) or measured
            outputs = np.stack([one.outputs for one in cross_fitted.values()], axis=1)
            if not len(rows.task.classes):
                loss = self._loss(rows.y, outputs)
                # No estimator is as wrong as can be on most of the rows.
                largest = max(_LARGEST_LOSS * loss.mean(axis=0).min(), np.median(loss, axis=0).max())
                self.largest_loss_ = float(largest) or 1.0
            after = self.after if plan is None else plan.after
            self.router_ = self._plan(rows, outputs, after, budget, batch_size, seed)
            if len(rows.task.classes):
                in_pool = outputs[:, [[*models].index(name) for name in self.router_.pool_]]
                self.pooling_ = pool_classes(in_pool, rows.task.strata(rows.y), self.max_asks, rows.weight)
            self._name_numbers()
            self.retrained_ = () if reference is not None else self._retrained(models, rows, outputs, seed)
            if plan is None:  # else what is saved are columns
                self._mention_no_gain()
            self._mention_refit()
        return self

    def _cross_fit(self, name: str, model: Any, rows: TrainingRows) -> CrossFittedFull:
        if name in self.columns_of_:
            rows = rows.with_columns(np.array(self.columns_of_[name], dtype=np.intp))
        return cross_fit_full(model, rows, n_jobs=self.n_jobs, name=f"the estimator {name!r}")

    def _plan(
        self, rows: TrainingRows, outputs: Floats, after: Any, budget: Any, batch_size: int, seed: int
    ) -> ModelRouter:
        """Learn which estimator to ask about which row, from their outputs out of fold.

        Reading the columns takes time too. Where seconds are measured, and ``columns`` does not say it, the router
        reads them if that is worth its own seconds.
        """
        log = {"quality": self._quality(rows.y, outputs), "evidence": self._evidence_of(outputs)}
        keys = fingerprints(rows.X)

        def learned(reads_columns: bool) -> ModelRouter:
            router = ModelRouter(
                self.model_prices_,
                budget=budget,
                max_asks=self.max_asks,
                random_state=seed,
                after=after,
                ask=self.ask,
            )
            router._min_rows = N_FOLDS  # few rows are warned of already
            router.fit(self._routed_columns(rows.X) if reads_columns else None, **log)
            router.state_ = replace(router.state_, keys=keys)  # rows of a certificate are compared with them
            return router

        reads_columns = (self.columns is None or bool(self.columns)) and self.free_columns_ != ()
        self.decision_seconds_, self.reads_columns_ = 0.0, reads_columns
        router = learned(self.reads_columns_)
        if not self.seconds_:
            return router
        routers = [router] if self.columns is not None else [router, learned(reads_columns=False)]
        seconds = [_seconds_to_decide(self, one, rows, log["evidence"], batch_size) for one in routers]
        price = router.model_costs[router.best_model]
        budgets = price * _BUDGETS if budget is None else np.array([budget])
        gains = [
            np.nan_to_num(one.frontier_.quality_at(budgets - taken)).mean()
            for one, taken in zip(routers, seconds, strict=True)
        ]
        chosen = int(np.argmax(gains))
        self.decision_seconds_ = seconds[chosen]
        self.reads_columns_ = self.reads_columns_ and chosen == 0
        router, measured = routers[chosen], self.model_prices_
        # Each question is followed by a decision.
        self.model_prices_ = {name: price + seconds[chosen] for name, price in measured.items()}
        calls = [
            self.seconds_[name].per_call / batch_size * measured[name] / self.model_prices_[name]
            for name in router.pool_
        ]
        router.state_ = replace(router.state_, calls=np.array(calls), batch_size=batch_size)
        return router.with_prices(self.model_prices_)

    def _check_prices(self, model_prices: Any, has_resources: bool, reference: str | None) -> None:
        """Refuse what cannot be beside prices of columns."""
        if self.prices is None:
            return
        wrong = (
            ("model_prices must be given in the unit of prices", not model_prices),
            ("model_prices must be in one resource", has_resources),
            ("after must be left out", bool(self.after)),
            ("reference must be left out", reference is not None),
            ("columns must not be True: what a row has not bought cannot be read", self.columns is True),
        )
        for rule, is_broken in wrong:
            if is_broken:
                raise InvalidInputError(f"{rule}, where columns have prices.")

    def _with_columns(
        self, models: Mapping[str, Any], prices: Mapping[str, float], rows: TrainingRows
    ) -> ColumnPlan:
        """The estimators on nested sets of columns, and what each costs before and after the others."""
        names = getattr(self, "feature_names_in_", None)
        return plan_columns(resolve_prices(None, self.prices, Prices()), models, prices, rows, names)

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
        if not isinstance(model, FrozenEstimator):
            raise InvalidInputError(
                f"reference={reference!r} must be a fitted estimator: what it predicts is the labels. Give "
                f"FrozenEstimator(model), or cv='prefit' where all estimators are fitted."
            )
        return model.predict(X)

    def _given_prices(self, names: Sequence[str]) -> dict[str, Any]:
        """Price of a row of each estimator, perhaps by resource, as given; empty where seconds are to be measured."""
        given = self.model_prices
        if given is None:
            return {}
        lacking = [name for name in names if not isinstance(given, Mapping) or name not in given]
        if lacking or len(given) > len(names):
            raise InvalidParameterError(
                "model_prices",
                f"must be a dict with a price for each estimator, {', '.join(names)}; got {given!r}. Leave it "
                f"out to measure seconds.",
            )
        if any(isinstance(price, Mapping) for price in given.values()):
            return {name: _check_amounts(name, given[name]) for name in names}
        prices = {name: check_amount(f"model_prices[{name!r}]", given[name]) for name in names}
        free = [name for name, price in prices.items() if price == 0.0]
        if free:
            raise InvalidParameterError(
                "model_prices", f"must be positive; got 0 for {free[0]!r}. Give what its time is worth."
            )
        shares_after(self.after, names, np.array([*prices.values()]))
        return prices

    def _measured(self, rows: TrainingRows) -> dict[str, Seconds]:
        """Seconds that each estimator takes for calls."""
        n_rows = min(len(rows.y), self.batch_size)
        return {name: measure_seconds(partial(self._ask, name, rows.table), n_rows) for name in self.models_}

    def _with_seconds(self, prices: Mapping[str, Any], rows: TrainingRows, batch_size: int) -> dict[str, Any]:
        """Prices by resource, with the measured seconds of a row where an amount is None."""
        is_open = any(isinstance(price, Mapping) and None in price.values() for price in prices.values())
        taken = self._measured(rows) if is_open else {}
        return {
            name: {
                each: taken[name].of_row(batch_size) if one is None else one for each, one in price.items()
            }
            if isinstance(price, Mapping)
            else price
            for name, price in prices.items()
        }

    def _retrained(
        self, models: Mapping[str, Any], rows: TrainingRows, outputs: Floats, seed: int
    ) -> tuple[Retrained, ...]:
        """The best estimator on half of the columns, and where it was fitted before, refitted on these rows.

        Nothing of an estimator that has no ``fit``, or none that works on these rows or without a column.
        """
        name, results = self.router_.best_model, []
        model, outputs = models[name], outputs[:, [*models].index(name)]
        try:
            with _naming(name):
                if isinstance(model, FrozenEstimator):
                    model = clone(model.estimator)
                    outputs = self._cross_fit(name, model, rows).outputs
                    quality = float(self._quality(rows.y, outputs[:, None]).mean())
                    results.append(Retrained(name, "refitted on these rows", quality))
                if self.seconds_ and rows.X.shape[1] > 1:
                    half = self._on_half_of_columns(name, model, rows, outputs, seed)
                    results += [half] if half.price_ratio < _CLEARLY_LESS else []
        except ThriftyError:  # a model that only predicts
            pass
        return tuple(results)

    def _on_half_of_columns(
        self, name: str, model: Any, rows: TrainingRows, outputs: Floats, seed: int
    ) -> Retrained:
        """An estimator on the half of the columns that trees use most, measured as the estimators are.

        One fit: that of the first fold. What it loses there, against the estimator that reads all columns and learned
        from the same rows, is taken from the quality of that one.
        """
        held_out, train = np.flatnonzero(rows.folds == 0), np.flatnonzero(rows.folds != 0)
        some = train[:: -(-len(train) // _IMPORTANCE_ROWS)]
        kind = ExtraTreesClassifier if len(rows.task.classes) else ExtraTreesRegressor
        trees = kind(30, min_samples_leaf=5, random_state=seed).fit(rows.X[some], rows.y[some])
        n_columns = len(trees.feature_importances_)
        columns = np.sort(np.argsort(-trees.feature_importances_, kind="stable")[: n_columns // 2])
        fewer, other = rows.with_columns(columns), copy.copy(self)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OptimisticFullModelWarning)
            fitted = FrozenEstimator(fit_copy(model, fewer, train))
            own = self._cross_fit(name, fitted, fewer.take(held_out))
        other.models_ = {name: own.model}
        quality = self._quality(rows.y[held_out], np.stack([outputs[held_out], own.outputs], axis=1))
        lost = (quality[:, 0] - quality[:, 1]).mean()
        [seconds] = other._measured(fewer).values()
        ratio = seconds.of_row(self.batch_size) / self.seconds_[name].of_row(self.batch_size)
        return Retrained(
            name,
            f"on {len(columns)} of {n_columns} columns",
            float(np.clip(self._quality(rows.y, outputs[:, None]).mean() - lost, 0.0, 1.0)),
            ratio,
            tuple(self.schema_.names[column] for column in columns),
        )

    @property
    def alternatives_(self) -> tuple[Alternative, ...]:
        """Plain alternatives: each estimator alone, and the best pair with one threshold for what the plan may spend.

        A pair asks its second estimator where the first one is not sure enough. The last ones are the best estimator
        trained otherwise (``retrained_``): if it was fitted before, on the rows of this fit alone, to which those of
        its first training would come on top; and where seconds are measured, on the better half of the columns. All
        are evaluated out of fold: rows of a fold follow the pair and the threshold that are best for the others.
        """
        router = self._fitted
        state, pool = router.state_, router.pool_
        rules = [
            Thresholds(np.array([[place]]), np.empty((1, 0)), combines=False) for place in range(len(pool))
        ]
        named = [(f"{name} alone", rule) for name, rule in zip(pool, rules, strict=True)]
        budget = self.expected_cost_ if router.budget is None else router.budget
        pair = None if state.resources is not None else _one_threshold(state, budget)
        if pair is not None and pair.cuts[0, 0] >= 0.0:  # else no row goes on
            first, second = (pool[place] for place in pair.models[0])
            named.append((f"{first}, then {second} below a confidence of {pair.cuts[0, 0]:.3g}", pair))
        others = []
        for name, rule in named:
            cost, quality = state.means_under(rule, state.log)
            if rule is pair:
                quality = _one_threshold_quality(state, budget, pair)
            others.append(Alternative(name, cost, self.score_of(quality), rule))
        for one in self.retrained_:
            cost = times(one.price_ratio, others[pool.index(one.model)].cost)
            others.append(Alternative(f"{one.model} {one.how}", cost, self.score_of(one.quality)))
        return tuple(others)

    def schema_of(self, name: str) -> Schema:
        """Schema of the columns that an estimator reads."""
        schema = self.schema_
        if name not in self.columns_of_:
            return schema
        columns = self.columns_of_[name]
        levels = {} if schema.levels is None else schema.levels.of_column
        read = {place: levels[column] for place, column in enumerate(columns) if column in levels}
        types = None if schema.types is None else tuple(schema.types[column] for column in columns)
        names = tuple(schema.names[column] for column in columns)
        return Schema(schema.kind, names, types, Levels(read) if read else None)

    @property
    def quality_name(self) -> str:
        """Name of what the plan, its frontier and certificates take means of: with a reference, agreement with it."""
        return self._quality_name if self.reference_ is None else f"agreement with {self.reference_}"

    @property
    def score_name(self) -> str:
        """Name of the score."""
        return self.quality_name

    def _mention_no_gain(self) -> None:
        """Warn where no plan for less is level with the best model up to a standard error, out of fold."""
        state, frontier, unit = self.router_.state_, self.router_.frontier_, self.router_.unit
        best = state.best_single
        price, alone = self.router_.single_cost(best), float(state.single_quality[best])
        name, reached = state.names[best], float(frontier.quality_at(times(_WORTH_IT, price)))
        if reached < alone - max(self._error_of(alone), self._error_of(np.nan_to_num(reached))) or np.isnan(
            reached
        ):
            others = (
                "no plan costs so much less in every resource"
                if np.isnan(reached) and state.resources is not None
                else "the cheapest estimator is the best one"
                if np.isnan(reached)
                else f"the plan reaches {self.score_of(reached):.4g} for {_WORTH_IT:.0%} of that price"
            )
            warnings.warn(
                f"no plan is as good as {name} alone for less: out of fold {name} has {self.score_name} "
                f"{self.score_of(alone):.4g} for {amount_text(price, unit, 3)} a row; {others}.",
                NothingSavedWarning,
                stacklevel=3,
            )

    def _error_of(self, quality: float) -> float:
        """Standard error of a mean of qualities, which lie in [0, 1], on the rows of the fit: at most this."""
        return float(np.sqrt(max(quality * (1.0 - quality), 0.0) / len(self.router_.state_.log)))

    def _mention_refit(self) -> None:
        """Warn where the best estimator, refitted on these rows alone, beats every plan by a standard error."""
        most = float(self.router_.frontier_.score.max())
        for one in self.retrained_:
            if not one.columns and one.quality - most > self._error_of(most):
                warnings.warn(
                    f"{one.model}, fitted again on these rows alone, has {self.score_name} "
                    f"{self.score_of(one.quality):.4g} out of fold, and the best plan {self.score_of(most):.4g}. Fit "
                    f"it on all labelled rows first, also on those of its first training.",
                    NothingSavedWarning,
                    stacklevel=3,
                )

    # -- other settings of the same fit ------------------------------------------------------------

    def at(
        self, *, budget: Any = None, share: float | None = None, mix: bool = True, cap: Any = None
    ) -> Self:
        """Return the same fit at another budget; nothing is learned again.

        Parameters
        ----------
        budget : float, or dict of resource to float, optional
            Mean price of a row.
        share : float, optional
            The same as a share of the price of the most accurate model, in each resource.
        mix : bool, default=True
            Whether the keys of rows may decide between two plans, so that the whole budget is spent; without, it is the
            dearest plan within the budget.
        cap : float, or dict of resource to float, optional
            What no row ever pays, here and in all that is made from the returned cascade; of ``model_prices``. With a
            budget, or alone.
        """
        router = self._fitted
        if cap is not None and self.seconds_:
            raise InvalidParameterError(
                "cap", f"needs model_prices: measured seconds differ from call to call; got {cap!r}."
            )
        if (budget is None) == (share is None) and (cap is None or budget is not None):
            raise InvalidParameterError(
                "budget", f"or share must be given, and not both; got budget={budget!r}, share={share!r}."
            )
        other = self._with_router(router.at(budget=budget, share=share, mix=mix, cap=cap))
        other.budget = other.router_.budget
        other._mention_unspent()
        return other

    def at_policy(self, policy: Policy) -> Self:
        """The same fit with some points in force, as the gateway holds budgets."""
        router = copy.copy(self.router_)
        router._set_policy(policy)
        return self._with_router(router)

    def _mention_unspent(self) -> None:
        """Warn where a budget affords no call of the best estimator, of which a batch pays the whole."""
        state = self.router_.state_
        name, alone = state.names[state.best_single], float(state.single_quality[state.best_single])
        if not self.seconds_ or self.budget is None or self.expected_cost_ > _SPENT * self.budget:
            return
        expected = float(self.router_.expected_score_)
        call = self.seconds_[name].per_call / self.batch_size
        if (
            self.budget < state.single_cost[state.best_single]
            and alone - expected > self._error_of(alone)
            and (call > self.budget - self.expected_cost_)
        ):
            warnings.warn(
                f"the plan takes {self.expected_cost_:.3g} of a budget of {self.budget:.3g} seconds a row, with "
                f"{self.score_name} {self.score_of(expected):.4g}; {name} alone has {self.score_of(alone):.4g}. A call "
                f"of it takes {self.seconds_[name].per_call:.3g} seconds however few rows are sent on: {call:.3g} a "
                f"row of a batch of {self.batch_size}. Raise the budget, or batch_size if calls have more rows.",
                UnspentBudgetWarning,
                stacklevel=3,
            )

    def with_prices(self, prices: Mapping[str, float]) -> Self:
        """Return a cascade for other prices of some estimators: the plan is learned again, no estimator is fitted."""
        if self._fitted and self.columns_of_:
            raise InvalidInputError("with_prices is for cascades whose columns are free. Fit again.")
        other = self._with_router(self._fitted.with_prices(prices))
        other.model_prices_ = {**self.model_prices_, **{name: float(price) for name, price in prices.items()}}
        return other

    def certified(
        self, X: Any, y: Any = None, *, max_loss: float | None = None, budget: Any = None, **how: Any
    ) -> Self:
        """Return the cascade at a setting whose loss against the best model, or whose cost, new rows bound.

        Parameters
        ----------
        X, y : rows that no estimator was trained on, and their targets
            Every estimator is asked about all of them. With a ``reference``, its answers are the targets.
        max_loss, budget : float, optional
            As of ``ModelRouter.certified``, as are further arguments. Of numbers, a loss of quality, not of R2.
        """
        log = self.log_of(X, y)
        return self._with_router(self.router_.certified(**log, max_loss=max_loss, budget=budget, **how))

    def _name_numbers(self) -> None:
        """Tell the plan what its numbers are called, in explanations and certificates."""
        self.router_.quality_name = self.quality_name
        self.router_.unit = " seconds" if self.seconds_ else ""

    def _with_router(self, router: ModelRouter) -> Self:
        other = copy.copy(self)
        other.router_ = router
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
        outputs = self.run(X, row_key).outputs
        answers: Labels = self.task_.answers(outputs)
        return answers

    def answers(self, X: Any, row_key: Any = None) -> dict[str, Labels]:
        """Columns of a table, of one run: answer, probability, estimators asked, the one that answers, and cost."""
        run = self.run(X, row_key)
        is_asked = run.failed | ~np.isnan(run.asked_outputs).all(axis=2)
        names = np.array(self.router_.pool_, dtype=object)
        columns = {"answer": self.task_.answers(run.outputs)}
        if len(self.task_.classes):
            columns["probability"] = self.outputs_of(run).max(axis=1)
        paid = self.router_.cost_columns(run.cost if run.costs is None else run.costs)
        columns["asked"] = np.array([" ".join(names[asked]) for asked in is_asked], dtype=object)
        return {**columns, "model": self._names(run.model), **paid}

    def _names(self, models: Ints) -> Labels:
        return np.array(self.router_.pool_, dtype=object)[models]

    def cost(self, X: Any, row_key: Any = None) -> Any:
        """Price of the estimators that are asked about each row; they are asked to tell it.

        Of several resources, a data frame with a column for each.
        """
        run = self.run(X, row_key)
        return run.cost if run.costs is None else self.router_.named(run.costs)

    def route(self, X: Any, row_key: Any = None) -> Labels:
        """Name of the estimator that answers each row."""
        return self._names(self.run(X, row_key).model)

    def explain(self, X: Any = None, row_key: Any = None) -> Any:
        """Explain rows: estimators asked in their order, how sure the answer was, and the cost; else the plan."""
        if X is None:
            return self._plan_in_words()
        run, table = self.run(X, row_key), self._table(X, row_key)
        evidence = self._evidence_of(run.asked_outputs)
        explanations = []
        for row, session in enumerate(self._sessions(table)):
            while (purchase := session.next_purchase) is not None:
                place = self.router_.pool_.index(purchase.name)
                if run.failed[row, place]:
                    session.fail()
                else:
                    session.give(None, evidence=evidence[row, place])
            explanations.append(session.explanation())
        return explanations

    def _plan_in_words(self) -> str:
        router = self._fitted
        unit, pool = router.unit, router.pool_
        best, *others = self.alternatives_[pool.index(router.best_model)], *self.alternatives_[len(pool) :]
        plain = [
            f"{one.name} has {one.score:.3f} for {amount_text(one.cost, unit, 3)}" for one in (best, *others)
        ]
        return (
            f"expected {self.score_name} {self.expected_score_:.3f} for "
            f"{amount_text(self.expected_cost_, unit, 3)} a row; {'; '.join(plain)}"
        )

    def start(self, x: Any, key: Any = None) -> ModelSession:
        """Start a session of one row, for callers who ask the estimators themselves.

        ``session.give(answer)`` takes what the estimator that ``next_purchase`` names predicts: a probability of each
        class, or a number. ``session.answer`` has that of ``predict_proba``, or the number.

        Parameters
        ----------
        x : array-like of shape (n_features,), or a row of the data frame of the fit
            Where columns have prices, those that are free; numbers of others may be NaN.
        key : int or str, optional
            Key of the row, which decides between two operating points that are mixed.
        """
        columns = getattr(self, "feature_names_in_", None)
        one = np.asarray(x, dtype=object if columns is not None else None)[None]
        if self.free_columns_ is not None:  # the others are not read
            one = one.copy()
            for column in set(range(one.shape[1])) - set(self.free_columns_):
                one[0, column] = 0.0 if one[0, column] != one[0, column] else one[0, column]
        if columns is not None and self.schema_.kind is not None:
            one = self.schema_.conformed(
                Table.of(frame_of(self.schema_.kind, dict(zip(columns, one.T, strict=True))))
            )
        session = self._sessions(self._table(one, None if key is None else [key]))[0]
        session.origin = {"x": x, "key": key}
        return session

    def resume(self, saved: Mapping[str, Any]) -> ModelSession:
        """Go on with a session that was ``saved``."""
        return self.start(**saved["start"]).resumed(saved)

    def _sessions(self, table: Table, rows: Ints | None = None) -> list[ModelSession]:
        """A session of each row."""
        rows = np.arange(len(table)) if rows is None else rows
        X = self._as_routed(table)
        new: NewLog = self.router_.unasked(X, table.keys(np.arange(len(table))))
        sessions = self.router_.sessions(X[rows], new.rows(rows))
        for session in sessions:
            session.evidence_of, session.combine = self._evidence_of_answer, self._combined
        return sessions

    def _evidence_of_answer(self, name: str, answer: Any) -> Any:
        return self._evidence_of(self._outputs_of_answer(name, answer)[:, None])[0, 0]

    def _outputs_of_answer(self, name: str, answer: Any) -> Floats:
        """What one estimator predicts about one row, checked as its own answers are, shape (1, n_outputs)."""
        outputs = np.asarray(answer, dtype=np.float64).reshape((1, -1) if len(self.task_.classes) else -1)
        return models_of(self.task_).read_outputs(outputs, 1, f"the answer of {name!r}")

    def _combined(self, answers: Mapping[str, Any], model: str) -> Any:
        """The answer of a session, from what estimators predict about its row."""
        return answers[model]

    def _as_routed(self, table: Table) -> Any:
        """Rows as the router takes them: columns, or keys where it reads none."""
        return self._routed_columns(table.numbers) if self.reads_columns_ else fingerprints(table.numbers)

    def _routed_columns(self, numbers: Any) -> Any:
        """Columns that the plan reads before it asks an estimator: all, or those that are free."""
        return numbers if self.free_columns_ is None else numbers[:, list(self.free_columns_)]

    def log_of(self, X: Any, y: Any = None) -> dict[str, Any]:
        """Log of all estimators on rows, as ``ModelRouter.replay`` takes it; they are asked about every row.

        Qualities are those for the targets ``y``, or with a ``reference`` for its answers.
        """
        table = self._table(X)
        rows = np.arange(len(table))
        outputs = np.stack([self._ask(name, table, rows) for name in self.models_], axis=1)
        if self.reference_ is not None:
            if y is not None:
                raise InvalidInputError(
                    f"the score is the {self.quality_name}, whose own answers are the targets; got y too. Leave it "
                    f"out, or give None."
                )
            y = self.task_.answers(outputs[:, [*self.models_].index(self.reference_)])
        quality = self._quality(self.task_.encode("y", y, len(rows)), outputs)
        return {"X": self._as_routed(table), "quality": quality, "evidence": self._evidence_of(outputs)}

    def evidence_on(self, X: Any, y: Any = None) -> Evidence:
        """Every row under every operating point, as ``evidence_of`` returns it; all estimators are asked."""
        return self.router_.evidence_on(**self.log_of(X, y))

    @property
    def _fitted(self) -> ModelRouter:
        """The plan; an error before the fit."""
        check_is_fitted(self, "router_")
        return self.router_

    frontier_ = property(lambda self: self._fitted.frontier_)
    share_by_lot_ = property(lambda self: self._fitted.share_by_lot_)
    expected_cost_ = property(lambda self: self._fitted.expected_cost_)
    expected_score_ = property(lambda self: self.score_of(self._fitted.expected_score_))
    certificate_ = property(lambda self: self._fitted.certificate_)

    def _table(self, X: Any, row_key: Any = None) -> Table:
        check_is_fitted(self, "router_")
        return self._checked(Table.of(X, row_key, getattr(self, "feature_names_in_", None)))

    def _checked(self, table: Table) -> Table:
        """The table with its numbers."""
        return table.with_numbers(validated(self, table, reset=False))

    def _ask(self, name: str, table: Table, rows: Ints) -> Floats:
        """Outputs of an estimator."""
        model, who = self.models_[name], f"the estimator {name!r}"
        lacking_models([name] if isinstance(model, AbsentFull) else [])
        if name in self.columns_of_:
            table = table.with_columns(np.array(self.columns_of_[name], dtype=np.intp))
        with _naming(name, FullModelFailedError):
            native = table.native_rows(rows)
            return ask_model(
                model,
                self.task_,
                native,
                native if table.native is table.numbers else table.numbers[rows],
                rows=table.numbers_of(rows),
                who=who,
            )

    def run(self, X: Any, row_key: Any = None, *, warns: bool = True) -> Run:
        """Follow the plan: in batches, and rows of which an estimator failed once more in sessions, without it.

        With ``warns=False``, failures and slow estimators are in the result alone.
        """
        table, pool = self._table(X, row_key), self.router_.pool_
        lacking_models([name for name in pool if isinstance(self.models_[name], AbsentFull)])
        asked = _AskedOutputs(self, table)
        everyone = np.arange(len(table))
        rows = self._routed_columns(table.numbers) if self.reads_columns_ else everyone
        replay = self.router_.run(asked.ask, rows, table.keys(everyone))
        model, cost, costs = replay.model, replay.cost, replay.costs
        if asked.failed.any():
            again = np.flatnonzero(asked.failed.any(axis=1))
            sessions = self._sessions(table, again)
            functions = {name: partial(asked.deliver, name) for name in pool}
            receipt = buy_answers(sessions, functions, pool, lambda rows: again[rows], Ledger("answer"))
            model[again], cost[again] = receipt.route, receipt.cost
            if costs is not None:
                costs[again] = receipt.costs
            asked.mention_failures(model, warns)
        if warns:
            asked.mention_slow()
        return Run(asked.outputs[everyone, model], asked.outputs, asked.failed, model, cost, costs)

    # -- qualities and evidence ----------------------------------------------------------------------

    def _loss(self, y: Floats, outputs: Floats) -> Floats:
        """Loss of each estimator on each row: whether it is wrong, or the squared error."""
        columns = [self.task_.quality(y, outputs[:, model]) for model in range(outputs.shape[1])]
        return 1.0 - np.column_stack(columns).astype(np.float64)

    def _quality(self, y: Floats, outputs: Floats) -> Floats:
        """Quality of each estimator on each row, in [0, 1]."""
        return np.clip(1.0 - self._loss(y, outputs) / getattr(self, "largest_loss_", 1.0), 0.0, 1.0)

    def _evidence_of(self, outputs: Floats) -> Floats:
        """Evidence that the plan reads: class probabilities, or numbers in units of the largest error."""
        if isinstance(self.task_, RegressionTask):
            outputs = self.task_.scores(outputs) / np.sqrt(self.largest_loss_)
        return outputs

    def score_of(self, quality: Any) -> Any:
        """Score for users from mean quality."""
        return quality

    def outputs_of(self, run: Run) -> Floats:
        """Outputs of the answers of a run, shape (n_rows, n_outputs)."""
        return run.outputs


@dataclass(eq=False, repr=False)
class CascadeClassifier(ClassifierMixin, ModelCascade):  # type: ignore[misc]  # scikit-learn is untyped
    """Predicts classes with several models of the user, asking the slow ones only where it matters.

    In the form of ``StackingClassifier``. The estimators are cross-fitted, and the seconds that a row of each takes are
    measured, unless ``model_prices`` say what a row costs. ``predict`` asks one estimator after another, each in one
    batch about the rows that the plan sends to it, until the answer at hand is sure enough.

    Parameters
    ----------
    estimators : list of (str, estimator)
        At least two classifiers, or functions of rows that return probabilities. Fitted ones stay as they are inside
        ``FrozenEstimator`` or with ``cv="prefit"``.
    model_prices : dict of str to float, or to dict of resource to float, default=None
        Price of a row of each estimator, in any unit, or in several resources such as dollars and seconds; None, also
        instead of an amount of a resource, measures seconds.
    budget : float, or dict of resource to float, default=None
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
    after : dict of str to dict, default=None
        Prices that depend on what was asked, as of ``ModelRouter``: ``{"large": {"small": 8.5}}`` is the price of
        ``large`` after ``small``.
    columns : bool, default=None
        Whether the plan reads the columns before it asks an estimator. None reads them, unless seconds are measured and
        reading takes more of them than it saves out of fold.
    ask : {"in turn", "parallel"}, default="in turn"
        Whether estimators may be asked at once, in threads, where ``model_prices`` are in several resources, one of
        them ``"seconds"``: seconds are then the longest of them, all else adds.
    prices : Prices or path, default=None
        Prices of the columns, in the unit of ``model_prices``. Each estimator is then fitted on a few nested sets of
        columns, too, such as "forest on 5 columns", beside "boosted trees" that cost nothing, and a row pays once for
        the columns of those that it asks. Before the first one, the plan reads the columns that are free.

    Attributes
    ----------
    columns_of_ : dict of str to tuple of int
        Where columns have prices, those that each estimator reads.
    free_columns_ : tuple of int or None
        Where columns have prices, those that cost nothing.
    classes_ : ndarray
        Labels.
    models_ : dict of str to FullModel
        The fitted estimators.
    model_prices_ : dict of str to float
        Price of a row of each estimator.
    seconds_ : dict of str to Seconds
        Measured seconds, per call and per row; empty with ``model_prices``.
    decision_seconds_ : float
        Measured seconds of a decision, which are part of each price; 0 with ``model_prices``.
    reads_columns_ : bool
        Whether the plan reads the columns.
    router_ : ModelRouter
        The plan, learned from what the estimators answered out of fold.
    frontier_, expected_cost_, expected_score_, share_by_lot_, certificate_
        As of ``ModelRouter``; scores are accuracies, or with ``reference`` the agreement with that estimator.
    alternatives_ : tuple of Alternative
        Each estimator alone, the best pair with one threshold for what the plan may spend, and those of
        ``retrained_``; out of fold.
    retrained_ : tuple of Retrained
        The best estimator trained otherwise: fitted on these rows, where it was fitted before, and on the better half
        of the columns, where seconds are measured.
    task_, schema_ : Task, Schema
        Encoding of labels, and names and types of the columns.
    pooling_ : Pooling
        Weights of the class probabilities of each set of estimators, of largest likelihood out of fold.
    reference_ : str or None
        Estimator whose answers were taken as labels.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.ensemble import ExtraTreesClassifier
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from thrifty import CascadeClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> models = [("bayes", GaussianNB()), ("forest", ExtraTreesClassifier(40, random_state=0))]
    >>> fast = CascadeClassifier(models, model_prices={"bayes": 1, "forest": 20}, random_state=0).fit(X[::2], y[::2])
    >>> half = fast.at(share=0.6)
    >>> bool(half.score(X[1::2], y[1::2]) > 0.95), bool(half.cost(X[1::2]).mean() < 14)
    (True, True)
    """

    def predict_proba(self, X: Any, row_key: Any = None) -> Floats:
        """Probabilities of all classes: those of all estimators that were asked, weighted and combined.

        The label that ``predict`` returns has the largest one.
        """
        return self.outputs_of(self.run(X, row_key))

    def outputs_of(self, run: Run) -> Floats:
        """Class probabilities of rows, combined of the estimators that were asked, the largest that of the answer."""
        outputs, pooling = run.asked_outputs, self.pooling_
        sets, set_of = np.unique(~np.isnan(outputs[:, :, 0]), axis=0, return_inverse=True)
        chance = np.empty(run.outputs.shape)
        for number, is_asked in enumerate(sets):
            rows, asked = np.flatnonzero(set_of.ravel() == number), tuple(np.flatnonzero(is_asked).tolist())
            some = outputs[rows]
            chance[rows] = (
                pooling.combine(some, asked) if asked in pooling.of else some[:, asked].mean(axis=1)
            )
        answer, likeliest = run.outputs.argmax(axis=1), chance.argmax(axis=1)
        rows = np.flatnonzero(answer != likeliest)
        largest = chance[rows, likeliest[rows]]
        chance[rows, likeliest[rows]] = chance[rows, answer[rows]]
        chance[rows, answer[rows]] = np.nextafter(largest, 2.0)  # above equal ones
        return chance

    def _combined(self, answers: Mapping[str, Any], model: str) -> Floats:
        pool = self.router_.pool_
        outputs = np.full((1, len(pool), len(self.classes_)), np.nan)
        for name, answer in answers.items():
            if answer is not None:
                outputs[:, pool.index(name)] = self._outputs_of_answer(name, answer)
        place = np.array([pool.index(model)])
        run = Run(outputs[[0], place], outputs, np.isnan(outputs[:, :, 0]), place, np.zeros(1))
        return self.outputs_of(run)[0]

    def _task_of(self, y: Any, weight: Floats) -> Task:  # noqa: ARG002 - a label is a label at any weight
        return classification_of(y)


@dataclass(eq=False, repr=False)
class CascadeRegressor(RegressorMixin, ModelCascade):  # type: ignore[misc]  # scikit-learn is untyped
    """Predicts numbers with several models of the user, asking the slow ones only where it matters.

    A number does not say how sure it is: the plan reads the columns, how large errors are where an estimator predicts
    such a number, and how far the numbers of those asked are apart.

    Parameters
    ----------
    estimators : list of (str, estimator)
        At least two regressors, or functions of rows that return numbers; as of ``CascadeClassifier``.
    model_prices, budget, max_asks, cv, batch_size, n_jobs, random_state, after, columns, ask, prices
        As of ``CascadeClassifier``.

    Attributes
    ----------
    columns_of_, free_columns_, models_, model_prices_, seconds_, decision_seconds_, reads_columns_, router_
        As of ``CascadeClassifier``.
    frontier_, expected_cost_, share_by_lot_, certificate_, alternatives_, retrained_, task_, schema_, reference_
        As of ``CascadeClassifier``. Qualities of the plan are one minus the squared error divided by
        ``largest_loss_``, and not below 0.
    largest_loss_ : float
        Ten times the mean squared error of the best estimator, or the largest median one of an estimator, in units of
        the variance of y.
    expected_score_ : float
        R2 at the operating point in force, out of fold.

    Examples
    --------
    >>> from sklearn.datasets import make_friedman1
    >>> from sklearn.ensemble import ExtraTreesRegressor
    >>> from sklearn.linear_model import Ridge
    >>> from thrifty import CascadeRegressor
    >>> X, y = make_friedman1(600, random_state=0)
    >>> models = [("ridge", Ridge(0.1)), ("forest", ExtraTreesRegressor(40, random_state=0))]
    >>> fast = CascadeRegressor(models, model_prices={"ridge": 1, "forest": 20}, random_state=0).fit(X[::2], y[::2])
    >>> bool(fast.at(budget=10).cost(X[1::2]).mean() < 14)
    True
    """

    _quality_name = "quality"

    @property
    def score_name(self) -> str:
        """Name of the score."""
        return "R2" if self.reference_ is None else f"R2 ({self.quality_name})"

    def _task_of(self, y: Any, weight: Floats) -> RegressionTask:
        return regression_of(y, "squared", weight, tolerance=0.01, quantile=None)

    def score_of(self, quality: Any) -> Any:
        """R2 from mean quality."""
        return 1.0 - self.largest_loss_ * (1.0 - quality)


# -- parts -----------------------------------------------------------------------------------------


def _check_amounts(name: str, price: Any) -> Any:
    """Check the price of an estimator by resource, in which None are seconds to be measured."""
    if not isinstance(price, Mapping):
        return check_price(name, price)
    check_price(name, {each: 1.0 if one is None else one for each, one in price.items()})
    return {each: None if one is None else float(one) for each, one in price.items()}


class _AskedOutputs:
    """What estimators answered about rows of a table, and where they failed."""

    def __init__(self, cascade: ModelCascade, table: Table) -> None:
        self.cascade, self.table, self.pool = cascade, table, cascade.router_.pool_
        shape = len(table), len(self.pool)
        self.outputs = np.full((*shape, len(cascade.task_.classes) or 1), np.nan)
        self.failed = np.zeros(shape, dtype=bool)
        self.seconds, self.counts = np.zeros(shape[1]), np.zeros(shape[1])
        self.reasons: dict[str, str] = {}

    def ask(self, name: str, rows: Ints) -> Floats:
        """Ask an estimator about rows, once about each; return the evidence, NaN where it failed."""
        model = self.pool.index(name)
        new = rows[np.isnan(self.outputs[rows, model, 0]) & ~self.failed[rows, model]]
        if len(new):
            began = time.perf_counter()
            self._ask(name, model, new)
            self.seconds[model] += time.perf_counter() - began
            self.counts[model] += len(new)
        evidence: Floats = self.cascade._evidence_of(self.outputs[rows, model : model + 1])[:, 0]
        return evidence

    def _ask(self, name: str, model: int, rows: Ints) -> None:
        try:
            self.outputs[rows, model] = self.cascade._ask(name, self.table, rows)
        except ThriftyError as error:
            self.reasons.setdefault(name, str(error))
            wrong = getattr(error, "rows", None) if isinstance(error, InvalidAnswerError) else None
            is_bad = np.isin(self.table.numbers_of(rows), wrong) if wrong else np.ones(len(rows), dtype=bool)
            self.failed[rows[is_bad], model] = True
            if is_bad.any() and not is_bad.all():
                self._ask(name, model, rows[~is_bad])

    def deliver(self, name: str, rows: Ints) -> Delivery:
        """Answers to rows of sessions."""
        evidence = self.ask(name, rows)
        failed = np.flatnonzero(self.failed[rows, self.pool.index(name)])
        return Delivery(
            [None] * len(rows), dict.fromkeys(failed.tolist(), self.reasons.get(name, "")), evidence=evidence
        )

    def mention_failures(self, model: Ints, warns: bool) -> None:
        """Warn of estimators that failed; an error where a row has no answer."""
        unanswered = np.flatnonzero(model < 0)
        if len(unanswered):
            row = int(self.table.numbers_of(unanswered[:1])[0])
            raise FullModelFailedError(
                f"no estimator answered {len(unanswered):,} of {len(model):,} rows, the first of them row {row}: "
                f"{'; '.join(self.reasons.values())}"
            )
        for name, reason in self.reasons.items() if warns else ():
            n_failed = int(self.failed[:, self.pool.index(name)].sum())
            warnings.warn(
                f"{reason.rstrip('.')}. Other estimators answer {n_failed:,} of {len(model):,} rows instead.",
                FullModelFailedWarning,
                stacklevel=4,
            )

    def mention_slow(self) -> None:
        """Warn of estimators that took far longer than was measured."""
        for name, taken, n_rows in zip(self.pool, self.seconds, self.counts, strict=True):
            measured = self.cascade.seconds_.get(name, Seconds(np.inf, 0.0))
            expected = measured.per_call + measured.per_row * n_rows
            if taken > _SLOWER * expected + _LEAST_SECONDS:
                warnings.warn(
                    f"the estimator {name!r} took {taken:.3g} seconds for {int(n_rows):,} rows, and {expected:.3g} as "
                    f"measured at the fit: budgets are not kept. Fit again on this machine, or give model_prices.",
                    SlowModelWarning,
                    stacklevel=4,
                )


@contextmanager
def _naming(
    name: str, error_type: type[ThriftyError] = InvalidInputError, kind: str = "the estimator"
) -> Iterator[None]:
    """Name the estimator in errors, those of other libraries among them."""
    try:
        yield
    except ThriftyError as error:
        if repr(name) in str(error):
            raise
        raise error_type(f"{kind} {name!r}: {error}") from error
    except Exception as error:  # a user's model may raise anything
        reason = " ".join(str(error).split())[:300]
        raise error_type(f"{kind} {name!r} failed: {type(error).__name__}: {reason}") from error


def lacking_models(names: Sequence[str]) -> None:
    """Refuse to go on without estimators that a file does not hold."""
    if names:
        given = ", ".join(f"{name!r}: ..." for name in names)
        raise InvalidInputError(
            f"the file does not hold the estimator{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))}. Give "
            f"{'them' if len(names) > 1 else 'it'}: load(path, estimators={{{given}}})."
        )


def _schema_of(table: Table) -> Schema:
    """Schema of the table of a fit; without names, columns are x0, x1 and so on."""
    schema = Schema.of(table)
    if table.feature_names is not None:
        return schema
    return Schema(None, tuple(f"x{column}" for column in range(len(schema.names))), None, schema.levels)


def _seconds_to_decide(
    cascade: ModelCascade, router: ModelRouter, rows: TrainingRows, evidence: Floats, batch_size: int
) -> float:
    """Seconds for each question about a row, where answers take no time: the median of some budgets.

    Reading the rows and all else that a call does once are shared by the rows of a usual call.
    """
    reads_columns, n_rows = router.state_.model is not None, len(rows.y)
    places = {name: place for place, name in enumerate(router.state_.names)}
    budgets = np.maximum(_BUDGETS * router.model_costs[router.best_model], router.frontier_.cost[0])
    taken = []
    for budget in budgets.tolist():
        followed, n_asked = router.at(budget=budget), 0

        def ask(name: str, some: Ints) -> Any:
            nonlocal n_asked
            n_asked += len(some)
            return evidence[some, places[name]]

        def decide(some: Ints, followed: ModelRouter = followed, ask: Callable[..., Any] = ask) -> None:
            table = cascade._checked(rows.table.part(some))
            followed.run(ask, table.numbers if reads_columns else some, table.keys(np.arange(len(some))))

        began = time.perf_counter()
        decide(np.arange(n_rows))
        seconds, asks = time.perf_counter() - began, max(n_asked / n_rows, 1.0)
        per_call = min(median_seconds(partial(decide, np.arange(1))), seconds)
        taken.append(((seconds - per_call) / n_rows + per_call / batch_size) / asks)
    return float(np.median(taken))


def _one_threshold_quality(state: RouterState, budget: float, pair: Thresholds) -> float:
    """Mean quality where each fold follows the best pair on the others, or ``pair`` where these afford none."""
    qualities = []
    for fold in np.unique(state.folds):
        rule = _one_threshold(state, budget, state.folds != fold)
        qualities.append(walk(rule or pair, 0, state.log.rows(state.folds == fold)).quality)
    return float(np.concatenate(qualities).mean())


def _one_threshold(state: RouterState, budget: float, rows: Bools | None = None) -> Thresholds | None:
    """The best pair of models with one threshold on the confidence of the first, within a budget; None if none is."""
    log = state.log if rows is None else state.log.rows(rows)
    assert log.evidence is not None
    share_sent = np.linspace(0.0, 1.0, len(log) + 1)
    n_rows, best, rule = len(log), (-np.inf, 0.0), None
    for first, second in permutations(range(log.n_models), 2):
        confidence = np.round(log.evidence[:, first], DIGITS)
        order = np.argsort(confidence, kind="stable")
        confidence = confidence[order]
        further = log.share_after(second, (first,)) * log.cost[order, second]
        gain = (log.quality[:, second] - log.quality[:, first])[order]
        cost = log.cost[:, first].mean() + np.append(0.0, np.cumsum(further)) / n_rows
        share = np.zeros((n_rows + 1, log.n_models))
        share[:, first], share[:, second] = 1.0, share_sent
        cost += state.unreached(share)
        quality = log.quality[:, first].mean() + np.append(0.0, np.cumsum(gain)) / n_rows
        ends = np.r_[True, np.diff(confidence) > 0.0, True]  # rows of equal confidence go on together
        quality[~ends | (cost > budget)] = -np.inf
        n_sent = int(np.argmax(quality))
        if (quality[n_sent], -cost[n_sent]) > best:
            best = quality[n_sent], -cost[n_sent]
            cut = confidence[n_sent - 1] if n_sent else -1.0
            rule = Thresholds(np.array([[first, second]]), np.array([[cut]]), combines=False)
    return rule
