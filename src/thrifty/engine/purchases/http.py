"""Services over HTTP: a source of features, and the calls that the gateway makes of models."""

import asyncio
import json
import os
import threading
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np

from thrifty.arrays import Ints
from thrifty.engine.purchases.readers import Delivery
from thrifty.engine.purchases.retry import RetryingSource, python_values
from thrifty.errors import InvalidInputError, RemoteFailure

MAX_RETRY_AFTER = 60.0
"""Seconds after which a service is asked again at the latest, whatever its Retry-After says."""


class HttpSource(RetryingSource):
    """A service that takes a POST of ``{"rows": [keys], "columns": [names]}``; needs aiohttp (``thrifty[serve]``).

    It answers with ``{"values": [[...], ...]}``, a list per row in the order asked for and ``null`` where a value is
    missing; ``"failed": {"key": "why"}`` may name rows that it could not deliver. Redirects are not followed.

    Parameters
    ----------
    url : str
        Address of the service, http or https.
    keys : sequence
        The rows to ask about, as the service calls them, in the order of the answers.
    headers : dict, optional
        Headers of every question, such as an authorisation.
    max_bytes : int, optional
        Size of the largest response that is read; None is 64 KiB, and 1 KiB for each value that was asked for.
    threads, timeout, retries : int, float, int
        As ``RetryingSource`` takes them.
    **options
        ``chunk_size``, ``deadline`` and ``cache`` of ``RetryingSource``.
    """

    def __init__(
        self,
        url: str,
        keys: Sequence[Any],
        *,
        headers: Mapping[str, str] | None = None,
        max_bytes: int | None = None,
        threads: int = 4,
        timeout: float | None = 30.0,
        retries: int = 3,
        **options: Any,
    ) -> None:
        if not str(url).startswith(("http://", "https://")):
            raise InvalidInputError(f"url must begin with http:// or https://; got {url!r}.")
        super().__init__(len(keys), threads=threads, timeout=timeout, retries=retries, **options)
        self.keys = python_values(keys)
        self._url, self._max_bytes = url, max_bytes
        self._headers = {"Content-Type": "application/json", **(headers or {})}

    def ask_within(self, seconds: float | None, rows: Ints, names: Sequence[Any]) -> Delivery:
        """Send one request; one that takes too long is cancelled, and its connection closed."""
        keys = [self.keys[row] for row in rows.tolist()]
        body = json.dumps({"rows": keys, "columns": list(names)}).encode()
        largest = response_limit(len(keys) * len(names)) if self._max_bytes is None else self._max_bytes
        response = _run_in_event_loop(self._post(body, largest, seconds))
        try:
            answer = parse_json(response)
        except ValueError as error:
            raise RemoteFailure(
                "bad_json", f"the response must be JSON with different keys: {error}"
            ) from error
        values = answer.get("values") if isinstance(answer, dict) else None
        if not isinstance(values, list) or not all(map(_is_row, values)):
            raise RemoteFailure(
                "bad_json", f'the response must be {{"values": [[...], ...]}}; got {str(answer)[:80]!r}'
            )
        failed = answer.get("failed") or {}
        row_of = {str(key): int(row) for key, row in zip(keys, rows, strict=True)}
        return Delivery(
            np.array(values, dtype=object).reshape(len(values), -1),
            {row_of[key]: str(why) for key, why in failed.items() if key in row_of},
        )

    async def _post(self, body: bytes, largest: int, seconds: float | None) -> bytes:
        async with http_session(self._headers) as session:
            return await post(session, self._url, body, max_bytes=largest, seconds=seconds)


def _is_row(row: Any) -> bool:
    """True if a row of a response is a list of numbers, text, truth values and nulls."""
    return isinstance(row, list) and not any(isinstance(cell, list | dict) for cell in row)


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


_loop_of_process: tuple[int, asyncio.AbstractEventLoop] | None = None
_starting = threading.Lock()


def _run_in_event_loop(work: Coroutine[Any, Any, bytes]) -> bytes:
    """Result of a coroutine, run by the one event loop in a thread of its own that all sources share."""
    global _loop_of_process
    with _starting:
        if _loop_of_process is None or _loop_of_process[0] != os.getpid():  # a fork has no such thread
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="thrifty-http", daemon=True).start()
            _loop_of_process = os.getpid(), loop
    future = asyncio.run_coroutine_threadsafe(work, _loop_of_process[1])
    try:
        return future.result()
    except BaseException:
        future.cancel()  # the caller was interrupted
        raise
