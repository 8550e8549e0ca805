"""Files that are written whole or not at all."""

import contextlib
import errno
import os
import re
import secrets
import shutil
import stat
from pathlib import Path

from thrifty.errors import DataUnavailableError, InvalidInputError

AnyPath = str | os.PathLike[str]
_SHOWN_LETTERS = 100
"""Letters that an error shows of a path that is too long."""


def check_path(path: AnyPath) -> AnyPath:
    """Refuse a path that no file can have, because it is too long or holds a zero byte; return it."""
    try:
        os.lstat(path)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno != errno.ENAMETOOLONG:
            return path  # what is missing or locked is refused where it is opened
        text = os.fspath(path)
        shown = text if len(text) <= _SHOWN_LETTERS else f"{text[:_SHOWN_LETTERS]}..."
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidInputError(
            f"{shown!r} can be the path of no file: {reason}. Name another one."
        ) from None
    return path


def check_output(path: AnyPath) -> Path:
    """Refuse a path that cannot be written, before the work for it is done; return it without symbolic links."""
    target = Path(os.path.realpath(check_path(path)))
    if not target.parent.is_dir():
        raise InvalidInputError(
            f"{path} cannot be written: there is no folder {target.parent}. Make it first."
        )
    if target.is_dir():
        raise InvalidInputError(f"{path} cannot be written: it is a folder. Name a file in it.")
    if target.exists() and not target.is_file():
        raise InvalidInputError(
            f"{path} cannot be written: it is a device, a pipe or a socket, and would be replaced by a file. Name a "
            f"regular file."
        )
    if not os.access(target.parent, os.W_OK):
        raise InvalidInputError(
            f"{path} cannot be written: the folder {target.parent} may not be written to. Name another one."
        )
    return target


def write_atomically(path: AnyPath, data: bytes) -> None:
    """Write a file so that a reader sees the old content or the new one, also after a crash.

    The new content goes into a file beside the old one, reaches the disk, and only then takes its name. If anything
    fails on the way, the old file is untouched.
    """
    target = check_output(path)
    beside = target.with_name(f".{target.name[:100]}.{secrets.token_hex(8)}.part")
    try:
        with open(beside, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, beside)
        os.replace(beside, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        raise InvalidInputError(
            f"{path} cannot be written: {error.strerror or error}. Nothing was changed; name another file."
        ) from error
    _flush_folder(target.parent)


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
    check_path(path)
    try:
        # Without blocking: a pipe of this name would otherwise be waited for.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise InvalidInputError(f"{path} is no regular file. Give a file that `save` wrote.")
            if status.st_size > max_bytes:
                raise InvalidInputError(
                    f"{path} has {status.st_size} bytes, and {max_bytes} are allowed. "
                    f"If it is meant to, raise `max_bytes`."
                )
            # The file may grow while it is read; one byte more than allowed is enough to refuse it.
            return file.read(max_bytes + 1)
    except FileNotFoundError:
        raise DataUnavailableError(f"{path} does not exist. Give a file that `save` wrote.") from None
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror}.") from error


def parse_bytes(text: int | str, name: str) -> int:
    """A number of bytes: 32768, "32768", "32k", "1M" or "2GB", where k is 1,024."""
    parts = re.fullmatch(r"(\d+)\s*([kKmMgG]?)[bB]?", str(text).strip())
    if parts is None or int(parts[1]) == 0:
        raise InvalidInputError(f"{name} must be a number of bytes, such as 32768 or 32k; got {text!r}.")
    return int(parts[1]) * {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}[parts[2].lower()]
