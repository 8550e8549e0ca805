"""The linear pair: weights of g and of f1 that share a sparse set of bought features (OPT4)."""

from typing import Any, Self

import numpy as np
from scipy import sparse
from scipy.special import expit

from thrifty.arrays import Floats, Ints
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.tasks.classes import soft_labels
from thrifty.engine.walk.stage import CHEAP, GATE, LinearStage
from thrifty.learners.dynamod.group_lasso import LinearCoefficients, group_lasso
from thrifty.learners.dynamod.objective import DistanceName, LogisticFit, SoftmaxFit, SquaredFit
from thrifty.learners.dynamod.solution import Solution


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
    tol, max_iter
        Tolerance and rounds of the group-lasso solver; ``solution`` holds its certificate.
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
        max_iter: int = 100,
    ) -> None:
        self._gamma = gamma
        self._prices = price_list
        self._distance = distance
        self._l2 = l2
        self._tol = tol
        self._max_iter = max_iter
        self.solution: Solution[LinearCoefficients] = Solution(start, np.inf, 0, False)

    @property
    def linear(self) -> LinearCoefficients:
        """The current weights."""
        return self.solution.value

    @property
    def charge(self) -> float:
        """Charge of the objective for a unit of price: gamma."""
        return self._gamma

    @charge.setter
    def charge(self, charge: float) -> None:
        self._gamma = charge

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
            self._gamma,
            l2=self._l2,
            start=self.linear,
            tol=self._tol,
            max_iter=self._max_iter,
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
        lasso = self._gamma * float(self._prices.prices @ np.sqrt(per_group))
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
    """

    def __init__(self, f1: Floats, margin: Floats, distance: DistanceName, l2: float) -> None:
        self._f1 = f1
        self._margin = margin
        self._distance = distance
        self._l2 = l2
        self._scale = float(np.std(margin)) or 1.0
        self.linear = LinearCoefficients(np.zeros((0, 1)), np.zeros(1))

    @property
    def margin(self) -> float:
        """Weight of the margin."""
        return float(self.linear.coef[-1, 0]) / self._scale

    def with_margin(self, X: Any) -> Any:
        """The table with the margin as its last column, on a scale like theirs."""
        column = self._margin[:, None] / self._scale
        return sparse.csr_array(sparse.hstack([X, column])) if sparse.issparse(X) else np.hstack([X, column])

    def start(self, n_columns: int) -> Self:
        """Begin with the gate by confidence: g is minus the margin."""
        coef = np.zeros((n_columns + 1, 1))
        coef[-1] = -self._scale
        self.linear = LinearCoefficients(coef, np.zeros(1))
        return self

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
