"""Operating points of a router: their frontier, mixes of two that spend a budget, bounds of bills, certificates."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm

from thrifty.arrays import Floats
from thrifty.engine.plots import draw_frontier
from thrifty.errors import InvalidInputError

_N_NEXT = 0.5
"""With ``confidence``, the budget is held over this many new rows for each row of the log."""


@dataclass(frozen=True, eq=False)
class RouterFrontier:
    """Operating points on the concave hull of mean cost and quality, judged out of fold.

    Attributes
    ----------
    cost, quality : ndarray of shape (n_points,)
        Means per row.
    standard_error : ndarray of shape (n_points,)
        Standard error of the mean quality.
    rule : tuple of str
        Kind of rule of each point.
    single_cost, single_quality : ndarray of shape (n_models,)
        Each model alone, in the order of ``models``.
    """

    cost: Floats
    quality: Floats
    standard_error: Floats
    rule: tuple[str, ...]
    single_cost: Floats
    single_quality: Floats

    def quality_at(self, budget: Any) -> Any:
        """Mean quality at a budget, between two points by mixing them; NaN below the least cost."""
        found = np.interp(budget, self.cost, self.quality)
        return np.where(np.asarray(budget) < self.cost[0], np.nan, found)

    def plot(self, ax: Any = None, **line: Any) -> Any:
        """Draw quality against mean cost on matplotlib axes, beside the single models, and return them."""
        labels = ("mean cost per row", "mean quality")
        ax = draw_frontier(ax, self.cost, self.quality, labels, steps=False, **line)
        ax.plot(self.single_cost, self.single_quality, "x", color="grey", label="single models")
        return ax

    @property
    def aiq(self) -> float:
        """Average improvement in quality (RouterBench): mean quality over budgets up to the dearest model's cost."""
        low, high = float(self.cost[0]), float(self.single_cost.max())
        at = np.unique([low, high, *self.cost[(self.cost > low) & (self.cost < high)]])
        value = np.interp(at, self.cost, self.quality)
        return float(np.trapezoid(value, at) / (high - low)) if high > low else float(value[0])

    def gap_recovered(self, budget: Any) -> Any:
        """Share of the quality gap between the cheapest and the best model that a budget recovers (PGR)."""
        weak = float(self.single_quality[self.single_cost.argmin()])
        best = float(self.single_quality.max())
        return (self.quality_at(budget) - weak) / max(best - weak, 1e-12)

    @property
    def apgr(self) -> float:
        """Mean gap recovered over budgets from the cheapest to the best model's cost (RouteLLM's APGR)."""
        low, high = self.single_cost.min(), self.single_cost[self.single_quality.argmax()]
        return float(np.nanmean(self.gap_recovered(np.linspace(max(low, self.cost[0]), high, 101))))

    def cpt(self, share: float) -> float:
        """Least budget that recovers a share of the gap, as a share of the way to the best model's cost; or NaN."""
        low, high = self.single_cost.min(), self.single_cost[self.single_quality.argmax()]
        budgets = np.linspace(max(low, self.cost[0]), self.cost[-1], 2001)
        enough = np.flatnonzero(self.gap_recovered(budgets) >= share - 1e-12)
        return (
            float((budgets[enough[0]] - low) / (high - low)) if len(enough) and high > low else float("nan")
        )


@dataclass(frozen=True)
class RouterCertificate:
    """What was proved on rows that the router was not fitted on.

    Attributes
    ----------
    measure : {"quality", "bill"}
        Whether mean quality lost against ``against``, or the mean cost of the next rows, is bounded.
    bound, limit : float
        Upper bound, and the limit that was asked for.
    confidence : float
        Confidence of the bound.
    n_rows : int
        Rows that it was proved on.
    against : str
        The model compared with; empty for bills.
    n_next : int
        Number of next rows that a bill is for; 0 for quality.
    """

    measure: str
    bound: float
    limit: float
    confidence: float
    n_rows: int
    against: str = ""
    n_next: int = 0

    def __str__(self) -> str:
        share = f"with confidence {self.confidence:g}, from {self.n_rows:,} rows"
        if self.measure == "bill":
            return f"the next {self.n_next:,} rows cost at most {self.bound:.4g} a row, {share}"
        return f"mean quality is at most {self.bound:.4f} below that of {self.against}, {share}"


class Mix(NamedTuple):
    """Two points of the frontier, and the share of rows that follow the second."""

    low: int
    high: int
    share: float


def mixed_mean(values: Floats, choice: Mix) -> float:
    """Mean over rows of values by point, mixed."""
    return float(
        (1.0 - choice.share) * values[:, choice.low].mean() + choice.share * values[:, choice.high].mean()
    )


def choose_mix(costs: Floats, budget: float | None, confidence: float | None) -> Mix:
    """The mix of two points that spends the budget, or holds it with a confidence."""
    last = costs.shape[1] - 1
    if budget is None or np.isinf(budget):
        return Mix(last, last, 0.0)
    if confidence is not None:
        n_next = max(int(_N_NEXT * len(costs)), 1)
        held = held_mix(costs, budget, n_next, confidence)
        if held is None:
            least = upper_bill(costs, Mix(0, 0, 0.0), n_next, confidence)
            raise infeasible(budget, least, confidence)
        return held
    mix = mix_at(costs.mean(axis=0), budget)
    if mix is None:
        raise infeasible(budget, float(costs[:, 0].mean()), None)
    return mix


def infeasible(budget: float, least: float, confidence: float | None) -> InvalidInputError:
    """Error that names the least budget."""
    held = "" if confidence is None else f" with confidence {confidence:g}"
    return InvalidInputError(
        f"budget must be at least {least:.4g}{held}, what the cheapest way to an answer costs a row; got {budget:g}."
    )


def mix_at(cost: Floats, budget: float) -> Mix | None:
    """The mix of two neighbours that costs the budget; None below the least cost."""
    if budget < cost[0] * (1.0 - 1e-9):
        return None
    low = int(np.searchsorted(cost, max(budget, cost[0]), side="right")) - 1
    if low == len(cost) - 1:
        return Mix(low, low, 0.0)
    return Mix(low, low + 1, float((max(budget, cost[0]) - cost[low]) / (cost[low + 1] - cost[low])))


def held_mix(costs: Floats, budget: float, n_next: int, confidence: float) -> Mix | None:
    """The dearest mix of neighbouring points whose upper prediction bound is at most the budget."""
    mean = np.maximum.accumulate(costs.mean(axis=0))
    if upper_bill(costs, Mix(0, 0, 0.0), n_next, confidence) > budget:
        return None
    low, high = float(mean[0]), float(min(mean[-1], budget))
    top = mix_at(mean, high)
    if top is not None and upper_bill(costs, top, n_next, confidence) <= budget:
        return top
    found = Mix(0, 0, 0.0)
    for _ in range(40):
        middle = (low + high) / 2.0
        choice = mix_at(mean, middle)
        if choice is not None and upper_bill(costs, choice, n_next, confidence) <= budget:
            low, found = middle, choice
        else:
            high = middle
    return found


def upper_bill(costs: Floats, choice: Mix, n_next: int, confidence: float) -> float:
    """Upper prediction bound of the mean cost of the next rows: normal, with a correction for skewness."""
    parts = [(1.0 - choice.share, costs[:, choice.low]), (choice.share, costs[:, choice.high])]
    mean = sum(share * part.mean() for share, part in parts)
    second, third = (
        sum(share * ((part - mean) ** power).mean() for share, part in parts) for power in (2, 3)
    )
    spread = np.sqrt(second)
    if not spread > 1e-12 * mean:
        return float(mean)
    quantile = float(norm.ppf(confidence))
    # Cornish and Fisher's correction: sums of few dear rows have a longer tail above than the normal distribution.
    n_few = min(len(costs), n_next)
    heavy = max(third / spread**3, 0.0) * (2.0 * quantile**2 + 1.0) / (6.0 * np.sqrt(n_few))
    return float(mean + (quantile + heavy) * spread * np.sqrt(1.0 / len(costs) + 1.0 / n_next))
