"""Grid search over operating points: every setting of a grid, fitted behind one full model.

The full model is cross-fitted once. Every cell of the grid learns from its outputs on the training rows and is scored
with those on the validation rows; both are arrays, so the full model itself never travels to a worker.

Along gamma, with everything else equal, the solutions of the linear family are neighbours: a fit that starts from its
neighbour's solution needs a fraction of the rounds. Those cells form a series, by falling gamma, which one worker fits
from its start to its end.
"""

import copy
import functools
import json
import multiprocessing
import os
import pickle
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from numbers import Integral
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import ParameterGrid
from sklearn.utils.validation import check_memory

from thrifty._version import __version__
from thrifty.arrays import Floats, plain_settings
from thrifty.engine.evidence.collect import evidence_of, training_fingerprints
from thrifty.engine.evidence.evidence import Evidence
from thrifty.engine.evidence.frontier import Frontier, OperatingPoint
from thrifty.engine.evidence.thresholds import measured
from thrifty.engine.full.adapters import models_of
from thrifty.engine.full.crossfit import cross_fit_full
from thrifty.engine.full.model import (
    AbsentFull,
    EstimatorFull,
    FullModel,
    PrecomputedFull,
    ask_model,
    is_estimator,
)
from thrifty.engine.table.columns import has_dates
from thrifty.engine.table.table import Table
from thrifty.engine.walk.chain import Chain
from thrifty.errors import (
    FullModelNotWorthItWarning,
    InvalidInputError,
    OptimisticFullModelWarning,
    renumber_rows_in_errors,
)
from thrifty.learners.dynamod.linear import DynaModLinClassifier
from thrifty.learners.estimators.base import ChainEstimator, chain_behind, columns_of, unwrap_chain
from thrifty.learners.estimators.checks import check_seed, check_training_rows, known_levels, validated
from thrifty.progress import Progress, silent
from thrifty.rows import fingerprints
from thrifty.threads import limited_threads

_SHARED = ("full", "cv", "feature_costs", "prices", "n_jobs")
_GOALS = ("budget",)


@dataclass(frozen=True, eq=False)
class Cell:
    """One fitted setting.

    Attributes
    ----------
    settings : dict
        What the grid says about it, as JSON holds it.
    fitted : estimator
        The fitted estimator, without the full model and without its training rows.
    evidence : Evidence
        What it did with the validation rows, at every operating point.
    seconds : float
        How long the fit took.
    """

    settings: dict[str, Any]
    fitted: Any
    evidence: Evidence
    seconds: float


class Sweep:
    """Fitted settings and their operating points; made by ``thrifty.sweep``.

    Attributes
    ----------
    cells : tuple of Cell
        Every setting of the grid, in its order: ``settings``, ``seconds`` and ``evidence`` on the validation rows.
    frontier : Frontier
        The efficient points on the validation rows.
    full : FullModel
        The full model, cross-fitted.
    """

    def __init__(self, cells: Sequence[Cell], given: Any, full: FullModel | None) -> None:
        self.cells = tuple(cells)
        self.full: FullModel = AbsentFull() if full is None else full
        self._given = given

    @cached_property
    def frontier(self) -> Frontier:
        """The efficient points on the validation rows."""
        return Frontier.from_evidence([cell.evidence for cell in self.cells])

    def on(self, X: Any, y: Any, *, full_probability: ArrayLike | None = None) -> Frontier:
        """The same points evaluated on other rows, without choosing again.

        Parameters
        ----------
        X, y : table and labels
            Rows that nothing was fitted or chosen on.
        full_probability : array-like of shape (n_samples,) or (n_samples, n_classes), optional
            The full model's probabilities on these rows; without them it is asked about all of them, once.
        """
        outputs = full_probability
        if isinstance(self.full, AbsentFull):
            outputs = None
        elif outputs is None:
            outputs = self._ask(X)
        return self.frontier.on(
            [
                evidence_of(cell.fitted, X, y, settings=cell.settings, full_probability=outputs)
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
        if not 0 <= point.source < len(self.cells) or self.cells[point.source].settings != point.settings:
            raise InvalidInputError(
                f"the point with settings {point.settings} is not one of this sweep. Take it from `frontier`."
            )
        cell = self.cells[point.source]
        fitted = copy.copy(cell.fitted)
        if not isinstance(self.full, AbsentFull):
            fitted._change_chain(lambda chain: chain.with_innermost(_innermost(self.full)))
            fitted.set_params(full=self._given)
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
                    "stop_score": float(np.nanmean(cell.evidence.quality_at(0))),
                    "n_points": int(number),
                }
                for cell, number in zip(self.cells, points, strict=True)
            ]
        )

    def __repr__(self) -> str:
        kind = type(self.cells[0].fitted).__name__
        cells = f"{len(self.cells)} cell{'' if len(self.cells) == 1 else 's'}"
        return f"Sweep({cells} of {kind}, {len(self.frontier)} efficient points on {self.frontier.n_rows:,} rows)"

    def _ask(self, X: Any) -> Floats:
        """The full model's outputs on the rows of a table."""
        chain = self.cells[0].fitted.chain_.with_innermost(_innermost(self.full))
        reader = chain.reader(X)
        rows = np.arange(reader.n_samples)
        table, numbers = chain.read_by_full(reader, rows), reader.block(rows, chain.price_list.read_by_full)
        return ask_model(chain.innermost, chain.task, table, numbers)


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
    memory: Any = None,
    n_jobs: int | None = None,
    warm_start: bool = True,
    progress: Progress | None = None,
) -> Sweep:
    """Fit every setting of a grid behind one full model and find the efficient operating points on validation rows.

    The full model (f0) is cross-fitted once, not once per setting. Results do not depend, in any bit, on ``n_jobs``,
    joblib's backend, or interruptions that ``memory`` resumes.

    Parameters
    ----------
    estimator : estimator of thrifty
        Estimator to fit, with its full model, prices and all settings not in the grid: a cascade
        (``BudgetedClassifier``), or any estimator with a single gate. A ``random_state`` of None, here or in an
        unfitted full model, is read as 0.
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
    memory : str, path or joblib.Memory, optional
        Caches the cross-fitted full model and every finished cell, as in scikit-learn's ``Pipeline``: the same call
        resumes where another one ended, and a larger grid fits only what is new. Other data, prices, models, versions
        or code of thrifty find nothing in it. The cache holds pickles: share it only with people you trust.
    n_jobs : int, optional
        Fits side by side, through joblib; ``joblib.parallel_config`` chooses another backend.
    warm_start : bool, default=True
        Whether a linear cell starts from the solution at the next larger gamma, everything else equal, which saves
        half of the time or more; its result may be another local optimum than that of a fit on its own.
    progress : callable, optional
        Called as ``progress(what, done, total)``.

    Returns
    -------
    Sweep
        With ``frontier``, ``on``, ``estimator``, ``cells`` and ``to_frame``.

    Raises
    ------
    InvalidInputError
        Before anything is fitted, if something is refused; later, with its settings, if a cell fails.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from thrifty import DynaModGbrtClassifier, sweep
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> swept = sweep(
    ...     DynaModGbrtClassifier(),
    ...     {"gamma": [1, 10], "options__n_trees": [10]},
    ...     *(X[:300], y[:300], X[300:450], y[300:450]),
    ... )
    >>> point = swept.frontier.best(budget=8)
    >>> swept.estimator(point).predict(X[450:]).shape
    (119,)
    """
    report = silent if progress is None else progress
    X, X_val = Table.of(X).native, Table.of(X_val).native
    shared = _check_shared(estimator, X, y, sample_weight, X_val, y_val)
    cells = _cells_of(shared.estimator, grid)
    cache = check_memory(os.fspath(memory) if isinstance(memory, os.PathLike) else memory)
    full, answers = None, None
    tables = X, y, sample_weight, X_val, y_val
    key = ""
    if cache.location is not None:
        key = _cache_key(shared.full, full_val, tables, shared.prices, shared.rows.folds)
    if shared.full is not None:
        report("cross-fitting the full model", 0, 1)
        cross_fit = cache.cache(_cross_fit, ignore=["shared", "full_val", "n_jobs"])
        full, answers = cross_fit(key, shared, full_val, n_jobs)
        report("cross-fitting the full model", 1, 1)
    series = _series(cells) if warm_start else [[number] for number in range(len(cells))]
    finished: dict[int, Cell] = {}
    report("fitting", 0, len(cells))
    with _quiet(), joblib.Parallel(n_jobs, return_as="generator_unordered", batch_size=1) as parallel:
        jobs = (
            joblib.delayed(_fit_series)(
                cache, key, {number: cells[number] for number in one}, answers, *tables
            )
            for one in series
        )
        for fitted in parallel(jobs):
            finished |= fitted
            report("fitting", len(finished), len(cells))
    seen = training_fingerprints(shared.full)
    return Sweep([_with_seen(finished[number], seen) for number in range(len(cells))], shared.full, full)


# -- the plan ----------------------------------------------------------------------------------------


Planned = tuple[Any, dict[str, Any]]
"""An unfitted estimator with the settings of a cell, and these settings as JSON holds them."""


def _cells_of(estimator: Any, grid: Any) -> list[Planned]:
    """Every distinct cell of a grid, in its order, or a refusal before anything is fitted."""
    cells: dict[str, Planned] = {}
    for values in _settings_of(grid):
        settings = plain_settings(values)
        cells.setdefault(json.dumps(settings, sort_keys=True), (_with_settings(estimator, values), settings))
    if not cells:
        raise InvalidInputError("grid must hold at least one setting; got none.")
    return list(cells.values())


def _settings_of(grid: Any) -> Iterable[dict[str, Any]]:
    if isinstance(grid, Mapping):
        try:
            return list(ParameterGrid(dict(grid)))
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                f"grid must be a dict of lists, or a list of dicts with one setting each: {error}"
            ) from error
    if isinstance(grid, Sequence) and all(isinstance(cell, Mapping) for cell in grid):
        return [dict(cell) for cell in grid]
    raise InvalidInputError(
        f"grid must be a dict of lists, or a list of dicts with one setting each; got {grid!r}."
    )


def _with_settings(estimator: Any, values: dict[str, Any]) -> Any:
    for name in values:
        if name.split("__")[0] in _SHARED:
            raise InvalidInputError(
                f"grid must not vary {name!r}: points of one frontier share their data, prices and full model. "
                f"Set it on the estimator, and run one sweep for each value."
            )
        if name in _GOALS:
            raise InvalidInputError(
                f"grid must not vary {name!r}, which chooses among the operating points of one fit: every cell is "
                f"evaluated at all of them. Leave it out, and ask the frontier of the sweep."
            )
    try:
        cell = clone(estimator).set_params(**values)
    except ValueError as error:
        raise InvalidInputError(f"grid holds a setting that the estimator does not know: {error}") from error
    cell._check_parameters()
    return cell


def _series(cells: Sequence[Planned]) -> list[list[int]]:
    """Numbers of the cells in the order in which each starts from the one before; most are alone."""
    series: dict[str, list[int]] = {}
    for number, (estimator, settings) in enumerate(cells):
        others = {name: value for name, value in settings.items() if name != "gamma"}
        key = json.dumps(others, sort_keys=True) if _starts_from_neighbour(estimator) else str(number)
        series.setdefault(key, []).append(number)
    return [
        one if len(one) == 1 else sorted(one, key=lambda number: -float(cells[number][0].gamma or 0.0))
        for one in series.values()
    ]


def _starts_from_neighbour(estimator: Any) -> bool:
    """True if a neighbour's weights are a start: those of a refit or of a margin gate solve another problem."""
    return (
        isinstance(estimator, DynaModLinClassifier)
        and isinstance(estimator._options.init, str)
        and estimator._options.init == "logistic"
        and not estimator._options.refit
        and not estimator._options.gate_reads_margin
    )


# -- what all cells share ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Shared:
    """Arguments that all cells of a sweep share, checked once.

    Attributes
    ----------
    estimator : estimator
        Not fitted, and without its full model; everything random in it has a seed.
    full : object
        The full model as given, or the default one, with its seeds; None for an estimator that has none.
    rows : TrainingRows
        The training rows that count, with the columns that the full model reads and the folds it is cross-fitted in.
    prices : PriceList
        What purchases cost.
    table_val, numbers_val : table and ndarray or CSR
        The validation rows with the columns that the full model reads.
    reads_numbers : bool
        Whether the full model, being the default one, is given numbers where tables hold text or dates.
    """

    estimator: Any
    full: Any
    rows: Any
    prices: Any
    table_val: Any
    numbers_val: Any
    reads_numbers: bool


@dataclass(frozen=True, eq=False)
class _Answers:
    """Outputs of the full model on the training rows, by their content, and on the validation rows.

    Where the full model is a chain, ``chain_`` says what a row pays that is sent on.
    """

    train: PrecomputedFull
    val: Floats
    chain_: Chain | None = None

    def outputs(self, table: Any, numbers: Any) -> Floats:
        """Look up outputs of training rows."""
        return self.train.outputs(table, numbers)


def _check_shared(estimator: Any, X: Any, y: Any, sample_weight: Any, X_val: Any, y_val: Any) -> _Shared:
    """Check all arguments before the full model is called."""
    _check_estimator(estimator)
    parameters = estimator.get_params(deep=False)
    probe = type(estimator)(**parameters)
    # Copies are made without the full model, which may be large, or nothing that can be copied.
    light = _with_fixed_seeds(
        type(estimator)(**{**parameters, "full": None} if "full" in parameters else parameters)
    )
    rows = check_training_rows(probe, X, y, sample_weight, probe.cv, check_seed(light.random_state))
    prices = probe._price_list(rows)
    table_val = Table.of(X_val)
    table_val = table_val.with_numbers(validated(probe, table_val, reset=False))
    rows.task.encode("y_val", y_val, table_val.n_samples)
    full, is_default = None, "full" in parameters and parameters["full"] is None
    reads_numbers = is_default and (known_levels(probe) is not None or has_dates(rows.table))
    everyone = np.arange(table_val.n_samples)
    if reads_numbers:
        rows, table_val = replace(rows, table=rows.table.in_numbers()), table_val.in_numbers()
    if "full" in parameters:
        full = _with_fixed_seeds(light._full() if is_default else parameters["full"])
    if full is not None and prices.full_columns is not None and columns_of(full, prices) is None:
        raise InvalidInputError(
            "a sweep in front of a chain takes no full_features: the chain reads its own columns. Fit the estimator by "
            "itself, or leave full_features out."
        )
    return _Shared(
        light,
        full,
        rows if full is None else rows.with_columns(prices.full_columns),
        prices,
        table_val.part(everyone, prices.full_columns).native,
        table_val.block(everyone, prices.read_by_full),
        bool(reads_numbers),
    )


def _with_fixed_seeds(model: Any) -> Any:
    """A copy of an estimator in which every ``random_state`` that is None is 0: a sweep must be repeatable."""
    if not is_estimator(model) or isinstance(model, FrozenEstimator):
        return model
    unset = [
        name
        for name, value in model.get_params(deep=True).items()
        if name.split("__")[-1] == "random_state" and value is None
    ]
    return clone(model).set_params(**dict.fromkeys(unset, 0))


def _check_estimator(estimator: Any) -> None:
    if not isinstance(estimator, ChainEstimator):
        shown = f"the class {estimator.__name__}" if isinstance(estimator, type) else type(estimator).__name__
        raise InvalidInputError(
            f"a sweep fits copies of an estimator of thrifty, such as BudgetedClassifier(full); got {shown}."
        )
    if not isinstance(estimator.random_state, Integral | None):
        raise InvalidInputError(
            f"random_state is a {type(estimator.random_state).__name__}, from which every fit draws other numbers, "
            f"and a sweep must be repeatable. Give an int."
        )


def _cross_fit(
    key: str,  # noqa: ARG001 - cache key of the call
    shared: _Shared,
    full_val: ArrayLike | None,
    n_jobs: int | None,
) -> tuple[FullModel, _Answers]:
    """The full model, and its outputs: on the training rows out of fold, and on the validation rows."""
    rows, prices, numbers_val = shared.rows, shared.prices, shared.numbers_val
    is_array = not (is_estimator(shared.full) or callable(shared.full) or hasattr(shared.full, "outputs"))
    if is_array and full_val is None:
        raise InvalidInputError(
            f"full holds probabilities for the training rows only; a sweep also needs the full model's on the "
            f"{numbers_val.shape[0]} validation rows. Give them as full_val, or a model that can compute them."
        )
    unwrap_chain(shared.full, prices, rows.task)
    cross_fitted = cross_fit_full(shared.full, rows, n_jobs=n_jobs)
    model = cross_fitted.model
    if isinstance(model, EstimatorFull) and shared.reads_numbers:
        model = replace(model, reads_numbers=True)
    unwrap_chain(model, prices, rows.task)
    train = PrecomputedFull(cross_fitted.outputs, fingerprints(rows.X, exact=True))
    if is_array:
        val = models_of(rows.task).read_outputs(full_val, numbers_val.shape[0], "full_val")
        both = PrecomputedFull(
            np.concatenate([train.values, val]),
            np.concatenate([train.keys, fingerprints(numbers_val, exact=True)]),
        )
        return both, _Answers(train, val)
    with renumber_rows_in_errors(table="X_val"):
        val = ask_model(_innermost(model), rows.task, shared.table_val, numbers_val)
    chain = chain_behind(model)
    return model, _Answers(train, val, None if chain is None else chain.with_innermost(AbsentFull()))


def _innermost(model: FullModel) -> FullModel:
    """The full model at the end of a chain; a model that is not a chain itself."""
    chain = chain_behind(model)
    return model if chain is None else chain.innermost


def _with_seen(cell: Cell, rows: Any) -> Cell:
    """The cell, whose evidence knows the rows that a system behind the stages was fitted on, too."""
    evidence = cell.evidence
    if rows is None:
        return cell
    seen = rows if evidence.seen is None else np.union1d(rows, evidence.seen)
    return replace(cell, evidence=replace(evidence, seen=seen))


# -- fits --------------------------------------------------------------------------------------------


def _fit_series(cache: Any, key: str, cells: Mapping[int, Planned], *shared: Any) -> dict[int, Cell]:
    """Fit cells one after the other, each from the solution of the one before."""
    finished: dict[int, Cell] = {}
    fit, before = cache.cache(_fit_cell, ignore=["shared"]), None
    for number, (estimator, settings) in cells.items():
        start = None if before is None else _weights_of(before)
        try:
            # Filters belong to a whole process: threads leave them to the one that started them.
            with _quiet() if multiprocessing.parent_process() is not None else nullcontext():
                finished[number] = fit(key, estimator, settings, start, shared)
        except Exception as error:
            raise InvalidInputError(
                f"the cell {settings} failed: {type(error).__name__}: {error} What was fitted before it is kept if "
                f"memory is given."
            ) from error
        before = finished[number].fitted
    return finished


def _fit_cell(
    key: str,  # noqa: ARG001 - cache key of the shared tables
    estimator: Any,
    settings: dict[str, Any],
    start: tuple[Floats, Floats] | None,
    shared: tuple[Any, ...],
) -> Cell:
    """Fit one cell and score the validation rows."""
    answers, X, y, sample_weight, X_val, y_val = shared
    parameters = estimator.get_params(deep=False)
    for_now: dict[str, Any] = {"n_jobs": 1} if "n_jobs" in parameters else {}
    if start is not None:
        for_now["options__init"] = start
    behind = {} if answers is None else {"full": answers}
    began = time.perf_counter()
    fitted = clone(estimator).set_params(**for_now, **behind).fit(X, y, sample_weight=sample_weight)
    seconds = time.perf_counter() - began
    with limited_threads(openmp=1, blas=1):
        outputs = None if answers is None else answers.val
        evidence = evidence_of(fitted, X_val, y_val, settings=settings, full_probability=outputs)
    changed = {name.split("__")[0] for name in (*for_now, *behind)}
    fitted.set_params(**{name: parameters[name] for name in changed})
    if answers is not None:
        fitted._change_chain(lambda chain: chain.with_innermost(AbsentFull()))
    # Operating points are evaluated on the validation rows from here on.
    del fitted.evidence_
    return Cell(settings, fitted, evidence, seconds)


def _weights_of(fitted: Any) -> tuple[Floats, Floats]:
    """Weights of the gate and of the cheap model, each with its intercept behind it."""
    return (
        np.append(fitted.gate_coef_, fitted.gate_intercept_),
        np.column_stack([np.atleast_2d(fitted.cheap_coef_), np.atleast_1d(fitted.cheap_intercept_)]),
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """No warnings of single fits: settings are compared converged or not, and behind one full model."""
    with warnings.catch_warnings():
        for category in (ConvergenceWarning, OptimisticFullModelWarning, FullModelNotWorthItWarning):
            warnings.simplefilter("ignore", category)
        yield


# -- caching -----------------------------------------------------------------------------------------


def _cache_key(*shared: Any) -> str:
    """Hash of everything that a cell depends on besides its estimator."""
    try:
        return str(joblib.hash((code_version(), shared)))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InvalidInputError(
            f"memory needs a full model and prices that can be pickled: {error}. Give a function of a module in place "
            f"of a local one, or memory=None."
        ) from error


@functools.cache
def code_version() -> str:
    """Version of thrifty, hash of its sources, and versions of the libraries that decide the last digit."""
    root = Path(__file__).resolve().parents[2]
    sources = joblib.hash(
        [(str(path.relative_to(root)), path.read_bytes()) for path in sorted(root.rglob("*.py"))]
    )
    libraries = {name: version(name) for name in ("numpy", "scipy", "scikit-learn", "numba")}
    return f"thrifty {__version__} {sources} {libraries}"
