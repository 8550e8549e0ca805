"""Numba decorators: compiled on first call, cached on disk, without the interpreter lock.

Importing numba takes longer than importing most of this package, so the first call of a compiled function imports it.
"""

import contextlib
import functools
import gc
import hashlib
import logging
import pickle
import sys
import threading
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

__all__ = ["Number", "Record", "fused", "fused_kernel", "inner", "kernel", "lean", "lean_kernel"]

# A number in compiled code: of Python or of numpy, the same once compiled.
Number: TypeAlias = Any
# One element of an array of records, by reference; its fields are attributes in compiled code.
Record: TypeAlias = Any
Function = TypeVar("Function", bound=Callable[..., Any])

# No ``fastmath``: equal means must give a gain of exactly zero, which fused or re-ordered arithmetic would break. No
# ``parallel``: threads belong to the caller, so that fits running side by side do not fight over one pool.
ALWAYS = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
# Numba's runtime counts references to an array whenever one is passed, sliced or taken out of a tuple, which
# shows in small trees. Without it nothing can be allocated, and numba refuses to compile what would.
WITHOUT_RUNTIME = {"_nrt": False}

COMPILING = "Compiling for this machine: this takes about ten seconds, once per installation."
NOT_KEPT = (
    "What is compiled cannot be kept (%s): every new process will compile again. "
    "Set the environment variable NUMBA_CACHE_DIR to a folder that can be written to."
)


def kernel(function: Function) -> Function:
    """Compile ``function`` the first time it is called. It may make arrays."""
    return compiled(function, is_cached=True)


def fused_kernel(function: Function) -> Function:
    """Compile like ``lean_kernel``, but let a product be added without being rounded first, where the processor can.

    That is faster, and closer to the exact result.
    """
    return compiled(function, is_cached=True, fastmath={"contract"}, **WITHOUT_RUNTIME)


def lean_kernel(function: Function) -> Function:
    """Compile like ``kernel`` a function that only writes to arrays it is given, which its caller keeps alive."""
    return compiled(function, is_cached=True, **WITHOUT_RUNTIME)


def inner(function: Function) -> Function:
    """Compile ``function`` for other compiled functions only: nothing is generated to call it from Python.

    Generating those entries, for functions that take many arrays, is most of the time of compiling. Not cached: what
    a caller finds on disk is machine code, which cannot be compiled into it, and trees grew a tenth slower for that.
    """
    return compiled(function, is_cached=False, no_cpython_wrapper=True, _nrt=True)


def lean(function: Function) -> Function:
    """Compile like ``inner`` a function that only writes to arrays it is given."""
    return compiled(function, is_cached=False, no_cpython_wrapper=True, **WITHOUT_RUNTIME)


def fused(function: Function) -> Function:
    """Compile like ``lean`` a function of plain numbers for a ``fused_kernel``."""
    return compiled(
        function, is_cached=False, no_cpython_wrapper=True, fastmath={"contract"}, **WITHOUT_RUNTIME
    )


def compiled(function: Function, *, is_cached: bool, **options: Any) -> Function:
    """Return a placeholder that compiles ``function`` when any compiled function is first called."""
    with _lock:
        deferred = Deferred(function, is_cached, options)
        if _waiting is None:  # the compiler is there already
            return cast(Function, deferred.make())
        _waiting.append(deferred)
        return cast(Function, deferred)


class Deferred:
    """Placeholder of a compiled function until the first call of any of them."""

    def __init__(self, function: Callable[..., Any], is_cached: bool, options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self._function, self._is_cached, self._options = function, is_cached, options
        self.real: Any = None

    def __call__(self, *arguments: Any) -> Any:
        """Call the compiled function: for modules that have kept this object, as replacing it missed them."""
        if self.real is None:
            import_compiler()
        return self.real(*arguments)

    def make(self) -> Any:
        """Numba's function, which is compiled when called."""
        from numba import njit

        how = {} if self._is_cached else {"pipeline_class": part_compiler()}
        self.real = njit(**ALWAYS, **self._options, **how)(self._function)
        if self._is_cached:
            try:
                self.real.enable_caching()
            except (OSError, RuntimeError):  # numba found no folder that can be written to
                log_once(NOT_KEPT, "no folder for it can be written to")
            self.real._cache = Cache(self.real._cache)
        self.real.compile = without_gc(self.real.compile)
        return self.real


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


def without_gc(compile_one: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Compile with garbage collection disabled, which would take a tenth of the time."""

    def compile_without_gc(signature: Any) -> Any:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return compile_one(signature)
        finally:
            if was_enabled:
                gc.enable()

    return compile_without_gc


class Cache:
    """Numba's cache of one function that logs when it compiles and survives damaged files.

    Where nothing can be written, compiled code lives as long as the process. A damaged file is forgotten and replaced.

    Parameters
    ----------
    cache : numba.core.caching._Cache
    """

    def __init__(self, cache: Any) -> None:
        self._cache = cache
        if hasattr(cache, "_impl"):
            cache._impl = Checksummed(cache._impl)
            # Code that was kept without a checksum, and is of another form, is not looked at.
            cache._cache_file._version += ", sealed"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Compiled code for a signature, or None if it must be compiled."""
        try:
            found = self._cache.load_overload(signature, context)
        except OSError:
            found = None
        except Exception:  # damaged bytes may raise any error
            self._forget()
            found = None
        if found is None and is_first_of_installation(self._cache.cache_path):
            log_once(COMPILING)
        return found

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keep compiled code for the next process, if possible."""
        try:
            self._cache.save_overload(signature, result)
        except Exception as error:
            # The index is written first: the next process would find old code under the name of the new.
            self._forget()
            log_once(NOT_KEPT, error)

    def _forget(self) -> None:
        """Remove the index, without which no code is found; on a full disk that is all that can be done."""
        with contextlib.suppress(OSError):
            Path(self._cache._cache_file._index_path).unlink(missing_ok=True)


class Checksummed:
    """Numba's serialisation of compiled code, with a checksum: damaged machine code could do anything.

    Parameters
    ----------
    form : numba.core.caching.CacheImpl
    """

    def __init__(self, form: Any) -> None:
        self._form = form

    def __getattr__(self, name: str) -> Any:
        return getattr(self._form, name)

    def reduce(self, result: Any) -> tuple[bytes, bytes]:
        """The code as bytes, behind their checksum."""
        from numba.core.serialize import dumps

        data = dumps(self._form.reduce(result))
        return hashlib.sha256(data).digest(), data

    def rebuild(self, context: Any, kept: tuple[bytes, bytes]) -> Any:
        """The code, if its checksum agrees."""
        digest, data = kept
        if hashlib.sha256(data).digest() != digest:
            raise ValueError("compiled code on disk is damaged")
        return self._form.rebuild(context, pickle.loads(data))


_lock = threading.RLock()
_waiting: list[Deferred] | None = []
_logged: set[str] = set()


def import_compiler() -> None:
    """Import numba and put its functions in place of all that wait for it."""
    from numba.core.compiler_lock import global_compiler_lock

    global _waiting
    # Nothing is compiled meanwhile: it might meet a function that still waits.
    with _lock, global_compiler_lock:
        for deferred in _waiting or ():
            deferred.make()
        _waiting = None
        modules = [
            module for name, module in sys.modules.items() if name.split(".")[0] in ("thrifty", "__main__")
        ]
        for module in modules:
            for name, value in list(vars(module).items()):
                if isinstance(value, Deferred):
                    setattr(module, name, value.real)


def is_first_of_installation(folder: str | None) -> bool:
    """Whether this installation compiles for the first time; writes a mark beside the compiled code.

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
