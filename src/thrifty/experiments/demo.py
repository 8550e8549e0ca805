"""The demonstration: how much of a strong model's accuracy can be had for less, on data everyone has.

Pixels of scikit-learn's digits cost 1 each; f0 is an RBF-SVM that reads all 64. Settings are chosen
on validation rows, the table reports test rows.
"""

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from thrifty.datasets import Split, load_digits_at_least_five
from thrifty.estimators.dynamod_lin import DynaModLinClassifier
from thrifty.evidence.frontier import Frontier
from thrifty.experiments.experiment import Outcome, Progress, silent
from thrifty.experiments.fits import Fit, fit_all, judge_on_split
from thrifty.experiments.selection import Candidate, Chosen, FullAnswers, choose, curve_of
from thrifty.objective.costs import PriceList
from thrifty.report.collect import collect_facts
from thrifty.report.facts import Facts
from thrifty.report.page import write_report
from thrifty.report.tradeoff import draw_tradeoff, new_figure, save_figure

__all__ = ["run"]

GAMMAS = np.logspace(-2.4, -1, 6)
CAPS = (0.2, 0.4, 0.6)
BUDGETS = (10.0, 20.0, 30.0, 40.0, 50.0, 64.0)


def run(out: Path, *, progress: Progress = silent) -> Outcome:
    """Fit, choose, report; write the picture, the numbers and the page."""
    split = load_digits_at_least_five()
    scores = judge_on_split(make_pipeline(StandardScaler(), SVC(C=10.0)), split, progress=progress)
    full = scores.answers(split, cost=64.0)
    cells: list[dict[str, Any]] = [{"gamma": float(gamma), "p_full": cap} for gamma in GAMMAS for cap in CAPS]
    fits = [
        Fit(cell, {"estimator": DynaModLinClassifier(scores.train, **cell, gate_reads_margin=True)})
        for cell in cells
    ]
    what = "fitting cheap models and gates"
    found = fit_all({what: fits}, split, progress=progress, what=what)[what]
    fitted = [candidate for candidate in found if isinstance(candidate, Candidate)]
    learned = [candidate.at_any_threshold() for candidate in fitted]
    chosen = choose(learned, full, BUDGETS)
    f0_accuracy = float(full.right_test.mean())
    rows = [_row(point) for point in chosen]
    rows.append(["f0 for every row", f"{f0_accuracy:.3f}", f"{full.cost:.1f}", "100 %"])
    outcome = Outcome(
        "demo",
        "Digits, 5 or more? 64 pixels at 1 each, f0 = RBF-SVM; test rows",
        ["budget", "accuracy", "mean cost", "share sent to f0"],
        rows,
        {"f0_accuracy": f0_accuracy, "chosen": [point.as_numbers() for point in chosen]},
    )
    figure, (ax,) = new_figure()
    budgets = np.linspace(6, 64, 30)
    confident = [candidate.gated_by_confidence() for candidate in fitted]
    curves = {
        "DynaMod-Lin": curve_of(choose(learned, full, budgets)),
        "the same models, gated by confidence": curve_of(choose(confident, full, budgets)),
    }
    draw_tradeoff(ax, curves, full=(full.cost, f0_accuracy), title="digits: 5 or more? 64 pixels at 1 each")
    outcome.files.append(save_figure(figure, out / "tradeoff.png"))
    outcome.write(out)
    outcome.files += write_report(out / "report.html", _facts(split, full, learned, confident), picture=False)
    return outcome


def _facts(split: Split, full: FullAnswers, learned: list[Candidate], confident: list[Candidate]) -> Facts:
    """What the page says: points chosen on validation rows, measured on test rows."""
    on_val, on_test = zip(*(candidate.outcomes(full) for candidate in learned), strict=True)
    rival_val, rival_test = zip(*(candidate.outcomes(full) for candidate in confident), strict=True)
    chosen = Frontier.from_outcomes(on_val)
    return collect_facts(
        chosen.on(on_test),
        split.y_test,
        chosen=chosen,
        prices=PriceList(np.ones(64), np.arange(64)),
        feature_names=split.feature_names,
        rivals={"the same models, gated by confidence": Frontier.from_outcomes(rival_val).on(rival_test)},
        title="Digits: is it 5 or more?",
        method="DynaMod-Lin",
        full_name="the RBF-SVM",
    )


def _row(point: Chosen) -> list[str]:
    return [f"{point.budget:g}", f"{point.accuracy:.3f}", f"{point.cost:.1f}", f"{100 * point.share:.0f} %"]
