"""Steps of ``thrifty fit``: the estimator from the options, the full model, checks before the fit, the certificate."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags

from thrifty.arrays import Bools
from thrifty.bundle.save_load import load_model
from thrifty.engine.evidence.certificate import check_hold_out
from thrifty.engine.evidence.hypothesis_tests import HELD_OUT, check_confidence
from thrifty.engine.full.adapters import models_of
from thrifty.engine.full.candidates import KINDS, KindComparison, compare_kinds, new_model
from thrifty.engine.full.crossfit import assign_folds
from thrifty.engine.full.model import is_estimator
from thrifty.engine.prices.prices import check_price_list
from thrifty.engine.table.drift import Spread
from thrifty.engine.table.files import read_cost_matrix
from thrifty.engine.table.names import is_number, listed, refuse_unknown
from thrifty.engine.table.table import Table
from thrifty.engine.table.training import TrainingTable, refuse_few
from thrifty.engine.tasks.regression import RegressionLoss
from thrifty.engine.tasks.task import Task
from thrifty.errors import InvalidInputError, renumber_rows_in_errors
from thrifty.learners.cascade.estimators import (
    BudgetedCascade,
    BudgetedClassifier,
    BudgetedRanker,
    BudgetedRegressor,
    StageOptions,
    check_spending,
)
from thrifty.learners.estimators.checks import check_goal, check_seed
from thrifty.progress import Progress
from thrifty.reporting.facts import Facts
from thrifty.scale.fit import Each, judge

CERTIFYING_SHARE = 4
"""One row in this many is held out of the fit for a certificate."""

USUAL_CONFIDENCE = 0.95

_NEAR = 0.01  # a budget that is met up to this share of it needs no words


# -- the estimator ---------------------------------------------------------------------------------


def new_estimator(
    data: TrainingTable,
    target: str,
    *,
    query: str,
    loss: str | None,
    tolerance: float | None,
    metric: str | None,
    structure: str,
) -> BudgetedCascade:
    """Unfitted estimator for the target: a classifier, a regressor, or a ranker where queries are named."""
    allowed = 0.01 if tolerance is None else tolerance
    if query:
        if structure == "neighbours":
            raise InvalidInputError(
                f"--structure {structure} is for cascades that answer with classes or numbers, and a ranking of "
                f"documents buys for all rows in one order. Leave --structure out."
            )
        return BudgetedRanker(loss=loss or "pointwise", metric=metric or "ndcg@10", tolerance=allowed)
    if metric is not None:
        raise InvalidInputError(
            f"--metric is for documents that are ranked; got --metric {metric} without --query. Leave it out, or name "
            f"the column of the queries with --query."
        )
    if not len(data.classes):
        kind, quantile = _loss_of_numbers(loss, target)
        options = StageOptions(structure=structure)
        return BudgetedRegressor(loss=kind, quantile=quantile, tolerance=allowed, stages=options)
    if tolerance is not None or (loss or "").partition(":")[0] in get_args(RegressionLoss):
        given = f"--loss {loss}" if tolerance is None else f"--tolerance {tolerance:g}"
        raise InvalidInputError(
            f"{given.split()[0]} is for a target of numbers; got {given}, and column {target!r} holds classes. "
            f"Leave it out, or say --task number."
        )
    mistakes: Any = loss or "error"
    if Path(mistakes).suffix.lower() in (".csv", ".json"):
        mistakes = read_cost_matrix(mistakes, data.classes).tolist()
    return BudgetedClassifier(loss=mistakes, stages=StageOptions(structure=structure))


def _loss_of_numbers(loss: str | None, target: str) -> tuple[RegressionLoss, float | None]:
    """The error that counts, from how it is written on the command line, and the quantile of the pinball loss."""
    kind, _, share = (loss or "squared").partition(":")
    quantile = float(share) if is_number(share) else np.nan
    if kind == "pinball" and 0.0 < quantile < 1.0:
        return "pinball", quantile
    if loss in (None, "squared", "absolute"):
        return "absolute" if loss == "absolute" else "squared", None
    raise InvalidInputError(
        f"--loss must be squared, absolute, or pinball:Q with a quantile Q between 0 and 1, such as pinball:0.9, where "
        f"numbers are predicted; got --loss {loss}, and column {target!r} holds numbers. Correct it, leave it out, or "
        f"say --task classes."
    )


def task_of(estimator: BudgetedCascade, data: TrainingTable) -> Task:
    """Task of an estimator for the targets of a table."""
    return estimator._task_of(data.y, np.ones(len(data.y)))


def refuse_early(
    estimator: BudgetedCascade,
    data: TrainingTable,
    query: str,
    max_loss: float | Mapping[str, float] | None,
    confidence: float | None,
    *,
    holds_out: bool = True,
) -> None:
    """Refuse, before anything is fitted, a table with too few rows, and prices and goals that no fit of it can meet.

    With ``holds_out`` a part of these rows is to prove ``max_loss``.
    """
    check_goal(may_be_none=True, budget=estimator.budget, max_loss=max_loss)
    if confidence is not None:
        check_confidence(confidence)
    names, rows = list(data.X.columns), Table(data.cells.numbers, row_numbers=data.cells.row_numbers)
    prices = check_price_list(estimator.prices, len(names), names, rows)
    refuse_few(data, query)
    check_spending(prices, estimator.budget)
    if max_loss is not None and holds_out:
        task, is_proof = task_of(estimator, data), held_out_rows(estimator, data)
        y = task.encode("y", data.y, len(data.y))
        classes = [str(label) for label in data.classes.tolist()]
        strata, query_of = task.strata(y), task.query_of(y)
        check_hold_out(
            data.cells.numbers, strata, is_proof, max_loss, confidence or USUAL_CONFIDENCE, classes, query_of
        )


def refuse_for_many(query: str, confidence: float | None) -> None:
    """Refuse options that need the table of a fit in memory."""
    if query:
        raise InvalidInputError(
            "--query needs each query as a whole, and partitions may split it. Give one file to learn a ranking from."
        )
    if confidence is not None:
        raise InvalidInputError(
            "--confidence proves --max-loss where TABLE is a folder of files; a budget is met on the mean of their "
            "rows. Leave it out, or give one file."
        )


def held_out_rows(estimator: BudgetedCascade, data: TrainingTable) -> Bools:
    """Rows to certify on, one in four, chosen by content so that equal rows are on the same side."""
    task, X, seed = task_of(estimator, data), data.cells.numbers, check_seed(estimator.random_state) + 1
    y = task.encode("y", data.y, len(data.y))
    folds = assign_folds(CERTIFYING_SHARE, X, data.y, task.strata(y), seed, task.query_of(y))
    return np.asarray(folds == 0)


def fit_and_certify(
    estimator: BudgetedCascade,
    data: TrainingTable,
    max_loss: float | Mapping[Any, float] | None,
    confidence: float | None,
    progress: Progress,
    target: str,
    each: Each | None = None,
) -> BudgetedCascade:
    """Fit on the table; for a certificate, fit on three quarters of it and certify on the rest.

    Where the table is a sample of the partitions ``each``, fit on all of it, and judge and certify on their other rows.
    """
    if each is not None:
        estimator.fit(data.X, data.y, progress=progress)
        return judge(estimator, each, target, max_loss=max_loss, confidence=confidence or USUAL_CONFIDENCE)
    rows, budget = data.cells.row_numbers, estimator.budget
    is_certified = max_loss is not None or (budget is not None and confidence is not None)
    is_proof = held_out_rows(estimator, data) if is_certified else np.zeros(len(rows), dtype=bool)
    with renumber_rows_in_errors(rows[~is_proof]):
        estimator.fit(data.X[~is_proof], data.y[~is_proof], progress=progress)
    if not is_certified:
        return estimator
    goal: dict[str, Any] = {"budget": budget} if max_loss is None else {"max_loss": max_loss}
    goal["confidence"] = confidence or USUAL_CONFIDENCE
    with renumber_rows_in_errors(rows[is_proof]):
        return estimator.certified(data.X[is_proof], data.y[is_proof], **goal, duplicates=HELD_OUT)


# -- the full model --------------------------------------------------------------------------------


def load_frozen(
    full: str, features: Sequence[str], full_features: Sequence[str]
) -> tuple[FrozenEstimator | None, list[str]]:
    """Load the fitted model in a file (None where ``full`` is a kind); and the features that it reads, in order."""
    refuse_unknown("--full-features", full_features, features)
    if full == "auto" or full in KINDS:
        return None, [name for name in features if name in (full_features or features)]
    if not full.endswith((".thrifty", ".txt", ".json", ".ubj")):
        raise InvalidInputError(
            f"--full must be auto, one of {', '.join(KINDS)}, or a file with a fitted model: .thrifty, .txt of "
            f"LightGBM, .json or .ubj of XGBoost; got {full!r}."
        )
    found, called = load_model(full), Path(full).name
    if not is_estimator(found):
        raise InvalidInputError(
            f"--full must be a file with a fitted model; {called} holds a {type(found).__name__}."
        )
    frozen = FrozenEstimator(found)
    known = getattr(frozen.estimator, "feature_names_in_", None)
    read = [str(one) for one in known] if known is not None else list(full_features or features)
    width = getattr(frozen.estimator, "n_features_in_", len(read))
    if known is None and width != len(read):
        raise InvalidInputError(
            f"{called} was fitted on {width} columns without names, and {len(read)} are given to it. Name those that "
            f"it reads, in its order, with --full-features."
        )
    refuse_unknown(called, read, features)
    if full_features and set(full_features) != set(read):
        raise InvalidInputError(
            f"{called} reads {listed(read)}, and --full-features names {listed(full_features)}. Leave the option out."
        )
    return frozen, read


def choose_full(
    frozen: FrozenEstimator | None,
    full: str,
    estimator: BudgetedCascade,
    data: TrainingTable,
    read: Sequence[str],
    progress: Progress,
) -> tuple[str, KindComparison | None]:
    """Give the estimator its full model: from a file, of the kind named, or of the best kind by cross-validation.

    Returns its name, and the cross-validation that chose it, if any.
    """
    task = task_of(estimator, data)
    columns = np.array([data.X.columns.get_loc(name) for name in read], dtype=np.intp)
    comparison, kind = None, full if frozen is None else Path(full).name
    if frozen is not None:
        models_of(task).check_fitted(frozen.estimator, kind)
        is_named = hasattr(frozen.estimator, "feature_names_in_")
        texts = [one for one in read if data.X.columns.get_loc(one) in data.cells.texts]
        if is_named and texts and not _reads_text(frozen.estimator, data.X[list(read)]):
            raise InvalidInputError(
                f"{kind} reads {listed(texts)} as numbers, and the table holds text there. Fit it on the text itself, "
                f"with a Pipeline that encodes it."
            )
        estimator.full, estimator._full_reads_numbers = frozen, not is_named
        # Next to text a full model refuses by itself what it cannot read.
        is_picky = not texts and not get_tags(frozen).input_tags.allow_nan
    else:
        seed, n_jobs = estimator.random_state, estimator.n_jobs or 1
        if full == "auto":
            numbers = data.cells.numbers[:, columns]
            comparison = compare_kinds(numbers, data.y, task, seed=seed, n_jobs=n_jobs, progress=progress)
            kind = comparison.best
        estimator.full, estimator._full_reads_numbers = new_model(kind, seed, n_jobs, task), True
        is_picky = not get_tags(estimator.full).input_tags.allow_nan
    if is_picky:
        data.cells.refuse_missing(np.arange(len(data.y)), columns, f"the full model ({kind})")
    return kind, comparison


def _reads_text(model: Any, frame: Any) -> bool:
    """Whether a fitted model can predict a row with text in it: one that was fitted on numbers cannot."""
    whole = frame.dropna()
    try:
        model.predict((whole if len(whole) else frame).head(1))
    except Exception:  # models raise errors of any type for text
        return False
    return True


# -- what the file holds besides ------------------------------------------------------------------


def describe(
    estimator: BudgetedCascade, data: TrainingTable, *, full: str, max_loss: Any, **columns: str | None
) -> None:
    """Set attributes on a fitted estimator that commands and the gateway read: see ``thrifty.cli.system``."""
    spread = Spread.of(data.cells.numbers)
    known: dict[str, Any] = {f"{name}_name_": column for name, column in columns.items() if column}
    known["full_name_"] = full
    known["goal_"] = {"budget": estimator.budget, "max_loss": max_loss}
    known["spread_"] = {"edges": spread.edges, "shares": spread.shares}
    for name, value in known.items():
        setattr(estimator, name, value)


def goal_notes(
    estimator: BudgetedCascade, facts: Facts, max_loss: Any, confidence: float | None
) -> list[str]:
    """Notes for the user on how the goal was met."""
    certificate, budget = estimator.certificate_, estimator.budget
    # A cascade of which no point could be proved warns by itself.
    is_fallback = certificate is not None and certificate.is_fallback
    if max_loss is not None and facts.share[0] == 1.0 and not is_fallback:
        shares = max_loss.items() if isinstance(max_loss, Mapping) else [("", max_loss)]
        asked = " ".join(f"{name}{'=' if name else ''}{share:g}" for name, share in shares)
        reason = "can be met only by sending every row to the full model, which saves nothing"
        return [f"--max-loss {asked} {reason}. Give more rows, or allow a larger loss"]
    if budget is not None and confidence is None and facts.cost.value[0] < (1 - _NEAR) * budget:
        reason = f"more than {facts.cost.value[0]:.4g} per row bought nothing that showed"
        return [f"the budget of {budget:g} is not spent: {reason}"]
    return []
