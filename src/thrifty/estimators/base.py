"""What every single-stage estimator shares: the fit template and operating points.

A subclass says how its scorer (g, f1) is learned; everything else is here or, once it is fitted, in
``serving``. ``fit`` is all or nothing: after a refusal the estimator is exactly as it was before.
"""

import copy
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.frozen import FrozenEstimator
from sklearn.utils import column_or_1d
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from thrifty.arrays import Floats
from thrifty.chain.sources import TableReader, kind_of_table
from thrifty.chain.system import GatedSystem, Scorer, Stage
from thrifty.estimators.checks import check_seed, check_share, check_threshold, check_training_rows
from thrifty.estimators.serving import SystemClassifier, all_or_nothing
from thrifty.evidence.row_checks import known_labels
from thrifty.evidence.threshold import ThresholdCurve, threshold_curve
from thrifty.exceptions import InvalidInputError
from thrifty.full.crossfit import JudgedFull, TrainingRows, judge_full
from thrifty.full.model import FullModel, as_full_model
from thrifty.objective.costs import PriceList, check_amount, check_price_list

__all__ = ["GatedClassifier", "Task"]


@dataclass(frozen=True)
class Task:
    """All that a subclass needs to learn its scorer.

    Attributes
    ----------
    rows : TrainingRows
        Rows to learn from.
    full : JudgedFull
        f0 and its probabilities on those rows.
    price_list : PriceList
        What purchases cost.
    extra_cost : ndarray of shape (n_samples,) or None
        Price of sending each row on, scaled to a mean of 1; None where it is the same for all of them.
    seed : int
        For whatever needs chance.
    """

    rows: TrainingRows
    full: JudgedFull
    price_list: PriceList
    extra_cost: Floats | None
    seed: int


class GatedClassifier(SystemClassifier):
    """Base of the estimators with one cheap stage in front of f0; see the subclasses.

    Subclasses store at least ``full, feature_costs, feature_groups, full_cost, budget, cv,
    n_jobs`` and ``random_state``, and implement ``_learn``.
    """

    feature_costs: Any
    feature_groups: Any
    full_cost: float
    budget: float | None
    cv: Any
    n_jobs: int | None
    system_: GatedSystem

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
        budget = None if self.budget is None else check_amount("budget", self.budget)
        with all_or_nothing(self):
            seed = check_seed(self.random_state)
            rows = check_training_rows(self, X, y, sample_weight, self.cv, seed)
            names = getattr(self, "feature_names_in_", None)
            prices = check_price_list(
                self.feature_costs, self.feature_groups, self.full_cost, rows.X.shape[1], names
            )
            self._check_against(rows.X.shape[1], names)
            behind, judged = self._judge(rows, prices)
            behind = replace(behind, names=None if names is None else tuple(names), kind=kind_of_table(X))
            task = Task(rows, judged, prices, _extra_cost(behind, rows), seed)
            # Sums of a BLAS depend on its number of threads in their last digit, and fits run side by side anyway.
            with threadpool_limits(1, user_api="blas"):
                stage = Stage(self._learn(task), 0.0)
            self.classes_ = rows.classes
            self.system_ = behind.behind(stage)
            self.features_ = stage.scorer.columns
            self._set_threshold(self._default_threshold(task, budget))
        return self

    def _check_parameters(self) -> None:
        """Refuse bad constructor arguments before anything is computed."""

    def _check_against(self, n_features: int, names: Any) -> None:
        """Refuse constructor arguments that do not suit the table, before anything is computed."""

    def _judge(self, rows: TrainingRows, prices: PriceList) -> tuple[GatedSystem, JudgedFull]:
        """What stands behind the new stage, and its loss on the training rows."""
        full = self._full()
        tail = getattr(full.estimator, "system_", None) if isinstance(full, FrozenEstimator) else full
        if isinstance(tail, GatedSystem):
            # A chain that does not suit is refused before it is asked anything.
            _chain_of(tail, prices, rows.classes)
        judged = judge_full(full, rows, n_jobs=self.n_jobs)
        return _chain_of(judged.model, prices, rows.classes), judged

    def _learn(self, task: Task) -> Scorer:
        """Learn (g, f1); what else was learned is stored under names that end in ``_``."""
        raise NotImplementedError

    def _default_threshold(self, task: Task, budget: float | None) -> float:
        """Threshold of a fresh fit: the paper's ``g > 0``, or the one that spends the budget on the training rows."""
        if budget is None:
            return 0.0
        curve = self._curve(task.rows.X, weight=task.rows.weight)
        return float(curve.threshold[curve.within(budget)])

    # -- operating points -------------------------------------------------------------------------

    def scores(self, X: Any) -> tuple[Floats, Floats]:
        """Gate and cheap-model scores ``(g, f1)`` of the first stage, for every row."""
        reader = self._reader(X)
        scorer = self.system_.stages[0].scorer
        return scorer(reader.block(np.arange(reader.n_samples), scorer.columns))

    def threshold_for(
        self,
        X: Any,
        y: Any = None,
        *,
        budget: float | None = None,
        accuracy: float | None = None,
        remote_share: float | None = None,
    ) -> float:
        """Threshold of the first gate that meets one wish on the rows ``X``, which should be new to the system.

        Parameters
        ----------
        X : table
            Rows to try thresholds on.
        y : array-like, optional
            Their labels, for ``accuracy``.
        budget : float, optional
            Most that a row may spend on average; sends as many on as that allows.
        accuracy : float, optional
            Least accuracy; sends as few on as that allows. Asks f0 about every row.
        remote_share : float, optional
            Largest share of the rows to be sent on.
        """
        wishes = {"budget": budget, "accuracy": accuracy, "remote_share": remote_share}
        given = [name for name, value in wishes.items() if value is not None]
        if len(given) != 1:
            shown = " and ".join(given) or "none of them"
            raise InvalidInputError(
                f"threshold_for takes exactly one of budget, accuracy and remote_share; got {shown}."
            )
        reader = self._reader(X)
        numbers = reader.block(np.arange(reader.n_samples), np.arange(self.n_features_in_))
        if budget is not None:
            curve = self._curve(numbers)
            return float(curve.threshold[curve.within(check_amount("budget", budget))])
        if remote_share is not None:
            curve = self._curve(numbers)
            wanted = check_share("remote_share", remote_share, meaning="the largest share of rows sent on")
            return float(curve.threshold[curve.sending(wanted)])
        curve = self._accuracy_curve(reader, y)
        wanted = check_share("accuracy", accuracy, meaning="the least share of rows answered rightly")
        return float(curve.threshold[curve.reaching(wanted)])

    def at(self, threshold: float) -> Self:
        """Return the same fit at another threshold of its gate; nothing is refitted."""
        check_is_fitted(self)
        other = copy.copy(self)
        other._set_threshold(check_threshold(threshold))
        return other

    def with_full(self, full: Any) -> Self:
        """Return the same fit in front of another f0, in any fitted form: nothing is refitted.

        Parameters
        ----------
        full : fitted classifier, FrozenEstimator, callable, probabilities or GatedSystem
            Probabilities belong to the rows that will be asked about, in their order.
        """
        check_is_fitted(self)
        model = as_full_model(full, self.classes_, self.n_features_in_)
        behind = _chain_of(model, self.system_.price_list, self.classes_)
        other = copy.copy(self)
        other.system_ = replace(
            self.system_, stages=(self.system_.stages[0], *behind.stages), full=behind.full
        )
        return other

    def _curve(self, X: Any, *, g: Floats | None = None, weight: Floats | None = None) -> ThresholdCurve:
        """Every threshold of the first gate on these rows; ``g`` if the gate's own scores are too good."""
        first = self.system_.stages[0].scorer
        if g is None:
            g, _ = first(X[:, first.columns])
        sent_on = self.system_.with_threshold(-np.inf).cost(X)
        return threshold_curve(g, self.system_.cost_by_route[0], sent_on, weight=weight)

    def _accuracy_curve(self, reader: TableReader, y: Any) -> ThresholdCurve:
        """Accuracy at every threshold of the first gate: the cheap answer if a row stops, the chain's if it goes on."""
        if y is None:
            raise InvalidInputError("threshold_for(accuracy=...) needs the labels y of the rows X.")
        truth = known_labels("y", column_or_1d(y), reader.n_samples, self.classes_)
        first = self.system_.stages[0].scorer
        g, f1 = first(reader.block(np.arange(reader.n_samples), first.columns))
        stopped = self.system_.label(expit(f1)) == truth
        sent = self.system_.label(self.system_.with_threshold(-np.inf).answer(reader)) == truth
        return threshold_curve(g, 0.0, 1.0, stopped.astype(np.float64), sent.astype(np.float64))

    def _set_threshold(self, threshold: float) -> None:
        self.system_ = self.system_.with_threshold(threshold)
        self.threshold_ = threshold


def _extra_cost(behind: GatedSystem, rows: TrainingRows) -> Floats | None:
    """Price of sending each row on, scaled to a mean of 1; None where it does not differ or is nothing."""
    if not behind.stages:
        return None
    cost = behind.cost(rows.X)
    mean = float(np.average(cost, weights=rows.weight))
    return cost / mean if mean > 0 else None


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
