"""Full models (f0) in a file: stored as arrays, or left outside and recognised by a fingerprint of their answers.

Trees, linear models, support vector machines and precomputed outputs are stored. Of any other model the file has the
name of its class and its answers to synthetic rows: the caller of ``load`` gives the model again, and another one is
refused. A function, or an estimator of another library, is never written.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from thrifty.arrays import Floats
from thrifty.engine.full.adapters import models_of
from thrifty.engine.full.model import AbsentFull, EstimatorFull, FullModel, PrecomputedFull, as_full_model
from thrifty.engine.full.stored import N_PROBES, StoredModel, probe_table, stored_model_of
from thrifty.engine.table.columns import Levels
from thrifty.engine.table.reader import Schema
from thrifty.engine.tasks.task import Task
from thrifty.engine.walk.chain import Chain
from thrifty.errors import InvalidInputError
from thrifty.learners.estimators.base import ChainEstimator, unwrap_chain
from thrifty.learners.routing.model_cascade import ModelCascade, lacking_models

FullMode = Literal["inside", "outside", "absent"]

TOLERANCE = 1e-6
"""Relative tolerance of answers, for rounding that differs by machine."""


def as_stored(full: EstimatorFull) -> EstimatorFull | None:
    """Fitted estimator of thrifty, or another one as arrays; None if it has no form in a file."""
    if isinstance(full.estimator, ChainEstimator):
        return full
    stored = stored_model_of(full.estimator)
    return None if stored is None else replace(full, estimator=stored)


def check_stored(full: EstimatorFull) -> None:
    """Refuse a model of a file that is none, or whose calibration does not suit its task."""
    if not isinstance(full.estimator, StoredModel | ChainEstimator):
        raise InvalidInputError(f"a model in the file must be one; got {type(full.estimator).__name__}.")
    shape = models_of(full.task).no_calibration.shape
    if full.calibration is not None and full.calibration.shape != shape:
        raise InvalidInputError(
            f"calibration of a model in the file must have the shape {shape}; got {full.calibration.shape}."
        )


def full_to_store(chain: Chain, mode: FullMode) -> tuple[Any, str]:
    """Stored form of a chain's full model; or a placeholder and the name of a model that cannot be stored."""
    full = chain.full
    if isinstance(full, Chain):
        return full, ""
    if mode == "absent":
        return AbsentFull(), ""
    if isinstance(full, AbsentFull | PrecomputedFull):
        return full, ""
    if mode == "inside" and type(full) is EstimatorFull:
        saved = as_stored(full)
        if saved is not None:
            return saved, ""
    name = name_of(full)
    return _outside(full, schema_of_full(chain)), name if mode == "inside" else ""


def name_of(model: FullModel) -> str:
    """Name of a model in error messages."""
    inner = getattr(model, "estimator", getattr(model, "function", model))
    return str(getattr(inner, "__qualname__", type(inner).__name__))[:200]


def columns_of_full(chain: Chain) -> tuple[int, tuple[str, ...] | None]:
    """Number of the columns that the full model reads, and their names."""
    columns = chain.price_list.read_by_full
    return len(columns), None if chain.names is None else tuple(chain.names[column] for column in columns)


def schema_of_full(chain: Chain) -> Schema:
    """Schema of the columns that the full model reads."""
    n_features, names = columns_of_full(chain)
    if chain.kind is None or names is None:
        return Schema(None, names or tuple(f"x{column}" for column in range(n_features)))
    columns = chain.price_list.read_by_full.tolist()
    levels = {} if chain.levels is None else chain.levels.of_column
    read = {place: levels[column] for place, column in enumerate(columns) if column in levels}
    types = None if chain.types is None else tuple(chain.types[column] for column in columns)
    return Schema(chain.kind, names, types, Levels(read) if read else None)


def _outside(model: FullModel, schema: Schema) -> AbsentFull:
    """A model that stays outside: its name, and its answers, by which it is recognised."""
    return AbsentFull(name_of(model), _answers(model, schema), getattr(model, "calibration", None))


def _answers(model: FullModel, schema: Schema) -> Floats | None:
    """Answers of a model to synthetic rows; None where it cannot read them."""
    numbers = probe_table(len(schema.names))
    table: Any = numbers
    if schema.kind is not None:
        numbers = _plausible(numbers, schema)
        table = schema.table(numbers, np.arange(len(schema.names)))
    try:
        return np.asarray(model.outputs(table, numbers), dtype=np.float64)
    except Exception:  # models of other libraries raise errors of any type for synthetic rows
        return None


def _plausible(numbers: Floats, frame: Schema) -> Floats:
    """Rows that a model of text and truth values can read: numbers of levels, 0 and 1."""
    numbers = numbers.copy()
    for column, texts in (frame.levels.of_column if frame.levels else {}).items():
        numbers[:, column] = np.floor(np.abs(numbers[:, column])) % len(texts) if texts else np.nan
    for column in range(len(frame.names)):
        if frame.type_of(column).holds == "truth":
            numbers[:, column] = numbers[:, column] > 0
    return numbers


# -- a full model that is given when a file is loaded ----------------------------------------------------


def with_given_full(chain: Chain, full: Any, wrap: Callable[[FullModel], FullModel] | None = None) -> Chain:
    """Chain with the full model that the caller gives, which must be the one that the file names.

    The model is asked through ``wrap(model)``, also about the rows by which it is recognised.
    """
    if isinstance(chain.full, Chain):
        return replace(chain, full=with_given_full(chain.full, full, wrap))
    n_features, names = columns_of_full(chain)
    model, expected = _given(full, chain.full, chain.task, n_features, names, "full")
    link = unwrap_chain(model, chain.price_list, chain.task)
    if wrap is not None:
        link = link.with_innermost(wrap(link.innermost)) if isinstance(link, Chain) else wrap(link)
    if expected is not None:
        _check_same(expected, link, name_of(model), schema_of_full(chain))
    return replace(chain, full=link)


def _given(
    model: Any, former: Any, task: Task, n_features: int, names: tuple[str, ...] | None, who: str
) -> tuple[FullModel, AbsentFull | None]:
    """A model that the caller gives, and the one outside of the file that it must be, if any."""
    try:
        made = as_full_model(model, task, n_features, names=names, who=who)
    except InvalidInputError:
        raise
    except Exception as error:  # a model of another make may fail at any question
        raise InvalidInputError(
            f"the model given as {who} cannot be used: {type(error).__name__}: {str(error)[:100]}."
        ) from error
    expected = former if isinstance(former, AbsentFull) and former.name else None
    if expected is not None and isinstance(made, EstimatorFull):
        made = replace(made, calibration=expected.calibration)
    return made, expected


def _check_same(
    expected: AbsentFull, model: FullModel, name: str, schema: Schema, role: str = "full model"
) -> None:
    if expected.answers is None:
        return
    answers, size = _answers(model, schema), np.maximum(np.abs(expected.answers), 1.0)
    is_same = (
        answers is not None
        and answers.shape == expected.answers.shape
        and bool(np.all(np.abs(answers - expected.answers) <= TOLERANCE * size))
    )
    if not is_same:
        theirs = "none" if answers is None else _shown(answers)
        raise InvalidInputError(
            f"the file was saved with another {role}, a {expected.name}, than the {name} given: asked "
            f"about {N_PROBES} made-up rows it answered {_shown(expected.answers)}, and the one given {theirs}. Give "
            f"the one that it was saved with{', or use with_full to take another' if role == 'full model' else ''}."
        )


# -- estimators of a cascade of models -----------------------------------------------------------------


def models_to_store(cascade: ModelCascade, mode: FullMode) -> tuple[dict[str, Any], list[str]]:
    """Stored forms of the estimators of a cascade, and the names of those that have none."""
    stored: dict[str, Any] = {}
    outside = []
    for name, model in cascade.models_.items():
        inside = as_stored(model) if mode == "inside" and type(model) is EstimatorFull else None
        if inside is not None or isinstance(model, AbsentFull | PrecomputedFull):
            stored[name] = inside or model
            continue
        stored[name] = AbsentFull() if mode == "absent" else _outside(model, cascade.schema_of(name))
        outside.append(name)
    return stored, outside if mode == "inside" else []


def with_given_models(
    cascade: ModelCascade, given: Mapping[str, Any], wrap: Callable[[FullModel], FullModel] | None = None
) -> ModelCascade:
    """Cascade with estimators that the caller gives by name; those that the file names must answer as before.

    Estimators are asked through ``wrap(model)``, also about the rows by which they are recognised.
    """
    models, given = dict(cascade.models_), dict(given)
    unknown = [name for name in given if name not in models]
    if unknown:
        raise InvalidInputError(
            f"estimators names {unknown[0]!r}, and the file holds a cascade of {', '.join(models)}."
        )
    lacking_models(
        [name for name, model in models.items() if isinstance(model, AbsentFull) and name not in given]
    )
    for name, model in given.items():
        schema = cascade.schema_of(name)
        names = schema.names if schema.kind is not None else None
        who = f"the estimator {name!r}"
        made, expected = _given(model, models[name], cascade.task_, len(schema.names), names, who)
        models[name] = made if wrap is None else wrap(made)
        if expected is not None:
            _check_same(expected, models[name], name_of(made), schema, f"estimator {name!r}")
    other = copy.copy(cascade)
    other.models_ = models
    return other


def _shown(answers: Floats) -> str:
    return ", ".join(f"{answer:.4g}" for answer in answers[:3, -1]) + ", ..."
