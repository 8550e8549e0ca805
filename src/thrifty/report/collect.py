"""From a frontier and the rows it was scored on to the facts of a report."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

import thrifty
from thrifty.arrays import Floats, Numbers
from thrifty.errors import InvalidInputError
from thrifty.evidence.certificate import Certificate
from thrifty.evidence.frontier import Frontier, OperatingPoint
from thrifty.evidence.observe import point_of
from thrifty.prices.billing import PriceList
from thrifty.report.bill import billed, counting_right, least_total, prices_of
from thrifty.report.classes import auc_by_point, auc_of
from thrifty.report.curves import judged_labels, known_of, label_task
from thrifty.report.errors import numbers_of
from thrifty.report.facts import Certified, Facts, FullPoint, Measured, Points, Rival
from thrifty.report.purchases import purchases_of
from thrifty.report.routes import Routes, routes_of
from thrifty.report.shown import Intervals, Shown, evenly, intervals_of, nearly_best, shown_points

__all__ = ["collect_facts"]


_RIVAL_POINTS = 60


def collect_facts(
    frontier: Frontier,
    y: ArrayLike,
    *,
    chosen: Frontier | None = None,
    estimators: Sequence[Any] | None = None,
    X: Any = None,
    prices: PriceList | None = None,
    feature_names: Sequence[str] | None = None,
    purchase_names: Sequence[str] | None = None,
    slices: Mapping[str, ArrayLike] | None = None,
    rivals: Mapping[str, Frontier] | None = None,
    certificate: Certificate | None = None,
    deployed: Any = None,
    full_scores: ArrayLike | None = None,
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
    feature_names, purchase_names : sequence of str, optional
        Names of the columns, or of the purchases where several columns are one.
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
    full_scores : array-like of shape (n_samples,) or (n_samples, n_classes), optional
        Scores of the full model, as ``decision_function`` gives them, for its AUC. Those of
        the systems come with their evidence. Not needed where numbers are predicted.
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
    least = None if lost is None else frontier[least_total(frontier)]
    shown, certified_at, deployed_at, least_at = _shown(frontier, max_points, certificate, deployed, least)
    used = np.unique(shown.source).tolist()
    routes = routes_of(frontier.evidence, used, estimators, X)
    at = [
        (routes[source], thresholds[: frontier.evidence[source].n_stages])
        for source, thresholds in zip(shown.source.tolist(), shown.thresholds, strict=True)
    ]
    cost, accuracy = _means(at)
    least_at = _same_as(deployed_at, least_at, shown.budget, cost, accuracy)
    full_quality = known_of(frontier, used, "full_quality")
    purchases, systems, bought = purchases_of(prices, feature_names, purchase_names, routes, at, cost)
    intervals = intervals_of(frontier, shown, level=level, n_boot=n_boot, seed=seed)
    draws: dict[str, Any] = {"level": level, "n_boot": n_boot, "seed": seed}
    full_known = known_of(frontier, used, "full_scores")
    if numbers is None:
        judged = judged_labels(frontier, used, y, at, task, slices, **draws)
    else:
        judged = numbers.judged(frontier.evidence, shown, at, slices, **draws)
    auc, full_auc = ((), None) if numbers else (auc_by_point(y, at), _auc_of_full(y, full_scores))
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


def _same_as(deployed: int | None, least: int | None, *numbers: Floats) -> int | None:
    """The deployed point where it is that of least total cost: a system as it is has an entry of its own."""
    if deployed is None or least is None:
        return least
    is_same = all(np.isclose(values[deployed], values[least]) for values in numbers)
    return deployed if is_same else least


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
    if prices is not None and prices.by_row is not None:
        raise InvalidInputError(
            "a report adds up prices times the shares of rows that pay them, and some prices here differ by row. Show "
            "costs and scores with frontier.plot(), and single rows with explain."
        )
    return prices, names


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


def _auc_of_full(y: ArrayLike, scores: ArrayLike | None) -> float | None:
    return None if scores is None else auc_of(y, scores)


def _full(
    frontier: Frontier, prices: PriceList | None, quality: Numbers | None, auc: float | None
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
