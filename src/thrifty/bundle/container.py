"""Container format: a manifest and arrays in one file, protected by a checksum.

    magic (8) | format (4) | manifest length (8) | manifest, JSON | arrays, raw | SHA-256 of all before (32)

Numbers are little-endian. The manifest describes the arrays and their offsets; they follow one another without a gap,
so every byte belongs to something. No memory is allocated on the word of the file: every length is first compared with
the bytes that are there, text is measured before it is parsed, and all arrays together may not take more than
``EXPANSION`` times the size of the file and a little more. An array is decoded when it is first used.

A file that is signed (ed25519) has the signature behind it:

    file | signature of it (64) | SHA-256 of the file's own checksum and the signature (32) | mark (8)

The signature covers the whole file; the checksum after it detects accidental changes without a key.

Large arrays are compressed without loss, unless they would not shrink:

    narrow numbers -> their first bytes, their second bytes, ... -> DEFLATE

Integers are stored in the narrowest type that holds all of them, floats in single precision where that is exact, arrays
with few distinct values as values and codes, and booleans as bits.
"""

import hashlib
import json
import math
import os
import re
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.errors import DataUnavailableError, InvalidInputError
from thrifty.files import check_path

Array = NDArray[Any]

MAGIC = b"thrifty\x00"
FORMAT = 5
"""The layout this version writes and reads."""
OF_THRIFTY = "Give a file that `thrifty fit`, or `save` in Python, wrote."
"""Way out of a refusal of any other file."""
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

MIN_BYTES = 1024
"""Shorter arrays are not compressed."""

WORTH = 0.9
"""Largest share of its bytes that an encoded array may have; else it is stored unchanged."""

MAX_DISTINCT = 1 << 16
LEVEL = 6  # of DEFLATE: higher ones take several times as long for a hundredth of the bytes

_BITS = "bits"
_NARROW = ("|u1", "|i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f4", "<f8")


@dataclass(frozen=True)
class Contents:
    """Contents of a file: a JSON object, and the arrays it refers to by number."""

    facts: dict[str, Any]
    arrays: Sequence[Array]


def is_storable(array: Array) -> bool:
    """True for an array that a file may hold: numbers, truth values or text of fixed width."""
    is_known = array.dtype.kind in "biufU" and _is_known_dtype(array.dtype.newbyteorder("<").str)
    return array.ndim <= _MAX_DIMENSIONS and is_known


def pack(contents: Contents) -> bytes:
    """The file's bytes."""
    plain: list[tuple[dict[str, Any], bytes]] = [({}, _raw(array)) for array in contents.arrays]
    few = [
        _encoded(np.frombuffer(raw, array.dtype.newbyteorder("<"))) or (form, raw)
        for array, (form, raw) in zip(contents.arrays, plain, strict=True)
    ]
    n_plain, n_few = (sum(len(blob) for _, blob in blobs) for blobs in (plain, few))
    # An array that compresses better than this would be refused on reading as a decompression bomb.
    stored = few if n_plain <= EXPANSION * n_few + _ROOM_FOR_ARRAYS else plain
    entries, offset = [], 0
    for array, (form, blob) in zip(contents.arrays, stored, strict=True):
        dtype, shape = array.dtype.newbyteorder("<").str, list(array.shape)
        entry = {"dtype": dtype, "shape": shape, "offset": offset, "length": len(blob)}
        # Sums of a matrix product may depend on the layout in their last digit, so the layout is kept too.
        order = {"order": "F"} if _is_column_major(array) else {}
        entries.append({**entry, **order, **form})
        offset += len(blob)
    manifest = json.dumps(
        {**contents.facts, "entries": entries}, allow_nan=False, separators=(",", ":")
    ).encode("ascii")
    body = b"".join([_HEADER.pack(MAGIC, FORMAT, len(manifest)), manifest, *(blob for _, blob in stored)])
    return body + hashlib.sha256(body).digest()


def _raw(array: Array) -> bytes:
    if not is_storable(array):
        raise InvalidInputError(
            f"a file holds arrays of numbers, truth values or text; got the type {array.dtype}. Convert it first."
        )
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return little.tobytes("F" if _is_column_major(array) else "C")


def _is_column_major(array: Array) -> bool:
    return bool(array.flags.f_contiguous and not array.flags.c_contiguous)


def unpack(data: Any, *, max_bytes: int = DEFAULT_MAX_BYTES) -> Contents:
    """Read the JSON and the arrays of a file, after its checksum."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InvalidInputError(f"a file is read from bytes; got {type(data).__name__}. For a path use load.")
    view = memoryview(data)
    if len(view) > max_bytes:
        raise InvalidInputError(
            f"a file may have {max_bytes} bytes; this one has {len(view)}. If it is meant to, raise `max_bytes`."
        )
    manifest_length = _check_header(view)
    if hashlib.sha256(view[:-_DIGEST]).digest() != bytes(view[-_DIGEST:]):
        raise InvalidInputError(
            "the file is damaged: its checksum does not match its content. Save it again."
        )
    begin = _HEADER.size
    manifest = bytes(view[begin : begin + manifest_length])
    size, room = parsed_size(manifest), 4 * len(view) + _ROOM_FOR_FACTS
    if size > room:
        raise InvalidInputError(
            f"the file's manifest would take up to {size} bytes of memory, and a file of {len(view)} bytes may take "
            f"{room} for it. The file was not written by `save`."
        )
    facts = _parse(manifest)
    blobs = view[begin + manifest_length : len(view) - _DIGEST]
    arrays = _arrays(facts.pop("entries", None), blobs)
    return Contents(facts, arrays)


def is_of_thrifty(data: Any) -> bool:
    """True if bytes begin as a file of thrifty does."""
    return bytes(data[: len(MAGIC)]) == MAGIC


class Stored(Sequence[Array]):
    """Arrays of a file, each decoded when it is first used."""

    def __init__(self, makers: Sequence[Callable[[], Array]]) -> None:
        self._makers = makers

    def __len__(self) -> int:
        return len(self._makers)

    def __getitem__(self, number: Any) -> Any:
        return self._makers[number]()


def parsed_size(text: bytes) -> int:
    """Upper bound of the memory that JSON takes once it is parsed, without parsing it."""
    # One escaped character makes each character of a long text take four bytes, while it is put together eight.
    width = 9 if b"\\u" in text or not text.isascii() else 2
    return width * len(text) + sum(cost * text.count(mark) for mark, cost in _COSTS.items())


def _check_header(view: memoryview) -> int:
    """Check magic and format, and return the length of the manifest."""
    if not is_of_thrifty(view):
        raise InvalidInputError(f"these {len(view):,} bytes are not a file of thrifty. {OF_THRIFTY}")
    if len(view) < _HEADER.size + _DIGEST:
        raise InvalidInputError(f"the file is cut off: it has only {len(view)} bytes. Copy it again.")
    _, version, length = _HEADER.unpack(view[: _HEADER.size])
    if version != FORMAT:
        raise InvalidInputError(
            f"the file has format {version}, and this version of thrifty reads format {FORMAT}. "
            f"{'Upgrade thrifty' if version > FORMAT else 'Fit again'}, or save again with this version."
        )
    if length > len(view) - _HEADER.size - _DIGEST:
        raise InvalidInputError(
            f"the file is cut off: its manifest has {length} bytes, the file {len(view)}. Copy it again."
        )
    return int(length)


def _parse(manifest: bytes) -> dict[str, Any]:
    try:
        facts = json.loads(manifest, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"the file's manifest is not proper JSON: {str(error)[:100]}.") from None
    if not isinstance(facts, dict):
        raise InvalidInputError(f"the file's manifest must be an object; got {type(facts).__name__}.")
    return facts


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _arrays(entries: Any, blobs: memoryview) -> Stored:
    if not isinstance(entries, list):
        raise InvalidInputError(f"the file must list its arrays; got {type(entries).__name__}.")
    described, offset, room = [], 0, EXPANSION * len(blobs) + _ROOM_FOR_ARRAYS
    for number, entry in enumerate(entries):
        dtype, shape, length = _check_entry(entry, number, offset, len(blobs))
        room -= math.prod(shape) * dtype.itemsize
        if room < 0:
            raise InvalidInputError(
                f"the file's arrays would take more than {EXPANSION} times the memory of the file. It was not "
                f"written by `save`."
            )
        described.append((blobs[offset : offset + length], dtype, shape, entry, number))
        offset += length
    if offset != len(blobs):
        raise InvalidInputError(f"the file holds {len(blobs) - offset} bytes that belong to no array.")
    return Stored([partial(_array, *arguments) for arguments in described])


def _check_entry(
    entry: Any, number: int, offset: int, available: int
) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    """Type, shape and length of an array, all of them checked against what is there."""
    if not isinstance(entry, dict):
        raise _bad_entry(number, "is not described")
    name, shape, length = entry.get("dtype"), entry.get("shape"), entry.get("length")
    if not isinstance(name, str) or not _is_known_dtype(name):
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
    """The array in its shape and layout, in numbers of this machine."""
    order = entry.get("order", "C")
    if order not in ("C", "F"):
        raise _bad_entry(number, f"has the order {str(order)[:30]!r}, neither C nor F")
    if "form" in entry:
        try:
            flat = _decoded(entry["form"], blob, dtype, math.prod(shape))
        except InvalidInputError as error:
            raise _bad_entry(number, str(error)) from None
    else:
        flat = np.frombuffer(blob, dtype)
        if dtype.kind == "b" and np.any(flat.view(np.uint8) > 1):
            raise _bad_entry(number, "holds truth values that are neither 0 nor 1")
        if dtype.kind == "U" and np.any(np.frombuffer(blob, "<u4") > _LAST_CODE_POINT):
            raise _bad_entry(number, "holds text that is no text")
    return flat.astype(dtype.newbyteorder("=")).reshape(shape, order=order)


def _is_known_dtype(name: str) -> bool:
    return name in _NUMERIC or re.fullmatch(r"<U[1-9][0-9]{0,5}", name, re.ASCII) is not None


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _bad_entry(number: int, problem: str) -> InvalidInputError:
    return InvalidInputError(f"array {number} of the file {problem}. The file was not written by `save`.")


# -- compression -----------------------------------------------------------------------------------


def _encoded(flat: Array) -> tuple[dict[str, Any], bytes] | None:
    """Form and bytes of a little-endian array of one dimension; None where compression saves nothing."""
    if flat.nbytes < MIN_BYTES or flat.dtype.kind == "U":
        return None
    values, narrow = _few(flat)
    form = {"type": _BITS if flat.dtype.kind == "b" else narrow.dtype.str, "distinct": len(values)}
    planes = narrow.view(np.uint8).reshape(len(narrow), -1).T.tobytes()
    blob = zlib.compress(values.tobytes() + planes, LEVEL)
    return ({"form": form}, blob) if len(blob) < WORTH * flat.nbytes else None


def _few(flat: Array) -> tuple[Array, Array]:
    """Distinct values, where counting them pays, and the array in narrow numbers."""
    nothing = flat[:0]
    if flat.dtype.kind == "b":
        return nothing, np.packbits(flat)
    if flat.dtype.kind in "iu":
        kinds = (np.dtype(name) for name in _NARROW[:8])
        low, high = int(flat.min()), int(flat.max())
        fits = (kind for kind in kinds if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max)
        return nothing, flat.astype(next(fits))
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        single = flat.astype("<f4")
    if single.astype(flat.dtype).tobytes() == flat.tobytes():
        return nothing, single
    # Compared bit by bit: zero has two signs, and there are many kinds of NaN.
    words, place = np.unique(flat.view(f"<u{flat.dtype.itemsize}"), return_inverse=True)
    if len(words) > min(MAX_DISTINCT, len(flat) // 2):
        return nothing, flat
    return words.view(flat.dtype), place.astype("|u1" if len(words) <= 256 else "<u2")


def _decoded(form: Any, blob: memoryview, dtype: np.dtype[Any], size: int) -> Array:
    """Decode an array of ``size`` elements; bytes that do not match the form are refused."""
    if not isinstance(form, dict) or form.keys() != {"type", "distinct"}:
        raise InvalidInputError("is stored in a form that is not known")
    kind, n_distinct = form["type"], form["distinct"]
    if kind not in (_BITS, *_NARROW) or type(n_distinct) is not int or not 0 <= n_distinct <= MAX_DISTINCT:
        raise InvalidInputError("is stored in a form that is not known")
    narrow = np.dtype(np.uint8 if kind == _BITS else kind)
    n_numbers = math.ceil(size / 8) if kind == _BITS else size
    head = n_distinct * dtype.itemsize
    data = _inflated(blob, head + n_numbers * narrow.itemsize)
    planes = np.frombuffer(data, np.uint8, offset=head).reshape(narrow.itemsize, n_numbers)
    numbers = np.ascontiguousarray(planes.T).reshape(-1).view(narrow)
    if kind == _BITS:
        return np.unpackbits(numbers, count=size).astype(dtype)
    if not n_distinct:
        return numbers.astype(dtype)
    if narrow.kind != "u" or (size and int(numbers.max()) >= n_distinct):
        raise InvalidInputError("counts distinct values that are not there")
    return np.frombuffer(data, dtype, n_distinct)[numbers]


def _inflated(blob: memoryview, length: int) -> bytes:
    """The bytes of a compressed blob, of which there must be so many; never more than that are made."""
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(blob, length + 1)
    except zlib.error:
        raise InvalidInputError("cannot be decompressed") from None
    if len(data) != length or not stream.eof or stream.unused_data:
        raise InvalidInputError(f"must decompress to {length} bytes, and does not")
    return data


# -- signatures ------------------------------------------------------------------------------------

MARK = b"ed25519\x00"
_SIGNATURE = 64
_APPENDED = _SIGNATURE + _DIGEST + len(MARK)
_LONGEST_KEY = 1 << 16


def sign(data: bytes, private_key: Any) -> bytes:
    """A file with its signature appended."""
    signature: bytes = check_key("private_key", private_key).sign(data)
    return b"".join([data, signature, hashlib.sha256(data[-_DIGEST:] + signature).digest(), MARK])


def without_signature(data: Any, public_key: Any = None) -> Any:
    """The file itself; with ``public_key``, only if the owner of the private key has signed it as it is.

    Nothing in the file is read before the signature is checked, not even how long its parts are.
    """
    key = None if public_key is None else check_key("public_key", public_key)
    is_bytes = isinstance(data, bytes | bytearray | memoryview)
    view = memoryview(data if is_bytes else b"")
    if bytes(view[-len(MARK) :]) != MARK or len(view) < _APPENDED + _DIGEST:
        if key is None:
            return data
        raise InvalidInputError(
            "the file is not signed, and with `public_key` only signed ones are read. Save it with `private_key`, or "
            "leave `public_key` out if you know where the file comes from."
        )
    body, signature = view[:-_APPENDED], bytes(view[-_APPENDED : -_APPENDED + _SIGNATURE])
    if key is not None:
        from cryptography.exceptions import InvalidSignature

        try:
            key.verify(signature, bytes(body))
        except InvalidSignature:
            raise InvalidInputError(
                "the signature of the file does not fit: it was changed after it was signed, or signed with a key "
                "that does not belong to `public_key`. Ask its author for the file, or for the key."
            ) from None
    if hashlib.sha256(bytes(body[-_DIGEST:]) + signature).digest() != bytes(
        view[-_DIGEST - len(MARK) : -len(MARK)]
    ):
        raise InvalidInputError("the file is damaged: its signature was changed. Save it again.")
    return body


def check_key(name: str, key: Any) -> Any:
    """The key as an object of ``cryptography``, from that, from PEM bytes or from the path of a PEM file.

    ``name`` is "private_key" or "public_key".
    """
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ModuleNotFoundError:
        raise InvalidInputError(
            "signatures need cryptography; install it with `pip install thrifty[signing]`."
        ) from None
    is_private = name == "private_key"
    if isinstance(key, bytes | str | os.PathLike):
        pem = _pem(name, key)
        try:
            key = (
                serialization.load_pem_private_key(pem, password=None)
                if is_private
                else serialization.load_pem_public_key(pem)
            )
        except TypeError:
            raise InvalidInputError(
                "private_key is encrypted. Open it with "
                "cryptography.hazmat.primitives.serialization.load_pem_private_key and give what that returns."
            ) from None
        except (ValueError, UnsupportedAlgorithm) as error:
            raise InvalidInputError(f"{name} must be an ed25519 key in PEM form: {error}.") from None
    wanted = ed25519.Ed25519PrivateKey if is_private else ed25519.Ed25519PublicKey
    if not isinstance(key, wanted):
        raise InvalidInputError(
            f"{name} must be an {wanted.__name__} of cryptography, its PEM bytes, or the path of a PEM file; got "
            f"{type(key).__name__}."
        )
    return key


def _pem(name: str, key: bytes | str | os.PathLike[str]) -> bytes:
    if isinstance(key, bytes):
        return key
    check_path(key)
    try:
        with Path(key).open("rb") as file:
            return file.read(_LONGEST_KEY)
    except FileNotFoundError:
        raise DataUnavailableError(
            f"{name} {str(key)!r} does not exist. Give the path of a PEM file."
        ) from None
    except OSError as error:
        raise InvalidInputError(f"{name} {str(key)!r} cannot be read: {error.strerror}.") from error
