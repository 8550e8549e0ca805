"""Progress callbacks of fits and sweeps."""

from collections.abc import Callable, Mapping
from itertools import takewhile
from time import perf_counter

Progress = Callable[[str, int, int], object]
"""Called as ``progress(what, done, total)``."""


def silent(what: str, done: int, total: int) -> None:
    """Ignore progress: the default callback."""


PRIOR = 0.1
"""Share of a fit that must be done for the time taken to count as much as the expected time."""


def progress_printer(
    verbose: int, who: str, shares: Mapping[str, float] | None = None, expected: float = 0.0
) -> Progress:
    """Progress as scikit-learn's ``verbose`` prints it: a line for each phase that ends, and from 2 on for each step.

    Long phases have a line for a step every second at least. Lines have the time that is probably left, the first at
    once.

    Parameters
    ----------
    verbose : int
        0 prints nothing.
    who : str
        Name of the estimator, which begins every line.
    shares : dict of str to float, optional
        Share of the time that each phase takes, in their order, from which the time that is left is estimated.
    expected : float, default=0.0
        Expected seconds of all phases.
    """
    if not verbose:
        return silent
    start, shares = perf_counter(), {} if shares is None else shares
    last_line = start
    done_of = dict.fromkeys(shares, 0.0)

    def seconds_left(what: str, share_done: float, seconds: float) -> float:
        """What is probably left: phases that come before this one are over."""
        if what not in done_of:
            return 0.0
        done_of[what] = share_done
        is_over = takewhile(lambda phase: phase != what, done_of)
        done_of.update(dict.fromkeys(is_over, 1.0))
        done = min(sum(shares[phase] * part for phase, part in done_of.items()), 1.0)
        prior = PRIOR if expected else 0.0
        return (1.0 - done) * (prior * expected + seconds) / (prior + done) if done else 0.0

    def show(what: str, seconds: float, left: float) -> None:
        wait = f", about {left:.0f} s left" if left >= 1.0 else ""
        # Printed because of ``verbose``. Flushed: a pipe would show it only once its buffer is full.
        print(f"[{who}] {what}: {seconds:.1f} s{wait}", flush=True)  # noqa: T201 - that is its purpose

    def report(what: str, done: int, total: int) -> None:
        nonlocal last_line
        now = perf_counter()
        left = seconds_left(what, done / total, now - start)
        if done >= total or (done and (verbose > 1 or now - last_line >= 1.0)):
            steps = f" ({done} of {total})" if done < total or (verbose > 1 and total > 1) else ""
            last_line = now
            show(f"{what}{steps}", now - start, left)

    if expected >= 1.0:
        show("starting", 0.0, expected)
    return report
