"""DynaMod-Lin: the paper's Algorithm 1, a linear gate and a linear model on one sparse set of features.

The pair are weights of g and of f1 that share a sparse set of bought features (OPT4).
"""

from copy import copy
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from scipy import sparse
from scipy.special import expit

from thrifty.arrays import Floats, Ints
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.tasks.classes import soft_labels
from thrifty.engine.walk.stage import CHEAP, GATE, LinearStage
from thrifty.errors import InvalidInputError
from thrifty.learners.dynamod.alternating import Alternation, Fold
from thrifty.learners.dynamod.gated import (
    AlternatingEstimator,
    GatedClassifier,
    Learned,
    PairOptions,
    PairProblem,
    accept_former_settings,
)
from thrifty.learners.dynamod.group_lasso import LinearCoefficients, group_lasso
from thrifty.learners.dynamod.objective import (
    DistanceName,
    LogisticFit,
    SoftmaxFit,
    Solution,
    SquaredFit,
)
from thrifty.learners.estimators.checks import check_count


@dataclass(eq=False, repr=False)
class LinearOptions(PairOptions):
    """Settings of ``DynaModLinClassifier``.

    Parameters
    ----------
    distance, cross_fit
        As in ``PairOptions``.
    max_iter, tol : int, float, default=200, 1e-4
        Rounds of the alternation, and the decrease of the objective below which it stops.
    init : {"logistic", "gaussian"} or tuple of two arrays, default="logistic"
        Start of (g, f1): g = 0 and f1 an L2-regularised logistic regression, Gaussian noise, or given slopes,
        each followed by its intercept or not; of several classes f1 has a row of them for each class.
    n_init : int, default=1
        Number of starts; those after the first are Gaussian. The lowest objective is kept.
    refit : bool, default=False
        Once the columns are chosen, alternate again on them alone with no price to pay, only a ridge of
        C = 1: undoes the shrinkage that the choice cost f1 and g. Not in the paper.
    gate_reads_margin : bool, default=False
        After f1, learn the gate again with ``|f1|`` (of several classes: how far the best score leads the
        second) as a further column, which costs nothing. Lets
        a linear gate say "f1 is unsure here". The paper has it for its local gates only. The margins are those of
        the training rows: a linear f1 on few columns hardly overfits.
    standardize : bool, default=True
        Divide each column by its standard deviation while learning, so that the penalty treats
        them alike; the weights are given back on the original scale.
    l2 : float, default=1e-6
        Ridge on the slopes, which keeps them bounded where a free feature separates the classes.

    Examples
    --------
    >>> from thrifty import DynaModLinClassifier
    >>> from thrifty.learners.dynamod import LinearOptions
    >>> clf = DynaModLinClassifier(gamma=0.02, options=LinearOptions(refit=True))
    >>> clf.set_params(options__tol=1e-3).options
    LinearOptions(refit=True, tol=0.001)
    """

    max_iter: int = 200
    init: Any = "logistic"
    n_init: int = 1
    refit: bool = False
    gate_reads_margin: bool = False
    standardize: bool = True
    l2: float = 1e-6

    _amounts = ("l2", "tol")

    def check(self) -> None:
        """Refuse settings out of their range."""
        super().check()
        check_count("n_init", self.n_init)
        if isinstance(self.init, str) and self.init not in ("logistic", "gaussian"):
            raise InvalidInputError(
                f"init must be 'logistic', 'gaussian' or a tuple (g, f1) of slopes; got {self.init!r}."
            )


DEFAULT_GAMMA = 0.01
"""Weight of the prices, without a budget."""


@accept_former_settings
@dataclass(eq=False, repr=False)
class DynaModLinClassifier(GatedClassifier, AlternatingEstimator):
    """A linear gate and a linear classifier, of any number of classes, that share a sparse set of bought features.

    Minimises, by alternation, the paper's (OPT2)

        mean[(1 - q) l(f1) + q l(f0) + D(q, g)] + gamma sum_G c_G ||(g_G, f1_G)||

    over g, f1 and the shares q sent to f0, with mean(q) <= p_full. With several classes, f1 is a score for each of
    them, whose softmax are their probabilities, and the norm of a group holds its weights in all of them.

    Parameters
    ----------
    full : estimator, FrozenEstimator, callable, array or Chain, default=None
        The full model (f0). An unfitted classifier is cloned, fitted and cross-fitted; a fitted one goes into a
        ``FrozenEstimator`` and should not have seen the rows given to ``fit``. A function maps a table
        to probabilities of the second class; an array holds them for the rows given to ``fit``.
        None is boosted trees. A fitted system of ours becomes the tail of the chain.
    gamma : float, default=None
        Weight of the prices; larger buys fewer features. None follows from ``budget``, unless ``p_full`` is given: what
        the Lagrangian of (OPT1) charges for a unit of price, ``lambda (1 - mean(q))`` with the multiplier of the
        q-step. Columns and calls are then weighed out of fold, as with ``cross_fit`` of the options, which takes many
        times as long. Without a budget None is 0.01.
    p_full : float, default=None
        Cap on the mean share of rows sent to the full model while learning, (OPT2). Behind a chain, whose cost differs
        from row to row, the cap on the share of its spend. None is 0.3 without a budget; with one, what the budget
        leaves for calls once the gate and the cheap model have bought their columns, at each row's own price: (OPT1).
    feature_costs : array-like of shape (n_features,), number, dict by column name or Series, default=None
        Price per column; None is 1 each.
    prices : Prices or path, default=None
        All prices, instead of ``feature_costs``: groups, discounts, the price of a call of the full model and the
        columns that it reads; see ``thrifty.Prices``. Discounts are billed, but not learned with: the group lasso
        weighs every purchase by its full price.
    budget : float, default=None
        Mean cost per row: what is learned under, unless ``p_full`` is given, and what the gate's threshold lets the
        training rows spend at most. One below the price of the cheapest purchase is refused.
        None keeps the paper's rule, ``g > 0``. Under it few rows, or none, may be sent: ``g`` is the log-odds of the
        share q, whose mean is at most ``p_full``. Where the features do not tell which rows gain, or none does because
        f1 errs no more than f0, ``g`` is near ``log(p_full / (1 - p_full))`` everywhere, which is below 0 for
        a cap below 0.5. A budget sends the rows with the largest ``g``, positive or not; ``gate_reads_margin`` of the
        options lets ``g`` spread.
    options : LinearOptions, default=None
        How it learns: distance, cross-fitting, starts, a second fit on the chosen columns, rounds of the alternation;
        see ``thrifty.learners.dynamod.LinearOptions``.
    cv : int, splitter or iterable, default=5
        Folds in which an unfitted full model is cross-fitted; a number keeps equal rows in one fold.
    n_jobs : int, default=None
        Folds of the cross-fit that are fitted side by side, and threads of each library that the full model calls;
        None is 1, unless joblib is configured otherwise, and -1 is all cores that the process may use.
    random_state : int, RandomState or None, default=None
        Seeds folds and Gaussian starts.
    verbose : int, default=0
        1 prints a line whenever a phase of a fit ends, with the seconds since its start.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    chain_ : Chain
        What serves, at the operating point in force.
    evidence_ : Evidence
        What the stage and the full model did with the rows that operating points are evaluated on.
    frontier_ : Frontier
        Every operating point, on those rows.
    certificate_ : Certificate or None
        What ``certified`` proved.
    expected_cost_, expected_score_ : float
        Mean cost and accuracy of the operating point in force, on the rows of ``evidence_``.
    expected_cost_interval_, expected_score_interval_ : tuple of float
        Where the mean cost and the mean score of many new rows lie at that point, 19 times out of 20.
    features_ : ndarray
        Columns that the gate and the cheap model buy.
    gamma_ : float
        The weight of the prices in force.
    gate_coef_, cheap_coef_ : ndarray of shape (n_features,)
        Weights, exactly zero for features that are not bought; of several classes ``cheap_coef_`` has shape
        (n_classes, n_features).
    gate_intercept_, cheap_intercept_ : float
        Offsets; of several classes ``cheap_intercept_`` has shape (n_classes,).
    gate_margin_coef_ : float
        Weight of ``|f1|`` in the gate; 0 unless the options say ``gate_reads_margin``.
    threshold_ : float
        Rows with ``g > threshold_`` go to the full model.
    trace_ : ndarray of shape (n_rounds, 2)
        The objective after the q-step and after the pair-step of every round of the start that was kept;
        ``refit`` and ``gate_reads_margin`` come after it.
    excess_ : float
        Mean loss of the cheap model minus that of the full model, as learning sees it: on the rows of the fit, or, with
        ``cross_fit``, out of fold.
    n_iter_ : int
        Rounds of that start.
    objectives_ : ndarray of shape (n_init,)
        The objective each start ended with.
    kkt_residual_ : float
        How far the last pair-step of the trace is from optimal.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from thrifty import DynaModLinClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> f0 = make_pipeline(StandardScaler(), LogisticRegression())
    >>> clf = DynaModLinClassifier(f0, gamma=0.02, p_full=0.3, random_state=0).fit(X[:400], y[:400])
    >>> len(clf.features_) < 30, bool(clf.cost(X[400:]).mean() < 30)
    (True, True)
    """

    _accepts_several = True
    _options_class = LinearOptions

    _: KW_ONLY
    gamma: float | None = None

    def _check_against(self, prices: PriceList, budget: Any) -> None:
        super()._check_against(prices, budget)
        if not isinstance(self._options.init, str):
            _given_start(self._options.init, np.ones(prices.n_features))

    def _learn(self, problem: PairProblem) -> Learned:
        options = self._options
        X, scale = scaled(problem.rows.X, problem.rows.weight, options.standardize)
        runs = [
            self._alternate_linear(self._pair(start, problem.price_list, options.l2), X, problem)
            for start in self._starts(X, scale, problem)
        ]
        best = min(runs, key=lambda run: run.value.objective)
        self._report(best)
        self.objectives_ = np.array([run.value.objective for run in runs])
        self.kkt_residual_ = best.value.pair.solution.residual
        self.gamma_ = best.value.pair.charge
        extra: list[Solution[Any]] = []
        linear, margin = best.value.pair.linear, 0.0
        last = best
        if options.refit:
            linear, last = self._refitted(linear, X, problem)
            extra.append(last)
        if options.gate_reads_margin:
            linear, margin, gate_run = self._margin_gate(linear, X, problem)
            extra.append(gate_run)
        self._warn_unless_converged(best, *extra)
        coef = linear.coef / scale[:, None]
        self.gate_coef_, *cheap = coef.T.copy()
        self.gate_intercept_, *offsets = (float(value) for value in linear.intercept)
        is_binary = problem.rows.task.n_scores == 1
        self.cheap_coef_ = cheap[0] if is_binary else np.array(cheap)
        self.cheap_intercept_: float | Floats = offsets[0] if is_binary else np.array(offsets)
        self.gate_margin_coef_ = margin
        stage = replace(linear_stage(linear, scale), margin=margin)
        # No fold has a gate that reads margins.
        return Learned(stage) if options.gate_reads_margin else Learned.by(stage, last)

    def _pair(self, start: LinearCoefficients, prices: PriceList, l2: float) -> "LinearPair":
        gamma = DEFAULT_GAMMA if self.gamma is None else float(self.gamma)
        return LinearPair(gamma, prices, distance=self._options.distance, l2=l2, start=start)

    def _alternate_linear(
        self, pair: "LinearPair", X: Any, problem: PairProblem, chosen: Ints | None = None
    ) -> "Solution[Alternation[LinearPair]]":
        def without(train: Ints, out: Ints) -> Fold[LinearPair]:
            # Where a pair starts does not matter: each of its fits is convex.
            return Fold(copy(pair), X[train], train, out, lambda pair: pair.scores(X[out]))

        return self._alternate(pair, problem, X, without=without, chosen=chosen)

    def _refitted(
        self, chosen: LinearCoefficients, X: Any, problem: PairProblem
    ) -> "tuple[LinearCoefficients, Solution[Alternation[LinearPair]]]":
        """Run the alternation again on the chosen columns, now free."""
        columns = np.flatnonzero(np.any(chosen.coef != 0.0, axis=1))
        free = PriceList(np.zeros(len(columns)), np.arange(len(columns)))
        start = LinearCoefficients(chosen.coef[columns], chosen.intercept)
        pair = self._pair(start, free, 1.0 / problem.rows.weight.sum())
        run = self._alternate_linear(pair, X[:, columns], problem, columns)
        coef = np.zeros_like(chosen.coef)
        coef[columns] = run.value.pair.linear.coef
        return LinearCoefficients(coef, run.value.pair.linear.intercept), run

    def _margin_gate(
        self, chosen: LinearCoefficients, X: Any, problem: PairProblem
    ) -> "tuple[LinearCoefficients, float, Solution[Alternation[MarginGate]]]":
        """Learn the gate again, on the chosen columns and the margin of the fixed f1."""
        columns = np.flatnonzero(np.any(chosen.coef != 0.0, axis=1))
        f1 = chosen.scores(X)[:, CHEAP]
        margin = -problem.rows.task.uncertainty(f1)
        l2 = 1.0 / problem.rows.weight.sum()
        gate = MarginGate(f1, margin, self._options.distance, l2, n_columns=len(columns))
        run = self._alternate(gate, problem, gate.with_margin(X[:, columns]), chosen=columns)
        coef = chosen.coef.copy()
        coef[columns, GATE] = gate.linear.coef[:-1, 0]
        intercept = np.r_[gate.linear.intercept, chosen.intercept[CHEAP]]
        return LinearCoefficients(coef, intercept), gate.margin, run

    def _starts(self, X: Any, scale: Floats, problem: PairProblem) -> list[LinearCoefficients]:
        shape, options = (X.shape[1], 1 + problem.rows.task.n_scores), self._options
        noise = np.random.default_rng(problem.seed)
        starts = [
            LinearCoefficients(noise.normal(size=shape), np.zeros(shape[1])) for _ in range(options.n_init)
        ]
        if not isinstance(options.init, str):
            starts[0] = _given_start(options.init, scale)
            if starts[0].coef.shape != shape:
                raise InvalidInputError(
                    f"init must be a tuple (g, f1) whose f1 has {shape[1] - 1} rows of slopes for these classes; got "
                    f"{starts[0].coef.shape[1] - 1}."
                )
        elif options.init == "logistic":
            starts[0] = _logistic_start(X, problem)
        return starts


def _given_start(init: Any, scale: Floats) -> LinearCoefficients:
    try:
        gate, cheap = (np.asarray(part, dtype=np.float64) for part in init)
        # A row for each class, as in `cheap_coef_`; of two classes one row, however it is written.
        rows = cheap if cheap.ndim == 2 and len(cheap) > 2 and cheap.shape[1] > 1 else cheap.reshape(1, -1)
        slopes = np.column_stack([gate.reshape(-1), *rows])
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"init must be a tuple (g, f1) of slopes, one per column; got {init!r}."
        ) from None
    if len(slopes) not in (len(scale), len(scale) + 1):
        raise InvalidInputError(
            f"init must be a tuple (g, f1) of {len(scale)} slopes each, one per column, each with its intercept behind "
            f"them or not; got shape {slopes.T.shape}."
        )
    intercept = slopes[len(scale) :].sum(axis=0)
    return LinearCoefficients(slopes[: len(scale)] * scale[:, None], intercept)


def _logistic_start(X: Any, problem: PairProblem) -> LinearCoefficients:
    """``g = 0`` and f1 the L2-regularised logistic regression on all features, C = 1: the paper's start."""
    rows, total, n_features = problem.rows, problem.rows.weight.sum(), X.shape[1]
    fit = label_fit(rows.y, rows.weight / total, rows.task.n_scores)
    f1 = group_lasso(X, [fit], np.arange(n_features), np.ones(n_features), 0.0, l2=1.0 / total).value
    return LinearCoefficients(np.column_stack([np.zeros(n_features), f1.coef]), np.r_[0.0, f1.intercept])


def linear_stage(linear: LinearCoefficients, scale: Floats) -> LinearStage:
    """Stage that serves: the columns with a weight, on the original scale."""
    columns = np.flatnonzero(np.any(linear.coef != 0.0, axis=1))
    return LinearStage(columns, linear.coef[columns] / scale[columns, None], linear.intercept.copy())


def label_fit(y: Floats, weight: Floats, n_scores: int) -> LogisticFit | SoftmaxFit:
    """The fit of f1 to encoded targets: -1 to +1 for two classes, soft ones included, else numbers of classes."""
    if n_scores == 1:
        return LogisticFit(soft_labels(y), weight)
    return SoftmaxFit(np.equal.outer(np.arange(n_scores), y).astype(np.float64), weight)


class LinearPair:
    """Fits g and f1 given the shares sent on: paper (OPT4), each group weighted by its price.

        min_{g, f1}  mean[(1 - q) loss(y, f1(x)) + D(q, g(x))]  +  gamma sum_G c_G ||(g_G, f1_G)||

    For the KL distance the gate is a logistic regression on soft labels q; for the squared
    distance a least-squares fit to the log-odds of q. f1 has one score, or one for each of several classes, whose
    softmax are their probabilities; the group of a column is its weights in all of them. Intercepts are not penalised.

    Parameters
    ----------
    gamma : float
        Weight of the prices.
    price_list : PriceList
        Prices of the purchases; free ones are not penalised.
    distance : {"kl", "squared"}
        How the gate is compared with q.
    l2 : float
        Ridge on the slopes, which keeps free or separable directions bounded.
    start : LinearCoefficients
        Where to begin; its heads are g and the scores of f1.
    tol : float
        Tolerance of the group-lasso solver; ``solution`` holds its certificate.

    Attributes
    ----------
    charge : float
        Charge of the objective for a unit of price: gamma.
    """

    def __init__(
        self,
        gamma: float,
        price_list: PriceList,
        *,
        distance: DistanceName = "kl",
        l2: float = 0.0,
        start: LinearCoefficients,
        tol: float = 1e-8,
    ) -> None:
        self.charge = gamma
        self._prices = price_list
        self._distance = distance
        self._l2 = l2
        self._tol = tol
        self.solution: Solution[LinearCoefficients] = Solution(start, np.inf, 0, False)

    @property
    def linear(self) -> LinearCoefficients:
        """The current weights."""
        return self.solution.value

    @property
    def columns(self) -> Ints:
        """Columns with a non-zero weight in g or in f1."""
        return np.flatnonzero(np.any(self.linear.coef != 0.0, axis=1))

    def fit(self, X: Any, y: Floats, log_odds: Floats, weight: Floats) -> Self:
        """Solve OPT4 for the given shares, starting from the current weights."""
        q = expit(log_odds)
        gate = LogisticFit(q, weight) if self._distance == "kl" else SquaredFit(log_odds, weight)
        # expit(-t), not 1 - q: exact where q rounds to 1.
        cheap = label_fit(y, weight * expit(-log_odds), len(self.linear.intercept) - 1)
        self.solution = group_lasso(
            X,
            [gate, cheap],
            self._prices.group_of,
            self._prices.prices,
            self.charge,
            l2=self._l2,
            start=self.linear,
            tol=self._tol,
            max_iter=100,
        )
        return self

    def scores(self, X: Any) -> tuple[Floats, Floats]:
        """``(g, f1)`` for every row."""
        both = np.asarray(X @ self.linear.coef) + self.linear.intercept
        return both[:, GATE], both[:, CHEAP]

    def penalty(self) -> float:
        """``gamma sum_G c_G ||.|| + l2 / 2 ||.||^2`` at the current weights."""
        squares = np.sum(np.square(self.linear.coef), axis=1)
        per_group = np.bincount(self._prices.group_of, weights=squares, minlength=len(self._prices.prices))
        lasso = self.charge * float(self._prices.prices @ np.sqrt(per_group))
        return lasso + 0.5 * self._l2 * float(squares.sum())


def scaled(X: Any, weight: Floats, standardize: bool) -> tuple[Any, Floats]:
    """The table with every column divided by its standard deviation, and those deviations.

    Columns are not centred: the intercepts are free and absorb it, and a sparse table stays sparse.
    """
    if not standardize:
        return X, np.ones(X.shape[1])
    weight = weight / weight.sum()
    if sparse.issparse(X):
        mean = np.asarray(weight @ X).reshape(-1)
        square = np.asarray(weight @ X.multiply(X)).reshape(-1) - mean**2
    else:
        mean = weight @ X
        square = weight @ np.square(X - mean)
    deviation = np.sqrt(np.maximum(square, 0.0))
    # A constant column has no scale; rounding may leave it one of the order of its own last digit.
    scale = np.where(deviation > 1e-12 * np.maximum(np.abs(mean), 1e-300), deviation, 1.0)
    return (sparse.csr_array(X @ sparse.diags_array(1.0 / scale)) if sparse.issparse(X) else X / scale), scale


class MarginGate:
    """A gate that also reads the margin of a fixed f1: a pair of which only g is fitted.

    A linear gate cannot say "f1 is unsure here": that is a band around f1 = 0, and a linear function of the features
    is high on one side of it. One more column, ``|f1|`` or how far the best of several classes leads, lets it; the gate
    by confidence is the special case in which the other weights are zero.

    Parameters
    ----------
    f1 : ndarray of shape (n_samples, n_scores)
        Scores of the cheap model on the rows to be fitted.
    margin : ndarray of shape (n_samples,)
        How little the task doubts them.
    distance : {"kl", "squared"}
        How the gate is compared with q.
    l2 : float
        Ridge on the weights.
    n_columns : int
        Columns besides the margin. At the start g is minus the margin: the gate by confidence.
    """

    def __init__(
        self, f1: Floats, margin: Floats, distance: DistanceName, l2: float, *, n_columns: int
    ) -> None:
        self._f1 = f1
        self._margin = margin
        self._distance = distance
        self._l2 = l2
        self._scale = float(np.std(margin)) or 1.0
        coef = np.zeros((n_columns + 1, 1))
        coef[-1] = -self._scale
        self.linear = LinearCoefficients(coef, np.zeros(1))

    @property
    def margin(self) -> float:
        """Weight of the margin."""
        return float(self.linear.coef[-1, 0]) / self._scale

    def with_margin(self, X: Any) -> Any:
        """The table with the margin as its last column, on a scale like theirs."""
        column = self._margin[:, None] / self._scale
        return sparse.csr_array(sparse.hstack([X, column])) if sparse.issparse(X) else np.hstack([X, column])

    def fit(self, X: Any, y: Floats, log_odds: Floats, weight: Floats) -> Self:  # noqa: ARG002 - f1 is fixed
        """Fit g to the shares on a table that ends in the margin."""
        fit = LogisticFit(expit(log_odds), weight) if self._distance == "kl" else SquaredFit(log_odds, weight)
        alone = np.arange(X.shape[1])
        free = np.zeros(X.shape[1])
        self.linear = group_lasso(X, [fit], alone, free, 0.0, l2=self._l2, start=self.linear).value
        return self

    def scores(self, X: Any) -> tuple[Floats, Floats]:
        """``(g, f1)`` for every row."""
        return self.linear.scores(X)[:, 0], self._f1

    def penalty(self) -> float:
        """``l2 / 2 ||.||^2`` at the current weights."""
        return 0.5 * self._l2 * float(np.sum(np.square(self.linear.coef)))
