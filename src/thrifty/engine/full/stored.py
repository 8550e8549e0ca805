"""Fitted full models as plain arrays, which predict as in the library that fitted them, without that library.

A model consists of optional scalers and imputers, scores of a row (trees, linear weights, or a kernel with its support
vectors), and a *link* that turns scores into predictions. Trees predict the same to the last bit; sums that a library
computes with BLAS agree up to rounding. A file may hold these arrays as data: they are checked when they are read, and
no code of other libraries reads them.

``stored_model_of`` converts models of scikit-learn, LightGBM and XGBoost whose arrays are known. A model is recognised
by its fitted attributes, in classes of these libraries: a subclass may predict otherwise. Every converted model is
compared with the original on synthetic rows, so that an unknown class, setting or version of a library leads to a model
that is not stored, and never to one that predicts differently. ``SVC._gamma`` is the one private attribute read here;
those of trees are in ``trees/other_libraries.py``.
"""

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist
from scipy.special import expit
from sklearn import linear_model
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from sklearn.utils import ClassifierTags, RegressorTags, get_tags
from sklearn.utils.extmath import softmax
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_array, validate_data

from thrifty.arrays import Bools, Floats, Ints, Labels
from thrifty.engine.table.columns import Levels, level_text
from thrifty.engine.table.table import Table
from thrifty.engine.trees.other_libraries import ForeignTrees, categories_of, foreign_trees
from thrifty.errors import InvalidInputError
from thrifty.jit import lean_kernel

_BLOCK_ROWS, _BLOCK_CELLS = 4096, 1 << 22
_MAX_STEPS = 16
_MIN_PROBABILITY = 1e-7  # of one class against another, in libsvm


# -- steps before the model ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Scale:
    """Columns that are shifted and scaled: ``(x - shift) / scale``, or ``x * scale + shift``.

    Attributes
    ----------
    shift, scale : ndarray of shape (n_features,), optional
        None where columns are not shifted or scaled.
    multiplies : bool
        Whether the scale multiplies, before the shift is added, as in MinMaxScaler.
    """

    shift: Floats | None
    scale: Floats | None
    multiplies: bool = False

    def transform(self, X: Any) -> Any:
        """Shift and scale, in the precision of the table."""
        shift = 0.0 if self.shift is None else self.shift
        scale = 1.0 if self.scale is None else self.scale
        if self.multiplies:
            return ((X * scale).astype(X.dtype) + shift).astype(X.dtype)
        return ((X - shift).astype(X.dtype) / scale).astype(X.dtype)

    def problem(self, n_features: int) -> str | None:
        """Reason why this cannot scale tables with ``n_features`` columns, or None."""
        for array in (self.shift, self.scale):
            if array is not None and (array.shape != (n_features,) or not np.isfinite(array).all()):
                return "a scaler has no finite number for every column"
        if not self.multiplies and self.scale is not None and not np.all(self.scale):
            return "a scaler divides by zero"
        return None


@dataclass(frozen=True, eq=False)
class Impute:
    """Values that replace missing cells, one for each column: shape (n_features,)."""

    values: Floats

    def transform(self, X: Any) -> Any:
        """Fill missing cells."""
        return np.where(np.isnan(X), self.values.astype(X.dtype), X)

    def problem(self, n_features: int) -> str | None:
        """Reason why this cannot fill tables with ``n_features`` columns, or None."""
        is_right = self.values.shape == (n_features,) and np.isfinite(self.values).all()
        return None if is_right else "an imputer has no finite number for every column"


# -- scores ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LinearScores:
    """``X @ coef.T + intercept``.

    Attributes
    ----------
    coef : ndarray of shape (n_scores, n_features)
        Weights.
    intercept : ndarray of shape (n_scores,)
        Offsets.
    link : {"decision", "logistic", "softmax", "rest", "identity", "exp"}
        What makes answers of the scores; "rest" normalises the probabilities of each class against the rest.
    """

    coef: Floats
    intercept: Floats
    link: str

    def scores(self, X: Floats) -> Floats:
        """Weighted sums of the columns, shape (n_rows, n_scores)."""
        return X @ self.coef.T + self.intercept

    def problem(self, n_features: int, n_classes: int) -> str | None:
        """Reason why these weights do not fit so many columns and classes (0 for regression), or None."""
        links = {0: ("identity", "exp"), 2: ("decision", "logistic")}
        if self.link not in links.get(n_classes, ("decision", "softmax", "rest")):
            return f"weights do not answer about {n_classes} classes by {self.link!r}"
        n_scores = 1 if n_classes in (0, 2) else n_classes
        if self.coef.shape != (n_scores, n_features) or self.intercept.shape != (n_scores,):
            return f"weights of shape {self.coef.shape} do not give {n_scores} scores of {n_features} columns"
        is_finite = np.isfinite(self.coef).all() and np.isfinite(self.intercept).all()
        return None if is_finite else "a weight is not finite"


@dataclass(frozen=True, eq=False)
class KernelScores:
    """Weighted kernels between rows and support vectors: one score, or one for each pair of classes.

    Attributes
    ----------
    kind : {"linear", "poly", "rbf", "sigmoid"}
        The kernel.
    gamma, coef0, degree : float, float, int
        Its parameters.
    vectors : ndarray of shape (n_vectors, n_features)
        Support vectors, those of the first class first.
    weights : ndarray of shape (n_classes - 1, n_vectors), or (1, n_vectors) for a number
        ``dual_coef_`` of scikit-learn.
    intercept : ndarray of shape (n_scores,)
        Offsets.
    n_support : ndarray of shape (n_classes,)
        Support vectors of each class.
    link : {"decision", "pairs", "identity"}
        Decision values alone, probabilities by coupling those of pairs, or a number.
    platt : ndarray of shape (2, n_scores), optional
        Slopes and offsets of the probability of each pair.
    one_vs_rest, break_ties : bool
        ``decision_function_shape="ovr"`` and ``break_ties`` of scikit-learn.
    """

    kind: str
    gamma: float
    coef0: float
    degree: int
    vectors: Floats
    weights: Floats
    intercept: Floats
    n_support: Ints
    link: str
    platt: Floats | None = None
    one_vs_rest: bool = True
    break_ties: bool = False

    @property
    def n_classes(self) -> int:
        """Number of classes; 0 where the score is a number."""
        return 0 if self.link == "identity" else len(self.n_support)

    def scores(self, X: Floats) -> Floats:
        """Decision values of the pairs of classes, or numbers, shape (n_rows, n_scores)."""
        kernel = self._kernel(X)
        if len(self.weights) == 1:
            return kernel @ self.weights.T + self.intercept
        ends = np.cumsum(self.n_support)
        scores = np.empty((len(X), len(self.intercept)))
        for pair, (i, j) in enumerate(self._pairs()):
            of_i, of_j = (slice(ends[c] - self.n_support[c], ends[c]) for c in (i, j))
            scores[:, pair] = kernel[:, of_i] @ self.weights[j - 1, of_i]
            scores[:, pair] += kernel[:, of_j] @ self.weights[i, of_j]
        return scores + self.intercept

    def _pairs(self) -> list[tuple[int, int]]:
        n_classes = len(self.n_support)
        return [(i, j) for i in range(n_classes) for j in range(i + 1, n_classes)]

    def _kernel(self, X: Floats) -> Floats:
        if self.kind == "rbf":
            # Differences, not products: large columns would cancel.
            return np.exp(-self.gamma * cdist(X, self.vectors, "sqeuclidean"))
        products: Floats = X @ self.vectors.T
        if self.kind == "linear":
            return products
        products = self.gamma * products + self.coef0
        return products**self.degree if self.kind == "poly" else np.tanh(products)

    def by_class(self, scores: Floats) -> Floats:
        """Votes of the pairs for each class, with confidences as fractions, shape (n_rows, n_classes)."""
        votes, confidence = np.zeros((2, len(scores), self.n_classes))
        for pair, (i, j) in enumerate(self._pairs()):
            votes[:, i] += scores[:, pair] >= 0
            votes[:, j] += scores[:, pair] < 0
            confidence[:, i] += scores[:, pair]
            confidence[:, j] -= scores[:, pair]
        return votes + confidence / (3.0 * (np.abs(confidence) + 1.0))

    def best(self, scores: Floats) -> Ints:
        """Class with most votes of the pairs; the first of equals, or the most confident with ``break_ties``."""
        if self.break_ties:
            return np.asarray(np.argmax(self.by_class(scores), axis=1))
        votes = np.zeros((len(scores), self.n_classes))
        for pair, (i, j) in enumerate(self._pairs()):
            votes[:, i] += scores[:, pair] > 0
            votes[:, j] += scores[:, pair] <= 0
        return np.asarray(np.argmax(votes, axis=1))

    def probabilities(self, scores: Floats) -> Floats:
        """Probabilities of the classes, coupled from those of the pairs as libsvm does, shape (n_rows, n_classes)."""
        assert self.platt is not None
        # libsvm counts the first of two classes as positive.
        towards_first = -scores if scores.shape[1] == 1 else scores
        of_first = expit(-(towards_first * self.platt[0] + self.platt[1]))
        of_first = np.clip(of_first, _MIN_PROBABILITY, 1.0 - _MIN_PROBABILITY)
        coupled = np.empty((len(scores), self.n_classes))
        couple_pairs(of_first, coupled, np.empty((self.n_classes, self.n_classes)), np.empty(self.n_classes))
        return coupled

    def problem(self, n_features: int, n_classes: int) -> str | None:
        """Reason why these arrays do not fit so many columns and classes (0 for regression), or None."""
        if self.kind not in ("linear", "poly", "rbf", "sigmoid"):
            return f"a kernel is not known: {self.kind!r}"
        if self.link not in (("decision", "pairs") if n_classes else ("identity",)):
            return f"a kernel machine does not answer by {self.link!r}"
        n_scores, n_vectors = max(n_classes * (n_classes - 1) // 2, 1), len(self.vectors)
        wanted = {
            "vectors": (n_vectors, n_features),
            "weights": (max(n_classes - 1, 1), n_vectors),
            "intercept": (n_scores,),
            "platt": (2, n_scores),
        }
        for name, shape in wanted.items():
            array = getattr(self, name)
            if array is None and name == "platt" and self.link != "pairs":
                continue
            if array is None or array.shape != shape or not np.isfinite(array).all():
                return f"{name} of a kernel machine are not finite numbers of shape {shape}"
        if n_classes and self.n_support.shape != (n_classes,):
            return "a kernel machine does not count the support vectors of each class"
        if n_classes and (np.any(self.n_support < 0) or int(self.n_support.sum()) != n_vectors):
            return "support vectors are not those of the classes"
        if not (math.isfinite(self.gamma) and math.isfinite(self.coef0) and 0 <= self.degree <= 1000):
            return "parameters of a kernel are not finite"
        return None


@lean_kernel
def couple_pairs(of_first: Floats, probabilities: Floats, Q: Floats, Qp: Floats) -> None:
    """Probabilities of classes whose pairs have these (Wu, Lin and Weng, 2004), by the iteration of libsvm."""
    n_rows, k = probabilities.shape
    for row in range(n_rows):
        p = probabilities[row]
        for t in range(k):
            p[t] = 1.0 / k
            for j in range(k):
                Q[t, j] = 0.0
        pair = 0
        for i in range(k):
            for j in range(i + 1, k):
                r_ij = of_first[row, pair]
                r_ji = 1.0 - r_ij
                Q[i, i] += r_ji * r_ji
                Q[j, j] += r_ij * r_ij
                Q[i, j] = -r_ji * r_ij
                Q[j, i] = -r_ji * r_ij
                pair += 1
        for _ in range(max(100, k)):
            pQp = 0.0
            for t in range(k):
                Qp[t] = 0.0
                for j in range(k):
                    Qp[t] += Q[t, j] * p[j]
                pQp += p[t] * Qp[t]
            error = 0.0
            for t in range(k):
                error = max(error, abs(Qp[t] - pQp))
            if error < 0.005 / k:
                break
            for t in range(k):
                diff = (-Qp[t] + pQp) / Q[t, t]
                p[t] += diff
                pQp = (pQp + diff * (diff * Q[t, t] + 2 * Qp[t])) / (1 + diff) / (1 + diff)
                for j in range(k):
                    Qp[j] = (Qp[j] + diff * Q[t, j]) / (1 + diff)
                    p[j] /= 1 + diff


# -- the whole model -------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class StoredModel(BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """A fitted classifier, regressor or ranker without the library that fitted it: preprocessing, scores and link.

    It answers as the original did; it cannot be fitted again.

    Parameters
    ----------
    classes : ndarray of shape (n_classes,)
        Labels; none where it answers with a number.
    n_features : int
        Columns of the tables that it reads.
    names : tuple of str, optional
        Their names. Those of LightGBM, which writes "_" for a blank, are not compared with those of a table.
    steps : tuple of Scale or Impute
        What happens to a table before.
    core : ForeignTrees, LinearScores or KernelScores
        Scores of the rows, and their link.
    reads : {"finite", "nan", "any"}
        Which numbers the core takes: finite ones, missing ones too, or infinite ones as well.
    is_single : bool
        Whether rows are rounded to single precision first, which refuses those that are too large for it.
    takes_missing, takes_sparse : bool
        Whether a table, before the steps, may hold missing values, and whether it may be sparse.
    levels : Levels, optional
        Categories of the columns that the core reads as codes.
    """

    classes: Labels
    n_features: int
    names: tuple[str, ...] | None
    steps: tuple[Scale | Impute, ...]
    core: ForeignTrees | LinearScores | KernelScores
    reads: str = "finite"
    is_single: bool = False
    takes_missing: bool = False
    takes_sparse: bool = False
    levels: Levels | None = None

    def validate(self) -> "StoredModel":
        """Refuse arrays that do not fit together, and return the model."""
        problem = self._problem()
        if problem:
            raise InvalidInputError(f"a stored model must be whole: {problem}. Its arrays are damaged.")
        return self

    def _problem(self) -> str | None:
        n_features, n_classes = self.n_features, len(self.classes)
        if self.classes.ndim != 1 or n_classes == 1 or n_features < 1:
            return f"{n_classes} classes and {n_features} columns are none"
        if self.names is not None and len(self.names) != n_features:
            return f"{len(self.names)} names do not fit {n_features} columns"
        if self.reads not in ("finite", "nan", "any") or len(self.steps) > _MAX_STEPS:
            return f"it reads {self.reads!r} numbers after {len(self.steps)} steps"
        if self.levels is not None and not all(0 <= column < n_features for column in self.levels.columns):
            return f"it has categories of columns outside 0 .. {n_features - 1}"
        problems = [
            self.core.problem(n_features, n_classes),
            *(step.problem(n_features) for step in self.steps),
        ]
        return next(filter(None, problems), None)

    # as scikit-learn sees it

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.takes_sparse
        tags.input_tags.allow_nan = self.takes_missing
        if len(self.classes):
            tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags()
        else:
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()
        return tags

    @property
    def n_features_in_(self) -> int:
        """Columns of the tables that it reads."""
        return self.n_features

    @property
    def feature_names_in_(self) -> Labels:
        """Names of those columns, if tables must have them."""
        if self.names is None or self.library == "lightgbm":
            raise AttributeError("this model reads columns by place, not by name")
        return np.array(self.names, dtype=object)

    @property
    def classes_(self) -> Labels:
        """Labels of a classifier, shape (n_classes,)."""
        if not len(self.classes):
            raise AttributeError("this model predicts numbers")
        return self.classes

    @property
    def library(self) -> str:
        """Library whose trees these are, or scikit-learn."""
        return self.core.library if isinstance(self.core, ForeignTrees) else "scikit-learn"

    def fit(self, X: Any, y: Any = None) -> NoReturn:  # noqa: ARG002 - refuses
        """Raise an error: a stored model cannot be fitted."""
        raise InvalidInputError(
            "a StoredModel holds the arrays of a model that was fitted elsewhere, and cannot be fitted. Wrap it in "
            "FrozenEstimator to use it as it is, or give an unfitted model."
        )

    @available_if(lambda self: len(self.classes) > 0 and not isinstance(self.core, ForeignTrees))  # type: ignore[untyped-decorator]  # scikit-learn is untyped
    def decision_function(self, X: Any) -> Floats:
        """Decision values, shape (n_rows,) for two classes, else one for each class or pair of classes."""
        scores, core = self._scores(X), self.core
        if scores.shape[1] == 1:
            return scores[:, 0]
        return core.by_class(scores) if isinstance(core, KernelScores) and core.one_vs_rest else scores

    @available_if(lambda self: len(self.classes) > 0 and self.core.link != "decision")  # type: ignore[untyped-decorator]  # scikit-learn is untyped
    def predict_proba(self, X: Any) -> Floats:
        """Probabilities of all classes, shape (n_rows, n_classes)."""
        return self._answers(self._scores(X))

    def predict(self, X: Any) -> Labels:
        """Most probable label, or number, of each row."""
        scores, core = self._scores(X), self.core
        if not len(self.classes):
            return self._answers(scores)[:, 0]
        if core.link == "shares":
            # Shares are compared as they are returned: dividing may make two of them equal.
            scores = self._answers(scores)
        if scores.shape[1] == 1:
            best = (scores[:, 0] > 0).astype(np.intp)
        else:
            best = core.best(scores) if isinstance(core, KernelScores) else np.argmax(scores, axis=1)
        return self.classes[best]

    def score(self, X: Any, y: Any) -> float:
        """Accuracy of a classifier, R2 of a regressor."""
        return float((accuracy_score if len(self.classes) else r2_score)(y, self.predict(X)))

    def touched(self, X: Any) -> Bools:
        """Columns read of each row, shape (n_rows, n_features)."""
        X = self._table(X)
        touched = np.ones((X.shape[0], self.n_features), dtype=bool)
        if isinstance(self.core, LinearScores):
            touched[:] = self.core.coef.any(axis=0)
        elif isinstance(self.core, ForeignTrees):
            for rows, block in self._blocks(X):
                touched[rows] = self.core.touched(block)
        return touched

    # from a table to answers

    def _table(self, X: Any) -> Any:
        """Validated table as numbers."""
        table = Table.of(X)
        kind = table.kind
        if self.levels is not None and kind:
            table = table.with_frame_of(self.levels.numbers(table))
        X = validate_data(
            self,
            table.native.to_numpy() if kind and not hasattr(self, "feature_names_in_") else table.native,
            reset=False,
            dtype=[np.float64, np.float32],
            accept_sparse="csr" if self.takes_sparse else False,
            ensure_all_finite=False,
        )
        if self.levels is not None and not kind and self.library == "scikit-learn":
            # Arrays hold categories here, and codes in other libraries.
            X = X.astype(np.float64)
            for column in self.levels.columns:
                X[:, column] = self.levels.codes(column, X[:, column].tolist())
        return X

    def _blocks(self, X: Any) -> Iterator[tuple[slice, Floats]]:
        """Preprocessed rows in blocks."""
        width = len(self.core.vectors) if isinstance(self.core, KernelScores) else 1
        n_rows = max(1, min(_BLOCK_ROWS, _BLOCK_CELLS // max(width, self.n_features)))
        finite: Any = {"finite": True, "nan": "allow-nan", "any": False}[self.reads]
        for begin in range(0, X.shape[0], n_rows):
            rows = slice(begin, begin + n_rows)
            block = X[rows].toarray() if sparse.issparse(X) else X[rows]
            for step in self.steps:
                block = step.transform(block)
            dtype = np.float32 if self.is_single else np.float64
            block = check_array(block, dtype=dtype, ensure_all_finite=finite, ensure_min_samples=0)
            yield rows, np.ascontiguousarray(block, dtype=np.float64)

    def _scores(self, X: Any) -> Floats:
        """Scores of all rows, shape (n_rows, n_scores)."""
        blocks = [self.core.scores(block) for _, block in self._blocks(self._table(X))]
        return np.concatenate(blocks) if blocks else np.empty((0, 1))

    def _answers(self, scores: Floats) -> Floats:
        """Probabilities of the classes, shape (n_rows, n_classes), or numbers, shape (n_rows, 1), of some scores."""
        core, link = self.core, self.core.link
        if isinstance(core, KernelScores):
            return core.probabilities(scores) if link == "pairs" else scores
        if link == "shares":
            assert isinstance(core, ForeignTrees)
            return scores / core.parts[0].n_trees
        if isinstance(core, ForeignTrees) and core.library != "scikit-learn":
            return _library_answers(core, scores)
        if link == "exp":
            return np.exp(scores)
        if link == "softmax":
            return softmax(np.asfortranarray(scores) if isinstance(core, ForeignTrees) else scores)
        if link == "rest":
            each = expit(scores)
            return np.asarray(each / each.sum(axis=1, keepdims=True))
        if link in ("logistic", "doubled"):
            second = expit(2.0 * scores[:, 0] if link == "doubled" else scores[:, 0])
            return np.column_stack([1.0 - second, second])
        return scores


def _library_answers(core: ForeignTrees, scores: Floats) -> Floats:
    """Links of LightGBM and XGBoost in their own precision, with the exponential of the C library as they have it."""
    is_single = core.library == "xgboost"
    scores = np.ascontiguousarray(scores, dtype=np.float32 if is_single else np.float64)
    unit = scores.dtype.type(1.0)
    if core.link == "identity":
        return scores.astype(np.float64)
    if core.link == "exp":
        return np.asarray(exponentials(scores), dtype=np.float64)
    if core.link == "softmax":
        each = exponentials(scores - scores.max(axis=1, keepdims=True))
        total = np.zeros(len(each))
        for column in each.T:
            total += column
        return np.asarray(each / total.astype(each.dtype)[:, None], dtype=np.float64)
    second = unit / (unit + exponentials(-scores[:, :1]))
    return np.hstack([unit - second, second]).astype(np.float64)


def exponentials(values: Any) -> Any:
    """``exp`` as the C library computes it, which numpy's own differs from in the last bit."""
    out = np.empty_like(values)
    write_exponentials(values.reshape(-1), out.reshape(-1))
    return out


@lean_kernel
def write_exponentials(values: Any, out: Any) -> None:
    """Write the exponential of each number."""
    for i in range(len(values)):
        out[i] = math.exp(values[i])


# -- fitted models as stored ones ------------------------------------------------------------------


N_PROBES = 16
"""Number of synthetic rows that models are compared on."""
_SAME = 1e-6
_GOLDEN = 0.6180339887498949
_LIBRARIES = ("sklearn", "lightgbm.sklearn", "xgboost.sklearn")
_LOG_LINKS = (linear_model.PoissonRegressor, linear_model.GammaRegressor)


def stored_model_of(model: Any) -> StoredModel | None:
    """Convert a fitted model into a stored one with the same predictions; None for models of unknown classes."""
    model = getattr(model, "stored_", model)  # of the default full model
    if isinstance(model, StoredModel):
        return model
    module = type(_steps(model)[-1]).__module__
    is_known = any(f"{module}.".startswith(f"{library}.") for library in _LIBRARIES)
    stored = read_model(model) if is_known else None
    try:
        return stored.validate() if stored is not None and _answers_alike(model, stored) else None
    except InvalidInputError:
        return None


def read_model(model: Any) -> StoredModel | None:
    """Arrays of a fitted model, whether or not its answers can be made of them; None where they are not known.

    Subclasses are read, too: the paths of their trees are known, even if they may predict otherwise.
    """
    model = getattr(model, "stored_", model)
    if isinstance(model, StoredModel):
        return model
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of attributes that a library will rename
            return booster_model(model) if is_booster(model) else _converted(model)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None  # InvalidInputError is a ValueError: what cannot be stored stays outside


def _converted(model: Any) -> StoredModel | None:
    *before, last = _steps(model)
    steps = [_step(step) for step in before]
    if hasattr(last, "support_vectors_"):
        core: Any = _kernel(last)
    else:
        is_linear = hasattr(last, "intercept_") and hasattr(last, "coef_")
        core = _linear(last) if is_linear else foreign_trees(last)
    if core is None or any(step is None for step in steps):
        return None
    tags, allow_nan = get_tags(model).input_tags, get_tags(last).input_tags.allow_nan
    reads = "finite" if not allow_nan else "any" if core.link != "shares" else "nan"
    first = [*before, last][0]
    names = getattr(first, "feature_names_in_", None)
    return StoredModel(
        _classes(last),
        int(getattr(first, "n_features_in_", 0)),
        None if names is None else tuple(map(str, names)),
        tuple(step for step in steps if step is not None),
        core,
        reads,
        is_single=hasattr(last, "tree_") or hasattr(np.ravel(getattr(last, "estimators_", [0]))[0], "tree_"),
        takes_missing=bool(tags.allow_nan),
        takes_sparse=bool(tags.sparse),
        levels=_levels(last),
    )


def is_booster(model: Any) -> bool:
    """True for a ``Booster`` of LightGBM or XGBoost."""
    return hasattr(model, "dump_model") and not hasattr(model, "get_params")


def booster_model(booster: Any) -> StoredModel:
    """Convert a booster of LightGBM or XGBoost into a stored model; classes are numbered from 0."""
    trees = foreign_trees(booster)
    n_classes = {"logistic": 2, "softmax": len(trees.parts)}.get(trees.link, 0)
    names = booster.feature_name() if hasattr(booster, "feature_name") else booster.feature_names
    return StoredModel(
        np.arange(n_classes) if n_classes else np.empty(0),
        trees.n_features,
        None if names is None else tuple(names),
        (),
        trees,
        "any",
        takes_missing=True,
        takes_sparse=True,
        levels=_levels(booster),
    )


def _levels(model: Any) -> Levels | None:
    """Categories of the columns that trees read as codes."""
    texts = {place: tuple(map(level_text, levels)) for place, levels in categories_of(model).items()}
    return Levels(texts).validate() if texts else None


def _steps(model: Any) -> list[Any]:
    """Steps of a pipeline, without those that do nothing, and its final model."""
    if isinstance(model, GridSearchCV | RandomizedSearchCV):
        return _steps(model.best_estimator_)
    if isinstance(model, FrozenEstimator):
        return _steps(model.estimator)
    if type(model) is not Pipeline:
        return [model]
    *before, (_, last) = model.steps
    return [*(step for _, step in before if step is not None and step != "passthrough"), *_steps(last)]


def _classes(model: Any) -> Labels:
    """Labels of a classifier; none of a regressor."""
    classes = getattr(model, "classes_", None)
    return np.empty(0) if classes is None else np.asarray(classes)


def _linear(model: Any) -> LinearScores | None:
    coef = model.coef_.toarray() if sparse.issparse(model.coef_) else np.asarray(model.coef_)
    intercept = np.atleast_1d(np.asarray(model.intercept_, dtype=np.float64)).reshape(-1)
    classes = _classes(model)
    if not len(classes):
        if coef.ndim == 2 and len(coef) > 1:
            return None  # several targets
        link = "exp" if type(model) in _LOG_LINKS else "identity"
    elif not hasattr(model, "predict_proba"):
        link = "decision"
    elif type(model) is linear_model.SGDClassifier:
        if model.loss != "log_loss":
            return None
        link = "logistic" if len(classes) == 2 else "rest"
    else:
        link = "logistic" if len(classes) == 2 else "softmax"
    n_scores = 1 if len(classes) in (0, 2) else len(classes)
    coef = np.array(coef, dtype=np.float64).reshape(n_scores, -1)
    return LinearScores(coef, np.array(np.broadcast_to(intercept, n_scores)), link)


def _kernel(model: Any) -> KernelScores | None:
    if not isinstance(model.kernel, str) or model.kernel == "precomputed":
        return None
    vectors, weights = model.support_vectors_, model.dual_coef_
    classes = _classes(model)
    has_probabilities = bool(len(classes)) and hasattr(model, "predict_proba")
    return KernelScores(
        model.kernel,
        float(model._gamma),
        float(model.coef0),
        int(model.degree),
        _dense(vectors),
        _dense(weights),
        np.array(model.intercept_, dtype=np.float64).reshape(-1),
        np.array(model.n_support_, dtype=np.intp),
        "identity" if not len(classes) else "pairs" if has_probabilities else "decision",
        np.array([model.probA_, model.probB_], dtype=np.float64) if has_probabilities else None,
        getattr(model, "decision_function_shape", "ovr") == "ovr",
        bool(getattr(model, "break_ties", False)),
    )


def _dense(values: Any) -> Floats:
    return np.array(values.toarray() if sparse.issparse(values) else values, dtype=np.float64)


def _step(step: Any) -> Scale | Impute | None:
    """Convert a preprocessing step; None for an unknown class."""
    kind = type(step)
    if kind is StandardScaler:
        return Scale(_optional(step.mean_, step.with_mean), _optional(step.scale_, step.with_std))
    if kind is RobustScaler:
        return Scale(_optional(step.center_, step.with_centering), _optional(step.scale_, step.with_scaling))
    if kind is MinMaxScaler and not step.clip:
        return Scale(_optional(step.min_), _optional(step.scale_), multiplies=True)
    if kind is MaxAbsScaler and not getattr(step, "clip", False):
        return Scale(None, _optional(step.scale_))
    if kind is SimpleImputer and not step.add_indicator and step.missing_values != step.missing_values:
        return Impute(np.array(step.statistics_, dtype=np.float64))
    return None


def _optional(values: Any, is_used: bool = True) -> Floats | None:
    return np.array(values, dtype=np.float64) if is_used and values is not None else None


# -- made-up rows ------------------------------------------------------------------------------------


def probe_table(n_features: int) -> Floats:
    """Rows that depend on nothing but the number of columns: of sizes 1 to 1,000, half of them of one sign.

    A lattice of multiples of the golden ratio, which takes only exactly rounded operations: the same on every machine.
    """
    lattice = np.outer(np.arange(1, N_PROBES + 1), np.arange(1, n_features + 1)) * _GOLDEN
    unit = lattice - np.floor(lattice)
    unit[1::2] = 2.0 * unit[1::2] - 1.0
    size = np.array([1.0, 10.0, 100.0, 1000.0])[np.arange(N_PROBES) // 2 % 4]
    return unit * size[:, None]


def _answers_alike(model: Any, stored: StoredModel) -> bool:
    """True if both models predict the same for synthetic rows, with missing values if allowed."""
    ask = next(name for name in ("predict_proba", "decision_function", "predict") if hasattr(stored, name))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            table = _probes(model, stored)
            theirs = np.asarray(getattr(model, ask)(table), dtype=np.float64)
            ours = np.asarray(getattr(stored, ask)(table), dtype=np.float64)
        except Exception:  # other libraries raise errors of any type
            return False
    return theirs.shape == ours.shape and np.allclose(ours, theirs, rtol=_SAME, atol=_SAME, equal_nan=True)


def _probes(model: Any, stored: StoredModel) -> Any:
    """Synthetic rows as the model reads them: with categories, missing values and the names of its columns."""
    import pandas as pd

    table = probe_table(stored.n_features)
    if (stored.takes_missing and stored.steps == ()) or stored.reads != "finite":
        table[::3, :: max(1, table.shape[1] // 3)] = np.nan
    frame = pd.DataFrame(table, columns=None if stored.names is None else list(stored.names))
    categories = {} if stored.levels is None else categories_of(_steps(model)[-1])
    for place, levels in categories.items():
        codes = np.nan_to_num(np.floor(np.abs(table[:, place])) % len(levels), nan=-1)
        frame.isetitem(place, pd.Categorical.from_codes(codes.astype(int), categories=levels))
    is_frame = hasattr(stored, "feature_names_in_") or (categories and stored.library != "scikit-learn")
    return frame if is_frame else frame.to_numpy(dtype=np.float64)
