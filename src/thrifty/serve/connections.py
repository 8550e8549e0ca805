"""Limits on connections and on the heads of requests, in front of uvicorn's HTTP protocol.

uvicorn reads a head of any size and waits for its end without a limit. A ``_Connection`` hands the bytes of a
connection on to uvicorn's protocol and counts those of each head. It hands on the body after the application has begun
to run, so that a trailer, which uvicorn appends to the headers, cannot change what the application has read.
"""

import asyncio
import logging
from collections import Counter
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["MAX_HEADERS", "MAX_HEAD_BYTES", "Connections", "max_descriptors"]

MAX_HEAD_BYTES, MAX_HEADERS = 60 * 1024, 100
"""Most bytes and most fields of the head of a request, as in Envoy's defaults."""

RESERVED_DESCRIPTORS = 64
"""Descriptors that connections of clients leave to files, to the administration and to calls of other services."""

_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class Connections:
    """Counts the connections of one server, and limits what arrives before a request begins.

    Parameters
    ----------
    max_connections, max_per_address : int
        Connections in all, and from one address; one more is closed at once.
    head_timeout : float
        Seconds in which the head of a request must arrive, from the connection or from its first byte.
    """

    def __init__(self, max_connections: int, max_per_address: int, head_timeout: float) -> None:
        self._max_connections, self._max_per_address = max_connections, max_per_address
        self.head_timeout = head_timeout
        self._open: dict[Any, _Connection] = {}
        self._by_address: Counter[str] = Counter()
        self.n_refused = 0

    def protocol(self, http: Any) -> type[asyncio.Protocol]:
        """A class of connections in front of a class of uvicorn's protocols."""
        connections = self

        class Limited(_Connection):
            def __init__(self, *arguments: Any, **given: Any) -> None:
                super().__init__(http(*arguments, **given), connections)

        return Limited

    def app(self, app: ASGIApp) -> ASGIApp:
        """The application, given headers that trailers do not reach, and no more of them than allowed."""

        async def limited(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            headers = list(scope["headers"])
            try:
                if len(headers) > MAX_HEADERS:
                    await _refuse(send)
                else:
                    await app({**scope, "headers": headers}, receive, send)
            finally:
                connection = self._open.get(scope["client"] and tuple(scope["client"]))
                if connection is not None:
                    connection.expect_head()

        return limited

    def admit(self, address: Any, connection: "_Connection") -> bool:
        """Whether there is room for one more connection; it counts from now on."""
        host = address[0] if address else ""
        if len(self._open) >= self._max_connections or self._by_address[host] >= self._max_per_address:
            self.n_refused += 1
            if self.n_refused & (self.n_refused - 1) == 0:  # strangers do not fill the log
                logging.getLogger("thrifty").warning(
                    "%d connections were refused so far: too many are open", self.n_refused
                )
            return False
        self._open[address] = connection
        self._by_address[host] += 1
        return True

    def leave(self, address: Any) -> None:
        """Count one connection less."""
        if self._open.pop(address, None) is not None:
            host = address[0] if address else ""
            self._by_address[host] -= 1
            if not self._by_address[host]:
                del self._by_address[host]


class _Connection(asyncio.Protocol):
    """Hands bytes on to uvicorn's protocol, and closes connections whose heads are too long or too slow."""

    def __init__(self, http: Any, connections: Connections) -> None:
        self._http, self._connections = http, connections
        self._transport: Any = None
        self._address: Any = None
        self._timer: asyncio.TimerHandle | None = None
        # Bytes of the head so far, and its last ones, in which its end may begin; None within a request.
        self._head: int | None = 0
        self._tail = b""
        self._waiting: list[bytes] = []

    def connection_made(self, transport: Any) -> None:
        address = transport.get_extra_info("peername")
        self._transport, self._address = transport, address and tuple(address[:2])
        if not self._connections.admit(self._address, self):
            self._http = None
            transport.abort()
            return
        self._start_timer()
        self._http.connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._stop_timer()
        if self._http is not None:
            self._connections.leave(self._address)
            self._http.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        if self._http is None or self._transport.is_closing():
            return
        if self._waiting:
            self._waiting.append(data)
        elif self._head is None:
            self._http.data_received(data)
        else:
            self._head_received(data)

    def _head_received(self, data: bytes) -> None:
        if self._timer is None:
            self._start_timer()
        seen = self._tail + data
        end = seen.find(b"\r\n\r\n")
        assert self._head is not None  # asked for only outside of a request
        self._head += len(data) if end < 0 else end + 4 - len(self._tail)
        if self._head > MAX_HEAD_BYTES:
            self._transport.write(_TOO_LARGE)
            self._transport.close()
            return
        if end < 0:
            self._tail = seen[-3:]
            self._http.data_received(data)
            return
        cut = end + 4 - len(self._tail)
        self._head, self._tail = None, b""
        self._stop_timer()
        self._http.data_received(data[:cut])
        if len(data) > cut:
            self._waiting.append(data[cut:])
            # The task of the application was scheduled before this.
            asyncio.get_running_loop().call_soon(self._hand_on)

    def _hand_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        for data in waiting:
            if self._http is not None and not self._transport.is_closing():
                self._http.data_received(data)

    def expect_head(self) -> None:
        """Count the bytes of the next head: the response of a request has ended."""
        self._head, self._tail = 0, b""

    def eof_received(self) -> Any:
        self._hand_on()
        return None if self._http is None else self._http.eof_received()

    def pause_writing(self) -> None:
        if self._http is not None:
            self._http.pause_writing()

    def resume_writing(self) -> None:
        if self._http is not None:
            self._http.resume_writing()

    def _start_timer(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._connections.head_timeout, self._transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


async def _refuse(send: Send) -> None:
    await send({"type": "http.response.start", "status": 431, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body"})


def max_descriptors() -> int:
    """Descriptors that the operating system leaves to connections of clients; no limit where it tells none."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return 2**31
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if soft == resource.RLIM_INFINITY else max(soft - RESERVED_DESCRIPTORS, 8)
