"""Data sets that OpenML holds in the same form, through scikit-learn's fetcher.

scikit-learn downloads into a temporary file, compares it with the checksum that OpenML publishes, moves it into its own
cache, and so never leaves half a file behind. OpenML's checksum says that the download is whole, not that
it is the data our numbers were made with; so the decoded arrays are compared with a digest of our own.
"""

import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.exceptions import DataUnavailableError

__all__ = ["OpenmlSet", "content_digest", "fetch_arrays"]


@dataclass(frozen=True)
class OpenmlSet:
    """A data set on OpenML that equals one of our files row by row.

    Attributes
    ----------
    data_id : int
        OpenML's number, which also fixes the version.
    codes : mapping of str to int
        Code of every label as OpenML spells it.
    digest : str
        ``content_digest`` of the decoded arrays.
    """

    data_id: int
    codes: Mapping[str, int]
    digest: str


def content_digest(X: Any, y: Any) -> str:
    """SHA-256 of a table as little-endian float64, row after row, followed by its labels as one byte each."""
    digest = hashlib.sha256(np.ascontiguousarray(X, dtype="<f8").tobytes())
    digest.update(np.asarray(y, dtype=np.uint8).tobytes())
    return digest.hexdigest()


def fetch_arrays(source: OpenmlSet, instead: str) -> dict[str, NDArray[Any]]:
    """Arrays ``X``, ``y`` and ``feature_names`` of a data set on OpenML.

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
