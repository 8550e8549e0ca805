"""Letters, figure 2: linear pairs in front of two strong f0 (claim C), and boosted ones (claims A, B and D).

DynaMod-Lin sweeps gamma and p_full; greedy L1 sweeps C, every support that thresholding its weights gives, and the
class weight of its gate. What the paper leaves out is run too: every threshold of every gate, the confidence
gate on the greedy model, and "DynaMod-Lin+": refitted on its columns without the price, with a gate that also reads
|f1|. Boosted pairs are one more figure of accuracy against cost.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from reproduction.datasets import Split, load_letters
from reproduction.experiments.drawing import CurveKind, as_fitted
from reproduction.experiments.experiment import Run
from reproduction.experiments.figures import PAPER_CLAIMS, Figure, at_one_each
from reproduction.experiments.fits import Fit, FullScores, Job, Kept, key_of
from reproduction.experiments.methods import Priced, SweepSettings
from reproduction.experiments.selection import Candidate, Claim
from reproduction.rivals.greedy_l1 import GreedyL1Classifier, fit_logistic
from reproduction.settings import estimator_of
from thrifty.arrays import Floats
from thrifty.learners.dynamod.linear import DynaModLinClassifier, scaled

__all__ = ["BOOSTED_LETTERS", "LINEAR_LETTERS"]

NAME = "letters_linear"

CURVES = {
    "DynaMod-Lin+": CurveKind("plus", Candidate.at_any_threshold),
    "DynaMod-Lin": CurveKind("literal", Candidate.at_any_threshold),
    "DynaMod-Lin, g > 0": CurveKind("literal", as_fitted),
    "greedy L1": CurveKind("greedy", Candidate.at_any_threshold),
    "greedy L1, g > 0": CurveKind("greedy", as_fitted),
    "confidence": CurveKind("greedy", Candidate.gated_by_confidence),
}

# Like with like: the literal cut of one against the literal cut of the other, or both free.
CLAIMS = [
    Claim("claim C", ours, theirs)
    for ours in list(CURVES)[:3]
    for theirs in list(CURVES)[3:]
    if ours.endswith("> 0") == theirs.endswith("> 0")
]

PAPER_ACCURACY = {"RBF-SVM": 0.978, "forest": 0.961}


@dataclass(frozen=True, kw_only=True)
class LinearSettings:
    """Settings of the sweep over linear pairs.

    Attributes
    ----------
    thinned : str
        Sentence on what the appendix has and what is run here; printed on the page.
    gammas, caps, plus_caps : tuple of float
        Weights of the prices and values of p_full for DynaMod-Lin; values of p_full for DynaMod-Lin+.
    strengths, send_weights : tuple of float
        Values of C of greedy L1, and class weights of its gate.
    rounds, full_trees, seed : int
        Rounds of the alternation, trees of the forest that is f0, and the seed of all random choices.
    budgets : tuple of float
        Mean costs per row that points are chosen for.
    rows : tuple of int
        Most training, validation and test rows; empty for all.
    svm_grid : tuple of tuples of float
        Values of C and of gamma that the RBF-SVM is cross-validated over.
    """

    thinned: str
    gammas: tuple[float, ...]
    caps: tuple[float, ...]
    plus_caps: tuple[float, ...]
    strengths: tuple[float, ...]
    send_weights: tuple[float, ...]
    rounds: int
    full_trees: int
    seed: int
    budgets: tuple[float, ...]
    rows: tuple[int, ...] = ()
    svm_grid: tuple[tuple[float, ...], ...] = ((10.0,), (0.3,))


def _full_models(
    settings: LinearSettings | SweepSettings, split: Split, kept: Kept, how: Run
) -> dict[str, Any]:
    """Return the two full models f0 of the paper, unfitted; the RBF-SVM is cross-validated on the training rows."""
    strengths, widths = settings.svm_grid
    cells = [{"svc__C": strength, "svc__gamma": width} for strength in strengths for width in widths]
    best = cells[0]
    if len(cells) > 1:
        jobs = [Job(key_of(_svm_accuracy, cell), _svm_accuracy, (split, cell)) for cell in cells]
        accuracies = kept.run(
            jobs, n_jobs=how.n_jobs, progress=how.progress, what="cross-validating the RBF-SVM"
        )
        best = cells[int(np.argmax(accuracies))]
    return {
        "RBF-SVM": _svm(best),
        "forest": RandomForestClassifier(settings.full_trees, random_state=settings.seed, n_jobs=2),
    }


def _svm(cell: dict[str, float]) -> Any:
    return make_pipeline(StandardScaler(), SVC()).set_params(**cell)


def _svm_accuracy(split: Split, cell: dict[str, float]) -> float:
    """Accuracy of one RBF-SVM on training rows that it has not seen, in three folds."""
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    return float(cross_val_score(_svm(cell), split.X_train, split.y_train, cv=folds).mean())


def _plan(priced: Priced, settings: LinearSettings, full: FullScores) -> dict[str, list[Fit]]:
    """Plan all linear pairs in front of one f0."""
    return {
        "plus": _dynamod(full.train, settings, plus=True),
        "literal": _dynamod(full.train, settings),
        "greedy": _greedy(priced.split, settings),
    }


def _dynamod(held_out: Floats, settings: LinearSettings, *, plus: bool = False) -> list[Fit]:
    """Plan DynaMod-Lin at every (gamma, p_full), cut where the paper cuts: g > 0."""
    cells: list[dict[str, Any]] = [
        {"gamma": gamma, "p_full": cap}
        for gamma in settings.gammas
        for cap in (settings.plus_caps if plus else settings.caps)
    ]
    common: dict[str, Any] = {
        "refit": plus,
        "gate_reads_margin": plus,
        "max_iter": settings.rounds,
        "tol": 1e-5,
        "random_state": settings.seed,
    }
    return [
        Fit(cell, {"estimator": estimator_of(DynaModLinClassifier, held_out, **cell, **common)})
        for cell in cells
    ]


def _greedy(split: Split, settings: LinearSettings) -> list[Fit]:
    """Plan greedy L1 with every support and class weight."""
    cells: list[dict[str, Any]] = [
        {"features": support, "send_weight": weight}
        for support in _supports(split, settings.strengths)
        for weight in settings.send_weights
    ]
    # The greedy pair never looks at f0, so one fit serves both; any probabilities do for f0.
    anything = np.where(split.y_train == 1, 0.9, 0.1)
    return [Fit(cell, {"estimator": GreedyL1Classifier(anything, **cell)}) for cell in cells]


def _supports(split: Split, strengths: Sequence[float]) -> list[tuple[int, ...]]:
    """List the sets of columns that thresholding each L1 solution's weights gives."""
    X, _ = scaled(split.X_train, np.ones(len(split.X_train)), True)
    found: dict[tuple[int, ...], None] = {}
    for strength in strengths:
        labels = np.where(split.y_train == 1, 1.0, -1.0)
        coef = fit_logistic(X, labels, np.ones(len(X)), l1=1.0 / strength).coef[:, 0]
        order = np.argsort(-np.abs(coef), kind="stable")
        for size in range(1, np.count_nonzero(coef) + 1):
            found[tuple(sorted(order[:size].tolist()))] = None
    return list(found)


LINEAR_LETTERS = Figure(
    NAME,
    "Letters: test accuracy by budget, linear pairs",
    partial(at_one_each, load_letters),
    tuple(CLAIMS),
    fulls=_full_models,
    paper_accuracy=PAPER_ACCURACY,
    settings=LinearSettings,
    plan=_plan,
    curves=CURVES,
)


# -- boosted pairs -----------------------------------------------------------------------------

BOOSTED_CLAIMS = (
    *(Claim("claim D", ours, "GreedyMiser") for ours in ("DynaMod-Gbrt, KL, g > 0", "DynaMod-Gbrt, KL")),
    *(claim for claim in PAPER_CLAIMS if claim.name.startswith("left out")),
    *(
        Claim(f"left out, {theirs}", "DynaMod-Gbrt, gate reads f1", theirs, "asked")
        for theirs in ("GreedyMiser + confidence", "LightGBM-CEGB + confidence")
    ),
)
"""Claim D of figure 2; trees take Newton steps here, so its gammas are ten times the appendix's."""


def _against_linear(out: Path, numbers: dict[str, Any]) -> list[str]:
    """Judge claim B with the numbers of the linear family, if they are in the folder."""
    path = out / f"{NAME}.json"
    if not path.is_file():
        return [
            f"Claim B needs the linear family: run `python -m reproduction letters --family linear --out {out}` first."
        ]
    linear = json.loads(path.read_text())
    lines = []
    for name in PAPER_ACCURACY:
        ours = _by_budget(numbers[name], "DynaMod-Gbrt, KL")
        for method in ("DynaMod-Lin", "DynaMod-Lin+"):
            theirs = _by_budget(linear[name], method)
            shared = sorted(ours.keys() & theirs.keys())
            if shared:
                mean = np.mean([ours[budget] - theirs[budget] for budget in shared])
                lines.append(
                    f"f0 = {name}: claim B: DynaMod-Gbrt, KL minus {method}, mean over budgets: {mean:+.4f}."
                )
    return lines


def _by_budget(numbers: dict[str, Any], method: str) -> dict[float, float]:
    return {point["budget"]: point["accuracy"] for point in numbers["chosen"].get(method, ())}


BOOSTED_LETTERS = Figure(
    "letters_boosted",
    "Letters: test accuracy by budget, boosted pairs",
    partial(at_one_each, load_letters),
    BOOSTED_CLAIMS,
    fulls=_full_models,
    paper_accuracy=PAPER_ACCURACY,
    compare=_against_linear,
)
