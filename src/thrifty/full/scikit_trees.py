"""Fitted trees, forests and histogram boosting of scikit-learn as plain arrays.

A model is recognised by the exact name of its class and read attribute by attribute, either alive or as a file
describes it. Of a description nothing is built: its arrays are looked at, checked, and copied into our own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import get_tags

from thrifty.arrays import Bools, Floats, Ints, Labels
from thrifty.errors import InvalidInputError
from thrifty.full.tree_classifier import Categories, Scaler, TreeClassifier, TreeModel, TreeRegressor
from thrifty.trees import TreeEnsemble

__all__ = ["Described", "tree_classifier_of"]

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
