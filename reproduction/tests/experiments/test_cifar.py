import numpy as np
import pytest

from reproduction.experiments import cifar
from reproduction.experiments.cifar import WORDS, learn_patch_words


@pytest.mark.slow
def test_patch_words_describe_an_image_by_its_quarters(monkeypatch):
    monkeypatch.setattr(cifar, "LEARN_FROM", 5_000)
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(40, 32, 32, 3), dtype=np.uint8)
    words = learn_patch_words(images, seed=0)
    features = words.describe(images[:3])
    assert features.shape == (3, 4 * WORDS)
    assert np.all(features >= 0)
    # The first quarter's numbers depend on no pixel of the last quarter.
    changed = images[:1].copy()
    changed[:, 20:, 20:] = 0
    again = words.describe(changed)
    np.testing.assert_array_equal(again[0, :WORDS], features[0, :WORDS])
    assert not np.array_equal(again[0, 3 * WORDS :], features[0, 3 * WORDS :])
