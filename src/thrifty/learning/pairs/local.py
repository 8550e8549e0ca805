"""The small model of a local / remote system, in every form a user has it, or grown here."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator

from thrifty.arrays import Floats
from thrifty.chain.chain import Chain
from thrifty.chain.stage import CHEAP, ConfidentStage
from thrifty.full.crossfit import TrainingRows, judge_full
from thrifty.full.model import EstimatorFull, is_estimator
from thrifty.learning.pairs.boosted import Boosting, boost_jointly, boost_labels
from thrifty.tasks.binary import two_classes
from thrifty.trees import Binner
from thrifty.trees.foreign import AdditiveTrees, additive_trees

__all__ = ["LocalTrees", "as_local", "bare", "given_trees", "grow_local"]


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
        return LocalTrees(given, given.margin(rows.X)[:, None])
    judged = judge_full(local, rows, n_jobs=n_jobs, name="the local model")
    assert isinstance(judged.model, EstimatorFull)  # what becomes of a recipe
    return LocalTrees(_trees_of(judged.model.estimator, n_features), judged.scores)


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
        gain = two_classes(rows.task).gain_of(full, f1, labels)
        both, bases = boost_jointly(boosting, boosting.grower(table), loss, gain, gate_weight, rows.weight)
        trees, base = replace(both, values=both.values[:, CHEAP]), bases[CHEAP]
    model = AdditiveTrees(trees, float(base[0]))
    return LocalTrees(model, model.margin(rows.X)[:, None])


def _trees_of(model: Any, n_features: int) -> AdditiveTrees:
    """Trees of another library, or of an estimator of ours that answers with trees."""
    chain = getattr(model, "chain_", None)
    stage = chain.stages[0] if isinstance(chain, Chain) and chain.stages else None
    if not isinstance(chain, Chain) or not isinstance(stage, ConfidentStage):
        return additive_trees(model, n_features)
    feature = np.asarray(stage.columns, dtype=np.int32)[stage.cheap.feature]
    trees = replace(stage.cheap, n_features=chain.price_list.n_features, feature=feature)
    return additive_trees(AdditiveTrees(trees, float(stage.base[0])), n_features)
