"""What the gateway can be asked, as an OpenAPI description: for people, and for programs that write clients."""

from typing import Any

import thrifty
from thrifty.serve.answering import Model
from thrifty.serve.config import Config

__all__ = ["description_of"]

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
