"""Choice of the order of purchases and of the size of the stages, by comparison on held-out rows.

The size is chosen first, with one order, by the mean log-loss of the stages, which separates sizes with fewer rows than
accuracy does. Then the order, with that size, by the mean score over budgets that grow by a constant factor, of a
cascade with the full model at its end: all budgets, or those around the budget of the fit.

Comparisons take a fraction of the work of the stages that serve: from 1,250 rows on neighbouring bins are merged, every
third stage is grown, and of many rows a sample is used.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from thrifty.arrays import Bools, Floats, Ints
from thrifty.learners.cascade.evaluation import (
    BEYOND_DOUBT,
    CLEARLY_BETTER,
    LEVEL,
    N_BUDGETS,
    Candidate,
    StageScores,
    calibrate,
    compare,
    stage_evidence,
)
from thrifty.learners.cascade.orders import (
    EFFECT_STEPS,
    ORDERS,
    ORDERS_OF_SEVERAL,
    Learner,
    by_code_effects,
    by_gain,
    merged_table,
)
from thrifty.learners.cascade.problem import (
    COMPARISON_ROWS,
    AnsweredProblem,
    CascadeProblem,
    Plan,
    TrainingSet,
)
from thrifty.learners.cascade.stages import grow_stages
from thrifty.learners.trees.boosting import Boosting
from thrifty.rows import uniforms
from thrifty.threads import workers

ORDERING = Boosting(n_trees=60, max_depth=6)
"""Trees from which an order is made (``benchmarks/small_budgets.py letters``: half of the trees with twice the step
lose up to half a point at 4 and 5)."""

NESTED_ORDERING = replace(ORDERING, n_trees=ORDERING.n_trees // 2)
"""Trees from which an order by gain is made, once for each fold (``benchmarks/promises.py``)."""

PLAN_ROWS, SAMPLE_SEED = 8_000, 12
"""Rows by which orders and sizes are found and compared (``benchmarks/fit_ratio.py letters madeup``)."""

EVERY = 3
"""Of so many stages comparisons look at one."""

MAX_COMPARED = 2
"""Sizes by the largest of which orders are compared (``benchmarks/small_budgets.py letters letters26 pol``)."""

NEAR = 1.5
"""Factor around the budget of a fit within which orders are compared (``benchmarks/small_budgets.py --asked 2``)."""

EFFECTS, CHEAP_FIRST = "code effects", "cheap first"


@dataclass(frozen=True, eq=False)
class PlanComparison:
    """Candidate plans with what a comparison needs of each; the full model was not asked.

    Attributes
    ----------
    plans, coarse : list of Plan
        The candidates, and those with the stages that are compared.
    rows : ndarray of int
        Held-out rows of the comparison.
    scores : list of ndarray of shape (n_rows, n_stages, n_scores)
        Out-of-fold scores of the stages of each coarse plan; none of a single plan.
    """

    plans: list[Plan]
    coarse: list[Plan]
    rows: Ints
    scores: list[Floats]


def choose_plan(problem: AnsweredProblem, comparison: PlanComparison | None = None) -> Plan:
    """The plan with the best mean held-out score over budgets; the first of equals.

    ``comparison`` is what ``find_plans`` returned, by default now.
    """
    comparison = find_plans(problem) if comparison is None else comparison
    plans, best = comparison.plans, 0
    if len(plans) > 1:
        held_out, budgets = problem.of_rows(comparison.rows), _compared_budgets(problem)
        pairs = zip(comparison.coarse, comparison.scores, strict=True)
        # Means of the same answers may differ in their last digits: plans that are equally good must stay equal.
        best = int(np.argmax([round(_mean_score(held_out, *pair, budgets), 9) for pair in pairs]))
    problem.progress("comparing orders", 1, 1)
    return plans[best]


def find_plans(problem: CascadeProblem) -> PlanComparison:
    """Candidate orders, with the size of a stage that is best for the first; the full model is not asked."""
    sampled, problem = _sample(problem)
    orders, cache = _find_orders(problem), _ScoreCache(problem)
    n_first, plans = _n_first(problem, orders), list[Plan]()
    for name, order in orders.items():
        if any(np.array_equal(order, plan.order) for plan in plans):
            continue
        plan = problem.plan(name, order, plans[0].boosting if plans else problem.capacities[0])
        # Small trees see little of a column of many codes: with it, larger ones may be better.
        if not plans or name == EFFECTS:
            plan = replace(plan, boosting=_best_size(cache, _coarse(plan, n_first)))
        plans.append(plan)
    coarse = [_coarse(plan, n_first) for plan in plans]
    sizes, compared = {plan.boosting for plan in plans}, problem.capacities[:MAX_COMPARED][-1]
    if len(sizes) == 1 and sizes <= set(problem.capacities[MAX_COMPARED:]):
        # Smaller trees tell orders apart in a fraction of the time.
        coarse = [replace(plan, boosting=compared) for plan in coarse]
    scores = cache.scores(coarse, cache.n_folds) if len(plans) > 1 else []
    return PlanComparison(plans, coarse, sampled[cache.rows(cache.n_folds)], scores)


def _sample(problem: CascadeProblem) -> tuple[Ints, CascadeProblem]:
    """Rows by which plans are found and compared, and the problem of these, with merged bins."""
    # By content, so that equal rows are all used or not at all; of several copies the first one.
    n_distinct = problem.n_rows // problem.n_copies
    is_used = uniforms(problem.table.codes, SAMPLE_SEED) < PLAN_ROWS / n_distinct
    is_used[n_distinct:] = False
    if problem.serves_without_held_out:
        is_used[problem.folds[0]] = True  # which decide, and are few
    rows, place = np.flatnonzero(is_used), np.cumsum(is_used) - 1
    if len(rows) == problem.n_rows:
        return rows, replace(problem, table=merged_table(problem.table))
    table, amounts = merged_table(problem.table.take(rows)), problem.amounts
    return rows, replace(
        problem,
        table=table,
        y=problem.y[rows],
        weight=problem.weight[rows] * problem.n_copies,
        n_copies=1,
        folds=[place[fold[is_used[fold]]] for fold in problem.folds],
        amounts=None if amounts is None else amounts[rows],
    )


# -- orders ----------------------------------------------------------------------------------------


def _find_orders(problem: CascadeProblem) -> dict[str, Ints]:
    """Every candidate order by name, each found in a thread of its own."""
    learner = Learner(problem, problem.price_list, ORDERING)
    _ = learner.gain_per_price_of_all  # cached, before each thread would compute it
    orders, ways = {}, ORDERS if problem.task.n_scores == 1 else ORDERS_OF_SEVERAL
    with workers(problem.n_threads) as pool:
        jobs = {name: pool.submit(find, learner) for name, find in ways.items()}
        for name, job in jobs.items():
            orders[name] = _first_within(learner, learner.chance_last(job.result()), problem.affordable)
            problem.progress("finding orders", len(orders), len(jobs))
    if problem.n_rows >= COMPARISON_ROWS:
        by_effects = by_code_effects(learner, list(orders.values()), problem.budget)
        orders |= (
            {} if by_effects is None else {EFFECTS: _first_within(learner, by_effects, problem.affordable)}
        )
    orders |= _cheap_first(problem, learner, orders)
    return {name: problem.cap_last(order) for name, order in orders.items()}


def _first_within(learner: Learner, order: Ints, affordable: Bools | None) -> Ints:
    """Begin with an affordable purchase, where nothing is free: every row makes the first one.

    Where the order begins with a dearer one, it is that of the largest gain per price among the affordable ones.
    """
    if affordable is None or not len(order) or affordable[order[0]]:
        return order
    within = np.sort(order[affordable[order]])
    if not len(within):
        return order
    first = within[np.argmax(learner.gain_per_price(within))]
    return np.r_[first, order[order != first]]


def _cheap_first(problem: CascadeProblem, learner: Learner, orders: dict[str, Ints]) -> dict[str, Ints]:
    """The first order with cheap purchases in front, where nothing is free and all begin with dear ones.

    Without it nothing is served for less than a dear first purchase (``benchmarks/small_budgets.py thyroid``: on one
    split of three .928, which is the larger class, instead of .953 at 10 and .979 at 20).
    """
    prices = problem.price_list.prices
    if problem.budget is not None or (prices == 0).any():
        return {}
    order, cheapest = next(iter(orders.values())), min(float(prices[some[0]]) for some in orders.values())
    cheap_first = _by_price(order, learner, cheapest / 2)
    return {} if np.array_equal(cheap_first, order) else {CHEAP_FIRST: cheap_first}


def _by_price(order: Ints, learner: Learner, limit: float) -> Ints:
    """Move purchases that cost at most ``limit`` to the front: of each level of prices those that gain something.

    A level is a factor of two; the cheapest comes first. Gains are those on held-out rows beside the cheaper purchases,
    and the best of a level is moved in any case: on few rows none may show a gain.
    """
    prices = learner.price_list.prices
    level, is_useful = np.floor(np.log2(prices / prices.min())), np.zeros(len(prices), dtype=bool)
    for number in np.unique(level[prices <= limit]):
        is_new = (level == number) & (prices <= limit)
        gain = learner.held_out_gain(np.flatnonzero(is_useful | is_new))
        is_useful |= is_new & ((gain > 0.0) | (gain == gain[is_new].max()))
    return order[np.argsort(np.where(is_useful, level, np.inf)[order], kind="stable")]


# -- sizes -----------------------------------------------------------------------------------------


def _best_size(cache: "_ScoreCache", plan: Plan) -> Boosting:
    """Try sizes from that of the plan to the largest until one is no better than the one before."""
    sizes, progress = list(cache.problem.capacities), cache.problem.progress
    sizes = sizes[sizes.index(plan.boosting) :]
    # Accuracy gains more by a larger size than the loss: with many rows the least loss is enough.
    min_z = 0.0 if cache.problem.n_rows >= COMPARISON_ROWS else CLEARLY_BETTER
    for number, (best, size) in enumerate(pairwise(sizes)):
        pair = [replace(plan, boosting=boosting) for boosting in (size, best)]
        lead = _lead(cache, pair, 1)
        if -LEVEL <= lead < BEYOND_DOUBT:
            lead = _lead(cache, pair, cache.n_folds)
        if lead <= min_z:
            progress("comparing sizes", len(sizes), len(sizes))
            return best
        progress("comparing sizes", number + 2, len(sizes))
    return sizes[-1]


def _lead(cache: "_ScoreCache", plans: Sequence[Plan], n_folds: int) -> float:
    """z-score by which the first of two plans has a smaller mean loss over stages, on the first folds."""
    rows = cache.problem.take(cache.rows(n_folds))
    gains, others = (_mean_gain(rows, scores) for scores in cache.scores(plans, n_folds))
    return compare(gains, others, rows.weight)


def _mean_gain(rows: TrainingSet, scores: Floats) -> Floats:
    """Minus the mean loss over stages of each row."""
    _, calibrated = calibrate(rows, scores)
    losses = [rows.loss.values(calibrated[:, stage]) for stage in range(scores.shape[1])]
    mean: Floats = np.column_stack(losses).mean(axis=1)
    return -mean


# -- comparison ------------------------------------------------------------------------------------


def _mean_score(problem: AnsweredProblem, plan: Plan, scores: Floats, budgets: Floats) -> float:
    """Mean score over budgets of a cascade with the full model, blended, at its end."""
    task, full = problem.task, problem.full_scores
    calibrations, calibrated = calibrate(problem, scores)
    last = calibrated[:, -1]
    blend = task.blend_weights(last, full, problem.y, problem.weight)
    belief = task.blended(blend, last, full)
    evidence, loss = stage_evidence(problem, problem.costs(plan.sets), calibrated, full, belief)
    policy = Candidate(evidence, loss, calibrations, blend).policy()
    constant = task.constant_quality(problem.y, problem.weight)
    return float(policy.score_within(budgets, below=constant).mean())


def _compared_budgets(problem: CascadeProblem) -> Floats:
    """Budgets by which orders are compared: all, or those around the budget of the fit."""
    prices, total = problem.price_list.prices, problem.price_list.cost_of_everything
    low = float(prices[prices > 0].min()) if (prices > 0).any() else 0.1 * total
    if (asked := _asked_budget(problem)) is not None:
        low, total = np.clip([asked / NEAR, asked * NEAR], low, total)
    return np.geomspace(low, total, N_BUDGETS)


def _asked_budget(problem: CascadeProblem) -> float | None:
    """The budget of the fit, around which orders are compared; None where rows are too few for that."""
    return problem.budget if problem.n_rows >= COMPARISON_ROWS else None


def _n_first(problem: CascadeProblem, orders: dict[str, Ints]) -> int:
    """First stages that comparisons look at one by one, where they differ much or the budget buys few of them."""
    asked, prices = _asked_budget(problem), problem.price_list.prices
    buys_few = asked is not None and asked < np.sort(prices[prices > 0])[:EFFECT_STEPS].sum()
    return EFFECT_STEPS if EFFECTS in orders or buys_few else int(CHEAP_FIRST in orders)


def _coarse(plan: Plan, n_first: int) -> Plan:
    """The plan with its first stages and some of those behind them: enough for a comparison."""
    n_sets = len(plan.sets)
    kept = [place for place in range(n_sets) if place < n_first or (n_sets - 1 - place) % EVERY == 0]
    return replace(plan, sets=tuple(plan.sets[place] for place in kept))


class _ScoreCache:
    """Out-of-fold scores of the stages of plans, each computed once.

    Attributes
    ----------
    problem : CascadeProblem
        The problem, its table with merged bins.
    n_folds : int
        Folds that hold enough rows for a comparison.
    """

    def __init__(self, problem: CascadeProblem) -> None:
        n_held_out = np.cumsum([len(fold) for fold in problem.folds])
        self.problem = problem
        self.n_folds = int(np.searchsorted(n_held_out, min(COMPARISON_ROWS, n_held_out[-1]))) + 1
        self._scores: dict[tuple[str, Boosting, int], Floats] = {}

    def rows(self, n_folds: int) -> Ints:
        """The rows of the first folds."""
        return np.concatenate(self.problem.folds[:n_folds])

    def scores(self, plans: Sequence[Plan], n_folds: int) -> list[Floats]:
        """Scores of every plan's stages on the rows of the first folds, shape (n_rows, n_stages, n_scores)."""
        keys = {(plan.name, plan.boosting, fold): plan for plan in plans for fold in range(n_folds)}
        missing = [key for key in keys if key not in self._scores]

        def score(key: tuple[str, Boosting, int]) -> Floats:
            plan, fold = keys[key], self.problem.folds[key[-1]]
            return grow_stages(self.problem, plan.sets, plan.boosting, held_out=fold).held_out

        with workers(self.problem.n_threads) as pool:
            self._scores |= zip(missing, pool.map(score, missing), strict=True)
        return [
            np.concatenate([self._scores[plan.name, plan.boosting, fold] for fold in range(n_folds)])
            for plan in plans
        ]


# -- orders without the rows that evaluate them ----------------------------------------------------


def nested_scores(
    problem: AnsweredProblem, plan: Plan, n_trees: Sequence[int], scores: StageScores
) -> StageScores | None:
    """Out-of-fold scores where the order, too, is found without the rows of the fold, and costs along that order.

    The order of the plan was found on all rows: their labels had a say in which columns the first stages hold, so that
    ``scores``, those of the plan, are too good. With many rows nested scores are too low by more: None from
    ``COMPARISON_ROWS`` on.
    """
    if problem.n_rows >= COMPARISON_ROWS:
        return None
    prices = problem.price_list.prices
    affordable = None if (prices == 0).any() else prices <= prices[plan.order[:1]].sum()
    nested = np.empty_like(scores.out_of_fold)
    costs = np.empty((problem.n_rows, len(plan.sets) + 1))

    def score(fold: Ints) -> None:
        rest = np.setdiff1d(np.arange(problem.n_rows), fold)
        learner = Learner(problem.take(rest), problem.price_list, NESTED_ORDERING)
        order = learner.chance_last(by_gain(learner))
        if plan.name == CHEAP_FIRST:
            order = _by_price(order, learner, float(prices[order[0]]) / 2)
        # Costs are comparable only where the first purchase is as cheap as that of the plan.
        sets = problem.plan(plan.name, _first_within(learner, order, affordable), plan.boosting).sets
        nested[fold] = grow_stages(problem, sets, plan.boosting, n_trees=n_trees, held_out=fold).held_out
        costs[fold] = np.broadcast_to(problem.costs(sets), costs.shape)[fold]

    with workers(problem.n_threads) as pool:
        list(pool.map(score, problem.folds))
    return replace(scores, out_of_fold=nested, tied=nested[:, :0], costs=costs, sets=None)
