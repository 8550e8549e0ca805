"""DynaMod-Lstsq: the paper's Algorithm 3, for a small ensemble on a device and a large model behind a remote call."""

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from thrifty.arrays import Floats, Ints
from thrifty.engine.evidence.thresholds import threshold_curve
from thrifty.engine.full.crossfit import TrainingRows, held_out_rows
from thrifty.engine.prices.billing import PriceList, check_amount
from thrifty.engine.prices.prices import Prices
from thrifty.engine.tasks.classes import class_task
from thrifty.engine.trees.other_libraries import AdditiveTrees
from thrifty.engine.walk.stage import LeafStage
from thrifty.errors import InvalidInputError
from thrifty.learners.dynamod.alternating import Fold
from thrifty.learners.dynamod.gated import AlternatingEstimator, GatedClassifier, PairProblem
from thrifty.learners.dynamod.leaf import (
    LeafPair,
    LocalTrees,
    as_local,
    given_trees,
    grow_local,
    trees_without,
)
from thrifty.learners.dynamod.objective import check_distance
from thrifty.learners.dynamod.solution import warn_unless_converged
from thrifty.learners.estimators.base import unwrap_frozen
from thrifty.learners.estimators.checks import check_cap, check_count, check_share
from thrifty.learners.trees.boosting import Boosting

_NUMBER, _NODE, _ROOT = 8, 21, 4
"""Bytes of a number; of a node: column, threshold, where missing values go, two children; and of the root of a tree."""

LEAVES = (2, 4, 8, 16, 32, 64)
MAX_TREES = 200


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
        ``n_trees`` trees best-first, with at most ``max_leaves`` leaves each.
    p_full : float, default=None
        Share of rows allowed to reach the full model while the weights are learned; None is 0.3 without a budget, and
        what the budget allows with one, as in ``DynaModLinClassifier``. ``threshold_for`` sets the share that is really
        sent.
    cross_fit : bool, default=False
        As in ``DynaModLinClassifier``: a small model that is grown or fitted here is grown again for each fold; of one
        in a ``FrozenEstimator`` only the leaves are learned again.
    distance : {"squared", "kl"}, default="squared"
        How the gate is compared with the shares. "kl" is DynaMod-Lin over leaves.
    trust : float, default=0.5
        How far the full model's own belief, calibrated and out of fold, replaces the labels: 0 is the paper, 1 learns
        from it alone. One label is a noisy sign of where it is worth its price.
    ridge : float, default=20.0
        Rows' worth of pull that keeps leaf values near the start.
    n_trees, max_leaves, max_depth, learning_rate, min_child_weight : default=10, 32, 12, 0.6, 5.0
        Limits of the trees grown here; not used with ``local``.
    max_bytes : int, default=None
        Most bytes that the device has for trees, f1 and gate. Trees grown here then take the number and the size, among
        those that fit, that answer best on a fold of the rows, f1 and full model together; ``n_trees`` and
        ``max_leaves`` have no say. A ``local`` model that is larger is refused.
    gate_weight : float, default=1.0
        Weight of the gate's question in a split's gain while trees are grown here: they are grown for f1 and g at
        once. 0 grows them for f1 alone.
    max_iter, tol : int, float, default=50, 1e-4
        Rounds of the alternation, and the change of the objective below which it stops. No rounds are the gate
        by confidence, exactly.
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
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> full = make_pipeline(StandardScaler(), LogisticRegression())
    >>> clf = DynaModLstsqClassifier(full, n_trees=3, budget=0.2, random_state=0).fit(X[::2], y[::2])
    >>> bool(clf.score(X[1::2], y[1::2]) > 0.9), bool(clf.cost(X[1::2]).mean() < 0.3)  # the share of calls
    (True, True)
    """

    _accepts_several = True
    _accepts_missing = True
    _accepts_sparse = False
    _default_prices = Prices(0.0, full=1.0)

    full: Any = None
    local: Any = None
    _: KW_ONLY
    p_full: float | None = None
    distance: Literal["squared", "kl"] = "squared"
    cross_fit: bool = False
    trust: float = 0.5
    ridge: float = 20.0
    n_trees: int = 10
    max_leaves: int = 32
    max_depth: int = 12
    learning_rate: float = 0.6
    min_child_weight: float = 5.0
    max_bytes: int | None = None
    gate_weight: float = 1.0
    max_iter: int = 50
    tol: float = 1e-4
    feature_costs: Any = None
    prices: Any = None
    budget: float | None = None
    cv: Any = 5
    n_jobs: int | None = None
    random_state: Any = None
    verbose: int = 0

    def _check_parameters(self) -> None:
        check_cap(self.p_full)
        check_share("trust", self.trust, meaning="how far the full model's belief replaces the labels")
        check_distance(self.distance)
        check_count("n_trees", self.n_trees)
        check_count("max_leaves", self.max_leaves, min_value=2)
        check_count("max_depth", self.max_depth, max_value=12)
        check_count("max_iter", self.max_iter, min_value=0)
        if self.max_bytes is not None:
            check_count("max_bytes", self.max_bytes)
        for name in ("ridge", "learning_rate", "min_child_weight", "gate_weight", "tol"):
            check_amount(name, getattr(self, name))

    def _check_against(self, n_features: int, names: Any) -> None:  # noqa: ARG002 - trees have no names
        given_trees(self.local, n_features)

    def _least_price(self, prices: PriceList) -> float:
        given = given_trees(self.local, prices.n_features)
        if given is None:
            return super()._least_price(prices)
        return float(prices.cost_of(np.flatnonzero(given.trees.features_used)))

    def _other_models(self) -> list[Any]:
        return [*super()._other_models(), *([] if self.local is None else [unwrap_frozen(self.local)])]

    def _learn(self, problem: PairProblem) -> LeafStage:
        rows = problem.rows
        self.shape_ = self._shape(problem)
        local = self._local(problem)
        share = problem.share_at(self.p_full, np.flatnonzero(local.model.trees.features_used))
        threshold = _confidence_threshold(rows.task.uncertainty(local.held_out), share, rows.weight)
        pair = self._pair(local.model, rows, threshold)
        self.local_ = local.model
        if self.max_iter:
            self._alternate_leaves(pair, problem, threshold)
        stage = pair.stage()
        self.n_bytes_ = stage.n_bytes
        if self.max_bytes is not None and self.n_bytes_ > self.max_bytes:
            raise InvalidInputError(
                f"the local model takes {self.n_bytes_} bytes with a gate in its leaves; max_bytes is "
                f"{self.max_bytes}. Give a smaller one, or local=None to grow the best that fits."
            )
        return stage

    def _shape(self, problem: PairProblem) -> tuple[int, int] | None:
        """Numbers of trees and leaves: as given, or the best ones within ``max_bytes``."""
        if self.local is not None:
            return None
        if self.max_bytes is None:
            return self.n_trees, self.max_leaves
        shapes = shapes_within(self.max_bytes, problem.rows.task.n_scores)
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
        ridge = self.ridge / float(rows.weight.sum())
        return LeafPair(local, rows.X, self.distance, ridge, threshold, class_task(rows.task))

    def _local(self, problem: PairProblem) -> LocalTrees:
        if self.local is not None:
            return as_local(self.local, problem.rows, n_jobs=self.n_jobs)
        assert self.shape_ is not None  # trees that are grown here have one
        return self._grown(self.shape_, problem.rows, problem.full.scores, self._labels(problem))

    def _grown(self, shape: tuple[int, int], rows: TrainingRows, full: Floats, labels: Floats) -> LocalTrees:
        n_trees, max_leaves = shape
        boosting = Boosting(
            n_trees=n_trees,
            max_depth=self.max_depth,
            learning_rate=self.learning_rate,
            min_child_weight=self.min_child_weight,
            max_leaves=max_leaves,
        )
        return grow_local(boosting, rows, full, labels, float(self.gate_weight))

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

    def _alternate_leaves(self, pair: LeafPair, problem: PairProblem, threshold: float) -> None:
        rows = problem.rows
        labels = self._labels(problem)
        # Log-odds of f0 on the labels' own scale: calibrated where f0 is believed, its own where it is not.
        f0 = problem.full.calibrated_scores(rows) if self.trust else problem.full.scores
        targets = labels, rows.task.loss(labels).values(f0)
        without = partial(self._without, problem, threshold)
        run = self._alternate(pair, problem, without=without, chosen=pair.columns, targets=targets)
        self._out_of_fold = run.value.held_out
        self._report(run)
        self.residuals_ = np.array([solution.residual for solution in pair.solutions])
        if self.max_iter > 1:
            warn_unless_converged(run, self.tol)


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
