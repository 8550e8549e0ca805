"""An object to the bytes of a file, and back."""

from collections.abc import Iterable, Sequence
from typing import Any

import thrifty
from thrifty.bundle.archive import type_names
from thrifty.bundle.container import DEFAULT_MAX_BYTES, Contents, pack, unpack
from thrifty.bundle.context import FullMode, Reading, Writing
from thrifty.bundle.fields import Fields, Packer, Unpacker
from thrifty.bundle.objects import Kind, pack_object, unpack_object
from thrifty.bundle.signature import check_private_key, sign, without_signature
from thrifty.errors import InvalidInputError

__all__ = ["from_bytes", "to_bytes"]

_MODES = ("inside", "reference", "absent")


def to_bytes(
    thing: Any,
    *,
    full: FullMode = "inside",
    evidence: bool = True,
    private_key: Any = None,
    kinds: Sequence[Kind] = (),
) -> bytes:
    """What ``save`` would write into a file."""
    if full not in _MODES:
        raise InvalidInputError(f"full must be one of {', '.join(map(repr, _MODES))}; got {full!r}.")
    key = None if private_key is None else check_private_key(private_key)
    packer = Packer()
    writing = Writing(packer, full, pack_object, evidence=evidence)
    kind = next((one for one in kinds if type(thing) is one.holds), None)
    packed = pack_object(thing, writing) if kind is None else {"kind": kind.name, **kind.pack(thing, writing)}
    data = pack(Contents({"thrifty": thrifty.__version__, **packed}, packer.arrays))
    return data if key is None else sign(data, key)


def from_bytes(
    data: bytes,
    *,
    full: Any = None,
    trusted: Iterable[str | type] = (),
    max_bytes: int = DEFAULT_MAX_BYTES,
    public_key: Any = None,
    kinds: Sequence[Kind] = (),
) -> Any:
    """What ``load`` would read from a file of these bytes."""
    reading = Reading(unpack_object, full, type_names(trusted), max_bytes)
    try:
        contents = unpack(without_signature(data, public_key), max_bytes=max_bytes)
        fields = Fields(contents.facts, Unpacker(contents.arrays), "the content")
        name = fields.raw("kind")
        kind = next((one for one in kinds if one.name == name), None)
        return unpack_object(fields, reading) if kind is None else kind.unpack(fields, reading)
    except RecursionError:
        raise InvalidInputError("the bundle is nested too deep to be one that `save` wrote.") from None
