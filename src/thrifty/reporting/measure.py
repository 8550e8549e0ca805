"""Measures a system on labelled rows: the ``Facts`` of a report.

``measure`` evaluates the system once per operating point: where each row stops, and how it is answered. Spend, score,
measures, groups and the bill are functions of that. A score is a linear function of the mean quality that evidence
averages, so its intervals are those of the quality: the cost of mistakes is minus the quality, and a squared error
becomes R2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

import thrifty
from thrifty.arrays import Bools, Floats, Ints, Labels
from thrifty.errors import InvalidInputError
from thrifty.evidence.bootstrap import check_bootstrap, resampled, tails
from thrifty.evidence.evidence import Answers, Evidence, Means, QueryEvidence, means_at
from thrifty.evidence.frontier import Frontier, OperatingPoint
from thrifty.evidence.measures import ClassRows, NumberRows, banded
from thrifty.evidence.observe import evidence_of, learned_chain_of, point_of
from thrifty.prices.billing import PriceList
from thrifty.reporting.facts import (
    Bill,
    Certified,
    Constant,
    Facts,
    FullPoint,
    Grouping,
    MeasureCurve,
    Measured,
    MistakeKind,
    Points,
    Purchase,
    Rival,
)
from thrifty.tasks.classes import ClassTask
from thrifty.tasks.mistakes import CostMatrix
from thrifty.tasks.ranking import RankingTask
from thrifty.tasks.task import Task, mean_errors

__all__ = ["MAX_LABELS", "measure", "mistake_kinds", "partition_of", "price_list_of"]

MAX_LABELS = 20
"""Labels of one grouping, and kinds of mistakes, that get a line of their own; the rarest of more are together."""
MAX_UNBOUGHT = 30
"""Purchases that no stage makes and that get a line of their own; more are together."""
N_RANGES = 5
"""Ranges of the target, each with as many rows, that get a line of their own."""
NEARLY = 0.005
"""Loss of score against the best point that the point shown first may have: just below the best, savings are large."""
RIVAL_POINTS = 60


def measure(
    system: Any,
    X: Any,
    y: ArrayLike,
    *,
    by: Mapping[str, ArrayLike] | None = None,
    rivals: Mapping[str, Any] | None = None,
    level: float = 0.95,
    n_boot: int = 1000,
    seed: int = 0,
    max_points: int = 100,
) -> Facts:
    """Measure a fitted system on labelled rows, for a report.

    Parameters
    ----------
    system : fitted estimator or Chain
        Its operating points are those of ``frontier_``, the one in force is the deployed one, and its certificate is
        shown if it has one. Without points of its own, all thresholds of a gate are shown, chosen on these very rows.
    X : table of shape (n_samples, n_features)
        Rows that neither the system nor its full model was fitted on.
    y : array-like of shape (n_samples,), or (n_samples, 2) of documents
        Labels or numbers; of documents, relevance and query.
    by : dict of str to array-like of shape (n_samples,), optional
        Groups of rows to tell apart.
    rivals : dict of str to fitted estimator, Chain or Frontier, optional
        Other systems; a frontier must be scored on these rows.
    level, n_boot, seed
        Share of the draws that a bootstrap interval holds, number of draws, and their seed.
    max_points : int, default=100
        Points that are shown; of more, those that evenly spaced budgets lead to.
    """
    check_bootstrap(level, n_boot)
    if max_points < 2:
        raise InvalidInputError(
            f"max_points must be at least 2, the cheapest and the dearest; got {max_points!r}."
        )
    prices, others = price_list_of("system", system), dict(rivals or {})
    for name, one in others.items():
        if not isinstance(one, Frontier):
            price_list_of(f"rivals[{name!r}]", one)
    task: Task = _served(system).task
    frontier, chosen = _frontier_on(system, X, y)
    judged = _judged(frontier, task)
    deployed = None
    if chosen is not None and hasattr(system, "chain_"):
        deployed = _judged_evidence(point_of(system, X, y), task)
    certificate = getattr(system, "certificate_", None)
    shown, marked = _shown_points(
        judged, system, deployed, certificate, max_points, with_least=_is_bill(task)
    )
    own, scale = judged.evidence[0], _scale_of(task, judged.evidence[0])
    rows = _Rows(task, own, y, dict(by or {}), _stops_of(system, X, frontier.evidence[0]), shown.answers())
    purchases, bought = _purchases(rows, prices, _names_of(system))
    draws: dict[str, Any] = {"level": level, "n_boot": n_boot, "seed": seed}
    intervals = _intervals(shown, own, scale, **draws)
    totals = intervals.pop("total_low"), intervals.pop("total_high")
    means = shown.means()
    points = Points(
        budget=_plain(shown.budget),
        cost=_plain(means.cost),
        score=_plain(scale(means.score)),
        reach=tuple(_plain(rows.reach(place)) for place in range(len(shown.budget))),
        bought=bought,
        efficient=tuple(shown.efficient.tolist()),
        **intervals,
    )
    # The point in force has an entry of its own; a marked point with the same numbers is that one.
    places = {name: _same_point(points, place, marked.get("deployed")) for name, place in marked.items()}
    if _is_bill(task):
        parts = _labels(rows, draws) | _bill(rows, *totals, places["least total cost"])
    elif isinstance(task, ClassTask):
        parts = _labels(rows, draws)
    else:
        parts = _ranking(rows) if isinstance(task, RankingTask) else _numbers(rows, draws)
    start = (places[name] for name in ("deployed", "certified", "least total cost") if name in places)
    return Facts(
        points=points,
        start=next(start, _nearly_best(judged, shown)),
        purchases=purchases,
        measured=Measured(
            n_rows=len(own.gate),
            held_out=frontier.held_out,
            n_chosen=None if chosen is None else chosen.n_rows,
            n_points=len(frontier),
            n_queries=own.n_rows if isinstance(own, QueryEvidence) else None,
            version=thrifty.__version__,
            **draws,
        ),
        full=None
        if own.full_quality is None
        else FullPoint(prices.cost_of_full, float(scale(own.full_score)), prices.full_cost),
        rivals=tuple(_rival(name, one, X, y, judged, task) for name, one in others.items()),
        certified=None if certificate is None else Certified(str(certificate), places.get("certified")),
        deployed=places.get("deployed"),
        method=type(system).__name__,
        full_name=_full_name(system),
        **parts,
    )


def _plain(values: Floats) -> tuple[float, ...]:
    return tuple(values.tolist())


# -- the system ------------------------------------------------------------------------------------


def price_list_of(name: str, system: Any) -> PriceList:
    """Price list of a fitted system; systems without reports are refused before rows are read."""
    prices: PriceList | None = getattr(_served(system), "price_list", None)
    if prices is None:
        got = type(system).__name__ if hasattr(system, "fit") else repr(system)
        raise InvalidInputError(f"{name} must be a fitted estimator or a Chain; got {got}. Call fit first.")
    if prices.by_row is not None:
        raise InvalidInputError(
            "a report adds up prices times the shares of rows that pay them, and some prices here differ by row. Show "
            "costs and scores with frontier.plot(), and single rows with explain."
        )
    return prices


def _served(system: Any) -> Any:
    return getattr(system, "chain_", system)


def _is_bill(task: Task) -> bool:
    """Whether answers are judged by the cost of mistakes."""
    return isinstance(task, ClassTask) and isinstance(task.mistakes, CostMatrix)


def _names_of(system: Any) -> list[str] | None:
    names = getattr(system, "feature_names_in_", getattr(_served(system), "names", None))
    return None if names is None else [str(name) for name in names]


def _full_name(system: Any) -> str:
    """Class of the full model, where it is an estimator."""
    model = getattr(getattr(_served(system), "innermost", None), "estimator", None)
    model = getattr(model, "estimator", model) if type(model).__name__ == "FrozenEstimator" else model
    return "" if model is None else type(model).__name__


def _frontier_on(system: Any, X: Any, y: ArrayLike) -> tuple[Frontier, Frontier | None]:
    """Operating points on the rows of the report, and as they were chosen; None where no such rows are known."""
    try:
        chosen: Frontier = system.frontier_
    except (
        AttributeError,
        InvalidInputError,
    ):  # a chain, one point, or a file without the rows of the choice
        return Frontier.from_evidence([evidence_of(system, X, y)]), None
    seen = evidence_of(system, X, y, settings=dict(chosen.evidence[0].settings))
    # A gate that was fitted with one threshold is shown with that one.
    return chosen.on([replace(seen, points=chosen.evidence[0].points)]), chosen


def _judged(frontier: Frontier, task: Task | None) -> Frontier:
    """The frontier with the score of the page."""
    counted = [_judged_evidence(one, task) for one in frontier.evidence]
    return replace(frontier.on(counted), held_out=frontier.held_out)


def _judged_evidence(one: Evidence, task: Task | None) -> Evidence:
    """The evidence with "is right" in the place of log-loss or Brier loss; costs of mistakes are unchanged."""
    if one.right is None or (task is not None and _is_bill(task)):
        return one
    return replace(one, quality=one.right, full_quality=_full_right(one, task))


def _full_right(one: Evidence, task: Any) -> Bools | None:
    """Whether the full model's own answers are the true class; None if unknown."""
    if one.right is None:
        return None if one.full_quality is None else np.asarray(one.full_quality, dtype=bool)
    if one.full_scores is None or one.strata is None or not isinstance(task, ClassTask):
        return None
    return np.asarray(task.best(one.full_scores) == one.strata)


def _rival(name: str, rival: Any, X: Any, y: ArrayLike, ours: Frontier, task: Task) -> Rival:
    frontier = rival if isinstance(rival, Frontier) else _frontier_on(rival, X, y)[0]
    if frontier.n_rows != ours.n_rows:
        raise InvalidInputError(
            f"rivals[{name!r}] must be scored on the {ours.n_rows} rows of the report; it has {frontier.n_rows}."
        )
    if _is_bill(task) and any(one.right is None for one in frontier.evidence):
        raise InvalidInputError(
            f"the score of rivals[{name!r}] is the share of right answers, and that of the system is what mistakes "
            f"cost: one page compares one score. Fit both with the same `loss`."
        )
    judged = _judged(frontier, task)
    kept = _evenly(judged, RIVAL_POINTS)
    score = _scale_of(task, ours.evidence[0])(judged.score[kept])
    return Rival(str(name), _plain(judged.cost[kept]), _plain(score))


# -- points that are shown -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Shown:
    """Points by rising budget: those of the system and, as one more system, the point in force."""

    systems: tuple[Evidence, ...]
    source: Ints
    thresholds: Floats
    budget: Floats
    efficient: Bools

    def means(self) -> Means:
        """Mean cost, share sent and quality of each point."""
        return means_at(self.systems, self.source, self.thresholds)

    def answers(self) -> list[tuple[Evidence, Answers]]:
        """Place and answer of each row at each point."""
        found = []
        for source, thresholds in zip(self.source, self.thresholds, strict=True):
            one = self.systems[source]
            found.append((one, one.answers_at(thresholds[: one.n_stages])))
        return found


def _shown_points(
    frontier: Frontier,
    system: Any,
    deployed: Evidence | None,
    certificate: Any,
    max_points: int,
    *,
    with_least: bool,
) -> tuple[_Shown, dict[str, int]]:
    """Thin the frontier to at most ``max_points`` points and those with a name; and the places of the latter."""
    kept, marked, width = set(_evenly(frontier, max_points).tolist()), {}, frontier.thresholds.shape[1]
    extra: list[tuple[str, int, Floats, float]] = []
    if with_least:
        marked["least total cost"] = frontier.least_total
    if certificate is not None and certificate.point is not None:
        wanted = _padded(certificate.point, width)
        same = (frontier.thresholds == wanted) | (np.isnan(frontier.thresholds) & np.isnan(wanted))
        if same.all(axis=1).any():
            marked["certified"] = int(same.all(axis=1).argmax())
        else:
            extra.append(("certified", 0, wanted, certificate.point.chosen_cost))
    if deployed is not None:
        planned = float(system.expected_cost_)
        if not np.isfinite(planned):
            planned = float(deployed.at_point(np.array([0.5]))[1].mean())
        extra.append(("deployed", 1, np.r_[0.5, np.full(width - 1, np.nan)], planned))
    places = sorted(kept | set(marked.values()))
    is_efficient = np.r_[np.ones(len(places), dtype=bool), np.zeros(len(extra), dtype=bool)]
    budget = np.r_[frontier.chosen.cost[places], [one[3] for one in extra]]
    order = np.lexsort((is_efficient, budget))
    place_of = np.argsort(order)
    marked = {name: int(place_of[places.index(place)]) for name, place in marked.items()}
    marked |= {one[0]: int(place_of[len(places) + at]) for at, one in enumerate(extra)}
    shown = _Shown(
        (frontier.evidence[0], *(() if deployed is None else (deployed,))),
        np.array([0] * len(places) + [one[1] for one in extra])[order],
        np.array([*frontier.thresholds[places], *(one[2] for one in extra)])[order],
        budget[order],
        is_efficient[order],
    )
    return shown, marked


def _padded(point: OperatingPoint, width: int) -> Floats:
    """Thresholds of a point as a frontier holds them; a system as it is has a gate at 1/2 on top of "was sent"."""
    own = point.thresholds or (0.5 if point.threshold is None else point.threshold,)
    padded: Floats = np.r_[own, np.full(width - len(own), np.nan)]
    return padded


def _evenly(frontier: Frontier, max_points: int) -> Ints:
    """At most ``max_points`` points: those that evenly spaced budgets lead to, with the cheapest and the dearest."""
    if len(frontier) <= max_points:
        return np.arange(len(frontier))
    cost = frontier.chosen.cost
    kept = np.array([0, len(cost) - 1])
    # Where points lie close together several budgets lead to one and the same; more budgets then find more points.
    for n_budgets in max_points * 2 ** np.arange(8):
        finer = np.unique(frontier.within(np.linspace(cost[0], cost[-1], n_budgets)))
        if len(finer) > max_points:
            break
        kept = finer
    return kept


def _nearly_best(frontier: Frontier, shown: _Shown) -> int:
    """The cheapest shown point that is nearly as good as the best, by the numbers of the rows of the choice."""
    good = frontier.chosen.score >= frontier.chosen.score[-1] - NEARLY
    return int(np.argmax(shown.budget >= frontier.chosen.cost[good][0]))


def _same_point(points: Points, place: int, deployed: int | None) -> int:
    if deployed is None:
        return place
    numbers = (points.budget, points.cost, points.score)
    return deployed if all(np.isclose(values[deployed], values[place]) for values in numbers) else place


# -- scores ----------------------------------------------------------------------------------------


class _Scale(NamedTuple):
    """The score of a page as a linear function of mean quality."""

    offset: float
    slope: float

    def __call__(self, quality: Any) -> Any:
        return self.offset + self.slope * quality


def _scale_of(task: Task, own: Evidence) -> _Scale:
    if _is_bill(task):
        return _Scale(0.0, -1.0)
    if isinstance(task, ClassTask | RankingTask):
        return _Scale(0.0, 1.0)
    assert own.target is not None  # evidence of numbers has them
    none, one = task.score(own.target, np.array([0.0, 1.0])).tolist()
    return _Scale(none, one - none)


def _intervals(
    shown: _Shown, own: Evidence, scale: _Scale, *, level: float, n_boot: int, seed: int
) -> dict[str, tuple[float, ...]]:
    """Bootstrap intervals of scores, of leads over the full model, and of what tests and mistakes cost together.

    Leads are paired: both answers are averaged over the same draws.
    """
    systems, source, thresholds = shown.systems, shown.source, shown.thresholds
    if own.full_quality is not None:
        # The full model by itself is one more system, with a single point.
        alone = Evidence.of_point(
            np.zeros(len(own.gate)), np.asarray(own.full_quality), np.ones(len(own.gate))
        )
        if isinstance(own, QueryEvidence) and own.task is not None:
            alone = QueryEvidence.of_documents(alone, own.task, own.targets, alone.quality.astype(np.float64))
        source, systems = np.r_[source, len(systems)], (*systems, alone)
        thresholds = np.vstack([thresholds, np.full(thresholds.shape[1], 0.5)])
    cost, quality = resampled(systems, source, thresholds, n_boot=n_boot, seed=seed)
    lead = None
    if own.full_quality is not None:
        lead, cost, quality = quality[:-1] - quality[-1], cost[:-1], quality[:-1]

    def ends(draws: Floats) -> list[tuple[float, ...]]:
        return [_plain(end) for end in np.sort(np.array(tails(draws, level)), axis=0)]

    score_ends = ends(scale(quality))
    lead_ends = [(), ()] if lead is None else ends(scale.slope * lead)
    names = ("low", "high", "lead_low", "lead_high", "total_low", "total_high")
    return dict(zip(names, (*score_ends, *lead_ends, *ends(cost - quality)), strict=True))


# -- routes and purchases --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Stops:
    """Stages at which rows can stop, the full model last, and the columns they have bought there.

    Attributes
    ----------
    held : list of ndarray of shape (n_purchases,) or (n_rows, n_purchases)
        What a row has bought at each place; by row where that differs.
    behind, in_force : ndarray of shape (n_rows,)
        The place of each row that goes beyond the stages of the evidence, and at the point in force.
    """

    held: list[Bools]
    behind: Ints
    in_force: Ints

    def places(self, one: Evidence, route: Ints) -> Ints:
        """The place of each row, from the stage at which it stops by the evidence."""
        return self.in_force if one.is_fixed else np.where(route == one.n_stages, self.behind, route)


def _stops_of(system: Any, X: Any, one: Evidence) -> _Stops:
    chain = learned_chain_of(system)
    reader, read_by_full = chain.reader(X), chain.price_list.read_by_full
    inner = np.zeros(len(one.gate), dtype=np.intp) if chain.behind is None else chain.behind.route(X)
    by_stage = chain.held_by_stage(reader) if chain.has_forks else chain.bought_by_place[: chain.n_stages]
    last = by_stage[-1].copy() if len(by_stage) else np.zeros(chain.price_list.n_features, dtype=bool)
    last[..., read_by_full] = True
    held = [_purchases_of(columns, chain.price_list) for columns in (*by_stage, last)]
    return _Stops(held, len(chain.stages) + inner, _served(system).route(X))


def _purchases_of(columns: Bools, prices: PriceList) -> Bools:
    """Purchases that deliver columns, both as masks along the last axis."""
    bought = np.zeros((*columns.shape[:-1], len(prices.prices)), dtype=bool)
    for column, group in enumerate(prices.group_of):
        bought[..., group] |= columns[..., column]
    return bought


@dataclass(frozen=True, eq=False)
class _Rows:
    """The labelled rows of a report, and how each point answers them."""

    task: Task
    own: Evidence
    y: Any
    by: dict[str, ArrayLike]
    stops: _Stops
    answered: list[tuple[Evidence, Answers]]

    @property
    def right(self) -> list[Bools]:
        """Whether each answer is right, at each point."""
        return [answers.right for _, answers in self.answered if answers.right is not None]

    @property
    def scores(self) -> list[Floats] | None:
        """Scores of the answers at each point, where they are known."""
        known = [answers.scores for _, answers in self.answered if answers.scores is not None]
        return known if len(known) == len(self.answered) else None

    def places(self, point: int) -> Ints:
        """Where each row stops at a point."""
        one, answers = self.answered[point]
        return self.stops.places(one, answers.place)

    def reach(self, point: int) -> Floats:
        """Share of the rows that get to each place."""
        stopped = np.bincount(self.places(point), minlength=len(self.stops.held))
        return stopped[::-1].cumsum()[::-1] / len(self.stops.behind)

    def shares(self, point: int) -> Floats:
        """Share of the rows that make each purchase at a point."""
        places, count = self.places(point), np.zeros(self.stops.held[0].shape[-1])
        for place, held in enumerate(self.stops.held):
            rows = np.flatnonzero(places == place)
            count += held * len(rows) if held.ndim == 1 else held[rows].sum(axis=0)
        return count / len(places)


def _purchases(
    rows: _Rows, prices: PriceList, names: list[str] | None
) -> tuple[tuple[Purchase, ...], tuple[tuple[float, ...], ...]]:
    """Lines of what is bought, in the order of the stages, and the share of rows that pay for each at each point.

    Of purchases that no stage makes, many share a line: those that the full model reads, and those that no model does.
    """
    held = rows.stops.held
    read = np.array([np.atleast_2d(one).any(axis=0) for one in held])
    first = np.where(read.any(axis=0), read.argmax(axis=0), len(held))
    order = np.lexsort((prices.prices, first))
    n_bought = int((first < len(held) - 1).sum())
    lines = [np.array([group]) for group in order]
    if len(order) - n_bought > MAX_UNBOUGHT:
        rest = [order[first[order] == place] for place in (len(held) - 1, len(held))]
        lines = [*lines[:n_bought], *(some for some in rest if len(some))]
    columns = names or [f"feature {column}" for column in range(prices.n_features)]
    purchases = []
    for line in lines:
        inside = np.flatnonzero(np.isin(prices.group_of, line))
        name = _joined([columns[column] for column in inside])
        if len(line) > 1:
            reader = "the full model only" if first[line[0]] < len(held) else "no model"
            name = f"{len(line)} others, read by {reader}"
        price = float(prices.prices[line].sum())
        purchases.append(Purchase(name, price, int(first[line[0]]), len(inside)))
    # Where purchases of a line differ, its share is that of the money it costs.
    weights = [prices.prices[line] if prices.prices[line].any() else np.ones(len(line)) for line in lines]
    weighted = list(zip(lines, weights, strict=True))
    shares = tuple(
        tuple(float(np.average(own[line], weights=weight)) for line, weight in weighted)
        for own in map(rows.shares, range(len(rows.answered)))
    )
    return tuple(purchases), shares


def _joined(names: list[str], max_names: int = 3) -> str:
    shown = ", ".join(names[:max_names])
    return shown if len(names) <= max_names else f"{shown} and {len(names) - max_names} more"


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


def partition_of(name: str, labels: ArrayLike, n_rows: int) -> Partition:
    """Rows by label, in the order of the labels; rare labels of many are merged."""
    values = np.asarray(labels)
    if values.shape != (n_rows,):
        raise InvalidInputError(
            f"{name} must hold one label per row, shape ({n_rows},); got shape {values.shape}."
        )
    words, of_row = _told_apart(values)
    if len(words) > MAX_LABELS:
        kept = np.sort(np.argsort(-np.bincount(of_row), kind="stable")[: MAX_LABELS - 1])
        place = np.full(len(words), len(kept))
        place[kept] = np.arange(len(kept))
        n_rare = len(words) - len(kept)
        words, of_row = [*(words[label] for label in kept), f"{n_rare} others"], place[of_row]
    return Partition(name, tuple(words), of_row)


def _told_apart(values: Labels) -> tuple[list[str], Ints]:
    """Sorted labels as text, and the label number of each row."""
    # As text, unless they are numbers: labels of mixed kinds, None and NaN among them, compare as they read.
    known = values if values.dtype.kind in "biuf" else np.array([str(value) for value in values])
    found, of_row = np.unique(known, return_inverse=True)
    return [str(value) for value in found.tolist()], of_row.reshape(-1)


def _ranges(y: Floats) -> Partition:
    """Rows by their target, in ranges that hold as many rows each."""
    cuts = np.unique(np.quantile(y, np.arange(1, N_RANGES) / N_RANGES, method="lower"))
    cuts = cuts[cuts < y.max()]
    ends = [f"{cut:.5g}" for cut in cuts]
    words = [f"up to {ends[0]}"] if ends else ["all"]
    words += [f"above {low} to {high}" for low, high in pairwise(ends)]
    words += [f"above {ends[-1]}"] if ends else []
    return Partition("target", tuple(words), np.searchsorted(cuts, y))


def _groupings(rows: _Rows, first: Partition, values: Sequence[Any], full: Any) -> tuple[Grouping, ...]:
    """Counts of rows sent, and sums of values ("is right", or errors), by class or range and by named groups."""
    n_rows, last = len(first.of_row), len(rows.stops.held) - 1
    partitions = [first, *(partition_of(str(name), labels, n_rows) for name, labels in rows.by.items())]
    sent = [rows.places(point) == last for point in range(len(values))]
    return tuple(
        Grouping(
            name=one.name,
            labels=one.labels,
            n_rows=one.sums(),
            sent=tuple(tuple(int(count) for count in one.sums(mask)) for mask in sent),
            sums=tuple(one.sums(each) for each in values),
            full_sums=None if full is None else one.sums(full),
        )
        for one in partitions
    )


# -- what answers are: labels, numbers, orders -----------------------------------------------------


def _curves(
    rows: ClassRows | NumberRows,
    full: ClassRows | NumberRows | None,
    constants: Mapping[str, float],
    **draws: Any,
) -> tuple[MeasureCurve, ...]:
    """Measures of every point with their intervals; AUC, which takes a sort for each draw, without."""
    every = np.ones((rows.n_rows, 1))
    names = [name for name in constants if name in rows.names]
    bands = banded(rows, [name for name in names if name != "AUC"], **draws)
    if "AUC" in names:
        bands["AUC"] = rows.under(every, ["AUC"])["AUC"][:, 0], np.array([]), np.array([])
    known = [] if full is None else [name for name in names if name in full.names]
    alone = {} if full is None else full.under(every, known)
    return tuple(
        MeasureCurve(
            name,
            value=_plain(bands[name][0]),
            low=_plain(bands[name][1]),
            high=_plain(bands[name][2]),
            full=float(alone[name][0, 0]) if name in alone else None,
            constant=float(constants[name]),
        )
        for name in names
    )


def _labels(rows: _Rows, draws: dict[str, Any]) -> dict[str, Any]:
    """Score, measures and recalls of labels."""
    task, own = rows.task, rows.own
    assert own.strata is not None  # evidence of labels has them
    strata, labels = own.strata.astype(np.intp), tuple(task.classes.tolist())
    right, scores, full_right = rows.right, rows.scores, _full_right(own, task)
    outputs = None if scores is None else [task.outputs(one) for one in scores]
    full = None
    if full_right is not None:
        theirs = None if own.full_scores is None else [task.outputs(own.full_scores)]
        full = ClassRows(full_right[None].astype(np.float64), strata, labels, theirs)
    words, of_row = _told_apart(np.asarray(rows.y))
    shares = np.bincount(of_row) / len(of_row)
    # Constants are what the shares of the classes achieve as the answer to every row.
    constants = {
        "balanced accuracy": 1.0 / len(shares),
        "log-loss": -float(shares @ np.log(shares)),
        "AUC": 0.5,
    }
    if _is_bill(task):  # else the share of right answers is the score of the page
        constants = {"accuracy": float(shares.max()), **constants}
    measured = ClassRows(np.array(right, dtype=np.float64), strata, labels, outputs)
    classes = replace(partition_of("y", rows.y, len(of_row)), name="class")
    return {
        "kind": "labels",
        "score_name": "accuracy",
        "measures": _curves(measured, full, constants, **draws),
        "groupings": _groupings(rows, classes, right, full_right),
        "constant": Constant(words[int(shares.argmax())], float(shares.max())),
    }


def _bill(rows: _Rows, low: tuple[float, ...], high: tuple[float, ...], least: int) -> dict[str, Any]:
    """Costs of mistakes in the place of accuracy, and the kinds of mistakes."""
    task, own = rows.task, rows.own
    assert isinstance(task, ClassTask)
    assert isinstance(task.mistakes, CostMatrix)
    assert own.strata is not None
    costs, truth = task.mistakes.costs, own.strata.astype(np.intp)
    answers = [task.best(one) for one in rows.scores or ()]
    full = None if own.full_scores is None else task.best(own.full_scores)
    constant = (np.bincount(truth, minlength=len(costs)) @ costs) / len(truth)
    kinds = mistake_kinds([str(label) for label in task.classes.tolist()], costs, truth, answers, full)
    return {
        "kind": "bill",
        "score_name": "cost of mistakes",
        "constant": Constant(str(task.classes[constant.argmin()]), float(constant.min())),
        "bill": Bill(low, high, least, kinds),
    }


def mistake_kinds(
    labels: Sequence[str], costs: Floats, truth: Ints, answers: Sequence[Ints], full: Ints | None
) -> tuple[MistakeKind, ...]:
    """Answers that cost something, by class and answer, the dearest first; the cheapest of many together."""
    if not answers:
        return ()
    n_classes, flat = len(costs), costs.reshape(-1)
    every = [*answers, *([] if full is None else [full])]
    counts = np.array([np.bincount(truth * n_classes + one, minlength=n_classes**2) for one in every])
    lost = counts * flat / len(truth)
    priced = np.flatnonzero(flat > 0.0)
    order = priced[np.argsort(-lost[:, priced].sum(axis=0), kind="stable")]
    n_alone = len(order) if len(order) <= MAX_LABELS else MAX_LABELS - 1
    groups = [group for group in (*order[:n_alone, None], order[n_alone:]) if len(group)]
    found = []
    for group in groups:
        count, cost = counts[:, group].sum(axis=1), lost[:, group].sum(axis=1)
        true, answer = divmod(int(group[0]), n_classes)
        alone = len(group) == 1
        found.append(
            MistakeKind(
                labels[true] if alone else f"{len(group)} other kinds",
                labels[answer] if alone else "",
                float(costs[true, answer]) if alone else None,
                tuple(count[: len(answers)].tolist()),
                _plain(cost[: len(answers)]),
                None if full is None else float(cost[-1]),
            )
        )
    return tuple(found)


def _numbers(rows: _Rows, draws: dict[str, Any]) -> dict[str, Any]:
    """Score and mean errors of numbers."""
    task, own, scores = rows.task, rows.own, rows.scores
    assert own.target is not None  # evidence of numbers has targets and scores
    assert scores is not None
    y = np.asarray(task.decode(own.target))
    errors = np.array([task.errors(own.target, one) for one in scores])
    theirs = None if own.full_scores is None else task.errors(own.target, own.full_scores)
    base = task.loss(own.target).base(np.ones(len(y)))
    constants = mean_errors(task, own.target, np.tile(base, (len(y), 1)))
    if task.quality_name != "R2":
        constants = {"R2": 1.0 - constants["RMSE"] ** 2 / float(np.var(y)), **constants}
    full = None if theirs is None else NumberRows(theirs[None], y)
    return {
        "kind": "numbers",
        "score_name": task.quality_name,
        "measures": _curves(NumberRows(errors, y), full, constants, **draws),
        "groupings": _groupings(rows, _ranges(y), list(errors), theirs),
        # The constant that errs least has a score of 0 by definition.
        "constant": Constant(f"{float(task.decode(base)[0]):.5g}", 0.0),
    }


def _ranking(rows: _Rows) -> dict[str, Any]:
    """Score of orders; groups of documents have no order of their own."""
    if rows.by:
        raise InvalidInputError(
            f"groups tell rows apart that are answered one by one; here the order of a query is judged as a whole. "
            f"Leave {', '.join(map(repr, rows.by))} out."
        )
    own = rows.own
    assert isinstance(own, QueryEvidence)
    by_chance = float(np.nanmean(own.value(np.zeros(own.n_documents))))
    return {
        "kind": "ranking",
        "score_name": rows.task.quality_name,
        "groupings": (),
        "constant": Constant("the mean of all orders", by_chance),
    }
