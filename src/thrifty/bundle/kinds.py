"""Kinds of files that layers above this one bring: what `thrifty fit` writes is read by the same `load`.

A layer above says how its objects are packed. Until somebody asks for one, it is not imported: here stands only the
name of the module that makes the kind known.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from thrifty.bundle.context import Reading, Writing
from thrifty.bundle.fields import Fields

__all__ = ["Kind", "kind_named", "kind_of", "register_kind"]

_HOMES = {"table": "thrifty.tables.storage"}
"""Kinds of our own, and the modules that register them."""

_KINDS: dict[str, "Kind"] = {}


@dataclass(frozen=True)
class Kind:
    """Objects of one type, as JSON and arrays.

    Attributes
    ----------
    name : str
        Stands in the file.
    holds : type
        Of the objects.
    pack, unpack : callable
        To JSON, and back.
    """

    name: str
    holds: type
    pack: Callable[[Any, Writing], dict[str, Any]]
    unpack: Callable[[Fields, Reading], Any]


def register_kind(kind: Kind) -> None:
    """Let bundles hold one more kind of object."""
    _KINDS[kind.name] = kind


def kind_of(thing: Any) -> Kind | None:
    """The kind of an object; None where it is a system or an estimator, or nothing that is known."""
    home = type(thing).__module__.rpartition(".")[0]
    for module in _HOMES.values():
        if home == module.rpartition(".")[0]:
            import_module(module)
    return next((kind for kind in _KINDS.values() if type(thing) is kind.holds), None)


def kind_named(name: Any) -> Kind | None:
    """The kind of this name; None for systems, estimators and unknown words."""
    if not isinstance(name, str):
        return None
    if name in _HOMES and name not in _KINDS:
        import_module(_HOMES[name])
    return _KINDS.get(name)
