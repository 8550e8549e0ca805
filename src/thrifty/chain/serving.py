"""What everything that serves can do, once it can walk rows and answer them: a chain of stages or a cascade."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Floats, Ints
from thrifty.chain.sources import (
    FeatureSource,
    PurchaseReader,
    Reader,
    TableReader,
    as_numbers,
    kind_of_table,
    table_like,
)
from thrifty.exceptions import InvalidInputError
from thrifty.full.model import clip_probability
from thrifty.objective.costs import PriceList

__all__ = ["Serving", "Walk"]


@dataclass(frozen=True)
class Walk:
    """Where a batch went.

    Attributes
    ----------
    route : ndarray of shape (n_samples,)
        The stage that answered each row; the number of stages means f0.
    cheap : ndarray of shape (n_samples,)
        Score of the last stage each row visited.
    """

    route: Ints
    cheap: Floats


class Serving:
    """Routes, costs and answers for tables and sources of any kind.

    A subclass holds what is named below, says how rows ``walk`` through it and what it answers; it looks like an f0
    (``probability``), so that it can stand behind a further, cheaper stage.
    """

    price_list: PriceList
    classes: NDArray[Any]
    names: tuple[str, ...] | None
    kind: str | None

    @property
    def cost_by_route(self) -> Floats:
        """What a row pays that was answered at each place: (n_stages + 1,)."""
        raise NotImplementedError

    def walk(self, reader: Reader) -> Walk:
        """Send every row as far as its gates say, without asking f0 anything."""
        raise NotImplementedError

    def answer(
        self, reader: Reader, walk: Walk | None = None, rows: Ints | None = None, n_batch: int | None = None
    ) -> Floats:
        """Probability of class +1.

        ``rows`` are the positions of the reader's rows in the batch of ``n_batch`` that f0 knows about;
        by default the reader's rows are the batch.
        """
        raise NotImplementedError

    def label(self, positive: Floats) -> NDArray[Any]:
        """Labels, as the user wrote them, from probabilities of class +1."""
        return self.classes[(positive > 0.5).astype(np.intp)]

    def probability(self, table: Any, rows: Ints, n_batch: int) -> Floats:
        """Answer as an f0 would, so that this can stand behind another stage."""
        return clip_probability(self.answer(self.reader(table), rows=rows, n_batch=n_batch))

    def reader(self, X: Any) -> TableReader:
        """Read from a table of any kind: array, CSR, data frame or list of rows."""
        numbers = as_numbers(X)
        if numbers.shape[1] != self.price_list.n_features:
            raise InvalidInputError(
                f"X must have the {self.price_list.n_features} columns of the price list; got {numbers.shape[1]}."
            )
        return TableReader(numbers, X if kind_of_table(X) else numbers)

    def route(self, X: Any) -> Ints:
        """Stage that answers each row; ``n_stages`` means f0. Never calls f0."""
        return self.walk(self.reader(X)).route

    def cost(self, X: Any) -> Floats:
        """What each row pays. Never calls f0."""
        return self.cost_by_route[self.route(X)]

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities of both classes, shape (n_samples, 2)."""
        positive = self.answer(self.reader(X))
        return np.column_stack([1.0 - positive, positive])

    def predict(self, X: Any) -> NDArray[Any]:
        """Labels, as the user wrote them."""
        return self.label(self.predict_proba(X)[:, 1])

    def predict_from(self, source: FeatureSource) -> NDArray[Any]:
        """Label every row of a source, asking it only for the features each row really buys."""
        return self.label(
            self.answer(PurchaseReader(source, self.price_list, table_like(self.kind, self.names)))
        )
