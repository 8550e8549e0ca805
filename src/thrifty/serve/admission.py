"""An operation as an ASGI application: admission, key, body, answer or error, metrics, log."""

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
OVERLOADED = "there is too much to do. Ask again later."

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
    """The client has closed the connection."""


class _OverloadedError(Exception):
    """One more request is too much."""


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
    load : Load
        Requests under way.
    is_work : bool
        Whether the operation is refused while there is too much to do.
    is_open : bool
        Whether no key is needed.
    """

    def __init__(
        self,
        name: str,
        run: Callable[[Request], Awaitable[bytes]],
        config: Config,
        tally: Tally,
        load: Load,
        *,
        is_work: bool = False,
        is_open: bool = False,
    ) -> None:
        self.name, self.is_work = name, is_work
        self._load = load
        self._run, self._config, self._tally = run, config, tally
        self._key = None if is_open or config.api_key is None else config.api_key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        began = time.perf_counter()
        request = Request(b"", {}, scope.get("path_params", {}))
        status, retry_after = 200, None
        try:
            self._admit()  # before anything is read
            request.headers = {name: value for name, value in scope["headers"] if name in _READ}
            self._check_key(request.headers)
            request.body = await self._body(request.headers, receive)
            answer = await self._run_admitted(request)
        except _ClientGoneError:
            return
        except _OverloadedError:  # no line in the log: refusals must stay cheap
            self._tally.requests[self.name, 503] += 1
            await _respond(send, 503, error_body(OVERLOADED), self._config.retry_after)
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
        await _respond(send, status, answer, retry_after)

    async def _run_admitted(self, request: Request) -> bytes:
        if not self.is_work:
            return await self._run(request)
        self._admit()  # there may be more to do than when its body began to come
        with self._load.in_flight:
            return await self._run(request)

    def _admit(self) -> None:
        """Refuse work that is too much."""
        excess = self._load.excess if self.is_work else None
        if excess is not None:
            self._tally.turned_away[excess] += 1
            raise _OverloadedError

    def _check_key(self, headers: Mapping[bytes, bytes]) -> None:
        if self._key is None:
            return
        given = headers.get(b"x-api-key") or headers.get(b"authorization", b"").removeprefix(b"Bearer ")
        if not hmac.compare_digest(given, self._key):
            raise Refusal(
                401, "a key is needed: send it as 'Authorization: Bearer KEY' or as 'X-API-Key: KEY'."
            )

    async def _body(self, headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
        most = self._config.max_body_bytes
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise Refusal(415, "the body must not be compressed. Leave out Content-Encoding.")
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 18 or int(length) > most:
            raise Refusal(413, f"the body must have at most {most:,} bytes. Send fewer rows at a time.")
        # ``asyncio.timeout`` would add several percent to every request: one loop cuts off all slow bodies.
        task, reading = asyncio.current_task(), self._load.reading
        reading[task] = asyncio.get_running_loop().time()
        try:
            return await self._pieces(receive, most)
        except asyncio.CancelledError:
            if task is None or task in reading:
                raise
            task.uncancel()
            raise Refusal(408, "the body took too long to come.") from None
        finally:
            reading.pop(task, None)

    async def _pieces(self, receive: Receive, most: int) -> bytes:
        """Read a body: nearly always one piece; how many come in several at once is bounded, and memory with it."""
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _ClientGoneError
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > most or not message.get("more_body"):
                return _capped(parts[0] if len(parts) == 1 else b"".join(parts), most)
            if len(parts) == 1 and len(self._load.reading) > self._config.max_in_flight:
                self._tally.turned_away["reading"] += 1
                raise _OverloadedError


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
