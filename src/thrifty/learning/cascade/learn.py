"""Learning a cascade: grow, calibrate, blend, sweep, and drop what earns nothing.

Everything is judged on rows that the judged model has not seen. What does not depend on the operating point (bins,
order, ensembles, held-out scores) is computed once; the operating points then are sorts and running sums.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from thrifty.arrays import Bools, Floats
from thrifty.evidence.policies import Policies, sweep_prices
from thrifty.evidence.stopping import Evidence, route_by
from thrifty.learning.cascade.gates import choose_gates, n_coarse_stages, settled_log_odds
from thrifty.learning.cascade.plan import choose_plan
from thrifty.learning.cascade.problem import CascadeProblem, Plan, calibrate, judge_stages
from thrifty.learning.cascade.staged import StagedTrees, grow_stages, score_fold
from thrifty.tasks.calibration import logistic_weights
from thrifty.trees import TreeEnsemble

__all__ = ["CLEARLY", "LearnedCascade", "is_worth_asking", "lead", "learn_cascade"]


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
    sigmoids : ndarray of shape (n_stages, 2)
        Slope and intercept of each stage's log-odds.
    blend : ndarray of shape (3,)
        Intercept and weights of the last stage's and of f0's log-odds.
    policies : Policies
        Operating points.
    evidence : Evidence
        Held-out gates and losses they were chosen on.
    right : ndarray of shape (n_rows, n_stages + 1), bool
        Whether each stage, and the blend with f0, is right on a held-out row.
    gates : tuple of TreeEnsemble, optional
        Learned gates, over the columns of each stage and its log-odds; None where the margin decides.
    """

    plan: Plan
    staged: StagedTrees
    sigmoids: Floats
    blend: Floats
    policies: Policies
    evidence: Evidence
    right: Bools
    gates: tuple[TreeEnsemble, ...] | None = None

    @property
    def asks_full(self) -> bool:
        """Whether any operating point asks f0 about any row."""
        n_stages = self.evidence.n_stages
        return any((route_by(self.evidence.gate, one) == n_stages).any() for one in self.policies.thresholds)

    def accuracy(self) -> Floats:
        """Share of right held-out answers of each operating point, shape (n_policies,)."""
        rows, weight = np.arange(len(self.right)), self.evidence.weight
        routes = [route_by(self.evidence.gate, one) for one in self.policies.thresholds]
        return np.array([np.average(self.right[rows, route], weights=weight) for route in routes])


def learn_cascade(problem: CascadeProblem) -> LearnedCascade:
    """Choose order and size out of fold, then grow, calibrate and sweep."""
    plan = choose_plan(problem)
    staged, scores = _grow(problem, plan)
    sigmoids, log_odds = calibrate(scores, problem.y, problem.weight)
    blend, answer, belief = choose_blend(problem, log_odds[:, -1])
    evidence, right = judge_stages(problem, plan.sets, log_odds, answer, belief)
    if not is_worth_asking(right, (problem.full_log_odds > 0) == (problem.y > 0)):
        evidence.loss[:, -1] = 1.0
    problem.progress("learning gates", 0, 1)
    n_coarse = n_coarse_stages(problem, plan.sets)
    settled = settled_log_odds(staged, problem.table, sigmoids, log_odds, n_coarse)
    evidence = replace(evidence, gate=-np.abs(settled))
    gates = choose_gates(problem, plan.sets, evidence, settled, right, n_coarse)
    problem.progress("learning gates", 1, 1)
    if gates is not None:
        evidence = replace(evidence, gate=gates.held_out)
    # Beliefs in place of labels again: among many points on few rows the luckiest would look best.
    likely = 1.0 - evidence.loss
    policies = sweep_prices(evidence, likely)
    trees = None if gates is None else gates.trees
    learned = LearnedCascade(plan, staged, sigmoids, blend, policies, evidence, right, trees)
    return without_idle_stages(learned)


def _grow(problem: CascadeProblem, plan: Plan) -> tuple[StagedTrees, Floats]:
    """The ensemble on all rows, and the scores of every row by a copy that has not seen it."""
    known = (problem.table, problem.y, problem.weight)
    scores = np.empty((len(problem.y), len(plan.sets)))
    # The kernels release the interpreter's lock, so threads share one table of codes.
    with ThreadPoolExecutor(problem.n_threads) as pool:
        whole = pool.submit(grow_stages, *known, plan.sets, plan.boosting)
        judged = [pool.submit(score_fold, *known, fold, plan.sets, plan.boosting) for fold in problem.folds]
        for number, (fold, job) in enumerate(zip(problem.folds, judged, strict=True)):
            scores[fold] = job.result()
            problem.progress("growing stages", number + 1, len(judged) + 1)
        staged = whole.result()
        problem.progress("growing stages", len(judged) + 1, len(judged) + 1)
        return staged, scores


def choose_blend(problem: CascadeProblem, last: Floats) -> tuple[Floats, Floats, Floats]:
    """How to answer where f0 was asked.

    f0 and the last stage are blended if, on folds that the weights were not made on, that has the smaller log-loss and
    errs no more often.

    Returns
    -------
    weights : ndarray of shape (3,)
        Intercept and weights of the last stage's and of f0's log-odds.
    answer, belief : ndarray of shape (n_rows,)
        Held-out log-odds of that answer, and of the blend whether or not it is the answer.
    """
    both = np.column_stack([last, problem.full_log_odds])
    belief = np.empty(len(last))
    for fold in problem.folds:
        rest = np.ones(len(last), dtype=bool)
        rest[fold] = False
        weights = logistic_weights(both[rest], problem.y[rest], problem.weight[rest])
        belief[fold] = weights[0] + both[fold] @ weights[1:]
    if _is_better(problem, belief, problem.full_log_odds):
        return logistic_weights(both, problem.y, problem.weight), belief, belief
    return np.array([0.0, 0.0, 1.0]), problem.full_log_odds, belief


def is_worth_asking(right: Bools, full_right: Bools) -> bool:
    """Whether f0 is kept: not if its answer errs as often as the last stage's, which holds all features too.

    Nor if it is by itself clearly worse and the blend with it is not clearly better: a call that costs nothing extra
    would else be made for the sake of a few lucky rows.

    Parameters
    ----------
    right : ndarray of shape (n_rows, n_stages + 1), bool
        Right answers of every stage and, last, of the answer with f0.
    full_right : ndarray of shape (n_rows,), bool
        Right answers of f0 alone.
    """
    blend, last = right[:, -1], right[:, -2]
    return lead(blend, last) > (1.0 if lead(last, full_right) > CLEARLY else 0.0)


def lead(one: Bools, other: Bools) -> float:
    """By how many standard errors one model is right more often than another, row by row."""
    gains, losses = int((one & ~other).sum()), int((other & ~one).sum())
    return float((gains - losses) / np.sqrt(max(gains + losses, 1)))


def _is_better(problem: CascadeProblem, one: Floats, other: Floats) -> bool:
    losses, errors = [], []
    for log_odds in (one, other):
        margin = problem.y * log_odds
        losses.append(float(np.average(np.logaddexp(0.0, -margin), weights=problem.weight)))
        errors.append(float(np.average(margin <= 0, weights=problem.weight)))
    return losses[0] < losses[1] - 1e-9 and errors[0] <= errors[1] + 1e-12


def without_idle_stages(learned: LearnedCascade) -> LearnedCascade:
    """The same cascade without stages at which no operating point lets a row stop.

    The trees of such a stage are handed to the next one, which holds its columns anyway. Behind the last stage that
    anybody reaches there is nothing to keep; f0 itself stays, in case it is wanted later.
    """
    gate, thresholds = learned.evidence.gate, learned.policies.thresholds
    n_stages = gate.shape[1]
    routes = np.unique(np.concatenate([np.unique(route_by(gate, one)) for one in thresholds]))
    asks_full = bool(routes[-1] == n_stages)
    kept = [int(stage) for stage in routes if stage < n_stages]
    thresholds = thresholds.copy()
    if not asks_full:
        thresholds[:, kept[-1]] = np.inf  # a new row must not get further than any held-out row did
    elif kept[-1:] != [n_stages - 1] and learned.blend[1] != 0.0:
        kept.append(n_stages - 1)  # nobody stops there, and its score is part of the blend
    staged, evidence = learned.staged, learned.evidence
    return replace(
        learned,
        staged=_merged(staged, kept),
        sigmoids=learned.sigmoids[kept],
        policies=replace(learned.policies, thresholds=thresholds[:, kept]),
        evidence=replace(
            evidence,
            gate=gate[:, kept],
            loss=evidence.loss[:, [*kept, n_stages]],
            cost=evidence.cost[[*kept, n_stages]],
        ),
        right=learned.right[:, [*kept, n_stages]],
        gates=None if learned.gates is None else tuple(learned.gates[stage] for stage in kept),
    )


def _merged(staged: StagedTrees, kept: Sequence[int]) -> StagedTrees:
    parts, start = [], 0
    for stage in kept:
        parts.append(TreeEnsemble.concatenate(staged.parts[start : stage + 1]))
        start = stage + 1
    return StagedTrees(staged.base, tuple(staged.sets[stage] for stage in kept), tuple(parts))
