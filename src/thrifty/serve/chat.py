"""Chat completions in front of many models: a ``ModelRouter`` behind OpenAI's protocol.

A request asks models as the policy decides, each call within the ceilings of the request and of the day, until one
answer is taken. A model that fails is passed over, and the policy goes on without it; where all fail, they are asked
again until the deadline. Later turns of a conversation go to the model that answered the first one.
"""

import asyncio
import csv
import io
import os
import random
import re
import time
import uuid
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import orjson
from starlette.routing import Route

from thrifty.engine.purchases.http import http_session
from thrifty.errors import InvalidInputError, RemoteFailure
from thrifty.learners.routing.router import ModelRouter
from thrifty.serve.admission import Endpoint, Refusal, Reply, Request
from thrifty.serve.config import Config, closest
from thrifty.serve.gateway import Gateway, Loaded
from thrifty.serve.inference_protocol import read_json
from thrifty.serve.language_models import REFUSALS, UNTRIED, Bill, Completion, DayLedger, LanguageModel

NAME = "thrifty"
"""Name of the router in requests; ``thrifty:budget=0.001`` is the same router at another mean cost."""

_PASSED = {
    *("temperature", "top_p", "stop", "seed", "presence_penalty", "frequency_penalty", "logit_bias", "user"),
    *("tools", "tool_choice", "parallel_tool_calls", "response_format", "reasoning_effort", "verbosity"),
}
"""Fields that are handed on to models; none of them makes an answer cost more than its limit of tokens."""

_READ = {"model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n"}
_ROLES = ("system", "developer", "user", "assistant", "tool")

_MAX_CONVERSATIONS = 100_000
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
"""Seconds before all models are asked again, the first and the longest."""

_COLUMNS = [
    "id",
    "time",
    "text",
    "model",
    "quality",
    "cost",
    "answer",
    "propensity",
    "taken",
    "seconds",
    "outcome",
]


@dataclass
class ChatRequest:
    """A request for a completion, checked.

    Attributes
    ----------
    fields : dict
        What is handed on to models.
    text : str
        The last message of the user, which the router reads.
    budget : float, optional
        Mean cost that the request asks for.
    conversation : bytes
        Hash of the messages up to the first one of the user.
    is_first : bool
        Whether the conversation begins with this request.
    n_bytes : int
        Upper bound of the tokens of the prompt.
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
        """Whether parts of an answer may be passed on: another answer can follow a text, but no half of a JSON."""
        return self.is_stream and not {"tools", "response_format"} & set(self.fields)


def read_chat(body: bytes, max_tokens: int) -> ChatRequest:
    """Read a request; ``max_tokens`` is the limit of an answer where it names none."""
    given = read_json(body)
    unknown = sorted(set(given) - _PASSED - _READ)
    if unknown:
        raise InvalidInputError(
            f"{unknown[0][:60]!r} is not supported.{closest(unknown[0], _PASSED | _READ)}"
        )
    name, _, budget = str(given.get("model")).partition(":budget=")
    try:
        amount = float(budget) if budget else None
    except ValueError:
        amount = float("nan")
    if name != NAME or not (amount is None or 0.0 < amount < float("inf")):
        raise Refusal(
            404, f"model must be {NAME!r} or '{NAME}:budget=NUMBER'; got {str(given.get('model'))[:60]!r}."
        )
    messages = given.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(one, dict) for one in messages):
        raise InvalidInputError("messages must be a list of at least one object with role and content.")
    texts = [_text_of(message) for message in messages]
    users = [place for place, message in enumerate(messages) if message["role"] == "user"]
    if not users:
        raise InvalidInputError('messages must have at least one of the role "user".')
    limits = [given[one] for one in ("max_completion_tokens", "max_tokens") if given.get(one) is not None]
    limit = limits[0] if limits else max_tokens
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= 10**7:
        raise InvalidInputError(f"max_tokens must be a whole number >= 1; got {limit!r}.")
    if given.get("n") not in (None, 1):
        raise InvalidInputError(f"n must be 1; got {given['n']!r}.")
    options = given.get("stream_options") or {}
    if not isinstance(given.get("stream", False), bool | None) or not isinstance(options, dict):
        raise InvalidInputError("stream must be true or false, and stream_options an object.")
    fields = {"messages": messages, **{name: given[name] for name in _PASSED if given.get(name) is not None}}
    return ChatRequest(
        fields,
        texts[users[-1]],
        amount,
        blake2b(orjson.dumps(messages[: users[0] + 1]), digest_size=16).digest(),
        not any(message["role"] == "assistant" for message in messages),
        limit,
        len(orjson.dumps(fields)),
        bool(given.get("stream")),
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
            one.get("text") if isinstance(one, dict) and one.get("type") == "text" else None
            for one in content
        ]
        if all(isinstance(part, str) for part in parts):
            return "\n".join(map(str, parts))
    raise InvalidInputError(f"content of a message of the role {role!r} must be text, or a list of texts.")


class ChatGateway(Gateway):
    """A router in front of language models; parameters as of ``Gateway``.

    Attributes
    ----------
    model : SimpleNamespace
        The router in force, its version, and what metrics ask of a model.
    models : dict of str to LanguageModel
        Models of the router, by name.
    ledger : DayLedger
        What this day has cost.
    """

    model: Any

    def __init__(self, system: Any, config: Config, **how: Any) -> None:
        if config.workers > 1:
            raise InvalidInputError(
                f"a router is served by one process, which keeps its ledger and its conversations; got workers = "
                f"{config.workers}. Leave --workers out."
            )
        self.settings = settings = config.chat_settings
        self.models: dict[str, LanguageModel] = {}
        self.session: Any = None
        self._conversations: OrderedDict[bytes, str] = OrderedDict()
        self._pattern = None if settings.answer_pattern is None else re.compile(settings.answer_pattern)
        super().__init__(system, config, **how)
        self.ledger = DayLedger(
            settings.max_cost_per_day, None if settings.ledger is None else Path(settings.ledger)
        )
        self._log = None if settings.log is None else _open_log(Path(settings.log))

    def _model_of(self, given: Any) -> Any:
        """The router in force, with what metrics ask of a model."""
        loaded = given if isinstance(given, Loaded) else Loaded(given, "1")
        router, tables = loaded.system, self.config.model_settings
        if not isinstance(router, ModelRouter) or not router.reads_texts:
            raise InvalidInputError(
                "chat completions need a router that was fitted on texts. Fit it on a log with a column text."
            )
        prices = router.model_prices
        for name in tables:
            if name not in prices:
                raise InvalidInputError(
                    f"[models.{name}] is no model of the router.{closest(name, list(prices))}"
                )
        lacking = [name for name in router.pool_ if name not in tables]
        if lacking:
            raise InvalidInputError(
                f"the router asks {', '.join(router.pool_)}; [models.{lacking[0]}] must say where {lacking[0]!r} is: "
                f'url = "https://HOST/v1", key_env = "NAME_OF_A_VARIABLE".'
            )
        for name in router.pool_:
            if name not in self.models:
                self.models[name] = LanguageModel(name, tables[name], prices[name])
        budget = self._budget
        model = SimpleNamespace(
            router=router if budget is None else router.at(budget=budget),
            at=lru_cache(64)(lambda budget: router.at(budget=budget)),
            version=loaded.version,
            best=router.best_model,
            cost_of_full=router.model_costs[router.best_model],
            route_name=str,
            rows=SimpleNamespace(names=()),
            chain=SimpleNamespace(n_stages=0),
            **dict.fromkeys(("drift", "providers", "remote", "controller")),
        )
        model.router.start("warm up")
        return model

    async def _take_over_remote(self, model: Any, old: Any) -> None:
        """Models keep their connections."""

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
        router = self.model.at(budget=budget)
        self.model.router, self._budget = router, budget

    async def status(self) -> dict[str, Any]:
        """Contents of the status page."""
        found = await super().status()
        routes = [{"route": name, "rows": self.metrics.routes[name]} for name in self.models]  # type: ignore[index]  # by names here
        return found | {"routes": routes, "today": self.ledger.today}

    def sticky(self, chat: ChatRequest) -> str | None:
        """Model that answered the conversation before."""
        name = None if chat.is_first else self._conversations.get(chat.conversation)
        return name if name in self.models else None

    def remember(self, chat: ChatRequest, name: str) -> None:
        """Keep the model that has answered a conversation."""
        self._conversations[chat.conversation] = name
        self._conversations.move_to_end(chat.conversation)
        if len(self._conversations) > _MAX_CONVERSATIONS:
            self._conversations.popitem(last=False)

    def parsed(self, text: str) -> str | None:
        """The answer in a text, as answers are compared."""
        if self._pattern is None:
            return text
        found = list(self._pattern.finditer(text))
        return found[-1].group(1 if self._pattern.groups else 0) if found else None

    @property
    def has_log(self) -> bool:
        """Whether calls are logged."""
        return self._log is not None

    def log(self, row: Mapping[str, Any]) -> None:
        """Add one call to the log, in one write, so that a process that is killed leaves no half of a line."""
        if self._log is not None:
            line = io.StringIO()
            csv.DictWriter(line, _COLUMNS).writerow(row)
            os.write(self._log, line.getvalue().encode("utf-8", "surrogatepass"))


def _open_log(path: Path) -> int:
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise InvalidInputError(f"the log {path} must be a file that can be written: {error}.") from error
    if os.fstat(file).st_size == 0:
        os.write(file, (",".join(_COLUMNS) + "\r\n").encode())
    return file


# -- one request -----------------------------------------------------------------------------------


class _Turn:
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
        self._gateway, self._chat, self.id = gateway, chat, f"chatcmpl-{uuid.uuid4().hex}"
        model = gateway.model
        self._router: ModelRouter = model.router if chat.budget is None else model.at(chat.budget)
        self._session = self._router.start(chat.text)
        self._best_cost: float = self._session.expected_cost(model.best)
        self._sticky = gateway.sticky(chat)
        self._explore = 0.0 if self._sticky else gateway.config.explore
        self._first = self._sticky
        if random.random() < self._explore:
            self._first = random.choice(self._router.pool_)
        self.asked: list[str] = []
        self.cost, self.model = 0.0, ""
        self.failures: dict[str, str] = {}
        self._usage: Counter[str] = Counter()
        self._rows: dict[str, dict[str, Any]] = {}

    async def answer(self, *, live: bool) -> "Completion | AsyncGenerator[str | Completion, None]":
        """The answer that is taken; with ``live``, the parts of one that will be, once the first has come."""
        loop, gateway = asyncio.get_running_loop(), self._gateway
        ends, pause = loop.time() + gateway.settings.deadline, _FIRST_PAUSE
        while (found := await self._attempt(live)) is None:
            self._refuse_if_hopeless()
            if loop.time() + pause > ends:
                status = 429 if set(self.failures.values()) == {"ceiling"} else 503
                raise Refusal(status, f"no model answers: {self._why()}.", gateway.config.retry_after)
            with gateway.limiter.waiting:
                await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            self._session, self.failures = self._router.start(self._chat.text), {}
        return found

    async def _attempt(self, live: bool) -> "Completion | AsyncGenerator[str | Completion, None] | None":
        """Ask the model of the conversation, then as the policy decides; None where all models fail."""
        session, given = self._session, {}  # type: Any, dict[str, Completion]
        if self._first is not None:
            self.model, self._first = self._first, None
            if (found := await self._ask(self.model, live)) is not None:
                return found
        while (wanted := session.next_purchase) is not None:
            name, before = wanted.name, self.cost
            found = None if name in self.failures else await self._ask(name, live and session.takes_next)
            if found is None:
                session.fail(self.cost - before)
            elif isinstance(found, Completion):
                given[name] = found
                session.give(self._gateway.parsed(found.text), cost=self.cost - before)
            else:
                self.model = name
                return found
        self.model = session.model or ""
        return given.get(self.model)

    def _refuse_if_hopeless(self) -> None:
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
        model, session, chat, began = (
            self._gateway.models[name],
            self._gateway.session,
            self._chat,
            time.time(),
        )
        before, failure = self.cost, None  # type: float, RemoteFailure | None
        found = Completion({})
        try:
            with self._paid(name) as bill, self._gateway.limiter.waiting:
                if live:
                    async with aclosing(model.stream(session, chat.fields, chat.max_tokens, bill)) as parts:
                        async for part in parts:
                            found = part if isinstance(part, Completion) else found
                            yield part
                else:
                    yield (found := await model.ask(session, chat.fields, chat.max_tokens, bill))
        except BaseException as error:
            failure = (
                error if isinstance(error, RemoteFailure) else RemoteFailure("gone", "the client has gone")
            )
            self.failures[name] = failure.reason
            raise
        finally:
            if failure is None or failure.reason not in UNTRIED:
                self._note(name, found, self.cost - before, began, failure)

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

    def _note(
        self, name: str, found: Completion, cost: float, began: float, failure: RemoteFailure | None
    ) -> None:
        """Remember a call for the log; one that failed is of quality 0."""
        self.asked.append(name)
        self._usage.update(found.usage)
        before = self._rows.get(name, {"cost": 0.0, "seconds": 0.0})
        self._rows[name] = {
            "quality": "" if failure is None else 0,
            "cost": before["cost"] + cost,
            "answer": self._gateway.parsed(found.text) if failure is None else None,
            "seconds": before["seconds"] + time.time() - began,
            "outcome": "answered" if failure is None else failure.reason,
        }
        if failure is not None:
            self._gateway.metrics.degraded[f"{name}: {failure.reason}"] += 1

    # -- the end -----------------------------------------------------------------------------------

    def _propensity(self, name: str) -> float:
        """Probability of asking a model; 1 for the model of a conversation, and for one in the place of others."""
        if name == self._sticky:
            return 1.0
        policy: float = (1.0 - self._explore) * self._session.propensity(name)
        return policy + self._explore / len(self._router.pool_) or 1.0

    def headers(self, *, is_over: bool = True) -> dict[str, str]:
        """What was asked and paid; what is paid in the end is not known before the end."""
        found = {
            "x-request-id": self.id,
            "x-thrifty-models": ",".join(map(quote, self.asked if is_over else [*self.asked, self.model])),
            "x-thrifty-model": quote(self.model),
            "x-thrifty-propensity": f"{self._propensity(self.model):.6g}",
        }
        if is_over:
            found |= {"x-thrifty-cost": f"{self.cost:.9g}", "x-thrifty-saved": f"{self._saved:.9g}"}
        return found

    @property
    def _saved(self) -> float:
        return self._best_cost - self.cost

    def summary(self) -> dict[str, Any]:
        """What the last part of a stream says of it."""
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
        """Count the request, and log its calls."""
        metrics, gateway = self._gateway.metrics, self._gateway
        metrics.spend += self.cost
        if self.model:
            metrics.rows += 1
            metrics.saved += self._saved
            metrics.routes[self.model] += 1  # type: ignore[index]  # by names here
            gateway.remember(self._chat, self.model)
        for name, row in self._rows.items() if gateway.has_log else ():
            known = {"id": self.id, "time": round(time.time(), 3), "text": self._chat.text, "model": name}
            known |= {"propensity": self._propensity(name), "taken": int(name == self.model)}
            gateway.log({**known, **row})


async def _chained(first: Any, parts: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
    """All parts again, of which the first was taken."""
    async with aclosing(parts):
        yield first
        async for part in parts:
            yield part


# -- responses -------------------------------------------------------------------------------------


async def complete(gateway: ChatGateway, request: Request) -> Reply:
    """Answer a conversation with one of many models."""
    chat = read_chat(request.body, gateway.settings.max_tokens)
    turn = _Turn(gateway, chat)
    found: Any = None
    try:
        found = await turn.answer(live=chat.may_stream_live)
        if not chat.is_stream:
            choice = {"index": 0, "message": found.message, "finish_reason": found.finish_reason}
            body = {
                "id": turn.id,
                "object": "chat.completion",
                "created": int(time.time()),
                "model": turn.model,
            }
            return Reply(orjson.dumps({**body, "choices": [choice], "usage": turn.usage}), turn.headers())
        return Reply(_events(turn, chat, found), turn.headers(is_over=isinstance(found, Completion)))
    finally:
        request.facts |= {"models": turn.asked, "cost": turn.cost}
        if found is None or not chat.is_stream:
            turn.end()


async def _events(turn: _Turn, chat: ChatRequest, found: Any) -> AsyncGenerator[bytes, None]:
    """Server-sent events of an answer. Where a model breaks off, the answer of another one follows an empty line."""
    head = {
        "id": turn.id,
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": turn.model,
    }

    def event(delta: Any, reason: str | None = None, **more: Any) -> bytes:
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": reason}]
        return b"data: %b\n\n" % orjson.dumps({**head, "choices": choices, **more})

    try:
        yield event({"role": "assistant", "content": ""})
        if not isinstance(found, Completion):
            try:
                async with aclosing(found) as parts:
                    async for part in parts:
                        if isinstance(part, str):
                            yield event({"content": part})
                        else:
                            found = part
            except RemoteFailure:
                found = await turn.answer(live=False)
                head["model"] = turn.model
                yield event({"content": "\n\n"})
                yield event(_delta(found))
        else:
            yield event(_delta(found))
        yield event({}, found.finish_reason, thrifty=turn.summary())
        if chat.has_usage:
            yield event(None, usage=turn.usage)
        yield b"data: [DONE]\n\n"
    except Refusal as error:
        yield b"data: %b\n\n" % _error(str(error), error.status)
    finally:
        turn.end()


def _delta(found: Completion) -> dict[str, Any]:
    """A whole message as one part of a stream."""
    delta = {key: value for key, value in found.message.items() if key != "role"}
    if isinstance(delta.get("tool_calls"), list):
        delta["tool_calls"] = [{"index": place, **one} for place, one in enumerate(delta["tool_calls"])]
    return delta


def _error(message: str, status: int) -> bytes:
    kinds = {401: "authentication_error", 404: "model_not_found", 429: "insufficient_quota"}
    kind = kinds.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return orjson.dumps({"error": {"message": message, "type": kind, "param": None, "code": kind}})


class _ChatEndpoint(Endpoint):
    def error_body(self, message: str, status: int) -> bytes:
        return _error(message, status)


def chat_routes(gateway: ChatGateway) -> list[Route]:
    """The operations for clients."""

    async def chat(request: Request) -> Reply:
        """Complete a conversation with one of many models."""
        return await complete(gateway, request)

    async def models(_: Request) -> bytes:
        """Names for requests."""
        model = {"id": NAME, "object": "model", "created": int(gateway.metrics.started), "owned_by": NAME}
        return orjson.dumps({"object": "list", "data": [{**model, "models": gateway.model.router.pool_}]})

    async def live(_: Request) -> bytes:
        """Whether the gateway runs."""
        return orjson.dumps({"live": True})

    async def ready(_: Request) -> bytes:
        """Whether the gateway answers."""
        if not gateway.is_ready:
            raise Refusal(503, "the gateway is not ready.", gateway.config.retry_after)
        return orjson.dumps({"ready": True})

    def route(path: str, run: Any, is_limited: bool = False, is_open: bool = False) -> Route:
        given = gateway.config, gateway.metrics, gateway.limiter
        keys = None if is_open else gateway.keys
        endpoint = _ChatEndpoint(run.__name__, run, *given, is_limited=is_limited, keys=keys)
        return Route(path, endpoint, methods=["POST" if is_limited else "GET"])

    return [
        route("/v1/chat/completions", chat, is_limited=True),
        route("/v1/models", models),
        route("/v2/health/live", live, is_open=True),
        route("/v2/health/ready", ready, is_open=True),
    ]
