"""The small model of a local / remote system, in every form a user has it, or grown here."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator

from thrifty.arrays import Floats, Ints
from thrifty.chain.chain import Chain
from thrifty.chain.stage import CHEAP, ConfidentStage
from thrifty.dynamod.boosted import boost_jointly, boost_labels
from thrifty.errors import InvalidInputError
from thrifty.full.crossfit import TrainingRows, fit_copy, judge_full
from thrifty.full.model import EstimatorFull, is_estimator
from thrifty.tasks.labels import class_task
from thrifty.tasks.task import Task
from thrifty.trees import Binner
from thrifty.trees.boosting import Boosting
from thrifty.trees.foreign import AdditiveTrees, additive_trees

__all__ = ["LocalTrees", "as_local", "bare", "given_trees", "grow_local", "trees_without"]


@dataclass(frozen=True)
class LocalTrees:
    """A small model and its scores on the training rows, out of fold wherever we fitted a copy for that."""

    model: AdditiveTrees
    held_out: Floats


def bare(local: Any) -> Any:
    """The model itself, out of the ``FrozenEstimator`` that says it stands as it is."""
    return local.estimator if isinstance(local, FrozenEstimator) else local


def given_trees(local: Any, n_features: int) -> AdditiveTrees | None:
    """Trees that were fitted elsewhere, checked; None for a recipe, which has none yet."""
    is_recipe = local is None or (is_estimator(local) and not isinstance(local, FrozenEstimator))
    return None if is_recipe else _trees_of(bare(local), n_features)


def as_local(local: Any, rows: TrainingRows, *, n_jobs: int | None = None) -> LocalTrees:
    """The user's small model: as it stands, or, if it is a recipe, fitted and cross-fitted."""
    n_features = rows.X.shape[1]
    given = given_trees(local, n_features)
    if given is not None:
        _check_scores(given, bare(local), rows.task)
        return _with_log_odds(LocalTrees(given, given.scores(rows.X)), rows)
    judged = judge_full(local, rows, n_jobs=n_jobs, name="the local model")
    assert isinstance(judged.model, EstimatorFull)  # what becomes of a recipe
    fitted = _trees_of(judged.model.estimator, n_features)
    _check_scores(fitted, judged.model.estimator, rows.task)
    # Of two classes a forest has the probability of the second, of several that of each.
    held_out = judged.outputs[:, -rows.task.n_scores :] if fitted.are_probabilities else judged.scores
    return _with_log_odds(LocalTrees(fitted, held_out), rows)


def trees_without(local: Any, rows: TrainingRows, train: Ints) -> AdditiveTrees:
    """The user's small model fitted on some of the rows; as it stands, if it was fitted elsewhere."""
    given = given_trees(local, rows.X.shape[1])
    if given is None:
        given = _trees_of(fit_copy(local, rows, train), rows.X.shape[1])
    part = rows.take(train)
    return _with_log_odds(LocalTrees(given, given.scores(part.X)), part).model


def _check_scores(found: AdditiveTrees, model: Any, task: Task) -> None:
    if found.trees.n_outputs != task.n_scores:
        n_classes = found.trees.n_outputs if found.trees.n_outputs > 1 else 2
        raise InvalidInputError(
            f"the local model {type(model).__name__} answers with one of {n_classes} classes; y holds "
            f"{len(task.classes)}. Fit it on rows of all of them."
        )


def _with_log_odds(local: LocalTrees, rows: TrainingRows) -> LocalTrees:
    """Scores on the scale of log-odds: a sum of probabilities is stretched and shifted, as any decision values are."""
    if not local.model.are_probabilities:
        return local
    task = rows.task
    calibration = task.calibrate(local.held_out, rows.y, rows.weight)
    shift, end = (task.calibrated(np.full((1, task.n_scores), value), calibration)[0] for value in (0.0, 1.0))
    return LocalTrees(local.model.rescaled(end - shift, shift), task.calibrated(local.held_out, calibration))


def grow_local(
    boosting: Boosting, rows: TrainingRows, full: Floats, labels: Floats, gate_weight: float
) -> LocalTrees:
    """Grow the small model for f1 and the gate at once.

    What sending a row on gains is ``P(f0 right) - P(f1 right)``: nothing where both answer alike, and where they do
    not, as much as the label, soft or hard, speaks for f0. It needs an f1, so trees for f1 alone come first.
    """
    table = Binner().fit_transform(rows.X, rows.weight)
    alone, loss = np.ones(len(rows.y)), rows.task.loss(rows.y)
    trees, base = boost_labels(boosting, boosting.grower(table), loss, rows.weight, alone)
    if gate_weight > 0.0:
        f1 = base + trees.predict_binned(table)
        gain = class_task(rows.task).gain_of(full, f1, labels)
        both, bases = boost_jointly(boosting, boosting.grower(table), loss, gain, gate_weight, rows.weight)
        trees, base = replace(both, values=both.values[:, CHEAP]), bases[CHEAP]
    model = AdditiveTrees(trees, base)
    return LocalTrees(model, model.scores(rows.X))


def _trees_of(model: Any, n_features: int) -> AdditiveTrees:
    """Trees of another library, or of an estimator of ours that answers with trees."""
    chain = getattr(model, "chain_", None)
    stage = chain.stages[0] if isinstance(chain, Chain) and chain.stages else None
    if not isinstance(chain, Chain) or not isinstance(stage, ConfidentStage):
        return additive_trees(model, n_features)
    feature = np.asarray(stage.columns, dtype=np.int32)[stage.cheap.feature]
    trees = replace(stage.cheap, n_features=chain.price_list.n_features, feature=feature)
    return additive_trees(AdditiveTrees(trees, stage.base), n_features)
