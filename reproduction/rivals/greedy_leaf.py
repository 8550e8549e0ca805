"""The paper's greedy rival on a device: f1 stands, and the gate learns over its leaves where it errs."""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
from sklearn.ensemble import GradientBoostingClassifier

from thrifty.arrays import Bools, Floats
from thrifty.engine.prices.billing import PriceList, check_amount
from thrifty.engine.prices.prices import Prices
from thrifty.engine.tasks.classes import class_task
from thrifty.engine.trees.other_libraries import AdditiveTrees
from thrifty.engine.walk.stage import LeafStage
from thrifty.learners.dynamod.gated import GatedClassifier, PairProblem
from thrifty.learners.dynamod.leaf import as_local, given_trees, leaf_stage
from thrifty.learners.dynamod.objective import Solution
from thrifty.learners.dynamod.ridge import LeafDesign, LeafWeights, ridge_logistic
from thrifty.learners.estimators.base import unwrap_frozen

__all__ = ["GreedyLeafClassifier"]

PULLED = np.array([1.0, 0.0])  # the margin's weight towards zero; the constant is free


@dataclass(eq=False, repr=False)
class GreedyLeafClassifier(GatedClassifier):
    """A given small ensemble, and a gate over its leaves that learns "f1 is wrong here".

    What DynaMod-Lstsq is compared with, for any number of classes: the same trees, and again values of f1 and of the
    gate in each leaf, and a gate that reads ``|f1|`` besides, but f1 is left as it is and f0 is not looked at. A
    logistic regression, C = 1.

    Parameters
    ----------
    full : as in ``DynaModLinClassifier``
        The full model (f0).
    local : boosted trees or forest, default=None
        As in ``DynaModLstsqClassifier``; None is scikit-learn's ``GradientBoostingClassifier``, ten trees of depth 5.
    ridge : float, default=1.0
        Strength of the ridge on the gate's weights, ``1 / C``.
    gate_reads_margin : bool, default=True
        Whether the gate reads ``|f1|`` (of several classes: how far the best score leads the second) beside the leaves,
        as in the paper's appendix.
    feature_costs, prices, budget, cv, n_jobs, random_state
        As in ``DynaModLstsqClassifier``.

    Attributes
    ----------
    classes_, chain_, evidence_, frontier_, certificate_
        As in ``DynaModLstsqClassifier``.
    expected_cost_, expected_score_, expected_cost_interval_, expected_score_interval_
        As in ``DynaModLstsqClassifier``.
    local_, n_bytes_, features_, threshold_
        As in ``DynaModLstsqClassifier``.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from reproduction.rivals.greedy_leaf import GreedyLeafClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> full = make_pipeline(StandardScaler(), LogisticRegression())
    >>> clf = GreedyLeafClassifier(full, budget=0.2, random_state=0).fit(X[::2], y[::2])
    >>> bool(clf.score(X[1::2], y[1::2]) > 0.9), bool(clf.cost(X[1::2]).mean() < 0.3)
    (True, True)
    """

    _accepts_several = True
    _accepts_missing = True
    _accepts_sparse = False
    _default_prices = Prices(0.0, full=1.0)

    full: Any = None
    local: Any = None
    _: KW_ONLY
    ridge: float = 1.0
    gate_reads_margin: bool = True
    feature_costs: Any = None
    prices: Any = None
    budget: float | None = None
    cv: Any = 5
    n_jobs: int | None = None
    random_state: Any = None

    def _check_parameters(self) -> None:
        check_amount("ridge", self.ridge)

    def _check_against(self, prices: PriceList, budget: float | None) -> None:  # noqa: ARG002 - any budget will do
        given_trees(self._local(), prices.n_features)

    def _other_models(self) -> list[Any]:
        return [*super()._other_models(), unwrap_frozen(self._local())]

    def _local(self) -> Any:
        if self.local is not None:
            return self.local
        return GradientBoostingClassifier(n_estimators=10, max_depth=5, random_state=self.random_state)

    def _learn(self, problem: PairProblem) -> LeafStage:
        rows = problem.rows
        self.local_ = as_local(self._local(), rows, n_jobs=self.n_jobs).model
        task = class_task(rows.task)
        f1 = self.local_.scores(rows.X)
        wrong, margin = (
            task.best(f1) != task.strata(rows.y),
            -task.uncertainty(f1) if self.gate_reads_margin else None,
        )
        gate = greedy_leaf_gate(self.local_, rows.X, wrong, rows.weight, float(self.ridge), margin).value
        stage = leaf_stage(self.local_, gate, self.local_.trees.values)
        self.n_bytes_ = stage.n_bytes
        return stage


def greedy_leaf_gate(
    local: AdditiveTrees, X: Floats, wrong: Bools, weight: Floats, ridge: float, margin: Floats | None = None
) -> Solution[LeafWeights]:
    """The paper's greedy gate over leaves: a logistic regression on "f1 is wrong here", f1 left as it is.

    It reads ``margin``, ``|f1|`` of the same rows, beside the leaves; without one the weight of the margin is zero.
    """
    design = LeafDesign(local.trees.apply(X), len(local.trees.values))
    columns = [np.ones(len(wrong))] if margin is None else [margin, np.ones(len(wrong))]
    zero = LeafWeights(np.zeros(design.n_leaves), np.zeros(len(columns)))
    solution = ridge_logistic(
        design,
        wrong.astype(np.float64),
        weight,
        ridge,
        dense=np.column_stack(columns),
        pulled=PULLED[-len(columns) :],
        centre=zero,
        start=zero,
    )
    gate = solution.value
    dense = np.r_[0.0, gate.dense] if margin is None else gate.dense
    return replace(solution, value=LeafWeights(gate.leaf, dense))
