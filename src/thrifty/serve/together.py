"""Rows of requests that come at the same time walk together, and each goes the way that it would go alone.

A stage is called once for all of them, which pays where there are more rows than stages. Where there are fewer, they
walk one after the other, which is still done sooner than each between the parsing of one request and of the next.
Nobody waits for others to come: what walks together are the requests that were read in the same turn of the event loop.
"""

import asyncio
import math
from collections.abc import Callable

import numpy as np

from thrifty.arrays import Floats, Ints
from thrifty.chain.chain import Chain
from thrifty.chain.sources import Reader, TableReader
from thrifty.chain.walk import Walk
from thrifty.exceptions import ThriftyError

__all__ = ["Together"]

ENOUGH_ROWS = 1.5
"""Rows for each stage that walk sooner together than one after the other: alone, a row visits several at once."""

Send = Callable[[Reader], Walk]
_Waiting = tuple[Send, Floats, asyncio.Future[Walk]]


class Together:
    """Gathers the rows that are to walk; every cell of them can be read.

    Parameters
    ----------
    chain : Chain
        What they walk through; with a chain behind it, each row walks alone.
    """

    def __init__(self, chain: Chain) -> None:
        self._enough = math.inf if chain.behind is not None else max(ENOUGH_ROWS * chain.n_stages, 2)
        self._waiting: list[_Waiting] = []

    async def walk(self, send: Send, numbers: Floats) -> Walk:
        """Where ``send`` sends rows, together with others that are gathered in this turn of the event loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Walk] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._go)
        self._waiting.append((send, numbers, future))
        return await future

    def _go(self) -> None:
        waiting, self._waiting = self._waiting, []
        groups: dict[Send, list[_Waiting]] = {}
        for one in waiting:
            groups.setdefault(one[0], []).append(one)
        for group in groups.values():
            n_rows = sum(len(numbers) for _, numbers, _ in group)
            is_worth_it = len(group) > 1 and n_rows >= self._enough
            if not (is_worth_it and _walk_together(group)):
                for one in group:
                    _walk_alone(*one)


def _walk_together(group: list[_Waiting]) -> bool:
    """Walk, and tell whether that went well; where some row is refused, all walk alone."""
    send = group[0][0]
    try:
        walk = send(_Apart([numbers for _, numbers, _ in group]))
    except (ThriftyError, ArithmeticError, ValueError):
        return False
    first = 0
    for _, numbers, future in group:
        own = slice(first, first + len(numbers))
        first = own.stop
        if not future.done():
            node = None if walk.node is None else walk.node[own]
            future.set_result(Walk(np.arange(len(numbers)), walk.route[own], walk.scores[own], node=node))
    return True


def _walk_alone(send: Send, numbers: Floats, future: asyncio.Future[Walk]) -> None:
    if future.done():  # its client is gone
        return
    try:
        future.set_result(send(TableReader(numbers, numbers)))
    except Exception as error:
        future.set_exception(error)


class _Apart(TableReader):
    """Rows of several requests; chance knows each by its place in its own."""

    def __init__(self, tables: list[Floats]) -> None:
        numbers = np.concatenate(tables)
        super().__init__(numbers, numbers)
        self._places = np.concatenate([np.arange(len(table)) for table in tables])

    def identity(self, rows: Ints, held: Ints | None) -> Floats:
        """The place of each row in its request and what it holds, or the whole row."""
        if held is None:
            whole: Floats = super().identity(rows, held)
            return whole
        places = self._places[rows].astype(np.float64)[:, None]
        return np.hstack([places, self.block(rows, held)])
