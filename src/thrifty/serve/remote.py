"""A full model that is far away: asked over HTTP, never trusted, and never waited for longer than the deadline.

Whatever goes wrong ends in a ``RemoteFailure`` with a short reason that can be counted: the remote cannot be reached,
is slow, says that it has failed, closes in the middle of its answer, answers without end, or answers with what is no
answer. A failure that may pass is tried once more, if the deadline allows it and if tries of that kind are few among
all calls: a remote in trouble must not be given more work than usual.
"""

import asyncio
import math
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import aiohttp
import numpy as np
import orjson

from thrifty.arrays import Floats
from thrifty.errors import InvalidAnswerError, InvalidInputError, RemoteFailure
from thrifty.tasks.answers import check_numbers, check_probabilities

__all__ = ["Breaker", "RemoteFailure", "RemoteModel", "RemoteSettings", "State", "answer_of", "request_of"]

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

    def breaker(self) -> "Breaker":
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


_USUAL_NAMES = {False: ("probabilities", "predict_proba"), True: ("answer", "predict")}
"""What a thrifty gateway and MLServer call the outputs that are wanted, by whether they are numbers. A gateway also
tells the probability of each answer, which is that of the second class only where that is the answer."""

_WHO = "the remote model"


def request_of(
    rows: Floats,
    columns: Sequence[str],
    *,
    input_name: str | None = "X",
    output_name: str | None = None,
    datatype: str = "FP64",
) -> bytes:
    """The body of a request about some rows, shape (n_rows, n_columns); a missing value is null."""
    if rows.ndim != 2 or rows.shape[1] != len(columns):
        raise InvalidInputError(
            f"rows for the remote model must have its {len(columns)} columns; got the shape {rows.shape}."
        )
    rows = np.ascontiguousarray(rows, dtype=np.float64)
    if input_name is not None:
        inputs = [_tensor(input_name, rows, datatype)]
    else:
        inputs = [_tensor(name, rows[:, [place]], datatype) for place, name in enumerate(columns)]
    body: dict[str, Any] = {"inputs": inputs}
    if output_name is not None:
        body["outputs"] = [{"name": output_name}]
    return orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)


def _tensor(name: str, values: Floats, datatype: str) -> dict[str, Any]:
    return {"name": name, "shape": list(values.shape), "datatype": datatype, "data": values.ravel()}


def answer_of(said: bytes, n_rows: int, n_outputs: int, output_name: str | None = None) -> Floats:
    """Outputs in an answer, shape (n_rows, n_outputs), or a ``RemoteFailure`` that says what is wrong with it."""
    values = _numbers(_output(_parsed(said), output_name, n_outputs), n_rows, n_outputs)
    if not np.isfinite(values).all():
        raise RemoteFailure("nan", "its answer holds what is no finite number")
    try:
        if n_outputs == 1:
            return check_numbers(values, n_rows, _WHO)
        if values.shape[1] == 1:
            second = check_probabilities(values[:, 0], n_rows, np.arange(2), _WHO, second_alone=True)
            return np.column_stack([1.0 - second, second])
        return check_probabilities(values, n_rows, np.arange(n_outputs), _WHO)
    except InvalidAnswerError as error:
        raise RemoteFailure("not_probabilities", f"it must give {error.rule}; got {error.found}") from error


def _parsed(said: bytes) -> Any:
    try:
        return orjson.loads(said)
    except orjson.JSONDecodeError as error:
        # JSON knows no such numbers, but many that write it do not care.
        if b"NaN" in said or b"Infinity" in said:
            raise RemoteFailure("nan", "its answer holds what is no finite number") from error
        raise RemoteFailure("bad_json", f"its answer is no JSON: {error}") from error


def _output(parsed: Any, name: str | None, n_outputs: int) -> dict[str, Any]:
    outputs = parsed.get("outputs") if isinstance(parsed, dict) else None
    if not isinstance(outputs, list) or not all(isinstance(output, dict) for output in outputs):
        raise RemoteFailure("bad_json", "its answer has no list of `outputs`")
    by_name: dict[Any, dict[str, Any]] = {output.get("name"): output for output in outputs}
    wanted = _USUAL_NAMES[n_outputs == 1] if name is None else (name,)
    found = next((by_name[usual] for usual in wanted if usual in by_name), None)
    if found is None and name is None and len(outputs) == 1:
        found = outputs[0]
    if found is None:
        raise RemoteFailure(
            "shape", f"none of its outputs, {list(by_name)}, is the one; name it as output_name"
        )
    return found


def _numbers(output: dict[str, Any], n_rows: int, n_outputs: int) -> Floats:
    """The numbers of a tensor, shape (n_rows, n_outputs), or (n_rows, 1) for the second of two classes."""
    datatype, shape = output.get("datatype"), output.get("shape")
    if not isinstance(datatype, str) or not datatype.startswith("FP"):
        # A label is a whole number: taken for a probability, it would be one of 0 or 1.
        raise RemoteFailure("datatype", f"its output must be of the type FP32 or FP64; got {datatype!r}")
    widths = {n_outputs, 1} if n_outputs == 2 else {n_outputs}
    allowed = [[n_rows, width] for width in widths] + ([[n_rows]] if 1 in widths else [])
    if shape not in allowed:
        raise RemoteFailure("shape", f"its output must have the shape {allowed[0]}; got {shape!r}")
    values = _floats(output.get("data"))
    if values.size != math.prod(shape):
        raise RemoteFailure("shape", f"its output of the shape {shape} holds {values.size} numbers")
    return values.reshape(n_rows, -1)


def _floats(data: Any) -> Floats:
    try:
        values = np.array(data)
        if (
            values.dtype.kind in "iufO"
        ):  # text that looks like numbers is text; null among numbers is an object
            return values.astype(np.float64)
        found = f"{values.dtype} values"
    except (TypeError, ValueError) as error:
        found = str(error)
    raise RemoteFailure("bad_json", f"the data of its output must be numbers; got {found}")


State = Literal["closed", "open", "half_open"]


class Breaker:
    """Tells whether the next call may go through, from how the latest ones ended.

    Parameters
    ----------
    failures : int
        Failures in a row that open it.
    share : float
        Share of failures among the latest calls that opens it.
    window : int
        Number of the latest calls that the share is taken of; with fewer calls, the share does not count.
    pause : float
        Seconds until an open breaker lets a probe through.
    clock : callable
        Seconds of a clock that never goes back.

    Attributes
    ----------
    n_opened : int
        How often it has opened.
    """

    def __init__(
        self,
        failures: int = 5,
        share: float = 0.5,
        window: int = 20,
        pause: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if failures < 1 or window < 1 or not 0.0 < share <= 1.0 or not pause >= 0.0:
            raise InvalidInputError(
                f"a breaker must open after at least 1 failure in a row, or a share in (0, 1] of at least 1 call, for "
                f"a pause of at least 0 seconds; got {failures!r} failures, a share of {share!r} of {window!r} calls "
                f"and a pause of {pause!r}. Change the settings that begin with breaker_."
            )
        self._failures, self._share, self._pause, self._clock = failures, share, pause, clock
        self._latest: deque[bool] = deque(maxlen=window)  # whether each call failed
        self._in_a_row = 0
        self._opened_at: float | None = None
        self._is_probing = False
        self.n_opened = 0

    @property
    def state(self) -> State:
        """``"closed"``, ``"open"``, or ``"half_open"`` while a probe may go through or is under way."""
        if self._opened_at is None:
            return "closed"
        is_over = self._clock() - self._opened_at >= self._pause
        return "half_open" if self._is_probing or is_over else "open"

    def allows(self) -> bool:
        """Whether a call may go through now; whoever is told so says how it ended, or that it never did."""
        state = self.state
        if state == "half_open" and not self._is_probing:
            self._is_probing = True
            return True
        return state == "closed"

    def succeeded(self) -> None:
        """Note a call that was answered."""
        if self._is_probing:
            self._latest.clear()
            self._opened_at, self._is_probing = None, False
        self._in_a_row = 0
        self._latest.append(False)

    def failed(self) -> None:
        """Note a call that failed."""
        self._in_a_row += 1
        self._latest.append(True)
        is_full = len(self._latest) == self._latest.maxlen
        too_many = is_full and sum(self._latest) >= self._share * len(self._latest)
        if self._is_probing or self._in_a_row >= self._failures or too_many:
            self._open()

    def abandoned(self) -> None:
        """Note a call of which nobody waited for the end: it says nothing, and another probe may follow it."""
        self._is_probing = False

    def _open(self) -> None:
        # Calls that were under way when it opened fail one after another: they must not make the pause longer.
        if self._opened_at is None or self._is_probing:
            self._opened_at = self._clock()
            self.n_opened += 1
        self._is_probing = False
