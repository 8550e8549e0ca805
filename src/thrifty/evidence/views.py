"""A frontier to look at: as a line on axes, as a data frame. Neither library is loaded before it is asked for."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from thrifty.arrays import Floats
from thrifty.errors import InvalidInputError
from thrifty.evidence.bootstrap import Scored
from thrifty.evidence.evidence import Means
from thrifty.evidence.measures import Measure
from thrifty.evidence.pictures import check_backend, new_axes
from thrifty.tasks.task import Task

__all__ = ["Shown", "draw", "draw_with_plotly", "frame", "measures_frame"]


class Shown(Scored, Protocol):
    """Operating points with all that a view of them shows."""

    @property
    def share(self) -> Floats:
        """Share of rows that go beyond the stages."""

    @property
    def threshold(self) -> Floats:
        """Threshold of single gates."""

    @property
    def chosen(self) -> Means:
        """Means on the rows of the choice."""

    @property
    def held_out(self) -> bool:
        """Whether the rows are others than those of the choice."""

    @property
    def compares_with_full(self) -> bool:
        """Whether the score is "not worse than the full model"."""

    @property
    def task(self) -> Task | None:
        """What an answer is, if that is known."""


def draw(frontier: Shown, ax: Any = None, **line: Any) -> Any:
    """Draw score against mean cost per row, and return the axes; new ones if none are given.

    Where mistakes have prices, the second axis is what they cost, and the point of least total cost is marked.
    """
    ax = new_axes() if ax is None else ax
    # Between two points of a frontier there is the cheaper one; points on other rows are no staircase.
    style = {"marker": ".", "linewidth": 1.2} if frontier.held_out else {"drawstyle": "steps-post"}
    priced = frontier.task is not None and frontier.task.mistake_price is not None
    if priced and not frontier.compares_with_full:
        return _draw_money(frontier, ax, {**style, **line})
    ax.plot(frontier.cost, frontier.score, **{**style, **line})
    ax.set_xlabel("mean cost per row")
    ax.set_ylabel(_score_in_words(frontier))
    return ax


def _score_in_words(frontier: Shown) -> str:
    if frontier.compares_with_full:
        return "share of rows not worse than the full model"
    return "mean score" if frontier.task is None else frontier.task.quality_name


def draw_with_plotly(frontier: Shown, **line: Any) -> Any:
    """The same as a figure of plotly; ``line`` goes to ``plotly.graph_objects.Scatter``."""
    check_backend("plotly")
    from plotly import graph_objects as go

    priced = frontier.task is not None and frontier.task.mistake_price is not None
    is_money = priced and not frontier.compares_with_full
    style = {"mode": "lines+markers"} if frontier.held_out else {"mode": "lines", "line_shape": "hv"}
    score = -frontier.score if is_money else frontier.score
    figure = go.Figure(go.Scatter(x=frontier.cost, y=score, **{**style, **line}))
    names = ("mean cost of tests per row", "mean cost of mistakes per row")
    across, up = names if is_money else ("mean cost per row", _score_in_words(frontier))
    figure.update_layout(xaxis_title=across, yaxis_title=up, template="plotly_white")
    return figure


def _draw_money(frontier: Shown, ax: Any, style: dict[str, Any]) -> Any:
    """Both parts of the bill on axes, and the point of least total, by the rows of the choice."""
    (curve,) = ax.plot(frontier.cost, -frontier.score, **style)
    # A choice by the totals of other rows would be made on them.
    least = int(np.argmin(frontier.chosen.cost - frontier.chosen.score))
    tests, mistakes = float(frontier.cost[least]), -float(frontier.score[least])
    told = f"least total cost: {tests:.4g} + {mistakes:.4g} = {tests + mistakes:.4g}"
    ax.plot(tests, mistakes, "o", color=curve.get_color(), markersize=8, label=told)
    ax.set_xlabel("mean cost of tests per row")
    ax.set_ylabel("mean cost of mistakes per row")
    ax.legend(frameon=False, fontsize=8)
    return ax


def measures_frame(frontier: Shown, budgets: Floats, found: Mapping[int, Mapping[str, Measure]]) -> Any:
    """One line per budget: the budget, the cost of its point, and every measure with the ends of its interval."""
    try:
        import pandas as pd
    except ModuleNotFoundError:
        raise InvalidInputError("measures needs pandas; install it with `pip install pandas`.") from None
    lines = []
    for budget, place in zip(budgets.tolist(), frontier.within(budgets).tolist(), strict=True):
        line = {"budget": budget, "cost": float(frontier.cost[place])}
        for name, one in found[place].items():
            line |= {name: one.value, f"{name}_low": one.low, f"{name}_high": one.high}
        lines.append(line)
    return pd.DataFrame(lines)


def frame(frontier: Shown) -> Any:
    """One line per point, one column per number and per setting; needs pandas."""
    try:
        import pandas as pd
    except ModuleNotFoundError:
        raise InvalidInputError("to_frame needs pandas; install it with `pip install pandas`.") from None
    source = frontier.source
    bought = np.array([len(one.features) for one in frontier.evidence])
    columns: dict[str, Any] = {
        "cost": frontier.cost,
        "score": frontier.score,
        "share": frontier.share,
        "threshold": _thresholds(frontier),
        "n_features": bought[source],
        "source": source,
        "chosen_cost": frontier.chosen.cost,
        "chosen_score": frontier.chosen.score,
    }
    used = np.unique(source)
    names = dict.fromkeys(name for place in used for name in frontier.evidence[place].settings)
    for name in names:
        values = [one.settings.get(name) for one in frontier.evidence]
        columns[f"setting.{name}"] = pd.Series([values[place] for place in source])
    return pd.DataFrame(columns)


def _thresholds(frontier: Shown) -> Any:
    """Thresholds as numbers; objects, with None in the place of the missing ones, only where some are missing."""
    missing = np.isnan(frontier.threshold)
    if not missing.any():
        return frontier.threshold
    values = frontier.threshold.astype(object)
    values[missing] = None
    return values
