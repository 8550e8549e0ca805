"""``audit``: what a fitted model costs per row, which purchases it hardly needs, and what a cascade would save.

``full/stored.py`` reads the arrays of a model: a tree reads the columns on the path to the leaf that a row reaches, a
linear model the columns with nonzero coefficients, any other model every column. Preprocessing steps are traced as far
as they tell which output column is made of which input columns.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.base import OneToOneFeatureMixin, is_classifier, is_regressor
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import AdaBoostClassifier, AdaBoostRegressor, VotingClassifier, VotingRegressor
from sklearn.feature_selection import SelectorMixin
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer, OneHotEncoder
from sklearn.utils.validation import check_is_fitted

from thrifty._moved import FormerName
from thrifty.arrays import Bools, Floats, Ints
from thrifty.engine.evidence.frontier import Frontier
from thrifty.engine.full.model import as_full_model, ask_model
from thrifty.engine.full.stored import StoredModel, booster_model, is_booster, read_model
from thrifty.engine.plots import as_html, draw_in_force, html_table
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.prices.prices import Prices, check_price_list, resolve_prices
from thrifty.engine.table.table import Table
from thrifty.engine.tasks.classes import classification_of
from thrifty.engine.tasks.regression import regression_of
from thrifty.engine.tasks.task import Task
from thrifty.engine.trees.other_libraries import ForeignTrees
from thrifty.errors import FullModelNotWorthItWarning, InvalidInputError, NothingSavedWarning, listed
from thrifty.learners.cascade.estimators import BudgetedClassifier, BudgetedRegressor, StageOptions

MAX_LABELLED = 5_000
"""Rows on which losses are measured and the cascade is fitted."""
RARE = 0.01
"""Share of rows up to which a purchase counts as hardly read."""
_SHOWN = 15
_LOSSES = (0.0, 0.005, 0.01, 0.02)
_QUICK: dict[str, Any] = {"stages": StageOptions(sizes=[(60, 4)]), "cv": 3}


# -- results -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class PurchaseUse:
    """A purchase as a model uses it.

    Attributes
    ----------
    name : str
        Names of the columns that it delivers.
    columns : tuple of int
        Their numbers.
    price : float
        Its price.
    share : float
        Share of the rows of which the model reads some of these columns.
    loss, error : float or None
        Mean loss of score if the columns are not bought and replaced by a typical value, and its standard error; None
        without labels.
    """

    name: str
    columns: tuple[int, ...]
    price: float
    share: float
    loss: float | None = None
    error: float | None = None

    @property
    def spend(self) -> float:
        """Mean cost per row, before discounts."""
        return self.price * self.share


@dataclass(frozen=True)
class Drop:
    """Purchases that can be left out together with little loss.

    Attributes
    ----------
    purchases : tuple of PurchaseUse
        Those purchases.
    cost : float
        Mean cost per row without them.
    loss, error : float or None
        Score that is lost, with its standard error, on the rows of the audit; None without labels.
    """

    purchases: tuple[PurchaseUse, ...]
    cost: float
    loss: float | None = None
    error: float | None = None


@dataclass(frozen=True)
class Offer:
    """Cheapest operating point of a cascade in front of the model for a given loss, scored out of fold.

    Attributes
    ----------
    max_loss : float
        Largest loss of score against the model alone.
    cost, score : float
        Mean cost per row, and mean score.
    """

    max_loss: float
    cost: float
    score: float


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """Result of an audit: what a model costs per row, which purchases it hardly needs, and what a cascade would save.

    Made by ``thrifty.audit``. ``print`` shows it as text, a notebook as a page, ``to_frame`` as a data frame.

    Attributes
    ----------
    model : str
        Name of the model's class, or of the classes of a pipeline.
    follows_paths : bool
        Whether the model is made of trees, which read only the columns on the paths of a row; any other model reads the
        same columns of every row.
    cost : ndarray of shape (n_rows,)
        Cost of each row if columns are bought when the model first reads them.
    cost_at_once : float
        Cost of a row if all columns are bought that the model reads of any row.
    cost_of_everything : float
        Cost of a row if all columns of the table are bought.
    purchases : tuple of PurchaseUse
        Every purchase, those that cost most per row first.
    drop : Drop
        Purchases that can be left out.
    score, score_name : float or None, str
        Mean score of the model on the labelled rows, if labels were given, and the name of the score.
    n_labelled : int
        Number of rows that the score is of.
    offers : tuple of Offer
        Points of a cascade in front of the model; empty without labels.
    frontier : Frontier or None
        Every point of that cascade.
    """

    model: str
    follows_paths: bool
    cost: Floats
    cost_at_once: float
    cost_of_everything: float
    purchases: tuple[PurchaseUse, ...]
    drop: Drop
    score: float | None = None
    score_name: str = "score"
    n_labelled: int = 0
    offers: tuple[Offer, ...] = ()
    frontier: Frontier | None = None

    n_judged = FormerName("n_labelled")

    @property
    def mean_cost(self) -> float:
        """Mean cost per row if columns are bought when the model first reads them."""
        return float(self.cost.mean())

    def to_frame(self) -> Any:
        """Return a pandas data frame with one line per purchase, those that cost most per row first."""
        import pandas as pd

        names = ("price", "share", "spend", "loss", "error")
        lines = [[getattr(purchase, name) for name in names] for purchase in self.purchases]
        frame = pd.DataFrame(lines, columns=names, dtype=float)
        frame.insert(0, "purchase", [purchase.name for purchase in self.purchases])
        return frame.assign(can_drop=[purchase in self.drop.purchases for purchase in self.purchases])

    def as_dict(self) -> dict[str, Any]:
        """Everything but the cost of single rows and the frontier, ready for a JSON file."""
        used = self.to_frame().drop(columns="can_drop").dropna(axis="columns")
        dropped = {"purchases": [purchase.name for purchase in self.drop.purchases], "cost": self.drop.cost}
        if self.drop.loss is not None:
            dropped |= {"loss": self.drop.loss, "error": self.drop.error}
        return {
            "model": self.model,
            "follows_paths": self.follows_paths,
            "n_rows": len(self.cost),
            "mean_cost": self.mean_cost,
            "cost_at_once": self.cost_at_once,
            "cost_of_everything": self.cost_of_everything,
            "purchases": used.to_dict("records"),
            "drop": dropped,
            "score": self.score,
            "score_name": self.score_name,
            "cascade": [vars(offer) | {"saved": self._saved(offer.cost)} for offer in self.offers],
        }

    # as text, and as a page of a notebook

    def __repr__(self) -> str:
        return f"Audit({self.model} on {len(self.cost):,} rows: mean cost {self.mean_cost:.4g})"

    def __str__(self) -> str:
        parts = [*self._spending(), "", self._uses().to_string(), "", self._can_drop()]
        if self.offers:
            parts += ["", _CASCADE, self._cascade().to_string(), _OF_THE_CASCADE]
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        parts = [f"<b>Audit of {escape(self.model)}</b>"]
        parts += [f"<div>{escape(line)}</div>" for line in self._spending()]
        parts += [_html_frame(self._uses()), f"<div>{escape(self._can_drop())}</div>"]
        if self.offers:
            title = f"{self.score_name} of a cascade against its mean cost"
            parts += [
                f"<div>{_CASCADE}</div>",
                _html_frame(self._cascade()),
                as_html(self._draw_cascade, title),
            ]
        return f'<div style="display:grid;gap:8px;justify-items:start">{"".join(parts)}</div>'

    def _spending(self) -> list[str]:
        how = (
            "columns are bought when a tree first looks at them"
            if self.follows_paths
            else "it is not made of trees that are known, and reads the same columns of every row"
        )
        middle, most = np.quantile(self.cost, [0.5, 0.9])
        lines = [
            f"{self.model} on {len(self.cost):,} rows costs {self.mean_cost:.4g} per row: {how}.",
            f"Half of the rows cost at most {middle:.4g}, nine of ten at most {most:.4g}.",
            f"Bought at once, what it reads costs {self.cost_at_once:.4g}, the table {self.cost_of_everything:.4g}.",
        ]
        if self.score is not None:
            lines.append(f"Its {self.score_name} is {self.score:.4f} on {self.n_labelled:,} rows.")
        return lines

    def _uses(self) -> Any:
        """The dearest purchases as a data frame of text."""
        import pandas as pd

        shown, rest = self.purchases[:_SHOWN], self.purchases[_SHOWN:]
        frame = pd.DataFrame(
            {
                "price": [f"{use.price:g}" for use in shown],
                "read by": [f"{use.share:.1%}" for use in shown],
                "cost per row": [f"{use.spend:.4g}" for use in shown],
            },
            index=[use.name if len(use.name) <= 40 else use.name[:39] + "…" for use in shown],
        )
        if self.score is not None:
            frame["lost without it"] = [f"{use.loss:.4f} ± {use.error:.4f}" for use in shown]
        if rest:
            frame.loc[f"and {len(rest)} more", "cost per row"] = f"{sum(use.spend for use in rest):.4g}"
        return frame.fillna("")

    def _cascade(self) -> Any:
        """Points of the cascade as a data frame of text."""
        import pandas as pd

        return pd.DataFrame(
            {
                "cost per row": [f"{offer.cost:.4g}" for offer in self.offers],
                self.score_name: [f"{offer.score:.4f}" for offer in self.offers],
                "saved": [f"{self._saved(offer.cost):.0%}" for offer in self.offers],
            },
            index=[f"losing at most {offer.max_loss:g}" for offer in self.offers],
        )

    def _can_drop(self) -> str:
        drop = self.drop
        if not drop.purchases:
            return "There is no purchase that it could do without."
        names = listed([purchase.name for purchase in drop.purchases], _SHOWN)
        saved = f"it then costs {drop.cost:.4g} per row"
        if drop.loss is None:
            why = f"at most {RARE:.0%} of the rows are asked for each of them"
            return f"It could do without {names}: {why}, and {saved}."
        lost = f"loses {drop.loss:.4f} ± {drop.error:.4f} of {self.score_name} on these rows"
        return f"It could do without {names}, with typical values instead: {saved} and {lost}."

    def _saved(self, cost: float) -> float:
        return 1.0 - cost / self.mean_cost if self.mean_cost else 0.0

    def _draw_cascade(self, ax: Any) -> None:
        assert self.frontier is not None and self.score is not None  # noqa: PT018 - both come with labels
        self.frontier.plot(ax, label="cascade")
        draw_in_force(ax, self.mean_cost, self.score, label=f"{self.model}, bought on its paths")


_CASCADE = "A cascade in front of it, each row scored by stages that have not learned from it:"
_OF_THE_CASCADE = (
    "Shares are of what the model costs per row. Points were chosen on the same rows: fit a cascade, and prove one on "
    "others with certified(X, y)."
)


def _html_frame(frame: Any) -> str:
    return html_table(["", *frame.columns], [list(line) for line in frame.itertuples()])


# -- the audit ---------------------------------------------------------------------------------


def audit(
    model: Any,
    X: Any,
    feature_costs: Any = None,
    y: ArrayLike | None = None,
    *,
    prices: Any = None,
    tolerance: float = 0.005,
    random_state: int = 0,
) -> Audit:
    """Audit a fitted model: what it costs per row, which purchases it hardly needs, and what a cascade would save.

    Trees are followed row by row: a row pays for the columns on its paths, each purchase once. With ``y``, each
    purchase is replaced by a typical value to measure the loss of score, purchases with a negligible loss are left out
    together, and a small ``BudgetedClassifier`` or ``BudgetedRegressor`` is fitted with the model as its full model.

    Parameters
    ----------
    model : fitted estimator or booster
        LightGBM, XGBoost, forests and boosting of scikit-learn, also in a Pipeline or calibrated. Other models read
        every column of every row, linear ones those with a coefficient.
    X : table of shape (n_rows, n_features)
        Rows as the model takes them, which it should not have been fitted on. Named columns may be in any order.
    feature_costs, prices
        As of ``BudgetedClassifier``; ``full`` of ``Prices`` is the price of one call of the model.
    y : array-like of shape (n_rows,), optional
        Labels or numbers. Without them no losses and no cascade are measured.
    tolerance : float, default=0.005
        Largest loss of score (accuracy or R2) by leaving purchases out.
    random_state : int, default=0
        Seed of the cascade, and of the choice of rows where there are more than 5,000 with labels.

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
    >>> result = audit(forest, X[1::2])
    >>> bool(result.mean_cost < result.cost_at_once <= 30)
    True
    """
    bare = _checked(model)
    table = Table.of(X.toarray() if sparse.issparse(X) else X)
    fitted_names = names_of(bare, table.native) if table.kind else None
    table = table.in_order_of(fitted_names) if table.kind and fitted_names is not None else table
    names = list(map(str, table.columns)) if table.kind else None
    if fitted_names is None:
        table = Table(None, np.asarray(table.native))
    n_rows, n_features = _shape(bare, table.native)
    prices = check_price_list(resolve_prices(feature_costs, prices, Prices()), n_features, names)
    prices.refuse_resources("an audit")
    names = [f"x{place}" for place in range(n_features)] if names is None else names
    if prices.by_row is not None:
        raise InvalidInputError(
            "an audit needs one price of each purchase, and some prices here differ by row (by_row). "
            "Give the mean price."
        )
    read = _read(bare, table)
    unlabelled = Audit(
        model=_called(bare),
        follows_paths=follows_paths(bare),
        cost=prices.cost_of_rows(read, np.ones(n_rows, dtype=bool)),
        cost_at_once=prices.cost_of(np.flatnonzero(read.any(axis=0))) + prices.full_cost,
        cost_of_everything=prices.cost_of_everything,
        purchases=tuple(_uses(read, prices, names)),
        drop=Drop((), 0.0),
    )
    if y is None:
        rare = tuple(use for use in unlabelled.purchases if use.share <= RARE and use.price > 0)
        return replace(unlabelled, drop=Drop(rare, _cost_without(bare, table, rare, prices)))
    target = np.asarray(y)
    if target.shape != (n_rows,):
        raise InvalidInputError(
            f"y must hold a label or number for each of the {n_rows} rows of X; got shape {target.shape}."
        )
    chosen = np.arange(n_rows)
    if n_rows > MAX_LABELLED:
        chosen = np.sort(np.random.default_rng(random_state).choice(n_rows, MAX_LABELLED, replace=False))
    # The parts that need labels: losses without purchases, and a cascade.
    rows = _LabelledRows.of(bare, table.take(chosen), target[chosen], read[chosen])
    uses = []
    for use in unlabelled.purchases:
        loss, error = rows.loss([use])
        uses.append(replace(use, loss=loss, error=error))
    drop = _dropped(rows, uses, tolerance)
    frontier = _cascade(rows, prices, random_state)
    return replace(
        unlabelled,
        purchases=tuple(uses),
        drop=Drop(tuple(drop), _cost_without(bare, rows.table, drop, prices), *rows.loss(drop)),
        score=rows.score,
        score_name=rows.task.quality_name,
        n_labelled=len(chosen),
        offers=() if frontier is None else tuple(_offers(frontier, rows.score)),
        frontier=frontier,
    )


# -- the model and its table -------------------------------------------------------------------


def _checked(model: Any) -> Any:
    """Check that the model is fitted and not an estimator of thrifty, and unwrap a ``FrozenEstimator``."""
    bare = model.estimator if isinstance(model, FrozenEstimator) else model
    if isinstance(bare, type):
        raise InvalidInputError(f"model must be a fitted model, not a class; got {bare.__name__}.")
    if hasattr(bare, "chain_") or hasattr(bare, "frontier_"):
        raise InvalidInputError(
            f"audit takes a model of another library; a {type(bare).__name__} has its own cost(X) and "
            f"frontier_. Use these."
        )
    if is_booster(bare):
        return booster_model(bare)
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
    """Names of the columns that a model was fitted on, as in the table; None if it was fitted without names."""
    fitted = model.names if isinstance(model, StoredModel) else getattr(model, "feature_names_in_", None)
    if fitted is None:
        return None
    # LightGBM writes "_" for a blank, and makes up names of its own for arrays.
    written = {str(name).replace(" ", "_"): str(name) for name in X.columns}
    names = [written.get(str(name), str(name)) for name in fitted]
    is_made_up = names == [f"Column_{place}" for place in range(len(names))]
    return [str(name) for name in X.columns] if is_made_up else names


def _shape(model: Any, table: Any) -> tuple[int, int]:
    shape = np.shape(table)
    if len(shape) != 2 or not all(shape):
        raise InvalidInputError(
            f"X must be a table of rows and columns, none of them zero; got shape {shape}."
        )
    wanted = getattr(model, "n_features_in_", shape[1])
    if wanted != shape[1]:
        raise InvalidInputError(
            f"the {_called(model)} was fitted on {wanted} columns, but X has {shape[1]}. Give the table it takes."
        )
    return int(shape[0]), int(shape[1])


def _called(model: Any) -> str:
    if isinstance(model, Pipeline):
        return " > ".join(type(step).__name__ for _, step in model.steps if step not in (None, "passthrough"))
    library = model.library if isinstance(model, StoredModel) else None
    return {"lightgbm": "LightGBM", "xgboost": "XGBoost"}.get(library or "", type(model).__name__)


def _read(model: Any, table: Table) -> Bools:
    """Columns read of each row; errors of the model about the table keep its message."""
    try:
        return columns_read(model, table.native)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidInputError(
            f"the {_called(model)} cannot read X: {str(error)[:300]} Give the rows as it was fitted on them."
        ) from error


# -- purchases ---------------------------------------------------------------------------------


def _uses(read: Bools, prices: PriceList, names: Sequence[str]) -> list[PurchaseUse]:
    """All purchases, sorted by cost per row, then by price."""
    uses = []
    for group, price in enumerate(prices.prices.tolist()):
        columns = np.flatnonzero(prices.group_of == group)
        share = float(read[:, columns].any(axis=1).mean())
        called = ", ".join(names[column] for column in columns.tolist())
        uses.append(PurchaseUse(called, tuple(columns.tolist()), price, share))
    return sorted(uses, key=lambda use: (-use.spend, -use.price, use.columns))


def _columns(purchases: Sequence[PurchaseUse]) -> list[int]:
    return [column for purchase in purchases for column in purchase.columns]


def _cost_without(model: Any, table: Table, purchases: Sequence[PurchaseUse], prices: PriceList) -> float:
    """Mean cost per row without some purchases, with which rows take other paths."""
    read = _read(model, table.with_repeated(_columns(purchases), _typical_row))
    read[:, _columns(purchases)] = False
    return float(prices.cost_of_rows(read, np.ones(len(read), dtype=bool)).mean())


def _dropped(rows: "_LabelledRows", uses: Sequence[PurchaseUse], tolerance: float) -> list[PurchaseUse]:
    """Purchases that can be left out together, tried in the order of loss by price."""
    priced = [use for use in uses if use.price > 0]
    dropped = [use for use in priced if use.share == 0.0]
    others = [use for use in priced if use.share > 0.0 and (use.loss or 0.0) <= tolerance]
    for use in sorted(others, key=lambda use: ((use.loss or 0.0) / use.price, use.columns)):
        if rows.loss([*dropped, use])[0] <= tolerance:
            dropped.append(use)
    return dropped


def _typical_row(values: Any) -> int:
    """Row with the median of a column, or with its most frequent text: what all rows hold without the column."""
    if values.dtype.kind in "biuf":
        present = np.flatnonzero(values == values)
        order = np.argsort(values[present], kind="stable")
        return int(present[order[(len(present) - 1) // 2]]) if len(present) else 0
    _, first, counts = np.unique([str(value) for value in values], return_index=True, return_counts=True)
    return int(first[np.argmax(counts)])


# -- labels ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _LabelledRows:
    """Labelled rows with the predictions of the model, to measure the loss without some purchases."""

    full: Any
    task: Task
    table: Table
    labels: Any
    target: Floats
    read: Bools
    outputs: Floats
    quality: Floats

    @classmethod
    def of(cls, model: Any, table: Table, labels: Any, read: Bools) -> "_LabelledRows":
        """Predict all rows with the model."""
        if not is_classifier(model) and not is_regressor(model):
            raise InvalidInputError(
                f"y is for classifiers and regressors, and a {type(model).__name__} is neither. Audit it without y."
            )
        if isinstance(model, StoredModel):
            model.validate()
        task = classification_of(labels) if is_classifier(model) else regression_of(labels, "squared")
        full = as_full_model(model, task, read.shape[1], who="model")
        target = task.encode("y", labels, len(labels))
        outputs = _ask(full, task, table)
        quality = np.asarray(task.quality(target, outputs), dtype=np.float64)
        return cls(full, task, table, labels, target, read, outputs, quality)

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
            without = _ask(
                self.full, self.task, self.table.with_repeated(columns, _typical_row).take(touched)
            )
            lost[touched] = self.quality[touched] - self.task.quality(self.target[touched], without)
        return float(lost.mean()), float(lost.std() / np.sqrt(len(lost)))


def _ask(full: Any, task: Task, table: Table) -> Floats:
    places = np.arange(len(table), dtype=np.float64)[:, None]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        return ask_model(full, task, table.native, places, who="the model")


def _cascade(rows: _LabelledRows, prices: PriceList, seed: int) -> Frontier | None:
    """Every point of a small cascade in front of the model, out of fold; None where the model reads nothing."""
    used = np.flatnonzero(rows.read.any(axis=0))
    if not len(used):
        return None
    has_classes = len(rows.task.classes) > 0
    kind: Any = BudgetedClassifier if has_classes else BudgetedRegressor
    outputs = rows.outputs if has_classes else rows.outputs[:, 0]
    priced = replace(Prices.of(prices), full_features=used)
    cascade = kind(outputs, prices=priced, random_state=seed, **_QUICK)
    with warnings.catch_warnings():
        # The numbers of the audit show both.
        warnings.simplefilter("ignore", FullModelNotWorthItWarning)
        warnings.simplefilter("ignore", NothingSavedWarning)
        frontier: Frontier = cascade.fit(rows.table.native, rows.labels).frontier_
    return frontier


def _offers(frontier: Frontier, score: float) -> list[Offer]:
    """Cheapest point for each loss; losses that save nothing more are left out."""
    offers: list[Offer] = []
    for loss in _LOSSES:
        enough = np.flatnonzero(frontier.score >= score - loss - 1e-12)
        if len(enough):
            place = enough[np.argmin(frontier.cost[enough])]
            offer = Offer(loss, float(frontier.cost[place]), float(frontier.score[place]))
            if not offers or offer.cost < offers[-1].cost:
                offers.append(offer)
    return offers


# -- columns that rows read ------------------------------------------------------------------------


def columns_read(model: Any, X: Any) -> Bools:
    """Columns that a fitted model reads to predict each row, shape (n_rows, n_features).

    Parameters
    ----------
    model : fitted estimator or booster
        Trees of LightGBM, XGBoost and scikit-learn, alone, in a Pipeline, and inside of estimators that calibrate,
        average or select them, are followed row by row.
    X : table of shape (n_rows, n_features)
        The rows, as the model takes them.
    """
    n_rows, n_features = np.shape(X)
    if isinstance(model, Pipeline):
        steps, last = model[:-1], model[-1]
        prepared = steps.transform(X) if len(steps) else X
        return _joined(columns_read(last, prepared), _inputs_of_outputs(steps, n_features))
    members = _members(model)
    if members is not None:
        together: Bools = np.logical_or.reduce([columns_read(member, X) for member in members])
        return together
    ours = read_model(model)
    return np.ones((n_rows, n_features), dtype=bool) if ours is None else ours.touched(X)


def follows_paths(model: Any) -> bool:
    """True if the columns read differ by row, that is, if the model has trees to follow."""
    if isinstance(model, Pipeline):
        return follows_paths(model.steps[-1][1])
    members = _members(model)
    if members is not None:
        return any(follows_paths(member) for member in members)
    ours = read_model(model)
    return ours is not None and isinstance(ours.core, ForeignTrees)


def _members(model: Any) -> list[Any] | None:
    """Members of an ensemble or wrapper, which all predict every row; None for other models."""
    if isinstance(model, FrozenEstimator):
        return [model.estimator]
    if isinstance(model, GridSearchCV | RandomizedSearchCV):
        return [model.best_estimator_]
    if isinstance(model, CalibratedClassifierCV):
        return [copy.estimator for copy in model.calibrated_classifiers_]
    averaged = VotingClassifier, VotingRegressor, AdaBoostClassifier, AdaBoostRegressor, OneVsRestClassifier
    return list(model.estimators_) if isinstance(model, averaged) else None


# -- steps before a model ----------------------------------------------------------------------


def _joined(outer: Bools, inner: Bools) -> Bools:
    """Compose two relations of columns: the inner columns that the outer columns are made of."""
    joined: Bools = outer.astype(np.float32) @ inner.astype(np.float32) > 0
    return joined


def _inputs_of_outputs(step: Any, n_inputs: int) -> Bools:
    """Input columns of each output column of a step, shape (n_outputs, n_inputs)."""
    kept = np.eye(n_inputs, dtype=bool)
    if isinstance(step, SelectorMixin):
        selected: Bools = kept[step.get_support()]
        return selected
    if isinstance(step, OneHotEncoder):
        return np.repeat(kept, _one_hot_columns(step), axis=0)
    if isinstance(step, ColumnTransformer):
        return _of_column_transformer(step, n_inputs)
    # A row's norm is made of all its columns.
    if isinstance(step, OneToOneFeatureMixin) and not isinstance(step, Normalizer):
        return kept
    if isinstance(step, SimpleImputer) and not step.add_indicator:
        filled = np.asarray(step.statistics_, dtype=object)
        filled_in: Bools = kept[[bool(step.keep_empty_features or fill == fill) for fill in filled]]
        return filled_in
    if isinstance(step, Pipeline):
        made_of = kept
        for _, inner in step.steps:
            if inner is not None and inner != "passthrough":
                made_of = _joined(_inputs_of_outputs(inner, made_of.shape[0]), made_of)
        return made_of
    n_outputs = len(step.get_feature_names_out()) if hasattr(step, "get_feature_names_out") else n_inputs
    return np.ones((n_outputs, n_inputs), dtype=bool)


def _one_hot_columns(step: OneHotEncoder) -> list[int]:
    """Number of output columns of an encoder for each column: infrequent categories count once, dropped ones not."""
    rare = getattr(step, "infrequent_categories_", None) or [None] * len(step.categories_)
    dropped = [None] * len(step.categories_) if step.drop_idx_ is None else step.drop_idx_
    return [
        len(every) - (0 if few is None else len(few) - 1) - (drop is not None)
        for every, few, drop in zip(step.categories_, rare, dropped, strict=True)
    ]


def _of_column_transformer(step: ColumnTransformer, n_inputs: int) -> Bools:
    n_outputs = max((part.stop for part in step.output_indices_.values()), default=0)
    made_of = np.zeros((n_outputs, n_inputs), dtype=bool)
    names = list(getattr(step, "feature_names_in_", range(n_inputs)))
    for name, inner, columns in step.transformers_:
        part = step.output_indices_[name]
        if part.stop == part.start:
            continue
        read = _column_numbers(columns, names)
        inside = (
            np.eye(len(read), dtype=bool)
            if isinstance(inner, str)  # passthrough
            else _inputs_of_outputs(inner, len(read))
        )
        made_of[part.start : part.stop, read] = inside
    return made_of


def _column_numbers(columns: Any, names: list[Any]) -> Ints:
    if isinstance(columns, slice):
        return np.arange(len(names))[columns]
    listed = np.atleast_1d(np.asarray(columns))
    if listed.dtype == bool:
        return np.flatnonzero(listed)
    if listed.dtype.kind in "iu":
        return np.arange(len(names))[listed.astype(np.intp)]
    return np.array([names.index(name) for name in listed.tolist()], dtype=np.intp)
