"""Which order to buy in and how large the stages are: candidates raced on held-out rows.

The size is chosen first, with one order, by the mean log-loss of the stages, which tells sizes apart with fewer rows
than counts of right answers do. Then the order, with that size: an order is worth its mean score over budgets that grow
by a constant factor, as a cascade with the full model at its end.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from thrifty.arrays import Floats, Ints
from thrifty.evidence.stopping import sweep_prices
from thrifty.learning.cascade.orders import ORDERS, Learner, nested_sets
from thrifty.learning.cascade.problem import CascadeProblem, Plan, calibrate, judge_stages
from thrifty.learning.cascade.staged import score_fold
from thrifty.learning.pairs.boosted import Boosting

__all__ = ["choose_plan"]


ORDERING = Boosting(n_trees=60, max_depth=6)
"""Trees that an order is made from."""

RACE_ROWS = 5_000
"""With more rows than that, candidates are compared on one fold in place of all."""

RACE_BUDGETS = 25

ENOUGH = 1.0
"""Standard errors by which a larger size must lead: on few rows the larger one would be taken by chance."""


def choose_plan(problem: CascadeProblem) -> Plan:
    """The size of a stage, then the order, that give the best held-out scores over all budgets."""
    orders = _find_orders(problem)
    (name, order), *others = orders.items()
    first = _plan(problem, name, order, problem.capacities[0])
    boosting = _best_size(problem, _coarse(first))
    plans = [replace(first, boosting=boosting)]
    for name, order in others:
        if not any(np.array_equal(order, plan.order) for plan in plans):
            plans.append(_plan(problem, name, order, boosting))
    winner = _best(problem, [_coarse(plan) for plan in plans])
    problem.progress("comparing orders", 1, 1)
    return next(plan for plan in plans if plan.name == winner.name)


def _find_orders(problem: CascadeProblem) -> dict[str, Ints]:
    """Every order by name, found side by side: each is a sequence of ensembles that wait for each other."""
    learner = Learner(
        problem.table, problem.task.loss(problem.y), problem.weight, problem.price_list, ORDERING
    )
    orders = {}
    with ThreadPoolExecutor(problem.n_threads) as pool:
        jobs = {name: pool.submit(find, learner) for name, find in ORDERS.items()}
        for name, job in jobs.items():
            orders[name] = job.result()
            problem.progress("finding orders", len(orders), len(jobs))
    return orders


def _best_size(problem: CascadeProblem, plan: Plan) -> Boosting:
    """Sizes from small to large, until one is worse than the one before: large ones cost most and overfit first."""
    sizes = list(problem.capacities)
    best, best_losses = sizes[0], None
    # The first two always run, so they may run side by side.
    for batch in (sizes[:2], *([size] for size in sizes[2:])) if len(sizes) > 1 else ():
        seen, scores = _race(problem, [replace(plan, boosting=size) for size in batch])
        for size, one in zip(batch, scores, strict=True):
            losses = _losses(seen, one)
            if best_losses is not None and _lead(best_losses - losses, seen.weight) <= ENOUGH:
                problem.progress("comparing sizes", len(sizes), len(sizes))
                return best
            best, best_losses = size, losses
        problem.progress("comparing sizes", sizes.index(batch[-1]) + 1, len(sizes))
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
    seen, scores = _race(problem, plans)
    # Means of the same answers may differ in their last digits: plans that are equally good must stay equal.
    worths = [round(_worth(seen, plan, one), 9) for plan, one in zip(plans, scores, strict=True)]
    return plans[int(np.argmax(worths))]


def _race(problem: CascadeProblem, plans: Sequence[Plan]) -> tuple[CascadeProblem, list[Floats]]:
    """Rows that were held out, and the scores of every plan's stages on them."""
    folds = problem.folds if len(problem.y) <= RACE_ROWS else problem.folds[:1]
    jobs = [(plan, fold) for plan in plans for fold in folds]

    def judge(job: tuple[Plan, Ints]) -> Floats:
        plan, fold = job
        return score_fold(
            problem.task, problem.table, problem.y, problem.weight, fold, plan.sets, plan.boosting
        )

    with ThreadPoolExecutor(problem.n_threads) as pool:
        scores = list(pool.map(judge, jobs))
    rows = np.concatenate(list(folds))
    return problem.take(rows), [
        np.concatenate(scores[n : n + len(folds)]) for n in range(0, len(jobs), len(folds))
    ]


def _losses(seen: CascadeProblem, scores: Floats) -> Floats:
    """Mean loss over stages of each row."""
    _, calibrated = calibrate(seen.task, scores, seen.y, seen.weight)
    loss = seen.task.loss(seen.y)
    every = [loss.values(calibrated[:, stage]) for stage in range(scores.shape[1])]
    losses: Floats = np.column_stack(every).mean(axis=1)
    return losses


def _lead(gains: Floats, weight: Floats) -> float:
    """Mean gain in standard errors; a row of weight two counts as two rows."""
    mean = float(np.average(gains, weights=weight))
    spread = float(np.sqrt(np.average(np.square(gains - mean), weights=weight) / weight.sum()))
    return mean / max(spread, 1e-12)


def _worth(seen: CascadeProblem, plan: Plan, scores: Floats) -> float:
    """Mean score over budgets, each a constant factor more than the one before."""
    task = seen.task
    _, calibrated = calibrate(task, scores, seen.y, seen.weight)
    last = calibrated[:, -1]
    weights = task.blend_weights(last, seen.full_scores, seen.y, seen.weight)
    belief = task.blended(weights, last, seen.full_scores)
    evidence, loss = judge_stages(seen, plan.sets, calibrated, seen.full_scores, belief)
    policy = sweep_prices(evidence, loss, evidence.quality, n_prices=30)
    prices, total = seen.price_list.prices, seen.price_list.cost_of_everything
    low = float(prices[prices > 0].min()) if (prices > 0).any() else 0.1 * total
    budgets = np.geomspace(low, total, RACE_BUDGETS)
    constant = task.constant_quality(seen.y, seen.weight)
    return float(policy.score_within(budgets, below=constant).mean())
