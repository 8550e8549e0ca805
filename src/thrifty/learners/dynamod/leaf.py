"""Pairs (g, f1) over the leaves of a small ensemble (DynaMod-Lstsq), given by the user or grown here.

The ensemble is stored on a device and walked once per row; only the values of its leaves are learned. With ``phi(x)``
the leaves a row reaches,

    f1(x) = b1 + phi(x) v         g(x) = b0 + phi(x) u + m |f1(x)|

and the start ``v = the trees' own values, u = 0, m = -1`` is the gate by confidence, exactly. With several classes f1
and v have a column for each of them, and |f1| is the margin of the best score over the second.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from scipy.special import expit
from sklearn.frozen import FrozenEstimator

from thrifty.arrays import Floats, Ints
from thrifty.engine.full.crossfit import TrainingRows, cross_fit_full, fit_copy
from thrifty.engine.full.model import EstimatorFull, is_estimator
from thrifty.engine.tasks.classes import BinaryTask, MulticlassTask, class_task
from thrifty.engine.tasks.task import Task
from thrifty.engine.trees import bin_columns
from thrifty.engine.trees.other_libraries import AdditiveTrees, additive_trees
from thrifty.engine.walk.chain import Chain
from thrifty.engine.walk.stage import CHEAP, ConfidentStage, LeafStage
from thrifty.errors import InvalidInputError
from thrifty.learners.dynamod.boosted import boost_alone, boost_jointly
from thrifty.learners.dynamod.objective import DistanceName
from thrifty.learners.dynamod.ridge import (
    LeafDesign,
    LeafLeastSquares,
    LeafSoftmax,
    LeafWeights,
    ridge_logistic,
)
from thrifty.learners.dynamod.solution import Solution
from thrifty.learners.estimators.base import unwrap_frozen
from thrifty.learners.trees.boosting import Boosting

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
        found = ridge_logistic(
            self._design,
            target[:, 0],
            stays,
            self._ridge,
            offset=float(self._local.base[0]),
            centre=LeafWeights(self._own[:, 0], none),
            start=LeafWeights(self.cheap[:, 0], none),
        )
        return Solution(found.value.leaf[:, None], found.residual, found.n_iter, found.converged)

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


def as_local(local: Any, rows: TrainingRows, *, n_jobs: int | None = None) -> LocalTrees:
    """The user's small model: unchanged if it is fitted, else fitted and cross-fitted."""
    n_features = rows.X.shape[1]
    given = given_trees(local, n_features)
    if given is not None:
        _check_scores(given, unwrap_frozen(local), rows.task)
        return _with_log_odds(LocalTrees(given, given.scores(rows.X)), rows)
    judged = cross_fit_full(local, rows, n_jobs=n_jobs, name="the local model")
    assert isinstance(judged.model, EstimatorFull)  # what becomes of a recipe
    fitted = _trees_of(judged.model.estimator, n_features)
    _check_scores(fitted, judged.model.estimator, rows.task)
    # Of two classes a forest has the probability of the second, of several that of each.
    held_out = judged.outputs[:, -rows.task.n_scores :] if fitted.are_probabilities else judged.scores
    return _with_log_odds(LocalTrees(fitted, held_out), rows)


def trees_without(local: Any, rows: TrainingRows, train: Ints) -> AdditiveTrees:
    """The user's small model fitted on some of the rows; unchanged if it was fitted elsewhere."""
    given = given_trees(local, rows.X.shape[1])
    if given is None:
        given = _trees_of(fit_copy(local, rows, train), rows.X.shape[1])
    part = rows.take(train)
    return _with_log_odds(LocalTrees(given, given.scores(part.X)), part).model


def _check_scores(found: AdditiveTrees, model: Any, task: Task) -> None:
    if found.trees.n_outputs != task.n_scores:
        n_classes = found.trees.n_outputs if found.trees.n_outputs > 1 else 2
        raise InvalidInputError(
            f"the local model {type(model).__name__} answers with one of {n_classes} classes; y holds "
            f"{len(task.classes)}. Fit it on rows of all of them."
        )


def _with_log_odds(local: LocalTrees, rows: TrainingRows) -> LocalTrees:
    """Rescale summed probabilities to log-odds by a slope and shifts, as any decision values are."""
    if not local.model.are_probabilities:
        return local
    task = rows.task
    calibration = task.calibrate(local.held_out, rows.y, rows.weight)
    shift, end = (task.calibrated(np.full((1, task.n_scores), value), calibration)[0] for value in (0.0, 1.0))
    return LocalTrees(local.model.rescaled(end - shift, shift), task.calibrated(local.held_out, calibration))


def grow_local(
    boosting: Boosting, rows: TrainingRows, full: Floats, labels: Floats, gate_weight: float
) -> LocalTrees:
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
