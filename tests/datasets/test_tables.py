import numpy as np
import pytest

from thrifty.datasets import (
    load_cifar_images,
    load_digits_at_least_five,
    load_forest,
    load_letters,
    load_miniboone,
    make_synthetic,
)
from thrifty.exceptions import DataUnavailableError


def test_letters_come_in_file_order_with_the_sizes_of_the_paper(data_folder):
    split = load_letters(data_folder)
    assert (len(split.X_train), len(split.X_val), len(split.X_test)) == (12_000, 4_000, 4_000)
    assert split.X_train.shape[1] == len(split.feature_names) == 16
    assert 0.49 < split.y_train.mean() < 0.52


def test_a_missing_file_is_refused_with_what_to_do(tmp_path):
    with pytest.raises(DataUnavailableError, match=r"letter.npz does not exist. Put the UCI Letter"):
        load_letters(tmp_path)


def test_a_file_with_another_checksum_is_refused(tmp_path):
    (tmp_path / "letter.npz").write_bytes(b"something else")
    with pytest.raises(DataUnavailableError, match="has checksum .* damaged"):
        load_letters(tmp_path)


def test_a_missing_file_that_openml_has_is_refused_with_both_ways_out(tmp_path):
    with pytest.raises(DataUnavailableError, match="Without a folder it would be fetched from OpenML"):
        load_letters(tmp_path)


def test_without_a_folder_what_openml_does_not_hold_is_refused_with_both_ways_to_name_one(monkeypatch):
    monkeypatch.delenv("THRIFTY_DATA", raising=False)
    with pytest.raises(DataUnavailableError, match="Put the balanced .* --data or in THRIFTY_DATA"):
        load_miniboone()


def test_digits_are_split_without_overlap():
    split = load_digits_at_least_five()
    assert len(split.X_train) + len(split.X_val) + len(split.X_test) == 1797
    assert set(split.y_train) == {0, 1}


def test_the_synthetic_clusters_stand_where_the_paper_puts_them():
    X, y = make_synthetic(noise=0.0)
    points, counts = np.unique(np.c_[X, y], axis=0, return_counts=True)
    assert points.tolist() == [[-1, -3, 1], [-1, -1, 0], [-1, 1, 1], [1, 1, 0]]
    assert counts.tolist() == [15, 15, 20, 20]


def test_miniboone_comes_in_its_published_split_or_in_another_of_the_same_sizes(data_folder):
    published, drawn = load_miniboone(data_folder), load_miniboone(data_folder, seed=1)
    for split in (published, drawn):
        assert [len(part) for part in (split.y_train, split.y_val, split.y_test)] == [2000, 1000, 2000]
    assert published.y_test.mean() == 0.5  # each part of the published split is balanced
    assert not np.array_equal(published.X_train, drawn.X_train)
    everything = [np.vstack([split.X_train, split.X_val, split.X_test]) for split in (published, drawn)]
    np.testing.assert_array_equal(*(np.sort(table, axis=0) for table in everything))


def test_forest_has_the_sizes_of_the_paper_and_no_row_twice(data_folder):
    split = load_forest(data_folder, seed=3)
    assert [len(part) for part in (split.y_train, split.y_val, split.y_test)] == [36_603, 15_688, 58_101]
    assert 0.47 < split.y_test.mean() < 0.50  # class 2 is 283,301 of 581,012
    assert (
        len(np.unique(np.vstack([split.X_train, split.X_val, split.X_test]), axis=0))
        == 36_603 + 15_688 + 58_101
    )


def test_cifar_images_are_decoded_and_half_of_them_are_of_the_last_five_classes(data_folder):
    images, y = load_cifar_images(data_folder)
    assert images.shape == (20_000, 32, 32, 3)
    assert y.mean() == 0.5
    # Wrongly decoded differences look like noise; neighbouring pixels of a photograph are alike.
    step = np.abs(np.diff(images[:500].astype(int), axis=1)).mean()
    assert step < 20 < images[:500].std()
