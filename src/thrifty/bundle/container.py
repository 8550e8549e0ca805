"""Container format: a manifest and arrays in one file, protected by a checksum.

    magic (8) | format (4) | manifest length (8) | manifest, JSON | arrays, raw | SHA-256 of all before (32)

Numbers are little-endian. The manifest describes the arrays and their offsets; they follow one another without a gap,
so every byte belongs to something. Large arrays are compressed without loss. No memory is allocated on the word of the
file: every length is first compared with the bytes that are there, text is measured before it is parsed, and all arrays
together may not take more than ``EXPANSION`` times the size of the file and a little more. An array is decoded when it
is first used.
"""

import hashlib
import json
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.bundle.encoding import decoded, encoded
from thrifty.errors import InvalidInputError

__all__ = ["DEFAULT_MAX_BYTES", "FORMAT", "Contents", "is_storable", "pack", "parsed_size", "unpack"]

Array = NDArray[Any]

MAGIC = b"thrifty\x00"
FORMAT = 5
"""The layout this version writes and reads."""
DEFAULT_MAX_BYTES = 1 << 30
"""Default limit of the size of a file."""

_HEADER = struct.Struct("<8sIQ")
_DIGEST = 32
_MAX_DIMENSIONS = 4
_LONGEST_EMPTY_SIDE = 1 << 20
_NUMERIC = frozenset({"|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f4", "<f8"})
_LAST_CODE_POINT = 0x10FFFF

_ROOM_FOR_FACTS = 48 << 20  # what a parsed manifest may take in memory, besides four times the file
_ROOM_FOR_ARRAYS = 2 << 20
EXPANSION = 6
"""Bytes that all arrays together may have in memory for each byte of the file, besides a little room."""
_COSTS = {b"{": 240, b"[": 96, b'"': 32, b",": 48, b":": 100}
"""Bytes that the parsed form takes at most for each of these characters; text and numbers come on top."""


@dataclass(frozen=True)
class Contents:
    """Contents of a file: a JSON object, and the arrays it refers to by number."""

    facts: dict[str, Any]
    arrays: Sequence[Array]


def is_storable(array: Array) -> bool:
    """Whether an array is of a kind that a file may hold: numbers, truth values or text of fixed width."""
    return array.ndim <= _MAX_DIMENSIONS and _known_dtype(array.dtype)


def pack(contents: Contents) -> bytes:
    """The file's bytes."""
    stored = _stored(contents.arrays)
    blobs = [blob for _, blob in stored]
    entries, offset = [], 0
    for array, (form, blob) in zip(contents.arrays, stored, strict=True):
        entries.append({**_entry(array, blob, offset), **form})
        offset += len(blob)
    manifest = json.dumps(
        {**contents.facts, "entries": entries}, allow_nan=False, separators=(",", ":")
    ).encode("ascii")
    body = b"".join([_HEADER.pack(MAGIC, FORMAT, len(manifest)), manifest, *blobs])
    return body + hashlib.sha256(body).digest()


def _stored(arrays: Sequence[Array]) -> list[tuple[dict[str, Any], bytes]]:
    """How each array is stored, and its bytes."""
    plain: list[tuple[dict[str, Any], bytes]] = [
        ({}, _raw(array)) if is_storable(array) else ({}, b"") for array in arrays
    ]
    few = [
        encoded(np.frombuffer(raw, _little_endian(array.dtype))) or (form, raw)
        for array, (form, raw) in zip(arrays, plain, strict=True)
    ]
    n_plain, n_few = (sum(len(blob) for _, blob in one) for one in (plain, few))
    # An array that compresses better than this would be refused on reading as a decompression bomb.
    return few if n_plain <= EXPANSION * n_few + _ROOM_FOR_ARRAYS else plain


def unpack(data: Any, *, max_bytes: int = DEFAULT_MAX_BYTES) -> Contents:
    """Read the JSON and the arrays of a file, after its checksum."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InvalidInputError(
            f"a bundle is read from bytes; got {type(data).__name__}. For a path use load."
        )
    view = memoryview(data)
    if len(view) > max_bytes:
        raise InvalidInputError(
            f"a bundle may have {max_bytes} bytes; this one has {len(view)}. If it is meant to, raise `max_bytes`."
        )
    manifest_length = _check_header(view)
    if hashlib.sha256(view[:-_DIGEST]).digest() != bytes(view[-_DIGEST:]):
        raise InvalidInputError(
            "the bundle is damaged: its checksum does not match its content. Save it again."
        )
    begin = _HEADER.size
    manifest = bytes(view[begin : begin + manifest_length])
    size, room = parsed_size(manifest), 4 * len(view) + _ROOM_FOR_FACTS
    if size > room:
        raise InvalidInputError(
            f"the bundle's manifest would take up to {size} bytes of memory, and a file of {len(view)} bytes may take "
            f"{room} for it. The file was not written by `save`."
        )
    facts = _parse(manifest)
    blobs = view[begin + manifest_length : len(view) - _DIGEST]
    arrays = _arrays(facts.pop("entries", None), blobs)
    return Contents(facts, arrays)


class Stored(Sequence[Array]):
    """Arrays of a file, each decoded when it is first used."""

    def __init__(self, makers: Sequence[Callable[[], Array]]) -> None:
        self._makers = makers

    def __len__(self) -> int:
        return len(self._makers)

    def __getitem__(self, number: Any) -> Any:
        return self._makers[number]()


def parsed_size(text: bytes) -> int:
    """Upper bound of the memory that JSON takes once it is parsed, found without parsing it."""
    # One escaped character makes each character of a long text take four bytes, while it is put together eight.
    width = 9 if b"\\u" in text or not text.isascii() else 2
    return width * len(text) + sum(cost * text.count(mark) for mark, cost in _COSTS.items())


def _check_header(view: memoryview) -> int:
    """Check magic and format, and return the length of the manifest."""
    if len(view) < _HEADER.size + _DIGEST:
        raise InvalidInputError(
            f"this is no bundle: it has only {len(view)} bytes. It may have been cut off."
        )
    magic, version, length = _HEADER.unpack(view[: _HEADER.size])
    if magic != MAGIC:
        raise InvalidInputError("this is no bundle: it does not begin as one. Give a file that `save` wrote.")
    if version != FORMAT:
        raise InvalidInputError(
            f"the bundle has format {version}, and this version of thrifty reads format {FORMAT}. "
            f"{'Upgrade thrifty' if version > FORMAT else 'Fit again'}, or save again with this version."
        )
    if length > len(view) - _HEADER.size - _DIGEST:
        raise InvalidInputError(
            f"the bundle is cut off: its manifest has {length} bytes, the file {len(view)}. Copy it again."
        )
    return int(length)


def _parse(manifest: bytes) -> dict[str, Any]:
    try:
        facts = json.loads(manifest, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"the bundle's manifest is not proper JSON: {str(error)[:100]}.") from None
    if not isinstance(facts, dict):
        raise InvalidInputError(f"the bundle's manifest must be an object; got {type(facts).__name__}.")
    return facts


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _arrays(entries: Any, blobs: memoryview) -> Stored:
    if not isinstance(entries, list):
        raise InvalidInputError(f"the bundle must list its arrays; got {type(entries).__name__}.")
    described, offset, room = [], 0, EXPANSION * len(blobs) + _ROOM_FOR_ARRAYS
    for number, entry in enumerate(entries):
        dtype, shape, length = _check_entry(entry, number, offset, len(blobs))
        room -= math.prod(shape) * dtype.itemsize
        if room < 0:
            raise InvalidInputError(
                f"the bundle's arrays would take more than {EXPANSION} times the memory of the file. It was not "
                f"written by `save`."
            )
        described.append((blobs[offset : offset + length], dtype, shape, entry, number))
        offset += length
    if offset != len(blobs):
        raise InvalidInputError(f"the bundle holds {len(blobs) - offset} bytes that belong to no array.")
    return Stored([partial(_array, *one) for one in described])


def _check_entry(
    entry: Any, number: int, offset: int, available: int
) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    """Type, shape and length of an array, all of them checked against what is there."""
    if not isinstance(entry, dict):
        raise _bad_entry(number, "is not described")
    name, shape, length = entry.get("dtype"), entry.get("shape"), entry.get("length")
    if not isinstance(name, str) or not _known_name(name):
        raise _bad_entry(number, f"must hold numbers, truth values or text; its type is {str(name)[:30]!r}")
    if not isinstance(shape, list) or len(shape) > _MAX_DIMENSIONS or not all(map(_is_count, shape)):
        raise _bad_entry(number, f"has the shape {str(shape)[:60]}, which is none")
    if (
        not isinstance(length, int)
        or not _is_count(length)
        or not _is_count(entry.get("offset"))
        or entry["offset"] != offset
    ):
        raise _bad_entry(number, "does not follow the one before")
    dtype = np.dtype(name)
    n_bytes = math.prod(shape) * dtype.itemsize
    room = EXPANSION * available + _ROOM_FOR_ARRAYS
    if (n_bytes > room) if "form" in entry else (length != n_bytes):
        raise _bad_entry(number, f"of shape {shape} and type {name} cannot have {length} bytes")
    if length > available - offset:
        raise _bad_entry(number, f"has {length} bytes, but only {available - offset} are left")
    # A side of an empty array takes no bytes; it must not be a way to claim a size that was never written.
    if max(shape, default=0) > max(room if "form" in entry else available, _LONGEST_EMPTY_SIDE):
        raise _bad_entry(number, f"has the shape {shape}, larger than the file")
    return dtype, tuple(shape), length


def _array(
    blob: memoryview, dtype: np.dtype[Any], shape: tuple[int, ...], entry: dict[str, Any], number: int
) -> Array:
    if "form" in entry:
        try:
            flat = decoded(entry["form"], blob, dtype, math.prod(shape))
        except InvalidInputError as error:
            raise _bad_entry(number, str(error)) from None
        return _shaped(flat, dtype, shape, entry, number)
    if dtype.kind == "b" and np.any(np.frombuffer(blob, np.uint8) > 1):
        raise _bad_entry(number, "holds truth values that are neither 0 nor 1")
    if dtype.kind == "U" and np.any(np.frombuffer(blob, "<u4") > _LAST_CODE_POINT):
        raise _bad_entry(number, "holds text that is no text")
    return _shaped(np.frombuffer(blob, dtype), dtype, shape, entry, number)


def _shaped(
    flat: Array, dtype: np.dtype[Any], shape: tuple[int, ...], entry: dict[str, Any], number: int
) -> Array:
    """The array in its shape and layout, in numbers of this machine."""
    order = entry.get("order", "C")
    if order not in ("C", "F"):
        raise _bad_entry(number, f"has the order {str(order)[:30]!r}, neither C nor F")
    return flat.astype(dtype.newbyteorder("=")).reshape(shape, order=order)


def _entry(array: Array, blob: bytes, offset: int) -> dict[str, Any]:
    dtype = _little_endian(array.dtype)
    if not is_storable(array):
        raise InvalidInputError(
            f"a bundle holds arrays of numbers, truth values or text; got the type {array.dtype}. Convert it first."
        )
    entry = {
        "dtype": dtype.str,
        "shape": list(array.shape),
        "offset": offset,
        "length": len(blob),
    }
    # Sums of a matrix product may depend on the layout in their last digit, so the layout is kept too.
    return {**entry, "order": "F"} if _is_column_major(array) else entry


def _raw(array: Array) -> bytes:
    return array.astype(_little_endian(array.dtype), copy=False).tobytes(
        "F" if _is_column_major(array) else "C"
    )


def _is_column_major(array: Array) -> bool:
    return bool(array.flags.f_contiguous and not array.flags.c_contiguous)


def _little_endian(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype.newbyteorder("<")


def _known_dtype(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biufU" and _known_name(_little_endian(dtype).str)


def _known_name(name: str) -> bool:
    if name in _NUMERIC:
        return True
    width = name[2:]
    return (
        name[:2] == "<U"
        and width.isdecimal()
        and width.isascii()
        and 1 <= len(width) <= 6
        and width[0] != "0"
    )


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _bad_entry(number: int, problem: str) -> InvalidInputError:
    return InvalidInputError(f"array {number} of the bundle {problem}. The file was not written by `save`.")
