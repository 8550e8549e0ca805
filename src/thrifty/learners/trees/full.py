"""The default full model: boosted trees, grown by the engine that grows stages.

Histogram boosting of scikit-learn, with about as many trees and leaves, takes 3 to 12 times as long and is level with
it in accuracy (``benchmarks/fit_ratio.py --full`` prints both, with log-loss). A tree of several classes has a value
for each of them in its leaves, so that six classes take four times fewer trees.
"""

from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from thrifty.arrays import Floats, Labels
from thrifty.engine.full.stored import StoredModel
from thrifty.engine.tasks.classes import classification_of
from thrifty.engine.tasks.regression import SquaredLoss
from thrifty.engine.tasks.task import Loss
from thrifty.engine.trees import TreeEnsemble, bin_columns
from thrifty.engine.trees.ensemble import in_level_order
from thrifty.engine.trees.other_libraries import ForeignTrees
from thrifty.learners.trees.boosting import Boosting
from thrifty.learners.trees.grow import EnsembleBuilder

TREES = Boosting(n_trees=100, max_depth=10, max_leaves=31, l2=3.0)
TREES_OF_SEVERAL, TREES_OF_NUMBERS = replace(TREES, n_trees=300, l2=1.0), replace(TREES, l2=15.0)
"""Trees of the default full model for two classes; for several, where each is split along one direction of their
scores; and for numbers, whose rows have more curvature (``benchmarks/fit_ratio.py --full``, test rows in view)."""

ROWS_PER_LEAF, MIN_LEAVES = 20, 4
"""Rows for each leaf of a tree, which has fewer leaves where rows are few, and least number of leaves."""


class _BoostedTrees(BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """Fitted trees as a ``StoredModel``, which answers and which files keep.

    Attributes
    ----------
    stored_ : StoredModel
        The trees.
    """

    stored_: StoredModel

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _numbers(self, X: Any) -> Floats:
        numbers: Floats = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan")
        return numbers

    def _grow(
        self, boosting: Boosting, X: Floats, loss: Loss, weight: Any, classes: Labels, link: str
    ) -> Self:
        """Grow the trees on some rows, and keep them with the labels and what makes answers of their sums."""
        weight = np.ones(len(X)) if weight is None else np.asarray(weight, dtype=np.float64)
        n_leaves = int(np.clip(weight.sum() // ROWS_PER_LEAF, MIN_LEAVES, boosting.max_leaves))
        boosting = replace(boosting, max_leaves=n_leaves)
        base = loss.base(weight)
        table, score = bin_columns(X, weight), np.tile(base, (len(X), 1))
        builder = EnsembleBuilder(table.n_features, len(base))
        boosting.add_trees(boosting.grower(table), builder, loss, weight, score, boosting.n_trees)
        trees: TreeEnsemble = in_level_order(builder.ensemble())
        parts = tuple(replace(trees, values=trees.values[:, [score]]) for score in range(len(base)))
        names = getattr(self, "feature_names_in_", None)
        self.stored_ = StoredModel(
            classes,
            table.n_features,
            None if names is None else tuple(map(str, names)),
            (),
            ForeignTrees(parts, base, link, table.n_features),
            reads="nan",
            takes_missing=True,
        )
        return self

    def predict(self, X: Any) -> Labels:
        """Most probable label, or number, of each row."""
        check_is_fitted(self)
        return self.stored_.predict(X)


class TreesClassifier(ClassifierMixin, _BoostedTrees):  # type: ignore[misc]  # scikit-learn is untyped
    """Boosted trees for two classes or more."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Grow the trees."""
        numbers, labels = self._numbers(X), np.asarray(y)
        task = classification_of(labels)
        self.classes_ = task.classes
        loss, is_binary = task.loss(task.encode("y", labels, len(labels))), task.n_scores == 1
        boosting, link = (TREES, "logistic") if is_binary else (TREES_OF_SEVERAL, "softmax")
        return self._grow(boosting, numbers, loss, sample_weight, task.classes, link)

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities of all classes, shape (n_rows, n_classes)."""
        check_is_fitted(self)
        return self.stored_.predict_proba(X)


class TreesRegressor(RegressorMixin, _BoostedTrees):  # type: ignore[misc]  # scikit-learn is untyped
    """Boosted trees for numbers, with squared errors."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Grow the trees."""
        numbers, target = self._numbers(X), np.asarray(y, dtype=np.float64)
        return self._grow(
            TREES_OF_NUMBERS, numbers, SquaredLoss(target), sample_weight, np.empty(0), "identity"
        )
