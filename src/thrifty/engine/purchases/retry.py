"""Calls of services that fail: attempts within a deadline, a circuit breaker, and requests over HTTP.

``attempts`` is the one schedule of retries, and ``CircuitBreaker`` the one breaker, of sources, of the remote full
model and of language models.
"""

import asyncio
import json
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from itertools import repeat
from typing import Any, Literal

from thrifty.errors import InvalidInputError, RemoteFailure

MAX_RETRY_AFTER = 60.0
"""Seconds after which a service is asked again at the latest, whatever its Retry-After says."""

NOT_TRIED = ("breaker_open", "too_many_in_flight", "deadline", "not_started")
"""Reasons of failures in which no request was sent."""


def attempts(
    retries: int | None, ends: float, *, first_pause: float = 0.05, longest_pause: float = 2.0
) -> Iterator[float]:
    """Yield the seconds to wait before each attempt: none before the first, then twice as long each time.

    Parameters
    ----------
    retries : int, optional
        Most attempts after the first; None limits them by time alone.
    ends : float
        Time of the monotonic clock at which the last attempt must begin; the first one is always made.
    first_pause, longest_pause : float
        Seconds before the first retry, and the most before any.

    Examples
    --------
    >>> list(attempts(4, ends=float("inf"), longest_pause=0.15))
    [0.0, 0.05, 0.1, 0.15, 0.15]
    """
    yield 0.0
    pause = first_pause
    for _ in repeat(None) if retries is None else repeat(None, retries):
        if time.monotonic() + pause > ends:
            return
        yield pause
        pause = min(2 * pause, longest_pause)


State = Literal["closed", "open", "half_open"]


class CircuitBreaker:
    """Refuse calls to a service that keeps failing, or that has too many calls in flight.

    Parameters
    ----------
    failures : int
        Failures in a row after which it opens.
    share, window : float, int
        It also opens at such a share of failures among so many of the latest calls.
    pause : float
        Seconds until an open breaker lets a probe through.
    max_in_flight : int
        Most calls at the same time.
    clock : callable
        Seconds of a clock that never goes back.

    Attributes
    ----------
    in_flight : int
        Calls under way.
    """

    def __init__(
        self,
        failures: int = 5,
        share: float = 0.5,
        window: int = 20,
        pause: float = 1.0,
        max_in_flight: int = 64,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if failures < 1 or window < 1 or not 0.0 < share <= 1.0 or not pause >= 0.0:
            raise InvalidInputError(
                f"a breaker must open after at least 1 failure in a row, or a share in (0, 1] of at least 1 call, for "
                f"a pause of at least 0 seconds; got {failures!r} failures, a share of {share!r} of {window!r} calls "
                f"and a pause of {pause!r}. Change the settings that begin with breaker_."
            )
        self._failures, self._share, self._pause, self._clock = failures, share, pause, clock
        self._max_in_flight = max_in_flight
        self._latest: deque[bool] = deque(maxlen=window)  # whether each call failed
        self._in_a_row = self.in_flight = 0
        self._opened_at: float | None = None
        self._is_probing = False
        self._lock = threading.Lock()

    @property
    def state(self) -> State:
        """``"closed"``, ``"open"``, or ``"half_open"`` while a probe may go through or is under way."""
        if self._opened_at is None:
            return "closed"
        is_over = self._clock() - self._opened_at >= self._pause
        return "half_open" if self._is_probing or is_over else "open"

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """One call: refused with a ``RemoteFailure``, or counted by its result."""
        with self._lock:
            if self.in_flight >= self._max_in_flight:
                raise RemoteFailure(
                    "too_many_in_flight", f"{self.in_flight} calls are under way, the most allowed"
                )
            state, probes = self.state, self._is_probing
            if state == "open" or (state == "half_open" and probes):
                raise RemoteFailure("breaker_open", "it failed so often that it is not asked for a while")
            self._is_probing = probes or state == "half_open"
            self.in_flight += 1
        has_failed = None  # a cancelled call counts for nothing, and allows another probe
        try:
            yield
            has_failed = False
        except Exception:
            has_failed = True
            raise
        finally:
            with self._lock:
                self.in_flight -= 1
                self._count(has_failed)

    def _count(self, has_failed: bool | None) -> None:
        if has_failed is None:
            self._is_probing = False
            return
        if self._is_probing and not has_failed:
            self._latest.clear()
            self._opened_at, self._is_probing = None, False
        self._in_a_row = self._in_a_row + 1 if has_failed else 0
        self._latest.append(has_failed)
        if not has_failed:
            return
        is_full = len(self._latest) == self._latest.maxlen
        too_many = is_full and sum(self._latest) >= self._share * len(self._latest)
        if self._is_probing or self._in_a_row >= self._failures or too_many:
            # Calls that were under way when it opened fail one after another: they do not make the pause longer.
            if self._opened_at is None or self._is_probing:
                self._opened_at = self._clock()
            self._is_probing = False


# -- HTTP ------------------------------------------------------------------------------------------


def parse_json(text: bytes) -> Any:
    """Parse JSON; a key that an object has twice raises ``ValueError``, as everything that is no JSON."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        by_key = dict(pairs)
        if len(by_key) < len(pairs):
            repeated, _ = Counter(key for key, _ in pairs).most_common(1)[0]
            raise ValueError(f"an object has the key {repeated[:60]!r} twice")
        return by_key

    return json.loads(text, object_pairs_hook=unique)


def response_limit(n_values: int) -> int:
    """Size limit in bytes of a response with ``n_values`` values."""
    return int(2**16 + 2**10 * n_values)


def http_session(headers: Mapping[str, str], **limits: Any) -> Any:
    """A session of aiohttp that keeps no cookies and unpacks nothing: a small body can unpack beyond any limit.

    Parameters
    ----------
    headers : dict
        Headers of every request.
    **limits
        ``max_connections`` and ``connect_timeout`` in seconds.
    """
    try:
        import aiohttp
    except ModuleNotFoundError as error:
        raise InvalidInputError(
            "requests over HTTP need aiohttp, which is not installed: pip install 'thrifty[serve]'."
        ) from error
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=limits.get("max_connections", 100)),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=limits.get("connect_timeout")),
        headers={"Accept-Encoding": "identity", **headers},
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
    )


async def post(session: Any, url: str, body: bytes, *, max_bytes: int, seconds: float | None) -> bytes:
    """Return the body of the response to a POST; raise a ``RemoteFailure`` with a countable reason without one."""
    async with open_post(session, url, body, seconds=seconds) as (response, _):
        return await read_body(response, max_bytes)


async def read_body(response: Any, max_bytes: int) -> bytes:
    """Return the body of a response; raise a ``RemoteFailure`` if it is larger than a limit."""
    content, is_too_large = bytearray(), (response.content_length or 0) > max_bytes
    while not is_too_large and (part := await response.content.readany()):
        content += part
        is_too_large = len(content) > max_bytes
    if is_too_large:
        response.close()  # else the rest would be read before the connection is used again
        raise RemoteFailure("too_large", f"the response is larger than {max_bytes:,} bytes")
    return bytes(content)


@asynccontextmanager
async def open_post(session: Any, url: str, body: bytes, *, seconds: float | None, **how: Any) -> Any:
    """Response to a POST, and the deadline for it, which may be moved; failures are those of ``post``.

    Redirects are not followed: they would carry the authorisation to another server.
    """
    import aiohttp

    try:
        async with (
            asyncio.timeout(seconds) as deadline,
            session.post(url, data=body, allow_redirects=False, **how) as response,
        ):
            if response.status != 200:
                after = response.headers.get("Retry-After", "")
                is_number = after.isascii() and after.isdigit()  # "²" is a digit, and no number
                raise RemoteFailure(
                    f"status_{response.status}",
                    f"the status was {response.status}",
                    min(float(after), MAX_RETRY_AFTER) if is_number else None,
                )
            yield response, deadline
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise RemoteFailure("connect", str(error)) from error
    except TimeoutError as error:
        raise RemoteFailure("timeout", "the deadline passed before the response was complete") from error
    except aiohttp.ClientResponseError as error:
        raise RemoteFailure("bad_http", str(error)) from error
    except (aiohttp.ClientError, OSError) as error:
        raise RemoteFailure("closed", str(error)) from error
