"""Files that thrifty knows: where they lie, whether they are what they should be, and which of them OpenML has.

Sets that OpenML holds row by row come through scikit-learn's fetcher, which downloads into a temporary file, compares
that with the checksum that OpenML publishes, moves it into its own cache, and so never leaves half a file behind.
OpenML's checksum says that the download is whole, not that it is the data our numbers were made with; so the decoded
arrays are compared with a digest of our own.
"""

import hashlib
import io
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.errors import DataUnavailableError

__all__ = ["Arrays", "DataFile", "Folder", "OpenmlSet", "column_names", "read_arrays", "read_checked"]

Arrays = dict[str, NDArray[Any]]
"""Arrays of a file by their names."""

Folder = str | os.PathLike[str] | None
"""A folder with data; None stands for the one in ``THRIFTY_DATA``."""


@dataclass(frozen=True)
class OpenmlSet:
    """A data set on OpenML that equals one of our files row by row.

    Attributes
    ----------
    data_id : int
        Number of the set on OpenML, which also fixes the version.
    codes : mapping of str to int
        Code of every label as OpenML spells it.
    digest : str
        ``content_digest`` of the decoded arrays.
    """

    data_id: int
    codes: Mapping[str, int]
    digest: str


@dataclass(frozen=True)
class DataFile:
    """A file that thrifty knows by name.

    Attributes
    ----------
    name : str
        Name of the file in the folder.
    sha256 : str
        Checksum of the bytes of the file.
    about : str
        What the file holds, so that somebody without it knows what to download.
    openml : OpenmlSet, optional
        Set on OpenML that holds the arrays of the file, too.
    """

    name: str
    sha256: str
    about: str
    openml: OpenmlSet | None = None


def named_folder(data: Folder) -> Path | None:
    """Find the folder that the user named, in the argument or else in ``THRIFTY_DATA``; None where there is none."""
    folder = data if data is not None else os.environ.get("THRIFTY_DATA")
    return None if folder is None else Path(folder)


def read_arrays(file: DataFile, data: Folder) -> Arrays:
    """Read the arrays of an ``.npz`` file, or fetch them from OpenML where no folder was named."""
    if file.openml is not None and named_folder(data) is None:
        return fetch_arrays(file.openml, _what_to_do(file))
    with np.load(io.BytesIO(read_checked(file, data)), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def read_checked(file: DataFile, data: Folder) -> bytes:
    """Read the bytes of a file in the folder that the user named, if they are the ones expected."""
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


def column_names(arrays: Arrays) -> tuple[str, ...]:
    """Names of the columns that a file stores beside its table."""
    return tuple(str(name) for name in arrays["feature_names"])


def content_digest(X: Any, y: Any) -> str:
    """SHA-256 of a table as little-endian float64, row after row, followed by its labels as one byte each."""
    digest = hashlib.sha256(np.ascontiguousarray(X, dtype="<f8").tobytes())
    digest.update(np.asarray(y, dtype=np.uint8).tobytes())
    return digest.hexdigest()


def fetch_arrays(source: OpenmlSet, instead: str) -> Arrays:
    """Fetch the arrays ``X``, ``y`` and ``feature_names`` of a data set on OpenML.

    Parameters
    ----------
    source : OpenmlSet
        What to fetch.
    instead : str
        What the user can do where fetching fails: a sentence that ends the message.
    """
    frame, target = _fetched(source, instead)
    names = np.array([str(name) for name in frame.columns])
    try:
        X = np.column_stack([np.asarray(frame[name]).astype(np.float64) for name in frame.columns])
        y = np.array([source.codes[str(label)] for label in np.asarray(target)], dtype=np.uint8)
    except (KeyError, ValueError) as error:
        raise DataUnavailableError(
            f"OpenML's data set {source.data_id} does not hold what it held ({error!r}). {instead}"
        ) from error
    digest = content_digest(X, y)
    if digest != source.digest:
        raise DataUnavailableError(
            f"OpenML's data set {source.data_id} has content checksum {digest[:12]}..., not {source.digest[:12]}...: "
            f"it is another version. {instead}"
        )
    return {"X": X, "y": y, "feature_names": names}


def _fetched(source: OpenmlSet, instead: str) -> tuple[Any, Any]:
    # Looked up when needed: the fetcher brings pandas and a network stack along.
    from sklearn import datasets

    with warnings.catch_warnings():
        # It warns about every retry; what counts is how the last one ends.
        warnings.simplefilter("ignore")
        try:
            bunch = datasets.fetch_openml(data_id=source.data_id, as_frame=True, parser="auto")
        # A network that is down or breaks off, a full disk, or a file that is not what OpenML announced.
        except (OSError, HTTPException, EOFError, ValueError) as error:
            raise DataUnavailableError(
                f"OpenML's data set {source.data_id} could not be downloaded ({type(error).__name__}: {error}); "
                f"nothing was kept of it. {instead}"
            ) from error
    return bunch.data, bunch.target


def _what_to_do(file: DataFile) -> str:
    return (
        f"Put {file.about}, into a folder as {file.name}, and name the folder with --data or in THRIFTY_DATA."
    )
