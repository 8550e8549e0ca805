"""When to stop asking a remote that fails: a circuit breaker with one probe at a time.

A breaker is *closed* while the remote answers, and every call goes through. Several failures in a row, or too large a
share of failures among the latest calls, *open* it: calls are refused at once, so that a remote that is down costs no
waiting and is left alone. After a pause one call goes through as a probe; its answer closes the breaker, its failure
opens it for another pause.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import Literal

from thrifty.errors import InvalidInputError

__all__ = ["Breaker", "State"]

State = Literal["closed", "open", "half_open"]


class Breaker:
    """Tells whether the next call may go through, from how the latest ones ended.

    Parameters
    ----------
    failures : int
        Failures in a row that open it.
    share : float
        Share of failures among the latest calls that opens it.
    window : int
        Number of the latest calls that the share is taken of; with fewer calls, the share does not count.
    pause : float
        Seconds until an open breaker lets a probe through.
    clock : callable
        Seconds of a clock that never goes back.

    Attributes
    ----------
    n_opened : int
        How often it has opened.
    """

    def __init__(
        self,
        failures: int = 5,
        share: float = 0.5,
        window: int = 20,
        pause: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if failures < 1 or window < 1 or not 0.0 < share <= 1.0 or not pause >= 0.0:
            raise InvalidInputError(
                f"a breaker must open after at least 1 failure in a row, or a share in (0, 1] of at least 1 call, for "
                f"a pause of at least 0 seconds; got {failures!r} failures, a share of {share!r} of {window!r} calls "
                f"and a pause of {pause!r}. Change the settings that begin with breaker_."
            )
        self._failures, self._share, self._pause, self._clock = failures, share, pause, clock
        self._latest: deque[bool] = deque(maxlen=window)  # whether each call failed
        self._in_a_row = 0
        self._opened_at: float | None = None
        self._is_probing = False
        self.n_opened = 0

    @property
    def state(self) -> State:
        """``"closed"``, ``"open"``, or ``"half_open"`` while a probe may go through or is under way."""
        if self._opened_at is None:
            return "closed"
        is_over = self._clock() - self._opened_at >= self._pause
        return "half_open" if self._is_probing or is_over else "open"

    def allows(self) -> bool:
        """Whether a call may go through now; whoever is told so says how it ended, or that it never did."""
        state = self.state
        if state == "half_open" and not self._is_probing:
            self._is_probing = True
            return True
        return state == "closed"

    def succeeded(self) -> None:
        """Note a call that was answered."""
        if self._is_probing:
            self._latest.clear()
            self._opened_at, self._is_probing = None, False
        self._in_a_row = 0
        self._latest.append(False)

    def failed(self) -> None:
        """Note a call that failed."""
        self._in_a_row += 1
        self._latest.append(True)
        is_full = len(self._latest) == self._latest.maxlen
        too_many = is_full and sum(self._latest) >= self._share * len(self._latest)
        if self._is_probing or self._in_a_row >= self._failures or too_many:
            self._open()

    def abandoned(self) -> None:
        """Note a call of which nobody waited for the end: it says nothing, and another probe may follow it."""
        self._is_probing = False

    def _open(self) -> None:
        # Calls that were under way when it opened fail one after another: they must not make the pause longer.
        if self._opened_at is None or self._is_probing:
            self._opened_at = self._clock()
            self.n_opened += 1
        self._is_probing = False
