"""f0 in a sweep: judged once, its answers kept, and made again only where somebody wants to ask it more.

Every cell learns from f0's probabilities on the training rows and is scored with those on the validation rows. Both are
arrays, so f0 itself never travels to a worker, and a resumed sweep asks it nothing.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.frozen import FrozenEstimator
from sklearn.utils import _safe_indexing

from thrifty.arrays import Floats
from thrifty.bundle import from_bytes, to_bytes
from thrifty.chain.system import GatedSystem
from thrifty.exceptions import InvalidInputError
from thrifty.full.crossfit import fit_copy, judge_full
from thrifty.full.model import (
    AbsentFull,
    EstimatorFull,
    FullModel,
    PrecomputedFull,
    as_full_model,
    is_estimator,
)
from thrifty.sweeping import identity
from thrifty.sweeping.problem import Problem
from thrifty.sweeping.records import Answers

__all__ = ["KnownChain", "identity_of_full", "innermost", "judge_once", "known_full", "remake_full"]


_PROBES = 50
_SAME = 1e-9


@dataclass(frozen=True)
class KnownChain:
    """A chain of stages as f0, whose answers on the training rows are known: its own f0 is not needed.

    Attributes
    ----------
    answers : PrecomputedFull
        Probabilities on the training rows.
    system_ : GatedSystem
        The chain, which says what a row pays that is sent on.
    """

    answers: PrecomputedFull
    system_: GatedSystem

    @property
    def estimator(self) -> "KnownChain":
        """Whatever has a ``system_`` is a chain."""
        return self

    def probability(self, table: Any, rows: NDArray[np.intp], n_batch: int) -> Floats:
        """Look the rows up by position."""
        return self.answers.probability(table, rows, n_batch)


def identity_of_full(problem: Problem, full_val: ArrayLike | None) -> Any:
    """What tells this f0 from another, without fitting it.

    A recipe is known by its class and parameters, a fitted model by its answers on the validation rows, a
    function, which may cost money to ask, by its name and its answers on fifty of them, a chain of stages also by
    the ways that rows take through it.
    """
    full = problem.full
    if full is None:
        return "none"
    if _is_recipe(full):
        return {"recipe": identity.describe(full, "full")}
    model = _fitted_elsewhere(problem)
    if isinstance(model, PrecomputedFull):
        return {"probabilities": identity.digest(model.values, _check_full_val(problem, full_val))}
    if callable(full):
        name = f"{getattr(full, '__module__', '')}.{getattr(full, '__qualname__', type(full).__qualname__)}"
        n_val = len(problem.y_val)
        chosen = np.unique(np.linspace(0, n_val - 1, min(_PROBES, n_val)).astype(np.intp))
        return {"function": name, "answers": identity.digest(_ask(model, problem, chosen))}
    chain = _chain_of(model)
    walks = [chain.walk(chain.reader(X)) for X in (problem.rows.table, problem.table_val)] if chain else []
    routes = [part for walk in walks for part in (walk.route.astype(np.int64), walk.cheap)]
    return {"answers": identity.digest(_ask(innermost(model), problem), *routes)}


def judge_once(problem: Problem, full_val: ArrayLike | None, n_jobs: int | None) -> tuple[Answers, FullModel]:
    """f0's honest probabilities on the training rows, its answers on the validation rows, and f0 itself."""
    rows = problem.rows
    if problem.full is None:
        return Answers(np.full(rows.n_given, 0.5), np.full(len(problem.y_val), 0.5)), AbsentFull()
    judged = judge_full(problem.full, rows, n_jobs=n_jobs)
    model = judged.model
    # A row of weight zero is learned from by nobody; what stands there is never read.
    train = np.full(rows.n_given, 0.5)
    train[rows.positions] = judged.probability
    if isinstance(model, PrecomputedFull):
        return Answers(train, _check_full_val(problem, full_val)), AbsentFull()
    chain = _chain_of(model)
    packed = b"" if chain is None else to_bytes(chain.with_full(AbsentFull()), full="absent")
    return Answers(train, _ask(innermost(model), problem), _calibration(model), packed), model


def known_full(
    train: Floats, chain: bytes, trusted: tuple[str | type, ...] = ()
) -> PrecomputedFull | KnownChain:
    """What a cell is given as f0: its probabilities on the training rows and, if it is one, the chain's bundle."""
    values = PrecomputedFull(train)
    return KnownChain(values, from_bytes(chain, trusted=trusted)) if chain else values


def remake_full(problem: Problem, answers: Answers) -> FullModel:
    """f0 as it was when it was judged; a recipe is fitted again and must answer as it did."""
    if problem.full is None:
        return AbsentFull()
    slope, intercept = answers.calibration
    if _is_recipe(problem.full):
        everyone = np.arange(len(problem.rows.y))
        model: FullModel = EstimatorFull(fit_copy(problem.full, problem.rows, everyone), slope, intercept)
        if not np.allclose(_ask(innermost(model), problem), answers.val, rtol=0.0, atol=_SAME):
            raise InvalidInputError(
                f"full, a {type(problem.full).__name__}, answers differently when it is fitted again, so it is not the "
                f"f0 that this sweep was made with. Fit it once and give FrozenEstimator(full)."
            )
        return model
    model = _fitted_elsewhere(problem)
    if isinstance(model, PrecomputedFull):
        return AbsentFull()
    return replace(model, slope=slope, intercept=intercept) if isinstance(model, EstimatorFull) else model


def innermost(model: FullModel) -> FullModel:
    """The f0 at the end of the chain that the model is; the model itself if it is none."""
    chain = _chain_of(model)
    return model if chain is None else chain.full


def _is_recipe(full: Any) -> bool:
    return is_estimator(full) and not isinstance(full, FrozenEstimator)


def _fitted_elsewhere(problem: Problem) -> FullModel:
    rows = problem.rows
    return as_full_model(
        problem.full, rows.classes, rows.X.shape[1], names=getattr(rows.table, "columns", None)
    )


def _chain_of(model: FullModel) -> GatedSystem | None:
    inner = getattr(getattr(model, "estimator", None), "system_", model)
    return inner if isinstance(inner, GatedSystem) else None


def _calibration(model: FullModel) -> tuple[float, float]:
    return (model.slope, model.intercept) if isinstance(model, EstimatorFull) else (1.0, 0.0)


def _ask(model: FullModel, problem: Problem, rows: NDArray[np.intp] | None = None) -> Floats:
    table, n_rows = problem.table_val, len(problem.y_val)
    if rows is not None:
        table, n_rows = _safe_indexing(table, rows), len(rows)
    return model.probability(table, np.arange(n_rows), n_rows)


def _check_full_val(problem: Problem, full_val: ArrayLike | None) -> Floats:
    n_val = len(problem.y_val)
    if full_val is None:
        raise InvalidInputError(
            f"full holds probabilities for the training rows only; a sweep also needs f0's on the {n_val} validation "
            f"rows. Give them as full_val, or a model that can compute them."
        )
    model = as_full_model(full_val, problem.rows.classes, problem.rows.X.shape[1])
    if not isinstance(model, PrecomputedFull):
        raise InvalidInputError(
            f"full_val must be an array of probabilities, one per validation row; got {type(full_val).__name__}."
        )
    return model.probability(problem.table_val, np.arange(n_val), n_val)
