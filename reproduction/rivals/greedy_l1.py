"""The paper's greedy rival: choose features first, then the model, then the gate."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Bools, Floats
from thrifty.engine.prices.billing import PriceList, check_amount
from thrifty.engine.prices.prices import check_columns
from thrifty.engine.tasks.classes import class_task
from thrifty.engine.walk.stage import LinearStage
from thrifty.errors import InvalidInputError
from thrifty.learners.dynamod.gated import GatedClassifier, PairProblem
from thrifty.learners.dynamod.group_lasso import LinearCoefficients, group_lasso
from thrifty.learners.dynamod.linear import label_fit, linear_stage, scaled
from thrifty.learners.dynamod.objective import NEVER
from thrifty.learners.estimators.checks import check_count, check_share

__all__ = ["GreedyL1Classifier", "fit_logistic"]


@dataclass(eq=False, repr=False)
class GreedyL1Classifier(GatedClassifier):
    """L1 picks the features, L2 refits f1 on them, and the gate learns where that f1 errs.

    The three steps of the paper's appendix (Letters), one after the other and none looking ahead, which is
    what DynaMod-Lin is compared with: (1) an L1-regularised logistic regression; its largest weights name
    the features; (2) f1, an L2-regularised logistic regression on those features alone, C = 1; (3) the
    gate, another one, C = 1, on the pseudo-label "f1 is wrong here", with class weights. With several classes (1) and
    (2) are regressions of their softmax, and (1) picks a feature for all of them at once, by a group lasso.

    Parameters
    ----------
    full, feature_costs, prices, budget, cv, n_jobs, random_state
        As in ``DynaModLinClassifier``; the L1 penalty too knows full prices only, no discounts.
    C : float, default=0.1
        Inverse strength of the L1 penalty; each weight is penalised in proportion to its column's price.
    n_features : int, default=None
        Keep only this many of the columns, those with the largest weights; None keeps all that are not zero.
    features : array-like of column numbers, default=None
        The features themselves, in place of step 1.
    send_weight : float, default=0.5
        Weight of the rows f1 gets wrong when the gate is learned, against ``1 - send_weight`` for the
        others; larger sends more rows on.
    standardize : bool, default=True
        Divide each column by its standard deviation while learning.

    Attributes
    ----------
    classes_, chain_, evidence_, frontier_, certificate_
        As in ``DynaModLinClassifier``.
    expected_cost_, expected_score_, expected_cost_interval_, expected_score_interval_
        As in ``DynaModLinClassifier``.
    features_, threshold_
        As in ``DynaModLinClassifier``.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from reproduction.rivals.greedy_l1 import GreedyL1Classifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> full = make_pipeline(StandardScaler(), LogisticRegression())
    >>> clf = GreedyL1Classifier(full, n_features=5, budget=10, random_state=0).fit(X[::2], y[::2])
    >>> bool(clf.score(X[1::2], y[1::2]) > 0.9), bool(clf.cost(X[1::2]).mean() < 12)
    (True, True)
    """

    _accepts_several = True

    full: Any = None
    _: KW_ONLY
    C: float = 0.1
    n_features: int | None = None
    features: Any = None
    send_weight: float = 0.5
    feature_costs: Any = None
    prices: Any = None
    budget: float | None = None
    standardize: bool = True
    cv: Any = 5
    n_jobs: int | None = None
    random_state: Any = None

    def _check_parameters(self) -> None:
        if check_amount("C", self.C, rule="a finite number > 0") == 0.0:
            raise InvalidInputError(
                f"C must be a finite number > 0; got {self.C!r}. Small values buy few features."
            )
        if self.n_features is not None:
            check_count("n_features", self.n_features, min_value=0)
        check_share("send_weight", self.send_weight, meaning="the weight of rows that f1 gets wrong")

    def _check_against(self, prices: PriceList, budget: float | None) -> None:  # noqa: ARG002 - any budget will do
        check_columns("features", self.features, prices.n_features, getattr(self, "feature_names_in_", None))

    def _learn(self, problem: PairProblem) -> LinearStage:
        rows = problem.rows
        X, scale = scaled(rows.X, rows.weight, self.standardize)
        support = self._support(X, problem)
        task = class_task(rows.task)
        cheap = fit_logistic(X[:, support], rows.y, rows.weight, task.n_scores, l2=1.0)
        wrong = task.best(cheap.scores(X[:, support])) != task.strata(rows.y)
        emphasis = np.where(wrong, self.send_weight, 1.0 - self.send_weight) * rows.weight
        gate = _fit_gate(X[:, support], wrong, emphasis)
        coef = np.zeros((X.shape[1], 1 + task.n_scores))
        coef[support] = np.column_stack([gate.coef, cheap.coef])
        return linear_stage(LinearCoefficients(coef, np.r_[gate.intercept, cheap.intercept]), scale)

    def _support(self, X: Any, problem: PairProblem) -> NDArray[np.intp]:
        if self.features is not None:
            return check_columns(
                "features", self.features, X.shape[1], getattr(self, "feature_names_in_", None)
            )
        prices = problem.price_list.prices[problem.price_list.group_of]
        rows = problem.rows
        found = fit_logistic(X, rows.y, rows.weight, rows.task.n_scores, l1=1.0 / self.C, prices=prices)
        weights = np.linalg.norm(found.coef, axis=1)
        order = np.argsort(-weights, kind="stable")
        most = len(weights) if self.n_features is None else self.n_features
        return np.sort(order[: min(np.count_nonzero(weights), most)])


def _fit_gate(X: Any, wrong: Bools, emphasis: Floats) -> LinearCoefficients:
    """The gate; with no weight on any row it has nothing to learn and sends nobody."""
    if not emphasis.any():
        return LinearCoefficients(np.zeros((X.shape[1], 1)), np.array([NEVER]))
    return fit_logistic(X, np.where(wrong, 1.0, -1.0), emphasis, l2=1.0)


def fit_logistic(
    X: Any,
    y: Floats,
    weight: Floats,
    n_scores: int = 1,
    *,
    l1: float = 0.0,
    l2: float = 0.0,
    prices: Floats | None = None,
) -> LinearCoefficients:
    """One logistic regression on labels, scaled as scikit-learn scales it with C = 1 / l1 or 1 / l2.

        min_f  sum_i weight_i loss(y_i, f(x_i)) + l1 sum_a c_a ||f_a|| + (l2 / 2) ||f||^2

    Labels are encoded as ``label_fit`` takes them. The weights of a column in several classes are one group, so that
    they are zero together. It is the pair's problem without a gate, so the pair's solver serves.
    """
    total = weight.sum()
    n_features = X.shape[1]
    return group_lasso(
        X,
        [label_fit(y, weight / total, n_scores)],
        np.arange(n_features),
        np.ones(n_features) if prices is None else prices,
        l1 / total,
        l2=l2 / total,
    ).value
