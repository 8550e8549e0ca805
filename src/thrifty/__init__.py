"""thrifty answers most inputs with a cheap model and pays for the expensive one only where it matters."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from thrifty._moved import find_moved_modules
from thrifty._version import __version__ as __version__

if TYPE_CHECKING:
    from thrifty.auditing.audit import Audit, audit
    from thrifty.bundle.save_load import load, save
    from thrifty.device.export import export
    from thrifty.engine.evidence.budgets import hold_budget
    from thrifty.engine.evidence.certificate import Certificate, certify
    from thrifty.engine.evidence.collect import evidence_of, point_of
    from thrifty.engine.evidence.evidence import Evidence
    from thrifty.engine.evidence.frontier import Frontier
    from thrifty.engine.prices.prices import Prices
    from thrifty.engine.purchases.readers import Delivery
    from thrifty.engine.purchases.receipts import Receipt
    from thrifty.engine.purchases.sources import DictSource, HttpSource, SqlSource
    from thrifty.engine.walk.chain import Chain
    from thrifty.engine.walk.policy import Policy
    from thrifty.engine.walk.session import Session
    from thrifty.learners.cascade.estimators import (
        BudgetedClassifier,
        BudgetedRanker,
        BudgetedRegressor,
        StageOptions,
    )
    from thrifty.learners.dynamod.gbrt_estimators import DynaModGbrtClassifier, DynaModGbrtRegressor
    from thrifty.learners.dynamod.linear_estimator import DynaModLinClassifier
    from thrifty.learners.dynamod.lstsq_estimator import DynaModLstsqClassifier
    from thrifty.learners.dynamod.sweep import sweep
    from thrifty.learners.routing.confidence import ConfidenceRouter
    from thrifty.learners.routing.router import ModelRouter
    from thrifty.learners.table_fit import fit_table
    from thrifty.reporting.page import report


__all__ = [
    "Audit",
    "BudgetedClassifier",
    "BudgetedRanker",
    "BudgetedRegressor",
    "Certificate",
    "Chain",
    "ConfidenceRouter",
    "Delivery",
    "DictSource",
    "DynaModGbrtClassifier",
    "DynaModGbrtRegressor",
    "DynaModLinClassifier",
    "DynaModLstsqClassifier",
    "Evidence",
    "Frontier",
    "HttpSource",
    "ModelRouter",
    "Policy",
    "Prices",
    "Receipt",
    "Session",
    "SqlSource",
    "StageOptions",
    "audit",
    "certify",
    "evidence_of",
    "export",
    "fit_table",
    "hold_budget",
    "load",
    "point_of",
    "report",
    "save",
    "sweep",
]

# Names are looked up when they are first used: the command line answers `--help` without loading scikit-learn.
_HOME = {
    "Audit": "auditing.audit",
    "BudgetedClassifier": "learners.cascade.estimators",
    "BudgetedRanker": "learners.cascade.estimators",
    "BudgetedRegressor": "learners.cascade.estimators",
    "Certificate": "engine.evidence.certificate",
    "Chain": "engine.walk.chain",
    "ConfidenceRouter": "learners.routing.confidence",
    "Delivery": "engine.purchases.readers",
    "DictSource": "engine.purchases.sources",
    "DynaModGbrtClassifier": "learners.dynamod.gbrt_estimators",
    "DynaModGbrtRegressor": "learners.dynamod.gbrt_estimators",
    "DynaModLinClassifier": "learners.dynamod.linear_estimator",
    "DynaModLstsqClassifier": "learners.dynamod.lstsq_estimator",
    "Evidence": "engine.evidence.evidence",
    "Frontier": "engine.evidence.frontier",
    "HttpSource": "engine.purchases.http",
    "ModelRouter": "learners.routing.router",
    "Policy": "engine.walk.policy",
    "Prices": "engine.prices.prices",
    "Receipt": "engine.purchases.receipts",
    "Session": "engine.walk.session",
    "SqlSource": "engine.purchases.sql",
    "StageOptions": "learners.cascade.estimators",
    "audit": "auditing.audit",
    "certify": "engine.evidence.certificate",
    "evidence_of": "engine.evidence.collect",
    "export": "device.export",
    "fit_table": "learners.table_fit",
    "hold_budget": "engine.evidence.budgets",
    "load": "bundle.save_load",
    "point_of": "engine.evidence.collect",
    "report": "reporting.page",
    "save": "bundle.save_load",
    "sweep": "learners.dynamod.sweep",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'thrifty' has no attribute {name!r}")
    value = getattr(import_module(f"thrifty.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


find_moved_modules()
