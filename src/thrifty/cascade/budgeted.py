"""BudgetedClassifier and BudgetedRegressor: cascades that buy features one after the other, at any budget."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

from sklearn.utils.validation import check_is_fitted

from thrifty.arrays import Floats
from thrifty.cascade.estimator import BudgetedCascade
from thrifty.errors import InvalidInputError, NoPriceOfMistakesError
from thrifty.estimators.base import ChainClassifier, ChainRegressor
from thrifty.estimators.checks import check_goal
from thrifty.evidence.recall import check_floors, recalls_at, within_floors
from thrifty.tasks.classes import classification_of
from thrifty.tasks.mistakes import read_loss
from thrifty.tasks.task import Task

__all__ = ["BudgetedClassifier", "BudgetedRegressor"]


class BudgetedClassifier(ChainClassifier, BudgetedCascade):
    """Buys features one after the other, for each row only until an answer is sure enough.

    The full model (f0) is the last resort.

    The stages share one ensemble of trees that grows with every purchase. In which order features are bought, how
    large the stages are, where each row stops and whether the full model earns its price at all is chosen out of fold;
    the operating point is a mean spend (``budget``), a loss against it that is proved (``max_loss``), or, with
    neither, the most accurate one, or the one of least total cost where mistakes have prices. ``at`` switches between
    operating points without refitting.

    Parameters
    ----------
    full : classifier, FrozenEstimator, callable or array of probabilities, default=None
        The full model (f0). An unfitted estimator is cloned, fitted and cross-fitted; None is a
        ``HistGradientBoostingClassifier``. Anything that was fitted elsewhere should not have seen the rows given.
    loss : {"error", "log", "brier"} or array-like of shape (n_classes, n_classes), default="error"
        What an answer loses: whether it is wrong, the logarithmic or the Brier loss of its probabilities, or a price
        for every mistake in the unit of ``feature_costs``. A matrix has a line for each true class and a column for
        each answer, in the order of ``classes_``; the right answer is the cheapest of its line. With a matrix rows are
        answered with the class of least expected cost, scores are minus the cost of mistakes, and without ``budget``
        and ``max_loss`` the point is taken at which tests and mistakes cost least together (Turney 1995, Journal of
        Artificial Intelligence Research 2). ``decision_function`` is still that of the probabilities.
    class_weight : None, "balanced" or dict of label to weight, default=None
        Weights of the classes, multiplied into ``sample_weight``; labels that are left out have weight 1. Not with
        ``max_loss`` or ``confidence``, which count rows.
    feature_costs : array-like of shape (n_features,), number, dict by column name, Series, Prices, path or None
        Price per column; None is 1 each, 0 is a feature at hand. ``thrifty.Prices`` also says a price for all columns
        that are not named, discounts, and prices that differ by row; a path is a CSV or JSON file of prices.
    feature_groups : array-like of shape (n_features,), dict by column name, or None
        Columns that one purchase delivers together have the same label and the same price.
    full_cost : float, default=0.0
        Extra price of one call of the full model, on top of the features it reads.
    full_features : array-like of column numbers or names, or a mask, default=None
        Columns that the full model reads, and is given; None is all of them.
    budget : float, optional
        Mean spend per row.
    max_loss : float, or dict of label to float, optional
        Largest share of all rows, in (0, 1), that is answered worse than by the full model: wrongly where it is right.
        By label, of the rows of that class, so that a rare one cannot be given up in silence. A quarter of the rows is
        then kept out of everything and the cheapest point is taken that they prove, with probability ``confidence``,
        to lose no more.
    confidence : float, optional
        Probability with which that proof must hold; None is 0.95. With ``budget``: the probability with which the mean
        cost of new rows keeps to it, for which a quarter of the rows is kept out too; None meets the mean as measured.
    stages : int, optional
        Places along the order of purchases where a row may stop; None chooses up to 16. Those at which no operating
        point lets a row stop are left out afterwards.
    structure : {"line", "graph", "neighbours", "auto"}, default="line"
        Whether all rows buy in one order, or each row is sent to the purchase that is best for it, by what it holds:
        with trees for each set of purchases, which takes two to four times as long, or by training rows that are
        alike, which is for classes only and keeps up to 16,000 training rows in the model and in its file. "auto" takes
        one of the last two only where it is clearly ahead out of fold.
    sizes : sequence of (n_trees, max_depth), optional
        Sizes of a stage to choose from out of fold, from small to large, each at most that: a stage ends when its trees
        no longer help. None is (60, 4), which learns at half the usual rate, (100, 6) and (150, 10), the larger ones
        where there are ten rows for each tree; with 100 rows to 1,000, (60, 4) with smaller penalties too.
    max_bins : int, default=255
        Bins per column.
    max_bytes : int, optional
        Bytes that the trees of all stages may take in a saved file; stages are given fewer trees until they do. Rows
        that operating points were judged on and the full model come on top. None is no limit.
    cv : int, splitter or iterable, default=4
        Folds in which everything is judged.
    n_jobs : int, optional
        Folds that are fitted side by side, and threads of each library that the full model calls; None is 1, unless
        joblib is configured otherwise, and -1 is all cores that the process may use. Results do not depend on it.
    random_state : int, RandomState or None
        Seed of all random choices: folds, the default full model, and which rows follow which of two mixed operating
        points.
    verbose : int, default=0
        1 prints a line whenever a phase of a fit ends, with the seconds since its start; 2 prints steps of phases too.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    chain_ : Chain
        What serves, at the operating point in force.
    evidence_ : Evidence
        The rows of the fit at every stage, each answered by models that have not seen it.
    frontier_ : Frontier
        Every operating point, with those answers; every row counts once, whatever its weight.
    certificate_ : Certificate or None
        What ``max_loss`` proved.
    order_ : ndarray
        Purchases (numbers of groups) in the order in which they are made.
    features_ : ndarray
        Columns that are bought before the full model, in that order.
    n_stages_ : int
        Stages in front of the full model.
    size_ : tuple of int
        Trees of a stage, and their depth.
    expected_cost_, expected_score_ : float
        Mean cost and accuracy of the operating point in force, out of fold; with another ``loss`` than "error", the
        score is minus the mean loss.
    expected_total_cost_ : float
        Mean cost of tests and mistakes together, where ``loss`` is a matrix.
    expected_cost_interval_ : tuple of float
        Where the mean cost of new rows lies at that point, 19 times out of 20.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from thrifty import BudgetedClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> clf = BudgetedClassifier(GaussianNB(), budget=3, sizes=[(20, 3)], cv=3, random_state=0)
    >>> clf = clf.fit(X[::2], y[::2])
    >>> bool(clf.score(X[1::2], y[1::2]) > 0.9), bool(clf.cost(X[1::2]).mean() < 4)
    (True, True)
    >>> bool(clf.at(budget=1.1).cost(X[1::2]).mean() < clf.cost(X[1::2]).mean())
    True
    """

    _accepts_several = True

    def __init__(
        self,
        full: Any = None,
        *,
        loss: Any = "error",
        class_weight: Any = None,
        feature_costs: Any = None,
        feature_groups: Any = None,
        full_cost: float = 0.0,
        full_features: Any = None,
        budget: float | None = None,
        max_loss: float | Mapping[Any, float] | None = None,
        confidence: float | None = None,
        stages: int | None = None,
        sizes: Any = None,
        structure: str = "line",
        max_bins: int = 255,
        max_bytes: int | None = None,
        cv: Any = 4,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            full,
            feature_costs=feature_costs,
            feature_groups=feature_groups,
            full_cost=full_cost,
            full_features=full_features,
            budget=budget,
            max_loss=max_loss,
            confidence=confidence,
            stages=stages,
            sizes=sizes,
            structure=structure,
            max_bins=max_bins,
            max_bytes=max_bytes,
            cv=cv,
            n_jobs=n_jobs,
            random_state=random_state,
            verbose=verbose,
        )
        self.loss = loss
        self.class_weight = class_weight

    @property
    def expected_total_cost_(self) -> float:
        """Mean cost of tests and mistakes together at the operating point in force, out of fold."""
        cost, score = self._expected()
        if self.chain_.task.mistake_price is None:
            raise NoPriceOfMistakesError(
                f"tests and mistakes add up only where both have prices; this fit has loss={self.loss!r}. Fit with a "
                f"matrix of what each mistake costs."
            )
        return cost - score

    def at(
        self,
        *,
        budget: float | None = None,
        max_loss: float | Mapping[Any, float] | None = None,
        threshold: float | None = None,
        confidence: float | None = None,
        min_recall: Mapping[Any, float] | None = None,
    ) -> Self:
        """Return the same fit at another operating point; nothing is refitted.

        Parameters
        ----------
        budget : float, optional
            Mean spend per row.
        max_loss : float, or dict of label to float, optional
            Largest share of all rows that is answered worse than by the full model; by label, of the rows of that
            class.
        threshold : float, optional
            Refused: a cascade has several gates.
        confidence : float, optional
            Probability with which new rows keep to ``budget``, or with which ``max_loss`` is proved.
        min_recall : dict of label to float, optional
            Least share of the rows of a class to be answered with it, on the held-out rows of the fit. With ``budget``
            it is the best point within it that reaches every floor; alone the cheapest one or, where mistakes have
            prices, the one of least total cost.
        """
        if min_recall is None:
            return super().at(budget=budget, max_loss=max_loss, threshold=threshold, confidence=confidence)
        check_is_fitted(self)
        others = {"max_loss": max_loss, "threshold": threshold, "confidence": confidence}
        given = [f"{name}={value!r}" for name, value in others.items() if value is not None]
        if given:
            raise InvalidInputError(
                f"min_recall goes with a budget or stands alone; got {' and '.join(given)} too. Leave one of them out."
            )
        budget = check_goal(may_be_none=True, budget=budget).get("budget")
        task, policy, evidence = self._learned.task, self._learned.policy, self._evidence()
        floors = check_floors(min_recall, task.classes)
        recalls = recalls_at(evidence, policy.thresholds, len(task.classes))
        other = copy.copy(self)
        other.certificate_, other._max_loss = None, None
        other.chain_ = self._learned.at(
            within_floors(policy, recalls, floors, budget, task.mistake_price, task.classes)
        )
        return other

    def _task_of(self, y: Any, weight: Floats) -> Task:  # noqa: ARG002 - labels have no spread
        task = classification_of(y)
        return replace(task, mistakes=read_loss(self.loss, task.classes))


class BudgetedRegressor(ChainRegressor, BudgetedCascade):
    """Predicts a number, and buys features one after the other, for each row only until more would change little.

    The full model (f0) is the last resort, blended linearly with the last stage where that errs less. A number does not
    say how sure it is, so that each stage has a gate of its own, which learns from what is held how much a row would
    gain by going on.

    Parameters
    ----------
    full : regressor, FrozenEstimator, callable or array of numbers, default=None
        The full model (f0). An unfitted estimator is cloned, fitted and cross-fitted; None is a
        ``HistGradientBoostingRegressor`` of the same loss. Anything that was fitted elsewhere should not have seen the
        rows given.
    loss : {"squared", "absolute", "pinball"}, default="squared"
        The error that counts. The pinball loss is that of a quantile: answers are numbers that the target does not
        exceed with the probability ``quantile``. Its full model should be of the same quantile, such as
        ``HistGradientBoostingRegressor(loss="quantile", quantile=0.9)``, which is the default then.
    quantile : float, default=None
        Quantile in (0, 1) that is predicted with ``loss="pinball"``; None with the other losses.
    tolerance : float, default=0.01
        How much larger than the full model's an error may be before the answer counts as worse: squared errors in units
        of the variance of ``y``, absolute ones in units of its mean distance from the median, pinball losses in
        units of that of the best constant.
    feature_costs, feature_groups, full_cost, full_features, budget, max_loss, confidence
        As of ``BudgetedClassifier``. ``max_loss`` is the share of rows whose error may be larger than that of the full
        model, by more than ``tolerance``.
    stages, sizes, structure, max_bins, max_bytes, cv, n_jobs, random_state, verbose
        As of ``BudgetedClassifier``.

    Attributes
    ----------
    chain_, evidence_, frontier_, certificate_, order_, features_, n_stages_, size_
        As of ``BudgetedClassifier``.
    expected_cost_, expected_score_ : float
        Mean cost and score of the operating point in force, out of fold. A score is one minus the error in units of the
        spread of ``y``: near ``r2_score``, ``d2_absolute_error_score`` or ``d2_pinball_score`` of these rows.
    expected_cost_interval_ : tuple of float
        Where the mean cost of new rows lies at that point, 19 times out of 20.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Ridge
    >>> from thrifty import BudgetedRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = BudgetedRegressor(Ridge(0.01), budget=3, sizes=[(30, 3)], cv=3, random_state=0).fit(X[::2], y[::2])
    >>> bool(model.score(X[1::2], y[1::2]) > 0.3), bool(model.cost(X[1::2]).mean() < 4)
    (True, True)
    """

    def __init__(
        self,
        full: Any = None,
        *,
        loss: str = "squared",
        quantile: float | None = None,
        tolerance: float = 0.01,
        feature_costs: Any = None,
        feature_groups: Any = None,
        full_cost: float = 0.0,
        full_features: Any = None,
        budget: float | None = None,
        max_loss: float | None = None,
        confidence: float | None = None,
        stages: int | None = None,
        sizes: Any = None,
        structure: str = "line",
        max_bins: int = 255,
        max_bytes: int | None = None,
        cv: Any = 4,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            full,
            feature_costs=feature_costs,
            feature_groups=feature_groups,
            full_cost=full_cost,
            full_features=full_features,
            budget=budget,
            max_loss=max_loss,
            confidence=confidence,
            stages=stages,
            sizes=sizes,
            structure=structure,
            max_bins=max_bins,
            max_bytes=max_bytes,
            cv=cv,
            n_jobs=n_jobs,
            random_state=random_state,
            verbose=verbose,
        )
        self.loss = loss
        self.quantile = quantile
        self.tolerance = tolerance
