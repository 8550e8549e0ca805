"""Real data by name, from a folder the user names; nothing of third parties ships with thrifty.

The folder is the argument ``data``, else the environment variable ``THRIFTY_DATA``. Every file is
checked against its known checksum before it is read, so that numbers from two machines are numbers
from the same data.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from thrifty.exceptions import DataUnavailableError

__all__ = ["Split", "load_digits_at_least_five", "load_letters", "make_synthetic"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Split:
    """Rows to learn from, to choose with, and to report on, in that order; labels are 0 / 1."""

    X_train: Floats
    y_train: NDArray[np.intp]
    X_val: Floats
    y_val: NDArray[np.intp]
    X_test: Floats
    y_test: NDArray[np.intp]
    feature_names: tuple[str, ...]


@dataclass(frozen=True)
class _File:
    name: str
    sha256: str
    about: str


_LETTERS = _File(
    "letter.npz",
    "14227dcdca563007800a525b117751b1595a83edaeb938a613c9796bdf1c1e38",
    "the UCI Letter Recognition data (Slate, 1991) as arrays X (20000, 16) and y (20000,), in file order",
)


def load_letters(data: str | os.PathLike[str] | None = None) -> Split:
    """Letters before N against the rest: 12,000 / 4,000 / 4,000 rows in file order, as in the paper."""
    arrays = _read(_LETTERS, data)
    X, y = arrays["X"].astype(np.float64), (arrays["y"] >= 13).astype(np.intp)
    return _in_order(X, y, 12_000, 16_000, tuple(str(name) for name in arrays["feature_names"]))


def load_digits_at_least_five(seed: int = 0) -> Split:
    """Hand-written digits of scikit-learn: is it 5 or more? 1,797 rows, 64 pixels, half of them to learn from."""
    bunch = load_digits()
    order = np.random.default_rng(seed).permutation(len(bunch.target))
    X, y = bunch.data[order], (bunch.target[order] >= 5).astype(np.intp)
    return _in_order(X, y, 900, 1350, tuple(bunch.feature_names))


def make_synthetic(seed: int = 0, noise: float = 0.01) -> tuple[Floats, NDArray[np.intp]]:
    """Four clusters on a plane, the paper's figure 1: sizes 20, 20, 15, 15; classes 0, 1, 0, 1.

    Feature 2 alone separates clusters 3 and 4 from each other and from the first two; feature 1
    alone separates only cluster 1.
    """
    rng = np.random.default_rng(seed)
    centres = np.array([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [-1.0, -3.0]])
    cluster = np.repeat(np.arange(4), [20, 20, 15, 15])
    return centres[cluster] + rng.normal(scale=noise, size=(70, 2)), cluster % 2


def _in_order(X: Floats, y: NDArray[np.intp], train_end: int, val_end: int, names: tuple[str, ...]) -> Split:
    train, val, test = slice(train_end), slice(train_end, val_end), slice(val_end, None)
    return Split(X[train], y[train], X[val], y[val], X[test], y[test], names)


def _read(file: _File, data: str | os.PathLike[str] | None) -> dict[str, Any]:
    folder = data if data is not None else os.environ.get("THRIFTY_DATA")
    if folder is None:
        raise DataUnavailableError(
            f"{file.name} is needed and no data folder was named. Put {file.about}, into a folder, "
            f"and name it with --data or in THRIFTY_DATA."
        )
    path = Path(folder) / file.name
    if not path.is_file():
        raise DataUnavailableError(f"{path} does not exist. Put {file.about}, there.")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != file.sha256:
        raise DataUnavailableError(
            f"{path} has checksum {digest[:12]}..., not {file.sha256[:12]}...: it is another version or was damaged. "
            f"Replace it with {file.about}."
        )
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}
