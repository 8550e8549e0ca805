"""``fit_table``: a cascade from a table with a target column; the kind of estimator and the full model are chosen.

Choices that a user of an estimator makes in code follow from the table here: classes, numbers or rankings; the full
model, by cross-validation; the rows held out for a certificate. Goals that no fit of the table can meet are refused
before anything is fitted.
"""

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags

from thrifty.arrays import Bools, Floats, Labels
from thrifty.engine.evidence.certificate import check_hold_out
from thrifty.engine.evidence.hypothesis_tests import HELD_OUT, check_confidence
from thrifty.engine.full.adapters import models_of
from thrifty.engine.full.crossfit import KINDS, KindComparison, assign_folds, compare_kinds, new_model
from thrifty.engine.full.model import is_estimator
from thrifty.engine.prices.prices import Prices, check_price_list, resolve_prices
from thrifty.engine.purchases.receipt_table import Receipts
from thrifty.engine.table.files import read_cost_matrix, read_table
from thrifty.engine.table.table import Table, is_number, refuse_unknown
from thrifty.engine.table.training import Spread, TrainingTable, refuse_few, training_table
from thrifty.engine.tasks.regression import RegressionLoss
from thrifty.errors import (
    DoubtfulRowsWarning,
    InvalidInputError,
    InvalidParameterError,
    listed,
    renumber_rows_in_errors,
)
from thrifty.learners.cascade.estimators import (
    BudgetedCascade,
    BudgetedClassifier,
    BudgetedRanker,
    BudgetedRegressor,
    StageOptions,
    check_spending,
)
from thrifty.learners.estimators.checks import check_goal, check_seed
from thrifty.learners.estimators.incomplete import estimated_chance
from thrifty.progress import Progress, silent
from thrifty.threads import limited_threads, threads_of

CERTIFYING_SHARE = 4
"""One row in this many is held out of the fit for a certificate."""

MISSING_LABELS = ("refuse", "drop", "weight")
"""Treatments of receipts without a label."""

LEAST_CHANCE_OF_LABEL, SHARE_WITHOUT_CHANCE = 0.05, 0.05
"""Probability of a label below which no row stands for another, and share of such rows from which on a fit is refused
(no command chose them)."""

_CHANCE = "propensity"

USUAL_CONFIDENCE = 0.95

AUTO = "auto"


@dataclass(frozen=True, eq=False)
class FitRecord:
    """Record of a fit from a table: the ``record_`` of the estimator that ``fit_table`` returns, kept in its file.

    Attributes
    ----------
    target, query, row_key : str
        Columns that are not features; empty where there is none.
    full : str
        Kind of the full model, or the name of its file or class.
    full_scores : dict of str to float
        Cross-validated score of each kind that was compared; empty where none was.
    full_rows : int
        Rows that they were compared on.
    goal : dict
        The ``budget`` and ``max_loss`` that were asked for; limits by class by the name of the class.
    spread : Spread, optional
        Deciles of each column, by which the gateway detects drift.
    """

    target: str = ""
    query: str = ""
    row_key: str = ""
    full: str = ""
    full_scores: Mapping[str, float] = field(default_factory=dict)
    full_rows: int = 0
    goal: Mapping[str, Any] = field(default_factory=dict)
    spread: Spread | None = None

    @classmethod
    def from_attributes(cls, attributes: dict[str, Any]) -> "FitRecord | None":
        """Take the record of a file of version 0.3 out of the attributes of its estimator; None where there is none."""
        if "full_name_" not in attributes:
            return None
        names = {name: attributes.pop(f"{name}_name_", "") for name in ("target", "row_key", "full")}
        names["query"] = attributes.get("query_name_", "")
        spread = attributes.pop("spread_", None)
        texts: dict[str, Any] = {name: text for name, text in names.items() if isinstance(text, str)}
        return cls(
            **texts,
            goal=attributes.pop("goal_", {}),
            spread=None if spread is None else Spread(**spread).validate(),
        )


def record_of(system: Any) -> FitRecord:
    """Record of a system; an empty one where it was not fitted from a table."""
    record = getattr(system, "record_", None)
    return record if isinstance(record, FitRecord) else FitRecord()


def fit_table(
    table: Any,
    target: str = "",
    *,
    prices: Any = None,
    full: Any = AUTO,
    full_features: Sequence[str] = (),
    full_name: str = "",
    budget: Any = None,
    max_loss: float | Mapping[Any, float] | None = None,
    confidence: float | None = None,
    min_recall: Mapping[Any, float] | None = None,
    mix: bool = True,
    explore: float = 0.0,
    cap: Any = None,
    task: str | None = None,
    query: str = "",
    loss: str | None = None,
    metric: str | None = None,
    tolerance: float | None = None,
    stages: StageOptions | None = None,
    ignore: Sequence[str] = (),
    row_key: str = "",
    bought: Any = None,
    labels: Any = None,
    missing_labels: str = "refuse",
    n_jobs: int | None = None,
    random_state: int = 0,
    progress: Progress = silent,
    evaluate: Callable[..., BudgetedCascade] | None = None,
) -> BudgetedCascade:
    """Fit a cascade on a table with a target column, as `thrifty fit` does.

    Parameters
    ----------
    table : pandas data frame, or path of a CSV or parquet file
        Every column is a feature but the target, the query, the row key and those ignored. With ``labels`` it is
        ``Receipts``, or a path, or a list of paths, of them.
    target : str
        Column to predict: class labels, numbers, or relevance grades of documents. With ``labels`` it may be left out:
        it is their other column.
    prices : Prices or path, optional
        Prices of the features by name, each of which must have one; by default each costs 1.
    full : str or estimator, default="auto"
        The full model: "auto" cross-validates the kinds "forest", "svm", "boosting", "xgboost" and "lightgbm"; the name
        of one of them; or an estimator, in a ``FrozenEstimator`` if it is fitted already.
    full_features : sequence of str
        Columns that the full model reads, in its order; by default all features, or those that it was fitted on.
    full_name : str
        Name of ``full`` in reports; by default its kind or class.
    budget : float, or dict of resource to float, optional
        Mean cost per row. Without a goal it is the cheapest point that is level with the best score.
    max_loss : float, or dict of label to float, optional
        Share of rows answered worse than by the full model, proved on a quarter of the rows.
    confidence : float, optional
        Confidence with which ``max_loss`` (0.95 by default) or ``budget`` (no certificate by default) is proved.
    min_recall : dict of label to float, optional
        Least recall of classes; with a budget, or alone.
    mix : bool, default=True
        Whether the keys of rows may decide between two points of a budget, as in ``at``.
    explore : float, default=0.0
        Share of the rows that go on buying beyond their stop, within the budget, as in ``at``.
    cap : float, or dict of resource to float, optional
        What no row ever spends, as in ``at``; a classifier learns with it.
    task : {"classes", "number", "ranking"}, optional
        Kind of target; by default a column with more than 30 distinct numbers holds numbers, any other classes.
    query : str
        Column with the query of each row, whose documents are then ranked.
    loss, metric, tolerance
        As of ``BudgetedClassifier``, ``BudgetedRegressor`` and ``BudgetedRanker``. ``loss`` may also be the path of a
        file with the cost of every mistake, or "pinball:0.9".
    stages : StageOptions, optional
        As of the estimators.
    ignore : sequence of str
        Columns that are not features.
    row_key : str
        Column with the key of each row.
    bought : "known", pandas data frame, or path of a CSV or parquet file, optional
        Which cells of the features were bought, as of the estimators, by name: "known" are those that are not blank; a
        file has a line for each row. ``max_loss`` is proved by rows that bought everything. Receipts say it themselves.
    labels : pandas data frame, or path of a CSV or parquet file, optional
        Outcomes of the rows of receipts, by ``row_key``.
    missing_labels : {"refuse", "drop", "weight"}, default="refuse"
        Treatment of receipts without an outcome. "drop" is right if outcomes lack for reasons that have nothing to do
        with their value. "weight" lets rows with an outcome stand for those without, by the probability of having one:
        a column "propensity" of ``labels``, else estimated from the answer, the cost and what every row has.
    n_jobs, random_state
        As of the estimators; fits run in parallel, and so do those of the kinds that are compared.
    progress : callable, optional
        Called as ``progress(what, done, total)`` whenever a step ends.
    evaluate : callable, optional
        ``evaluate(estimator, max_loss=, confidence=)`` returns the fitted estimator with its operating points measured
        on rows outside the table, which then is a sample; by default a part of the table is held out where something is
        to be proved.

    Returns
    -------
    BudgetedClassifier, BudgetedRegressor or BudgetedRanker
        Fitted, at the goal; its ``record_`` is a ``FitRecord``, its ``certificate_`` what was proved.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from thrifty import StageOptions, fit_table
    >>> table = load_breast_cancer(as_frame=True).frame
    >>> clf = fit_table(table, "target", budget=3, full="svm", stages=StageOptions(sizes=[(20, 3)]))
    >>> bool(clf.cost(table.drop(columns="target")).mean() < 3.5), clf.record_.full
    (True, 'svm')
    """
    if min_recall and (max_loss is not None or confidence is not None):
        raise InvalidParameterError(
            "min_recall", "can be combined with a budget only. Leave max_loss and confidence out."
        )
    if explore and (budget is None or min_recall or confidence is not None):
        raise InvalidParameterError(
            "explore", "can be combined with a budget only. Leave min_recall and confidence out."
        )
    propensity = weight = None
    if labels is not None:
        if missing_labels == "weight" and (max_loss is not None or confidence is not None):
            raise InvalidParameterError(
                "missing_labels",
                "must be refuse or drop where something is to be proved: rows without a label cannot prove it.",
            )
        receipts, own, target, weight = _of_receipts(table, labels, target, row_key, missing_labels)
        frame, bought, propensity = receipts.X.assign(**own), receipts.bought, receipts.propensity
    elif not target:
        raise InvalidParameterError("target", "must name the column to predict; got none.")
    else:
        frame = read_table(table) if isinstance(table, str | os.PathLike) else table
    if isinstance(bought, os.PathLike) or (isinstance(bought, str) and bought != "known"):
        bought = read_table(bought)
    prices = resolve_prices(None, prices, Prices({}, default=1.0))
    features = list(frame.columns.drop([target, query, row_key, *ignore], errors="ignore"))
    read = _columns_read(full, full_name or "full", features, full_features or prices.full_features or ())
    if isinstance(full, FrozenEstimator):  # its columns come first, in its order
        frame = frame[[*read, *frame.columns.drop(read)]]
    data = training_table(frame, target, task=task, query=query, row_key=row_key, ignore=ignore)
    estimator = _estimator_for(data, target, query, loss, tolerance, metric, stages).set_params(
        prices=replace(prices.of_columns(list(data.X.columns), known=ignore), full_features=read),
        budget=budget,
        n_jobs=n_jobs,
        random_state=random_state,
    )
    is_capped_later = cap is not None and not isinstance(estimator, BudgetedClassifier)
    if cap is not None and not is_capped_later:
        estimator.set_params(cap=cap)
    floors = labels_by_name("min_recall", min_recall, data.classes)
    limits = labels_by_name("max_loss", max_loss, data.classes)
    holds_out = evaluate is None and bought is None  # the losses of incomplete rows are not binomial
    _refuse_early(estimator, data, query, max_loss, confidence, holds_out=holds_out)
    if bought is not None and ((confidence is not None and max_loss is None) or evaluate is not None):
        raise InvalidParameterError(
            "bought",
            "makes rows incomplete, which can prove max_loss, but no budget, nor measures of several files. Leave "
            "confidence out, and give one table.",
        )
    if bought is not None and not isinstance(bought, str):
        refuse_unknown("bought", data.X.columns, bought.columns)
        bought = bought[data.X.columns]
        propensity = None if propensity is None else propensity[data.X.columns]
    n_threads = threads_of(n_jobs)
    with limited_threads(openmp=n_threads, blas=n_threads):
        model, kind, comparison, reads_numbers = _full_model(
            full, full_name, estimator, data, read, progress, completes=bought is not None
        )
        level, is_proof = confidence or USUAL_CONFIDENCE, np.zeros(len(data.y), dtype=bool)
        if evaluate is None and (limits is not None or (budget is not None and confidence is not None)):
            is_proof = _held_out_rows(estimator, data)
        estimator.set_params(full=model)
        with renumber_rows_in_errors(data.cells.row_numbers[~is_proof]):
            # The scores of all rows are kept for measures such as log-loss and AUC.
            fitted: BudgetedCascade = estimator._fit(
                data.X[~is_proof],
                data.y[~is_proof],
                weight,
                **_of_rows(~is_proof, bought, propensity),
                progress=progress,
                reads_numbers=reads_numbers,
                keeps_scores=True,
            )
        if evaluate is not None:
            fitted = evaluate(fitted, max_loss=limits, confidence=level)
        elif is_proof.any():
            goal = {"budget": budget} if limits is None else {"max_loss": limits}
            with renumber_rows_in_errors(data.cells.row_numbers[is_proof]):
                given = {"duplicates": HELD_OUT} if bought is None else _of_rows(is_proof, bought, propensity)
                fitted = fitted.certified(
                    data.X[is_proof], data.y[is_proof], confidence=level, **given, **goal
                )
    if is_capped_later:
        fitted = fitted.at(cap=cap, budget=budget, mix=mix)
    if floors:
        assert isinstance(fitted, BudgetedClassifier)  # others have no labels to name
        fitted = fitted.at(budget=budget, min_recall=floors, mix=mix)
    elif not mix or explore:
        fitted = fitted.at(budget=budget, mix=mix, explore=explore)
    if isinstance(fitted, BudgetedRanker):
        fitted.query_name_ = query
    fitted.record_ = FitRecord(
        target,
        query,
        row_key,
        kind,
        {} if comparison is None else comparison.scores,
        0 if comparison is None else comparison.n_rows,
        {"budget": budget, "max_loss": _by_text(max_loss)},
        Spread.of(data.cells.numbers),
    )
    return fitted


def _of_rows(rows: Bools, bought: Any, propensity: Any) -> dict[str, Any]:
    """What some rows bought, as arguments of a fit or a certificate."""
    return {
        "bought": bought if bought is None or isinstance(bought, str) else bought[rows],
        "propensity": None if propensity is None else propensity[rows],
    }


def _of_receipts(
    table: Any, labels: Any, target: str, row_key: str, missing: str
) -> tuple[Receipts, dict[str, Any], str, Floats | None]:
    """Receipts with a label, their key and label as columns, the name of the target, and weights of the rows."""
    if not row_key:
        raise InvalidParameterError(
            "row_key", "must name the column of the keys that receipts and labels share."
        )
    if missing not in MISSING_LABELS:
        raise InvalidParameterError(
            "missing_labels", f"must be one of {', '.join(MISSING_LABELS)}; got {missing!r}."
        )
    if not isinstance(table, Receipts):
        table = Receipts.read(*([table] if isinstance(table, str | os.PathLike) else table), row_key=row_key)
    if isinstance(labels, str | os.PathLike):
        labels = read_table(labels, as_text=(row_key,))
    others = [name for name in labels.columns if name not in (row_key, _CHANCE)]
    if row_key not in labels.columns or (target or (others[0] if len(others) == 1 else None)) not in others:
        raise InvalidParameterError(
            "labels",
            f"must have the column {row_key!r} and {f'the target {target!r}' if target else 'one other, the target'}; "
            f"it has {listed(labels.columns)}.",
        )
    target = target or others[0]
    if target in table.X.columns or labels[row_key].duplicated().any():
        raise InvalidParameterError(
            "labels",
            f"must have a line for each {row_key!r}, and a target that is no column of the receipts.",
        )
    named = labels[labels[target].notna()]
    of_rows, weight = table.labels(dict(zip(named[row_key], named[target], strict=True))), None
    has_label = np.array([label is not None for label in of_rows])
    if not has_label.all():
        weight = _weights_of_labelled(table, labels, row_key, has_label, missing)
        rows = np.flatnonzero(has_label)
        table, of_rows = table.take(rows), of_rows[rows]
    own = {row_key: table.key, target: np.array(of_rows.tolist())}
    return table, own, target, weight


def _weights_of_labelled(
    receipts: Receipts, labels: Any, row_key: str, has_label: Bools, missing: str
) -> Floats | None:
    """Weights of the rows with a label, among some without; None where those are left out."""
    lacks = f"{int((~has_label).sum()):,} of {len(has_label):,} rows have no label"
    if missing == "refuse":
        raise InvalidInputError(
            f"{lacks}, such as that of the key {receipts.key[~has_label][0]!r}. If labels lack for reasons that have "
            f'nothing to do with their value, such as time, leave these rows out: missing_labels="drop". If that '
            f'depends on the answer or on columns that every row has, missing_labels="weight" lets the others stand '
            f"for them. If some rows never get a label, obtain those of a random share."
        )
    if missing == "drop":
        warnings.warn(
            f"{lacks} and were left out. What the fit promises is of rows that get one.",
            DoubtfulRowsWarning,
            stacklevel=4,
        )
        return None
    if _CHANCE in labels.columns:
        chance, how = receipts.labels(dict(zip(labels[row_key], labels[_CHANCE], strict=True))), "given"
        of_labelled = chance[has_label].astype(np.float64)
        if not np.all((of_labelled > 0.0) & (of_labelled <= 1.0)):
            raise InvalidParameterError(
                "labels",
                f"must have in {_CHANCE!r} the probability with which a row gets a label, in (0, 1].",
            )
    else:
        levels, answer = np.unique(receipts.answer, return_inverse=True)
        is_level = len(levels) <= 255
        known = (receipts.bought.to_numpy() > 0).all(axis=0)
        numbers = receipts.X.loc[:, known].select_dtypes("number").to_numpy(dtype=np.float64)
        shown = np.column_stack([numbers, receipts.cost, answer if is_level else receipts.answer])
        every = estimated_chance(shown, has_label, None, len(levels) if is_level else 0)
        of_labelled, how = every[has_label], "estimated from the answer, the cost and what every row has"
        if (every < LEAST_CHANCE_OF_LABEL).mean() > SHARE_WITHOUT_CHANCE:
            raise InvalidInputError(
                f"{lacks}, and {(every < LEAST_CHANCE_OF_LABEL).mean():.0%} of the rows are of a kind that hardly ever "
                f"gets one, so that no row can stand for them. Obtain labels of a random share of all rows."
            )
    warnings.warn(
        f"{lacks}; the others stand for them, by probabilities of getting a label that are {how}. This is right if the "
        f"label itself has no say in whether it is known.",
        DoubtfulRowsWarning,
        stacklevel=4,
    )
    weight: Floats = 1.0 / np.maximum(of_labelled, LEAST_CHANCE_OF_LABEL)
    return weight / weight.mean()


def labels_by_name(parameter: str, shares: Any, classes: Labels) -> Any:
    """Shares by label from shares by label or by its name; anything but a dict is returned unchanged."""
    if not isinstance(shares, Mapping):
        return shares
    label_of = {str(label): label for label in classes.tolist()}
    unknown = [name for name in shares if str(name) not in label_of]
    if unknown:
        reason = (
            f"the classes are {', '.join(map(repr, label_of))}"
            if label_of
            else "numbers are predicted, or documents ranked, which have no classes"
        )
        raise InvalidParameterError(parameter, f"names the class {unknown[0]!r}; {reason}.")
    return {label_of[str(name)]: share for name, share in shares.items()}


def _by_text(shares: Any) -> Any:
    """Shares by the name of the label: a file keeps no labels of other types."""
    return {str(label): share for label, share in shares.items()} if isinstance(shares, Mapping) else shares


# -- the estimator ---------------------------------------------------------------------------------


def _estimator_for(
    data: TrainingTable,
    target: str,
    query: str,
    loss: str | None,
    tolerance: float | None,
    metric: str | None,
    stages: StageOptions | None,
) -> BudgetedCascade:
    """Unfitted estimator for the target: a classifier, a regressor, or a ranker where queries are named."""
    allowed = 0.01 if tolerance is None else tolerance
    if query:
        return BudgetedRanker(
            loss=loss or "pointwise", metric=metric or "ndcg@10", tolerance=allowed, stages=stages
        )
    if metric is not None:
        raise InvalidParameterError(
            "metric",
            f"is for documents that are ranked; got {metric!r} and no query. Leave it out, or name the query.",
        )
    if not len(data.classes):
        kind, quantile = _loss_of_numbers(loss, target)
        return BudgetedRegressor(loss=kind, quantile=quantile, tolerance=allowed, stages=stages)
    of_numbers: dict[str, Any] = {"tolerance": tolerance}
    if (loss or "").partition(":")[0] in get_args(RegressionLoss):
        of_numbers["loss"] = loss
    for name, value in of_numbers.items():
        if value is not None:
            raise InvalidParameterError(
                name,
                f"is for a target of numbers; got {value}, and column {target!r} holds classes. Leave it out, or set "
                f"the task to number.",
            )
    mistakes: Any = loss or "error"
    if Path(mistakes).suffix.lower() in (".csv", ".json"):
        mistakes = read_cost_matrix(mistakes, data.classes).tolist()
    return BudgetedClassifier(loss=mistakes, stages=stages)


def _loss_of_numbers(loss: str | None, target: str) -> tuple[RegressionLoss, float | None]:
    """Loss of a regressor, and the quantile of the pinball loss, from text such as "pinball:0.9"."""
    kind, _, share = (loss or "squared").partition(":")
    quantile = float(share) if is_number(share) else np.nan
    if kind == "pinball" and 0.0 < quantile < 1.0:
        return "pinball", quantile
    if loss in (None, "squared", "absolute"):
        return "absolute" if loss == "absolute" else "squared", None
    raise InvalidParameterError(
        "loss",
        f"must be squared, absolute, or pinball:Q with a quantile Q between 0 and 1, such as pinball:0.9, where "
        f"numbers are predicted; got {loss}, and column {target!r} holds numbers. Correct it, leave it out, or set the "
        f"task to classes.",
    )


def _refuse_early(
    estimator: BudgetedCascade,
    data: TrainingTable,
    query: str,
    max_loss: Any,
    confidence: float | None,
    *,
    holds_out: bool,
) -> None:
    """Refuse, before anything is fitted, a table with too few rows, and prices and goals that no fit of it can meet.

    With ``holds_out`` a part of these rows is to prove ``max_loss``.
    """
    estimator._check_parameters()
    check_goal(may_be_none=True, budget=estimator.budget, max_loss=max_loss)
    if confidence is not None:
        check_confidence(confidence)
    names, rows = list(data.X.columns), Table(data.cells.numbers, row_numbers=data.cells.row_numbers)
    prices = check_price_list(estimator.prices, len(names), names, rows)
    refuse_few(data, query)
    check_spending(prices, estimator.budget)
    if max_loss is not None and holds_out:
        task, is_proof = _task_of(estimator, data), _held_out_rows(estimator, data)
        y = task.encode("y", data.y, len(data.y))
        check_hold_out(
            data.cells.numbers,
            task.strata(y),
            is_proof,
            _by_text(max_loss),
            confidence or USUAL_CONFIDENCE,
            [str(label) for label in data.classes.tolist()],
            task.query_of(y),
        )


def _task_of(estimator: BudgetedCascade, data: TrainingTable) -> Any:
    """Task of an estimator for the targets of a table."""
    return estimator._task_of(data.y, np.ones(len(data.y)))


def _held_out_rows(estimator: BudgetedCascade, data: TrainingTable) -> Bools:
    """Rows to certify on, one in four, chosen by content so that equal rows are on the same side."""
    task, X, seed = _task_of(estimator, data), data.cells.numbers, check_seed(estimator.random_state) + 1
    y = task.encode("y", data.y, len(data.y))
    folds = assign_folds(CERTIFYING_SHARE, X, data.y, task.strata(y), seed, task.query_of(y))
    return np.asarray(folds == 0)


# -- the full model --------------------------------------------------------------------------------


def _columns_read(full: Any, name: str, features: Sequence[str], chosen: Sequence[str]) -> list[str]:
    """Features that the full model reads, in its order."""
    for feature in chosen:
        refuse_unknown("full_features", [feature], features)
    if not is_estimator(full):
        if full != AUTO and full not in KINDS:
            raise InvalidParameterError(
                "full",
                f"must be auto, one of {', '.join(KINDS)}, or a model; got {full!r}.",
            )
        return [feature for feature in features if feature in (chosen or features)]
    fitted = full.estimator if isinstance(full, FrozenEstimator) else None
    names = getattr(fitted, "feature_names_in_", None)
    read = [str(feature) for feature in names] if names is not None else list(chosen or features)
    width = getattr(fitted, "n_features_in_", len(read))
    if names is None and width != len(read):
        raise InvalidInputError(
            f"{name} was fitted on {width} columns without names, and {len(read)} are given to it. Name those that it "
            f"reads, in its order, as the features of the full model."
        )
    refuse_unknown(name, read, features)
    if chosen and set(chosen) != set(read):
        raise InvalidParameterError(
            "full_features", f"must be left out: {name} reads {listed(read)}; got {listed(chosen)}."
        )
    return read


def _full_model(
    full: Any,
    name: str,
    estimator: BudgetedCascade,
    data: TrainingTable,
    read: Sequence[str],
    progress: Progress,
    *,
    completes: bool,
) -> tuple[Any, str, KindComparison | None, bool]:
    """Full model, its name, the comparison that chose it, if any, and whether it reads numbers instead of the table."""
    task, comparison, kind = _task_of(estimator, data), None, name or full
    columns = np.array([data.X.columns.get_loc(feature) for feature in read], dtype=np.intp)
    if is_estimator(full):
        kind = name or type(getattr(full, "estimator", full)).__name__
        texts = [feature for feature in read if data.X.columns.get_loc(feature) in data.cells.texts]
        reads_numbers = False
        if isinstance(full, FrozenEstimator):
            models_of(task).check_fitted(full.estimator, kind)
            reads_numbers = not hasattr(full.estimator, "feature_names_in_")
            if texts and not reads_numbers and not _reads_text(full.estimator, data.X[list(read)]):
                raise InvalidInputError(
                    f"{kind} reads {listed(texts)} as numbers, and the table holds text there. Fit it on the text "
                    f"itself, with a Pipeline that encodes it."
                )
        # Next to text a full model refuses by itself what it cannot read.
        is_picky = not texts and not get_tags(full).input_tags.allow_nan
    else:
        seed, n_jobs = estimator.random_state, estimator.n_jobs or 1
        if full == AUTO:
            numbers = data.cells.numbers[:, columns]
            comparison = compare_kinds(numbers, data.y, task, seed=seed, n_jobs=n_jobs, progress=progress)
            kind = comparison.best
        full, reads_numbers = new_model(kind, seed, n_jobs, task), True
        is_picky = not get_tags(full).input_tags.allow_nan
    if is_picky and not completes:  # else the fit refuses what stays blank
        data.cells.refuse_missing(np.arange(len(data.y)), columns, f"the full model ({kind})")
    return full, kind, comparison, reads_numbers


def _reads_text(model: Any, frame: Any) -> bool:
    """True if a fitted model can predict a row with text in it: one that was fitted on numbers cannot."""
    whole = frame.dropna()
    try:
        model.predict((whole if len(whole) else frame).head(1))
    except Exception:  # models raise errors of any type for text
        return False
    return True
