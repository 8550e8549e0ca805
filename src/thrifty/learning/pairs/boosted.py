"""The boosted pair: trees of f1 and of g in turn, over one set of bought features (Algorithm 2).

Given the shares q sent on, each round adds one tree to f1 and one to g. A tree fits the negative
gradient of

    sum_i [(1 - q_i) loss(y_i, f1(x_i)) + D(q_i, g(x_i))]

and pays ``gamma * price`` for every feature that neither model has used before. The sum is over rows,
not their mean: with a mean, the gains of the paper's impurity would shrink with the square of the number of rows,
and no value of gamma in the range it sweeps would buy anything.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.special import expit, logit

from thrifty.arrays import Bools, Floats, Ints
from thrifty.chain.stage import CHEAP, GATE, BoostedStage
from thrifty.objective.costs import PriceList
from thrifty.objective.distances import DISTANCES, NEVER, DistanceName
from thrifty.tasks.logistic import LogisticLoss
from thrifty.tasks.task import Loss, Task
from thrifty.trees import (
    BinnedTable,
    EnsembleBuilder,
    GrownTree,
    TreeEnsemble,
    TreeGrower,
    derivatives_along,
)
from thrifty.trees.derivatives import round_to
from thrifty.trees.gradients import CURVATURE_BITS, GRADIENT_BITS, WIDE_ROWS
from thrifty.trees.grow import Step

__all__ = [
    "BoostedPair",
    "Boosting",
    "boost_gate",
    "boost_jointly",
    "boost_labels",
    "counts_of",
]


MOST_SUMMED = 2
"""Outputs of a tree whose gains are summed over outputs; with more, a tree is split along a random direction."""

MOST_STEP = 2.0
"""Largest value of a leaf of many outputs, before the learning rate."""


@dataclass(frozen=True)
class Boosting:
    """How trees are grown.

    Attributes
    ----------
    n_trees : int
        Trees of each model.
    max_depth, learning_rate, l2, min_child_weight, min_child_samples, max_leaves
        Limits of each tree; without ``max_leaves`` only the depth limits it.
    step : {"gradient", "newton"}
        Least squares on the gradient, as in the paper, or leaves that divide by the curvature.
    """

    n_trees: int = 100
    max_depth: int = 4
    learning_rate: float = 0.1
    step: Step = "newton"
    l2: float = 1.0
    min_child_weight: float = 0.0
    min_child_samples: int = 1
    max_leaves: int | None = None

    def grower(
        self, table: BinnedTable, price_list: PriceList | None = None, gamma: float = 0.0
    ) -> TreeGrower:
        """A grower with these limits; without a price list everything is free."""
        return TreeGrower(
            table,
            max_depth=self.max_depth,
            max_leaves=self.max_leaves,
            # Least squares on the gradient has unit weights, so a ridge of l2 would count rows, not curvature.
            l2=self.l2 if self.step == "newton" else 0.0,
            min_child_weight=self.min_child_weight,
            min_child_samples=self.min_child_samples,
            gamma=gamma,
            prices=None if price_list is None else price_list.prices,
            group_of=None if price_list is None else price_list.group_of,
            prices_after=None if price_list is None else price_list.prices_after,
        )

    def add_trees(
        self,
        grower: TreeGrower,
        builder: EnsembleBuilder,
        loss: Loss,
        counts: Floats,
        score: Floats,
        n_trees: int,
        drawn: Bools | None = None,
    ) -> None:
        """Grow several trees, each from the scores that the last one left, and keep them in ``builder``.

        Parameters
        ----------
        loss : Loss
            Whose derivatives are followed; in one compiled call where that knows them.
        counts : ndarray of shape (n_rows,)
            Weights.
        score : ndarray of shape (n_rows, n_scores)
            Scores, which are updated in place.
        drawn : ndarray of bool of shape (n_trees, n_rows), optional
            Rows that each tree is grown on.
        """
        formula = getattr(loss, "formula", None)
        constant = self.step == "gradient" and drawn is None and bool(np.all(counts == 1.0))
        if formula is not None and grower.takes_formulas(constant=constant):
            grower.add_trees(
                builder,
                score,
                formula,
                counts,
                n_trees=n_trees,
                drawn=drawn,
                step=self.step,
                learning_rate=self.learning_rate,
            )
            return
        for tree in range(n_trees):
            used = counts if drawn is None else counts * drawn[tree]
            self.add_tree(grower, builder, loss.derivatives(score), used, score)

    def add_tree(
        self,
        grower: TreeGrower,
        builder: EnsembleBuilder,
        derivatives: tuple[Floats, Floats],
        counts: Floats,
        score: Floats,
    ) -> None:
        """Grow one tree, keep it in ``builder`` and add it to the scores in place; parameters as in ``grow_tree``."""
        grad, hess = self._weighted(*derivatives, counts)
        if builder.n_outputs <= MOST_SUMMED:
            grower.add_tree(builder, score, grad, hess, learning_rate=self.learning_rate)
            return
        direction = _direction(grad, counts, seed=[builder.n_features, builder.n_trees])
        rate = {"learning_rate": self.learning_rate, "most_step": MOST_STEP}
        one_grad, one_hess = derivatives_along(direction, grad, hess)
        if not np.all(counts == 1.0):
            one_grad = _rounded_alone(one_grad, counts, GRADIENT_BITS)
            one_hess = None if one_hess is None else _rounded_alone(one_hess, counts, CURVATURE_BITS)
        grower.add_tree_along((one_grad, one_hess), builder, score, grad, hess, **rate)

    def grow_tree(self, grower: TreeGrower, grad: Floats, curvature: Floats, counts: Floats) -> GrownTree:
        """Grow one tree.

        ``grad`` and ``curvature`` are derivatives of the unweighted loss, shape (n_rows,) or (n_rows, n_outputs).
        """
        return grower.grow(*self._weighted(grad, curvature, counts), learning_rate=self.learning_rate)

    def _weighted(self, grad: Floats, curvature: Floats, counts: Floats) -> tuple[Floats, Floats | None]:
        grad = weighted_on_grid(grad, counts, GRADIENT_BITS)
        if self.step == "newton":
            return grad, weighted_on_grid(curvature, counts, CURVATURE_BITS)
        if np.all(counts == 1.0):
            return grad, None
        return grad, np.broadcast_to(counts.reshape(-1, *([1] * (grad.ndim - 1))), grad.shape)


def _direction(grad: Floats, counts: Floats, seed: list[int]) -> Floats:
    """A random direction of the outputs, of length one, that goes far in those with large gradients.

    Classes that are told apart already, and rare ones, would else take as many splits as those that matter.
    """
    # Gradients are weighted already; their squares are weighted once, so that a row of weight two is two rows.
    size = np.sqrt((np.square(grad) / np.where(counts > 0.0, counts, 1.0)[:, None]).sum(axis=0))
    # To a quarter of a power of two: the last digits of a sum depend on the order of the rows, and no tree should.
    with np.errstate(divide="ignore"):
        size = np.exp2(np.round(4 * np.log2(size)) / 4)
    direction: Floats = np.random.default_rng(seed).normal(size=len(size)) * size
    length = float(np.sqrt(np.square(direction).sum()))
    return direction / length if length > 0 else np.full(len(size), len(size) ** -0.5)


class BoostedPair:
    """Regrows both ensembles from nothing for the given shares; starts with g = 0 and f1 = GreedyMiser.

    Parameters
    ----------
    table : BinnedTable
        Training rows; ``fit`` and ``scores`` expect this very table.
    price_list : PriceList
        Prices of the purchases.
    gamma : float
        Gain that one unit of price must bring.
    boosting : Boosting
        How trees are grown.
    task : Task
        What f1 answers.
    distance : {"kl", "squared"}
        How the gate is compared with q.
    total : float, optional
        What the weights sum to on the user's scale, which is that of gamma and l2; default the number of rows.
    """

    def __init__(
        self,
        table: BinnedTable,
        price_list: PriceList,
        gamma: float,
        boosting: Boosting,
        task: Task,
        distance: DistanceName = "kl",
        *,
        total: float | None = None,
    ) -> None:
        self._total = float(table.n_rows if total is None else total)
        self._boosting = boosting
        self._task = task
        self._distance = distance
        self._prices = price_list
        self._grower = boosting.grower(table, price_list, gamma)
        n_scores = task.n_scores
        self._g, self._f1 = np.zeros(table.n_rows), np.zeros((table.n_rows, n_scores))
        self.base = np.zeros(1 + n_scores)
        self.gate = TreeEnsemble.empty(table.n_features)
        self.cheap = TreeEnsemble.empty(table.n_features, n_scores)

    @property
    def columns(self) -> Ints:
        """Columns that g or f1 looks at."""
        return np.flatnonzero(self.gate.features_used | self.cheap.features_used)

    def start(self, y: Floats, weight: Floats) -> Self:
        """Set f1 to GreedyMiser's and g to 0: where the paper's alternation begins."""
        self.fit(None, y, np.full(len(y), NEVER), weight)
        self.gate = TreeEnsemble.empty(self.gate.n_features)
        self.base = np.r_[0.0, self.base[CHEAP]]
        self._g = np.zeros(len(y))
        return self

    def fit(self, X: Any, y: Floats, log_odds: Floats, weight: Floats) -> Self:  # noqa: ARG002 - the table is known
        """Grow f1 and g in turn, from nothing, for the shares with these log-odds."""
        self._grower.reset(bought=())
        counts = counts_of(weight, self._total)
        stays = expit(-log_odds)
        of_label, of_gate = self._task.loss(y), _gate_loss(self._distance, log_odds)
        is_shut = bool(np.all(log_odds <= NEVER))
        self.base = np.r_[_gate_base(self._distance, log_odds, counts), of_label.base(counts * stays)]
        self._g, self._f1 = np.full(len(y), self.base[GATE]), np.tile(self.base[CHEAP], (len(y), 1))
        gate = EnsembleBuilder(self.gate.n_features)
        cheap = EnsembleBuilder(self.gate.n_features, self._task.n_scores)
        add_tree, each = self._boosting.add_tree, stays[:, None]
        for _ in range(self._boosting.n_trees):
            grad, curvature = of_label.derivatives(self._f1)
            add_tree(self._grower, cheap, (each * grad, each * curvature), counts, self._f1)
            if not is_shut:
                add_tree(self._grower, gate, of_gate.derivatives(self._g), counts, self._g)
        self.cheap, self.gate = cheap.ensemble(), gate.ensemble()
        return self

    def scores(self, X: Any) -> tuple[Floats, Floats]:  # noqa: ARG002 - the table is known
        """``(g, f1)`` of the training rows, of shapes (n_rows,) and (n_rows, n_scores)."""
        return self._g, self._f1

    def scores_of(self, table: BinnedTable) -> tuple[Floats, Floats]:
        """``(g, f1)`` of any rows with the same bins."""
        g = self.base[GATE] + self.gate.predict_binned(table)[:, 0]
        return g, self.base[CHEAP] + self.cheap.predict_binned(table)

    def penalty(self) -> float:
        """``gamma`` times the price of what was bought, on the scale of a mean over rows."""
        spent = self._prices.cost_of(np.flatnonzero(self._grower.bought_columns))
        return self._grower.gamma * spent / self._total

    def stage(self) -> BoostedStage:
        """What serves."""
        columns = self.columns
        return BoostedStage(
            columns, self.gate.over_columns(columns), self.cheap.over_columns(columns), self.base
        )


def weighted_on_grid(values: Floats, counts: Floats, bits: int) -> Floats:
    """Values, weighted, rounded before to a power of two so coarse that the grower can sum them without more rounding.

    The grower rounds each row's weighted derivative. Two splits that tie would be told apart by those roundings, and
    a row of weight two would round otherwise than two rows of weight one; rounded before they are
    weighted, they do not.
    """
    if len(values) > WIDE_ROWS:
        return (counts * values.T).T
    # By output, each in one piece: so the grower takes them as they are.
    weighted = np.empty(values.shape, order="F")
    if values.size == len(values):
        round_to(values.reshape(-1), counts, bits - 2, weighted.reshape(-1))
        return weighted
    for column, out in zip(
        values.T.reshape(-1, len(values)), weighted.T.reshape(-1, len(values)), strict=True
    ):
        round_to(np.ascontiguousarray(column), counts, bits - 2, out)
    return weighted


def _rounded_alone(values: Floats, counts: Floats, bits: int) -> Floats:
    """Weighted derivatives of one output, rounded as the grower rounds those of a row of weight one, times the weight.

    Combinations of rounded derivatives are not round, and the grower would round them weight and all.
    """
    if len(counts) > WIDE_ROWS:
        return values
    unit = np.ldexp(1.0, int(np.frexp(np.abs(values).sum())[1]) + 1 - bits)
    alone = values / np.where(counts > 0.0, counts, 1.0) / unit
    whole = np.trunc(alone + np.copysign(0.5, alone))
    if bits == CURVATURE_BITS:  # a row with any curvature has at least a unit of it
        whole = np.maximum(whole, alone > 0.0)
    weighted: Floats = whole * unit * counts
    return weighted


def counts_of(weight: Floats, total: float) -> Floats:
    """Weights that sum to ``total``; exactly one each where they are all alike and as many as that."""
    if total == len(weight) and np.all(weight == weight[0]):
        return np.ones(len(weight))
    counts: Floats = weight * (total / weight.sum())
    return counts


def boost_labels(
    boosting: Boosting, grower: TreeGrower, loss: Loss, counts: Floats, stays: Floats
) -> tuple[TreeEnsemble, Floats]:
    """Grow f1 alone, each row weighted by the share of it that stays."""
    base = loss.base(counts * stays)
    score, builder = np.tile(base, (len(counts), 1)), EnsembleBuilder(grower.table.n_features, len(base))
    each = stays[:, None]
    for _ in range(boosting.n_trees):
        grad, curvature = loss.derivatives(score)
        boosting.add_tree(grower, builder, (each * grad, each * curvature), counts, score)
    return builder.ensemble(), base


def boost_gate(
    boosting: Boosting, grower: TreeGrower, distance: DistanceName, log_odds: Floats, counts: Floats
) -> tuple[TreeEnsemble, float]:
    """Grow the gate alone for the given shares."""
    base = _gate_base(distance, log_odds, counts)
    score, loss = np.full(len(log_odds), base), _gate_loss(distance, log_odds)
    builder = EnsembleBuilder(grower.table.n_features)
    for _ in range(boosting.n_trees):
        boosting.add_tree(grower, builder, loss.derivatives(score), counts, score)
    return builder.ensemble(), base


def boost_jointly(
    boosting: Boosting, grower: TreeGrower, loss: Loss, gain: Floats, gate_weight: float, counts: Floats
) -> tuple[TreeEnsemble, Floats]:
    """Grow one ensemble for two questions: the label, and what sending a row on would gain.

        min over trees with two values a leaf   sum_i [ loss(y_i, f1(x_i)) + gate_weight / 2 (gain_i - h(x_i))^2 ]

    A split is worth the sum of what it gains for both, so that f1 and a gate can share every node. Newton steps.

    Returns
    -------
    trees : TreeEnsemble
        Outputs h, then those of f1.
    base : ndarray of shape (1 + n_scores,)
        Their scores before any tree.
    """
    base = np.r_[np.average(gain, weights=counts), loss.base(counts)]
    score = np.tile(base, (len(gain), 1))
    flat = np.full(len(gain), gate_weight)
    builder = EnsembleBuilder(grower.table.n_features, len(base))
    for _ in range(boosting.n_trees):
        h, f1 = score[:, GATE], score[:, CHEAP]
        gradient, hessian = loss.derivatives(f1)
        derivatives = np.column_stack([gate_weight * (h - gain), gradient]), np.column_stack([flat, hessian])
        boosting.add_tree(grower, builder, derivatives, counts, score)
    return builder.ensemble(), base


@dataclass(frozen=True)
class _SquaredLoss:
    """The squared distance of log-odds."""

    log_odds: Floats

    def derivatives(self, score: Floats) -> tuple[Floats, Floats]:
        return DISTANCES["squared"].grad_gate(self.log_odds, score), np.full(len(score), 2.0)


def _gate_loss(distance: DistanceName, log_odds: Floats) -> LogisticLoss | _SquaredLoss:
    return LogisticLoss(expit(log_odds)) if distance == "kl" else _SquaredLoss(log_odds)


def _gate_base(distance: DistanceName, log_odds: Floats, counts: Floats) -> float:
    """The best constant gate."""
    if distance == "squared":
        return float(np.average(log_odds, weights=counts))
    return float(np.clip(logit(np.average(expit(log_odds), weights=counts)), NEVER, -NEVER))
