"""The Open Inference Protocol, version 2: requests of tensors read strictly, answers written as tensors.

A request holds one tensor ``X`` of all columns, shape [rows, columns], or one tensor for each column that is at hand.
Data come as JSON, flat or nested, or as bytes behind the JSON (the binary extension that clients of Triton use).
"""

import math
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import orjson

from thrifty.errors import InvalidInputError
from thrifty.serve.answered import Answered
from thrifty.serve.request_rows import RequestCells, RequestRows

__all__ = ["OUTPUTS", "InferRequest", "datatype_of", "infer_response", "read_id", "read_infer", "read_json"]

TABLE = "X"
"""Name of the tensor that holds all columns."""

OUTPUTS = ("answer", "probability", "route", "cost", "degraded")
"""What is answered unless a request says which outputs it wants; ``probabilities`` has one for each class."""

_NUMBERS = {
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
    **{f"INT{8 * n}": f"<i{n}" for n in (1, 2, 4, 8)},
    **{f"UINT{8 * n}": f"<u{n}" for n in (1, 2, 4, 8)},
    "BOOL": "?",
}
"""Types of tensors that hold numbers or truth values, as numpy calls them."""

_WRITTEN = {
    "answer": ("answer", None),
    "probability": ("probability", "FP64"),
    "probabilities": ("outputs", "FP64"),
    "route": ("route", "INT64"),
    "cost": ("cost", "FP64"),
    "degraded": ("degraded", "BOOL"),
}
"""What each output is called in ``Answered``, and its type; that of answers depends on the model."""

_DATATYPES = frozenset({"BYTES", *_NUMBERS})


@dataclass(frozen=True)
class InferRequest:
    """What a client asks.

    Attributes
    ----------
    cells : RequestCells
        The rows.
    outputs : tuple of str
        Outputs that it wants.
    id : str, optional
        What it calls the request.
    """

    cells: RequestCells
    outputs: tuple[str, ...]
    id: str | None


def read_json(body: bytes) -> dict[str, Any]:
    """The JSON object of a request."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidInputError(
            f"the body must be JSON with finite numbers: {error}. A missing value is null."
        ) from None
    if not isinstance(found, dict):
        raise InvalidInputError(f"the body must be a JSON object; got {type(found).__name__}.")
    return found


def read_infer(
    body: bytes, json_length: bytes | None, rows: RequestRows, known: tuple[str, ...]
) -> InferRequest:
    """Read a request; ``json_length`` is the header that says where the JSON ends and bytes of tensors begin."""
    length = len(body)
    if json_length is not None:
        if not json_length.isdigit() or len(json_length) > 12 or int(json_length) > length:
            raise InvalidInputError(
                f"Inference-Header-Content-Length must be the length of the JSON in a body of {length} bytes."
            )
        length = int(json_length)
    said = read_json(body[:length])
    tensors = _tensors(said.get("inputs"), memoryview(body)[length:])
    return InferRequest(_cells(tensors, rows), _wanted(said.get("outputs"), known), read_id(said.get("id")))


def infer_response(
    answered: Answered, request: InferRequest, name: str, version: str, answer_type: str
) -> bytes:
    """The answer as JSON."""
    n_rows = len(answered.route)
    outputs = []
    for output in request.outputs:
        name_of, fixed = _WRITTEN[output]
        data = getattr(answered, name_of)
        shape = [n_rows, data.shape[1]] if output == "probabilities" else [n_rows]
        flat = data.reshape(-1) if isinstance(data, np.ndarray) else data
        outputs.append({"name": output, "datatype": fixed or answer_type, "shape": shape, "data": flat})
    response: dict[str, Any] = {"model_name": name, "model_version": version, "outputs": outputs}
    if request.id is not None:
        response["id"] = request.id
    return orjson.dumps(response, option=orjson.OPT_SERIALIZE_NUMPY)


def datatype_of(kind: str) -> str:
    """Type of a tensor of answers, by the kind of numpy's type: text, whole numbers, truth values, numbers."""
    return {"U": "BYTES", "O": "BYTES", "S": "BYTES", "i": "INT64", "u": "UINT64", "b": "BOOL"}.get(
        kind, "FP64"
    )


@dataclass(frozen=True)
class _Tensor:
    name: str
    shape: tuple[int, ...]
    data: Any


def _tensors(inputs: Any, tail: memoryview) -> list[_Tensor]:
    if not isinstance(inputs, list) or not inputs:
        raise InvalidInputError(
            f"inputs must be a list of tensors: one named {TABLE!r} with all columns, or one for each column."
        )
    found, at = [], 0
    for tensor in inputs:
        if not isinstance(tensor, dict) or not isinstance(tensor.get("name"), str):
            raise InvalidInputError(
                "every input must be an object with a name, a datatype, a shape and data."
            )
        name, datatype = tensor["name"], tensor.get("datatype")
        shape = _shape(name, tensor.get("shape"))
        if not isinstance(datatype, str) or datatype not in _DATATYPES:
            raise InvalidInputError(
                f"input {name[:60]!r} must have one of the datatypes {', '.join(_NUMBERS)} and, for text and dates, "
                f"BYTES; got {str(datatype)[:20]!r}."
            )
        parameters = tensor.get("parameters")
        size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
        if size is None:
            data = _flat(name, tensor.get("data"), shape, datatype)
        else:
            if type(size) is not int or not 0 <= size <= len(tail) - at:
                raise InvalidInputError(f"input {name[:60]!r} names more bytes than follow the JSON.")
            data = _from_bytes(name, tail[at : at + size], shape, datatype)
            at += size
        found.append(_Tensor(name, shape, data))
    if at != len(tail):
        raise InvalidInputError(f"{len(tail) - at} bytes follow the JSON that belong to no input.")
    names = [tensor.name for tensor in found]
    if len(set(names)) < len(names):
        raise InvalidInputError("two inputs have the same name. Send each column once.")
    return found


def _shape(name: str, shape: Any) -> tuple[int, ...]:
    is_shape = isinstance(shape, list) and 1 <= len(shape) <= 2
    if not is_shape or not all(type(size) is int and 1 <= size <= 2**31 for size in shape):
        raise InvalidInputError(
            f"input {name[:60]!r} must have a shape of one or two whole numbers from 1 on, rows first."
        )
    return tuple(shape)


def _flat(name: str, data: Any, shape: tuple[int, ...], datatype: str) -> list[Any]:
    """Data of a tensor one after the other; nested lists must nest as the shape says."""
    if isinstance(data, list) and len(shape) == 2 and data and isinstance(data[0], list):
        if len(data) != shape[0] or not all(isinstance(row, list) and len(row) == shape[1] for row in data):
            raise InvalidInputError(f"the data of input {name[:60]!r} must have the shape {list(shape)}.")
        data = list(chain.from_iterable(data))
    n_values = math.prod(shape)
    if not isinstance(data, list) or len(data) != n_values:
        found = f"{len(data)} values" if isinstance(data, list) else "no list"
        raise InvalidInputError(
            f"input {name[:60]!r} has the shape {list(shape)} and must have {n_values} data; got {found}."
        )
    if datatype == "BOOL" and not set(map(type, data)) <= {bool, type(None)}:
        raise InvalidInputError(
            f"input {name[:60]!r} is BOOL and must hold true or false. Send numbers as FP64."
        )
    if "INT" in datatype and float in set(map(type, data)):
        raise InvalidInputError(
            f"input {name[:60]!r} is {datatype} and must hold whole numbers; one has a fraction or exponent. Send it "
            f"as FP64."
        )
    return data


def _from_bytes(name: str, data: memoryview, shape: tuple[int, ...], datatype: str) -> Any:
    """Data of a tensor that follow the JSON; NaN is a missing value there."""
    n_values = math.prod(shape)
    if datatype == "BYTES":
        return _texts(name, bytes(data), n_values)
    kind = np.dtype(_NUMBERS[datatype])
    if len(data) != n_values * kind.itemsize:
        raise InvalidInputError(
            f"input {name[:60]!r} has the shape {list(shape)} and must have {n_values * kind.itemsize} bytes; got "
            f"{len(data)}."
        )
    numbers = np.frombuffer(data, kind).astype(np.float64)
    if np.isinf(numbers).any():
        raise InvalidInputError(f"input {name[:60]!r} must hold finite numbers, or NaN where one is missing.")
    return numbers


def _texts(name: str, data: bytes, n_values: int) -> list[str]:
    """Texts, each behind its length in four bytes."""
    texts: list[str] = []
    at = 0
    try:
        while at < len(data):
            end = at + 4 + int.from_bytes(data[at : at + 4], "little")
            if end > len(data) or len(texts) == n_values:
                break
            texts.append(data[at + 4 : end].decode())
            at = end
    except UnicodeDecodeError:
        raise InvalidInputError(f"input {name[:60]!r} must hold text in UTF-8.") from None
    if at != len(data) or len(texts) != n_values:
        raise InvalidInputError(
            f"input {name[:60]!r} must have {n_values} texts, each behind its length in four bytes."
        )
    return texts


def _cells(tensors: list[_Tensor], rows: RequestRows) -> RequestCells:
    first = tensors[0]
    if len(tensors) == 1 and first.name == TABLE and TABLE not in rows.names:
        n_columns = len(rows.names)
        if first.shape[1:] != (n_columns,):
            raise InvalidInputError(
                f"input {TABLE!r} must have the shape [rows, {n_columns}], one column for each of the model; got "
                f"{list(first.shape)}."
            )
        return rows.from_table(first.data, first.shape[0])
    columns: dict[int, Any] = {}
    keys: dict[str, Any] = dict.fromkeys(rows.keys, [None] * first.shape[0])
    rows.check_count(first.shape[0])
    for tensor in tensors:
        if tensor.name == TABLE and TABLE not in rows.names:
            raise InvalidInputError(f"input {TABLE!r} holds all columns and must be the only input.")
        is_key = tensor.name in keys
        place = -1 if is_key and tensor.name not in rows.names else rows.place_of(tensor.name)
        if tensor.shape[0] != first.shape[0] or tensor.shape[1:] not in ((), (1,)):
            raise InvalidInputError(
                f"every column must have as many rows as the first, shape [{first.shape[0]}] or [{first.shape[0]}, 1]; "
                f"input {tensor.name[:60]!r} has {list(tensor.shape)}."
            )
        columns[place] = tensor.data
        if is_key:
            keys[tensor.name] = tensor.data.tolist() if isinstance(tensor.data, np.ndarray) else tensor.data
    return rows.from_columns(columns, first.shape[0], keys)


def _wanted(outputs: Any, known: tuple[str, ...]) -> tuple[str, ...]:
    if outputs is None or outputs == []:
        return tuple(name for name in OUTPUTS if name in known)
    if not isinstance(outputs, list) or not all(isinstance(one, dict) for one in outputs):
        raise InvalidInputError("outputs must be a list of objects with a name.")
    names = tuple(one.get("name") for one in outputs)
    for name in names:
        if name not in known:
            raise InvalidInputError(
                f"{str(name)[:60]!r} is no output of the model; it has {', '.join(known)}."
            )
    return tuple(dict.fromkeys(names))


def read_id(given: Any) -> str | None:
    """The id of a request, or a refusal."""
    if given is not None and (not isinstance(given, str) or len(given) > 200):
        raise InvalidInputError("id must be text of at most 200 characters.")
    return given
