"""A full model that is far away: asked over HTTP, never trusted, and never waited for longer than the deadline.

Whatever goes wrong ends in a ``RemoteFailure`` with a short reason that can be counted: the remote cannot be reached,
is slow, says that it has failed, closes in the middle of its answer, answers without end, or answers with what is no
answer. A failure that may pass is tried once more, if the deadline allows it and if tries of that kind are few among
all calls: a remote in trouble must not be given more work than usual.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp
import numpy as np

from thrifty.arrays import Floats
from thrifty.errors import InvalidInputError, RemoteFailure
from thrifty.serve.breaker import Breaker
from thrifty.serve.tensors import answer_of, request_of

__all__ = ["RemoteFailure", "RemoteModel", "RemoteSettings"]

MAX_SAVED_RETRIES = 10.0
"""Retries that calls without failures can save up: a long good time is no leave to hammer on a remote that breaks."""

_SPARE_BYTES, _BYTES_PER_NUMBER = (
    2**16,
    2**10,
)  # many times what an answer takes; a flood must not keep others waiting

_PASSING = frozenset({"connect", "closed", "status_500", "status_502", "status_503", "status_504"})
"""Failures that the next try may not meet; a remote that has too much to do (429) is not asked again."""


@dataclass(frozen=True)
class RemoteSettings:
    """How a remote model is asked.

    Attributes
    ----------
    connect_timeout, total_timeout : float
        Seconds until a connection must stand, and until an answer must be there whole, retry included.
    max_retries : int
        Most retries of one call.
    retry_budget : float
        Most retries as a share of the calls.
    max_in_flight : int
        Most calls at the same time; one more is refused at once.
    max_bytes : int
        Size of the largest answer that is read; less is read where few numbers were asked for: 64 KiB, and 1 KiB for
        each number.
    breaker_failures, breaker_share, breaker_window, breaker_pause : int, float, int, float
        The breaker opens after so many failures in a row, or such a share of failures among so many calls, and lets
        one probe through after so many seconds.
    input_name : str or None
        Name of the one tensor with all columns, shape (n_rows, n_columns); None sends a tensor per column, by name.
    output_name : str, optional
        Name of the tensor with the outputs, which is then asked for (``"predict_proba"`` of a scikit-learn classifier
        in MLServer, which otherwise gives labels); None takes what thrifty or MLServer call them, or the only tensor.
    datatype : {"FP32", "FP64"}
        Type of the numbers that are sent.
    """

    connect_timeout: float = 0.1
    total_timeout: float = 0.25
    max_retries: int = 1
    retry_budget: float = 0.2
    max_in_flight: int = 64
    max_bytes: int = 8 * 2**20
    breaker_failures: int = 5
    breaker_share: float = 0.5
    breaker_window: int = 20
    breaker_pause: float = 1.0
    input_name: str | None = "X"
    output_name: str | None = None
    datatype: str = "FP64"

    def __post_init__(self) -> None:
        for name in ("connect_timeout", "total_timeout", "max_in_flight", "max_bytes"):
            if not getattr(self, name) > 0:
                raise InvalidInputError(
                    f"{name} of the remote must be positive; got {getattr(self, name)!r}."
                )
        for name in ("max_retries", "retry_budget"):
            if not getattr(self, name) >= 0:
                raise InvalidInputError(
                    f"{name} of the remote must be at least 0; got {getattr(self, name)!r}."
                )
        if self.datatype not in ("FP32", "FP64"):
            raise InvalidInputError(
                f"datatype of the remote must be 'FP32' or 'FP64'; got {self.datatype!r}."
            )

    def breaker(self) -> Breaker:
        """A breaker of these settings."""
        return Breaker(self.breaker_failures, self.breaker_share, self.breaker_window, self.breaker_pause)


class RemoteModel:
    """A model behind the Open Inference Protocol v2.

    Parameters
    ----------
    url : str
        Address of the model, ``http://HOST/v2/models/NAME``, with or without ``/versions/V`` and ``/infer``.
    columns : sequence of str
        Names of the columns that it is sent, in order.
    n_outputs : int
        Numbers per row that it answers with: 1 is a number, more are the probabilities of so many classes. Of two
        classes it may give the probability of the second alone.
    settings : RemoteSettings
        Deadlines, retries, the breaker and caps.
    api_key : str, optional
        Sent as ``Authorization: Bearer``.

    Attributes
    ----------
    breaker : Breaker
        Whether the remote is asked at all.
    calls, retries, in_flight : int
        Calls that were sent, second tries among them that came on top, and calls under way.
    failures : Counter
        Tries that failed, and calls that were not sent, by reason.
    """

    def __init__(
        self,
        url: str,
        *,
        columns: Sequence[str],
        n_outputs: int,
        settings: RemoteSettings,
        api_key: str | None = None,
    ) -> None:
        self.url = _infer_address(url)
        self.columns, self.n_outputs, self.settings = tuple(columns), n_outputs, settings
        self.breaker = settings.breaker()
        self.calls = self.retries = self.in_flight = 0
        self.failures: Counter[str] = Counter()
        self._saved_retries = 0.0
        # Compressed, a small answer can unpack to one that is far beyond the cap.
        self._headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Open the pool of connections, inside the event loop that will ask."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self.settings.max_in_flight),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self.settings.connect_timeout),
                headers=self._headers,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            )

    async def close(self) -> None:
        """Close all connections; calls under way fail."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def ask(self, rows: Floats, deadline: float | None = None) -> Floats:
        """Outputs of some rows, shape (n_rows, n_outputs), checked; or a ``RemoteFailure`` in time.

        Parameters
        ----------
        rows : ndarray of shape (n_rows, n_columns)
            Rows; NaN is missing, and is sent as null.
        deadline : float, optional
            Latest time at which this must end, on the clock of the event loop; ``total_timeout`` holds as well.
        """
        if len(rows) == 0:
            return np.zeros((0, self.n_outputs))
        ends = asyncio.get_running_loop().time() + self.settings.total_timeout
        ends = ends if deadline is None else min(ends, deadline)
        if self.in_flight >= self.settings.max_in_flight:
            raise self._failed(
                "too_many_in_flight", f"{self.in_flight} calls are under way, the most allowed"
            )
        body = request_of(
            rows,
            self.columns,
            input_name=self.settings.input_name,
            output_name=self.settings.output_name,
            datatype=self.settings.datatype,
        )
        self.in_flight += 1
        try:
            return await self._try_until(ends, body, len(rows))
        finally:
            self.in_flight -= 1

    async def _try_until(self, ends: float, body: bytes, n_rows: int) -> Floats:
        if not self.breaker.allows():
            raise self._failed("breaker_open", "it failed so often that it is left alone for a while")
        self.calls += 1
        self._saved_retries = min(self._saved_retries + self.settings.retry_budget, MAX_SAVED_RETRIES)
        tries = 0
        while True:
            try:
                outputs = await self._try(ends, body, n_rows)
            except RemoteFailure as failure:
                self.failures[failure.reason] += 1
                self.breaker.failed()
                tries += 1
                if (
                    failure.reason not in _PASSING
                    or tries > self.settings.max_retries
                    or not self._may_retry(ends)
                ):
                    raise
            except BaseException:
                self.breaker.abandoned()
                raise
            else:
                self.breaker.succeeded()
                return outputs
            self.retries += 1

    def _may_retry(self, ends: float) -> bool:
        """Take one of the saved retries, if there is one, and time for it, and nothing else against it."""
        is_time = asyncio.get_running_loop().time() < ends
        if not is_time or self._saved_retries < 1.0 or not self.breaker.allows():
            return False
        self._saved_retries -= 1.0
        return True

    async def _try(self, ends: float, body: bytes, n_rows: int) -> Floats:
        """Ask once; everything that can go wrong on the way has its reason."""
        try:
            async with asyncio.timeout_at(ends):
                said = await self._post(body, n_rows)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise RemoteFailure("connect", str(error)) from error
        except TimeoutError as error:
            raise RemoteFailure("timeout", "the deadline passed before the answer was there") from error
        except aiohttp.ClientResponseError as error:
            raise RemoteFailure("bad_http", str(error)) from error
        except (aiohttp.ClientError, OSError) as error:
            raise RemoteFailure("closed", str(error)) from error
        return answer_of(said, n_rows, self.n_outputs, self.settings.output_name)

    async def _post(self, body: bytes, n_rows: int) -> bytes:
        if self._session is None:
            raise RemoteFailure(
                "not_started", "no connections are open: `start` comes before calls, `close` after them"
            )
        said, most = bytearray(), _SPARE_BYTES + _BYTES_PER_NUMBER * n_rows * self.n_outputs
        most = min(most, self.settings.max_bytes)
        async with self._session.post(self.url, data=body, allow_redirects=False) as response:
            if response.status != 200:
                raise RemoteFailure(f"status_{response.status}", f"it answered with status {response.status}")
            too_large = (response.content_length or 0) > most
            while not too_large and (part := await response.content.readany()):
                said += part
                too_large = len(said) > most
            if too_large:
                # What is left would be read before the connection is used again.
                response.close()
                raise RemoteFailure("too_large", f"its answer is larger than {most:,} bytes")
        return bytes(said)

    def _failed(self, reason: str, words: str) -> RemoteFailure:
        self.failures[reason] += 1
        return RemoteFailure(reason, words)


def _infer_address(url: str) -> str:
    if not re.fullmatch(
        r"https?://[^/\s?#]+(/[^\s?#]*)?/v2/models/[^/\s?#]+(/versions/[^/\s?#]+)?(/infer)?/?", url
    ):
        raise InvalidInputError(
            f"the address of a remote model must read http://HOST/v2/models/NAME; got {url!r}. It is asked through the "
            f"Open Inference Protocol v2, which MLServer, Triton and KServe speak."
        )
    url = url.rstrip("/")
    return url if url.endswith("/infer") else f"{url}/infer"
