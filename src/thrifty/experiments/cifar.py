"""CIFAR-10, of which the paper says only that gains were marginal: 400 features learned from patches, at 1 each."""

from collections.abc import Sequence

import numpy as np
from threadpoolctl import threadpool_limits

from thrifty.datasets import Split, load_cifar_images
from thrifty.experiments.figure import MARGINAL_CLAIMS, Figure, run_figure
from thrifty.experiments.outcome import Outcome, Run
from thrifty.experiments.patches import learn_patch_words
from thrifty.experiments.priced import Priced, SweepSettings
from thrifty.experiments.settings import read_settings

__all__ = ["NAME", "load_cifar", "run"]

NAME = "cifar"

NOTES = (
    (
        "20,000 of the 60,000 images; the first five classes against the last five. The features are learned "
        "here, from patches of the training images, after the recipe that the literature names."
    ),
)

SIZES = 12_000, 3_000, 5_000
"""Images to learn from, to choose with and to report on."""


def load_cifar(data: str | None, seed: int, rows: Sequence[int] = SIZES) -> Split:
    """12,000 / 3,000 / 5,000 images, or fewer, as 400 features learned from patches of the training images alone."""
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


def run(how: Run) -> Outcome:
    """Run the experiment, draw the picture and return the numbers."""
    settings = read_settings(SweepSettings, NAME, profile=how.profile, config=how.config)
    figure = Figure(
        NAME,
        "CIFAR-10, 400 features: test accuracy by budget",
        Priced.at_one_each(load_cifar(how.data, settings.seed, settings.rows)),
        settings.forest(),
        claims=MARGINAL_CLAIMS,
        notes=NOTES,
    )
    return run_figure(figure, settings, how)
