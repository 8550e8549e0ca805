"""How much there is to do, and whether one more request can be answered in time.

Requests wait for the one thread that answers them. How long the next one would wait is known before it begins: the
number of those before it times the processor time that a request takes of late. A long pause, such as another program
on the same machine, is no reason to turn anybody away: what counts is the work that is left, not how old it is.
"""

import asyncio
import time

from thrifty.serve.config import Config

__all__ = ["Elsewhere", "Load"]

_BEAT = 0.05
"""Seconds between two looks at what requests cost."""

_FIRST_COST = 5e-4
"""What a request of one row costs on a common machine, until more is known."""

_MOST_GROWTH, _NEW_SHARE = 2.0, 0.25
"""How many times dearer the latest requests may look, and how much they count."""

_LONGEST_TURN = 0.010
"""Seconds of work that are begun before the event loop looks at the connections again."""


class Elsewhere:
    """Counts requests under way that wait for somebody else, such as a remote full model: ``with elsewhere: ...``."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> None:
        self.count += 1

    def __exit__(self, *_: object) -> None:
        self.count -= 1


class Load:
    """Requests under way, what one of them costs, and whether one more is too many.

    Parameters
    ----------
    config : Config
        ``most_in_flight`` and ``most_delay``.

    Attributes
    ----------
    in_flight : int
        Requests that came whole, were let in and are not answered yet.
    elsewhere : Elsewhere
        Those among them that wait for somebody else.
    finished : int
        Requests that were let in and are answered.
    cost : float
        Seconds of the processor that a request took of late, in the thread that answers.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self.in_flight = self.finished = 0
        self.elsewhere = Elsewhere()
        self.cost = _FIRST_COST
        self._turn_began: float | None = None
        self._is_watching = self._has_read = False
        self._n_begun = 0

    @property
    def excess(self) -> str | None:
        """Why one more request is too many, in a word that can be counted; None if it is not."""
        if self.in_flight >= self._config.most_in_flight:
            return "in_flight"
        if (self.in_flight - self.elsewhere.count) * self.cost > self._config.most_delay:
            return "busy"
        return None

    def finish(self) -> None:
        """Note that a request that was let in is answered, or given up."""
        self.in_flight -= 1
        self.finished += 1

    async def begin(self) -> None:
        """Wait while so much was begun in this turn of the event loop that others would lie unread for too long."""
        while self._n_begun and (self._n_begun + 1) * self.cost > _LONGEST_TURN:
            await asyncio.sleep(0)
        if not self._n_begun:
            asyncio.get_running_loop().call_soon(self._begin_anew)
        self._n_begun += 1

    def _begin_anew(self) -> None:
        self._n_begun = 0

    def look(self) -> float:
        """Note that something was read from a connection, and tell how long it can have lain there, in seconds.

        What is read was not there when the event loop last looked at all connections. While it pauses, what comes is
        read at once.
        """
        self._has_read = True
        if self._turn_began is not None:
            return time.perf_counter() - self._turn_began
        if not self._is_watching:
            self._is_watching = True
            asyncio.get_running_loop().call_soon(self._turn)
        return 0.0

    def _turn(self) -> None:
        """Note when the event loop goes to work; a turn in which nothing was read ends the watch."""
        self._is_watching, self._has_read = self._has_read, False
        self._turn_began = time.perf_counter() if self._is_watching else None
        if self._is_watching:
            asyncio.get_running_loop().call_soon(self._turn)

    async def run(self) -> None:
        """Learn what a request costs, until cancelled."""
        began, used, finished = time.perf_counter(), time.thread_time(), self.finished
        while True:
            await asyncio.sleep(_BEAT)
            before, began = began, time.perf_counter()
            used_before, used = used, time.thread_time()
            n_finished, finished = self.finished - finished, self.finished
            self.learn(began - before, used - used_before, n_finished)

    def learn(self, seconds: float, used: float, n_finished: int) -> None:
        """Learn from some time of which so much was used, while so many requests were answered.

        While there is little to do, other things than requests take most of what is used, and nothing is learned.
        """
        if n_finished and used > seconds / 2:
            # One collection of garbage must not look like dear requests.
            latest = min(used / n_finished, _MOST_GROWTH * self.cost)
            self.cost += _NEW_SHARE * (latest - self.cost)
