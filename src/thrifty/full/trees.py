"""Tree ensembles of other libraries as arrays that answer as their classifier did.

Trees of a fitted classifier or regressor as checked arrays, which answer as the original did, to the last bit.

A forest answers with the mean over its trees of the class shares, or of the number, in the leaf that a row reaches;
boosting adds the leaves to a constant and turns the sums into probabilities, or leaves them as they are. Neither needs
anything of the library that fitted it but the arrays, so a file may hold them as data: whatever the numbers are, no
compiled code of others is given them.

Fitted trees, forests and histogram boosting of scikit-learn as plain arrays.

A model is recognised by the exact name of its class and read attribute by attribute, either alive or as a file
describes it. Of a description nothing is built: its arrays are looked at, checked, and copied into our own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import get_tags
from sklearn.utils.extmath import softmax
from sklearn.utils.validation import check_array, validate_data

from thrifty.arrays import Bools, Floats, Ints, Labels
from thrifty.errors import InvalidInputError
from thrifty.trees import TreeEnsemble

__all__ = [
    "Categories",
    "Described",
    "Scaler",
    "TreeClassifier",
    "TreeModel",
    "TreeRegressor",
    "tree_classifier_of",
]

_BLOCK = 4096  # rows that are answered at once
_SLACK = 1e-6  # shares that were rounded still sum to one


@dataclass(frozen=True)
class Scaler:
    """A step that shifts and scales columns before the trees look at them.

    Attributes
    ----------
    kind : {"StandardScaler", "RobustScaler", "MinMaxScaler", "MaxAbsScaler"}
        Class of scikit-learn, which does the arithmetic.
    shift, scale : ndarray of shape (n_features,), optional
        What it learned; None where it does not shift or scale.
    """

    kind: str
    shift: Floats | None
    scale: Floats | None

    def made(self, names: Labels | None) -> Any:
        """The fitted scaler; its code is plain numpy."""
        from sklearn import preprocessing

        shifts, scales = self.shift is not None, self.scale is not None
        made: Any
        if self.kind == "StandardScaler":
            made = preprocessing.StandardScaler(with_mean=shifts, with_std=scales)
            made.mean_ = self.shift
        elif self.kind == "RobustScaler":
            made = preprocessing.RobustScaler(with_centering=shifts, with_scaling=scales)
            made.center_ = self.shift
        elif self.kind == "MinMaxScaler":
            made = preprocessing.MinMaxScaler()
            made.min_ = self.shift
        else:
            made = preprocessing.MaxAbsScaler()
        made.scale_ = self.scale
        if names is not None:
            made.feature_names_in_ = names
        return made

    def problem(self, n_features: int) -> str | None:
        """Why it cannot scale tables of so many columns, or None."""
        needs = {
            "StandardScaler": (False, False),
            "RobustScaler": (False, False),
            "MinMaxScaler": (True, True),
            "MaxAbsScaler": (False, True),
        }
        if self.kind not in needs:
            return "a step before the trees is of no known kind"
        for array, needed in zip((self.shift, self.scale), needs[self.kind], strict=True):
            if array is None and not needed:
                continue
            if array is None or array.shape != (n_features,) or not np.isfinite(array).all():
                return "a scaler must hold a finite number for every column"
        divides = self.kind != "MinMaxScaler"
        if divides and self.scale is not None and not np.all(self.scale):
            return "a scaler must not divide by zero"
        return None


@dataclass(frozen=True)
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
        if len(self.known) != n_columns or self.goes_right.ndim != 2 or len(self.goes_right) != n_splits:
            return "columns and splits of categories must agree in number"
        if n_columns and (self.columns.min() < 0 or self.columns.max() >= n_features):
            return f"a column of categories lies outside 0 .. {n_features - 1}"
        if n_splits and (self.asked.min() < 0 or self.asked.max() >= n_columns):
            return "a split looks at a column without categories"
        for known in self.known:
            is_sorted = known.ndim == 1 and np.isfinite(known).all() and np.all(known[1:] > known[:-1])
            if not is_sorted or len(known) >= self.goes_right.shape[1]:
                return "categories must rise, and each must have a side at every split"
        return None


@dataclass(frozen=True)
class TreeModel:
    """Everything that a classifier or regressor of trees answers by.

    Attributes
    ----------
    classes : ndarray of shape (n_classes,)
        Labels; none where it answers with a number.
    n_features : int
        Columns of the tables that it reads.
    names : tuple of str, optional
        Their names.
    trees : tuple of TreeEnsemble
        One ensemble with the class shares, or numbers, of a forest, or one ensemble for each score of boosting.
    baseline : ndarray of shape (n_scores,), optional
        What the scores of boosting start from; None for a forest.
    accepts_missing : bool
        Whether a table may hold missing values.
    scalers : tuple of Scaler
        Steps before the trees.
    categories : Categories, optional
        Splits on categories.
    """

    classes: Labels
    n_features: int
    names: tuple[str, ...] | None
    trees: tuple[TreeEnsemble, ...]
    baseline: Floats | None
    accepts_missing: bool
    scalers: tuple[Scaler, ...] = ()
    categories: Categories | None = None

    def validate(self) -> "TreeModel":
        """Refuse arrays that do not fit together. Returns itself."""
        problem = self._problem()
        if problem:
            raise InvalidInputError(
                f"A classifier of trees must be whole; {problem}. Its arrays are damaged: save it again."
            )
        return self

    def _problem(self) -> str | None:
        width = self.n_features + (0 if self.categories is None else len(self.categories.asked))
        n_classes = len(self.classes)
        if self.names is not None and len(self.names) != self.n_features:
            return f"{len(self.names)} names do not fit {self.n_features} columns"
        n_scores = 1 if n_classes in (0, 2) else n_classes
        if self.baseline is None:
            wanted, n_outputs = 1, max(n_classes, 1)
        else:
            wanted, n_outputs = n_scores, 1
            if self.baseline.shape != (n_scores,) or not np.isfinite(self.baseline).all():
                return f"boosting must start from {n_scores} finite numbers"
        if n_classes == 1 or len(self.trees) != wanted:
            return f"{len(self.trees)} ensembles cannot answer with {n_classes} classes"
        for part in self.trees:
            if part.n_features != width or part.values.shape[1:] != (n_outputs,):
                return "trees must read the columns and answer with the classes that there are"
            part.validate()
        if self.baseline is None and n_classes and not _are_shares(self.trees[0]):
            return "leaves of a forest must hold the shares of the classes"
        if self.baseline is None and not self.trees[0].n_trees:
            return "a forest must have a tree"
        problems = [step.problem(self.n_features) for step in self.scalers]
        problems += [] if self.categories is None else [self.categories.problem(self.n_features)]
        return next((one for one in problems if one), None)

    def _blocks(self, X: Any) -> Iterator[tuple[slice, Floats]]:
        """A few rows after the other, as the trees read them: each split on categories is a column of its own."""
        for begin in range(0, X.shape[0], _BLOCK):
            rows = slice(begin, begin + _BLOCK)
            block = X[rows].toarray() if sparse.issparse(X) else X[rows]
            block = np.asarray(block, dtype=np.float64)
            if self.categories is not None:
                block = np.hstack([block, self.categories.answers(block)])
            yield rows, block

    def touched(self, X: Any) -> Bools:
        """Columns that each row is asked for on its way down, shape (n_rows, n_features)."""
        touched = np.zeros((X.shape[0], self.n_features), dtype=bool)
        for rows, block in self._blocks(X):
            asked = np.logical_or.reduce([part.touched(block) for part in self.trees])
            touched[rows] = asked[:, : self.n_features]
            if self.categories is not None:
                for split, column in enumerate(self.categories.columns[self.categories.asked]):
                    touched[rows, column] |= asked[:, self.n_features + split]
        return touched

    def raw(self, X: Any) -> Floats:
        """Sums over the trees, shape (n_rows, n_scores) or (n_rows, n_classes)."""
        n_scores = max(len(self.classes), 1) if self.baseline is None else len(self.baseline)
        raw = np.zeros((X.shape[0], n_scores), order="C" if self.baseline is None else "F")
        for rows, block in self._blocks(X):
            if self.baseline is None:
                raw[rows] = self.trees[0].predict(block)
                continue
            for score, (part, start) in enumerate(zip(self.trees, self.baseline, strict=True)):
                raw[rows, score] = part.predict(block, start=start)[:, 0]
        return raw


def _are_shares(trees: TreeEnsemble) -> bool:
    values = trees.values
    inside = trees.n_trees > 0 and np.all((values >= 0) & (values <= 1.0 + _SLACK))
    return bool(inside and np.all(np.abs(values.sum(axis=1) - 1.0) <= _SLACK))


class _TreeEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """What a classifier and a regressor share.

    Parameters
    ----------
    model : TreeModel
        What it answers by.
    """

    def __init__(self, model: TreeModel) -> None:
        self.model = model

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.model.baseline is None
        tags.input_tags.allow_nan = self.model.accepts_missing
        return tags

    @property
    def n_features_in_(self) -> int:
        """Columns of the tables that it reads."""
        return self.model.n_features

    @property
    def feature_names_in_(self) -> Labels:
        """Names of those columns, if it was fitted on names."""
        if self.model.names is None:
            raise AttributeError("this model was fitted without names of columns")
        return np.array(self.model.names, dtype=object)

    def fit(self, X: Any, y: Any = None) -> NoReturn:  # noqa: ARG002
        """Refuse: what was loaded from a file can only answer."""
        raise InvalidInputError(
            f"a {type(self).__name__} holds the trees of a model that was fitted elsewhere, and cannot be fitted. Wrap "
            f"it in FrozenEstimator to use it as it is, or give an unfitted model."
        )

    def touched(self, X: Any) -> Bools:
        """Columns that each row is asked for on its way down the trees, shape (n_rows, n_features)."""
        return self.model.touched(self._numbers(X))

    def _raw(self, X: Any) -> Floats:
        return self.model.raw(self._numbers(X))

    def _numbers(self, X: Any) -> Any:
        """The table as the trees read it."""
        is_forest = self.model.baseline is None
        # A forest rounds its tables to single precision and refuses what is too large for that.
        rules: dict[str, Any] = {"dtype": np.float64, "ensure_all_finite": False}
        if is_forest:
            may_miss = self.model.accepts_missing and not sparse.issparse(X)
            rules = {"dtype": np.float32, "ensure_all_finite": "allow-nan" if may_miss else True}
            rules["accept_sparse"] = "csr"
        if not self.model.scalers:
            return validate_data(self, X, reset=False, **rules)
        validate_data(self, X, reset=False, skip_check_array=True)
        names = None if self.model.names is None else self.feature_names_in_
        for step in self.model.scalers:
            X, names = step.made(names).transform(X), None
        return check_array(X, **rules)


class TreeClassifier(ClassifierMixin, _TreeEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """A fitted forest, tree or boosting, without the library that fitted it.

    It answers as the original did, with one thread; it cannot be fitted again.

    Parameters
    ----------
    model : TreeModel
        What it answers by.
    """

    @property
    def classes_(self) -> Labels:
        """Labels, shape (n_classes,)."""
        return self.model.classes

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities of all classes, shape (n_rows, n_classes)."""
        raw = self._raw(X)
        if self.model.baseline is None:
            raw /= self.model.trees[0].n_trees
            return raw
        if raw.shape[1] > 1:
            probability: Floats = softmax(raw)
            return probability
        second = expit(raw[:, 0])
        return np.column_stack([1.0 - second, second])

    def predict(self, X: Any) -> Labels:
        """Most probable label of each row."""
        raw = self._raw(X)
        # Shares are compared as they are returned: dividing may make two of them equal.
        if self.model.baseline is None:
            raw /= self.model.trees[0].n_trees
        best = np.argmax(raw, axis=1) if raw.shape[1] > 1 else (raw[:, 0] > 0).astype(np.intp)
        labels: Labels = self.classes_[best]
        return labels


class TreeRegressor(RegressorMixin, _TreeEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """A fitted forest, tree or boosting that predicts numbers, without the library that fitted it.

    It answers as the original did, with one thread; it cannot be fitted again.

    Parameters
    ----------
    model : TreeModel
        What it answers by.
    """

    def predict(self, X: Any) -> Floats:
        """Number of each row."""
        numbers: Floats = self._raw(X)[:, 0]
        if self.model.baseline is None:
            numbers /= self.model.trees[0].n_trees
        return numbers


_TREES = (
    "sklearn.tree._classes.DecisionTreeClassifier",
    "sklearn.tree._classes.ExtraTreeClassifier",
    "sklearn.tree._classes.DecisionTreeRegressor",
    "sklearn.tree._classes.ExtraTreeRegressor",
)
_FORESTS = (
    "sklearn.ensemble._forest.RandomForestClassifier",
    "sklearn.ensemble._forest.ExtraTreesClassifier",
    "sklearn.ensemble._forest.RandomForestRegressor",
    "sklearn.ensemble._forest.ExtraTreesRegressor",
)
_BOOSTING = (
    "sklearn.ensemble._hist_gradient_boosting.gradient_boosting.HistGradientBoostingClassifier",
    "sklearn.ensemble._hist_gradient_boosting.gradient_boosting.HistGradientBoostingRegressor",
)
_PLAIN_LOSSES = ("squared_error", "absolute_error", "quantile")
"""Losses of a boosted regressor whose scores are the numbers themselves."""
_PIPELINE = "sklearn.pipeline.Pipeline"
_SCALERS = {
    "sklearn.preprocessing._data.StandardScaler": ("mean_", "with_mean", "with_std"),
    "sklearn.preprocessing._data.RobustScaler": ("center_", "with_centering", "with_scaling"),
    "sklearn.preprocessing._data.MinMaxScaler": ("min_", None, None),
    "sklearn.preprocessing._data.MaxAbsScaler": (None, None, None),
}
"""Where each of them keeps what it subtracts or adds, and which arguments switch shifting and scaling off."""
_MOST_CATEGORIES = 256


@dataclass(frozen=True)
class Described:
    """An object as a file describes it: the name of its class, and its attributes."""

    name: str
    attributes: Mapping[str, Any]


def tree_classifier_of(model: Any) -> TreeClassifier | TreeRegressor | None:
    """The model of ours that answers as ``model`` does, or None where ``model`` is not made of trees that are known.

    Parameters
    ----------
    model : fitted estimator, or Described
        A description that claims to be known and is not sound is refused.
    """
    if isinstance(model, TreeClassifier | TreeRegressor):
        return model
    *steps, last = _steps(model)
    if _name(last) not in (*_TREES, *_FORESTS, *_BOOSTING):
        return None
    try:
        return _converted(steps, last)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # InvalidInputError is a ValueError.
        if not isinstance(model, Described):
            return None
        raise InvalidInputError(
            f"a {_name(last).rpartition('.')[2]} in the file cannot be read: {str(error)[:200]} "
            f"The model was damaged or made to do harm."
        ) from error


def _converted(steps: list[Any], last: Any) -> TreeClassifier | TreeRegressor | None:
    scalers = [_scaler(step) for step in steps]
    found = _boosting(last) if _name(last) in _BOOSTING else _forest(last)
    if found is None or any(step is None for step in scalers):
        return None
    names = _attributes([*steps, last][0]).get("feature_names_in_")
    model = replace(
        found,
        names=None if names is None else tuple(str(one) for one in names),
        scalers=tuple(step for step in scalers if step is not None),
    )
    return (TreeClassifier if len(model.classes) else TreeRegressor)(model.validate())


def _name(thing: Any) -> str:
    kind = type(thing)
    return thing.name if isinstance(thing, Described) else f"{kind.__module__}.{kind.__qualname__}"


def _attributes(thing: Any) -> Mapping[str, Any]:
    """What an object consists of; a compiled one has no attributes but a state."""
    if isinstance(thing, Described):
        return thing.attributes
    return vars(thing) if hasattr(thing, "__dict__") else thing.__getstate__()  # type: ignore[no-any-return]


def _steps(model: Any) -> list[Any]:
    if _name(model) != _PIPELINE:
        return [model]
    steps = _attributes(model).get("steps")
    pairs = steps if isinstance(steps, list) and steps else [(None, None)]
    found = [pair[1] for pair in pairs if isinstance(pair, tuple | list) and len(pair) == 2]
    return [step for step in found if step is not None and step != "passthrough"] or [None]


def _scaler(step: Any) -> Scaler | None:
    """A step before the trees, or None where it is of no known kind."""
    if _name(step) not in _SCALERS:
        return None
    known = _attributes(step)
    where, shifts, scales = _SCALERS[_name(step)]
    if known.get("clip", False):
        return None
    shift = known.get(where) if where and (shifts is None or known[shifts]) else None
    scale = known.get("scale_") if scales is None or known[scales] else None
    kept = [None if one is None else _floats(one) for one in (shift, scale)]
    return Scaler(_name(step).rpartition(".")[2], *kept)


def _floats(values: Any) -> Floats:
    """A copy, so that nothing changes with the original."""
    return np.array(values, dtype=np.float64)


def _classes(model: Any) -> Labels:
    """Labels of a classifier; none of a regressor."""
    if _name(model).endswith("Regressor"):
        return np.empty(0)
    classes = _attributes(model)["classes_"]
    if not isinstance(classes, np.ndarray) or classes.ndim != 1 or len(classes) < 2:
        raise InvalidInputError("its labels must be an array of two or more.")
    return classes


# -- trees and forests ---------------------------------------------------------------------------


def _forest(model: Any) -> TreeModel | None:
    known = _attributes(model)
    members = known["estimators_"] if _name(model) in _FORESTS else [model]
    if not isinstance(members, list) or not all(_name(one) in _TREES for one in members):
        raise InvalidInputError("its trees must be a list of trees.")
    if known.get("n_outputs_", 1) != 1:
        return None
    classes, n_features = _classes(model), int(known["n_features_in_"])
    parts = [_class_tree(_attributes(_attributes(one)["tree_"]), n_features, len(classes)) for one in members]
    return TreeModel(
        classes, n_features, None, (TreeEnsemble.concatenate(parts),), None, _accepts_missing(members[0])
    )


def _accepts_missing(tree: Any) -> bool:
    if isinstance(tree, Described):
        return tree.name in (_TREES[0], _TREES[2]) or tree.attributes.get("splitter") == "random"
    return bool(get_tags(tree).input_tags.allow_nan) and _attributes(tree).get("monotonic_cst") is None


def _class_tree(tree: Mapping[str, Any], n_features: int, n_classes: int) -> TreeEnsemble:
    nodes, values = tree["nodes"], tree["values"]
    if nodes.ndim != 1 or values.ndim != 3 or values.shape != (len(nodes), 1, max(n_classes, 1)):
        raise InvalidInputError(f"its nodes have the shape {nodes.shape}, its values {values.shape}.")
    return _tree(
        n_features,
        nodes["left_child"] < 0,
        nodes["left_child"],
        nodes["right_child"],
        nodes["feature"],
        nodes["threshold"],
        nodes["missing_go_to_left"],
        values[:, 0, :],
    )


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
    """One tree from nodes that are splits and leaves in any order; whether it is a tree is checked later."""
    is_split = ~is_leaf
    number = np.where(is_split, np.cumsum(is_split) - 1, ~(np.cumsum(is_leaf) - 1))
    child = np.column_stack([left[is_split], right[is_split]]).astype(np.int64)
    if np.any((child < 0) | (child >= len(number))):
        raise InvalidInputError("a node has a child outside the tree.")
    n_splits = int(is_split.sum())
    return TreeEnsemble(
        n_features,
        feature[is_split].astype(np.int32),
        threshold[is_split].astype(np.float64),
        np.zeros(n_splits, np.uint8),
        missing_left[is_split].astype(bool),
        number[child].astype(np.int32),
        _floats(values[is_leaf]),
        np.array([0, n_splits], np.int32),
        np.array([0, len(number) - n_splits], np.int32),
    )


# -- histogram boosting --------------------------------------------------------------------------


def _boosting(model: Any) -> TreeModel | None:
    known = _attributes(model)
    classes, n_features = _classes(model), int(known["n_features_in_"])
    if not len(classes) and known["loss"] not in _PLAIN_LOSSES:
        return None
    rounds = [[_attributes(one) for one in each] for each in known["_predictors"]]
    baseline = _floats(known["_baseline_prediction"]).reshape(-1)
    encoded = _encoded(known, n_features)
    if encoded is None:
        return None
    asked = _Asked(n_features, *encoded)
    parts: list[list[TreeEnsemble]] = [[] for _ in baseline]
    for each in rounds:
        if len(each) != len(parts):
            raise InvalidInputError(f"a round has {len(each)} trees where {len(parts)} scores are added up.")
        for found, predictor in zip(parts, each, strict=True):
            found.append(_score_tree(predictor, asked))
    categories = asked.categories()
    width = n_features + len(asked.sides)
    trees = [
        TreeEnsemble.concatenate([replace(one, n_features=width) for one in found])
        if found
        else TreeEnsemble.empty(width)
        for found in parts
    ]
    return TreeModel(classes, n_features, None, tuple(trees), baseline, True, (), categories)


def _encoded(known: Mapping[str, Any], n_features: int) -> tuple[Ints, list[Floats]] | None:
    """Columns of categories and the categories of each, missing values left out; None where they are not numbers."""
    step = known.get("_preprocessor")
    if step is None:
        return np.empty(0, np.intp), []
    is_categorical = np.asarray(known["is_categorical_"])
    if is_categorical.shape != (n_features,) or is_categorical.dtype != bool:
        raise InvalidInputError("it does not know which of its columns hold categories.")
    encoder = _attributes(step)["transformers_"][0][1]
    found = [np.asarray(one) for one in _attributes(encoder)["categories_"]]
    if any(one.dtype.kind not in "biuf" for one in found):
        return None
    numbers = [_floats(one) for one in found]
    return np.flatnonzero(is_categorical), [one[~np.isnan(one)] for one in numbers]


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
        """Number of the column that stands for a split; ``bits`` are the categories that go left."""
        if not 0 <= feature < len(self.columns):
            raise InvalidInputError("a split on categories looks at a column that holds none.")
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


def _score_tree(predictor: Mapping[str, Any], asked: _Asked) -> TreeEnsemble:
    nodes = predictor["nodes"]
    if nodes.ndim != 1 or not len(nodes):
        raise InvalidInputError(f"its nodes have the shape {nodes.shape}.")
    feature = nodes["feature_idx"].astype(np.int64)
    is_leaf = nodes["is_leaf"] != 0
    if np.any((feature < 0) | (feature >= asked.n_features) & ~is_leaf):
        raise InvalidInputError("a node looks at a column that is not there.")
    feature = np.where(is_leaf, 0, feature)
    threshold = nodes["num_threshold"].astype(np.float64)
    is_categorical = (nodes["is_categorical"] != 0) & ~is_leaf
    if len(asked.columns) and np.any(feature[~is_categorical & ~is_leaf] < len(asked.columns)):
        raise InvalidInputError("a split compares categories as numbers.")
    column = asked.column_of[feature]
    for place in np.flatnonzero(is_categorical):
        words = predictor["raw_left_cat_bitsets"][int(nodes["bitset_idx"][place])]
        bits = np.unpackbits(np.ascontiguousarray(words, dtype="<u4").view(np.uint8), bitorder="little")
        if len(bits) != _MOST_CATEGORIES:
            raise InvalidInputError("a set of categories has the wrong length.")
        missing_left = bool(nodes["missing_go_to_left"][place])
        column[place] = asked.split(int(feature[place]), bits.astype(bool), missing_left)
        threshold[place] = 0.5
    return _tree(
        asked.n_features,
        is_leaf,
        nodes["left"],
        nodes["right"],
        column,
        threshold,
        nodes["missing_go_to_left"],
        nodes["value"][:, None],
    )
