"""``Facts``: results of a system on labelled rows, at one or more operating points, as plain numbers and text."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from thrifty.arrays import Bools, Ints
from thrifty.errors import InvalidInputError

Numbers = tuple[float, ...]

MAX_LABELS = 20
"""Labels of one grouping, and kinds of mistakes, that get a line of their own; the rarest of more are together."""
LEVEL = 0.95
"""Share of the bootstrap draws that an interval holds."""


@dataclass(frozen=True)
class Curve:
    """A measure at each operating point, with its bootstrap interval, and of the full model and a constant answer.

    ``low`` and ``high`` are empty for a measure without interval.
    """

    name: str
    value: Numbers
    low: Numbers = ()
    high: Numbers = ()
    full: float | None = None
    constant: float | None = None


@dataclass(frozen=True)
class PurchaseLine:
    """A purchase: its name, its price, the first stage that makes it, and the number of columns it delivers.

    The full model counts as the stage behind the last one; purchases that no model needs come behind it.
    """

    name: str
    price: float
    first: int
    n_columns: int = 1


@dataclass(frozen=True)
class Grouping:
    """Rows by class, by range of the target or by a group that the caller named.

    Attributes
    ----------
    name, labels, n_rows
        Name of the grouping, names of the groups, and number of rows of each.
    sent : tuple of tuple of int
        Rows of each group that each point sends to the full model.
    sums : tuple of tuple of float
        For each point, right answers in each group; where numbers are predicted, sums of absolute errors.
    full_sums : tuple of float or None
        Those of the full model's own answers, if they are known.
    """

    name: str
    labels: tuple[str, ...]
    n_rows: tuple[int, ...]
    sent: tuple[tuple[int, ...], ...]
    sums: tuple[Numbers, ...]
    full_sums: Numbers | None


@dataclass(frozen=True)
class MistakeKind:
    """Rows of one class that are answered with another one, or several such kinds together.

    Attributes
    ----------
    truth, answer : str
        The two labels; of several kinds, how many they are, and nothing.
    price : float or None
        Price of one such mistake; None for several kinds together.
    count : tuple of int
        Rows of each point.
    lost : tuple of float
        Their cost at each point, per row of the report.
    full : float or None
        Their cost if the full model answers every row, if that is known.
    """

    truth: str
    answer: str
    price: float | None
    count: tuple[int, ...]
    lost: Numbers
    full: float | None


@dataclass(frozen=True)
class Rival:
    """Another method's points on the same rows."""

    name: str
    cost: Numbers
    score: Numbers


@dataclass(frozen=True)
class Facts:
    """Results of a system on labelled rows. Operating points are ordered by rising budget.

    Attributes
    ----------
    kind : str
        Kind of the score: "labels" by accuracy, labels by a "bill" of features and mistakes, "numbers", a "ranking", or
        the "routing" of a ``ModelRouter``, whose purchases are answers of models, and whose full model is the best
        single one.
    score, cost : Curve
        The score (accuracy, cost of mistakes, R2, NDCG@10, ...) and the mean cost per row of each point.
    share : tuple of float
        Share of the rows that the full model answers at each point.
    n_rows, n_queries : int, int or None
        Rows, or documents, and their queries, over which scores are means and which intervals draw.
    constant : str
        The best constant answer.
    measures : tuple of Curve
        Other measures: balanced accuracy, log-loss and AUC of labels, mean errors of numbers.
    lead, total : Curve or None
        Score minus that of the full model on the same rows; total cost of features and mistakes.
    budget : tuple of float
        Mean cost of each point on the rows it was chosen on: what a budget is compared with.
    efficient : tuple of bool
        Whether a budget can lead to a point; one that is deployed or certified is shown in any case.
    start, marked : int, dict of str to int
        The point that is shown first, and those with a name: "deployed", "certified", "least total cost".
    n_stages, purchases, bought : int, tuple of PurchaseLine, tuple of tuple of float
        Number of stages, purchases in their order, and the share of the rows that make each of them at each point.
    spent : tuple of tuple of float
        Mean paid per row for each purchase at each point, where prices differ by row; else empty.
    receipts : tuple of (str, str)
        Some rows, and what was asked, paid and decided for them at the deployed point.
    picture : bytes
        A picture of the tree of purchases as PNG, where there is one.
    groupings : tuple of Grouping
        Classes or ranges of the target first, then the groups that the caller named.
    mistakes : tuple of MistakeKind
        Mistakes with a price, by true class and answer, the most expensive first.
    rivals : tuple of Rival
        Other methods.
    certificate : str
        Statement that is proved about the certified point, if any.
    held_out, n_chosen, n_points : bool, int or None, int
        Whether the rows are others than those the points were chosen on, the number of those, and the number of
        efficient points before some were left out.
    level, n_boot, seed : float, int, int
        Of the bootstrap.
    title, method, full_name, unit : str
        Title of the page, name of the system, name of the full model, and unit of prices; the last two may be empty.
    is_mixed : bool
        Whether a budget between two points is spent.
    by_lot : float
        Share of rows of the fit for which the key decides between the two points of the mix in force.
    notes : tuple of (str, str)
        Further lines on how it was measured.
    costs : tuple of Curve
        Mean cost in each of several resources; ``cost`` is then their sum at exchange rates.
    budgets_picture : bytes
        A picture of the score by budgets of two resources as PNG, where there are two.
    more : tuple of (str, str)
        What more of each of several resources buys at the point in force.
    """

    kind: Literal["labels", "bill", "numbers", "ranking", "routing"]
    score: Curve
    cost: Curve
    share: Numbers
    n_rows: int
    n_queries: int | None = None
    constant: str = ""
    measures: tuple[Curve, ...] = ()
    lead: Curve | None = None
    total: Curve | None = None
    budget: Numbers = ()
    efficient: tuple[bool, ...] = ()
    start: int = 0
    marked: dict[str, int] = field(default_factory=dict)
    n_stages: int = 0
    purchases: tuple[PurchaseLine, ...] = ()
    bought: tuple[Numbers, ...] = ()
    spent: tuple[Numbers, ...] = ()
    receipts: tuple[tuple[str, str], ...] = ()
    picture: bytes = b""
    groupings: tuple[Grouping, ...] = ()
    mistakes: tuple[MistakeKind, ...] = ()
    rivals: tuple[Rival, ...] = ()
    certificate: str = ""
    held_out: bool = True
    n_chosen: int | None = None
    n_points: int = 1
    level: float = 0.95
    n_boot: int = 1000
    seed: int = 0
    title: str = "What accuracy costs"
    method: str = "thrifty"
    full_name: str = ""
    unit: str = ""
    is_mixed: bool = False
    by_lot: float = 0.0
    notes: tuple[tuple[str, str], ...] = ()
    costs: tuple[Curve, ...] = ()
    budgets_picture: bytes = b""
    more: tuple[tuple[str, str], ...] = ()

    def __len__(self) -> int:
        return len(self.cost.value)

    @property
    def is_number(self) -> bool:
        """True if the score is neither a share of right answers nor money."""
        return self.kind in ("numbers", "ranking", "routing")

    def marks(self, place: int) -> list[str]:
        """Names of a point, if it has some."""
        return [name for name, at in self.marked.items() if at == place]

    @property
    def curves(self) -> tuple[Curve, ...]:
        """The score, the total where mistakes have prices, and the other measures."""
        return (self.score, *([] if self.total is None else [self.total]), *self.measures)

    def results(self, place: int) -> dict[str, Any]:
        """Results of one operating point, ready for JSON."""

        def ends(curve: Curve) -> list[float] | None:
            return [curve.low[place], curve.high[place]] if curve.low else None

        def of(curve: Curve) -> dict[str, Any]:
            return {"value": curve.value[place], "interval": ends(curve)}

        return {
            "rows": self.n_rows,
            **({} if self.n_queries is None else {"queries": self.n_queries}),
            "score": self.score.name,
            "mean_cost": self.cost.value[place],
            "mean_cost_interval": ends(self.cost),
            "full_cost": self.cost.full,
            **({} if self.lead is None else {"against_full": of(self.lead)}),
            **({"mean_costs": {curve.name: of(curve) for curve in self.costs}} if self.costs else {}),
            "share_full": self.share[place],
            "measures": {
                curve.name: {
                    "value": curve.value[place],
                    "interval": ends(curve),
                    "full": curve.full,
                    "constant": curve.constant,
                }
                for curve in self.curves
            },
        }

    def interval(self, n_new: int, place: int = 0) -> tuple[float, float]:
        """Interval of the score of ``n_new`` new rows, or queries.

        Intervals of means over n rows shrink with sqrt(n), and the variances of the measured rows and of the new ones,
        which are independent, add up.
        """
        value, wider = self.score.value[place], (1.0 + (self.n_queries or self.n_rows) / n_new) ** 0.5
        low, high = (value + wider * (end[place] - value) for end in (self.score.low, self.score.high))
        if self.kind == "labels":
            return max(low, 0.0), min(high, 1.0)
        return (max(low, 0.0), high) if self.kind == "bill" else (low, min(high, 1.0))


# -- groups of rows --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Partition:
    """A name, labels, and which of them each row has."""

    name: str
    labels: tuple[str, ...]
    of_row: Ints

    def sums(self, values: Any = None) -> tuple[Any, ...]:
        """Number of rows of each label, or the sum of their values."""
        return tuple(np.bincount(self.of_row, weights=values, minlength=len(self.labels)).tolist())

    def grouping(self, sent: Sequence[Bools], values: Iterable[Any], full: Any) -> Grouping:
        """Rows sent and sums of values at each point, and the sums of the full model, by label."""
        return Grouping(
            name=self.name,
            labels=self.labels,
            n_rows=self.sums(),
            sent=tuple(tuple(map(int, self.sums(mask))) for mask in sent),
            sums=tuple(self.sums(of_point) for of_point in values),
            full_sums=None if full is None else self.sums(full),
        )


def partition_of(name: str, labels: ArrayLike, n_rows: int) -> Partition:
    """Rows by label, in the order of the labels; rare labels of many are merged."""
    values = np.asarray(labels)
    if values.shape != (n_rows,):
        raise InvalidInputError(
            f"{name} must hold one label per row, shape ({n_rows},); got shape {values.shape}."
        )
    # As text, unless they are numbers: labels of mixed kinds, None and NaN among them, compare as they read.
    values = values if values.dtype.kind in "biuf" else np.array([str(value) for value in values])
    different, of_row = np.unique(values, return_inverse=True)
    words, of_row = [str(value) for value in different.tolist()], of_row.reshape(-1)
    if len(words) > MAX_LABELS:
        kept = np.sort(np.argsort(-np.bincount(of_row), kind="stable")[: MAX_LABELS - 1])
        place = np.full(len(words), len(kept))
        place[kept] = np.arange(len(kept))
        n_rare = len(words) - len(kept)
        words, of_row = [*(words[label] for label in kept), f"{n_rare} others"], place[of_row]
    return Partition(name, tuple(words), of_row)
