"""DynaMod-Lstsq: the paper's Algorithm 3, for a small ensemble on a device and a large model behind a remote call.

The pair (g, f1) is over the leaves of a small ensemble, given by the user or grown here, which is stored on a device
and walked once per row; only the values of its leaves are learned. With ``phi(x)`` the leaves a row reaches,

    f1(x) = b1 + phi(x) v         g(x) = b0 + phi(x) u + m |f1(x)|

and the start ``v = the trees' own values, u = 0, m = -1`` is the gate by confidence, exactly. With several classes f1
and v have a column for each of them, and |f1| is the margin of the best score over the second.
"""

from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from scipy.special import expit
from sklearn.frozen import FrozenEstimator

from thrifty.arrays import Floats, Ints
from thrifty.engine.evidence.thresholds import threshold_curve
from thrifty.engine.full.crossfit import TrainingRows, cross_fit_full, fit_copy, held_out_rows
from thrifty.engine.full.model import EstimatorFull, is_estimator
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.prices.prices import Prices
from thrifty.engine.tasks.classes import BinaryTask, MulticlassTask, class_task
from thrifty.engine.tasks.task import Task
from thrifty.engine.trees import bin_columns
from thrifty.engine.trees.other_libraries import AdditiveTrees, additive_trees
from thrifty.engine.walk.chain import Chain
from thrifty.engine.walk.stage import CHEAP, ConfidentStage, LeafStage
from thrifty.errors import InvalidInputError
from thrifty.learners.dynamod.alternating import Alternation, Fold
from thrifty.learners.dynamod.boosted import boost_alone, boost_jointly
from thrifty.learners.dynamod.gated import (
    AlternatingEstimator,
    GatedClassifier,
    Learned,
    PairOptions,
    PairProblem,
    accept_former_settings,
)
from thrifty.learners.dynamod.objective import DistanceName, Solution
from thrifty.learners.dynamod.ridge import (
    LeafDesign,
    LeafLeastSquares,
    LeafSoftmax,
    LeafWeights,
    ridge_logistic,
)
from thrifty.learners.estimators.base import unwrap_frozen
from thrifty.learners.estimators.checks import check_count, check_share
from thrifty.learners.trees.boosting import Boosting


@dataclass(eq=False, repr=False)
class LeafOptions(PairOptions):
    """Settings of ``DynaModLstsqClassifier``.

    Parameters
    ----------
    distance : {"squared", "kl"}, default="squared"
        How the gate is compared with the shares. "kl" is DynaMod-Lin over leaves.
    cross_fit : bool, default=False
        As in ``PairOptions``: a small model that is grown or fitted here is grown again for each fold; of one
        in a ``FrozenEstimator`` only the leaves are learned again.
    max_iter, tol : int, float, default=50, 1e-4
        Rounds of the alternation, and the change of the objective below which it stops. No rounds are the gate
        by confidence, exactly.
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
    """

    distance: DistanceName = "squared"
    ridge: float = 20.0
    n_trees: int = 10
    max_leaves: int = 32
    max_depth: int = 12
    learning_rate: float = 0.6
    min_child_weight: float = 5.0
    max_bytes: int | None = None
    gate_weight: float = 1.0

    _min_iter = 0
    _amounts = ("ridge", "learning_rate", "min_child_weight", "gate_weight", "tol")

    def check(self) -> None:
        """Refuse settings out of their range."""
        check_count("n_trees", self.n_trees)
        check_count("max_leaves", self.max_leaves, min_value=2)
        check_count("max_depth", self.max_depth, max_value=12)
        if self.max_bytes is not None:
            check_count("max_bytes", self.max_bytes)
        super().check()

    def boosting(self, n_trees: int, max_leaves: int) -> Boosting:
        """Settings of trees, so many of so many leaves."""
        return Boosting(
            n_trees=n_trees,
            max_depth=self.max_depth,
            learning_rate=self.learning_rate,
            min_child_weight=self.min_child_weight,
            max_leaves=max_leaves,
        )


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

    local: Any = None
    _: KW_ONLY
    trust: float = 0.5

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_share("trust", self.trust, meaning="how far the full model's belief replaces the labels")

    def _least_price(self, prices: PriceList) -> float:
        trees = given_trees(self.local, prices.n_features)
        if trees is None:
            return super()._least_price(prices)
        return float(prices.cost_of(np.flatnonzero(trees.trees.features_used)))

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
        if run is not None and options.max_iter > 1:
            self._warn_unless_converged(run)
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

    def _pair(self, local: AdditiveTrees, rows: TrainingRows, threshold: float) -> "LeafPair":
        ridge = self._options.ridge / float(rows.weight.sum())
        return LeafPair(local, rows.X, self._options.distance, ridge, threshold, class_task(rows.task))

    def _local(self, problem: PairProblem) -> "LocalTrees":
        if self.local is not None:
            return as_local(self.local, problem.rows, n_jobs=self.n_jobs)
        assert self.shape_ is not None  # trees that are grown here have one
        return self._grown(self.shape_, problem.rows, problem.full.scores, self._labels(problem))

    def _grown(
        self, shape: tuple[int, int], rows: TrainingRows, full: Floats, labels: Floats
    ) -> "LocalTrees":
        boosting = self._options.boosting(*shape)
        return grow_local(boosting, rows, full, labels, float(self._options.gate_weight))

    def _without(self, problem: PairProblem, threshold: float, train: Ints, out: Ints) -> "Fold[LeafPair]":
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
        self, pair: "LeafPair", problem: PairProblem, threshold: float
    ) -> "Solution[Alternation[LeafPair]]":
        rows = problem.rows
        labels = self._labels(problem)
        # Log-odds of f0 on the labels' own scale: calibrated where f0 is believed, its own where it is not.
        f0 = problem.full.calibrated_scores(rows) if self.trust else problem.full.scores
        targets = labels, rows.task.loss(labels).values(f0)
        without = partial(self._without, problem, threshold)
        run = self._alternate(pair, problem, without=without, chosen=pair.columns, targets=targets)
        self._report(run)
        self.residuals_ = np.array([solution.residual for solution in pair.solutions])
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


_PULLED = np.array([1.0, 0.0])  # the margin's weight towards its start; the constant is free


class LeafPair:
    """Fits what the leaves hold, given the shares sent on: (OPT7) for f1, then (OPT6) for g.

    Parameters
    ----------
    local : AdditiveTrees
        The given ensemble.
    X : ndarray of shape (n_samples, n_features)
        Training rows; ``fit`` and ``scores`` are about these very rows.
    distance : {"squared", "kl"}
        How the gate is compared with q; "kl" is DynaMod-Lin over leaves, a logistic regression instead of (OPT6).
    ridge : float
        Pull of f1's leaves towards the trees' own values, of the gate's towards zero and of the margin's weight
        towards -1, for weights that sum to 1.
    threshold : float
        Where confidence is cut at the start: rows with ``-|f1| > threshold`` are sent on.
    task : BinaryTask or MulticlassTask
        What f1 answers.
    """

    def __init__(
        self,
        local: AdditiveTrees,
        X: Floats,
        distance: DistanceName,
        ridge: float,
        threshold: float,
        task: BinaryTask | MulticlassTask,
    ) -> None:
        self._local, self._task = local, task
        self._distance = distance
        self._ridge = ridge
        self._design = LeafDesign(local.trees.apply(X), len(local.trees.values))
        self._own = local.trees.values
        self._start = LeafWeights(np.zeros(self._design.n_leaves), np.array([-1.0, -threshold]))
        self.cheap = self._own
        self.gate = self._start
        self._f1 = local.scores(X)
        self._squares: LeafLeastSquares | None = None
        self._softmax: LeafSoftmax | None = None
        self.solutions: tuple[Solution[Any], ...] = ()

    def fit(self, X: Any, y: Floats, log_odds: Floats, weight: Floats) -> Self:  # noqa: ARG002 - the rows are known
        """Solve (OPT7) and (OPT6) for targets of the task, soft ones included."""
        cheap = self._fit_cheap(self._task.distributions(y), log_odds, weight)
        self.cheap = cheap.value
        self._f1 = self._local.base + self._design.dot(self.cheap)
        gate = self._fit_gate(log_odds, weight)
        self.gate = gate.value
        self.solutions = (gate, cheap)
        return self

    def _fit_cheap(self, target: Floats, log_odds: Floats, weight: Floats) -> Solution[Floats]:
        """Values of the leaves for wanted probabilities, shape (n_leaves, n_scores)."""
        # expit(-t), not 1 - q: exact where q rounds to 1.
        stays = weight * expit(-log_odds)
        if self._task.n_scores > 1:
            if self._softmax is None:
                self._softmax = LeafSoftmax(self._design, weight, self._ridge, self._local.base, self._own)
            return self._softmax.solve(target, stays, self.cheap)
        none = np.empty(0)
        solution = ridge_logistic(
            self._design,
            target[:, 0],
            stays,
            self._ridge,
            offset=float(self._local.base[0]),
            centre=LeafWeights(self._own[:, 0], none),
            start=LeafWeights(self.cheap[:, 0], none),
        )
        values = solution.value.leaf[:, None]
        return Solution(values, solution.residual, solution.n_iter, solution.converged)

    def _fit_gate(self, log_odds: Floats, weight: Floats) -> Solution[LeafWeights]:
        dense = self._margin_columns()
        if self._distance == "squared":
            if self._squares is None:
                self._squares = LeafLeastSquares(self._design, weight, self._ridge)
            return self._squares.solve(log_odds, dense, self._start.dense, _PULLED)
        return ridge_logistic(
            self._design,
            expit(log_odds),
            weight,
            self._ridge,
            dense=dense,
            pulled=_PULLED,
            centre=self._start,
            start=self.gate,
        )

    @property
    def columns(self) -> Ints:
        """Columns that the trees look at."""
        return np.flatnonzero(self._local.trees.features_used)

    def scores(self, X: Any) -> tuple[Floats, Floats]:  # noqa: ARG002 - the rows are known
        """``(g, f1)`` of the training rows."""
        return self.gate.scores(self._design, self._margin_columns()), self._f1

    def scores_of(self, X: Floats) -> tuple[Floats, Floats]:
        """``(g, f1)`` of any rows."""
        design = LeafDesign(self._local.trees.apply(X), self._design.n_leaves)
        f1 = self._local.base + design.dot(self.cheap)
        return self.gate.scores(design, self._margin_columns(f1)), f1

    def _margin_columns(self, f1: Floats | None = None) -> Floats:
        f1 = self._f1 if f1 is None else f1
        return np.column_stack([-self._task.uncertainty(f1), np.ones(len(f1))])

    def penalty(self) -> float:
        """``ridge / 2`` times the squared distance of every pulled weight from its centre."""
        moved = (self.cheap - self._own).reshape(-1)
        away = np.r_[moved, self.gate.leaf, (self.gate.dense - self._start.dense) * _PULLED]
        return 0.5 * self._ridge * float(away @ away)

    def stage(self) -> LeafStage:
        """Stage that serves."""
        return leaf_stage(self._local, self.gate, self.cheap)


def leaf_stage(local: AdditiveTrees, gate: LeafWeights, cheap: Floats) -> LeafStage:
    """Stage of the given trees with new leaf values, over the columns they read."""
    trees = replace(local.trees, values=np.column_stack([gate.leaf, cheap]))
    columns = np.flatnonzero(trees.features_used)
    margin, constant = gate.dense
    return LeafStage(columns, trees.over_columns(columns), np.r_[constant, local.base], float(margin))


@dataclass(frozen=True)
class LocalTrees:
    """A small model and its scores on the training rows, out of fold where it was cross-fitted."""

    model: AdditiveTrees
    held_out: Floats


def given_trees(local: Any, n_features: int) -> AdditiveTrees | None:
    """Trees of a model fitted elsewhere, checked; None for an unfitted estimator."""
    is_recipe = local is None or (is_estimator(local) and not isinstance(local, FrozenEstimator))
    return None if is_recipe else _trees_of(unwrap_frozen(local), n_features)


def as_local(local: Any, rows: TrainingRows, *, n_jobs: int | None = None) -> "LocalTrees":
    """The user's small model: unchanged if it is fitted, else fitted and cross-fitted."""
    n_features = rows.X.shape[1]
    trees = given_trees(local, n_features)
    if trees is not None:
        _check_scores(trees, unwrap_frozen(local), rows.task)
        return _with_log_odds(LocalTrees(trees, trees.scores(rows.X)), rows)
    cross_fitted = cross_fit_full(local, rows, n_jobs=n_jobs, name="the local model")
    assert isinstance(cross_fitted.model, EstimatorFull)  # what becomes of a recipe
    fitted = _trees_of(cross_fitted.model.estimator, n_features)
    _check_scores(fitted, cross_fitted.model.estimator, rows.task)
    # Of two classes a forest has the probability of the second, of several that of each.
    held_out = (
        cross_fitted.outputs[:, -rows.task.n_scores :] if fitted.are_probabilities else cross_fitted.scores
    )
    return _with_log_odds(LocalTrees(fitted, held_out), rows)


def trees_without(local: Any, rows: TrainingRows, train: Ints) -> AdditiveTrees:
    """The user's small model fitted on some of the rows; unchanged if it was fitted elsewhere."""
    trees = given_trees(local, rows.X.shape[1])
    if trees is None:
        trees = _trees_of(fit_copy(local, rows, train), rows.X.shape[1])
    part = rows.take(train)
    return _with_log_odds(LocalTrees(trees, trees.scores(part.X)), part).model


def _check_scores(trees: AdditiveTrees, model: Any, task: Task) -> None:
    if trees.trees.n_outputs != task.n_scores:
        n_classes = max(trees.trees.n_outputs, 2)
        raise InvalidInputError(
            f"the local model {type(model).__name__} answers with one of {n_classes} classes; y holds "
            f"{len(task.classes)}. Fit it on rows of all of them."
        )


def _with_log_odds(local: LocalTrees, rows: TrainingRows) -> "LocalTrees":
    """Rescale summed probabilities to log-odds by a slope and shifts, as any decision values are."""
    if not local.model.are_probabilities:
        return local
    task = rows.task
    calibration = task.calibrate(local.held_out, rows.y, rows.weight)
    shift, end = (task.calibrated(np.full((1, task.n_scores), value), calibration)[0] for value in (0.0, 1.0))
    return LocalTrees(local.model.rescaled(end - shift, shift), task.calibrated(local.held_out, calibration))


def grow_local(
    boosting: Boosting, rows: TrainingRows, full: Floats, labels: Floats, gate_weight: float
) -> "LocalTrees":
    """Grow the small model for f1 and the gate at once.

    What sending a row on gains is ``P(f0 right) - P(f1 right)``: 0 where both answer alike, else the difference
    in the (soft or hard) label's probability of their answers. It needs an f1, so trees for f1 alone come first.
    """
    table = bin_columns(rows.X, rows.weight)
    loss = rows.task.loss(rows.y)
    trees, base = boost_alone(boosting, boosting.grower(table), loss, rows.weight)
    if gate_weight > 0.0:
        f1 = base + trees.predict_binned(table)
        gain = class_task(rows.task).gain_of(full, f1, labels)
        both, bases = boost_jointly(boosting, boosting.grower(table), loss, gain, gate_weight, rows.weight)
        trees, base = replace(both, values=both.values[:, CHEAP]), bases[CHEAP]
    model = AdditiveTrees(trees, base)
    return LocalTrees(model, model.scores(rows.X))


def _trees_of(model: Any, n_features: int) -> AdditiveTrees:
    """Trees of a model of another library or of thrifty."""
    chain = getattr(model, "chain_", None)
    stage = chain.stages[0] if isinstance(chain, Chain) and chain.stages else None
    if not isinstance(chain, Chain) or not isinstance(stage, ConfidentStage):
        return additive_trees(model, n_features)
    feature = np.asarray(stage.columns, dtype=np.int32)[stage.cheap.feature]
    trees = replace(stage.cheap, n_features=chain.price_list.n_features, feature=feature)
    return additive_trees(AdditiveTrees(trees, stage.base), n_features)
