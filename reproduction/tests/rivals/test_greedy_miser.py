import numpy as np
import pytest

from reproduction.rivals.greedy_miser import GreedyMiserClassifier
from thrifty import evidence_of
from thrifty.errors import InvalidInputError


def make(n_rows, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 5))
    y = 1.5 * X[:, 2] + X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=n_rows) > 0
    return X, np.where(y, "yes", "no")


def test_without_a_full_model_there_is_nothing_to_lose_against():
    new_rows = make(500, 3)
    miser = GreedyMiserClassifier(n_trees=5, gamma=1.0).fit(*make(400, 0))
    with pytest.raises(InvalidInputError, match="GreedyMiserClassifier has no full model.*`with_full"):
        miser.certified(*new_rows, max_loss=0.05)
    known = np.where(new_rows[1] == "yes", 0.9, 0.1)
    with pytest.raises(
        InvalidInputError, match="was fitted without its full model.*Choose them on other rows"
    ):
        miser.with_full(known, new_rows[0]).certified(*new_rows, max_loss=0.05)
    alone = evidence_of(miser, *new_rows)
    assert alone.full_quality is None
    assert alone.every_point()[1].score[0] == pytest.approx(miser.score(*new_rows))
