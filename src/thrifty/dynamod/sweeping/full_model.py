"""The full model of a sweep: judged once, its answers kept, and made again only where somebody wants to ask it more.

Every cell learns from the full model's outputs on the training rows and is scored with those on the validation rows.
Both are arrays, so the full model itself never travels to a worker, and a resumed sweep asks it nothing.
"""

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.frozen import FrozenEstimator
from sklearn.utils import _safe_indexing

from thrifty.arrays import Bools, Floats, Words
from thrifty.bundle import from_bytes, to_bytes
from thrifty.chain.chain import Chain
from thrifty.chain.columns import as_numbers
from thrifty.chain.walk import Walk
from thrifty.dynamod.sweeping import identity
from thrifty.dynamod.sweeping.shared import Shared
from thrifty.dynamod.sweeping.store import damaged, pack_record, unpack_record
from thrifty.errors import InvalidInputError, asking
from thrifty.estimators.base import link_of
from thrifty.full.crossfit import fit_copy, judge_full
from thrifty.full.model import (
    BuysByRow,
    EstimatorFull,
    FullModel,
    PrecomputedFull,
    as_full_model,
    ask_model,
    is_estimator,
)
from thrifty.rows import fingerprints

__all__ = ["Answers", "identity_of_full", "innermost", "judge_once", "known_full", "remake_full"]

_PROBES = 50
_SAME = 1e-9


@dataclass(frozen=True, eq=False)
class Answers:
    """What the full model says, asked once for the whole sweep.

    Attributes
    ----------
    train : ndarray of shape (n_samples, n_outputs)
        Outputs on the training rows that count, out of fold wherever the full model was fitted here.
    val : ndarray of shape (n_val, n_outputs)
        Outputs on the validation rows; those of the innermost full model where it is a chain.
    train_keys, val_keys : ndarray of shape (n_samples,) and (n_val,)
        Fingerprints of these rows, with the columns that the full model reads.
    calibration : ndarray, optional
        What makes outputs of what an estimator says, where it needs that.
    bought : ndarray of shape (n_samples + n_val, n_columns), optional
        Where the full model does not read the same columns of every row: those that it reads of each.
    chain : ndarray of bytes, optional
        If the full model is itself a chain, the bundle of that chain without its own full model.
    """

    train: Floats
    val: Floats
    train_keys: Words
    val_keys: Words
    calibration: Floats | None = None
    bought: Bools | None = None
    chain: Any = None

    KEY: ClassVar[str] = "the full model"

    def to_bytes(self) -> bytes:
        """The answers as one record."""
        found = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return pack_record(self.KEY, {name: value for name, value in found.items() if value is not None})

    @classmethod
    def from_bytes(cls, record: bytes) -> Self:
        """The answers that ``to_bytes`` wrote."""
        _, arrays = unpack_record(cls.KEY, record)
        try:
            return cls(**arrays)
        except TypeError as error:
            raise damaged(cls.KEY, error) from error

    @property
    def everywhere(self) -> PrecomputedFull:
        """Outputs on the training rows and on the validation rows."""
        keys = np.concatenate([self.train_keys, self.val_keys])
        return PrecomputedFull(np.concatenate([self.train, self.val]), keys)


# -- judging ---------------------------------------------------------------------------------------


def identity_of_full(shared: Shared, full_val: ArrayLike | None) -> Any:
    """What tells this full model from another, without fitting it.

    A recipe is known by its class and parameters, a fitted model by its answers on the validation rows, a
    function, which may cost money to ask, by its name and its answers on fifty of them, a chain of stages also by
    the ways that rows take through it.
    """
    full = shared.full
    if full is None:
        return "none"
    if _is_recipe(full):
        return {"recipe": identity.describe(full, "full")}
    if _is_array(full):
        values = shared.rows.task.read_outputs(full, None, "full")
        return {"probabilities": identity.digest(values, _check_full_val(shared, full_val))}
    model = _fitted_elsewhere(shared)
    if callable(full):
        name = f"{getattr(full, '__module__', '')}.{getattr(full, '__qualname__', type(full).__qualname__)}"
        n_val = len(shared.y_val)
        chosen = np.unique(np.linspace(0, n_val - 1, min(_PROBES, n_val)).astype(np.intp))
        table, numbers = _safe_indexing(shared.table_val, chosen), shared.numbers_val[chosen]
        with asking(table="X_val"):
            answers = ask_model(model, shared.rows.task, table, numbers, rows=chosen)
        return {"function": name, "answers": identity.digest(answers)}
    tables = (shared.rows.table, shared.table_val)
    ways = [part for table in tables for part in _ways(chain_of_full(model), table)]
    return {"answers": identity.digest(_on_validation_rows(model, shared), *ways)}


def judge_once(shared: Shared, full_val: ArrayLike | None, n_jobs: int | None) -> tuple[Answers, FullModel]:
    """The full model's honest outputs on the training rows, its outputs on the validation rows, and itself."""
    rows, prices = shared.rows, shared.price_list
    link_of(shared.full, prices, rows.task)
    judged = judge_full(shared.full, rows, n_jobs=n_jobs)
    model = judged.model
    if isinstance(model, EstimatorFull) and shared.reads_numbers:
        model = replace(model, reads_numbers=True)
    link_of(model, prices, rows.task)
    keys = fingerprints(rows.X, exact=True), fingerprints(shared.numbers_val, exact=True)
    if _is_array(shared.full):
        answers = Answers(judged.outputs, _check_full_val(shared, full_val), *keys)
        return answers, answers.everywhere
    chain, buyer = chain_of_full(model), _asked(innermost(model))
    packed = None if chain is None else to_bytes(chain, full="absent", evidence=False)
    bought = None
    if isinstance(buyer, BuysByRow):
        bought = np.concatenate([buyer.bought(rows.table), buyer.bought(shared.table_val)])
    answers = Answers(
        judged.outputs,
        _on_validation_rows(model, shared),
        *keys,
        calibration=getattr(model, "calibration", None),
        bought=bought,
        chain=None if packed is None else np.frombuffer(packed, np.uint8),
    )
    return answers, model


def remake_full(shared: Shared, answers: Answers) -> FullModel:
    """The full model as it was when it was judged; a recipe is fitted again and must answer as it did."""
    rows = shared.rows
    if _is_recipe(shared.full):
        fitted = fit_copy(shared.full, rows, np.arange(len(rows.y)))
        model: FullModel = EstimatorFull(
            fitted, rows.task, answers.calibration, reads_numbers=shared.reads_numbers
        )
        if not np.allclose(_on_validation_rows(model, shared), answers.val, rtol=0.0, atol=_SAME):
            raise InvalidInputError(
                f"full, a {type(shared.full).__name__}, answers differently when it is fitted again, so it is not the "
                f"full model that this sweep was made with. Fit it once and give FrozenEstimator(full)."
            )
        return model
    if _is_array(shared.full):
        return answers.everywhere
    model = _fitted_elsewhere(shared)
    return replace(model, calibration=answers.calibration) if isinstance(model, EstimatorFull) else model


def chain_of_full(model: FullModel) -> Chain | None:
    """The chain that a full model is, if it is one."""
    found = getattr(_asked(model), "chain_", model)
    return found if isinstance(found, Chain) else None


def innermost(model: FullModel) -> FullModel:
    """The full model at the end of the chain that the model is; the model itself if it is none."""
    chain = chain_of_full(model)
    return model if chain is None else chain.innermost


# -- in the place of the full model ------------------------------------------------------------------


def known_full(answers: Answers, trusted: tuple[str | type, ...] = ()) -> FullModel:
    """What a cell is given as its full model: outputs of known rows, with the stages and purchases behind them."""
    known = PrecomputedFull(answers.train, answers.train_keys)
    buyer = None if answers.bought is None else KnownBuyer(answers.everywhere, answers.bought)
    if answers.chain is None:
        return known if buyer is None else buyer
    return KnownChain(known, from_bytes(answers.chain.tobytes(), full=buyer, trusted=trusted))


@dataclass(frozen=True)
class KnownChain:
    """A chain, which says what a row pays that is sent on, and its answers on the training rows."""

    answers: PrecomputedFull
    chain_: Chain

    def outputs(self, table: Any, numbers: Any) -> Floats:
        """Look the rows up."""
        return self.answers.outputs(table, numbers)


@dataclass(frozen=True)
class KnownBuyer:
    """Answers of a full model that does not read the same columns of every row, and the columns that it reads."""

    answers: PrecomputedFull
    columns: Bools

    def outputs(self, table: Any, numbers: Any) -> Floats:
        """Look the rows up."""
        return self.answers.outputs(table, numbers)

    def bought(self, X: Any) -> Bools:
        """Columns that each row is asked for."""
        known = PrecomputedFull(self.columns.astype(np.float64), self.answers.keys)
        return known.outputs(X, as_numbers(X)) > 0


# -- helpers ---------------------------------------------------------------------------------------


def _is_recipe(full: Any) -> bool:
    return is_estimator(full) and not isinstance(full, FrozenEstimator)


def _is_array(full: Any) -> bool:
    """Whether these are probabilities that were computed beforehand."""
    return not (is_estimator(full) or callable(full) or hasattr(full, "outputs"))


def _fitted_elsewhere(shared: Shared) -> FullModel:
    rows = shared.rows
    return as_full_model(shared.full, rows.task, rows.X.shape[1], names=getattr(rows.table, "columns", None))


def _asked(model: FullModel) -> Any:
    """Whoever answers: an estimator, or the model itself."""
    return model.estimator if isinstance(model, EstimatorFull) else model


def _on_validation_rows(model: FullModel, shared: Shared) -> Floats:
    with asking(table="X_val"):
        return ask_model(innermost(model), shared.rows.task, shared.table_val, shared.numbers_val)


def _ways(chain: Chain | None, table: Any) -> list[Any]:
    """The route of each row through a chain, what the last stage said that it visited, and how that is blended."""
    if chain is None:
        return []
    walk: Walk | None = chain.walk(chain.reader(table))
    parts: list[Any] = []
    while chain is not None and walk is not None:
        parts += [walk.route.astype(np.int64), walk.scores, () if chain.blend is None else chain.blend]
        chain, walk = chain.behind, walk.behind
    return parts


def _check_full_val(shared: Shared, full_val: ArrayLike | None) -> Floats:
    n_val = len(shared.y_val)
    if full_val is None:
        raise InvalidInputError(
            f"full holds probabilities for the training rows only; a sweep also needs the full model's on the {n_val} "
            f"validation rows. Give them as full_val, or a model that can compute them."
        )
    outputs: Floats = shared.rows.task.read_outputs(full_val, n_val, "full_val")
    return outputs
