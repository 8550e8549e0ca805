"""Router by confidence: the gate is the margin of the cheap model, and is not learned."""

import warnings
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import is_regressor
from sklearn.linear_model import LogisticRegression
from sklearn.utils.multiclass import type_of_target

from thrifty.arrays import Floats
from thrifty.engine.evidence.thresholds import threshold_curve
from thrifty.engine.full.crossfit import cross_fit_full
from thrifty.engine.full.model import is_estimator
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.prices.prices import Prices, check_columns
from thrifty.engine.tasks.task import Task
from thrifty.engine.walk.stage import ForeignStage
from thrifty.errors import InvalidInputError, NothingSavedWarning
from thrifty.learners.dynamod.gated import GatedClassifier, Learned, PairProblem
from thrifty.learners.estimators.checks import check_share


@dataclass(eq=False, repr=False)
class ConfidenceRouter(GatedClassifier):
    """Rows on which the cheap model is least sure go to the full model: ``g = -|f1|``.

    The hardest baseline there is: it learns no gate, and often beats one that was learned.

    Parameters
    ----------
    full : as in ``DynaModLinClassifier``
        The full model (f0).
    cheap : classifier, default=None
        f1, in any form the full model may take; None is a logistic regression.
    features : array-like of column numbers or names, or a mask, default=None
        Columns the cheap model reads and pays for; None is all of them, which saves something only
        where a call of the full model has a price (``full`` of ``Prices``).
    p_full : float, default=0.3
        Share of rows sent to the full model: the threshold is the matching quantile of out-of-fold margins.
    feature_costs, prices, budget, cv, n_jobs, random_state
        As in ``DynaModLinClassifier``; a ``budget`` takes the place of ``p_full``.

    Attributes
    ----------
    classes_, chain_, evidence_, frontier_, certificate_
        As in ``DynaModLinClassifier``.
    expected_cost_, expected_score_, expected_cost_interval_, expected_score_interval_
        As in ``DynaModLinClassifier``.
    features_ : ndarray
        Columns that the cheap model reads.
    threshold_ : float
        Rows with ``g > threshold_`` go to the full model.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from thrifty import ConfidenceRouter
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> full = make_pipeline(StandardScaler(), LogisticRegression())
    >>> clf = ConfidenceRouter(full, features=[0, 1, 2, 3], budget=10, random_state=0).fit(X[::2], y[::2])
    >>> bool(clf.score(X[1::2], y[1::2]) > 0.9), bool(clf.cost(X[1::2]).mean() < 14)
    (True, True)
    """

    _accepts_missing = True
    _accepts_several = True

    full: Any = None
    cheap: Any = None
    _: KW_ONLY
    features: Any = None
    p_full: float = 0.3
    feature_costs: Any = None
    prices: Any = None
    budget: float | None = None
    cv: Any = 5
    n_jobs: int | None = None
    random_state: Any = None

    def _task_of(self, y: Any, weight: Floats) -> Task:
        try:
            kind = type_of_target(y)
        except (TypeError, ValueError):  # no labels at all, which is refused below
            kind = "unknown"
        models = filter(is_estimator, (self._full(), self._cheap()))
        if kind.startswith("continuous") or any(map(is_regressor, models)):
            raise InvalidInputError(
                f"ConfidenceRouter sends on the rows on which its cheap model is least sure, and a number does not say "
                f"how sure it is. Use BudgetedRegressor, which learns where to go on. "
                f"(Unknown label type: {kind}, or a regressor as full or cheap model.)"
            )
        return super()._task_of(y, weight)

    def _check_parameters(self) -> None:
        check_share("p_full", self.p_full, meaning="the share of samples allowed to reach the full model")

    def _check_against(self, prices: PriceList, budget: Any) -> None:  # noqa: ARG002 - any budget will do
        names = getattr(self, "feature_names_in_", None)
        columns = check_columns("features", self.features, prices.n_features, names)
        by_cheap = np.unique(prices.group_of[columns])
        further = np.setdiff1d(prices.group_of[prices.read_by_full], by_cheap)
        more = float(prices.prices[further].sum()) + prices.full_cost
        given = Prices() if self.prices is None else self.prices
        is_default = (
            self.feature_costs is None and isinstance(given, Prices) and given.costs is given.default is None
        )
        if more == 0.0 or (is_default and self.features is None):
            warnings.warn(
                f"every row pays {prices.prices[by_cheap].sum():g} for the columns that the cheap model reads, and "
                f"{more:g} more where the full model is asked. Give prices=Prices(0.0, full=1.0) where columns are "
                f"free and a call of the full model is not, or features= that the cheap model reads.",
                NothingSavedWarning,
                stacklevel=2,
            )

    def _other_models(self) -> list[Any]:
        return [*super()._other_models(), self._cheap()]

    def _cheap(self) -> Any:
        return LogisticRegression(max_iter=1000) if self.cheap is None else self.cheap

    def _learn(self, problem: PairProblem) -> Learned:
        rows = problem.rows
        columns = check_columns(
            "features", self.features, rows.X.shape[1], getattr(self, "feature_names_in_", None)
        )
        seen = rows.with_columns(columns)
        cheap = cross_fit_full(
            self._cheap(),
            replace(seen, table=seen.table.in_numbers()),
            n_jobs=self.n_jobs,
            name="the cheap model",
        )
        stage = ForeignStage(columns, cheap.model, rows.task)
        return Learned(stage, gate=rows.task.uncertainty(cheap.scores))

    def _default_threshold(self, learned: Learned, problem: PairProblem, budget: Any) -> float:
        """Cut at the wanted share or budget, on margins of rows the cheap model was not fitted on."""
        if budget is not None:
            return super()._default_threshold(learned, problem, budget)
        assert learned.gate is not None  # what _learn returns
        return (
            threshold_curve(learned.gate, 0.0, 1.0, weight=problem.rows.weight).within(self.p_full).threshold
        )
