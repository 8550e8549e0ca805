"""Frontier of a router beside its models alone, and the summaries of published benchmarks of routers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from thrifty._moved import FormerName
from thrifty.arrays import Floats
from thrifty.engine.evidence.budgets import mix_within
from thrifty.engine.evidence.frontier import Frontier
from thrifty.engine.plots import draw_frontier
from thrifty.engine.prices.billing import Resources


@dataclass(frozen=True, eq=False, repr=False)
class RouterFrontier(Frontier):
    """Operating points of a router, which are mixed, and its models alone.

    Attributes
    ----------
    single_cost, single_quality : ndarray of shape (n_models,)
        Each model alone on the rows of the fit, in the order of ``models``.
    score_name : str
        What the score is.
    resources : Resources, optional
        Names of several resources; all single costs are sums at their exchange rates.
    single_costs : ndarray of shape (n_models, n_resources), optional
        Each model alone in each of them.
    """

    single_cost: Floats = field(default_factory=lambda: np.empty(0))
    single_quality: Floats = field(default_factory=lambda: np.empty(0))
    score_name: str = "quality"
    resources: Resources | None = None
    single_costs: Floats | None = None

    quality = FormerName("score")

    @property
    def rule(self) -> tuple[str, ...]:
        """Kind of rule of each point."""
        rules = self.evidence[0].settings["rules"]
        return tuple(rules[int(place)] for place in self.thresholds[:, 0])

    def quality_at(self, budget: Any) -> Any:
        """Mean quality at a budget, between points by mixing them; NaN below the least cost."""
        if self.resources is not None and isinstance(budget, Mapping):
            assert self.costs is not None  # of several resources
            wanted = self.resources.limits(self.resources.check_budget("budget", budget))
            shares = mix_within(self.costs, self.score, wanted)
            return np.nan if shares is None else float(shares @ self.score)
        quality = np.interp(budget, self.cost, self.score)
        return np.where(np.asarray(budget) < self.cost[0], np.nan, quality)

    def plot(self, ax: Any = None, **line: Any) -> Any:
        """Draw quality against mean cost on matplotlib axes, beside the single models, and return them."""
        labels = ("mean cost per row", f"mean {self.score_name}")
        ax = draw_frontier(ax, self.cost, self.score, labels, steps=False, **line)
        ax.plot(self.single_cost, self.single_quality, "x", color="grey", label="single models")
        return ax

    @property
    def aiq(self) -> float:
        """Average improvement in quality (RouterBench): mean quality over budgets up to the dearest model's cost."""
        low, high = float(self.cost[0]), float(self.single_cost.max())
        at = np.unique([low, high, *self.cost[(self.cost > low) & (self.cost < high)]])
        value = np.interp(at, self.cost, self.score)
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
