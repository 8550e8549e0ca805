"""What a cascade is learned from, and what stages are worth on rows that their models have not seen."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from thrifty.arrays import Bools, Floats, Ints
from thrifty.evidence.stopping import Evidence
from thrifty.learning.cascade.orders import stopping_places
from thrifty.learning.pairs.boosted import Boosting
from thrifty.objective.costs import PriceList
from thrifty.tasks.calibration import platt
from thrifty.trees import BinnedTable

__all__ = ["CAPACITIES", "CascadeProblem", "Plan", "Progress", "calibrate", "judge_stages", "silent"]


Progress = Callable[[str, int, int], object]
"""Called as ``progress(what, done, total)``."""


def silent(what: str, done: int, total: int) -> None:
    """Progress that nobody asked for."""


CAPACITIES = (
    Boosting(n_trees=60, max_depth=4, learning_rate=0.05, l2=5.0, min_child_weight=3.0),
    Boosting(n_trees=100, max_depth=6, l2=5.0, min_child_weight=3.0),
    Boosting(n_trees=150, max_depth=10, l2=5.0),
)
"""Sizes of a stage to choose from, out of fold."""

MOST_STAGES = 16


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
    progress : callable
        Told what is done.
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
    progress: Progress = silent

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


def calibrate(scores: Floats, y: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Slope and intercept of each stage's sigmoid, and the log-odds they make."""
    sigmoids = np.array([platt(score, y, weight) for score in scores.T])
    return sigmoids, scores * sigmoids[:, 0] + sigmoids[:, 1]


def judge_stages(
    problem: CascadeProblem, sets: Sequence[Ints], log_odds: Floats, answer: Floats, belief: Floats
) -> tuple[Evidence, Bools]:
    """Gates, losses and right answers of every stage and, last, of f0 (blended or not), on held-out rows.

    The loss of an answer is not whether the row's label contradicts it but the probability, by the best belief there
    is, that it does. Both have the same mean; the second varies far less, and thresholds that are cut where a
    few lucky labels lie do not last.
    """
    every = np.column_stack([log_odds, answer])
    right = (every > 0) == (problem.y > 0)[:, None]
    wrong = np.where(every > 0, expit(-belief)[:, None], expit(belief)[:, None])
    return Evidence(-np.abs(log_odds), wrong, problem.costs(sets), problem.weight), right
