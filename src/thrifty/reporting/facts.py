"""``Facts``: all contents of a report as plain numbers and text.

Tuples, numbers and text only, so that the facts of a report can be saved as JSON, compared, and rendered by a later
version.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from thrifty.errors import InvalidInputError

__all__ = [
    "Bill",
    "Certified",
    "Constant",
    "Facts",
    "FullPoint",
    "Grouping",
    "MeasureCurve",
    "Measured",
    "MistakeKind",
    "Points",
    "Purchase",
    "Rival",
]

Numbers = tuple[float, ...]


@dataclass(frozen=True)
class Points:
    """Operating points by rising budget, all tuples of one length.

    Attributes
    ----------
    budget : tuple of float
        Mean cost on the rows the point was chosen on: what a budget is compared with.
    cost, score : tuple of float
        Means on the rows of the report; ``Facts.score_name`` says what the score is.
    low, high : tuple of float
        Ends of the score's bootstrap interval.
    lead_low, lead_high : tuple of float, or empty
        Ends of the interval of "score minus that of the full model on the same rows"; empty if that is not known.
    reach : tuple of tuple of float
        Share of the rows that get to each stage: first 1, last the share sent to the full model.
    bought : tuple of tuple of float
        Share of the rows that make each purchase.
    efficient : tuple of bool
        Whether a budget can lead here; a point that is shown because it is deployed or certified need not be efficient.
    """

    budget: Numbers
    cost: Numbers
    score: Numbers
    low: Numbers
    high: Numbers
    lead_low: Numbers
    lead_high: Numbers
    reach: tuple[Numbers, ...]
    bought: tuple[Numbers, ...]
    efficient: tuple[bool, ...]

    def __len__(self) -> int:
        return len(self.budget)

    def share(self, place: int) -> float:
        """Share of the rows that a point sends to the full model."""
        return self.reach[place][-1]


@dataclass(frozen=True)
class Purchase:
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
class MeasureCurve:
    """One measure, such as a mean error: of each point with its interval, of the full model, of a constant.

    AUC has no interval, and ``low`` and ``high`` are empty then.
    """

    name: str
    value: Numbers
    low: Numbers
    high: Numbers
    full: float | None
    constant: float


@dataclass(frozen=True)
class MistakeKind:
    """Rows of one class that are answered with another one, or several such kinds together.

    Attributes
    ----------
    truth, answer : str
        The two labels; of several kinds, how many they are, and nothing.
    price : float or None
        What one of them costs; None for several kinds together.
    count : tuple of int
        Rows of each point.
    lost : tuple of float
        What they cost at each point, per row of the report.
    full : float or None
        What they cost if the full model answers every row, if that is known.
    """

    truth: str
    answer: str
    price: float | None
    count: tuple[int, ...]
    lost: Numbers
    full: float | None


@dataclass(frozen=True)
class Bill:
    """Total cost of features and mistakes, where mistakes have prices.

    Attributes
    ----------
    low, high : tuple of float
        Ends of the bootstrap interval of each point's total, which is ``points.cost`` plus ``points.score``.
    least : int
        The point of least total on the rows that points were chosen on.
    kinds : tuple of MistakeKind
        Mistakes by true class and answer, the most expensive first.
    """

    low: Numbers
    high: Numbers
    least: int
    kinds: tuple[MistakeKind, ...]


@dataclass(frozen=True)
class Rival:
    """Another method's points on the same rows."""

    name: str
    cost: Numbers
    score: Numbers


@dataclass(frozen=True)
class FullPoint:
    """The full model for every row: mean cost, score, and the price of a call."""

    cost: float
    score: float
    call_price: float = 0.0


@dataclass(frozen=True)
class Constant:
    """The best constant answer, such as the most frequent class, and its score."""

    label: str
    score: float


@dataclass(frozen=True)
class Certified:
    """A certificate's sentence, and the place of the certified point, if it can be shown."""

    sentence: str
    point: int | None


@dataclass(frozen=True)
class Measured:
    """How the numbers were measured.

    Attributes
    ----------
    n_rows : int
        Rows of the report; documents, where those are ranked.
    held_out : bool
        Whether they are others than those the points were chosen on.
    n_chosen : int or None
        Rows the points were chosen on, if known.
    n_points : int
        Efficient points before some were left out of the page.
    level, n_boot, seed : float, int, int
        Of the bootstrap.
    version : str
        Of thrifty.
    n_queries : int or None
        Queries of the documents, over which scores are means and which intervals draw; None where nothing is ranked.
    """

    n_rows: int
    held_out: bool
    n_chosen: int | None
    n_points: int
    level: float
    n_boot: int
    seed: int
    version: str
    n_queries: int | None = None


@dataclass(frozen=True)
class Facts:
    """All contents of a report.

    Attributes
    ----------
    kind : str
        Kind of report: "labels" judged by accuracy, labels judged by a "bill" of features and mistakes, "numbers", or a
        "ranking".
    score_name : str
        Name of ``points.score``: "accuracy", "cost of mistakes", "R2", "NDCG@10", ...
    points : Points
        Operating points.
    start : int
        The point that is shown first.
    purchases : tuple of Purchase
        Purchases in the order of the stages.
    groupings : tuple of Grouping
        Classes or ranges of the target first, then the groups that the caller named.
    constant : Constant
        The best constant answer.
    measured : Measured
        How the numbers were measured.
    measures : tuple of MeasureCurve
        Other measures: balanced accuracy, log-loss and AUC of labels, mean errors of numbers.
    full : FullPoint or None
        The full model's own point, if known.
    rivals : tuple of Rival
        Other methods.
    certified : Certified or None
        The certificate.
    deployed : int or None
        The place of the point that is deployed, if that is known.
    bill : Bill or None
        Totals of tests and mistakes, where mistakes have prices.
    title, method, full_name, unit : str
        Title of the page, name of the system in the legend, name of the full model, and unit of prices; the last two
        may be empty.
    date : str or None
        Date of the report, as the caller gives it.
    notes : tuple of (str, str)
        Further lines on how it was measured.
    """

    kind: Literal["labels", "bill", "numbers", "ranking"]
    score_name: str
    points: Points
    start: int
    purchases: tuple[Purchase, ...]
    groupings: tuple[Grouping, ...]
    constant: Constant
    measured: Measured
    measures: tuple[MeasureCurve, ...] = ()
    full: FullPoint | None = None
    rivals: tuple[Rival, ...] = ()
    certified: Certified | None = None
    deployed: int | None = None
    bill: Bill | None = None
    title: str = "What accuracy costs"
    method: str = "thrifty"
    full_name: str = ""
    unit: str = ""
    date: str | None = None
    notes: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        n_points = len(self.points)
        lengths = {name: len(values) for name, values in vars(self.points).items()}
        optional = ("lead_low", "lead_high")
        uneven = [name for name, n in lengths.items() if n != n_points and not (n == 0 and name in optional)]
        if n_points == 0 or uneven:
            raise InvalidInputError(
                f"facts need at least one point, and an entry per point in every field; got {n_points} points and "
                f"other lengths in {uneven}. Make facts with `measure`."
            )
        for name, place in (("start", self.start), ("deployed", self.deployed)):
            if place is not None and not 0 <= place < n_points:
                raise InvalidInputError(
                    f"{name} must be the place of one of {n_points} points; got {place!r}."
                )

    @property
    def is_number(self) -> bool:
        """Whether the score is neither a share of right answers nor money."""
        return self.kind in ("numbers", "ranking")

    def total(self, place: int) -> float:
        """Total cost of features and mistakes at a point, where mistakes have prices."""
        return self.points.cost[place] + self.points.score[place]

    @property
    def marked(self) -> dict[str, int]:
        """Places of the points with a name: deployed, certified, least total cost."""
        certified = None if self.certified is None else self.certified.point
        least = None if self.bill is None else self.bill.least
        known = {"deployed": self.deployed, "certified": certified, "least total cost": least}
        return {name: place for name, place in known.items() if place is not None}

    def marks(self, place: int) -> list[str]:
        """Names of a point, if it has some."""
        return [name for name, at in self.marked.items() if at == place]

    def as_dict(self) -> dict[str, Any]:
        """Facts as a dict for JSON."""
        return asdict(self)
