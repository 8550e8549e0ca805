"""Connections of clients: uvicorn's, with a door that turns requests away before any work is done for them.

Under too much load most of what the gateway does is to refuse, so that must cost next to nothing: a refusal is bytes
that were made once, written as soon as the head of the request was read. No task begins, and nothing of the body is
kept.
"""

from asyncio import TimerHandle
from collections.abc import Mapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from thrifty.serve.admission import CONNECTION, COUNTED, TOO_MUCH, Operation, error_body
from thrifty.serve.load import Load
from thrifty.serve.tally import Tally

__all__ = ["Connection", "refusal_of"]


class Connection(HttpToolsProtocol):
    """A connection of a client.

    Parameters
    ----------
    operations : dict of bytes to Operation
        By their addresses: what is work, and turned away while there is too much of it. Other requests go the way that
        uvicorn knows.
    load : Load
        Whether there is too much to do.
    tally : Tally
        Counts who was turned away.
    refusal : pair of bytes
        What they are told, on a connection that stays open and on one that is closed.
    **how
        What uvicorn gives to every connection.
    """

    def __init__(
        self,
        *,
        operations: Mapping[bytes, Operation],
        load: Load,
        tally: Tally,
        refusal: tuple[bytes, bytes],
        **how: Any,
    ) -> None:
        super().__init__(**how)
        self._operations, self._load, self._tally = operations, load, tally
        self._refusal = refusal
        self._others = self.app
        self._is_let_in = self._is_turned_away = False
        self._idle_since = 0.0
        self._idle_timer: TimerHandle | None = None

    # -- requests ------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Read what came."""
        super().data_received(data)
        if self._is_turned_away:
            # The rest of a body that nobody wants is still to come; who never sends it is not waited for.
            self._close_when_idle()

    def on_headers_complete(self) -> None:
        """Let a request in, or turn it away."""
        operation = self._operations.get(self.url)
        # Of several requests that were sent at once, the later ones wait for their turn, as uvicorn has it.
        is_next = self.cycle is None or self.cycle.response_complete
        self._is_let_in = operation is not None and is_next and self.parser.get_method() == b"POST"
        if not self._is_let_in or operation is None:
            self.app = self._others
            super().on_headers_complete()
            return
        waited = self._load.look()
        excess = self._load.excess
        if excess is not None:
            self._is_let_in = False
            self._turn_away(operation.name, excess, waited)
            return
        self.app = operation
        super().on_headers_complete()
        scope: Any = self.scope
        scope[CONNECTION] = self

    def on_body(self, body: bytes) -> None:
        """Keep a part of a body, unless its request was turned away."""
        if not self._is_turned_away:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Count a request that is there whole; one that never comes whole is no work."""
        if self._is_turned_away:
            self._is_turned_away = False
            self.server_state.total_requests += 1
            self._close_when_idle()
            return
        if self._is_let_in and not self.cycle.response_complete:
            self._load.in_flight += 1
            scope: Any = self.scope
            scope[COUNTED] = True
        super().on_message_complete()

    # -- answers -------------------------------------------------------------------------------------

    def reply(self, scope: Any, body: bytes) -> bool:
        """Write the whole answer to a request at once; False if it must go the way that uvicorn knows."""
        cycle = self.cycle
        is_plain = cycle.scope is scope and cycle.keep_alive and not cycle.response_started
        if not is_plain or cycle.disconnected or self.flow.write_paused:
            return False
        headers = b"".join([b"%b: %b\r\n" % header for header in self.server_state.default_headers])
        self.transport.write(
            b"HTTP/1.1 200 OK\r\n%bcontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
            % (headers, len(body), body)
        )
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        self.on_response_complete()
        return True

    def _turn_away(self, operation: str, reason: str, waited: float) -> None:
        self._tally.refused(operation, reason, waited)
        # Whoever asks before sending a body sends none now, and one that is not sent cannot be read to its end.
        is_last = self.expect_100_continue or not self.parser.should_keep_alive()
        self.transport.write(self._refusal[is_last])
        self._is_turned_away = True
        if is_last:
            self.transport.close()

    def _close_when_idle(self) -> None:
        # One timer that looks again in the end: a new one for every refusal would be a third of what that takes.
        self._idle_since = self.loop.time()
        if self._idle_timer is None:
            self._idle_timer = self.loop.call_later(self.timeout_keep_alive, self._close_if_idle)

    def _close_if_idle(self) -> None:
        self._idle_timer = None
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if is_answering or self.timeout_keep_alive_task is not None or self.transport.is_closing():
            return  # uvicorn looks after it
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0.0:
            self._idle_timer = self.loop.call_later(left, self._close_if_idle)
        else:
            self.transport.close()


def refusal_of(retry_after: int) -> tuple[bytes, bytes]:
    """The answer to whoever is turned away, on a connection that stays open and on one that is closed."""
    body = error_body(TOO_MUCH)
    head = (
        b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: %d\r\n"
        % retry_after
    )
    length = b"content-length: %d\r\n" % len(body)
    return head + length + b"\r\n" + body, head + length + b"connection: close\r\n\r\n" + body
