"""The paper's figure 1: four clusters on which choosing features greedily is provably too dear.

Sending clusters 1 and 2 to f0 and answering 3 and 4 from feature 2 alone costs (40 x 2 + 30 x 1) / 70
= 110/70 per row. L1 picks feature 1, which settles only cluster 1: 120/70. Both answer every row right.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.svm import SVC

from reproduction.datasets import make_synthetic
from reproduction.experiments.experiment import Outcome, Run
from reproduction.rivals.greedy_l1 import GreedyL1Classifier
from thrifty.arrays import Floats
from thrifty.engine.evidence.frontier import efficient
from thrifty.engine.evidence.thresholds import threshold_curve
from thrifty.engine.plots import draw_tradeoff, new_figure, save_figure
from thrifty.learners.dynamod import LinearOptions
from thrifty.learners.dynamod.linear import DynaModLinClassifier
from thrifty.progress import Progress

__all__ = ["run"]

NAME = "synthetic"

PAPER_START = ([1.0, 1.0], [-1.0, -1.0])
"""The paper's g = f1 = (1, 1); its f1 scores class 0 as positive, ours class 1, hence the sign."""

SEND_WEIGHTS = (0.3, 0.5, 0.7, 0.9)
"""Class weights of the greedy gate."""

OPTIMUM = 110 / 70


@dataclass(frozen=True, kw_only=True)
class SyntheticSettings:
    """Settings of the experiment.

    Attributes
    ----------
    thinned : str
        Sentence on what the appendix has and what is run here; printed on the page.
    gamma, p_full : float
        Parameters of DynaMod-Lin.
    starts, restarts, repeats : int
        Fits from a single Gaussian start; starts of which a fit keeps the best; number of such fits.
    """

    thinned: str
    gamma: float
    p_full: float
    starts: int
    restarts: int
    repeats: int


def run(how: Run) -> Outcome:
    """Run the experiment, draw the picture and return the numbers."""
    settings = how.settings(SyntheticSettings, NAME)
    starts, restarts, repeats = settings.starts, settings.restarts, settings.repeats
    X, y = make_synthetic()
    ours = _dynamod(settings, PAPER_START).fit(X, y)
    greedy = _best_greedy(X, y)
    lucky = _count_lucky(settings, X, y, n_init=1, repeats=starts, progress=how.progress)
    restarted = _count_lucky(settings, X, y, n_init=restarts, repeats=repeats, progress=how.progress)
    outcome = Outcome(
        NAME,
        "Four clusters: DynaMod-Lin against greedy L1",
        ["method", "features of g and f1", "accuracy", "mean cost"],
        [
            ["DynaMod-Lin, paper's start", *_describe(ours, X, y)],
            ["greedy L1", *_describe(greedy, X, y)],
            ["f0 (RBF-SVM) for every row", "1, 2", "1.000", "2.000"],
        ],
        {
            "gamma": settings.gamma,
            "p_full": settings.p_full,
            **_measured("dynamod", ours, X, y),
            "dynamod_features": (ours.features_ + 1).tolist(),
            **_measured("greedy", greedy, X, y),
            "optimum": OPTIMUM,
            "gaussian_starts": starts,
            "gaussian_starts_at_optimum": lucky,
            "n_init": restarts,
            "fits_with_restarts": repeats,
            "fits_with_restarts_at_optimum": restarted,
        },
        [
            f"Of {starts} single Gaussian starts {lucky} end at the optimum, 110/70 = {OPTIMUM:.3f}.",
            f"Of {repeats} fits that keep the best of {restarts} Gaussian starts {restarted} do.",
            f"Sweep: {settings.thinned}",
        ],
        [_draw(X, y, ours, how.out / f"{NAME}.png")],
    )
    outcome.write(how.out)
    return outcome


def _measured(name: str, fit: Any, X: Floats, y: Any) -> dict[str, float]:
    return {f"{name}_cost": float(fit.cost(X).mean()), f"{name}_accuracy": float(fit.score(X, y))}


def _dynamod(
    settings: SyntheticSettings, init: Any, *, n_init: int = 1, seed: int = 0
) -> DynaModLinClassifier:
    return DynaModLinClassifier(
        SVC(C=10.0),
        gamma=settings.gamma,
        p_full=settings.p_full,
        options=LinearOptions(init=init, n_init=n_init, standardize=False, max_iter=500),
        random_state=seed,
    )


def _greedy(C: float, send_weight: float) -> GreedyL1Classifier:
    return GreedyL1Classifier(
        SVC(C=10.0), C=C, n_features=1, send_weight=send_weight, standardize=False, random_state=0
    )


def _best_greedy(X: Floats, y: NDArray[np.intp]) -> GreedyL1Classifier:
    """Find the cheapest perfect system of the appendix's sweep over supports and class weights."""
    fits = [_greedy(C, weight).fit(X, y) for C in (0.1, 1.0, 10.0) for weight in SEND_WEIGHTS]
    perfect = [fit for fit in fits if fit.score(X, y) == 1.0]
    return min(perfect or fits, key=lambda fit: float(fit.cost(X).mean()))


def _count_lucky(
    settings: SyntheticSettings, X: Floats, y: Any, *, n_init: int, repeats: int, progress: Progress
) -> int:
    """Count how many fits from Gaussian starts answer every row right at the optimal cost."""
    what = "restarts" if n_init > 1 else "single Gaussian starts"
    lucky = 0
    for seed in range(repeats):
        fit = _dynamod(settings, "gaussian", n_init=n_init, seed=seed).fit(X, y)
        lucky += bool(fit.score(X, y) == 1.0 and abs(fit.cost(X).mean() - OPTIMUM) < 1e-9)
        progress(what, seed + 1, repeats)
    return lucky


def _describe(fit: Any, X: Floats, y: Any) -> list[str]:
    features = ", ".join(str(feature + 1) for feature in fit.features_)
    return [features, f"{fit.score(X, y):.3f}", f"{fit.cost(X).mean():.3f}"]


def _curve_of(fits: list[Any]) -> tuple[Floats, Floats]:
    """Trade-off at the clusters' centres: a threshold between two rows of one cluster separates only noise."""
    X, y = make_synthetic(noise=0.0)
    cost, accuracy = [], []
    for fit in fits:
        g, f1 = fit.scores(X)
        right = ((f1 > 0) == (y == 1)).astype(float)
        curve = threshold_curve(np.round(g, 9), fit.chain_.cost_by_place[0], 2.0, right, 1.0)
        cost.append(curve.cost)
        accuracy.append(curve.score)
    costs, accuracies = np.concatenate(cost), np.concatenate(accuracy)
    keep = efficient(costs, accuracies)
    return costs[keep], accuracies[keep]


def _draw(X: Floats, y: Any, ours: DynaModLinClassifier, path: Path) -> Path:
    figure, (left, right) = new_figure(2, width=5.2)
    for label, marker, colour in ((0, "o", "#0b5fa5"), (1, "x", "#c8501e")):
        left.scatter(*X[y == label].T, marker=marker, color=colour, s=36, label=f"class {label}", zorder=3)
    heights = {
        "gate g": (ours.gate_coef_[1], ours.gate_intercept_),
        "f1": (ours.cheap_coef_[1], ours.cheap_intercept_),
    }
    for (name, (slope, intercept)), dash in zip(heights.items(), ("-", "-."), strict=True):
        left.axhline(
            -intercept / slope, linestyle=dash, color="black", linewidth=1.3, label=f"DynaMod-Lin: {name}"
        )
    left.axvline(0.0, linestyle="--", color="#777777", linewidth=1.3, label="greedy L1: f1")
    left.set(xlabel="feature 1", ylabel="feature 2", xlim=(-1.8, 2.6), ylim=(-3.6, 1.8))
    left.set_title("four clusters", loc="left", fontsize=11)
    left.legend(frameon=False, fontsize=8, loc="lower right")
    greedy = [_greedy(1.0, weight).fit(X, y) for weight in SEND_WEIGHTS]
    curves = {
        "DynaMod-Lin (feature 2)": _curve_of([ours]),
        "greedy L1 (feature 1)": _curve_of(greedy),
    }
    draw_tradeoff(right, curves, full=(2.0, 1.0), title="trade-off")
    right.set_ylabel("accuracy")
    return save_figure(figure, path)
