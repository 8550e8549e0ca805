"""Results of a system: on new labelled rows at every operating point, and out of fold at the one in force.

``measure`` evaluates the system once per operating point: where each row stops, and how it is answered. Spend, score,
measures, groups and kinds of mistakes are functions of that. ``expected`` takes the same numbers from the rows of the
fit, each scored by models that had not learned from it. A score is a linear function of the mean quality that evidence
averages, so its intervals are those of the quality: the cost of mistakes is minus the quality, and a squared error
becomes R2.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from thrifty.arrays import Bools, Floats, Ints, Words
from thrifty.engine.evidence.budgets import scores_at
from thrifty.engine.evidence.collect import chain_of, evidence_of, learned_chain_of, point_of
from thrifty.engine.evidence.evidence import Evidence, Means, PointAnswers, means_at
from thrifty.engine.evidence.frontier import Frontier, efficient
from thrifty.engine.evidence.measures import (
    ClassRows,
    NumberRows,
    answered_rows,
    banded,
    resampled,
    score_interval,
    tails,
    with_classes,
)
from thrifty.engine.evidence.thresholds import convex_hull
from thrifty.engine.full.crossfit import KINDS
from thrifty.engine.plots import (
    draw_budgets,
    draw_in_force,
    draw_tree,
    file_bytes,
    is_installed,
    new_figure,
    purchase_tree,
)
from thrifty.engine.prices.billing import PriceList, Resources
from thrifty.engine.table.table import Table
from thrifty.engine.tasks.classes import ClassTask, CostMatrix
from thrifty.engine.tasks.ranking import RankingTask
from thrifty.engine.tasks.task import Task, mean_errors
from thrifty.engine.walk.policy import SLACK
from thrifty.errors import InvalidInputError, listed
from thrifty.learners.routing.logs import (
    costs_in,
    costs_of,
    logged_parts,
    matrix,
    row_keys,
    run_times,
    split_cost,
)
from thrifty.learners.routing.model_cascade import ModelCascade
from thrifty.learners.routing.router import ModelRouter
from thrifty.learners.table_fit import record_of
from thrifty.reporting.facts import (
    LEVEL,
    MAX_LABELS,
    Curve,
    Facts,
    Grouping,
    MistakeKind,
    Numbers,
    Partition,
    PurchaseLine,
    Rival,
    partition_of,
)

MAX_UNBOUGHT = 30
"""Purchases that no stage makes and that get a line of their own; more are together."""
N_RANGES = 5
"""Ranges of the target, each with as many rows, that get a line of their own."""
MAX_POINTS, RIVAL_POINTS = 100, 60
"""Points of the system and of each rival; of more, those that evenly spaced budgets lead to."""
N_BUDGETS = 16
"""Budgets of each of two resources that a picture shows."""
_N_RECEIPTS = 12
_TEXT_LETTERS = 80


def measure(
    system: Any,
    X: Any,
    y: ArrayLike,
    *,
    by: Mapping[str, ArrayLike] | None = None,
    rivals: Mapping[str, Any] | None = None,
    cost: Any = None,
    answers: Any = None,
    evidence: Any = None,
    n_boot: int = 1000,
) -> Facts:
    """Measure a fitted system on labelled rows, for a report.

    Parameters
    ----------
    system : fitted estimator, Chain or ModelRouter
        Its operating points are those of ``frontier_``, the one in force is the deployed one, and its certificate is
        shown if it has one. Without points of its own, all thresholds of a gate are shown, chosen on these very rows.
    X : table of shape (n_samples, n_features)
        Rows that neither the system nor its full model was fitted on.
    y : array-like of shape (n_samples,), or (n_samples, 2) of documents
        Labels or numbers; of documents, relevance and query; for a router, ``quality`` as in its ``fit``.
    by : dict of str to array-like of shape (n_samples,), optional
        Groups of rows to tell apart.
    rivals : dict of str to fitted estimator, Chain or Frontier, optional
        Other systems; a frontier must be scored on these rows.
    cost, answers, evidence : array-like of shape (n_samples, n_models), optional
        Log of a router, as in its ``fit``.
    n_boot : int, default=1000
        Number of bootstrap draws of the rows, for intervals.
    """
    draws: dict[str, Any] = {"level": LEVEL, "n_boot": n_boot, "seed": 0}
    log = {"cost": cost, "answers": answers, "evidence": evidence}
    if isinstance(system, ModelRouter):
        return _measure_router(system, X, {"quality": y, **log}, by or {}, rivals or {}, draws)
    if isinstance(system, ModelCascade) and not any(part is not None for part in log.values()):
        return _measure_cascade(system, X, y, by or {}, rivals or {}, draws)
    for name, part in log.items():
        if part is not None:
            raise InvalidInputError(
                f"{name} is part of the log of a ModelRouter; got a {type(system).__name__}. Leave it out."
            )
    prices, others = price_list_of("system", system), dict(rivals or {})
    for name, rival in others.items():
        if not isinstance(rival, Frontier):
            price_list_of(f"rivals[{name!r}]", rival)
    task: Task = _served(system).task
    frontier, chosen = _frontier_on(system, X, y)
    scored = _as_shown(frontier, task)
    deployed = None
    if chosen is not None and hasattr(system, "chain_"):
        deployed = _evidence_as_shown(point_of(system, X, y), task)
    certificate = getattr(system, "certificate_", None)
    shown, marked = _shown_points(scored, system, deployed, certificate, with_least=_is_bill(task))
    system_evidence, answered = scored.evidence[0], shown.answers()
    rows = _Answered.of(task, system_evidence, [answers for _, answers in answered])
    parts = _results(rows, shown, prices.cost_of_full, draws)
    held, places = _routes(system, X, answered)
    names = getattr(system, "feature_names_in_", getattr(_served(system), "names", None))
    purchases, bought = _purchases(held, places, prices, None if names is None else [*map(str, names)])
    share = tuple(float(np.mean(place == len(held) - 1)) for place in places)
    if prices.full_cost > 0:
        purchases = (*purchases, PurchaseLine("asking the full model", prices.full_cost, len(held) - 1, 0))
        bought = tuple((*own_shares, sent) for own_shares, sent in zip(bought, share, strict=True))
    # The point in force has an entry of its own; a marked point with the same numbers is that one.
    numbers, marks = np.array([shown.budget, parts["cost"].value, parts["score"].value]).T, {}
    for name in ("deployed", "certified", "least total cost"):
        if name in marked:
            own_place, in_force = marked[name], marked.get("deployed", marked[name])
            marks[name] = in_force if np.allclose(numbers[in_force], numbers[own_place]) else own_place
    return Facts(
        **parts,
        share=share,
        n_rows=len(system_evidence.gate),
        n_queries=None if system_evidence.unit is None else system_evidence.n_units,
        budget=_plain(shown.budget),
        efficient=tuple(shown.efficient.tolist()),
        start=next(iter(marks.values()), len(shown.budget) - 1),
        marked=marks,
        n_stages=len(held) - 1,
        purchases=purchases,
        bought=bought,
        picture=_tree_picture(system, X),
        groupings=_groupings(rows, dict(by or {}), [place == len(held) - 1 for place in places]),
        mistakes=_mistakes(rows),
        rivals=tuple(_rival(name, rival, X, y, scored, task) for name, rival in others.items()),
        certificate="" if certificate is None else str(certificate),
        held_out=frontier.held_out,
        n_chosen=None if chosen is None else chosen.n_rows,
        n_points=len(frontier),
        method=type(system).__name__,
        full_name=_full_name(system),
        is_mixed=frontier.is_mixed,
        by_lot=_by_lot(system),
        notes=(*_notes_of_blanks(system), *_notes_of_rates(prices.resources)),
        **_by_resource(prices.resources, shown, [each.cost_of_full for each in prices.by_resource]),
        **_budgets(
            system,
            prices.resources,
            _evidence_as_shown(system.evidence_, task) if hasattr(system, "evidence_") else None,
            parts["score"].name,
            _scale_of(task, system_evidence),
        ),
        **draws,
    )


def _notes_of_rates(resources: Resources | None) -> tuple[tuple[str, str], ...]:
    """A note on single costs that are sums of those in several resources."""
    if resources is None:
        return ()
    summed = " + ".join(
        f"{rate:.3g} {name}" for name, rate in zip(resources.names, resources.rates, strict=True)
    )
    return (("Costs", f"single numbers are sums at the exchange rates of the fit, {summed}"),)


def _by_resource(resources: Resources | None, shown: "_Shown", full: Sequence[float]) -> dict[str, Any]:
    """Mean cost of each point in each of several resources, as fields of ``Facts``."""
    if resources is None:
        return {}
    means = [
        shown.systems[source].mean_costs(point[None, : shown.systems[source].n_parameters])[0]
        for source, point in zip(shown.source, shown.thresholds, strict=True)
    ]
    columns = zip(resources.names, np.transpose(means), full, strict=True)
    return {"costs": tuple(Curve(name, _plain(of_one), full=most) for name, of_one, most in columns)}


def _budgets(
    system: Any, resources: Resources | None, fitted_on: Evidence | None, score_name: str, scale: "_Scale"
) -> dict[str, Any]:
    """What more of each resource buys, and for two resources a picture of it, as fields of ``Facts``.

    By the rows of the fit: scores of few new rows go up and down from one point to the next.
    """
    if resources is None or fitted_on is None:
        return {}
    is_router = isinstance(system, ModelRouter)
    fitted = system.state_.policy if is_router else getattr(system, "_learned", system).policy
    policy = system.policy_ if is_router else chain_of(system).policy
    if not fitted.is_measured or fitted.costs is None or policy.costs is None:
        return {}
    fitted = replace(fitted, score=fitted_on.weighted_means(fitted.thresholds)[1])
    at, n_resources = policy.expected_costs, len(resources.names)
    more = np.vstack([np.zeros(n_resources), np.eye(n_resources), np.ones(n_resources)])
    before, *after = scores_at(fitted, at * (1 + SLACK + 0.1 * more)).tolist()
    named = [
        f"{name} ({0.1 * amount:.3g} per row)"
        for name, amount in zip(resources.names, at.tolist(), strict=True)
    ]
    words = tuple(
        (f"10 % more {name}", f"{abs(scale.slope) * max(score - before, 0.0):+.4f} {score_name}")
        for name, score in zip([*named, "of each"], after, strict=True)
    )
    if n_resources != 2 or not is_installed():
        return {"more": words}
    low, high = fitted.costs.min(axis=0), fitted.costs.max(axis=0)
    first, second = (np.linspace(*ends, N_BUDGETS) for ends in zip(low, high, strict=True))
    scores = scale(scores_at(fitted, np.array([(one, other) for other in second for one in first])))
    figure, (ax,) = new_figure(width=7.0, height=4.6)
    draw_budgets(ax, (first, second), scores.reshape(N_BUDGETS, -1), resources.names, score_name)
    draw_in_force(ax, at[0], at[1], label="in force")
    return {"more": words, "budgets_picture": file_bytes(figure)}


def _notes_of_blanks(system: Any) -> tuple[tuple[str, str], ...]:
    """A note where blanks told the target of the rows of the fit, which took them for answers."""
    columns = getattr(system, "informative_blanks_", None)
    if not columns:
        return ()
    text = (
        f"which cells were blank told the target of the rows of the fit, above all in {listed(columns)}. If they were "
        f"blank because they were not bought, what the fit expected does not hold: fit with bought='known'"
    )
    return (("Blanks", text),)


def _tree_picture(system: Any, X: Any) -> bytes:
    """PNG of the ways of some rows, where they part; empty without matplotlib."""
    chain = chain_of(system)
    if not chain.has_forks or not is_installed():
        return b""
    figure, (ax,) = new_figure(width=10.0, height=5.6)
    draw_tree(*purchase_tree(chain, chain.reader(X), chain.schema.names), ax)
    return file_bytes(figure)


def expected(system: Any, *, n_boot: int = 1000) -> Facts:
    """Results to expect of new rows at the operating point in force, estimated out of fold on the rows of the fit.

    Log-loss, AUC and mean errors need the scores of these rows, which a file does not keep.
    """
    chain = system.chain_
    served, policy = _as_served(system), chain.policy
    evidence = _evidence_as_shown(served, chain.task)
    weights, thresholds = zip(
        *((weight, policy.thresholds[at]) for weight, at in policy.in_force if weight), strict=True
    )
    answers = [evidence.answers_at(point) for point in thresholds]

    def mixed(values: Sequence[Any]) -> Floats:
        # With the probability that a row follows each point: nothing is drawn.
        return np.asarray(np.average(np.asarray(values, dtype=np.float64), axis=0, weights=weights))

    _, cost, quality = (mixed(values) for values in zip(*map(evidence.at_point, thresholds), strict=True))
    quality = np.subtract(quality, mixed(evidence.optimism_at(np.array(thresholds))[:, 0].tolist()))
    place = answers[0].place
    if len(answers) > 1:
        chance, edges = np.random.default_rng(policy.seed).random(len(place)), np.cumsum([0.0, *weights[1:]])
        for at_point, (start, end) in zip(answers[1:], pairwise(edges), strict=True):
            place = np.where((chance >= start) & (chance < end), at_point.place, place)
    right = (
        None
        if any(points.right is None for points in answers)
        else mixed([points.right for points in answers])
    )
    scores = None if evidence.scores is None else evidence.scores[np.arange(len(place)), place]
    draws: dict[str, Any] = {"level": LEVEL, "n_boot": n_boot, "seed": 0}
    rows = _Answered.of(chain.task, evidence, [PointAnswers(place, right, scores)])  # type: ignore[arg-type]  # right or wrong, as booleans
    in_force = Evidence.of_point(cost, quality, np.zeros(len(quality)))
    one_point = _Shown((in_force,), np.zeros(1, np.intp), np.array([[0.5]]), np.zeros(1), np.ones(1, bool))
    full_cost = chain.price_list.cost_of_full
    parts = _results(rows, one_point, full_cost, draws, with_recalls=True)
    interval, costs, resources = system.expected_cost_interval_, [], chain.price_list.resources
    low, high = interval if resources is None else (np.nan, np.nan)
    parts["cost"] = replace(parts["cost"], low=(low,), high=(high,), full=full_cost)
    if resources is not None:
        parts["cost"] = replace(parts["cost"], low=(), high=())
        mean = system.expected_cost_
        costs = [
            Curve(name, (mean[name],), interval[name][:1], interval[name][1:], prices.cost_of_full)
            for name, prices in zip(resources.names, resources.lists, strict=True)
        ]
    if evidence is served:  # the score of the page is that of the estimator
        ends = score_interval(evidence, policy, float(quality.mean()), LEVEL)
        low, high = np.sort(_scale_of(chain.task, evidence)(np.array(ends))).tolist()
        parts["score"] = replace(parts["score"], low=(low,), high=(high,))
    if isinstance(rows.system, NumberRows) and parts["score"].name == "R2":
        # The spread of the targets is drawn too, as it is for new rows.
        (value,), (low,), (high,) = banded(rows.system, ["R2"], **draws)["R2"]
        ((score,),) = [parts["score"].value]
        parts["score"] = replace(parts["score"], low=(score + low - value,), high=(score + high - value,))
    return Facts(
        **parts,
        share=(float(mixed([points.place == evidence.n_stages for points in answers]).mean()),),
        n_rows=len(evidence.gate),
        n_queries=None if evidence.unit is None else evidence.n_units,
        method=type(system).__name__,
        full_name=_full_name(system),
        by_lot=_by_lot(system),
        costs=tuple(costs),
        **draws,
    )


def _plain(values: Floats) -> Numbers:
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
    """True if answers are scored by the cost of mistakes."""
    return isinstance(task, ClassTask) and isinstance(task.mistakes, CostMatrix)


def _by_lot(system: Any) -> float:
    """Share of the rows of the fit for which the key decides; 0 for a chain, or a file without these rows."""
    evidence: Evidence | None = getattr(system, "evidence_", None)
    return 0.0 if evidence is None else evidence.share_by_lot(_served(system).policy)


def _full_name(system: Any) -> str:
    """Kind of the full model, or its class where it is an estimator."""
    kind = record_of(system).full
    if kind:
        return KINDS.get(kind, kind)
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
    evidence = evidence_of(system, X, y, settings=dict(chosen.evidence[0].settings))
    # A gate that was fitted with one threshold is shown with that one.
    return chosen.on([replace(evidence, points=chosen.evidence[0].points)]), chosen


def _as_shown(frontier: Frontier, task: Task | None) -> Frontier:
    """The frontier with the score of the page."""
    counted = [_evidence_as_shown(evidence, task) for evidence in frontier.evidence]
    return replace(frontier.on(counted), held_out=frontier.held_out)


def _evidence_as_shown(evidence: Evidence, task: Task | None) -> Evidence:
    """The evidence with "is right" instead of log-loss or Brier loss; costs of mistakes are unchanged."""
    if evidence.right is None or (task is not None and _is_bill(task)):
        return evidence
    return replace(evidence, quality=evidence.right, full_quality=_full_right(evidence, task), optimism=None)


def _full_right(evidence: Evidence, task: Any) -> Bools | None:
    """Full model's own answers that are the true class, as a mask; None if unknown."""
    if evidence.right is None:
        return None if evidence.full_quality is None else np.asarray(evidence.full_quality, dtype=bool)
    if evidence.full_scores is None or evidence.strata is None or not isinstance(task, ClassTask):
        return None
    return np.asarray(task.best(evidence.full_scores) == evidence.strata)


def _as_served(system: Any) -> Evidence:
    """Evidence with the full model's own answers, if the chain in force serves these and not a blend."""
    chain = system.chain_
    evidence: Evidence = system.evidence_
    alone = chain.blend is not None and np.array_equal(chain.blend, chain.task.full_alone)
    if not alone or evidence.full_quality is None:
        return evidence
    served = evidence.with_full_alone()
    return served if evidence.right is None else with_classes(served, chain.task)


def _rival(name: str, rival: Any, X: Any, y: ArrayLike, ours: Frontier, task: Task) -> Rival:
    frontier = rival if isinstance(rival, Frontier) else _frontier_on(rival, X, y)[0]
    if frontier.n_rows != ours.n_rows:
        raise InvalidInputError(
            f"rivals[{name!r}] must be scored on the {ours.n_rows} rows of the report; it has {frontier.n_rows}."
        )
    if _is_bill(task) and any(evidence.right is None for evidence in frontier.evidence):
        raise InvalidInputError(
            f"the score of rivals[{name!r}] is the share of right answers, and that of the system is what mistakes "
            f"cost: one page compares one score. Fit both with the same `loss`."
        )
    scored = _as_shown(frontier, task)
    kept = _evenly(scored, RIVAL_POINTS)
    score = _scale_of(task, ours.evidence[0])(scored.score[kept])
    return Rival(str(name), _plain(scored.cost[kept]), _plain(score))


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

    def answers(self) -> list[tuple[Evidence, PointAnswers]]:
        """Place and answer of each row at each point."""
        answers = []
        for source, thresholds in zip(self.source, self.thresholds, strict=True):
            evidence = self.systems[source]
            answers.append((evidence, evidence.answers_at(thresholds[: evidence.n_stages])))
        return answers


def _shown_points(
    frontier: Frontier,
    system: Any,
    deployed: Evidence | None,
    certificate: Any,
    *,
    with_least: bool,
) -> tuple[_Shown, dict[str, int]]:
    """Thin the frontier to at most ``MAX_POINTS`` points and those with a name; and the places of the latter."""
    kept, marked, width = set(_evenly(frontier, MAX_POINTS).tolist()), {}, frontier.thresholds.shape[1]
    extra: list[tuple[str, int, Floats, float]] = []
    if with_least:
        marked["least total cost"] = frontier.least_total
    if certificate is not None and certificate.point is not None:
        # A system as it is has a gate at 1/2 on top of "was sent".
        thresholds = certificate.point.thresholds or (0.5,)
        wanted = np.r_[thresholds, np.full(width - len(thresholds), np.nan)]
        same = (frontier.thresholds == wanted) | (np.isnan(frontier.thresholds) & np.isnan(wanted))
        if same.all(axis=1).any():
            marked["certified"] = int(same.all(axis=1).argmax())
        else:
            extra.append(("certified", 0, wanted, certificate.point.chosen_cost))
    if deployed is not None:
        planned = float(
            chain_of(system).policy.expected_cost if chain_of(system).by_resource else system.expected_cost_
        )
        if not np.isfinite(planned):
            planned = float(deployed.at_point(np.array([0.5]))[1].mean())
        extra.append(("deployed", 1, np.r_[0.5, np.full(width - 1, np.nan)], planned))
    places = sorted(kept | set(marked.values()))
    is_efficient = np.r_[np.ones(len(places), dtype=bool), np.zeros(len(extra), dtype=bool)]
    budget = np.r_[frontier.chosen.cost[places], [point[3] for point in extra]]
    order = np.lexsort((is_efficient, budget))
    place_of = np.argsort(order)
    marked = {name: int(place_of[places.index(place)]) for name, place in marked.items()}
    marked |= {point[0]: int(place_of[len(places) + at]) for at, point in enumerate(extra)}
    shown = _Shown(
        (frontier.evidence[0], *(() if deployed is None else (deployed,))),
        np.array([0] * len(places) + [point[1] for point in extra])[order],
        np.array([*frontier.thresholds[places], *(point[2] for point in extra)])[order],
        budget[order],
        is_efficient[order],
    )
    return shown, marked


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


# -- scores ----------------------------------------------------------------------------------------


class _Scale(NamedTuple):
    """The score of a page as a linear function of mean quality."""

    offset: float
    slope: float

    def __call__(self, quality: Any) -> Any:
        return self.offset + self.slope * quality


def _scale_of(task: Task, evidence: Evidence) -> _Scale:
    if _is_bill(task):
        return _Scale(0.0, -1.0)
    if (
        isinstance(task, ClassTask | RankingTask) or evidence.target is None
    ):  # evidence of a file has no targets
        return _Scale(0.0, 1.0)
    zero, one = task.score(evidence.target, np.array([0.0, 1.0])).tolist()
    return _Scale(zero, one - zero)


@dataclass(frozen=True, eq=False)
class _Answered:
    """Labelled rows with their answers at some points, and with those of the full model, as far as they are known."""

    task: Task
    evidence: Evidence
    answers: Sequence[PointAnswers]
    system: ClassRows | NumberRows | None
    full: ClassRows | NumberRows | None

    @classmethod
    def of(cls, task: Task, evidence: Evidence, answers: Sequence[PointAnswers]) -> "_Answered":
        """Answers as measures need them; a ranking has no measures besides its score."""
        if isinstance(task, RankingTask):
            return cls(task, evidence, answers, None, None)
        full = PointAnswers(answers[0].place, _full_right(evidence, task), evidence.full_scores)
        return cls(
            task,
            evidence,
            answers,
            answered_rows(task, evidence, answers),
            answered_rows(task, evidence, [full]),
        )


def _score_curves(
    evidence: Evidence,
    shown: "_Shown",
    full_cost: float,
    draws: dict[str, Any],
    *,
    name: str,
    scale: "_Scale",
) -> dict[str, Any]:
    """Score, mean cost, lead and total cost of some points, each with its interval.

    Leads are paired: both answers are averaged over the same draws. Where all answers are right, or right where those
    of the full model are, draws do not differ; the interval is then that of no error among so many rows (Clopper and
    Pearson, 1934).
    """
    means, systems, source, thresholds = shown.means(), shown.systems, shown.source, shown.thresholds
    has_full, n_points = evidence.full_quality is not None, len(shown.source)
    if has_full:
        # The full model by itself is one more system, with a single point.
        alone = Evidence.of_point(
            np.zeros(len(evidence.gate)), np.asarray(evidence.full_quality), np.ones(len(evidence.gate))
        )
        if evidence.unit is not None:
            alone = alone.of_queries(
                evidence.unit.task, evidence.unit.target, alone.quality.astype(np.float64)
            )
        source, systems = np.r_[source, len(systems)], (*systems, alone)
        thresholds = np.vstack([thresholds, np.full(thresholds.shape[1], 0.5)])
    cost, quality = resampled(systems, source, thresholds, n_boot=draws["n_boot"], seed=draws["seed"])

    counts_errors = evidence.unit is None and bool(np.isin(evidence.quality, (0, 1)).all())
    unseen = 1.0 - float(((1.0 - draws["level"]) / 2.0) ** (1.0 / evidence.n_units))

    def curve(
        name: str, value: Any, drawn: Floats, full: float | None = None, least: float | None = None
    ) -> Curve:
        low, high = np.sort(np.array(tails(drawn, draws["level"])), axis=0)
        if counts_errors and least is not None:
            margin = np.where(low == high, unseen, 0.0)
            low, high = np.maximum(low - margin, least), np.minimum(high + margin, 1.0)
        return Curve(name, _plain(value), _plain(low), _plain(high), full if has_full else None)

    full_score = float(scale(evidence.full_score)) if has_full else 0.0
    # Percentiles reorder the draws, so what is made of several of them comes first.
    lead = scale.slope * (quality[:n_points] - quality[-1])
    total = cost[:n_points] - quality[:n_points]
    score = curve(name, scale(means.score), scale(quality[:n_points]), full_score, least=0.0)
    values = np.array(score.value)
    return {
        "score": score,
        "cost": curve("mean cost", means.cost, cost[:n_points], full_cost),
        "lead": curve("lead", values - full_score, lead, least=-1.0) if has_full else None,
        "total": curve("total", means.cost + values, total, full_cost + full_score),
    }


def _results(
    rows: _Answered, shown: "_Shown", full_cost: float, draws: dict[str, Any], *, with_recalls: bool = False
) -> dict[str, Any]:
    """Kind, score, cost, lead, total and measures of some points, each with its interval."""
    task = rows.task
    is_bill, kind, name = _is_bill(task), "numbers", task.quality_name
    if isinstance(task, ClassTask):
        kind, name = ("bill", "cost of mistakes") if is_bill else ("labels", "accuracy")
    elif isinstance(task, RankingTask):
        kind = "ranking"
    scale = _scale_of(task, rows.evidence)  # refuses targets without spread
    curves = _score_curves(rows.evidence, shown, full_cost, draws, name=name, scale=scale)
    label, constants = _constants(rows, name)
    constant = constants.get(name)
    return {
        "kind": kind,
        "score": replace(curves["score"], constant=constant),
        "cost": replace(curves["cost"], constant=0.0),
        "lead": curves["lead"],
        "total": replace(curves["total"], constant=constant) if is_bill else None,
        "constant": label,
        "measures": _curves(rows, constants, draws, without=name, with_recalls=with_recalls),
    }


def _curves(
    rows: _Answered,
    constants: Mapping[str, float],
    draws: dict[str, Any],
    *,
    without: str,
    with_recalls: bool,
) -> tuple[Curve, ...]:
    """Measures besides the score, with intervals; AUC of many points has none, for each draw of it takes a sort."""
    system, full = rows.system, rows.full
    if system is None:
        return ()
    names = [
        name
        for name in system.names
        if name != without and (with_recalls or not name.startswith("recall of "))
    ]
    every = np.ones((system.n_rows, 1))
    quick = [name for name in names if name != "AUC" or len(rows.answers) == 1]
    bands = banded(system, quick, **draws)
    values = system.under(every, names)
    alone = {} if full is None else full.under(every, [name for name in names if name in full.names])
    return tuple(
        Curve(
            name,
            _plain(values[name][:, 0]),
            low=_plain(bands[name][1]) if name in bands else (),
            high=_plain(bands[name][2]) if name in bands else (),
            full=float(alone[name][0, 0]) if name in alone else None,
            constant=constants.get(name),
        )
        for name in names
    )


def _constants(rows: _Answered, score: str) -> tuple[str, dict[str, float]]:
    """The best constant answer, its score, and its measures; those of labels are what the shares of classes achieve."""
    task, evidence, system = rows.task, rows.evidence, rows.system
    if evidence.unit is not None:
        by_chance = float(np.nanmean(evidence.unit.measure(np.zeros(evidence.n_rows))))
        return "the mean of all orders", {score: by_chance}
    if isinstance(system, ClassRows):
        counts = np.bincount(system.strata, minlength=len(task.classes))
        shares = counts[counts > 0] / counts.sum()
        best, scores = int(counts.argmax()), {"accuracy": float(shares.max())}
        if isinstance(task, ClassTask) and isinstance(task.mistakes, CostMatrix):
            lost = counts @ task.mistakes.costs / counts.sum()
            best, scores = int(lost.argmin()), {score: float(lost.min()), **scores}
        entropy = -float(shares @ np.log(shares))
        return str(system.labels[best]), scores | {
            "balanced accuracy": 1.0 / len(shares),
            "log-loss": entropy,
            "AUC": 0.5,
        }
    if system is None or evidence.target is None:
        return "", {}
    base = task.loss(evidence.target).base(np.ones(system.n_rows))
    errors = mean_errors(task, evidence.target, np.tile(base, (system.n_rows, 1)))
    r2 = 1.0 - errors["RMSE"] ** 2 / float(np.var(system.y))
    # The constant that errs least has a score of 0 by definition.
    return f"{float(task.decode(base)[0]):.5g}", {"R2": r2, **errors, score: 0.0}


# -- routers ---------------------------------------------------------------------------------------


def _measure_router(
    router: ModelRouter,
    X: Any,
    log: dict[str, Any],
    by: Mapping[str, ArrayLike],
    rivals: Mapping[str, Any],
    draws: dict[str, Any],
    *,
    name: str = "quality",
    scale: "_Scale | None" = None,
    keys: Words | None = None,
    explain: Callable[[Ints], list[Any]] | None = None,
) -> Facts:
    """Replay a router at every operating point on the rows of a log in which all models of its pool were asked.

    The score of the page has a name, and is ``scale`` of quality. A cascade of models knows its rows by other ``keys``
    than those of the log, and explains some of them itself.
    """
    scale = _Scale(0.0, 1.0) if scale is None else scale
    if X is None:
        X = row_keys(len(log["quality"]), log["quality"])
    resources = router.state_.resources
    new, state, policy = router.read_log(X, **log), router.state_, router.policy_
    given = log
    if new.log.cutoff is not None:
        timed = run_times(
            log["quality"],
            log["cost"],
            state.names,
            state.groups,
            state.column_prices,
            new.log.cutoff,
            len(X),
        )
        log = {**log, "quality": timed[0], "cost": timed[1]}
    log = {**log, "quality": router.qualities_of(log["quality"], len(X))}
    whole: Bools = ~np.asarray(np.isnan(new.log.quality).any(axis=1))
    if not whole.any():
        raise InvalidInputError(
            f"quality must be known of {', '.join(state.pool)} in at least one row; in each of the {len(whole)} rows "
            f"one of them was not asked. A report replays the policy on a log of all models."
        )
    is_held_out = not np.isin(new.keys, state.keys).any()
    new = (new if keys is None else new._replace(keys=keys)).rows(whole)
    walks = [router.walk(new, point) for point in range(len(policy))]
    budget, place = policy.cost, policy.lower
    is_efficient = np.isin(np.arange(len(policy)), efficient(policy.cost, policy.score))
    if policy.share > 0.0:
        place += 1
        walks.insert(place, router.walk(new))
        budget = np.insert(budget, place, router.policy_.expected_cost + state.mixing_cost(router.policy_))
        is_efficient = np.insert(is_efficient, place, False)
    paid, quality = (np.column_stack([getattr(walk, name) for walk in walks]) for name in ("cost", "quality"))
    # The models alone: the best one takes the part of the full model.
    single_quality = matrix("quality", log["quality"], state.names, len(X)).astype(np.float64)[whole]
    if resources is None:
        cost = split_cost(log["cost"], state.names, state.groups, state.column_prices, len(X))[0]
        single_cost = costs_of(X, cost, log["answers"], router.model_prices, len(X))[whole]
        costs, of_best = None, []
    else:
        each = costs_in(resources.names, X, log["cost"], log["answers"], router.model_prices, len(X))[whole]
        single_cost, of_best = (
            (each * resources.rates).sum(axis=2),
            each[:, state.best_single].mean(axis=0).tolist(),
        )
        costs = np.stack([walk.costs for walk in walks], axis=1)
    best, cheapest = state.best_single, int(state.single_cost.argmin())
    is_known: Bools = ~np.asarray(np.isnan(single_quality).any(axis=0))
    full = single_quality[:, best] if is_known[best] else None
    rows = Evidence.of_rules(paid, quality, full_quality=full, costs=costs)
    shown = _Shown(
        (rows,), np.zeros(len(walks), np.intp), np.arange(float(len(walks)))[:, None], budget, is_efficient
    )
    curves = _score_curves(
        rows, shown, float(np.nanmean(single_cost[:, best])), draws, name=name, scale=scale
    )
    known_constant = float(scale(single_quality[:, cheapest].mean())) if is_known[cheapest] else None
    asked = [
        np.column_stack([(walk.asked == model).any(axis=1) for model in range(new.log.n_purchases)])
        for walk in walks
    ]
    in_pool = [model for model, name in enumerate(state.pool) if name == state.names[best]]
    to_best: list[Bools] = [np.asarray(models[:, in_pool].any(axis=1)) for models in asked]
    hull = np.flatnonzero(is_known)[convex_hull(state.single_cost[is_known], state.single_quality[is_known])]
    alone, scores = (part[:, hull].mean(axis=0) for part in (single_cost, single_quality))
    by_cost = np.flatnonzero(whole)[np.argsort(paid[:, place], kind="stable")]
    receipts = by_cost[np.linspace(0, len(by_cost) - 1, min(_N_RECEIPTS, len(by_cost))).astype(np.intp)]
    n_rows, certificate = int(whole.sum()), router.certificate_
    return Facts(
        kind="routing",
        score=replace(curves["score"], constant=known_constant),
        cost=replace(curves["cost"], constant=None),
        lead=curves["lead"],
        share=tuple(float(mask.mean()) for mask in to_best),
        n_rows=n_rows,
        constant=state.names[cheapest],
        budget=_plain(budget),
        efficient=tuple(is_efficient.tolist()),
        start=place,
        marked={"deployed": place} | ({} if certificate is None else {"certified": place}),
        n_stages=1,
        purchases=tuple(
            PurchaseLine(name, price, 0)
            for name, price in zip(state.pool, new.log.cost.mean(axis=0).tolist(), strict=True)
        ),
        bought=tuple(_plain(models.mean(axis=0)) for models in asked),
        spent=tuple(_plain((models * new.log.cost).mean(axis=0)) for models in asked),
        groupings=tuple(
            partition_of(str(group), np.asarray(labels)[whole], n_rows).grouping(to_best, quality.T, full)
            for group, labels in by.items()
        ),
        rivals=(
            Rival("mixes of single models", _plain(alone), _plain(scale(scores))),
            *(_router_rival(called, rival, X, log, whole) for called, rival in rivals.items()),
        ),
        receipts=_router_receipts(router, X, given, receipts)
        if explain is None
        else tuple((f"row {row}", str(text)) for row, text in zip(receipts, explain(receipts), strict=True)),
        certificate="" if certificate is None else f"has a certificate: {certificate}",
        held_out=is_held_out,
        n_chosen=len(state.log),
        n_points=int(is_efficient.sum()),
        method="ModelRouter",
        full_name=state.names[best],
        is_mixed=True,
        by_lot=router.share_by_lot_,
        notes=(
            *(
                ()
                if whole.all()
                else (("Left out", f"{len(X) - n_rows:,} rows in which a model was not asked"),)
            ),
            *_notes_of_rates(resources),
        ),
        **_by_resource(resources, shown, of_best),
        **_budgets(router, resources, state.evidence, name, scale),
        **draws,
    )


def _measure_cascade(
    cascade: ModelCascade,
    X: Any,
    y: ArrayLike,
    by: Mapping[str, ArrayLike],
    rivals: Mapping[str, Any],
    draws: dict[str, Any],
) -> Facts:
    """As a router on the log of what all estimators answer, beside the plain alternatives to its plan."""
    new_rows = Table.of(X).in_order_of(getattr(cascade, "feature_names_in_", None))
    table = new_rows.native

    def explain(rows: Ints) -> list[Any]:
        explained: list[Any] = cascade.explain(
            new_rows.native_rows(rows), row_key=None if new_rows.kind == "pandas" else rows
        )
        return explained

    zero, one = cascade.score_of(0.0), cascade.score_of(1.0)
    scale = _Scale(zero, one - zero)
    log: dict[str, Any] = {"cost": None, "answers": None, **cascade.log_of(table, y)}
    rows, router = log.pop("X"), cascade.router_
    keys = new_rows.keys(np.arange(len(new_rows)))
    facts = _measure_router(
        router, rows, log, by, {}, draws, name=cascade.score_name, scale=scale, keys=keys, explain=explain
    )
    new = router.read_log(rows, **log).log
    others = []
    for plain in cascade.alternatives_:
        name, cost, score = plain.name.replace("these rows", "the rows of the plan"), plain.cost, plain.score
        if plain.rule is None:  # no model of it is kept
            name = f"{name}, out of fold"
        else:
            cost, quality = router.state_.means_under(plain.rule, new)
            score = float(scale(quality))
        if (resources := router.state_.resources) is not None:
            cost = float((resources.limits(cost, 0.0) * resources.rates).sum())
        others.append(Rival(name, (cost,), (score,)))
    for name, rival in rivals.items():
        if not isinstance(rival, ModelCascade) or rival.score_name != cascade.score_name:
            raise InvalidInputError(
                f"rivals[{name!r}] must be a {type(cascade).__name__} with the same score, {cascade.score_name}; got a "
                f"{type(rival).__name__}."
            )
        evidence = rival.evidence_on(table, y)
        means = Frontier.from_evidence([evidence], every_point=True)
        others.append(Rival(name, _plain(means.cost), _plain(rival.score_of(means.score))))
    return replace(
        facts,
        method=type(cascade).__name__,
        rivals=(*facts.rivals, *others),
        title=f"What {cascade.score_name} costs",
        unit="seconds" if cascade.seconds_ else "",
    )


def _router_rival(name: str, rival: Any, X: Any, log: dict[str, Any], whole: Bools) -> Rival:
    if not isinstance(rival, ModelRouter):
        raise InvalidInputError(
            f"rivals[{name!r}] must be a ModelRouter of the same models; got a {type(rival).__name__}."
        )
    new = rival.read_log(X, **log).rows(whole)
    walks = [rival.walk(new, point) for point in range(len(rival.policy_))]
    cost, quality = (
        tuple(float(getattr(walk, part).mean()) for walk in walks) for part in ("cost", "quality")
    )
    return Rival(name, cost, quality)


def _router_receipts(
    router: ModelRouter, X: Any, log: dict[str, Any], rows: Ints
) -> tuple[tuple[str, str], ...]:
    """Some rows, and what was asked, paid and decided."""
    some = X.iloc[rows] if hasattr(X, "iloc") else [X[row] for row in rows]
    groups = router.state_.groups
    names, resources = router.state_.names, router.state_.resources
    if router.cutoff is not None:
        parts = {name: part for name, part in log.items() if part is not None}
        logged: dict[str, Any] = {name: np.asarray(part)[rows] for name, part in parts.items()}
    else:
        logged = {
            name: part[rows] for name, part in logged_parts(log, names, len(X), resources, groups).items()
        }
    if resources is not None and "cost" in logged:
        logged["cost"] = dict(zip(resources.names, np.moveaxis(logged["cost"], 2, 0), strict=True))
    is_plain = not hasattr(X, "iloc") and not router.reads_texts
    texts = router.explain(np.array(some) if is_plain else some, **logged)
    terms = [f"row {row}" for row in rows]
    if router.reads_texts:
        cut = [" ".join(text.split())[:_TEXT_LETTERS] for text in some]
        terms = [f"{term}: {text}" for term, text in zip(terms, cut, strict=True)]
    return tuple(zip(terms, map(str, texts), strict=True))


# -- routes and purchases --------------------------------------------------------------------------


def _routes(
    system: Any, X: Any, answered: Sequence[tuple[Evidence, PointAnswers]]
) -> tuple[list[Bools], list[Ints]]:
    """Purchases held at each place where rows can stop, the full model last; and the place of each row at each point.

    Purchases are of shape (n_purchases,), or (n_rows, n_purchases) where rows buy in orders of their own.
    """
    chain = learned_chain_of(system)
    reader, read_by_full = chain.reader(X), chain.price_list.read_by_full
    inner = 0 if chain.behind is None else chain.behind.route(X)
    by_stage: Sequence[Bools] = chain.bought_by_place[: chain.n_stages]  # type: ignore[assignment]  # rows of it
    if chain.has_forks:
        by_stage = [chain.bought_by_place[chain.places(walk)] for walk in chain.walks_by_stage(reader)]
    last = by_stage[-1].copy() if len(by_stage) else np.zeros(chain.price_list.n_features, dtype=bool)
    last[..., read_by_full] = True
    held = [chain.price_list.bought_by_rows(columns) for columns in (*by_stage, last)]
    places = [
        _served(system).route(X)
        if evidence.is_fixed
        else np.where(answers.place == evidence.n_stages, len(chain.stages) + inner, answers.place)
        for evidence, answers in answered
    ]
    return held, places


def _purchases(
    held: Sequence[Bools], places: Sequence[Ints], prices: PriceList, names: list[str] | None
) -> tuple[tuple[PurchaseLine, ...], tuple[Numbers, ...]]:
    """Lines of what is bought, in the order of the stages, and the share of rows that pay for each at each point.

    Of purchases that no stage makes, many share a line: those that the full model reads, and those that no model does.
    """
    read = np.array([np.atleast_2d(columns).any(axis=0) for columns in held])
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
        name = shortened([columns[column] for column in inside])
        if len(line) > 1:
            reader = "the full model only" if first[line[0]] < len(held) else "no model"
            name = f"{len(line)} others, read by {reader}"
        price = float(prices.prices[line].sum())
        purchases.append(PurchaseLine(name, price, int(first[line[0]]), len(inside)))
    # Where purchases of a line differ, its share is that of the money it costs.
    weights = [prices.prices[line] if prices.prices[line].any() else np.ones(len(line)) for line in lines]
    weighted = list(zip(lines, weights, strict=True))
    shares = tuple(
        tuple(float(np.average(bought[line], weights=weight)) for line, weight in weighted)
        for bought in (_shares(held, places_at_point) for places_at_point in places)
    )
    return tuple(purchases), shares


def _shares(held: Sequence[Bools], places: Ints) -> Floats:
    """Share of the rows that make each purchase."""
    count = np.zeros(held[0].shape[-1])
    for place, bought in enumerate(held):
        rows = np.flatnonzero(places == place)
        count += bought * len(rows) if bought.ndim == 1 else bought[rows].sum(axis=0)
    return count / len(places)


def shortened(names: Sequence[str], max_names: int = 3) -> str:
    """The first of some names, and how many there are more."""
    shown = ", ".join(names[:max_names])
    return shown if len(names) <= max_names else f"{shown} and {len(names) - max_names} more"


# -- groups of rows --------------------------------------------------------------------------------


def _ranges(y: Floats) -> Partition:
    """Rows by their target, in ranges that hold as many rows each."""
    cuts = np.unique(np.quantile(y, np.arange(1, N_RANGES) / N_RANGES, method="lower"))
    cuts = cuts[cuts < y.max()]
    ends = [f"{cut:.5g}" for cut in cuts]
    words = [f"up to {ends[0]}"] if ends else ["all"]
    words += [f"above {low} to {high}" for low, high in pairwise(ends)]
    words += [f"above {ends[-1]}"] if ends else []
    return Partition("target", tuple(words), np.searchsorted(cuts, y))


def _groupings(rows: _Answered, by: Mapping[str, ArrayLike], sent: Sequence[Bools]) -> tuple[Grouping, ...]:
    """Counts of rows sent, and sums of "is right" or of errors, by class or range and by named groups."""
    system, full = rows.system, rows.full
    if system is None:
        if by:
            raise InvalidInputError(
                f"groups tell rows apart that are answered one by one; here the order of a query is scored as a whole. "
                f"Leave {', '.join(map(repr, by))} out."
            )
        return ()
    if isinstance(system, ClassRows):
        first = partition_of("class", rows.task.classes[system.strata], system.n_rows)
    else:
        first = _ranges(system.y)
    values, theirs = (
        None if rows_of is None else rows_of.right if isinstance(rows_of, ClassRows) else rows_of.errors
        for rows_of in (system, full)
    )
    assert values is not None
    others = (partition_of(str(name), labels, system.n_rows) for name, labels in by.items())
    return tuple(
        part.grouping(sent, values, None if theirs is None else theirs[0]) for part in (first, *others)
    )


# -- mistakes --------------------------------------------------------------------------------------


def _mistakes(rows: _Answered) -> tuple[MistakeKind, ...]:
    """Kinds of mistakes, where they have prices."""
    task, system = rows.task, rows.system
    if not (
        isinstance(task, ClassTask)
        and isinstance(task.mistakes, CostMatrix)
        and isinstance(system, ClassRows)
    ):
        return ()
    answers = [task.best(point.scores) for point in rows.answers if point.scores is not None]
    theirs = rows.evidence.full_scores
    full = None if theirs is None else task.best(theirs)
    return mistake_kinds(
        [str(label) for label in system.labels], task.mistakes.costs, system.strata, answers, full
    )


def mistake_kinds(
    labels: Sequence[str], costs: Floats, truth: Ints, answers: Sequence[Ints], full: Ints | None
) -> tuple[MistakeKind, ...]:
    """Answers that cost something, by class and answer, the dearest first; the cheapest of many together."""
    if not answers:
        return ()
    n_classes, flat = len(costs), costs.reshape(-1)
    every = [*answers, *([] if full is None else [full])]
    counts = np.array([np.bincount(truth * n_classes + answer, minlength=n_classes**2) for answer in every])
    lost = counts * flat / len(truth)
    priced = np.flatnonzero(flat > 0.0)
    order = priced[np.argsort(-lost[:, priced].sum(axis=0), kind="stable")]
    n_alone = len(order) if len(order) <= MAX_LABELS else MAX_LABELS - 1
    groups = [group for group in (*order[:n_alone, None], order[n_alone:]) if len(group)]
    kinds = []
    for group in groups:
        count, cost = counts[:, group].sum(axis=1), lost[:, group].sum(axis=1)
        true, answer = divmod(int(group[0]), n_classes)
        alone = len(group) == 1
        kinds.append(
            MistakeKind(
                labels[true] if alone else f"{len(group)} other kinds",
                labels[answer] if alone else "",
                float(costs[true, answer]) if alone else None,
                tuple(count[: len(answers)].tolist()),
                _plain(cost[: len(answers)]),
                None if full is None else float(cost[-1]),
            )
        )
    return tuple(kinds)
