"""One file per fitted estimator or chain, without pickle: see docs/bundle.md for the format and what it promises."""

from thrifty.bundle.objects import Kind, register_estimator
from thrifty.bundle.stages import Codec, register_stage
from thrifty.bundle.whole import from_bytes, load, save, to_bytes

__all__ = [
    "Codec",
    "Kind",
    "from_bytes",
    "load",
    "register_estimator",
    "register_stage",
    "save",
    "to_bytes",
]
