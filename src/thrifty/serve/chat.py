"""Chat completions in front of many models: a ``ModelRouter`` behind OpenAI's protocol.

A request asks models as the policy decides, each call within the ceilings of the request and of the day, until one
answer is taken. A model that fails is passed over, and the policy goes on without it; where all are only busy, they are
asked again until the deadline. Later turns of a conversation go to the model that answered the first one.
"""

import asyncio
import re
import time
import uuid
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import astuple, dataclass, fields
from functools import lru_cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from thrifty.engine.purchases.retry import attempts, http_session
from thrifty.errors import InvalidInputError, RemoteFailure
from thrifty.learners.routing.router import ModelRouter
from thrifty.rows import key_chance
from thrifty.serve.config import Config, ModelSettings, closest
from thrifty.serve.csv_log import CsvLog
from thrifty.serve.gateway import BaseGateway, Loaded
from thrifty.serve.inference_protocol import read_json
from thrifty.serve.language_models import (
    REFUSALS,
    UNTRIED,
    Bill,
    ChatRequest,
    Completion,
    DayLedger,
    LanguageModel,
)
from thrifty.serve.middleware import Refusal, facts_of, json_response, operation

NAME = "thrifty"
"""Name of the router in requests; ``thrifty:budget=0.001`` is the same router at another mean cost."""

_LONG = 10_000
"""Characters of a text that is read in a thread: 0.9 million take more than half a second."""

_CONNECT_TIMEOUT = 5.0
"""Seconds in which a model must be reached, and in which models are asked again that all fail."""

_BUSY = {"status_429", "paused", "too_many_in_flight", "ceiling"}
"""Failures of models that will answer later: they are asked again until the deadline."""

_WRITE_TIMEOUT = 30.0
"""Seconds in which a client must read a part of a stream."""


# -- requests --------------------------------------------------------------------------------------

_NUMBER, _WHOLE, _TEXT, _TRUTH = (
    ((int, float), "a number"),
    ((int,), "a whole number >= 1"),
    ((str,), "text"),
    ((bool,), "true or false"),
)
_OBJECT, _LIST = ((dict,), "an object"), ((list,), "a list of at least one object")

_PASSED: dict[str, tuple[tuple[type, ...], str]] = {
    **dict.fromkeys(("temperature", "top_p", "presence_penalty", "frequency_penalty", "seed"), _NUMBER),
    **dict.fromkeys(("user", "reasoning_effort", "verbosity"), _TEXT),
    **dict.fromkeys(("logit_bias", "response_format"), _OBJECT),
    "stop": ((str, list), "text, or a list of texts"),
    "tools": _LIST,
    "tool_choice": ((str, dict), "text or an object"),
    "parallel_tool_calls": _TRUTH,
    "messages": _LIST,
}
"""Fields that are passed to models, and their types; none makes an answer cost more than its limit of tokens."""

_READ = {
    "model": _TEXT,
    "stream": _TRUTH,
    "stream_options": _OBJECT,
    "max_tokens": _WHOLE,
    "max_completion_tokens": _WHOLE,
    "n": _WHOLE,
}
_MESSAGE = ("role", "content", "name", "tool_calls", "tool_call_id", "refusal", "reasoning_content")
_CALL = ("type", "function", "custom")
_ROLES = ("system", "developer", "user", "assistant", "tool")


def read_chat(body: bytes, max_tokens: int) -> ChatRequest:
    """Read a request; ``max_tokens`` is the limit of an answer where it names none."""
    request = _fields_of(read_json(body), "a request", _PASSED | _READ)
    for field, value in request.items():
        types, words = (_PASSED | _READ)[field]
        if not isinstance(value, types) or (isinstance(value, bool) and types != (bool,)):
            raise InvalidInputError(f"{field} must be {words}; got {str(value)[:60]!r}.")
    name, _, budget = request.get("model", "").partition(":budget=")
    amount = None
    with suppress(ValueError):
        amount = float(budget) if budget else None
    if name != NAME or (budget and not (amount and 0.0 < amount < float("inf"))):
        raise Refusal(
            404, f"model must be {NAME!r} or '{NAME}:budget=NUMBER'; got {request.get('model', '')[:60]!r}."
        )
    messages = request.get("messages") or [None]
    if not all(isinstance(message, dict) for message in messages):
        raise InvalidInputError("messages must be a list of at least one object with role and content.")
    texts = [_text_of(message) for message in messages]
    users = [place for place, message in enumerate(messages) if message["role"] == "user"]
    if not users:
        raise InvalidInputError('messages must have at least one of the role "user".')
    _check_calls("tools", request.get("tools", []), _CALL)
    limit = request.get("max_completion_tokens", request.get("max_tokens", max_tokens))
    if not 1 <= limit <= 10**7:
        raise InvalidInputError(f"max_tokens must be a whole number >= 1; got {limit!r}.")
    if request.get("n", 1) != 1:
        raise InvalidInputError(f"n must be 1; got {request['n']!r}.")
    passed = {field: request[field] for field in _PASSED if field in request}
    return ChatRequest(
        passed,
        len(orjson.dumps(passed)),
        limit,
        text=texts[users[-1]],
        budget=amount,
        conversation=blake2b(orjson.dumps(messages[: users[0] + 1]), digest_size=16).digest(),
        is_first=not any(message["role"] == "assistant" for message in messages),
        is_stream=request.get("stream", False),
        has_usage=bool(request.get("stream_options", {}).get("include_usage")),
    )


def _fields_of(value: dict[str, Any], what: str, names: Collection[str]) -> dict[str, Any]:
    """The fields that have values; one that is not listed may have a price of its own, and is refused."""
    used = {name: field for name, field in value.items() if field not in (None, [], {})}
    for name in used:
        if name not in names:
            raise InvalidInputError(f"{name[:60]!r} is not supported in {what}.{closest(name, names)}")
    return used


def _check_calls(what: str, calls: Any, names: Collection[str]) -> None:
    """Refuse tools, and calls of them, that are no functions: a server may have a price for those."""
    for call in calls if isinstance(calls, list) else [calls]:
        kind = call.get("type", "function") if isinstance(call, dict) else None
        if kind not in ("function", "custom"):
            raise InvalidInputError(f"{what} must be functions; got the type {str(kind)[:60]!r}.")
        _fields_of(call, what, names)


def _text_of(message: dict[str, Any]) -> str:
    """The text of a message; images and sounds are refused, because what they cost is not known before."""
    role, content = message.get("role"), message.get("content")
    if role not in _ROLES:
        raise InvalidInputError(f"role must be one of {', '.join(_ROLES)}; got {str(role)[:60]!r}.")
    _fields_of(message, "a message", _MESSAGE)
    _check_calls("tool_calls", message.get("tool_calls") or [], (*_CALL, "id", "index", "extra_content"))
    if content is None and role == "assistant":
        return ""
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if (
        not isinstance(parts, list)
        or not parts
        or not all(
            isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
            for part in parts
        )
    ):
        raise InvalidInputError(
            f"content of a message of the role {role!r} must be text, or a list of texts."
        )
    return "\n".join(_fields_of(part, "a text", ("type", "text"))["text"] for part in parts)


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


_LOGGED = tuple(column.name for column in fields(LogRow))


class ServedRouter:
    """A router made ready to serve; see ``Served``.

    Parameters
    ----------
    loaded : Loaded
        The router and its version.
    budget : float, optional
        Mean cost per request; None is the operating point of the file.
    config : Config
        Has the tables of its models.
    former : dict of str to LanguageModel
        Models before a reload; they hand on what is known of their servers, not their prices and pauses.

    Attributes
    ----------
    models : dict of str to LanguageModel
        Models that the router asks, by name.
    """

    def __init__(
        self, loaded: Loaded, budget: float | None, config: Config, former: Mapping[str, LanguageModel]
    ) -> None:
        router, self.version = loaded.system, loaded.version
        if not isinstance(router, ModelRouter) or not router.reads_texts:
            raise InvalidInputError(
                "chat completions need a router that was fitted on texts. Fit it on a log with a column text."
            )
        if router.state_.resources is not None:
            raise InvalidInputError(
                f"chat completions need a router of costs in one resource; these are in "
                f"{', '.join(router.state_.resources.names)}. Fit it on dollars."
            )
        self.router: ModelRouter = router if budget is None else router.at(budget=budget)
        self.at = lru_cache(64)(lambda budget: router.at(budget=budget))
        self.rival = router.best_model
        self.cost_of_full = router.model_costs[self.rival]
        self.routes, prices = tuple(router.pool_), router.model_prices
        settings = config.models_of(ModelSettings, prices, self.routes)
        self.models = {
            name: LanguageModel(
                name, settings[name], prices[name], former[name].breaker if name in former else None
            )
            for name in self.routes
        }
        self.router.start("warm up")


class ChatGateway(BaseGateway[ServedRouter]):
    """A router in front of language models; parameters as of ``BaseGateway``.

    Attributes
    ----------
    ledger : DayLedger
        What this day has cost.
    capacities : dict of str to DayLedger
        Calls of this day, of models that have a ``capacity``.
    """

    def __init__(self, system: Any, config: Config, **how: Any) -> None:
        if config.workers > 1:
            raise InvalidInputError(
                f"a router is served by one process, which keeps its ledger and its conversations; got workers = "
                f"{config.workers}. Leave --workers out."
            )
        self.settings = settings = config.chat
        self.session: Any = None
        self._conversations: OrderedDict[bytes, str] = OrderedDict()
        self._pattern = None if settings.answer_pattern is None else re.compile(settings.answer_pattern)
        super().__init__(system, config, **how)
        self.ledger = DayLedger(settings.max_cost_per_day, settings.ledger and Path(settings.ledger))
        self.tenants = {
            name: DayLedger(tenant.budget, settings.ledger and Path(f"{settings.ledger}.{name}"))
            for name, tenant in config.tenants.items()
        }
        limits = {name: model.capacity for name, model in config.models.items() if model.capacity is not None}
        self.capacities = {
            name: DayLedger(limit, settings.ledger and Path(f"{settings.ledger}.calls.{name}"))
            for name, limit in limits.items()
        }
        if config.receipts is not None:
            raise InvalidInputError(
                f"receipts are of systems that buy columns; got {config.receipts!r}, and the file holds a router. "
                f"Leave it out: the log of a router is that of [chat]."
            )
        self.log = None
        if settings.log is not None:
            self.log = CsvLog(Path(settings.log), _LOGGED, settings.max_log_bytes, self.metrics.unlogged)

    def _serving(self, loaded: Loaded) -> ServedRouter:
        former = self.model.models if hasattr(self, "model") else {}
        return ServedRouter(loaded, self.budget, self.config, former)

    async def start(self) -> None:
        """Start to answer requests."""
        limit = sum(model.max_in_flight for model in self.config.models.values())
        self.session = http_session({}, max_connections=limit, connect_timeout=_CONNECT_TIMEOUT)
        await super().start()

    async def close(self) -> None:
        """Stop to answer requests, and close connections."""
        await super().close()
        if self.session is not None:
            await self.session.close()
        for ledger in (self.ledger, *self.tenants.values(), *self.capacities.values()):
            ledger.close()
        if self.log is not None:
            self.log.close()
            self.log = None

    async def change_budget(self, budget: Any) -> None:
        """Go to the operating point of another mean cost per request; None is that of the file."""
        self.model.router = self.model.at(budget)
        self.budget = budget

    def refresh(self) -> dict[str, Any]:
        """Bring gauges up to date; returns what the status page shows besides metrics."""
        if self.tenants:
            today = {name: ledger.today for name, ledger in self.tenants.items()}
            self.metrics.show("tenant_today", "Dollars of this day, by tenant.", today, "tenant")
        if self.capacities:
            today = {name: ledger.today for name, ledger in self.capacities.items()}
            self.metrics.show("calls_today", "Calls of this day, of models with a capacity.", today, "model")
        return {**super().refresh(), "today": self.ledger.today}

    def pinned_model(self, chat: ChatRequest) -> str | None:
        """Model that answered the conversation before."""
        name = None if chat.is_first else self._conversations.get(chat.conversation)
        return name if name in self.model.models else None

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
    shown : Completion or None
        The answer whose parts were passed on as they came.
    """

    def __init__(self, gateway: ChatGateway, chat: ChatRequest, tenant: str = "") -> None:
        self._gateway, self._chat, self._served = gateway, chat, gateway.model
        self._ledgers = [gateway.ledger, *([gateway.tenants[tenant]] if tenant else [])]
        self._tenant = tenant
        self.id, self.created = f"chatcmpl-{uuid.uuid4().hex}", int(time.time())
        self._pinned = self._first = gateway.pinned_model(chat)
        self._others: list[str] = []  # of which one is asked beyond the stop of an explored conversation
        self.asked: list[str] = []
        self.cost, self.model = 0.0, ""
        self.failures: dict[str, str] = {}
        self.shown: Completion | None = None
        self._usage: Counter[str] = Counter()
        self._rows: dict[str, LogRow] = {}
        self._session: Any = None

    async def _start(self) -> None:
        """Start the walk of the router, at its first model."""
        self.failures, served, chat = {}, self._served, self._chat
        self._router = served.router if chat.budget is None else served.at(chat.budget)
        self._session = await _aside(chat.text, lambda: self._router.start(chat.text))

    async def answer(self, stream: "EventStream | None") -> Completion:
        """The answer that is taken; parts of one that will be taken in any case are streamed as they come."""
        settings, began = self._gateway.settings, time.monotonic()
        timeouts = [model.settings.timeout for model in self._served.models.values()]
        patience = began + min(_CONNECT_TIMEOUT, *timeouts)
        for pause in attempts(None, began + settings.deadline, longest_pause=1.0):
            if not self._is_busy and time.monotonic() + pause > patience:
                break
            await asyncio.sleep(pause)
            await self._start()
            if (answer := await self._attempt(stream)) is not None:
                return answer
            self._refuse_unanswerable()
        status = 429 if set(self.failures.values()) <= {"ceiling", "capacity"} else 503
        raise Refusal(status, f"no model answers: {self._why()}.", self._gateway.config.retry_after)

    async def _attempt(self, stream: "EventStream | None") -> Completion | None:
        """Ask the model of the conversation, then as the policy decides; None where all models fail."""
        session, completions = self._session, {}  # type: Any, dict[str, Completion]
        if self._first is not None:
            self.model, self._first = self._first, None
            if (answer := await self._ask(self.model, stream)) is not None:
                return answer
        while (purchase := session.next_purchase) is not None:
            name, before, answer = purchase.name, self.cost, None
            if session.takes_next:
                self.model = name
            if name not in self.failures:
                answer = await self._ask(name, stream if session.takes_next else None)
            if answer is None:
                session.fail(self.cost - before)
            else:
                completions[name] = answer
                parsed, cost = self._rows[name].answer, self.cost - before
                await _aside(answer.text, partial(session.give, parsed, cost=cost))
        self.model = session.model or ""
        return completions.get(self.model)

    def _refuse_unanswerable(self) -> None:
        """Refuse a request that no later attempt can answer."""
        reasons, settings = set(self.failures.values()), self._gateway.settings
        if reasons <= set(REFUSALS):
            raise Refusal(400, f"no model takes the request: {self._why()}.")
        if not reasons <= {"ceiling", *REFUSALS}:
            return
        models = self._served.models
        least = min(models[name].most(self._chat) for name, why in self.failures.items() if why == "ceiling")
        if settings.max_cost is not None and self.cost + least > settings.max_cost:
            raise Refusal(
                400,
                f"an answer may cost {least:.3g} at the cheapest model, and max_cost leaves "
                f"{settings.max_cost - self.cost:.3g}. Send a shorter prompt, or a smaller max_tokens.",
            )
        whose = "the ceiling of this day, max_cost_per_day,", f"the budget of {self._tenant!r} for this day"
        for ledger, words in zip(self._ledgers, whose, strict=False):
            if not ledger.has_room(least, later=True):
                raise Refusal(429, f"{words} is reached.", ledger.seconds_left)

    @property
    def _is_busy(self) -> bool:
        """Whether a model failed that will answer later."""
        models = self._served.models
        return any(why in _BUSY or models[name].is_limited for name, why in self.failures.items())

    def _why(self) -> str:
        return ", ".join(f"{name} ({reason})" for name, reason in self.failures.items())

    # -- calls -------------------------------------------------------------------------------------

    async def _ask(self, name: str, stream: "EventStream | None") -> Completion | None:
        """The answer of a model, paid for within the ceilings and recorded; None where it fails."""
        gateway, chat, model, began = self._gateway, self._chat, self._served.models[name], time.time()
        emit = None if stream is None or stream.has_begun else stream.emit
        answer, outcome, bill, limit = None, "gone", Bill(0.0), gateway.settings.max_cost
        try:
            if limit is not None and self.cost + model.most(chat) > limit:
                raise RemoteFailure("ceiling", f"{model.most(chat):.3g} would exceed max_cost")
            with ExitStack() as reserved:
                if (capacity := gateway.capacities.get(name)) is not None:
                    if not capacity.has_room(1.0):
                        raise RemoteFailure("capacity", "its calls of this day are used up")
                    reserved.enter_context(capacity.reserved(1.0))
                for number, ledger in enumerate(self._ledgers):  # one bill for all
                    bill = reserved.enter_context(ledger.reserved(model.most(chat), bill if number else None))
                answer = await model.ask(gateway.session, chat, bill, emit)
            outcome, self.shown = "answered", self.shown if emit is None else answer
        except RemoteFailure as failure:
            outcome = failure.reason
        finally:
            self.cost += bill.amount
            if answer is None:
                self.failures[name] = outcome
            if outcome == "capacity":
                gateway.metrics.degraded.labels(f"{name}: capacity").inc()
            if outcome not in UNTRIED:
                self._record(name, answer, bill.amount, began, outcome)
        return answer

    def _record(self, name: str, answer: Completion | None, cost: float, began: float, outcome: str) -> None:
        """Keep a call for the log; one that failed is of quality 0."""
        self.asked.append(name)
        row = self._rows.setdefault(name, LogRow(self.id, 0.0, self._chat.text, name))
        row.cost += cost
        row.seconds += time.time() - began
        row.quality, row.answer, row.outcome = 0, None, outcome
        if answer is None:
            self._gateway.metrics.degraded.labels(f"{name}: {outcome}").inc()
        else:
            self._usage.update(answer.usage)
            row.quality, row.answer = "", self._gateway.parsed(answer.text)

    # -- the end -----------------------------------------------------------------------------------

    @property
    def is_answered(self) -> bool:
        """Whether the answer that is taken is whole."""
        return self.model in self._rows and self._rows[self.model].outcome == "answered"

    def _propensity(self, name: str) -> float:
        """Probability of asking a model; 1 for a pinned model, and for one instead of others that failed."""
        if name == self._pinned:
            return 1.0
        policy: float = self._session.propensity(name)
        if name in self._others:  # asked beyond the stop
            return policy + (1.0 - policy) * self._gateway.config.explore / len(self._others)
        return policy or 1.0

    def headers(self) -> dict[str, str]:
        """Models that were asked and their cost, which is not known before the answer is whole."""
        asked = self.asked if self.is_answered else [*self.asked, self.model]
        headers = {
            "x-request-id": self.id,
            "x-thrifty-models": ",".join(map(quote, asked)),
            "x-thrifty-model": quote(self.model),
            "x-thrifty-propensity": f"{self._propensity(self.model):.6g}",
        }
        skipped = [name for name, why in self.failures.items() if why == "capacity"]
        if skipped:
            headers["x-thrifty-at-capacity"] = ",".join(map(quote, skipped))
        if self.is_answered:
            headers |= {"x-thrifty-cost": f"{self.cost:.9g}", "x-thrifty-saved": f"{self._saved:.9g}"}
        return headers

    @property
    def _saved(self) -> float:
        """What the best single model would be expected to cost beyond the bill."""
        return float(self._session.expected_cost(self._router.best_model)) - self.cost

    def summary(self) -> dict[str, Any]:
        """Facts about the request in the last part of a stream."""
        return {
            "models": self.asked,
            "model": self.model,
            "cost": self.cost,
            "saved": self._saved,
            "propensity": self._propensity(self.model),
        }

    def response(
        self, kind: str, choices: list[dict[str, Any]], *, has_usage: bool = False
    ) -> dict[str, Any]:
        """A whole response, or a part of a stream, as OpenAI's protocol has it; with the tokens of all calls."""
        named = {"id": self.id, "object": kind, "created": self.created, "model": self.model}
        tokens = "prompt_tokens", "completion_tokens", "total_tokens"
        usage = {"usage": {name: self._usage[name] for name in tokens}} if has_usage else {}
        return {**named, "choices": choices, **usage}

    def end(self) -> None:
        """Count the request, and log its calls; an explored one goes on first."""
        gateway, metrics = self._gateway, self._gateway.metrics
        metrics.spend.inc(self.cost)
        if self.is_answered:
            metrics.n_rows += 1
            metrics.saved.inc(self._saved)
            metrics.rows.labels(self.model).inc()
            gateway.remember(self._chat, self.model)
            if not self._pinned and self._chances[0] < gateway.config.explore:
                self._others = [name for name in self._router.pool_ if name not in self._rows]
        else:
            metrics.saved.inc(-self.cost)
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
            await self._ask(self._others[int(self._chances[1] * len(self._others))], None)
        finally:
            self._gateway.metrics.spend.inc(self.cost - before)
            self._gateway.metrics.saved.inc(before - self.cost)
            self._log()

    def _log(self) -> None:
        if (log := self._gateway.log) is not None:
            for name, row in self._rows.items():
                row.time, row.propensity = round(time.time(), 3), self._propensity(name)
                row.taken = int(name == self.model and self.is_answered)
                log.add([astuple(row)])


async def _aside(text: str, work: Callable[[], Any]) -> Any:
    """Result of work on a text; other requests go on while a long one is read."""
    return await asyncio.to_thread(work) if len(text) > _LONG else work()


# -- responses -------------------------------------------------------------------------------------


class EventStream:
    """Server-sent events of one answer. Where a model breaks off, the answer of another one follows an empty line.

    Attributes
    ----------
    has_begun : bool
        Whether the client has got a part.
    """

    def __init__(self, call: ChatCall, send: Send) -> None:
        self._call, self._send, self.has_begun = call, send, False

    async def emit(self, text: str) -> None:
        """Send a part of the answer."""
        await self._part({"content": text})

    async def end(self, answer: Completion | str, *, has_usage: bool) -> None:
        """Send what is left of the answer, and the bill; or an error."""
        if isinstance(answer, str):
            await self._event(chat_error(answer, 503))
        else:
            if answer is not self._call.shown:
                if self.has_begun:
                    await self.emit("\n\n")
                await self._part(_delta(answer))
            await self._part({}, answer.finish_reason, thrifty=self._call.summary())
            if has_usage:
                await self._event(self._call.response("chat.completion.chunk", [], has_usage=True))
            await self._write(b"data: [DONE]\n\n")
        await self._write(b"", more_body=False)

    async def _part(self, delta: dict[str, Any], reason: str | None = None, **more: Any) -> None:
        if not self.has_begun:
            self.has_begun = True
            headers = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
            headers |= self._call.headers()
            raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
            await self._send({"type": "http.response.start", "status": 200, "headers": raw})
            await self._part({"role": "assistant", "content": ""})
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        await self._event({**self._call.response("chat.completion.chunk", [choice]), **more})

    async def _event(self, content: Any) -> None:
        await self._write(b"data: %b\n\n" % orjson.dumps(content))

    async def _write(self, body: bytes, *, more_body: bool = True) -> None:
        try:
            async with asyncio.timeout(_WRITE_TIMEOUT):
                await self._send({"type": "http.response.body", "body": body, "more_body": more_body})
        except TimeoutError:
            raise ClientDisconnect from None  # it is there, and reads nothing


async def _complete(
    gateway: ChatGateway,
    chat: ChatRequest,
    tenant: str,
    facts: dict[str, Any],
    scope: Scope,
    receive: Receive,
    send: Send,
) -> None:
    """Answer a conversation with one of many models."""
    call = ChatCall(gateway, chat, tenant)
    stream = EventStream(call, send) if chat.is_stream else None
    # Another answer can follow a text, but no half of a JSON.
    is_live = not {"tools", "response_format"} & set(chat.fields)
    answer: Completion | str
    try:
        async with _while_connected(receive):
            answer = await call.answer(stream if is_live else None)
    except Refusal as refusal:
        if stream is None or not stream.has_begun:
            raise
        answer = str(refusal)
    finally:
        facts |= {"models": call.asked, "cost": call.cost}
        call.end()
    if stream is not None:
        await stream.end(answer, has_usage=chat.has_usage)
    elif isinstance(answer, Completion):
        choice = {"index": 0, "message": answer.message, "finish_reason": answer.finish_reason}
        response = call.response("chat.completion", [choice], has_usage=True)
        await json_response(response, headers=call.headers())(scope, receive, send)


@asynccontextmanager
async def _while_connected(receive: Receive) -> AsyncIterator[None]:
    """Cancel the block when the client leaves."""
    task, has_left = asyncio.current_task(), False

    async def watch() -> None:
        nonlocal has_left
        while (await receive())["type"] != "http.disconnect":
            pass
        has_left = True
        if task is not None:
            task.cancel()

    watching = asyncio.create_task(watch())
    try:
        yield
    except asyncio.CancelledError:
        if has_left and task is not None and not task.uncancel():
            raise ClientDisconnect from None
        raise  # the gateway stops
    finally:
        watching.cancel()


def _delta(completion: Completion) -> dict[str, Any]:
    """A whole message as one part of a stream."""
    delta = {key: value for key, value in completion.message.items() if key != "role"}
    if "tool_calls" in delta:
        delta["tool_calls"] = [{"index": place, **call} for place, call in enumerate(delta["tool_calls"])]
    return delta


def chat_error(message: str, status: int) -> dict[str, Any]:
    """Shape of an error, as OpenAI's protocol has it."""
    kinds = {401: "authentication_error", 404: "model_not_found", 429: "insufficient_quota"}
    kind = kinds.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": kind}}


def chat_routes(gateway: ChatGateway) -> list[Route]:
    """The operations for clients."""

    async def chat(request: Request) -> Any:
        read = read_chat(await request.body(), gateway.settings.max_tokens)
        return partial(_complete, gateway, read, gateway.keys.tenant_of(request), facts_of(request))

    async def models(_: Request) -> Response:
        model = {"id": NAME, "object": "model", "created": int(gateway.metrics.started), "owned_by": NAME}
        return json_response({"object": "list", "data": [{**model, "models": gateway.model.routes}]})

    return [
        operation(gateway, "/v1/chat/completions", chat, method="POST", is_limited=True),
        operation(gateway, "/v1/models", models),
    ]
