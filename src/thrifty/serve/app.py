"""The gateway as two ASGI applications: predictions for clients, and administration for operators.

A request is admitted or refused, its key and body are checked, it is answered, counted and logged. ``/openapi.json``
describes every operation.
"""

import asyncio
import contextlib
import hmac
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request as StarletteRequest
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

import thrifty
from thrifty.errors import FullModelDownError, InvalidInputError, PurchaseFailedError
from thrifty.serve.answering import Model
from thrifty.serve.config import Config
from thrifty.serve.metrics import LOG, Load, Tally, registry_of, status_of
from thrifty.serve.protocol import (
    Answered,
    RequestCells,
    RequestRows,
    datatype_of,
    infer_response,
    read_id,
    read_infer,
    read_json,
)
from thrifty.serve.reload import Serving

__all__ = [
    "Operation",
    "Refusal",
    "Request",
    "create_admin",
    "create_app",
    "description_of",
    "direct",
    "error_body",
]

_NUMPY = orjson.OPT_SERIALIZE_NUMPY

_PAGE = Path(__file__).with_name("status.html")
"""The status page; it fetches what it shows once a second."""

_PARSE_IN_THREAD = 2**16
"""Bytes of a body above which it is parsed in a thread, so that other requests do not wait."""


def create_app(system: Any, config: Config | None = None, **how: Any) -> Starlette:
    """The application for clients; ``app.state.serving`` holds the model in force.

    Parameters
    ----------
    system : TableSystem, fitted estimator with names of columns, Chain or Loaded
        What answers.
    config : Config, optional
        Settings.
    **how
        As ``Serving`` takes it: ``load``, ``connect``, ``sources`` and ``hold``.
    """
    config = config or Config()
    serving = Serving(system, config, **how)
    app = Starlette(
        routes=_Handlers(serving).routes(),
        lifespan=_lifespan(serving),
        exception_handlers={HTTPException: _refused},
    )
    app.state.serving = serving
    return app


def create_admin(serving: Serving) -> Starlette:
    """The application for operators: metrics, status page, budget, reload; to be bound to 127.0.0.1."""
    registry = registry_of(serving.tally, serving)

    async def metrics(_: StarletteRequest) -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    shown = _PAGE.read_text(encoding="utf-8")

    async def page(_: StarletteRequest) -> Response:
        return HTMLResponse(shown)

    async def status(_: StarletteRequest) -> Response:
        return Response(orjson.dumps(status_of(serving), option=_NUMPY), media_type="application/json")

    async def budget(request: Request) -> bytes:
        said = read_json(request.body)
        if set(said) != {"budget"}:
            raise InvalidInputError('the body must be {"budget": NUMBER}, or null for the point of the file.')
        serving.change_budget(said["budget"])
        return orjson.dumps({"budget": serving.budget})

    async def reload(_: Request) -> bytes:
        return orjson.dumps({"version": await serving.reload()})

    def changing(name: str, run: Callable[[Request], Awaitable[bytes]]) -> Route:
        return Route(
            f"/{name}",
            _Json(Operation(name, run, serving.config, serving.tally, serving.load)),
            methods=["POST"],
        )

    return Starlette(
        routes=[
            Route("/", page),
            Route("/status.json", status),
            Route("/metrics", metrics),
            changing("budget", budget),
            changing("reload", reload),
        ],
        # Against DNS rebinding: a page in a browser on this machine must not reach it by another name.
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])],
        exception_handlers={HTTPException: _refused},
    )


def direct(app: Starlette) -> ASGIApp:
    """The application, with predictions looked up by their paths: Starlette's layers would add a tenth to each."""
    predictions = {
        route.path: route.endpoint
        for route in app.routes
        if isinstance(route, Route) and isinstance(route.endpoint, Operation)
        if route.endpoint.is_work and not route.param_convertors
    }

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        is_post = scope["type"] == "http" and scope["method"] == "POST"
        await (predictions.get(scope["path"], app) if is_post else app)(scope, receive, send)

    return dispatch


class _Json:
    """CSRF guard: JSON needs a preflight, which the gateway refuses."""

    def __init__(self, app: "Operation") -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        kind = dict(scope["headers"]).get(b"content-type", b"").split(b";")[0].strip()
        if kind != b"application/json":
            raise HTTPException(415, "send Content-Type: application/json.")
        await self._app(scope, receive, send)


class _Handlers:
    """The operations for clients."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._config = serving.config

    def routes(self) -> list[Route]:
        """Routes, the busiest first."""
        model = f"/v2/models/{self._config.name}"
        routes = []
        for at in (model, model + "/versions/{version}"):
            routes += [
                self._route(f"{at}/infer", "infer", self._infer, is_work=True),
                self._route(f"{at}/ready", "ready", self._model_ready, is_open=True),
                self._route(at, "metadata", self._metadata),
            ]
        return [
            routes[0],
            self._route("/predict", "predict", self._predict, is_work=True),
            *routes[1:],
            self._route("/v2/health/live", "live", self._live, is_open=True),
            self._route("/v2/health/ready", "ready", self._ready, is_open=True),
            self._route("/v2", "server", self._server),
            self._route("/openapi.json", "openapi", self._openapi),
        ]

    def _route(
        self, path: str, name: str, run: Any, *, is_work: bool = False, is_open: bool = False
    ) -> Route:
        serving, how = self._serving, {"is_work": is_work, "is_open": is_open}
        operation = Operation(name, run, self._config, serving.tally, serving.load, **how)
        return Route(path, operation, methods=["POST" if is_work else "GET"])

    # -- predictions ---------------------------------------------------------------------------------

    async def _infer(self, request: "Request") -> bytes:
        model = self._model(request)
        length = request.headers.get(b"inference-header-content-length")
        asked = await self._read(
            model, request, lambda body: read_infer(body, length, model.rows, model.output_names)
        )
        cells = model.rows.with_request_id(asked.cells, asked.id or _header_id(request))
        answered = await self._answer(model, cells, request)
        return infer_response(answered, asked, self._config.name, model.version, _answer_type(model))

    async def _predict(self, request: "Request") -> bytes:
        model = self._model(request)
        given = _header_id(request)
        cells = await self._read(model, request, lambda body: _cells(body, model.rows, given))
        answered = await self._answer(model, cells, request)
        columns = {"answer": answered.answer, "probability": answered.probability, "route": answered.route}
        columns |= {"cost": answered.cost, "degraded": answered.degraded}
        lists = {
            name: values.tolist() if hasattr(values, "tolist") else values
            for name, values in columns.items()
            if values is not None
        }
        rows = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
        return orjson.dumps(
            {"model_name": self._config.name, "model_version": model.version, "answers": rows}
        )

    @staticmethod
    async def _read(model: Model, request: "Request", read: Callable[[bytes], Any]) -> Any:
        """Read a request; a long one by a thread, so that short ones do not wait for it."""
        body = request.body
        return read(body) if len(body) <= _PARSE_IN_THREAD else await model.in_thread(lambda: read(body))

    async def _answer(self, model: Model, cells: RequestCells, request: "Request") -> Answered:
        began = time.perf_counter()
        request.facts |= {"version": model.version, "rows": len(cells)}
        answered = await model.answer(cells)
        self._serving.tally.answered(model, cells.numbers, answered, time.perf_counter() - began)
        if answered.n_sent:
            request.facts["sent"] = answered.n_sent
        if answered.reasons:
            request.facts["degraded"] = dict(answered.reasons)
        if self._config.explore:
            self._serving.in_background(self._explore(model, cells, answered))
        return answered

    async def _explore(self, model: Model, cells: RequestCells, answered: Answered) -> None:
        compared = await model.explore(cells, answered, self._config.explore)
        if compared is not None:
            self._serving.tally.explored["compared"] += compared[0]
            self._serving.tally.explored["agreed"] += compared[1]

    # -- what there is -------------------------------------------------------------------------------

    def _model(self, request: "Request") -> Model:
        model, version = self._serving.model, request.path.get("version")
        if version is not None and version != model.version:
            raise Refusal(
                404, f"there is no version {version[:60]!r} of the model; {model.version!r} is served."
            )
        return model

    async def _live(self, _: "Request") -> bytes:
        return orjson.dumps({"live": True})

    async def _ready(self, _: "Request") -> bytes:
        if not self._serving.is_ready:
            raise Refusal(503, "the gateway is not ready.", self._config.retry_after)
        return orjson.dumps({"ready": True})

    async def _model_ready(self, request: "Request") -> bytes:
        self._model(request)
        return await self._ready(request)

    async def _server(self, _: "Request") -> bytes:
        extensions = ["binary_tensor_data"]
        return orjson.dumps({"name": "thrifty", "version": thrifty.__version__, "extensions": extensions})

    async def _metadata(self, request: "Request") -> bytes:
        model = self._model(request)
        rows = model.rows
        if rows.is_numeric:
            inputs = [{"name": "X", "datatype": "FP64", "shape": [-1, len(rows.names)]}]
        else:
            inputs = [
                {"name": name, "datatype": "BYTES" if rows.is_text(name) else "FP64", "shape": [-1]}
                for name in rows.names
            ]
        types = {"answer": _answer_type(model), "route": "INT64", "degraded": "BOOL"}
        outputs = [
            {
                "name": name,
                "datatype": types.get(name, "FP64"),
                "shape": [-1, model.n_outputs] if name == "probabilities" else [-1],
            }
            for name in model.output_names
        ]
        classes = model.system.schema.classes.tolist()
        return orjson.dumps(
            {
                "name": self._config.name,
                "versions": [model.version],
                "platform": "thrifty",
                "inputs": inputs,
                "outputs": outputs,
                "parameters": {"columns": rows.names, "classes": classes, "stages": model.chain.n_stages}
                | ({"keys": rows.keys} if rows.keys else {}),
            }
        )

    async def _openapi(self, _: "Request") -> bytes:
        return orjson.dumps(description_of(self._serving.model, self._config))


def _cells(body: bytes, rows: RequestRows, header_id: str | None) -> RequestCells:
    """Rows of a request of JSON objects."""
    said = read_json(body)
    if not {"rows"} <= set(said) <= {"rows", "id"}:
        raise InvalidInputError(
            'the body must be {"rows": [{"COLUMN": VALUE, ...}, ...], "id": OPTIONAL TEXT}.'
        )
    return rows.with_request_id(rows.from_records(said["rows"]), read_id(said.get("id")) or header_id)


def _header_id(request: "Request") -> str | None:
    """The id that a client or a proxy gave a request in its header."""
    given = request.headers.get(b"x-request-id")
    return None if given is None else given.decode("latin-1")[:200]


def _answer_type(model: Model) -> str:
    return "FP64" if model.is_number else datatype_of(model.chain.classes.dtype.kind)


def _lifespan(serving: Serving) -> Callable[[Starlette], Any]:
    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await serving.start()
        try:
            yield
        finally:
            await serving.close()

    return lifespan


async def _refused(_: StarletteRequest, error: Exception) -> Response:
    """404 and 405 as JSON."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    words = str(error.detail) if isinstance(error, HTTPException) else "the gateway failed."
    words = {
        404: "there is nothing at this address; /openapi.json says what there is.",
        405: "this address takes another method; /openapi.json says which.",
    }.get(status, words)
    headers = error.headers if isinstance(error, HTTPException) else None
    return Response(error_body(words), status, headers=headers, media_type="application/json")


OVERLOADED = "there is too much to do. Ask again later."

_READ = {
    b"authorization",
    b"x-api-key",
    b"x-request-id",
    b"content-length",
    b"content-encoding",
    b"inference-header-content-length",
}


class Refusal(Exception):  # noqa: N818
    """A request that is not run: its status and the words of the answer."""

    def __init__(self, status: int, words: str, retry_after: int | None = None) -> None:
        super().__init__(words)
        self.status, self.retry_after = status, retry_after


class _ClientGoneError(Exception):
    """The client has closed the connection."""


class _OverloadedError(Exception):
    """One more request is too much."""


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
        Parts of the address that vary.
    facts : dict
        What the log says of it.
    """

    body: bytes
    headers: Mapping[bytes, bytes]
    path: Mapping[str, Any]
    facts: dict[str, Any] = field(default_factory=dict)


_NOT_COUNTED: Any = contextlib.nullcontext()


class Operation:
    """One operation of the gateway, as an ASGI application.

    Parameters
    ----------
    name : str
        What metrics and logs call it.
    run : callable
        From a request to the bytes of a JSON answer.
    config : Config
        Key and limits.
    tally : Tally
        Counts what happens.
    load : Load
        Requests under way.
    is_work : bool
        Whether the operation is refused while there is too much to do.
    is_open : bool
        Whether no key is needed.
    """

    def __init__(
        self,
        name: str,
        run: Callable[[Request], Awaitable[bytes]],
        config: Config,
        tally: Tally,
        load: Load,
        *,
        is_work: bool = False,
        is_open: bool = False,
    ) -> None:
        self.name, self.is_work = name, is_work
        self._load = load
        self._run, self._config, self._tally = run, config, tally
        self._key = None if is_open or config.api_key is None else config.api_key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        began = time.perf_counter()
        request = Request(b"", {}, scope.get("path_params", {}))
        status, retry_after = 200, None
        try:
            self._admit()  # before anything is read
            request.headers = {name: value for name, value in scope["headers"] if name in _READ}
            self._check_key(request.headers)
            request.body = await self._body(request.headers, receive)
            self._admit()  # there may be more to do than when its body began to come
            with self._load.in_flight if self.is_work else _NOT_COUNTED:
                answer = await self._run(request)
        except _ClientGoneError:
            return
        except _OverloadedError:  # no line in the log: refusals must stay cheap
            self._tally.requests[self.name, 503] += 1
            await _respond(send, 503, error_body(OVERLOADED), self._config.retry_after)
            return
        except Refusal as error:
            status, answer, retry_after = error.status, error_body(str(error)), error.retry_after
        except (FullModelDownError, PurchaseFailedError) as error:
            status, answer, retry_after = 503, error_body(str(error)), self._config.retry_after
        except InvalidInputError as error:
            status, answer = 400, error_body(str(error))
        except Exception as error:
            # The client is told that it is not its fault, and the log where it happened, without values.
            status, answer = 500, error_body("the gateway failed. Its log says where.")
            request.facts["failure"] = _where(error)
        self._tally.requests[self.name, status] += 1
        if self._config.log_requests and LOG.isEnabledFor(logging.INFO):
            facts = {"operation": self.name, "status": status, **request.facts}
            facts["ms"] = round(1e3 * (time.perf_counter() - began), 3)
            LOG.info("%s", orjson.dumps({"time": time.time(), **facts}).decode())
        await _respond(send, status, answer, retry_after)

    def _admit(self) -> None:
        """Refuse work that is too much."""
        excess = self._load.excess if self.is_work else None
        if excess is not None:
            self._tally.turned_away[excess] += 1
            raise _OverloadedError

    def _check_key(self, headers: Mapping[bytes, bytes]) -> None:
        if self._key is None:
            return
        given = headers.get(b"x-api-key") or headers.get(b"authorization", b"").removeprefix(b"Bearer ")
        if not hmac.compare_digest(given, self._key):
            raise Refusal(
                401, "a key is needed: send it as 'Authorization: Bearer KEY' or as 'X-API-Key: KEY'."
            )

    async def _body(self, headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
        most = self._config.max_body_bytes
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise Refusal(415, "the body must not be compressed. Leave out Content-Encoding.")
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 18 or int(length) > most:
            raise Refusal(413, f"the body must have at most {most:,} bytes. Send fewer rows at a time.")
        # ``asyncio.timeout`` would add several percent to every request: one loop cuts off all slow bodies.
        task, reading = asyncio.current_task(), self._load.reading
        reading[task] = asyncio.get_running_loop().time()
        try:
            return await self._pieces(receive, most)
        except asyncio.CancelledError:
            if task is None or task in reading:
                raise
            task.uncancel()
            raise Refusal(408, "the body took too long to come.") from None
        finally:
            reading.pop(task, None)

    async def _pieces(self, receive: Receive, most: int) -> bytes:
        """Read a body: nearly always one piece; how many come in several at once is bounded, and memory with it."""
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _ClientGoneError
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > most or not message.get("more_body"):
                return _capped(parts[0] if len(parts) == 1 else b"".join(parts), most)
            if len(parts) == 1 and len(self._load.reading) > self._config.max_in_flight:
                self._tally.turned_away["reading"] += 1
                raise _OverloadedError


def _capped(body: bytes, most: int) -> bytes:
    if len(body) > most:
        raise Refusal(413, f"the body must have at most {most:,} bytes. Send fewer rows at a time.")
    return body


def error_body(words: str) -> bytes:
    """The JSON of a refusal."""
    return orjson.dumps({"error": words})


async def _respond(send: Send, status: int, body: bytes, retry_after: int | None) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if retry_after is not None:
        headers.append((b"retry-after", str(retry_after).encode()))
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _where(error: BaseException) -> str:
    """The kind of an error and the line that raised it; its message may hold values."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    line = "" if trace is None else f" at {trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}"
    return f"{type(error).__name__}{line}"


_WORDS = {
    400: "The request breaks a rule; the error says which.",
    401: "The key is missing or wrong.",
    404: "There is no such version.",
    408: "The body took too long to come.",
    413: "The body or the number of rows is too large.",
    415: "The body is compressed.",
    503: "There is too much to do, or the gateway or the full model is not ready. Retry-After says when to ask again.",
}


def description_of(model: Model, config: Config) -> dict[str, Any]:
    """The description, with the columns and labels of the model that serves."""
    at = f"/v2/models/{config.name}"
    paths = {
        "/predict": _post(
            "predict", "Answer rows by the names of their columns.", _rows(model), _answers(model)
        ),
        f"{at}/infer": _post("infer", "Answer rows given as tensors.", _tensors(model), _OUTPUTS),
        f"{at}/versions/{{version}}/infer": _post(
            "inferVersion",
            "Answer rows given as tensors, by one version.",
            _tensors(model),
            _OUTPUTS,
            versioned=True,
        ),
        at: _get("metadata", "Inputs and outputs of the model."),
        f"{at}/versions/{{version}}": _get(
            "metadataVersion", "Inputs and outputs of one version.", versioned=True
        ),
        f"{at}/ready": _get("modelReady", "Whether the model answers.", is_open=True),
        f"{at}/versions/{{version}}/ready": _get(
            "versionReady", "Whether one version answers.", versioned=True, is_open=True
        ),
        "/v2/health/live": _get("live", "Whether the gateway runs.", is_open=True),
        "/v2/health/ready": _get("ready", "Whether the gateway answers.", is_open=True),
        "/v2": _get("server", "What the gateway is."),
        "/openapi.json": _get("openapi", "This description."),
    }
    schemes = {"bearer": {"type": "http", "scheme": "bearer"}} if config.api_key else {}
    return {
        "openapi": "3.1.0",
        "info": {"title": f"thrifty: {config.name}", "version": thrifty.__version__},
        "paths": paths,
        "components": {"securitySchemes": schemes},
        "security": [{"bearer": []}] if config.api_key else [],
    }


_ERROR = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
_OUTPUTS = {
    "type": "object",
    "required": ["model_name", "model_version", "outputs"],
    "properties": {
        "outputs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "datatype", "shape", "data"],
                "properties": {
                    "name": {"type": "string"},
                    "datatype": {"type": "string"},
                    "shape": {"type": "array", "items": {"type": "integer"}},
                    "data": {"type": "array"},
                },
            },
        }
    },
}


def _rows(model: Model) -> dict[str, Any]:
    columns = {name: {"type": [*model.rows.json_types(name), "null"]} for name in model.rows.names}
    columns = {key: {"type": ["string", "integer", "null"]} for key in model.rows.keys} | columns
    row = {"type": "object", "properties": columns, "additionalProperties": False}
    asked = _object({"rows": {"type": "array", "minItems": 1, "items": row}}, is_closed=True)
    asked["properties"]["id"] = {"type": "string", "maxLength": 200}
    return asked


def _answers(model: Model) -> dict[str, Any]:
    kind = (
        "number"
        if model.is_number
        else {"b": "boolean", "i": "integer", "u": "integer", "f": "number"}.get(
            model.chain.classes.dtype.kind, "string"
        )
    )
    one = {
        "answer": {"type": [kind, "null"]},
        "route": {"type": "integer", "minimum": -1, "maximum": model.chain.n_stages},
        "cost": {"type": "number", "minimum": 0},
        "degraded": {"type": "boolean"},
    }
    if not model.is_number:
        one["probability"] = {"type": ["number", "null"], "minimum": 0, "maximum": 1}
    return _object(
        {
            "model_name": {"type": "string"},
            "model_version": {"type": "string"},
            "answers": {"type": "array", "items": _object(one)},
        }
    )


def _tensors(model: Model) -> dict[str, Any]:
    tensor = _object(
        {
            "name": {
                "enum": [*(["X"] if model.rows.is_numeric else []), *model.rows.names, *model.rows.keys]
            },
            "datatype": {"enum": ["FP64", "FP32", "INT64", "INT32", "BOOL", "BYTES"]},
            "shape": {
                "type": "array",
                "items": {"type": "integer", "minimum": 1},
                "minItems": 1,
                "maxItems": 2,
            },
            "data": {"type": "array"},
        }
    )
    wanted = _object({"name": {"enum": list(model.output_names)}})
    whole = _object({"inputs": {"type": "array", "minItems": 1, "items": tensor}})
    whole["properties"] |= {
        "id": {"type": "string", "maxLength": 200},
        "outputs": {"type": "array", "items": wanted},
    }
    return whole


def _object(properties: dict[str, Any], *, is_closed: bool = False) -> dict[str, Any]:
    """An object all of whose properties must be there."""
    made: dict[str, Any] = {"type": "object", "required": list(properties), "properties": properties}
    return made | {"additionalProperties": False} if is_closed else made


def _post(
    name: str, summary: str, body: dict[str, Any], answer: dict[str, Any], *, versioned: bool = False
) -> dict[str, Any]:
    operation = _operation(name, summary, answer, [400, 401, 408, 413, 415, 503], versioned=versioned)
    operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return {"post": operation}


def _get(name: str, summary: str, *, versioned: bool = False, is_open: bool = False) -> dict[str, Any]:
    operation = _operation(name, summary, {"type": "object"}, [401, 413, 415, 503], versioned=versioned)
    return {"get": operation | ({"security": []} if is_open else {})}


def _operation(
    name: str, summary: str, answer: dict[str, Any], refusals: list[int], *, versioned: bool
) -> dict[str, Any]:
    refusals = [*refusals, 404] if versioned else refusals
    version = {"name": "version", "in": "path", "required": True, "schema": {"type": "string"}}
    return {
        "operationId": name,
        "summary": summary,
        "parameters": [version] if versioned else [],
        "responses": {
            "200": {"description": "The answer.", "content": {"application/json": {"schema": answer}}},
            **{
                str(status): {
                    "description": _WORDS[status],
                    "content": {"application/json": {"schema": _ERROR}},
                }
                for status in sorted(refusals)
            },
        },
    }
