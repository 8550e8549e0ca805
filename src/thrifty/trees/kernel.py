"""One way to compile: no interpreter lock held, cached on disk, on first call and never at import."""

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast

from numba import njit

__all__ = ["Number", "inner", "kernel"]

# A number in compiled code: of Python or of numpy, the same once compiled.
Number: TypeAlias = Any
Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile ``function`` the first time it is called.

    No ``fastmath``: equal means must give a gain of exactly zero, which fused or re-ordered
    arithmetic would break. No ``parallel``: threads belong to the caller, so that
    fits running side by side do not fight over one pool.
    """
    return cast(Function, njit(nogil=True, cache=True, error_model="numpy", no_cfunc_wrapper=True)(function))


def inner(function: Function) -> Function:
    """Compile ``function`` for other compiled functions only: nothing is generated to call it from Python.

    Generating those entries, for functions that take many arrays, is most of the time of compiling. Not cached: what
    a caller finds on disk is machine code, which cannot be compiled into it, and trees grew a tenth slower for that.
    """
    options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(Function, njit(nogil=True, error_model="numpy", **options)(function))
