"""The picture people look at first: accuracy against mean cost, one line per method."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from thrifty.exceptions import InvalidInputError

__all__ = ["Curve", "draw_tradeoff", "new_figure", "save_figure"]

# Lines differ in dash and marker, not only in colour: the picture must read in black and white.
_DASHES: Sequence[Any] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), (0, (1, 1)))
_MARKERS = "osD^vPX<>"
_COLOURS = ("#0b5fa5", "#c8501e", "#3f7d20", "#7b3f9e", "#555555", "#b8860b", "#008b8b")


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
