"""Rows and settings of the learning of a cascade, and plans: an order of purchases with the stages along it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Literal

import numpy as np

from thrifty.arrays import Bools, Floats, Ints
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.tasks.task import Loss, Task
from thrifty.engine.trees import BinnedTable
from thrifty.engine.walk.policy import SLACK
from thrifty.learners.trees.boosting import Boosting
from thrifty.progress import Progress, silent
from thrifty.rows import content_folds

CAPACITIES = (
    Boosting(n_trees=30, max_depth=4, learning_rate=0.1, l2=5.0, min_child_weight=3.0),
    Boosting(n_trees=50, max_depth=6, learning_rate=0.2, l2=5.0),
    Boosting(n_trees=100, max_depth=10, learning_rate=0.15, l2=5.0),
)
"""Sizes of a stage to choose from, out of fold (``benchmarks/frontier.py``; the larger ones by the loss on held-out
rows of eight tables of ``benchmarks/small_budgets.py``).

Few trees of large steps: the next stage shrinks the scores and mends what they overdo. The smallest, for few rows and
noisy targets, has a least weight of a leaf; larger trees lose more by it than they gain.
"""

MIN_ROWS_OF_SIZES = (0, 1_000, 1_500)
"""Rows from which on each size is tried: on fewer it would win by chance (``benchmarks/frontier.py``: heart, pima and
hepatitis)."""

MAX_STAGES = 16
"""Most places along an order where a row may stop, by default (no command chose it)."""

EVERY_PLACE = 7
"""First purchases after each of which a row may stop where purchases are many, and by which a tree is compared first
(no command chose it)."""

MAX_PURCHASES = 400
"""Most purchases of stages, or one for four rows if these are more: the full model makes the others
(for the time of 100 x 10,000 in ``benchmarks/first_fit.py``)."""

COMPARISON_ROWS = 1_250
"""Held-out rows wanted for a comparison, which takes as many folds as provide them.

From so many rows on, too, purchases without held-out gain come last, comparisons look at the budget of the fit and at
merged bins (``benchmarks/small_budgets.py``), and expected scores are not corrected for the order
(``benchmarks/promises.py --rows 1000 2000``).
"""

SEARCH_ROWS = 6_000
"""Rows on which trees are grown that are many: those of every purchase in a search, or of every stage and fold
(no command chose it)."""

FEW_HELD_OUT = 0.05
"""Share of the rows up to which those that are held out are not worth growing stages once more, with them
(``benchmarks/fit_ratio.py many``; a twelfth of 60,000 rows of covertype loses .1 to .3 points)."""

MAIN_WEIGHT = 5.0
"""Weight of one of several resources against each other one, at the other exchange rates (no command chose it)."""

EVALUATION_FOLDS, EVALUATION_SEED = 4, 500
"""Folds by which gates, blends and comparisons are cross-fitted where only some of the rows are held out."""

Structure = Literal["line", "tree", "auto"]
"""One order for all rows ("line"), a tree of purchases ("tree"), or whichever of both is better ("auto")."""


def slower(size: Boosting) -> Boosting:
    """The same size with more trees of smaller steps, for numbers (``benchmarks/small_budgets.py pol bike_hour``)."""
    return replace(size, n_trees=3 * size.n_trees // 2, learning_rate=size.learning_rate / 1.5)


def lighter(size: Boosting) -> Boosting:
    """The same size with smaller penalties, for few rows (``benchmarks/choices.py penalties`` of 0.3).

    The usual ones halve the values of leaves of about ten rows: right for noisy labels, wrong for others.
    """
    return replace(size, l2=1.0, min_child_weight=1.0)


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Rows to learn from.

    Attributes
    ----------
    task : Task
        What is predicted.
    table : BinnedTable
        Rows, all columns.
    y, weight : ndarray of shape (n_rows,)
        Targets, as the task encodes them, and weights.
    """

    task: Task
    table: BinnedTable
    y: Floats
    weight: Floats

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.y)

    @cached_property
    def loss(self) -> Loss:
        """Loss of scores of all rows."""
        return self.task.loss(self.y)

    def take(self, rows: Ints | Bools) -> "TrainingSet":
        """Training set of some rows, by number or by mask."""
        return TrainingSet(self.task, self.table.take(rows), self.y[rows], self.weight[rows])


@dataclass(frozen=True, eq=False, kw_only=True)
class CascadeProblem(TrainingSet):
    """Training data and settings of a cascade.

    Attributes
    ----------
    folds : sequence of ndarray
        Rows of each fold that is held out.
    price_list : PriceList
        Prices.
    amounts : ndarray of shape (n_rows, n_row_prices), optional
        What each row pays for the purchases whose price differs by row.
    capacities : sequence of Boosting
        Sizes of a stage to choose from.
    n_stages : int, optional
        Places along the order; None is chosen from the number of purchases.
    structure : {"line", "tree", "auto"}
        Whether all rows buy in one order.
    max_bytes : int, optional
        Bytes that the trees of all stages may take in a file.
    budget : float, optional
        Wanted mean cost: every order begins with a purchase that it affords.
    limits : ndarray of shape (n_resources,), optional
        Wanted mean cost in each of several resources, infinite where any is.
    cap : ndarray of shape (n_resources,), optional
        What no row may spend in each resource, infinite where any is; of one resource its cap.
    n_repeats : int
        Repeats of cross-validation, of which ``folds`` is the first.
    n_copies : int
        Copies of each row, one after another, in which cells that were not bought were completed.
    n_threads : int
        Number of folds that are fitted in parallel.
    progress : callable
        Called as ``progress(what, done, total)``.
    """

    folds: Sequence[Ints]
    price_list: PriceList
    amounts: Floats | None = None
    capacities: Sequence[Boosting] = CAPACITIES
    n_stages: int | None = None
    structure: Structure = "line"
    max_bytes: int | None = None
    budget: float | None = None
    limits: Floats | None = None
    cap: Floats | None = None
    n_repeats: int = 1
    n_copies: int = 1
    n_threads: int = 1
    progress: Progress = silent

    @property
    def serves_without_held_out(self) -> bool:
        """True if so few rows are held out that the trees which have not seen them serve."""
        return len(self.folds) == 1 and len(self.folds[0]) <= FEW_HELD_OUT * self.n_rows

    @property
    def places(self) -> Ints:
        """Numbers of purchases after which a row may stop."""
        n_purchases = int((self.price_list.prices > 0).sum())
        n_purchases = min(n_purchases, max(MAX_PURCHASES, self.n_rows // 4))
        return stopping_places(n_purchases, MAX_STAGES if self.n_stages is None else self.n_stages)

    @property
    def affordable(self) -> Bools | None:
        """Mask of the purchases that fit into the budget; None without one, or where something is free."""
        prices, resources = self.price_list.prices, self.price_list.resources
        if self.budget is None or (prices == 0).any():
            return None
        if resources is None or self.limits is None:
            return prices <= self.budget
        return np.all(
            [each.prices <= most for each, most in zip(resources.lists, self.limits, strict=True)], axis=0
        )

    def cap_last(self, order: Ints) -> Ints:
        """An order in which purchases come last that do not fit under the cap beside those in front of them."""
        if self.cap is None:
            return order
        prices, held, later = self.price_list, list[int](), list[int]()
        free = np.flatnonzero(prices.prices == 0).tolist()
        resources = prices.resources
        lists, delays = ((prices,), ()) if resources is None else (resources.lists, resources.delays)
        is_delay = [False] if resources is None else [name in delays for name in resources.names]
        for purchase in order.tolist():
            columns = np.flatnonzero(np.isin(prices.group_of, [*free, *held, purchase]))
            # Purchases that are ordered together wait as long as the slowest one.
            costs = [
                each.prices[purchase] if waits else each.cost_of(columns)
                for each, waits in zip(lists, is_delay, strict=True)
            ]
            (held if np.all(np.array(costs) <= self.cap * (1 + SLACK)) else later).append(purchase)
        return np.array([*held, *later], dtype=np.intp)

    def at_other_rates(self) -> "list[CascadeProblem]":
        """The problem at other exchange rates, at each of which one resource with a budget counts most."""
        resources, limits = self.price_list.resources, self.limits
        if resources is None or limits is None or np.isfinite(limits).sum() < 2:
            return []
        weights = 1.0 + (MAIN_WEIGHT - 1.0) * np.eye(len(limits))[np.isfinite(limits)]
        rates = [resources.rates_for(limits, each) for each in weights]
        return [replace(self, price_list=resources.at_rates(each)) for each in rates]

    def plan(self, name: str, order: Ints, boosting: Boosting) -> "Plan":
        """The plan of an order of purchases."""
        return Plan(name, order, nested_sets(order, self.places, self.price_list), boosting)

    def with_full(self, scores: Floats, behind: "NextChainRoutes | None" = None) -> "AnsweredProblem":
        """The problem with out-of-fold scores of the full model and, where it is a chain, the routes of the rows."""
        settings = {field.name: getattr(self, field.name) for field in fields(CascadeProblem)}
        return AnsweredProblem(**settings, full_scores=scores, behind=behind)


@dataclass(frozen=True, eq=False, kw_only=True)
class AnsweredProblem(CascadeProblem):
    """A problem with the answers of the cross-fitted full model.

    Attributes
    ----------
    full_scores : ndarray of shape (n_rows, n_scores)
        Out-of-fold scores of the full model.
    behind : NextChainRoutes, optional
        Routes of the rows behind the last stage, if a chain is used as the full model.
    """

    full_scores: Floats
    behind: "NextChainRoutes | None" = None

    @cached_property
    def evaluated_rows(self) -> Ints:
        """Rows that some fold holds out."""
        return np.sort(np.concatenate(self.folds))

    @cached_property
    def evaluated(self) -> "AnsweredProblem":
        """The problem of the rows that some fold holds out, parted into folds anew where these are not all rows."""
        rows = self.evaluated_rows
        if len(rows) == self.n_rows:
            return self
        first = rows[: len(rows) // self.n_copies]  # the copies of a row are in one fold
        strata = self.task.strata(self.y[first])
        fold_of = content_folds(self.table.codes[first], strata, EVALUATION_FOLDS, EVALUATION_SEED)
        fold_of = np.tile(fold_of, self.n_copies)
        return self.of_rows(rows, [np.flatnonzero(fold_of == fold) for fold in range(EVALUATION_FOLDS)])

    def costs(self, sets: Sequence[Ints]) -> Floats:
        """Cost of a row at each stage and, last, at the full model; per row where that differs."""
        prices = self.price_list
        if self.amounts is not None:
            return self._costs_by_row(sets, self.amounts)
        paid = [prices.cost_of(columns) if len(columns) else 0.0 for columns in sets]
        if self.behind is None:
            return np.array([*paid, prices.cost_of_route(sets[-1])])
        beyond = self.behind.cost(prices, sets[-1], None)
        return np.column_stack([np.tile(paid, (len(beyond), 1)), beyond])

    def _costs_by_row(self, sets: Sequence[Ints], amounts: Floats) -> Floats:
        """Cost of each row at each stage and at the full model, where prices differ by row."""
        prices = self.price_list
        held = np.zeros((len(sets) + 1, prices.n_features), dtype=bool)
        for place, columns in enumerate(sets):
            held[place, columns] = True
        held[-1, np.union1d(sets[-1], prices.read_by_full)] = True
        asks_full = np.arange(len(held)) == len(sets)
        places = [slice(place, place + 1) for place in range(len(held))]
        paid = [prices.cost_of_rows(held[place], asks_full[place], amounts) for place in places]
        if self.behind is not None:
            paid[-1] = self.behind.cost(prices, sets[-1], amounts)
        # A place that buys nothing by row costs every row the same.
        return np.column_stack([np.broadcast_to(cost, len(amounts)) for cost in paid])

    def by_resource(self, costs_of: Callable[["AnsweredProblem"], Floats]) -> Floats | None:
        """Costs in each of several resources along the last axis; None where there is one."""
        resources = self.price_list.resources
        if resources is None:
            return None
        return np.stack([costs_of(replace(self, price_list=each)) for each in resources.lists], axis=-1)

    def rounds(self, sets: Sequence[Ints]) -> Floats | None:
        """Costs of making the purchases of several stages together; None where no resource is a delay."""
        resources = self.price_list.resources
        if resources is None or not resources.delays:
            return None
        held = np.zeros((len(sets) + 1, self.price_list.n_features), dtype=bool)
        for place, columns in enumerate(sets):
            held[place:, columns] = True
        held[-1, self.price_list.read_by_full] = True
        return resources.rounds(held)

    def costs_at(self, levels: Sequence[Sequence[Ints]], node: Ints) -> Floats:
        """The same for rows at nodes, by the columns of the nodes of each level: (n_rows, n_levels + 1)."""
        paid = np.empty((len(node), len(levels) + 1))
        for place, sets in enumerate(levels):
            for number, columns in enumerate(sets):
                at_node = node[:, place] == number
                costs = np.broadcast_to(self.costs([columns]), (len(node), 2))
                paid[at_node, place] = costs[at_node, 0]
        paid[:, -1] = np.broadcast_to(self.costs([levels[-1][0]]), (len(node), 2))[:, -1]
        return paid

    def of_rows(self, rows: Ints, folds: Sequence[Ints] = ()) -> "AnsweredProblem":
        """The problem of some rows, perhaps repeated, with their folds."""
        return replace(
            self,
            table=self.table.take(rows),
            y=self.y[rows],
            weight=self.weight[rows],
            n_copies=1,
            folds=folds,
            full_scores=self.full_scores[rows],
            behind=None if self.behind is None else replace(self.behind, route=self.behind.route[rows]),
            amounts=None if self.amounts is None else self.amounts[rows],
        )


@dataclass(frozen=True, eq=False)
class NextChainRoutes:
    """Routes of the training rows in a chain used as the full model.

    Attributes
    ----------
    route : ndarray of shape (n_rows,)
        The place in that chain that answers each row.
    bought : ndarray of shape (n_places, n_features), bool
        Columns that a row holds there; the last place is the full model.
    """

    route: Ints
    bought: Bools

    def cost(self, prices: PriceList, held: Ints, amounts: Floats | None) -> Floats:
        """Total cost of each row that holds some columns and then follows its route, at its own prices if given."""
        bought = self.bought.copy()
        bought[:, held] = True
        asks_full = np.arange(len(bought)) == len(bought) - 1
        if amounts is not None:
            return prices.cost_of_rows(bought[self.route], asks_full[self.route], amounts)
        return prices.cost_of_rows(bought, asks_full)[self.route]


@dataclass(frozen=True, eq=False)
class Plan:
    """An order of purchases by name, the columns of each stage along it, and the size of the stages."""

    name: str
    order: Ints
    sets: tuple[Ints, ...]
    boosting: Boosting


def stopping_places(n_purchases: int, max_places: int) -> Ints:
    """Numbers of purchases after which a row may stop: each if they are few, else the first, some others and the last.

    Where these would be more than ``max_places``, some are left out evenly; the first and the last stay.
    """
    if n_purchases <= max_places:
        return np.arange(1, n_purchases + 1, dtype=np.intp)
    places = list(range(1, min(n_purchases, EVERY_PLACE) + 1))
    while places and places[-1] < n_purchases:
        step = max(1, round(places[-1] / 4))
        places.append(min(n_purchases, places[-1] + step))
    if len(places) > max_places:
        kept = np.unique(np.round(np.linspace(0, len(places) - 1, max_places)).astype(int))
        places = [places[place] for place in kept] if max_places > 1 else [places[-1]]
    return np.array(places, dtype=np.intp)


def nested_sets(order: Ints, places: Sequence[int] | Ints, price_list: PriceList) -> tuple[Ints, ...]:
    """Columns of each stage: what is free, then the columns of the first purchases, in their order.

    Where something is free, there is a stage in front that holds only that.
    """
    group_of = price_list.group_of
    free = np.flatnonzero(price_list.prices[group_of] == 0)
    in_order = [np.flatnonzero(group_of == purchase) for purchase in order]
    sets = [np.concatenate([free, *in_order[:place]]).astype(np.intp) for place in places]
    return (free, *sets) if len(free) else tuple(sets)
