"""Shares of the squared q-step as a function of the constraint's multiplier, and what to do at a jump.

For a multiplier ``eta`` each row minimises its part of the Lagrangian,

    t(eta) = argmin_t  (t - g)^2 - (excess - eta w) expit(t),

which never rises with ``eta``. It can jump, where a row has two equally good shares; the spend then
jumps with it and may pass the limit without ever being equal to it. Either of the tied shares is as
good for the Lagrangian, so tied rows are told which *side* to take and the multiplier moves a little,
down or up, until the other rows make up the difference: what that loses is of second order.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from thrifty.arrays import Floats
from thrifty.solvers.multiplier import EPS, ROUNDING, smallest_multiplier
from thrifty.solvers.spending import SpendingProblem
from thrifty.solvers.squared_rows import Sides, minimise_tilted, minimise_tilted_between

__all__ = ["Crossing", "Point", "find_crossing", "settle_jumps"]

# Between neighbouring multipliers a share changes by rounding, or it jumps.
JUMP = 1e-6
# A second jump is rare, and every one that follows is worth less.
MAX_JUMPS = 4


@dataclass(frozen=True)
class Point:
    """A multiplier and the log-odds there."""

    eta: float
    t: Floats


@dataclass(frozen=True)
class Crossing:
    """Where the spend passes the limit.

    Attributes
    ----------
    problem : SpendingProblem
        The rows and the limit.
    side : ndarray of shape (n_samples,)
        Which share a row with two takes: the better (0), the smaller (-1) or the larger (1).
    below : Point or None
        Largest multiplier that exceeds the limit; None if the constraint does not bind.
    above : Point
        Smallest multiplier that meets the limit, next to ``below``; infinite if no finite one does.
    n_evaluations : int
        How often all rows were computed.
    """

    problem: SpendingProblem
    side: Sides
    below: Point | None
    above: Point
    n_evaluations: int


class _Path:
    """``t(eta)`` during a search, computed from the nearest answers yet on either side of the limit.

    Since ``t`` never rises with ``eta``, they bound the answer of every multiplier in between.
    """

    def __init__(self, problem: SpendingProblem, side: Sides) -> None:
        self.problem = problem
        self.side = side
        self.below: Point | None = None
        self.above: Point | None = None
        self.n_evaluations = 0

    def at(self, eta: float) -> Point:
        problem, below, above = self.problem, self.below, self.above
        self.n_evaluations += 1
        if math.isinf(eta):
            free = minimise_tilted(problem.excess, problem.g, self.side)
            return Point(eta, np.where(problem.price > 0.0, -np.inf, free))
        a = problem.excess - eta * problem.price
        if below is None or above is None:
            return Point(eta, minimise_tilted(a, problem.g, self.side))
        start = below.t + (eta - below.eta) / (above.eta - below.eta) * (above.t - below.t)
        return Point(eta, minimise_tilted_between(a, problem.g, self.side, above.t, below.t, start))

    def spend(self, eta: float) -> float:
        point = self.at(eta)
        spend = self.problem.spend(point.t)
        if spend > self.problem.limit * (1.0 + ROUNDING):
            self.below = point
        else:
            self.above = point
        return spend


def find_crossing(problem: SpendingProblem, side: Sides, guess: float, ratio: float = 4.0) -> Crossing:
    """Search for the smallest multiplier that meets the limit, starting at ``guess``."""
    path = _Path(problem, side)
    bracket = smallest_multiplier(path.spend, problem.limit, guess=guess, ratio=ratio)
    above = path.above if path.above is not None else path.at(bracket.above)
    return Crossing(problem, side, path.below, above, path.n_evaluations)


def settle_jumps(crossing: Crossing, gap: float, tol: float) -> tuple[Floats, float, int]:
    """Best answer found when tied rows are sent to one side or the other, jump after jump.

    Parameters
    ----------
    crossing : Crossing
        Found with no side given to any row.
    gap : float
        Duality gap of ``crossing.above.t``.
    tol : float
        A gap that is good enough.

    Returns
    -------
    t : ndarray of shape (n_samples,)
        Log-odds that meet the limit; ``crossing.above.t`` if there is no jump.
    gap : float
        Duality gap of ``t``.
    n_evaluations : int
        How often all rows were computed, from the first search on.
    """
    start, best, first_gap = crossing.above.t, crossing.above.t, gap
    n_evaluations = crossing.n_evaluations
    for _ in range(MAX_JUMPS):
        options: list[tuple[float, Crossing]] = []
        for side in _sides_at_jump(crossing):
            if gap <= tol:
                break
            option = find_crossing(crossing.problem, side, crossing.above.eta, ratio=1.01)
            n_evaluations += option.n_evaluations
            # A row told to keep its larger share may do so whatever it costs: then there is no answer.
            if math.isfinite(option.above.eta):
                t = _use_room(option)
                options.append((first_gap + _objective_change(option.problem, t, start), option))
                if options[-1][0] < gap:
                    gap, best = options[-1][0], t
        if not options:
            break
        crossing = min(options, key=lambda option: option[0])[1]
    return best, max(gap, 0.0), n_evaluations


def _objective_change(problem: SpendingProblem, t: Floats, start: Floats) -> float:
    """Objective at ``t`` minus objective at ``start``, row by row and factored, so that it does not cancel."""
    squares = (t - start) * (t + start - 2.0 * problem.g)
    return float(np.sum(problem.weight * (squares - problem.excess * (expit(t) - expit(start)))))


def _use_room(crossing: Crossing) -> Floats:
    """Log-odds that meet the limit; what a jump leaves over goes to the row that jumps most, if that pays."""
    problem, t = crossing.problem, crossing.above.t
    room = problem.limit - problem.spend(t)
    if crossing.below is None or room <= ROUNDING * problem.limit:
        return t
    parts = problem.weight * problem.price * (expit(crossing.below.t) - expit(t))
    row = int(np.argmax(parts))
    if parts[row] <= room:
        return t
    share = expit(t[row]) + room / (problem.weight[row] * problem.price[row])
    filled = t.copy()
    filled[row] = min(logit(share), crossing.below.t[row])
    return filled if _objective_change(problem, filled, t) < 0.0 else t


def _sides_at_jump(crossing: Crossing) -> list[Sides]:
    """Sides to send tied rows to: as many as fit to their larger share, and the same with one more.

    Nothing if the limit did not fall inside a jump, or only of rows that were told their side before.
    """
    if crossing.below is None or math.isinf(crossing.above.eta):
        return []
    problem = crossing.problem
    rise = np.where(crossing.side == 0, expit(crossing.below.t) - expit(crossing.above.t), 0.0)
    tied = np.flatnonzero(rise > JUMP)
    if tied.size == 0:
        return []
    parts = (problem.weight * problem.price * rise)[tied]
    room = problem.limit * (1.0 + ROUNDING) - problem.spend(crossing.above.t)
    # The running sum of n parts may be wrong by n units in the last place.
    fits = _fitting(parts, room * (1.0 - tied.size * EPS))
    within = crossing.side.copy()
    within[tied] = -1
    within[tied[fits]] = 1
    left_out = np.delete(np.arange(tied.size), fits)
    if left_out.size == 0:
        return [within]
    beyond = within.copy()
    beyond[tied[left_out[np.argmin(parts[left_out])]]] = 1
    return [within, beyond]


def _fitting(parts: Floats, room: float) -> NDArray[np.intp]:
    """Indices of ``parts`` chosen greedily, largest first, so that their sum stays within ``room``.

    Each turn takes the longest run that fits and skips what no longer does, which at least halves the
    room left: some fifty turns at most, one or two as a rule.
    """
    order = np.argsort(-parts, kind="stable")
    taken = [order[:0]]
    while order.size:
        order = order[np.searchsorted(-parts[order], -room) :]
        total = np.cumsum(parts[order])
        count = int(np.searchsorted(total, room, side="right"))
        if count == 0:
            break
        taken.append(order[:count])
        room -= float(total[count - 1])
        order = order[count:]
    return np.concatenate(taken)
