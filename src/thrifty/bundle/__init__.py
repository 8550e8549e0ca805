"""One file per fitted estimator or chain, without pickle: see docs/bundle.md for the format and what it promises."""

from thrifty.bundle.codec import register
from thrifty.bundle.objects import from_bytes, register_estimator, to_bytes

__all__ = ["from_bytes", "register", "register_estimator", "to_bytes"]
