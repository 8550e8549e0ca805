"""Ways to compile: no interpreter lock held, cached on disk, on first call and never at import."""

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast

from numba import njit

__all__ = ["Number", "Record", "fused_kernel", "inner", "kernel", "lean", "lean_kernel"]

# A number in compiled code: of Python or of numpy, the same once compiled.
Number: TypeAlias = Any
# One element of an array of records, by reference; its fields are attributes in compiled code.
Record: TypeAlias = Any
Function = TypeVar("Function", bound=Callable[..., Any])

# No ``fastmath``: equal means must give a gain of exactly zero, which fused or re-ordered arithmetic would break. No
# ``parallel``: threads belong to the caller, so that fits running side by side do not fight over one pool.
ALWAYS = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
# Numba's runtime counts who holds an array whenever one is passed, sliced or taken out of a tuple, which
# shows in small trees. Without it nothing can be allocated, and numba refuses to compile what would.
WITHOUT_RUNTIME = {"_nrt": False}


def kernel(function: Function) -> Function:
    """Compile ``function`` the first time it is called. It may make arrays."""
    return cast(Function, njit(cache=True, **ALWAYS)(function))


def fused_kernel(function: Function) -> Function:
    """Compile like ``kernel``, but let a product be added without being rounded first, where the processor can.

    That is faster, and closer to the exact result.
    """
    return cast(Function, njit(cache=True, fastmath={"contract"}, **ALWAYS)(function))


def lean_kernel(function: Function) -> Function:
    """Compile like ``kernel`` a function that only writes to arrays it is given, which its caller keeps alive."""
    return cast(Function, njit(cache=True, **ALWAYS, **WITHOUT_RUNTIME)(function))


def inner(function: Function) -> Function:
    """Compile ``function`` for other compiled functions only: nothing is generated to call it from Python.

    Generating those entries, for functions that take many arrays, is most of the time of compiling. Not cached: what
    a caller finds on disk is machine code, which cannot be compiled into it, and trees grew a tenth slower for that.
    """
    return cast(Function, njit(no_cpython_wrapper=True, _nrt=True, **ALWAYS)(function))


def lean(function: Function) -> Function:
    """Compile like ``inner`` a function that only writes to arrays it is given."""
    return cast(Function, njit(no_cpython_wrapper=True, **ALWAYS, **WITHOUT_RUNTIME)(function))
