"""Requests and responses: JSON rows, and tensors of the Open Inference Protocol, version 2, read strictly.

A request of tensors holds one tensor ``X`` of all columns, shape [rows, columns], or one tensor for each column that is
at hand. Data come as JSON, flat or nested, or as bytes behind the JSON (the binary extension that clients of Triton
use).

A number is a JSON number; null is a missing value. Text such as "1.5" and truth values are refused where a number
belongs. Columns that held dates or truth values at the fit take those, in JSON or in words, besides the numbers that
they are read as. A column that a request leaves out, or text that the fit has not seen, is refused only where a row's
route reads it.
"""

import gc
import math
import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, compress
from typing import Any

import numpy as np
import orjson

from thrifty.arrays import Bools, Floats, Ints, Words
from thrifty.engine.purchases.retry import parse_json
from thrifty.engine.table.reader import Cells, Schema, Unreadable
from thrifty.engine.tasks.task import Task
from thrifty.errors import InvalidInputError, listed
from thrifty.rows import key_words
from thrifty.serve.config import closest

TABLE = "X"
"""Name of the tensor that holds all columns."""

OUTPUTS = ("answer", "probability", "route", "cost", "degraded")
"""Default outputs of a request; ``probabilities`` has one for each class."""

_NUMPY_TYPES = {
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
    **{f"INT{8 * n}": f"<i{n}" for n in (1, 2, 4, 8)},
    **{f"UINT{8 * n}": f"<u{n}" for n in (1, 2, 4, 8)},
    "BOOL": "?",
}
"""Types of tensors that hold numbers or truth values, as numpy calls them."""

_DATATYPES = frozenset({"BYTES", *_NUMPY_TYPES})


@dataclass(frozen=True)
class InferRequest:
    """Rows of a request and the outputs that it asks for.

    Attributes
    ----------
    cells : RequestCells
        The rows.
    outputs : tuple of str
        Outputs that it wants.
    id : str, optional
        What it calls the request.
    """

    cells: "RequestCells"
    outputs: tuple[str, ...]
    id: str | None


def parse_unique(text: bytes) -> Any:
    """Parse JSON with finite numbers; a key that an object has twice raises ``ValueError`` too."""
    gc.disable()  # it would look through lists again and again while they are made: most of the time of a large body
    try:
        parsed = orjson.loads(text)
        # orjson keeps the last of repeated keys: written again, the colons of the others are gone.
        is_unique = text.count(b":") == orjson.dumps(parsed).count(b":")
    except TypeError:
        raise ValueError("it is nested too deeply") from None
    finally:
        gc.enable()
    if not is_unique or b"\\u003" in text:  # a colon may be written as its number
        parse_json(text)
    return parsed


def read_json(body: bytes) -> dict[str, Any]:
    """The JSON object of a request."""
    try:
        request = parse_unique(body)
    except ValueError as error:
        raise InvalidInputError(
            f"the body must be JSON with finite numbers and different keys: {error}. A missing value is null."
        ) from None
    if not isinstance(request, dict):
        raise InvalidInputError(f"the body must be a JSON object; got {type(request).__name__}.")
    return request


def read_infer(
    body: bytes, json_length: bytes | None, rows: "RequestRows", known: tuple[str, ...]
) -> InferRequest:
    """Read a request; ``json_length`` is the header that says where the JSON ends and bytes of tensors begin."""
    length = len(body)
    if json_length is not None:
        if not json_length.isdigit() or len(json_length) > 12 or int(json_length) > length:
            raise InvalidInputError(
                f"Inference-Header-Content-Length must be the length of the JSON in a body of {length} bytes."
            )
        length = int(json_length)
    request = read_json(body[:length])
    tensors = _tensors(request.get("inputs"), memoryview(body)[length:])
    return InferRequest(
        _cells(tensors, rows), _wanted(request.get("outputs"), known), read_id(request.get("id"))
    )


def infer_response(
    answered: "Answered", request: InferRequest, name: str, version: str, types: Mapping[str, str]
) -> bytes:
    """The answer as JSON."""
    outputs = []
    for output, data in answered.columns(request.outputs).items():
        shape = data.shape if output == "probabilities" else (len(data),)
        data = data.reshape(-1) if output == "probabilities" else data
        outputs.append({"name": output, "datatype": types.get(output, "FP64"), "shape": shape, "data": data})
    response: dict[str, Any] = {"model_name": name, "model_version": version, "outputs": outputs}
    if request.id is not None:
        response["id"] = request.id
    return orjson.dumps(response, option=orjson.OPT_SERIALIZE_NUMPY)


def output_types(task: Task) -> dict[str, str]:
    """Types of outputs that are not FP64; that of answers is the type of the labels."""
    kinds = {"U": "BYTES", "O": "BYTES", "S": "BYTES", "i": "INT64", "u": "UINT64", "b": "BOOL"}
    answer = kinds.get(task.classes.dtype.kind, "FP64") if len(task.classes) else "FP64"
    return {"answer": answer, "route": "INT64", "degraded": "BOOL"}


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
    tensors, at = [], 0
    for tensor in inputs:
        if not isinstance(tensor, dict) or not isinstance(tensor.get("name"), str):
            raise InvalidInputError(
                "every input must be an object with a name, a datatype, a shape and data."
            )
        name, datatype = tensor["name"], tensor.get("datatype")
        shape = _shape(name, tensor.get("shape"))
        if not isinstance(datatype, str) or datatype not in _DATATYPES:
            raise InvalidInputError(
                f"input {name[:60]!r} must have one of the datatypes {', '.join(_NUMPY_TYPES)} and, for text and "
                f"dates, BYTES; got {str(datatype)[:20]!r}."
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
        tensors.append(_Tensor(name, shape, data))
    if at != len(tail):
        raise InvalidInputError(f"{len(tail) - at} bytes follow the JSON that belong to no input.")
    names = [tensor.name for tensor in tensors]
    if len(set(names)) < len(names):
        raise InvalidInputError("two inputs have the same name. Send each column once.")
    return tensors


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
        size = f"{len(data)} values" if isinstance(data, list) else "no list"
        raise InvalidInputError(
            f"input {name[:60]!r} has the shape {list(shape)} and must have {n_values} data; got {size}."
        )
    if datatype == "BOOL" and not set(map(type, data)) <= {bool, type(None)}:
        raise InvalidInputError(
            f"input {name[:60]!r} is BOOL and must hold true or false. Send numbers as FP64."
        )
    if "INT" in datatype:
        limits, numbers = np.iinfo(_NUMPY_TYPES[datatype]), [number for number in data if number is not None]
        is_whole = set(map(type, numbers)) <= {int}
        if not is_whole or any(not limits.min <= number <= limits.max for number in numbers):
            raise InvalidInputError(
                f"input {name[:60]!r} is {datatype} and must hold whole numbers from {limits.min} to {limits.max}. "
                f"Send others as FP64."
            )
    return data


def _from_bytes(name: str, data: memoryview, shape: tuple[int, ...], datatype: str) -> Any:
    """Data of a tensor that follow the JSON; NaN is a missing value there."""
    n_values = math.prod(shape)
    if datatype == "BYTES":
        return _texts(name, bytes(data), n_values)
    kind = np.dtype(_NUMPY_TYPES[datatype])
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


def _cells(tensors: list[_Tensor], rows: "RequestRows") -> "RequestCells":
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


def read_id(request_id: Any) -> str | None:
    """The id of a request, or a refusal."""
    if request_id is not None and (not isinstance(request_id, str) or len(request_id) > 200):
        raise InvalidInputError("id must be text of at most 200 characters.")
    return request_id


_JSON_NUMBERS = {float, int, type(None)}
_ABSENT: Any = object()
"""Marks a column that a row does not have."""


_JSON_TYPES = {
    "time": ("string", "number"),
    "day": ("string", "number"),
    "truth": ("boolean", "number", "string"),
}
"""Types of JSON of columns of dates and truth values; others hold text or numbers."""


@dataclass(frozen=True, eq=False)
class RequestCells(Cells):
    """The columns of a schema in the rows of a request.

    Attributes
    ----------
    keys : dict of str to sequence
        By the names of keys that came: what providers know each row by; None where a row has no such key.
    """

    keys: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @property
    def came(self) -> Bools:
        """Cells that came with the request, shape (n_rows, n_columns)."""
        came = np.ones(self.numbers.shape, dtype=bool)
        for column, is_absent in self.absent.items():
            came[:, column] = ~is_absent
        return came

    @cached_property
    def absent(self) -> dict[int, Bools]:
        """Rows that a column did not come with, for the columns of which there are such rows."""
        rows = {column: cells.rows & (cells.values == _ABSENT) for column, cells in self.unreadable.items()}
        return {column: is_absent for column, is_absent in rows.items() if is_absent.any()}


class RequestRows:
    """Reader of the rows of requests.

    Parameters
    ----------
    schema : Schema
        Columns, and the text that they may hold.
    row_key : str, optional
        Name by which requests carry the keys of the rows.
    unseen_is_missing : bool
        Whether text that the fit has not seen counts as missing.
    max_rows : int
        Requests of more rows are refused.
    keys : collection of str
        Names by which requests carry what providers know rows by; some may be names of columns too.
    """

    def __init__(
        self,
        schema: Schema,
        *,
        unseen_is_missing: bool,
        max_rows: int,
        keys: Collection[str] = (),
        row_key: str | None = None,
    ) -> None:
        self.names = schema.names
        self.row_key = row_key
        self.keys = tuple(dict.fromkeys((*keys, *((row_key,) if row_key else ()))))
        self._known = {name: place for place, name in enumerate(schema.names)}
        places = range(len(schema.names))
        self._schema = schema
        self._numbers = frozenset(place for place in places if schema.is_number(place))
        self._others = np.array([place for place in places if place not in self._numbers], dtype=np.intp)
        self._unseen_is_missing = unseen_is_missing
        self._max_rows = max_rows

    @property
    def is_numeric(self) -> bool:
        """True if no column holds text."""
        return self._schema.levels is None

    def is_text(self, name: str) -> bool:
        """True if a column holds text."""
        return self._schema.is_level(self._known[name])

    def json_types(self, name: str) -> list[str]:
        """Types of JSON that a column may hold."""
        holds = self._schema.type_of(self._known[name]).holds
        return ["string"] if self.is_text(name) else list(_JSON_TYPES.get(holds, ("number",)))

    def check_count(self, n_rows: int) -> None:
        """Refuse more rows than a request may have."""
        if n_rows > self._max_rows:
            raise InvalidInputError(
                f"a request must have at most {self._max_rows:,} rows; got {n_rows:,}. Send fewer at a time."
            )

    def place_of(self, name: Any) -> int:
        """Place of a column, or a refusal of a name that is not known."""
        if not isinstance(name, str) or name not in self._known:
            raise InvalidInputError(
                f"{_shown(name)} is no column of the model."
                f"{closest(str(name)[:100], {*self._known, *self.keys})}"
            )
        return self._known[name]

    def from_records(self, records: Any) -> RequestCells:
        """Rows that are JSON objects, from names of columns to values."""
        if not isinstance(records, list) or not records:
            raise InvalidInputError(
                f"rows must be a list of at least one object, from names of columns to values; got {_shown(records)}."
            )
        self.check_count(len(records))
        names, rows = self.names, []
        for number, record in enumerate(records, 1):
            if not isinstance(record, dict):
                raise InvalidInputError(
                    f"a row must be an object, from names of columns to values; row {number} is {_shown(record)}."
                )
            row = [record.get(name, _ABSENT) for name in names]
            if len(record) + row.count(_ABSENT) != len(names):
                for name in record:
                    if name not in self._known and name not in self.keys:
                        self.place_of(name)
            rows.append(row)
        if not len(self._others) and not self.row_key and _ABSENT not in chain.from_iterable(rows):
            return self.from_table(list(chain.from_iterable(rows)), len(rows))
        columns = dict(enumerate(zip(*rows, strict=True)))
        keys = {key: [record.get(key) for record in records] for key in self.keys}
        return self.from_columns(columns, len(rows), keys)

    def from_table(self, values: Sequence[Any] | Floats, n_rows: int) -> RequestCells:
        """Rows of numbers in the order of the columns, one after the other in one list or array."""
        self.check_count(n_rows)
        if not self.is_numeric:
            text = [name for name in self.names if self.is_text(name)]
            raise InvalidInputError(
                f"a table of numbers cannot hold the text of {listed(text)}. Send one tensor for each column."
            )
        if not isinstance(values, np.ndarray) and not set(map(type, values)) <= _JSON_NUMBERS:
            place = next(place for place, value in enumerate(values) if type(value) not in _JSON_NUMBERS)
            self._refuse_number(place % len(self.names), values[place], place // len(self.names) + 1)
        numbers = np.array(values, dtype=np.float64).reshape(n_rows, len(self.names))
        return RequestCells(self.names, numbers, np.arange(1, n_rows + 1), _drawn_keys(n_rows))

    def from_columns(
        self, columns: Mapping[int, Any], n_rows: int, keys: Mapping[str, Sequence[Any]] | None = None
    ) -> RequestCells:
        """Columns by their places, each a list, tuple or array of as many values as there are rows, and keys."""
        numbers = np.full((n_rows, len(self.names)), np.nan)
        others = np.full((n_rows, len(self._others)), None, dtype=object)
        unreadable: dict[int, Unreadable] = {}
        for place in range(len(self.names)):
            values = columns.get(place, (_ABSENT,) * n_rows)
            if not isinstance(values, np.ndarray) and _ABSENT in values:
                is_absent = np.array([value is _ABSENT for value in values])
                unreadable[place] = Unreadable(is_absent, np.full(n_rows, _ABSENT), self._why_absent(place))
                values = [None if value is _ABSENT else value for value in values]
            if place in self._numbers:
                numbers[:, place] = self._json_numbers(place, values)
            else:
                others[:, np.searchsorted(self._others, place)] = self._json_values(place, values)
        texts = {}
        if len(self._others):
            unseen = self._unseen_is_missing
            numbers[:, self._others], refused = self._schema.read(
                others, self._others, unseen_is_missing=unseen
            )
            for place, cells in refused.items():
                column = int(self._others[place])
                unreadable[column] = _either(unreadable.get(column), cells)
            columns_of_text = enumerate(map(int, self._others))
            texts = {column: others[:, at] for at, column in columns_of_text if self._schema.is_level(column)}
        checked = {key: [_key(key, value) for value in values] for key, values in (keys or {}).items()}
        row_keys = _drawn_keys(n_rows)
        if self.row_key:
            row_keys = key_words(
                checked.get(self.row_key, [None] * n_rows), f"{self.row_key!r}, the key of a row,"
            )
        return RequestCells(
            self.names,
            numbers,
            np.arange(1, n_rows + 1),
            row_keys,
            unreadable,
            texts,
            checked,
        )

    def with_request_id(self, cells: RequestCells, request_id: str | None) -> RequestCells:
        """The rows known by the id of their request, and by their place in it where there are several.

        Without an id, and without keys of their own, rows keep keys that were drawn: were they the same for all
        requests, all would follow the same of two operating points, and spend another budget.
        """
        if request_id is None or self.row_key:
            return cells
        ids = [request_id] if len(cells) == 1 else [(request_id, place) for place in range(len(cells))]
        return replace(cells, row_keys=key_words(ids))

    def read_bought(self, values: Any, columns: Ints) -> tuple[Floats, dict[int, str]]:
        """Numbers of values that a provider delivered, and why rows of them cannot be read; null is missing."""
        numbers, wrong = np.full(values.shape, np.nan), dict[int, str]()
        for place, column in enumerate(columns.tolist()):
            if column in self._numbers:
                for row, value in enumerate(values[:, place].tolist()):
                    if value is None or (type(value) in (int, float) and not math.isinf(value)):
                        numbers[row, place] = np.nan if value is None else value
                    else:
                        wrong.setdefault(row, "what came is no finite number")
                continue
            unseen, cells = self._unseen_is_missing, values[:, [place]]
            read, refused = self._schema.read(cells, columns[[place]], unseen_is_missing=unseen)
            numbers[:, place] = read[:, 0]
            for unreadable in refused.values():
                for row in np.flatnonzero(unreadable.rows).tolist():
                    wrong.setdefault(row, unreadable.why(unreadable.values[row], None))
        return numbers, wrong

    def _json_numbers(self, place: int, values: Any) -> Any:
        """Values of a column of numbers, which must be JSON numbers or null."""
        if not isinstance(values, np.ndarray) and not set(map(type, values)) <= _JSON_NUMBERS:
            row = next(row for row, value in enumerate(values) if type(value) not in _JSON_NUMBERS)
            self._refuse_number(place, values[row], row + 1)
        return np.array(values, dtype=np.float64)

    def _json_values(self, place: int, values: Any) -> Any:
        """Values of a column of text, dates or truth values; what they hold is read by the schema."""
        for row, value in enumerate(values):
            if isinstance(value, list | dict):
                raise InvalidInputError(
                    f"column {self.names[place]!r} must hold one value in each row; got {_shown(value)} in row "
                    f"{row + 1}."
                )
        return list(values)

    def _refuse_number(self, place: int, value: Any, row: int) -> None:
        raise InvalidInputError(
            f"column {self.names[place]!r} must hold numbers, or null where one is missing; got {_shown(value)} in row "
            f"{row}. Write it as a plain JSON number."
        )

    def _why_absent(self, place: int) -> Any:
        return lambda _, row: (
            f"row {row} has no column {self.names[place]!r}, which its route reads. Send it, or null if it is missing."
        )


def _drawn_keys(n_rows: int) -> Words:
    return np.frombuffer(os.urandom(8 * n_rows), dtype=np.uint64)


def _either(absent: Unreadable | None, other: Unreadable) -> Unreadable:
    """Cells of a column that did not come, or that cannot be read."""
    if absent is None:
        return other
    return Unreadable(
        absent.rows | other.rows,
        np.where(absent.rows, _ABSENT, other.values),
        lambda value, row: (absent if value is _ABSENT else other).why(value, row),
    )


def _key(name: str, value: Any) -> Any:
    """A key as providers are asked with it: text or a whole number; None where a row has none."""
    if type(value) is float and value.is_integer() and abs(value) < 2**53:  # a larger one may be another key
        return int(value)
    if value is not None and not (type(value) is str or (type(value) is int and -(2**63) <= value < 2**63)):
        raise InvalidInputError(
            f"{name!r}, by which columns are bought, must be text or a whole number of 64 bits; got {_shown(value)}."
        )
    return value


def _shown(value: Any) -> str:
    """A value of a request, cut where it is long."""
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = f'"{value}"' if isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


@dataclass(frozen=True, eq=False)
class Purchases:
    """Number of the purchase that brought each cell, 0 for none, its probability, and the values; see ``Receipts``."""

    order: Ints
    propensity: Floats
    values: Any


@dataclass(frozen=True)
class Answered:
    """Answers to the rows of a request, and what they cost.

    Attributes
    ----------
    task : Task
        What is predicted.
    route : ndarray of shape (n_rows,)
        Place that answered; the number of stages is the full model, and -1 none.
    outputs : ndarray of shape (n_rows, n_outputs)
        Probabilities of all classes, or the number.
    cost : ndarray of shape (n_rows,)
        What each row paid.
    sent : ndarray of shape (n_rows,), bool
        Rows that got to the full model.
    failures : dict of int to str
        Rows that the full model should have answered and did not ("connect"), or for which a purchase failed
        ("provider_NAME"), or which models of a cascade failed ("model_NAME"), and why.
    n_explored, n_agreed : int
        Rows that went on beyond their stop, and those of them to which their stop gives the same answer.
    routes : tuple of str
        Names of the models of a cascade, by which its answers name their routes, and of the route -1.
    asked_models : ndarray of shape (n_rows, n_models), bool, optional
        Models of a cascade that were asked about each row.
    purchases : Purchases, optional
        What rows bought, where receipts are kept.
    costs : dict of str to ndarray of shape (n_rows,)
        What each row paid in each of several resources; ``cost`` is then their sum at exchange rates.
    """

    task: Task
    route: Ints
    outputs: Floats
    cost: Floats
    sent: Bools
    failures: Mapping[int, str] = field(default_factory=dict)
    n_explored: int = 0
    n_agreed: int = 0
    routes: tuple[str, ...] = ()
    asked_models: Bools | None = None
    purchases: "Purchases | None" = None
    costs: Mapping[str, Floats] = field(default_factory=dict)

    @property
    def answer(self) -> Any:
        """Labels or numbers; None where a row has no answer."""
        answers = self.task.answers(self.outputs)
        if self.is_whole:
            return answers if answers.dtype.kind in "biuf" else answers.tolist()
        return [
            None if place < 0 else answer for answer, place in zip(answers.tolist(), self.route, strict=True)
        ]

    @property
    def probability(self) -> Floats | None:
        """Probability of each answer; None where numbers are predicted."""
        return self._answered(self.task.confidence(self.outputs)) if len(self.task.classes) else None

    @property
    def probabilities(self) -> Floats:
        """Outputs, NaN where a row has no answer."""
        return self._answered(self.outputs.T).T

    @property
    def asked(self) -> list[str] | None:
        """Names of the models of a cascade that were asked about each row."""
        if self.asked_models is None:
            return None
        return [", ".join(compress(self.routes, row)) for row in self.asked_models.tolist()]

    @property
    def degraded(self) -> Bools:
        """Rows that are answered otherwise than they should have been."""
        rows = np.zeros(len(self.route), dtype=bool)
        rows[list(self.failures)] = True
        return rows

    @property
    def is_whole(self) -> bool:
        """True if every row has an answer."""
        return min(self.route.tolist()) >= 0

    def _answered(self, values: Floats) -> Floats:
        return values if self.is_whole else np.where(self.route < 0, np.nan, values)

    @property
    def n_sent(self) -> int:
        """Number of rows that got to the full model."""
        return int(self.sent.sum())

    @property
    def reasons(self) -> dict[str, int]:
        """Number of degraded rows by reason."""
        return Counter(self.failures.values())

    @property
    def failed_by_full(self) -> Ints:
        """Rows that only the full model failed."""
        lost = [row for row, why in self.failures.items() if not why.startswith("provider_")]
        return np.array(sorted(row for row in lost if self.sent[row]), dtype=np.intp)

    def columns(self, names: Collection[str]) -> dict[str, Any]:
        """Values of outputs by their names; numbers that are predicted have no probability."""
        by_resource = {f"cost_{name}": paid for name, paid in self.costs.items()}
        values = {name: by_resource[name] if name in by_resource else getattr(self, name) for name in names}
        if self.routes and "route" in values:
            values["route"] = [self.routes[place] for place in self.route.tolist()]
        return {name: column for name, column in values.items() if column is not None}
