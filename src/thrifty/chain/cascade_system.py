"""What serves a cascade: one ensemble that grows from stage to stage, and a threshold at each.

A row enters at the first stage. Each stage buys its columns, adds its trees to the row's running score, and either
answers or, if its gate's score exceeds the threshold, sends the row on with that score; f0 is the last. A row
that reaches f0 has paid for everything, so its answer may blend f0 with the ensemble's own score.

The thresholds of every operating point are kept, so another point is a matter of two numbers. Between two points
chance decides whose thresholds a row follows: a fixed function of the row, of all its columns where a table is at hand.
What a row holds at the stage where the two differ would not do: after one purchase many rows hold the same, and a lump
of rows that all go on or all stop cannot spend a budget exactly. A source knows rows by their number, so nothing is
bought in order to decide.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from joblib import cpu_count
from numpy.typing import NDArray
from scipy.special import expit, logit

from thrifty.arrays import Bools, Floats, Ints
from thrifty.chain.serving import Serving, Walk
from thrifty.chain.sources import Reader
from thrifty.full.model import FullModel, clip_probability
from thrifty.objective.costs import PriceList
from thrifty.rows import uniforms
from thrifty.trees import TreeEnsemble

__all__ = ["CascadeStep", "CascadeSystem", "Operating"]


PART_OF_WORK = 300_000
"""Pairs of a row and a tree that are worth a thread of their own."""


@dataclass(frozen=True)
class CascadeStep:
    """One stage.

    Attributes
    ----------
    columns : ndarray
        Columns held at this stage, those of the stage before it first.
    trees : TreeEnsemble
        What the stage adds to the running score, over those columns.
    slope, intercept : float
        Platt's sigmoid: ``slope * running + intercept`` are the calibrated log-odds that answer.
    gate : TreeEnsemble, optional
        Over the columns and, behind them, the calibrated log-odds; without one, the gate is ``-|log-odds|``.
    """

    columns: Ints
    trees: TreeEnsemble
    slope: float = 1.0
    intercept: float = 0.0
    gate: TreeEnsemble | None = None

    def added(self, block: Any) -> Floats:
        """What the stage adds to the running score of each row. Many rows are shared among the processors."""
        n_parts = min(cpu_count(), len(block) * self.trees.n_trees // PART_OF_WORK)
        if n_parts < 2:
            return self.trees.predict(block)[:, 0]
        # Rows do not know of each other, so it makes no difference who computes them.
        with ThreadPoolExecutor(n_parts) as pool:
            return np.concatenate(list(pool.map(self.trees.predict, np.array_split(block, n_parts))))[:, 0]

    def gate_score(self, block: Any, log_odds: Floats) -> Floats:
        """Score of "go on", from what is held."""
        if self.gate is None:
            return -np.abs(log_odds)
        return self.gate.predict(np.column_stack([block, log_odds]))[:, 0]


@dataclass(frozen=True, eq=False)
class Operating:
    """Thresholds of every operating point, and the one (or two, mixed) in force.

    Attributes
    ----------
    thresholds : ndarray of shape (n_points, n_stages)
        By rising cost.
    cost, score : ndarray of shape (n_points,)
        Means on the held-out rows of the fit.
    lower, upper, share : int, int, float
        The points in force, and the share of rows that follow the upper one.
    seed : int
        Of the chance that decides which rows.
    """

    thresholds: Floats
    cost: Floats
    score: Floats
    lower: int = 0
    upper: int = 0
    share: float = 0.0
    seed: int = 0

    @property
    def parting(self) -> int:
        """First stage at which the two points differ; -1 if they do not."""
        differs = self.thresholds[self.lower] != self.thresholds[self.upper]
        return int(np.argmax(differs)) if differs.any() else -1

    def follows_upper(self, reader: Reader, rows: Ints) -> Bools:
        """Which rows follow the upper point; those that are equal in every column do the same."""
        follows: Bools = uniforms(reader.identity(rows), self.seed) < self.share
        return follows

    def at(self, lower: int, upper: int, share: float) -> "Operating":
        """The same with another point in force."""
        return replace(self, lower=int(lower), upper=int(upper), share=float(share))


@dataclass(frozen=True, eq=False)
class CascadeSystem(Serving):
    """Stages of one growing ensemble, then f0.

    Attributes
    ----------
    steps : tuple of CascadeStep
        The cheapest first.
    base : float
        Running score before the first stage.
    operating : Operating
        Where rows stop.
    blend : ndarray of shape (3,)
        Intercept, weight of the last stage's log-odds and weight of f0's: what answers where f0 was asked.
    full, price_list, classes, names, kind
        As in ``GatedSystem``.
    """

    steps: tuple[CascadeStep, ...]
    base: float
    operating: Operating
    blend: Floats
    full: FullModel
    price_list: PriceList
    classes: NDArray[Any]
    names: tuple[str, ...] | None = None
    kind: str | None = None

    @property
    def n_stages(self) -> int:
        """Number of stages in front of f0, which is also the route number of f0."""
        return len(self.steps)

    @property
    def bought_by_route(self) -> Bools:
        """Columns a row holds that was answered at each place: (n_stages + 1, n_features)."""
        bought = np.zeros((self.n_stages + 1, self.price_list.n_features), dtype=bool)
        for place, step in enumerate(self.steps):
            bought[place:, step.columns] = True
        bought[-1] = True
        return bought

    @property
    def cost_by_route(self) -> Floats:
        """What a row pays that was answered at each place: (n_stages + 1,)."""
        places = np.arange(self.n_stages + 1)
        return self.price_list.cost_of_rows(self.bought_by_route, places == self.n_stages)

    def at(self, lower: int, upper: int, share: float = 0.0) -> "CascadeSystem":
        """The same cascade at another operating point."""
        return replace(self, operating=self.operating.at(lower, upper, share))

    def with_full(self, full: FullModel) -> "CascadeSystem":
        """Return the same cascade in front of another f0."""
        return replace(self, full=full)

    # -- walking -------------------------------------------------------------------------------

    def walk(self, reader: Reader) -> Walk:
        """Send every row as far as its thresholds say, without asking f0 anything."""
        operating, parting = self.operating, self.operating.parting
        route = np.full(reader.n_samples, self.n_stages, dtype=np.intp)
        running, cheap = np.full(reader.n_samples, self.base), np.zeros(reader.n_samples)
        follows_upper = np.zeros(reader.n_samples, dtype=bool)
        rows = np.arange(reader.n_samples)
        for place, step in enumerate(self.steps):
            block = reader.block(rows, step.columns)
            running[rows] += step.added(block)
            cheap[rows] = step.slope * running[rows] + step.intercept
            if place == parting:
                follows_upper[rows] = operating.follows_upper(reader, rows)
            lower, upper = operating.thresholds[[operating.lower, operating.upper], place]
            goes_on = step.gate_score(block, cheap[rows]) > np.where(follows_upper[rows], upper, lower)
            route[rows[~goes_on]] = place
            rows = rows[goes_on]
            if rows.size == 0:
                break
        return Walk(route, cheap)

    def every_stage(self, reader: Reader) -> tuple[Floats, Floats]:
        """Gate scores and calibrated log-odds of every row at every stage, as if it got there: (n, n_stages) each."""
        rows = np.arange(reader.n_samples)
        running = np.full(reader.n_samples, self.base)
        gate, log_odds = np.empty((2, reader.n_samples, self.n_stages))
        for place, step in enumerate(self.steps):
            block = reader.block(rows, step.columns)
            running += step.added(block)
            log_odds[:, place] = step.slope * running + step.intercept
            gate[:, place] = step.gate_score(block, log_odds[:, place])
        return gate, log_odds

    def thresholds_in_force(self, reader: Reader, walk: Walk) -> Floats:
        """Threshold that each row met at each stage, shape (n_samples, n_stages); for rows that got there."""
        operating, parting = self.operating, self.operating.parting
        thresholds = np.tile(operating.thresholds[operating.lower], (reader.n_samples, 1))
        rows = np.flatnonzero(walk.route >= parting)
        if parting >= 0 and rows.size:
            upper = rows[operating.follows_upper(reader, rows)]
            thresholds[upper] = operating.thresholds[operating.upper]
        return thresholds

    def blended(self, last: Floats, full_probability: Floats) -> Floats:
        """Log-odds of the answer where f0 was asked, from those of the last stage and f0's probability."""
        blended: Floats = self.blend[0] + self.blend[1] * last + self.blend[2] * logit(full_probability)
        return blended

    def answer(
        self, reader: Reader, walk: Walk | None = None, rows: Ints | None = None, n_batch: int | None = None
    ) -> Floats:
        """Probability of class +1: the answering stage's own, the blend with f0 where a row reached it.

        ``rows`` and ``n_batch`` as in ``GatedSystem.answer``.
        """
        walk = self.walk(reader) if walk is None else walk
        rows = np.arange(reader.n_samples) if rows is None else rows
        log_odds = walk.cheap.copy()
        sent = np.flatnonzero(walk.route == self.n_stages)
        if sent.size:
            n_batch = reader.n_samples if n_batch is None else n_batch
            full = self.full.probability(reader.table(sent), rows[sent], n_batch)
            log_odds[sent] = self.blended(walk.cheap[sent], clip_probability(full))
        return np.asarray(expit(log_odds), dtype=np.float64)
