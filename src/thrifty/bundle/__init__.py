"""One file per fitted estimator or system, without pickle: see docs/bundle.md for the format and what it promises."""

# Imported for what it registers: pruned forests are an estimator of their own kind, not a system.
from thrifty.bundle import pruned as _registers_pruned_forests  # noqa: F401
from thrifty.bundle.kinds import Kind, register_kind
from thrifty.bundle.objects import register_estimator
from thrifty.bundle.scorers import Codec, register_scorer
from thrifty.bundle.whole import from_bytes, load, save, to_bytes

__all__ = [
    "Codec",
    "Kind",
    "from_bytes",
    "load",
    "register_estimator",
    "register_kind",
    "register_scorer",
    "save",
    "to_bytes",
]
