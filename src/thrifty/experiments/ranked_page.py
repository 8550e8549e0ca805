"""What the ranking experiment shows: a panel per collection of documents, its table, its numbers and its picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from thrifty.arrays import Floats
from thrifty.datasets import RankingSplit
from thrifty.experiments.claims import Verdict
from thrifty.experiments.curves import CURVES
from thrifty.experiments.ranked import RankedChoice, RankedTask
from thrifty.experiments.selection import curve_of
from thrifty.report.tradeoff import draw_tradeoff, new_figure, save_figure

__all__ = [
    "PRUNED_FOR_PROBABILITY",
    "TOP_FIRST",
    "RankedPanel",
    "about_of",
    "draw_panels",
    "notes_of",
    "numbers_of",
    "table_of",
]


PRUNED_FOR_PROBABILITY = "BudgetPrune, probabilities"
"""BudgetPrune that counts a leaf's share of wrong labels in place of its wrong votes."""

TOP_FIRST = "GreedyMiser + top first"
"""A gate of ours for ranking: the documents with the best cheap scores go to f0, which orders them anew."""


@dataclass(frozen=True, eq=False)
class RankedPanel:
    """All that was found on one collection."""

    name: str
    about: str
    full: RankedChoice
    chosen: dict[str, list[RankedChoice]]
    verdicts: list[Verdict]
    seconds: float


def about_of(split: RankingSplit, task: RankedTask, prices: Floats) -> str:
    """How many queries, documents and columns there are."""
    parts = (split.qid_train, split.qid_val, split.qid_test)
    queries = " / ".join(f"{len(np.unique(part)):,}" for part in parts)
    documents = " / ".join(f"{len(part):,}" for part in parts)
    undefined = task.test.average_precision(task.test.full, task.k).n_undefined
    return (
        f"{queries} queries to learn from, to choose with and to report on, with {documents} documents; {undefined} "
        f"test queries without a relevant document. {len(prices)} columns that cost {prices.sum():g} together."
    )


def table_of(panel: RankedPanel, budgets: Sequence[float], lines: Sequence[str]) -> list[list[str]]:
    """One row per budget, one column per line of the picture, a dash where there is no point."""
    found = [{point.budget: point.in_words() for point in panel.chosen.get(line, ())} for line in lines]
    return [[panel.name, f"{budget:g}", *(one.get(budget, "-") for one in found)] for budget in budgets]


def numbers_of(panel: RankedPanel) -> dict[str, Any]:
    """Everything measured on one collection, for the JSON file."""
    return {
        "about": panel.about,
        "f0": panel.full.as_numbers(),
        "chosen": {line: [point.as_numbers() for point in points] for line, points in panel.chosen.items()},
        "claims": [verdict.as_numbers() for verdict in panel.verdicts],
    }


def notes_of(panel: RankedPanel) -> list[str]:
    """Sentences about f0 and about every claim."""
    full = panel.full
    f0 = (
        f"f0 for every document: AP {full.accuracy:.4f} (95 %: {full.band[0]:.3f} to {full.band[1]:.3f}), NDCG "
        f"{full.ndcg:.4f}, at cost {full.cost:g} per document."
    )
    alone = [point.val_accuracy for points in panel.chosen.values() for point in points if point.share == 0.0]
    choice = f"On validation queries f0 has AP {full.val_accuracy:.4f}" + (
        f", the best order without it {max(alone):.4f}." if alone else "."
    )
    took = f"Fits took {panel.seconds:.0f} s, added up over processes."
    return [f"{panel.name}: {note}" for note in (panel.about, f0, choice, *map(str, panel.verdicts), took)]


def draw_panels(panels: Sequence[RankedPanel], path: Path, places: int) -> Path:
    """The paper's methods on the left, what it left out on the right, a row per collection."""
    figure, axes = new_figure(2, n_rows=len(panels), height=5.0)
    for number, panel in enumerate(panels):
        sides = axes[2 * number : 2 * number + 2]
        for ax, in_paper in zip(sides, (True, False), strict=True):
            curves = {
                line: curve_of(points)
                for line, points in panel.chosen.items()
                if (line in CURVES and CURVES[line].in_paper) is in_paper
            }
            side = "the paper's methods" if in_paper else "what it left out"
            star = (panel.full.cost, panel.full.accuracy)
            draw_tradeoff(ax, curves, full=star, title=f"{panel.name}: {side}")
            ax.set_xscale(
                "symlog", linthresh=1.0
            )  # a forest pruned to its roots costs nothing, and is a point too
            ax.set_xlabel("mean cost per document")
            ax.set_ylabel(f"AP@{places} on test queries")
            # Lines of a ranking lie everywhere: no corner is free for the legend.
            ax.legend(
                frameon=False,
                fontsize=8,
                ncols=2,
                loc="upper center",
                bbox_to_anchor=(0.5, -0.14),
                handlelength=4,
            )
        limits = np.array([[ax.get_xlim(), ax.get_ylim()] for ax in sides])
        for ax in sides:
            ax.set_xlim(limits[:, 0].min(), limits[:, 0].max())
            ax.set_ylim(limits[:, 1].min(), limits[:, 1].max())
    return save_figure(figure, path)
