"""The picture people look at first: accuracy against mean cost, one line per method."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from thrifty.exceptions import InvalidInputError
from thrifty.report.facts import Facts

__all__ = ["Curve", "draw_tradeoff", "new_figure", "picture_of", "save_figure"]

# Lines differ in dash and marker, not only in colour: the picture must read in black and white.
_DASHES: Sequence[Any] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), (0, (1, 1)))
_MARKERS = "osD^vPX<>"
_COLOURS = ("#0b5fa5", "#c8501e", "#3f7d20", "#7b3f9e", "#555555", "#b8860b", "#008b8b")
_ROOM = 0.015
"""Part of the largest cost that two markers of a report's picture are apart at least."""


@dataclass(frozen=True)
class Curve:
    """Points by rising cost; ``steps`` where money between two points buys only the cheaper one."""

    cost: ArrayLike
    accuracy: ArrayLike
    steps: bool = False


def new_figure(
    n_panels: int = 1, width: float = 6.4, height: float = 4.2, *, n_rows: int = 1
) -> tuple[Any, list[Any]]:
    """Return a figure that is drawn without a screen, and its axes: ``n_panels`` side by side, row after row."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise InvalidInputError(
            "pictures need matplotlib; install it with `pip install thrifty[report]`."
        ) from None
    figure = Figure(figsize=(width * n_panels, height * n_rows), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = [figure.add_subplot(n_rows, n_panels, panel + 1) for panel in range(n_rows * n_panels)]
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25, linewidth=0.6)
    return figure, axes


def save_figure(figure: Any, path: Path) -> Path:
    """Write the figure where the user wants it and return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})
    return path


def draw_tradeoff(
    ax: Any, curves: Mapping[str, Curve], *, full: tuple[float, float] | None = None, title: str = ""
) -> None:
    """Draw accuracy against mean cost per row, one line per method, and f0 as a star."""
    styles = zip(cycle(_DASHES), cycle(_MARKERS), cycle(_COLOURS), strict=False)
    for (name, curve), (dash, marker, colour) in zip(curves.items(), styles, strict=False):
        cost, accuracy = np.asarray(curve.cost, dtype=float), np.asarray(curve.accuracy, dtype=float)
        line = {"linestyle": dash, "marker": marker, "color": colour, "markersize": 4, "linewidth": 1.5}
        ax.plot(cost, accuracy, label=name, drawstyle="steps-post" if curve.steps else "default", **line)
    if full is not None:
        ax.plot(*full, marker="*", color="black", markersize=12, linestyle="none", label="f0 for every row")
    ax.set_xlabel("mean cost per row")
    ax.set_ylabel("test accuracy")
    ax.set_title(title, loc="left", fontsize=11)
    ax.legend(frameon=False, fontsize=8, loc="lower right")


def picture_of(facts: Facts) -> bytes:
    """Accuracy over mean cost with band, rivals and the full model, as the bytes of a PNG file."""
    points = facts.points
    efficient = [place for place in range(len(points)) if points.efficient[place]]
    by_cost = sorted(efficient, key=lambda place: points.cost[place])
    # Markers of points that crowd would hide the line.
    room = _ROOM * points.cost[by_cost[-1]]
    places = by_cost[:1]
    for place in by_cost:
        if points.cost[place] - points.cost[places[-1]] >= room:
            places.append(place)

    def pick(values: tuple[float, ...]) -> list[float]:
        return [values[place] for place in places]

    curves = {_plain(facts.method): Curve(pick(points.cost), pick(points.accuracy), steps=True)}
    for rival in facts.rivals:
        order = sorted(range(len(rival.cost)), key=lambda place: rival.cost[place])
        cost, accuracy = ([values[place] for place in order] for values in (rival.cost, rival.accuracy))
        curves[_plain(rival.name)] = Curve(cost, accuracy, steps=True)
    figure, (ax,) = new_figure(width=7.2, height=4.6)
    ax.fill_between(
        pick(points.cost),
        pick(points.low),
        pick(points.high),
        color="#0b5fa5",
        alpha=0.15,
        linewidth=0,
        step="post",
    )
    full = None if facts.full is None else (facts.full.cost, facts.full.accuracy)
    draw_tradeoff(ax, curves, full=full, title=_plain(facts.title))
    if facts.unit:
        ax.set_xlabel(f"mean cost per row, {_plain(facts.unit)}")
    stream = io.BytesIO()
    figure.savefig(stream, format="png", metadata={"Software": None})
    return stream.getvalue()


def _plain(text: str) -> str:
    """Text as it is: matplotlib would read what stands between dollar signs as mathematics, and hide a leading _."""
    return (text if text[:1] != "_" else " " + text).replace("$", r"\$")
