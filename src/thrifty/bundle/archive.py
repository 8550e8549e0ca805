"""Foreign models as bytes: skops writes and reads them, and what it is given to read is checked first.

A skops file is a zip archive of arrays and a description. Before anything of it is unpacked: names that
stay inside, no kind of member but those that skops writes, no archive in an archive in an archive, and a
total size that its own directory admits, the caller allows and the length of the archive accounts for. The description
is measured before it is parsed. Trees that we know become arrays of our own; skops builds only the rest.
"""

import io
import math
import re
import sys
import zipfile
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.bundle.description import Description
from thrifty.bundle.soundness import check_sound
from thrifty.errors import InvalidInputError
from thrifty.full.trees import tree_classifier_of

__all__ = ["UntrustedTypesError", "check_archive", "dump_model", "load_model", "type_names"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}\.(npy|npz|bin|json)")
_ENCRYPTED = 0x1
_KNOWN_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ROOM_TO_UNPACK, _ROOM_TO_BUILD = 24 << 20, 12 << 20


class UntrustedTypesError(InvalidInputError):
    """A model is made of types that nobody said were trusted; ``types`` are their names."""

    def __init__(self, message: str, types: Iterable[str]) -> None:
        super().__init__(message)
        self.types = tuple(types)


def dump_model(model: Any) -> NDArray[np.uint8]:
    """A fitted model as the bytes of a skops file that ``load_model`` has room for."""
    import skops.io

    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED):
        try:
            # The first level of compression makes a model five times smaller; the next ones cost more than they save.
            data = skops.io.dumps(model, compression=method, compresslevel=1)
        except Exception as error:  # whatever a foreign model raises while it is taken apart
            raise InvalidInputError(
                f"skops cannot write the {type(model).__name__}: {str(error)[:200]} "
                f"Keep it elsewhere and save with full='reference' or full='absent'."
            ) from error
        if _has_room(data):
            return np.frombuffer(data, np.uint8)
    raise InvalidInputError(
        f"the {type(model).__name__} is made of so many parts that a file of it would take more memory than its length "
        f"accounts for. Keep it elsewhere and save with full='reference' or full='absent'."
    )


def load_model(data: bytes, *, trusted: Iterable[str] = (), max_bytes: int) -> Any:
    """The model in a skops file, if it is made of trusted types only and holds together.

    Trees that we know come back as a ``TreeClassifier``, and need no trust.
    """
    check_archive(data, max_bytes=max_bytes)
    try:
        description = Description(data)
        known = tree_classifier_of(description.model())
        if known is not None:
            return known
        description.check_trees()
        if description.n_bytes > _room_to_build(data):
            raise _bad_archive("would take more memory than its length accounts for")
    except InvalidInputError:
        raise
    except Exception as error:  # a damaged archive may fail in any way, nested too deep included
        raise _unreadable(error) from error
    return _built(data, set(trusted))


def _built(data: bytes, trusted: set[str]) -> Any:
    """What skops makes of an archive whose members and description were checked."""
    import skops.io
    from skops.io.exceptions import UntrustedTypesFoundException

    try:
        model = skops.io.loads(data, trusted=sorted(trusted))
    except UntrustedTypesFoundException:
        unknown = sorted(set(skops.io.get_untrusted_types(data=data)) - trusted)
        raise UntrustedTypesError(
            f"a model in the bundle is made of types that are not trusted by themselves: {', '.join(unknown)}. If you "
            f"know where the file comes from, load it with trusted={unknown!r}, or give the full model with full=.",
            unknown,
        ) from None
    except Exception as error:  # a damaged archive may fail in any way, nested too deep included
        raise _unreadable(error) from error
    check_sound(model)
    return model


def _unreadable(error: Exception) -> InvalidInputError:
    return InvalidInputError(
        f"a model in the bundle cannot be read: {type(error).__name__}: {str(error)[:150]}."
    )


def _room_to_build(data: bytes) -> int:
    # skops holds every array twice while it builds.
    return 2 * len(data) + _ROOM_TO_BUILD


def _has_room(data: bytes) -> bool:
    """Whether an archive would be read."""
    try:
        check_archive(data, max_bytes=sys.maxsize)
        return Description(data).n_bytes <= _room_to_build(data)
    except InvalidInputError:
        return False


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
    """Refuse an archive that is not one of skops, or that would unpack to more than is allowed for its length."""
    try:
        _check_members(data, min(max_bytes, 5 * len(data) + _ROOM_TO_UNPACK), "npy npz bin json")
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
            raise _bad_archive("would unpack to more than `max_bytes` or its length allows")
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
