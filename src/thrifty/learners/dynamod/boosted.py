"""DynaMod-Gbrt: the paper's Algorithm 2, a boosted gate and a boosted model on one set of bought features.

Given the shares q sent on, each round adds one tree to f1 and one to g. A tree fits the negative gradient of

    sum_i [(1 - q_i) loss(y_i, f1(x_i)) + D(q_i, g(x_i))]

and pays ``gamma * price`` for every feature that neither model has used before. The sum is over rows, not their mean:
with a mean, the gains of the paper's impurity would shrink with the square of the number of rows, and no value of gamma
in the range it sweeps would buy anything.

With ``gate_reads_score`` the gate is grown again with the scores of f1 as further columns, which cost nothing.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np
from scipy.special import expit, logit

from thrifty.arrays import Floats, Ints
from thrifty.engine.full.crossfit import held_out_rows
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.tasks.logistic import excess_loss, logistic_derivatives
from thrifty.engine.tasks.task import Loss, Task
from thrifty.engine.trees import BinnedTable, TreeEnsemble, bin_columns
from thrifty.engine.trees.binning import MAX_BINS
from thrifty.engine.walk.stage import CHEAP, GATE, BoostedStage
from thrifty.errors import InvalidInputError
from thrifty.learners.dynamod.alternating import Q_STEPS, Alternation, Fold
from thrifty.learners.dynamod.gated import (
    AlternatingEstimator,
    GatedClassifier,
    GatedRegressor,
    Learned,
    PairOptions,
    PairProblem,
    accept_former_settings,
)
from thrifty.learners.dynamod.objective import NEVER, DistanceName
from thrifty.learners.estimators.checks import check_count
from thrifty.learners.trees import EnsembleBuilder, TreeGrower
from thrifty.learners.trees.boosting import Boosting, counts_of


@dataclass(eq=False, repr=False)
class BoostedOptions(PairOptions):
    """Settings of the two DynaMod-Gbrt estimators.

    Parameters
    ----------
    distance, cross_fit
        As in ``PairOptions``.
    max_iter, tol : int, float, default=10, 1e-3
        Rounds of the alternation, and the change of the objective below which it stops. Trees are
        greedy, so the objective may rise; what is kept is the last round.
    n_trees : int, default=100
        Trees of g and of f1 each.
    max_depth : int, default=4
        Levels of splits, at most 12.
    learning_rate : float, default=0.1
        Factor on every leaf.
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
    """

    max_iter: int = 10
    tol: float = 1e-3
    n_trees: int = 100
    max_depth: int = 4
    learning_rate: float = 0.1
    step: Literal["gradient", "newton"] = "newton"
    l2: float = 1.0
    min_child_weight: float = 0.0
    min_child_samples: int = 1
    max_bins: int = 255
    gate_reads_score: bool = False

    _amounts = ("l2", "min_child_weight", "learning_rate", "tol")

    def check(self) -> None:
        """Refuse settings out of their range."""
        check_count("n_trees", self.n_trees)
        check_count("max_depth", self.max_depth, max_value=12)
        check_count("min_child_samples", self.min_child_samples)
        check_count("max_bins", self.max_bins, min_value=2, max_value=MAX_BINS)
        if self.step not in ("gradient", "newton"):
            raise InvalidInputError(f"step must be 'gradient' or 'newton'; got {self.step!r}.")
        super().check()

    def boosting(self) -> Boosting:
        """Settings of the trees."""
        return Boosting(
            n_trees=self.n_trees,
            max_depth=self.max_depth,
            learning_rate=self.learning_rate,
            step=self.step,
            l2=self.l2,
            min_child_weight=self.min_child_weight,
            min_child_samples=self.min_child_samples,
        )


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

    _: KW_ONLY
    gamma: float | None = None

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
            self._warn_unless_converged(run)
        stage = pair.stage()
        limit, extra = problem.limit_at(self.p_full, stage.columns)
        if options.gate_reads_score and np.all(np.greater(limit, 0)) and len(stage.columns):
            return Learned(self._with_score_reading_gate(stage, run.value, problem, limit, extra))
        return Learned.by(stage, run)

    def _with_score_reading_gate(
        self,
        stage: BoostedStage,
        last: "Alternation[BoostedPair]",
        problem: PairProblem,
        limit: Any,
        extra_cost: Floats | None,
    ) -> BoostedStage:
        """The stage with another gate, which reads f1's scores besides the bought features.

        f1's scores on its own training rows are too good: a gate that learned from them would trust f1 too much on
        new rows. So f1 is regrown on the bought features once per fold, each row is scored by an f1 that has not seen
        it, and both the shares and the gate are learned from those scores.
        """
        rows, options, boosting = problem.rows, self._options, self._options.boosting()
        counts, stays, block = rows.weight, expit(-last.log_odds), rows.X[:, stage.columns]
        held_out = np.empty((len(block), rows.task.n_scores))
        levels = np.flatnonzero(np.isin(stage.columns, self._categorical)).tolist()
        table = bin_columns(block, counts, levels, max_bins=options.max_bins)
        for fold in held_out_rows(rows):
            out = np.zeros(len(block), dtype=bool)
            out[fold] = True
            grower, loss = boosting.grower(table.take(~out)), rows.task.loss(rows.y[~out])
            trees, base = boost_alone(boosting, grower, loss, counts[~out], stays[~out])
            held_out[out] = base + trees.predict_binned(table.take(out))
        excess = excess_loss(rows.task.loss(rows.y).values(held_out), problem.full.loss(rows.y))
        g, _ = last.pair.scores(None)
        q_step = Q_STEPS[options.distance]
        shares = q_step(excess, g, limit, extra_cost=extra_cost, sample_weight=counts).value
        table = bin_columns(np.column_stack([block, held_out]), counts, levels, max_bins=options.max_bins)
        gate, base = boost_alone(boosting, boosting.grower(table), GateLoss(options.distance, shares), counts)
        base = np.r_[base, stage.base[CHEAP]]
        return BoostedStage(stage.columns, gate, stage.cheap, base, gate_reads_score=True)


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
        The full model (f0). An unfitted regressor is cloned, fitted and cross-fitted; None is
        boosted trees or, for the absolute error, a ``HistGradientBoostingRegressor``.
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
    def charge(self) -> float:
        """Charge of the objective, a mean over rows, for a unit of price."""
        return self._grower.gamma / self._total

    @charge.setter
    def charge(self, charge: float) -> None:
        self._grower.gamma = charge * self._total

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
        self._grower.reset()
        counts = counts_of(weight, self._total)
        stays = expit(-log_odds)
        of_label, of_gate = self._task.loss(y), GateLoss(self._distance, log_odds)
        is_shut = bool(np.all(log_odds <= NEVER))
        self.base = np.r_[of_gate.base(counts), of_label.base(counts * stays)]
        g, self._f1 = (np.tile(self.base[some], (len(y), 1)) for some in (slice(GATE + 1), CHEAP))
        gate = EnsembleBuilder(self.gate.n_features)
        cheap = EnsembleBuilder(self.gate.n_features, self._task.n_scores)
        add_tree, each = self._boosting.add_tree, stays[:, None]
        for _ in range(self._boosting.n_trees):
            grad, curvature = of_label.derivatives(self._f1)
            add_tree(self._grower, cheap, (each * grad, each * curvature), counts, self._f1)
            if not is_shut:
                add_tree(self._grower, gate, of_gate.derivatives(g), counts, g)
        self._g, self.cheap, self.gate = g[:, 0], cheap.ensemble(), gate.ensemble()
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
        """Stage that serves."""
        columns = self.columns
        return BoostedStage(
            columns, self.gate.over_columns(columns), self.cheap.over_columns(columns), self.base
        )


def boost_alone(
    boosting: Boosting,
    grower: TreeGrower,
    loss: "Loss | GateLoss",
    counts: Floats,
    stays: Floats | None = None,
) -> tuple[TreeEnsemble, Floats]:
    """Grow f1 or the gate alone, each row weighted by the share of it that stays, by default all."""
    base = loss.base(counts if stays is None else counts * stays)
    score, builder = np.tile(base, (len(counts), 1)), EnsembleBuilder(grower.table.n_features, len(base))
    if stays is None:
        boosting.add_trees(grower, builder, loss, counts, score, boosting.n_trees)
        return builder.ensemble(), base
    each = stays[:, None]
    for _ in range(boosting.n_trees):
        grad, curvature = loss.derivatives(score)
        boosting.add_tree(grower, builder, (each * grad, each * curvature), counts, score)
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
class GateLoss:
    """The distance between the shares with some log-odds and one score per row."""

    distance: DistanceName
    log_odds: Floats

    def derivatives(self, scores: Floats) -> tuple[Floats, Floats]:
        """Gradient and hessian, each of shape (n_rows, 1)."""
        if self.distance == "squared":
            return 2.0 * (scores - self.log_odds[:, None]), np.full_like(scores, 2.0)
        gradient, hessian = logistic_derivatives(expit(self.log_odds), scores[:, 0])
        return gradient[:, None], hessian[:, None]

    def base(self, weight: Floats) -> Floats:
        """The best constant gate."""
        if self.distance == "squared":
            return np.array([np.average(self.log_odds, weights=weight)])
        share = np.average(expit(self.log_odds), weights=weight)
        return np.array([np.clip(logit(share), NEVER, -NEVER)])
