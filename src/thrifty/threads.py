"""Limits on threads: those of thrifty, and those of the BLAS and OpenMP libraries that it calls.

Libraries with OpenMP start a thread for each core and let it spin while it waits. Where cores are shared with other
fits or programs, all threads then wait for the one that was interrupted, and a fit takes several times as long as with
one thread. Sums of a BLAS depend in their last digit on the number of its threads.
"""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar, copy_context
from numbers import Integral
from threading import Event, Thread
from typing import Any, TypeVar

from joblib import cpu_count, effective_n_jobs
from threadpoolctl import ThreadpoolController

from thrifty.errors import InvalidInputError

FEW_ROWS = 1_000
"""Below this number of rows, starting threads takes longer than predicting."""

Result = TypeVar("Result")

_allowed: ContextVar[int | None] = ContextVar("allowed", default=None)
_stops: ContextVar[tuple[Event, ...]] = ContextVar("stops", default=())
_loaded: tuple[int, Any] = (0, None)


def threads_of(n_jobs: Any) -> int:
    """Resolve ``n_jobs`` to a number of threads: at most the cores that affinity and quota allow this process."""
    is_count = n_jobs is None or (isinstance(n_jobs, Integral) and n_jobs != 0)
    if not is_count:
        raise InvalidInputError(
            f"n_jobs must be None or a whole number other than 0; got {n_jobs!r}. -1 is all cores."
        )
    return min(int(effective_n_jobs(n_jobs)), int(cpu_count()))


def usable_threads() -> int:
    """Threads that may be started here: the cores that this process may use, or what a limit in force leaves."""
    allowed, n_cores = _allowed.get(), int(cpu_count())
    return n_cores if allowed is None else min(allowed, n_cores)


def threads_for(n_rows: int) -> int:
    """Number of threads worth starting to predict ``n_rows`` rows."""
    return 1 if n_rows < FEW_ROWS else usable_threads()


@contextmanager
def limited_threads(*, openmp: int, blas: int) -> Iterator[None]:
    """Limit the threads of every library that is loaded; a library that has no more than that is left alone."""
    controller = _libraries()
    allowed = _allowed.set(min(openmp, usable_threads()))
    try:
        with ExitStack() as limits:
            for api, limit in (("openmp", openmp), ("blas", blas)):
                libraries = (library for library in controller.lib_controllers if library.user_api == api)
                above = [library.filepath for library in libraries if (library.num_threads or 0) > limit]
                if above:
                    limits.enter_context(controller.select(filepath=above).limit(limits=limit))
            yield
    finally:
        _allowed.reset(allowed)


@contextmanager
def stop_on_error() -> Iterator[None]:
    """End work of other threads at its next ``check_stopped`` if an error, or an interrupt, ends the work in here."""
    stop = Event()
    before = _stops.set((*_stops.get(), stop))
    try:
        yield
    except BaseException:
        stop.set()
        raise
    finally:
        _stops.reset(before)


def check_stopped() -> None:
    """Raise ``CancelledError`` if the work that waits for this thread has ended with an error."""
    if any(stop.is_set() for stop in _stops.get()):
        raise CancelledError


def in_context(function: Callable[..., Result]) -> Callable[..., Result]:
    """The function for other threads: it is stopped with the work that waits for it."""
    context = copy_context()

    def call(*arguments: Any, **named: Any) -> Result:
        check_stopped()
        return function(*arguments, **named)

    return lambda *arguments, **named: context.copy().run(call, *arguments, **named)


class _ContextPool(ThreadPoolExecutor):
    def submit(self, fn: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        return super().submit(in_context(fn), *arguments, **named)


@contextmanager
def workers(n_threads: int) -> Iterator[ThreadPoolExecutor]:
    """Threads of a fit, which an error or an interrupt of the work that waits for them ends at their next tree."""
    with _ContextPool(n_threads) as pool, stop_on_error():
        yield pool


def call_with_timeout(seconds: float | None, call: Callable[[], Result], who: str) -> Result:
    """Return the result of a call, or raise ``TimeoutError``; the result of a late call is dropped.

    Parameters
    ----------
    seconds : float or None
        How long it may take; None is as long as it likes.
    call : callable
        What is called, in a thread of its own where there is a limit.
    who : str
        Who is called, for the error.
    """
    if seconds is None:
        return call()
    results: list[Result] = []
    raised: list[BaseException] = []

    def listen() -> None:
        try:
            results.append(call())
        except BaseException as error:  # it is raised again where the caller waits
            raised.append(error)

    # A daemon: a call that never returns must not keep the program from ending.
    thread = Thread(target=copy_context().run, args=(listen,), name=f"call of {who}", daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    if not results:
        raise TimeoutError(f"{who} did not answer within {seconds:g} seconds")
    return results[0]


def _libraries() -> Any:
    """Libraries that are loaded; they are looked for again, which takes milliseconds, where modules were imported."""
    global _loaded
    n_modules, controller = _loaded
    if controller is None or n_modules != len(sys.modules):
        controller = ThreadpoolController()
        _loaded = len(sys.modules), controller
    return controller
