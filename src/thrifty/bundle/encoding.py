"""Lossless compression of large arrays.

    narrow numbers -> their first bytes, their second bytes, ... -> DEFLATE

Integers are stored in the narrowest type that holds all of them, floats in single precision where that is exact, arrays
with few distinct values as values and codes, and booleans as bits. Short arrays, and those that would not shrink, are
stored unchanged.
"""

import math
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.errors import InvalidInputError

__all__ = ["decoded", "encoded"]

Array = NDArray[Any]

MIN_BYTES = 1024
"""Shorter arrays are not compressed."""

WORTH = 0.9
"""Largest share of its bytes that an encoded array may have; else it is stored unchanged."""

MAX_DISTINCT = 1 << 16
LEVEL = 6  # of DEFLATE: higher ones take several times as long for a hundredth of the bytes

_BITS = "bits"
_NARROW = ("|u1", "|i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f4", "<f8")


def encoded(flat: Array) -> tuple[dict[str, Any], bytes] | None:
    """How a little-endian array of one dimension is stored, and its bytes; None where nothing is saved."""
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


def decoded(form: Any, blob: memoryview, dtype: np.dtype[Any], size: int) -> Array:
    """The array of so many elements; refuses bytes that are not exactly what the form says."""
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
        bits: Array = np.unpackbits(numbers, count=size).astype(dtype)
        return bits
    if not n_distinct:
        plain: Array = numbers.astype(dtype)
        return plain
    if narrow.kind != "u" or (size and int(numbers.max()) >= n_distinct):
        raise InvalidInputError("counts distinct values that are not there")
    values: Array = np.frombuffer(data, dtype, n_distinct)[numbers]
    return values


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
