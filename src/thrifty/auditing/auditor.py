"""Looks at a fitted model of somebody else: what it spends, what it could do without, what a cascade would save."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.base import is_classifier, is_regressor
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from thrifty.arrays import Bools, Floats, Ints
from thrifty.auditing.boosters import is_booster, names_of_booster, task_and_function
from thrifty.auditing.columns_read import columns_read, follows_paths
from thrifty.auditing.findings import RARE, Audit, Drop, Offer, PurchaseUse
from thrifty.cascade.estimators import BudgetedClassifier, BudgetedRegressor
from thrifty.chain.columns import kind_of_table, table_of_fit
from thrifty.errors import FullModelNotWorthItWarning, InvalidInputError, NothingSavedWarning
from thrifty.evidence.frontier import Frontier
from thrifty.full.model import as_full_model, ask_model
from thrifty.prices.billing import PriceList
from thrifty.prices.prices import Prices, check_price_list
from thrifty.tasks.classes import classification_of
from thrifty.tasks.regression import regression_of
from thrifty.tasks.task import Task

__all__ = ["audit", "names_of"]

MOST_JUDGED = 5_000
"""Rows on which losses are measured and the cascade is fitted."""
_LOSSES = (0.0, 0.005, 0.01, 0.02)
_QUICK: dict[str, Any] = {"sizes": [(60, 4)], "cv": 3}


def audit(
    model: Any,
    X: Any,
    feature_costs: Any = None,
    y: ArrayLike | None = None,
    *,
    feature_groups: Any = None,
    full_cost: float = 0.0,
    tolerance: float = 0.005,
    random_state: int = 0,
) -> Audit:
    """Tell what a fitted model spends per row, what it could do without, and what a cascade before it would save.

    Trees are followed row by row: a row spends what the columns on its paths cost, each purchase once. With ``y``, each
    purchase is replaced by a typical value to see what it is worth, purchases that are worth next to nothing are tried
    together, and a small ``BudgetedClassifier`` or ``BudgetedRegressor`` is fitted with the model as its full model.

    Parameters
    ----------
    model : fitted estimator or booster
        LightGBM, XGBoost, forests and boosting of scikit-learn, also in a Pipeline or calibrated. Other models read
        every column of every row, linear ones those with a coefficient.
    X : table of shape (n_rows, n_features)
        Rows as the model takes them, which it should not have been fitted on. Columns with names may stand in any
        order.
    feature_costs, feature_groups, full_cost
        Prices, as of ``BudgetedClassifier``; ``full_cost`` is the price of one call of the model.
    y : array-like of shape (n_rows,), optional
        Labels or numbers. Without them nothing is said of losses and cascades.
    tolerance : float, default=0.005
        Score that may be lost by doing without purchases: accuracy, or R2.
    random_state : int, default=0
        Seed of the cascade, and of the choice of rows where there are more than 5,000 to judge.

    Returns
    -------
    Audit
        Numbers, which ``print`` shows as text, a notebook as a page and ``to_frame`` as a data frame.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from thrifty import audit
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> forest = RandomForestClassifier(5, max_depth=3, random_state=0).fit(X[::2], y[::2])
    >>> found = audit(forest, X[1::2])
    >>> bool(found.mean_cost < found.cost_at_once <= 30)
    True
    """
    bare = _checked(model)
    X = X.toarray() if sparse.issparse(X) else X if kind_of_table(X) else np.asarray(X)
    known = names_of(bare, X) if kind_of_table(X) else None
    table = table_of_fit(X, known) if known is not None else X.to_numpy() if kind_of_table(X) else X
    n_rows, n_features = _shape(bare, table)
    columns = getattr(
        table if known is not None else X, "columns", [f"x{place}" for place in range(n_features)]
    )
    names = [str(one) for one in columns]
    prices = check_price_list(
        feature_costs, feature_groups, full_cost, n_features, names if kind_of_table(X) else None
    )
    if prices.by_row is not None:
        raise InvalidInputError(
            "an audit knows one price of each purchase, and feature_costs has prices that differ by row (by_row). Give "
            "what a row pays on average."
        )
    read = _read(bare, table)
    found = Audit(
        model=_called(bare),
        follows_paths=follows_paths(bare),
        cost=prices.cost_of_rows(read, np.ones(n_rows, dtype=bool)),
        cost_at_once=prices.cost_of(np.flatnonzero(read.any(axis=0))) + prices.full_cost,
        cost_of_everything=prices.cost_of_everything,
        purchases=tuple(_uses(read, prices, names)),
        drop=Drop((), 0.0),
    )
    if y is None:
        rare = tuple(one for one in found.purchases if one.share <= RARE and one.price > 0)
        return replace(found, drop=Drop(rare, _cost_without(bare, table, rare, prices)))
    target = np.asarray(y)
    if target.shape != (n_rows,):
        raise InvalidInputError(
            f"y must hold a label or number for each of the {n_rows} rows of X; got shape {target.shape}."
        )
    chosen = _some_rows(n_rows, random_state)
    judge = _Judge.of(bare, _safe_indexing(table, chosen), target[chosen], read[chosen])
    return _judged(found, judge, prices, tolerance, random_state)


def _judged(found: Audit, judge: "_Judge", prices: PriceList, tolerance: float, seed: int) -> Audit:
    """An audit with all that takes labels: losses without purchases, and a cascade."""
    uses = [
        replace(one, loss=loss, error=error) for one in found.purchases for loss, error in [judge.loss([one])]
    ]
    drop = _dropped(judge, uses, tolerance)
    loss, error = judge.loss(drop)
    frontier = _cascade(judge, prices, seed)
    offers = [] if frontier is None else _offers(frontier, judge.score)
    return replace(
        found,
        purchases=tuple(uses),
        drop=Drop(tuple(drop), _cost_without(judge.model, judge.table, drop, prices), loss, error),
        score=judge.score,
        score_name=judge.task.quality_name,
        n_judged=len(judge.target),
        offers=tuple(offers),
        frontier=frontier,
    )


# -- the model and its table -------------------------------------------------------------------


def _checked(model: Any) -> Any:
    """The model itself, if it is fitted and not one of ours."""
    bare = model.estimator if isinstance(model, FrozenEstimator) else model
    if isinstance(bare, type):
        raise InvalidInputError(f"model must be a fitted model, not a class; got {bare.__name__}.")
    if hasattr(bare, "chain_") or hasattr(bare, "frontier_"):
        raise InvalidInputError(
            f"a {type(bare).__name__} knows what it spends: ask its cost(X) and frontier_. An audit is for models that "
            f"do not."
        )
    if is_booster(bare):
        return bare
    if not hasattr(bare, "predict"):
        raise InvalidInputError(
            f"model must be a fitted estimator or a booster of LightGBM or XGBoost; got {type(bare).__name__}."
        )
    try:
        check_is_fitted(bare)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"model is a {type(bare).__name__} that is not fitted. Fit it, and audit it on other rows."
        ) from error
    return bare


def names_of(model: Any, X: Any) -> list[str] | None:
    """Names of the columns that a model was fitted on, as the table writes them; None where it knows none of them."""
    known = names_of_booster(model) if is_booster(model) else getattr(model, "feature_names_in_", None)
    if known is None:
        return None
    # LightGBM writes "_" for a blank, and makes up names of its own for arrays.
    written = {str(name).replace(" ", "_"): str(name) for name in X.columns}
    found = [written.get(str(name), str(name)) for name in known]
    if found == [f"Column_{place}" for place in range(len(found))]:
        return [str(name) for name in X.columns]
    return found


def _shape(model: Any, table: Any) -> tuple[int, int]:
    shape = np.shape(table)
    if len(shape) != 2 or not all(shape):
        raise InvalidInputError(
            f"X must be a table of rows and columns, none of them zero; got shape {shape}."
        )
    wanted = len(names_of_booster(model)) if is_booster(model) else getattr(model, "n_features_in_", shape[1])
    if wanted != shape[1]:
        raise InvalidInputError(
            f"the {_called(model)} was fitted on {wanted} columns, but X has {shape[1]}. Give the table it takes."
        )
    return int(shape[0]), int(shape[1])


def _called(model: Any) -> str:
    if isinstance(model, Pipeline):
        return " > ".join(type(step).__name__ for _, step in model.steps if step not in (None, "passthrough"))
    return type(model).__name__


def _read(model: Any, table: Any) -> Bools:
    """Columns that are read of each row; what the model refuses about the table is said in its own words."""
    try:
        return columns_read(model, table)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidInputError(
            f"the {_called(model)} cannot read X: {str(error)[:300]} Give the rows as it was fitted on them."
        ) from error


def _some_rows(n_rows: int, seed: int) -> Ints:
    if n_rows <= MOST_JUDGED:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(seed).choice(n_rows, MOST_JUDGED, replace=False))


# -- purchases ---------------------------------------------------------------------------------


def _uses(read: Bools, prices: PriceList, names: Sequence[str]) -> list[PurchaseUse]:
    """Every purchase, those that cost most per row first, then the dearest."""
    found = []
    for group, price in enumerate(prices.prices.tolist()):
        columns = np.flatnonzero(prices.group_of == group)
        share = float(read[:, columns].any(axis=1).mean())
        called = ", ".join(names[column] for column in columns.tolist())
        found.append(PurchaseUse(called, tuple(columns.tolist()), price, share))
    return sorted(found, key=lambda one: (-one.spend, -one.price, one.columns))


def _columns(purchases: Sequence[PurchaseUse]) -> list[int]:
    return [column for one in purchases for column in one.columns]


def _cost_without(model: Any, table: Any, purchases: Sequence[PurchaseUse], prices: PriceList) -> float:
    """Mean cost per row where some purchases are not made: rows then go down other paths."""
    read = _read(model, _typical(table, _columns(purchases)))
    read[:, _columns(purchases)] = False
    return float(prices.cost_of_rows(read, np.ones(len(read), dtype=bool)).mean())


def _dropped(judge: "_Judge", uses: Sequence[PurchaseUse], tolerance: float) -> list[PurchaseUse]:
    """Purchases that may all be left out at once: those that lose least for their price are tried first."""
    priced = [one for one in uses if one.price > 0]
    dropped = [one for one in priced if one.share == 0.0]
    others = [one for one in priced if one.share > 0.0 and (one.loss or 0.0) <= tolerance]
    for one in sorted(others, key=lambda one: ((one.loss or 0.0) / one.price, one.columns)):
        if judge.loss([*dropped, one])[0] <= tolerance:
            dropped.append(one)
    return dropped


def _typical(table: Any, columns: Sequence[int]) -> Any:
    """The table with one of its own values in every row of some columns: the middle one, or the most frequent text."""
    n_rows = np.shape(table)[0]
    kind = kind_of_table(table)
    if kind == "polars":
        held = [table[:, column].gather([_typical_row(table[:, column])] * n_rows) for column in columns]
        return table.with_columns(*held)
    other = table.copy()
    for column in columns:
        if kind == "pandas":
            one = table.iloc[:, column]
            other[table.columns[column]] = one.iloc[[_typical_row(one)] * n_rows].set_axis(table.index)
        else:
            other[:, column] = table[_typical_row(table[:, column]), column]
    return other


def _typical_row(column: Any) -> int:
    """A row whose value is in the middle of those that are there, or, of text, the most frequent one."""
    values = np.asarray(column)
    if values.dtype.kind in "biuf":
        there = np.flatnonzero(values == values)
        order = np.argsort(values[there], kind="stable")
        return int(there[order[(len(there) - 1) // 2]]) if len(there) else 0
    _, first, counts = np.unique([str(one) for one in values], return_index=True, return_counts=True)
    return int(first[np.argmax(counts)])


# -- labels ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Judge:
    """Rows with labels, what the model says about them, and what it would say without some purchases."""

    model: Any
    full: Any
    task: Task
    table: Any
    labels: Any
    target: Floats
    read: Bools
    outputs: Floats
    quality: Floats

    @classmethod
    def of(cls, model: Any, table: Any, labels: Any, read: Bools) -> "_Judge":
        """Ask the model about all rows."""
        if is_booster(model):
            task, asked = task_and_function(model, labels)
        elif is_classifier(model) or is_regressor(model):
            task = classification_of(labels) if is_classifier(model) else regression_of(labels, "squared")
            asked = model
        else:
            raise InvalidInputError(
                f"y tells how good a classifier or a regressor is, and a {type(model).__name__} is neither. Audit it "
                f"without y."
            )
        full = as_full_model(asked, task, read.shape[1], who="model")
        target = task.encode("y", labels, len(labels))
        outputs = _ask(full, task, table)
        quality = np.asarray(task.quality(target, outputs), dtype=np.float64)
        return cls(model, full, task, table, labels, target, read, outputs, quality)

    @property
    def score(self) -> float:
        """Mean score of the model."""
        return float(self.quality.mean())

    def loss(self, purchases: Sequence[PurchaseUse]) -> tuple[float, float]:
        """Mean score lost without some purchases, and its standard error; rows that do not read them lose nothing."""
        columns = _columns(purchases)
        touched = np.flatnonzero(self.read[:, columns].any(axis=1))
        lost = np.zeros(len(self.quality))
        if len(touched):
            without = _ask(self.full, self.task, _safe_indexing(_typical(self.table, columns), touched))
            lost[touched] = self.quality[touched] - self.task.quality(self.target[touched], without)
        return float(lost.mean()), float(lost.std() / np.sqrt(len(lost)))


def _ask(full: Any, task: Task, table: Any) -> Floats:
    places = np.arange(np.shape(table)[0], dtype=np.float64)[:, None]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        return ask_model(full, task, table, places, who="the model")


def _cascade(judge: _Judge, prices: PriceList, seed: int) -> Frontier | None:
    """Every point of a small cascade in front of the model, out of fold; None where the model reads nothing."""
    used = np.flatnonzero(judge.read.any(axis=0))
    if not len(used):
        return None
    kind: Any = BudgetedClassifier if len(judge.task.classes) else BudgetedRegressor
    said = judge.outputs if len(judge.task.classes) else judge.outputs[:, 0]
    cascade = kind(
        said,
        feature_costs=Prices.of(prices),
        full_cost=prices.full_cost,
        full_features=used,
        random_state=seed,
        **_QUICK,
    )
    with warnings.catch_warnings():
        # Both are told by the numbers of the audit.
        warnings.simplefilter("ignore", FullModelNotWorthItWarning)
        warnings.simplefilter("ignore", NothingSavedWarning)
        frontier: Frontier = cascade.fit(judge.table, judge.labels).frontier_
    return frontier


def _offers(frontier: Frontier, score: float) -> list[Offer]:
    """The cheapest point for each loss; a loss that buys nothing further is left out."""
    found: list[Offer] = []
    for loss in _LOSSES:
        enough = np.flatnonzero(frontier.score >= score - loss - 1e-12)
        if len(enough):
            place = enough[np.argmin(frontier.cost[enough])]
            offer = Offer(loss, float(frontier.cost[place]), float(frontier.score[place]))
            if not found or offer.cost < found[-1].cost:
                found.append(offer)
    return found
