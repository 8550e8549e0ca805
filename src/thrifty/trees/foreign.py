"""Tree ensembles of other libraries as ours: the same question at every node, the same value in every leaf.

Boosted trees answer with scores ``base + sum of leaf values``: the log-odds of two classes, or a score for each of
several, whose softmax are their probabilities. A forest answers with probabilities instead, the mean of those of its
leaves. Libraries differ in how a node asks: some compare in single precision, some send a number that equals the
threshold right, some read a missing value as zero. Each question is rewritten as ``x <= threshold`` on double precision
so that every number goes where it went before, without exception.
"""

import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from thrifty.arrays import Floats
from thrifty.errors import InvalidInputError
from thrifty.trees.ensemble import TreeEnsemble

__all__ = ["AdditiveTrees", "additive_trees", "largest_rounding_to"]


@dataclass(frozen=True)
class AdditiveTrees:
    """Scores of every row: ``base`` plus the leaf a row reaches in each of ``trees``.

    Attributes
    ----------
    trees : TreeEnsemble
        Leaves hold a value for each score: one for two classes, one for each of several.
    base : ndarray of shape (n_scores,)
        Scores before any tree.
    are_probabilities : bool
        Whether the scores are probabilities, as those of a forest: of the second class, or of each of several.
    """

    trees: TreeEnsemble
    base: Floats
    are_probabilities: bool = False

    def scores(self, X: Any) -> Floats:
        """Scores of every row, shape (n_rows, n_scores)."""
        return self.base + self.trees.predict(X)

    def rescaled(self, slope: Floats, shift: Floats) -> "AdditiveTrees":
        """The trees whose scores are ``slope * scores + shift``."""
        trees = replace(self.trees, values=slope * self.trees.values)
        return AdditiveTrees(trees, slope * self.base + shift)


@dataclass(frozen=True)
class _Node:
    """A node on its way from one library to another; a leaf has no children and carries the value."""

    value: float | Floats = 0.0
    feature: int = -1
    threshold: float = 0.0
    missing_left: bool = False
    children: tuple[Any, Any] | None = None


Opener = Callable[[Any], _Node]


def additive_trees(model: Any, n_features: int) -> AdditiveTrees:
    """Trees of XGBoost, LightGBM, scikit-learn or thrifty itself, for a table of ``n_features`` columns.

    Parameters
    ----------
    model : fitted classifier or booster, AdditiveTrees or TreeEnsemble
        Boosted trees for two classes with the logistic loss, or for several with that of their softmax, with numeric
        splits and a constant start; or a forest.
    n_features : int
        Columns of the table it is meant for; the model must have been fitted on as many.
    """
    found = _convert(model)
    theirs = found.trees.n_features
    if theirs != n_features:
        raise InvalidInputError(
            f"the local model {type(model).__name__} was fitted on {theirs} features; X has {n_features}. "
            f"Fit it on the columns that are given here."
        )
    return found


def _convert(model: Any) -> AdditiveTrees:
    if isinstance(model, AdditiveTrees):
        return model
    if isinstance(model, TreeEnsemble):
        return AdditiveTrees(model, np.zeros(model.n_outputs))
    # Recognised by what they offer, so that nobody needs a library that is not in use.
    if hasattr(model, "get_booster") or hasattr(model, "save_raw"):
        return _from_xgboost(model)
    if hasattr(model, "booster_") or hasattr(model, "dump_model"):
        return _from_lightgbm(model)
    if hasattr(model, "_predictors") and hasattr(model, "_baseline_prediction"):
        return _from_histogram_boosting(model)
    if hasattr(model, "estimators_") and hasattr(model, "init_") and hasattr(model, "learning_rate"):
        return _from_gradient_boosting(model)
    if all(hasattr(model, name) for name in ("estimators_", "bootstrap", "criterion", "class_weight")):
        return _from_forest(model)
    raise InvalidInputError(
        f"the local model must be boosted trees or a forest: a fitted classifier of XGBoost or LightGBM, "
        f"scikit-learn's GradientBoostingClassifier, HistGradientBoostingClassifier, RandomForestClassifier "
        f"or ExtraTreesClassifier, or thrifty's own trees; got {type(model).__name__}."
    )


# -- one library each --------------------------------------------------------------------------


_XGBOOST_OBJECTIVES = ("binary:logistic", "binary:logitraw", "multi:softprob", "multi:softmax")


def _from_xgboost(model: Any) -> AdditiveTrees:
    booster = model.get_booster() if hasattr(model, "get_booster") else model
    learner = json.loads(bytes(booster.save_raw("json")))["learner"]
    kind, objective = learner["gradient_booster"]["name"], learner["objective"]["name"]
    if kind != "gbtree" or objective not in _XGBOOST_OBJECTIVES:
        raise _unsuitable(
            "XGBoost",
            "booster 'gbtree' and objective 'binary:logistic' or 'multi:softprob'",
            f"{kind}, {objective}",
        )
    n_features = int(learner["learner_model_param"]["num_feature"])
    forest = learner["gradient_booster"]["model"]
    n_scores = max(int(learner["learner_model_param"]["num_class"]), 1)
    a_round = n_scores * max(int(forest["gbtree_model_param"].get("num_parallel_tree", 1)), 1)
    best = getattr(booster, "best_iteration", None) if booster.attr("best_iteration") else None
    n_trees = len(forest["trees"]) if best is None else (best + 1) * a_round
    parts = []
    for tree, score in list(zip(forest["trees"], forest["tree_info"], strict=True))[:n_trees]:
        if any(tree.get("split_type", ())):
            raise _unsuitable("XGBoost", "numeric splits", "a split on categories")
        if int(tree["tree_param"].get("size_leaf_vector", 1)) > 1:
            raise _unsuitable("XGBoost", "multi_strategy='one_output_per_tree'", "'multi_output_tree'")
        parts.append(_tree(n_features, 0, _xgboost_opener(tree), n_scores, int(score)))
    ensemble = _joined(parts, n_features, n_scores)
    probe = np.zeros((1, n_features), dtype=np.float32)
    rounds = (0, len(parts) // a_round)
    margin = booster.inplace_predict(probe, predict_type="margin", iteration_range=rounds)
    return AdditiveTrees(ensemble, np.float64(margin).reshape(-1) - ensemble.predict(probe)[0])


def _xgboost_opener(tree: dict[str, Any]) -> Opener:
    left, right = tree["left_children"], tree["right_children"]
    # A leaf keeps its value where a split keeps its threshold.
    condition, feature, default = tree["split_conditions"], tree["split_indices"], tree["default_left"]

    def opened(at: int) -> _Node:
        if left[at] < 0:
            return _Node(value=float(condition[at]))
        # Single precision, and left only if smaller.
        just_below = np.nextafter(np.float32(condition[at]), np.float32(-np.inf))
        return _Node(
            feature=int(feature[at]),
            threshold=largest_rounding_to(just_below),
            missing_left=bool(default[at]),
            children=(left[at], right[at]),
        )

    return opened


def _from_lightgbm(model: Any) -> AdditiveTrees:
    booster = model.booster_ if hasattr(model, "booster_") else model
    dump = booster.dump_model()
    objective = str(dump.get("objective", ""))
    binary = objective.startswith("binary") and "sigmoid:1" in objective
    if not (binary or objective.startswith("multiclass ")) or dump.get("average_output"):
        raise _unsuitable(
            "LightGBM", "objective 'binary' or 'multiclass' with boosting", objective or "a custom objective"
        )
    n_features, n_scores = int(dump["max_feature_idx"]) + 1, int(dump["num_tree_per_iteration"])
    parts = [
        _tree(n_features, tree["tree_structure"], _open_lightgbm, n_scores, number % n_scores)
        for number, tree in enumerate(dump["tree_info"])
    ]
    return AdditiveTrees(_joined(parts, n_features, n_scores), np.zeros(n_scores))


def _open_lightgbm(node: dict[str, Any]) -> _Node:
    if "split_feature" not in node:
        if "leaf_coeff" in node:
            raise _unsuitable("LightGBM", "constant leaves", "linear_tree")
        return _Node(value=float(node["leaf_value"]))
    if node["decision_type"] != "<=":
        raise _unsuitable("LightGBM", "numeric splits", "a split on categories")
    if node["missing_type"] == "Zero":
        raise _unsuitable("LightGBM", "zero_as_missing=False", "zero_as_missing=True")
    threshold = float(node["threshold"])
    # Fitted without missing values, it reads one as zero.
    missing_left = bool(node["default_left"]) if node["missing_type"] == "NaN" else threshold >= 0.0
    return _Node(
        feature=int(node["split_feature"]),
        threshold=threshold,
        missing_left=missing_left,
        children=(node["left_child"], node["right_child"]),
    )


def _from_gradient_boosting(model: Any) -> AdditiveTrees:
    if model.loss != "log_loss":
        raise _unsuitable("GradientBoostingClassifier", "loss='log_loss'", f"loss={model.loss!r}")
    rate, n_features = float(model.learning_rate), int(model.n_features_in_)
    n_scores = int(model.estimators_.shape[1])
    parts = [
        _tree(n_features, 0, _scikit_opener(one.tree_, lambda node: rate * float(node[0])), n_scores, score)
        for a_round in model.estimators_.tolist()
        for score, one in enumerate(a_round)
    ]
    ensemble = _joined(parts, n_features, n_scores)
    probes = np.vstack([np.zeros(n_features), np.ones(n_features), -np.ones(n_features)])
    with warnings.catch_warnings():
        # Probes have no column names, and need none.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        bases = model.decision_function(probes).reshape(3, n_scores) - ensemble.predict(probes)
    if np.ptp(bases, axis=0).max() > 1e-9 * (1.0 + np.abs(bases).max()):
        raise _unsuitable("GradientBoostingClassifier", "a constant start", "init= that depends on the row")
    return AdditiveTrees(ensemble, bases[0])


def _from_forest(model: Any) -> AdditiveTrees:
    n_features, n_classes = int(model.n_features_in_), len(model.classes_)
    # Of two classes the second alone: the other one is the rest.
    first, n_trees = (1 if n_classes == 2 else 0), len(model.estimators_)

    def shares(node: Floats) -> Floats:
        found: Floats = node[first:] / (node.sum() * n_trees)
        return found

    n_scores = n_classes - first
    parts = [
        _tree(n_features, 0, _scikit_opener(one.tree_, shares), n_scores, slice(None))
        for one in model.estimators_
    ]
    return AdditiveTrees(_joined(parts, n_features, n_scores), np.zeros(n_scores), are_probabilities=True)


def _scikit_opener(tree: Any, value_of: Callable[[Floats], float | Floats]) -> Opener:
    def opened(at: int) -> _Node:
        left, right = int(tree.children_left[at]), int(tree.children_right[at])
        if left < 0:
            return _Node(value=value_of(tree.value[at, 0]))
        # Rows are rounded to single precision, thresholds are not.
        single = np.float32(tree.threshold[at])
        if float(single) > tree.threshold[at]:
            single = np.nextafter(single, np.float32(-np.inf))
        missing = getattr(tree, "missing_go_to_left", None)
        return _Node(
            feature=int(tree.feature[at]),
            threshold=largest_rounding_to(single),
            missing_left=bool(missing[at]) if missing is not None else False,
            children=(left, right),
        )

    return opened


def _from_histogram_boosting(model: Any) -> AdditiveTrees:
    n_features = int(model.n_features_in_)
    if getattr(model, "_preprocessor", None) is not None:
        raise _unsuitable("HistGradientBoostingClassifier", "numeric columns", "columns of categories")
    base = np.ravel(model._baseline_prediction).astype(np.float64)
    parts = [
        _tree(n_features, 0, _histogram_opener(one.nodes), len(base), score)
        for a_round in model._predictors
        for score, one in enumerate(a_round)
    ]
    return AdditiveTrees(_joined(parts, n_features, len(base)), base)


def _histogram_opener(nodes: Any) -> Opener:
    def opened(at: int) -> _Node:
        node = nodes[at]
        if node["is_leaf"]:
            return _Node(value=float(node["value"]))
        if node["is_categorical"]:
            raise _unsuitable("HistGradientBoostingClassifier", "numeric splits", "a split on categories")
        return _Node(
            feature=int(node["feature_idx"]),
            threshold=float(node["num_threshold"]),
            missing_left=bool(node["missing_go_to_left"]),
            children=(int(node["left"]), int(node["right"])),
        )

    return opened


# -- shared ------------------------------------------------------------------------------------


def largest_rounding_to(single: np.float32) -> float:
    """The largest double that rounds to at most this single-precision number.

    A library that rounds rows to single precision and asks ``x <= single`` asks this of the double. It is the
    middle to the next single-precision number, which itself rounds to the one whose last bit is even.
    """
    if not np.isfinite(single):
        return float(single)
    above = np.nextafter(single, np.float32(np.inf))
    if not np.isfinite(above):
        return float("inf")
    middle = (float(single) + float(above)) / 2.0
    return middle if np.float32(middle) == single else float(np.nextafter(middle, -np.inf))


def _tree(n_features: int, root: Any, opened: Opener, n_scores: int, score: int | slice) -> TreeEnsemble:
    """One tree from its root, parents first, leaves in the order they are met; they add to one score or to all."""
    nodes: list[_Node] = []
    leaves: list[float | Floats] = []
    children: list[list[int]] = []
    for node, place in _walk(root, opened):
        number = len(nodes) if node.children is not None else ~len(leaves)
        if place is not None:
            children[place[0]][place[1]] = number
        if node.children is None:
            leaves.append(node.value)
        else:
            nodes.append(node)
            children.append([0, 0])
    values = np.zeros((len(leaves), n_scores))
    values[:, score] = np.array(leaves, dtype=np.float64)
    return TreeEnsemble(
        n_features,
        np.array([node.feature for node in nodes], dtype=np.int32),
        np.array([node.threshold for node in nodes], dtype=np.float64),
        np.zeros(len(nodes), dtype=np.uint8),
        np.array([node.missing_left for node in nodes], dtype=bool),
        np.array(children, dtype=np.int32).reshape(-1, 2),
        values,
        np.array([0, len(nodes)], dtype=np.int32),
        np.array([0, len(leaves)], dtype=np.int32),
    ).validate()


def _walk(root: Any, opened: Opener) -> Iterator[tuple[_Node, tuple[int, int] | None]]:
    """Nodes in preorder, each with its parent's number among the splits and its side."""
    waiting: list[tuple[Any, tuple[int, int] | None]] = [(root, None)]
    n_splits = 0
    while waiting:
        at, place = waiting.pop()
        node = opened(at)
        yield node, place
        if node.children is not None:
            waiting += [(node.children[1], (n_splits, 1)), (node.children[0], (n_splits, 0))]
            n_splits += 1


def _joined(parts: list[TreeEnsemble], n_features: int, n_scores: int) -> TreeEnsemble:
    return TreeEnsemble.concatenate(parts) if parts else TreeEnsemble.empty(n_features, n_scores)


def _unsuitable(library: str, rule: str, found: str) -> InvalidInputError:
    return InvalidInputError(f"a local model of {library} must have {rule}; this one has {found}.")
