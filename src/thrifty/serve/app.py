"""The gateway as two ASGI applications: routes for clients, and administration for operators.

``middleware`` has the layers of every request; ``/openapi.json`` describes every operation of a model.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from thrifty._version import __version__
from thrifty.errors import InvalidInputError
from thrifty.learners.routing.router import ModelRouter
from thrifty.serve.chat import ChatGateway, chat_error, chat_routes
from thrifty.serve.config import LOOPBACK, Config
from thrifty.serve.gateway import Gateway, Loaded
from thrifty.serve.inference_protocol import (
    OUTPUTS,
    Answered,
    InferRequest,
    RequestRows,
    infer_response,
    read_id,
    read_infer,
    read_json,
)
from thrifty.serve.middleware import (
    Errors,
    Refusal,
    RequestLog,
    facts_of,
    json_response,
    operation,
    plain_error,
)
from thrifty.serve.model import BATCH_BYTES, BATCH_ROWS, Model
from thrifty.serve.model_cascade import ServedCascade

_PAGE, _OPENAPI = Path(__file__).with_name("status.html"), Path(__file__).with_name("openapi.json")
"""The status page, and the description of all operations."""

MAX_LONG_BODIES = 8
"""Long bodies that are held parsed at a time: each takes some MiB, and one thread answers them. See ``python
benchmarks/serve.py batches``."""

_UNLIMITED: AbstractAsyncContextManager[None] = nullcontext()


def create_app(system: Any, config: Config | None = None, **how: Any) -> Starlette:
    """The application for clients; ``app.state.gateway`` holds the model in force.

    Parameters
    ----------
    system : fitted estimator, Chain, CascadeClassifier, CascadeRegressor, ModelRouter or Loaded
        What answers; a router answers chat completions.
    config : Config, optional
        Settings.
    **how
        As ``Gateway`` takes it: ``load``, ``remote`` and ``sources``.
    """
    config = config or Config()
    is_router = isinstance(system.system if isinstance(system, Loaded) else system, ModelRouter)
    gateway: Any = (ChatGateway if is_router else Gateway)(system, config, **how)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await gateway.start()
        try:
            yield
        finally:
            await gateway.close()

    routes = chat_routes(gateway) if is_router else _Predictions(gateway).routes
    errors = Errors(config.retry_after, chat_error if is_router else plain_error)
    app = _application([*routes, *_health(gateway)], gateway, errors, lifespan=lifespan)
    app.state.gateway = gateway
    return app


def _application(
    routes: list[Route], control: Any, errors: Errors, *layers: Middleware, lifespan: Any = None
) -> Starlette:
    log = Middleware(RequestLog, metrics=control.metrics, errors=errors, writes=control.config.log_requests)
    return Starlette(
        routes=routes,
        middleware=[log, *layers],
        exception_handlers={HTTPException: errors},  # others are answered by the log
        lifespan=lifespan,
    )


def _health(gateway: Any) -> list[Route]:
    """Health checks, which need no key."""

    async def live(_: Request) -> Response:
        return json_response({"live": True})

    async def ready(_: Request) -> Response:
        return _ready(gateway)

    return [
        operation(gateway, "/v2/health/live", live, role=None),
        operation(gateway, "/v2/health/ready", ready, role=None),
    ]


def _ready(gateway: Any) -> Response:
    if not gateway.is_ready:
        raise Refusal(503, "the gateway is not ready.", gateway.config.retry_after)
    return json_response({"ready": True})


# -- administration --------------------------------------------------------------------------------


def create_admin(control: Any) -> Starlette:
    """The application for operators: metrics, status page, budget, reload.

    Parameters
    ----------
    control : Gateway or Supervisor
        What is administered.
    """

    async def page(_: Request) -> Response:
        return HTMLResponse(_PAGE.read_text(encoding="utf-8"))

    async def metrics(_: Request) -> Response:
        return Response(await control.prometheus(), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    async def status(_: Request) -> Response:
        return json_response(await control.status())

    async def budget(request: Request) -> Response:
        change = read_json(await request.body())
        if set(change) != {"budget"}:
            raise InvalidInputError(
                'the body must be {"budget": NUMBER}, or {"budget": {"RESOURCE": NUMBER}}; null is the point of the '
                "file."
            )
        await control.change_budget(change["budget"])
        return json_response(change)

    async def reload(_: Request) -> Response:
        return json_response({"version": await control.reload()})

    config = control.config
    # A page in a browser cannot send JSON without a preflight, which is refused.
    change: dict[str, Any] = {"method": "POST", "role": "admin", "media_type": "application/json"}
    # Against DNS rebinding: a page in a browser on this machine must not reach it by another name. Elsewhere
    # everything needs a key.
    hosts = ["127.0.0.1", "localhost", "[::1]"] if config.admin_host in LOOPBACK else ["*"]
    routes = [
        Route("/", page),
        operation(control, "/status.json", status, role="metrics"),
        operation(control, "/metrics", metrics, role="metrics"),
        operation(control, "/budget", budget, **change),
        operation(control, "/reload", reload, **change),
    ]
    trusted = Middleware(TrustedHostMiddleware, allowed_hosts=hosts)
    return _application(routes, control, Errors(config.retry_after), trusted)


# -- predictions -----------------------------------------------------------------------------------


class _Predictions:
    """The operations for clients of a model."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway, self._config = gateway, gateway.config
        self._long_bodies = asyncio.Semaphore(MAX_LONG_BODIES)
        model = f"/v2/models/{self._config.name}"
        route = partial(operation, gateway)
        version = f"{model}/versions/{{version}}"
        post: dict[str, Any] = {"method": "POST", "is_limited": True}
        self.routes = [  # the busiest first
            route(f"{model}/infer", self._infer, **post),
            route("/predict", self._predict, **post),
            route(f"{version}/infer", self._infer, **post),
            route(model, self._metadata),
            route(version, self._metadata),
            route(f"{model}/ready", self._model_ready, role=None),
            route(f"{version}/ready", self._model_ready, role=None),
            route("/v2", self._server),
            route("/openapi.json", self._openapi),
        ]

    async def _infer(self, request: Request) -> Response:
        """Answer rows given as tensors."""
        model, body = self._model(request), await request.body()
        length = request.headers.get("inference-header-content-length")
        arguments = body, None if length is None else length.encode("latin-1"), model.rows, model.output_names
        about = self._config.name, model.version, model.output_types
        return await self._answer(
            model,
            request,
            body,
            lambda: read_infer(*arguments),
            lambda asked, answered: infer_response(answered, asked, *about),
        )

    async def _predict(self, request: Request) -> Response:
        """Answer rows by the names of their columns."""
        model, body = self._model(request), await request.body()

        def write(_: InferRequest, answered: Answered) -> bytes:
            lists = {
                name: values.tolist() if hasattr(values, "tolist") else values
                for name, values in answered.columns((*OUTPUTS, *model.cost_outputs)).items()
            }
            rows = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
            named = {"model_name": self._config.name, "model_version": model.version}
            return orjson.dumps({**named, "answers": rows})

        has_many_rows = body.count(b"{") > BATCH_ROWS + 1
        read = partial(_read_rows, body, model.rows)
        return await self._answer(model, request, body, read, write, has_many_rows=has_many_rows)

    async def _answer(
        self,
        model: Model | ServedCascade,
        request: Request,
        body: bytes,
        read: Callable[[], InferRequest],
        write: Callable[[InferRequest, Answered], bytes],
        *,
        has_many_rows: bool = False,
    ) -> Response:
        """Read and answer a request; a batch is read and written in the thread of batches."""
        began = time.perf_counter()
        is_long = len(body) > BATCH_BYTES
        is_batch = is_long or has_many_rows
        async with self._long_bodies if is_long else _UNLIMITED:
            asked = await model.in_batch_thread(read) if is_batch else read()
            request_id = asked.id or request.headers.get("x-request-id", "")[:200] or None
            cells = model.rows.with_request_id(asked.cells, request_id)
            answered = await model.answer(cells, asks_full="thrifty-model" in request.headers)
            respond = partial(write, asked, answered)
            text = await model.in_batch_thread(respond) if is_batch else respond()
        facts = facts_of(request)
        facts |= {"version": model.version, "rows": len(cells)}
        if answered.n_sent:
            facts["sent"] = answered.n_sent
        if answered.reasons:
            facts["degraded"] = dict(answered.reasons)
        metrics = self._gateway.metrics
        metrics.count(model, cells.numbers, answered, time.perf_counter() - began)
        if answered.n_explored:
            facts |= {"explored": answered.n_explored, "propensity": self._config.explore}
            metrics.explored.labels("compared").inc(answered.n_explored)
            metrics.explored.labels("agreed").inc(answered.n_agreed)
        return json_response(text)

    def _model(self, request: Request) -> Model | ServedCascade:
        model, version = self._gateway.model, request.path_params.get("version")
        if version is not None and version != model.version:
            raise Refusal(
                404, f"there is no version {version[:60]!r} of the model; {model.version!r} is served."
            )
        exported = request.headers.get("thrifty-model")
        if exported is not None and exported != model.identity:
            raise Refusal(
                409,
                f"the device runs the system {exported[:60]!r}; {model.identity!r} is served. Export this system anew, "
                f"or serve the one that was exported.",
            )
        return model

    # -- descriptions ------------------------------------------------------------------------------

    async def _model_ready(self, request: Request) -> Response:
        """Readiness of the model."""
        self._model(request)
        return _ready(self._gateway)

    async def _server(self, _: Request) -> Response:
        """Name and version of the gateway."""
        extensions = ["binary_tensor_data"]
        return json_response({"name": "thrifty", "version": __version__, "extensions": extensions})

    async def _metadata(self, request: Request) -> Response:
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
        outputs = [
            {
                "name": name,
                "datatype": model.output_types.get(name, "FP64"),
                "shape": [-1, model.n_outputs] if name == "probabilities" else [-1],
            }
            for name in model.output_names
        ]
        classes = model.classes.tolist()
        return json_response(
            {
                "name": self._config.name,
                "versions": [model.version],
                "platform": "thrifty",
                "inputs": inputs,
                "outputs": outputs,
                "parameters": {"columns": rows.names, "classes": classes, **model.parameters}
                | ({"keys": rows.keys} if rows.keys else {}),
            }
        )

    async def _openapi(self, _: Request) -> Response:
        """Description of all operations: a static file, in which columns, labels and the name are filled in."""
        model = self._gateway.model
        described = json.loads(_OPENAPI.read_text(encoding="utf-8").replace("NAME", self._config.name))
        described["info"]["version"] = __version__
        if not self._gateway.keys.are_needed("clients"):
            described["security"], described["components"]["securitySchemes"] = [], {}
        fields = {name: part.get("properties") for name, part in described["components"]["schemas"].items()}
        fields["Row"] |= {key: {"type": ["string", "integer", "null"]} for key in model.rows.keys}
        fields["Row"] |= {name: {"type": [*model.rows.json_types(name), "null"]} for name in model.rows.names}
        names = [*(["X"] if model.rows.is_numeric else []), *model.rows.names, *model.rows.keys]
        fields["Tensor"]["name"]["enum"] = names
        fields["Tensors"]["outputs"]["items"]["properties"]["name"]["enum"] = list(model.output_names)
        if model.output_types["route"] == "BYTES":
            fields["Answer"]["route"] = {"type": "string", "enum": list(model.routes)}
        else:
            fields["Answer"]["route"]["maximum"] = len(model.routes) - 2
        kinds = {"b": "boolean", "i": "integer", "u": "integer", "f": "number"}
        kind = "number" if model.is_number else kinds.get(model.classes.dtype.kind, "string")
        fields["Answer"]["answer"]["type"] = [kind, "null"]
        if model.is_number:
            del fields["Answer"]["probability"]
        return json_response(described)


def _read_rows(body: bytes, rows: RequestRows) -> InferRequest:
    """Rows of a request of JSON objects."""
    request = read_json(body)
    if not {"rows"} <= set(request) <= {"rows", "id"}:
        raise InvalidInputError(
            'the body must be {"rows": [{"COLUMN": VALUE, ...}, ...], "id": OPTIONAL TEXT}.'
        )
    return InferRequest(rows.from_records(request["rows"]), (), read_id(request.get("id")))
