"""All that a page says about a system, measured on labelled rows: points, labels or numbers or orders, purchases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

import thrifty
from thrifty.arrays import Bools, Floats, Ints, Labels
from thrifty.arrays import Numbers as Values
from thrifty.errors import InvalidInputError
from thrifty.evidence.bootstrap import check_bootstrap, draws_of, resampled, tails
from thrifty.evidence.certificate import Certificate
from thrifty.evidence.evidence import Evidence, QueryEvidence, yes_or_no
from thrifty.evidence.frontier import Frontier, OperatingPoint
from thrifty.evidence.measures import LEAST_PROBABILITY
from thrifty.evidence.observe import point_of
from thrifty.prices.billing import PriceList
from thrifty.reporting.facts import (
    Bill,
    Certified,
    Facts,
    FullPoint,
    Grouping,
    Majority,
    MeasureCurve,
    Measured,
    MistakeKind,
    Points,
    Rival,
)
from thrifty.reporting.routes import Routes, purchases_of, routes_of
from thrifty.tasks.classes import ClassTask, classification
from thrifty.tasks.mistakes import CostMatrix
from thrifty.tasks.task import ERRORS, Task, mean_error, mean_errors

__all__ = ["check_prices", "measure"]

_RIVAL_POINTS = 60


def measure(
    frontier: Frontier,
    y: ArrayLike,
    *,
    chosen: Frontier | None = None,
    estimators: Sequence[Any] | None = None,
    X: Any = None,
    prices: PriceList | None = None,
    feature_names: Sequence[str] | None = None,
    slices: Mapping[str, ArrayLike] | None = None,
    rivals: Mapping[str, Frontier] | None = None,
    certificate: Certificate | None = None,
    deployed: Any = None,
    title: str = "What accuracy costs",
    method: str = "thrifty",
    full_name: str = "",
    unit: str = "",
    level: float = 0.95,
    n_boot: int = 1000,
    seed: int = 0,
    max_points: int = 200,
    date: str | None = None,
    notes: Mapping[str, object] | None = None,
) -> Facts:
    """Measure all that a report says, on the rows a frontier was scored on.

    Parameters
    ----------
    frontier : Frontier
        Points that were chosen on some rows and scored on others: ``chosen.on(evidence of test rows)``. One that is
        scored on the rows of the choice is accepted, and the page says that its numbers are too good.
    y : array-like of shape (n_samples,), or (n_samples, 2) of documents
        Labels of the rows, or their numbers, in the frontier's order; who is sent on is told by class, or by range. Of
        documents, relevance and query.
    chosen : Frontier, optional
        The same frontier on the rows of the choice, to say how many they were.
    estimators, X : sequence of fitted estimators and table, optional
        The frontier's systems, in its order, and its rows. Needed for a chain in front of another one and for models
        that read other columns of other rows, whose evidence does not say what each row buys; for systems that predict
        numbers; also where prices and names of the columns come from if they are not given.
    prices : PriceList, optional
        What purchases cost, ``estimator.chain_.price_list``. Without prices, purchases are columns.
    feature_names : sequence of str, optional
        Names of the columns.
    slices : dict of str to array-like of shape (n_samples,), optional
        Further labels per row: by site, by year, by age group.
    rivals : dict of str to Frontier, optional
        Other methods on the same rows.
    certificate : Certificate, optional
        Of a point of the same systems.
    deployed : fitted estimator, OperatingPoint or float, optional
        What is in use, where the page opens: an estimator at its operating point, which is measured on ``X``; a point
        of the same systems; or the budget that one was chosen for. Without it, the page opens at the certified point,
        else at the cheapest that is nearly as good as the best.
    title, method, full_name, unit : str
        Words: the title, what our line is called, what the full model is ("a random forest"; said once, after "the full
        model"), and the unit of prices.
    level, n_boot, seed
        Of the bootstrap intervals.
    max_points : int, default=200
        Points that are shown; of more, those that evenly spaced budgets lead to.
    date : str, optional
        As it shall be printed; the clock is not asked.
    notes : dict, optional
        What else shall be said on how it was measured.
    """
    _check(frontier, rivals or {})
    n_systems = len(frontier.evidence)
    if hasattr(deployed, "chain_"):
        frontier, estimators, deployed = _with_deployed(frontier, y, estimators, X, deployed)
    prices, feature_names = _prices_and_names(prices, feature_names, estimators)
    task = label_task(frontier, estimators)
    lost = prices_of(frontier, task)
    rivals = rivals or {}
    if lost is None:
        frontier = counting_right(frontier, task)
        rivals = {name: counting_right(rival, None) for name, rival in rivals.items()}
    numbers = None if lost is not None else numbers_of(frontier, y, estimators)
    least = None if lost is None else frontier[frontier.least_total]
    shown, certified_at, deployed_at, least_at = _shown(frontier, max_points, certificate, deployed, least)
    used = np.unique(shown.source).tolist()
    routes = routes_of(frontier.evidence, used, estimators, X)
    at = [
        (routes[source], thresholds[: frontier.evidence[source].n_stages])
        for source, thresholds in zip(shown.source.tolist(), shown.thresholds, strict=True)
    ]
    cost, accuracy = _means(at)
    certified_at, least_at = (
        _same_as(deployed_at, place, shown.budget, cost, accuracy) for place in (certified_at, least_at)
    )
    full_quality = known_of(frontier, used, "full_quality")
    purchases, systems, bought = purchases_of(prices, feature_names, routes, at, cost)
    intervals = intervals_of(frontier, shown, level=level, n_boot=n_boot, seed=seed)
    draws: dict[str, Any] = {"level": level, "n_boot": n_boot, "seed": seed}
    full_known = known_of(frontier, used, "full_scores")
    if numbers is None:
        judged = judged_labels(frontier, used, y, at, task, slices, **draws)
    else:
        judged = numbers.judged(frontier.evidence, at, slices, **draws)
    auc, full_auc = ((), None) if numbers else (auc_by_point(y, at), auc_of(y, full_known))
    first = [deployed_at, certified_at, least_at, nearly_best(frontier, shown)]
    facts = Facts(
        title=str(title),
        method=str(method),
        full_name=str(full_name),
        unit=str(unit),
        points=_points(shown, used, at, cost, accuracy, intervals, auc, bought),
        start=next(place for place in first if place is not None),
        systems=systems,
        purchases=purchases,
        measured=Measured(
            n_rows=frontier.n_rows,
            held_out=frontier.held_out,
            n_chosen=None if chosen is None else chosen.n_rows,
            n_points=len(frontier),
            n_systems=n_systems,
            level=float(level),
            n_boot=int(n_boot),
            seed=int(seed),
            version=thrifty.__version__,
            date=None if date is None else str(date),
            notes=tuple((str(name), str(text)) for name, text in (notes or {}).items()),
        ),
        full=_full(frontier, prices, full_quality, full_auc),
        rivals=tuple(_rival(str(name), rival) for name, rival in rivals.items()),
        certified=None if certificate is None else Certified(str(certificate), certified_at),
        deployed=deployed_at,
        **judged,
    )
    if numbers is not None:
        return numbers.rescaled(facts)
    if lost is None or task is None or least_at is None:
        return facts
    return billed(facts, y, task, lost, at, full_known, intervals, least_at)


def _check(frontier: Frontier, rivals: Mapping[str, Frontier]) -> None:
    is_lost = any(system.right is not None for system in frontier.evidence)
    for name, one in {
        "frontier": frontier,
        **{f"rivals[{name!r}]": one for name, one in rivals.items()},
    }.items():
        if one.compares_with_full:
            raise InvalidInputError(
                f"{name} counts answers that are not worse than the full model's, and a report shows how many are "
                f"right. Give a frontier made without against_full."
            )
        if is_lost != any(system.right is not None for system in one.evidence):
            told = ("minus what answers lose", "the share that is right")
            ours, theirs = told if is_lost else told[::-1]
            raise InvalidInputError(
                f"the score of {name} is {theirs}, and that of frontier {ours}: one page compares one score. Fit both "
                f"with the same `loss`."
            )
        if one.n_rows != frontier.n_rows:
            raise InvalidInputError(
                f"{name} must be scored on the frontier's {frontier.n_rows} rows; it has {one.n_rows}."
            )


def _with_deployed(
    frontier: Frontier, y: ArrayLike, estimators: Sequence[Any] | None, X: Any, deployed: Any
) -> tuple[Frontier, Sequence[Any], OperatingPoint]:
    """Add a fitted estimator, at the point in force, as one more system: a mix of two points is none of the others."""
    if X is None:
        raise InvalidInputError(
            "a deployed estimator is measured on the rows of the report. Give them as `X`."
        )
    measured = point_of(deployed, X, y, settings={"deployed": True})
    planned = float(deployed.expected_cost_)
    _, paid, quality = measured.at_point(np.array([0.5]))
    point = OperatingPoint(
        cost=float(paid.mean()),
        score=float(quality.mean()),
        share=float(measured.gate.mean()),
        threshold=None,
        source=len(frontier.evidence),
        features=measured.features,
        settings=measured.settings,
        chosen_cost=planned if np.isfinite(planned) else float(paid.mean()),
        chosen_score=float(deployed.expected_score_),
    )
    known = [None] * len(frontier.evidence) if estimators is None else list(estimators)
    return replace(frontier, evidence=(*frontier.evidence, measured)), [*known, deployed], point


def _shown(
    frontier: Frontier,
    max_points: int,
    certificate: Certificate | None,
    deployed: OperatingPoint | float | None,
    least: OperatingPoint | None,
) -> tuple[Shown, int | None, int | None, int | None]:
    """The points of the page, and the places of the certified, of the deployed one and of that of least total cost."""
    if deployed is not None and not isinstance(deployed, OperatingPoint):
        deployed = frontier.best(budget=deployed)
    certified = None if certificate is None else certificate.point
    marked = {"certified": certified, "deployed": deployed, "least total cost": least}
    shown = shown_points(frontier, max_points, marked)
    certified_at, deployed_at, least_at = (
        None if point is None else shown.place_of(point) for point in marked.values()
    )
    return shown, certified_at, deployed_at, least_at


def _same_as(deployed: int | None, place: int | None, *numbers: Floats) -> int | None:
    """The deployed point where it is a marked one: a system as it is has an entry of its own."""
    if deployed is None or place is None:
        return place
    is_same = all(np.isclose(values[deployed], values[place]) for values in numbers)
    return deployed if is_same else place


def _means(at: Sequence[tuple[Routes, Floats]]) -> tuple[Floats, Floats]:
    seen = [routes.evidence.at_point(point) for routes, point in at]
    return np.array([cost.mean() for _, cost, _ in seen]), np.array(
        [quality.mean() for _, _, quality in seen]
    )


def _prices_and_names(
    prices: PriceList | None, names: Sequence[str] | None, estimators: Sequence[Any] | None
) -> tuple[PriceList | None, Sequence[str] | None]:
    first = next((one for one in estimators or () if one is not None), None)
    served = getattr(first, "chain_", getattr(first, "forest_", first))
    if prices is None:
        prices = getattr(served, "price_list", None)
    if names is None:
        names = getattr(first, "feature_names_in_", getattr(served, "names", None))
    if prices is not None:
        check_prices(prices)
    return prices, names


def check_prices(prices: PriceList) -> None:
    """Refuse prices that differ by row."""
    if prices.by_row is not None:
        raise InvalidInputError(
            "a report adds up prices times the shares of rows that pay them, and some prices here differ by row. Show "
            "costs and scores with frontier.plot(), and single rows with explain."
        )


def _points(
    shown: Shown,
    used: list[int],
    at: Sequence[tuple[Routes, Floats]],
    cost: Floats,
    accuracy: Floats,
    intervals: Intervals,
    auc: tuple[float, ...],
    bought: tuple[tuple[float, ...], ...],
) -> Points:
    def plain(values: Floats | None) -> tuple[float, ...]:
        return () if values is None else tuple(values.tolist())

    return Points(
        budget=plain(shown.budget),
        cost=plain(cost),
        accuracy=plain(accuracy),
        low=plain(intervals.low),
        high=plain(intervals.high),
        lead_low=plain(intervals.lead_low),
        lead_high=plain(intervals.lead_high),
        system=tuple(used.index(source) for source in shown.source.tolist()),
        reach=tuple(plain(routes.reach(point)) for routes, point in at),
        efficient=tuple(shown.efficient.tolist()),
        auc=auc,
        bought=bought,
    )


def _full(
    frontier: Frontier, prices: PriceList | None, quality: Values | None, auc: float | None
) -> FullPoint | None:
    """The full model's own point: its mean quality, and what it costs to ask it about every row."""
    if quality is None:
        return None
    accuracy = float(quality.mean())
    if prices is not None:
        return FullPoint(prices.cost_of_full, accuracy, prices.full_cost, auc)
    direct = [one for one in frontier.evidence if one.sends_to_full]
    return FullPoint(float(np.mean(direct[0].cost_at(-1))), accuracy, auc=auc) if direct else None


def _rival(name: str, rival: Frontier) -> Rival:
    kept = evenly(rival, _RIVAL_POINTS)
    return Rival(name, tuple(rival.cost[kept].tolist()), tuple(rival.score[kept].tolist()))


# -- points that are shown ----------------------------------------------------------------------


_NEARLY = 0.005
"""The point shown first may be this much less accurate than the best: most of the saving lies just below the top."""


@dataclass(frozen=True)
class Shown:
    """Points by rising budget.

    Attributes
    ----------
    source, budget : ndarray of shape (n_points,)
        System, and mean cost on the rows of the choice.
    thresholds : ndarray of shape (n_points, n_stages)
        Thresholds, as the frontier has them.
    efficient : ndarray of shape (n_points,), bool
        Whether the point is one of the frontier.
    """

    source: Ints
    thresholds: Floats
    budget: Floats
    efficient: Bools

    def place_of(self, point: OperatingPoint) -> int | None:
        """Where a point is, if it is shown."""
        same = (self.source == point.source) & _same_thresholds(self.thresholds, point)
        return int(same.argmax()) if same.any() else None

    def with_point(self, point: OperatingPoint, efficient: bool) -> Shown:
        """Add a point in the order of the budgets."""
        at = int(np.searchsorted(self.budget, point.chosen_cost))
        return Shown(
            np.insert(self.source, at, point.source),
            np.insert(self.thresholds, at, _padded(point, self.thresholds.shape[1]), axis=0),
            np.insert(self.budget, at, point.chosen_cost),
            np.insert(self.efficient, at, efficient),
        )


@dataclass(frozen=True)
class Intervals:
    """Ends of bootstrap intervals of scores, of leads over the full model (None if unknown), of cost minus score."""

    low: Floats
    high: Floats
    lead_low: Floats | None
    lead_high: Floats | None
    total_low: Floats
    total_high: Floats


def evenly(frontier: Frontier, most: int) -> Ints:
    """At most ``most`` points: those that evenly spaced budgets lead to, the cheapest and the dearest included."""
    if len(frontier) <= most:
        return np.arange(len(frontier))
    cost = frontier.chosen.cost
    kept = np.array([0, len(cost) - 1])
    # Where points lie close together several budgets lead to one and the same; more budgets then find more points.
    for n_budgets in most * 2 ** np.arange(8):
        finer = np.unique(frontier.within(np.linspace(cost[0], cost[-1], n_budgets)))
        if len(finer) > most:
            break
        kept = finer
    return kept


def shown_points(frontier: Frontier, most: int, marked: Mapping[str, OperatingPoint | None]) -> Shown:
    """Thin the frontier, and add the points that are marked (deployed, certified) if they are not left in it."""
    if most < 2:
        raise InvalidInputError(f"max_points must be at least 2, the cheapest and the dearest; got {most!r}.")
    kept = evenly(frontier, most)
    shown = Shown(
        frontier.source[kept],
        frontier.thresholds[kept],
        frontier.chosen.cost[kept],
        np.ones(len(kept), dtype=bool),
    )
    for mark, point in marked.items():
        if point is None:
            continue
        _check_same_system(frontier, mark, point)
        if shown.place_of(point) is None:
            chosen = (frontier.source == point.source) & _same_thresholds(frontier.thresholds, point)
            shown = shown.with_point(point, efficient=bool(chosen.any()))
    return shown


def nearly_best(frontier: Frontier, shown: Shown) -> int:
    """The cheapest shown point that is nearly as good as the best, by the numbers of the rows of the choice."""
    good = frontier.chosen.score >= frontier.chosen.score[-1] - _NEARLY
    return int(np.argmax(shown.budget >= frontier.chosen.cost[good][0]))


def intervals_of(frontier: Frontier, shown: Shown, *, level: float, n_boot: int, seed: int) -> Intervals:
    """Percentile intervals over the rows; leads are paired, both answers being averaged over the same draws."""
    check_bootstrap(level, n_boot)
    full = next((one.full_quality for one in frontier.evidence if one.full_quality is not None), None)
    evidence, source, thresholds = frontier.evidence, shown.source, shown.thresholds
    if full is not None:
        # The full model by itself is one more system, with a single point.
        alone = _alone(frontier.evidence, full)
        source = np.r_[source, len(evidence)]
        thresholds = np.vstack([thresholds, np.full(thresholds.shape[1], 0.5)])
        evidence = (*evidence, alone)
    cost, score = resampled(evidence, source, thresholds, n_boot=n_boot, seed=seed)
    lead_low = lead_high = None
    if full is not None:
        lead_low, lead_high = tails(score[:-1] - score[-1], level)
        cost, score = cost[:-1], score[:-1]
    low, high = tails(score, level)
    return Intervals(low, high, lead_low, lead_high, *tails(cost - score, level))


def _alone(evidence: tuple[Evidence, ...], full: Values) -> Evidence:
    """The full model as a system; of documents, judged by the orders that its scores give."""
    alone = Evidence.of_point(np.zeros(len(full)), full, np.ones(len(full)))
    ranked = next((one for one in evidence if isinstance(one, QueryEvidence)), None)
    if ranked is None or ranked.task is None:
        return alone
    scores = np.column_stack([full, full]).astype(np.float64)
    return QueryEvidence.of_documents(alone, ranked.task, ranked.targets, scores)


def _same_thresholds(thresholds: Floats, point: OperatingPoint) -> Bools:
    wanted = _padded(point, thresholds.shape[1])
    same: Bools = ((thresholds == wanted) | (np.isnan(thresholds) & np.isnan(wanted))).all(axis=1)
    return same


def _padded(point: OperatingPoint, width: int) -> Floats:
    """The point's thresholds as a frontier holds them; a system as it is has a gate at 1/2 on top of "was sent"."""
    own = point.thresholds
    if not own:
        own = (0.5,) if point.threshold is None else (point.threshold,)
    padded: Floats = np.r_[own, np.full(width - len(own), np.nan)]
    return padded


def _check_same_system(frontier: Frontier, mark: str, point: OperatingPoint) -> None:
    known = 0 <= point.source < len(frontier.evidence)
    if not known or frontier.evidence[point.source].settings != point.settings:
        raise InvalidInputError(
            f"the {mark} point is of system {point.source} with settings {point.settings}, which is not the "
            f"frontier's. Give a point of the same systems in the same order."
        )


# -- labels -------------------------------------------------------------------------------------


MAX_LABELS = 20
"""Labels of one slice that get a line of their own; the rarest of more are shown together."""


@dataclass(frozen=True)
class Partition:
    """A name, labels, and which of them each row has."""

    name: str
    labels: tuple[str, ...]
    of_row: Ints

    def count(self, rows: Bools | None = None) -> tuple[int, ...]:
        """How many rows, of all or of some, have each label."""
        chosen = self.of_row if rows is None else self.of_row[rows]
        return tuple(np.bincount(chosen, minlength=len(self.labels)).tolist())

    def sums(self, values: Any) -> tuple[float, ...]:
        """Sum of the values of the rows of each label."""
        return tuple(np.bincount(self.of_row, weights=values, minlength=len(self.labels)).tolist())


def partition_of(name: str, labels: ArrayLike, n_rows: int) -> Partition:
    """Rows by label, in the order of the labels; rare labels of many are merged."""
    values = np.asarray(labels)
    if values.shape != (n_rows,):
        raise InvalidInputError(
            f"{name} must hold one label per row, shape ({n_rows},); got shape {values.shape}."
        )
    words, of_row = told_apart(values)
    if len(words) > MAX_LABELS:
        counts = np.bincount(of_row)
        kept = np.sort(np.argsort(-counts, kind="stable")[: MAX_LABELS - 1])
        place = np.full(len(words), len(kept))
        place[kept] = np.arange(len(kept))
        n_rare = len(words) - len(kept)
        words, of_row = [*(words[label] for label in kept), f"{n_rare} others"], place[of_row]
    return Partition(name, tuple(words), of_row)


def groupings_of(
    first: Partition,
    slices: Mapping[str, ArrayLike] | None,
    at: Sequence[tuple[Routes, Floats]],
    values: Sequence[Any],
    full: Any,
) -> tuple[Grouping, ...]:
    """Classes or ranges of the target, and slices: counts of rows sent, and sums of values, at each point.

    ``values`` are "is right" or errors of each row, of every point; ``full`` are those of the full model, if known.
    """
    n_rows = len(first.of_row)
    partitions = [
        first,
        *(partition_of(str(name), labels, n_rows) for name, labels in (slices or {}).items()),
    ]
    sent = [routes.place(point) == routes.n_stages for routes, point in at]
    return tuple(
        Grouping(
            name=one.name,
            labels=one.labels,
            n_rows=one.count(),
            full_right=None if full is None else one.sums(full),
            sent=tuple(one.count(rows) for rows in sent),
            right=tuple(one.sums(each) for each in values),
        )
        for one in partitions
    )


def majority_of(y: ArrayLike) -> Majority:
    """The class that most rows have; of several, the first in their order."""
    words, of_row = told_apart(np.asarray(y))
    counts = np.bincount(of_row)
    most = int(counts.argmax())
    return Majority(words[most], float(counts[most] / len(of_row)))


def auc_of(y: ArrayLike, scores: ArrayLike | None) -> float | None:
    """Area under the ROC curve; of several classes the mean, each against the rest. None where it is not known.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        Labels.
    scores : array-like of shape (n_samples,), (n_samples, 1) or (n_samples, n_classes)
        Larger for rows that look more like the second class, which is the last in their order, as in ``classes_``; or
        a score for each of several classes. Infinite scores are allowed.
    """
    if scores is None:
        return None
    labels, values = np.asarray(y), np.asarray(scores, dtype=np.float64)
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or len(values) != len(labels) or np.isnan(values).any():
        raise InvalidInputError(
            f"scores must be one number per row, or one per row and class, none of them NaN; got shape {values.shape} "
            f"with {int(np.isnan(values).sum())} NaN for {len(labels)} rows. Give the probability of the second class, "
            f"or another score for it."
        )
    classes = np.unique(labels)
    # Where a class is not among the rows, nobody can tell whose scores are missing.
    if len(classes) != max(values.shape[1], 2):
        return None
    task = classification(classes)
    return task.auc(task.encode("y", labels, len(labels)), values)


def auc_by_point(y: ArrayLike, at: Sequence[tuple[Routes, Floats]]) -> tuple[float, ...]:
    """AUC of each point, or nothing where there are no scores."""
    found = []
    for routes, point in at:
        scores = routes.scores(point)
        auc = None if scores is None else auc_of(y, scores)
        if auc is None:
            return ()
        found.append(auc)
    return tuple(found)


def told_apart(values: Labels) -> tuple[list[str], Ints]:
    """Labels as words, in their order, and which of them each row has."""
    if values.dtype.kind in "biuf":
        found, of_row = np.unique(values, return_inverse=True)
        return [str(value) for value in found.tolist()], of_row.reshape(-1)
    # As text: labels of mixed kinds, None and NaN among them, then compare as they read.
    found, of_row = np.unique([str(value) for value in values], return_inverse=True)
    return found.tolist(), of_row.reshape(-1)


def label_task(frontier: Frontier, estimators: Sequence[Any] | None) -> ClassTask | None:
    """How labels are answered with, by the fitted systems, else by the frontier; None where nobody says."""
    served = [getattr(one, "chain_", one) for one in estimators or () if one is not None]
    known = next((one.task for one in served if hasattr(one, "task")), frontier.task)
    return known if isinstance(known, ClassTask) else None


def judged_labels(
    frontier: Frontier,
    used: list[int],
    y: ArrayLike,
    at: Sequence[tuple[Routes, Floats]],
    task: ClassTask | None,
    slices: Mapping[str, ArrayLike] | None,
    **draws: Any,
) -> dict[str, Any]:
    """What facts say about labels, by the name of the field."""
    is_priced = any(one.right is not None and one.quality.dtype != bool for one in frontier.evidence)
    if is_priced:
        known = (full_right_of(one, task) for one in _first_used(frontier, used))
        full_right = next((one for one in known if one is not None), None)
    else:
        quality = known_of(frontier, used, "full_quality")
        full_right = None if quality is None else yes_or_no("full_quality", quality)
    right = [routes.right(point) for routes, point in at]
    lost = [_log_loss(y, routes.scores(point), task) for routes, point in at]
    classes = replace(partition_of("y", y, frontier.n_rows), name="class")
    _, of_row = told_apart(np.asarray(y))
    shares = np.bincount(of_row) / len(of_row)
    # Constants are what the shares of the classes achieve as the answer to every row.
    rows = [RowMeasure("balanced accuracy", right, full_right, 1.0 / len(shares), of_row)]
    if is_priced:  # else the share of right answers is the score of the page
        rows.insert(0, RowMeasure("accuracy", right, full_right, float(shares.max())))
    if all(one is not None and not np.isnan(one).any() for one in lost):
        full_lost = _log_loss(y, known_of(frontier, used, "full_scores"), task)
        rows.append(RowMeasure("log-loss", lost, full_lost, -float(shares @ np.log(shares))))
    return {
        "groupings": groupings_of(classes, slices, at, right, full_right),
        "majority": majority_of(y),
        "measures": curves_of(rows, **draws),
    }


def known_of(frontier: Frontier, used: Sequence[int], name: str) -> Any:
    """What is known about the full model on each row, by the first system that says it."""
    known = (getattr(one, name) for one in _first_used(frontier, used))
    return next((one for one in known if one is not None), None)


def _first_used(frontier: Frontier, used: Sequence[int]) -> tuple[Evidence, ...]:
    """The systems, those that are shown first."""
    return (*(frontier.evidence[place] for place in used), *frontier.evidence)


@dataclass(frozen=True, eq=False)
class RowMeasure:
    """A measure that is a mean over rows.

    Attributes
    ----------
    name : str
        Its name.
    points : sequence of ndarray of shape (n_rows,)
        Values of the rows at each point.
    full : ndarray of shape (n_rows,) or None
        Those of the full model, if they are known.
    constant : float
        What the best constant answer achieves.
    classes : ndarray of shape (n_rows,), optional
        Class of each row, where the mean is one over the means of the classes.
    """

    name: str
    points: Sequence[Any]
    full: Any
    constant: float
    classes: Ints | None = None

    def groups(self) -> list[tuple[Any, Floats]]:
        """Rows that are averaged together and their values, a line for each point and, last, for the full model."""
        values = np.array([*self.points, *([] if self.full is None else [self.full])], dtype=np.float64)
        if self.classes is None:
            return [(slice(None), values)]
        some = (np.flatnonzero(self.classes == one) for one in range(int(self.classes.max()) + 1))
        return [(rows, values[:, rows]) for rows in some]


def curves_of(
    measures: Sequence[RowMeasure], *, level: float, n_boot: int, seed: int
) -> tuple[MeasureCurve, ...]:
    """Every measure of every point with its bootstrap interval; rows are drawn once for all, as for bands of scores."""
    n_points, n_rows = len(measures[0].points), len(measures[0].points[0])
    groups = [one.groups() for one in measures]
    drawn = [np.empty((len(some[0][1]), n_boot)) for some in groups]
    for place, counts in draws_of(n_rows, n_boot, seed):
        for some, found in zip(groups, drawn, strict=True):
            found[:, place] = _weighted_means(some, counts)
    curves = []
    for one, some, found in zip(measures, groups, drawn, strict=True):
        value = _weighted_means(some, np.ones((n_rows, 1)))[:, 0]
        # The mean of squared errors is told as its root.
        power = ERRORS.get(one.name, 1)
        value, low, high = (mean_error(mean, power).tolist() for mean in (value, *tails(found, level)))
        full = None if one.full is None else value[n_points]
        own, low, high = (tuple(end[:n_points]) for end in (value, low, high))
        curves.append(MeasureCurve(one.name, own, low, high, full, one.constant))
    return tuple(curves)


def _weighted_means(groups: list[tuple[Any, Floats]], counts: Floats) -> Floats:
    """Mean over the means of the groups, under weights of shape (n_rows, n_weightings)."""
    total = np.zeros((len(groups[0][1]), counts.shape[1]))
    n_there = np.zeros(counts.shape[1])
    for rows, values in groups:
        weights = counts[rows]
        weight = weights.sum(axis=0)
        is_there = weight > 0  # a class that a resample lacks has no recall there
        total += values @ weights / np.where(is_there, weight, 1.0)
        n_there += is_there
    found: Floats = total / n_there
    return found


def _log_loss(y: ArrayLike, scores: Floats | None, task: ClassTask | None) -> Floats | None:
    """What the answer to each row loses; None where nobody can tell which score belongs to which label."""
    if scores is None:
        return None
    labels = np.asarray(y)
    if task is None or not np.isin(labels, task.classes).all():
        classes = np.unique(labels)
        if len(classes) != max(scores.shape[1], 2):
            return None
        task = classification(classes)
    truth = task.strata(task.encode("y", labels, len(labels)))
    given = task.outputs(scores)[np.arange(len(truth)), truth]
    lost: Floats = -np.log(np.maximum(given, LEAST_PROBABILITY))
    return lost


# -- mistakes with prices -----------------------------------------------------------------------


def prices_of(frontier: Frontier, task: ClassTask | None) -> CostMatrix | None:
    """Prices of mistakes, where answers are judged by them; None where they are right or wrong."""
    if all(one.right is None for one in frontier.evidence):
        return None
    if task is None or task.mistakes is None:
        raise InvalidInputError(
            "the score of frontier is minus what answers lose, and nobody says by which prices. Give the fitted "
            "systems as `estimators` with `X`, or a frontier that knows its task, such as `estimator.frontier_`."
        )
    return task.mistakes if isinstance(task.mistakes, CostMatrix) else None


def counting_right(frontier: Frontier, task: ClassTask | None) -> Frontier:
    """The frontier with "is right" in the place of what probabilities lose."""
    if all(one.right is None for one in frontier.evidence):
        return frontier
    counted = [
        one if one.right is None else replace(one, quality=one.right, full_quality=full_right_of(one, task))
        for one in frontier.evidence
    ]
    return replace(frontier.on(counted), held_out=frontier.held_out)


def full_right_of(one: Evidence, task: ClassTask | None) -> Any:
    """Whether the full model's own answers are the true class, where quality says something else; None if unknown."""
    if one.full_scores is None or one.strata is None or task is None:
        return None
    return task.best(one.full_scores) == one.strata


def billed(
    facts: Facts,
    y: ArrayLike,
    task: ClassTask,
    prices: CostMatrix,
    at: Sequence[tuple[Routes, Floats]],
    full_scores: Floats | None,
    intervals: Intervals,
    least: int,
) -> Facts:
    """Facts whose scores became what mistakes cost, with the totals and the kinds of mistakes."""
    points, full = facts.points, facts.full
    changed = {
        name: tuple(-one for one in getattr(points, opposite))
        for name, opposite in (
            ("accuracy", "accuracy"),
            ("low", "high"),
            ("high", "low"),
            ("lead_low", "lead_high"),
            ("lead_high", "lead_low"),
        )
    }
    truth = task.strata(task.encode("y", y, facts.measured.n_rows))
    said = [task.best(scores) for routes, point in at if (scores := routes.scores(point)) is not None]
    kinds = () if len(said) < len(at) else _kinds(task, prices.costs, truth, said, full_scores)
    constant = (np.bincount(truth, minlength=len(prices.costs)) @ prices.costs) / len(truth)
    return replace(
        facts,
        points=replace(points, **changed),
        full=None if full is None else replace(full, accuracy=-full.accuracy),
        rivals=tuple(replace(one, accuracy=tuple(-score for score in one.accuracy)) for one in facts.rivals),
        majority=Majority(str(task.classes[constant.argmin()]), float(constant.min())),
        score="cost of mistakes",
        bill=Bill(tuple(intervals.total_low.tolist()), tuple(intervals.total_high.tolist()), least, kinds),
    )


def _kinds(
    task: ClassTask, costs: Floats, truth: Ints, said: Sequence[Ints], full_scores: Floats | None
) -> tuple[MistakeKind, ...]:
    """What costs something, by class and answer, the dearest first; the cheapest of many together."""
    n_classes, n_rows = len(costs), len(truth)
    theirs = [] if full_scores is None else [task.best(full_scores)]
    counts = np.array(
        [np.bincount(truth * n_classes + one, minlength=n_classes**2) for one in (*said, *theirs)]
    )
    lost = counts * costs.reshape(-1) / n_rows
    priced = np.flatnonzero(costs.reshape(-1) > 0.0)
    order = priced[np.argsort(-lost[:, priced].sum(axis=0), kind="stable")]
    n_alone = len(order) if len(order) <= MAX_LABELS else MAX_LABELS - 1
    groups = [np.array([one]) for one in order[:n_alone]]
    if n_alone < len(order):
        groups.append(order[n_alone:])
    labels = [str(label) for label in task.classes.tolist()]
    found = []
    for group in groups:
        count, cost = counts[:, group].sum(axis=1), lost[:, group].sum(axis=1)
        one, alone = divmod(int(group[0]), n_classes), len(group) == 1
        found.append(
            MistakeKind(
                labels[one[0]] if alone else f"{len(group)} other kinds",
                labels[one[1]] if alone else "",
                float(costs[one]) if alone else None,
                tuple(count[: len(said)].tolist()),
                tuple(cost[: len(said)].tolist()),
                float(cost[-1]) if theirs else None,
            )
        )
    return tuple(found)


# -- numbers ------------------------------------------------------------------------------------


_RANGES = 5
"""Ranges of the target, each with as many rows, that get a line of their own."""


@dataclass(frozen=True, eq=False)
class Numbers:
    """The targets of a report whose answers are numbers.

    Attributes
    ----------
    task : Task
        What an answer is.
    y : ndarray of shape (n_rows,)
        Targets as the task encodes them.
    """

    task: Task
    y: Floats

    def rescaled(self, facts: Facts) -> Facts:
        """Facts whose mean qualities became R2 on these rows, or D2; a lead has no constant to be compared with."""

        def score(values: Sequence[float]) -> tuple[float, ...]:
            return tuple(self.task.score(self.y, np.array(values)).tolist())

        points, full = facts.points, facts.full
        first, second = score([0.0, 1.0])
        changed: dict[str, Any] = {
            name: tuple((second - first) * one for one in getattr(points, name))
            for name in ("lead_low", "lead_high")
        }
        changed |= {name: score(getattr(points, name)) for name in ("accuracy", "low", "high")}
        return replace(
            facts,
            points=replace(points, **changed),
            full=None if full is None else replace(full, accuracy=score([full.accuracy])[0]),
            rivals=tuple(replace(one, accuracy=score(one.accuracy)) for one in facts.rivals),
        )

    def judged(
        self,
        evidence: Sequence[Evidence],
        at: Sequence[tuple[Routes, Floats]],
        slices: Mapping[str, ArrayLike] | None,
        **draws: Any,
    ) -> dict[str, Any]:
        """What facts say about numbers, by the name of the field."""
        found: dict[str, Any] = {"majority": self.constant, "score": self.task.quality_name, "groupings": ()}
        errors = [self.errors_of(routes.scores(point)) for routes, point in at]
        if any(one is None for one in errors):
            return found  # a system that does not tell what it answered
        full = self.errors_of(
            next((one.full_scores for one in evidence if one.full_scores is not None), None)
        )
        base = np.tile(self.task.loss(self.y).base(np.ones(len(self.y))), (len(self.y), 1))
        constants = mean_errors(self.task, self.y, base)
        rows = [
            RowMeasure(
                name,
                [one**power for one in errors if one is not None],
                None if full is None else full**power,
                constants[name],
            )
            for name, power in ERRORS.items()
        ]
        found["errors"] = curves_of(rows, **draws)
        found["groupings"] = groupings_of(
            _ranges(np.asarray(self.task.decode(self.y))), slices, at, errors, full
        )
        if self.task.quality_name != "R2":
            found["measures"] = self.r2_of(found["errors"])
        return found

    @property
    def constant(self) -> Majority:
        """The number that errs least as the answer to every row; its score is 0 by definition."""
        number = float(self.task.decode(self.task.loss(self.y).base(np.ones(len(self.y))))[0])
        return Majority(f"{number:.5g}", 0.0)

    def errors_of(self, scores: Floats | None) -> Floats | None:
        """Absolute error of each row, where the scores are known."""
        return None if scores is None else self.task.errors(self.y, scores)

    def r2_of(self, errors: Sequence[MeasureCurve]) -> tuple[MeasureCurve, ...]:
        """R2 by the root mean squared errors, for scores that are something else; the targets spread as they do."""
        spread = float(np.var(np.asarray(self.task.decode(self.y))))

        def score(values: Sequence[float]) -> tuple[float, ...]:
            return tuple(1.0 - value**2 / spread for value in values)

        return tuple(
            MeasureCurve(
                "R2",
                score(one.value),
                score(one.high),
                score(one.low),
                None if one.full is None else score([one.full])[0],
                score([one.constant])[0],
            )
            for one in errors
            if one.name == "RMSE"
        )


def numbers_of(frontier: Frontier, y: ArrayLike, estimators: Sequence[Any] | None) -> Numbers | Orders | None:
    """The targets, where the systems of a frontier predict numbers or rank; None where they answer with labels."""
    known = [getattr(one, "chain_", one) for one in estimators or () if one is not None]
    tasks = [one.task for one in known if hasattr(one, "task")]
    ranked = [one for one in frontier.evidence if isinstance(one, QueryEvidence)]
    if ranked:
        return Orders(next((one for one in ranked if one.full_quality is not None), ranked[0]))
    if tasks and len(tasks[0].classes) == 0:
        return Numbers(tasks[0], tasks[0].encode("y", y, frontier.n_rows))
    if not tasks and any(one.quality.dtype != bool and _has_fractions(one) for one in frontier.evidence):
        raise InvalidInputError(
            "quality must be right or wrong (bool, or 0 and 1) on every row, unless the systems predict numbers, which "
            "is known from a fitted one. Give those as `estimators` with `X`, or one as `deployed`."
        )
    return None


def _has_fractions(one: Evidence) -> bool:
    return not bool(np.isin(one.quality, (0.0, 1.0)).all())


def _ranges(y: Floats) -> Partition:
    """Rows by their target, in ranges that hold as many rows each."""
    cuts = np.unique(np.quantile(y, np.arange(1, _RANGES) / _RANGES, method="lower"))
    cuts = cuts[cuts < y.max()]
    ends = [f"{cut:.5g}" for cut in cuts]
    words = [f"up to {ends[0]}"] if ends else ["all"]
    words += [f"above {low} to {high}" for low, high in pairwise(ends)]
    words += [f"above {ends[-1]}"] if ends else []
    return Partition("target", tuple(words), np.searchsorted(cuts, y))


# -- orders of queries --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Orders:
    """The documents of a report; a row of its page is a document, and intervals draw queries.

    Attributes
    ----------
    evidence : QueryEvidence
        Of one of the systems, all of which are judged on the same queries.
    """

    evidence: QueryEvidence

    def judged(
        self,
        evidence: Sequence[Evidence],  # noqa: ARG002 - what every kind of answer is given
        at: Sequence[tuple[Routes, Floats]],  # noqa: ARG002
        slices: Mapping[str, ArrayLike] | None,
        **draws: Any,  # noqa: ARG002
    ) -> dict[str, Any]:
        """What facts say about orders, by the name of the field; groups of documents have no order of their own."""
        if slices:
            raise InvalidInputError(
                f"slices tell rows apart that are answered one by one; here the order of a query is judged as a whole. "
                f"Leave {', '.join(map(repr, slices))} out."
            )
        one = self.evidence
        assert one.task is not None  # checked when it was made
        by_chance = float(np.nanmean(one.value(np.zeros(one.n_documents))))
        return {
            "groupings": (),
            "majority": Majority("the mean of all orders", by_chance),
            "score": one.task.quality_name,
            "errors": (),
        }

    def rescaled(self, facts: Facts) -> Facts:
        """Facts that count documents and queries, with the metric of the full model's own orders."""
        one, full = self.evidence, facts.full
        measured = replace(facts.measured, n_rows=one.n_documents, n_queries=one.n_rows)
        if full is not None:
            full = replace(full, accuracy=one.full_score)
        return replace(facts, measured=measured, full=full)
