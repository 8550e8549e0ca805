"""Limits on connections, on the heads of requests and on requests under way, in front of uvicorn's HTTP protocol.

uvicorn reads a head of any size and waits for its end without a limit. A ``_Connection`` hands the bytes of a
connection on to uvicorn's protocol, one request at a time, and counts those of each head. It hands on a chunked body
after the application has begun to run, so that a trailer, which uvicorn appends to the headers, cannot change what the
application has read.

A small request is collected here and handed on whole, which saves uvicorn and the application the parts of its body.
Under overload it waits here until there is room for it, or is refused here: that takes a tenth of the time in which
uvicorn would read it and the application refuse it.

Connections are encrypted here, so that they count before their handshakes.
"""

import asyncio
import contextlib
import math
import re
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from thrifty.serve.admission import ADMITTED, LARGE_BODY, TOO_MUCH, Limiter
from thrifty.serve.config import Config
from thrifty.serve.logs import LOG
from thrifty.serve.metrics import Metrics

__all__ = ["MAX_HEADERS", "MAX_HEAD_BYTES", "Connections", "max_descriptors"]

MAX_HEAD_BYTES, MAX_HEADERS = 60 * 1024, 100
"""Most bytes and most fields of the head of a request, as in Envoy's defaults."""

RESERVED_DESCRIPTORS = 64
"""Descriptors that connections of clients leave to files, to the administration and to calls of other services."""

_CONNECTIONS_PER_REQUEST = 16
"""Connections for each request that may be in flight; more are closed."""

_MAX_ACCEPTED = 64
"""Connections that are accepted in one turn of the event loop; other workers may accept the rest."""

IDLE_TIMEOUT = 5.0
"""Seconds after a response in which the next request must begin."""

SEND_TIMEOUT = 30.0
"""Seconds in which a client must have read something of a response that waits for it."""

_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d{1,9})\r\n", re.IGNORECASE)
_FRAMING = re.compile(rb"\r\n[ \t]*(?:content-length|transfer-encoding)", re.IGNORECASE)
_NOT_PLAIN = re.compile(rb"\r\n(expect|upgrade|connection(?!: keep-alive\r\n))[ \t]*:", re.IGNORECASE)
"""Fields with which a request is left to uvicorn."""


class Connections:
    """Counts the connections of one server, and limits what arrives before a request begins.

    Parameters
    ----------
    config : Config
        ``max_connections_per_address``, ``head_timeout`` and ``max_in_flight``.
    limiter : Limiter
        Admits or refuses requests that came in one piece.
    metrics : Metrics
        Counts those that are refused.
    tls : ssl.SSLContext, optional
        Encrypts connections.
    listening : socket, optional
        Where clients connect, so that all that wait are accepted at once.
    """

    def __init__(
        self,
        config: Config,
        limiter: Limiter,
        metrics: Metrics,
        tls: ssl.SSLContext | None = None,
        listening: socket.socket | None = None,
    ) -> None:
        self._max_connections = min(_CONNECTIONS_PER_REQUEST * config.max_in_flight, max_descriptors())
        self._max_per_address = config.max_connections_per_address
        self.head_timeout, self.limiter = config.head_timeout, limiter
        self.send_timeout, self.tls = SEND_TIMEOUT, tls
        self._metrics, self._listening = metrics, listening
        if listening is not None:
            listening.setblocking(False)
        self._accepting: set[asyncio.Task[Any]] = set()
        self._open: dict[Any, _Connection] = {}
        self._by_address: Counter[str] = Counter()
        self.sweep_interval = min(0.5, config.head_timeout / 4)
        self._is_sweeping = False
        self._refusal = (
            b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: %d\r\n"
            b"content-length: %d\r\n\r\n%b" % (config.retry_after, len(TOO_MUCH), TOO_MUCH)
        )

    def protocol(self, http: Any) -> type[asyncio.Protocol]:
        """A class of connections in front of a class of uvicorn's protocols."""
        connections = self

        class Limited(_Connection):
            def __init__(self, *arguments: Any, **given: Any) -> None:
                super().__init__(http(*arguments, **given), connections)
                connections.accept_others(lambda: _Connection(http(*arguments, **given), connections))

        return Limited

    def accept_others(self, make: Callable[[], asyncio.Protocol]) -> None:
        """Accept all clients that wait, after the first one.

        uvloop accepts one in a turn of the event loop. Under load a turn takes long, and new clients would wait for
        seconds.
        """
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):  # none is left, or no descriptor
            for _ in range(_MAX_ACCEPTED if self._listening is not None else 0):
                client, _ = self._listening.accept()  # type: ignore[union-attr]  # not None: the range is not empty
                client.setblocking(False)
                task = loop.create_task(loop.connect_accepted_socket(make, client))
                self._accepting.add(task)
                task.add_done_callback(self._accepted)

    def _accepted(self, task: "asyncio.Task[Any]") -> None:
        self._accepting.discard(task)
        if not task.cancelled():
            task.exception()  # a client that is gone already is nothing to report

    def app(self, app: ASGIApp) -> ASGIApp:
        """The application, given headers that trailers do not reach, and no more of them than allowed."""

        async def limited(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            headers = list(scope["headers"])
            connection = self._open.get(scope["client"] and tuple(scope["client"]))
            is_admitted = connection is not None and connection.begin()
            is_whole = connection is None or not connection.is_chunked
            # What came behind a chunked body is not seen here before uvicorn reads it, with its trailers.
            is_unseen = connection is not None and not connection.is_in_request

            async def watched() -> Message:
                nonlocal is_whole
                message = await receive()
                is_whole = not message.get("more_body", False)
                return message

            try:
                if is_unseen or len(headers) > MAX_HEADERS:
                    is_whole = not is_unseen
                    await _refuse(send, 400 if is_unseen else 431)
                else:
                    scope = {**scope, "headers": headers, ADMITTED: is_admitted}
                    await app(scope, receive if is_whole else watched, send)
            finally:
                if is_admitted:
                    self.limiter.leave()
                if connection is not None:
                    connection.end(is_whole)

        return limited

    def admit(self, address: Any, connection: "_Connection") -> bool:
        """Whether there is room for one more connection; it counts from now on."""
        host = address[0] if address else ""
        if len(self._open) >= self._max_connections or self._by_address[host] >= self._max_per_address:
            LOG.warning("a connection was refused: too many are open")
            return False
        self._open[address] = connection
        self._by_address[host] += 1
        if not self._is_sweeping:
            self._is_sweeping = True
            self._sweep()
        return True

    def leave(self, address: Any, connection: "_Connection") -> None:
        """Count a connection no longer, if it did."""
        if self._open.get(address) is connection:
            del self._open[address]
            host = address[0] if address else ""
            self._by_address[host] -= 1
            if not self._by_address[host]:
                del self._by_address[host]

    def _sweep(self) -> None:
        """Close connections that are late; a timer for each of them would take longer."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in [one for one in self._open.values() if one.is_late(now)]:
            connection.expire()
        self._is_sweeping = bool(self._open)
        if self._open:
            loop.call_later(self.sweep_interval, self._sweep)

    def refuse(self, transport: Any, reason: str) -> None:
        """Answer a request with 503."""
        self._metrics.turned_away[reason] += 1
        self._metrics.requests["refused", 503] += 1
        transport.write(self._refusal)


class _Connection(asyncio.Protocol):
    """Hands bytes on to uvicorn's protocol, and closes connections whose heads are too long or too slow.

    Attributes
    ----------
    deadline : float
        When the handshake must be over, or the head of the next request must have come; infinite within a request.
    is_chunked : bool
        Whether the length of the body is not known from the head.
    """

    def __init__(self, http: Any, connections: Connections) -> None:
        # The protocol behind this one; None until the connection is admitted and encrypted.
        self._http: Any = None
        self._next_http, self._connections = http, connections
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._address: Any = None
        self._handshake: asyncio.Task[Any] | None = None
        self.deadline = math.inf
        # The head so far, None within a request; bytes of the body that have not come yet; what follows the request.
        self._head: bytes | None = b""
        self._body_left, self.is_chunked = 0, False
        self._later: list[bytes] = []
        # What came and was not handed on yet: a small request until it is whole, or one that waits for room.
        self._held: list[bytes] = []
        self._is_collected = self._is_queued = self._is_admitted = False
        self._is_ended = False  # whether the response of a request has ended before its body
        # Bytes of responses that the client has not read, where it reads too slowly, and when it must have read some.
        self._n_unread, self._send_deadline = 0, math.inf

    # -- from start to end -------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        address = transport.get_extra_info("peername")
        self._transport, self._address = transport, address and tuple(address[:2])
        if not self._connections.admit(self._address, self):
            transport.abort()
        elif self._connections.tls is None:
            self._open(transport)
        else:
            self.deadline = self._loop.time() + self._connections.head_timeout
            tls = self._loop.start_tls(transport, self, self._connections.tls, server_side=True)
            self._handshake = self._loop.create_task(tls)
            self._handshake.add_done_callback(self._encrypted)
            # After the callbacks that the first step of the handshake schedules.
            self._loop.call_soon(self._loop.call_soon, self._give_early)

    def _give_early(self) -> None:
        """Give the handshake what came before it began: uvloop reads from a connection at once."""
        protocol, early = self._transport.get_protocol(), b"".join(self._held)
        self._held.clear()
        while early and not self._transport.is_closing():
            room = protocol.get_buffer(len(early))
            n_bytes = min(len(room), len(early))
            room[:n_bytes] = early[:n_bytes]
            protocol.buffer_updated(n_bytes)
            early = early[n_bytes:]

    def _encrypted(self, handshake: "asyncio.Task[Any]") -> None:
        if handshake.cancelled() or handshake.exception() is not None or handshake.result() is None:
            self._transport.abort()
            self.connection_lost(None)
        else:
            self._open(handshake.result())

    def _open(self, transport: Any) -> None:
        self._transport, self._http = transport, self._next_http
        self.deadline = self._loop.time() + self._connections.head_timeout
        self._http.connection_made(transport)
        held, self._held = self._held, []
        for data in held:
            self.data_received(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.deadline = math.inf
        self._connections.leave(self._address, self)
        if self._http is not None:
            self._http.connection_lost(error)
        if self.begin():  # no application has run, or will
            self._connections.limiter.leave()

    def expire(self) -> None:
        """Give up a client that is late; the rest of a small body may still come, and is left to the application."""
        if self._is_collected:
            self._hand_on()
            return
        self._transport.abort()
        if self._handshake is not None:
            self._handshake.cancel()

    # -- requests ----------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        if self._http is None:  # before the handshake has begun, or before its end is known here
            self._held.append(data)
        elif self._head is None:
            self._body_received(data)
        elif not self._head and (length := _small_length(data)):
            self._head, self._body_left = None, length
            self.is_chunked, self._is_ended, self._is_collected = False, False, True
            self.deadline = self._loop.time() + self._connections.sweep_interval
            self._body_received(data, is_held=True)
        else:
            self._head_received(data)

    def _queue(self) -> None:
        """Let a small request, which is whole, wait until there is room for it."""
        self._is_collected, self._is_queued, self.deadline = False, True, math.inf
        if not self._connections.limiter.when_decided(self._decided):
            self._held.clear()

    def _decided(self, reason: str | None) -> bool:
        """Hand on a request that was admitted, or refuse it."""
        if self._transport.is_closing():
            return False
        self._is_queued = False
        if reason is None:
            self._is_admitted = True
            self._hand_on()
            return True
        self._connections.refuse(self._transport, reason)
        self._held.clear()
        self.end(is_whole=True)
        return True

    @property
    def is_in_request(self) -> bool:
        """Whether the head of a request has ended, and its response has not."""
        return self._head is None

    def begin(self) -> bool:
        """Whether a request was admitted here; from now on the caller counts it."""
        self.deadline = math.inf
        is_admitted, self._is_admitted = self._is_admitted, False
        return is_admitted

    def _head_received(self, data: bytes) -> None:
        assert self._head is not None  # asked for only outside of a request
        if not self._head:
            self.deadline = self._loop.time() + self._connections.head_timeout
        before = len(self._head)
        self._head += data
        end = self._head.find(b"\r\n\r\n", max(before - 3, 0)) + 4
        if end < 4:
            end = len(self._head) + 1
        if min(end, len(self._head)) > MAX_HEAD_BYTES:
            self._transport.write(_TOO_LARGE)
            self._transport.close()
        elif end > len(self._head):
            self._http.data_received(data)
        else:
            length = _body_length(self._head, end)
            self._body_left, self.is_chunked, self._is_ended = length or 0, length is None, False
            self._head, self.deadline = None, math.inf
            self._http.data_received(data[: end - before])
            if len(data) > end - before:
                # The task of the application was scheduled before this.
                self._loop.call_soon(self._hand_on)
                self._body_received(data[end - before :], is_held=True)

    def _body_received(self, data: bytes, is_held: bool = False) -> None:
        """Hand on what belongs to the body of a request, or hold it, and keep what follows for later."""
        if not self.is_chunked and len(data) > self._body_left:
            self._later.append(data[self._body_left :])
            data = data[: self._body_left]
            self._transport.pause_reading()
        self._body_left -= len(data)
        if is_held or self._held or self._is_queued:
            if data:
                self._held.append(data)
            if self._is_collected and not self._body_left:
                self._queue()
        elif data:
            self._http.data_received(data)
        if self._is_ended:
            self.end(is_whole=True)

    def _hand_on(self) -> None:
        if self._is_collected:
            self._is_collected, self.deadline = False, math.inf
        held, self._held = self._held, []
        if held and not self._transport.is_closing():
            self._http.data_received(b"".join(held))

    def end(self, is_whole: bool) -> None:
        """Expect the next head, once the rest of the body has come: the response of a request has ended."""
        self.deadline = self._loop.time() + IDLE_TIMEOUT
        if not is_whole:
            self._transport.close()
        elif self._body_left > 0 and not self.is_chunked:
            self._is_ended = True
        else:
            self._head, self._is_ended = b"", False
            if self._later:
                self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Read what came behind the last request."""
        later, self._later = b"".join(self._later), []
        self._transport.resume_reading()
        self.data_received(later)

    def eof_received(self) -> Any:
        if self._http is None:
            return None
        if not self._is_queued:
            self._hand_on()
        return self._http.eof_received()

    def is_late(self, now: float) -> bool:
        """Whether the client must be given up: its next head has not come, or it does not read its responses."""
        if not self._n_unread:
            return self.deadline < now
        n_unread = self._transport.get_write_buffer_size()
        if n_unread < self._n_unread:
            self._n_unread, self._send_deadline = n_unread, now + self._connections.send_timeout
        return self._send_deadline < now

    def pause_writing(self) -> None:
        self._n_unread = self._transport.get_write_buffer_size()
        self._send_deadline = self._loop.time() + self._connections.send_timeout
        if self._http is not None:
            self._http.pause_writing()

    def resume_writing(self) -> None:
        self._n_unread = 0
        if self._http is not None:
            self._http.resume_writing()


def _small_length(data: bytes) -> int:
    """Length of the one small request that some bytes begin, which the limiter may refuse; 0 for anything else."""
    end = data.find(b"\r\n\r\n") + 4
    if not data.startswith(b"POST ") or not 4 < end <= MAX_HEAD_BYTES:
        return 0
    length = None if _NOT_PLAIN.search(data, 0, end) else _body_length(data, end)
    return 0 if length is None or length > LARGE_BODY else end + length


def _body_length(head: bytes, end: int) -> int | None:
    """Length of the body by the head of a request, which ends there; None if chunked, or named in an unusual form."""
    lengths, n_named = _LENGTH.findall(head, 0, end), len(_FRAMING.findall(head, 0, end))
    if n_named > 1 or len(lengths) != n_named:
        return None
    return int(lengths[0]) if lengths else 0


async def _refuse(send: Send, status: int) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body"})


def max_descriptors() -> int:
    """Descriptors that the operating system leaves to connections of clients; no limit on systems without one."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return 2**31
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if soft == resource.RLIM_INFINITY else max(soft - RESERVED_DESCRIPTORS, 8)
