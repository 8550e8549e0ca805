"""Choice of the order of purchases and of the size of the stages, by comparison on held-out rows.

The size is chosen first, with one order, by the mean log-loss of the stages, which separates sizes with fewer rows than
accuracy does. Then the order, with that size, by the mean score over budgets that grow by a constant factor, of a
cascade with the full model at its end: all budgets, or those around the budget of the fit.

Comparisons take a fraction of the work of the stages that serve: from 1,250 rows on neighbouring bins are merged, and
every second stage is grown.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

import numpy as np

from thrifty.arrays import Floats, Ints
from thrifty.engine.evidence.thresholds import sweep_prices
from thrifty.learners.cascade.orders import (
    EFFECT_STEPS,
    ORDERS,
    ORDERS_OF_SEVERAL,
    Learner,
    by_code_effects,
    by_gain,
    merged_table,
    nested_sets,
)
from thrifty.learners.cascade.problem import CascadeProblem, Plan, calibrate, stage_evidence, z_score
from thrifty.learners.cascade.stages import score_fold
from thrifty.learners.trees.boosting import Boosting

__all__ = ["Race", "choose_plan", "find_plans", "nested_scores"]


ORDERING = Boosting(n_trees=60, max_depth=6)
"""Trees from which an order is made."""

RACE_ROWS = 1_250
"""Held-out rows wanted for comparisons: as many folds are grown as provide them. On fewer no single budget decides."""

EFFECTS, CHEAP_FIRST = "code effects", "cheap first"

RACE_BUDGETS = 25
"""Budgets by which orders are compared, each a constant factor more than the one before."""

NEAR = 1.5
"""Factor around the budget of a fit within which those are."""

MIN_Z_OF_SIZE, MIN_Z_OF_SIZE_ON_FEW_ROWS = 1.5, 2.0
"""z-score by which a larger size, which takes longer, must be better; and with fewer rows than ``RACE_ROWS`` in all."""

MIN_Z_OF_FOLD, CLEAR_Z_OF_FOLD = 0.5, 4.0
"""z-scores on the first fold up to which a larger size is behind, and from which on it is better without a doubt."""


NESTED_ORDERING = Boosting(n_trees=30, max_depth=6)
"""Trees from which an order by gain is made, once for each fold."""

NESTED_ROWS = 1_000
"""Rows wanted with scores of such orders."""


def choose_plan(problem: CascadeProblem, race: "Race | None" = None) -> Plan:
    """The size of a stage, then the order, that give the best held-out scores over budgets.

    ``race`` is what ``find_plans`` found, by default now.
    """
    race = find_plans(problem) if race is None else race
    winner = _best(race, problem)
    problem.progress("comparing orders", 1, 1)
    return winner


def find_plans(problem: CascadeProblem) -> "Race":
    """Candidate plans: orders, with the size of a stage that is best for the first; the full model is not asked."""
    problem = replace(problem, table=merged_table(problem.table))
    orders, race = _find_orders(problem), Race(problem)
    n_first = _n_first(problem, orders)
    size = problem.capacities[0]
    for name, order in orders.items():
        if any(np.array_equal(order, plan.order) for plan in race.plans):
            continue
        plan = _plan(problem, name, order, size)
        # Small trees see little of a column of many codes: with it, larger ones may be better.
        if not race.plans or name == EFFECTS:
            plan = replace(plan, boosting=_best_size(race, _coarse(plan, n_first)))
            size = size if race.plans else plan.boosting
        race.plans.append(_plan(problem, name, order, plan.boosting))
    race.coarse = [_coarse(plan, n_first) for plan in race.plans]
    if len(race.plans) > 1:
        race.scores(race.coarse, race.n_folds)
    return race


def _n_first(problem: CascadeProblem, orders: dict[str, Ints]) -> int:
    """First stages that comparisons look at one by one, where they differ much or the budget buys few of them."""
    asked, prices = _asked_budget(problem), problem.price_list.prices
    buys_few = asked is not None and asked < np.sort(prices[prices > 0])[:EFFECT_STEPS].sum()
    return EFFECT_STEPS if EFFECTS in orders or buys_few else int(CHEAP_FIRST in orders)


def _asked_budget(problem: CascadeProblem) -> float | None:
    """The budget of the fit, around which orders are compared; None where rows are too few for that."""
    return problem.budget if len(problem.table.codes) >= RACE_ROWS else None


def _find_orders(problem: CascadeProblem) -> dict[str, Ints]:
    """Every candidate order by name, each found in a thread of its own."""
    learner = Learner(problem.table, problem.task, problem.y, problem.weight, problem.price_list, ORDERING)
    _ = learner.gain_per_price_of_all  # cached, before each thread would compute it
    orders, ways = {}, ORDERS if problem.task.n_scores == 1 else ORDERS_OF_SEVERAL
    with ThreadPoolExecutor(problem.n_threads) as pool:
        jobs = {name: pool.submit(find, learner) for name, find in ways.items()}
        for name, job in jobs.items():
            orders[name] = _affordable(problem, learner.chance_last(job.result()))
            problem.progress("finding orders", len(orders), len(jobs))
    if len(problem.y) >= RACE_ROWS:
        found = by_code_effects(learner, list(orders.values()), problem.budget)
        orders |= {} if found is None else {EFFECTS: _affordable(problem, found)}
    return orders | _cheap_first(problem, learner, orders)


def _cheap_first(problem: CascadeProblem, learner: Learner, orders: dict[str, Ints]) -> dict[str, Ints]:
    """The first order with cheap purchases in front, where nothing is free and all begin with dear ones."""
    prices = problem.price_list.prices
    if problem.budget is not None or (prices == 0).any():
        return {}
    order, first = next(iter(orders.values())), min(float(prices[one[0]]) for one in orders.values())
    found = _by_price(order, learner, first / 2)
    return {} if np.array_equal(found, order) else {CHEAP_FIRST: found}


def _by_price(order: Ints, learner: Learner, limit: float) -> Ints:
    """Move purchases that cost at most ``limit`` to the front: of each level of prices those that gain something.

    A level is a factor of two; the cheapest comes first. Gains are those on held-out rows beside the cheaper purchases,
    and the best of a level is moved in any case: on few rows none may show a gain.
    """
    prices = learner.price_list.prices
    level, is_useful = np.floor(np.log2(prices / prices.min())), np.zeros(len(prices), dtype=bool)
    for one in np.unique(level[prices <= limit]):
        is_new = (level == one) & (prices <= limit)
        gain = learner.held_out_gain(np.flatnonzero(is_useful | is_new))
        is_useful |= is_new & ((gain > 0.0) | (gain == gain[is_new].max()))
    return order[np.argsort(np.where(is_useful, level, np.inf)[order], kind="stable")]


def nested_scores(
    problem: CascadeProblem, plan: Plan, n_trees: Sequence[int], raw: Floats
) -> tuple[Floats, Floats, Ints]:
    """Out-of-fold scores where the order, too, is found without the rows of the fold.

    The order of the plan was found on all rows: their labels had a say in which columns the first stages hold, so that
    ``raw``, their out-of-fold scores, are too good. Rows beyond ``NESTED_ROWS`` keep those. So do all
    rows of tables of ``RACE_ROWS`` or more, where nested scores are too low by more (reproduction/benchmarks.md).

    Returns
    -------
    scores : ndarray of shape (n_rows, n_stages, n_scores)
    costs : ndarray of shape (n_rows, n_stages + 1)
        Cost of each row at each stage and, last, at the full model.
    rows : ndarray of int
        The rows whose order was found without them.
    """
    task, table, y, weight = problem.task, problem.table, problem.y, problem.weight
    merged = merged_table(table)
    n_before = np.cumsum([0] + [len(fold) for fold in problem.folds])[:-1]
    wanted = NESTED_ROWS if len(y) < RACE_ROWS else 0
    folds = [fold for fold, before in zip(problem.folds, n_before, strict=True) if before < wanted]

    def score(fold: Ints) -> tuple[Floats, Floats]:
        rest = np.setdiff1d(np.arange(len(y)), fold)
        known = (merged.take(rest), task, y[rest], weight[rest], problem.price_list)
        learner = Learner(*known, NESTED_ORDERING)
        order = learner.chance_last(by_gain(learner))
        if plan.name == CHEAP_FIRST:
            order = _by_price(order, learner, float(prices[order[0]]) / 2)
        # Costs are comparable only where the first purchase is as cheap as that of the plan.
        order = _first_within(problem, order, float(prices[plan.order[:1]].sum()))
        sets = _plan(problem, plan.name, order, plan.boosting).sets
        costs = np.broadcast_to(problem.costs(sets), paid.shape)[fold]
        return score_fold(task, table, y, weight, fold, sets, plan.boosting, n_trees)[0], costs

    nested, n_places, prices = raw.copy(), len(plan.sets) + 1, problem.price_list.prices
    paid = np.broadcast_to(problem.costs(plan.sets), (len(y), n_places)).copy()
    with ThreadPoolExecutor(problem.n_threads) as pool:
        for fold, found in zip(folds, pool.map(score, folds), strict=True):
            nested[fold], paid[fold] = found
    return nested, paid, np.concatenate([np.empty(0, dtype=np.intp), *folds])


def _affordable(problem: CascadeProblem, order: Ints) -> Ints:
    """Move the first purchase that the budget affords to the front."""
    return order if problem.budget is None else _first_within(problem, order, problem.budget)


def _first_within(problem: CascadeProblem, order: Ints, limit: float) -> Ints:
    """Move the first purchase that costs at most ``limit`` to the front: where nothing is free, every row makes it."""
    prices = problem.price_list.prices
    if (prices == 0).any():
        return order
    within = np.flatnonzero(prices[order] <= limit)
    return order if not len(within) else np.r_[order[within[0]], np.delete(order, within[0])]


def _best_size(race: "Race", plan: Plan) -> Boosting:
    """Try sizes from that of the plan to the largest until one is no better than the one before."""
    sizes, progress = list(race.problem.capacities), race.problem.progress
    sizes = sizes[sizes.index(plan.boosting) :]
    min_z = MIN_Z_OF_SIZE if len(race.problem.y) >= RACE_ROWS else MIN_Z_OF_SIZE_ON_FEW_ROWS
    for number, (best, size) in enumerate(pairwise(sizes)):
        pair = [replace(plan, boosting=one) for one in (best, size)]
        lead = _lead(race, pair, 1)
        if MIN_Z_OF_FOLD < lead < CLEAR_Z_OF_FOLD:
            lead = _lead(race, pair, race.n_folds)
        if lead <= min_z:
            progress("comparing sizes", len(sizes), len(sizes))
            return best
        progress("comparing sizes", number + 2, len(sizes))
    return sizes[-1]


def _lead(race: "Race", plans: Sequence[Plan], n_folds: int) -> float:
    """z-score by which the second plan has a smaller loss, on the first folds."""
    seen = race.problem.take(race.rows(n_folds))
    losses, others = (_losses(seen, one) for one in race.scores(plans, n_folds))
    return z_score(losses - others, seen.weight)


def _plan(problem: CascadeProblem, name: str, order: Ints, boosting: Boosting) -> Plan:
    return Plan(name, order, nested_sets(order, problem.places, problem.price_list), boosting)


def _coarse(plan: Plan, n_first: int) -> Plan:
    """The first stages and every second one behind them: enough for a comparison."""
    n_sets = len(plan.sets)
    kept = [place for place in range(n_sets) if place < n_first or (n_sets - 1 - place) % 2 == 0]
    return replace(plan, sets=tuple(plan.sets[place] for place in kept))


def _best(race: "Race", problem: CascadeProblem) -> Plan:
    """The plan with the best mean held-out score over budgets; the first of equals."""
    if len(race.plans) == 1:
        return race.plans[0]
    # Means of the same answers may differ in their last digits: plans that are equally good must stay equal.
    scores, seen = race.scores(race.coarse, race.n_folds), problem.take(race.rows(race.n_folds))
    worths = [round(_worth(seen, plan, one), 9) for plan, one in zip(race.coarse, scores, strict=True)]
    return race.plans[int(np.argmax(worths))]


class Race:
    """Comparison of plans by out-of-fold scores of their stages, each computed once.

    Attributes
    ----------
    problem : CascadeProblem
        The problem, its table with merged bins.
    n_folds : int
        Folds that hold enough rows for a comparison.
    plans, coarse : list of Plan
        The candidates, and those with the stages that are compared.
    """

    def __init__(self, problem: CascadeProblem) -> None:
        n_held_out = np.cumsum([len(fold) for fold in problem.folds])
        self.problem, self.plans, self.coarse = problem, list[Plan](), list[Plan]()
        self.n_folds = int(np.searchsorted(n_held_out, min(RACE_ROWS, n_held_out[-1]))) + 1
        self._known: dict[tuple[str, Boosting, int], Floats] = {}

    def rows(self, n_folds: int) -> Ints:
        """The rows of the first folds."""
        return np.concatenate(self.problem.folds[:n_folds])

    def scores(self, plans: Sequence[Plan], n_folds: int) -> list[Floats]:
        """Scores of every plan's stages on the rows of the first folds, shape (n_rows, n_stages, n_scores)."""
        wanted = [(plan, fold) for plan in plans for fold in range(n_folds)]
        new = [one for one in wanted if _key(*one) not in self._known]
        with ThreadPoolExecutor(self.problem.n_threads) as pool:
            for one, scores in zip(new, pool.map(self._judge, new), strict=True):
                self._known[_key(*one)] = scores
        return [np.concatenate([self._known[_key(plan, fold)] for fold in range(n_folds)]) for plan in plans]

    def _judge(self, candidate: tuple[Plan, int]) -> Floats:
        (plan, fold), known = candidate, self.problem
        rows = (known.table, known.y, known.weight, known.folds[fold])
        return score_fold(known.task, *rows, plan.sets, plan.boosting)[0]


def _key(plan: Plan, fold: int) -> tuple[str, Boosting, int]:
    return plan.name, plan.boosting, fold


def _losses(seen: CascadeProblem, scores: Floats) -> Floats:
    """Mean loss over stages of each row."""
    _, calibrated = calibrate(seen.task, scores, seen.y, seen.weight)
    loss = seen.task.loss(seen.y)
    every = [loss.values(calibrated[:, stage]) for stage in range(scores.shape[1])]
    losses: Floats = np.column_stack(every).mean(axis=1)
    return losses


def _worth(seen: CascadeProblem, plan: Plan, scores: Floats) -> float:
    """Mean score over budgets, all or those around the budget of the fit."""
    task = seen.task
    _, calibrated = calibrate(task, scores, seen.y, seen.weight)
    last = calibrated[:, -1]
    weights = task.blend_weights(last, seen.full_scores, seen.y, seen.weight)
    belief = task.blended(weights, last, seen.full_scores)
    evidence, loss = stage_evidence(seen, seen.costs(plan.sets), calibrated, seen.full_scores, belief)
    policy = sweep_prices(evidence, loss, evidence.quality, n_prices=30)
    prices, total = seen.price_list.prices, seen.price_list.cost_of_everything
    low = float(prices[prices > 0].min()) if (prices > 0).any() else 0.1 * total
    if (asked := _asked_budget(seen)) is not None:
        low, total = np.clip([asked / NEAR, asked * NEAR], low, total)
    budgets = np.geomspace(low, total, RACE_BUDGETS)
    constant = task.constant_quality(seen.y, seen.weight)
    return float(policy.score_within(budgets, below=constant).mean())
