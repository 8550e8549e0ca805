"""DynaMod-Gbrt: the paper's Algorithm 2, a boosted gate and a boosted model on one set of bought features."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np

from thrifty.arrays import Ints
from thrifty.engine.full.crossfit import TrainingRows
from thrifty.engine.prices.billing import check_amount
from thrifty.engine.trees import BinnedTable, bin_columns
from thrifty.engine.trees.binning import MAX_BINS
from thrifty.engine.walk.stage import BoostedStage
from thrifty.errors import InvalidInputError
from thrifty.learners.dynamod.alternating import Fold
from thrifty.learners.dynamod.boosted import BoostedPair, ScoreReadingGate
from thrifty.learners.dynamod.gated import (
    AlternatingEstimator,
    GatedClassifier,
    GatedEstimator,
    GatedRegressor,
    PairProblem,
)
from thrifty.learners.dynamod.objective import check_distance
from thrifty.learners.dynamod.solution import warn_unless_converged
from thrifty.learners.estimators.checks import check_cap, check_count
from thrifty.learners.trees.boosting import Boosting

DEFAULT_GAMMA = 1.0
"""Gain that one unit of price must bring, without a budget."""


@dataclass(eq=False, repr=False)
class BoostedEstimator(GatedEstimator):
    """Base class of boosted estimators: parameters of trees and the binned table."""

    _accepts_missing = True
    _accepts_sparse = False
    _accepts_several = True
    _accepts_levels = True

    _: KW_ONLY
    n_trees: int = 100
    max_depth: int = 4
    learning_rate: float = 0.1
    gamma: float | None = None
    step: Literal["gradient", "newton"] = "newton"
    l2: float = 1.0
    min_child_weight: float = 0.0
    min_child_samples: int = 1
    max_bins: int = 255
    feature_costs: Any = None
    prices: Any = None
    random_state: Any = None

    def _check_parameters(self) -> None:
        check_count("n_trees", self.n_trees)
        check_count("max_depth", self.max_depth, max_value=12)
        check_count("min_child_samples", self.min_child_samples)
        if self.gamma is not None:
            check_amount("gamma", self.gamma)
        for name in ("l2", "min_child_weight", "learning_rate"):
            check_amount(name, getattr(self, name))
        if self.step not in ("gradient", "newton"):
            raise InvalidInputError(f"step must be 'gradient' or 'newton'; got {self.step!r}.")
        check_count("max_bins", self.max_bins, min_value=2, max_value=MAX_BINS)

    def _boosting(self) -> Boosting:
        return Boosting(
            n_trees=self.n_trees,
            max_depth=self.max_depth,
            learning_rate=self.learning_rate,
            step=self.step,
            l2=self.l2,
            min_child_weight=self.min_child_weight,
            min_child_samples=self.min_child_samples,
        )

    def _binned(self, rows: TrainingRows) -> BinnedTable:
        return bin_columns(rows.X, rows.weight, self._categorical, max_bins=self.max_bins)


@dataclass(eq=False, repr=False)
class _DynaModGbrt(BoostedEstimator, AlternatingEstimator):
    """Base class of both DynaMod-Gbrt estimators: the alternation over a boosted gate and a boosted model."""

    full: Any = None
    _: KW_ONLY
    p_full: float | None = None
    distance: Literal["kl", "squared"] = "kl"
    gate_reads_score: bool = False
    cross_fit: bool = False
    budget: float | None = None
    max_iter: int = 10
    tol: float = 1e-3
    cv: Any = 5
    n_jobs: int | None = None
    verbose: int = 0

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_amount("tol", self.tol)
        check_count("max_iter", self.max_iter)
        check_distance(self.distance)
        check_cap(self.p_full)

    def _learn(self, problem: PairProblem) -> BoostedStage:
        rows, boosting = problem.rows, self._boosting()
        table = self._binned(rows)

        def started(table: BinnedTable, some: Ints) -> BoostedPair:
            # The weights of some rows count as much as those of all, or gamma and l2 would weigh more.
            total = float(rows.weight.sum())
            gamma = DEFAULT_GAMMA if self.gamma is None else float(self.gamma)
            of = (problem.price_list, gamma, boosting, rows.task, self.distance)
            return BoostedPair(table, *of, total=total).start(rows.y[some], rows.weight[some])

        def without(train: Ints, out: Ints) -> Fold[BoostedPair]:
            unseen = table.take(out)
            pair = started(table.take(train), train)
            return Fold(pair, None, train, out, lambda pair: pair.scores_of(unseen))

        pair = started(table, np.arange(len(rows.y)))
        run = self._alternate(pair, problem, without=without)
        self.gamma_ = pair.charge * float(rows.weight.sum())
        self._report(run)
        if self.max_iter > 1:
            warn_unless_converged(run, self.tol)
        stage = pair.stage()
        limit, extra = problem.limit_at(self.p_full, stage.columns)
        if self.gate_reads_score and limit > 0 and len(stage.columns):
            gate = ScoreReadingGate(boosting, self.distance, self.max_bins, limit, extra, self._categorical)
            return gate.regrow(stage, run.value, rows, problem.full.loss(rows.y))
        self._out_of_fold = run.value.held_out
        return stage


class DynaModGbrtClassifier(GatedClassifier, _DynaModGbrt):
    """A boosted gate and a boosted classifier that share their bought features.

    Minimises, by alternation, the paper's (OPT2) over the shares q sent to f0 and over two ensembles g
    and f1 whose trees are grown in turn; a split on a feature that neither has used pays ``gamma`` times its price.
    Every round of the alternation regrows both ensembles from nothing.

    Parameters
    ----------
    full, feature_costs, prices, budget
        As in ``DynaModLinClassifier``.
    p_full, cross_fit, distance, cv, n_jobs, random_state, verbose
        As in ``DynaModLinClassifier``. Missing values (NaN) are allowed; sparse tables are not.
    n_trees : int, default=100
        Trees of g and of f1 each.
    max_depth : int, default=4
        Levels of splits, at most 12.
    learning_rate : float, default=0.1
        Factor on every leaf.
    gamma : float, default=None
        Gain that one unit of price must bring, on the scale of a sum over rows. None follows from ``budget``, as in
        ``DynaModLinClassifier``, and is 1 without one.
    step : {"newton", "gradient"}, default="newton"
        Leaves that divide by the curvature, or the paper's least squares on the gradient.
    l2 : float, default=1.0
        Added to the curvature of a leaf (Newton steps only).
    min_child_weight, min_child_samples : float, int, default=0.0, 1
        Least curvature and least rows of a leaf.
    max_bins : int, default=255
        Bins per feature.
    gate_reads_score : bool, default=False
        After the alternation, grow the gate once more with f1's own score as a further, free feature; the scores it
        learns from are out of fold.
    max_iter, tol : int, float, default=10, 1e-3
        Rounds of the alternation, and the change of the objective below which it stops. Trees are
        greedy, so the objective may rise; what is kept is the last round.

    Attributes
    ----------
    classes_, chain_, evidence_, frontier_, certificate_
        As in ``DynaModLinClassifier``.
    expected_cost_, expected_score_, expected_cost_interval_, expected_score_interval_
        As in ``DynaModLinClassifier``.
    features_ : ndarray
        Columns that the gate and the cheap model buy.
    gamma_ : float
        The gain in force.
    threshold_ : float
        Rows with ``g > threshold_`` go to the full model.
    trace_ : ndarray of shape (n_rounds, 2)
        The objective after the q-step and after the pair-step of every round.
    excess_ : float
        Mean loss of the cheap model minus that of the full model, as learning sees it: on the rows of the fit, or, with
        ``cross_fit``, out of fold.
    n_iter_ : int
        Rounds of the alternation.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from thrifty import DynaModGbrtClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> full = make_pipeline(StandardScaler(), LogisticRegression())
    >>> clf = DynaModGbrtClassifier(full, n_trees=20, gamma=5, budget=8, tol=1.0, random_state=0).fit(X[::2], y[::2])
    >>> bool(clf.score(X[1::2], y[1::2]) > 0.9), bool(clf.cost(X[1::2]).mean() < 10)
    (True, True)
    """


@dataclass(eq=False, repr=False)
class DynaModGbrtRegressor(GatedRegressor, _DynaModGbrt):
    """A boosted gate and a boosted regressor that share their bought features.

    The paper's (OPT2) with the error of a number in place of the loss of a label. Errors count in units of the spread
    of ``y``, so that ``gamma`` does not depend on the unit of ``y``. A predicted number carries no uncertainty: the
    gate learns from the bought features where the cheap model errs by more than the full model.

    Parameters
    ----------
    full : regressor, FrozenEstimator, callable, array of numbers or Chain, default=None
        The full model (f0). An unfitted regressor is cloned, fitted and cross-fitted; None is a
        ``HistGradientBoostingRegressor`` of the same loss.
    loss : {"squared", "absolute"}, default="squared"
        The error that counts: half of its square, or its size.
    n_trees, max_depth, learning_rate, gamma, p_full, distance, step, l2, min_child_weight, min_child_samples, max_bins
        As in ``DynaModGbrtClassifier``.
    gate_reads_score, cross_fit, feature_costs, prices, budget, max_iter
        As in ``DynaModGbrtClassifier``.
    tol, cv, n_jobs, random_state, verbose
        As in ``DynaModGbrtClassifier``.

    Attributes
    ----------
    chain_, features_, gamma_, threshold_, trace_, excess_, n_iter_
        As in ``DynaModGbrtClassifier``.
    evidence_, frontier_, certificate_
        As in ``DynaModLinClassifier``; the score is one minus the error in units of the spread of ``y``.
    expected_cost_, expected_score_, expected_cost_interval_, expected_score_interval_
        As in ``DynaModLinClassifier``; the score is one minus the error in units of the spread of ``y``.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Ridge
    >>> from thrifty import DynaModGbrtRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = DynaModGbrtRegressor(Ridge(0.01), gamma=1, n_trees=30, budget=5, tol=1.0, random_state=0)
    >>> model = model.fit(X[::2], y[::2])
    >>> bool(model.score(X[1::2], y[1::2]) > 0.2), bool(model.cost(X[1::2]).mean() < 6)
    (True, True)
    """

    _: KW_ONLY
    loss: str = "squared"
