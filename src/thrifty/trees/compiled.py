"""Ways to compile: no interpreter lock held, cached on disk, on first call and never at import."""

from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias, TypeVar, cast

import numpy as np
from numba import njit, typeof

__all__ = ["Direct", "Number", "Record", "fused_kernel", "inner", "kernel", "lean", "lean_kernel"]

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
    """The same, but a product may be added without being rounded first, where the processor can: faster, and closer."""
    return cast(Function, njit(cache=True, fastmath={"contract"}, **ALWAYS)(function))


def lean_kernel(function: Function) -> Function:
    """The same for a function that only writes to arrays it is given, which its caller keeps alive."""
    return cast(Function, njit(cache=True, **ALWAYS, **WITHOUT_RUNTIME)(function))


def inner(function: Function) -> Function:
    """Compile ``function`` for other compiled functions only: nothing is generated to call it from Python.

    Generating those entries, for functions that take many arrays, is most of the time of compiling. Not cached: what
    a caller finds on disk is machine code, which cannot be compiled into it, and trees grew a tenth slower for that.
    """
    return cast(Function, njit(no_cpython_wrapper=True, _nrt=True, **ALWAYS)(function))


def lean(function: Function) -> Function:
    """The same for a function that only writes to arrays it is given."""
    return cast(Function, njit(no_cpython_wrapper=True, **ALWAYS, **WITHOUT_RUNTIME)(function))


class Direct:
    """A kernel for a caller whose arguments have the same types in every call: they are looked at in the first only.

    Working out the types of a tuple of thirty arrays takes numba longer than reading them.
    """

    _known: ClassVar[dict[Any, Callable[..., Any]]] = {}

    def __init__(self, function: Callable[..., Any]) -> None:
        self._kernel: Any = function
        self._entry: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        """Call the kernel."""
        if self._entry is None:
            self._entry = self._find(arguments)
        return self._entry(*arguments)

    def _find(self, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        key = self._kernel, kind_of(arguments)
        if key not in self._known:
            types = tuple(typeof(argument) for argument in arguments)
            self._kernel.compile(types)
            self._known[key] = self._kernel.overloads[types].entry_point
        return self._known[key]


def kind_of(value: Any) -> Any:
    """All that decides the type of an argument in compiled code."""
    if isinstance(value, np.ndarray):
        flags = value.flags
        return (
            value.dtype,
            value.ndim,
            flags.c_contiguous,
            flags.f_contiguous,
            flags.writeable,
            flags.aligned,
        )
    if isinstance(value, tuple):
        return type(value), *map(kind_of, value)
    return type(value)
