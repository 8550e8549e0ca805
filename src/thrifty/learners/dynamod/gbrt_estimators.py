"""DynaMod-Gbrt: the paper's Algorithm 2, a boosted gate and a boosted model on one set of bought features."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from thrifty.arrays import Ints
from thrifty.engine.trees import BinnedTable, bin_columns
from thrifty.learners.dynamod.alternating import Fold
from thrifty.learners.dynamod.boosted import BoostedPair, ScoreReadingGate
from thrifty.learners.dynamod.gated import (
    AlternatingEstimator,
    GatedClassifier,
    GatedRegressor,
    Learned,
    PairProblem,
)
from thrifty.learners.dynamod.options import BoostedOptions, accept_former_settings
from thrifty.learners.dynamod.solution import warn_unless_converged

DEFAULT_GAMMA = 1.0
"""Gain that one unit of price must bring, without a budget."""


@dataclass(eq=False, repr=False)
class _DynaModGbrt(AlternatingEstimator):
    """Base class of both DynaMod-Gbrt estimators: the alternation over a boosted gate and a boosted model."""

    _accepts_missing = True
    _accepts_sparse = False
    _accepts_several = True
    _accepts_levels = True
    _options_class = BoostedOptions

    full: Any = None
    _: KW_ONLY
    gamma: float | None = None
    p_full: float | None = None
    feature_costs: Any = None
    prices: Any = None
    budget: float | None = None
    options: BoostedOptions | None = None
    cv: Any = 5
    n_jobs: int | None = None
    random_state: Any = None
    verbose: int = 0

    def _learn(self, problem: PairProblem) -> Learned:
        rows, options, boosting = problem.rows, self._options, self._options.boosting()
        table = bin_columns(rows.X, rows.weight, self._categorical, max_bins=options.max_bins)

        def started(table: BinnedTable, some: Ints) -> BoostedPair:
            # The weights of some rows count as much as those of all, or gamma and l2 would weigh more.
            total = float(rows.weight.sum())
            gamma = DEFAULT_GAMMA if self.gamma is None else float(self.gamma)
            of = (problem.price_list, gamma, boosting, rows.task, options.distance)
            return BoostedPair(table, *of, total=total).start(rows.y[some], rows.weight[some])

        def without(train: Ints, out: Ints) -> Fold[BoostedPair]:
            unseen = table.take(out)
            pair = started(table.take(train), train)
            return Fold(pair, None, train, out, lambda pair: pair.scores_of(unseen))

        pair = started(table, np.arange(len(rows.y)))
        run = self._alternate(pair, problem, without=without)
        self.gamma_ = pair.charge * float(rows.weight.sum())
        self._report(run)
        if options.max_iter > 1:
            warn_unless_converged(run, options.tol)
        stage = pair.stage()
        limit, extra = problem.limit_at(self.p_full, stage.columns)
        if options.gate_reads_score and limit > 0 and len(stage.columns):
            gate = ScoreReadingGate(
                boosting, options.distance, options.max_bins, limit, extra, self._categorical
            )
            return Learned(gate.regrow(stage, run.value, rows, problem.full.loss(rows.y)))
        return Learned.by(stage, run)


@accept_former_settings
@dataclass(eq=False, repr=False)
class DynaModGbrtClassifier(GatedClassifier, _DynaModGbrt):
    """A boosted gate and a boosted classifier that share their bought features.

    Minimises, by alternation, the paper's (OPT2) over the shares q sent to f0 and over two ensembles g
    and f1 whose trees are grown in turn; a split on a feature that neither has used pays ``gamma`` times its price.
    Every round of the alternation regrows both ensembles from nothing.

    Parameters
    ----------
    full, feature_costs, prices, budget
        As in ``DynaModLinClassifier``.
    p_full, cv, n_jobs, random_state, verbose
        As in ``DynaModLinClassifier``. Missing values (NaN) are allowed; sparse tables are not.
    gamma : float, default=None
        Gain that one unit of price must bring, on the scale of a sum over rows. None follows from ``budget``, as in
        ``DynaModLinClassifier``, and is 1 without one.
    options : BoostedOptions, default=None
        How it learns: number and limits of the trees, distance, cross-fitting, rounds of the alternation; see
        ``thrifty.learners.dynamod.BoostedOptions``.

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
    >>> from thrifty.learners.dynamod import BoostedOptions
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> full = make_pipeline(StandardScaler(), LogisticRegression())
    >>> few = BoostedOptions(n_trees=20, tol=1.0)
    >>> clf = DynaModGbrtClassifier(full, gamma=5, budget=8, options=few, random_state=0).fit(X[::2], y[::2])
    >>> bool(clf.score(X[1::2], y[1::2]) > 0.9), bool(clf.cost(X[1::2]).mean() < 10)
    (True, True)
    """


@accept_former_settings
@dataclass(eq=False, repr=False)
class DynaModGbrtRegressor(GatedRegressor, _DynaModGbrt):
    """A boosted gate and a boosted regressor that share their bought features.

    The paper's (OPT2) with the error of a number instead of the loss of a label. Errors count in units of the spread
    of ``y``, so that ``gamma`` does not depend on the unit of ``y``. A predicted number carries no uncertainty: the
    gate learns from the bought features where the cheap model errs by more than the full model.

    Parameters
    ----------
    full : regressor, FrozenEstimator, callable, array of numbers or Chain, default=None
        The full model (f0). An unfitted regressor is cloned, fitted and cross-fitted; None is a
        ``HistGradientBoostingRegressor`` of the same loss.
    loss : {"squared", "absolute"}, default="squared"
        The error that counts: half of its square, or its size.
    gamma, p_full, feature_costs, prices, budget, options, cv, n_jobs, random_state, verbose
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
    >>> from thrifty.learners.dynamod import BoostedOptions
    >>> X, y = load_diabetes(return_X_y=True)
    >>> few = BoostedOptions(n_trees=30, tol=1.0)
    >>> model = DynaModGbrtRegressor(Ridge(0.01), gamma=1, budget=5, options=few, random_state=0)
    >>> model = model.fit(X[::2], y[::2])
    >>> bool(model.score(X[1::2], y[1::2]) > 0.2), bool(model.cost(X[1::2]).mean() < 6)
    (True, True)
    """

    _: KW_ONLY
    loss: str = "squared"
