"""Which of two frontiers is better, budget by budget, and how sure that is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from thrifty.arrays import Floats, Ints
from thrifty.evidence.bootstrap import check_bootstrap, resampled, tails
from thrifty.exceptions import InvalidInputError
from thrifty.objective.costs import check_amount

if TYPE_CHECKING:
    from thrifty.evidence.frontier import Frontier

__all__ = ["Comparison", "compare_within"]


@dataclass(frozen=True)
class Comparison:
    """Score of one frontier minus that of another at the same budgets, on the same rows.

    Attributes
    ----------
    budgets : ndarray of shape (n_budgets,)
        What both may spend, by the rows their points were chosen on.
    difference, low, high : ndarray of shape (n_budgets,)
        Difference of the scores, and the ends of its paired bootstrap interval at each budget.
    cost_difference : ndarray of shape (n_budgets,)
        What the first really spends more than the second on these rows: a better score may have been paid for.
    mean, mean_low, mean_high : float
        The same for the mean difference over the budgets.
    level : float
        Share of the resamples that an interval holds.
    """

    budgets: Floats
    difference: Floats
    low: Floats
    high: Floats
    cost_difference: Floats
    mean: float
    mean_low: float
    mean_high: float
    level: float

    def __str__(self) -> str:
        return (
            f"mean difference over {len(self.budgets)} budgets {self.mean:+.4f} "
            f"({100 * self.level:g} % interval {self.mean_low:+.4f} to {self.mean_high:+.4f})"
        )


def compare_within(
    ours: "Frontier",
    others: Mapping[str, "Frontier"],
    budgets: ArrayLike,
    *,
    level: float,
    n_boot: int,
    seed: int,
) -> dict[str, Comparison]:
    """Compare one frontier with each of the others; the same draws of rows for all of them."""
    check_bootstrap(level, n_boot)
    asked = np.array([check_amount("budgets", budget) for budget in np.ravel(np.asarray(budgets))])
    if asked.size == 0:
        raise InvalidInputError("budgets must hold at least one budget; got none.")
    sizes = {name: other.n_rows for name, other in others.items() if other.n_rows != ours.n_rows}
    if sizes:
        raise InvalidInputError(
            f"frontiers must be compared on the same rows; this one has {ours.n_rows}, the others {sizes}."
        )
    places = ours.within(asked)
    drawn = _drawn(ours, places, n_boot, seed)
    found = {}
    for name, other in others.items():
        try:
            theirs = other.within(asked)
        except InvalidInputError as error:
            raise InvalidInputError(f"others[{name!r}]: {error}") from None
        difference = ours.score[places] - other.score[theirs]
        cost_difference = ours.cost[places] - other.cost[theirs]
        draws = drawn - _drawn(other, theirs, n_boot, seed)
        found[name] = _comparison(asked, difference, cost_difference, draws, level)
    return found


def _drawn(frontier: "Frontier", places: Ints, n_boot: int, seed: int) -> Floats:
    """Score at each place under each draw; a point that serves several budgets is averaged once."""
    points, of_budget = np.unique(places, return_inverse=True)
    source, threshold = frontier.source[points], frontier.threshold[points]
    _, score = resampled(frontier.outcomes, source, threshold, n_boot=n_boot, seed=seed)
    return score[of_budget]


def _comparison(
    budgets: Floats, difference: Floats, cost_difference: Floats, draws: Floats, level: float
) -> Comparison:
    mean_low, mean_high = tails(draws.mean(axis=0), level)
    low, high = tails(draws, level)
    return Comparison(
        budgets=budgets,
        difference=difference,
        low=low,
        high=high,
        cost_difference=cost_difference,
        mean=float(difference.mean()),
        mean_low=float(mean_low),
        mean_high=float(mean_high),
        level=level,
    )
