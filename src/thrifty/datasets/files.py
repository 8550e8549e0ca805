"""Where data lies, and whether it is the data that it should be."""

import hashlib
import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.datasets.fetching import OpenmlSet, fetch_arrays
from thrifty.exceptions import DataUnavailableError

__all__ = ["DataFile", "Folder", "named_folder", "read_arrays", "read_checked"]

Folder = str | os.PathLike[str] | None
"""A folder with data; None stands for the one in ``THRIFTY_DATA``."""


@dataclass(frozen=True)
class DataFile:
    """A file that thrifty knows by name.

    Attributes
    ----------
    name : str
        Its name in the folder.
    sha256 : str
        Checksum of its bytes.
    about : str
        What it holds, so that somebody without it knows what to download.
    openml : OpenmlSet, optional
        The same arrays on OpenML.
    """

    name: str
    sha256: str
    about: str
    openml: OpenmlSet | None = None


def named_folder(data: Folder) -> Path | None:
    """The folder that the user named, in the argument or else in ``THRIFTY_DATA``; None where there is none."""
    folder = data if data is not None else os.environ.get("THRIFTY_DATA")
    return None if folder is None else Path(folder)


def read_arrays(file: DataFile, data: Folder) -> dict[str, NDArray[Any]]:
    """Arrays of an ``.npz`` file, or the same ones from OpenML where no folder was named."""
    if file.openml is not None and named_folder(data) is None:
        return fetch_arrays(file.openml, _what_to_do(file))
    with np.load(io.BytesIO(read_checked(file, data)), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def read_checked(file: DataFile, data: Folder) -> bytes:
    """The bytes of a file in the folder that the user named, if they are the ones expected."""
    folder = named_folder(data)
    if folder is None:
        raise DataUnavailableError(f"{file.name} is needed and no data folder was named. {_what_to_do(file)}")
    path = folder / file.name
    if not path.is_file():
        fetch = "" if file.openml is None else " Without a folder it would be fetched from OpenML."
        raise DataUnavailableError(f"{path} does not exist. Put {file.about}, there.{fetch}")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataUnavailableError(f"{path} cannot be read ({error}). Put {file.about}, there.") from error
    digest = hashlib.sha256(content).hexdigest()
    if digest != file.sha256:
        raise DataUnavailableError(
            f"{path} has checksum {digest[:12]}..., not {file.sha256[:12]}...: it is another version or was damaged. "
            f"Replace it with {file.about}."
        )
    return content


def _what_to_do(file: DataFile) -> str:
    return (
        f"Put {file.about}, into a folder as {file.name}, and name the folder with --data or in THRIFTY_DATA."
    )
