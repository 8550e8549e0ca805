"""How much there is to do, and whether one more request can be answered in time.

Requests wait for the one thread that answers them. How long the next one would wait is known before it begins: the
number of those before it times the processor time that a request takes of late. A long pause, such as another program
on the same machine, is no reason to refuse a request: what counts is the work that is left, not how old it is.
"""

import asyncio
import time

from thrifty.serve.config import Config

__all__ = ["ActiveCount", "Load"]

_LEARNING_INTERVAL = 0.05
"""Seconds between two measurements of what requests cost."""

_FIRST_COST = 5e-4
"""What a request of one row costs on a common machine, until more is known."""

_MAX_GROWTH, _LEARNING_RATE = 2.0, 0.25
"""How many times dearer the latest requests may look, and how much they count."""


class ActiveCount:
    """Counts the requests inside ``with count:``; ``now`` are inside, ``finished`` have left."""

    def __init__(self) -> None:
        self.now = self.finished = 0

    def __enter__(self) -> None:
        self.now += 1

    def __exit__(self, *_: object) -> None:
        self.now -= 1
        self.finished += 1


class Load:
    """Requests under way, what one of them costs, and whether one more is too many.

    Parameters
    ----------
    config : Config
        ``max_in_flight`` and ``max_delay``.

    Attributes
    ----------
    in_flight : ActiveCount
        Requests that came whole and are not answered yet.
    waiting : ActiveCount
        Those among them that wait for the full model or for a provider.
    reading : dict of asyncio.Task to float
        Requests whose bodies are being read, and since when.
    cost : float
        Seconds of the processor that a request took of late, in the thread that answers.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self.in_flight, self.waiting = ActiveCount(), ActiveCount()
        self.reading: dict[asyncio.Task[None] | None, float] = {}
        self.cost = _FIRST_COST

    @property
    def excess(self) -> str | None:
        """Why one more request is too many, in a word that can be counted; None if it is not."""
        if self.in_flight.now >= self._config.max_in_flight:
            return "in_flight"
        if (self.in_flight.now - self.waiting.now) * self.cost > self._config.max_delay:
            return "busy"
        return None

    async def run(self) -> None:
        """Learn what a request costs, and cut off slow bodies, until cancelled."""
        began, used, finished = time.perf_counter(), time.thread_time(), self.in_flight.finished
        while True:
            await asyncio.sleep(_LEARNING_INTERVAL)
            before, began = began, time.perf_counter()
            used_before, used = used, time.thread_time()
            n_finished, finished = self.in_flight.finished - finished, self.in_flight.finished
            self.learn(began - before, used - used_before, n_finished)
            self._cut_off()

    def _cut_off(self) -> None:
        """Cancel requests whose bodies take too long; they see that they are no longer among those that are read."""
        since = asyncio.get_running_loop().time() - self._config.body_timeout
        for task in [task for task, began in self.reading.items() if began < since]:
            del self.reading[task]
            if task is not None:
                task.cancel()

    def learn(self, seconds: float, used: float, n_finished: int) -> None:
        """Learn from some time of which so much was used, while so many requests were answered.

        While there is little to do, other things than requests take most of what is used, and nothing is learned.
        """
        if n_finished and used > seconds / 2:
            # One collection of garbage must not look like dear requests.
            latest = min(used / n_finished, _MAX_GROWTH * self.cost)
            self.cost += _LEARNING_RATE * (latest - self.cost)
