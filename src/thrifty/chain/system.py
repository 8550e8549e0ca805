"""What serves: a chain of cheap stages that ends in f0.

A row enters at stage 0. Each stage buys its columns, scores the row, and either answers or, if the
gate's score exceeds the stage's threshold, sends it on; the end of the chain is f0. The chain
``(g, f1, f0)`` is a model like f0 itself and can stand in its place behind a further, cheaper
stage: the paper's general framework. Stages hold plain arrays; nothing here knows how they were learned.
"""

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from thrifty.arrays import Bools, Floats, Ints
from thrifty.chain.serving import Serving, Walk
from thrifty.chain.sources import Reader
from thrifty.exceptions import InvalidInputError
from thrifty.full.model import FullModel
from thrifty.objective.costs import PriceList
from thrifty.rows import uniforms

__all__ = ["GatedSystem", "Scorer", "Stage", "Tie", "Walk"]


class Scorer(Protocol):
    """The serving half of a pair (g, f1)."""

    @property
    def columns(self) -> Ints:
        """The columns that g and f1 read, together."""

    def __call__(self, block: Any) -> tuple[Floats, Floats]:
        """Scores ``(g, f1)`` from a block that holds just those columns, in that order."""


@dataclass(frozen=True)
class Tie:
    """Rows whose scores are so much alike that no threshold parts them, and the share of them that is sent on.

    A gate that reads two columns of whole numbers has a hundred different scores; each may be that of one row in
    twenty, and a threshold sends on all of them or none. A share of them is what spends a budget that lies in between.

    Attributes
    ----------
    lower : float
        Rows with ``lower < g <= threshold`` are tied.
    share : float
        Those whose chance, a fixed function of the row, lies below this are sent on.
    seed : int
        Of the chance.
    """

    lower: float
    share: float
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.0 <= self.share <= 1.0:
            raise InvalidInputError(
                f"the share of a tie must lie in [0, 1]; got {self.share!r}. It is the share of tied rows sent on."
            )


@dataclass(frozen=True)
class Stage:
    """One cheap model and its gate; a row with ``g > threshold`` is sent on, and some of those in a ``tie``."""

    scorer: Scorer
    threshold: float = 0.0
    tie: Tie | None = None

    def sends_on(self, g: Floats, rows: Ints, reader: Reader) -> Bools:
        """Whether each of some rows, which have these gate scores, is sent on."""
        goes_on: Bools = g > self.threshold
        if self.tie is not None:
            tied = np.flatnonzero((g > self.tie.lower) & ~goes_on)
            if tied.size:
                # Not from what the stage bought: rows that tie are often equal in it.
                goes_on[tied] = uniforms(reader.identity(rows[tied]), self.tie.seed) < self.tie.share
        return goes_on


@dataclass(frozen=True)
class GatedSystem(Serving):
    """A chain of stages that ends in f0.

    Attributes
    ----------
    stages : tuple of Stage
        The cheapest first.
    full : FullModel
        f0.
    price_list : PriceList
        What purchases cost.
    classes : ndarray of shape (2,)
        The user's labels.
    names : tuple of str, optional
        Names of the columns.
    kind : {"pandas", "polars"}, optional
        The kind of table f0 expects; None is an array.
    """

    stages: tuple[Stage, ...]
    full: FullModel
    price_list: PriceList
    classes: NDArray[Any]
    names: tuple[str, ...] | None = None
    kind: str | None = None

    @property
    def n_stages(self) -> int:
        """Number of cheap stages, which is also the route number of f0."""
        return len(self.stages)

    @property
    def bought_by_route(self) -> Bools:
        """Columns a row holds that was answered at each place: (n_stages + 1, n_features)."""
        bought = np.zeros((self.n_stages + 1, self.price_list.n_features), dtype=bool)
        for place, stage in enumerate(self.stages):
            bought[place:, stage.scorer.columns] = True
        bought[-1] = True
        return bought

    @property
    def cost_by_route(self) -> Floats:
        """What a row pays that was answered at each place: (n_stages + 1,)."""
        places = np.arange(self.n_stages + 1)
        return self.price_list.cost_of_rows(self.bought_by_route, places == self.n_stages)

    def behind(self, stage: Stage) -> "GatedSystem":
        """Return the chain that has ``stage`` in front of this one."""
        return replace(self, stages=(stage, *self.stages))

    def with_threshold(self, threshold: float, place: int = 0, tie: Tie | None = None) -> "GatedSystem":
        """Return the same chain with another threshold at one stage, and no tie there but the given one."""
        stages = list(self.stages)
        stages[place] = replace(stages[place], threshold=float(threshold), tie=tie)
        return replace(self, stages=tuple(stages))

    def with_full(self, full: FullModel) -> "GatedSystem":
        """Return the same chain in front of another f0."""
        return replace(self, full=full)

    def walk(self, reader: Reader) -> Walk:
        """Send every row as far as its gates say, without asking f0 anything."""
        route = np.full(reader.n_samples, self.n_stages, dtype=np.intp)
        cheap = np.zeros(reader.n_samples)
        rows = np.arange(reader.n_samples)
        for place, stage in enumerate(self.stages):
            g, f1 = stage.scorer(reader.block(rows, stage.scorer.columns))
            _refuse_nan(g, f1, place)
            goes_on = stage.sends_on(g, rows, reader)
            cheap[rows] = f1
            route[rows[~goes_on]] = place
            rows = rows[goes_on]
            if rows.size == 0:
                break
        return Walk(route, cheap)

    def answer(
        self, reader: Reader, walk: Walk | None = None, rows: Ints | None = None, n_batch: int | None = None
    ) -> Floats:
        """Probability of class +1: the answering stage's own, f0's where a row reached it.

        ``rows`` are the positions of the reader's rows in the batch of ``n_batch`` that f0 knows about;
        by default the reader's rows are the batch.
        """
        walk = self.walk(reader) if walk is None else walk
        rows = np.arange(reader.n_samples) if rows is None else rows
        probability = np.asarray(expit(walk.cheap), dtype=np.float64)
        sent = np.flatnonzero(walk.route == self.n_stages)
        if sent.size:
            n_batch = reader.n_samples if n_batch is None else n_batch
            probability[sent] = self.full.probability(reader.table(sent), rows[sent], n_batch)
        return probability


def _refuse_nan(g: Floats, f1: Floats, place: int) -> None:
    bad = int(np.isnan(g).sum() + np.isnan(f1).sum())
    if bad:
        raise InvalidInputError(
            f"stage {place} cannot score {bad} rows: a feature it reads is missing (NaN) or infinite, and this model "
            f"accepts neither. Impute the feature before it is handed over."
        )
