"""GreedyMiser: boosted trees that pay for every new feature, and nothing behind them."""

from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, Literal

import numpy as np

from thrifty.engine.evidence.collect import evidence_of_known
from thrifty.engine.evidence.evidence import Evidence
from thrifty.engine.full.crossfit import CrossFittedFull, TrainingRows
from thrifty.engine.full.model import AbsentFull
from thrifty.engine.prices.billing import check_amount
from thrifty.engine.trees import bin_columns
from thrifty.engine.walk.stage import ConfidentStage
from thrifty.learners.dynamod.boosted import BoostedOptions, boost_alone
from thrifty.learners.dynamod.gated import (
    GatedClassifier,
    GatedEstimator,
    GatedRegressor,
    Learned,
    PairProblem,
)

__all__ = ["GreedyMiserClassifier", "GreedyMiserRegressor"]


@dataclass(eq=False, repr=False)
class _GreedyMiser(GatedEstimator):
    """The boosted model alone, whatever it answers."""

    _accepts_missing = True
    _accepts_sparse = False
    _accepts_several = True
    _accepts_levels = True

    # The template of the base class asks for these; a GreedyMiser has no f0 to judge or to spend on.
    full = None
    budget = None
    cv = 2
    n_jobs = None
    _: KW_ONLY
    n_trees: int = 200
    max_depth: int = 4
    learning_rate: float = 0.1
    gamma: float = 1.0
    step: Literal["gradient", "newton"] = "newton"
    l2: float = 1.0
    min_child_weight: float = 0.0
    min_child_samples: int = 1
    max_bins: int = 255
    feature_costs: Any = None
    prices: Any = None
    random_state: Any = None

    @property
    def _trees(self) -> BoostedOptions:
        names = {field.name for field in fields(BoostedOptions)}
        return BoostedOptions(
            **{name: value for name, value in self.get_params(deep=False).items() if name in names}
        )

    def _check_parameters(self) -> None:
        self._trees.check()
        check_amount("gamma", self.gamma)

    def _cross_fit_full(self, rows: TrainingRows, *_: Any, **__: Any) -> CrossFittedFull:
        nothing = rows.task.outputs(np.zeros((len(rows.y), rows.task.n_scores)))
        return CrossFittedFull(AbsentFull(), nothing, rows.task)

    def _other_models(self) -> list[Any]:
        return []

    def _learn(self, problem: PairProblem) -> ConfidentStage:
        rows, boosting = problem.rows, self._trees.boosting()
        table = bin_columns(rows.X, rows.weight, self._categorical, max_bins=self.max_bins)
        grower = boosting.grower(table, problem.price_list, self.gamma)
        trees, base = boost_alone(boosting, grower, rows.task.loss(rows.y), rows.weight)
        columns = np.flatnonzero(trees.features_used)
        return ConfidentStage(columns, trees.over_columns(columns), base)

    def _default_threshold(self, learned: Learned, problem: PairProblem, budget: float | None) -> float:  # noqa: ARG002
        return float("inf")

    def _evidence_of_fit(self, learned: Learned, problem: PairProblem) -> Evidence:  # noqa: ARG002
        reader = problem.rows.table
        return evidence_of_known(self.chain_, reader, problem.rows.y, None, weight=problem.rows.weight)


class GreedyMiserClassifier(GatedClassifier, _GreedyMiser):
    """Boosted trees in which a split on a new feature pays for it (Xu, Weinberger and Chapelle, 2012).

    The special case ``p_full = 0`` of DynaMod-Gbrt: every row is answered here, none is sent on. Tree by tree
    it is the f1 that ``DynaModGbrtClassifier(p_full=0)`` grows. Its gate is its own margin, ``g = -|f1|``, and shut:
    ``with_full(full).at(threshold=...)`` opens it, which is the confidence gate that the paper left out.

    Parameters
    ----------
    n_trees, max_depth, learning_rate, gamma, step, l2, min_child_weight, min_child_samples, max_bins
        As in ``DynaModGbrtClassifier``.
    feature_costs, prices, random_state
        As in ``DynaModLinClassifier``. Nothing is random, and no row pays for a call until there is a full
        model.

    Attributes
    ----------
    classes_, chain_, features_, threshold_
        As in ``DynaModGbrtClassifier``.
    evidence_, frontier_, certificate_
        As in ``DynaModLinClassifier``; there is one operating point until there is a full model.
    expected_cost_, expected_score_, expected_cost_interval_, expected_score_interval_
        As in ``DynaModLinClassifier``; there is one operating point until there is a full model.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from reproduction.rivals.greedy_miser import GreedyMiserClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> clf = GreedyMiserClassifier(n_trees=20, gamma=5).fit(X[::2], y[::2])
    >>> bool(clf.score(X[1::2], y[1::2]) > 0.9), bool(clf.cost(X[1::2]).mean() < 10)
    (True, True)
    """


@dataclass(eq=False, repr=False)
class GreedyMiserRegressor(GatedRegressor, _GreedyMiser):
    """Boosted trees that predict a number, in which a split on a new feature pays for it.

    The special case ``p_full = 0`` of ``DynaModGbrtRegressor``: every row is answered here, none is sent on. A number
    does not say how sure it is, so that its gate is the same for all rows: behind ``with_full(full)``, all of them are
    sent on, or none.

    Parameters
    ----------
    loss : {"squared", "absolute"}, default="squared"
        The error that counts, in units of the spread of ``y``.
    n_trees, max_depth, learning_rate, gamma, step, l2, min_child_weight, min_child_samples, max_bins
        As in ``DynaModGbrtRegressor``.
    feature_costs, prices, random_state
        As in ``GreedyMiserClassifier``.

    Attributes
    ----------
    chain_, features_, threshold_
        As in ``DynaModGbrtRegressor``.
    evidence_, frontier_, certificate_
        As in ``DynaModGbrtRegressor``.
    expected_cost_, expected_score_, expected_cost_interval_, expected_score_interval_
        As in ``DynaModGbrtRegressor``.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from reproduction.rivals.greedy_miser import GreedyMiserRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = GreedyMiserRegressor(n_trees=30, gamma=5).fit(X[::2], y[::2])
    >>> bool(model.score(X[1::2], y[1::2]) > 0.2), bool(model.cost(X[1::2]).mean() < 8)
    (True, True)
    """

    _: KW_ONLY
    loss: str = "squared"
