"""Rows as a request of the Open Inference Protocol v2, and what came back as checked numbers."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from thrifty.arrays import Floats
from thrifty.errors import InvalidAnswerError, InvalidInputError, RemoteFailure
from thrifty.tasks.answers import check_numbers, check_probabilities

__all__ = ["answer_of", "request_of"]

_USUAL_NAMES = {False: ("probabilities", "predict_proba"), True: ("answer", "predict")}
"""What a thrifty gateway and MLServer call the outputs that are wanted, by whether they are numbers. A gateway also
tells the probability of each answer, which is that of the second class only where that is the answer."""

_WHO = "the remote model"


def request_of(
    rows: Floats,
    columns: Sequence[str],
    *,
    input_name: str | None = "X",
    output_name: str | None = None,
    datatype: str = "FP64",
) -> bytes:
    """The body of a request about some rows, shape (n_rows, n_columns); a missing value is null."""
    if rows.ndim != 2 or rows.shape[1] != len(columns):
        raise InvalidInputError(
            f"rows for the remote model must have its {len(columns)} columns; got the shape {rows.shape}."
        )
    rows = np.ascontiguousarray(rows, dtype=np.float64)
    if input_name is not None:
        inputs = [_tensor(input_name, rows, datatype)]
    else:
        inputs = [_tensor(name, rows[:, [place]], datatype) for place, name in enumerate(columns)]
    body: dict[str, Any] = {"inputs": inputs}
    if output_name is not None:
        body["outputs"] = [{"name": output_name}]
    return orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)


def _tensor(name: str, values: Floats, datatype: str) -> dict[str, Any]:
    return {"name": name, "shape": list(values.shape), "datatype": datatype, "data": values.ravel()}


def answer_of(said: bytes, n_rows: int, n_outputs: int, output_name: str | None = None) -> Floats:
    """Outputs in an answer, shape (n_rows, n_outputs), or a ``RemoteFailure`` that says what is wrong with it."""
    values = _numbers(_output(_parsed(said), output_name, n_outputs), n_rows, n_outputs)
    if not np.isfinite(values).all():
        raise RemoteFailure("nan", "its answer holds what is no finite number")
    try:
        if n_outputs == 1:
            return check_numbers(values, n_rows, _WHO)
        if values.shape[1] == 1:
            second = check_probabilities(values[:, 0], n_rows, np.arange(2), _WHO, second_alone=True)
            return np.column_stack([1.0 - second, second])
        return check_probabilities(values, n_rows, np.arange(n_outputs), _WHO)
    except InvalidAnswerError as error:
        raise RemoteFailure("not_probabilities", f"it must give {error.rule}; got {error.found}") from error


def _parsed(said: bytes) -> Any:
    try:
        return orjson.loads(said)
    except orjson.JSONDecodeError as error:
        # JSON knows no such numbers, but many that write it do not care.
        if b"NaN" in said or b"Infinity" in said:
            raise RemoteFailure("nan", "its answer holds what is no finite number") from error
        raise RemoteFailure("bad_json", f"its answer is no JSON: {error}") from error


def _output(parsed: Any, name: str | None, n_outputs: int) -> dict[str, Any]:
    outputs = parsed.get("outputs") if isinstance(parsed, dict) else None
    if not isinstance(outputs, list) or not all(isinstance(output, dict) for output in outputs):
        raise RemoteFailure("bad_json", "its answer has no list of `outputs`")
    by_name: dict[Any, dict[str, Any]] = {output.get("name"): output for output in outputs}
    wanted = _USUAL_NAMES[n_outputs == 1] if name is None else (name,)
    found = next((by_name[usual] for usual in wanted if usual in by_name), None)
    if found is None and name is None and len(outputs) == 1:
        found = outputs[0]
    if found is None:
        raise RemoteFailure(
            "shape", f"none of its outputs, {list(by_name)}, is the one; name it as output_name"
        )
    return found


def _numbers(output: dict[str, Any], n_rows: int, n_outputs: int) -> Floats:
    """The numbers of a tensor, shape (n_rows, n_outputs), or (n_rows, 1) for the second of two classes."""
    datatype, shape = output.get("datatype"), output.get("shape")
    if not isinstance(datatype, str) or not datatype.startswith("FP"):
        # A label is a whole number: taken for a probability, it would be one of 0 or 1.
        raise RemoteFailure("datatype", f"its output must be of the type FP32 or FP64; got {datatype!r}")
    widths = {n_outputs, 1} if n_outputs == 2 else {n_outputs}
    allowed = [[n_rows, width] for width in widths] + ([[n_rows]] if 1 in widths else [])
    if shape not in allowed:
        raise RemoteFailure("shape", f"its output must have the shape {allowed[0]}; got {shape!r}")
    values = _floats(output.get("data"))
    if values.size != math.prod(shape):
        raise RemoteFailure("shape", f"its output of the shape {shape} holds {values.size} numbers")
    return values.reshape(n_rows, -1)


def _floats(data: Any) -> Floats:
    try:
        values = np.array(data)
        if (
            values.dtype.kind in "iufO"
        ):  # text that looks like numbers is text; null among numbers is an object
            return values.astype(np.float64)
        found = f"{values.dtype} values"
    except (TypeError, ValueError) as error:
        found = str(error)
    raise RemoteFailure("bad_json", f"the data of its output must be numbers; got {found}")
