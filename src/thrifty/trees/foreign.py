"""Trees of scikit-learn, LightGBM and XGBoost as arrays of ours: the same question at every node, the same leaf values.

Libraries differ in how a node asks: some round rows to single precision, some send a number that equals the threshold
right, some read a missing value as zero. Each question is rewritten as ``x <= threshold`` on double precision, so that
every number goes where it went before. They differ in how leaves are added up, too: ``ForeignTrees`` keeps the order
and the precision of the library, so that sums are the same to the last bit.

This is the one module that reads private attributes of scikit-learn: ``_predictors``, ``_baseline_prediction`` and
``_preprocessor`` of histogram boosting, and ``_raw_predict_init`` of gradient boosting.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Bools, Floats, Ints
from thrifty.errors import InvalidInputError
from thrifty.trees.ensemble import TreeEnsemble

__all__ = [
    "AdditiveTrees",
    "Categories",
    "ForeignTrees",
    "additive_trees",
    "foreign_trees",
    "largest_rounding_to",
]


@dataclass(frozen=True, eq=False)
class Categories:
    """Splits that send some categories left: each is a column of its own, 1 where a row goes right.

    Attributes
    ----------
    columns : ndarray of shape (n_categorical,)
        Columns that hold categories.
    known : tuple of ndarray
        Categories of each of them, sorted.
    asked : ndarray of shape (n_splits,)
        Which of those columns each split looks at.
    goes_right : ndarray of shape (n_splits, most categories + 1), bool
        Whether a split sends a category right; the last place is for missing values and categories never seen.
    """

    columns: Ints
    known: tuple[Floats, ...]
    asked: Ints
    goes_right: Bools

    def answers(self, X: Floats) -> Floats:
        """Columns of the splits, shape (n_rows, n_splits)."""
        codes = np.full((len(X), len(self.columns)), self.goes_right.shape[1] - 1)
        for place, (column, known) in enumerate(zip(self.columns, self.known, strict=True)):
            if len(known):
                values = X[:, column]
                found = np.minimum(np.searchsorted(known, values), len(known) - 1)
                seen = known[found] == values
                codes[seen, place] = found[seen]
        right = self.goes_right[np.arange(len(self.asked)), codes[:, self.asked]]
        return np.asarray(right, dtype=np.float64)

    def problem(self, n_features: int) -> str | None:
        """Why these are no splits of tables of so many columns, or None."""
        n_columns, n_splits = len(self.columns), len(self.asked)
        arrays = (self.columns, self.asked, *self.known)
        if any(one.ndim != 1 for one in arrays) or self.goes_right.ndim != 2:
            return "categories have arrays of wrong dimensions"
        if len(self.known) != n_columns or len(self.goes_right) != n_splits:
            return "columns and splits of categories differ in number"
        if n_columns and (self.columns.min() < 0 or self.columns.max() >= n_features):
            return f"a column of categories lies outside 0 .. {n_features - 1}"
        if n_splits and (self.asked.min() < 0 or self.asked.max() >= n_columns):
            return "a split looks at a column without categories"
        for known in self.known:
            if not (np.isfinite(known).all() and np.all(known[1:] > known[:-1])):
                return "categories do not rise"
            if len(known) >= self.goes_right.shape[1]:
                return "a category has no side at a split"
        return None


@dataclass(frozen=True, eq=False)
class ForeignTrees:
    """Trees of a fitted model, and how its library adds up their leaves.

    Attributes
    ----------
    parts : tuple of TreeEnsemble
        One ensemble for each score; or, with the link "shares", one whose leaves hold all class shares or the number.
    base : ndarray of shape (n_scores,)
        Scores before any tree.
    link : {"shares", "logistic", "doubled", "softmax", "identity", "exp"}
        What makes answers of the scores: their mean over the trees, a probability, or a number.
    n_features : int
        Columns of the tables that the model reads.
    library : {"scikit-learn", "lightgbm", "xgboost"}
        Whose arithmetic the sums and links repeat; that of XGBoost is in single precision.
    categories : Categories, optional
        Splits on categories, which are further columns of the trees.
    """

    parts: tuple[TreeEnsemble, ...]
    base: Floats
    link: str
    n_features: int
    library: str = "scikit-learn"
    categories: Categories | None = None

    def scores(self, X: Floats) -> Floats:
        """Sums over the trees, shape (n_rows, n_scores); NaN means missing."""
        X = self._widened(X)
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
        X = self._widened(X)
        asked = np.logical_or.reduce([part.touched(X) for part in self.parts])
        touched: Bools = asked[:, : self.n_features].copy()
        if self.categories is not None:
            for split, column in enumerate(self.categories.columns[self.categories.asked]):
                touched[:, column] |= asked[:, self.n_features + split]
        return touched

    def _widened(self, X: Floats) -> Floats:
        """Rows with a column for each split on categories."""
        return X if self.categories is None else np.hstack([X, self.categories.answers(X)])

    def problem(self, n_features: int, n_classes: int) -> str | None:
        """Why these trees cannot answer about so many columns and classes (0 for a number), or None."""
        links = (
            ("shares", "identity", "exp") if not n_classes else ("shares", "logistic", "doubled", "softmax")
        )
        if self.link not in links or self.library not in ("scikit-learn", "lightgbm", "xgboost"):
            return f"trees do not answer by {self.link!r} as {self.library!r} does"
        if self.n_features != n_features:
            return f"trees of {self.n_features} columns do not read {n_features}"
        if self.categories is not None and self.categories.problem(n_features) is not None:
            return self.categories.problem(n_features)
        is_forest = self.link == "shares"
        n_scores = max(n_classes, 1) if is_forest or self.link == "softmax" else 1
        width = n_features + (0 if self.categories is None else len(self.categories.asked))
        n_parts, n_outputs = (1, n_scores) if is_forest else (n_scores, 1)
        if len(self.parts) != n_parts or self.base.shape != (n_scores,):
            return f"{len(self.parts)} ensembles do not give {n_scores} scores"
        if not np.isfinite(self.base).all() or (is_forest and not self.parts[0].n_trees):
            return "scores start from numbers that are not finite, or a forest has no tree"
        for part in self.parts:
            if part.n_features != width or part.n_outputs != n_outputs or part.sets is not None:
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
    if found.categories is not None:
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


def _from_xgboost(model: Any) -> ForeignTrees:
    booster = model.get_booster() if hasattr(model, "get_booster") else model
    learner = json.loads(bytes(booster.save_raw("json")))["learner"]
    kind, objective = learner["gradient_booster"]["name"], learner["objective"]["name"]
    known = learner["learner_model_param"]
    if kind != "gbtree" or objective not in _XGBOOST_LINKS or int(known.get("num_target", 1)) > 1:
        raise _unsuitable(
            "XGBoost",
            "booster 'gbtree' and objective 'binary:logistic' or 'multi:softprob'",
            f"{kind}, {objective}",
        )
    missing = getattr(model, "missing", np.nan)
    if missing is not None and not np.isnan(missing):
        raise _unsuitable("XGBoost", "missing=nan", f"missing={missing!r}")
    n_features, link = int(known["num_feature"]), _XGBOOST_LINKS[objective]
    forest = learner["gradient_booster"]["model"]
    n_scores = max(int(known["num_class"]), 1)
    a_round = n_scores * max(int(forest["gbtree_model_param"].get("num_parallel_tree", 1)), 1)
    best = getattr(booster, "best_iteration", None) if booster.attr("best_iteration") else None
    n_trees = len(forest["trees"]) if best is None else (best + 1) * a_round
    parts: list[list[TreeEnsemble]] = [[] for _ in range(n_scores)]
    for tree, score in list(zip(forest["trees"], forest["tree_info"], strict=True))[:n_trees]:
        if any(tree.get("split_type", ())):
            raise _unsuitable("XGBoost", "numeric splits", "a split on categories")
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
        base_score = -np.log(one / base_score - one)
    elif link == "exp":
        base_score = np.log(base_score)
    return base_score.astype(np.float64)


def _xgboost_tree(tree: Mapping[str, Any], n_features: int) -> TreeEnsemble:
    left, right = np.array(tree["left_children"]), np.array(tree["right_children"])
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
        np.array(tree["default_left"])[order],
        condition[:, None],
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
    **dict.fromkeys(("lambdarank", "rank_xendcg"), "identity"),
    **dict.fromkeys(("poisson", "gamma", "tweedie"), "exp"),
    "binary": "logistic",
    "multiclass": "softmax",
}


def _from_lightgbm(model: Any) -> ForeignTrees:
    booster = model.booster_ if hasattr(model, "booster_") else model
    head, *trees = booster.model_to_string().split("\nend of trees")[0].split("\nTree=")
    known = _settings(head)
    objective, *settings = known.get("objective", "none").split()
    is_plain = objective != "binary" or "sigmoid:1" in settings
    if objective not in _LIGHTGBM_LINKS or not is_plain or "sqrt" in settings or "average_output" in known:
        raise _unsuitable(
            "LightGBM",
            "objective 'binary' or 'multiclass' with boosting",
            known.get("objective", "a custom objective"),
        )
    n_features, n_scores = int(known["max_feature_idx"]) + 1, int(known["num_tree_per_iteration"])
    grown = [_lightgbm_tree(_settings(one), n_features) for one in trees]
    ensembles = tuple(_joined(grown[score::n_scores], n_features, 1) for score in range(n_scores))
    return ForeignTrees(ensembles, np.zeros(n_scores), _LIGHTGBM_LINKS[objective], n_features, "lightgbm")


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
    if np.any(decision & 1):
        raise _unsuitable("LightGBM", "numeric splits", "a split on categories")
    missing = (decision >> 2) & 3
    if np.any(missing == 1):
        raise _unsuitable("LightGBM", "zero_as_missing=False", "zero_as_missing=True")
    return TreeEnsemble(
        n_features,
        array("split_feature", np.int32),
        threshold,
        np.zeros(n_splits, np.uint8),
        # Fitted without missing values, it reads one as zero.
        np.where(missing == 2, (decision & 2) > 0, threshold >= 0.0),
        np.column_stack([array("left_child", np.int32), array("right_child", np.int32)]),
        values[:, None],
        np.array([0, n_splits], np.int32),
        np.array([0, len(values)], np.int32),
    ).validate()


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
        tree.value[:, 0, :],
    )


_PLAIN_LOSSES = ("squared_error", "absolute_error", "quantile")


def _from_histogram_boosting(model: Any) -> ForeignTrees:
    n_features = int(model.n_features_in_)
    base = np.array(model._baseline_prediction, dtype=np.float64).reshape(-1)
    if hasattr(model, "classes_"):
        link = "logistic" if len(base) == 1 else "softmax"
    else:
        link = "identity" if model.loss in _PLAIN_LOSSES else "exp"
    asked = _Asked(n_features, *_encoded(model))
    parts = [
        [_score_tree(one.nodes, one.raw_left_cat_bitsets, asked) for one in each]
        for each in zip(*model._predictors, strict=True)
    ]
    width = n_features + len(asked.sides)
    trees = tuple(_joined([replace(one, n_features=width) for one in part], width, 1) for part in parts)
    trees = trees or tuple(TreeEnsemble.empty(width) for _ in base)
    return ForeignTrees(trees, base, link, n_features, categories=asked.categories())


def _encoded(model: Any) -> tuple[Ints, list[Floats]]:
    """Columns of categories and the categories of each, missing values left out."""
    step = getattr(model, "_preprocessor", None)
    if step is None:
        return np.empty(0, np.intp), []
    found = [np.asarray(one) for one in step.transformers_[0][1].categories_]
    if any(one.dtype.kind not in "biuf" for one in found):
        raise _unsuitable(type(model).__name__, "categories that are numbers", "text")
    numbers = [one.astype(np.float64) for one in found]
    return np.flatnonzero(model.is_categorical_), [one[~np.isnan(one)] for one in numbers]


class _Asked:
    """Splits on categories, collected while trees are read; equal ones once."""

    def __init__(self, n_features: int, columns: Ints, known: Sequence[Floats]) -> None:
        self.columns, self.known, self.n_features = columns, known, n_features
        # Boosting puts columns of categories before the others.
        others = np.setdiff1d(np.arange(n_features), columns)
        self.column_of = np.concatenate([columns, others]).astype(np.intp)
        self.width = max((len(one) for one in known), default=0) + 1
        self.sides: dict[tuple[int, bytes], int] = {}

    def split(self, feature: int, bits: NDArray[Any], missing_left: bool) -> int:
        """Number of the column of a split; ``bits`` are the categories that go left."""
        goes_left = np.zeros(self.width, dtype=bool)
        n_known = len(self.known[feature])
        goes_left[:n_known] = bits[:n_known]
        goes_left[n_known:] = missing_left
        key = (feature, (~goes_left).tobytes())
        return self.n_features + self.sides.setdefault(key, len(self.sides))

    def categories(self) -> Categories | None:
        """All splits that were met."""
        if not self.sides:
            return None
        tables = [np.frombuffer(one, dtype=bool) for _, one in self.sides]
        asked = np.array([feature for feature, _ in self.sides], dtype=np.intp)
        return Categories(self.columns, tuple(self.known), asked, np.array(tables))


def _score_tree(nodes: Any, bitsets: Any, asked: _Asked) -> TreeEnsemble:
    is_leaf = nodes["is_leaf"] != 0
    feature = np.where(is_leaf, 0, nodes["feature_idx"].astype(np.int64))
    threshold = nodes["num_threshold"].astype(np.float64)
    column = asked.column_of[feature]
    for place in np.flatnonzero((nodes["is_categorical"] != 0) & ~is_leaf):
        words = np.ascontiguousarray(bitsets[int(nodes["bitset_idx"][place])], dtype="<u4")
        bits = np.unpackbits(words.view(np.uint8), bitorder="little").astype(bool)
        missing_left = bool(nodes["missing_go_to_left"][place])
        column[place], threshold[place] = asked.split(int(feature[place]), bits, missing_left), 0.5
    return _tree(
        asked.n_features + len(asked.sides),
        is_leaf,
        nodes["left"].astype(np.int64),
        nodes["right"].astype(np.int64),
        column,
        threshold,
        nodes["missing_go_to_left"],
        nodes["value"][:, None],
    )


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
) -> TreeEnsemble:
    """One tree from nodes that are splits and leaves in any order in which parents come first."""
    is_split = ~is_leaf
    number = np.where(is_split, np.cumsum(is_split) - 1, ~(np.cumsum(is_leaf) - 1))
    child = np.column_stack([left[is_split], right[is_split]]).astype(np.int64)
    n_splits = int(is_split.sum())
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
    ).validate()


def _joined(parts: list[TreeEnsemble], n_features: int, n_scores: int) -> TreeEnsemble:
    return TreeEnsemble.concatenate(parts) if parts else TreeEnsemble.empty(n_features, n_scores)


def _unsuitable(library: str, rule: str, found: str) -> InvalidInputError:
    return InvalidInputError(f"a local model of {library} must have {rule}; this one has {found}.")
