"""Files of fitted estimators and chains, without pickle; docs/bundle.md describes the format and its guarantees."""

from thrifty.bundle.codec import register
from thrifty.bundle.objects import from_bytes, register_estimator, to_bytes

__all__ = ["from_bytes", "register", "register_estimator", "to_bytes"]
