"""Trees of scikit-learn that may be read without being trusted by name: plain forests and plain histogram boosting.

skops does not trust scikit-learn's trees by themselves: their compiled code takes node numbers and column numbers as
they come. `soundness` checks those numbers. That is enough only if nothing else in the model can change what the trees
are asked: a step that hands on fewer columns than were checked, a category that leads outside its table, an attribute
that takes the place of a method. So everything in the model must be of a type on a short list, whose code was read with
that question, and each model must check the columns it is given. What is not plain must be trusted by name, as before.
"""

from typing import Any

import numpy as np
from sklearn._loss._loss import CyHalfBinomialLoss
from sklearn._loss.link import Interval, LogitLink
from sklearn._loss.loss import HalfBinomialLoss
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.ensemble._hist_gradient_boosting.binning import _BinMapper
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import LabelEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier
from sklearn.tree._tree import Tree

from thrifty.bundle.soundness import parts_of

__all__ = ["REVIEWED", "why_not_plain"]

REVIEWED = ("sklearn.tree._tree.Tree", "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor")
"""Types that need no trust in a model that is plain."""

_TREES = (DecisionTreeClassifier, ExtraTreeClassifier)

_PLAIN = {
    *(bool, complex, dict, list, set, tuple, np.ndarray, np.random.Generator),
    *(RandomForestClassifier, ExtraTreesClassifier, *_TREES, Tree),
    *(HistGradientBoostingClassifier, TreePredictor, _BinMapper),
    *(HalfBinomialLoss, CyHalfBinomialLoss, LogitLink, Interval, LabelEncoder),
    *(Pipeline, StandardScaler),
}
"""No functions and no types: what stands among the attributes in the place of a method cannot be called."""


def why_not_plain(model: Any, trusted: set[str]) -> tuple[str, list[str]] | None:
    """What is not plain in a model, and the reviewed types in it that nobody trusts by name; None if all is well."""
    parts = list(parts_of(model))
    found = {_name(type(part)) for part in parts} & set(REVIEWED)
    unnamed = sorted(found - trusted)
    if not unnamed:
        return None
    for part in parts:
        problem = _problem(part)
        if problem:
            return problem, unnamed
    return None


def _problem(part: Any) -> str | None:
    kind = type(part)
    if kind not in _PLAIN and not isinstance(part, np.number | np.bool_ | np.str_):
        return f"has a {kind.__name__} in it"
    if kind in _TREES:
        return _tree_problem(part)
    if kind is HistGradientBoostingClassifier:
        return _boosting_problem(part)
    return None


def _tree_problem(model: Any) -> str | None:
    """A tree compares the columns it is given with ``n_features_in_``, if it has one, and asks ``tree_``."""
    known = vars(model)
    if "tree_" not in known:
        return None  # the pattern that a forest keeps; there is nothing to ask
    tree, width = known["tree_"], known.get("n_features_in_")
    if type(tree) is not Tree or type(width) is not int or tree.n_features != width:
        return f"has a {type(model).__name__} that does not know its columns"
    return None


def _boosting_problem(model: Any) -> str | None:
    """Boosting compares columns with ``n_features_in_`` before a step of its own may change them."""
    known = vars(model)
    width, rounds = known.get("n_features_in_"), known.get("_predictors")
    if known.get("_preprocessor") is not None or known.get("_in_fit", False):
        return "has histogram boosting with categories, or in the middle of a fit"
    if type(width) is not int or type(rounds) is not list:
        return "has histogram boosting that does not know its columns"
    for predictor in (one for each in rounds for one in each):
        if type(predictor) is not TreePredictor:
            return f"has histogram boosting over a {type(predictor).__name__}"
        inner = predictor.nodes[predictor.nodes["is_leaf"] == 0]
        if np.any(inner["is_categorical"] != 0) or np.any(inner["feature_idx"] >= width):
            return "has histogram boosting with categories, or over columns that it is not given"
    return None


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
