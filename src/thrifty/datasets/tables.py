"""Tables and images by name: letters, MiniBooNE, Covertype, CIFAR-10, digits, and the paper's four clusters."""

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from thrifty.arrays import Floats
from thrifty.datasets.fetching import OpenmlSet
from thrifty.datasets.files import DataFile, Folder, read_arrays
from thrifty.datasets.splits import Split, in_order

__all__ = [
    "FOREST_SIZES",
    "load_cifar_images",
    "load_digits_at_least_five",
    "load_forest",
    "load_letters",
    "load_miniboone",
    "make_synthetic",
]


_LETTERS = DataFile(
    "letter.npz",
    "14227dcdca563007800a525b117751b1595a83edaeb938a613c9796bdf1c1e38",
    "the UCI Letter Recognition data (Slate, 1991) as arrays X (20000, 16) and y (20000,), in file order",
    OpenmlSet(
        6,
        {letter: code for code, letter in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZ")},
        "f03e20f59e07febd240fc350c42476c253342bc8dc34eef873424cf6dbc4a961",
    ),
)

_MINIBOONE = DataFile(
    "miniboone_5k.npz",
    "353bb95020f1c7c09a0c2d544c9e2d7058964b97d8180a884cd6d672f0479459",
    "the balanced 5,000-event subset of UCI MiniBooNE (Roe, 2010) that came with Feature-Budgeted Random Forest "
    "(Nan, Wang, Saligrama, 2015), as arrays X (5000, 50), y and split (0 train, 1 validation, 2 test)",
)
_FOREST = DataFile(
    "covtype.npz",
    "0d5aa2bc4daae303d3006c17d1bfa125078ee52399341b5f48fca1c533c808da",
    "the UCI Covertype data (Blackard, 1998) as arrays X (581012, 54) and y (581012,) in 1..7, in file order",
    OpenmlSet(
        1596,
        {str(code): code for code in range(1, 8)},
        "c337add3c92712e86b6cfcb20e5cdbee8d2e22c5fc9d597a9351bc9bf8e3915f",
    ),
)
_CIFAR = DataFile(
    "cifar10_20k.npz",
    "37845c6dad697f8d1d1a5e64a63f5b8ad63a5db25926492ddbdc1e85f781432d",
    "20,000 images of CIFAR-10 (Krizhevsky, 2009), 2,000 a class, as arrays d (differences of pixels) and y",
)

FOREST_SIZES = 36_603, 15_688, 58_101
"""Rows to learn from, to choose with and to report on, as in the paper's appendix."""


def load_letters(data: Folder = None) -> Split:
    """Letters before N against the rest: 12,000 / 4,000 / 4,000 rows in file order, as in the paper."""
    arrays = read_arrays(_LETTERS, data)
    X, y = arrays["X"].astype(np.float64), (arrays["y"] >= 13).astype(np.intp)
    return in_order(X, y, 12_000, 16_000, tuple(str(name) for name in arrays["feature_names"]))


def load_miniboone(data: Folder = None, *, seed: int | None = None) -> Split:
    """Electron neutrinos against muon neutrinos: 2,000 / 1,000 / 2,000 of the 5,000-event subset, not the full set.

    Without a seed the split is the published one; a seed draws another of the same sizes.
    """
    arrays = read_arrays(_MINIBOONE, data)
    names = tuple(str(name) for name in arrays["feature_names"])
    part = np.argsort(arrays["split"], kind="stable")
    order = part if seed is None else np.random.default_rng(seed).permutation(len(part))
    X, y = arrays["X"].astype(np.float64)[order], arrays["y"].astype(np.intp)[order]
    return in_order(X, y, 2_000, 3_000, names)


def load_forest(data: Folder = None, *, seed: int = 0) -> Split:
    """Lodgepole pine against the other cover types: 36,603 / 15,688 / 58,101 rows drawn from Covertype."""
    arrays = read_arrays(_FOREST, data)
    train, val, test = FOREST_SIZES
    order = np.random.default_rng(seed).permutation(len(arrays["y"]))[: train + val + test]
    X, y = arrays["X"][order].astype(np.float64), (arrays["y"][order] == 2).astype(np.intp)
    return in_order(X, y, train, train + val, tuple(str(name) for name in arrays["feature_names"]))


def load_cifar_images(
    data: Folder = None,
) -> tuple[NDArray[np.uint8], NDArray[np.intp]]:
    """20,000 colour images of 32 x 32 pixels, shape (n, 32, 32, 3), and whether each is of the last five classes."""
    arrays = read_arrays(_CIFAR, data)
    # Stored as differences along both sides of (G, R - G, B - G), modulo 256.
    plane = np.cumsum(np.cumsum(arrays["d"], axis=3, dtype=np.uint8), axis=2, dtype=np.uint8)
    green = plane[:, 0]
    images = np.stack([plane[:, 1] + green, green, plane[:, 2] + green], axis=-1)
    return images, (arrays["y"] >= 5).astype(np.intp)


def load_digits_at_least_five(seed: int = 0) -> Split:
    """Hand-written digits of scikit-learn: is it 5 or more? 1,797 rows, 64 pixels, half of them to learn from."""
    bunch = load_digits()
    order = np.random.default_rng(seed).permutation(len(bunch.target))
    X, y = bunch.data[order], (bunch.target[order] >= 5).astype(np.intp)
    return in_order(X, y, 900, 1350, tuple(bunch.feature_names))


def make_synthetic(seed: int = 0, noise: float = 0.01) -> tuple[Floats, NDArray[np.intp]]:
    """Four clusters on a plane, the paper's figure 1: sizes 20, 20, 15, 15; classes 0, 1, 0, 1.

    Feature 2 alone separates clusters 3 and 4 from each other and from the first two; feature 1
    alone separates only cluster 1.
    """
    rng = np.random.default_rng(seed)
    centres = np.array([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [-1.0, -3.0]])
    cluster = np.repeat(np.arange(4), [20, 20, 15, 15])
    return centres[cluster] + rng.normal(scale=noise, size=(70, 2)), cluster % 2
