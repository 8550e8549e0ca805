"""Learning a cascade: grow, calibrate, blend, sweep, and drop what earns nothing.

Everything is judged on rows that the judged model has not seen. What does not depend on the operating point (bins,
order, ensembles, held-out scores) is computed once; the operating points then are sorts and running sums.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from thrifty.arrays import Floats, Ints
from thrifty.chain.policy import Policy
from thrifty.evidence.averages import route_by
from thrifty.evidence.evidence import Evidence
from thrifty.evidence.observe import judged_by
from thrifty.evidence.stopping import StoppingRules, measured, sweep_prices
from thrifty.learning.cascade.gates import Standing, n_coarse_stages
from thrifty.learning.cascade.graphs import Graph, best_graph
from thrifty.learning.cascade.judged import Judged, judge, stretch_of
from thrifty.learning.cascade.plan import choose_plan
from thrifty.learning.cascade.problem import CascadeProblem, Plan
from thrifty.learning.cascade.staged import StagedTrees, few_enough, grow_stages, score_fold
from thrifty.trees import TreeEnsemble

__all__ = ["LearnedCascade", "learn_cascade"]


@dataclass(frozen=True, eq=False)
class LearnedCascade:
    """The outcome.

    Attributes
    ----------
    plan : Plan
        What was chosen.
    staged : StagedTrees, GraphTrees or NeighbourGraph
        What answers, learned from all rows; of a line only the stages that are kept.
    calibrations : list of ndarray
        Calibration of each stage.
    blend : ndarray
        How the task blends the last stage's scores with the full model's.
    policy : Policy
        Operating points; their scores are the mean quality of held-out answers.
    evidence : Evidence
        Held-out rows they were chosen on.
    gates : tuple of tuple of TreeEnsemble, optional
        Learned gates of the nodes of each stage, over its columns and its scores; None where the doubt of the task
        decides.
    """

    plan: Plan
    staged: StagedTrees | Graph
    calibrations: list[Floats]
    blend: Floats
    policy: Policy
    evidence: Evidence
    gates: tuple[tuple[TreeEnsemble, ...], ...] | None = None

    @property
    def asks_full(self) -> bool:
        """Whether any operating point asks the full model about any row."""
        evidence = self.evidence
        points = self.policy.thresholds if evidence.points is None else evidence.points
        return any((route_by(evidence.gate, one) == evidence.n_stages).any() for one in points)


def learn_cascade(problem: CascadeProblem) -> LearnedCascade:
    """Choose order and size out of fold, then grow, calibrate and sweep; a graph where it is clearly ahead."""
    plan = choose_plan(problem)
    staged, raw, n_trees, stretch = _grow(problem, plan)
    n_coarse = n_coarse_stages(problem, plan.sets)
    first = StagedTrees(staged.base, staged.sets[:n_coarse], staged.parts[:n_coarse]).scores(problem.table)
    line = judge(problem, raw, first, stretch, problem.costs(plan.sets), Standing.on_line(plan.sets))
    graph = best_graph(problem, plan, n_trees, line, staged, raw)
    if graph is not None:
        served = _finished(problem, plan, graph[1], graph[0])
    else:
        served = without_idle_stages(_finished(problem, plan, line, staged), problem)
    return replace(served, policy=measured(served.policy, served.evidence))


def _finished(
    problem: CascadeProblem, plan: Plan, found: Judged, trees: StagedTrees | Graph
) -> LearnedCascade:
    """Operating points of what was judged, and the outcome."""
    task, evidence, loss = problem.task, found.evidence, found.loss
    # Beliefs in place of labels again: among many points on few rows the luckiest would look best.
    judged = None
    if task.query_of(problem.y) is not None:
        ranked = replace(evidence, full_quality=problem.full_scores[:, 0])
        judged = judged_by(task, ranked, problem.y)
    policy = sweep_prices(evidence, loss, task.expected_quality(loss), judged=judged)
    by_row, evidence = evidence, evidence if judged is None else judged
    points = policy.thresholds
    if task.mistake_price is not None:
        # Where tests and mistakes are paid in the same unit, one price is right: one for one.
        least_total = StoppingRules(evidence, loss).at(1.0 / task.mistake_price)
        points = np.unique(np.vstack([points, least_total]), axis=0)
    if problem.against_full:
        loyal = _loyal_points(problem, by_row, found.scores, found.answer, found.belief)
        points = np.unique(np.vstack([points, loyal]), axis=0)
    evidence = replace(evidence, points=points)
    gates = None if found.gates is None else found.gates.trees
    return LearnedCascade(plan, trees, found.calibrations, found.blend, policy, evidence, gates)


def _loyal_points(
    problem: CascadeProblem, evidence: Evidence, scores: Floats, answer: Floats, belief: Floats
) -> Floats:
    """Thresholds that trade cost against answers worse than the full model's: they ask it, however good it is."""
    every = [*(scores[:, stage] for stage in range(scores.shape[1])), answer]
    task = problem.task
    regret = np.column_stack([task.expected_regret(one, problem.full_scores, belief) for one in every])
    return sweep_prices(evidence, regret, task.expected_quality(regret)).thresholds


def _grow(problem: CascadeProblem, plan: Plan) -> tuple[StagedTrees, Floats, list[int], Floats]:
    """The ensemble on all rows, every row's scores by a copy that has not seen it, its trees by stage, the stretch.

    The last is how much surer than its copies the ensemble is at each stage.
    """
    known = (problem.task, problem.table, problem.y, problem.weight)
    scores = np.empty((len(problem.y), len(plan.sets), problem.task.n_scores))
    # The kernels release the interpreter's lock, so threads share one table of codes.
    with ThreadPoolExecutor(problem.n_threads) as pool:
        first, *others = problem.folds
        # The rows of one fold tell how many trees a stage needs; the other copies have as many.
        job = pool.submit(score_fold, *known, first, plan.sets, plan.boosting)
        scores[first], n_trees, sure = job.result()
        problem.progress("growing stages", 1, len(others) + 2)
        if problem.max_bytes is not None:

            def bytes_of(cut: list[int]) -> Ints:
                return grow_stages(*known, plan.sets, plan.boosting, n_trees=cut).n_bytes

            fewer = few_enough(problem.max_bytes, n_trees, bytes_of)
            if fewer != n_trees:
                n_trees = fewer
                scores[first], _, sure = score_fold(*known, first, plan.sets, plan.boosting, n_trees)
        whole = pool.submit(grow_stages, *known, plan.sets, plan.boosting, n_trees=n_trees)
        judged = [pool.submit(score_fold, *known, fold, plan.sets, plan.boosting, n_trees) for fold in others]
        for number, (fold, job) in enumerate(zip(others, judged, strict=True)):
            scores[fold], _, of_fold = job.result()
            sure = sure + of_fold
            problem.progress("growing stages", number + 2, len(others) + 2)
        staged = whole.result().to_serve()
        problem.progress("growing stages", len(others) + 2, len(others) + 2)
        assert staged.sure is not None
        return staged, scores, n_trees, stretch_of(staged.sure, sure / len(problem.folds))


def without_idle_stages(learned: LearnedCascade, problem: CascadeProblem) -> LearnedCascade:
    """Leave out the stages at which no operating point lets a row stop.

    The trees of such a stage are handed to the next one, which holds its columns anyway. Behind the last stage that
    anybody reaches there is nothing to keep; the full model itself stays, in case it is wanted later.
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
        kept.append(n_stages - 1)  # nobody stops there, and its score is part of the blend
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
