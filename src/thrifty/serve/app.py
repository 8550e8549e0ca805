"""The gateway as two applications: one that answers questions, and one for those who look after it."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
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
from thrifty.errors import InvalidInputError
from thrifty.serve.admission import Operation, Refusal, Request, error_body
from thrifty.serve.answered import Answered
from thrifty.serve.answering import Model
from thrifty.serve.config import Config
from thrifty.serve.metrics import registry_of, status_of
from thrifty.serve.openapi import description_of
from thrifty.serve.protocol import datatype_of, infer_response, read_id, read_infer, read_json
from thrifty.serve.reload import Serving
from thrifty.serve.request_rows import RequestCells, RequestRows

__all__ = ["create_admin", "create_app", "direct"]

_NUMPY = orjson.OPT_SERIALIZE_NUMPY

_PAGE = Path(__file__).with_name("status.html")
"""One page without anything to build; it asks for the data that it shows once a second."""

_LONG = 2**16
"""Bytes of a request from which reading it takes longer than others should wait."""


def create_app(system: Any, config: Config | None = None, **how: Any) -> Starlette:
    """The application that answers questions; ``app.state.serving`` is what serves in it.

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
        routes=_Questions(serving).routes(),
        lifespan=_lifespan(serving),
        exception_handlers={HTTPException: _refused},
    )
    app.state.serving = serving
    return app


def create_admin(serving: Serving) -> Starlette:
    """The application for those who look after the gateway; it is served on this machine alone."""
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
        # A page of somebody else in a browser on this machine must not reach it by another name.
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
    """Lets only JSON through: a browser asks before it sends that from a page of somebody else, and is not answered."""

    def __init__(self, app: Operation) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        kind = dict(scope["headers"]).get(b"content-type", b"").split(b";")[0].strip()
        if kind != b"application/json":
            raise HTTPException(415, "send Content-Type: application/json.")
        await self._app(scope, receive, send)


class _Questions:
    """The operations of the gateway."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._config = serving.config

    def routes(self) -> list[Route]:
        """Addresses, the busiest first."""
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

    # -- questions -----------------------------------------------------------------------------------

    async def _infer(self, request: Request) -> bytes:
        model = self._model(request)
        length = request.headers.get(b"inference-header-content-length")
        asked = await self._read(
            model, request, lambda body: read_infer(body, length, model.rows, model.output_names)
        )
        cells = model.rows.with_request_id(asked.cells, asked.id or _header_id(request))
        answered = await self._answer(model, cells, request)
        return infer_response(answered, asked, self._config.name, model.version, _answer_type(model))

    async def _predict(self, request: Request) -> bytes:
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
    async def _read(model: Model, request: Request, read: Callable[[bytes], Any]) -> Any:
        """Read a request; a long one by a thread, so that short ones do not wait for it."""
        body = request.body
        return read(body) if len(body) <= _LONG else await model.in_thread(lambda: read(body))

    async def _answer(self, model: Model, cells: RequestCells, request: Request) -> Answered:
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

    def _model(self, request: Request) -> Model:
        model, version = self._serving.model, request.path.get("version")
        if version is not None and version != model.version:
            raise Refusal(
                404, f"there is no version {version[:60]!r} of the model; {model.version!r} is served."
            )
        return model

    async def _live(self, _: Request) -> bytes:
        return orjson.dumps({"live": True})

    async def _ready(self, _: Request) -> bytes:
        if not self._serving.is_ready:
            raise Refusal(503, "the gateway is not ready.", self._config.retry_after)
        return orjson.dumps({"ready": True})

    async def _model_ready(self, request: Request) -> bytes:
        self._model(request)
        return await self._ready(request)

    async def _server(self, _: Request) -> bytes:
        extensions = ["binary_tensor_data"]
        return orjson.dumps({"name": "thrifty", "version": thrifty.__version__, "extensions": extensions})

    async def _metadata(self, request: Request) -> bytes:
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

    async def _openapi(self, _: Request) -> bytes:
        return orjson.dumps(description_of(self._serving.model, self._config))


def _cells(body: bytes, rows: RequestRows, header_id: str | None) -> RequestCells:
    """Rows of a request of JSON objects."""
    said = read_json(body)
    if not {"rows"} <= set(said) <= {"rows", "id"}:
        raise InvalidInputError(
            'the body must be {"rows": [{"COLUMN": VALUE, ...}, ...], "id": OPTIONAL TEXT}.'
        )
    return rows.with_request_id(rows.from_records(said["rows"]), read_id(said.get("id")) or header_id)


def _header_id(request: Request) -> str | None:
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
    """Addresses and methods that there are not."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    words = str(error.detail) if isinstance(error, HTTPException) else "the gateway failed."
    words = {
        404: "there is nothing at this address; /openapi.json says what there is.",
        405: "this address takes another method; /openapi.json says which.",
    }.get(status, words)
    headers = error.headers if isinstance(error, HTTPException) else None
    return Response(error_body(words), status, headers=headers, media_type="application/json")
