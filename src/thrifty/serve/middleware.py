"""Concerns of every request: its refusal, its line in the log, its key, its body, and room for it."""

import asyncio
import hmac
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from thrifty.errors import FullModelDownError, InvalidInputError, PurchaseFailedError
from thrifty.serve.config import LOOPBACK, Config, key_from, read_keys
from thrifty.serve.metrics import Metrics

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

LOG = logging.getLogger("thrifty.serve")

_MAX_MESSAGE = 1000


def log_as_json() -> None:
    """Write the entries of all loggers to standard error as lines of JSON."""
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonFormatter())
    logging.basicConfig(handlers=[handler], force=True)
    logging.captureWarnings(True)
    LOG.setLevel(logging.INFO)


def failure_place(error: BaseException) -> str:
    """The type of an error and the line that raised it; its message may hold values."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    line = "" if trace is None else f" at {trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}"
    return f"{type(error).__name__}{line}"


class _JsonFormatter(logging.Formatter):
    """One line of JSON; an entry about a request has its facts instead of a message."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {"time": record.created, "level": record.levelname.lower()}
        facts = getattr(record, "facts", None)
        if facts is None:
            facts = {"logger": record.name, "message": record.getMessage()[:_MAX_MESSAGE]}
        entry |= facts
        if record.exc_info and record.exc_info[1] is not None:
            entry["failure"] = failure_place(record.exc_info[1])
        return orjson.dumps(entry, default=str).decode()


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
        operation = getattr(scope.get("endpoint"), "__name__", "unknown")
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
        own = {name: str(key_from(tenant.key_env)) for name, tenant in config.tenants.items()}
        if len({*own.values()} - {*keys["clients"]}) < len(own):
            raise InvalidInputError("every tenant must have a key that no other tenant or client has.")
        self._tenants = {name: key.encode() for name, key in own.items()}
        keys["clients"] += own.values()
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

    def tenant_of(self, request: Request) -> str:
        """Name of the tenant whose key a request carries; empty where it is none's."""
        sent = _key_of(request)
        return "".join(name for name, key in self._tenants.items() if hmac.compare_digest(sent, key))

    def require(self, role: str, request: Request) -> None:
        """Refuse a request that carries no key of a role, where one is needed."""
        keys, sent = self._keys[role], _key_of(request)
        # Every key is compared, so that the time that it takes gives nothing away.
        if keys and not sum(hmac.compare_digest(sent, key) for key in keys):
            raise Refusal(
                401, "a key is needed: send it as 'Authorization: Bearer KEY' or as 'X-API-Key: KEY'."
            )


def _key_of(request: Request) -> bytes:
    """Key that a request carries."""
    authorization = request.headers.get("authorization", "").removeprefix("Bearer ")
    return (request.headers.get("x-api-key") or authorization).encode("latin-1")


# -- operations ------------------------------------------------------------------------------------


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

    async def __aenter__(self) -> None:
        if not self._places.locked():  # sooner than by a timeout that is not needed
            await self._places.acquire()
        else:
            try:
                async with asyncio.timeout(self._config.max_delay):
                    await self._places.acquire()
            except TimeoutError:
                self._metrics.rejected.inc()
                raise Refusal(
                    503, "there is too much to do. Ask again later.", self._config.retry_after
                ) from None
        self.n_taken += 1

    async def __aexit__(self, *_: object) -> None:
        self.n_taken -= 1
        self._places.release()


class Operation:
    """An operation behind what it needs: a key, a whole body, room.

    Parameters
    ----------
    run : callable
        From a request to a response.
    control : Gateway or Supervisor
        Has keys, settings and room.
    role : str, optional
        Role whose key it needs; None needs none.
    room : Room, optional
        Where it waits for a place, which it holds until its response is sent.
    media_type : str, optional
        The only type of bodies that is taken.
    """

    def __init__(self, run: Any, control: Any, role: str | None, room: Any, media_type: str | None) -> None:
        self.__name__ = run.__name__.strip("_")
        self._run, self._control, self.role = run, control, role
        self._room, self._media_type = _NO_ROOM if room is None else room, media_type

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        if self.role is not None:
            self._control.keys.require(self.role, request)
        if request.method == "POST":
            request = await _with_whole_body(request, self._control.config.max_body_bytes, self._media_type)
        async with self._room:
            response = await self._run(request)
            await response(scope, request.receive, send)


_NO_ROOM: AbstractAsyncContextManager[None] = nullcontext()


async def _with_whole_body(request: Request, max_bytes: int, media_type: str | None) -> Request:
    """The request, once its body has come; large, compressed and foreign ones are refused."""
    headers = request.headers
    if headers.get("content-encoding", "identity") != "identity":
        raise Refusal(415, "the body must not be compressed. Leave out Content-Encoding.")
    if media_type not in (None, headers.get("content-type", "").split(";")[0].strip()):
        raise Refusal(415, f"send Content-Type: {media_type}.")
    too_large = Refusal(413, f"the body must have at most {max_bytes:,} bytes. Send fewer rows at a time.")
    length, n_read = headers.get("content-length", "0"), 0
    # A length beyond the limit is refused before anything is read; some digits are no numbers.
    if not (length.isascii() and length.isdigit() and len(length) <= 18 and int(length) <= max_bytes):
        raise too_large

    async def receive() -> Message:
        nonlocal n_read
        message = await request.receive()
        n_read += len(message.get("body", b""))
        if n_read > max_bytes:
            raise too_large
        return message

    whole = Request(request.scope, receive)
    await whole.body()
    return whole


def operation(
    control: Any,
    path: str,
    run: Any,
    *,
    method: str = "GET",
    role: str | None = "clients",
    is_limited: bool = False,
    media_type: str | None = None,
) -> Route:
    """Route of an ``Operation``; ``is_limited`` waits for room."""
    room = control.room if is_limited else None
    return Route(path, Operation(run, control, role, room, media_type), methods=[method])
