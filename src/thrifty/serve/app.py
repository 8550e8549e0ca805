"""The gateway as two ASGI applications: routes for clients, and administration for operators.

``serve/admission.py`` admits or refuses requests; ``/openapi.json`` describes every operation.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request as StarletteRequest
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from thrifty._version import __version__
from thrifty.errors import InvalidInputError
from thrifty.learners.routing.router import ModelRouter
from thrifty.serve.admission import KEY_NEEDED, LARGE_BODY, Endpoint, Keys, Refusal, Request, error_body
from thrifty.serve.chat import ChatGateway, chat_routes
from thrifty.serve.config import Config
from thrifty.serve.gateway import Gateway, Loaded
from thrifty.serve.inference_protocol import (
    Answered,
    RequestCells,
    RequestRows,
    datatype_of,
    infer_response,
    read_id,
    read_infer,
    read_json,
)
from thrifty.serve.model import Model

__all__ = ["create_admin", "create_app", "direct"]

_NUMPY = orjson.OPT_SERIALIZE_NUMPY

_PAGE = Path(__file__).with_name("status.html")
"""The status page, which updates once a second."""


def create_app(system: Any, config: Config | None = None, **how: Any) -> Starlette:
    """The application for clients; ``app.state.gateway`` holds the model in force.

    Parameters
    ----------
    system : fitted estimator, Chain, ModelRouter or Loaded
        What answers; a router answers chat completions.
    config : Config, optional
        Settings.
    **how
        As ``Gateway`` takes it: ``load``, ``connect`` and ``sources``.
    """
    is_router = isinstance(system.system if isinstance(system, Loaded) else system, ModelRouter)
    gateway = (ChatGateway if is_router else Gateway)(system, config or Config(), **how)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await gateway.start()
        try:
            yield
        finally:
            await gateway.close()

    app = Starlette(
        routes=chat_routes(gateway) if isinstance(gateway, ChatGateway) else _Handlers(gateway).routes,
        lifespan=lifespan,
        exception_handlers={HTTPException: _refused},
    )
    app.state.gateway = gateway
    return app


def create_admin(control: Any, *, needs_keys: bool = True) -> Starlette:
    """The application for operators: metrics, status page, budget, reload.

    Parameters
    ----------
    control : Gateway or Workers
        What is administered.
    needs_keys : bool
        Whether keys of operators are needed, where there are any.
    """
    keys: Keys | None = control.keys if needs_keys else None

    def guarded(
        answer: Callable[[], Awaitable[Response]],
    ) -> Callable[[StarletteRequest], Awaitable[Response]]:
        async def answer_allowed(request: StarletteRequest) -> Response:
            if keys is not None and not keys.allow("metrics", dict(request.scope["headers"])):
                raise HTTPException(401, KEY_NEEDED, {"www-authenticate": "Bearer"})
            return await answer()

        return answer_allowed

    async def metrics() -> Response:
        return Response(await control.prometheus(), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    shown = _PAGE.read_text(encoding="utf-8")

    async def page(_: StarletteRequest) -> Response:
        return HTMLResponse(shown)

    async def status() -> Response:
        return Response(orjson.dumps(await control.status(), option=_NUMPY), media_type="application/json")

    async def budget(request: Request) -> bytes:
        change = read_json(request.body)
        if set(change) != {"budget"}:
            raise InvalidInputError('the body must be {"budget": NUMBER}, or null for the point of the file.')
        await control.change_budget(change["budget"])
        return orjson.dumps(change)

    async def reload(_: Request) -> bytes:
        return orjson.dumps({"version": await control.reload()})

    def post(name: str, run: Callable[[Request], Awaitable[bytes]]) -> Route:
        config = control.config
        endpoint = Endpoint(name, run, config, control.metrics, control.limiter, keys=keys, role="admin")
        return Route(f"/{name}", _JsonOnly(endpoint), methods=["POST"])

    # Against DNS rebinding: a page in a browser on this machine must not reach it by another name. Elsewhere
    # everything needs a key.
    is_local = control.config.admin_host in ("127.0.0.1", "::1", "localhost")
    hosts = ["127.0.0.1", "localhost", "[::1]"] if is_local else ["*"]
    return Starlette(
        routes=[
            Route("/", page),
            Route("/status.json", guarded(status)),
            Route("/metrics", guarded(metrics)),
            post("budget", budget),
            post("reload", reload),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=hosts)],
        exception_handlers={HTTPException: _refused},
    )


def direct(app: Starlette) -> ASGIApp:
    """The application, with predictions looked up by their paths: Starlette's layers would add a tenth to each."""
    predictions = {
        route.path: route.endpoint
        for route in app.routes
        if isinstance(route, Route) and isinstance(route.endpoint, Endpoint)
        if route.endpoint.is_limited and not route.param_convertors
    }

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        is_post = scope["type"] == "http" and scope["method"] == "POST"
        await (predictions.get(scope["path"], app) if is_post else app)(scope, receive, send)

    return dispatch


class _JsonOnly:
    """CSRF guard: JSON needs a preflight, which the gateway refuses."""

    def __init__(self, app: Endpoint) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = dict(scope["headers"]).get(b"content-type", b"").split(b";")[0].strip()
        if kind != b"application/json":
            raise HTTPException(415, "send Content-Type: application/json.")
        await self._app(scope, receive, send)


class _Handlers:
    """The operations for clients."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._config = gateway.config
        model = f"/v2/models/{self._config.name}"
        version = f"{model}/versions/{{version}}"
        self.routes = [  # the busiest first
            self._route(f"{model}/infer", self._infer, is_limited=True),
            self._route("/predict", self._predict, is_limited=True),
            self._route(f"{version}/infer", self._infer, is_limited=True),
            self._route(model, self._metadata),
            self._route(version, self._metadata),
            self._route(f"{model}/ready", self._model_ready, is_open=True),
            self._route(f"{version}/ready", self._model_ready, is_open=True),
            self._route("/v2/health/live", self._live, is_open=True),
            self._route("/v2/health/ready", self._ready, is_open=True),
            self._route("/v2", self._server),
            self._route("/openapi.json", self._openapi),
        ]

    def _route(self, path: str, run: Any, is_limited: bool = False, is_open: bool = False) -> Route:
        gateway, name = self._gateway, run.__name__.strip("_")
        keys = None if is_open else gateway.keys
        endpoint = Endpoint(
            name, run, self._config, gateway.metrics, gateway.limiter, is_limited=is_limited, keys=keys
        )
        return Route(path, endpoint, methods=["POST" if endpoint.is_limited else "GET"])

    # -- predictions ---------------------------------------------------------------------------------

    async def _infer(self, request: Request) -> bytes:
        """Answer rows given as tensors."""
        model = self._model(request)
        length = request.headers.get(b"inference-header-content-length")
        arguments = request.body, length, model.rows, model.output_names
        asked = await self._read(model, request, lambda: read_infer(*arguments))
        cells = model.rows.with_request_id(asked.cells, asked.id or _header_id(request))
        answered = await self._answer(model, cells, request)
        return infer_response(answered, asked, self._config.name, model.version, _answer_type(model))

    async def _predict(self, request: Request) -> bytes:
        """Answer rows by the names of their columns."""
        model = self._model(request)
        arguments = request.body, model.rows, _header_id(request)
        cells = await self._read(model, request, lambda: _cells(*arguments))
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

    async def _read(self, model: Model, request: Request, read: Callable[[], Any]) -> Any:
        """What a body holds; a large one is parsed in the thread of batches."""
        if len(request.body) <= LARGE_BODY:
            return read()
        with self._gateway.limiter.waiting:
            return await model.in_batch_thread(read)

    async def _answer(self, model: Model, cells: RequestCells, request: Request) -> Answered:
        began = time.perf_counter()
        request.facts |= {"version": model.version, "rows": len(cells)}
        if model.is_batch(cells) and len(request.body) <= LARGE_BODY:  # larger ones have a place in the queue
            request.batch.enter_context(self._gateway.limiter.batch(cells.numbers.nbytes))
        asks_full = b"thrifty-model" in request.headers
        answered = await model.answer(cells, request.batch, asks_full=asks_full)
        self._gateway.metrics.count(model, cells.numbers, answered, time.perf_counter() - began)
        if answered.n_sent:
            request.facts["sent"] = answered.n_sent
        if answered.reasons:
            request.facts["degraded"] = dict(answered.reasons)
        if self._config.explore:
            self._gateway.in_background(self._explore(model, cells, answered))
        return answered

    async def _explore(self, model: Model, cells: RequestCells, answered: Answered) -> None:
        compared = await model.explore(cells, answered, self._config.explore)
        for outcome, n in zip(("compared", "agreed"), compared or (), strict=False):
            self._gateway.metrics.explored[outcome] += n

    # -- what there is -------------------------------------------------------------------------------

    def _model(self, request: Request) -> Model:
        model, version = self._gateway.model, request.path.get("version")
        if version is not None and version != model.version:
            raise Refusal(
                404, f"there is no version {version[:60]!r} of the model; {model.version!r} is served."
            )
        exported = request.headers.get(b"thrifty-model")
        if exported is not None and exported.decode("latin-1") != model.identity:
            raise Refusal(
                409,
                f"the device runs the system {exported.decode('latin-1')[:60]!r}; {model.identity!r} is served. Export "
                f"this system anew, or serve the one that was exported.",
            )
        return model

    async def _live(self, _: Request) -> bytes:
        """Whether the gateway runs."""
        return orjson.dumps({"live": True})

    async def _ready(self, _: Request) -> bytes:
        """Whether the gateway answers."""
        if not self._gateway.is_ready:
            raise Refusal(503, "the gateway is not ready.", self._config.retry_after)
        return orjson.dumps({"ready": True})

    async def _model_ready(self, request: Request) -> bytes:
        """Whether the model answers."""
        self._model(request)
        return await self._ready(request)

    async def _server(self, _: Request) -> bytes:
        """Name and version of the gateway."""
        extensions = ["binary_tensor_data"]
        return orjson.dumps({"name": "thrifty", "version": __version__, "extensions": extensions})

    async def _metadata(self, request: Request) -> bytes:
        """Inputs and outputs of the model."""
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
        classes = model.chain.classes.tolist()
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

    async def _openapi(self, _: Request) -> bytes:
        """Description of all operations."""
        return orjson.dumps(_description(self._gateway, self.routes))


def _cells(body: bytes, rows: RequestRows, header_id: str | None) -> RequestCells:
    """Rows of a request of JSON objects."""
    request = read_json(body)
    if not {"rows"} <= set(request) <= {"rows", "id"}:
        raise InvalidInputError(
            'the body must be {"rows": [{"COLUMN": VALUE, ...}, ...], "id": OPTIONAL TEXT}.'
        )
    return rows.with_request_id(rows.from_records(request["rows"]), read_id(request.get("id")) or header_id)


def _header_id(request: Request) -> str | None:
    """The id that a client or a proxy gave a request in its header."""
    given = request.headers.get(b"x-request-id")
    return None if given is None else given.decode("latin-1")[:200]


def _answer_type(model: Model) -> str:
    return "FP64" if model.is_number else datatype_of(model.chain.classes.dtype.kind)


async def _refused(_: StarletteRequest, error: Exception) -> Response:
    """404 and 405 as JSON."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    message = str(error.detail) if isinstance(error, HTTPException) else "the gateway failed."
    message = {
        404: "there is nothing at this address.",
        405: "this address takes another method.",
    }.get(status, message)
    headers = error.headers if isinstance(error, HTTPException) else None
    return Response(error_body(message), status, headers=headers, media_type="application/json")


# -- OpenAPI ---------------------------------------------------------------------------------------

_ERROR = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}


def _description(gateway: Gateway, routes: list[Route]) -> dict[str, Any]:
    """The OpenAPI description of some routes, with the columns and labels of the model that serves."""
    model, needs_key = gateway.model, gateway.keys.are_needed("clients")
    schemas = {"predict": (_rows(model), _answers(model)), "infer": (_tensors(model), _OUTPUTS)}
    paths: dict[str, Any] = {}
    for route in routes:
        endpoint: Endpoint = route.endpoint  # type: ignore[assignment]  # Starlette knows callables only
        body, answer = schemas.get(endpoint.name, (None, {"type": "object"}))
        operation: dict[str, Any] = {
            "operationId": endpoint.name + ("_version" if route.param_convertors else ""),
            "summary": endpoint.summary,
            "responses": {
                "200": {"description": "The answer.", **_json(answer)},
                "default": {"description": "A refusal; `error` says why, and what to do.", **_json(_ERROR)},
            },
        }
        if route.param_convertors:
            version = {"name": "version", "in": "path", "required": True, "schema": {"type": "string"}}
            operation["parameters"] = [version]
        if body is not None:
            operation["requestBody"] = {"required": True, **_json(body)}
        if endpoint.keys is None:
            operation["security"] = []
        paths[route.path] = {"post" if body is not None else "get": operation}
    return {
        "openapi": "3.1.0",
        "info": {"title": f"thrifty: {gateway.config.name}", "version": __version__},
        "paths": paths,
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}} if needs_key else {}
        },
        "security": [{"bearer": []}] if needs_key else [],
    }


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}


def _object(**properties: Any) -> dict[str, Any]:
    """An object all of whose properties must be there."""
    return {"type": "object", "required": list(properties), "properties": properties}


def _list(items: dict[str, Any], **limits: int) -> dict[str, Any]:
    return {"type": "array", "items": items, **limits}


_TEXT, _ID = {"type": "string"}, {"type": "string", "maxLength": 200}
_OUTPUTS = _object(
    model_name=_TEXT,
    model_version=_TEXT,
    outputs=_list(
        _object(name=_TEXT, datatype=_TEXT, shape=_list({"type": "integer"}), data={"type": "array"})
    ),
)


def _rows(model: Model) -> dict[str, Any]:
    columns = {key: {"type": ["string", "integer", "null"]} for key in model.rows.keys}
    columns |= {name: {"type": [*model.rows.json_types(name), "null"]} for name in model.rows.names}
    row = {"type": "object", "properties": columns, "additionalProperties": False}
    body = _object(rows=_list(row, minItems=1)) | {"additionalProperties": False}
    body["properties"]["id"] = _ID
    return body


def _answers(model: Model) -> dict[str, Any]:
    kinds = {"b": "boolean", "i": "integer", "u": "integer", "f": "number"}
    kind = "number" if model.is_number else kinds.get(model.chain.classes.dtype.kind, "string")
    answer = _object(
        answer={"type": [kind, "null"]},
        route={"type": "integer", "minimum": -1, "maximum": model.chain.n_stages},
        cost={"type": "number", "minimum": 0},
        degraded={"type": "boolean"},
    )
    if not model.is_number:
        answer["properties"]["probability"] = {"type": ["number", "null"], "minimum": 0, "maximum": 1}
    return _object(model_name=_TEXT, model_version=_TEXT, answers=_list(answer))


def _tensors(model: Model) -> dict[str, Any]:
    names = [*(["X"] if model.rows.is_numeric else []), *model.rows.names, *model.rows.keys]
    tensor = _object(
        name={"enum": names},
        datatype={"enum": ["FP64", "FP32", "INT64", "INT32", "BOOL", "BYTES"]},
        shape=_list({"type": "integer", "minimum": 1}, minItems=1, maxItems=2),
        data={"type": "array"},
    )
    body = _object(inputs=_list(tensor, minItems=1))
    body["properties"] |= {"id": _ID, "outputs": _list(_object(name={"enum": list(model.output_names)}))}
    return body
