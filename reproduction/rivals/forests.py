"""The forest that is to be pruned, in every form a user has it, and the rows that decide."""

from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted

from reproduction.pruning.forest import PrunableForest, flatten_forest, grow_forest
from reproduction.pruning.node_costs import PruningRows
from thrifty.arrays import Bools, Floats
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.prices.prices import Prices, check_price_list, resolve_prices
from thrifty.engine.tasks.classes import classification_of, one_class
from thrifty.errors import InvalidInputError
from thrifty.learners.estimators.checks import check_weights, validated
from thrifty.rows import fingerprints

__all__ = ["ForestRecipe", "PruningTask", "pruning_task"]

Holdout = float | Literal["oob"]


@dataclass(frozen=True)
class ForestRecipe:
    """How to come by a forest: the user's own, or the size of ours."""

    forest: Any
    n_trees: int
    max_depth: int | None
    min_samples_leaf: int
    n_jobs: int | None

    @property
    def is_frozen(self) -> bool:
        """Whether the forest is taken as it stands."""
        return isinstance(self.forest, FrozenEstimator)


@dataclass(frozen=True)
class PruningTask:
    """A forest, the rows that decide what is pruned, and what is known of the table."""

    forest: PrunableForest
    rows: PruningRows
    classes: NDArray[Any]
    prices: PriceList
    names: tuple[str, ...] | None


@dataclass(frozen=True)
class _Rows:
    X: Any
    code: NDArray[np.intp]
    weight: Floats
    weighted: bool
    classes: NDArray[Any]

    def only(self, chosen: Bools) -> "_Rows":
        return _Rows(self.X[chosen], self.code[chosen], self.weight[chosen], self.weighted, self.classes)


def pruning_task(
    estimator: Any, recipe: ForestRecipe, X: Any, y: Any, sample_weight: Any, holdout: Holdout, seed: int
) -> PruningTask:
    """Check the rows, come by the forest, and say which rows decide."""
    share = _check_holdout(holdout)
    rows = _check_rows(estimator, X, y, sample_weight)
    n_features, names = rows.X.shape[1], getattr(estimator, "feature_names_in_", None)
    prices = check_price_list(
        resolve_prices(estimator.feature_costs, estimator.prices, Prices()), n_features, names
    )
    if prices.by_row is not None:
        raise InvalidInputError(
            "a forest is pruned by prices that are the same for every row; feature_costs has some that differ by row. "
            "Leave by_row out, or use BudgetedClassifier."
        )
    grow, prune = rows, rows
    if share and not recipe.is_frozen:
        out = _held_out(rows, share, seed)
        if out.any():
            grow, prune = rows.only(~out), rows.only(out)
    trees, left_out = _trees(recipe, grow, seed)
    judged = None
    if share is None and not recipe.is_frozen:
        if left_out is None:
            raise InvalidInputError(
                "holdout='oob' needs a forest that draws rows for each tree; this one does not. "
                "Set bootstrap=True, or hold a share of the rows out."
            )
        # A tree that drew every row is judged on all of them.
        judged = np.where(left_out.any(axis=1, keepdims=True), left_out, True) * rows.weight
    return PruningTask(
        flatten_forest(trees, n_features),
        PruningRows(prune.X, prune.code, prune.weight, judged),
        rows.classes,
        prices,
        None if names is None else tuple(str(name) for name in names),
    )


def _check_holdout(holdout: Any) -> float | None:
    """The share of the rows held out, or None for those that a tree did not draw."""
    if isinstance(holdout, str) and holdout == "oob":
        return None
    if isinstance(holdout, bool) or not isinstance(holdout, Real) or not 0.0 <= float(holdout) < 1.0:
        raise InvalidInputError(
            f"holdout must be a share in [0, 1) or 'oob'; got {holdout!r}. It names the rows that decide what to prune."
        )
    return float(holdout)


def _check_rows(estimator: Any, X: Any, y: Any, sample_weight: Any) -> _Rows:
    if y is None:
        raise InvalidInputError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None."
        )
    numbers, y = validated(estimator, X, y, reset=True)
    largest = np.nanmax(np.abs(numbers), axis=0, initial=0.0)
    if np.any(largest > np.finfo(np.float32).max):
        raise InvalidInputError(
            f"a forest compares in single precision, which ends at 3.4e38; column {int(largest.argmax())} of X holds a "
            f"number of size {largest.max():g}. Rescale the column."
        )
    classes = classification_of(y).classes
    code = np.searchsorted(classes, y)
    weight = check_weights(sample_weight, numbers)
    kept = weight > 0
    if len(np.unique(code[kept])) < 2:
        raise one_class(classes[code[kept][:1]])
    return _Rows(numbers, code, weight, sample_weight is not None, classes).only(kept)


def _held_out(rows: _Rows, share: float, seed: int) -> Bools:
    """A share of the distinct rows of every class, chosen by content; never all of a class."""
    keys = fingerprints(rows.X, seed)
    out = np.zeros(len(keys), bool)
    for label in np.unique(rows.code):
        members = np.flatnonzero(rows.code == label)
        rank = np.unique(keys[members], return_inverse=True)[1]
        out[members] = np.floor((rank + 1) * share) > np.floor(rank * share)
    return out


def _trees(recipe: ForestRecipe, rows: _Rows, seed: int) -> tuple[list[Any], Bools | None]:
    """The trees, and which rows each has not seen, where that is known."""
    if recipe.forest is None:
        grown = grow_forest(
            rows.X,
            rows.code,
            rows.weight,
            n_trees=recipe.n_trees,
            max_depth=recipe.max_depth,
            min_samples_leaf=recipe.min_samples_leaf,
            seed=seed,
            n_jobs=recipe.n_jobs,
        )
        return grown.trees, grown.left_out
    forest = recipe.forest.estimator if recipe.is_frozen else recipe.forest
    if not hasattr(forest, "fit") or not hasattr(forest, "get_params"):
        raise InvalidInputError(
            f"forest must be a RandomForestClassifier or ExtraTreesClassifier; got {forest!r}. None grows one here."
        )
    if not recipe.is_frozen:
        weights = {"sample_weight": rows.weight} if rows.weighted else {}
        forest = clone(forest).fit(rows.X, rows.classes[rows.code], **weights)
    trees = _check_forest(forest, rows)
    if recipe.is_frozen or not getattr(forest, "bootstrap", False):
        return trees, None
    left_out = np.ones((len(trees), len(rows.code)), bool)
    for line, drawn in zip(left_out, forest.estimators_samples_, strict=True):
        line[drawn] = False
    return trees, left_out


def _check_forest(forest: Any, rows: _Rows) -> list[Any]:
    """Trees of a fitted forest, if they are trees that suit these rows."""
    kind = type(forest).__name__
    try:
        check_is_fitted(forest)
    except NotFittedError as error:
        raise InvalidInputError(
            f"forest is a {kind} that is not fitted. Fit it first, or pass it unfrozen."
        ) from error
    trees = [getattr(tree, "tree_", None) for tree in np.ravel(getattr(forest, "estimators_", []))]
    shares = hasattr(forest, "predict_proba") and not hasattr(forest, "init_")
    if not trees or any(tree is None or tree.n_outputs != 1 for tree in trees) or not shares:
        raise InvalidInputError(
            f"forest must average the class shares of trees, as RandomForestClassifier and ExtraTreesClassifier do; "
            f"got a {kind}."
        )
    theirs = np.asarray(forest.classes_)
    if not np.array_equal(theirs, rows.classes):
        raise InvalidInputError(
            f"forest was fitted on the classes {theirs.tolist()}, but y holds {rows.classes.tolist()}. "
            f"Both must have the same labels."
        )
    if forest.n_features_in_ != rows.X.shape[1]:
        raise InvalidInputError(
            f"forest was fitted on {forest.n_features_in_} features, but X has {rows.X.shape[1]}."
        )
    return trees
