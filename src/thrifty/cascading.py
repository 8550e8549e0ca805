"""Learning a cascade: which order to buy in, how large the stages are, how sure each one is, and where to stop.

Everything is judged on rows that the judged model has not seen. What does not depend on the operating point (bins,
order, ensembles, held-out scores) is computed once; the operating points then are sorts and running sums.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from thrifty.models.boosted import Boosting
from thrifty.models.calibration import logistic_weights, platt
from thrifty.models.orders import ORDERS, Learner, nested_sets, stopping_places
from thrifty.models.staged import StagedTrees, grow_stages, held_out_scores
from thrifty.objective.costs import PriceList
from thrifty.policy.cascade import Policies, sweep_prices
from thrifty.policy.stopping import Evidence, route_by
from thrifty.trees import BinnedTable

__all__ = ["CAPACITIES", "CascadeProblem", "LearnedCascade", "Plan", "learn_cascade"]

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]

CAPACITIES = (
    Boosting(n_trees=30, max_depth=4, learning_rate=0.05),
    Boosting(n_trees=100, max_depth=6),
    Boosting(n_trees=150, max_depth=10),
)
"""Sizes of a stage to choose from, out of fold."""

ORDERING = Boosting(n_trees=60, max_depth=6)
"""Trees that an order is made from."""

RACE_ROWS = 5_000
"""With more rows than that, candidates are compared on one fold in place of all."""

MOST_STAGES = 16
RACE_BUDGETS = 25


@dataclass(frozen=True, eq=False)
class CascadeProblem:
    """What a cascade is learned from.

    Attributes
    ----------
    table : BinnedTable
        Rows, all columns.
    y, weight : ndarray of shape (n_rows,)
        Labels -1 / +1 and weights.
    folds : sequence of ndarray
        Rows of each fold.
    full_log_odds : ndarray of shape (n_rows,)
        f0's, by copies that have not seen the row.
    price_list : PriceList
        Prices.
    capacities : sequence of Boosting
        Sizes of a stage to choose from.
    n_stages : int, optional
        Places along the order; None is chosen from the number of purchases.
    n_threads : int
        Folds are judged side by side.
    """

    table: BinnedTable
    y: Floats
    weight: Floats
    folds: Sequence[Ints]
    full_log_odds: Floats
    price_list: PriceList
    capacities: Sequence[Boosting] = CAPACITIES
    n_stages: int | None = None
    n_threads: int = 1

    @property
    def places(self) -> Ints:
        """After how many purchases a row may stop."""
        n_purchases = int((self.price_list.prices > 0).sum())
        return stopping_places(n_purchases, MOST_STAGES if self.n_stages is None else self.n_stages)

    def costs(self, sets: Sequence[Ints]) -> Floats:
        """What a row has paid at each stage and, last, at f0."""
        paid = [self.price_list.cost_of(columns) if len(columns) else 0.0 for columns in sets]
        return np.array([*paid, self.price_list.cost_of_everything])


@dataclass(frozen=True, eq=False)
class Plan:
    """An order of purchases by name, the columns of each stage along it, and the size of the stages."""

    name: str
    order: Ints
    sets: tuple[Ints, ...]
    boosting: Boosting


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
    """

    plan: Plan
    staged: StagedTrees
    sigmoids: Floats
    blend: Floats
    policies: Policies
    evidence: Evidence
    right: Bools


def learn_cascade(problem: CascadeProblem) -> LearnedCascade:
    """Choose order and size out of fold, then grow, calibrate and sweep."""
    plan = choose_plan(problem)
    scores = _held_out(problem, plan.sets, plan.boosting, problem.folds)
    staged = grow_stages(problem.table, problem.y, problem.weight, plan.sets, plan.boosting)
    sigmoids = np.array([platt(score, problem.y, problem.weight) for score in scores.T])
    log_odds = scores * sigmoids[:, 0] + sigmoids[:, 1]
    blend, blended = choose_blend(problem, log_odds[:, -1])
    evidence, right = judge_stages(problem, plan.sets, log_odds, blended)
    policies = sweep_prices(evidence, right)
    learned = LearnedCascade(plan, staged, sigmoids, blend, policies, evidence, right)
    return without_idle_stages(learned)


# -- order and size ----------------------------------------------------------------------------


def choose_plan(problem: CascadeProblem) -> Plan:
    """The size of a stage, then the order, that give the best held-out scores over all budgets."""
    learner = Learner(problem.table, problem.y, problem.weight, problem.price_list, ORDERING)
    names = list(ORDERS)
    first = _plan(problem, names[0], ORDERS[names[0]](learner), problem.capacities[0])
    boosting = _best_size(problem, _coarse(first))
    plans = [replace(first, boosting=boosting)]
    for name in names[1:]:
        order = ORDERS[name](learner)
        if not any(np.array_equal(order, plan.order) for plan in plans):
            plans.append(_plan(problem, name, order, boosting))
    winner = _best(problem, [_coarse(plan) for plan in plans])
    return next(plan for plan in plans if plan.name == winner.name)


def _best_size(problem: CascadeProblem, plan: Plan) -> Boosting:
    """Sizes from small to large, until one is worse than the one before: large ones cost most and overfit first."""
    best, best_worth = problem.capacities[0], -np.inf
    if len(problem.capacities) == 1:
        return best
    for boosting in problem.capacities:
        worth = _worth(problem, replace(plan, boosting=boosting))
        if worth <= best_worth + 1e-9:
            break
        best, best_worth = boosting, worth
    return best


def _plan(problem: CascadeProblem, name: str, order: Ints, boosting: Boosting) -> Plan:
    return Plan(name, order, nested_sets(order, problem.places, problem.price_list), boosting)


def _coarse(plan: Plan) -> Plan:
    """Every second stage: enough for a comparison."""
    n_sets = len(plan.sets)
    return replace(plan, sets=tuple(plan.sets[place] for place in range((n_sets - 1) % 2, n_sets, 2)))


def _best(problem: CascadeProblem, plans: Sequence[Plan]) -> Plan:
    """The plan with the best mean held-out score over budgets; the first of equals."""
    if len(plans) == 1:
        return plans[0]
    worth = [_worth(problem, plan) for plan in plans]
    # Means of the same answers may differ in their last digits: plans that are equally good must stay equal.
    return plans[int(np.argmax(np.round(worth, 9)))]


def _worth(problem: CascadeProblem, plan: Plan) -> float:
    """Mean held-out score over budgets, each a constant factor more than the one before."""
    folds = problem.folds if len(problem.y) <= RACE_ROWS else problem.folds[:1]
    rows = np.sort(np.concatenate(list(folds)))
    scores = _held_out(problem, plan.sets, plan.boosting, folds)[rows]
    judged = replace(
        problem, y=problem.y[rows], weight=problem.weight[rows], full_log_odds=problem.full_log_odds[rows]
    )
    sigmoids = np.array([platt(score, judged.y, judged.weight) for score in scores.T])
    log_odds = scores * sigmoids[:, 0] + sigmoids[:, 1]
    evidence, right = judge_stages(judged, plan.sets, log_odds, judged.full_log_odds)
    policies = sweep_prices(evidence, right, n_prices=30)
    prices = problem.price_list.prices
    total = problem.price_list.cost_of_everything
    low = float(prices[prices > 0].min()) if (prices > 0).any() else 0.1 * total
    positive = float(np.average(judged.y > 0, weights=judged.weight))
    budgets = np.geomspace(low, total, RACE_BUDGETS)
    return float(policies.score_within(budgets, below=max(positive, 1.0 - positive)).mean())


def _held_out(
    problem: CascadeProblem, sets: Sequence[Ints], boosting: Boosting, folds: Sequence[Ints]
) -> Floats:
    return held_out_scores(
        problem.table, problem.y, problem.weight, folds, sets, boosting, n_threads=problem.n_threads
    )


# -- what the stages are worth -----------------------------------------------------------------


def judge_stages(
    problem: CascadeProblem, sets: Sequence[Ints], log_odds: Floats, last: Floats
) -> tuple[Evidence, Bools]:
    """Gates, losses and right answers of every stage and, last, of f0 (blended or not), on held-out rows."""
    every = np.column_stack([log_odds, last])
    right = (every > 0) == (problem.y > 0)[:, None]
    evidence = Evidence(
        -np.abs(log_odds), 1.0 - right.astype(np.float64), problem.costs(sets), problem.weight
    )
    return evidence, right


def choose_blend(problem: CascadeProblem, last: Floats) -> tuple[Floats, Floats]:
    """Weights of the answer where f0 was asked, and that answer's log-odds on held-out rows.

    f0 and the last stage are blended if, on folds that the weights were not made on, that has the smaller log-loss and
    errs no more often.
    """
    both = np.column_stack([last, problem.full_log_odds])
    blended = np.empty(len(last))
    for fold in problem.folds:
        rest = np.ones(len(last), dtype=bool)
        rest[fold] = False
        weights = logistic_weights(both[rest], problem.y[rest], problem.weight[rest])
        blended[fold] = weights[0] + both[fold] @ weights[1:]
    alone = problem.full_log_odds
    if _is_better(problem, blended, alone):
        return logistic_weights(both, problem.y, problem.weight), blended
    return np.array([0.0, 0.0, 1.0]), alone


def _is_better(problem: CascadeProblem, one: Floats, other: Floats) -> bool:
    losses, errors = [], []
    for log_odds in (one, other):
        margin = problem.y * log_odds
        losses.append(float(np.average(np.logaddexp(0.0, -margin), weights=problem.weight)))
        errors.append(float(np.average(margin <= 0, weights=problem.weight)))
    return losses[0] < losses[1] - 1e-9 and errors[0] <= errors[1] + 1e-12


# -- stages that earn nothing ------------------------------------------------------------------


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
    )


def _merged(staged: StagedTrees, kept: Sequence[int]) -> StagedTrees:
    parts, start = [], 0
    for stage in kept:
        parts.append(type(staged.parts[0]).concatenate(staged.parts[start : stage + 1]))
        start = stage + 1
    return StagedTrees(staged.base, tuple(staged.sets[stage] for stage in kept), tuple(parts))
