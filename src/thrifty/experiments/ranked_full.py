"""f0's honest probabilities where rows are documents: no fold tears a query apart."""

from typing import Any

import numpy as np

from thrifty.arrays import Ints
from thrifty.bundle.container import Contents, pack, unpack
from thrifty.datasets import Split
from thrifty.experiments.fitting import FullScores
from thrifty.experiments.kept import Codec, Job, Kept, key_of
from thrifty.experiments.outcome import Progress, silent
from thrifty.full.crossfit import TrainingRows, judge_full
from thrifty.ranking.queries import Queries

__all__ = ["judge_by_query", "splits_by_query"]


def judge_by_query(
    model: Any,
    split: Split,
    queries: Queries,
    *,
    kept: Kept,
    n_folds: int = 5,
    progress: Progress = silent,
    what: str = "f0",
) -> FullScores:
    """Cross-fit f0 once over folds of training queries and ask it about the others, unless that is kept already."""
    folds = queries.folds(min(n_folds, queries.n_queries))
    job = Job(key_of(_judge, {"model": model, "folds": folds}), _judge, (model, split, folds))
    (scores,) = kept.run([job], _SCORES, n_jobs=1, progress=progress, what=f"cross-fitting f0, {what}")
    return scores


def splits_by_query(queries: Queries, n_folds: int) -> list[tuple[Ints, Ints]]:
    """Training and held-out documents of each fold, as scikit-learn's ``cv`` takes them."""
    folds = queries.folds(min(n_folds, queries.n_queries))
    return [(np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)) for fold in np.unique(folds)]


def _judge(model: Any, split: Split, folds: Ints) -> FullScores:
    n_rows = len(split.y_train)
    rows = TrainingRows(
        split.X_train,
        split.X_train,
        np.where(split.y_train == 1, 1.0, -1.0),
        np.array([0, 1]),
        np.ones(n_rows),
        folds,
        np.arange(n_rows),
        n_rows,
    )
    judged = judge_full(model, rows)
    val, test = (judged.model.probability(X, np.arange(len(X)), len(X)) for X in (split.X_val, split.X_test))
    return FullScores(judged.probability, val, test)


def _to_bytes(scores: FullScores) -> bytes:
    return pack(Contents({}, [scores.train, scores.val, scores.test]))


def _from_bytes(record: bytes) -> FullScores:
    return FullScores(*unpack(record).arrays)


_SCORES = Codec(_to_bytes, _from_bytes)
