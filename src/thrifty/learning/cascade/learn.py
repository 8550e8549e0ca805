"""Learning a cascade: grow, calibrate, blend, sweep, and drop what earns nothing.

Everything is judged on rows that the judged model has not seen. What does not depend on the operating point (bins,
order, ensembles, held-out scores) is computed once; the operating points then are sorts and running sums.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from thrifty.arrays import Floats, Numbers
from thrifty.chain.policy import Policy
from thrifty.evidence.averages import route_by
from thrifty.evidence.evidence import Evidence
from thrifty.evidence.observe import judged_by
from thrifty.evidence.stopping import StoppingRules, measured, sweep_prices
from thrifty.exceptions import InvalidInputError
from thrifty.learning.cascade.gates import choose_gates, n_coarse_stages, settled_scores
from thrifty.learning.cascade.plan import choose_plan
from thrifty.learning.cascade.problem import (
    CascadeProblem,
    Plan,
    calibrate,
    judge_stages,
    mean_in_errors,
)
from thrifty.learning.cascade.staged import StagedTrees, grow_stages, score_fold
from thrifty.trees import TreeEnsemble

__all__ = ["CLEARLY", "LearnedCascade", "is_worth_asking", "lead", "learn_cascade"]

MOST_STRETCHED = 0.25
"""Logarithm of the largest factor by which the scores of copies are thought to fall short."""

CLEARLY = 3.0
"""Standard errors by which one model must lead another before anybody is told."""


@dataclass(frozen=True, eq=False)
class LearnedCascade:
    """The outcome.

    Attributes
    ----------
    plan : Plan
        What was chosen.
    staged : StagedTrees
        The ensemble, grown on all rows; only the stages that are kept.
    calibrations : list of ndarray
        Calibration of each stage.
    blend : ndarray
        How the task blends the last stage's scores with the full model's.
    policy : Policy
        Operating points; their scores are the mean quality of held-out answers.
    evidence : Evidence
        Held-out rows they were chosen on.
    gates : tuple of TreeEnsemble, optional
        Learned gates, over the columns of each stage and its scores; None where the doubt of the task decides.
    """

    plan: Plan
    staged: StagedTrees
    calibrations: list[Floats]
    blend: Floats
    policy: Policy
    evidence: Evidence
    gates: tuple[TreeEnsemble, ...] | None = None

    @property
    def asks_full(self) -> bool:
        """Whether any operating point asks the full model about any row."""
        evidence = self.evidence
        points = self.policy.thresholds if evidence.points is None else evidence.points
        return any((route_by(evidence.gate, one) == evidence.n_stages).any() for one in points)


def learn_cascade(problem: CascadeProblem) -> LearnedCascade:
    """Choose order and size out of fold, then grow, calibrate and sweep."""
    task, plan = problem.task, choose_plan(problem)
    staged, raw, stretch = _grow(problem, plan)
    calibrations, scores = calibrate(task, raw, problem.y, problem.weight)
    blend, answer, belief = choose_blend(problem, scores[:, -1])
    evidence, loss = judge_stages(problem, plan.sets, scores, answer, belief)
    full_quality = task.quality_of_scores(problem.y, problem.full_scores)
    evidence = replace(evidence, full_quality=full_quality, full_scores=problem.full_scores)
    if not is_worth_asking(evidence.quality, full_quality, problem.weight):
        loss[:, -1] = 1.0 + loss.max()
    problem.progress("learning gates", 0, 1)
    n_coarse = n_coarse_stages(problem, plan.sets)
    settled = settled_scores(problem, staged, calibrations, scores, n_coarse, stretch)
    doubts = np.column_stack([task.doubt(settled[:, stage]) for stage in range(len(plan.sets))])
    evidence = replace(evidence, gate=doubts)
    gates = choose_gates(problem, plan.sets, evidence, loss, settled, n_coarse)
    problem.progress("learning gates", 1, 1)
    if gates is not None:
        evidence = replace(evidence, gate=gates.held_out)
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
        loyal = _loyal_points(problem, by_row, scores, answer, belief)
        points = np.unique(np.vstack([points, loyal]), axis=0)
    evidence = replace(evidence, points=points)
    trees = None if gates is None else gates.trees
    learned = LearnedCascade(plan, staged, calibrations, blend, policy, evidence, trees)
    served = without_idle_stages(learned, problem)
    return replace(served, policy=measured(served.policy, served.evidence))


def _loyal_points(
    problem: CascadeProblem, evidence: Evidence, scores: Floats, answer: Floats, belief: Floats
) -> Floats:
    """Thresholds that trade cost against answers worse than the full model's: they ask it, however good it is."""
    every = [*(scores[:, stage] for stage in range(scores.shape[1])), answer]
    task = problem.task
    regret = np.column_stack([task.expected_regret(one, problem.full_scores, belief) for one in every])
    return sweep_prices(evidence, regret, task.expected_quality(regret)).thresholds


def _grow(problem: CascadeProblem, plan: Plan) -> tuple[StagedTrees, Floats, Floats]:
    """The ensemble on all rows, every row's scores by a copy that has not seen it, and how much surer the former is."""
    known = (problem.task, problem.table, problem.y, problem.weight)
    scores = np.empty((len(problem.y), len(plan.sets), problem.task.n_scores))
    # The kernels release the interpreter's lock, so threads share one table of codes.
    with ThreadPoolExecutor(problem.n_threads) as pool:
        first, *others = problem.folds
        # The rows of one fold tell how many trees a stage needs; the other copies have as many.
        job = pool.submit(score_fold, *known, first, plan.sets, plan.boosting)
        scores[first], n_trees, spread = job.result()
        problem.progress("growing stages", 1, len(others) + 2)
        if problem.max_bytes is not None and (fewer := _few_enough(problem, plan, n_trees)) != n_trees:
            n_trees = fewer
            scores[first], _, spread = score_fold(*known, first, plan.sets, plan.boosting, n_trees)
        whole = pool.submit(grow_stages, *known, plan.sets, plan.boosting, n_trees=n_trees)
        judged = [pool.submit(score_fold, *known, fold, plan.sets, plan.boosting, n_trees) for fold in others]
        for number, (fold, job) in enumerate(zip(others, judged, strict=True)):
            scores[fold], _, of_fold = job.result()
            spread = spread + of_fold
            problem.progress("growing stages", number + 2, len(others) + 2)
        staged = whole.result().to_serve()
        problem.progress("growing stages", len(others) + 2, len(others) + 2)
        return staged, scores, stretch_of(staged, spread / len(problem.folds))


def stretch_of(staged: StagedTrees, spread: Floats) -> Floats:
    """By what factor the scores of the model that serves are larger than those of its copies, at each stage.

    It is grown on more rows, which penalties of leaves shrink less. Neither has been asked about new rows; but both
    were about the rows that they were grown on, and what makes their scores larger there makes them larger elsewhere.
    Neighbouring stages are averaged, for the factor changes slowly and is the less certain the fewer rows there are.
    """
    own = spread if staged.spread is None else staged.spread
    grown = (own > 0) & (spread > 0)
    logs = np.where(grown, np.log(np.where(grown, own, 1.0) / np.where(grown, spread, 1.0)), 0.0)
    around = np.convolve(np.r_[logs[:1], logs, logs[-1:]], np.full(3, 1 / 3), "valid")
    stretch: Floats = np.exp(np.clip(around, -MOST_STRETCHED, MOST_STRETCHED))
    return stretch


def _few_enough(problem: CascadeProblem, plan: Plan, n_trees: list[int]) -> list[int]:
    """Trees of each stage, cut to a common number where all together would take more bytes than they may."""
    known, most = (problem.task, problem.table, problem.y, problem.weight), problem.max_bytes
    assert most is not None
    while True:
        taken = grow_stages(*known, plan.sets, plan.boosting, n_trees=n_trees).n_bytes
        if taken.sum() <= most:
            return n_trees
        cuts = np.minimum(np.array(n_trees), np.arange(max(n_trees))[:, None])
        cut_to = taken / np.maximum(n_trees, 1) * cuts
        fits = np.flatnonzero(cut_to.sum(axis=1) <= most)
        if fits[-1] == 0:
            raise InvalidInputError(
                f"max_bytes must leave room for a tree in every stage, about {int(cut_to[1].sum())} bytes here; got "
                f"{most}. Raise it, ask for fewer `stages`, or give a smaller depth in `sizes`."
            )
        n_trees = cuts[fits[-1]].tolist()


def choose_blend(problem: CascadeProblem, last: Floats) -> tuple[Floats, Floats, Floats]:
    """How to answer where the full model was asked.

    It and the last stage are blended if, on folds that the weights were not made on, that has the smaller loss and
    errs no more often.

    Returns
    -------
    weights : ndarray
        The blend.
    answer, belief : ndarray of shape (n_rows, n_scores)
        Held-out scores of that answer, and of the blend whether or not it is the answer.
    """
    task, full = problem.task, problem.full_scores
    belief = np.empty_like(last)
    for fold in problem.folds:
        rest = np.ones(len(last), dtype=bool)
        rest[fold] = False
        weights = task.blend_weights(last[rest], full[rest], problem.y[rest], problem.weight[rest])
        belief[fold] = task.blended(weights, last[fold], full[fold])
    if _is_better(problem, belief, full):
        return task.blend_weights(last, full, problem.y, problem.weight), belief, belief
    return task.full_alone, full, belief


def is_worth_asking(quality: Numbers, full_quality: Numbers, weight: Floats) -> bool:
    """Whether the full model is kept: not if its answer errs as often as that of the last stage, which holds all too.

    Nor if it is by itself clearly worse and the blend with it is not clearly better: a call that costs nothing extra
    would else be made for the sake of a few lucky rows.

    Parameters
    ----------
    quality : ndarray of shape (n_rows, n_stages + 1)
        How good the answer of every stage is and, last, the answer with the full model.
    full_quality : ndarray of shape (n_rows,)
        How good the full model's own answer is.
    weight : ndarray of shape (n_rows,)
        What rows count where answers are not just right or wrong.
    """
    blend, last = quality[:, -1], quality[:, -2]
    return lead(blend, last, weight) > (1.0 if lead(last, full_quality, weight) > CLEARLY else 0.0)


def lead(one: Numbers, other: Numbers, weight: Floats) -> float:
    """By how many standard errors one model is better, or right more often, than another, row by row."""
    if one.dtype != bool and not _is_two_valued(one, other):  # errors of different size, not right or wrong
        return mean_in_errors(np.asarray(one - other, dtype=np.float64), weight)
    gains, losses = int((one > other).sum()), int((other > one).sum())
    return float((gains - losses) / np.sqrt(max(gains + losses, 1)))


def _is_two_valued(one: Numbers, other: Numbers) -> bool:
    both = np.concatenate([one, other])
    return bool(np.isin(both, [both.min(), both.max()]).all())


def _is_better(problem: CascadeProblem, one: Floats, other: Floats) -> bool:
    task, loss, weight = problem.task, problem.task.loss(problem.y), problem.weight
    losses = [float(np.average(loss.values(scores), weights=weight)) for scores in (one, other)]
    quality = [
        float(np.average(task.quality_of_scores(problem.y, scores), weights=weight))
        for scores in (one, other)
    ]
    return losses[0] < losses[1] - 1e-9 and quality[0] >= quality[1] - 1e-12


def without_idle_stages(learned: LearnedCascade, problem: CascadeProblem) -> LearnedCascade:
    """Leave out the stages at which no operating point lets a row stop.

    The trees of such a stage are handed to the next one, which holds its columns anyway. Behind the last stage that
    anybody reaches there is nothing to keep; the full model itself stays, in case it is wanted later.
    """
    gate, thresholds = learned.evidence.gate, learned.policy.thresholds
    points = learned.evidence.points
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
    sets = [learned.staged.sets[stage] for stage in kept]
    return replace(
        learned,
        staged=_merged(learned.staged, kept),
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
