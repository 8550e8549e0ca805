"""Letters: a boosted gate and a boosted model in front of a strong f0 (claims A, B and D).

Trees take Newton steps, whose gains are larger than those of the paper's least squares, so the gammas are ten times
the appendix's. What the paper leaves out is run too: every threshold of every gate, the gate that reads f1's
score, the confidence gate on GreedyMiser, LightGBM's price-aware trees with it, and ``BudgetedClassifier``.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from thrifty.datasets import load_letters
from thrifty.experiments import letters_linear
from thrifty.experiments.claims import Claim
from thrifty.experiments.figure import PAPER_CLAIMS, Figure, run_figure
from thrifty.experiments.fitting import thinned_rows
from thrifty.experiments.letters_linear import PAPER_ACCURACY, full_models
from thrifty.experiments.outcome import Outcome, Run
from thrifty.experiments.priced import Priced, SweepSettings
from thrifty.experiments.settings import read_settings

__all__ = ["NAME", "run"]

NAME = "letters_boosted"

_READS = "DynaMod-Gbrt, gate reads f1"

CLAIMS = (
    *(Claim("claim D", ours, "GreedyMiser") for ours in ("DynaMod-Gbrt, KL, g > 0", "DynaMod-Gbrt, KL")),
    *(claim for claim in PAPER_CLAIMS if claim.name.startswith("left out")),
    *(
        Claim(f"left out, {theirs}", _READS, theirs, "asked")
        for theirs in ("GreedyMiser + confidence", "LightGBM-CEGB + confidence")
    ),
)


def run(how: Run) -> Outcome:
    """Run the experiment, draw the picture and return the numbers."""
    settings = read_settings(SweepSettings, NAME, profile=how.profile, config=how.config)
    figure = Figure(
        NAME,
        "Letters: test accuracy by budget, boosted pairs",
        Priced.at_one_each(thinned_rows(load_letters(how.data), settings.rows, settings.seed)),
        full_models(settings.full_trees, settings.seed),
        PAPER_ACCURACY,
        CLAIMS,
    )
    return run_figure(figure, settings, how, more=lambda numbers: _against_linear(how.out, numbers))


def _against_linear(out: Path, numbers: dict[str, Any]) -> list[str]:
    """Claim B needs the linear family's numbers, if they were made in the same folder."""
    path = out / f"{letters_linear.NAME}.json"
    if not path.is_file():
        return [
            f"Claim B compares with the linear family: run `thrifty paper letters --family linear --out {out}` first."
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
