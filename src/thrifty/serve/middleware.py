"""Concerns of every request, one to a class: its line in the log, its key, its body, room for it, and its refusal."""

import asyncio
import hmac
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from thrifty.errors import FullModelDownError, InvalidInputError, PurchaseFailedError
from thrifty.serve.config import LOOPBACK, Config, read_keys
from thrifty.serve.logs import LOG, failure_place
from thrifty.serve.metrics import Metrics

__all__ = [
    "Errors",
    "Keys",
    "NeedsKey",
    "Refusal",
    "RequestLog",
    "Room",
    "WholeBody",
    "facts_of",
    "json_response",
    "operation",
    "plain_error",
]


# -- refusals --------------------------------------------------------------------------------------


class Refusal(Exception):  # noqa: N818 - a refusal is a response, not a failure
    """The one error of the gateway itself: status and message of the response.

    Parameters
    ----------
    status : int
        Status of HTTP.
    message : str
        The error in words.
    retry_after : int, optional
        Seconds after which the client should ask again.
    """

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.retry_after = status, retry_after


def plain_error(message: str, status: int) -> dict[str, Any]:  # noqa: ARG001 - other shapes hold the status
    """Shape of an error: ``{"error": message}``."""
    return {"error": message}


class Errors:
    """The one handler of errors: each becomes a ``Refusal``, and that a response.

    Parameters
    ----------
    retry_after : int
        Seconds after which a client should ask again where something is down.
    shape : callable
        From message and status to the JSON of the response.
    """

    def __init__(self, retry_after: int, shape: Callable[[str, int], Any] = plain_error) -> None:
        self._retry_after, self._shape = retry_after, shape

    async def __call__(self, request: Request, error: Exception) -> Response:
        """Response to an error."""
        refusal = self._refusal_of(error)
        headers = {} if refusal.retry_after is None else {"retry-after": str(refusal.retry_after)}
        if refusal.status == 401:
            headers["www-authenticate"] = "Bearer"
        if refusal.status == 500:
            facts_of(request)["failure"] = failure_place(error)
        if isinstance(error, HTTPException):
            headers |= error.headers or {}
        return json_response(self._shape(str(refusal), refusal.status), refusal.status, headers)

    def _refusal_of(self, error: Exception) -> Refusal:
        if isinstance(error, Refusal):
            return error
        if isinstance(error, HTTPException):
            words = {404: "there is nothing at this address.", 405: "this address takes another method."}
            return Refusal(error.status_code, words.get(error.status_code, str(error.detail)))
        if isinstance(error, FullModelDownError | PurchaseFailedError):
            return Refusal(503, str(error), self._retry_after)
        if isinstance(error, InvalidInputError):
            return Refusal(400, str(error))
        # The client learns that it is not its fault, and the log where it happened, without values.
        return Refusal(500, "the gateway failed. Its log says where.")


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Response of JSON; bytes are JSON already."""
    body = content if isinstance(content, bytes) else orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(body, status, headers, "application/json")


# -- the log ---------------------------------------------------------------------------------------


def facts_of(request: Request) -> dict[str, Any]:
    """Facts about a request for its line in the log."""
    facts: dict[str, Any] = request.scope.setdefault("thrifty.facts", {})
    return facts


class RequestLog:
    """Counts every request by operation and status, and writes its line of the log.

    Parameters
    ----------
    app : callable
        The application behind.
    metrics : Metrics
        Counts requests.
    errors : Errors
        Response to errors.
    writes : bool
        Whether lines are written.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, errors: Errors, writes: bool) -> None:
        self._app, self._metrics, self._errors, self._writes = app, metrics, errors, writes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except ClientDisconnect:
            return
        except Exception as error:
            response = await self._errors(Request(scope), error)
            if not status:
                await response(scope, receive, watched)
        operation = getattr(scope.get("endpoint"), "__name__", "unknown").strip("_")
        self._metrics.requests_of(operation, status).inc()
        if self._writes and LOG.isEnabledFor(logging.INFO):
            facts = {"operation": operation, "status": status, **scope.get("thrifty.facts", {})}
            facts["ms"] = round(1e3 * (time.perf_counter() - began), 3)
            LOG.log(logging.WARNING if status >= 400 else logging.INFO, "request", extra={"facts": facts})


# -- keys ------------------------------------------------------------------------------------------


class Keys:
    """API keys of clients, of metrics and of the administration.

    Parameters
    ----------
    config : Config
        ``api_key`` and ``keys``; ``admin_host``, where another one than this machine needs keys for everything.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._keys: dict[str, list[bytes]] = {}
        self.read()

    def read(self) -> None:
        """Read the file of keys again; one that breaks a rule changes nothing."""
        config = self._config
        keys = read_keys(None if config.keys is None else Path(config.keys))
        if config.api_key is not None:
            keys["clients"].append(config.api_key)
        keys["admin"] = keys["admin"] or keys["clients"]
        if config.admin_host not in LOOPBACK and not (keys["metrics"] and keys["admin"]):
            raise InvalidInputError(
                f"admin_host other than 127.0.0.1 needs keys for metrics and for changes; got {config.admin_host!r}. "
                f"Name a file with metrics = [...] and admin = [...] with --keys."
            )
        if keys["metrics"]:
            keys["metrics"] = [*keys["metrics"], *keys["admin"]]
        self._keys = {role: [key.encode() for key in listed] for role, listed in keys.items()}

    def are_needed(self, role: str) -> bool:
        """True if requests of a role must carry a key."""
        return bool(self._keys[role])

    def allow(self, role: str, headers: Mapping[bytes, bytes]) -> bool:
        """True if a request carries a key of a role, or needs none."""
        keys = self._keys[role]
        if not keys:
            return True
        sent = headers.get(b"x-api-key") or headers.get(b"authorization", b"").removeprefix(b"Bearer ")
        # Every key is compared, so that the time that it takes gives nothing away.
        return sum(hmac.compare_digest(sent, key) for key in keys) > 0


class NeedsKey:
    """Refuses requests without a key of a role."""

    def __init__(self, app: ASGIApp, keys: Keys, role: str) -> None:
        self._app, self._keys, self._role = app, keys, role

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if not self._keys.allow(self._role, dict(scope["headers"])):
            raise Refusal(
                401, "a key is needed: send it as 'Authorization: Bearer KEY' or as 'X-API-Key: KEY'."
            )
        await self._app(scope, receive, send)


# -- bodies ----------------------------------------------------------------------------------------


class WholeBody:
    """Reads a body before anything else is done for its request; refuses large, compressed and foreign ones.

    Parameters
    ----------
    app : callable
        The application behind.
    max_bytes : int
        Bytes of the largest body.
    media_type : bytes, optional
        The only type that is taken. A page in a browser cannot send JSON without asking first, which is refused.
    """

    def __init__(self, app: ASGIApp, max_bytes: int, media_type: bytes | None = None) -> None:
        self._app, self._max_bytes, self._media_type = app, max_bytes, media_type

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        headers = dict(scope["headers"])
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise Refusal(415, "the body must not be compressed. Leave out Content-Encoding.")
        if self._media_type not in (None, headers.get(b"content-type", b"").split(b";")[0].strip()):
            raise Refusal(415, f"send Content-Type: {(self._media_type or b'').decode()}.")
        length, body, is_more = headers.get(b"content-length", b"0"), bytearray(), True
        while is_more:
            is_length = length.isdigit() and len(length) <= 18
            # A length beyond the limit is refused before anything is read.
            if len(body) > self._max_bytes or not is_length or int(length) > self._max_bytes:
                raise Refusal(
                    413, f"the body must have at most {self._max_bytes:,} bytes. Send fewer rows at a time."
                )
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            body += message.get("body", b"")
            is_more = message.get("more_body", False) or len(body) > self._max_bytes
        whole: Message | None = {"type": "http.request", "body": bytes(body), "more_body": False}

        async def replay() -> Message:
            nonlocal whole
            message, whole = whole, None
            return await receive() if message is None else message

        await self._app(scope, replay, send)


# -- room ------------------------------------------------------------------------------------------


class Room:
    """Places for the requests of a gateway: one more waits a moment for a place, and is refused afterwards.

    A refusal that came at once would make clients ask again at once.

    Parameters
    ----------
    config : Config
        ``max_in_flight`` places, ``max_delay``, the seconds that a request waits, and ``retry_after``.
    metrics : Metrics
        Counts refusals.

    Attributes
    ----------
    n_taken : int
        Places that are taken.
    """

    def __init__(self, config: Config, metrics: Metrics) -> None:
        self._places = asyncio.Semaphore(config.max_in_flight)
        self._config, self._metrics = config, metrics
        self.n_taken = 0

    def __call__(self, app: ASGIApp) -> ASGIApp:
        """The application, which answers a request once there is a place for it."""

        async def admitted(scope: Scope, receive: Receive, send: Send) -> None:
            await self._take_place()
            self.n_taken += 1
            try:
                await app(scope, receive, send)
            finally:
                self.n_taken -= 1
                self._places.release()

        return admitted

    async def _take_place(self) -> None:
        if not self._places.locked():  # sooner than by a timeout that is not needed
            await self._places.acquire()
            return
        try:
            async with asyncio.timeout(self._config.max_delay):
                await self._places.acquire()
        except TimeoutError:
            self._metrics.rejected.inc()
            raise Refusal(
                503, "there is too much to do. Ask again later.", self._config.retry_after
            ) from None


def operation(
    gateway: Any, path: str, run: Any, *, method: str = "GET", is_open: bool = False, is_limited: bool = False
) -> Route:
    """Route of one operation for clients, behind the layers that it needs.

    Parameters
    ----------
    gateway : Gateway
        Has keys, settings and room.
    path, run, method : str, callable, str
        Address, function of a request, and method of HTTP.
    is_open : bool
        Whether it needs no key.
    is_limited : bool
        Whether it has a body, and waits for room.
    """
    layers = [] if is_open else [Middleware(NeedsKey, keys=gateway.keys, role="clients")]
    if is_limited:
        layers.append(Middleware(WholeBody, max_bytes=gateway.config.max_body_bytes))
        layers.append(Middleware(gateway.room))
    return Route(path, run, methods=[method], middleware=layers)
