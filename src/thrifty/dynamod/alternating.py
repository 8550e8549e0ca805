"""The outer loop of the paper's Algorithms 1 to 3: shares, then the pair, until nothing moves.

    min_{f1, g, q}  mean[(1 - q) l(f1) + q l(f0) + D(q, g)] + Omega(f1, g)
    subject to      mean(w q) <= limit                                      (OPT2; OPT1 with prices w)

Each half-step minimises the same objective over some of its variables, so the objective never
rises as long as the pair's own fit does not raise it: exact for linear pairs, approximate for trees.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
from scipy.special import expit

from thrifty.arrays import Floats
from thrifty.dynamod.distances import DISTANCES, NEVER, Distance, DistanceName, check_distance
from thrifty.dynamod.qstep import q_step_kl, q_step_squared
from thrifty.dynamod.solution import Solution
from thrifty.errors import InvalidInputError
from thrifty.tasks.losses import excess_loss
from thrifty.tasks.task import Task
from thrifty.trees.boosting import Loss

__all__ = ["Alternation", "AnyPair", "Limit", "Pair", "QStep", "Round", "alternate"]


class Pair(Protocol):
    """A gate and a cheap model that share what they buy, while they are being fitted."""

    def fit(self, X: Any, y: Floats, log_odds: Floats, weight: Floats) -> Self:
        """Fit to encoded targets ``y``, soft ones included, and to shares sent on, given by their log-odds.

        ``weight`` sums to 1. May start from its last state.
        """

    def scores(self, X: Any) -> tuple[Floats, Floats]:
        """``(g, f1)``, of shapes (n_samples,) and (n_samples, n_scores)."""

    def penalty(self) -> float:
        """What is paid for complexity, the paper's Omega(f1, g) times gamma."""


AnyPair = TypeVar("AnyPair", bound=Pair)

Limit = float | Callable[[Any], tuple[float, Floats]]
"""A cap on the spend on calls; or the cap and the price of each row's call, of a pair, or of None at the start."""


class QStep(Protocol):
    """Shares of the rows that are best for a pair: ``argmin_q mean[(1 - q) excess + D(q, g)]`` under the limit."""

    def __call__(
        self,
        excess: Floats,
        g: Floats,
        limit: float,
        *,
        extra_cost: Floats | None = None,
        sample_weight: Floats | None = None,
    ) -> Solution[Floats]:
        """Log-odds of the shares, with ``mean(extra_cost * q) <= limit``."""


Q_STEPS: dict[DistanceName, QStep] = {"kl": q_step_kl, "squared": q_step_squared}


@dataclass(frozen=True)
class Round:
    """One round of the alternation: the objective after each of its half-steps, and the mean share sent."""

    after_shares: float
    after_pair: float
    share: float


@dataclass(frozen=True)
class Alternation(Generic[AnyPair]):
    """Where the loop ended and how it got there.

    Attributes
    ----------
    pair : Pair
        The pair, fitted.
    log_odds : ndarray of shape (n_samples,)
        Log-odds of the last shares.
    rounds : tuple of Round
        What each round did.
    excess : float
        Mean of ``l(f1) - l(f0)``, as the next q-step would see it.
    held_out : tuple of two ndarrays, optional
        ``(g, f1)`` out of fold, if the pair was cross-fitted.
    """

    pair: AnyPair
    log_odds: Floats
    rounds: tuple[Round, ...]
    excess: float
    held_out: tuple[Floats, Floats] | None = None

    @property
    def objective(self) -> float:
        """The last objective."""
        return self.rounds[-1].after_pair


@dataclass(frozen=True)
class Problem:
    """Everything of the objective that stays fixed while the loop runs."""

    loss: Loss
    full_loss: Floats
    weight: Floats
    distance: Distance
    q_step: QStep
    limit: Limit
    extra_cost: Floats | None

    def objective(self, pair: Pair, X: Any, log_odds: Floats) -> float:
        """The objective of OPT2 at the given pair and shares."""
        g, f1 = pair.scores(X)
        cheap = expit(-log_odds) * self.loss.values(f1)
        full = expit(log_odds) * self.full_loss
        gating = self.distance.value(log_odds, g)
        return float(self.weight @ (cheap + full + gating)) + pair.penalty()

    def best_shares(self, pair: Pair, X: Any, *, at_start: bool = False) -> Floats:
        """Log-odds of the shares that are best for the pair as it is."""
        g, f1 = pair.scores(X)
        excess = excess_loss(self.loss.values(f1), self.full_loss)
        limit, extra = (
            self.limit(None if at_start else pair) if callable(self.limit) else (self.limit, self.extra_cost)
        )
        step = self.q_step(excess, g, limit, extra_cost=extra, sample_weight=self.weight)
        return np.maximum(step.value, NEVER) if limit == 0.0 else step.value


def alternate(
    pair: AnyPair,
    X: Any,
    y: Floats,
    full_loss: Floats,
    *,
    task: Task,
    limit: Limit,
    distance: DistanceName | Distance = "kl",
    q_step: QStep | None = None,
    extra_cost: Floats | None = None,
    weight: Floats | None = None,
    max_iter: int = 50,
    tol: float = 1e-6,
) -> Solution[Alternation[AnyPair]]:
    """Alternate between the shares sent on and the pair, starting from the pair as given.

    Parameters
    ----------
    pair : Pair
        Fitted in place, starting from its state.
    X, y : arrays
        Rows, and targets as the task encodes them, soft ones included.
    full_loss : ndarray of shape (n_samples,)
        The full model's loss on those rows, out of fold.
    task : Task
        What f1 answers.
    limit : float or callable
        Cap on the mean of ``extra_cost * q``; with no ``extra_cost`` the paper's P_full. A function of the pair, called
        in every round, gives the cap and the extra costs of (OPT1), which depend on what the pair has bought; before
        the first round it is given None.
    distance : {"kl", "squared"} or Distance
        How the gate is compared with the shares; one of your own comes with its ``q_step``.
    q_step : QStep, optional
        Solver of the shares; by default the one of the named distance.
    weight : ndarray of shape (n_samples,), optional
        Sample weights; normalised to sum to 1.
    max_iter, tol
        Stop after so many rounds, or when a round lowers the objective by less than
        ``tol * max(1, |objective|)``.

    Returns
    -------
    Solution
        ``residual`` is the last round's decrease of the objective.
    """
    weight = np.full(len(y), 1.0 / len(y)) if weight is None else weight / weight.sum()
    apart, solver = _gating(distance, q_step)
    problem = Problem(task.loss(y), full_loss, weight, apart, solver, limit, extra_cost)
    rounds: list[Round] = []
    log_odds: Floats | None = None
    last = change = np.inf
    for _ in range(max_iter):
        log_odds = _improved_shares(problem, pair, X, log_odds)
        after_shares = problem.objective(pair, X, log_odds)
        pair.fit(X, y, log_odds, weight)
        after_pair = problem.objective(pair, X, log_odds)
        rounds.append(Round(after_shares, after_pair, float(weight @ expit(log_odds))))
        change = abs(last - after_pair)
        last = after_pair
        if change <= tol * max(1.0, abs(after_pair)):
            break
    converged = change <= tol * max(1.0, abs(last))
    assert log_odds is not None  # max_iter >= 1 is checked by whoever takes it from a user
    excess = float(weight @ excess_loss(problem.loss.values(pair.scores(X)[1]), full_loss))
    ended = Alternation(pair, log_odds, tuple(rounds), excess)
    return Solution(ended, float(change), len(rounds), bool(converged))


def _gating(distance: DistanceName | Distance, q_step: QStep | None) -> tuple[Distance, QStep]:
    if isinstance(distance, str):
        name = check_distance(distance)
        return DISTANCES[name], Q_STEPS[name] if q_step is None else q_step
    if q_step is None:
        raise InvalidInputError(
            f"distance {type(distance).__name__} needs the q-step that belongs to it. Give q_step=, a function such as "
            f"thrifty.dynamod.q_step_kl."
        )
    return distance, q_step


def _improved_shares(problem: Problem, pair: Pair, X: Any, previous: Floats | None) -> Floats:
    """The best shares; the previous ones if they are better still.

    Under the squared distance the shares solve a non-convex problem whose exact answer may leave a
    duality gap of one row, which could raise the objective by as much. Where the limit moves with the pair, the
    previous shares may no longer meet it.
    """
    shares = problem.best_shares(pair, X, at_start=previous is None)
    if (
        previous is None
        or callable(problem.limit)
        or problem.objective(pair, X, shares) <= problem.objective(pair, X, previous)
    ):
        return shares
    return previous
