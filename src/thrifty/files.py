"""Files that are there whole or not at all."""

import contextlib
import os
import secrets
import shutil
import stat
from pathlib import Path

from thrifty.errors import DataUnavailableError, InvalidInputError

__all__ = ["check_output", "read_capped", "write_atomically"]

AnyPath = str | os.PathLike[str]


def check_output(path: AnyPath) -> None:
    """Refuse a file that cannot be written before an hour is spent on what should go into it."""
    folder = Path(os.path.realpath(path)).parent
    if Path(path).is_dir():
        raise InvalidInputError(f"{path} cannot be written: it is a folder. Name a file in it.")
    if not folder.is_dir():
        raise InvalidInputError(f"{path} cannot be written: there is no folder {folder}. Make it first.")
    if not os.access(folder, os.W_OK):
        raise InvalidInputError(
            f"{path} cannot be written: the folder {folder} may not be written to. Name another one."
        )


def write_atomically(path: AnyPath, data: bytes) -> None:
    """Write a file so that whoever looks, and whatever happens, sees the old content or the new.

    The new content goes into a file beside the old one, reaches the disk, and only then takes its name. If anything
    fails on the way, the system's own error is raised and the old file is untouched.
    """
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise InvalidInputError(
            f"{target} cannot be written: there is no folder {target.parent}. Make it first."
        )
    if target.is_dir():
        raise InvalidInputError(f"{target} cannot be written: it is a folder. Name a file in it.")
    beside = target.with_name(f".{target.name[:100]}.{secrets.token_hex(8)}.part")
    try:
        _write_through(beside, data)
        if target.exists():
            shutil.copymode(target, beside)
        os.replace(beside, target)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
    _flush_folder(target.parent)


def _write_through(path: Path, data: bytes) -> None:
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _flush_folder(folder: Path) -> None:
    # The new name itself must reach the disk; systems that cannot open a folder do that on their own.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_capped(path: AnyPath, max_bytes: int) -> bytes:
    """All bytes of a regular file, unless there are more than ``max_bytes``."""
    try:
        # Without blocking: a pipe of this name would otherwise be waited for.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with open(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise InvalidInputError(f"{path} is no regular file. Give a file that `save` wrote.")
            if found.st_size > max_bytes:
                raise InvalidInputError(
                    f"{path} has {found.st_size} bytes, and {max_bytes} are allowed. "
                    f"If it is meant to, raise `max_bytes`."
                )
            # The file may grow while it is read; one byte more than allowed is enough to refuse it.
            return file.read(max_bytes + 1)
    except FileNotFoundError:
        raise DataUnavailableError(f"{path} does not exist. Give a file that `save` wrote.") from None
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror}.") from error
