import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from thrifty import rows
from thrifty.errors import InvalidInputError
from thrifty.rows import content_folds, fingerprints, key_chance, key_words, uniforms


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(500, 4))


def test_equal_rows_have_equal_fingerprints_and_others_do_not(X):
    doubled = np.vstack([X, X])
    keys = fingerprints(doubled)
    np.testing.assert_array_equal(keys[:500], keys[500:])
    assert len(np.unique(keys)) == 500


def test_zero_and_minus_zero_are_the_same_number():
    np.testing.assert_array_equal(fingerprints(np.array([[0.0, 1.0]])), fingerprints(np.array([[-0.0, 1.0]])))


def test_columns_do_not_commute():
    assert fingerprints(np.array([[1.0, 2.0]])) != fingerprints(np.array([[2.0, 1.0]]))


def test_explicit_zeros_of_a_sparse_table_change_nothing():
    plain = sparse.csr_array(np.array([[0.0, 2.0], [1.0, 0.0]]))
    padded = sparse.csr_array(
        (np.array([0.0, 2.0, 1.0]), np.array([0, 1, 0]), np.array([0, 2, 3])), shape=(2, 2)
    )
    np.testing.assert_array_equal(fingerprints(plain), fingerprints(padded))


def test_sparse_and_dense_rows_have_the_same_fingerprints(X):
    X = X * (np.abs(X) > 0.5)
    np.testing.assert_array_equal(fingerprints(sparse.csr_array(X), 3), fingerprints(X, 3))


def test_the_uniform_numbers_are_uniform_and_another_seed_gives_others(X):
    draws = uniforms(np.random.default_rng(1).normal(size=(20000, 2)), seed=3)
    histogram = np.histogram(draws, bins=10, range=(0, 1))[0]
    # 2000 expected in each, standard deviation 42.
    assert np.abs(histogram - 2000).max() < 5 * 42
    assert np.abs(np.corrcoef(uniforms(X, 1), uniforms(X, 2))[0, 1]) < 0.2


def test_folds_are_stratified_keep_equal_rows_together_and_ignore_order(X):
    y = np.where(np.arange(500) < 100, 1.0, -1.0)
    folds = content_folds(X, y, 5)
    for label, size in ((1.0, 20), (-1.0, 80)):
        np.testing.assert_array_equal(np.bincount(folds[y == label]), np.full(5, size))
    shuffled = np.random.default_rng(1).permutation(500)
    np.testing.assert_array_equal(content_folds(X[shuffled], y[shuffled], 5), folds[shuffled])
    doubled = content_folds(np.vstack([X, X]), np.r_[y, y], 5)
    np.testing.assert_array_equal(doubled, np.r_[folds, folds])


def test_a_single_fold_is_refused(X):
    with pytest.raises(InvalidInputError, match="at least 2"):
        content_folds(X, np.ones(500), 1)


@pytest.mark.parametrize("n_rows", [1, 40, rows.BLOCK + 1])
def test_draws_of_many_seeds_in_any_order_are_those_of_uniform_numbers(n_rows):
    X = np.arange(n_rows, dtype=np.float64)[:, None]
    subsampler = rows.Subsampler(X, 0.6)
    for seed in (1, 2, 3, 500, 2, 1_000_000):
        np.testing.assert_array_equal(subsampler(seed), rows.uniforms(X, seed) < 0.6)


def test_draws_of_few_rows_are_made_together(monkeypatch):
    subsampler, calls, mix = rows.Subsampler(np.arange(40.0)[:, None], 0.6), [], rows.mix
    monkeypatch.setattr(rows, "mix", lambda word: calls.append(word.size) or mix(word))
    for seed in range(1, 100):
        subsampler(seed)
    assert len(calls) <= 2  # the seeds and the draws


def test_the_last_bit_single_precision_and_the_sign_of_nan_deal_no_other_folds(X):
    y = np.where(np.arange(500) < 100, 1.0, -1.0)
    X[::7, 2] = np.nan
    folds = content_folds(X, y, 5)
    for other in (
        np.nextafter(X, np.inf),
        X * (1 + 1e-14),
        X.astype(np.float32),
        np.copysign(X, np.where(np.isnan(X), -1.0, X)),
    ):
        np.testing.assert_array_equal(content_folds(other, y, 5), folds)
    assert not np.array_equal(content_folds(X * (1 + 1e-6), y, 5), folds)


def test_exact_fingerprints_tell_the_last_bit(X):
    close = np.nextafter(X, np.inf)
    np.testing.assert_array_equal(fingerprints(close), fingerprints(X))
    assert (fingerprints(close, exact=True) != fingerprints(X, exact=True)).all()


def test_single_precision_keeps_the_range_of_double_precision():
    X = np.array([[1e300], [2e300], [1e-310], [2e-310], [np.inf], [5e-324], [0.0]])
    assert len(np.unique(fingerprints(X))) == 7


def test_a_key_is_the_same_as_a_number_as_text_and_in_any_container():
    numbers = key_words(np.array([0, 17, -3, 2**40]))
    for same in (
        [0, 17, -3, 2**40],
        ["0", "17", "-3", str(2**40)],
        [0.0, 17.0, -3.0, float(2**40)],
        pd.Index([0, 17, -3, 2**40]),
        pd.Series(["0", "17", "-3", str(2**40)], dtype="string"),
        np.array(["0", "17", "-3", str(2**40)]),
    ):
        np.testing.assert_array_equal(key_words(same), numbers)
    others = key_words(["017", "17.5", "a", "b", "", "-", "٣", str(2**64), ("a", 1), "2019-05-01"])
    assert len(np.unique(np.r_[others, numbers])) == 14
    np.testing.assert_array_equal(
        key_words(pd.MultiIndex.from_tuples([("a", 1), ("a", 2)])), key_words([("a", 1), ("a", 2)])
    )
    # A key of text is the same on every machine and in every process.
    assert key_words(["a"]).tolist() == [3405396810240292928]


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT])
def test_a_missing_key_is_refused_by_row(missing):
    with pytest.raises(InvalidInputError, match="row_key is missing in row 1"):
        key_words(["a", missing])


def test_chance_of_keys_is_uniform_for_row_numbers_and_texts_and_differs_by_seed():
    for keys in (np.arange(20_000), 1_000_000 * np.arange(20_000), [f"order-{n}" for n in range(20_000)]):
        words = key_words(keys)
        chance = key_chance(words, 3)
        assert np.abs(np.histogram(chance, bins=10, range=(0, 1))[0] - 2000).max() < 5 * 42
        assert abs(np.corrcoef(chance, key_chance(words, 4))[0, 1]) < 0.03
        assert abs(np.corrcoef(chance[1:], chance[:-1])[0, 1]) < 0.03
