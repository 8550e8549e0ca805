"""One file per fitted estimator or chain, without pickle: see docs/bundle.md for the format and what it promises."""

from thrifty.bundle.objects import Kind, from_bytes, register_estimator, to_bytes
from thrifty.bundle.stages import Codec, register_stage

__all__ = [
    "Codec",
    "Kind",
    "from_bytes",
    "register_estimator",
    "register_stage",
    "to_bytes",
]
