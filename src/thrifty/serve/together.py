"""Rows of requests that come at the same time walk together, and each goes the way that it would go alone.

A stage is called once for all of them: for sixteen requests of one row that takes a fraction of the time of sixteen
walks. Nobody waits for others to come: what walks together are the requests that were read in the same turn of the
event loop.
"""

import asyncio
from collections.abc import Callable

import numpy as np

from thrifty.arrays import Floats, Ints
from thrifty.chain.chain import Walk
from thrifty.chain.sources import Reader, TableReader
from thrifty.exceptions import ThriftyError

__all__ = ["Together"]

ENOUGH_ROWS = 8
"""Rows that walk sooner together than one after the other."""

Send = Callable[[Reader], Walk]
_Waiting = tuple[Send, Floats, asyncio.Future[Walk]]


class Together:
    """Gathers the rows that are to walk; every cell of them can be read.

    Parameters
    ----------
    is_worth_it : bool
        Whether rows walk together at all; through a chain behind a chain they do not.
    """

    def __init__(self, *, is_worth_it: bool = True) -> None:
        self._is_worth_it = is_worth_it
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
            is_worth_it = self._is_worth_it and len(group) > 1 and n_rows >= ENOUGH_ROWS
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
