"""The lines of an "accuracy against cost" figure, and its picture.

The picture is drawn from the numbers of the JSON file alone, so it can be drawn again without a fit. For each f0 the
paper's methods are on the left and what it left out is on the right; ``BudgetedClassifier``, where it was run, is
the strongest line of both.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reproduction.experiments.selection import AnyCandidate, Candidate
from thrifty.engine.plots import draw_tradeoff, new_figure, save_figure
from thrifty.errors import InvalidInputError

__all__ = ["CURVES", "CurveKind", "as_fitted", "curves_from", "draw_figure", "redraw"]

FLAGSHIP = "BudgetedClassifier"


@dataclass(frozen=True)
class CurveKind:
    """A line of the figure: which fits it is made of, what is done to them, and whether the paper draws it."""

    method: str
    of: Callable[[Any], AnyCandidate]
    in_paper: bool = False


def as_fitted(candidate: Any) -> AnyCandidate:
    """Leave a candidate as it is."""
    found: AnyCandidate = candidate
    return found


CURVES = {
    "DynaMod-Gbrt, KL, g > 0": CurveKind("kl", as_fitted, in_paper=True),
    "DynaMod-Gbrt, squared, g > 0": CurveKind("squared", as_fitted, in_paper=True),
    "GreedyMiser": CurveKind("miser", as_fitted, in_paper=True),
    "BudgetPrune": CurveKind("prune", as_fitted, in_paper=True),
    "DynaMod-Gbrt, KL": CurveKind("kl", Candidate.at_any_threshold),
    "DynaMod-Gbrt, squared": CurveKind("squared", Candidate.at_any_threshold),
    "DynaMod-Gbrt, gate reads f1": CurveKind("reads_score", Candidate.at_any_threshold),
    "DynaMod-Gbrt, KL, cross-fitted, g > 0": CurveKind("kl_crossed", as_fitted),
    "DynaMod-Gbrt, KL, cross-fitted": CurveKind("kl_crossed", Candidate.at_any_threshold),
    "DynaMod-Gbrt, squared, cross-fitted, g > 0": CurveKind("squared_crossed", as_fitted),
    "DynaMod-Gbrt, squared, cross-fitted": CurveKind("squared_crossed", Candidate.at_any_threshold),
    "DynaMod-Lin": CurveKind("lin", Candidate.at_any_threshold),
    "DynaMod-Lin, cross-fitted": CurveKind("lin_crossed", Candidate.at_any_threshold),
    "GreedyMiser + confidence": CurveKind("miser", Candidate.gated_by_confidence),
    "LightGBM-CEGB + confidence": CurveKind("cegb", as_fitted),
    FLAGSHIP: CurveKind("cascade", as_fitted),
}
"""Lines of the figure by their name in the legend."""


def curves_from(
    found: Mapping[str, Sequence[AnyCandidate]], curves: Mapping[str, CurveKind] = CURVES
) -> dict[str, list[AnyCandidate]]:
    """Collect the candidates of every line that has any."""
    return {
        name: [kind.of(candidate) for candidate in found[kind.method]]
        for name, kind in curves.items()
        if found.get(kind.method)
    }


# -- the picture -------------------------------------------------------------------------------


def redraw(name: str, folder: Path) -> Path:
    """Draw the picture of an experiment again from the numbers that an earlier run left in a folder."""
    path = folder / f"{name}.json"
    if not path.is_file():
        raise InvalidInputError(f"{path} does not exist. Run the experiment into this folder first.")
    numbers = json.loads(path.read_text(encoding="utf-8"))
    if not _panels(numbers):
        raise InvalidInputError(
            f"{path} holds no lines of accuracy against cost, so nothing can be drawn from it."
        )
    return draw_figure(numbers, path.with_suffix(".png"))


def draw_figure(numbers: Mapping[str, Any], path: Path) -> Path:
    """Draw the numbers of a figure: two panels side by side for each f0 or collection, or one for each."""
    panels = _panels(numbers)
    places = numbers.get("places")
    every = {line for panel in panels.values() for line in panel["chosen"]}
    two_sides = FLAGSHIP in every or any(map(_is_in_paper, every))
    n_rows = len(panels) if two_sides else 1
    figure, axes = new_figure(
        2 if two_sides else len(panels), n_rows=n_rows, height=4.2 if places is None else 5.0
    )
    free = iter(axes)
    for name, panel in panels.items():
        title = name if places is not None else f"full model = {name}"
        drawn = []
        for side, lines in _sides(panel["chosen"], two_sides=two_sides).items():
            drawn.append(next(free))
            _draw_side(drawn[-1], lines, panel, f"{title}{side}")
            if places is not None:
                _as_ranking(drawn[-1], places)
        _share_limits(drawn)
    return save_figure(figure, path)


def _panels(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Find what was measured with each f0, or on each collection of documents, by its name."""
    return {name: part for name, part in numbers.items() if isinstance(part, dict) and "chosen" in part}


def _is_in_paper(line: str) -> bool:
    return line in CURVES and CURVES[line].in_paper


def _sides(chosen: Mapping[str, Any], *, two_sides: bool) -> dict[str, list[str]]:
    """Deal the lines out to panels, by the end of a panel's title."""
    if not two_sides:
        return {"": list(chosen)}
    shown = [FLAGSHIP] if FLAGSHIP in chosen else []
    rivals = [line for line in chosen if line != FLAGSHIP]
    paper = [line for line in rivals if _is_in_paper(line)]
    left_out = [line for line in rivals if line not in paper]
    beside = ": against" if shown else ":"
    titles = f"{beside} the paper's methods", f"{beside} what the paper left out"
    return dict(zip(titles, (shown + paper, shown + left_out), strict=True))


def _draw_side(ax: Any, lines: Iterable[str], panel: Mapping[str, Any], title: str) -> None:
    full = panel.get("f0") or {"cost": panel["f0_cost"], "accuracy": panel["f0_accuracy"]}
    points = {line: panel["chosen"][line] for line in lines}
    curves = {
        line: ([point["cost"] for point in some], [_quality(point) for point in some])
        for line, some in points.items()
    }
    draw_tradeoff(ax, curves, full=(full["cost"], _quality(full)), title=title, flagship=FLAGSHIP)


def _quality(point: Mapping[str, Any]) -> float:
    quality: float = point["accuracy"] if "accuracy" in point else point["average_precision"]
    return quality


def _as_ranking(ax: Any, places: int) -> None:
    # A forest pruned to its roots costs nothing, and is a point too.
    ax.set_xscale("symlog", linthresh=1.0)
    ax.set_xlabel("mean cost per document")
    ax.set_ylabel(f"AP@{places} on test queries")
    # Lines of a ranking lie everywhere: no corner is free for the legend.
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14), "ncols": 2, "handlelength": 4}
    ax.legend(frameon=False, fontsize=8, **below)


def _share_limits(axes: Sequence[Any]) -> None:
    """Give panels one scale, so that they can be compared."""
    for limits, set_limits in (("get_xlim", "set_xlim"), ("get_ylim", "set_ylim")):
        ends = [getattr(ax, limits)() for ax in axes]
        for ax in axes:
            getattr(ax, set_limits)(min(low for low, _ in ends), max(high for _, high in ends))
