"""CIFAR-10 as 400 features, learned from small patches by k-means after Coates and Ng: 100 words, four quarters.

Patches of 6 x 6 pixels are brought to mean 0 and equal contrast, whitened, and clustered. An image is described by how
much closer than average its patches are to each centre, summed over each quarter. No label is looked at.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from sklearn.cluster import MiniBatchKMeans
from threadpoolctl import threadpool_limits

from reproduction.datasets import Split, load_cifar_images

__all__ = ["load_cifar"]

Singles = NDArray[np.float32]
Images = NDArray[np.uint8]

SIDE = 6
WORDS = 100
LEARN_FROM = 100_000
CONTRAST_FLOOR = 10.0  # added to a patch's variance, so that flat patches are not blown up
WHITENING_FLOOR = 0.1  # added to the variances of the directions
CHUNK = 100  # images at a time: about 30 MB of patches

SIZES = 12_000, 3_000, 5_000
"""Images to learn from, to choose with and to report on."""


def load_cifar(data: str | None, seed: int, rows: Sequence[int] = SIZES) -> Split:
    """Load 12,000 / 3,000 / 5,000 images, or fewer; their features are learned from the training images alone."""
    images, y = load_cifar_images(data)
    train, val, test = (min(some, size) for some, size in zip(rows or SIZES, SIZES, strict=True))
    order = np.random.default_rng(seed).permutation(len(y))[: train + val + test]
    images, y = images[order], y[order]
    # Sums of a BLAS depend on its number of threads in their last digit.
    with threadpool_limits(1, user_api="blas"):
        X = learn_patch_words(images[:train], seed).describe(images).astype(np.float64)
    names = tuple(f"word {number}" for number in range(X.shape[1]))
    first, second, third = slice(train), slice(train, train + val), slice(train + val, None)
    return Split(X[first], y[first], X[second], y[second], X[third], y[third], names)


@dataclass(frozen=True)
class PatchWords:
    """A whitening and the centres found after it.

    Attributes
    ----------
    mean : ndarray of shape (108,)
        Mean of the normalised patches.
    whiten : ndarray of shape (108, 108)
        Whitening of the centred patches.
    centres : ndarray of shape (WORDS, 108)
        Centres of the clusters: the words.
    """

    mean: Singles
    whiten: Singles
    centres: Singles

    def describe(self, images: Images) -> Singles:
        """Describe every image by 400 features; cost grows with images times patches times words."""
        return np.concatenate(
            [self._describe(images[first : first + CHUNK]) for first in range(0, len(images), CHUNK)]
        )

    def _describe(self, images: Images) -> Singles:
        windows = _windows(images)
        n_images, n_places = len(images), windows.shape[1]
        white = (_normalised(windows.reshape(-1, len(self.mean))) - self.mean) @ self.whiten
        square = np.einsum("ij,ij->i", white, white)[:, None] + np.einsum(
            "ij,ij->i", self.centres, self.centres
        )
        distance = np.sqrt(np.maximum(square - 2.0 * (white @ self.centres.T), 0.0))
        near = np.maximum(distance.mean(axis=1, keepdims=True) - distance, 0.0)
        near = near.reshape(n_images, n_places, n_places, WORDS)
        half = (n_places + 1) // 2
        quarters = [
            near[:, rows, columns].sum(axis=(1, 2))
            for rows in (slice(half), slice(half, None))
            for columns in (slice(half), slice(half, None))
        ]
        return np.concatenate(quarters, axis=1).astype(np.float32)


def learn_patch_words(images: Images, seed: int) -> PatchWords:
    """Learn the words from random patches of these images."""
    rng = np.random.default_rng(seed)
    windows = _windows(images)
    n_places = windows.shape[1]
    where = (rng.integers(len(images), size=LEARN_FROM), *rng.integers(n_places, size=(2, LEARN_FROM)))
    patches = _normalised(windows[where].reshape(LEARN_FROM, -1))
    mean = patches.mean(axis=0)
    variance, directions = np.linalg.eigh(np.cov(patches - mean, rowvar=False))
    # Only distances matter from here on, so the patches need not be turned back.
    whiten = (directions / np.sqrt(variance + WHITENING_FLOOR)).astype(np.float32)
    words = MiniBatchKMeans(WORDS, batch_size=4096, n_init=1, max_iter=20, random_state=seed)
    words.fit((patches - mean) @ whiten)
    return PatchWords(mean, whiten, words.cluster_centers_.astype(np.float32))


def _windows(images: Images) -> NDArray[np.uint8]:
    """Every patch, shape (n_images, places, places, channels, SIDE, SIDE); nothing is copied."""
    return sliding_window_view(images, (SIDE, SIDE), axis=(1, 2))


def _normalised(patches: NDArray[np.uint8]) -> Singles:
    """Patches with mean 0 and equal contrast, one a row."""
    single = patches.astype(np.float32)
    single -= single.mean(axis=1, keepdims=True)
    contrast = np.einsum("ij,ij->i", single, single) / single.shape[1]
    single /= np.sqrt(contrast + CONTRAST_FLOOR)[:, None]
    return single
