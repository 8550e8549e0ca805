"""thrifty answers most inputs with a cheap model and pays for the expensive one only where it matters."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thrifty.bundle.whole import load, save
    from thrifty.chain.system import GatedSystem, Stage, Tie
    from thrifty.estimators.budgeted import BudgetedClassifier
    from thrifty.estimators.dynamod_gbrt import DynaModGbrtClassifier
    from thrifty.estimators.dynamod_lin import DynaModLinClassifier
    from thrifty.estimators.dynamod_lstsq import DynaModLstsqClassifier
    from thrifty.estimators.rivals.budget_prune import BudgetPruneClassifier
    from thrifty.estimators.rivals.greedy_l1 import GreedyL1Classifier
    from thrifty.estimators.rivals.greedy_leaf import GreedyLeafClassifier
    from thrifty.estimators.rivals.greedy_miser import GreedyMiserClassifier
    from thrifty.estimators.rivals.routers import ConfidenceRouter, UniformRouter
    from thrifty.evidence.certificate import Certificate, certify
    from thrifty.evidence.frontier import Frontier
    from thrifty.evidence.holding import hold_budget
    from thrifty.evidence.observing import outcomes_of, point_of
    from thrifty.exceptions import (
        DataUnavailableError,
        FullModelNotWorthItWarning,
        InvalidInputError,
        OptimisticFullModelWarning,
        ThriftyError,
    )
    from thrifty.ranking.curve import ranking_curve
    from thrifty.ranking.measures import average_precision_at, ndcg_at
    from thrifty.ranking.queries import Queries
    from thrifty.report.collect import collect_facts
    from thrifty.report.page import write_report
    from thrifty.sweeping.run import sweep

__version__ = "0.1.0"

__all__ = [
    "BudgetPruneClassifier",
    "BudgetedClassifier",
    "Certificate",
    "ConfidenceRouter",
    "DataUnavailableError",
    "DynaModGbrtClassifier",
    "DynaModLinClassifier",
    "DynaModLstsqClassifier",
    "Frontier",
    "FullModelNotWorthItWarning",
    "GatedSystem",
    "GreedyL1Classifier",
    "GreedyLeafClassifier",
    "GreedyMiserClassifier",
    "InvalidInputError",
    "OptimisticFullModelWarning",
    "Queries",
    "Stage",
    "ThriftyError",
    "Tie",
    "UniformRouter",
    "average_precision_at",
    "certify",
    "collect_facts",
    "hold_budget",
    "load",
    "ndcg_at",
    "outcomes_of",
    "point_of",
    "ranking_curve",
    "save",
    "sweep",
    "write_report",
]

# Names are looked up when they are first used: the command line answers `--help` without loading scikit-learn.
_HOME = {
    "BudgetPruneClassifier": "estimators.rivals.budget_prune",
    "BudgetedClassifier": "estimators.budgeted",
    "Certificate": "evidence.certificate",
    "ConfidenceRouter": "estimators.rivals.routers",
    "DataUnavailableError": "exceptions",
    "DynaModGbrtClassifier": "estimators.dynamod_gbrt",
    "DynaModLinClassifier": "estimators.dynamod_lin",
    "DynaModLstsqClassifier": "estimators.dynamod_lstsq",
    "Frontier": "evidence.frontier",
    "FullModelNotWorthItWarning": "exceptions",
    "GatedSystem": "chain.system",
    "GreedyL1Classifier": "estimators.rivals.greedy_l1",
    "GreedyLeafClassifier": "estimators.rivals.greedy_leaf",
    "GreedyMiserClassifier": "estimators.rivals.greedy_miser",
    "InvalidInputError": "exceptions",
    "OptimisticFullModelWarning": "exceptions",
    "Queries": "ranking.queries",
    "Stage": "chain.system",
    "ThriftyError": "exceptions",
    "Tie": "chain.system",
    "UniformRouter": "estimators.rivals.routers",
    "average_precision_at": "ranking.measures",
    "certify": "evidence.certificate",
    "collect_facts": "report.collect",
    "hold_budget": "evidence.holding",
    "load": "bundle.whole",
    "ndcg_at": "ranking.measures",
    "outcomes_of": "evidence.observing",
    "point_of": "evidence.observing",
    "ranking_curve": "ranking.curve",
    "save": "bundle.whole",
    "sweep": "sweeping.run",
    "write_report": "report.page",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'thrifty' has no attribute {name!r}")
    value = getattr(import_module(f"thrifty.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
