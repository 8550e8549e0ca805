"""Files of fitted estimators and chains, without pickle; docs/files.md describes the format."""

from thrifty.bundle.codec import register
from thrifty.bundle.objects import from_bytes, register_estimator, to_bytes

__all__ = ["from_bytes", "register", "register_estimator", "to_bytes"]
