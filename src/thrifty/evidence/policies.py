"""The operating points of a cascade: one set of thresholds per price, the hull of them, and any budget in between.

A high price makes rows stop early. Sweeping the price gives points (mean cost, mean score); a budget between two
neighbours on their upper convex hull is met, in expectation, by giving some rows the thresholds of the one and some
those of the other, and no rule of this kind does better on these rows.
"""

from dataclasses import dataclass

import numpy as np

from thrifty.arrays import Bools, Floats, Ints
from thrifty.evidence.efficiency import SLACK
from thrifty.evidence.stopping import Evidence, StoppingRules, route_by
from thrifty.exceptions import InvalidInputError

__all__ = [
    "Mix",
    "Policies",
    "convex_hull",
    "price_grid",
    "sweep_prices",
]


@dataclass(frozen=True)
class Mix:
    """Two sets of thresholds, and the share of rows that follow the second."""

    lower: int
    upper: int
    share: float = 0.0


@dataclass(frozen=True, eq=False)
class Policies:
    """Sets of thresholds by rising cost.

    Attributes
    ----------
    thresholds : ndarray of shape (n_policies, n_stages)
        A row goes on from a stage iff its gate score is larger.
    cost, score : ndarray of shape (n_policies,)
        Mean cost and mean score on the rows they were chosen on.
    """

    thresholds: Floats
    cost: Floats
    score: Floats

    def __len__(self) -> int:
        return len(self.cost)

    def __getitem__(self, places: Ints) -> "Policies":
        return Policies(self.thresholds[places], self.cost[places], self.score[places])

    def within(self, budget: float) -> Mix:
        """The mix that spends ``budget`` per row; the dearest policy where the budget is more than it needs."""
        if budget < self.cost[0] * (1 - SLACK):
            raise InvalidInputError(
                f"budget must be at least {self.cost[0]:.6g}, what a row pays on average that stops as early as "
                f"it can; got {budget!r}. Raise the budget, or make the first purchase cheaper."
            )
        upper = int(np.searchsorted(self.cost, budget * (1 + SLACK), side="right"))
        if upper == len(self):
            return Mix(upper - 1, upper - 1)
        lower = max(upper - 1, 0)
        step = float(self.cost[upper] - self.cost[lower])
        return Mix(lower, upper, min(max((budget - float(self.cost[lower])) / step, 0.0), 1.0))

    def score_within(self, budgets: Floats, below: float) -> Floats:
        """Mean score at some budgets; ``below`` where even the cheapest policy is too dear."""
        is_enough = budgets >= self.cost[0] * (1 - SLACK)
        score: Floats = np.where(is_enough, np.interp(budgets, self.cost, self.score), below)
        return score


def price_grid(evidence: Evidence, n_prices: int) -> Floats:
    """Prices, rising, from one at which only the loss counts to one at which every purchase is too dear."""
    steps = np.diff(evidence.cost)
    steps = steps[steps > 0]
    if not len(steps):
        return np.zeros(1)
    lowest = 0.1 / (len(evidence.gate) * float(evidence.cost[-1]))
    grid: Floats = np.r_[0.0, np.geomspace(lowest, 2.0 / float(steps.min()), n_prices - 1)]
    return grid


def sweep_prices(evidence: Evidence, right: Bools | Floats, *, n_prices: int = 80) -> Policies:
    """Thresholds for every price of a grid, reduced to the convex hull of (mean cost, mean ``right``).

    Parameters
    ----------
    evidence : Evidence
        Held-out gates and losses.
    right : ndarray of shape (n_rows, n_stages + 1)
        What is averaged into the score; the last column is f0.
    n_prices : int, default=80
        Prices to try.
    """
    policies = _measured(evidence, right, _every_rule(evidence, n_prices))
    return policies[convex_hull(policies.cost, policies.score)]


def _every_rule(evidence: Evidence, n_prices: int) -> Floats:
    """Thresholds for every price, each once, and those that let everybody stop at once: the cheapest there is."""
    rules = StoppingRules(evidence)
    every = [np.full(evidence.n_stages, np.inf)]
    every += [rules.at(float(price)) for price in price_grid(evidence, n_prices)]
    return np.unique(np.array(every), axis=0)


def _measured(evidence: Evidence, right: Bools | Floats, thresholds: Floats) -> Policies:
    means = np.array([_means(evidence, np.asarray(right, dtype=np.float64), one) for one in thresholds])
    return Policies(thresholds, means[:, 0], means[:, 1])


def convex_hull(cost: Floats, score: Floats) -> Ints:
    """Indices of the upper convex hull by rising cost: each point scores more than any mix of the others."""
    hull: list[int] = []
    for place in np.lexsort((-score, cost)):
        if hull and score[place] <= score[hull[-1]]:
            continue
        while len(hull) > 1 and _is_under(cost, score, hull[-2], hull[-1], int(place)):
            hull.pop()
        hull.append(int(place))
    return np.array(hull, dtype=np.intp)


def _is_under(cost: Floats, score: Floats, left: int, middle: int, right: int) -> bool:
    rise = (score[middle] - score[left]) * (cost[right] - cost[left])
    return bool(rise <= (score[right] - score[left]) * (cost[middle] - cost[left]))


def _means(evidence: Evidence, right: Floats, thresholds: Floats) -> tuple[float, float]:
    route = route_by(evidence.gate, thresholds)
    cost = float(np.average(evidence.cost[route], weights=evidence.weight))
    return cost, float(np.average(right[np.arange(len(route)), route], weights=evidence.weight))
