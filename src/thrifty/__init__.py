"""thrifty answers most inputs with a cheap model and pays for the expensive one only where it matters."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from thrifty._moved import find_moved_modules
from thrifty._version import __version__ as __version__

if TYPE_CHECKING:
    from thrifty.auditing.audit import Audit as Audit
    from thrifty.auditing.audit import audit as audit
    from thrifty.bundle.save_load import load as load
    from thrifty.bundle.save_load import save as save
    from thrifty.device.export import export as export
    from thrifty.engine.evidence.budgets import hold_budget as hold_budget
    from thrifty.engine.evidence.certificate import Certificate as Certificate
    from thrifty.engine.evidence.certificate import certify as certify
    from thrifty.engine.evidence.collect import evidence_of as evidence_of
    from thrifty.engine.evidence.collect import point_of as point_of
    from thrifty.engine.evidence.evidence import Evidence as Evidence
    from thrifty.engine.evidence.frontier import Frontier as Frontier
    from thrifty.engine.prices.prices import Prices as Prices
    from thrifty.engine.purchases.readers import Delivery as Delivery
    from thrifty.engine.purchases.receipt_table import Receipts as Receipts
    from thrifty.engine.purchases.receipts import Receipt as Receipt
    from thrifty.engine.purchases.sources import DictSource as DictSource
    from thrifty.engine.purchases.sources import HttpSource as HttpSource
    from thrifty.engine.purchases.sources import SqlSource as SqlSource
    from thrifty.engine.walk.chain import Chain as Chain
    from thrifty.engine.walk.policy import Policy as Policy
    from thrifty.engine.walk.session import Session as Session
    from thrifty.learners.cascade.estimators import BudgetedClassifier as BudgetedClassifier
    from thrifty.learners.cascade.estimators import BudgetedRanker as BudgetedRanker
    from thrifty.learners.cascade.estimators import BudgetedRegressor as BudgetedRegressor
    from thrifty.learners.cascade.estimators import StageOptions as StageOptions
    from thrifty.learners.dynamod.boosted import DynaModGbrtClassifier as DynaModGbrtClassifier
    from thrifty.learners.dynamod.boosted import DynaModGbrtRegressor as DynaModGbrtRegressor
    from thrifty.learners.dynamod.confidence import ConfidenceRouter as ConfidenceRouter
    from thrifty.learners.dynamod.leaf import DynaModLstsqClassifier as DynaModLstsqClassifier
    from thrifty.learners.dynamod.linear import DynaModLinClassifier as DynaModLinClassifier
    from thrifty.learners.dynamod.sweep import sweep as sweep
    from thrifty.learners.routing.model_cascade import CascadeClassifier as CascadeClassifier
    from thrifty.learners.routing.model_cascade import CascadeRegressor as CascadeRegressor
    from thrifty.learners.routing.router import ModelRouter as ModelRouter
    from thrifty.learners.table_fit import fit_table as fit_table
    from thrifty.reporting.page import report as report

# Modules are imported when one of their names is first used: `thrifty --help` answers without scikit-learn.
_NAMES_OF = {
    "auditing.audit": "Audit audit",
    "bundle.save_load": "load save",
    "device.export": "export",
    "engine.evidence.budgets": "hold_budget",
    "engine.evidence.certificate": "Certificate certify",
    "engine.evidence.collect": "evidence_of point_of",
    "engine.evidence.evidence": "Evidence",
    "engine.evidence.frontier": "Frontier",
    "engine.prices.prices": "Prices",
    "engine.purchases.readers": "Delivery",
    "engine.purchases.receipt_table": "Receipts",
    "engine.purchases.receipts": "Receipt",
    "engine.purchases.sources": "DictSource HttpSource SqlSource",
    "engine.walk.chain": "Chain",
    "engine.walk.policy": "Policy",
    "engine.walk.session": "Session",
    "learners.cascade.estimators": "BudgetedClassifier BudgetedRanker BudgetedRegressor StageOptions",
    "learners.dynamod.boosted": "DynaModGbrtClassifier DynaModGbrtRegressor",
    "learners.dynamod.leaf": "DynaModLstsqClassifier",
    "learners.dynamod.linear": "DynaModLinClassifier",
    "learners.dynamod.sweep": "sweep",
    "learners.dynamod.confidence": "ConfidenceRouter",
    "learners.routing.model_cascade": "CascadeClassifier CascadeRegressor",
    "learners.routing.router": "ModelRouter",
    "learners.table_fit": "fit_table",
    "reporting.page": "report",
}
_HOME = {name: module for module, names in _NAMES_OF.items() for name in names.split()}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'thrifty' has no attribute {name!r}")
    value = getattr(import_module(f"thrifty.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


find_moved_modules()
