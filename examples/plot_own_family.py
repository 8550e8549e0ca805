"""
The paper: can splines be the cheap model and the gate?
=======================================================

Additive splines of two measurements in front of a forest of thirty, learned by the paper's alternation. The family
defines how a pair (g, f1) is fitted to shares of rows (``SplinePair``) and how it scores new rows (``SplineStage``);
``SplineClassifier`` is the estimator. Prediction, purchases and operating points are thrifty's.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import expit
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import SplineTransformer

from thrifty.arrays import Floats, Ints
from thrifty.learners.dynamod import Problem, Stage, Visit, alternate
from thrifty.learners.dynamod.gated import GatedClassifier, PairProblem


class SplinePair:
    """A logistic regression and a ridge regression over splines of the same columns; squared distance."""

    def __init__(self, n_knots: int = 4) -> None:
        self.cheap: Pipeline = make_pipeline(SplineTransformer(n_knots), LogisticRegression(max_iter=2000))
        self.gate: Pipeline = make_pipeline(SplineTransformer(n_knots), Ridge(1e-3))

    def start(self, X: Floats, y: Floats, weight: Floats) -> Self:
        """Begin as the paper does: f1 alone, and a gate that is 0 everywhere."""
        self.fit(X, y, np.full(len(y), -40.0), weight)
        self.gate.fit(X, np.zeros(len(y)))
        return self

    def fit(self, X: Floats, y: Floats, log_odds: Floats, weight: Floats) -> Self:
        """Fit f1 to the labels of the rows that stay, and g to the log-odds of the shares sent on."""
        counts = len(y) * weight
        stays = counts * expit(-log_odds)
        self.cheap.fit(X, y > 0, logisticregression__sample_weight=stays)
        self.gate.fit(X, log_odds, ridge__sample_weight=counts)
        return self

    def scores(self, X: Floats) -> tuple[Floats, Floats]:
        """``(g, f1)`` of any rows."""
        return self.gate.predict(X), self.cheap.decision_function(X)[:, None]

    def penalty(self) -> float:
        """Nothing: the columns are given."""
        return 0.0


@dataclass(frozen=True)
class SplineStage:
    """What serves: the pair over the columns that it buys."""

    columns: Ints
    pair: SplinePair

    def visit(self, block: Any, carried: Floats) -> Visit:
        """Score the rows of a block of those columns."""
        g, f1 = self.pair.scores(block)
        return Visit(f1, g, carried)


@dataclass(eq=False, repr=False)
class SplineClassifier(GatedClassifier):
    """Splines of a few given columns in front of a full model."""

    full: Any = None
    features: tuple[int, ...] = (0, 1)
    _: KW_ONLY
    p_full: float | None = None
    feature_costs: Any = None
    prices: Any = None
    budget: float | None = None
    cv: Any = 5
    n_jobs: int | None = None
    random_state: Any = None

    def _learn(self, problem: PairProblem) -> Stage:
        rows, columns = problem.rows, np.array(self.features)
        X, weight = rows.X[:, columns], rows.weight / rows.weight.sum()
        limit, extra = problem.limit_at(self.p_full, columns)
        paper = Problem(
            rows.y,
            problem.full.loss(rows.y),
            rows.task,
            limit,
            distance="squared",
            extra_cost=extra,
            weight=weight,
        )
        run = alternate(SplinePair().start(X, rows.y, weight), X, paper, max_iter=5)
        return SplineStage(columns, run.value.pair)


def main() -> None:
    """Fit splines of two measurements in front of a forest of thirty, and look at some budgets."""
    X, y = load_breast_cancer(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, stratify=y, random_state=0)
    clf = SplineClassifier(RandomForestClassifier(100, random_state=0), (21, 27), random_state=0).fit(X, y)
    points = []
    for budget in (2, 4, 6, 12, 20):
        there = clf.at(budget=budget)
        points.append((there.cost(X_test).mean(), there.score(X_test, y_test)))
        print(f"budget {budget}: accuracy {points[-1][1]:.3f} at cost {points[-1][0]:.2f}")
    _, ax = plt.subplots(figsize=(5.6, 3.6), layout="constrained")
    ax.plot(*zip(*points, strict=True), marker="o", label="splines, then the forest")
    full = clf.chain_.full.estimator.score(X_test, y_test)
    ax.axhline(full, color="0.5", ls=":", label="the forest for every row, at 30")
    ax.set(xlabel="mean cost per row", ylabel="accuracy on test rows")
    ax.legend(loc="lower right")


if __name__ == "__main__":
    main()
