"""Import paths and attributes of 0.3 with another name: they work for one more release, with a ``FutureWarning``."""

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from operator import attrgetter
from types import ModuleType
from typing import Any

_MOVED = {
    "thrifty.auditing.columns_read": "thrifty.auditing.audit",
    "thrifty.bundle.signing": "thrifty.bundle.container",
    "thrifty.cascade": "thrifty.learners.cascade",
    "thrifty.chain.explain": "thrifty.engine.walk.chain",
    "thrifty.chain.operating_points": "thrifty.engine.walk.policy",
    "thrifty.chain.purchases": "thrifty.engine.purchases.receipts",
    "thrifty.chain.readers": "thrifty.engine.purchases.readers",
    "thrifty.chain": "thrifty.engine.walk",
    "thrifty.cli.audit": "thrifty.cli.tables",
    "thrifty.cli.route": "thrifty.cli.fit",
    "thrifty.device.size_limit": "thrifty.device.export",
    "thrifty.dynamod.gbrt_estimators": "thrifty.learners.dynamod.boosted",
    "thrifty.dynamod.linear_estimator": "thrifty.learners.dynamod.linear",
    "thrifty.dynamod.lstsq_estimator": "thrifty.learners.dynamod.leaf",
    "thrifty.dynamod.solution": "thrifty.learners.dynamod.objective",
    "thrifty.dynamod": "thrifty.learners.dynamod",
    "thrifty.estimators.notebook": "thrifty.learners.estimators.base",
    "thrifty.estimators.operating_points": "thrifty.learners.estimators.base",
    "thrifty.estimators": "thrifty.learners.estimators",
    "thrifty.evidence.bootstrap": "thrifty.engine.evidence.measures",
    "thrifty.evidence": "thrifty.engine.evidence",
    "thrifty.full.candidates": "thrifty.engine.full.crossfit",
    "thrifty.full.convert": "thrifty.engine.full.stored",
    "thrifty.full": "thrifty.engine.full",
    "thrifty.plots": "thrifty.engine.plots",
    "thrifty.prices": "thrifty.engine.prices",
    "thrifty.routing.confidence": "thrifty.learners.dynamod.confidence",
    "thrifty.routing": "thrifty.learners.routing",
    "thrifty.sources": "thrifty.engine.purchases.sources",
    "thrifty.tables.drift": "thrifty.engine.table.training",
    "thrifty.tables": "thrifty.engine.table",
    "thrifty.tasks.mistakes": "thrifty.engine.tasks.classes",
    "thrifty.tasks": "thrifty.engine.tasks",
    "thrifty.trees.binning": "thrifty.engine.trees.binning",
    "thrifty.trees.ensemble": "thrifty.engine.trees.ensemble",
    "thrifty.trees.other_libraries": "thrifty.engine.trees.other_libraries",
    "thrifty.trees.builder": "thrifty.learners.trees.grow",
    "thrifty.trees.histogram": "thrifty.learners.trees.split",
    "thrifty.trees.rounds": "thrifty.learners.trees.grow",
    "thrifty.trees": "thrifty.learners.trees",
}


class _MovedModules(MetaPathFinder, Loader):
    """Finds a module under its former name, and loads it from where it is now."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - of the protocol
        target: ModuleType | None = None,  # noqa: ARG002 - of the protocol
    ) -> ModuleSpec | None:
        """Spec of a module that moved, or None."""
        former = next((name for name in _MOVED if f"{fullname}.".startswith(f"{name}.")), None)
        if former is None:
            return None
        return ModuleSpec(fullname, self, origin=_MOVED[former] + fullname.removeprefix(former))

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Import the module by its present name."""
        home = str(spec.origin)
        warnings.warn(
            f"{spec.name} moved to {home}; the former path goes with the next release.",
            FutureWarning,
            stacklevel=2,
        )
        module = import_module(home)
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its own spec again, which importing it by another name replaced."""
        module.__spec__ = self._specs.pop(str(module.__spec__ and module.__spec__.name))

    def __init__(self) -> None:
        self._specs: dict[str, ModuleSpec | None] = {}


def find_moved_modules() -> None:
    """Let imports find modules under their former names."""
    if not any(isinstance(finder, _MovedModules) for finder in sys.meta_path):
        # In front: a package that moved has its new path, on which another copy of its modules would be found.
        sys.meta_path.insert(0, _MovedModules())


class FormerName:
    """Attribute of a class under its former name.

    Parameters
    ----------
    name : str
        Present name of the attribute; of one of another attribute, with a dot between their names.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __set_name__(self, owner: type, former: str) -> None:
        self._former = former

    def __get__(self, instance: Any, owner: type) -> Any:
        """Value of the attribute under its present name."""
        if instance is None:
            return self
        value = attrgetter(self._name)(instance)
        warnings.warn(
            f"{self._former} of {owner.__name__} is {self._name} now; the former name goes with the next release.",
            FutureWarning,
            stacklevel=2,
        )
        return value
