"""Evidence of a fitted system on labelled rows: quality and cost of every stage.

The full model is called for the rows at most once, and not at all where its outputs are known: a sweep of two hundred
fits with the same full model calls it once.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from thrifty.arrays import Floats, Numbers, Words
from thrifty.engine.evidence.evidence import Evidence
from thrifty.engine.evidence.measures import with_classes
from thrifty.engine.full.adapters import models_of
from thrifty.engine.full.model import AbsentFull, PrecomputedFull, ask_model
from thrifty.engine.table.table import Table
from thrifty.engine.tasks.ranking import RankingTask
from thrifty.engine.tasks.task import Task
from thrifty.engine.walk.chain import Chain
from thrifty.engine.walk.policy import check_threshold
from thrifty.engine.walk.walk import StageOutputs, Walk
from thrifty.errors import InvalidInputError
from thrifty.rows import content_keys, fingerprints


def chain_of(thing: Any) -> Chain:
    """Chain of a fitted estimator, or the chain itself; any other object raises an error."""
    chain = getattr(thing, "chain_", thing)
    if not isinstance(chain, Chain):
        fitted = "is not fitted" if hasattr(thing, "fit") else "is none"
        fitted = (
            "asks models instead" if hasattr(thing, "frontier_") else f"{fitted}, or answers without stages"
        )
        raise InvalidInputError(
            f"this needs a chain, or a fitted estimator of thrifty that has one; the {type(thing).__name__} {fitted}."
        )
    return chain


def learned_chain_of(thing: Any) -> Chain:
    """Chain as learned by the fit; after a failed certificate the chain in force sends every row to the full model."""
    learned = getattr(thing, "_learned", None)
    return learned if isinstance(learned, Chain) else chain_of(thing)


def evidence_of(
    thing: Any,
    X: Any,
    y: ArrayLike,
    *,
    settings: dict[str, Any] | None = None,
    threshold: float | None = None,
    full_probability: ArrayLike | None = None,
) -> Evidence:
    """Every operating point of a fitted system, on rows with known labels.

    Parameters
    ----------
    thing : fitted estimator, Chain or ModelRouter
        Every threshold is a point of a system with a single gate; a cascade has the points it was fitted with. An
        estimator without stages is one point, as it is.
    X : table of shape (n_samples, n_features)
        Rows that neither the system nor its full model was fitted on.
    y : array-like of shape (n_samples,)
        Their labels; for a router, ``quality`` as in its ``fit``.
    settings : dict, optional
        Parameters of this fit, which distinguish it from others.
    threshold : float, optional
        The only threshold allowed.
    full_probability : array-like of shape (n_samples,) or (n_samples, n_classes), optional
        The full model's probabilities on these rows, if they are known; otherwise it is asked about all of them, once.
    """
    settings = {} if settings is None else settings
    if hasattr(thing, "evidence_on"):  # a router
        of_router: Evidence = thing.evidence_on(X, y)
        return of_router
    if not hasattr(thing, "chain_") and not isinstance(thing, Chain) and hasattr(thing, "cost"):
        return _without_stages(thing, X, y, settings)
    chain = learned_chain_of(thing)
    if not chain.stages:
        return point_of(thing, X, y, settings=settings, full_probability=full_probability)
    reader = chain.reader(X)
    target = chain.task.encode("y", y, reader.n_samples)
    chain, full_quality = _with_known_full(chain, reader, target, full_probability)
    outputs = None if full_quality is None else chain.ask_full(reader, np.arange(reader.n_samples))
    evidence = evidence_of_known(
        chain, reader, target, outputs, full_quality=full_quality, threshold=threshold, settings=settings
    )
    evidence = replace(evidence, seen=training_fingerprints(thing))
    of_fit: Evidence | None = getattr(thing, "evidence_", None)
    # One that was fitted without a full model has a single point, at which no row is sent on.
    if of_fit is None or of_fit.points is None or of_fit.full_quality is None or threshold is not None:
        return evidence
    # An estimator that was fitted with points has all of them, whichever is in force.
    return replace(evidence, points=of_fit.points)


def evidence_of_known(
    chain: Chain,
    reader: Table,
    target: Floats,
    outputs: Floats | None,
    *,
    full_quality: Numbers | None = None,
    threshold: float | None = None,
    seen: StageOutputs | None = None,
    **fields: Any,
) -> Evidence:
    """Evidence of a chain where the outputs of the model, or chain, behind its stages are known.

    Parameters
    ----------
    outputs : ndarray of shape (n_rows, n_outputs) or None
        Outputs of the model behind the stages for every row; None where there is no model.
    full_quality : ndarray of shape (n_rows,), optional
        Quality of the full model's own answers; by default of ``outputs``.
    seen : StageOutputs, optional
        Outputs of the stages for every row, if they are not those of the chain: scores out of fold.
    """
    task, n_own = chain.task, chain.n_own_stages
    seen = chain.visit_all(reader) if seen is None else seen
    quality = [task.quality(target, task.outputs(seen.scores[:, place])) for place in range(n_own)]
    points = None if n_own == 1 and not chain.policy.is_measured else chain.policy.thresholds
    if threshold is not None:
        points = np.full((1, n_own), check_threshold(threshold))
    scores = [seen.scores[:, place] for place in range(n_own)]
    if outputs is None:
        quality.append(quality[-1])
        scores.append(scores[-1])
        points = np.full((1, n_own), np.inf) if points is None else points
    else:
        beyond = chain.blended(seen.scores[:, -1], outputs)
        quality.append(task.quality(target, beyond))
        scores.append(task.scores(beyond))
        if full_quality is None:
            full_quality = _own_quality(task, target, outputs)
    every: Numbers = np.column_stack(quality)  # type: ignore[assignment]  # numpy widens a union
    asked = outputs is not None
    evidence = Evidence(
        seen.gate,
        every,
        _costs(chain, reader, seen, asked=asked),
        costs=_by_resource(_costs(each, reader, seen, asked=asked) for each in chain.by_resource),
        rounds=chain.rounds,
        full_quality=full_quality,
        points=points,
        features=tuple(chain.columns.tolist()),
        target=target,
        scores=np.stack(scores, axis=1),
        full_scores=None if outputs is None or chain.behind else task.scores(outputs),
        rows=_keys(chain, reader, target),
        tolerance=task.tolerance,
        task=task,
        **fields,
    )
    return in_form_of_task(task, evidence, target)


def training_fingerprints(*things: Any) -> Words | None:
    """Fingerprints of the rows that systems were fitted on; None where no system knows them."""
    # A frozen estimator is the system inside it.
    bare = [getattr(thing, "estimator", thing) for thing in things]
    of_fits: list[Evidence | None] = [getattr(thing, "evidence_", None) for thing in bare]
    keys = [rows for evidence in of_fits if evidence is not None for rows in evidence.known_rows]
    return np.unique(np.concatenate(keys)) if keys else None


def _keys(chain: Chain, reader: Table, target: Floats) -> Words:
    cells = reader.block(np.arange(reader.n_samples), np.arange(chain.price_list.n_features))
    return content_keys(cells, chain.task.strata(target))


def in_form_of_task(task: Task, evidence: Evidence, target: Floats) -> Evidence:
    """The evidence in the form of its task: with classes, or by queries whose documents are ranked."""
    if isinstance(task, RankingTask):
        assert evidence.scores is not None  # evidence of a chain has scores
        return evidence.of_queries(task, target, evidence.scores[:, :, 0])
    return with_classes(evidence, task)


def point_of(
    thing: Any,
    X: Any,
    y: ArrayLike,
    *,
    settings: dict[str, Any] | None = None,
    full_probability: ArrayLike | None = None,
) -> Evidence:
    """Evidence of a fitted system at its operating point in force, as a single point.

    Parameters as in ``evidence_of``. Without ``full_probability`` the full model is asked only about the rows that
    reach it, and nothing can be compared with it afterwards.
    """
    chain = chain_of(thing)
    reader = chain.reader(X)
    target = chain.task.encode("y", y, reader.n_samples)
    full_quality = None
    if full_probability is not None:
        chain, full_quality = _with_known_full(chain, reader, target, full_probability)
    walk = chain.walk(reader)
    outputs = chain.answer(reader, walk)
    scores = chain.task.scores(outputs)
    evidence = Evidence.of_point(
        chain.spent(reader, walk),
        chain.task.quality(target, outputs),
        walk.route == chain.n_stages,
        target=target,
        scores=np.stack([scores, scores], axis=1),
        full_quality=full_quality,
        features=_all_columns(chain),
        rows=_keys(chain, reader, target),
        seen=training_fingerprints(thing),
        settings={} if settings is None else settings,
    )
    paid = [chain.costs(reader, walk)] * 2 if chain.by_resource else []
    evidence = replace(evidence, costs=np.stack(paid, axis=1) if paid else None)
    return in_form_of_task(chain.task, evidence, target)


def _all_columns(chain: Chain | None) -> tuple[int, ...]:
    """Columns that the stages of a chain and of those behind it buy, in the order of purchase."""
    bought: list[int] = []
    while chain is not None:
        bought += chain.columns.tolist()
        chain = chain.behind
    return tuple(dict.fromkeys(bought))


def _with_known_full(
    chain: Chain, reader: Table, target: Floats, full_probability: ArrayLike | None
) -> tuple[Chain, Numbers | None]:
    """Chain with precomputed answers of its full model on these rows, and the quality of those answers."""
    model, rows = chain.innermost, np.arange(reader.n_samples)
    numbers = reader.block(rows, chain.price_list.read_by_full)
    if full_probability is not None:
        outputs = models_of(chain.task).read_outputs(full_probability, reader.n_samples, "full_probability")
    elif isinstance(model, AbsentFull):
        return chain, None
    else:
        table = chain.read_by_full(reader, rows)
        outputs = ask_model(model, chain.task, table, numbers, rows=reader.numbers_of(rows))
    chain = chain.with_innermost(PrecomputedFull(outputs, fingerprints(numbers, exact=True)))
    return chain, _own_quality(chain.task, target, outputs)


def _own_quality(task: Task, target: Floats, outputs: Floats) -> Numbers:
    """Quality of the full model's answers; for a ranking, the scores of the documents."""
    return task.scores(outputs)[:, 0] if isinstance(task, RankingTask) else task.quality(target, outputs)


def _by_resource(costs: Iterable[Floats]) -> Floats | None:
    """Costs in each of several resources, along the last axis; None without any."""
    every = list(costs)
    return np.stack(every, axis=-1) if every else None


def _costs(chain: Chain, reader: Table, seen: StageOutputs, *, asked: bool) -> Floats:
    """Cost of rows at each stage and beyond; a single line where it is the same for all rows."""
    n_own, by_row = chain.n_own_stages, chain.price_list.by_row is not None
    by_row = by_row or chain.has_forks
    if not by_row and (not asked or chain.behind is None):
        return chain.cost_by_place[: n_own + 1]
    rows = np.arange(reader.n_samples)
    inner = None if chain.behind is None or not asked else chain.behind.walk(reader, rows)
    route = np.full(len(rows), n_own) if inner is None else n_own + inner.route
    beyond = chain.spent(reader, Walk(rows, route, np.empty((len(rows), 0)), inner))
    if by_row:
        stopped = [chain.spent(reader, walk) for walk in chain.walks_by_stage(reader, seen.node)[:n_own]]
        return np.column_stack([*stopped, beyond])
    return np.column_stack([np.tile(chain.cost_by_place[:n_own], (len(beyond), 1)), beyond])


def _without_stages(estimator: Any, X: Any, y: ArrayLike, settings: dict[str, Any]) -> Evidence:
    X = Table.of(X).in_order_of(getattr(estimator, "feature_names_in_", None)).native
    cost, labels = estimator.cost(X), np.asarray(y)
    if labels.shape != cost.shape or not np.isin(labels, estimator.classes_).all():
        raise InvalidInputError(
            f"y must hold one of the labels {estimator.classes_.tolist()} for each of the {len(cost)} rows; got shape "
            f"{labels.shape} with {np.unique(labels)[:5].tolist()}."
        )
    right = np.asarray(estimator.predict(X) == labels)
    features = tuple(int(column) for column in getattr(estimator, "features_", ()))
    strata = (labels[:, None] == estimator.classes_).argmax(axis=1).astype(np.uint8)
    not_sent = np.zeros(len(cost), dtype=bool)
    return Evidence.of_point(cost, right, not_sent, features=features, strata=strata, settings=settings)
