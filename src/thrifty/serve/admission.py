"""The way of a request: turned away where there is too much to do, its key and size checked, run, counted, logged."""

import asyncio
import hmac
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send

from thrifty.errors import FullModelDownError, InvalidInputError, PurchaseFailedError
from thrifty.serve.config import Config
from thrifty.serve.load import Load
from thrifty.serve.tally import Tally

__all__ = ["Operation", "Refusal", "Request", "error_body"]

LOG = logging.getLogger("thrifty.serve")
CONNECTION, COUNTED = "thrifty.connection", "thrifty.counted"
"""In the scope of a request: the connection that let it in, and whether it counts as being under way."""

TOO_MUCH = "there is too much to do. Ask again later."

_READ = {
    b"authorization",
    b"x-api-key",
    b"x-request-id",
    b"content-length",
    b"content-encoding",
    b"inference-header-content-length",
}


class Refusal(Exception):  # noqa: N818
    """A request that is not run: its status and the words of the answer."""

    def __init__(self, status: int, words: str, retry_after: int | None = None) -> None:
        super().__init__(words)
        self.status, self.retry_after = status, retry_after


class _ClientGoneError(Exception):
    """Nobody waits for the answer any more."""


@dataclass
class Request:
    """A request that was admitted.

    Attributes
    ----------
    body : bytes
        What was sent.
    headers : dict of bytes to bytes
        The headers that the gateway reads.
    path : dict of str to str
        Parts of the address that vary.
    facts : dict
        What the log says of it.
    """

    body: bytes
    headers: Mapping[bytes, bytes]
    path: Mapping[str, Any]
    facts: dict[str, Any] = field(default_factory=dict)


class Operation:
    """One operation of the gateway, as an ASGI application.

    Parameters
    ----------
    name : str
        What metrics and logs call it.
    run : callable
        From a request to the bytes of a JSON answer.
    config : Config
        Key and limits.
    tally : Tally
        Counts what happens.
    load : Load, optional
        Where the operation is work: it is then turned away while there is too much of it.
    is_open : bool
        Whether no key is needed.
    """

    def __init__(
        self,
        name: str,
        run: Callable[[Request], Awaitable[bytes]],
        config: Config,
        tally: Tally,
        load: Load | None = None,
        *,
        is_open: bool = False,
    ) -> None:
        self.name, self.load = name, load
        self._run, self._config, self._tally = run, config, tally
        self._key = None if is_open or config.api_key is None else config.api_key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            await self._answered(scope, receive, send)
        finally:
            if self.load is not None and scope.pop(COUNTED, False):
                self.load.finish()

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        request = Request(b"", {}, scope.get("path_params", {}))
        status, retry_after = 200, None
        connection = scope.pop(CONNECTION, None)  # kept, it would be a circle of references
        try:
            if connection is None:
                self._turn_away()
            request.headers = {name: value for name, value in scope["headers"] if name in _READ}
            self._check_key(request.headers)
            request.body = await self._body(request.headers, receive)
            answer = await self._counted(request, scope)
        except _ClientGoneError:
            return
        except Refusal as error:
            status, answer, retry_after = error.status, error_body(str(error)), error.retry_after
        except (FullModelDownError, PurchaseFailedError) as error:
            status, answer, retry_after = 503, error_body(str(error)), self._config.retry_after
        except InvalidInputError as error:
            status, answer = 400, error_body(str(error))
        except Exception as error:
            # The client is told that it is not its fault, and the log where it happened, without values.
            status, answer = 500, error_body("the gateway failed. Its log says where.")
            request.facts["failure"] = _where(error)
        self._tally.requests[self.name, status] += 1
        if self._config.log_requests and LOG.isEnabledFor(logging.INFO):
            facts = {"operation": self.name, "status": status, **request.facts}
            facts["ms"] = round(1e3 * (time.perf_counter() - began), 3)
            LOG.info("%s", orjson.dumps({"time": time.time(), **facts}).decode())
        if status != 200 or connection is None or not connection.reply(scope, answer):
            await _respond(send, status, answer, retry_after)

    async def _counted(self, request: Request, scope: Scope) -> bytes:
        if self.load is not None and COUNTED not in scope:
            self._turn_away()  # there may be more to do than when its body began to come
            scope[COUNTED] = True
            self.load.in_flight += 1
        if self.load is not None:
            await self.load.begin()
        return await self._run(request)

    def _turn_away(self) -> None:
        excess = None if self.load is None else self.load.excess
        if excess is not None:
            self._tally.turned_away[excess] += 1
            raise Refusal(503, TOO_MUCH, self._config.retry_after)

    def _check_key(self, headers: Mapping[bytes, bytes]) -> None:
        if self._key is None:
            return
        given = headers.get(b"x-api-key") or headers.get(b"authorization", b"").removeprefix(b"Bearer ")
        if not hmac.compare_digest(given, self._key):
            raise Refusal(
                401, "a key is needed: send it as 'Authorization: Bearer KEY' or as 'X-API-Key: KEY'."
            )

    async def _body(self, headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
        most = self._config.most_body_bytes
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise Refusal(415, "the body must not be compressed. Leave out Content-Encoding.")
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 18 or int(length) > most:
            raise Refusal(413, f"the body must have at most {most:,} bytes. Send fewer rows at a time.")
        message = await receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            # In one piece, as nearly always; without a declared length it may still be too long.
            return _capped(message.get("body", b""), most)
        try:
            async with asyncio.timeout(self._config.body_timeout):
                return await _rest(message, receive, most)
        except TimeoutError:
            raise Refusal(408, "the body took too long to come.") from None


async def _rest(message: Any, receive: Receive, most: int) -> bytes:
    parts, size = [], 0
    while True:
        if message["type"] == "http.disconnect":
            raise _ClientGoneError
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most or not message.get("more_body"):
            return _capped(b"".join(parts), most)
        message = await receive()


def _capped(body: bytes, most: int) -> bytes:
    if len(body) > most:
        raise Refusal(413, f"the body must have at most {most:,} bytes. Send fewer rows at a time.")
    return body


def error_body(words: str) -> bytes:
    """The JSON of a refusal."""
    return orjson.dumps({"error": words})


async def _respond(send: Send, status: int, body: bytes, retry_after: int | None) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if retry_after is not None:
        headers.append((b"retry-after", str(retry_after).encode()))
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _where(error: BaseException) -> str:
    """The kind of an error and the line that raised it; its message may hold values."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    line = "" if trace is None else f" at {trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}"
    return f"{type(error).__name__}{line}"
