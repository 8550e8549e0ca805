"""Progress callbacks of fits and sweeps."""

from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from time import perf_counter

Progress = Callable[[str, int, int], object]
"""Called as ``progress(what, done, total)``."""


def silent(what: str, done: int, total: int) -> None:
    """Ignore progress: the default callback."""


@contextmanager
def stopped_by_errors(progress: Progress) -> Iterator[Progress]:
    """Progress of work in another thread, which an error of the caller ends at its next step."""
    failed = False

    def report(what: str, done: int, total: int) -> object:
        if failed:
            raise CancelledError
        return progress(what, done, total)

    try:
        yield report
    except BaseException:
        failed = True
        raise


def progress_printer(verbose: int, who: str) -> Progress:
    """Progress as scikit-learn's ``verbose`` prints it: a line for each phase that ends, and from 2 on for each step.

    Parameters
    ----------
    verbose : int
        0 prints nothing.
    who : str
        Name of the estimator, which begins every line.
    """
    if not verbose:
        return silent
    start = perf_counter()

    def report(what: str, done: int, total: int) -> None:
        if done >= total or (verbose > 1 and done):
            steps = f" ({done} of {total})" if verbose > 1 and total > 1 else ""
            # Printed because of ``verbose``. Flushed: a pipe would show it only once its buffer is full.
            print(f"[{who}] {what}{steps}: {perf_counter() - start:.1f} s", flush=True)  # noqa: T201 - that is its purpose

    return report
