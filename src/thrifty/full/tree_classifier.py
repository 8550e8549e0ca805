"""Trees of a fitted classifier or regressor as checked arrays, which answer as the original did, to the last bit.

A forest answers with the mean over its trees of the class shares, or of the number, in the leaf that a row reaches;
boosting adds the leaves to a constant and turns the sums into probabilities, or leaves them as they are. Neither needs
anything of the library that fitted it but the arrays, so a file may hold them as data: whatever the numbers are, no
compiled code of others is given them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from scipy import sparse
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.extmath import softmax
from sklearn.utils.validation import check_array, validate_data

from thrifty.arrays import Bools, Floats, Ints, Labels
from thrifty.errors import InvalidInputError
from thrifty.trees import TreeEnsemble

__all__ = ["Categories", "Scaler", "TreeClassifier", "TreeModel", "TreeRegressor"]

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
