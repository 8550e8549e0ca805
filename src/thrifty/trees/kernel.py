"""One way to compile: no interpreter lock held, cached on disk, on first call and never at import."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

__all__ = ["kernel"]

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile ``function`` the first time it is called.

    No ``fastmath``: a split and its mirror image must have bit-equal gains, which fused or
    re-ordered arithmetic would break. No ``parallel``: threads belong to the caller, so that
    fits running side by side do not fight over one pool.
    """
    return cast(Function, njit(nogil=True, cache=True)(function))
