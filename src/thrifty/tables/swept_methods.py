"""The paper's pairs and rivals on a table: a small grid of settings, chosen on rows that nothing was fitted on.

Rows are drawn by their content, equal rows together: seven tenths to learn from and three to choose on; where a loss is
to be proved, five to learn from, two to choose on and three to prove with.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from thrifty.arrays import Floats
from thrifty.dynamod.gated import GatedClassifier
from thrifty.dynamod.gbrt_estimators import DynaModGbrtClassifier
from thrifty.dynamod.linear_estimator import DynaModLinClassifier
from thrifty.dynamod.sweeping.run import sweep
from thrifty.errors import InvalidInputError, asking
from thrifty.estimators.checks import check_training_rows
from thrifty.estimators.rivals.greedy_miser import GreedyMiserClassifier
from thrifty.evidence.certificate import certify, check_hold_out
from thrifty.evidence.evidence import Evidence
from thrifty.evidence.frontier import Frontier, OperatingPoint
from thrifty.evidence.observe import evidence_of
from thrifty.evidence.tests import HELD_OUT
from thrifty.full.crossfit import judge_full
from thrifty.progress import Progress
from thrifty.routing.confidence import ConfidenceRouter
from thrifty.rows import content_folds
from thrifty.tables.training import TrainingTable

__all__ = ["SWEPT", "check_method", "fit_swept"]

SWEPT = ("dynamod-gbrt", "dynamod-lin", "greedy-miser", "confidence")

_FOLDS, _CHOOSE, _PROVE = 10, 2, 3
# Trees count the gain of all rows together, the linear pair that of the mean row.
_TREE_GAMMAS = np.logspace(-3.8, -1.2, 8)
_LINEAR_GAMMAS = np.logspace(-3.5, -1.0, 8)
_TREES = 100


@dataclass(frozen=True)
class _Candidates:
    """Fitted settings: what they do on the rows of the choice, on others, and the estimator at a point of theirs."""

    evidence: Sequence[Evidence]
    on: Callable[[TrainingTable], Sequence[Evidence]]
    estimator: Callable[[OperatingPoint], GatedClassifier]


def check_method(method: str, table: TrainingTable, max_loss: Any, confidence: float, seed: int) -> None:
    """Refuse, before anything is fitted, what a method cannot do with a table."""
    if method not in SWEPT:
        raise InvalidInputError(f"--method must be one of cascade, {', '.join(SWEPT)}; got {method!r}.")
    if method == "dynamod-lin":
        everywhere = np.arange(len(table.cells)), np.arange(len(table.schema.names))
        table.cells.refuse_missing(*everywhere, "--method dynamod-lin")
    if max_loss is not None:
        numbers, strata = table.cells.numbers, np.unique(table.y, return_inverse=True)[1]
        fold = content_folds(numbers, table.y, _FOLDS, seed)
        is_proof = (fold >= _CHOOSE) & (fold < _CHOOSE + _PROVE)
        check_hold_out(numbers, strata, is_proof, max_loss, confidence, table.class_names)


def fit_swept(
    method: str,
    table: TrainingTable,
    full: Any,
    *,
    budget: float | None,
    max_loss: Any,
    confidence: float,
    seed: int,
    n_jobs: int,
    progress: Progress,
) -> GatedClassifier:
    """Fit a method's settings and keep the one, cut where it must be, that a wish asks for.

    Its evidence are the rows of the choice, which nothing was fitted on.
    """
    learn, choose, prove = _parts(table, seed, prove=max_loss is not None)
    found = _MAKERS[method](learn, choose, full, seed, n_jobs, progress)
    certificate = None
    if max_loss is None:
        frontier = Frontier.from_evidence(found.evidence)
        point = frontier[len(frontier) - 1] if budget is None else frontier.best(budget=budget)
    else:
        against = Frontier.from_evidence(found.evidence, against_full=True)
        proof = against.on(found.on(prove))
        certificate = certify(proof, max_loss=max_loss, confidence=confidence, duplicates=HELD_OUT)
        # Each of these gates can be opened wide, so there always is a point.
        point = certificate.point or against[len(against) - 1]
    estimator = found.estimator(point)
    estimator.evidence_ = evidence_of(estimator, choose.X, choose.y, settings=point.settings)
    estimator.certificate_ = certificate
    return estimator


def _parts(
    table: TrainingTable, seed: int, *, prove: bool
) -> tuple[TrainingTable, TrainingTable, TrainingTable]:
    """Rows to learn from, to choose on and to prove with."""
    fold = content_folds(table.cells.numbers, table.y, _FOLDS, seed)
    n_choose, n_prove = (_CHOOSE, _PROVE) if prove else (3, 0)
    return (
        table.take(np.flatnonzero(fold >= n_choose + n_prove)),
        table.take(np.flatnonzero(fold < n_choose)),
        table.take(np.flatnonzero((fold >= n_choose) & (fold < n_choose + n_prove))),
    )


def _sweep(
    estimator: Any,
    grid: dict[str, list[Any]],
    learn: TrainingTable,
    choose: TrainingTable,
    n_jobs: int,
    progress: Progress,
) -> _Candidates:
    if isinstance(estimator, DynaModGbrtClassifier):
        estimator._encoded = learn.schema.categorical
    with asking(choose.cells.row_numbers, table="X_val"), asking(learn.cells.row_numbers):
        found = sweep(estimator, grid, learn.X, learn.y, choose.X, choose.y, n_jobs=n_jobs, progress=progress)

    def on(rows: TrainingTable) -> Sequence[Evidence]:
        with asking(rows.cells.row_numbers):
            return found.on(rows.X, rows.y).evidence

    return _Candidates([cell.evidence for cell in found.cells], on, found.estimator)


def _boosted_pairs(
    learn: TrainingTable, choose: TrainingTable, full: Any, seed: int, n_jobs: int, progress: Progress
) -> _Candidates:
    pair = DynaModGbrtClassifier(
        full,
        n_trees=_TREES,
        max_depth=5,
        max_iter=3,
        gate_reads_score=True,
        full_features=learn.full_features,
        random_state=seed,
        **learn.costs,
    )
    return _sweep(pair, {"gamma": _tree_gammas(learn)}, learn, choose, n_jobs, progress)


def _linear_pairs(
    learn: TrainingTable, choose: TrainingTable, full: Any, seed: int, n_jobs: int, progress: Progress
) -> _Candidates:
    pair = DynaModLinClassifier(
        full,
        refit=True,
        gate_reads_margin=True,
        full_features=learn.full_features,
        random_state=seed,
        **learn.costs,
    )
    gammas = _rounded(_LINEAR_GAMMAS / _mean_price(learn))
    return _sweep(pair, {"gamma": gammas}, learn, choose, n_jobs, progress)


def _confident(
    learn: TrainingTable, choose: TrainingTable, full: Any, seed: int, n_jobs: int, progress: Progress
) -> _Candidates:
    """Boosted trees on the columns that GreedyMisers bought, in front of the full model."""
    bought = dict.fromkeys(tuple(one.features_.tolist()) for one in _misers(learn, seed, progress))
    router = ConfidenceRouter(
        full,
        HistGradientBoostingClassifier(random_state=seed),
        full_features=learn.full_features,
        random_state=seed,
        **learn.costs,
    )
    sets = [list(columns) for columns in bought if columns]
    return _sweep(router, {"features": sets}, learn, choose, n_jobs, progress)


def _greedy_misers(
    learn: TrainingTable, choose: TrainingTable, full: Any, seed: int, n_jobs: int, progress: Progress
) -> _Candidates:
    """GreedyMisers with their own margin as the gate in front of the full model, which they know nothing of."""
    misers = _misers(learn, seed, progress)
    progress("judging the full model", 0, 1)
    rows = check_training_rows(misers[0], learn.X, learn.y, None, 5, seed)
    with asking(learn.cells.row_numbers):
        model = judge_full(full, rows.with_columns(learn.prices.full_columns), n_jobs=n_jobs).model
    progress("judging the full model", 1, 1)
    fitted = []
    for one in misers:
        one.chain_ = replace(one.chain_, price_list=learn.prices)
        fitted.append(one.with_full(model))

    def on(rows: TrainingTable) -> list[Evidence]:
        chain = fitted[0].chain_
        with asking(rows.cells.row_numbers):
            known = chain.ask_full(chain.reader(rows.X), np.arange(len(rows.y)))
        return [
            evidence_of(one, rows.X, rows.y, settings={"gamma": one.gamma}, full_probability=known)
            for one in fitted
        ]

    return _Candidates(on(choose), on, lambda point: fitted[point.source].at(threshold=point.threshold))


def _misers(learn: TrainingTable, seed: int, progress: Progress) -> list[GreedyMiserClassifier]:
    gammas = _tree_gammas(learn)
    fitted: list[GreedyMiserClassifier] = []
    for gamma in gammas:
        progress("fitting cheap models", len(fitted), len(gammas))
        miser = GreedyMiserClassifier(n_trees=_TREES, gamma=gamma, random_state=seed, **learn.costs)
        miser._encoded = learn.schema.categorical
        fitted.append(miser.fit(learn.X, learn.y))
    progress("fitting cheap models", len(gammas), len(gammas))
    return fitted


def _tree_gammas(learn: TrainingTable) -> list[float]:
    return _rounded(_TREE_GAMMAS * len(learn.y) / _mean_price(learn))


def _mean_price(learn: TrainingTable) -> float:
    return float(learn.prices.prices.mean()) or 1.0


def _rounded(gammas: Floats) -> list[float]:
    # Three digits: a setting is shown to people.
    return [float(f"{gamma:.3g}") for gamma in gammas]


_MAKERS = {
    "dynamod-gbrt": _boosted_pairs,
    "dynamod-lin": _linear_pairs,
    "greedy-miser": _greedy_misers,
    "confidence": _confident,
}
