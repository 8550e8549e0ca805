"""Pictures of a fitted system, with matplotlib or plotly: the way of one row, and what is bought how often."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from thrifty.arrays import Bools, Floats
from thrifty.chain.explain import Explanation
from thrifty.chain.purchases import in_words
from thrifty.errors import InvalidInputError
from thrifty.prices.billing import PriceList

__all__ = ["Bar", "Purchased", "check_backend", "draw_bars", "new_axes", "purchased", "route_bars"]

BACKENDS = ("matplotlib", "plotly")
_LETTERS = 30
_ROOM = 1.8
"""Width of a picture in lengths of its longest bar: notes stand behind the bars."""


@dataclass(frozen=True)
class Bar:
    """A horizontal bar: its name, where it begins and ends, and what is written behind it."""

    name: str
    begin: float
    end: float
    note: str


@dataclass(frozen=True)
class Purchased:
    """A purchase, its price, and the share of rows that make it."""

    name: str
    price: float
    share: float


def check_backend(backend: str) -> None:
    """Refuse a library that cannot draw, or that is not installed."""
    if backend not in BACKENDS:
        raise InvalidInputError(f"backend must be one of {BACKENDS}; got {backend!r}.")
    try:
        __import__(backend)
    except ModuleNotFoundError:
        raise InvalidInputError(
            f"pictures need {backend}; install it with `pip install thrifty[report]`."
        ) from None


def new_axes(n_bars: int | None = None) -> Any:
    """Axes of matplotlib, tall enough for some bars."""
    check_backend("matplotlib")
    from matplotlib import pyplot as plt

    size = None if n_bars is None else (8.0, 1.2 + 0.34 * n_bars)
    _, ax = plt.subplots(figsize=size, layout="constrained")
    return ax


def route_bars(way: Explanation) -> list[Bar]:
    """The way of a row as bars: what it had paid before and after each stage, and what that would have answered."""
    bars, paid = [], 0.0
    for number, stage in enumerate(way.stages):
        note = in_words(stage.answer, stage.probability) + (", goes on" if stage.goes_on else ", stops")
        bars.append(Bar(f"{number}: {_some(stage.bought)}", paid, stage.cost, note))
        paid = stage.cost
    if way.asked_full:
        bars.append(Bar("full model", paid, way.cost, in_words(way.answer, way.probability)))
    return bars


def purchased(prices: PriceList, bought: Bools, shares: Floats, names: Sequence[str]) -> list[Purchased]:
    """Every purchase that some row makes, the most frequent first, then as they are made.

    Parameters
    ----------
    prices : PriceList
        Prices, and which columns are one purchase.
    bought : ndarray of shape (n_places, n_features), bool
        Columns that a row holds at each place of its route; later places hold more.
    shares : ndarray of shape (n_places,)
        Shares of the rows that end there.
    names : sequence of str
        Names of the columns.
    """
    found = []
    for group, price in enumerate(prices.prices.tolist()):
        columns = np.flatnonzero(prices.group_of == group)
        held: Bools = np.any(bought[:, columns], axis=1)
        first = int(np.argmax(held)) if held.any() else len(held)
        share = float(shares[held].sum())
        if share > 0.0:
            called = _some([names[column] for column in columns.tolist()])
            found.append((-share, first, group, Purchased(called, price, min(share, 1.0))))
    return [one for *_, one in sorted(found)]


def draw_bars(
    bars: Sequence[Bar], label: str, title: str, ax: Any = None, backend: str = "matplotlib"
) -> Any:
    """Bars from top to bottom, on axes of matplotlib, which are returned, or as a figure of plotly."""
    check_backend(backend)
    if backend == "plotly":
        return _plotly_bars(bars, label, title)
    ax = new_axes(len(bars)) if ax is None else ax
    places = np.arange(len(bars))
    ax.barh(places, [one.end - one.begin for one in bars], left=[one.begin for one in bars], height=0.62)
    ax.set_yticks(places, [one.name for one in bars])
    ax.invert_yaxis()
    for place, one in enumerate(bars):
        note = ax.annotate(
            one.note, (one.end, place), (5, 0), textcoords="offset points", va="center", fontsize=8
        )
        # The layout would make the bars narrower for it, which does not make it shorter.
        note.set_in_layout(False)
    most = max((one.end for one in bars), default=1.0) or 1.0
    ax.set_xlim(0, _ROOM * most)
    ax.set_xticks([tick for tick in ax.get_xticks() if tick <= most * (1 + 1e-9)])
    ax.set_xlabel(label)
    ax.set_title(title, loc="left", fontsize=10)
    return ax


def _plotly_bars(bars: Sequence[Bar], label: str, title: str) -> Any:
    from plotly import graph_objects as go

    chart = go.Bar(
        y=[one.name for one in bars],
        x=[one.end - one.begin for one in bars],
        base=[one.begin for one in bars],
        text=[one.note for one in bars],
        textposition="outside",
        orientation="h",
    )
    figure = go.Figure(chart)
    most = max((one.end for one in bars), default=1.0) or 1.0
    figure.update_layout(title=title, height=140 + 32 * len(bars), template="plotly_white")
    figure.update_xaxes(title=label, range=[0, _ROOM * most])
    figure.update_yaxes(autorange="reversed")
    return figure


def _some(names: Sequence[str]) -> str:
    """As many names as fit on a label, each cut short, and how many there are more."""
    if not names:
        return "nothing new"
    short = [name if len(name) <= _LETTERS else name[: _LETTERS - 1] + "…" for name in names]
    shown = 1
    while shown < len(short) and len(", ".join(short[: shown + 1])) <= _LETTERS:
        shown += 1
    return ", ".join(short[:shown]) + (f" and {len(short) - shown} more" if len(short) > shown else "")
