"""The sweep itself, and what it found.

Plan, judge the full model once, fit what the store lacks, keep each cell as soon as it is done; then efficient points,
and the fitted estimator behind each of them.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from joblib.parallel import LokyBackend, get_active_backend
from numpy.typing import ArrayLike

from thrifty.arrays import Floats
from thrifty.bundle import from_bytes
from thrifty.dynamod.sweeping.cells import Cell, FailedCell, end_with, fit_cell, quiet, start_from
from thrifty.dynamod.sweeping.full_model import Answers, identity_of_full, innermost, judge_once, remake_full
from thrifty.dynamod.sweeping.grid import PlannedCell, make_plan, waves
from thrifty.dynamod.sweeping.shared import Shared, check_shared
from thrifty.dynamod.sweeping.store import Store
from thrifty.errors import InvalidInputError
from thrifty.estimators.base import ChainEstimator
from thrifty.evidence.frontier import Frontier, OperatingPoint
from thrifty.evidence.observe import evidence_of, training_fingerprints
from thrifty.evidence.stopping import measured
from thrifty.full.model import AbsentFull, FullModel, ask_model
from thrifty.progress import Progress, silent

__all__ = ["Sweep", "sweep"]

ATTEMPTS = 4
"""How often a cell is given to a cluster that forgets it."""


class Sweep:
    """Fitted settings and their operating points; made by ``thrifty.sweep``.

    Attributes
    ----------
    cells : tuple of Cell
        Every setting of the grid, in its order: ``settings``, ``seconds`` and ``evidence`` on the validation rows.
    frontier : Frontier
        The efficient points on the validation rows.
    full : FullModel
        The full model. After a resumed sweep, one that was fitted here is fitted again when it is first needed.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        shared: Shared,
        answers: Answers | None,
        full: FullModel | None,
        trusted: tuple[str | type, ...] = (),
    ) -> None:
        self.cells = tuple(cells)
        self._shared = shared
        self._answers = answers
        self._full = full
        self._trusted = trusted

    @cached_property
    def frontier(self) -> Frontier:
        """The efficient points on the validation rows."""
        return Frontier.from_evidence([cell.evidence for cell in self.cells])

    @cached_property
    def full(self) -> FullModel:
        """The full model, as it was when it was judged."""
        if self._answers is None:
            return AbsentFull()
        return remake_full(self._shared, self._answers) if self._full is None else self._full

    def on(self, X: Any, y: Any, *, full_probability: ArrayLike | None = None) -> Frontier:
        """The very same points on other rows, as chosen: no longer chosen by what they do there.

        Parameters
        ----------
        X, y : table and labels
            Rows that nothing was fitted or chosen on.
        full_probability : array-like of shape (n_samples,) or (n_samples, n_classes), optional
            The full model's probabilities on these rows; without them it is asked about all of them, once.
        """
        known = None
        if self._answers is not None:
            known = self._ask(X) if full_probability is None else full_probability
        return self.frontier.on(
            [
                evidence_of(self._fitted(cell), X, y, settings=cell.settings, full_probability=known)
                for cell in self.cells
            ]
        )

    def estimator(self, point: OperatingPoint) -> Any:
        """The fitted estimator behind a point, in front of the full model and at the point's thresholds.

        Its ``evidence_``, and with it ``frontier_`` and ``at``, are about the validation rows.

        Parameters
        ----------
        point : OperatingPoint
            Of this sweep's ``frontier``, or of what ``on`` returned.
        """
        known = 0 <= point.source < len(self.cells)
        if not known or self.cells[point.source].settings != point.settings:
            raise InvalidInputError(
                f"the point with settings {point.settings} is not one of this sweep. Take it from `frontier`."
            )
        cell = self.cells[point.source]
        fitted = self._fitted(cell, serves=True)
        if not isinstance(fitted, ChainEstimator):
            return fitted
        if self._answers is not None:
            fitted.set_params(full=self._shared.full)
        fitted.evidence_ = replace(cell.evidence, settings={})
        policy = fitted.chain_.policy
        if not policy.is_measured:
            return fitted.at(threshold=point.threshold)
        policy = measured(policy, cell.evidence)
        place = np.flatnonzero((policy.thresholds == np.array(point.thresholds)).all(axis=1))[0]
        fitted._change_chain(lambda chain: chain.at(policy.at(int(place))))
        return fitted

    def to_frame(self) -> Any:
        """A pandas data frame with a row per cell: settings, seconds, what it buys, its points on the frontier."""
        try:
            import pandas as pd
        except ModuleNotFoundError as error:
            raise InvalidInputError(
                "to_frame needs pandas, which is not installed. `cells` holds the same."
            ) from error
        points = np.bincount(self.frontier.source, minlength=len(self.cells))
        return pd.DataFrame(
            [
                {
                    **cell.settings,
                    "seconds": cell.seconds,
                    "n_features": len(cell.evidence.features),
                    "stop_cost": float(np.mean(cell.evidence.cost_at(0))),
                    "stop_score": cell.evidence.score_at(0),
                    "n_points": int(number),
                }
                for cell, number in zip(self.cells, points, strict=True)
            ]
        )

    def __repr__(self) -> str:
        kind = type(self._shared.estimator).__name__
        cells = f"{len(self.cells)} cell{'' if len(self.cells) == 1 else 's'}"
        return f"Sweep({cells} of {kind}, {len(self.frontier)} efficient points on {self.frontier.n_rows:,} rows)"

    def _fitted(self, cell: Cell, *, serves: bool = False) -> Any:
        """The fitted estimator; in front of the full model if it is to serve, or if it pays by what that one reads."""
        answers = self._answers
        attached = answers is not None and (serves or answers.bought is not None)
        return from_bytes(cell.fitted, full=innermost(self.full) if attached else None, trusted=self._trusted)

    def _ask(self, X: Any) -> Floats:
        """The full model's outputs on the rows of a table."""
        chain = self._fitted(self.cells[0]).chain_
        reader, prices = chain.reader(X), chain.price_list
        rows = np.arange(reader.n_samples)
        table, numbers = chain.read_by_full(reader, rows), reader.block(rows, prices.read_by_full)
        return ask_model(innermost(self.full), chain.task, table, numbers)


def sweep(
    estimator: Any,
    grid: Any,
    X: Any,
    y: Any,
    X_val: Any,
    y_val: Any,
    *,
    sample_weight: Any = None,
    full_val: ArrayLike | None = None,
    store: Any = None,
    n_jobs: int | None = None,
    warm_start: bool = True,
    progress: Progress | None = None,
    trusted: Iterable[str | type] = (),
) -> Sweep:
    """Fit every setting of a grid behind one full model and find the efficient operating points on validation rows.

    The full model (f0) is judged once, not once per setting. Every result is the same, bit by bit, whatever ``n_jobs``
    and joblib's backend, and however often the sweep was interrupted and taken up again.

    Parameters
    ----------
    estimator : estimator of thrifty
        What is fitted, with its full model, prices and whatever the grid leaves alone: a cascade
        (``BudgetedClassifier``), any estimator with a single gate, or one that answers alone. A ``random_state`` of
        None, here or in an unfitted full model, is read as 0.
    grid : dict of lists, or list of dicts
        All combinations of the lists; or the settings themselves, one dict each.
    X, y : table and labels
        Training rows.
    X_val, y_val : table and labels
        Rows that points are chosen on; neither the full model nor any cell is fitted on them.
    sample_weight : array-like of shape (n_samples,), optional
        Weights of the training rows.
    full_val : array-like of shape (n_val,), optional
        The full model's probabilities on the validation rows; needed if, and only if, ``estimator.full`` is an array
        of those on the training rows.
    store : path, optional
        A file that keeps every finished cell. The same call resumes from it; a call that differs in its data,
        costs, estimator, full model or code is refused; a grid with further settings fits only those. None keeps
        nothing.
    n_jobs : int, optional
        Fits side by side, through joblib; ``joblib.parallel_config`` chooses another backend.
    warm_start : bool, default=True
        Whether a linear cell starts from the solution at the next larger gamma, everything else equal, which saves
        half of the time or more; its result may be another local optimum than that of a fit on its own.
    progress : callable, optional
        Called as ``progress(what, done, total)``.
    trusted : names of types, or types, default=()
        Where a cheap model is somebody else's: what it may be made of when it is read back, as in ``load``.

    Returns
    -------
    Sweep
        With ``frontier``, ``on``, ``estimator``, ``cells`` and ``to_frame``.

    Raises
    ------
    InvalidInputError
        Before anything is fitted, if something is refused; after everything else is fitted and kept, if a cell
        failed.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from thrifty import DynaModGbrtClassifier, sweep
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> found = sweep(
    ...     DynaModGbrtClassifier(n_trees=10), {"gamma": [1, 10]}, X[:300], y[:300], X[300:450], y[300:450]
    ... )
    >>> point = found.frontier.best(budget=8)
    >>> found.estimator(point).predict(X[450:]).shape
    (119,)
    """
    report = silent if progress is None else progress
    shared = check_shared(estimator, X, y, sample_weight, X_val, y_val)
    cells = make_plan(shared.estimator, grid, warm_start=warm_start)
    about = shared.identity({name for cell in cells for name in cell.settings})
    with Store(store, {**about, "the full model": identity_of_full(shared, full_val)}) as kept:
        answers, model = _answers(kept, shared, full_val, n_jobs, report)
        found = _fit_all(cells, kept, shared, answers, tuple(trusted), n_jobs, report)
    known = [_with_rows_of_full(cell, shared.full) for cell in _all_fitted(cells, found, store)]
    return Sweep(known, shared, answers, model, tuple(trusted))


def _with_rows_of_full(cell: Cell, full: Any) -> Cell:
    """The cell, whose evidence knows the rows that a system in the place of the full model was fitted on, too."""
    theirs, ours = training_fingerprints(full), cell.evidence.seen
    if theirs is None:
        return cell
    seen = theirs if ours is None else np.union1d(theirs, ours)
    return replace(cell, evidence=replace(cell.evidence, seen=seen))


def _answers(
    kept: Store, shared: Shared, full_val: ArrayLike | None, n_jobs: int | None, report: Progress
) -> tuple[Answers | None, FullModel | None]:
    """What the full model says, and the full model itself if it was asked just now; nothing where there is none."""
    if shared.full is None:
        return None, None
    record = kept.get(Answers.KEY)
    if record is not None:
        return Answers.from_bytes(record), None
    report("judging the full model", 0, 1)
    answers, model = judge_once(shared, full_val, n_jobs)
    kept.put(Answers.KEY, answers.to_bytes())
    report("judging the full model", 1, 1)
    return answers, model


def _fit_all(
    cells: Sequence[PlannedCell],
    kept: Store,
    shared: Shared,
    answers: Answers | None,
    trusted: tuple[str | type, ...],
    n_jobs: int | None,
    report: Progress,
) -> dict[str, Cell | FailedCell]:
    """Every cell by its key: those the store has, then the others, wave by wave."""
    found: dict[str, Cell | FailedCell] = {}
    for cell in cells:
        record = kept.get(cell.key)
        if record is not None:
            found[cell.key] = Cell.from_bytes(record, cell.key)
    report("fitting", len(found), len(cells))
    if len(found) == len(cells):
        return found
    given = (
        shared.X,
        shared.y,
        shared.sample_weight,
        shared.X_val,
        shared.y_val,
        answers,
        trusted,
        os.getpid(),
    )
    # Workers of joblib's own backend watch for us from their start; those of others from their first cell.
    is_ours = isinstance(get_active_backend()[0], LokyBackend)
    watching = {"initializer": end_with, "initargs": (os.getpid(),)} if is_ours else {}
    # One cell per message: a cell that is done must not wait for others before it is kept.
    how = {"n_jobs": n_jobs, "return_as": "generator_unordered", "batch_size": 1, **watching}
    with quiet(), Parallel(**how) as parallel:
        for wave in waves(cells):
            for fitted in _fit_wave(wave, found, parallel, given):
                if isinstance(fitted, Cell):
                    kept.put(fitted.key, fitted.to_bytes())
                found[fitted.key] = fitted
                report("fitting", len(found), len(cells))
    return found


def _fit_wave(
    wave: Sequence[PlannedCell],
    found: dict[str, Cell | FailedCell],
    parallel: Parallel,
    given: tuple[Any, ...],
) -> Iterator[Cell | FailedCell]:
    """Cells of a wave as they are fitted; those that a cluster forgets when it loses a worker are given to it again."""
    for attempt in range(1, ATTEMPTS + 1):
        jobs = [delayed(fit_cell)(cell, start, *given) for cell, start in _ready(wave, found)]
        try:
            yield from parallel(jobs) if jobs else ()
            return
        except CancelledError:
            if attempt == ATTEMPTS:
                raise


def _ready(
    wave: Sequence[PlannedCell], found: dict[str, Cell | FailedCell]
) -> Iterator[tuple[PlannedCell, Any]]:
    """Cells of a wave that are still to be fitted and can be, each with its start."""
    for cell in wave:
        before = None if cell.follows is None else found.get(cell.follows)
        if cell.key in found or (cell.follows is not None and not isinstance(before, Cell)):
            continue
        yield cell, start_from(before) if isinstance(before, Cell) else None


def _all_fitted(cells: Sequence[PlannedCell], found: dict[str, Cell | FailedCell], store: Any) -> list[Cell]:
    """Every cell, in the order of the grid, or a refusal that names those that failed."""
    fitted = [one for cell in cells if isinstance(one := found.get(cell.key), Cell)]
    failed = [one for cell in cells if isinstance(one := found.get(cell.key), FailedCell)]
    if not failed:
        return fitted
    lost = len(cells) - len(fitted) - len(failed)
    told = "; ".join(f"{one.settings}: {one.cause}" for one in failed[:3])
    more = f"; and {len(failed) - 3} more" if len(failed) > 3 else ""
    waiting = f" {lost} more would have started from a failed one and were not tried." if lost else ""
    saved = (
        "" if store is None else f" The others are kept in {store}: the same call tries only what is lacking."
    )
    raise InvalidInputError(
        f"{len(failed)} of {len(cells)} cells failed: {told}{more}.{waiting}{saved}"
    ) from RuntimeError(failed[0].trace)
