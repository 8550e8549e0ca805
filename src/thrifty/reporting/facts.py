"""All that a page says, as plain numbers and words: what is measured is settled before anything is drawn.

Nothing here knows how the facts came about or how they will look. Tuples, numbers and text only, so that the facts of a
report can be kept as JSON, compared and written again by a later version.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

from thrifty.errors import InvalidInputError

__all__ = [
    "Bill",
    "Certified",
    "Facts",
    "FullPoint",
    "Grouping",
    "Majority",
    "MeasureCurve",
    "Measured",
    "MistakeKind",
    "Points",
    "Purchase",
    "Rival",
    "System",
]

Numbers = tuple[float, ...]


@dataclass(frozen=True)
class Points:
    """Operating points by rising budget, all tuples of one length.

    Attributes
    ----------
    budget : tuple of float
        Mean cost on the rows the point was chosen on: what a budget is compared with.
    cost, accuracy : tuple of float
        Means on the rows of the report; where numbers are predicted, R2 stands in the place of accuracy, and where
        mistakes have prices, what they cost.
    low, high : tuple of float
        Ends of the accuracy's bootstrap interval.
    lead_low, lead_high : tuple of float, or empty
        Ends of the interval of "accuracy minus that of the full model on the same rows"; empty if that is not known.
    system : tuple of int
        The system each point belongs to.
    reach : tuple of tuple of float
        Share of the rows that get to each place of the system: first 1, last the share sent to the full model.
    efficient : tuple of bool
        Whether a budget can lead here; a point that is shown because it is deployed or certified need not be efficient.
    auc : tuple of float, or empty
        Area under the ROC curve on the rows of the report; of several classes the mean, each against the rest. Empty if
        it is not known.
    bought : tuple of tuple of float, or empty
        Share of the rows that make each purchase, for points of systems that do not buy the same for all rows that get
        to a place. Empty for the others, where ``reach`` tells it.
    """

    budget: Numbers
    cost: Numbers
    accuracy: Numbers
    low: Numbers
    high: Numbers
    lead_low: Numbers
    lead_high: Numbers
    system: tuple[int, ...]
    reach: tuple[Numbers, ...]
    efficient: tuple[bool, ...]
    auc: Numbers = ()
    bought: tuple[Numbers, ...] = ()

    def __len__(self) -> int:
        return len(self.budget)

    def share(self, place: int) -> float:
        """Share of the rows that a point sends to the full model."""
        return self.reach[place][-1]


@dataclass(frozen=True)
class System:
    """One fitted system: what it was fitted with, and the place at which it first buys each purchase."""

    settings: str
    first: tuple[int, ...]


@dataclass(frozen=True)
class Purchase:
    """What can be bought: its name, its price (None if not known) and how many columns it delivers."""

    name: str
    price: float | None
    n_columns: int = 1


@dataclass(frozen=True)
class Grouping:
    """Rows by class or by a slice; ``sent`` and ``right`` are counts, one tuple per point, one entry per label.

    By class, the share of a label's rows that are answered right is the recall of that class. Where numbers are
    predicted, the first grouping is by the range of the target, and ``right`` and ``full_right`` hold sums of absolute
    errors.
    """

    name: str
    labels: tuple[str, ...]
    n_rows: tuple[int, ...]
    full_right: Numbers | None
    sent: tuple[tuple[int, ...], ...]
    right: tuple[Numbers, ...]


@dataclass(frozen=True)
class MeasureCurve:
    """One measure, such as a mean error: of each point with its interval, of the full model, of a constant."""

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
        What one of them costs; None where several kinds are told together.
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
    """What tests and mistakes cost together, where mistakes have prices.

    Attributes
    ----------
    low, high : tuple of float
        Ends of the bootstrap interval of each point's total, which is ``points.cost`` plus ``points.accuracy``.
    least : int
        The point whose total was least on the rows of the choice.
    kinds : tuple of MistakeKind
        Mistakes by what was true and what was said, the dearest first.
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
    accuracy: Numbers


@dataclass(frozen=True)
class FullPoint:
    """The full model asked about every row; ``auc`` is None if it is not known."""

    cost: float
    accuracy: float
    call_price: float = 0.0
    auc: float | None = None


@dataclass(frozen=True)
class Majority:
    """The best answer that is the same for every row, such as the most frequent class, and its accuracy or R2."""

    label: str
    accuracy: float


@dataclass(frozen=True)
class Certified:
    """A certificate's sentence, and the place of the certified point, if it can be shown."""

    sentence: str
    point: int | None


@dataclass(frozen=True)
class Measured:
    """Where the numbers come from.

    Attributes
    ----------
    n_rows : int
        Rows of the report; documents, where those are ranked.
    held_out : bool
        Whether they are others than those the points were chosen on.
    n_chosen : int or None
        Rows the points were chosen on, if known.
    n_points, n_systems : int
        Efficient points before some were left out of the page, and systems they come from.
    level, n_boot, seed : float, int, int
        Of the bootstrap.
    version : str
        Of thrifty.
    date : str or None
        As the caller wrote it.
    notes : tuple of (str, str)
        What else the caller wants said.
    n_queries : int or None
        Queries of the documents, over which scores are means and which intervals draw; None where nothing is ranked.
    """

    n_rows: int
    held_out: bool
    n_chosen: int | None
    n_points: int
    n_systems: int
    level: float
    n_boot: int
    seed: int
    version: str
    date: str | None = None
    notes: tuple[tuple[str, str], ...] = ()
    n_queries: int | None = None


@dataclass(frozen=True)
class Facts:
    """Everything on the page.

    Attributes
    ----------
    title, method, full_name, unit : str
        The page's title, what our own line is called, what the full model is, and the unit of prices; the last two
        may be empty.
    points : Points
        Operating points.
    start : int
        The point that is shown first.
    systems : tuple of System
        What ``points.system`` refers to.
    purchases : tuple of Purchase
        What can be bought, the most bought first.
    groupings : tuple of Grouping
        Classes first, then the slices.
    majority : Majority
        What an answer that looks at nothing would achieve: the most frequent class, or the mean.
    measured : Measured
        Where the numbers come from.
    full : FullPoint or None
        The full model's own point, if known.
    rivals : tuple of Rival
        Other methods.
    certified : Certified or None
        The certificate.
    deployed : int or None
        The place of the point that is deployed, if that was said.
    score : str
        What ``points.accuracy`` is: "accuracy", or "R2" or the like where numbers are predicted, or "cost of mistakes".
    errors : tuple of MeasureCurve
        Mean errors where numbers are predicted, if known.
    measures : tuple of MeasureCurve
        What else is told with intervals: balanced accuracy and log-loss, or R2 where the score is another one.
    bill : Bill or None
        Totals of tests and mistakes, where mistakes have prices.
    """

    title: str
    method: str
    full_name: str
    unit: str
    points: Points
    start: int
    systems: tuple[System, ...]
    purchases: tuple[Purchase, ...]
    groupings: tuple[Grouping, ...]
    majority: Majority
    measured: Measured
    full: FullPoint | None = None
    rivals: tuple[Rival, ...] = field(default=())
    certified: Certified | None = None
    deployed: int | None = None
    score: str = "accuracy"
    errors: tuple[MeasureCurve, ...] = ()
    measures: tuple[MeasureCurve, ...] = ()
    bill: Bill | None = None

    def __post_init__(self) -> None:
        n_points = len(self.points)
        lengths = {name: len(values) for name, values in vars(self.points).items()}
        optional = ("lead_low", "lead_high", "auc", "bought")
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
        """Whether answers are numbers, and not labels that are right or wrong."""
        return self.score != "accuracy" and self.bill is None

    @property
    def is_right_or_wrong(self) -> bool:
        """Whether the score is the share of answers that are right."""
        return self.score == "accuracy" and self.bill is None

    def total(self, place: int) -> float:
        """What tests and mistakes of a point cost together, where mistakes have prices."""
        return self.points.cost[place] + self.points.accuracy[place]

    def share_buying(self, place: int, item: int) -> float:
        """Share of the rows that make a purchase at a point."""
        points = self.points
        if points.bought and points.bought[place]:
            return points.bought[place][item]
        reach, at = points.reach[place], self.systems[points.system[place]].first[item]
        return reach[at] if at < len(reach) else 0.0

    def marks(self, place: int) -> list[str]:
        """What is special about a point: whether it is deployed, certified, or the one of least total cost."""
        certified = None if self.certified is None else self.certified.point
        least = None if self.bill is None else self.bill.least
        named = (("deployed", self.deployed), ("certified", certified), ("least total cost", least))
        return [word for word, at in named if at == place]

    def as_dict(self) -> dict[str, Any]:
        """Everything, ready for a JSON file."""
        return asdict(self)
