"""Chat completions in front of many models: a ``ModelRouter`` behind OpenAI's protocol.

A request asks models as the policy decides, each call within the ceilings of the request and of the day, until one
answer is taken. A model that fails is passed over, and the policy goes on without it; where all fail, they are asked
again until the deadline. Later turns of a conversation go to the model that answered the first one.
"""

import asyncio
import csv
import io
import os
import re
import time
import uuid
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from thrifty.engine.purchases.retry import attempts, http_session
from thrifty.errors import InvalidInputError, RemoteFailure
from thrifty.learners.routing.router import ModelRouter
from thrifty.rows import key_chance
from thrifty.serve.config import Config, closest
from thrifty.serve.gateway import BaseGateway, Loaded
from thrifty.serve.inference_protocol import read_json
from thrifty.serve.language_models import REFUSALS, UNTRIED, Bill, Completion, DayLedger, LanguageModel
from thrifty.serve.middleware import Refusal, facts_of, json_response, operation

NAME = "thrifty"
"""Name of the router in requests; ``thrifty:budget=0.001`` is the same router at another mean cost."""

_PASSED = {
    *("temperature", "top_p", "stop", "seed", "presence_penalty", "frequency_penalty", "logit_bias", "user"),
    *("tools", "tool_choice", "parallel_tool_calls", "response_format", "reasoning_effort", "verbosity"),
}
"""Fields that are passed to models; none of them makes an answer cost more than its limit of tokens."""

_READ = {"model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n"}
_ROLES = ("system", "developer", "user", "assistant", "tool")


# -- requests --------------------------------------------------------------------------------------


@dataclass
class ChatRequest:
    """A request for a completion, checked.

    Attributes
    ----------
    fields : dict
        Fields of the request to models.
    text : str
        The last message of the user, which the router reads.
    budget : float, optional
        Mean cost that the request asks for.
    conversation : bytes
        Hash of the messages up to the first one of the user.
    is_first : bool
        Whether the conversation begins with this request.
    max_tokens : int
        Limit of the tokens of an answer.
    n_bytes : int
        Upper bound of the tokens of the prompt.
    is_stream, has_usage : bool
        Whether the answer comes in parts, and whether the last of them has the tokens of all calls.
    """

    fields: dict[str, Any]
    text: str
    budget: float | None
    conversation: bytes
    is_first: bool
    max_tokens: int
    n_bytes: int
    is_stream: bool
    has_usage: bool

    @property
    def may_stream_live(self) -> bool:
        """True if parts of an answer may be passed on: another answer can follow a text, but no half of a JSON."""
        return self.is_stream and not {"tools", "response_format"} & set(self.fields)


def read_chat(body: bytes, max_tokens: int) -> ChatRequest:
    """Read a request; ``max_tokens`` is the limit of an answer where it names none."""
    request = read_json(body)
    unknown = sorted(set(request) - _PASSED - _READ)
    if unknown:
        raise InvalidInputError(
            f"{unknown[0][:60]!r} is not supported.{closest(unknown[0], _PASSED | _READ)}"
        )
    name, _, budget = str(request.get("model")).partition(":budget=")
    try:
        amount = float(budget) if budget else None
    except ValueError:
        amount = float("nan")
    if name != NAME or not (amount is None or 0.0 < amount < float("inf")):
        raise Refusal(
            404, f"model must be {NAME!r} or '{NAME}:budget=NUMBER'; got {str(request.get('model'))[:60]!r}."
        )
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(one, dict) for one in messages):
        raise InvalidInputError("messages must be a list of at least one object with role and content.")
    texts = [_text_of(message) for message in messages]
    users = [place for place, message in enumerate(messages) if message["role"] == "user"]
    if not users:
        raise InvalidInputError('messages must have at least one of the role "user".')
    limits = [request[one] for one in ("max_completion_tokens", "max_tokens") if request.get(one) is not None]
    limit = limits[0] if limits else max_tokens
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= 10**7:
        raise InvalidInputError(f"max_tokens must be a whole number >= 1; got {limit!r}.")
    if request.get("n") not in (None, 1):
        raise InvalidInputError(f"n must be 1; got {request['n']!r}.")
    options = request.get("stream_options") or {}
    if not isinstance(request.get("stream", False), bool | None) or not isinstance(options, dict):
        raise InvalidInputError("stream must be true or false, and stream_options an object.")
    fields = {
        "messages": messages,
        **{name: request[name] for name in _PASSED if request.get(name) is not None},
    }
    return ChatRequest(
        fields,
        texts[users[-1]],
        amount,
        blake2b(orjson.dumps(messages[: users[0] + 1]), digest_size=16).digest(),
        not any(message["role"] == "assistant" for message in messages),
        limit,
        len(orjson.dumps(fields)),
        bool(request.get("stream")),
        bool(options.get("include_usage")),
    )


def _text_of(message: dict[str, Any]) -> str:
    """The text of a message; images and sounds are refused, because what they cost is not known before."""
    role, content = message.get("role"), message.get("content")
    if role not in _ROLES:
        raise InvalidInputError(f"role must be one of {', '.join(_ROLES)}; got {str(role)[:60]!r}.")
    if isinstance(content, str):
        return content
    if content is None and role == "assistant":
        return ""
    if isinstance(content, list) and content:
        parts = [
            part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
            for part in content
        ]
        if all(isinstance(part, str) for part in parts):
            return "\n".join(map(str, parts))
    raise InvalidInputError(f"content of a message of the role {role!r} must be text, or a list of texts.")


# -- the gateway -----------------------------------------------------------------------------------


@dataclass
class LogRow:
    """A call of a model as the log of usage holds it; ``thrifty route`` reads such logs.

    Attributes
    ----------
    quality : int or str
        0 of a call that failed; empty otherwise, to be filled in.
    propensity : float
        Probability with which the model was asked.
    taken : int
        1 if the client got this answer.
    outcome : str
        "answered", or the reason of the failure.
    """

    id: str
    time: float
    text: str
    model: str
    quality: int | str = ""
    cost: float = 0.0
    answer: str | None = None
    propensity: float = 1.0
    taken: int = 0
    seconds: float = 0.0
    outcome: str = ""


class ServedRouter:
    """A router made ready to serve; see ``Served``.

    Parameters
    ----------
    loaded : Loaded
        The router and its version.
    budget : float, optional
        Mean cost per request; None is the operating point of the file.
    """

    def __init__(self, loaded: Loaded, budget: float | None) -> None:
        router, self.version = loaded.system, loaded.version
        if not isinstance(router, ModelRouter) or not router.reads_texts:
            raise InvalidInputError(
                "chat completions need a router that was fitted on texts. Fit it on a log with a column text."
            )
        self.router: ModelRouter = router if budget is None else router.at(budget=budget)
        self.at = lru_cache(64)(lambda budget: router.at(budget=budget))
        self.cost_of_full = router.model_costs[router.best_model]
        self.routes = tuple(router.pool_)
        self.router.start("warm up")


class ChatGateway(BaseGateway[ServedRouter]):
    """A router in front of language models; parameters as of ``BaseGateway``.

    Attributes
    ----------
    models : dict of str to LanguageModel
        Models of the router, by name.
    ledger : DayLedger
        What this day has cost.
    """

    def __init__(self, system: Any, config: Config, **how: Any) -> None:
        if config.workers > 1:
            raise InvalidInputError(
                f"a router is served by one process, which keeps its ledger and its conversations; got workers = "
                f"{config.workers}. Leave --workers out."
            )
        self.settings = settings = config.chat
        self.models: dict[str, LanguageModel] = {}
        self.session: Any = None
        self._conversations: OrderedDict[bytes, str] = OrderedDict()
        self._pattern = None if settings.answer_pattern is None else re.compile(settings.answer_pattern)
        super().__init__(system, config, **how)
        self.ledger = DayLedger(
            settings.max_cost_per_day, None if settings.ledger is None else Path(settings.ledger)
        )
        self._log = None if settings.log is None else _open_log(Path(settings.log))

    def _serving(self, loaded: Loaded) -> ServedRouter:
        served, tables = ServedRouter(loaded, self.budget), self.config.models
        prices = loaded.system.model_prices
        for name in tables:
            if name not in prices:
                raise InvalidInputError(
                    f"[models.{name}] is no model of the router.{closest(name, list(prices))}"
                )
        lacking = [name for name in served.routes if name not in tables]
        if lacking:
            raise InvalidInputError(
                f"the router asks {', '.join(served.routes)}; [models.{lacking[0]}] must say where {lacking[0]!r} is: "
                f'url = "https://HOST/v1", key_env = "NAME_OF_A_VARIABLE".'
            )
        for name in served.routes:
            if name not in self.models:
                self.models[name] = LanguageModel(name, tables[name], prices[name])
        return served

    async def start(self) -> None:
        """Start to answer requests."""
        limit = sum(model.settings.max_in_flight for model in self.models.values())
        self.session = http_session({}, max_connections=limit, connect_timeout=5.0)
        await super().start()

    async def close(self) -> None:
        """Stop to answer requests, and close connections."""
        await super().close()
        if self.session is not None:
            await self.session.close()
        self.ledger.close()
        if self._log is not None:
            os.close(self._log)
            self._log = None

    async def change_budget(self, budget: Any) -> None:
        """Go to the operating point of another mean cost per request; None is that of the file."""
        self.model.router = self.model.at(budget)
        self.budget = budget

    def refresh(self) -> dict[str, Any]:
        """Bring gauges up to date; returns what the status page shows besides metrics."""
        return {**super().refresh(), "today": self.ledger.today}

    def pinned_model(self, chat: ChatRequest) -> str | None:
        """Model that answered the conversation before."""
        name = None if chat.is_first else self._conversations.get(chat.conversation)
        return name if name in self.models else None

    def remember(self, chat: ChatRequest, name: str) -> None:
        """Keep the model that has answered a conversation."""
        self._conversations[chat.conversation] = name
        self._conversations.move_to_end(chat.conversation)
        if len(self._conversations) > self.settings.max_conversations:
            self._conversations.popitem(last=False)

    def parsed(self, text: str) -> str | None:
        """The answer in a text, as answers are compared."""
        if self._pattern is None:
            return text
        matches = list(self._pattern.finditer(text))
        return matches[-1].group(1 if self._pattern.groups else 0) if matches else None

    def log(self, row: LogRow) -> None:
        """Add one call to the log, in one write, so that a process that is killed leaves no half of a line."""
        if self._log is not None:
            line = io.StringIO()
            csv.writer(line).writerow(asdict(row).values())
            os.write(self._log, line.getvalue().encode("utf-8", "surrogatepass"))


def _open_log(path: Path) -> int:
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise InvalidInputError(f"the log {path} must be a file that can be written: {error}.") from error
    if os.fstat(file).st_size == 0:
        os.write(file, (",".join(column.name for column in fields(LogRow)) + "\r\n").encode())
    return file


# -- one request -----------------------------------------------------------------------------------


class ChatCall:
    """One request: asks models until an answer is taken, and keeps its bill.

    Attributes
    ----------
    asked : list of str
        Models that were called, in order.
    cost : float
        Dollars of all of these calls.
    model : str
        The model whose answer is taken.
    failures : dict of str to str
        Models that the latest attempt has passed over, and why.
    """

    def __init__(self, gateway: ChatGateway, chat: ChatRequest) -> None:
        self._gateway, self._chat = gateway, chat
        self.id, self.created = f"chatcmpl-{uuid.uuid4().hex}", int(time.time())
        served = gateway.model
        self._router: ModelRouter = served.router if chat.budget is None else served.at(chat.budget)
        self._session = self._router.start(chat.text)
        self._best_cost: float = self._session.expected_cost(self._router.best_model)
        self._pinned = self._first = gateway.pinned_model(chat)
        self._others: list[
            str
        ] = []  # models of which one is asked beyond the stop of an explored conversation
        self.asked: list[str] = []
        self.cost, self.model = 0.0, ""
        self.failures: dict[str, str] = {}
        self._usage: Counter[str] = Counter()
        self._rows: dict[str, LogRow] = {}

    async def answer(self, *, live: bool) -> "Completion | AsyncGenerator[str | Completion, None]":
        """The answer that is taken; with ``live``, the parts of one that will be, once the first has come."""
        gateway = self._gateway
        for pause in attempts(None, time.monotonic() + gateway.settings.deadline, longest_pause=1.0):
            if pause:
                await asyncio.sleep(pause)
                self._session, self.failures = self._router.start(self._chat.text), {}
            if (answer := await self._attempt(live)) is not None:
                return answer
            self._refuse_unanswerable()
        status = 429 if set(self.failures.values()) == {"ceiling"} else 503
        raise Refusal(status, f"no model answers: {self._why()}.", gateway.config.retry_after)

    async def _attempt(self, live: bool) -> "Completion | AsyncGenerator[str | Completion, None] | None":
        """Ask the model of the conversation, then as the policy decides; None where all models fail."""
        session, completions = self._session, {}  # type: Any, dict[str, Completion]
        if self._first is not None:
            self.model, self._first = self._first, None
            if (answer := await self._ask(self.model, live)) is not None:
                return answer
        while (purchase := session.next_purchase) is not None:
            name, before, answer = purchase.name, self.cost, None
            if name not in self.failures:
                answer = await self._ask(name, live and session.takes_next)
            if answer is None:
                session.fail(self.cost - before)
            elif isinstance(answer, Completion):
                completions[name] = answer
                session.give(self._gateway.parsed(answer.text), cost=self.cost - before)
            else:
                self.model = name
                return answer
        self.model = session.model or ""
        return completions.get(self.model)

    def _refuse_unanswerable(self) -> None:
        """Refuse a request that no later attempt can answer."""
        reasons, settings, ledger = set(self.failures.values()), self._gateway.settings, self._gateway.ledger
        if reasons <= set(REFUSALS):
            raise Refusal(400, f"no model takes the request: {self._why()}.")
        if not reasons <= {"ceiling", *REFUSALS}:
            return
        least = min(self._most(name) for name, reason in self.failures.items() if reason == "ceiling")
        if settings.max_cost is not None and self.cost + least > settings.max_cost:
            raise Refusal(
                400,
                f"an answer may cost {least:.3g} at the cheapest model, and max_cost leaves "
                f"{settings.max_cost - self.cost:.3g}. Send a shorter prompt, or a smaller max_tokens.",
            )
        if not ledger.has_room(least, later=True):
            raise Refusal(429, "the ceiling of this day, max_cost_per_day, is reached.", ledger.seconds_left)

    def _why(self) -> str:
        return ", ".join(f"{name} ({reason})" for name, reason in self.failures.items())

    # -- calls -------------------------------------------------------------------------------------

    async def _ask(
        self, name: str, live: bool
    ) -> "Completion | AsyncGenerator[str | Completion, None] | None":
        """The completion of a model, its parts where they come live, or None where it fails."""
        parts = self._parts(name, live)
        try:
            first = await anext(parts)
            if not live:
                await anext(parts, None)  # counts its bill
        except RemoteFailure:
            return None
        return _chained(first, parts) if isinstance(first, str) else first

    async def _parts(self, name: str, live: bool) -> AsyncGenerator[str | Completion, None]:
        """Parts of an answer and its completion, paid for and logged."""
        gateway, chat, began = self._gateway, self._chat, time.time()
        model, session, before = gateway.models[name], gateway.session, self.cost
        failure: RemoteFailure | None = None
        completion = Completion({})
        try:
            with self._paid(name) as bill:
                if live:
                    async with aclosing(model.stream(session, chat.fields, chat.max_tokens, bill)) as parts:
                        async for part in parts:
                            completion = part if isinstance(part, Completion) else completion
                            yield part
                else:
                    yield (completion := await model.ask(session, chat.fields, chat.max_tokens, bill))
        except BaseException as error:
            failure = (
                error if isinstance(error, RemoteFailure) else RemoteFailure("gone", "the client has gone")
            )
            self.failures[name] = failure.reason
            raise
        finally:
            if failure is None or failure.reason not in UNTRIED:
                self._record(name, completion, self.cost - before, began, failure)

    @contextmanager
    def _paid(self, name: str) -> Iterator[Bill]:
        """Pay for a call within the ceilings of the request and of the day."""
        bill, most, limit = Bill(0.0), self._most(name), self._gateway.settings.max_cost
        if limit is not None and self.cost + most > limit:
            raise RemoteFailure("ceiling", f"{most:.3g} would exceed max_cost")
        try:
            with self._gateway.ledger.reserved(most) as bill:
                yield bill
        finally:
            self.cost += bill.amount

    def _most(self, name: str) -> float:
        return self._gateway.models[name].most(self._chat.n_bytes, self._chat.max_tokens)

    def _record(
        self, name: str, completion: Completion, cost: float, began: float, failure: RemoteFailure | None
    ) -> None:
        """Keep a call for the log; one that failed is of quality 0."""
        self.asked.append(name)
        self._usage.update(completion.usage)
        row = self._rows.setdefault(name, LogRow(self.id, 0.0, self._chat.text, name))
        row.cost += cost
        row.seconds += time.time() - began
        row.quality = "" if failure is None else 0
        row.answer = self._gateway.parsed(completion.text) if failure is None else None
        row.outcome = "answered" if failure is None else failure.reason
        if failure is not None:
            self._gateway.metrics.degraded.labels(f"{name}: {failure.reason}").inc()

    # -- the end -----------------------------------------------------------------------------------

    def _propensity(self, name: str) -> float:
        """Probability of asking a model; 1 for a pinned model, and for one instead of others that failed."""
        if name == self._pinned:
            return 1.0
        policy: float = self._session.propensity(name)
        if name in self._others:  # asked beyond the stop
            return policy + (1.0 - policy) * self._gateway.config.explore / len(self._others)
        return policy or 1.0

    def headers(self, *, is_over: bool = True) -> dict[str, str]:
        """Models that were asked and their cost, which is not known before the end."""
        headers = {
            "x-request-id": self.id,
            "x-thrifty-models": ",".join(map(quote, self.asked if is_over else [*self.asked, self.model])),
            "x-thrifty-model": quote(self.model),
            "x-thrifty-propensity": f"{self._propensity(self.model):.6g}",
        }
        if is_over:
            headers |= {"x-thrifty-cost": f"{self.cost:.9g}", "x-thrifty-saved": f"{self._saved:.9g}"}
        return headers

    @property
    def _saved(self) -> float:
        return self._best_cost - self.cost

    def summary(self) -> dict[str, Any]:
        """Facts about the request in the last part of a stream."""
        return {
            "models": self.asked,
            "model": self.model,
            "cost": self.cost,
            "saved": self._saved,
            "propensity": self._propensity(self.model),
        }

    @property
    def usage(self) -> dict[str, int]:
        """Tokens of all calls."""
        return {name: self._usage[name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")}

    def end(self) -> None:
        """Count the request, and log its calls; an explored one goes on first."""
        metrics, gateway = self._gateway.metrics, self._gateway
        metrics.spend.inc(self.cost)
        if self.model:
            metrics.n_rows += 1
            metrics.saved.inc(self._saved)
            metrics.rows.labels(self.model).inc()
            gateway.remember(self._chat, self.model)
            if not self._pinned and self._chances[0] < gateway.config.explore:
                self._others = [name for name in self._router.pool_ if name not in self._rows]
        if self._others:
            gateway.in_background(self._explore())
        else:
            self._log()

    @property
    def _chances(self) -> tuple[float, float]:
        """Numbers drawn by the key of the conversation, which decide whether it is explored, and by which model."""
        key = np.frombuffer(self._chat.conversation, dtype=np.uint64)[:1]
        return float(key_chance(key, 1)[0]), float(key_chance(key, 2)[0])

    async def _explore(self) -> None:
        """Ask one model more than the policy does, for the log."""
        before = self.cost
        try:
            await self._ask(self._others[int(self._chances[1] * len(self._others))], live=False)
        finally:
            self._gateway.metrics.spend.inc(self.cost - before)
            self._log()

    def _log(self) -> None:
        for name, row in self._rows.items():
            row.time, row.propensity = round(time.time(), 3), self._propensity(name)
            row.taken = int(name == self.model)
            self._gateway.log(row)


async def _chained(first: Any, parts: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
    """All parts again, of which the first was taken."""
    async with aclosing(parts):
        yield first
        async for part in parts:
            yield part


# -- responses -------------------------------------------------------------------------------------


def _response(call: ChatCall, kind: str, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A whole response, or a part of a stream, as OpenAI's protocol has it."""
    named = {"id": call.id, "object": kind, "created": call.created, "model": call.model}
    return {**named, "choices": choices, **more}


async def _complete(gateway: ChatGateway, request: Request) -> Response:
    """Answer a conversation with one of many models."""
    chat = read_chat(await request.body(), gateway.settings.max_tokens)
    call, answer = ChatCall(gateway, chat), None  # type: ChatCall, Any
    try:
        answer = await call.answer(live=chat.may_stream_live)
        if chat.is_stream:
            headers = call.headers(is_over=isinstance(answer, Completion)) | {"cache-control": "no-cache"}
            return StreamingResponse(
                _events(call, chat, answer), headers=headers, media_type="text/event-stream"
            )
        choice = {"index": 0, "message": answer.message, "finish_reason": answer.finish_reason}
        response = _response(call, "chat.completion", [choice], usage=call.usage)
        return json_response(response, headers=call.headers())
    finally:
        facts = facts_of(request)
        facts |= {"models": call.asked, "cost": call.cost}
        if answer is None or not chat.is_stream:
            call.end()


async def _events(call: ChatCall, chat: ChatRequest, answer: Any) -> AsyncGenerator[bytes, None]:
    """Server-sent events of an answer. Where a model breaks off, the answer of another one follows an empty line."""

    def event(content: Any) -> bytes:
        return b"data: %b\n\n" % orjson.dumps(content)

    def part(delta: dict[str, Any], reason: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return event(_response(call, "chat.completion.chunk", [choice], **more))

    try:
        yield part({"role": "assistant", "content": ""})
        if isinstance(answer, Completion):
            yield part(_delta(answer))
        else:
            try:
                async with aclosing(answer) as texts:
                    async for text in texts:
                        if isinstance(text, str):
                            yield part({"content": text})
                        else:
                            answer = text
            except RemoteFailure:
                answer = await call.answer(live=False)
                yield part({"content": "\n\n"})
                yield part(_delta(answer))
        yield part({}, answer.finish_reason, thrifty=call.summary())
        if chat.has_usage:
            yield event(_response(call, "chat.completion.chunk", [], usage=call.usage))
        yield b"data: [DONE]\n\n"
    except Refusal as error:
        yield event(chat_error(str(error), error.status))
    finally:
        call.end()


def _delta(completion: Completion) -> dict[str, Any]:
    """A whole message as one part of a stream."""
    delta = {key: value for key, value in completion.message.items() if key != "role"}
    if isinstance(delta.get("tool_calls"), list):
        delta["tool_calls"] = [{"index": place, **call} for place, call in enumerate(delta["tool_calls"])]
    return delta


def chat_error(message: str, status: int) -> dict[str, Any]:
    """Shape of an error, as OpenAI's protocol has it."""
    kinds = {401: "authentication_error", 404: "model_not_found", 429: "insufficient_quota"}
    kind = kinds.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": kind}}


def chat_routes(gateway: ChatGateway) -> list[Route]:
    """The operations for clients."""

    async def chat(request: Request) -> Response:
        return await _complete(gateway, request)

    async def models(_: Request) -> Response:
        model = {"id": NAME, "object": "model", "created": int(gateway.metrics.started), "owned_by": NAME}
        return json_response({"object": "list", "data": [{**model, "models": gateway.model.routes}]})

    return [
        operation(gateway, "/v1/chat/completions", chat, method="POST", is_limited=True),
        operation(gateway, "/v1/models", models),
    ]
