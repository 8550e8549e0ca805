"""Foreign models as bytes: skops writes and reads them, and what it is given to read is checked first.

A skops file is a zip archive of arrays and a description. Before anything of it is unpacked: names that
stay inside, no kind of member but those that skops writes, no archive in an archive in an archive, and a
total size that its own directory admits and the caller allows.
"""

import io
import math
import re
import zipfile
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.bundle.soundness import REVIEWED, check_sound, why_not_plain
from thrifty.exceptions import InvalidInputError

__all__ = ["UntrustedTypesError", "check_archive", "dump_model", "load_model", "type_names"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}\.(npy|npz|bin|json)")
_ENCRYPTED = 0x1
_KNOWN_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class UntrustedTypesError(InvalidInputError):
    """A model is made of types that nobody said were trusted; ``types`` are their names."""

    def __init__(self, message: str, types: Iterable[str]) -> None:
        super().__init__(message)
        self.types = tuple(types)


def dump_model(model: Any) -> NDArray[np.uint8]:
    """A fitted model as the bytes of a skops file."""
    import skops.io

    try:
        # The first level of compression makes a forest five times smaller; the next ones cost more than they save.
        data = skops.io.dumps(model, compression=zipfile.ZIP_DEFLATED, compresslevel=1)
    except Exception as error:  # whatever a foreign model raises while it is taken apart
        raise InvalidInputError(
            f"skops cannot write the {type(model).__name__}: {str(error)[:200]} "
            f"Keep it elsewhere and save with full='reference' or full='absent'."
        ) from error
    return np.frombuffer(data, np.uint8)


def load_model(data: bytes, *, trusted: Iterable[str] = (), max_bytes: int) -> Any:
    """The model in a skops file, if it is made of trusted types only and holds together."""
    import skops.io
    from skops.io.exceptions import UntrustedTypesFoundException

    check_archive(data, max_bytes=max_bytes)
    trusted = set(trusted)
    try:
        model = skops.io.loads(data, trusted=sorted(trusted | set(REVIEWED)))
    except UntrustedTypesFoundException:
        unknown = sorted(set(skops.io.get_untrusted_types(data=data)) - trusted)
        raise _untrusted("is made of types that are not trusted by themselves", unknown) from None
    except Exception as error:  # a damaged archive may fail in any way, nested too deep included
        raise InvalidInputError(
            f"a model in the bundle cannot be read: {type(error).__name__}: {str(error)[:150]}."
        ) from error
    check_sound(model)
    found = why_not_plain(model, trusted)
    if found is not None:
        problem, unnamed = found
        raise _untrusted(f"{problem}, so that types in it are not trusted by themselves", unnamed)
    return model


def _untrusted(what: str, types: list[str]) -> UntrustedTypesError:
    return UntrustedTypesError(
        f"a model in the bundle {what}: {', '.join(types)}. "
        f"If you know where the file comes from, load it with trusted={types!r}, or give the full model with full=.",
        types,
    )


def type_names(trusted: Any) -> tuple[str, ...]:
    """Full names of the types a caller trusts, given by name or as themselves."""
    given = [trusted] if isinstance(trusted, str | type) else list(trusted)
    for item in given:
        if not isinstance(item, str | type):
            raise InvalidInputError(
                f"trusted must hold names of types such as 'sklearn.tree._tree.Tree', or types; got {item!r}."
            )
    return tuple(
        item if isinstance(item, str) else f"{item.__module__}.{item.__qualname__}" for item in given
    )


def check_archive(data: bytes, *, max_bytes: int) -> None:
    """Refuse an archive that is not one of skops, or that would unpack to more than ``max_bytes``."""
    try:
        _check_members(data, max_bytes, "npy npz bin json")
    except InvalidInputError:
        raise
    except Exception as error:  # zip directories can be wrong in more ways than zipfile has errors for
        raise _bad_archive(f"cannot be unpacked ({type(error).__name__}: {str(error)[:100]})") from error


def _check_members(data: bytes, room: int, kinds: str) -> int:
    """Check every member; returns how many bytes are left of ``room``."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = archive.infolist()
        # zipfile never reads more of a member than its directory declares, so the sum bounds what can come out.
        room -= sum(member.file_size for member in members)
        if room < 0:
            raise _bad_archive("would unpack to more than `max_bytes` allows")
        if len({member.filename for member in members}) < len(members):
            raise _bad_archive("holds two members of one name")
        for member in members:
            _check_member(member, kinds)
        for member in members:
            if member.filename.endswith(".npy"):
                _check_npy(archive.read(member))
            elif member.filename.endswith(".npz"):
                room = _check_members(archive.read(member), room, "npy")
    return room


def _check_member(member: zipfile.ZipInfo, kinds: str) -> None:
    name = _NAME.fullmatch(member.filename)
    if name is None or name.group(1) not in kinds.split():
        raise _bad_archive(f"holds a member named {member.filename[:60]!r}, which skops does not write")
    if member.flag_bits & _ENCRYPTED or member.compress_type not in _KNOWN_METHODS:
        raise _bad_archive(
            f"holds {member.filename!r} encrypted or compressed in a way that skops does not use"
        )


def _check_npy(raw: bytes) -> None:
    """The header of an array must describe exactly the bytes that follow it."""
    stream = io.BytesIO(raw)
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise _bad_archive(f"holds an array in version {version} of numpy's format")
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = header(stream)
    if dtype.hasobject or dtype.itemsize == 0:
        raise _bad_archive(f"holds an array of type {str(dtype)[:60]}, which is not numbers or text")
    if math.prod(shape) * dtype.itemsize != len(raw) - stream.tell() or min(shape, default=0) < 0:
        raise _bad_archive(f"holds an array whose header claims the shape {str(shape)[:60]} over other bytes")


def _bad_archive(problem: str) -> InvalidInputError:
    return InvalidInputError(f"a model in the bundle {problem}. The file was not written by `save`.")
