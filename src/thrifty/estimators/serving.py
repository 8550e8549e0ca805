"""What every estimator with a system shares, once it is fitted: answers, routes, costs, and what its tags say."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from thrifty.arrays import Floats
from thrifty.chain.serving import Walk
from thrifty.chain.sources import FeatureSource, Reader, TableReader, kind_of_table
from thrifty.estimators.checks import validated

__all__ = ["ServingSystem", "SystemClassifier", "all_or_nothing"]


class ServingSystem(Protocol):
    """What a fitted estimator asks of its system, be it a chain of stages or a cascade."""

    @property
    def n_stages(self) -> int:
        """Number of stages in front of f0."""

    @property
    def cost_by_route(self) -> Floats:
        """What a row pays that was answered at each place."""

    def walk(self, reader: Reader) -> Walk:
        """Send every row as far as its gates say."""

    def answer(self, reader: Reader, walk: Walk | None = None) -> Floats:
        """Probability of class +1."""

    def label(self, positive: Floats) -> NDArray[Any]:
        """Labels, as the user wrote them."""

    def predict_from(self, source: FeatureSource) -> NDArray[Any]:
        """Label every row of a source."""


class SystemClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """A classifier whose answers are those of its ``system_``; subclasses say how that is learned."""

    _accepts_missing = False
    _accepts_sparse = True

    full: Any
    random_state: Any
    system_: ServingSystem

    # -- answers -------------------------------------------------------------------------------

    def predict_proba(self, X: Any) -> Floats:
        """Probability of both classes: the answering stage's for rows it keeps, f0's for the others."""
        reader = self._reader(X)
        positive = self.system_.answer(reader)
        return np.column_stack([1.0 - positive, positive])

    def predict(self, X: Any) -> NDArray[Any]:
        """Label of each row."""
        positive = self.predict_proba(X)[:, 1]
        return self.system_.label(positive)

    def decision_function(self, X: Any) -> Floats:
        """Log-odds of the second class: the answering stage's own score for rows it keeps."""
        reader = self._reader(X)
        walk = self.system_.walk(reader)
        positive = self.system_.answer(reader, walk)
        with np.errstate(divide="ignore"):
            return np.where(walk.route < self.system_.n_stages, walk.cheap, logit(positive))

    def route(self, X: Any) -> NDArray[np.intp]:
        """Stage that answers each row: 0 is the cheapest model; the last is f0. Never calls f0."""
        reader = self._reader(X)
        return self.system_.walk(reader).route

    def cost(self, X: Any) -> Floats:
        """What each row spends. Never calls f0."""
        route = self.route(X)
        return self.system_.cost_by_route[route]

    def predict_from(self, source: FeatureSource) -> NDArray[Any]:
        """Label every row of a source, asking it only for the features each row really buys.

        Parameters
        ----------
        source : FeatureSource
            Has ``__len__`` and ``fetch(rows, columns)``; it is asked once per stage, for the rows
            that get there and the purchases they do not hold yet.
        """
        check_is_fitted(self)
        return self.system_.predict_from(source)

    # -- plumbing ------------------------------------------------------------------------------

    def _reader(self, X: Any) -> TableReader:
        check_is_fitted(self)
        numbers = validated(self, X, reset=False)
        return TableReader(numbers, X if kind_of_table(X) else numbers)

    def _full(self) -> Any:
        """f0 as given, or the default one."""
        return (
            HistGradientBoostingClassifier(random_state=self.random_state) if self.full is None else self.full
        )

    def _other_models(self) -> list[Any]:
        """Models that read the table besides our own, in whatever form the user gave them."""
        return [self._full()]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        # What another model cannot read is not welcome here either.
        others = [get_tags(model).input_tags for model in self._other_models() if hasattr(model, "fit")]
        tags.input_tags.sparse = self._accepts_sparse and all(other.sparse for other in others)
        tags.input_tags.allow_nan = self._accepts_missing and all(other.allow_nan for other in others)
        return tags


@contextmanager
def all_or_nothing(estimator: Any) -> Iterator[None]:
    """After an error the estimator is exactly as it was before."""
    before = dict(estimator.__dict__)
    try:
        yield
    except BaseException:
        estimator.__dict__.clear()
        estimator.__dict__.update(before)
        raise
