"""Every picture of thrifty, drawn with matplotlib, which is loaded when the first one is drawn.

Functions take numbers and names. Estimators, frontiers, reports and commands choose the numbers and call them.
"""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from thrifty.arrays import Bools, Floats
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.purchases.receipts import Reader, answer_text
from thrifty.engine.walk.chain import Chain, Explanation
from thrifty.engine.walk.stage import nodes_of
from thrifty.errors import InvalidInputError

COLOURS = ("#0b5fa5", "#c8501e", "#3f7d20", "#7b3f9e", "#555555", "#b8860b", "#008b8b")
# Lines differ in dash and marker, not only in colour: a picture must read in black and white.
_DASHES: Sequence[Any] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), (0, (1, 1)))
_MARKERS = "osD^vPX<>"
_FLAG = "#b3261e"
_MAX_LETTERS = 30
"""Length of a name on an axis."""
_BARS_WIDTH = 1.8
"""Width of a bar plot relative to the longest bar: notes are to the right of the bars."""


# -- figures and files -------------------------------------------------------------------------


def new_figure(
    n_panels: int = 1, width: float = 6.4, height: float = 4.2, *, n_rows: int = 1
) -> tuple[Any, list[Any]]:
    """Return a figure that is drawn without a screen, and its axes: ``n_panels`` side by side, row after row."""
    check_installed()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * n_panels, height * n_rows), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = [figure.add_subplot(n_rows, n_panels, panel + 1) for panel in range(n_rows * n_panels)]
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25, linewidth=0.6)
    return figure, axes


def _new_axes(n_bars: int | None = None) -> Any:
    """Axes of pyplot, which a notebook shows; tall enough for some bars."""
    check_installed()
    from matplotlib import pyplot as plt

    size = None if n_bars is None else (8.0, 1.2 + 0.34 * n_bars)
    _, ax = plt.subplots(figsize=size, layout="constrained")
    return ax


def is_installed() -> bool:
    """Try to load matplotlib."""
    try:
        import matplotlib.figure  # noqa: F401 - only tried
    except ModuleNotFoundError:
        return False
    return True


def check_installed() -> None:
    """Refuse to draw without matplotlib."""
    if not is_installed():
        raise InvalidInputError("pictures need matplotlib; install it with `pip install thrifty[report]`.")


def file_bytes(figure: Any, kind: str = "png") -> bytes:
    """The bytes of a file with the picture; the same figure gives the same PNG."""
    sink = io.BytesIO()
    figure.savefig(sink, format=kind, metadata={"Software": None} if kind == "png" else None)
    return sink.getvalue()


def save_figure(figure: Any, path: Path) -> Path:
    """Write the figure as a PNG file and return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(file_bytes(figure))
    return path


def as_html(draw: Any, title: str) -> str:
    """An HTML image of a plot by ``draw(ax)``; empty where matplotlib is not installed.

    Parameters
    ----------
    draw : callable
        Called with the axes.
    title : str
        Alternative text of the image.
    """
    if not is_installed():
        return ""
    figure, (ax,) = new_figure(width=5.6, height=3.0)
    draw(ax)
    data = base64.b64encode(file_bytes(figure)).decode()
    style = "width:460px;max-width:100%;height:auto"
    return f'<img alt="{escape(title)}" style="{style}" src="data:image/png;base64,{data}">'


def html_table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """An HTML table of text; the first column is words, the others are numbers."""

    def line(cells: Sequence[str], tag: str) -> str:
        sides = ("left", *("right" for _ in cells[1:]))
        inside = "".join(
            f'<{tag} style="text-align:{side};padding:1px 10px 1px 0;font-weight:normal">{escape(cell)}</{tag}>'
            for cell, side in zip(cells, sides, strict=True)
        )
        return f"<tr>{inside}</tr>"

    body = "".join(line(cells, "td") for cells in lines)
    style = "border-collapse:collapse;font-size:12px"
    return f'<table style="{style}"><thead>{line(head, "th")}</thead><tbody>{body}</tbody></table>'


# -- score against cost ------------------------------------------------------------------------


def draw_frontier(
    ax: Any,
    cost: Floats,
    score: Floats,
    labels: tuple[str, str],
    *,
    steps: bool,
    least: int | None = None,
    **line: Any,
) -> Any:
    """Draw score against mean cost per row, and return the axes; new ones if ``ax`` is None.

    Parameters
    ----------
    ax : matplotlib axes or None
        Axes to draw on.
    cost, score : ndarray of shape (n_points,)
        The points, by rising cost.
    labels : tuple of two str
        Labels of the axes, the horizontal one first.
    steps : bool
        Whether a budget between two points buys the cheaper one; points on other rows are no staircase.
    least : int, optional
        Point to mark as that of least total cost, where the score is the cost of mistakes.
    line
        Passed on to ``ax.plot``.
    """
    ax = _new_axes() if ax is None else ax
    style = {"drawstyle": "steps-post"} if steps else {"marker": ".", "linewidth": 1.2}
    (curve,) = ax.plot(cost, score, **{**style, **line})
    ax.set_xlabel(labels[0])
    ax.set_ylabel(labels[1])
    if least is not None:
        tests, mistakes = float(cost[least]), float(score[least])
        label = f"least total cost: {tests:.4g} + {mistakes:.4g} = {tests + mistakes:.4g}"
        ax.plot(tests, mistakes, "o", color=curve.get_color(), markersize=8, label=label)
        ax.legend(frameon=False, fontsize=8)
    return ax


def draw_budgets(
    ax: Any, budgets: tuple[Floats, Floats], score: Floats, names: Sequence[str], score_name: str
) -> Any:
    """Draw lines of equal score over budgets of two resources, and return the axes.

    Parameters
    ----------
    ax : matplotlib axes or None
        Axes to draw on.
    budgets : tuple of two ndarray
        Budgets of both resources.
    score : ndarray of shape (n_second, n_first)
        Mean score at each pair of budgets; NaN where none is met.
    names : sequence of two str
        The resources.
    score_name : str
        What the score is.
    """
    ax = _new_axes() if ax is None else ax
    levels = np.unique(np.round(np.linspace(np.nanmin(score), np.nanmax(score), 9), 3))
    if len(levels) > 1:
        ax.contourf(*budgets, score, levels=levels, cmap="Blues", alpha=0.55, extend="both")
        lines = ax.contour(*budgets, score, levels=levels, colors=COLOURS[0], linewidths=0.9)
        ax.clabel(lines, fontsize=8, fmt="%.3g")
    ax.set_facecolor("#eeeeee")
    ax.set_xlabel(f"budget: mean {names[0]} per row")
    ax.set_ylabel(f"budget: mean {names[1]} per row")
    ax.set_title(f"{score_name} by budgets; grey: no mix keeps to both", loc="left", fontsize=10)
    return ax


def draw_in_force(
    ax: Any,
    cost: float,
    score: float,
    *,
    full: tuple[float, float] | None = None,
    label: str = "",
    title: str = "",
) -> None:
    """Mark the point in force, and the full model, beside a frontier; costs begin at 0: savings are seen as lengths."""
    ax.plot(cost, score, "o", color=_FLAG, label=label or "_in force")
    if full is not None:
        ax.plot(*full, "*", color="black", markersize=12, label="full model for every row")
    ax.set_xlim(left=0.0)
    if title:
        ax.set_title(title, loc="left", fontsize=10)
    if label:
        ax.legend(frameon=False, fontsize=8)


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
    curves: Mapping[str, tuple[ArrayLike, ArrayLike]],
    *,
    full: tuple[float, float] | None = None,
    title: str = "",
    score: str = "accuracy",
    flagship: str | None = None,
) -> None:
    """Draw a score against mean cost per row, one line (costs, scores) per method, and the full model as a star.

    The line that is the ``flagship`` is drawn strong and on top, the others thin and pale.
    """
    styles = zip(cycle(_DASHES), cycle(_MARKERS), cycle(COLOURS), strict=False)
    for (name, points), (dash, marker, colour) in zip(curves.items(), styles, strict=False):
        line = {"linestyle": dash, "marker": marker, "color": colour, "markersize": 4, "linewidth": 1.5}
        if flagship in curves:
            line |= FLAGSHIP_STYLE if name == flagship else RIVAL_STYLE
        ax.plot(*points, label=name, **line)
    if full is not None:
        star = {"marker": "*", "color": "black", "markersize": 12, "linestyle": "none", "zorder": 5}
        ax.plot(*full, label="full model for every row", **star)
    ax.set_xlabel("mean cost per row")
    ax.set_ylabel(f"test {score}")
    ax.set_title(title, loc="left", fontsize=11)
    ax.legend(frameon=False, fontsize=8, loc="lower right")


def _plain(text: str) -> str:
    """Text as it is: matplotlib reads text between dollar signs as mathematics, and hides a leading _."""
    return (text if text[:1] != "_" else " " + text).replace("$", r"\$")


# -- routes and purchases ----------------------------------------------------------------------


Bar = tuple[str, float, float, str]
"""Name of a horizontal bar, its ends, and the note behind it."""


def draw_route(way: Explanation, ax: Any = None) -> Any:
    """Draw the route of a row: its cost before and after each stage, and the answer of that stage."""
    bars, paid = list[Bar](), 0.0
    for number, stage in enumerate(way.stages):
        note = answer_text(stage.answer, stage.probability) + (", goes on" if stage.goes_on else ", stops")
        bars.append((f"{number}: {shortened(stage.bought)}", paid, stage.cost, note))
        paid = stage.cost
    if way.asked_full:
        bars.append(("full model", paid, way.cost, answer_text(way.answer, way.probability)))
    less = "less than" if way.saved >= 0 else "more than"
    title = f"paid {way.cost:g}, {abs(way.saved):g} {less} the full model"
    return _draw_bars(bars, "paid so far", title, ax)


@dataclass(frozen=True)
class Purchased:
    """A purchase, its price, and the share of rows that make it."""

    name: str
    price: float
    share: float


def purchased(prices: PriceList, bought: Bools, shares: Floats, names: Sequence[str]) -> list[Purchased]:
    """Every purchase that some row makes, the most frequent first, then as they are made.

    Parameters
    ----------
    prices : PriceList
        Prices, and the columns of each purchase.
    bought : ndarray of shape (n_places, n_features), bool
        Columns that a row holds at each place of its route; later places hold more.
    shares : ndarray of shape (n_places,)
        Shares of the rows that end there.
    names : sequence of str
        Names of the columns.
    """
    purchases = []
    for group, price in enumerate(prices.prices.tolist()):
        columns = np.flatnonzero(prices.group_of == group)
        held: Bools = np.any(bought[:, columns], axis=1)
        first = int(np.argmax(held)) if held.any() else len(held)
        share = float(shares[held].sum())
        if share > 0.0:
            name = shortened([names[column] for column in columns.tolist()])
            purchases.append((-share, first, group, Purchased(name, price, min(share, 1.0))))
    return [purchase for *_, purchase in sorted(purchases)]


def draw_purchases(purchases: Sequence[Purchased], ax: Any = None) -> Any:
    """Draw the share of rows that make each purchase."""
    bars = [
        (purchase.name, 0.0, purchase.share, f"{purchase.share:.0%} of rows, price {purchase.price:g}")
        for purchase in purchases
    ]
    return _draw_bars(bars, "share of rows that buy it", "What is bought", ax)


@dataclass(frozen=True)
class Way:
    """Rows that go on from a node of a stage to one of the next, and the columns that they buy for that.

    Attributes
    ----------
    stage, start, end : int
        Stage of the first node, its number, and that of the second; the full model is behind the last stage, and -1 is
        in front of the first one.
    share : float
        Share of all rows.
    bought : tuple of str
        Columns that are new.
    """

    stage: int
    start: int
    end: int
    share: float
    bought: tuple[str, ...]


def purchase_tree(chain: Chain, reader: Reader, names: Sequence[str]) -> tuple[list[Floats], list[Way]]:
    """Nodes of each stage and, last, the full model, and the ways between them, as rows of a reader go.

    Returns
    -------
    nodes : list of ndarray of shape (n_nodes, 3)
        Share of the rows that come to each node, share of them that stop there, and what is paid there.
    ways : list of Way
        Ways that some row goes.
    """
    n_own, route = len(chain.stages), np.minimum(chain.walk(reader).route, len(chain.stages))
    of_stages = chain.nodes_by_stage(reader)[:n_own]
    none = np.zeros(len(route), dtype=np.intp)
    node = np.stack([none if one is None else one for one in of_stages] + [none])
    stages = [*(nodes_of(stage) for stage in chain.stages), (None,)]
    first = np.cumsum([0] + [len(stage) for stage in stages])
    held, cost, n_rows = chain.bought_by_place, chain.cost_by_place, len(route)
    nodes, ways = (
        list[Floats](),
        [Way(-1, 0, 0, 1.0, tuple(names[column] for column in np.flatnonzero(held[0]).tolist()))],
    )
    for place, stage in enumerate(stages):
        come, stop = route >= place, route == place
        counts = [np.bincount(node[place][rows], minlength=len(stage)) for rows in (come, stop)]
        paid = cost[first[place] : first[place + 1]] if place < n_own else cost[-1:]
        nodes.append(np.column_stack([counts[0] / n_rows, counts[1] / np.maximum(counts[0], 1), paid]))
        if place < n_own:
            pairs, number = np.unique(node[place : place + 2, route > place], axis=1, return_counts=True)
            for (start, end), n in zip(pairs.T.tolist(), number.tolist(), strict=True):
                to = first[place + 1] + end if place + 1 < n_own else -1
                new = np.flatnonzero(held[to] & ~held[first[place] + start])
                ways.append(
                    Way(place, start, end, n / n_rows, tuple(names[column] for column in new.tolist()))
                )
    return nodes, ways


def draw_tree(
    nodes: Sequence[Floats], ways: Sequence[Way], ax: Any = None, *, min_share: float = 0.02
) -> Any:
    """Draw a tree of purchases: nodes of at least ``min_share`` of the rows, with their shares and what is paid there.

    A node is as large as the share of the rows that come there, and as dark as that of those which stop; a way is as
    wide as the share of the rows that go it.
    """
    if ax is None:
        ax = _new_axes(4 + 2 * max(int((level[:, 0] >= min_share).sum()) for level in nodes))
    height: list[dict[int, float]] = []
    for place, level in enumerate(nodes):
        shown = np.flatnonzero(level[:, 0] >= min_share).tolist()
        come = dict.fromkeys(shown, 0.0)
        for way in ways[1:]:
            if way.stage == place - 1 and way.end in come and way.start in height[-1]:
                come[way.end] += way.share / float(level[way.end, 0]) * height[-1][way.start]
        shown.sort(key=lambda number: (-come[number], number))
        height.append({number: (len(shown) - 1) / 2 - at for at, number in enumerate(shown)})
    for number, way in enumerate(ways[1:]):
        if way.start in height[way.stage] and way.end in height[way.stage + 1] and way.share >= min_share / 2:
            ends = height[way.stage][way.start], height[way.stage + 1][way.end]
            line = {"color": COLOURS[0], "alpha": 0.35, "linewidth": 0.6 + 9 * way.share, "zorder": 1}
            ax.plot([way.stage, way.stage + 1], ends, **line)
            if way.share >= min_share and way.bought:
                part = 0.4 + 0.2 * (number % 2)  # so that names of neighbouring ways do not cover each other
                at = way.stage + part, (1 - part) * ends[0] + part * ends[1]
                ax.annotate(
                    _plain(shortened(way.bought[:2])), at, ha="center", va="center", fontsize=6.5, zorder=4
                )
    for place, (level, heights) in enumerate(zip(nodes, height, strict=True)):
        for number, y in heights.items():
            share, stop, paid = level[number]
            size, colour = 60 + 900 * share, (*(1 - stop * (1 - np.array([0.043, 0.373, 0.647]))), 1.0)
            ax.scatter([place], [y], s=size, color=[colour], edgecolor=COLOURS[0], linewidth=0.8, zorder=3)
            note = {"textcoords": "offset points", "ha": "center", "va": "top", "fontsize": 6.5, "zorder": 4}
            first = _plain(shortened(ways[0].bought[:2])) + "\n" if not place and ways[0].bought else ""
            ax.annotate(f"{first}{share:.0%}, {paid:.3g}", (place, y), (0, -3 - np.sqrt(size) / 2), **note)
    ax.set_xticks(range(len(nodes)), [*(f"stage {place}" for place in range(len(nodes) - 1)), "full model"])
    ax.set_yticks([])
    ax.grid(visible=False)
    ax.margins(0.06, 0.16)
    ax.set_title(
        "Who buys what: share of the rows, and what is paid; dark: they stop", loc="left", fontsize=10
    )
    return ax


def _draw_bars(bars: Sequence[Bar], label: str, title: str, ax: Any) -> Any:
    """Bars from top to bottom."""
    ax = _new_axes(len(bars)) if ax is None else ax
    places = np.arange(len(bars))
    ax.barh(places, [end - begin for _, begin, end, _ in bars], left=[bar[1] for bar in bars], height=0.62)
    ax.set_yticks(places, [_plain(name) for name, *_ in bars])
    ax.invert_yaxis()
    for place, (_, _, end, text) in enumerate(bars):
        beside = {"textcoords": "offset points", "va": "center", "fontsize": 8}
        note = ax.annotate(_plain(text), (end, place), (5, 0), **beside)
        # The layout would make the bars narrower for it, which does not make it shorter.
        note.set_in_layout(False)
    longest = max((end for _, _, end, _ in bars), default=1.0) or 1.0
    ax.set_xlim(0, _BARS_WIDTH * longest)
    ax.set_xticks([tick for tick in ax.get_xticks() if tick <= longest * (1 + 1e-9)])
    ax.set_xlabel(label)
    ax.set_title(title, loc="left", fontsize=10)
    return ax


def shortened(names: Sequence[str]) -> str:
    """As many names as fit on a label, each cut short, and how many there are more."""
    if not names:
        return "nothing new"
    short = [name if len(name) <= _MAX_LETTERS else name[: _MAX_LETTERS - 1] + "…" for name in names]
    shown = 1
    while shown < len(short) and len(", ".join(short[: shown + 1])) <= _MAX_LETTERS:
        shown += 1
    return ", ".join(short[:shown]) + (f" and {len(short) - shown} more" if len(short) > shown else "")
