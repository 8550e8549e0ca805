"""Learning of a cascade: size and order, stages, gates, another structure where it is better, and operating points.

Every model is evaluated on rows that it has not seen. What does not depend on the operating point (bins, order,
ensembles, held-out scores) is computed once; operating points then take sorts and running sums.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from thrifty.arrays import Floats, Ints
from thrifty.engine.evidence.budgets import within_budgets
from thrifty.engine.evidence.collect import in_form_of_task
from thrifty.engine.evidence.evidence import Evidence
from thrifty.engine.evidence.thresholds import (
    StoppingRules,
    measured,
    sweep_prices,
    sweep_rates,
    sweep_rounds,
)
from thrifty.engine.prices.billing import PriceList, Resources
from thrifty.engine.tasks.task import Task
from thrifty.engine.trees import TreeEnsemble
from thrifty.engine.walk.policy import Policy, route_by
from thrifty.errors import InvalidParameterError
from thrifty.learners.cascade.evaluation import (
    CLEARLY_BETTER,
    LEVEL,
    Candidate,
    StageScores,
    compare,
    compare_over_budgets,
    evaluate_stages,
    n_tied_stages,
    overconfidence_ratio,
)
from thrifty.learners.cascade.gates import with_learned_gates
from thrifty.learners.cascade.plan import PlanComparison, choose_plan, nested_scores
from thrifty.learners.cascade.problem import AnsweredProblem, Plan
from thrifty.learners.cascade.stages import (
    PendingCounts,
    StagedTrees,
    grow_stages,
    trees_within_bytes,
)
from thrifty.learners.cascade.tree import PurchaseTree, find_tree
from thrifty.rows import content_folds
from thrifty.threads import workers

MIN_ROWS = 300
"""Rows from which on rows may buy in different orders (no command chose it)."""

ROWS_OF_REPEATS, MAX_REPEATS = 10_000, 5
"""Held-out answers wanted for a choice by prices of mistakes, and most repeats of cross-validation for them
(``benchmarks/fold_deals.py`` of 0.3)."""


@dataclass(frozen=True, eq=False)
class LearnedCascade:
    """A learned cascade: stages, calibrations, blend, gates, operating points and their evidence.

    Attributes
    ----------
    plan : Plan
        The chosen order and size.
    staged : StagedTrees or PurchaseTree
        Trees or mixture learned from all rows; of a line only the stages that are kept.
    calibrations : list of ndarray
        Calibration of each stage.
    blend : ndarray
        How the task blends the last stage's scores with the full model's.
    policy : Policy
        Operating points; their scores are the mean quality of held-out answers.
    evidence : Evidence
        Held-out rows they were chosen on.
    gates : tuple of TreeEnsemble, optional
        Learned gate of each stage, over its columns and its scores; None where the uncertainty of the task decides.
    default_point : int
        Number of the operating point, among those of the evidence, for a fit without a budget.
    """

    plan: Plan
    staged: StagedTrees | PurchaseTree
    calibrations: list[Floats]
    blend: Floats
    policy: Policy
    evidence: Evidence
    gates: tuple[TreeEnsemble, ...] | None = None
    default_point: int = 0

    @property
    def asks_full(self) -> bool:
        """True if some operating point asks the full model about some row."""
        evidence = self.evidence
        points = self.policy.thresholds if evidence.points is None else evidence.points
        return any((route_by(evidence.gate, point) == evidence.n_stages).any() for point in points)


def learn_cascade(problem: AnsweredProblem, comparison: PlanComparison | None = None) -> LearnedCascade:
    """Learn a cascade: a line of stages, or another structure where that is clearly better.

    ``comparison`` is what ``find_plans`` returned, by default now.
    """
    plan = choose_plan(problem, comparison)
    with workers(problem.n_threads) as pool:
        jobs = _start_line(problem, plan, pool)
        line = jobs.result(problem, plan.sets)
    candidate = with_learned_gates(problem, evaluate_stages(problem, line.scores))
    tree = best_tree(problem, plan, line, candidate)
    if tree is None:
        learned = _learned_line(problem, plan, line, candidate)
    else:
        learned = _with_operating_points(problem.evaluated, plan, *tree)
    learned = replace(learned, policy=measured(learned.policy, learned.evidence))
    if not has_one_unit(problem):
        learned = replace(learned, default_point=most_accurate_point(learned.evidence))
    return learned


def _learned_line(
    problem: AnsweredProblem, plan: Plan, line: "GrownLine", candidate: Candidate
) -> LearnedCascade:
    """The line with operating points, expected scores corrected for its order, and without idle stages."""
    repeated = problem.evaluated
    if problem.n_repeats > 1:
        repeated, scores = _repeat_cross_validation(problem, plan, line)
        candidate = with_learned_gates(repeated, evaluate_stages(repeated, scores))
    learned = _with_operating_points(repeated, plan, line.trees, candidate)
    # Mistakes with prices and orders of documents are not corrected: a few rows or queries decide there.
    if problem.task.mistake_price is None and problem.task.query_of(problem.y) is None:
        nested = nested_scores(problem, plan, line.n_trees, line.scores)
        learned = learned if nested is None else _with_optimism(problem, learned, candidate, nested)
    learned = without_idle_stages(learned, repeated)
    if problem.n_repeats > 1:
        evidence = learned.evidence.take(np.arange(problem.n_rows))
        learned = replace(learned, evidence=replace(evidence, weight=problem.weight))
    return learned


# -- stages ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class GrownLine:
    """Trees that serve, the number of them at each stage, and scores and costs of the rows."""

    trees: StagedTrees
    n_trees: Sequence[int]
    scores: StageScores


@dataclass(frozen=True, eq=False)
class _Jobs:
    """Jobs of a pool that grow the trees that serve, and trees of all folds but one for the rows of that fold."""

    serving: Future[StagedTrees]
    of_folds: Sequence[Future[StagedTrees]]

    def result(self, problem: AnsweredProblem, sets: Sequence[Ints]) -> GrownLine:
        """Wait for all of them, and report each."""
        what, n_steps = "growing stages", len(self.of_folds) + 1
        parts: list[StagedTrees] = []
        for number, job in enumerate(self.of_folds):
            parts.append(job.result())
            problem.progress(what, number + 1, n_steps)
        trees = self.serving.result().to_serve()
        problem.progress(what, n_steps, n_steps)
        scores = np.full((problem.n_rows, *parts[0].held_out.shape[1:]), np.nan)
        for fold, part in zip(problem.folds, parts, strict=True):
            scores[fold] = part.held_out
        margin = sum((part.mean_margin for part in parts[1:]), start=parts[0].mean_margin) / len(parts)
        ratio = overconfidence_ratio(trees.mean_margin, margin)
        n_tied = n_tied_stages(problem, sets)
        tied = StagedTrees(trees.base, trees.sets[:n_tied], trees.parts[:n_tied]).scores(problem.table)
        stage_scores = StageScores(
            scores,
            tied,
            ratio=ratio,
            costs=problem.costs(sets),
            sets=sets,
            by_resource=problem.by_resource(lambda of_one: of_one.costs(sets)),
            rounds=problem.rounds(sets),
        )
        return GrownLine(trees, parts[0].n_trees, stage_scores)


def _start_line(problem: AnsweredProblem, plan: Plan, pool: ThreadPoolExecutor) -> _Jobs:
    """Start to grow the stages of a line."""

    # The kernels release the interpreter's lock, so threads share one table of codes.
    def start(
        fold: Ints | None, n_trees: Sequence[int] | PendingCounts | None, counted: PendingCounts | None = None
    ) -> Future[StagedTrees]:
        settings = problem, plan.sets, plan.boosting
        return pool.submit(grow_stages, *settings, n_trees=n_trees, held_out=fold, counted=counted)

    def bytes_of(n_trees: Sequence[int]) -> Ints:
        return grow_stages(problem, plan.sets, plan.boosting, n_trees=n_trees).n_bytes

    first, *others = problem.folds
    # The rows of one fold stop each stage early; the other models have as many trees, and follow it.
    pending = PendingCounts(len(plan.sets))
    counts: Sequence[int] | PendingCounts = pending
    of_first = start(first, None, pending)
    of_first.add_done_callback(pending.close)
    if problem.max_bytes is not None:
        n_trees = of_first.result().n_trees
        counts = trees_within_bytes(problem.max_bytes, n_trees, bytes_of)
        of_first = of_first if counts == n_trees else start(first, counts)
    serving = of_first if problem.serves_without_held_out else start(None, counts)
    return _Jobs(serving, [of_first, *(start(fold, counts) for fold in others)])


def _repeat_cross_validation(
    problem: AnsweredProblem, plan: Plan, line: GrownLine
) -> tuple[AnsweredProblem, StageScores]:
    """Repeat every row once for each of several assignments of folds, with its out-of-fold scores there.

    The rows of the first repeat come first. All repeats of a row are in its fold of the first repeat, so that models
    learned on some folds and evaluated on others have seen none of them.
    """
    n_rows, n_repeats = problem.n_rows, problem.n_repeats
    scores, strata = [line.scores.out_of_fold], problem.task.strata(problem.y)
    with workers(problem.n_threads) as pool:
        for repeat in range(1, n_repeats):
            fold_of = content_folds(problem.table.codes, strata, len(problem.folds), 1_000 + repeat)
            folds = [np.flatnonzero(fold_of == fold) for fold in range(len(problem.folds))]
            jobs = [
                pool.submit(
                    grow_stages, problem, plan.sets, plan.boosting, n_trees=line.n_trees, held_out=fold
                )
                for fold in folds
            ]
            scores.append(np.empty_like(scores[0]))
            for fold, job in zip(folds, jobs, strict=True):
                scores[-1][fold] = job.result().held_out
            problem.progress("repeating the cross-validation", repeat, n_repeats - 1)
    rows = np.tile(np.arange(n_rows), n_repeats)
    folds = [
        np.concatenate([fold + repeat * n_rows for repeat in range(n_repeats)]) for fold in problem.folds
    ]
    repeated = problem.of_rows(rows, folds)
    repeated = replace(repeated, weight=repeated.weight / n_repeats)
    of_rows = replace(
        line.scores,
        out_of_fold=np.concatenate(scores),
        tied=np.tile(line.scores.tied, (n_repeats, 1, 1)),
        costs=repeated.costs(plan.sets),
        by_resource=repeated.by_resource(lambda of_one: of_one.costs(plan.sets)),
    )
    return repeated, of_rows


def n_repeats_for(task: Task, n_rows: int) -> int:
    """Number of repeats of the cross-validation of stages.

    Where some mistakes cost more than others, a few rows of a rare class decide: on a small table other folds would
    give another calibration and another operating point.
    """
    mistakes = getattr(task, "mistakes", None)
    if task.mistake_price is None or mistakes is None or mistakes.is_of_errors():
        return 1
    return int(np.clip(ROWS_OF_REPEATS // n_rows, 1, MAX_REPEATS))


# -- operating points ------------------------------------------------------------------------------


def _with_operating_points(
    problem: AnsweredProblem,
    plan: Plan,
    structure: StagedTrees | PurchaseTree,
    candidate: Candidate,
) -> LearnedCascade:
    """Choose operating points of a candidate, and build the learned cascade."""
    task, evidence, loss = problem.task, candidate.evidence, candidate.loss
    # Expected instead of observed quality: among many points on few rows the luckiest would look best.
    of_queries = None
    if task.query_of(problem.y) is not None:
        ranked = replace(evidence, full_quality=problem.full_scores[:, 0])
        of_queries = in_form_of_task(task, ranked, problem.y)
    sweep = sweep_prices if evidence.costs is None else sweep_rates
    if evidence.rounds is not None:
        sweep = sweep_rounds
    policy = sweep(evidence, loss, task.expected_quality(loss), of_queries=of_queries)
    points, default_point = policy.thresholds, 0
    if has_one_unit(problem):
        assert task.mistake_price is not None
        # Where tests and mistakes are paid in the same unit, one price is right: one for one. The point is taken by
        # expected quality, as thresholds are: by labels, the luckiest of many points would look best.
        least_total = StoppingRules(evidence, loss).at(1.0 / task.mistake_price)
        points = np.unique(np.vstack([points, least_total]), axis=0)
        default_point = int(np.flatnonzero((points == least_total).all(axis=1))[0])
    return LearnedCascade(
        plan,
        structure,
        candidate.calibrations,
        candidate.blend,
        policy=policy,
        evidence=replace(evidence if of_queries is None else of_queries, points=points),
        gates=None if candidate.grow_gates is None else candidate.grow_gates(),
        default_point=default_point,
    )


def best_at_rates(
    learned: LearnedCascade, prices: PriceList, others: Sequence[AnsweredProblem], budget: Mapping[str, float]
) -> tuple[LearnedCascade, PriceList]:
    """The cascade that scores highest within the budgets of several resources, and its price list.

    Others, learned at other exchange rates, buy in other orders; one of them is taken where it is ahead by more than
    noise, row by row.
    """
    resources = prices.resources
    assert resources is not None  # there are several
    best = learned, prices, 0.0
    first = _quality_within(learned, resources, budget)
    for problem in others:
        other = learn_cascade(problem)
        quality = _quality_within(other, resources, budget)
        if quality is None:
            continue
        weight = other.evidence.weights
        lead = np.inf if first is None else compare(quality, first, weight)
        if best[2] < lead and lead > LEVEL:
            best = other, problem.price_list, lead
    return best[:2]


def _quality_within(
    learned: LearnedCascade, resources: Resources, budget: Mapping[str, float]
) -> Floats | None:
    """Quality of each held-out row at the mix that keeps to the budgets; None where none does."""
    try:
        policy = within_budgets(learned.policy, resources, budget)
    except InvalidParameterError:
        return None
    of_points = (
        share * np.asarray(learned.evidence.at_point(policy.thresholds[point])[2], dtype=np.float64)
        for share, point in policy.in_force
    )
    return np.sum(list(of_points), axis=0)


def has_one_unit(problem: AnsweredProblem) -> bool:
    """True if mistakes have prices in the unit of the purchases."""
    return problem.task.mistake_price is not None and problem.price_list.resources is None


def most_accurate_point(evidence: Evidence) -> int:
    """The cheapest of the points that are as accurate as the most accurate one, up to noise.

    Noise is half a standard error of the difference of both, row by row: where many points are nearly level, the
    luckiest of them is no better than its neighbours, and often dearer.
    """
    assert evidence.points is not None  # the operating points of a cascade
    weight, answers = evidence.weights, [evidence.at_point(point)[1:] for point in evidence.points]
    cost = np.array([np.average(paid, weights=weight) for paid, _ in answers])
    quality = [np.asarray(of_rows, dtype=np.float64) for _, of_rows in answers]
    score = np.array([np.average(of_rows, weights=weight) for of_rows in quality])
    best = int(np.lexsort((cost, -np.round(score, 12)))[0])
    behind = np.array([compare(quality[best], of_rows, weight) for of_rows in quality])
    level = np.flatnonzero(behind < LEVEL)
    return int(level[np.argmin(cost[level])])


def _with_optimism(
    problem: AnsweredProblem, learned: LearnedCascade, candidate: Candidate, nested: StageScores
) -> LearnedCascade:
    """Set the optimism of each point: its quality minus that of nested scores at the same mean cost.

    Learned gates send nested scores on as they do the others. Points that are cheaper than all of nested scores have
    the optimism of the cheapest one that is not.
    """
    evidence, without_order = learned.evidence, evaluate_stages(problem, nested)
    problem = problem.evaluated
    assert evidence.points is not None
    gate = without_order.evidence.gate if candidate.grow_gates is None else candidate.evidence.gate
    of_nested = replace(without_order.evidence, gate=gate)
    policy = sweep_prices(of_nested, without_order.loss, problem.task.expected_quality(without_order.loss))
    rows = np.concatenate(problem.folds)
    quality = np.array([of_nested.at_point(point)[2][rows] for point in policy.thresholds], dtype=np.float64)
    weight, costs, optimism = problem.weight[rows], [], []
    for point in evidence.points:
        _, paid, quality_at_point = evidence.at_point(point)
        costs.append(float(np.average(paid, weights=evidence.weights)))
        mix = policy.within(max(costs[-1], float(policy.cost[0])))
        excess = (
            quality_at_point[rows] - (1 - mix.share) * quality[mix.lower] - mix.share * quality[mix.upper]
        )
        mean = np.average(excess, weights=weight)
        spread = np.average(np.square(excess - mean), weights=weight) / weight.sum()
        optimism.append((mean, np.sqrt(spread)))
    cost, of_points = np.array(costs), np.array(optimism)
    cheaper = cost < (1.0 - 1e-9) * policy.cost[0]
    if cheaper.all():
        return learned
    of_points[cheaper] = of_points[np.argmin(np.where(cheaper, np.inf, cost))]
    return replace(learned, evidence=replace(evidence, optimism=of_points))


def without_idle_stages(learned: LearnedCascade, problem: AnsweredProblem) -> LearnedCascade:
    """Leave out the stages at which no operating point lets a row stop.

    The trees of such a stage are handed to the next one, which holds its columns anyway. Stages
    that no row reaches are dropped; the full model is kept in any case.
    """
    gate, thresholds = learned.evidence.gate, learned.policy.thresholds
    points, staged = learned.evidence.points, learned.staged
    assert isinstance(staged, StagedTrees)  # stages of a line
    assert points is not None  # the operating points, and those that a proof may want
    n_stages = gate.shape[1]
    routes = np.unique(np.concatenate([np.unique(route_by(gate, point)) for point in points]))
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
    parts = [
        TreeEnsemble.concatenate(staged.parts[before + 1 : stage + 1])
        for before, stage in pairwise([-1, *kept])
    ]
    return replace(
        learned,
        staged=StagedTrees(staged.base, tuple(sets), tuple(parts)),
        calibrations=[learned.calibrations[stage] for stage in kept],
        policy=replace(learned.policy, thresholds=thresholds),
        evidence=learned.evidence.keep_stages(
            kept,
            points[:, kept],
            problem.costs(sets),
            problem.by_resource(lambda of_one: of_one.costs(sets)),
            problem.rounds(sets),
        ),
        gates=None if learned.gates is None else tuple(learned.gates[stage] for stage in kept),
    )


# -- an order of purchases for each row ------------------------------------------------------------


def best_tree(
    problem: AnsweredProblem, plan: Plan, line: GrownLine, candidate: Candidate
) -> tuple[PurchaseTree, Candidate] | None:
    """A tree of purchases, and its evaluation, if one is asked for or, with "auto", clearly better; else None."""
    if problem.structure == "line" or not supports_tree(problem):
        return None
    is_wanted = problem.structure == "tree"
    grown = find_tree(problem, plan, line.trees, line.scores.out_of_fold, is_wanted=is_wanted)
    problem.progress("growing a tree of purchases", 1, 1)
    if grown is None:
        return None
    tree, node = grown.tree, grown.node
    scores = StageScores(
        grown.scores,
        grown.served[:, None][:, : n_tied_stages(problem, tree.sets[0])],
        ratio=np.ones(node.shape[1]),
        costs=problem.costs_at(tree.sets, node),
        by_resource=problem.by_resource(lambda of_one: of_one.costs_at(tree.sets, node)),
    )
    evaluated = evaluate_stages(problem, scores)
    if not is_wanted and compare_over_budgets(problem, evaluated, candidate) <= CLEARLY_BETTER:
        return None
    return tree, evaluated


def supports_tree(problem: AnsweredProblem) -> bool:
    """True if rows may buy in different orders: not for rankings, nor with few rows or very few or many purchases."""
    is_alone = problem.task.query_of(problem.y) is None
    n_purchases = int((problem.price_list.prices > 0).sum())
    # All rows hold the same columns at the last stage, where their ways meet.
    return is_alone and 2 < n_purchases == problem.places[-1] and problem.n_rows >= MIN_ROWS
