"""thrifty answers most inputs with a cheap model and pays for the expensive one only where it matters."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thrifty.baselines.greedy_l1 import GreedyL1Classifier
    from thrifty.baselines.greedy_miser import GreedyMiserClassifier
    from thrifty.baselines.routers import ConfidenceRouter, UniformRouter
    from thrifty.bundle.whole import load, save
    from thrifty.estimators.dynamod_gbrt import DynaModGbrtClassifier
    from thrifty.estimators.dynamod_lin import DynaModLinClassifier
    from thrifty.exceptions import (
        DataUnavailableError,
        InvalidInputError,
        OptimisticFullModelWarning,
        ThriftyError,
    )
    from thrifty.sweeping.run import sweep
    from thrifty.system import GatedSystem, Stage

__version__ = "0.1.0"

__all__ = [
    "ConfidenceRouter",
    "DataUnavailableError",
    "DynaModGbrtClassifier",
    "DynaModLinClassifier",
    "GatedSystem",
    "GreedyL1Classifier",
    "GreedyMiserClassifier",
    "InvalidInputError",
    "OptimisticFullModelWarning",
    "Stage",
    "ThriftyError",
    "UniformRouter",
    "load",
    "save",
    "sweep",
]

# Names are looked up when they are first used: the command line answers `--help` without loading scikit-learn.
_HOME = {
    "ConfidenceRouter": "baselines.routers",
    "DataUnavailableError": "exceptions",
    "DynaModGbrtClassifier": "estimators.dynamod_gbrt",
    "DynaModLinClassifier": "estimators.dynamod_lin",
    "GatedSystem": "system",
    "GreedyL1Classifier": "baselines.greedy_l1",
    "GreedyMiserClassifier": "baselines.greedy_miser",
    "InvalidInputError": "exceptions",
    "OptimisticFullModelWarning": "exceptions",
    "Stage": "system",
    "ThriftyError": "exceptions",
    "UniformRouter": "baselines.routers",
    "load": "bundle.whole",
    "save": "bundle.whole",
    "sweep": "sweeping.run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'thrifty' has no attribute {name!r}")
    value = getattr(import_module(f"thrifty.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
