"""thrifty answers most inputs with a cheap model and pays for the expensive one only where it matters."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thrifty.auditing.audit import Audit, audit
    from thrifty.bundle.save_load import load, save
    from thrifty.cascade.estimators import BudgetedClassifier, BudgetedRanker, BudgetedRegressor, StageOptions
    from thrifty.chain.chain import Chain
    from thrifty.chain.operating_points import Policy
    from thrifty.chain.purchases import Receipt
    from thrifty.chain.readers import Delivery
    from thrifty.chain.session import Session
    from thrifty.device.export import export
    from thrifty.dynamod.gbrt_estimators import DynaModGbrtClassifier, DynaModGbrtRegressor
    from thrifty.dynamod.linear_estimator import DynaModLinClassifier
    from thrifty.dynamod.lstsq_estimator import DynaModLstsqClassifier
    from thrifty.dynamod.sweep import sweep
    from thrifty.evidence.budgets import hold_budget
    from thrifty.evidence.certificate import Certificate, certify
    from thrifty.evidence.collect import evidence_of, point_of
    from thrifty.evidence.evidence import Evidence
    from thrifty.evidence.frontier import Frontier
    from thrifty.prices.prices import Prices
    from thrifty.reporting.page import report
    from thrifty.routing.confidence import ConfidenceRouter
    from thrifty.routing.router import ModelRouter
    from thrifty.sources import DictSource, HttpSource, SqlSource

__version__ = "0.3.0"

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
    "BudgetedClassifier": "cascade.estimators",
    "BudgetedRanker": "cascade.estimators",
    "BudgetedRegressor": "cascade.estimators",
    "Certificate": "evidence.certificate",
    "Chain": "chain.chain",
    "ConfidenceRouter": "routing.confidence",
    "Delivery": "chain.readers",
    "DictSource": "sources",
    "DynaModGbrtClassifier": "dynamod.gbrt_estimators",
    "DynaModGbrtRegressor": "dynamod.gbrt_estimators",
    "DynaModLinClassifier": "dynamod.linear_estimator",
    "DynaModLstsqClassifier": "dynamod.lstsq_estimator",
    "Evidence": "evidence.evidence",
    "Frontier": "evidence.frontier",
    "HttpSource": "sources",
    "ModelRouter": "routing.router",
    "Policy": "chain.operating_points",
    "Prices": "prices.prices",
    "Receipt": "chain.purchases",
    "Session": "chain.session",
    "SqlSource": "sources",
    "StageOptions": "cascade.estimators",
    "audit": "auditing.audit",
    "certify": "evidence.certificate",
    "evidence_of": "evidence.collect",
    "export": "device.export",
    "hold_budget": "evidence.budgets",
    "load": "bundle.save_load",
    "point_of": "evidence.collect",
    "report": "reporting.page",
    "save": "bundle.save_load",
    "sweep": "dynamod.sweep",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'thrifty' has no attribute {name!r}")
    value = getattr(import_module(f"thrifty.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
