"""A frontier to look at: as a line on axes, as a data frame. Neither library is loaded before it is asked for."""

from typing import Any, Protocol

import numpy as np

from thrifty.arrays import Floats
from thrifty.evidence.compare import Scored
from thrifty.evidence.evidence import Means
from thrifty.exceptions import InvalidInputError

__all__ = ["Shown", "draw", "frame"]


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


def draw(frontier: Shown, ax: Any = None, **line: Any) -> Any:
    """Draw score against mean cost per row, and return the axes; new ones if none are given."""
    if ax is None:
        try:
            from matplotlib import pyplot as plt
        except ModuleNotFoundError:
            raise InvalidInputError(
                "pictures need matplotlib; install it with `pip install thrifty[report]`."
            ) from None
        _, ax = plt.subplots(layout="constrained")
    # Between two points of a frontier there is the cheaper one; points on other rows are no staircase.
    style = {"marker": ".", "linewidth": 1.2} if frontier.held_out else {"drawstyle": "steps-post"}
    ax.plot(frontier.cost, frontier.score, **{**style, **line})
    ax.set_xlabel("mean cost per row")
    ax.set_ylabel(
        "share of rows not worse than the full model" if frontier.compares_with_full else "mean score"
    )
    return ax


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
