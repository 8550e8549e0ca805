"""Foreign models that hold together: the checks that their compiled code leaves out.

skops vouches for the types a model is made of, not for the numbers in it. Compiled code of scikit-learn that walks
trees or sums over support vectors takes indices and lengths on trust, and reads foreign memory, or never ends, where
they are wrong. So those numbers are checked here before the model is asked anything.

Trees that are known by name never come here: they are arrays of our own.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
from sklearn.svm import SVR, NuSVR
from sklearn.svm._base import BaseLibSVM
from sklearn.tree._tree import Tree

from thrifty.arrays import Bools
from thrifty.errors import InvalidInputError

__all__ = ["check_sound"]

_LEAF = -1


def check_sound(model: Any) -> None:
    """Refuse a model whose support vectors, neighbours or trees point outside themselves."""
    for part, owner in _with_owners(model):
        try:
            problem = _problem(part, owner)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            problem = f"lacks what it needs ({type(error).__name__}: {str(error)[:80]})"
        if problem:
            raise InvalidInputError(
                f"a {type(part).__name__} in the bundle {problem}. The model was damaged or made to do harm."
            )


def _problem(part: Any, owner: Any) -> str | None:
    if isinstance(part, BaseLibSVM):
        return _svm_problem(part)
    if isinstance(part, Tree):
        return _tree_problem(part, owner)
    if isinstance(part, TreePredictor):
        return _predictor_problem(part, owner)
    if "_fit_X" in getattr(part, "__dict__", {}):
        return _neighbours_problem(part)
    return None


def _with_owners(model: Any) -> Iterator[tuple[Any, Any]]:
    """Everything a model is made of, each with the estimator that holds it; shared parts once."""
    seen: set[int] = set()
    waiting: list[tuple[Any, Any]] = [(model, None)]
    while waiting:
        part, owner = waiting.pop()
        if id(part) in seen or isinstance(part, str | bytes | int | float | type(None)):
            continue
        seen.add(id(part))
        yield part, owner
        holder = part if isinstance(part, BaseEstimator) else owner
        waiting += [(inner, holder) for inner in _inner(part)]


def _inner(part: Any) -> list[Any]:
    if isinstance(part, dict):
        return list(part.values())
    if isinstance(part, list | tuple | set):
        return list(part)
    if isinstance(part, np.ndarray):
        return list(part.flat) if part.dtype == object else []
    return list(getattr(part, "__dict__", {}).values())


def _svm_problem(svm: BaseLibSVM) -> str | None:
    if svm.kernel == "precomputed":
        return "has a precomputed kernel, which indexes tables of its own"
    counts, vectors = np.asarray(svm._n_support), svm.support_vectors_
    n_vectors, width = vectors.shape
    if sparse.issparse(vectors):
        # Raises where an index points outside.
        vectors.check_format(full_check=True)
        svm._dual_coef_.check_format(full_check=True)
    elif vectors.dtype != np.float64:
        return f"has support vectors of type {vectors.dtype}"
    if bool(svm._sparse) != sparse.issparse(vectors):
        return "does not know whether its support vectors are sparse"
    if "_impl" in vars(svm):
        return "is of another kind than its class says"
    if isinstance(svm, SVR | NuSVR):
        # The compiled code counts the vectors of a regressor twice, as if it had two classes.
        right_counts = np.array_equal(counts, [n_vectors, n_vectors])
    else:
        right_counts = len(counts) == len(svm.classes_) >= 2 and counts.sum(dtype=np.int64) == n_vectors
    n_pairs = len(counts) * (len(counts) - 1) // 2
    agree = (
        counts.dtype == np.int32
        and right_counts
        and np.all(counts >= 0)
        and n_vectors == len(svm.support_)
        and svm._dual_coef_.shape == (len(counts) - 1, n_vectors)
        and svm._intercept_.shape == (n_pairs,)
        and len(svm._probA) == len(svm._probB) in (0, n_pairs)
        and width == svm.n_features_in_ == svm.shape_fit_[1]
    )
    return None if agree else "has support vectors, weights and counts that do not agree"


def _neighbours_problem(model: Any) -> str | None:
    """Distances are computed over as many columns as a table has, and votes are counted by the number of a class."""
    known = vars(model)
    rows, labels = known["_fit_X"], known.get("_y")
    if sparse.issparse(rows):
        # Raises where an index points outside.
        rows.check_format(full_check=True)
    elif rows.dtype not in (np.float32, np.float64):
        return f"has rows of type {rows.dtype}"
    if rows.shape != (known["n_samples_fit_"], known["n_features_in_"]):
        return f"has rows of shape {rows.shape} for {known['n_features_in_']} columns"
    if "classes_" not in known or labels is None:
        return None
    is_class = labels.shape == rows.shape[:1] and labels.dtype.kind == "i" and len(labels) > 0
    if not is_class or labels.min() < 0 or labels.max() >= len(known["classes_"]):
        return "has votes for classes that are not there"
    return None


def _tree_problem(tree: Tree, owner: Any) -> str | None:
    n_features = getattr(owner, "n_features_in_", tree.n_features)
    if tree.n_features != n_features:
        return f"reads {tree.n_features} columns where its model has {n_features}"
    if len(tree.value) != tree.node_count or tree.node_count < 1:
        return "has fewer values than nodes"
    left, right = tree.children_left, tree.children_right
    is_leaf = left == _LEAF
    problem = _nodes_problem(is_leaf, left, right, tree.feature, n_features)
    if problem is None and _is_deeper(is_leaf, left, right, tree.max_depth):
        # Paths through the tree are written into memory for so many nodes.
        return f"is deeper than the {tree.max_depth} levels that it claims"
    return problem


def _is_deeper(is_leaf: Bools, left: NDArray[Any], right: NDArray[Any], claimed: int) -> bool:
    level = np.zeros(1, dtype=np.intp)
    for _ in range(min(max(claimed, 0), len(is_leaf))):
        inner = level[~is_leaf[level]]
        level = np.unique(np.concatenate([left[inner], right[inner]]))
        if not len(level):
            return False
    return bool(np.any(~is_leaf[level]))


def _predictor_problem(predictor: TreePredictor, owner: Any) -> str | None:
    nodes = predictor.nodes
    n_features = getattr(owner, "n_features_in_", None)
    if n_features is None or nodes.ndim != 1 or not len(nodes):
        return "has no nodes or no model around it"
    inner = nodes[nodes["is_leaf"] == 0]
    categorical = inner["is_categorical"] != 0
    if np.any(inner["bitset_idx"][categorical] >= len(predictor.raw_left_cat_bitsets)):
        return "points outside its sets of categories"
    return _nodes_problem(
        nodes["is_leaf"] != 0,
        nodes["left"].astype(np.int64),
        nodes["right"].astype(np.int64),
        nodes["feature_idx"],
        n_features,
    )


def _nodes_problem(
    is_leaf: Bools,
    left: NDArray[Any],
    right: NDArray[Any],
    feature: NDArray[Any],
    n_features: int,
) -> str | None:
    own = np.arange(len(is_leaf))[~is_leaf]
    for child in (left[~is_leaf], right[~is_leaf]):
        # A child after its parent rules out that a row goes round in circles.
        if np.any((child <= own) | (child >= len(is_leaf))):
            return "has a node whose child does not come after it"
    if np.any((feature[~is_leaf] < 0) | (feature[~is_leaf] >= n_features)):
        return f"looks at a column outside 0 .. {n_features - 1}"
    return None
