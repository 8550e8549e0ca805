"""Data and settings of the learning of a cascade, and out-of-fold evidence of its stages."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from thrifty.arrays import Bools, Floats, Ints, Numbers
from thrifty.engine.evidence.evidence import Evidence
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.tasks.task import Task
from thrifty.engine.trees import BinnedTable
from thrifty.learners.cascade.orders import stopping_places
from thrifty.learners.trees.boosting import Boosting
from thrifty.progress import Progress, silent

__all__ = [
    "CAPACITIES",
    "CascadeProblem",
    "NextChainRoutes",
    "Plan",
    "calibrate",
    "lighter",
    "stage_evidence",
    "z_score",
]

CAPACITIES = (
    Boosting(n_trees=60, max_depth=4, learning_rate=0.05, l2=5.0, min_child_weight=3.0),
    Boosting(n_trees=100, max_depth=6, l2=5.0, min_child_weight=3.0),
    Boosting(n_trees=150, max_depth=10, l2=5.0),
)
"""Sizes of a stage to choose from, out of fold."""

MAX_STAGES = 16

MAX_PURCHASES = 400
"""Purchases that stages make at most, or one for four rows if these are more: the full model makes the others."""

Structure = Literal["line", "neighbours", "auto"]
"""One order for all rows ("line"), orders by row ("neighbours"), or a line or branches, as is better ("auto")."""


def lighter(size: Boosting) -> Boosting:
    """The same size with smaller penalties, for few rows.

    The usual ones halve the values of leaves of about ten rows: right for noisy labels, wrong for others.
    """
    return replace(size, l2=1.0, min_child_weight=1.0)


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
class CascadeProblem:
    """Training data and settings of a cascade.

    Attributes
    ----------
    table : BinnedTable
        Rows, all columns.
    task : Task
        What is predicted.
    y, weight : ndarray of shape (n_rows,)
        Targets, as the task encodes them, and weights.
    folds : sequence of ndarray
        Rows of each fold.
    full_scores : ndarray of shape (n_rows, n_scores)
        Out-of-fold scores of the full model.
    behind : NextChainRoutes, optional
        Routes of the rows behind the last stage, if a chain is used as the full model.
    price_list : PriceList
        Prices.
    amounts : ndarray of shape (n_rows, n_row_prices), optional
        What each row pays for the purchases whose price differs by row.
    capacities : sequence of Boosting
        Sizes of a stage to choose from.
    n_stages : int, optional
        Places along the order; None is chosen from the number of purchases.
    structure : {"line", "neighbours", "auto"}
        Whether all rows buy in one order.
    n_threads : int
        Number of folds that are fitted in parallel.
    progress : callable
        Called as ``progress(what, done, total)``.
    max_bytes : int, optional
        Bytes that the trees of all stages may take in a file.
    budget : float, optional
        Wanted mean cost: every order begins with a purchase that it affords.
    n_repeats : int
        Repeats of cross-validation, of which ``folds`` is the first.
    """

    table: BinnedTable
    task: Task
    y: Floats
    weight: Floats
    folds: Sequence[Ints]
    full_scores: Floats
    price_list: PriceList
    capacities: Sequence[Boosting] = CAPACITIES
    n_stages: int | None = None
    n_threads: int = 1
    progress: Progress = silent
    behind: NextChainRoutes | None = None
    amounts: Floats | None = None
    max_bytes: int | None = None
    structure: Structure = "line"
    budget: float | None = None
    n_repeats: int = 1

    @property
    def places(self) -> Ints:
        """After how many purchases a row may stop."""
        n_purchases = int((self.price_list.prices > 0).sum())
        if self.structure != "neighbours":
            n_purchases = min(n_purchases, max(MAX_PURCHASES, self.table.n_rows // 4))
        return stopping_places(n_purchases, MAX_STAGES if self.n_stages is None else self.n_stages)

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
        paid = [prices.cost_of_rows(held[one], asks_full[one], amounts) for one in places]
        if self.behind is not None:
            paid[-1] = self.behind.cost(prices, sets[-1], amounts)
        # A place that buys nothing by row costs every row the same.
        return np.column_stack([np.broadcast_to(one, len(amounts)) for one in paid])

    def costs_by_node(self, levels: Sequence[Sequence[Ints]], node: Ints) -> Floats:
        """The same for rows at a node of each level: (n_rows, n_levels + 1)."""
        paid = np.empty((len(node), len(levels) + 1))
        for place, sets in enumerate(levels):
            for number, columns in enumerate(sets):
                here = node[:, place] == number
                costs = np.broadcast_to(self.costs([columns]), (len(node), 2))
                paid[here, place] = costs[here, 0]
        paid[:, -1] = np.broadcast_to(self.costs([levels[-1][0]]), (len(node), 2))[:, -1]
        return paid

    def take(self, rows: Ints) -> "CascadeProblem":
        """The targets and the full model's answers of some rows; the table stays whole."""
        return replace(
            self,
            y=self.y[rows],
            weight=self.weight[rows],
            full_scores=self.full_scores[rows],
            behind=None if self.behind is None else replace(self.behind, route=self.behind.route[rows]),
            amounts=None if self.amounts is None else self.amounts[rows],
        )


@dataclass(frozen=True, eq=False)
class Plan:
    """An order of purchases by name, the columns of each stage along it, and the size of the stages."""

    name: str
    order: Ints
    sets: tuple[Ints, ...]
    boosting: Boosting


def calibrate(task: Task, scores: Floats, y: Floats, weight: Floats) -> tuple[list[Floats], Floats]:
    """Calibration of each stage, and the calibrated scores, shape (n_rows, n_stages, n_scores)."""
    stages = range(scores.shape[1])
    found = [task.calibrate(scores[:, stage], y, weight) for stage in stages]
    calibrated = np.empty_like(scores)
    for stage in stages:
        calibrated[:, stage] = task.calibrated(scores[:, stage], found[stage])
    return found, calibrated


def z_score(gains: Floats, weight: Floats) -> float:
    """z-score of the mean gain: mean over standard error; a row of weight two counts as two rows."""
    mean = float(np.average(gains, weights=weight))
    spread = float(np.sqrt(np.average(np.square(gains - mean), weights=weight) / weight.sum()))
    return mean / max(spread, 1e-12)


def stage_evidence(
    problem: CascadeProblem, costs: Floats, scores: Floats, answer: Floats, belief: Floats
) -> tuple[Evidence, Floats]:
    """Evidence of every stage and, last, of the full model (blended or not), on held-out rows, and expected losses.

    The expected loss of an answer is its probability of being wrong by the best available belief, not whether the row's
    label contradicts it. Both have the same mean, but the first varies far less: thresholds fitted to a few lucky
    labels would not generalise.

    Parameters
    ----------
    costs : ndarray of shape (n_stages + 1,) or (n_rows, n_stages + 1)
        Cost of a row at each stage and, last, at the full model.
    scores : ndarray of shape (n_rows, n_stages, n_scores)
        Calibrated scores of the stages.
    answer, belief : ndarray of shape (n_rows, n_scores)
        Scores of the answer with the full model, and of the best belief.
    """
    task = problem.task
    every = [*(scores[:, stage] for stage in range(scores.shape[1])), answer]
    quality: Numbers = np.column_stack([task.quality_of_scores(problem.y, one) for one in every])  # type: ignore[assignment]  # numpy widens a union
    loss = np.column_stack([task.expected_loss(one, belief) for one in every])
    gate = np.column_stack([task.uncertainty(one) for one in every[:-1]])
    evidence = Evidence(
        gate,
        quality,
        costs,
        weight=problem.weight,
        target=problem.y,
        scores=np.stack(every, axis=1),
        tolerance=task.tolerance,
    )
    return evidence, loss
