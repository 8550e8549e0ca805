import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thrifty import InvalidInputError
from thrifty.tables.parts import split_rows


def rows(n=400, seed=0):
    chance = np.random.default_rng(seed)
    return chance.normal(size=(n, 3)), np.arange(n) % 2


@given(st.booleans(), st.integers(0, 5))
def test_every_row_is_in_exactly_one_part_and_both_classes_are_in_each(prove, seed):
    X, y = rows()
    parts = split_rows(X, y, prove=prove, seed=seed)
    together = np.concatenate([parts.learn, parts.choose, parts.prove])
    assert sorted(together) == list(range(len(y)))
    shares = np.array([len(parts.learn), len(parts.choose), len(parts.prove)]) / len(y)
    np.testing.assert_allclose(shares, [0.5, 0.2, 0.3] if prove else [0.7, 0.3, 0.0], atol=0.01)
    for part in (parts.learn, parts.choose):
        assert set(y[part]) == {0, 1}


def test_a_row_that_is_there_twice_is_in_one_part_only():
    X, y = rows(200)
    parts = split_rows(np.vstack([X, X]), np.r_[y, y], prove=True, seed=0)
    for part in (parts.learn, parts.choose, parts.prove):
        assert set(part % 200 + 200) == set(part[part >= 200])


def test_too_few_rows_are_refused():
    X, y = rows(58)
    with pytest.raises(InvalidInputError, match="at least 30 different rows of each class.*0 has 29"):
        split_rows(X, y, prove=False, seed=0)
