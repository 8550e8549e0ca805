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
from thrifty.learning.cascade.problem import CascadeProblem, Plan, calibrate, judge_stages, mean_in_errors
from thrifty.learning.cascade.staged import score_fold
from thrifty.learning.pairs.boosted import Boosting

__all__ = ["choose_plan"]


ORDERING = Boosting(n_trees=60, max_depth=6)
"""Trees that an order is made from."""

RACE_ROWS = 1_250
"""Held-out rows that candidates are compared on, at least: so many folds are grown for that, and no more."""

RACE_BUDGETS = 25

ENOUGH = 1.0
"""Standard errors by which a larger size must lead: on few rows the larger one would be taken by chance."""


def choose_plan(problem: CascadeProblem) -> Plan:
    """The size of a stage, then the order, that give the best held-out scores over all budgets."""
    orders, race = _find_orders(problem), _Race(problem)
    (name, order), *others = orders.items()
    first = _plan(problem, name, order, problem.capacities[0])
    boosting = _best_size(race, _coarse(first))
    plans = [replace(first, boosting=boosting)]
    for name, order in others:
        if not any(np.array_equal(order, plan.order) for plan in plans):
            plans.append(_plan(problem, name, order, boosting))
    winner = _best(race, [_coarse(plan) for plan in plans])
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


def _best_size(race: "_Race", plan: Plan) -> Boosting:
    """Sizes from small to large, until one is worse than the one before: large ones cost most and overfit first."""
    sizes, problem, seen = list(race.problem.capacities), race.problem, race.seen
    best, best_losses = sizes[0], None
    # The first two always run, so they may run side by side.
    for batch in (sizes[:2], *([size] for size in sizes[2:])) if len(sizes) > 1 else ():
        scores = race.scores([replace(plan, boosting=size) for size in batch])
        for size, one in zip(batch, scores, strict=True):
            losses = _losses(seen, one)
            if best_losses is not None and mean_in_errors(best_losses - losses, seen.weight) <= ENOUGH:
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


def _best(race: "_Race", plans: Sequence[Plan]) -> Plan:
    """The plan with the best mean held-out score over budgets; the first of equals."""
    if len(plans) == 1:
        return plans[0]
    # Means of the same answers may differ in their last digits: plans that are equally good must stay equal.
    worths = [
        round(_worth(race.seen, plan, one), 9) for plan, one in zip(plans, race.scores(plans), strict=True)
    ]
    return plans[int(np.argmax(worths))]


class _Race:
    """Candidates and what their stages say about rows that they were not grown on; no candidate is grown twice.

    Attributes
    ----------
    seen : CascadeProblem
        The held-out rows.
    """

    def __init__(self, problem: CascadeProblem) -> None:
        n_held_out = np.cumsum([len(fold) for fold in problem.folds])
        n_folds = int(np.searchsorted(n_held_out, min(RACE_ROWS, n_held_out[-1]))) + 1
        self.problem, self._folds = problem, list(problem.folds[:n_folds])
        self.seen = problem.take(np.concatenate(self._folds))
        self._known: dict[tuple[str, Boosting], Floats] = {}

    def scores(self, plans: Sequence[Plan]) -> list[Floats]:
        """Scores of every plan's stages on the held-out rows, shape (n_rows, n_stages, n_scores)."""
        new = [plan for plan in plans if (plan.name, plan.boosting) not in self._known]
        with ThreadPoolExecutor(self.problem.n_threads) as pool:
            jobs = [[pool.submit(self._judge, plan, fold) for fold in self._folds] for plan in new]
            for plan, of_plan in zip(new, jobs, strict=True):
                scores = np.concatenate([job.result() for job in of_plan])
                self._known[plan.name, plan.boosting] = scores
        return [self._known[plan.name, plan.boosting] for plan in plans]

    def _judge(self, plan: Plan, fold: Ints) -> Floats:
        known = self.problem
        return score_fold(known.task, known.table, known.y, known.weight, fold, plan.sets, plan.boosting)[0]


def _losses(seen: CascadeProblem, scores: Floats) -> Floats:
    """Mean loss over stages of each row."""
    _, calibrated = calibrate(seen.task, scores, seen.y, seen.weight)
    loss = seen.task.loss(seen.y)
    every = [loss.values(calibrated[:, stage]) for stage in range(scores.shape[1])]
    losses: Floats = np.column_stack(every).mean(axis=1)
    return losses


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
