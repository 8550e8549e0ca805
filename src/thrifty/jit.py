"""Numba decorators: compiled on first call, cached on disk, without the interpreter lock.

Importing numba takes longer than importing most of this package, so the first call of a compiled function imports it.

Private parts of numba are used at the end of this module alone: the reason for the cap in ``pyproject.toml``. Processor
seconds of a first fit from an empty cache, and of the same fit again (500 x 10, default settings):

| | first | again |
|---|---|---|
| as it is | 18.6 | 2.1 |
| with the runtime | 20.4 | 2.8 |
| with numba's own compiler for parts | 23.1 | 2.1 |
| with both: public interfaces alone | 24.8 | 2.8 |

``inline="always"``, which is public, makes a first fit twice as long.
"""

import contextlib
import functools
import gc
import hashlib
import logging
import sys
import threading
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

# A number in compiled code: of Python or of numpy, the same once compiled.
Number: TypeAlias = Any
# One element of an array of records, by reference; its fields are attributes in compiled code.
Record: TypeAlias = Any
Function = TypeVar("Function", bound=Callable[..., Any])

# No ``fastmath``: equal means must give a gain of exactly zero, which fused or re-ordered arithmetic would break. No
# ``parallel``: threads belong to the caller, so that fits running side by side do not fight over one pool.
ALWAYS = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}

COMPILING = "Compiling for this machine: this takes about ten seconds, once per installation."
NOT_KEPT = (
    "What is compiled cannot be kept (%s): every new process will compile again. "
    "Set the environment variable NUMBA_CACHE_DIR to a folder that can be written to."
)


def kernel(function: Function) -> Function:
    """Compile ``function`` the first time it is called. It may make arrays."""
    return cast(Function, Deferred(function))


def fused_kernel(function: Function) -> Function:
    """Compile like ``lean_kernel``, but let a product be added without being rounded first, where the processor can.

    That is faster, and closer to the exact result.
    """
    return cast(Function, Deferred(function, fastmath={"contract"}, **WITHOUT_RUNTIME))


def lean_kernel(function: Function) -> Function:
    """Compile like ``kernel`` a function that only writes to arrays it is given, which its caller keeps alive."""
    return cast(Function, Deferred(function, **WITHOUT_RUNTIME))


def inner(function: Function) -> Function:
    """Compile ``function`` for other compiled functions only: nothing is generated to call it from Python.

    Generating those entries, for functions that take many arrays, is most of the time of compiling. Not cached: what
    a caller finds on disk is machine code, which cannot be compiled into it, and trees grew a tenth slower for that.
    """
    return cast(Function, Deferred(function, is_part=True, **WITH_RUNTIME))


def lean(function: Function) -> Function:
    """Compile like ``inner`` a function that only writes to arrays it is given."""
    return cast(Function, Deferred(function, is_part=True, **WITHOUT_RUNTIME))


def fused(function: Function) -> Function:
    """Compile like ``lean`` a function of plain numbers for a ``fused_kernel``."""
    return cast(Function, Deferred(function, is_part=True, fastmath={"contract"}, **WITHOUT_RUNTIME))


class Deferred:
    """A compiled function that imports numba when it is first called, or first used by another one.

    Parameters
    ----------
    function : callable
        What is compiled.
    is_part : bool
        Whether only other compiled functions call it; if not, it is kept on disk.
    options : object
        Arguments of ``numba.njit``.
    """

    def __init__(self, function: Callable[..., Any], *, is_part: bool = False, **options: Any) -> None:
        functools.update_wrapper(self, function)
        self._function, self._is_part, self._options = function, is_part, ALWAYS | options
        self.compiled: Any = None  # the function of numba, once it is needed

    def __call__(self, *arguments: Any) -> Any:
        """Call the compiled function; if its files fail, compile it without them."""
        if self.compiled is None:
            return self._call_first(arguments)
        try:
            return self.compiled(*arguments)
        except Exception as error:  # a full disk, or damaged files, which may raise any error
            self._forget_files()
            # Compiled code is kept in memory before it is written to disk. An error of the call itself comes again.
            answer = self.compiled(*arguments)
            if isinstance(error, OSError):
                log_once(NOT_KEPT, error)
            return answer

    def _call_first(self, arguments: tuple[Any, ...]) -> Any:
        """Call with garbage collection disabled, which would take a twentieth of the time of compiling."""
        if is_first_of_installation(self.make().stats.cache_path):
            log_once(COMPILING)
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return self(*arguments)
        finally:
            if was_enabled:
                gc.enable()

    def _forget_files(self) -> None:
        """Remove the index of the cache, without which no code is found; numba writes it before the code."""
        folder = self.compiled.stats.cache_path
        if folder is not None:
            for index in Path(folder).glob(f"*.{self._function.__name__}-*.nbi"):
                with contextlib.suppress(OSError):
                    index.unlink()

    def make(self) -> Any:
        """Numba's function, which is compiled when called."""
        with _lock:
            if self.compiled is None:
                self.compiled = self._make()
            return self.compiled

    def _make(self) -> Any:
        compiler = import_numba()
        if self._is_part:
            how = {"no_cpython_wrapper": True, "pipeline_class": part_compiler()}
            return compiler.njit(**self._options, **how)(self._function)
        try:
            return compiler.njit(cache=True, **self._options)(self._function)
        except (OSError, RuntimeError):  # numba found no folder that can be written to
            log_once(NOT_KEPT, "no folder for it can be written to")
            return compiler.njit(**self._options)(self._function)


@functools.cache
def import_numba() -> Any:
    """Numba, which knows from now on that a function that waits stands for the compiled one."""
    import numba
    from numba.extending import typeof_impl

    @typeof_impl.register(Deferred)  # type: ignore[untyped-decorator]  # numba is untyped
    def type_of(deferred: Deferred, _: Any) -> Any:
        return numba.typeof(deferred.make())

    return numba


_lock = threading.RLock()
_logged: set[str] = set()


@functools.cache
def is_first_of_installation(folder: str | None) -> bool:
    """Tell a first compilation of this installation from later ones; writes a mark beside the compiled code.

    A process that needs a function that no earlier one called compiles again, for a moment. Without a folder to write
    to every process compiles, and is the first.
    """
    if folder is None:
        return True
    here = Path(__file__)
    # Numba keeps code beside its source, or in one folder for each folder of sources.
    root = here.parent / "__pycache__" if Path(folder).name == "__pycache__" else Path(folder).parent
    installed = f"{here.resolve()} {here.stat().st_mtime_ns} {version('numba')} {sys.version}"
    mark = root / f"thrifty-{hashlib.sha256(installed.encode()).hexdigest()[:16]}.compiled"
    try:
        root.mkdir(parents=True, exist_ok=True)
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError:
        return True
    return True


def log_once(message: str, *details: object) -> None:
    """Log a message once per process: on the error stream, unless logging is configured."""
    if message not in _logged:
        _logged.add(message)
        logging.getLogger("thrifty").warning(message, *details)


# -- private parts of numba ------------------------------------------------------------------------


# Numba's runtime counts references to an array whenever one is passed, sliced or taken out of a tuple, which
# shows in small trees. Without it nothing can be allocated, and numba refuses to compile what would.
WITHOUT_RUNTIME = {"_nrt": False}
WITH_RUNTIME = {"_nrt": True}  # where a caller has none, too


@functools.cache
def part_compiler() -> Any:
    """Numba's compiler of functions that only other compiled functions call.

    Numba optimises every function and generates its machine code before the next. The machine code of a function that
    is inlined into others is never called, and each of the others optimises it once more: so they link the code as it
    was written, and optimise it together with their own.
    """
    from numba.core.codegen import JITCodeLibrary
    from numba.core.compiler import Compiler

    class Part(JITCodeLibrary):  # type: ignore[misc]  # numba is untyped
        def _optimize_final_module(self) -> None:
            pass

        def _finalize_final_module(self) -> None:
            self._finalize_dynamic_globals()
            self._finalized = True

        def get_pointer_to_function(self, name: str) -> int:  # noqa: ARG002 - none is there
            return 0

        @property
        def codegen(self) -> Any:
            return self

        def set_env(self, name: str, environment: Any) -> None:
            """Set nothing: a part has no machine code that would look there."""

    class PartCompiler(Compiler):  # type: ignore[misc]  # numba is untyped
        def __init__(self, typing: Any, target: Any, library: Any, *how: Any) -> None:
            super().__init__(typing, target, library or Part(target.codegen(), "part"), *how)

    return PartCompiler
