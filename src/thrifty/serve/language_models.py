"""Language models behind OpenAI's protocol: calls that are paid for, and a ledger of what a day has cost.

The most that a call can cost is reserved before it is sent: a token has at least one byte, so that a prompt has at most
as many tokens as bytes, and every call carries a limit of tokens of its answer. Once the answer is whole, what the
server reports as used is counted instead, up to that limit and to the bytes that came; without such a report, the
reservation is. A call counts nothing only where the server was not reached, or refused it.
"""

import asyncio
import contextlib
import fcntl
import math
import os
import struct
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from thrifty.engine.prices.prices import ModelPrice, check_price
from thrifty.engine.purchases.retry import NOT_TRIED, CircuitBreaker, open_post, read_body
from thrifty.errors import InvalidInputError, RemoteFailure
from thrifty.serve.config import ModelSettings, key_from

MAX_RESPONSE = 32 * 2**20
"""Bytes of the largest response that is read."""

MAX_LINE = 2**20
"""Bytes of the longest line of a stream."""

REFUSALS = ("status_400", "status_413", "status_422")
"""Failures that are due to the request: they do not count against the model."""

UNTRIED = (*NOT_TRIED, "paused", "ceiling", "capacity", "ledger")
"""Failures in which nothing was sent."""

_PAUSE = 1.0
"""Seconds for which a model is left alone that is rate-limited and names no time."""

_DAY = 86_400

Emit = Callable[[str], Awaitable[None]]
"""Passes a part of an answer on."""


@dataclass
class ChatRequest:
    """A request for a completion, checked.

    Attributes
    ----------
    fields : dict
        Fields of the request to models.
    n_bytes : int
        Their bytes, an upper bound of the tokens of the prompt.
    max_tokens : int
        Limit of the tokens of an answer.
    text : str
        The last message of the user, which the router reads.
    budget : float, optional
        Mean cost that the request asks for.
    conversation : bytes
        Hash of the messages up to the first one of the user.
    is_first : bool
        Whether the conversation begins with this request.
    is_stream, has_usage : bool
        Whether the answer comes in parts, and whether the last of them has the tokens of all calls.
    """

    fields: dict[str, Any]
    n_bytes: int
    max_tokens: int
    text: str
    budget: float | None
    conversation: bytes
    is_first: bool
    is_stream: bool
    has_usage: bool


@dataclass
class Completion:
    """Answer of a model.

    Attributes
    ----------
    message : dict
        As OpenAI's protocol has it.
    finish_reason : str
        Why the answer ends.
    usage : dict of str to int
        Tokens that were counted; empty where the server reports none.
    """

    message: dict[str, Any]
    finish_reason: str = "stop"
    usage: dict[str, int] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The answer; a call of tools as JSON."""
        return str(self.message.get("content") or orjson.dumps(self.message.get("tool_calls") or "").decode())


# -- the ledger ------------------------------------------------------------------------------------


@dataclass
class Bill:
    """Cost of one call: what was reserved, until the server reports what was used."""

    amount: float


class DayLedger:
    """Dollars that calls of this day (UTC) have cost or may cost at most, or their number, never above a limit.

    Parameters
    ----------
    limit : float, optional
        Dollars, or calls, a day; None counts only.
    path : Path, optional
        File that keeps the sum across restarts. What a killed process had reserved counts as spent.
    clock : callable
        Seconds since 1970.

    Attributes
    ----------
    in_flight : float
        Reservations of calls under way.
    """

    def __init__(self, limit: float | None, path: Path | None = None, clock: Any = time.time) -> None:
        self._limit, self._clock, self.in_flight = limit, clock, 0.0
        self._day = self._sum = 0.0
        self._file: int | None = None
        if path is None:
            return
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._day, self._sum = _read_ledger(os.pread(self._file, _RECORD.size + 1, 0))
            self._write()
        except BlockingIOError:
            words = "belong to one gateway; another one holds it"
        except OSError as error:
            words = f"be a file that can be written: {error}"
        except ValueError as error:
            words = f"hold the dollars of one day; {error}"
        else:
            return
        self.close()
        raise InvalidInputError(f"the ledger {path} must {words}. Name another file.") from None

    def close(self) -> None:
        """Leave the file to another gateway."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _write(self) -> None:
        """Write day and sum at once, so that a process that is killed leaves no half of them."""
        if self._file is not None:
            numbers = _RECORD.pack(_MAGIC, self._day, self._sum, 0)[:-4]
            os.pwrite(self._file, numbers + zlib.crc32(numbers).to_bytes(4, "little"), 0)

    @property
    def today(self) -> float:
        """Dollars of this day."""
        day = float(self._clock() // _DAY)
        if self._day != day:
            self._day, self._sum, self.in_flight = day, 0.0, 0.0
        return self._sum

    @property
    def seconds_left(self) -> int:
        """Seconds until the next day."""
        return int(_DAY - self._clock() % _DAY) + 1

    def has_room(self, amount: float, *, later: bool = False) -> bool:
        """True if an amount may be reserved; with ``later``, once the calls under way are counted."""
        left = self.today - (self.in_flight if later else 0.0) + amount
        return self._limit is None or left <= self._limit

    @contextlib.contextmanager
    def reserved(self, most: float, bill: "Bill | None" = None) -> Iterator[Bill]:
        """Reserve the most that a call can cost until it is counted; ``bill`` is that of another ledger, if any."""
        if not self.has_room(most):
            raise RemoteFailure("ceiling", f"{most:.3g} would exceed the ceiling of this day")
        day, bill = self._day, Bill(most) if bill is None else bill
        self._sum += most
        try:
            self._write()
        except OSError as error:
            self._sum -= most
            raise RemoteFailure("ledger", f"the ledger cannot be written: {error}") from error
        self.in_flight += most
        try:
            yield bill
        except RemoteFailure as failure:
            if failure.reason in (*UNTRIED, "connect") or failure.reason.startswith("status_"):
                bill.amount = 0.0
            raise
        finally:
            if self.today >= 0.0 and self._day == day:  # else it was charged to a day that is over
                self._sum += bill.amount - most
                self.in_flight = max(self.in_flight - most, 0.0)
                with contextlib.suppress(OSError):  # the file then holds what was reserved, which is more
                    self._write()


_MAGIC = b"thrifty\n"
_RECORD = struct.Struct("<8sddI")
"""A ledger: what it is, day, dollars, and the checksum of these. One of 0.3 is day and dollars alone."""


def _read_ledger(content: bytes) -> tuple[float, float]:
    """Day and dollars in a ledger; ``ValueError`` says what is wrong with them."""
    if not content:
        return 0.0, 0.0
    if len(content) == 16:
        day, dollars = struct.unpack("=dd", content)
    elif len(content) != _RECORD.size or not content.startswith(_MAGIC):
        raise ValueError("this file is none, and stays as it is")
    else:
        _, day, dollars, checksum = _RECORD.unpack(content)
        if checksum != zlib.crc32(content[:-4]):
            raise ValueError("this one is damaged")
    if not (day >= 0.0 and day.is_integer() and 0.0 <= dollars < math.inf):
        raise ValueError(f"got {dollars!r} dollars of the day {day!r}")
    return day, dollars


# -- models ----------------------------------------------------------------------------------------


class LanguageModel:
    """One model of a router, behind a server that speaks OpenAI's protocol.

    Parameters
    ----------
    name : str
        Its name in the router.
    settings : ModelSettings
        Where it is, and its limits.
    price : float or pair of float, optional
        Its price in the router, unless the settings have one.
    breaker : CircuitBreaker, optional
        That of the same model before a reload.

    Attributes
    ----------
    is_limited : bool
        Whether the latest call was refused because there are too many.
    """

    def __init__(
        self, name: str, settings: ModelSettings, price: ModelPrice, breaker: CircuitBreaker | None = None
    ) -> None:
        checked = check_price(name, price if settings.price is None else settings.price)
        if checked is None or callable(checked):
            raise InvalidInputError(
                f"[models.{name}] must set price, dollars per call or [in, out] per million tokens: the router knows "
                f"none."
            )
        if isinstance(checked, dict):
            raise InvalidInputError(f"[models.{name}] must set price in dollars; the router has {checked!r}.")
        self.name, self.price, self.settings = name, checked, settings
        self.breaker = breaker or CircuitBreaker(max_in_flight=settings.max_in_flight)
        self.is_limited, self._resumes = False, 0.0
        self._headers = {"Content-Type": "application/json"}
        if (key := key_from(settings.key_env)) is not None:
            self._headers["Authorization"] = f"Bearer {key}"

    def _price_of(self, n_in: float, n_out: float) -> float:
        if isinstance(self.price, tuple):
            return (self.price[0] * n_in + self.price[1] * n_out) / 1e6
        return self.price

    def most(self, chat: ChatRequest) -> float:
        """The most that a call can cost."""
        return self._price_of(chat.n_bytes + self.settings.extra_tokens, chat.max_tokens)

    async def ask(self, session: Any, chat: ChatRequest, bill: Bill, emit: Emit | None = None) -> Completion:
        """Return the answer to one call, within the breaker, and count its bill; ``emit`` gets its parts as they come.

        A model that is rate-limited is left alone for a while.
        """
        if time.monotonic() < self._resumes:
            raise RemoteFailure("paused", "it is rate-limited")
        with self.breaker.attempt():
            try:
                answer = await self._call(session, chat, bill, emit)
                self.is_limited = False
                return answer
            except RemoteFailure as failure:
                self.is_limited = failure.reason == "status_429" or failure.retry_after is not None
                if self.is_limited:
                    self._resumes = time.monotonic() + (failure.retry_after or _PAUSE)
                if failure.reason not in REFUSALS:
                    raise
                refusal = failure
        raise refusal

    async def _call(self, session: Any, chat: ChatRequest, bill: Bill, emit: Emit | None) -> Completion:
        settings = self.settings
        named = {"model": settings.model or self.name, settings.max_tokens_name: chat.max_tokens}
        if emit is not None:
            named |= {"stream": True, "stream_options": {"include_usage": True}}
        url, body = f"{settings.url.rstrip('/')}/chat/completions", orjson.dumps({**chat.fields, **named})
        async with open_post(session, url, body, seconds=settings.timeout, headers=self._headers) as (
            response,
            deadline,
        ):
            if emit is None:
                answer = _parsed(await read_body(response, MAX_RESPONSE))
            else:
                answer = await self._stream(response, deadline, emit)
        self._count(answer, chat, bill)  # one that cannot be used is paid for, too
        completion = _completion(answer)
        completion.usage = self._count(answer, chat, bill, n_received=len(completion.text.encode()))
        return completion

    def _count(
        self, answer: Mapping[str, Any], chat: ChatRequest, bill: Bill, *, n_received: int = 0
    ) -> dict[str, int]:
        """Replace the reservation by what the server reports, as far as it was sent and received."""
        usage = answer.get("usage")
        names = "prompt_tokens", "completion_tokens"
        counts: list[Any] = [usage.get(name) if isinstance(usage, dict) else None for name in names]
        if not all(type(count) is int and count >= 0 for count in counts):
            return {}
        n_in = min(counts[0], chat.n_bytes + self.settings.extra_tokens)
        n_out = min(counts[1], max(chat.max_tokens, n_received))
        bill.amount = self._price_of(n_in, n_out)
        return {"prompt_tokens": n_in, "completion_tokens": n_out, "total_tokens": n_in + n_out}

    async def _stream(self, response: Any, deadline: Any, emit: Emit) -> dict[str, Any]:
        """Emit the parts of an answer; all of it, and the usage reported after the last one."""
        text, reason, usage, n_bytes = list[str](), None, None, 0
        clock = asyncio.get_running_loop().time
        ends = clock() + self.settings.stream_timeout
        async for line in _lines(response):
            n_bytes += len(line)
            if n_bytes > MAX_RESPONSE:
                response.close()
                raise RemoteFailure("too_large", f"the response is larger than {MAX_RESPONSE:,} bytes")
            data = line.strip().removeprefix(b"data:").strip()
            if not line.startswith(b"data:") or data == b"[DONE]":
                continue
            chunk = _parsed(data)
            if chunk.get("choices") or "error" in chunk:
                choice = _first_choice(chunk)
                delta = choice.get("delta")
                reason = choice.get("finish_reason") or reason
                if isinstance(delta, dict) and any(delta[name] for name in delta if name != "role"):
                    usage = None  # it was reported before this part
                    part = delta.get("content")
                    if isinstance(part, str) and part:
                        text.append(part)
                        deadline.reschedule(None)  # a slow client is no failure of the model
                        await emit(part)
                    deadline.reschedule(min(clock() + self.settings.timeout, ends))
            usage = chunk.get("usage") or usage
        if reason is None:
            raise RemoteFailure("closed", "its answer broke off")
        choice = {"message": {"content": "".join(text)}, "finish_reason": reason}
        return {"choices": [choice], "usage": usage}


# -- responses -------------------------------------------------------------------------------------


async def _lines(response: Any) -> AsyncIterator[bytes]:
    """Lines of a response."""
    rest = b""
    async for part in response.content.iter_any():
        *lines, rest = (rest + part).split(b"\n")
        if max(map(len, (rest, *lines))) > MAX_LINE:
            response.close()  # else the rest would be read before the connection is used again
            raise RemoteFailure("too_large", f"a line of the response is longer than {MAX_LINE:,} bytes")
        for line in lines:
            yield line


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        answer = orjson.loads(content)
    except ValueError as error:
        raise RemoteFailure("bad_json", f"its answer is no JSON: {error}") from error
    if not isinstance(answer, dict):
        raise RemoteFailure("nonsense", "its answer is no JSON object")
    return answer


def _first_choice(answer: dict[str, Any]) -> dict[str, Any]:
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise RemoteFailure("nonsense", "its answer has no choices")
    return choices[0]


def _completion(answer: dict[str, Any]) -> Completion:
    """A whole answer, which has text or calls of tools, and can be sent on."""
    choice = _first_choice(answer)
    message = choice.get("message")
    message = message if isinstance(message, dict) else {}
    content, calls, refusal = (message.get(name) for name in ("content", "tool_calls", "refusal"))
    kept: dict[str, Any] = {"role": "assistant", "content": content if isinstance(content, str) else None}
    if calls:
        kept["tool_calls"] = calls
    if isinstance(refusal, str):
        kept["refusal"] = refusal
    are_calls = isinstance(calls, list) and all(isinstance(call, dict) for call in calls)
    if not (are_calls if calls else (kept["content"] or "").strip()):
        raise RemoteFailure("nonsense", "its answer has neither text nor tool calls")
    try:
        orjson.dumps([[[[kept]]]])  # in a response it is nested so deep
    except orjson.JSONEncodeError as error:
        raise RemoteFailure("nonsense", f"its answer cannot be sent on: {error}") from error
    reason = choice.get("finish_reason")
    return Completion(kept, reason if isinstance(reason, str) else "stop")
