"""Private parts of numba that ``thrifty.jit`` uses: the reason for the cap in ``pyproject.toml``.

Processor seconds of a first fit from an empty cache, and of the same fit again (500 x 10, default settings):

| | first | again |
|---|---|---|
| as it is | 18.6 | 2.1 |
| with the runtime | 20.4 | 2.8 |
| with numba's own compiler for parts | 23.1 | 2.1 |
| with both: public interfaces alone | 24.8 | 2.8 |

``inline="always"``, which is public, makes a first fit twice as long.
"""

import functools
from typing import Any

__all__ = ["WITHOUT_RUNTIME", "WITH_RUNTIME", "part_compiler"]

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
