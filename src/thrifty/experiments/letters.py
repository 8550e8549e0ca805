"""Letters: a linear gate and a linear model in front of a strong f0, against the greedy way (claim C).

Sweeps as in the paper's appendix: DynaMod-Lin over 20 gammas in [1e-4, 1] and 9 caps p_full in
[0.1, 0.9], 50 rounds; greedy L1 over 20 values of C in [1e-3, 10], every support that thresholding its
weights gives, and 19 class weights in (0, 1). What the paper leaves out is run too: every threshold of every gate,
the confidence gate on the greedy model, and "DynaMod-Lin+": refitted on its columns without the price, with a gate
that also reads |f1| (every second cap).
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from thrifty.baselines.greedy_l1 import GreedyL1Classifier
from thrifty.datasets import Split, load_letters
from thrifty.estimators.dynamod_lin import DynaModLinClassifier
from thrifty.experiments.fitting import fit_candidates, judge_on_split
from thrifty.experiments.outcome import Outcome, Progress, silent
from thrifty.experiments.selection import (
    Candidate,
    FullAnswers,
    by_budget,
    choose,
    curve_of,
    numbers_of,
    sentences_of,
)
from thrifty.models.linear import fit_logistic, scaled
from thrifty.report.tradeoff import draw_tradeoff, new_figure, save_figure

__all__ = ["run"]

Floats = NDArray[np.float64]

GAMMAS = np.logspace(-4, 0, 20)
CAPS = np.linspace(0.1, 0.9, 9)
STRENGTHS = np.logspace(-3, 1, 20)
SEND_WEIGHTS = np.linspace(0.05, 0.95, 19)
BUDGETS = np.arange(3.0, 16.0)

METHODS = (
    "DynaMod-Lin+",
    "DynaMod-Lin",
    "DynaMod-Lin, g > 0",
    "greedy L1",
    "greedy L1, g > 0",
    "confidence",
)

# Like with like: the literal cut of one against the literal cut of the other, or both free.
PAIRS = [
    (ours, theirs)
    for ours in METHODS[:3]
    for theirs in METHODS[3:]
    if ours.endswith("> 0") == theirs.endswith("> 0")
]

PAPER_ACCURACY = {"RBF-SVM": 0.978, "forest": 0.961}


def full_models() -> dict[str, Any]:
    """The two f0 of the paper."""
    return {
        "RBF-SVM": make_pipeline(StandardScaler(), SVC(C=10.0, gamma=0.3)),
        "forest": RandomForestClassifier(500, random_state=0, n_jobs=2),
    }


def run(
    out: Path,
    *,
    data: str | None = None,
    n_jobs: int = 2,
    thin: int = 1,
    progress: Progress = silent,
) -> Outcome:
    """Run the experiment, draw the picture and return the numbers.

    Parameters
    ----------
    out : Path
        Folder for the picture, the table and the JSON file.
    data : str, optional
        Folder with ``letter.npz``.
    n_jobs : int
        Processes.
    thin : int
        Keep every ``thin``-th value of each sweep.
    progress : callable
        Told how far it is.
    """
    split = load_letters(data)
    greedy, confident = _greedy_candidates(split, thin, n_jobs, progress)
    header = ["f0", "budget", *METHODS]
    rows, notes, numbers = [], [], {"budgets": BUDGETS.tolist(), "paper_accuracy": PAPER_ACCURACY}
    figure, axes = new_figure(2)
    for ax, (name, model) in zip(axes, full_models().items(), strict=True):
        progress(f"cross-fitting {name}", 0, 1)
        held_out, full = judge_on_split(model, split, cost=16.0)
        literal = _dynamod_candidates(split, held_out, thin, n_jobs, progress, name)
        refitted = _dynamod_candidates(split, held_out, thin, n_jobs, progress, name, plus=True)
        methods = (
            [candidate.at_any_threshold() for candidate in refitted],
            [candidate.at_any_threshold() for candidate in literal],
            literal,
            [candidate.at_any_threshold() for candidate in greedy],
            greedy,
            confident,
        )
        chosen = {
            method: choose(found, full, BUDGETS) for method, found in zip(METHODS, methods, strict=True)
        }
        rows += [[name, *row] for row in by_budget(chosen, BUDGETS, METHODS)]
        numbers[name] = numbers_of(full, chosen, PAIRS)
        notes.append(introduce(name, full))
        notes += [f"f0 = {name}: {sentence}" for sentence in sentences_of(chosen, PAIRS)]
        draw_tradeoff(
            ax, {m: curve_of(points) for m, points in chosen.items()}, full=_star(full), title=f"f0 = {name}"
        )
    outcome = Outcome(
        "letters_linear", "Letters: test accuracy by budget, linear pairs", header, rows, numbers, notes
    )
    outcome.files.append(save_figure(figure, out / "letters_linear.png"))
    outcome.write(out)
    return outcome


def _dynamod_candidates(
    split: Split,
    held_out: Floats,
    thin: int,
    n_jobs: int,
    progress: Progress,
    name: str,
    *,
    plus: bool = False,
) -> list[Candidate]:
    """Every (gamma, p_full), cut where the paper cuts: g > 0."""
    cells: list[dict[str, Any]] = [
        {"gamma": float(g), "p_full": float(p)} for g in GAMMAS[::thin] for p in CAPS[:: thin * (1 + plus)]
    ]
    estimators = [
        DynaModLinClassifier(
            held_out, **cell, refit=plus, gate_reads_margin=plus, max_iter=50, tol=1e-5, random_state=0
        )
        for cell in cells
    ]
    what = f"DynaMod-Lin{'+' if plus else ''}, f0 = {name}"
    return fit_candidates(estimators, cells, split, n_jobs, progress, what)


def _greedy_candidates(
    split: Split, thin: int, n_jobs: int, progress: Progress
) -> tuple[list[Candidate], list[Candidate]]:
    """Every support and class weight; and the confidence gate on each support's f1."""
    cells: list[dict[str, Any]] = [
        {"features": support, "send_weight": float(weight)}
        for support in _supports(split, thin)
        for weight in SEND_WEIGHTS[::thin]
    ]
    # The greedy pair never looks at f0, so one fit serves both; any probabilities do for f0.
    anything = np.where(split.y_train == 1, 0.9, 0.1)

    estimators = [GreedyL1Classifier(anything, **cell) for cell in cells]
    greedy = fit_candidates(estimators, cells, split, n_jobs, progress, "greedy L1")
    one_per_support = {candidate.settings["features"]: candidate for candidate in greedy}
    return greedy, [candidate.gated_by_confidence() for candidate in one_per_support.values()]


def _supports(split: Split, thin: int) -> list[tuple[int, ...]]:
    """The sets of columns that thresholding each L1 solution's weights gives."""
    X, _ = scaled(split.X_train, np.ones(len(split.X_train)), True)
    found: dict[tuple[int, ...], None] = {}
    for strength in STRENGTHS[::thin]:
        coef, _ = fit_logistic(X, split.y_train.astype(float), np.ones(len(X)), l1=1.0 / strength)
        order = np.argsort(-np.abs(coef), kind="stable")
        for size in range(1, np.count_nonzero(coef) + 1):
            found[tuple(sorted(order[:size].tolist()))] = None
    return list(found)


def introduce(name: str, full: FullAnswers) -> str:
    """One sentence about f0."""
    accuracy, paper = full.right_test.mean(), PAPER_ACCURACY[name]
    return f"f0 = {name}: test accuracy {accuracy:.4f} (paper: {paper:.3f}) at cost {full.cost:g}."


def _star(full: FullAnswers) -> tuple[float, float]:
    return full.cost, float(full.right_test.mean())
