"""DynaMod-Lstsq: the paper's Algorithm 3, for a small ensemble on a device and a large model behind a remote call."""

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

import numpy as np

from thrifty.arrays import Floats, Ints
from thrifty.engine.evidence.thresholds import threshold_curve
from thrifty.engine.full.crossfit import TrainingRows, held_out_rows
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.prices.prices import Prices
from thrifty.engine.tasks.classes import class_task
from thrifty.engine.trees.other_libraries import AdditiveTrees
from thrifty.errors import InvalidInputError
from thrifty.learners.dynamod.alternating import Alternation, Fold
from thrifty.learners.dynamod.gated import AlternatingEstimator, GatedClassifier, Learned, PairProblem
from thrifty.learners.dynamod.leaf import (
    LeafPair,
    LocalTrees,
    as_local,
    given_trees,
    grow_local,
    trees_without,
)
from thrifty.learners.dynamod.options import LeafOptions, accept_former_settings
from thrifty.learners.dynamod.solution import Solution, warn_unless_converged
from thrifty.learners.estimators.base import unwrap_frozen
from thrifty.learners.estimators.checks import check_share

_NUMBER, _NODE, _ROOT = 8, 21, 4
"""Bytes of a number; of a node: column, threshold, where missing values go, two children; and of the root of a tree."""

LEAVES = (2, 4, 8, 16, 32, 64)
MAX_TREES = 200


@accept_former_settings
@dataclass(eq=False, repr=False)
class DynaModLstsqClassifier(GatedClassifier, AlternatingEstimator):
    """A few trees on the device, the full model (f0) behind a remote call: learns which rows need the call.

    The trees are given, or grown here; their leaves carry two values, one for f1 and one for the gate, so that the
    device stores and walks one small ensemble. With several classes f1 has a value for each of them, whose softmax are
    their probabilities. Minimises, by alternation and from the gate by confidence on,

        mean[(1 - q) l(f1) + q l(f0) + (logit(q) - g)^2]   with   mean(q) <= p_full

    over the leaf values of f1 and g and the shares q sent to f0: (OPT5), (OPT6) and (OPT7).

    Parameters
    ----------
    full : estimator, FrozenEstimator, callable, array or Chain, default=None
        The full model (f0), as in ``DynaModLinClassifier``.
    local : boosted trees, forest or None, default=None
        The small model: an XGBoost, LightGBM or scikit-learn boosting classifier, a forest of scikit-learn, or trees of
        thrifty. An estimator is cloned and fitted here; one in a ``FrozenEstimator`` is used as it is. The leaves
        of all its trees count, of several classes those of the trees of every class. The probabilities of a forest
        become scores by a slope and shifts that fit the labels best. None grows
        ``n_trees`` trees of the options best-first, with at most ``max_leaves`` leaves each.
    p_full : float, default=None
        Share of rows allowed to reach the full model while the weights are learned; None is 0.3 without a budget, and
        what the budget allows with one, as in ``DynaModLinClassifier``. ``threshold_for`` sets the share that is really
        sent.
    trust : float, default=0.5
        How far the full model's own belief, calibrated and out of fold, replaces the labels: 0 is the paper, 1 learns
        from it alone. One label is a noisy sign of where it is worth its price.
    options : LeafOptions, default=None
        How it learns: number and limits of the trees, bytes of the device, distance, cross-fitting, rounds of the
        alternation; see ``thrifty.learners.dynamod.LeafOptions``.
    feature_costs, prices, budget, cv, n_jobs, random_state, verbose
        As in ``DynaModLinClassifier``, but here features are at hand (0) and a call costs 1: the mean of ``cost``
        is the share sent.

    Attributes
    ----------
    classes_, chain_, evidence_, frontier_, certificate_
        As in ``DynaModLinClassifier``.
    expected_cost_, expected_score_, expected_cost_interval_, expected_score_interval_
        As in ``DynaModLinClassifier``.
    local_ : AdditiveTrees
        The small model as it was before its leaves were learned again.
    n_bytes_ : int
        Size of what the device stores.
    shape_ : tuple of two ints or None
        Number of trees grown here, and most leaves of each; None with ``local``.
    features_, threshold_
        As in ``DynaModLinClassifier``.
    trace_ : ndarray of shape (n_rounds, 2)
        The objective after the q-step and after the pair-step of every round.
    excess_ : float
        As in ``DynaModLinClassifier``.
    n_iter_ : int
        Rounds of the alternation.
    residuals_ : ndarray of shape (2,)
        Largest entry of the gradient of (OPT6) and (OPT7) in the last round.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from thrifty import DynaModLstsqClassifier
    >>> from thrifty.learners.dynamod import LeafOptions
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> full = make_pipeline(StandardScaler(), LogisticRegression())
    >>> clf = DynaModLstsqClassifier(full, budget=0.2, options=LeafOptions(n_trees=3), random_state=0)
    >>> clf = clf.fit(X[::2], y[::2])
    >>> bool(clf.score(X[1::2], y[1::2]) > 0.9), bool(clf.cost(X[1::2]).mean() < 0.3)  # the share of calls
    (True, True)
    """

    _accepts_several = True
    _accepts_missing = True
    _accepts_sparse = False
    _default_prices = Prices(0.0, full=1.0)
    _options_class = LeafOptions

    full: Any = None
    local: Any = None
    _: KW_ONLY
    p_full: float | None = None
    trust: float = 0.5
    feature_costs: Any = None
    prices: Any = None
    budget: float | None = None
    options: LeafOptions | None = None
    cv: Any = 5
    n_jobs: int | None = None
    random_state: Any = None
    verbose: int = 0

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_share("trust", self.trust, meaning="how far the full model's belief replaces the labels")

    def _check_against(self, n_features: int, names: Any) -> None:  # noqa: ARG002 - trees have no names
        given_trees(self.local, n_features)

    def _least_price(self, prices: PriceList) -> float:
        given = given_trees(self.local, prices.n_features)
        if given is None:
            return super()._least_price(prices)
        return float(prices.cost_of(np.flatnonzero(given.trees.features_used)))

    def _other_models(self) -> list[Any]:
        return [*super()._other_models(), *([] if self.local is None else [unwrap_frozen(self.local)])]

    def _learn(self, problem: PairProblem) -> Learned:
        rows, options = problem.rows, self._options
        self.shape_ = self._shape(problem)
        local = self._local(problem)
        share = problem.share_at(self.p_full, np.flatnonzero(local.model.trees.features_used))
        threshold = _confidence_threshold(rows.task.uncertainty(local.held_out), share, rows.weight)
        pair = self._pair(local.model, rows, threshold)
        self.local_ = local.model
        run = self._alternate_leaves(pair, problem, threshold) if options.max_iter else None
        stage = pair.stage()
        self.n_bytes_ = stage.n_bytes
        if options.max_bytes is not None and self.n_bytes_ > options.max_bytes:
            raise InvalidInputError(
                f"the local model takes {self.n_bytes_} bytes with a gate in its leaves; max_bytes is "
                f"{options.max_bytes}. Give a smaller one, or local=None to grow the best that fits."
            )
        return Learned(stage) if run is None else Learned.by(stage, run)

    def _shape(self, problem: PairProblem) -> tuple[int, int] | None:
        """Numbers of trees and leaves: as given, or the best ones within ``max_bytes``."""
        if self.local is not None:
            return None
        options = self._options
        if options.max_bytes is None:
            return options.n_trees, options.max_leaves
        shapes = shapes_within(options.max_bytes, problem.rows.task.n_scores)
        return min(shapes, key=partial(self._held_out_loss, problem))

    def _held_out_loss(self, problem: PairProblem, shape: tuple[int, int]) -> float:
        """Loss of f1 and f0 together on a fold that trees of a shape have not seen, gated by confidence."""
        rows, out = problem.rows, held_out_rows(problem.rows)[0]
        train = np.setdiff1d(np.arange(len(rows.y)), out)
        labels = self._labels(problem)
        local = self._grown(shape, rows.take(train), problem.full.scores[train], labels[train]).model
        f1, weight = local.scores(rows.X[out]), rows.weight[out]
        doubt = rows.task.uncertainty(f1)
        share = problem.share_at(self.p_full, np.flatnonzero(local.trees.features_used))
        stays = doubt <= _confidence_threshold(doubt, share, weight)
        loss = np.where(stays, rows.task.loss(rows.y[out]).values(f1), problem.full.loss(rows.y)[out])
        return float(np.average(loss, weights=weight))

    def _pair(self, local: AdditiveTrees, rows: TrainingRows, threshold: float) -> LeafPair:
        ridge = self._options.ridge / float(rows.weight.sum())
        return LeafPair(local, rows.X, self._options.distance, ridge, threshold, class_task(rows.task))

    def _local(self, problem: PairProblem) -> LocalTrees:
        if self.local is not None:
            return as_local(self.local, problem.rows, n_jobs=self.n_jobs)
        assert self.shape_ is not None  # trees that are grown here have one
        return self._grown(self.shape_, problem.rows, problem.full.scores, self._labels(problem))

    def _grown(self, shape: tuple[int, int], rows: TrainingRows, full: Floats, labels: Floats) -> LocalTrees:
        boosting = self._options.boosting(*shape)
        return grow_local(boosting, rows, full, labels, float(self._options.gate_weight))

    def _without(self, problem: PairProblem, threshold: float, train: Ints, out: Ints) -> Fold[LeafPair]:
        """A pair over trees grown without some rows."""
        rows, part = problem.rows, problem.rows.take(train)
        if self.shape_ is not None:
            local = self._grown(
                self.shape_, part, problem.full.scores[train], self._labels(problem)[train]
            ).model
        else:
            local = trees_without(self.local, rows, train)
        unseen = rows.X[out]
        return Fold(self._pair(local, part, threshold), None, train, out, lambda pair: pair.scores_of(unseen))

    def _labels(self, problem: PairProblem) -> Floats:
        """Targets: the user's labels, moved towards f0's belief as far as it is trusted."""
        rows, trust = problem.rows, float(self.trust)
        if trust == 0.0:
            return rows.y
        return class_task(rows.task).soft_targets(
            rows.y, rows.task.outputs(problem.full.calibrated_scores(rows)), trust
        )

    def _alternate_leaves(
        self, pair: LeafPair, problem: PairProblem, threshold: float
    ) -> Solution[Alternation[LeafPair]]:
        rows = problem.rows
        labels = self._labels(problem)
        # Log-odds of f0 on the labels' own scale: calibrated where f0 is believed, its own where it is not.
        f0 = problem.full.calibrated_scores(rows) if self.trust else problem.full.scores
        targets = labels, rows.task.loss(labels).values(f0)
        without = partial(self._without, problem, threshold)
        run = self._alternate(pair, problem, without=without, chosen=pair.columns, targets=targets)
        self._report(run)
        self.residuals_ = np.array([solution.residual for solution in pair.solutions])
        if self._options.max_iter > 1:
            warn_unless_converged(run, self._options.tol)
        return run


def shapes_within(max_bytes: int, n_scores: int) -> list[tuple[int, int]]:
    """Numbers of trees and of leaves each whose leaf stage, gate included, takes at most so many bytes."""
    values = _NUMBER * (1 + n_scores)
    left = max_bytes - values - _NUMBER
    trees = [(left // ((leaves - 1) * _NODE + leaves * values + _ROOT), leaves) for leaves in LEAVES]
    shapes = [(int(np.clip(n_trees, 1, MAX_TREES)), leaves) for n_trees, leaves in trees if n_trees >= 1]
    if not shapes:
        min_bytes = values + _NUMBER + _NODE + 2 * values + _ROOT
        raise InvalidInputError(
            f"max_bytes must hold one tree of two leaves, {min_bytes} bytes for these labels; got {max_bytes}."
        )
    return shapes


def _confidence_threshold(doubt: Floats, share: float, weight: Floats) -> float:
    """Cut of the gate by confidence that sends this share of the rows: where ``ConfidenceRouter`` cuts."""
    threshold = threshold_curve(doubt, 0.0, 1.0, weight=weight).within(share).threshold
    # Finite thresholds for "no row" and "every row".
    return float(np.clip(threshold, -1e6, 1e6))
