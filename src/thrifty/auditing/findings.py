"""What an audit has found: numbers, and the same as text, as a data frame and as a page of a notebook."""

from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from thrifty.arrays import Floats
from thrifty.evidence.frontier import Frontier
from thrifty.evidence.sketches import Mark, bars, staircase, table

__all__ = ["Audit", "Drop", "Offer", "PurchaseUse"]

RARE = 0.01
"""Share of rows up to which a purchase counts as hardly read."""
_SHOWN = 15


@dataclass(frozen=True)
class PurchaseUse:
    """A purchase as a model uses it.

    Attributes
    ----------
    name : str
        Names of the columns that it delivers.
    columns : tuple of int
        Their numbers.
    price : float
        Its price.
    share : float
        Share of the rows of which the model reads some of these columns.
    loss, error : float or None
        Score that is lost on average where the columns are not bought and a typical value stands in their place, and
        the standard error of that mean; None without labels.
    """

    name: str
    columns: tuple[int, ...]
    price: float
    share: float
    loss: float | None = None
    error: float | None = None

    @property
    def spend(self) -> float:
        """What it costs a row on average, before discounts."""
        return self.price * self.share


@dataclass(frozen=True)
class Drop:
    """Purchases that a model could do without, all at once.

    Attributes
    ----------
    purchases : tuple of PurchaseUse
        Those purchases.
    cost : float
        What the model would spend per row without them.
    loss, error : float or None
        Score that is lost, with its standard error, on the rows of the audit; None without labels.
    """

    purchases: tuple[PurchaseUse, ...]
    cost: float
    loss: float | None = None
    error: float | None = None


@dataclass(frozen=True)
class Offer:
    """A cascade in front of the model: the cheapest point that loses no more than so much, judged out of fold.

    Attributes
    ----------
    max_loss : float
        Score that the point may lose against the model alone.
    cost, score : float
        Mean cost per row, and mean score.
    """

    max_loss: float
    cost: float
    score: float


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """What a fitted model spends per row, what it could do without, and what a cascade in front of it would save.

    Made by ``thrifty.audit``. ``print`` shows it as text, a notebook as a page, ``to_frame`` as a data frame.

    Attributes
    ----------
    model : str
        Name of the model's class, or of the classes of a pipeline.
    follows_paths : bool
        Whether the model is made of trees, of which each row is asked for the columns on its paths; any other model
        reads the same columns of every row.
    cost : ndarray of shape (n_rows,)
        What each row spends if columns are bought when the model first looks at them.
    cost_at_once : float
        What a row spends if all columns are bought that the model reads of any row.
    cost_of_everything : float
        What a row spends if all columns of the table are bought.
    purchases : tuple of PurchaseUse
        Every purchase, those that cost most per row first.
    drop : Drop
        Purchases that the model could do without.
    score, score_name : float or None, str
        Mean score of the model on the rows that were judged, if labels were given, and what it is.
    n_judged : int
        Rows that were judged.
    offers : tuple of Offer
        Points of a cascade in front of the model; none without labels.
    frontier : Frontier or None
        Every point of that cascade.
    """

    model: str
    follows_paths: bool
    cost: Floats
    cost_at_once: float
    cost_of_everything: float
    purchases: tuple[PurchaseUse, ...]
    drop: Drop
    score: float | None = None
    score_name: str = "score"
    n_judged: int = 0
    offers: tuple[Offer, ...] = ()
    frontier: Frontier | None = field(default=None)

    @property
    def mean_cost(self) -> float:
        """What a row spends on average if columns are bought when the model first looks at them."""
        return float(self.cost.mean())

    def to_frame(self) -> Any:
        """Return a pandas data frame with one line per purchase, those that cost most per row first."""
        import pandas as pd

        dropped = {one.columns for one in self.drop.purchases}
        return pd.DataFrame(
            {
                "purchase": [one.name for one in self.purchases],
                "price": [one.price for one in self.purchases],
                "share": [one.share for one in self.purchases],
                "spend": [one.spend for one in self.purchases],
                "loss": np.array([one.loss for one in self.purchases], dtype=float),
                "error": np.array([one.error for one in self.purchases], dtype=float),
                "can_drop": [one.columns in dropped for one in self.purchases],
            }
        )

    def as_dict(self) -> dict[str, Any]:
        """Everything but the cost of single rows and the frontier, ready for a JSON file."""
        used = [
            {"purchase": one.name, "price": one.price, "share": one.share, "spend": one.spend}
            | ({} if one.loss is None else {"loss": one.loss, "error": one.error})
            for one in self.purchases
        ]
        dropped = {"purchases": [one.name for one in self.drop.purchases], "cost": self.drop.cost}
        if self.drop.loss is not None:
            dropped |= {"loss": self.drop.loss, "error": self.drop.error}
        return {
            "model": self.model,
            "follows_paths": self.follows_paths,
            "n_rows": len(self.cost),
            "mean_cost": self.mean_cost,
            "cost_at_once": self.cost_at_once,
            "cost_of_everything": self.cost_of_everything,
            "purchases": used,
            "drop": dropped,
            "score": self.score,
            "score_name": self.score_name,
            "cascade": [vars(one) | {"saved": self._saved(one.cost)} for one in self.offers],
        }

    # -- text ------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"Audit({self.model} on {len(self.cost):,} rows: mean cost {self.mean_cost:.4g})"

    def __str__(self) -> str:
        lines = [*self._spending(), "", *self._use_in_words(), "", *self._drop_in_words()]
        if self.offers:
            lines += ["", *self._cascade_in_words()]
        return "\n".join(lines)

    def _spending(self) -> list[str]:
        how = (
            "columns are bought when a tree first looks at them"
            if self.follows_paths
            else "it is not made of trees that are known, and reads the same columns of every row"
        )
        middle, most = np.quantile(self.cost, [0.5, 0.9])
        lines = [
            f"{self.model} on {len(self.cost):,} rows spends {self.mean_cost:.4g} per row: {how}.",
            f"Half of the rows spend at most {middle:.4g}, nine of ten at most {most:.4g}.",
            f"Bought at once, what it reads costs {self.cost_at_once:.4g}, the table {self.cost_of_everything:.4g}.",
        ]
        if self.score is not None:
            lines.append(f"Its {self.score_name} is {self.score:.4f} on {self.n_judged:,} rows.")
        return lines

    def _head(self) -> list[str]:
        judged = [] if self.score is None else ["lost without it"]
        return ["purchase", "price", "read by", "spend per row", *judged]

    def _lines(self) -> list[list[str]]:
        found = []
        for one in self.purchases[:_SHOWN]:
            line = [one.name, f"{one.price:g}", f"{one.share:.1%}", f"{one.spend:.4g}"]
            if self.score is not None:
                line.append("-" if one.loss is None else f"{one.loss:.4f} ± {one.error:.4f}")
            found.append(line)
        return found

    def _use_in_words(self) -> list[str]:
        cells = [self._head(), *self._lines()]
        cells = [[line[0] if len(line[0]) <= 40 else line[0][:39] + "…", *line[1:]] for line in cells]
        widths = [max(len(line[place]) for line in cells) for place in range(len(cells[0]))]
        found = [
            "  ".join(
                [line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))]
            ).rstrip()
            for line in cells
        ]
        rest = self.purchases[_SHOWN:]
        if rest:
            found.append(f"... and {len(rest)} more, which cost {sum(one.spend for one in rest):.4g} per row")
        return found

    def _drop_in_words(self) -> list[str]:
        drop = self.drop
        if not drop.purchases:
            return ["There is no purchase that it could do without."]
        names = [one.name for one in drop.purchases]
        shown = ", ".join(names[:_SHOWN]) + (
            f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        )
        saved = f"it then spends {drop.cost:.4g} per row"
        if drop.loss is None:
            why = f"at most {RARE:.0%} of the rows are asked for each of them"
            return [f"It could do without {shown}: {why}, and {saved}."]
        lost = f"loses {drop.loss:.4f} ± {drop.error:.4f} of {self.score_name} on these rows"
        return [f"It could do without {shown}, with typical values in their place: {saved} and {lost}."]

    def _saved(self, cost: float) -> float:
        return 1.0 - cost / self.mean_cost if self.mean_cost else 0.0

    def _cascade_in_words(self) -> list[str]:
        lines = ["A cascade in front of it, each row judged by stages that have not learned from it:"]
        for one in self.offers:
            saved = self._saved(one.cost)
            change = f"{saved:.0%} less" if saved > 0 else "which saves nothing"
            lines.append(
                f"  losing at most {one.max_loss:g} of {self.score_name}: {one.cost:.4g} per row, {change} "
                f"({self.score_name} {one.score:.4f})"
            )
        lines.append(
            "Shares are of what the model spends per row. Points were chosen on the same rows: fit a cascade, and "
            "prove one on others with certified(X, y)."
        )
        return lines

    # -- notebooks -------------------------------------------------------------------------------

    def _repr_html_(self) -> str:
        parts = [f"<b>Audit of {escape(self.model)}</b>"]
        parts += [f"<div>{escape(line)}</div>" for line in self._spending()]
        shown = self.purchases[:_SHOWN]
        dearest = max((one.spend for one in shown), default=0.0) or 1.0
        notes = [f"{one.spend:.4g} per row, {one.share:.0%} of rows" for one in shown]
        lengths = [one.spend / dearest for one in shown]
        parts.append(bars([one.name for one in shown], lengths, notes, "What purchases cost per row"))
        parts += [f"<div>{escape(line)}</div>" for line in self._drop_in_words()]
        if self.offers:
            parts.append(self._cascade_as_html())
        return f'<div style="display:grid;gap:8px;justify-items:start">{"".join(parts)}</div>'

    def _cascade_as_html(self) -> str:
        assert self.frontier is not None
        assert self.score is not None
        lines = [
            [
                f"at most {one.max_loss:g}",
                f"{one.cost:.4g}",
                f"{one.score:.4f}",
                f"{self._saved(one.cost):.0%}",
            ]
            for one in self.offers
        ]
        model = Mark(self.mean_cost, self.score, f"{self.model}, bought on its paths", "#b3261e")
        sketch = staircase(
            self.frontier.cost,
            self.frontier.score,
            [model],
            f"{self.score_name} of a cascade against its mean cost",
            self.score_name,
        )
        head = (f"lost {self.score_name}", "cost per row", self.score_name, "saved")
        return f"<div>{escape(self._cascade_in_words()[0])}</div>{table(head, lines)}{sketch}"
