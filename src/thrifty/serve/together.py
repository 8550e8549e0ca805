"""Rows of requests that come at the same time walk together, and each goes the way that it would go alone.

A stage is called once for all of them, which pays where there are more rows than stages. Where there are fewer, they
walk one after the other, which is still done sooner than each between the parsing of one request and of the next.
Nobody waits for others to come: what walks together are the requests that were read in the same turn of the event loop.
"""

import asyncio
import math
from collections.abc import Callable

import numpy as np

from thrifty.chain.chain import Chain
from thrifty.chain.sources import Reader, TableReader
from thrifty.chain.walk import Walk
from thrifty.errors import ThriftyError
from thrifty.tables.reader import Cells

__all__ = ["Together"]

ENOUGH_ROWS = 1.5
"""Rows for each stage that walk sooner together than one after the other: alone, a row visits several at once."""

Send = Callable[[Reader], Walk]
_Waiting = tuple[Send, Cells, asyncio.Future[Walk]]


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

    async def walk(self, send: Send, cells: Cells) -> Walk:
        """Where ``send`` sends rows, together with others that are gathered in this turn of the event loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Walk] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._go)
        self._waiting.append((send, cells, future))
        return await future

    def _go(self) -> None:
        waiting, self._waiting = self._waiting, []
        groups: dict[Send, list[_Waiting]] = {}
        for one in waiting:
            groups.setdefault(one[0], []).append(one)
        for group in groups.values():
            n_rows = sum(len(cells) for _, cells, _ in group)
            is_worth_it = len(group) > 1 and n_rows >= self._enough
            if not (is_worth_it and _walk_together(group)):
                for one in group:
                    _walk_alone(*one)


def _walk_together(group: list[_Waiting]) -> bool:
    """Walk, and tell whether that went well; where some row is refused, all walk alone."""
    send = group[0][0]
    try:
        numbers = np.concatenate([cells.numbers for _, cells, _ in group])
        keys = np.concatenate([cells.row_keys for _, cells, _ in group])
        walk = send(TableReader(numbers, numbers, row_keys=keys))
    except (ThriftyError, ArithmeticError, ValueError):
        return False
    first = 0
    for _, cells, future in group:
        own = slice(first, first + len(cells))
        first = own.stop
        if not future.done():
            node = None if walk.node is None else walk.node[own]
            future.set_result(Walk(np.arange(len(cells)), walk.route[own], walk.scores[own], node=node))
    return True


def _walk_alone(send: Send, cells: Cells, future: asyncio.Future[Walk]) -> None:
    if future.done():  # its client is gone
        return
    try:
        future.set_result(send(TableReader(cells.numbers, cells.numbers, row_keys=cells.row_keys)))
    except Exception as error:
        future.set_exception(error)
