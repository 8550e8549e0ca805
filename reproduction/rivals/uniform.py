"""Rows go to the full model at random: what any gate must beat.

"At random" is fixed by the content of the row, so that a row is always treated alike; ``random_state`` gives another
draw.
"""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
from scipy.special import logit
from sklearn.linear_model import LogisticRegression, Ridge

from thrifty.arrays import Floats
from thrifty.engine.evidence.thresholds import threshold_curve
from thrifty.engine.full.crossfit import cross_fit_full
from thrifty.engine.prices.prices import check_columns
from thrifty.engine.walk.stage import ForeignStage, Visit
from thrifty.learners.dynamod.gated import (
    GatedClassifier,
    GatedEstimator,
    GatedRegressor,
    Learned,
    PairProblem,
)
from thrifty.rows import uniforms

__all__ = ["UniformRouter", "UniformRouterRegressor"]


@dataclass(frozen=True)
class UniformStage(ForeignStage):
    """A model of the user; the gate is the log-odds of a uniform number that is a function of the row's content."""

    seed: int = 0

    def visit(self, block: Any, carried: Floats) -> Visit:
        """Score a block."""
        return replace(super().visit(block, carried), gate=self.chance(block))

    def chance(self, block: Any) -> Floats:
        """Score of "go on"."""
        return np.asarray(logit(uniforms(block, self.seed)), dtype=np.float64)


@dataclass(eq=False, repr=False)
class _UniformRouter(GatedEstimator):
    """Random gate, for any task."""

    _accepts_missing = True
    _accepts_several = True

    full: Any = None
    cheap: Any = None
    _: KW_ONLY
    features: Any = None
    loss: str = "squared"
    p_full: float = 0.3
    feature_costs: Any = None
    prices: Any = None
    budget: float | None = None
    cv: Any = 5
    n_jobs: int | None = None
    random_state: Any = None

    def _default_cheap(self) -> Any:
        return LogisticRegression(max_iter=1000)

    def _cheap(self) -> Any:
        return self._default_cheap() if self.cheap is None else self.cheap

    def _other_models(self) -> list[Any]:
        return [*super()._other_models(), self._cheap()]

    def _learn(self, problem: PairProblem) -> UniformStage:
        rows = problem.rows
        names = getattr(self, "feature_names_in_", None)
        columns = check_columns("features", self.features, rows.X.shape[1], names)
        seen = rows.with_columns(columns)
        cheap = cross_fit_full(
            self._cheap(),
            replace(seen, table=seen.table.in_numbers()),
            n_jobs=self.n_jobs,
            name="the cheap model",
        )
        return UniformStage(columns, cheap.model, rows.task, problem.seed)

    def _default_threshold(self, learned: Learned, problem: PairProblem, budget: float | None) -> float:
        stage, rows = learned.stage, problem.rows
        assert isinstance(stage, UniformStage)  # what _learn returns
        g = stage.chance(rows.X[:, stage.columns])
        if budget is None:
            return threshold_curve(g, 0.0, 1.0, weight=rows.weight).within(self.p_full).threshold
        return self._curve(problem.reader, g=g, weight=rows.weight).within(budget).threshold


class UniformRouter(GatedClassifier, _UniformRouter):
    """Rows go to the full model at random; parameters and attributes as of ``ConfidenceRouter``."""


class UniformRouterRegressor(GatedRegressor, _UniformRouter):
    """Rows go to the full model at random, and answers are numbers; ``cheap=None`` is a ridge regression."""

    def _default_cheap(self) -> Any:
        return Ridge()
