"""Results of a ``ModelRouter`` on a log of new rows: quality, bill and models asked at every operating point."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from thrifty.arrays import Bools, Floats
from thrifty.engine.evidence.bootstrap import draws_of, tails
from thrifty.engine.evidence.thresholds import convex_hull
from thrifty.engine.walk.next_model import Replay
from thrifty.errors import InvalidInputError
from thrifty.learners.routing.logs import costs_of, matrix
from thrifty.learners.routing.router import ModelRouter
from thrifty.reporting.facts import LEVEL, Curve, Facts, Grouping, Purchase, Rival, partition_of

_N_RECEIPTS = 12
_TEXT_LETTERS = 80


def measure_router(
    router: ModelRouter,
    X: Any,
    quality: Any,
    *,
    cost: Any = None,
    answers: Any = None,
    evidence: Any = None,
    by: Mapping[str, ArrayLike] | None = None,
    rivals: Mapping[str, ModelRouter] | None = None,
    n_boot: int = 1000,
) -> Facts:
    """Replay a router at every operating point on a log of new rows, for a report.

    Parameters
    ----------
    router : fitted ModelRouter
        Its operating points are those of ``frontier_``, and the mix in force is the deployed one.
    X, quality, cost, answers, evidence
        The log, as in ``fit``. Rows in which a model of the pool was not asked are left out.
    by, rivals, n_boot
        As in ``measure``; rivals are other routers of the same models.
    """
    given = X, quality, cost, answers, evidence
    new, state = router.read_log(*given), router.state_
    whole: Bools = ~np.asarray(np.isnan(new.log.quality).any(axis=1))
    if not whole.any():
        raise InvalidInputError(
            f"quality must be known of {', '.join(state.pool)} in at least one row; in each of the {len(whole)} rows "
            f"one of them was not asked. A report replays the policy on a log of all models."
        )
    new = new.rows(whole)
    n_points, policy, log = len(state.policy), router.policy_, new.log
    walks = [router.walk(new, point) for point in range(n_points)]
    budget = policy.cost.tolist()
    efficient, place = [True] * n_points, policy.lower
    if policy.share > 0.0:
        place += 1
        walks.insert(place, router.walk(new))
        budget.insert(place, router.expected_cost_)
        efficient.insert(place, False)
    singles = [
        matrix("quality", quality, state.names, len(X)).astype(np.float64)[whole],
        costs_of(X, cost, answers, router.model_prices, len(X))[whole],
    ]
    best, cheapest = state.best_single, int(state.single_cost.argmin())
    is_known: Bools = ~np.asarray(np.isnan(singles[0]).any(axis=0))
    full = singles[0][:, best] if is_known[best] else None
    asked = [
        np.column_stack([(one.asked == model).any(axis=1) for model in range(log.n_models)]) for one in walks
    ]
    names = [] if state.names[best] not in state.pool else [state.pool.index(state.names[best])]
    to_best: list[Bools] = [np.asarray(some[:, names].any(axis=1)) for some in asked]
    curves = _curves(walks, full, n_boot)
    means = [None if not is_known[best] else float(np.nanmean(part[:, best])) for part in singles]
    mixes = convex_hull(state.single_cost[is_known], state.single_quality[is_known])
    hull = np.flatnonzero(is_known)[mixes]
    by_cost = np.flatnonzero(whole)[np.argsort(walks[place].cost, kind="stable")]
    picked = by_cost[np.linspace(0, len(by_cost) - 1, min(_N_RECEIPTS, len(by_cost))).astype(np.intp)]
    left_out = int((~whole).sum())
    certificate = router.certificate_
    return Facts(
        kind="routing",
        score=Curve(
            "quality",
            *curves["quality"],
            full=means[0],
            constant=float(singles[0][:, cheapest].mean()) if is_known[cheapest] else None,
        ),
        cost=Curve("mean cost", *curves["cost"], full=means[1]),
        lead=None if full is None else Curve("lead", *curves["lead"]),
        share=tuple(float(one.mean()) for one in to_best),
        n_rows=len(log),
        constant=state.names[cheapest],
        budget=tuple(budget),
        efficient=tuple(efficient),
        start=place,
        marked={"deployed": place} | ({} if certificate is None else {"certified": place}),
        n_stages=1,
        purchases=tuple(
            Purchase(name, float(price), 0)
            for name, price in zip(state.pool, log.cost.mean(axis=0), strict=True)
        ),
        bought=tuple(tuple(some.mean(axis=0).tolist()) for some in asked),
        spent=tuple(tuple((some * log.cost).mean(axis=0).tolist()) for some in asked),
        groupings=_groupings(walks, to_best, full, by or {}, whole),
        rivals=(
            Rival(
                "mixes of single models",
                *(tuple(part[:, hull].mean(axis=0).tolist()) for part in singles[::-1]),
            ),
            *(_rival(name, one, given, whole) for name, one in (rivals or {}).items()),
        ),
        receipts=_receipts(router, given, picked),
        certificate="" if certificate is None else f"has a certificate: {certificate}",
        held_out=not np.isin(new.keys, state.keys).any(),
        n_chosen=len(state.log),
        n_points=n_points,
        level=LEVEL,
        n_boot=n_boot,
        method="ModelRouter",
        full_name=state.names[best],
        notes=(("Left out", f"{left_out:,} rows in which a model was not asked"),) if left_out else (),
    )


def _curves(walks: Sequence[Replay], full: Floats | None, n_boot: int) -> dict[str, tuple[Any, Any, Any]]:
    """Means over rows of each point, with the ends of their bootstrap intervals."""
    values = {name: np.column_stack([getattr(one, name) for one in walks]) for name in ("quality", "cost")}
    if full is not None:
        values["lead"] = values["quality"] - full[:, None]
    drawn = {name: np.empty((one.shape[1], n_boot)) for name, one in values.items()}
    n_rows = len(values["cost"])
    for draws, counts in draws_of(n_rows, n_boot, 0):
        for name, one in values.items():
            drawn[name][:, draws] = one.T @ counts / n_rows
    return {
        name: tuple(  # type: ignore[misc]  # three parts
            tuple(part.tolist()) for part in (one.mean(axis=0), *tails(drawn[name], LEVEL))
        )
        for name, one in values.items()
    }


def _groupings(
    walks: Sequence[Replay],
    to_best: Sequence[Bools],
    full: Floats | None,
    by: Mapping[str, ArrayLike],
    whole: Bools,
) -> tuple[Grouping, ...]:
    parts = [
        partition_of(str(name), np.asarray(labels)[whole], int(whole.sum())) for name, labels in by.items()
    ]
    return tuple(
        Grouping(
            name=one.name,
            labels=one.labels,
            n_rows=one.sums(),
            sent=tuple(tuple(int(count) for count in one.sums(mask)) for mask in to_best),
            sums=tuple(one.sums(each.quality) for each in walks),
            full_sums=None if full is None else one.sums(full),
        )
        for one in parts
    )


def _rival(name: str, rival: ModelRouter, given: tuple[Any, ...], whole: Bools) -> Rival:
    if not isinstance(rival, ModelRouter):
        raise InvalidInputError(
            f"rivals[{name!r}] must be a ModelRouter of the same models; got a {type(rival).__name__}."
        )
    new = rival.read_log(*given).rows(whole)
    walks = [rival.walk(new, point) for point in range(len(rival.policy_))]
    return Rival(
        name, *(tuple(float(getattr(one, part).mean()) for one in walks) for part in ("cost", "quality"))
    )


def _receipts(router: ModelRouter, given: tuple[Any, ...], rows: Any) -> tuple[tuple[str, str], ...]:
    """Some rows, and what was asked, paid and decided."""
    X = given[0]
    some = X.iloc[rows] if hasattr(X, "iloc") else [X[row] for row in rows]
    log = [
        None if part is None else matrix("", part, router.state_.names, len(X))[rows] for part in given[1:]
    ]
    texts = router.explain(some if hasattr(X, "iloc") or router.reads_texts else np.array(some), *log)
    names = [f"row {row}" for row in rows]
    if router.reads_texts:
        cut = [" ".join(text.split())[:_TEXT_LETTERS] for text in some]
        names = [f"{name}: {text}" for name, text in zip(names, cut, strict=True)]
    return tuple(zip(names, map(str, texts), strict=True))
