"""Rows of requests that come at the same time walk together, and each goes the way that it would go alone.

A stage is called once for all of them: for sixteen requests of one row that takes a fraction of the time of sixteen
walks. Nobody waits for others to come: what walks together are the requests that were read in the same turn of the
event loop.
"""

import asyncio
from typing import Protocol

import numpy as np

from thrifty.arrays import Floats, Ints
from thrifty.chain.chain import Walk
from thrifty.chain.sources import TableReader
from thrifty.exceptions import ThriftyError

__all__ = ["Together"]

ENOUGH_ROWS = 8
"""Rows that walk sooner together than one after the other."""


class Sender(Protocol):
    """What sends rows on their way: a chain, or what holds its budget."""

    @property
    def behind(self) -> object:
        """The chain that stands in the place of the full model, if there is one."""

    def walk(self, reader: TableReader) -> Walk:
        """Send every row as far as it goes."""


_Waiting = tuple[Sender, Floats, asyncio.Future[Walk]]


class Together:
    """Gathers the rows that are to walk; every cell of them can be read."""

    def __init__(self) -> None:
        self._waiting: list[_Waiting] = []

    async def walk(self, sender: Sender, numbers: Floats) -> Walk:
        """Where rows go, together with others that are gathered in this turn of the event loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Walk] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._send)
        self._waiting.append((sender, numbers, future))
        return await future

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        groups: dict[int, list[_Waiting]] = {}
        for one in waiting:
            groups.setdefault(id(one[0]), []).append(one)
        for group in groups.values():
            n_rows = sum(len(numbers) for _, numbers, _ in group)
            is_worth_it = len(group) > 1 and n_rows >= ENOUGH_ROWS and group[0][0].behind is None
            if not (is_worth_it and _walk_together(group)):
                for one in group:
                    _walk_alone(*one)


def _walk_together(group: list[_Waiting]) -> bool:
    """Walk, and tell whether that went well; where some row is refused, all walk alone."""
    try:
        walk = group[0][0].walk(_Apart([numbers for _, numbers, _ in group]))
    except (ThriftyError, ArithmeticError, ValueError):
        return False
    first = 0
    for _, numbers, future in group:
        own = slice(first, first + len(numbers))
        first = own.stop
        if not future.done():
            future.set_result(Walk(np.arange(len(numbers)), walk.route[own], walk.scores[own]))
    return True


def _walk_alone(sender: Sender, numbers: Floats, future: asyncio.Future[Walk]) -> None:
    if future.done():  # its client is gone
        return
    try:
        future.set_result(sender.walk(TableReader(numbers, numbers)))
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
