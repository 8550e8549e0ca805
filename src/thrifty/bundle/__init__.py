"""One file per fitted estimator or chain, without pickle: see docs/bundle.md for the format and what it promises."""

from thrifty.bundle.file_bytes import from_bytes, to_bytes
from thrifty.bundle.objects import Kind, register_estimator
from thrifty.bundle.stages import Codec, register_stage

__all__ = [
    "Codec",
    "Kind",
    "from_bytes",
    "register_estimator",
    "register_stage",
    "to_bytes",
]
