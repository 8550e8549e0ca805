"""The picture people look at first: accuracy against mean cost, one line per method."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from thrifty.errors import InvalidInputError
from thrifty.report.facts import Facts
from thrifty.report.words import fixed, score_text, words_of

__all__ = ["Curve", "draw_tradeoff", "majority_is_in_view", "new_figure", "picture_of", "save_figure"]

# Lines differ in dash and marker, not only in colour: the picture must read in black and white.
_DASHES: Sequence[Any] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), (0, (1, 1)))
_MARKERS = "osD^vPX<>"
_COLOURS = ("#0b5fa5", "#c8501e", "#3f7d20", "#7b3f9e", "#555555", "#b8860b", "#008b8b")
_DEPLOYED = "#b3261e"
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


FLAGSHIP_STYLE = {
    "color": "#c00020",
    "linestyle": "-",
    "linewidth": 3.2,
    "marker": "o",
    "markersize": 6,
    "zorder": 4,
}
RIVAL_STYLE = {"linewidth": 1.1, "markersize": 3.5, "alpha": 0.6, "zorder": 2}


def draw_tradeoff(
    ax: Any,
    curves: Mapping[str, Curve],
    *,
    full: tuple[float, float] | None = None,
    title: str = "",
    score: str = "accuracy",
    flagship: str | None = None,
) -> None:
    """Draw a score against mean cost per row, one line per method, and the full model as a star.

    The line that is the ``flagship`` is drawn strong and on top, the others thin and pale.
    """
    styles = zip(cycle(_DASHES), cycle(_MARKERS), cycle(_COLOURS), strict=False)
    for (name, curve), (dash, marker, colour) in zip(curves.items(), styles, strict=False):
        cost, accuracy = np.asarray(curve.cost, dtype=float), np.asarray(curve.accuracy, dtype=float)
        line = {"linestyle": dash, "marker": marker, "color": colour, "markersize": 4, "linewidth": 1.5}
        if flagship in curves:
            line |= FLAGSHIP_STYLE if name == flagship else RIVAL_STYLE
        ax.plot(cost, accuracy, label=name, drawstyle="steps-post" if curve.steps else "default", **line)
    if full is not None:
        ax.plot(
            *full,
            marker="*",
            color="black",
            markersize=12,
            linestyle="none",
            label="full model for every row",
            zorder=5,
        )
    ax.set_xlabel("mean cost per row")
    ax.set_ylabel(f"test {score}")
    ax.set_title(title, loc="left", fontsize=11)
    ax.legend(frameon=False, fontsize=8, loc="lower right")


def majority_is_in_view(facts: Facts) -> bool:
    """Whether a picture can reach to the constant answer and leave half of its height to the points."""
    points = facts.points
    known = [*points.low, *points.high, *([] if facts.full is None else [facts.full.accuracy])]
    if facts.bill is not None:
        return max(known) - min(known) >= (facts.majority.accuracy - min(known)) / 2
    return max(known) - min(known) >= (max(known) - facts.majority.accuracy) / 2


def picture_of(facts: Facts) -> bytes:
    """Accuracy over mean cost with band, rivals, the full model and the deployed point, as the bytes of a PNG file."""
    points = facts.points
    places = _apart(facts)

    def pick(values: tuple[float, ...]) -> list[float]:
        return [values[place] for place in places]

    curves = {_plain(facts.method): Curve(pick(points.cost), pick(points.accuracy), steps=True)}
    for rival in facts.rivals:
        order = sorted(range(len(rival.cost)), key=lambda place: rival.cost[place])
        cost, accuracy = ([values[place] for place in order] for values in (rival.cost, rival.accuracy))
        curves[_plain(rival.name)] = Curve(cost, accuracy, steps=True)
    figure, (ax,) = new_figure(width=7.2, height=4.6)
    band = {"color": _COLOURS[0], "alpha": 0.15, "linewidth": 0, "step": "post"}
    ax.fill_between(pick(points.cost), pick(points.low), pick(points.high), **band)
    full = None if facts.full is None else (facts.full.cost, facts.full.accuracy)
    draw_tradeoff(ax, curves, full=full, title=_plain(facts.title), score=facts.score)
    ax.set_title(ax.get_title(loc="left"), loc="left", fontsize=11, pad=6 if facts.deployed is None else 22)
    _draw_majority(ax, facts)
    _draw_marks(ax, facts)
    ax.get_legend().remove()
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    unit = f", {_plain(facts.unit)}" if facts.unit else ""
    ax.set_xlabel(words_of(facts)["across"] + unit)
    if facts.bill is not None:
        ax.set_ylabel("mean cost of mistakes per row" + unit)
    stream = io.BytesIO()
    figure.savefig(stream, format="png", metadata={"Software": None})
    return stream.getvalue()


def _apart(facts: Facts) -> list[int]:
    """Places of efficient points by cost, without those that crowd: their markers would hide the line."""
    points = facts.points
    efficient = [place for place in range(len(points)) if points.efficient[place]]
    by_cost = sorted(efficient, key=lambda place: points.cost[place])
    room = _ROOM * points.cost[by_cost[-1]]
    places = by_cost[:1]
    for place in by_cost:
        if points.cost[place] - points.cost[places[-1]] >= room:
            places.append(place)
    return places


def _draw_majority(ax: Any, facts: Facts) -> None:
    """Draw a dashed line with its name; one that is far below gets a strip of its own under a break of the axis."""
    if facts.bill is not None and not majority_is_in_view(facts):
        return  # it is far above, and the page's first lines say what it costs
    line = {"color": "#444444", "linewidth": 1.1, "linestyle": (0, (6, 4)), "zorder": 1.5}
    level, across = facts.majority.accuracy, ax.get_yaxis_transform()
    if majority_is_in_view(facts):
        ax.axhline(level, **line)
    else:
        low, high = ax.get_ylim()
        ticks = [tick for tick in ax.get_yticks() if low <= tick <= high]
        level = low - 0.09 * (high - low)
        ax.set_ylim(low - 0.12 * (high - low), high)
        labels = ax.yaxis.get_major_formatter().format_ticks(ticks)
        ax.set_yticks([*ticks, level], labels=[*labels, f"{facts.majority.accuracy:.2f}"])
        ax.axhline(level, **line)
        slash = {"marker": [(-1, -0.6), (1, 0.6)], "markersize": 9, "linestyle": "none", "color": "black"}
        ax.plot([0, 0], [low, low - 0.02 * (high - low)], transform=across, clip_on=False, **slash)
    level_text = "0" if facts.is_number else f"{fixed(100 * facts.majority.accuracy, 1)} %"
    level_text = level_text if facts.bill is None else score_text(facts, facts.majority.accuracy)
    name = f"{words_of(facts)['constant']}: {level_text}"
    text = {"fontsize": 8, "color": "#444444", "ha": "right", "va": "bottom"}
    ax.annotate(name, (1, level), (0, 2), xycoords=across, textcoords="offset points", **text)


def _draw_marks(ax: Any, facts: Facts) -> None:
    """Draw the certified point, named in the legend, and the deployed one, whose flag stands above the picture."""
    points, edge = facts.points, {"markeredgecolor": "white", "linestyle": "none", "zorder": 5}
    if facts.certified is not None and facts.certified.point is not None:
        at = points.cost[facts.certified.point], points.accuracy[facts.certified.point]
        size = 15 if facts.certified.point == facts.deployed else 8
        ax.plot(*at, marker="D", markersize=size, color="#1e6b37", label="certified", **edge)
    if facts.bill is not None:
        at = points.cost[facts.bill.least], points.accuracy[facts.bill.least]
        size = 15 if facts.bill.least == facts.deployed else 9
        ax.plot(*at, marker="v", markersize=size, color="#7b3f9e", label="least total cost", **edge)
    if facts.deployed is not None:
        at = points.cost[facts.deployed], points.accuracy[facts.deployed]
        pole = {"arrowstyle": "-", "color": _DEPLOYED, "linewidth": 1.5, "shrinkA": 0, "shrinkB": 0}
        top = {"textcoords": ax.get_xaxis_transform(), "ha": "center", "arrowprops": pole}
        text = {"fontsize": 9, "weight": "bold", "color": _DEPLOYED}
        ax.annotate(", ".join(facts.marks(facts.deployed)), at, (at[0], 1.03), **top, **text)
        ax.plot(*at, marker="o", markersize=10, color=_DEPLOYED, label="deployed", **edge)


def _plain(text: str) -> str:
    """Text as it is: matplotlib would read what stands between dollar signs as mathematics, and hide a leading _."""
    return (text if text[:1] != "_" else " " + text).replace("$", r"\$")
