"""Learning of a cascade: grow stages, calibrate, blend, choose operating points, drop idle stages.

Every model is evaluated on rows that it has not seen. What does not depend on the operating point (bins, order,
ensembles, held-out scores) is computed once; operating points then take sorts and running sums.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from thrifty.arrays import Floats, Ints
from thrifty.engine.evidence.collect import judge_by_task
from thrifty.engine.evidence.evidence import Evidence
from thrifty.engine.evidence.thresholds import StoppingRules, measured, sweep_prices
from thrifty.engine.tasks.task import Task
from thrifty.engine.trees import TreeEnsemble
from thrifty.engine.walk.policy import Policy, route_by
from thrifty.learners.cascade.branches import Branches, find_branches
from thrifty.learners.cascade.evaluation import StageEvaluation, evaluate_stages, overconfidence_ratio
from thrifty.learners.cascade.gates import MIN_Z_OF_GATES, RowNodes, n_tied_stages, z_score_of_gain
from thrifty.learners.cascade.neighbours import NeighbourGraph, find_neighbours
from thrifty.learners.cascade.nodes import NodeTrees, grow_branches, grow_nodes
from thrifty.learners.cascade.plan import Race, choose_plan, nested_scores
from thrifty.learners.cascade.problem import CascadeProblem, Plan, z_score
from thrifty.learners.cascade.stages import (
    PendingCounts,
    StagedTrees,
    grow_stages,
    score_fold,
    trees_within_bytes,
)
from thrifty.rows import content_folds

__all__ = ["LearnedCascade", "learn_cascade", "most_accurate_point", "n_repeats_for"]

MIN_ROWS = 300
"""Rows from which on rows may buy in different orders."""

COMPARED = 7
"""First stages by which branches are compared with the line on one fold, before more is grown."""

NOISE = 0.5
"""z-score up to which a point counts as accurate as the most accurate one."""

ROWS_OF_REPEATS, MAX_REPEATS = 10_000, 5
"""Held-out answers wanted for a choice by prices of mistakes, and most repeats of cross-validation for them."""

REPEAT_SEED = 1_000
"""Seed of the folds of further repeats."""


@dataclass(frozen=True, eq=False)
class LearnedCascade:
    """A learned cascade: stages, calibrations, blend, gates, operating points and their evidence.

    Attributes
    ----------
    plan : Plan
        The chosen order and size.
    staged : StagedTrees or NeighbourGraph
        Trees or neighbours learned from all rows; of a line only the stages that are kept.
    calibrations : list of ndarray
        Calibration of each stage.
    blend : ndarray
        How the task blends the last stage's scores with the full model's.
    policy : Policy
        Operating points; their scores are the mean quality of held-out answers.
    evidence : Evidence
        Held-out rows they were chosen on.
    gates : tuple of tuple of TreeEnsemble, optional
        Learned gates of the nodes of each stage, over its columns and its scores; None where the uncertainty of
        the task decides.
    default_point : int
        Number of the operating point, among those of the evidence, for a fit without a budget.
    """

    plan: Plan
    staged: StagedTrees | NeighbourGraph | Branches
    calibrations: list[Floats]
    blend: Floats
    policy: Policy
    evidence: Evidence
    gates: tuple[tuple[TreeEnsemble, ...], ...] | None = None
    default_point: int = 0

    @property
    def asks_full(self) -> bool:
        """Whether any operating point asks the full model about any row."""
        evidence = self.evidence
        points = self.policy.thresholds if evidence.points is None else evidence.points
        return any((route_by(evidence.gate, one) == evidence.n_stages).any() for one in points)


def learn_cascade(problem: CascadeProblem, race: Race | None = None) -> LearnedCascade:
    """Choose order and size out of fold, then grow, calibrate and sweep; a graph where it is clearly ahead.

    ``race`` is what ``find_plans`` found, by default now.
    """
    plan = choose_plan(problem, race)
    with ThreadPoolExecutor(problem.n_threads) as pool:
        searches = problem.structure == "auto" and supports_branching(problem)
        # Where there are threads, beside the last stages and the gates of the line.
        search = partial(try_branches, problem, plan) if searches and problem.n_threads > 1 else None
        (staged, raw, n_trees, ratio), branches = _grow(problem, plan, pool, search)
        n_tied = n_tied_stages(problem, plan.sets)
        first = StagedTrees(staged.base, staged.sets[:n_tied], staged.parts[:n_tied]).scores(problem.table)
        costs, nodes = problem.costs(plan.sets), RowNodes.on_line(plan.sets)
        line = evaluate_stages(problem, raw, first, ratio, costs, nodes)
    graph = best_graph(problem, plan, n_trees, line, staged, raw, branches)
    if graph is not None:
        served = _with_operating_points(problem, plan, graph[1], graph[0])
    else:
        several = problem
        if problem.n_repeats > 1:
            several, scores = _repeat_cross_validation(problem, plan, raw, n_trees)
            first = np.tile(first, (problem.n_repeats, 1, 1))
            line = evaluate_stages(several, scores, first, ratio, several.costs(plan.sets), nodes)
        served = _with_operating_points(several, plan, line, staged)
        # Mistakes with prices and orders of documents are not corrected: a few rows or queries decide there.
        if problem.task.mistake_price is None and problem.task.query_of(problem.y) is None:
            nested = nested_scores(problem, plan, n_trees, raw)
            served = _with_optimism(served, problem, line, ratio, *nested)
        served = without_idle_stages(served, several)
        if problem.n_repeats > 1:
            evidence = served.evidence.take(np.arange(len(problem.y)))
            served = replace(served, evidence=replace(evidence, weight=problem.weight))
    served = replace(served, policy=measured(served.policy, served.evidence))
    if problem.task.mistake_price is None:
        served = replace(served, default_point=most_accurate_point(served.evidence))
    return served


def most_accurate_point(evidence: Evidence) -> int:
    """The cheapest of the points that are as accurate as the most accurate one, up to noise.

    Noise is half a standard error of the difference of both, row by row: where many points are nearly level, the
    luckiest of them is no better than its neighbours, and often dearer.
    """
    assert evidence.points is not None  # the operating points of a cascade
    seen = [evidence.at_point(one)[1:] for one in evidence.points]
    cost = np.array([np.average(paid, weights=evidence.weights) for paid, _ in seen])
    quality = [np.asarray(one, dtype=np.float64) for _, one in seen]
    score = np.array([np.average(one, weights=evidence.weights) for one in quality])
    best = int(np.lexsort((cost, -np.round(score, 12)))[0])
    behind = [z_score(quality[best] - one, evidence.weights) for one in quality]
    level = np.flatnonzero(np.array(behind) <= NOISE)
    return int(level[np.argmin(cost[level])])


def n_repeats_for(task: Task, n_rows: int) -> int:
    """Number of repeats of the cross-validation of stages.

    Where some mistakes cost more than others, a few rows of a rare class decide: on a small table other folds would
    give another calibration and another operating point.
    """
    mistakes = getattr(task, "mistakes", None)
    if task.mistake_price is None or mistakes is None or mistakes.is_of_errors():
        return 1
    return int(np.clip(ROWS_OF_REPEATS // n_rows, 1, MAX_REPEATS))


def _repeat_cross_validation(
    problem: CascadeProblem, plan: Plan, raw: Floats, n_trees: list[int]
) -> tuple[CascadeProblem, Floats]:
    """Repeat every row once for each of several assignments of folds, with its out-of-fold scores there.

    The rows of the first repeat come first. All repeats of a row are in its fold of the first repeat, so that models
    learned on some folds and evaluated on others have seen none of them.
    """
    n_rows, n_repeats, scores = len(problem.y), problem.n_repeats, [raw]
    known = (problem.task, problem.table, problem.y, problem.weight)
    with ThreadPoolExecutor(problem.n_threads) as pool:
        for deal in range(1, n_repeats):
            dealt = content_folds(
                problem.table.codes, problem.task.strata(problem.y), len(problem.folds), REPEAT_SEED + deal
            )
            folds = [np.flatnonzero(dealt == fold) for fold in range(len(problem.folds))]
            jobs = [
                pool.submit(score_fold, *known, fold, plan.sets, plan.boosting, n_trees) for fold in folds
            ]
            scores.append(np.empty_like(raw))
            for fold, job in zip(folds, jobs, strict=True):
                scores[-1][fold] = job.result()[0]
            problem.progress("judging stages again", deal, n_repeats - 1)
    rows = np.tile(np.arange(n_rows), n_repeats)
    folds = [np.concatenate([fold + deal * n_rows for deal in range(n_repeats)]) for fold in problem.folds]
    several = replace(problem.take(rows), table=problem.table.take(rows), folds=folds)
    return replace(several, weight=several.weight / n_repeats), np.concatenate(scores)


def _with_operating_points(
    problem: CascadeProblem,
    plan: Plan,
    found: StageEvaluation,
    trees: StagedTrees | NeighbourGraph | Branches,
) -> LearnedCascade:
    """Choose operating points of evaluated stages, and build the learned cascade."""
    task, evidence, loss = problem.task, found.evidence, found.loss
    # Expected instead of observed quality: among many points on few rows the luckiest would look best.
    judged = None
    if task.query_of(problem.y) is not None:
        ranked = replace(evidence, full_quality=problem.full_scores[:, 0])
        judged = judge_by_task(task, ranked, problem.y)
    policy = sweep_prices(evidence, loss, task.expected_quality(loss), judged=judged)
    evidence = evidence if judged is None else judged
    points = policy.thresholds
    least_total = None
    if task.mistake_price is not None:
        # Where tests and mistakes are paid in the same unit, one price is right: one for one.
        least_total = StoppingRules(evidence, loss).at(1.0 / task.mistake_price)
        points = np.unique(np.vstack([points, least_total]), axis=0)
    evidence = replace(evidence, points=points)
    gates = None if found.gates is None else found.gates.trees
    # By expected quality, as thresholds are: by labels, the luckiest of many points would look best.
    default = 0 if least_total is None else int(np.flatnonzero((points == least_total).all(axis=1))[0])
    return LearnedCascade(plan, trees, found.calibrations, found.blend, policy, evidence, gates, default)


def _with_optimism(
    learned: LearnedCascade,
    problem: CascadeProblem,
    line: StageEvaluation,
    ratio: Floats,
    scores: Floats,
    costs: Floats,
    rows: Ints,
) -> LearnedCascade:
    """Set the optimism of each point: its quality minus that of nested scores at the same mean cost, on their rows.

    Learned gates send nested scores on as they do the others. Points that are cheaper than all of nested scores have
    the optimism of the cheapest one that is not.
    """
    task, seen = problem.task, learned.evidence
    if not len(rows) or seen.points is None:
        return learned
    found = evaluate_stages(problem, scores, scores[:, :0], ratio, costs, None)
    gate = found.evidence.gate if line.gates is None else line.evidence.gate
    honest = replace(found.evidence, gate=gate)
    policy = sweep_prices(honest, found.loss, task.expected_quality(found.loss))
    quality = np.array([honest.at_point(point)[2][rows] for point in policy.thresholds], dtype=np.float64)
    weight, costs_of_points, optimism = problem.weight[rows], [], []
    for point in seen.points:
        _, paid, judged = seen.at_point(point)
        costs_of_points.append(float(np.average(paid, weights=seen.weights)))
        mix = policy.within(max(costs_of_points[-1], float(policy.cost[0])))
        excess = judged[rows] - (1 - mix.share) * quality[mix.lower] - mix.share * quality[mix.upper]
        mean = np.average(excess, weights=weight)
        spread = np.average(np.square(excess - mean), weights=weight) / weight.sum()
        optimism.append((mean, np.sqrt(spread)))
    cost, found_there = np.array(costs_of_points), np.array(optimism)
    cheaper = cost < (1.0 - 1e-9) * policy.cost[0]
    if cheaper.all():
        return learned
    found_there[cheaper] = found_there[np.argmin(np.where(cheaper, np.inf, cost))]
    return replace(learned, evidence=replace(seen, optimism=found_there))


def _grow(
    problem: CascadeProblem,
    plan: Plan,
    pool: ThreadPoolExecutor,
    search: "Callable[[], TriedBranches | None] | None",
) -> "tuple[tuple[StagedTrees, Floats, list[int], Floats], Future[TriedBranches | None] | None]":
    """Grow stages on all rows and in folds: ensemble, out-of-fold scores, trees of each stage, overconfidence.

    Behind their jobs in the pool comes the ``search``, which is returned before it has ended.
    """
    known = (problem.task, problem.table, problem.y, problem.weight)
    scores = np.empty((len(problem.y), len(plan.sets), problem.task.n_scores))
    # The kernels release the interpreter's lock, so threads share one table of codes.
    first, *others = problem.folds
    # The rows of one fold stop each stage early; the other models have as many trees, and follow it.
    pending = PendingCounts(len(plan.sets))
    counts: PendingCounts | list[int] = pending
    job = pool.submit(score_fold, *known, first, plan.sets, plan.boosting, None, pending)
    if problem.max_bytes is not None:
        scores[first], n_trees, mean_margin = job.result()

        def bytes_of(cut: list[int]) -> Ints:
            return grow_stages(*known, plan.sets, plan.boosting, n_trees=cut).n_bytes

        fewer = trees_within_bytes(problem.max_bytes, n_trees, bytes_of)
        if fewer != n_trees:
            job = pool.submit(score_fold, *known, first, plan.sets, plan.boosting, fewer)
        counts = fewer
    whole = pool.submit(grow_stages, *known, plan.sets, plan.boosting, n_trees=counts)
    judged = [pool.submit(score_fold, *known, fold, plan.sets, plan.boosting, counts) for fold in others]
    searched = None if search is None else pool.submit(search)
    scores[first], n_trees, mean_margin = job.result()
    problem.progress("growing stages", 1, len(others) + 2)
    for number, (fold, job) in enumerate(zip(others, judged, strict=True)):
        scores[fold], _, of_fold = job.result()
        mean_margin = mean_margin + of_fold
        problem.progress("growing stages", number + 2, len(others) + 2)
    staged = whole.result().to_serve()
    problem.progress("growing stages", len(others) + 2, len(others) + 2)
    assert staged.mean_margin is not None
    ratio = overconfidence_ratio(staged.mean_margin, mean_margin / len(problem.folds))
    return (staged, scores, n_trees, ratio), searched


def without_idle_stages(learned: LearnedCascade, problem: CascadeProblem) -> LearnedCascade:
    """Leave out the stages at which no operating point lets a row stop.

    The trees of such a stage are handed to the next one, which holds its columns anyway. Stages
    that no row reaches are dropped; the full model is kept in any case.
    """
    gate, thresholds = learned.evidence.gate, learned.policy.thresholds
    points, staged = learned.evidence.points, learned.staged
    assert isinstance(staged, StagedTrees)  # stages of a line
    assert points is not None  # the operating points, and those that a proof may want
    n_stages = gate.shape[1]
    routes = np.unique(np.concatenate([np.unique(route_by(gate, one)) for one in points]))
    asks_full = bool(routes[-1] == n_stages)
    kept = [int(stage) for stage in routes if stage < n_stages]
    thresholds, points = thresholds.copy(), points.copy()
    if not asks_full:
        # A new row must not get further than any held-out row did.
        thresholds[:, kept[-1]] = points[:, kept[-1]] = np.inf
    elif kept[-1:] != [n_stages - 1] and not np.array_equal(learned.blend, problem.task.full_alone):
        kept.append(n_stages - 1)  # no row stops there, but its score is part of the blend
    if not kept:
        kept = [0]  # a cascade has a stage, even where no operating point lets a row stop
    thresholds = thresholds[:, kept]
    sets = [staged.sets[stage] for stage in kept]
    return replace(
        learned,
        staged=_merged(staged, kept),
        calibrations=[learned.calibrations[stage] for stage in kept],
        policy=replace(learned.policy, thresholds=thresholds),
        evidence=learned.evidence.keep_stages(kept, points[:, kept], problem.costs(sets)),
        gates=None if learned.gates is None else tuple(learned.gates[stage] for stage in kept),
    )


def _merged(staged: StagedTrees, kept: Sequence[int]) -> StagedTrees:
    parts, start = [], 0
    for stage in kept:
        parts.append(TreeEnsemble.concatenate(staged.parts[start : stage + 1]))
        start = stage + 1
    return StagedTrees(staged.base, tuple(staged.sets[stage] for stage in kept), tuple(parts))


# -- an order of purchases for each row ------------------------------------------------------------


def best_graph(
    problem: CascadeProblem,
    plan: Plan,
    n_trees: Sequence[int],
    line: StageEvaluation,
    staged: StagedTrees,
    raw: Floats,
    branches: "Future[TriedBranches | None] | None" = None,
) -> tuple[NeighbourGraph | Branches, StageEvaluation] | None:
    """Neighbours if they are asked for or, with "auto", branches that are clearly better than the line; else None."""
    if problem.structure == "line" or not supports_branching(problem):
        return None
    if problem.structure == "auto":
        tried = try_branches(problem, plan) if branches is None else branches.result()
        problem.progress("looking for branches", 1, 1)
        return None if tried is None else best_branches(problem, line, raw, tried)
    found = find_neighbours(problem, plan, staged)
    if found is None:
        return None
    graph, scores, node, first = found
    n_tied = n_tied_stages(problem, graph.sets[0])
    costs, ratio, row_nodes = problem.costs_by_node(graph.sets, node), np.ones(node.shape[1]), None
    if len(problem.task.classes) > 1:
        scores, served = np.concatenate([scores, raw[:, -1:]], axis=1), first[:, None][:, :n_tied]
    else:
        sizes = [_trees_of_level(len(level[0]), plan, n_trees) for level in graph.sets]
        trees, scores, ratio = _grow_nodes(problem, graph, node, plan, sizes)
        graph, row_nodes = replace(graph, trees=trees), RowNodes(graph.sets, node)
        served = trees.scores(problem.table, node)[:, :n_tied]
    return graph, evaluate_stages(problem, scores, served, ratio, costs, row_nodes)


class TriedBranches(NamedTuple):
    """Branches, the node of each row at each level, and their trees without the rows of the first fold."""

    branches: Branches
    node: Ints
    grow: Callable[..., NodeTrees]
    grown: NodeTrees


def try_branches(problem: CascadeProblem, plan: Plan) -> TriedBranches | None:
    """Find branches, and grow their trees without the first fold; None where the rows do not part."""
    found = find_branches(problem, plan)
    if found is None:
        return None
    # Nodes are many, and their rows few: fewer trees of larger steps take half of the time.
    size = replace(
        plan.boosting,
        n_trees=(plan.boosting.n_trees + 1) // 2,
        learning_rate=2 * plan.boosting.learning_rate,
    )
    branches, node = found
    grow = partial(grow_branches, problem, branches.sets, node, size)
    return TriedBranches(branches, node, grow, grow(held_out=problem.folds[0]))


def best_branches(
    problem: CascadeProblem, line: StageEvaluation, raw: Floats, tried: TriedBranches
) -> tuple[Branches, StageEvaluation] | None:
    """Branches that are clearly better than the line, or None; ``raw`` are the line's out-of-fold scores."""
    (branches, node, grow, grown), (first, *others) = tried, problem.folds
    scores = np.empty((len(problem.y), len(branches.sets), problem.task.n_scores))
    scores[first] = grown.scores(problem.table.take(first), node[first])
    # The first fold suffices to see that branches are behind.
    loss = problem.task.loss(problem.y[first])
    gains = [
        loss.values(raw[first, place]) - loss.values(scores[first, place])
        for place in range(min(scores.shape[1], COMPARED))
    ]
    if np.average(np.mean(gains, axis=0), weights=problem.weight[first]) <= 0.0:
        return None
    n_trees, mean_margin = [[trees.n_trees for trees in level] for level in grown.trees], grown.mean_margin
    with ThreadPoolExecutor(problem.n_threads) as pool:
        whole = pool.submit(grow, n_trees=n_trees)
        jobs = [pool.submit(grow, held_out=fold, n_trees=n_trees) for fold in others]
        for number, (fold, job) in enumerate(zip(others, jobs, strict=True)):
            scores[fold] = job.result().scores(problem.table.take(fold), node[fold])
            mean_margin = mean_margin + job.result().mean_margin
            problem.progress("growing branches", number + 1, len(others) + 1)
        trees = whole.result().to_serve()
        problem.progress("growing branches", len(others) + 1, len(others) + 1)
    if problem.max_bytes is not None and trees.n_bytes.sum() > problem.max_bytes:
        return None
    ratio = overconfidence_ratio(trees.mean_margin, mean_margin / len(problem.folds))
    served = trees.scores(problem.table, node)[:, : n_tied_stages(problem, branches.sets[0])]
    costs = problem.costs_by_node(branches.sets, node)
    judged = evaluate_stages(problem, scores, served, ratio, costs, RowNodes(branches.sets, node))
    return (replace(branches, trees=trees), judged) if _is_ahead(problem, line, judged) else None


def _is_ahead(problem: CascadeProblem, line: StageEvaluation, graph: StageEvaluation) -> bool:
    return z_score_of_gain(problem, line.candidate, graph.candidate) > MIN_Z_OF_GATES


def _grow_nodes(
    problem: CascadeProblem, graph: NeighbourGraph, node: Ints, plan: Plan, sizes: list[int]
) -> tuple[NodeTrees, Floats, Floats]:
    """Grow trees for the nodes on all rows and in folds: trees, out-of-fold scores, overconfidence."""
    everyone = np.arange(len(problem.y))
    grow = partial(grow_nodes, problem, graph.sets, node, plan.boosting)
    if problem.max_bytes is not None:
        room = problem.max_bytes - graph.neighbour_bytes
        sizes = trees_within_bytes(room, sizes, lambda cut: grow(cut, everyone).n_bytes)

    def without(fold: Ints) -> tuple[Floats, Floats]:
        grown = grow(sizes, np.setdiff1d(everyone, fold, assume_unique=True))
        return grown.scores(problem.table.take(fold), node[fold]), grown.mean_margin

    n_steps = len(problem.folds) + 1
    raw = np.empty((len(everyone), len(sizes), problem.task.n_scores))
    mean_margin = np.zeros(len(sizes))
    with ThreadPoolExecutor(problem.n_threads) as pool:
        whole, folds = pool.submit(grow, sizes, everyone), pool.map(without, problem.folds)
        for number, (fold, (scores, of_fold)) in enumerate(zip(problem.folds, folds, strict=True)):
            raw[fold], mean_margin = scores, mean_margin + of_fold
            problem.progress("growing trees of nodes", number + 1, n_steps)
        trees = whole.result().to_serve()
        problem.progress("growing trees of nodes", n_steps, n_steps)
    return trees, raw, overconfidence_ratio(trees.mean_margin, mean_margin / len(problem.folds))


def supports_branching(problem: CascadeProblem) -> bool:
    """Whether rows may buy in different orders: not for rankings, nor with few rows or very few or many purchases."""
    is_alone = problem.task.query_of(problem.y) is None
    n_purchases = int((problem.price_list.prices > 0).sum())
    # All rows hold the same columns at the last stage, where branches meet.
    return is_alone and 2 < n_purchases == problem.places[-1] and len(problem.y) >= MIN_ROWS


def _trees_of_level(n_columns: int, plan: Plan, n_trees: Sequence[int]) -> int:
    """Trees of the stage of the line that holds about as many columns."""
    distance = [abs(len(columns) - n_columns) for columns in plan.sets]
    return n_trees[int(np.argmin(distance))]
