"""From a training table to a system: check everything, fit, say what to expect."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing

from thrifty.cascade.estimators import (
    BudgetedCascade,
    BudgetedClassifier,
    BudgetedRanker,
    BudgetedRegressor,
    StageOptions,
)
from thrifty.errors import InvalidInputError, asking
from thrifty.evidence.tests import HELD_OUT
from thrifty.prices.prices import Prices
from thrifty.progress import Progress, silent
from thrifty.tables.full_models import Competition, best_kind, recipe
from thrifty.tables.goals import FitGoal, held_out_rows, refuse_early
from thrifty.tables.promise import Promise, promise_of
from thrifty.tables.spread import Spread
from thrifty.tables.system import About, TableSystem
from thrifty.tables.training import TrainingTable, prepare, refuse_missing
from thrifty.tasks.mistakes import CostMatrix
from thrifty.tasks.ranking import RankingTask
from thrifty.tasks.regression import RegressionTask
from thrifty.threads import limited_threads, threads_of

__all__ = ["FitGoal", "Fitted", "fit_table"]

_NEAR = 0.01  # a budget that is met up to this share of it needs no words


@dataclass(frozen=True)
class Fitted:
    """A fitted system and what happened on the way to it.

    Attributes
    ----------
    system : TableSystem
        What is kept.
    competition : Competition, optional
        Of kinds of full models, where none was named.
    notes : tuple of str
        What the user should know.
    """

    system: TableSystem
    competition: Competition | None
    notes: tuple[str, ...]


def fit_table(
    frame: Any,
    target: str,
    wish: FitGoal,
    *,
    task: str | None = None,
    loss: str | None = None,
    tolerance: float | None = None,
    query: str = "",
    metric: str | None = None,
    k: int | None = None,
    structure: str = "line",
    costs: str | os.PathLike[str] | None = None,
    full: str = "auto",
    full_cost: float = 0.0,
    full_features: Sequence[str] = (),
    ignore: Sequence[str] = (),
    row_key: str = "",
    seed: int = 0,
    n_jobs: int = 1,
    trusted: Iterable[str] = (),
    progress: Progress = silent,
) -> Fitted:
    """Fit a system in front of a full model, at the operating point that a wish asks for.

    Parameters
    ----------
    frame : pandas data frame
        Rows with their label, or with the number that is to be predicted; documents with relevance and query.
    target : str
        Name of the column with the label, number or relevance.
    wish : FitGoal
        What is asked for.
    task : {"classes", "number", "ranking"}, optional
        What the target holds; None has the column decide, unless there are queries.
    loss : str, optional
        For numbers, the error that counts: "squared", as without it, "absolute", or the pinball loss of a quantile,
        such as "pinball:0.9". For classes "log", "brier", or a CSV or JSON file of what each mistake costs. For
        documents "pointwise", as without it, "pairwise" or "listwise".
    tolerance : float, optional
        For numbers, how much larger than the full model's an error may be before the answer counts as worse; for
        documents, how much lower the metric of a query may be.
    query : str
        Name of the column with the query of each document, which is no feature; empty where nothing is ranked.
    metric, k : {"ndcg", "ap"} and int, optional
        How the order of a query is judged: "ndcg" and 10 without them.
    structure : {"line", "graph", "neighbours", "auto"}
        Whether the cascade buys for all rows in one order; documents are ranked by a line.
    costs : path, optional
        File of prices; None is 1 for each column.
    full : str
        ``"auto"``, a kind of ``full_models.KINDS``, or the path of a ``.skops`` file with a fitted model.
    full_cost : float
        Price of one call of the full model.
    full_features : sequence of str
        Columns that the full model reads; all of them if none is named.
    ignore : sequence of str
        Columns that are no features.
    row_key : str
        Name of the column with the keys of the rows, which is no feature; empty where rows are known by their number.
    seed, n_jobs : int
        Seed of all random choices, and number of fits side by side.
    trusted : names of types
        What a model from a file may be made of, besides the usual.
    progress : callable
        Called as ``progress(what, done, total)``.
    """
    table = prepare(
        frame,
        target,
        costs=costs,
        full=full,
        full_cost=full_cost,
        full_features=full_features,
        ignore=ignore,
        row_key=row_key,
        trusted=trusted,
        task=task,
        loss=loss,
        tolerance=tolerance,
        query=query,
        metric=metric,
        k=k,
    )
    asked = wish
    wish = wish.by_labels(table)
    refuse_early(table, asked, seed)
    _refuse_structure(table, structure)
    with limited_threads(openmp=threads_of(n_jobs), blas=threads_of(n_jobs)):
        kind, model, competition = _full(table, full, seed, n_jobs, progress)
        estimator = _fit_cascade(table, model, wish, structure, seed, n_jobs, progress)
    about = About(kind, "cascade", seed, len(table.y), asked.budget, asked.max_loss)
    promise = promise_of(estimator)
    system = TableSystem(table.schema, estimator, about, promise, Spread.of(table.cells.numbers))
    return Fitted(system, competition, (*table.notes, *_remarks(promise, estimator, asked)))


def _refuse_structure(table: TrainingTable, structure: str) -> None:
    """Refuse a graph of purchases where nothing can have one."""
    if structure != "line" and isinstance(table.task, RankingTask):
        raise InvalidInputError(
            f"--structure {structure} is for cascades that answer with classes or numbers, and a ranking of documents "
            f"buys for all rows in one order. Leave --structure out."
        )


def _full(
    table: TrainingTable, full: str, seed: int, n_jobs: int, progress: Progress
) -> tuple[str, Any, Competition | None]:
    """The kind of the full model, the model itself, and the competition it won if there was one."""
    if table.frozen is not None:
        return Path(full).name, table.frozen, None
    competition = None
    if full == "auto":
        numbers = table.cells.numbers[:, table.prices.read_by_full]
        competition = best_kind(
            numbers,
            table.y,
            table.task,
            seed=seed,
            n_jobs=n_jobs,
            has_missing=table.has_missing,
            progress=progress,
        )
    kind = full if competition is None else competition.winner
    model = recipe(kind, seed, n_jobs, table.task)
    refuse_missing(table, model, kind)
    return kind, model, competition


def _fit_cascade(
    table: TrainingTable,
    full: Any,
    wish: FitGoal,
    structure: str,
    seed: int,
    n_jobs: int,
    progress: Progress,
) -> BudgetedCascade:
    known: dict[str, Any] = {
        "prices": Prices.of(table.prices),
        "budget": wish.budget,
        "n_jobs": n_jobs,
        "random_state": seed,
    }
    cascade: BudgetedCascade
    task = table.task
    if isinstance(task, RankingTask):
        judged: dict[str, Any] = {"metric": f"{task.measure}@{task.k}", "tolerance": task.tolerance}
        cascade = BudgetedRanker(full, loss=task.gradients, **judged, **known)
    elif isinstance(task, RegressionTask):
        quantile = task.quantile if task.kind == "pinball" else None
        cascade = BudgetedRegressor(
            full,
            loss=task.kind,
            quantile=quantile,
            tolerance=task.tolerance,
            stages=StageOptions(structure=structure),
            **known,
        )
    else:
        cascade = BudgetedClassifier(
            full, loss=_loss_of(task), stages=StageOptions(structure=structure), **known
        )
    cascade._encoded = table.schema.categorical
    cascade._keeps_scores = True  # a promise tells recall and AUC, or mean errors
    X, y, row_numbers = table.X, table.y, table.cells.row_numbers
    is_proof = held_out_rows(table, seed) if wish.is_proved else np.zeros(len(y), dtype=bool)
    learn, proof = np.flatnonzero(~is_proof), np.flatnonzero(is_proof)
    with asking(row_numbers[learn]):
        cascade.fit(_safe_indexing(X, learn), y[learn], progress=progress)
    if wish.is_proved:
        goal: dict[str, Any] = {"budget": wish.budget, "max_loss": wish.max_loss, "confidence": wish.surely}
        with asking(row_numbers[proof]):
            return cascade.certified(_safe_indexing(X, proof), y[proof], duplicates=HELD_OUT, **goal)
    if wish.min_recall and isinstance(cascade, BudgetedClassifier):
        return cascade.at(budget=wish.budget, min_recall=wish.min_recall)
    return cascade


def _loss_of(task: Any) -> Any:
    """What answers lose, as an argument of an estimator."""
    mistakes = task.mistakes
    if mistakes is None:
        return "error"
    return mistakes.costs.tolist() if isinstance(mistakes, CostMatrix) else mistakes.kind


def _shown(max_loss: Any) -> str:
    shares = max_loss.items() if isinstance(max_loss, Mapping) else [("", max_loss)]
    return " ".join(f"{name}{'=' if name else ''}{share:g}" for name, share in shares)


def _remarks(promise: Promise, estimator: BudgetedCascade, wish: FitGoal) -> list[str]:
    """What the user should know about how the wish was met."""
    certificate = estimator.certificate_
    # A cascade of which no point could be proved warns by itself.
    is_said = certificate is not None and certificate.is_fallback
    if wish.max_loss is not None and promise.share == 1.0 and not is_said:
        told = "can be met only by sending every row to the full model, which saves nothing"
        return [f"--max-loss {_shown(wish.max_loss)} {told}. Give more rows, or allow a larger loss"]
    if wish.budget is not None and wish.confidence is None and promise.cost < (1 - _NEAR) * wish.budget:
        told = f"more than {promise.cost:.4g} per row bought nothing that showed"
        return [f"the budget of {wish.budget:g} is not spent: {told}"]
    return []
