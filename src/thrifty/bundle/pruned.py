"""A pruned forest as JSON and arrays: its trees, prices and labels, and the certificate of the pruning."""

from typing import Any

import numpy as np

from thrifty.bundle.arguments import pack_parameters, unpack_parameters
from thrifty.bundle.column_codec import pack_table, unpack_names, unpack_prices
from thrifty.bundle.context import Reading, Writing
from thrifty.bundle.evidence_codec import unpack_strata
from thrifty.bundle.fields import Fields
from thrifty.bundle.objects import Kind
from thrifty.bundle.task_codec import unpack_classes
from thrifty.dynamod.solution import Solution
from thrifty.errors import InvalidInputError
from thrifty.estimators.rivals.budget_prune import BudgetPruneClassifier
from thrifty.evidence.evidence import Evidence
from thrifty.pruning.closure import Pruning
from thrifty.pruning.forest import PrunedForest
from thrifty.trees import TreeEnsemble

__all__ = ["PRUNED_FOREST"]

_NUMBERS = ("objective", "bound", "loss", "spend")


def pack_pruned(clf: BudgetPruneClassifier, writing: Writing) -> dict[str, Any]:
    """The estimator as JSON."""
    system = getattr(clf, "forest_", None)
    if not isinstance(system, PrunedForest):
        raise InvalidInputError(
            "a BudgetPruneClassifier must be fitted before it is saved; this one is not. Call fit first."
        )
    packer, pruning = writing.packer, clf.solution_.value
    # Files of the first format keep no rows.
    evidence = getattr(clf, "evidence_", None) if writing.evidence else None
    return {
        "table": pack_table(system, packer),
        "trees": packer.ensemble(system.trees),
        "parameters": pack_parameters(clf, writing),
        "kept": packer.array(pruning.kept),
        **{name: packer.value(float(getattr(pruning, name))) for name in _NUMBERS},
        "n_iter": int(clf.solution_.n_iter),
        "converged": bool(clf.solution_.converged),
        "paid": None if evidence is None else packer.floats(evidence.cost[:, 0]),
        "right": None if evidence is None else packer.array(evidence.quality[:, 0]),
        "strata": None if evidence is None or evidence.strata is None else packer.array(evidence.strata),
    }


def unpack_pruned(fields: Fields, reading: Reading) -> BudgetPruneClassifier:  # noqa: ARG001
    """The estimator, every part of it checked."""
    table = fields.inside("table")
    prices, classes = unpack_prices(table), unpack_classes(table)
    system = PrunedForest(
        _trees(fields, prices.n_features, len(classes)),
        prices,
        classes,
        unpack_names(table, prices.n_features),
    )
    clf = BudgetPruneClassifier()
    for name, value in unpack_parameters(fields.inside("parameters"), clf).items():
        setattr(clf, name, value)
    numbers = {name: fields.number(name) for name in _NUMBERS}
    pruning = Pruning(fields.array("kept", np.bool_, (None,)), **numbers)
    solution = Solution(pruning, pruning.gap, fields.whole("n_iter"), fields.flag("converged"))
    clf._serve(system, solution)
    if fields.has("paid") and fields.raw("paid") is not None:
        paid = fields.array("paid", np.float64, (None,))
        right = fields.array("right", np.bool_, (len(paid),))
        features, strata = tuple(clf.features_.tolist()), unpack_strata(fields, len(paid), len(classes))
        nobody = np.zeros(len(paid), dtype=bool)
        clf.evidence_ = Evidence.of_point(paid, right, nobody, features=features, strata=strata)
    return clf


def _trees(fields: Fields, n_features: int, n_classes: int) -> TreeEnsemble:
    """Trees whose leaves hold shares of the classes."""
    trees = fields.ensemble("trees", n_features, n_classes)
    # Sums of finite numbers need not be finite.
    sums = trees.values.sum(axis=1)
    if trees.n_trees < 1 or np.any(trees.values < 0) or np.any(sums <= 0) or not np.isfinite(sums.sum()):
        raise fields.refusal(
            "trees", "be at least one, with shares of the classes in its leaves", trees.n_trees
        )
    return trees


PRUNED_FOREST = Kind("pruned forest", BudgetPruneClassifier, pack_pruned, unpack_pruned)
