"""Tree ensembles of other libraries as ours: the same question at every node, the same value in every leaf.

Boosted trees for two classes answer with log-odds ``base + sum of leaf values``. Libraries differ in how a node asks:
some compare in single precision, some send a number that equals the threshold right, some read a missing value as
zero. Each question is rewritten as ``x <= threshold`` on double precision so that every number goes where it
went before, without exception.
"""

import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from thrifty.arrays import Floats
from thrifty.exceptions import InvalidInputError
from thrifty.trees.ensemble import TreeEnsemble

__all__ = ["AdditiveTrees", "additive_trees", "largest_rounding_to"]


@dataclass(frozen=True)
class AdditiveTrees:
    """Log-odds of the second class: ``base`` plus the leaf a row reaches in each of ``trees``."""

    trees: TreeEnsemble
    base: float

    def margin(self, X: Any) -> Floats:
        """Log-odds of every row."""
        return self.base + self.trees.predict(X)[:, 0]


@dataclass(frozen=True)
class _Node:
    """A node on its way from one library to another; a leaf has no children and carries the value."""

    value: float = 0.0
    feature: int = -1
    threshold: float = 0.0
    missing_left: bool = False
    children: tuple[Any, Any] | None = None


Opener = Callable[[Any], _Node]


def additive_trees(model: Any, n_features: int) -> AdditiveTrees:
    """Boosted trees of XGBoost, LightGBM, scikit-learn or thrifty itself, for a table of ``n_features`` columns.

    Parameters
    ----------
    model : fitted classifier or booster, AdditiveTrees or TreeEnsemble
        For two classes, with the logistic loss, numeric splits and a constant start.
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
    if found.trees.n_outputs != 1:
        raise InvalidInputError(
            f"the local model must have one score per row; {type(model).__name__} has {found.trees.n_outputs}."
        )
    return found


def _convert(model: Any) -> AdditiveTrees:
    if isinstance(model, AdditiveTrees):
        return model
    if isinstance(model, TreeEnsemble):
        return AdditiveTrees(model, 0.0)
    # Recognised by what they offer, so that nobody needs a library that is not in use.
    if hasattr(model, "get_booster") or hasattr(model, "save_raw"):
        return _from_xgboost(model)
    if hasattr(model, "booster_") or hasattr(model, "dump_model"):
        return _from_lightgbm(model)
    if hasattr(model, "_predictors") and hasattr(model, "_baseline_prediction"):
        return _from_histogram_boosting(model)
    if hasattr(model, "estimators_") and hasattr(model, "init_") and hasattr(model, "learning_rate"):
        return _from_gradient_boosting(model)
    raise InvalidInputError(
        f"the local model must be boosted trees: a fitted classifier of XGBoost or LightGBM, scikit-learn's "
        f"GradientBoostingClassifier or HistGradientBoostingClassifier, or thrifty's own trees; "
        f"got {type(model).__name__}."
    )


# -- one library each --------------------------------------------------------------------------


def _from_xgboost(model: Any) -> AdditiveTrees:
    booster = model.get_booster() if hasattr(model, "get_booster") else model
    learner = json.loads(bytes(booster.save_raw("json")))["learner"]
    kind, objective = learner["gradient_booster"]["name"], learner["objective"]["name"]
    if kind != "gbtree" or objective not in ("binary:logistic", "binary:logitraw"):
        raise _unsuitable(
            "XGBoost", "booster 'gbtree' and objective 'binary:logistic'", f"{kind}, {objective}"
        )
    n_features = int(learner["learner_model_param"]["num_feature"])
    best = getattr(booster, "best_iteration", None) if booster.attr("best_iteration") else None
    trees = learner["gradient_booster"]["model"]["trees"]
    parts = []
    for tree in trees if best is None else trees[: best + 1]:
        if any(tree.get("split_type", ())):
            raise _unsuitable("XGBoost", "numeric splits", "a split on categories")
        parts.append(_tree(n_features, 0, _xgboost_opener(tree)))
    ensemble = _joined(parts, n_features)
    probe = np.zeros((1, n_features), dtype=np.float32)
    margin = float(booster.inplace_predict(probe, predict_type="margin", iteration_range=(0, len(parts)))[0])
    return AdditiveTrees(ensemble, margin - float(ensemble.predict(probe)[0, 0]))


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
    if not objective.startswith("binary") or "sigmoid:1" not in objective or dump.get("average_output"):
        raise _unsuitable("LightGBM", "objective 'binary' with boosting", objective or "a custom objective")
    n_features = int(dump["max_feature_idx"]) + 1
    parts = [_tree(n_features, tree["tree_structure"], _open_lightgbm) for tree in dump["tree_info"]]
    return AdditiveTrees(_joined(parts, n_features), 0.0)


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
    if model.loss != "log_loss" or model.estimators_.shape[1] != 1:
        shown = f"loss={model.loss!r}, {model.estimators_.shape[1]} trees a round"
        raise _unsuitable("GradientBoostingClassifier", "loss='log_loss' and two classes", shown)
    rate, n_features = float(model.learning_rate), int(model.n_features_in_)
    parts = [
        _tree(n_features, 0, _scikit_opener(one.tree_, rate)) for one in model.estimators_[:, 0].tolist()
    ]
    ensemble = _joined(parts, n_features)
    probes = np.vstack([np.zeros(n_features), np.ones(n_features), -np.ones(n_features)])
    with warnings.catch_warnings():
        # Probes have no column names, and need none.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        bases = model.decision_function(probes) - ensemble.predict(probes)[:, 0]
    if np.ptp(bases) > 1e-9 * (1.0 + np.abs(bases).max()):
        raise _unsuitable("GradientBoostingClassifier", "a constant start", "init= that depends on the row")
    return AdditiveTrees(ensemble, float(bases[0]))


def _scikit_opener(tree: Any, rate: float) -> Opener:
    def opened(at: int) -> _Node:
        left, right = int(tree.children_left[at]), int(tree.children_right[at])
        if left < 0:
            return _Node(value=rate * float(tree.value[at, 0, 0]))
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
    if len(model._predictors) and len(model._predictors[0]) != 1:
        raise _unsuitable(
            "HistGradientBoostingClassifier", "two classes", f"{len(model._predictors[0])} scores"
        )
    n_features = int(model.n_features_in_)
    if getattr(model, "_preprocessor", None) is not None:
        raise _unsuitable("HistGradientBoostingClassifier", "numeric columns", "columns of categories")
    parts = [_tree(n_features, 0, _histogram_opener(one[0].nodes)) for one in model._predictors]
    return AdditiveTrees(_joined(parts, n_features), float(np.ravel(model._baseline_prediction)[0]))


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


def _tree(n_features: int, root: Any, opened: Opener) -> TreeEnsemble:
    """One tree from its root, parents before children, leaves in the order they are met."""
    nodes: list[_Node] = []
    leaves: list[float] = []
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
    return TreeEnsemble(
        n_features,
        np.array([node.feature for node in nodes], dtype=np.int32),
        np.array([node.threshold for node in nodes], dtype=np.float64),
        np.zeros(len(nodes), dtype=np.uint8),
        np.array([node.missing_left for node in nodes], dtype=bool),
        np.array(children, dtype=np.int32).reshape(-1, 2),
        np.array(leaves, dtype=np.float64)[:, None],
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


def _joined(parts: list[TreeEnsemble], n_features: int) -> TreeEnsemble:
    return TreeEnsemble.concatenate(parts) if parts else TreeEnsemble.empty(n_features)


def _unsuitable(library: str, rule: str, found: str) -> InvalidInputError:
    return InvalidInputError(f"a local model of {library} must have {rule}; this one has {found}.")
