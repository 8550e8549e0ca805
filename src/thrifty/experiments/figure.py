"""One runner for every "accuracy against cost" figure: f0, all methods, the choice, picture, numbers and page.

Settings and thresholds are chosen on validation rows, everything reported is on test rows. The picture has, for each
f0, the paper's methods on the left and what it left out on the right. Whatever is fitted is kept in
``NAME.cells`` beside the page; an interrupted run goes on from there.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from thrifty.experiments.candidates import FullAnswers
from thrifty.experiments.claims import Claim, Verdict, judge_claims
from thrifty.experiments.curves import CURVES, curves_from
from thrifty.experiments.fitting import fit_all, judge_on_split, kept_in
from thrifty.experiments.kept import Kept
from thrifty.experiments.methods import plan_fits
from thrifty.experiments.outcome import Outcome, Run
from thrifty.experiments.priced import Priced, SweepSettings
from thrifty.experiments.selection import (
    Chosen,
    by_budget,
    choose,
    curve_of,
    numbers_of,
)
from thrifty.report.tradeoff import draw_tradeoff, new_figure, save_figure

__all__ = ["MARGINAL_CLAIMS", "PAPER_CLAIMS", "Figure", "run_figure"]

_READINGS = (", g > 0", "")
"""The paper cuts a gate at zero; any other threshold may be better."""

PAPER_CLAIMS = (
    *(
        Claim(f"claim (b), {theirs}", f"DynaMod-Gbrt, KL{reading}", theirs)
        for theirs in ("BudgetPrune", "GreedyMiser")
        for reading in _READINGS
    ),
    *(
        Claim("KL better than squared", f"DynaMod-Gbrt, KL{reading}", f"DynaMod-Gbrt, squared{reading}")
        for reading in _READINGS
    ),
    *(
        Claim(f"left out, {theirs}", "DynaMod-Gbrt, KL", theirs, "asked")
        for theirs in ("GreedyMiser + confidence", "LightGBM-CEGB + confidence", "BudgetedClassifier")
    ),
    Claim("left out, BudgetedClassifier", "BudgetedClassifier", "BudgetPrune", "asked"),
)
"""What figure 3 is drawn to show, and the same question asked of what it left out."""

MARGINAL_CLAIMS = tuple(
    replace(claim, name=claim.name.replace("claim (b)", "marginal gain"), kind="marginal")
    if claim.name.startswith("claim (b)")
    else claim
    for claim in PAPER_CLAIMS
)
"""The same where the paper says that gains are marginal."""


@dataclass(frozen=True)
class Figure:
    """What one figure is about.

    Attributes
    ----------
    name, title : str
        Stem of the files, and one line for people.
    priced : Priced
        Rows and prices.
    fulls : dict
        f0 by name: unfitted estimators.
    paper_accuracy : dict
        What the paper says about the accuracy of an f0, where it does.
    claims : tuple of Claim
        To be judged.
    notes : tuple of str
        What a reader must know about the data.
    """

    name: str
    title: str
    priced: Priced
    fulls: Mapping[str, Any]
    paper_accuracy: Mapping[str, float] = field(default_factory=dict)
    claims: tuple[Claim, ...] = PAPER_CLAIMS
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Panel:
    """All that was found with one f0."""

    name: str
    full: FullAnswers
    chosen: dict[str, list[Chosen]]
    verdicts: list[Verdict]


More = Callable[[dict[str, Any]], list[str]]


def run_figure(figure: Figure, settings: SweepSettings, how: Run, *, more: More | None = None) -> Outcome:
    """Fit what is lacking, choose, draw and write; ``more`` makes further sentences of the numbers."""
    with kept_in(how.out, figure.name, figure.priced.split) as kept:
        panels = [
            _run_panel(figure, settings, name, model, kept, how) for name, model in figure.fulls.items()
        ]
        seconds = kept.seconds
    lines = [name for name in CURVES if any(name in panel.chosen for panel in panels)]
    outcome = Outcome(
        figure.name,
        figure.title,
        ["f0", "budget", *lines],
        [[panel.name, *row] for panel in panels for row in by_budget(panel.chosen, settings.budgets, lines)],
        {
            "budgets": list(settings.budgets),
            "paper_accuracy": dict(figure.paper_accuracy),
            **{panel.name: _numbers(panel) for panel in panels},
        },
        [*_about(figure, settings), *(note for panel in panels for note in _notes(figure, panel))],
    )
    further = [] if more is None else more(outcome.numbers)
    outcome.notes += [*further, f"Fits took {seconds:.0f} s, added up over processes."]
    outcome.files.append(_draw(panels, how.out / f"{figure.name}.png"))
    outcome.write(how.out)
    return outcome


def _run_panel(
    figure: Figure,
    settings: SweepSettings,
    name: str,
    model: Any,
    kept: Kept,
    how: Run,
) -> _Panel:
    priced = figure.priced
    scores = judge_on_split(model, priced.split, kept=kept, progress=how.progress, what=name)
    full = scores.answers(priced.split, priced.price_list.cost_of_everything)
    fits = plan_fits(priced, settings, scores)
    what = f"{figure.name}, f0 = {name}"
    found = fit_all(fits, priced.split, kept=kept, n_jobs=how.n_jobs, progress=how.progress, what=what)
    chosen = {line: choose(some, full, settings.budgets) for line, some in curves_from(found).items()}
    return _Panel(name, full, chosen, judge_claims(figure.claims, chosen))


def _numbers(panel: _Panel) -> dict[str, Any]:
    numbers = numbers_of(panel.full, panel.chosen, ())
    del numbers["gaps"]
    return {**numbers, "claims": [verdict.as_numbers() for verdict in panel.verdicts]}


# -- the page ----------------------------------------------------------------------------------


def _about(figure: Figure, settings: SweepSettings) -> list[str]:
    split, total = figure.priced.split, figure.priced.price_list.cost_of_everything
    sizes = (
        f"{len(split.y_train):,} rows to learn from, {len(split.y_val):,} to choose with, {len(split.y_test):,} to "
        f"report on; {split.X_train.shape[1]} columns that cost {total:g} together."
    )
    trees = f"A forest that is f0 has {settings.full_trees} trees, grown to the end."
    return [sizes, *figure.notes, trees, f"Sweep: {settings.thinned}"]


def _notes(figure: Figure, panel: _Panel) -> list[str]:
    paper = figure.paper_accuracy.get(panel.name)
    beside = "the paper gives no number" if paper is None else f"paper: {paper:.3f}"
    f0 = f"test accuracy {panel.full.right_test.mean():.4f} ({beside}) at cost {panel.full.cost:g}."
    found = [*(str(verdict) for verdict in panel.verdicts), *_reach(panel)]
    return [f"f0 = {panel.name}: {sentence}" for sentence in [f0, *found]]


def _reach(panel: _Panel) -> list[str]:
    """At what cost each method comes within half a point of f0."""
    wanted = float(panel.full.right_test.mean()) - 0.005
    lines = []
    for method, points in panel.chosen.items():
        near = [point.cost for point in points if point.accuracy >= wanted]
        reach = f"at mean cost {min(near):.1f}" if near else "at no budget"
        lines.append(f"{method} comes within half a point of f0 {reach}.")
    return lines


def _draw(panels: Sequence[_Panel], path: Path) -> Path:
    figure, axes = new_figure(2, n_rows=len(panels))
    for number, panel in enumerate(panels):
        star = (panel.full.cost, float(panel.full.right_test.mean()))
        limits = []
        for ax, in_paper in zip(axes[2 * number : 2 * number + 2], (True, False), strict=True):
            curves = {
                name: curve_of(points)
                for name, points in panel.chosen.items()
                if CURVES[name].in_paper is in_paper
            }
            side = "the paper's methods" if in_paper else "what it left out"
            draw_tradeoff(ax, curves, full=star, title=f"f0 = {panel.name}: {side}")
            limits.append(ax.get_ylim())
        for ax in axes[2 * number : 2 * number + 2]:
            ax.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
    return save_figure(figure, path)
