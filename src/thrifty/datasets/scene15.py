"""Photographs of fifteen kinds of scene, each described three times over."""

import numpy as np
from numpy.typing import NDArray

from thrifty.datasets.files import DataFile, Folder, read_arrays
from thrifty.datasets.splits import Split, in_order

__all__ = ["SCENE15_SIZES", "load_scene15"]

_SCENE15 = DataFile(
    "scene15_3view.npz",
    "82f98f50f0b74ac6f21e73edd772270390133665ac5703a5dd47e997d29f82b7",
    "the Scene-15 images (Lazebnik, Schmid, Ponce, 2006) as three descriptors, GIST, PHOG and LBP: arrays "
    "X (4485, 119), y (4485,) in 0..14 and view (119,)",
)

SCENE15_SIZES = 1_500, 300, 2_685
"""Rows to learn from, to choose with and to report on: a third of the 4,485 images, a few, and the rest."""


def load_scene15(data: Folder = None, *, seed: int = 0) -> tuple[Split, NDArray[np.intp]]:
    """Scenes 8 to 14 against scenes 0 to 7: 1,500 / 300 / 2,685 images drawn with a seed, and each column's descriptor.

    The source does not name its fifteen codes, so that no split by meaning (indoors or outdoors, say) can be
    made: the first eight codes are class 0, the last seven class 1. The second value, of shape (119,), numbers the
    descriptor that a column belongs to (0 GIST, 1 PHOG, 2 LBP); whoever computes one number of a descriptor has
    computed them all, so it is the ``feature_groups`` of an estimator.
    """
    arrays = read_arrays(_SCENE15, data)
    train, val, _ = SCENE15_SIZES
    order = np.random.default_rng(seed).permutation(len(arrays["y"]))
    X, y = arrays["X"][order].astype(np.float64), (arrays["y"][order] >= 8).astype(np.intp)
    names = tuple(str(name) for name in arrays["feature_names"])
    return in_order(X, y, train, train + val, names), arrays["view"].astype(np.intp)
