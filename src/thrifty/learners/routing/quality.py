"""Expected quality and cost of every model on a row, before any model is asked.

A row is read as numbers: the columns of a table or an embedding as they are, a text as latent semantic analysis of its
TF-IDF (words and pairs of words) beside four counts of characters. Quality is a weighted sum of three regressions that
err in different ways, nearest neighbours, ridge and extremely randomised trees, with one set of weights for all models;
cost is a ridge regression of its logarithm, clipped to the range of costs that the fit has seen: a call that failed and
cost nothing is far away on that scale. Nothing is downloaded.
"""

import re
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.optimize import nnls
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.feature_extraction.text import TfidfVectorizer

from thrifty.arrays import Floats, Ints
from thrifty.engine.trees import TreeEnsemble
from thrifty.engine.trees.other_libraries import forest_trees
from thrifty.errors import InvalidInputError

N_COMPONENTS = 64
N_TERMS = 30_000
N_TREES = 100
N_NEIGHBOURS = 50
MAX_STORED_ROWS = 10_000
"""Rows that nearest neighbours are looked for in."""

_LEAST_TIME = 1e-5
"""Least penalised time whose logarithm is told apart, as a share of ten times the cutoff."""
_TERMS = {"sublinear_tf": True, "ngram_range": (1, 2)}
_WORD = re.compile(r"(?u)\b\w\w+\b")
"""Words of ``TfidfVectorizer``."""
_COUNTED = tuple(map(re.compile, (r"\n", r"\d", r"[^\w\s]")))
_BLOCK = 512


@dataclass(frozen=True, eq=False)
class TextReader:
    """Texts as numbers: latent semantic analysis of TF-IDF, and counts of characters.

    Attributes
    ----------
    terms : str
        Words and pairs of words, one a line.
    idf : ndarray of shape (n_terms,)
        Inverse document frequencies.
    components : ndarray of shape (n_terms, n_components)
        Axes of the latent semantic analysis.
    """

    terms: str
    idf: Floats
    components: Floats

    @cached_property
    def _places(self) -> dict[str, int]:
        return {term: place for place, term in enumerate(self.terms.split("\n"))} if self.terms else {}

    def transform(self, texts: Sequence[str]) -> Floats:
        """Numbers of shape (n_texts, n_components + 4)."""
        latent = np.zeros((len(texts), self.components.shape[1]))
        counts = np.empty((len(texts), 1 + len(_COUNTED)))
        places = self._places
        for row, text in enumerate(texts):
            counts[row] = len(text), *(len(one.findall(text)) for one in _COUNTED)
            # What TfidfVectorizer computes, without its checks: they take longer than a decision about one text.
            words = _WORD.findall(text.lower())
            found: Counter[Any] = Counter(map(places.get, [*words, *map(" ".join, pairwise(words))]))
            found.pop(None, None)
            if found:
                at = np.array(sorted(found))
                weight = (1.0 + np.log([found[place] for place in at.tolist()])) * self.idf[at]
                weight /= np.sqrt((weight * weight).sum())
                latent[row] = (weight[:, None] * self.components[at]).sum(axis=0)
        return np.column_stack([latent, np.log1p(counts)])

    def validate(self) -> "TextReader":
        """Refuse parts that do not fit together."""
        n_terms = len(self.terms.split("\n")) if self.terms else 0
        if self.idf.shape != (n_terms,) or self.components.ndim != 2 or len(self.components) != n_terms:
            raise InvalidInputError("terms, idf and components must agree in the number of terms.")
        return self


def learn_text_reader(texts: Sequence[str], seed: int) -> TextReader:
    """Learn the terms of texts and their latent axes."""
    vectorizer = TfidfVectorizer(**_TERMS, min_df=2 if len(texts) >= 200 else 1, max_features=N_TERMS)
    try:
        terms = vectorizer.fit_transform(texts)
    except ValueError:  # no text holds a word
        return TextReader("", np.empty(0), np.empty((0, 0)))
    names = "\n".join(vectorizer.get_feature_names_out())
    n_components = min(N_COMPONENTS, terms.shape[1] - 1, len(texts) - 1)
    if n_components < 1:
        return TextReader(names, vectorizer.idf_, np.ones((terms.shape[1], 1)))
    svd = TruncatedSVD(n_components, n_iter=3, random_state=seed).fit(terms)
    return TextReader(names, vectorizer.idf_, np.ascontiguousarray(svd.components_.T))


def ridge(F: Floats, Y: Floats, alpha: float) -> Floats:
    """Coefficients of ridge regressions on standardised columns of F, whose first column is 1 and not penalised."""
    mean, spread = F.mean(axis=0), F.std(axis=0)
    mean[0], spread[0] = 0.0, 1.0
    scale = np.where(spread > 1e-6, 1.0 / np.maximum(spread, 1e-6), 0.0)  # constant columns get no weight
    G = (F - mean) * scale
    gram = G.T @ G
    inner = np.arange(1, len(gram))
    gram[inner, inner] += alpha
    coefficients: Floats = np.linalg.solve(gram, G.T @ Y) * scale[:, None]
    coefficients[0] -= mean[1:] @ coefficients[1:]
    return coefficients


@dataclass(frozen=True, eq=False)
class QualityModel:
    """Regressions of quality and cost on the numbers of a row, for all models at once.

    Attributes
    ----------
    centre, scale : ndarray of shape (n_columns,)
        Means and reciprocal standard deviations of the columns.
    mean : ndarray of shape (n_models,)
        Mean quality.
    neighbours : ndarray of shape (n_rows, n_columns)
        Training rows, of length 1.
    neighbour_quality : ndarray of shape (n_rows, n_models)
        Their quality.
    coefficients : ndarray of shape (n_columns + 1, n_models + n_costs)
        Ridge regressions of quality and of the logarithm of cost; there is a cost of each model, or of each model in
        each of several resources.
    cost_factor : ndarray of shape (n_costs,)
        Mean cost divided by the mean of the exponentials (Duan's smearing estimate).
    trees : TreeEnsemble
        Extremely randomised trees, whose leaves are averaged.
    weights : ndarray of shape (3,)
        Weights of neighbours, ridge and trees, as deviations from the mean.
    cost_range : ndarray of shape (2, n_costs), optional
        Least and largest cost seen, to which expected costs are clipped; files of version 0.3 have none.
    """

    centre: Floats
    scale: Floats
    mean: Floats
    neighbours: Floats
    neighbour_quality: Floats
    coefficients: Floats
    cost_factor: Floats
    trees: TreeEnsemble
    weights: Floats
    cost_range: Floats | None = None

    def parts(self, Z: Floats) -> tuple[Floats, Floats]:
        """Deviations from mean quality, shape (n_rows, n_models, 3), and expected costs, shape (n_rows, n_costs)."""
        Z = self._filled(Z)
        standard = (Z - self.centre) * self.scale
        linear = standard @ self.coefficients[1:] + self.coefficients[0]
        n_models = len(self.mean)
        quality = np.stack(
            [self._of_neighbours(standard), linear[:, :n_models], self.trees.predict(Z) / self.trees.n_trees],
            axis=2,
        )
        return quality - self.mean[:, None], self._cost(linear[:, n_models:])

    def _cost(self, logs: Floats) -> Floats:
        # A sum that overflowed both ways is no number, and counts as the largest cost.
        cost: Floats = np.exp(np.fmax(np.fmin(logs, 700.0), -700.0)) * self.cost_factor
        return cost if self.cost_range is None else np.clip(cost, *self.cost_range)

    def expected_cost(self, Z: Floats) -> Floats:
        """Expected cost alone, shape (n_rows, n_costs)."""
        linear = (self._filled(Z) - self.centre) * self.scale @ self.coefficients[1:] + self.coefficients[0]
        return self._cost(linear[:, len(self.mean) :])

    def predict(self, Z: Floats) -> tuple[Floats, Floats]:
        """Expected quality, shape (n_rows, n_models), and cost, shape (n_rows, n_costs)."""
        parts, cost = self.parts(Z)
        return self.mean + parts @ self.weights, cost

    def take(self, models: Ints) -> "QualityModel":
        """The regressions of these models only."""
        both = np.concatenate([models, models + len(self.mean)])
        return replace(
            self,
            mean=self.mean[models],
            neighbour_quality=self.neighbour_quality[:, models],
            coefficients=self.coefficients[:, both],
            cost_factor=self.cost_factor[models],
            trees=replace(self.trees, values=self.trees.values[:, models]),
            cost_range=None if self.cost_range is None else self.cost_range[:, models],
        )

    def with_costs(self, change: Floats) -> "QualityModel":
        """The regressions with the cost of each model times a factor."""
        seen = None if self.cost_range is None else self.cost_range * change
        return replace(self, cost_factor=self.cost_factor * change, cost_range=seen)

    def with_combination(self, intercept: float, weights: Floats, cost: float) -> "QualityModel":
        """The regressions with a further model: a linear combination of the qualities of the others, at a fixed cost.

        Every part is linear in the qualities of the training rows, so that the combination is exact.
        """
        n_models = len(self.mean)
        quality, logs = self.coefficients[:, :n_models], self.coefficients[:, n_models:]
        both = quality @ weights, np.zeros(len(logs))
        both[0][0] += intercept
        both[1][0] = np.log(cost)
        return replace(
            self,
            mean=np.append(self.mean, intercept + self.mean @ weights),
            neighbour_quality=np.column_stack(
                [self.neighbour_quality, intercept + self.neighbour_quality @ weights]
            ),
            coefficients=np.column_stack([quality, both[0], logs, both[1]]),
            cost_factor=np.append(self.cost_factor, 1.0),
            trees=replace(
                self.trees,
                values=np.column_stack([self.trees.values, intercept + self.trees.values @ weights]),
            ),
            cost_range=None
            if self.cost_range is None
            else np.column_stack([self.cost_range, np.full(2, cost)]),
        )

    def _filled(self, Z: Floats) -> Floats:
        return np.where(np.isnan(Z), self.centre, Z) if np.isnan(Z).any() else Z

    def _of_neighbours(self, standard: Floats) -> Floats:
        rows = _of_length_one(standard)
        found = np.empty((len(rows), len(self.mean)))
        k = min(N_NEIGHBOURS, len(self.neighbours))
        for begin in range(0, len(rows), _BLOCK):
            block = slice(begin, begin + _BLOCK)
            far = -(rows[block] @ self.neighbours.T)
            nearest = np.argpartition(far, k - 1, axis=1)[:, :k]
            found[block] = self.neighbour_quality[nearest].mean(axis=1)
        return found

    def validate(self) -> "QualityModel":
        """Refuse parts that do not fit together."""
        n_columns, n_models, n_costs = len(self.centre), len(self.mean), len(self.cost_factor)
        shapes = {
            "scale": (self.scale.shape, (n_columns,)),
            "neighbours": (self.neighbours.shape[1:], (n_columns,)),
            "neighbour_quality": (self.neighbour_quality.shape, (len(self.neighbours), n_models)),
            "coefficients": (self.coefficients.shape, (n_columns + 1, n_models + n_costs)),
            "cost_factor": (self.cost_factor.shape, (n_costs,)),
            "trees": ((self.trees.n_features, self.trees.n_outputs), (n_columns, n_models)),
            "weights": (self.weights.shape, (3,)),
            "cost_range": (
                (2, n_costs) if self.cost_range is None else self.cost_range.shape,
                (2, n_costs),
            ),
        }
        for name, (found, wanted) in shapes.items():
            if found != wanted or not len(self.neighbours) or not self.trees.n_trees:
                raise InvalidInputError(f"{name} must have shape {wanted}; got {found}.")
        return self


def _of_length_one(rows: Floats) -> Floats:
    lengths = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    unit: Floats = rows / np.maximum(lengths, 1e-12)
    return unit


def fit_quality_model(Z: Floats, quality: Floats, cost: Floats, seed: int) -> QualityModel:
    """Fit the regressions on rows whose qualities and costs are all known; weights are equal."""
    with np.errstate(invalid="ignore"):
        centre = np.nan_to_num(np.nanmean(np.where(np.isnan(Z).all(axis=0), 0.0, Z), axis=0))
    Z = np.where(np.isnan(Z), centre, Z)
    spread = Z.std(axis=0)
    scale = np.where(spread > 1e-9, 1.0 / np.maximum(spread, 1e-9), 0.0)
    standard = (Z - centre) * scale
    columns = np.column_stack([np.ones(len(Z)), standard])
    billed = floored(cost)
    logs = np.log(billed)
    shrink = min(1.0, len(Z) / 2000)
    coefficients = np.column_stack(
        [ridge(columns, quality, 300.0 * shrink), ridge(columns, logs, 30.0 * shrink)]
    )
    n_models = quality.shape[1]
    expected = np.exp(columns @ coefficients[:, n_models:])
    # What costs nothing in a resource has no logarithm.
    cost_range = np.stack([billed.min(axis=0), billed.max(axis=0)]) * (cost.mean(axis=0) > 0.0)
    forest = ExtraTreesRegressor(N_TREES, min_samples_leaf=8, max_features=0.3, random_state=seed).fit(
        Z, quality
    )
    step = -(-len(Z) // MAX_STORED_ROWS)
    return QualityModel(
        centre,
        scale,
        quality.mean(axis=0),
        _of_length_one(standard)[::step],
        quality[::step],
        coefficients,
        cost.mean(axis=0) / expected.mean(axis=0),
        forest_trees(forest),
        np.full(3, 1 / 3),
        cost_range,
    )


def floored(cost: Floats) -> Floats:
    """Costs of at least a thousandth of the mean: rows that were billed nothing have no logarithm."""
    mean = cost.mean(axis=0)
    billed: Floats = np.maximum(cost, 1e-3 * np.where(mean > 0.0, mean, mean.max()))
    return billed


def crossfit(
    Z: Floats, quality: Floats, cost: Floats, folds: Ints, seed: int
) -> tuple[QualityModel, Floats, Floats]:
    """Fit on all rows, with weights that are best out of fold; return expected quality and cost out of fold, too.

    What is expected out of fold are deviations from the mean of all rows: means that differ from fold to fold would let
    rules tell the folds apart.
    """
    parts, expected = np.empty((*quality.shape, 3)), np.empty_like(cost)
    means = np.empty_like(quality)
    for fold in np.unique(folds):
        held = folds == fold
        model = fit_quality_model(Z[~held], quality[~held], cost[~held], seed)
        parts[held], expected[held] = model.parts(Z[held])
        means[held] = model.mean
    weights = nnls(parts.reshape(-1, 3), (quality - means).ravel())[0]
    model = replace(fit_quality_model(Z, quality, cost, seed), weights=weights)
    return model, quality.mean(axis=0) + parts @ weights, expected


# -- run times -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RuntimeModel:
    """Expected quality of run times, by extremely randomised trees on how far each model is ahead of the mean.

    What is learned of each model is relative to the others on the same row: the mean of penalised time and its
    logarithm, both standardised. How hard a row is, which decides nothing between models, is an output of its own.

    Attributes
    ----------
    centre : ndarray of shape (n_columns,)
        Means of the columns, which stand for missing values.
    mean, cost : ndarray of shape (n_models,)
        Mean quality and cost.
    slope : float
        Quality per unit of what the trees answer.
    trees : TreeEnsemble
        Trees with an output for each model, and one for the mean quality of the row.
    """

    centre: Floats
    mean: Floats
    cost: Floats
    slope: float
    trees: TreeEnsemble

    def predict(self, Z: Floats) -> tuple[Floats, Floats]:
        """Expected quality and cost, each of shape (n_rows, n_models)."""
        Z = np.where(np.isnan(Z), self.centre, Z)
        return self.quality(self.trees.predict(Z) / self.trees.n_trees), np.tile(self.cost, (len(Z), 1))

    def quality(self, answers: Floats) -> Floats:
        """Qualities from what the trees answer."""
        ahead: Floats = answers[:, -1:] + self.slope * answers[:, :-1]
        return ahead

    def validate(self) -> "RuntimeModel":
        """Refuse parts that do not fit together."""
        wanted = len(self.centre), len(self.mean) + 1
        if (self.trees.n_features, self.trees.n_outputs) != wanted or self.cost.shape != self.mean.shape:
            raise InvalidInputError("trees of run times must read the columns and answer for each model.")
        return self


def how_far_ahead(quality: Floats) -> Floats:
    """What trees learn of run times: how far each model is ahead, in penalised time and its logarithm."""
    parts = [quality, -np.log(np.maximum(1.0 - quality, _LEAST_TIME))]
    relative = [part - part.mean(axis=1, keepdims=True) for part in parts]
    ahead: Floats = sum(part / max(float(part.std()), 1e-9) for part in relative)
    return ahead


def fit_runtime_model(
    Z: Floats, quality: Floats, cost: Floats, seed: int
) -> tuple[RuntimeModel, Floats, Floats]:
    """Fit the trees; return expected quality and cost of the rows out of bag, too."""
    centre = means_of_known(Z)
    level, ahead = quality.mean(axis=1), how_far_ahead(quality)
    cells = np.where(np.isnan(Z), centre, Z)
    forest, answers = fit_out_of_bag(cells, np.column_stack([ahead, level]), N_TREES, 2, seed)
    found, relative = answers[:, :-1], quality - level[:, None]
    slope = float(max((found * relative).sum() / max(float((found * found).sum()), 1e-12), 1e-9))
    model = RuntimeModel(centre, quality.mean(axis=0), cost.mean(axis=0), slope, forest_trees(forest))
    return model, model.quality(answers), np.tile(model.cost, (len(Z), 1))


def means_of_known(Z: Floats) -> Floats:
    """Mean of each column where it is known, 0 where it never is."""
    known = ~np.isnan(Z)
    means: Floats = np.where(known, Z, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return means


def fit_out_of_bag(
    cells: Floats, targets: Floats, n_trees: int, leaf: int, seed: int, *, max_features: float = 0.5
) -> tuple[ExtraTreesRegressor, Floats]:
    """Fit extremely randomised trees, and return what they answer about each row out of bag; 0 where none is."""
    forest = ExtraTreesRegressor(
        n_trees,
        min_samples_leaf=leaf,
        max_features=max_features,
        bootstrap=True,
        oob_score=_no_score,
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Some inputs do not have OOB scores")
        forest.fit(cells, targets)
    return forest, np.nan_to_num(forest.oob_prediction_)


def _no_score(y_true: Any, y_pred: Any) -> float:  # noqa: ARG001 - predictions out of bag are all that is wanted
    return 0.0
