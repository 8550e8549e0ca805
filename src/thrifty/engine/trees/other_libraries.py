"""Trees of scikit-learn, LightGBM and XGBoost as arrays of ours: the same question at every node, the same leaf values.

Libraries differ in how a node asks: some round rows to single precision, some send a number that equals the threshold
right, some read a missing value as zero. Each question is rewritten as ``x <= threshold`` on double precision, so that
every number goes where it went before; a split on categories becomes the set of codes that go left. Libraries differ in
how leaves are added up, too: ``ForeignTrees`` keeps the order and the precision of the library, so that sums are the
same to the last bit.

This is the one module that reads private attributes of scikit-learn: ``_predictors``, ``_baseline_prediction`` and
``_preprocessor`` of histogram boosting, and ``_raw_predict_init`` of gradient boosting.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Bools, Floats, Ints
from thrifty.engine.trees.binning import LevelSets
from thrifty.engine.trees.ensemble import TreeEnsemble
from thrifty.errors import InvalidInputError
from thrifty.jit import lean_kernel


@dataclass(frozen=True, eq=False)
class ForeignTrees:
    """Trees of a fitted model, and how its library adds up their leaves.

    Attributes
    ----------
    parts : tuple of TreeEnsemble
        One ensemble for each score; or, with the link "shares", one whose leaves hold all class shares or the number.
    base : ndarray of shape (n_scores,)
        Scores before any tree.
    link : {"shares", "logistic", "doubled", "softmax", "identity", "exp", "unknown"}
        What makes answers of the scores: their mean over the trees, a probability, or a number.
    n_features : int
        Columns of the tables that the model reads; those of categories hold their codes.
    library : {"scikit-learn", "lightgbm", "xgboost"}
        Whose arithmetic the sums and links repeat; that of XGBoost is in single precision.
    """

    parts: tuple[TreeEnsemble, ...]
    base: Floats
    link: str
    n_features: int
    library: str = "scikit-learn"

    def scores(self, X: Floats) -> Floats:
        """Sums over the trees, shape (n_rows, n_scores); NaN means missing."""
        if self.link == "shares":
            return self.parts[0].predict(X)
        scores = np.empty((len(X), len(self.parts)), order="F")
        for score, (part, start) in enumerate(zip(self.parts, self.base, strict=True)):
            if self.library == "xgboost":
                scores[:, score] = _single_sums(part, X, start)
            else:
                scores[:, score] = part.predict(X, start=start)[:, 0]
        return scores

    def touched(self, X: Floats) -> Bools:
        """Mask of the columns that each row reads on its way down, shape (n_rows, n_features)."""
        touched: Bools = np.logical_or.reduce([part.touched(X) for part in self.parts])
        return touched

    def problem(self, n_features: int, n_classes: int) -> str | None:
        """Reason why these trees cannot predict with so many columns and classes (0 for a number), or None."""
        links = (
            ("shares", "identity", "exp") if not n_classes else ("shares", "logistic", "doubled", "softmax")
        )
        if self.link not in links or self.library not in ("scikit-learn", "lightgbm", "xgboost"):
            return f"trees do not answer by {self.link!r} as {self.library!r} does"
        if self.n_features != n_features:
            return f"trees of {self.n_features} columns do not read {n_features}"
        is_forest = self.link == "shares"
        n_scores = max(n_classes, 1) if is_forest or self.link == "softmax" else 1
        n_parts, n_outputs = (1, n_scores) if is_forest else (n_scores, 1)
        if len(self.parts) != n_parts or self.base.shape != (n_scores,):
            return f"{len(self.parts)} ensembles do not give {n_scores} scores"
        if not np.isfinite(self.base).all() or (is_forest and not self.parts[0].n_trees):
            return "scores start from numbers that are not finite, or a forest has no tree"
        for part in self.parts:
            if part.n_features != n_features or part.n_outputs != n_outputs:
                return "trees read other columns, or answer with other classes, than there are"
        if is_forest and n_classes and not _are_shares(self.parts[0].values):
            return "leaves of a forest hold no shares of the classes"
        return None


_SLACK = 1e-6  # shares that were rounded still sum to one


def _are_shares(values: Floats) -> bool:
    inside = np.all((values >= 0) & (values <= 1.0 + _SLACK))
    return bool(inside and np.all(np.abs(values.sum(axis=1) - 1.0) <= _SLACK))


def _single_sums(trees: TreeEnsemble, X: Floats, start: float) -> NDArray[np.float32]:
    """Leaf values added to ``start`` tree by tree in single precision, shape (n_rows,)."""
    leaves, values = trees.apply(X), trees.values[:, 0].astype(np.float32)
    sums = np.full(len(X), start, dtype=np.float32)
    for tree in range(trees.n_trees):
        sums += values[leaves[:, tree]]
    return sums


# -- trees that learn with the pair of DynaMod-Lstsq -------------------------------------------------


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
    if isinstance(model, TreeEnsemble):
        model = AdditiveTrees(model, np.zeros(model.n_outputs))
    found = model if isinstance(model, AdditiveTrees) else _added(foreign_trees(model), type(model).__name__)
    theirs = found.trees.n_features
    if theirs != n_features:
        raise InvalidInputError(
            f"the local model {type(model).__name__} was fitted on {theirs} features; X has {n_features}. "
            f"Fit it on the columns that are given here."
        )
    return found


def _added(found: ForeignTrees, name: str) -> AdditiveTrees:
    """One ensemble with a column of values for each score."""
    if any(part.sets is not None for part in found.parts):
        raise _unsuitable(name, "numeric splits", "a split on categories")
    if found.link == "shares" and found.parts[0].n_outputs > 1:
        trees = found.parts[0]
        # Of two classes the second alone: the other one is the rest.
        first = 1 if trees.n_outputs == 2 else 0
        shares = trees.values[:, first:] / (trees.values.sum(axis=1, keepdims=True) * trees.n_trees)
        return AdditiveTrees(replace(trees, values=shares), np.zeros(shares.shape[1]), are_probabilities=True)
    if found.link not in ("logistic", "softmax"):
        raise _unsuitable(name, "the log-loss of classes", f"scores of the kind {found.link!r}")
    n_scores = len(found.parts)
    wide = []
    for score, part in enumerate(found.parts):
        values = np.zeros((len(part.values), n_scores))
        values[:, score] = part.values[:, 0]
        wide.append(replace(part, values=values))
    return AdditiveTrees(_joined(wide, found.n_features, n_scores), found.base)


# -- one library each --------------------------------------------------------------------------------


def foreign_trees(model: Any) -> ForeignTrees:
    """Trees of a fitted model; refuses models of other kinds and what no array of ours can hold."""
    # Recognised by what they offer, so that no library is needed that is not in use.
    if hasattr(model, "get_booster") or hasattr(model, "save_raw"):
        return _from_xgboost(model)
    if hasattr(model, "booster_") or hasattr(model, "model_to_string"):
        return _from_lightgbm(model)
    if hasattr(model, "_predictors") and hasattr(model, "_baseline_prediction"):
        return _from_histogram_boosting(model)
    if hasattr(model, "estimators_") and hasattr(model, "init_") and hasattr(model, "learning_rate"):
        return _from_gradient_boosting(model)
    if all(hasattr(model, name) for name in ("estimators_", "bootstrap", "criterion", "max_leaf_nodes")):
        return _from_forest(model, [one.tree_ for one in model.estimators_])
    if hasattr(model, "tree_") and hasattr(model, "splitter"):
        return _from_forest(model, [model.tree_])
    raise InvalidInputError(
        f"the local model must be boosted trees or a forest: a fitted classifier of XGBoost or LightGBM, "
        f"scikit-learn's GradientBoostingClassifier, HistGradientBoostingClassifier, RandomForestClassifier "
        f"or ExtraTreesClassifier, or thrifty's own trees; got {type(model).__name__}."
    )


_XGBOOST_LINKS = {
    **dict.fromkeys(("binary:logistic", "reg:logistic"), "logistic"),
    **dict.fromkeys(("multi:softprob", "multi:softmax"), "softmax"),
    **dict.fromkeys(("reg:squarederror", "reg:absoluteerror", "reg:quantileerror"), "identity"),
    **dict.fromkeys(("rank:ndcg", "rank:pairwise", "rank:map"), "identity"),
    **dict.fromkeys(("count:poisson", "reg:gamma", "reg:tweedie"), "exp"),
}


def _xgboost_learner(model: Any) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Booster of a model, its description, and the description of its trees."""
    booster = model.get_booster() if hasattr(model, "get_booster") else model
    learner = json.loads(bytes(booster.save_raw("json")))["learner"]
    described = learner["gradient_booster"]
    # Trees that are dropped in training are wrapped once more.
    return booster, learner, described.get("gbtree", described).get("model", {})


def _from_xgboost(model: Any) -> ForeignTrees:
    booster, learner, forest = _xgboost_learner(model)
    kind, known = learner["gradient_booster"]["name"], learner["learner_model_param"]
    if "trees" not in forest or int(known.get("num_target", 1)) > 1:
        raise _unsuitable("XGBoost", "trees and one target", kind)
    missing = getattr(model, "missing", np.nan)
    if missing is not None and not np.isnan(missing):
        raise _unsuitable("XGBoost", "missing=nan", f"missing={missing!r}")
    # Dropped trees are weighted.
    link = "unknown" if kind != "gbtree" else _XGBOOST_LINKS.get(learner["objective"]["name"], "unknown")
    n_features, n_scores = int(known["num_feature"]), max(int(known["num_class"]), 1)
    a_round = n_scores * max(int(forest["gbtree_model_param"].get("num_parallel_tree", 1)), 1)
    best = getattr(booster, "best_iteration", None) if booster.attr("best_iteration") else None
    n_trees = len(forest["trees"]) if best is None else (best + 1) * a_round
    parts: list[list[TreeEnsemble]] = [[] for _ in range(n_scores)]
    for tree, score in list(zip(forest["trees"], forest["tree_info"], strict=True))[:n_trees]:
        if int(tree["tree_param"].get("size_leaf_vector", 1)) > 1:
            raise _unsuitable("XGBoost", "multi_strategy='one_output_per_tree'", "'multi_output_tree'")
        parts[int(score)].append(_xgboost_tree(tree, n_features))
    ensembles = tuple(_joined(one, n_features, 1) for one in parts)
    start = np.array(json.loads(str(known["base_score"])), dtype=np.float32).reshape(-1)
    base = _margin(np.broadcast_to(start, n_scores), link)
    return ForeignTrees(ensembles, base, link, n_features, "xgboost")


def _margin(base_score: NDArray[np.float32], link: str) -> Floats:
    """Scores, in single precision, whose link is the base score of XGBoost."""
    one = np.float32(1.0)
    if link == "logistic":
        base_score = -_logarithms(one / base_score - one)
    elif link == "exp":
        base_score = _logarithms(base_score)
    return base_score.astype(np.float64)


def _logarithms(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """``log`` as the C library computes it; numpy's differs in the last bit on processors with AVX-512."""
    values = np.array(values)
    out = np.empty_like(values)
    write_logarithms(values, out)
    return out


@lean_kernel
def write_logarithms(values: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    """Write the logarithm of each number."""
    for i in range(len(values)):
        out[i] = math.log(values[i])


def _xgboost_tree(tree: Mapping[str, Any], n_features: int) -> TreeEnsemble:
    left, right = np.array(tree["left_children"]), np.array(tree["right_children"])
    missing_left = np.array(tree["default_left"], dtype=bool)
    sets: dict[int, Ints] = {}
    begins, sizes = tree.get("categories_segments", ()), tree.get("categories_sizes", ())
    for node, begin, size in zip(tree.get("categories_nodes", ()), begins, sizes, strict=True):
        # The categories of a node go right, and all others, unknown ones too, left.
        sets[node] = np.sort(tree["categories"][begin : begin + size])
        left[node], right[node], missing_left[node] = right[node], left[node], not missing_left[node]
    order = _preorder(left, right)
    place = np.full(len(left), -1)
    place[order] = np.arange(len(order))
    is_leaf = left[order] < 0
    # A leaf keeps its value where a split keeps its threshold.
    condition = np.array(tree["split_conditions"], dtype=np.float32)[order]
    just_below = np.nextafter(condition, np.float32(-np.inf))  # left only if smaller
    return _tree(
        n_features,
        is_leaf,
        np.where(is_leaf, -1, place[left[order]]),
        np.where(is_leaf, -1, place[right[order]]),
        np.array(tree["split_indices"])[order],
        largest_rounding_to(just_below),
        missing_left[order],
        condition[:, None],
        {int(place[node]): levels for node, levels in sets.items() if place[node] >= 0},
    )


def _preorder(left: Ints, right: Ints) -> Ints:
    """Nodes that are reached from the first, each before its children: pruning leaves others behind."""
    order, waiting = [], [0]
    while waiting:
        node = waiting.pop()
        order.append(node)
        if left[node] >= 0:
            waiting += [int(right[node]), int(left[node])]
    return np.array(order, dtype=np.intp)


_LIGHTGBM_LINKS = {
    **dict.fromkeys(("regression", "regression_l1", "huber", "fair", "quantile", "mape"), "identity"),
    # The booster answers with scores where its objective was a function.
    **dict.fromkeys(("lambdarank", "rank_xendcg", "none", "custom"), "identity"),
    **dict.fromkeys(("poisson", "gamma", "tweedie"), "exp"),
    "binary": "logistic",
    "multiclass": "softmax",
}


def _from_lightgbm(model: Any) -> ForeignTrees:
    booster = model.booster_ if hasattr(model, "booster_") else model
    head, *trees = booster.model_to_string().split("\nend of trees")[0].split("\nTree=")
    known = _settings(head)
    objective, *settings = known.get("objective", "none").split()
    is_plain = (objective != "binary" or "sigmoid:1" in settings) and "sqrt" not in settings
    # A forest divides the sums.
    is_known = is_plain and "average_output" not in known
    link = _LIGHTGBM_LINKS.get(objective, "unknown") if is_known else "unknown"
    n_features, n_scores = int(known["max_feature_idx"]) + 1, int(known["num_tree_per_iteration"])
    grown = [_lightgbm_tree(_settings(one), n_features) for one in trees]
    ensembles = tuple(_joined(grown[score::n_scores], n_features, 1) for score in range(n_scores))
    return ForeignTrees(ensembles, np.zeros(n_scores), link, n_features, "lightgbm")


def _settings(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines())
    return {name: value for name, _, value in pairs}


def _lightgbm_tree(tree: Mapping[str, str], n_features: int) -> TreeEnsemble:
    if tree.get("is_linear", "0") != "0":
        raise _unsuitable("LightGBM", "constant leaves", "linear_tree")

    def array(name: str, dtype: Any) -> Any:
        return np.array(tree.get(name, "").split(), dtype=dtype)

    n_splits, values = int(tree["num_leaves"]) - 1, array("leaf_value", np.float64)
    decision, threshold = array("decision_type", np.int64)[:n_splits], array("threshold", np.float64)
    is_set, missing = (decision & 1) > 0, (decision >> 2) & 3
    if np.any(missing[~is_set] == 1):
        raise _unsuitable("LightGBM", "zero_as_missing=False", "zero_as_missing=True")
    nodes = np.flatnonzero(is_set)
    # The threshold of a split on categories is the number of its set.
    bits = array("cat_threshold", np.uint32)
    words = np.split(bits, array("cat_boundaries", np.int64)[1:-1]) if len(nodes) else []
    return TreeEnsemble(
        n_features,
        array("split_feature", np.int32),
        np.where(is_set, 0.0, threshold),
        np.zeros(n_splits, np.uint8),
        # Fitted without missing values, it reads one as zero; a missing category goes right.
        ~is_set & np.where(missing == 2, (decision & 2) > 0, threshold >= 0.0),
        np.column_stack([array("left_child", np.int32), array("right_child", np.int32)]),
        values[:, None],
        np.array([0, n_splits], np.int32),
        np.array([0, len(values)], np.int32),
        LevelSets.of(nodes, [_levels_of_bits(words[int(threshold[node])]) for node in nodes]),
    ).validate()


def _levels_of_bits(words: Any) -> Ints:
    """Numbers of the bits that are set in some 32-bit words."""
    bytes_of = np.ascontiguousarray(words, dtype="<u4").view(np.uint8)
    return np.flatnonzero(np.unpackbits(bytes_of, bitorder="little"))


def _from_gradient_boosting(model: Any) -> ForeignTrees:
    link = {"log_loss": "logistic", "exponential": "doubled"}.get(model.loss, "identity")
    n_features, n_scores = int(model.n_features_in_), model.estimators_.shape[1]
    link = "softmax" if n_scores > 1 else link
    if model.init is not None and not isinstance(model.init, str):
        raise _unsuitable(type(model).__name__, "a constant start", "init= that depends on the row")
    parts = [[_scikit_tree(one.tree_, n_features) for one in each] for each in model.estimators_.T]
    rate = float(model.learning_rate)
    ensembles = [_joined(part, n_features, 1) for part in parts]
    base = np.asarray(model._raw_predict_init(np.zeros((1, n_features))), dtype=np.float64).reshape(-1)
    scaled = tuple(replace(one, values=rate * one.values) for one in ensembles)
    return ForeignTrees(scaled, base, link, n_features)


def _from_forest(model: Any, trees: Sequence[Any]) -> ForeignTrees:
    if int(getattr(model, "n_outputs_", 1)) != 1:
        raise _unsuitable(type(model).__name__, "one target", f"{model.n_outputs_}")
    n_features = int(model.n_features_in_)
    joined = TreeEnsemble.concatenate([_scikit_tree(tree, n_features) for tree in trees])
    return ForeignTrees((joined,), np.zeros(joined.n_outputs), "shares", n_features)


def forest_trees(model: Any) -> TreeEnsemble:
    """Trees of a fitted forest of scikit-learn for one or several numbers; its prediction is their mean."""
    trees = [_scikit_tree(one.tree_, int(model.n_features_in_)) for one in model.estimators_]
    return TreeEnsemble.concatenate(trees)


def _scikit_tree(tree: Any, n_features: int) -> TreeEnsemble:
    # Rows are rounded to single precision, thresholds are not.
    single = tree.threshold.astype(np.float32)
    single = np.where(single > tree.threshold, np.nextafter(single, np.float32(-np.inf)), single)
    missing = getattr(tree, "missing_go_to_left", np.zeros(len(single)))
    return _tree(
        n_features,
        tree.children_left < 0,
        tree.children_left,
        tree.children_right,
        tree.feature,
        largest_rounding_to(single),
        missing,
        tree.value[:, 0, :] if tree.n_outputs == 1 else tree.value[:, :, 0],
    )


_PLAIN_LOSSES = ("squared_error", "absolute_error", "quantile")


def _from_histogram_boosting(model: Any) -> ForeignTrees:
    n_features = int(model.n_features_in_)
    base = np.array(model._baseline_prediction, dtype=np.float64).reshape(-1)
    if hasattr(model, "classes_"):
        link = "logistic" if len(base) == 1 else "softmax"
    else:
        link = "identity" if model.loss in _PLAIN_LOSSES else "exp"
    # Boosting puts columns of categories before the others.
    is_coded = np.zeros(n_features, bool) if model.is_categorical_ is None else model.is_categorical_
    column_of = np.argsort(~is_coded, kind="stable")
    parts = [
        [_histogram_tree(one, column_of) for one in each] for each in zip(*model._predictors, strict=True)
    ]
    trees = tuple(_joined(part, n_features, 1) for part in parts or [[] for _ in base])
    return ForeignTrees(trees, base, link, n_features)


def _histogram_tree(tree: Any, column_of: Ints) -> TreeEnsemble:
    nodes = tree.nodes
    is_leaf = nodes["is_leaf"] != 0
    sets = {
        int(node): _levels_of_bits(tree.raw_left_cat_bitsets[int(nodes["bitset_idx"][node])])
        for node in np.flatnonzero((nodes["is_categorical"] != 0) & ~is_leaf)
    }
    return _tree(
        len(column_of),
        is_leaf,
        nodes["left"].astype(np.int64),
        nodes["right"].astype(np.int64),
        column_of[np.where(is_leaf, 0, nodes["feature_idx"].astype(np.int64))],
        nodes["num_threshold"].astype(np.float64),
        nodes["missing_go_to_left"],
        nodes["value"][:, None],
        sets,
    )


# -- categories ----------------------------------------------------------------------------------


def categories_of(model: Any) -> dict[int, list[Any]]:
    """Categories of the columns, by place, in the order of their codes; empty where a model reads codes themselves."""
    if hasattr(model, "get_booster") or hasattr(model, "save_raw"):
        booster, learner, forest = _xgboost_learner(model)
        kept = forest.get("cats", {}).get("enc", [])  # since version 3.1
        if "c" in (learner.get("feature_types") or ()) and booster.feature_names and not kept:
            raise _unsuitable("XGBoost", "its categories", "none; fit it with version 3.1 or later")
        return {place: levels for place, one in enumerate(kept) if (levels := _xgboost_levels(one))}
    if hasattr(model, "booster_") or hasattr(model, "model_to_string"):
        booster = getattr(model, "booster_", model)
        known: list[list[Any]] = booster.pandas_categorical or []
        match = re.search(r"^\[categorical_feature: ([\d,]+)\]$", booster.model_to_string(), re.MULTILINE)
        places = [int(place) for place in match[1].split(",")] if known and match else []
        return dict(zip(places, known, strict=True))
    encoder = getattr(model, "_preprocessor", None)
    if encoder is None:
        return {}
    found = [np.asarray(one).tolist() for one in encoder.transformers_[0][1].categories_]
    present = [[one for one in levels if one == one and one is not None] for levels in found]
    return dict(zip(np.flatnonzero(model.is_categorical_).tolist(), present, strict=True))


def _xgboost_levels(kept: Mapping[str, Any]) -> list[Any]:
    """Categories of one column: numbers, or texts as concatenated bytes."""
    if "offsets" not in kept:
        return list(kept["values"])
    text, ends = bytes(one % 256 for one in kept["values"]), kept["offsets"]
    return [text[begin:end].decode() for begin, end in pairwise(ends)]


# -- shared ------------------------------------------------------------------------------------


def largest_rounding_to(single: Any) -> Floats:
    """The largest doubles that round to at most these single-precision numbers.

    A library that rounds rows to single precision and asks ``x <= single`` asks this of the double. It is the
    middle to the next single-precision number, which itself rounds to the one whose last bit is even.
    """
    single = np.asarray(single, dtype=np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        above = np.nextafter(single, np.float32(np.inf))
        middle = (single.astype(np.float64) + above.astype(np.float64)) / 2.0
        middle = np.where(middle.astype(np.float32) == single, middle, np.nextafter(middle, -np.inf))
    largest: Floats = np.where(np.isfinite(single), middle, single.astype(np.float64))
    return largest


def _tree(
    n_features: int,
    is_leaf: Bools,
    left: NDArray[Any],
    right: NDArray[Any],
    feature: NDArray[Any],
    threshold: NDArray[Any],
    missing_left: NDArray[Any],
    values: NDArray[Any],
    sets: Mapping[int, Ints] | None = None,
) -> TreeEnsemble:
    """One tree from nodes that are splits and leaves in any order in which parents come first."""
    is_split = ~is_leaf
    number = np.where(is_split, np.cumsum(is_split) - 1, ~(np.cumsum(is_leaf) - 1))
    child = np.column_stack([left[is_split], right[is_split]]).astype(np.int64)
    n_splits = int(is_split.sum())
    asking = sorted(sets or {})
    return TreeEnsemble(
        n_features,
        feature[is_split].astype(np.int32),
        threshold[is_split].astype(np.float64),
        np.zeros(n_splits, np.uint8),
        missing_left[is_split].astype(bool),
        number[child].astype(np.int32),
        values[is_leaf].astype(np.float64),
        np.array([0, n_splits], np.int32),
        np.array([0, len(number) - n_splits], np.int32),
        LevelSets.of(number[asking], [(sets or {})[node] for node in asking]),
    ).validate()


def _joined(parts: list[TreeEnsemble], n_features: int, n_scores: int) -> TreeEnsemble:
    return TreeEnsemble.concatenate(parts) if parts else TreeEnsemble.empty(n_features, n_scores)


def _unsuitable(library: str, rule: str, found: str) -> InvalidInputError:
    return InvalidInputError(f"a local model of {library} must have {rule}; this one has {found}.")
