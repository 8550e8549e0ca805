"""The case that rules LightGBM's own penalty out: what another leaf was promised before a purchase.

One feature (``split``) is free and separates two halves. In the left half the column ``priced`` is worth its price of
3000; in the right half ``priced`` is noise and the free column ``honest`` gains about 2500. Once the left half has
bought ``priced``, it is free in the right half too, but its gain there is still that of noise.
"""

import numpy as np
import pytest

from tests.trees.grown import grow, make_grower
from thrifty.engine.trees import bin_columns

PENALTY = 3000.0
SPLIT, PRICED, HONEST = range(3)


@pytest.fixture(scope="module")
def halves():
    rng = np.random.default_rng(0)
    n = 20_000
    X = rng.integers(0, 2, size=(n, 3)).astype(float)
    right = X[:, SPLIT] == 1
    signal = np.where(right, 0.5 * (2 * X[:, HONEST] - 1) + 3.0, 1.5 * (2 * X[:, PRICED] - 1) - 3.0)
    return X, -(signal + 0.1 * rng.normal(size=n))


def test_a_purchase_in_one_leaf_leaves_the_true_gain_in_another(halves):
    X, grad = halves
    grower = make_grower(bin_columns(X), max_depth=2, gamma=1.0, prices=[0.0, PENALTY / 2, 0.0])
    grown = grow(grower, grad)
    np.testing.assert_array_equal(grown.tree.feature, [SPLIT, PRICED, HONEST])
    np.testing.assert_allclose(grown.charge, [0.0, PENALTY / 2, 0.0])
    right = X[:, SPLIT] == 1
    for split, rows in ((1, ~right), (2, right)):
        column = X[rows, grown.tree.feature[split]] == 1
        g = grad[rows]
        exact = 0.5 * (
            g[column].sum() ** 2 / column.sum()
            + g[~column].sum() ** 2 / (~column).sum()
            - g.sum() ** 2 / len(g)
        )
        np.testing.assert_allclose(grown.raw_gain[split], exact, rtol=1e-6)


def test_lightgbm_adds_the_penalty_to_the_gain_of_noise(halves):
    lightgbm = pytest.importorskip("lightgbm")
    X, grad = halves
    data = lightgbm.Dataset(X, label=-grad, free_raw_data=False)
    params = {
        "objective": "regression", "boost_from_average": False, "num_leaves": 4, "max_depth": 2, "verbose": -1,
        "learning_rate": 1.0, "num_threads": 1, "cegb_tradeoff": 1.0, "min_gain_to_split": 0.0,
        "cegb_penalty_feature_coupled": [0.0, PENALTY, 0.0],
    }  # fmt: skip
    tree = lightgbm.train(params, data, num_boost_round=1).dump_model()["tree_info"][0]["tree_structure"]
    right = tree["right_child"]
    assert right["split_feature"] == PRICED
    assert right["split_gain"] >= PENALTY
