"""Endpoints: admission, API key, body, answer, metrics and log of a request."""

import asyncio
import contextlib
import hmac
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send

from thrifty.errors import FullModelDownError, InvalidInputError, PurchaseFailedError
from thrifty.serve.config import Config, read_keys
from thrifty.serve.logs import LOG, failure_place
from thrifty.serve.metrics import Metrics

__all__ = [
    "ADMITTED",
    "KEY_NEEDED",
    "LARGE_BODY",
    "TOO_MUCH",
    "ActiveCount",
    "Endpoint",
    "Keys",
    "Limiter",
    "OverloadedError",
    "Refusal",
    "Reply",
    "Request",
    "error_body",
]

_LEARNING_INTERVAL = 0.05
"""Seconds between two measurements of what requests cost."""

_FIRST_COST, _FIRST_BYTE_COST = 5e-4, 1e-7
"""Seconds that a request, and a byte of a batch, take on a common machine, until more is known."""

_MAX_GROWTH, _LEARNING_RATE = 2.0, 0.25
"""Largest growth of an estimated cost in one step, and weight of the latest measurement."""

_REFUSAL_DELAY, _TICK = 0.1, 0.002
"""Seconds that a request waits for room before it is refused, and between two looks at those that wait.

Refusals that came at once would make clients ask again at once. What requests wait before they are read counts, too.
"""

LARGE_BODY = 2**16
"""Bytes of a body above which a request is parsed and answered in the thread of batches."""

ADMITTED = "thrifty.admitted"
"""Key of an ASGI scope whose request came whole and was admitted before the application was called."""


class Refusal(Exception):  # noqa: N818 - a refusal is a response, not a failure
    """A refused request: HTTP status and message of the response."""

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.retry_after = status, retry_after


class OverloadedError(Exception):
    """The gateway is overloaded; the argument is the reason, as a word for metrics."""


class _ClientGoneError(Exception):
    """The client has closed the connection."""


class ActiveCount:
    """Counts the requests inside ``with count:``; ``now`` are inside, ``finished`` have left."""

    def __init__(self) -> None:
        self.now = self.finished = 0

    def __enter__(self) -> None:
        self.now += 1

    def __exit__(self, *_: object) -> None:
        self.now -= 1
        self.finished += 1


class Limiter:
    """Bounds the requests under way, by their number and by the processor time that they need.

    A request for which there is no room waits a moment for it, and is refused afterwards.

    Parameters
    ----------
    config : Config
        ``max_in_flight`` and ``max_delay``.

    Attributes
    ----------
    in_flight : ActiveCount
        Requests that came whole and are not answered yet.
    waiting : ActiveCount
        Those among them that wait for the full model, for a provider or for another thread.
    reading : ActiveCount
        Requests whose bodies are being read.
    cost : float
        Seconds of the processor that a request took of late, in the thread that answers.
    byte_cost : float
        Seconds that a byte of a batch took of late, in the thread of batches.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self.in_flight, self.waiting, self.reading = ActiveCount(), ActiveCount(), ActiveCount()
        self.cost, self.byte_cost = _FIRST_COST, _FIRST_BYTE_COST
        # When requests that wait are refused, and how they learn of it; those of the surplus are not admitted before.
        self._queue: deque[tuple[float, Callable[[str | None], bool]]] = deque()
        self._surplus: deque[tuple[float, Callable[[str | None], bool]]] = deque()
        # When those that wait are looked at next, and how late the event loop was to do so the last time.
        self._next_tick = self._lag = 0.0
        self._batch_bytes = 0
        # Seconds in the thread of batches, and bytes, since the last measurement.
        self._batches_done = [0.0, 0]

    # -- admission ---------------------------------------------------------------------------------

    def overload(self) -> str | None:
        """Reason why there is no room for one more request, as a word for metrics."""
        if self.in_flight.now >= self._config.max_in_flight:
            return "in_flight"
        if (self.in_flight.now - self.waiting.now) * self.cost > self._config.max_delay:
            return "busy"
        return None

    def when_decided(self, decide: Callable[[str | None], bool]) -> bool:
        """Call ``decide`` with None as soon as there is room, or after a while with the reason why there is none.

        A request that is admitted is in flight from then on, until ``leave``; a ``decide`` that returns False has lost
        its client. Returns whether the request may still be admitted: of those that wait, a limited number is.
        """
        if not self._queue and not self.overload():
            self._admit(decide)
            return True
        loop = asyncio.get_running_loop()
        if not self._queue and not self._surplus:
            self._lag = 0.0
            self._schedule_tick(loop)
        may_enter = len(self._queue) < self._config.max_in_flight
        # A request waits for a turn of the event loop until it is read, and for another one until it is refused.
        delay = max(_REFUSAL_DELAY - 2 * self._lag, 0.0)
        if delay or may_enter:
            (self._queue if may_enter else self._surplus).append((loop.time() + delay, decide))
        else:
            decide(self.overload() or "busy")
        return may_enter

    def _schedule_tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._next_tick = loop.time() + _TICK
        loop.call_later(_TICK, self._tick)

    async def admit(self) -> None:
        """Wait for room; without any, raise ``OverloadedError`` after a while."""
        if not self._queue and not self.overload():
            self.in_flight.now += 1
            return
        decided: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

        def decide(reason: str | None) -> bool:
            if not decided.done():
                decided.set_result(reason)
            return not decided.cancelled()

        self.when_decided(decide)
        try:
            reason = await decided
        except asyncio.CancelledError:
            if decided.done() and not decided.cancelled() and decided.result() is None:
                self.leave()
            raise
        if reason is not None:
            raise OverloadedError(reason)

    def leave(self) -> None:
        """Count an admitted request as answered, and admit those that wait for its place."""
        self.in_flight.now -= 1
        self.in_flight.finished += 1
        self._admit_waiting()

    def _admit(self, decide: Callable[[str | None], bool]) -> None:
        self.in_flight.now += 1
        if not decide(None):
            self.in_flight.now -= 1

    def _admit_waiting(self) -> None:
        while self._queue and not self.overload():
            self._admit(self._queue.popleft()[1])

    def _tick(self) -> None:
        """Admit or refuse requests that wait, and look again after a moment while there are some."""
        self._admit_waiting()
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._lag = max(now - self._next_tick, 0.0)
        for queue in (self._queue, self._surplus):
            while queue and queue[0][0] <= now:
                queue.popleft()[1](self.overload() or "busy")
        if self._queue or self._surplus:
            self._schedule_tick(loop)

    def admit_body(self) -> None:
        """Refuse one more body that comes in pieces where there are too many: that bounds memory."""
        if self.reading.now > self._config.max_in_flight:
            raise OverloadedError("reading")

    # -- batches -----------------------------------------------------------------------------------

    def admit_batch(self) -> None:
        """Refuse one more batch where those before it take too long."""
        if self._batch_bytes * self.byte_cost > self._config.max_delay:
            raise OverloadedError("batches")

    @contextlib.contextmanager
    def batch(self, n_bytes: int) -> Iterator[None]:
        """Hold a place in the queue of batches."""
        self.admit_batch()
        self._batch_bytes += n_bytes
        try:
            yield
        finally:
            self._batch_bytes -= n_bytes
            self._batches_done[1] += n_bytes

    def timed(self, call: Callable[[], Any]) -> Any:
        """Result of a call in the thread of batches; how long it took is learned."""
        began = time.thread_time()
        try:
            return call()
        finally:
            self._batches_done[0] += time.thread_time() - began

    # -- costs -------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Learn what requests cost, until cancelled."""
        began, used, finished = time.perf_counter(), time.thread_time(), self.in_flight.finished
        while True:
            await asyncio.sleep(_LEARNING_INTERVAL)
            before, began = began, time.perf_counter()
            used_before, used = used, time.thread_time()
            n_finished, finished = self.in_flight.finished - finished, self.in_flight.finished
            self.learn(began - before, used - used_before, n_finished)
            seconds, n_bytes = self._batches_done
            if n_bytes:
                self.byte_cost, self._batches_done = _learned(self.byte_cost, seconds / n_bytes), [0.0, 0]

    def learn(self, seconds: float, used: float, n_finished: int) -> None:
        """Learn from some time of which so much was used, while so many requests were answered.

        While there is little to do, other things than requests take most of what is used, and nothing is learned.
        """
        if n_finished and used > seconds / 2:
            self.cost = _learned(self.cost, used / n_finished)


def _learned(cost: float, latest: float) -> float:
    """An estimated cost after one more measurement: one collection of garbage must not look like dear requests."""
    return cost + _LEARNING_RATE * (min(latest, _MAX_GROWTH * cost) - cost)


KEY_NEEDED = "a key is needed: send it as 'Authorization: Bearer KEY' or as 'X-API-Key: KEY'."


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
        found = (
            {"clients": [], "metrics": [], "admin": []}
            if config.keys is None
            else read_keys(Path(config.keys))
        )
        if config.api_key is not None:
            found["clients"].append(config.api_key)
        found["admin"] = found["admin"] or found["clients"]
        if config.admin_host not in ("127.0.0.1", "::1", "localhost") and not (
            found["metrics"] and found["admin"]
        ):
            raise InvalidInputError(
                f"admin_host other than 127.0.0.1 needs keys for metrics and for changes; got {config.admin_host!r}. "
                f"Name a file with metrics = [...] and admin = [...] with --keys."
            )
        if found["metrics"]:
            found["metrics"] = [*found["metrics"], *found["admin"]]
        self._keys = {role: [key.encode() for key in keys] for role, keys in found.items()}

    def are_needed(self, role: str) -> bool:
        """Whether requests of a role must carry a key."""
        return bool(self._keys[role])

    def allow(self, role: str, headers: Mapping[bytes, bytes]) -> bool:
        """Whether a request carries a key of a role, or needs none."""
        keys = self._keys[role]
        if not keys:
            return True
        given = headers.get(b"x-api-key") or headers.get(b"authorization", b"").removeprefix(b"Bearer ")
        # Every key is compared, so that the time that it takes gives nothing away.
        return sum(hmac.compare_digest(given, key) for key in keys) > 0


_HEADERS = {
    b"authorization",
    b"x-api-key",
    b"thrifty-model",
    b"x-request-id",
    b"content-length",
    b"content-encoding",
    b"inference-header-content-length",
}


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
        Parameters of the path.
    facts : dict
        What the log says of it.
    batch : ExitStack
        Its place in the queue of batches, to be closed once the thread of batches is done with it.
    """

    body: bytes
    headers: Mapping[bytes, bytes]
    path: Mapping[str, Any]
    facts: dict[str, Any] = field(default_factory=dict)
    batch: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)


@dataclass
class Reply:
    """A response with headers, or one that comes in parts as server-sent events."""

    body: bytes | AsyncGenerator[bytes, None]
    headers: Mapping[str, str]


class Endpoint:
    """One operation of the gateway, as an ASGI application.

    Parameters
    ----------
    name : str
        Its name in metrics and logs.
    run : callable
        From a request to the bytes of a JSON response, or a ``Reply``.
    config : Config
        Key and limits.
    metrics : Metrics
        Counts requests.
    limiter : Limiter
        Refuses requests.
    is_limited : bool
        Whether the operation is refused under overload.
    keys : Keys, optional
        Keys of requests; None needs none.
    role : str
        Whose keys are needed.
    """

    def __init__(
        self,
        name: str,
        run: Callable[[Request], Awaitable[bytes | Reply]],
        config: Config,
        metrics: Metrics,
        limiter: Limiter,
        *,
        is_limited: bool = False,
        keys: "Keys | None" = None,
        role: str = "clients",
    ) -> None:
        self.name, self.summary = name, run.__doc__
        self.is_limited, self.keys, self._role = is_limited, keys, role
        self._run, self._config, self._metrics, self._limiter = run, config, metrics, limiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        began = time.perf_counter()
        request = Request(b"", {}, scope.get("path_params", {}))
        status, retry_after, response = 200, None, b""  # type: int, int | None, bytes | Reply
        is_admitted, must_leave = scope.get(ADMITTED, False), False
        try:
            request.headers = {name: value for name, value in scope["headers"] if name in _HEADERS}
            if self.keys is not None and not self.keys.allow(self._role, request.headers):
                raise Refusal(401, KEY_NEEDED)
            request.body = await self._body(request.headers, receive, is_admitted)
            if self.is_limited and not is_admitted:
                await self._limiter.admit()
                must_leave = True
            with request.batch:
                if len(request.body) > LARGE_BODY:
                    request.batch.enter_context(self._limiter.batch(len(request.body)))
                response = await self._run(request)
        except _ClientGoneError:
            return
        except OverloadedError as error:  # no line in the log: refusals must stay cheap
            self._metrics.turned_away[str(error)] += 1
            self._metrics.requests[self.name, 503] += 1
            if str(error) in ("batches", "reading"):  # others have waited for room
                with self._limiter.waiting:
                    await asyncio.sleep(_REFUSAL_DELAY)
            await _respond(send, 503, TOO_MUCH, self._config.retry_after)
            return
        except Refusal as error:
            status, response, retry_after = (
                error.status,
                self.error_body(str(error), error.status),
                error.retry_after,
            )
        except (FullModelDownError, PurchaseFailedError) as error:
            status, response, retry_after = 503, self.error_body(str(error), 503), self._config.retry_after
        except InvalidInputError as error:
            status, response = 400, self.error_body(str(error), 400)
        except Exception as error:
            # The client learns that it is not its fault, and the log where it happened, without values.
            status, response = 500, self.error_body("the gateway failed. Its log says where.", 500)
            request.facts["failure"] = failure_place(error)
        finally:
            if must_leave:
                self._limiter.leave()
        self._metrics.requests[self.name, status] += 1
        if self._config.log_requests and LOG.isEnabledFor(logging.INFO):
            facts = {"operation": self.name, "status": status, **request.facts}
            facts["ms"] = round(1e3 * (time.perf_counter() - began), 3)
            LOG.log(logging.WARNING if status >= 400 else logging.INFO, "request", extra={"facts": facts})
        if isinstance(response, Reply) and not isinstance(response.body, bytes):
            await _stream(send, receive, response.body, response.headers)
            return
        await _respond(send, status, response, retry_after)

    def error_body(self, message: str, status: int) -> bytes:  # noqa: ARG002 - chat has the status in its body
        """The JSON of a refusal."""
        return error_body(message)

    async def _body(self, headers: Mapping[bytes, bytes], receive: Receive, is_whole: bool) -> bytes:
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise Refusal(415, "the body must not be compressed. Leave out Content-Encoding.")
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 18 or int(length) > self._config.max_body_bytes:
            raise self._too_large()
        if int(length) > LARGE_BODY:
            self._limiter.admit_batch()  # before anything is read
        if is_whole:
            return await self._parts(receive)
        try:
            with self._limiter.reading:
                async with asyncio.timeout(self._config.body_timeout):
                    return await self._parts(receive)
        except TimeoutError:
            raise Refusal(408, "the body took too long to come.") from None

    async def _parts(self, receive: Receive) -> bytes:
        """Read a body, which nearly always comes in one part."""
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _ClientGoneError
            part, is_more = message.get("body", b""), message.get("more_body", False)
            if len(body) + len(part) > self._config.max_body_bytes:
                raise self._too_large()
            if not is_more:
                return bytes(body + part) if body else part
            if not body:
                self._limiter.admit_body()
            body += part

    def _too_large(self) -> Refusal:
        largest = self._config.max_body_bytes
        return Refusal(413, f"the body must have at most {largest:,} bytes. Send fewer rows at a time.")


def error_body(message: str) -> bytes:
    """The JSON of a refusal."""
    return orjson.dumps({"error": message})


TOO_MUCH = error_body("there is too much to do. Ask again later.")
"""Body of a refusal for overload."""


async def _respond(send: Send, status: int, response: "bytes | Reply", retry_after: int | None) -> None:
    body, given = (response.body, response.headers) if isinstance(response, Reply) else (response, {})
    assert isinstance(body, bytes)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if retry_after is not None:
        headers.append((b"retry-after", str(retry_after).encode()))
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    headers += [(name.encode(), value.encode()) for name, value in given.items()]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _stream(
    send: Send, receive: Receive, parts: AsyncGenerator[bytes, None], given: Mapping[str, str]
) -> None:
    """Send server-sent events until they end, or the client has gone."""
    headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
    headers += [(name.encode(), value.encode()) for name, value in given.items()]
    gone = asyncio.ensure_future(receive())
    try:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async for part in parts:
            if gone.done() and gone.result()["type"] == "http.disconnect":
                return
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        gone.cancel()
        await parts.aclose()
