"""The remote full model: called over HTTP within a deadline, and every response checked.

Every failure is a ``RemoteFailure`` with a short reason that can be counted. A failure that may be temporary is retried
once, if the deadline allows it and if retries are few among all calls, so that a failing remote does not get more work
than usual.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from thrifty.arrays import Floats
from thrifty.engine.full.adapters import check_numbers, check_probabilities, models_of
from thrifty.engine.purchases.retry import CircuitBreaker, attempts, http_session, post, response_limit
from thrifty.engine.tasks.task import Task
from thrifty.errors import InvalidAnswerError, InvalidInputError, RemoteFailure
from thrifty.serve.config import RemoteSettings
from thrifty.serve.inference_protocol import parse_unique

RETRY_SHARE, MAX_SAVED_RETRIES = 0.2, 10.0
"""Most retries as a share of the calls, and most of them that calls can save up: ``python benchmarks/serve.py faults``
holds calls and retries together to 1.2 for each request."""

_PASSING = frozenset({"connect", "closed", "status_500", "status_502", "status_503", "status_504"})
"""Failures that are retried; an overloaded remote (429) is not called again."""


class RemoteModel:
    """A model behind the Open Inference Protocol v2.

    Parameters
    ----------
    url : str
        Address of the model, ``http://HOST/v2/models/NAME``, with or without ``/versions/V`` and ``/infer``.
    settings : RemoteSettings
        Deadlines, retries and caps.
    api_key : str, optional
        Sent as ``Authorization: Bearer``.

    Attributes
    ----------
    breaker : CircuitBreaker
        Refuses calls while the remote fails again and again, or while too many are under way.
    calls, retries : int
        Calls that were sent, and second tries that came on top.
    loop : AbstractEventLoop
        Event loop that it was started in: threads ask it there.
    failures : Counter
        Tries that failed, and calls that were not sent, by reason.
    """

    def __init__(self, url: str, *, settings: RemoteSettings, api_key: str | None = None) -> None:
        url = url.rstrip("/")
        self.url = url if url.endswith("/infer") else f"{url}/infer"
        self.settings = settings
        self.breaker = CircuitBreaker(max_in_flight=settings.max_in_flight)
        self.calls = self.retries = 0
        self.failures: Counter[str] = Counter()
        self._headers = {"Content-Type": "application/json"}
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._saved_retries = 0.0
        self._session: Any = None

    async def start(self) -> None:
        """Open the pool of connections, inside the event loop that will ask."""
        if self._session is None:
            self.loop = asyncio.get_running_loop()
            self._session = http_session(
                self._headers,
                max_connections=self.settings.max_in_flight,
                connect_timeout=self.settings.connect_timeout,
            )

    async def close(self) -> None:
        """Close all connections; calls under way fail."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def ask(self, rows: Floats, columns: Sequence[str], n_outputs: int) -> Floats:
        """Outputs of some rows, shape (n_rows, n_outputs), checked; or a ``RemoteFailure`` in time.

        Parameters
        ----------
        rows : ndarray of shape (n_rows, n_columns)
            Rows; NaN is missing, and is sent as null.
        columns : sequence of str
            Names of the columns.
        n_outputs : int
            Numbers per row that it answers with: 1 is a number, more are the probabilities of so many classes. Of two
            classes it may give the probability of the second alone.
        """
        if len(rows) == 0:
            return np.zeros((0, n_outputs))
        ends = time.monotonic() + self.settings.total_timeout
        body = request_of(rows, columns, self.settings)
        failure: RemoteFailure | None = None
        for _ in attempts(self.settings.max_retries, ends, first_pause=0.0):
            if failure is not None and (self._saved_retries < 1.0 or self.breaker.state == "open"):
                break
            try:
                with self.breaker.attempt():
                    self._count(is_retry=failure is not None)
                    response = await self._ask_once(body, len(rows) * n_outputs, ends)
                    return answer_of(response, len(rows), n_outputs, self.settings.output_name)
            except RemoteFailure as error:
                self.failures[error.reason] += 1
                failure = error
                if error.reason not in _PASSING:
                    break
        assert failure is not None  # the first attempt is always made
        raise failure

    def _count(self, *, is_retry: bool) -> None:
        if is_retry:
            self.retries += 1
            self._saved_retries -= 1.0
        else:
            self.calls += 1
            self._saved_retries = min(self._saved_retries + RETRY_SHARE, MAX_SAVED_RETRIES)

    async def _ask_once(self, body: bytes, n_values: int, ends: float) -> bytes:
        if self._session is None:
            raise RemoteFailure(
                "not_started", "no connections are open: `start` comes before calls, `close` after them"
            )
        largest = min(response_limit(n_values), self.settings.max_bytes)
        return await post(self._session, self.url, body, max_bytes=largest, seconds=ends - time.monotonic())


@dataclass(frozen=True)
class RemoteFull:
    """A remote model as a ``FullModel``: a thread waits while the event loop asks it."""

    remote: RemoteModel
    task: Task
    names: tuple[str, ...]

    def outputs(self, table: Any, numbers: Any) -> Floats:  # noqa: ARG002 - one contract for all full models
        """Outputs of the remote model, checked."""
        n_outputs = self.task.outputs(np.zeros((1, self.task.n_scores))).shape[1]
        asking = self.remote.ask(numbers, self.names, n_outputs)
        answers = asyncio.run_coroutine_threadsafe(asking, self.remote.loop).result()
        return models_of(self.task).read_outputs(answers, len(numbers), _WHO)


_USUAL_NAMES = {False: ("probabilities", "predict_proba"), True: ("answer", "predict")}
"""Names of the outputs of a thrifty gateway and of MLServer, by whether they are numbers. A gateway also gives the
probability of each answer, which is that of the second class only where that is the answer."""

_WHO = "the remote model"


def request_of(rows: Floats, columns: Sequence[str], settings: RemoteSettings) -> bytes:
    """The body of a request about some rows, shape (n_rows, n_columns); a missing value is null."""
    if rows.ndim != 2 or rows.shape[1] != len(columns):
        raise InvalidInputError(
            f"rows for the remote model must have its {len(columns)} columns; got the shape {rows.shape}."
        )
    rows = np.ascontiguousarray(rows, dtype=np.float64)
    datatype = settings.datatype
    if settings.input_name:
        inputs = [_tensor(settings.input_name, rows, datatype)]
    else:
        inputs = [_tensor(name, rows[:, [place]], datatype) for place, name in enumerate(columns)]
    body: dict[str, Any] = {"inputs": inputs}
    if settings.output_name is not None:
        body["outputs"] = [{"name": settings.output_name}]
    return orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)


def _tensor(name: str, values: Floats, datatype: str) -> dict[str, Any]:
    return {"name": name, "shape": list(values.shape), "datatype": datatype, "data": values.ravel()}


def answer_of(response: bytes, n_rows: int, n_outputs: int, output_name: str | None = None) -> Floats:
    """Outputs in a response, shape (n_rows, n_outputs); a bad response raises ``RemoteFailure``."""
    values = _numbers(_output(_parsed(response), output_name, n_outputs), n_rows, n_outputs)
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


def _parsed(response: bytes) -> Any:
    try:
        return parse_unique(response)
    except ValueError as error:
        # JSON knows no such numbers, but many that write it do not care.
        if b"NaN" in response or b"Infinity" in response:
            raise RemoteFailure("nan", "its answer holds what is no finite number") from error
        raise RemoteFailure("bad_json", f"its answer must be JSON with different keys: {error}") from error


def _output(parsed: Any, name: str | None, n_outputs: int) -> dict[str, Any]:
    outputs = parsed.get("outputs") if isinstance(parsed, dict) else None
    if not isinstance(outputs, list) or not all(isinstance(output, dict) for output in outputs):
        raise RemoteFailure("bad_json", "its answer has no list of `outputs`")
    names: list[Any] = [output.get("name") for output in outputs]
    wanted = _USUAL_NAMES[n_outputs == 1] if name is None else (name,)
    chosen = next((usual for usual in wanted if usual in names), None)
    if chosen is not None:
        return dict(outputs[names.index(chosen)])
    if name is None and len(outputs) == 1:
        return dict(outputs[0])
    raise RemoteFailure("shape", f"none of its outputs, {names}, is the one; name it as output_name")


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
        # Text that looks like numbers is text; null among numbers is an object.
        if values.dtype.kind in "iufO":
            return values.astype(np.float64)
        reason = f"{values.dtype} values"
    except (TypeError, ValueError) as error:
        reason = str(error)
    raise RemoteFailure("bad_json", f"the data of its output must be numbers; got {reason}")
